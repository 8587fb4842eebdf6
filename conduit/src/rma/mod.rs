//! One-sided operations at remote ranks; inside a neighbourhood they are one copy.

pub(crate) mod by_message;
pub(crate) mod memory;
pub(crate) mod operations;
pub(crate) mod publication;
pub(crate) mod remote;

use bootstrap::Rank;

use crate::error::Error;
use crate::mode::Mode;
use crate::rank::RankContext;

impl RankContext {
    /// What every one-sided call checks first.
    #[inline(always)]
    pub(crate) fn rma_target<M: Mode>(
        &self,
        call: &'static str,
        rank: Rank,
    ) -> Result<usize, Error> {
        self.check_open(call)?;
        self.check_outside::<M>(call)?;
        self.target(call, rank)
    }
}

/// Bytes of a value in native order, the significant ones first or last by the machine's order.
pub(crate) fn value_bytes(call: &'static str, value: u64, len: usize) -> Result<[u8; 8], Error> {
    if !(1..=8).contains(&len) {
        return Err(Error::ValueSize { call, len });
    }
    Ok(value.to_le_bytes())
}
