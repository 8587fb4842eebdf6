//! Payloads that the network reads where they are, after the call too.

use std::sync::Arc;

use super::carried_long::carrier;
use crate::error::Error;
use crate::mode::Mode;
use crate::rank::RankContext;
use crate::rma::operations::OpCounters;
use crate::transport::message::{AmMessage, AmPayload, Flags, Outcome, ZeroCopy};

/// Counts a payload that the network reads after the call has returned.
pub trait Lender {
    /// Whether the caller can wait for such a payload; if not it is copied.
    fn lends(&self) -> bool;

    /// The counters for it; asked for at most once, when it will be so.
    ///
    /// # Errors
    /// Too many operations.
    fn counters(&self) -> Result<Arc<OpCounters>, Error>;
}

/// The payload is the caller's again on return.
impl Lender for () {
    #[inline]
    fn lends(&self) -> bool {
        false
    }

    fn counters(&self) -> Result<Arc<OpCounters>, Error> {
        Ok(Arc::default())
    }
}

impl RankContext {
    /// Sends a checked message with `post`, or what carries it. A payload that would be read where it
    /// is after the call is lent, if `lender` does that.
    #[inline(always)]
    pub(crate) fn send_lent<M: Mode>(
        &self,
        call: &'static str,
        message: &AmMessage<'_>,
        flags: Flags,
        lender: &impl Lender,
        post: impl FnOnce(&AmMessage<'_>) -> Result<Outcome, Error>,
    ) -> Result<Outcome, Error> {
        if let Some(bytes) = self.carry::<M>(call, message)? {
            return post(&carrier(message, &bytes));
        }
        if !lender.lends() || !self.is_zero_copy(message, flags) {
            return post(message);
        }
        let (payload, dest) = match message.payload {
            AmPayload::Medium(payload) => (payload, None),
            AmPayload::Long { payload, dest } => (payload, Some(dest)),
            _ => return post(message),
        };
        let row = lender.counters()?;
        let zero_copy = ZeroCopy { payload, dest, completion: &row.puts };
        post(&AmMessage { payload: AmPayload::ZeroCopy(&zero_copy), ..*message })
    }

    /// Whether the payload of a message would be read where it is, after the call too.
    fn is_zero_copy(&self, message: &AmMessage<'_>, flags: Flags) -> bool {
        self.transport.is_zero_copy(message, !flags.contains(Flags::IMMEDIATE))
    }
}
