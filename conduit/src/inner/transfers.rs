//! Puts and gets at ranks that share no memory with this one. Ranges have at least one byte.

use std::sync::Arc;

use super::{Inner, Target};
use crate::error::Error;
use crate::mode::Mode;
use crate::rma::operations::{Op, OpCounters, Part};
use crate::rma::remote::RemoteOp;
use crate::transport::message::{Flags, Outcome};

impl Inner {
    /// A row for an operation, or for a group of them.
    ///
    /// # Errors
    /// Too many operations.
    pub fn begin(self, call: &'static str) -> Result<(Op, Arc<OpCounters>), Error> {
        self.0.operations.begin().ok_or(Error::TooManyOperations { call })
    }

    /// Whether a part of an operation is complete. A complete operation gives its row back when all
    /// is asked for. `None`: no such operation.
    #[must_use]
    pub fn finish(self, op: Op, part: Part) -> Option<bool> {
        match part {
            Part::All => self.0.operations.finish(op).ok(),
            _ => self.0.operations.is_complete(op, part).ok(),
        }
    }

    /// A put that is complete on return.
    ///
    /// # Errors
    /// A range outside the segment; the end of the job.
    pub fn put<M: Mode>(
        self,
        (call, target): (&'static str, Target),
        offset: u64,
        source: &[u8],
    ) -> Result<(), Error> {
        self.0.put_remote::<M>(call, target.0, offset, source)
    }

    /// A get that is complete on return.
    ///
    /// # Errors
    /// As [`Inner::put`].
    pub fn get<M: Mode>(
        self,
        (call, target): (&'static str, Target),
        offset: u64,
        into: &mut [u8],
    ) -> Result<(), Error> {
        self.0.get_remote::<M>(call, target.0, offset, into)
    }

    /// Starts a put that `row` counts; its source is left alone until then. `now`: it is the
    /// caller's again on return.
    ///
    /// # Errors
    /// As [`Inner::put`].
    pub fn start_put<M: Mode>(
        self,
        (call, target, flags): (&'static str, Target, Flags),
        offset: u64,
        source: &[u8],
        (row, now): (&OpCounters, bool),
    ) -> Result<Outcome, Error> {
        let (target, immediate) = (target.0, flags.contains(Flags::IMMEDIATE));
        let op = RemoteOp { call, target, offset, immediate };
        self.0.put_counted::<M>(op, row, source, now)
    }

    /// Starts a get that `row` counts; its target is left alone until then.
    ///
    /// # Errors
    /// As [`Inner::put`].
    pub fn start_get<M: Mode>(
        self,
        (call, target, flags): (&'static str, Target, Flags),
        offset: u64,
        into: &mut [u8],
        row: &OpCounters,
    ) -> Result<Outcome, Error> {
        let (target, immediate) = (target.0, flags.contains(Flags::IMMEDIATE));
        let op = RemoteOp { call, target, offset, immediate };
        self.0.get_counted::<M>(op, row, into)
    }
}
