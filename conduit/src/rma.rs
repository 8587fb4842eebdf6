//! Blocking put and get. Inside a neighbourhood they are one copy.

use bootstrap::Rank;

use crate::client::Client;
use crate::core::Core;
use crate::error::Error;
use crate::mode::Mode;

impl Core {
    /// Copies into a neighbour's segment.
    #[inline]
    pub(crate) fn put(
        &self,
        call: &'static str,
        target: usize,
        offset: u64,
        source: &[u8],
    ) -> Result<(), Error> {
        if source.is_empty() {
            return Ok(());
        }
        let row = self.row(target);
        if self.segments().is_some_and(|segments| segments.write(row, offset, source)) {
            return Ok(());
        }
        Err(self.outside(call, target, offset, source.len()))
    }

    /// Copies out of a neighbour's segment.
    #[inline]
    pub(crate) fn get(
        &self,
        call: &'static str,
        target: usize,
        offset: u64,
        into: &mut [u8],
    ) -> Result<(), Error> {
        if into.is_empty() {
            return Ok(());
        }
        let row = self.row(target);
        if self.segments().is_some_and(|segments| segments.read(row, offset, into)) {
            return Ok(());
        }
        Err(self.outside(call, target, offset, into.len()))
    }

    /// Copies into any rank's segment; complete on return.
    #[inline]
    pub(crate) fn put_any<M: Mode>(
        &self,
        call: &'static str,
        target: usize,
        offset: u64,
        source: &[u8],
    ) -> Result<(), Error> {
        if self.is_near(target) || source.is_empty() {
            return self.put(call, target, offset, source);
        }
        self.put_far::<M>(call, target, offset, source)
    }

    /// Copies out of any rank's segment; complete on return.
    #[inline]
    pub(crate) fn get_any<M: Mode>(
        &self,
        call: &'static str,
        target: usize,
        offset: u64,
        into: &mut [u8],
    ) -> Result<(), Error> {
        if self.is_near(target) || into.is_empty() {
            return self.get(call, target, offset, into);
        }
        self.get_far::<M>(call, target, offset, into)
    }

    /// What every one-sided call checks first.
    #[inline]
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

impl<M: Mode> Client<M> {
    /// Copies `source` to `offset` in `rank`'s segment; complete on return.
    ///
    /// # Errors
    /// A rank outside the team, a range outside its segment, a call inside a handler, the end of the job.
    #[inline]
    pub fn put(&self, rank: Rank, offset: u64, source: &[u8]) -> Result<(), Error> {
        let call = "put";
        let target = self.core.rma_target::<M>(call, rank)?;
        self.core.put_any::<M>(call, target, offset, source)
    }

    /// Copies from `offset` in `rank`'s segment; complete on return.
    ///
    /// # Errors
    /// As [`Client::put`].
    #[inline]
    pub fn get(&self, rank: Rank, offset: u64, into: &mut [u8]) -> Result<(), Error> {
        let call = "get";
        let target = self.core.rma_target::<M>(call, rank)?;
        self.core.get_any::<M>(call, target, offset, into)
    }

    /// Writes the low `len` (1 to 8) bytes of `value`, native (little-endian) order. Not atomic.
    ///
    /// # Errors
    /// As [`Client::put`]; also a bad `len`.
    pub fn put_value(&self, rank: Rank, offset: u64, value: u64, len: usize) -> Result<(), Error> {
        let call = "put_value";
        let bytes = value_bytes(call, value, len)?;
        let target = self.core.rma_target::<M>(call, rank)?;
        self.core.put_any::<M>(call, target, offset, &bytes[..len])
    }

    /// Reads `len` (1 to 8) bytes, native (little-endian) order, zero extended. Not atomic.
    ///
    /// # Errors
    /// As [`Client::put_value`].
    pub fn get_value(&self, rank: Rank, offset: u64, len: usize) -> Result<u64, Error> {
        let call = "get_value";
        let mut bytes = value_bytes(call, 0, len)?;
        let target = self.core.rma_target::<M>(call, rank)?;
        self.core.get_any::<M>(call, target, offset, &mut bytes[..len])?;
        Ok(u64::from_le_bytes(bytes))
    }
}
