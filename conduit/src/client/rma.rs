//! Blocking put and get.

use bootstrap::Rank;

use super::Client;
use crate::error::Error;
use crate::mode::Mode;
use crate::rma::remote::RemoteOp;
use crate::rma::value_bytes;
use crate::trace::{self, TransferKind};

impl<M: Mode> Client<M> {
    /// Copies `source` to `offset` in `rank`'s segment; complete on return.
    ///
    /// # Errors
    /// A rank outside the team, a range outside its segment, a call inside a handler, the end of
    /// the job.
    #[inline]
    pub fn put(&self, rank: Rank, offset: u64, source: &[u8]) -> Result<(), Error> {
        self.put_as("put", rank, offset, source)
    }

    /// Copies from `offset` in `rank`'s segment; complete on return.
    ///
    /// # Errors
    /// As [`Client::put`].
    #[inline]
    pub fn get(&self, rank: Rank, offset: u64, into: &mut [u8]) -> Result<(), Error> {
        self.get_as("get", rank, offset, into)
    }

    /// Writes the low `len` (1 to 8) bytes of `value`, native (little-endian) order. Not atomic.
    ///
    /// # Errors
    /// As [`Client::put`]; also a bad `len`.
    pub fn put_value(&self, rank: Rank, offset: u64, value: u64, len: usize) -> Result<(), Error> {
        let call = "put_value";
        let bytes = value_bytes(call, value, len)?;
        self.put_as(call, rank, offset, &bytes[..len])
    }

    /// Reads `len` (1 to 8) bytes, native (little-endian) order, zero extended. Not atomic.
    ///
    /// # Errors
    /// As [`Client::put_value`].
    pub fn get_value(&self, rank: Rank, offset: u64, len: usize) -> Result<u64, Error> {
        let call = "get_value";
        let mut bytes = value_bytes(call, 0, len)?;
        self.get_as(call, rank, offset, &mut bytes[..len])?;
        Ok(u64::from_le_bytes(bytes))
    }

    #[inline]
    fn put_as(
        &self,
        call: &'static str,
        rank: Rank,
        offset: u64,
        source: &[u8],
    ) -> Result<(), Error> {
        let context = &self.context;
        let target = context.rma_target::<M>(call, rank)?;
        let _span = trace::transfer(TransferKind::Put, rank, source.len());
        match context.transport.put(target, offset, source) {
            Ok(true) => Ok(()),
            Ok(false) => {
                let op = RemoteOp { call, target, offset, immediate: false };
                context.put_remote::<M>(op, source)
            }
            Err(outside) => Err(context.outside(call, outside)),
        }
    }

    #[inline]
    fn get_as(
        &self,
        call: &'static str,
        rank: Rank,
        offset: u64,
        into: &mut [u8],
    ) -> Result<(), Error> {
        let context = &self.context;
        let target = context.rma_target::<M>(call, rank)?;
        let _span = trace::transfer(TransferKind::Get, rank, into.len());
        match context.transport.get(target, offset, into) {
            Ok(true) => Ok(()),
            Ok(false) => {
                let op = RemoteOp { call, target, offset, immediate: false };
                context.get_remote::<M>(op, into)
            }
            Err(outside) => Err(context.outside(call, outside)),
        }
    }
}
