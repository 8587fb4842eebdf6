//! Several ranges of a rank's memory in one call, each a request of its own ([`PostList`]).

use std::sync::Arc;

use bootstrap::Rank;

use super::error::Error;
use super::memory::pool::RawTarget;
use super::post::{PostList, Sent};
use super::rma::{OneSided, RawSource};
use super::transport::NetTransport;
use crate::transport::op_counter::OpCounter;

/// Does something with each row until there is no room for more, then posts what is held.
fn each<'a, T>(
    one_sided: OneSided<'a>,
    rows: &mut [(u64, T)],
    mut start: impl FnMut(u64, &mut T, &PostList<'a>) -> Result<Sent, Error>,
) -> Result<Sent, Error> {
    PostList::with(one_sided.0, |list| {
        for (place, row) in rows {
            if start(*place, row, list)? == Sent::Full {
                return Ok(Sent::Full);
            }
        }
        Ok(Sent::Yes)
    })
}

impl NetTransport {
    /// As [`NetTransport::put`], of several ranges: place and source of each. `Full`: poll and call
    /// again with the same rows.
    pub(crate) fn put_rows(
        &self,
        to: Rank,
        rows: &mut [(u64, RawSource<'_>)],
        counter: &Arc<OpCounter>,
    ) -> Result<Sent, Error> {
        let put = self.enter(|context| {
            let one_sided = OneSided(context);
            each(one_sided, rows, |place, row, list| {
                one_sided.put((to, place), row, counter, Some(list))
            })
        });
        put.unwrap_or(Ok(Sent::Full))
    }

    /// As [`NetTransport::put_rows`], of gets.
    pub(crate) fn get_rows(
        &self,
        from: Rank,
        rows: &mut [(u64, RawTarget)],
        counter: &Arc<OpCounter>,
    ) -> Result<Sent, Error> {
        let get = self.enter(|context| {
            let one_sided = OneSided(context);
            each(one_sided, rows, |place, row, list| {
                one_sided.get((from, place), row, counter, Some(list))
            })
        });
        get.unwrap_or(Ok(Sent::Full))
    }
}
