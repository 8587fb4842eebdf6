//! Puts and gets of memory that is registered for nobody. What is longer than a packet is borrowed
//! from its owner (`loans`). The rest, and what is not lent, goes in packets, and the owner copies the
//! bytes: these are vector transfers of one range (`vis`).

use super::operations::OpCounters;
use super::remote::RemoteOp;
use crate::error::Error;
use crate::mode::Mode;
use crate::rank::RankContext;
use crate::transport::message::Outcome;
use crate::vis::describe::Shape;
use crate::vis::list::{Entries, Extent, List};
use crate::vis::memory::Region;
use crate::vis::send::VisOp;

impl RankContext {
    /// Whether only messages reach a place (its word) of a target. Never with segments that are
    /// registered as a whole.
    #[inline(always)]
    #[must_use]
    pub fn goes_by_message(&self, target: usize, place: u64) -> bool {
        !self.settings.segment_mode.is_fast() && self.transport.needs_messages(target, place)
    }

    /// Starts a put that `row` counts; `now`: the source is to be free soon.
    #[cold]
    pub(crate) fn put_keyless<M: Mode>(
        &self,
        op: RemoteOp,
        row: &OpCounters,
        source: &[u8],
        now: bool,
    ) -> Result<Outcome, Error> {
        let copies = now && self.transport.net().is_none_or(|net| net.copies(source.len()));
        if !copies && self.borrow::<M>(op, row, Region::source(source), true)? {
            return Ok(Outcome::Sent);
        }
        self.move_by_message::<M>(op, row, Region::source(source), true)
    }

    /// Starts a get that `row` counts.
    #[cold]
    pub(crate) fn get_keyless<M: Mode>(
        &self,
        op: RemoteOp,
        row: &OpCounters,
        into: &mut [u8],
    ) -> Result<Outcome, Error> {
        let local = Region::target(into);
        if self.borrow::<M>(op, row, local, false)? {
            return Ok(Outcome::Sent);
        }
        self.move_by_message::<M>(op, row, local, false)
    }

    /// Starts a put of `local` to one range, or a get of it, that `row` counts.
    fn move_by_message<M: Mode>(
        &self,
        op: RemoteOp,
        row: &OpCounters,
        local: Region,
        put: bool,
    ) -> Result<Outcome, Error> {
        let RemoteOp { call, target, offset, immediate } = op;
        let all = local.extent();
        let at = usize::try_from(offset).unwrap_or(usize::MAX);
        let (here, there) = ([all], [Extent { at, len: all.len }]);
        let list = |entries| List { entries: Entries::Vector(entries), base: 0 };
        let shape = Shape::Lists { local: list(&here), remote: list(&there) };
        let op = VisOp { call, target, immediate, shape, local, peer: None };
        self.start_vis::<M>(&op, put, row)
    }
}

#[cfg(test)]
#[path = "by_message_tests.rs"]
pub(crate) mod tests;
