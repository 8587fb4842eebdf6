//! Waits of the services: what a wait in progress knows, and the bounds of one provider.

use std::time::{Duration, Instant};

use settings::deadlines::bootstrap::{CALL, FINI, HELLO, SLICE};
use settings::deadlines::{Deadline, UNBOUNDED};

use crate::node_shm::{ExitDecision, NodeShm};
use crate::service::Error;

/// The bounds of one provider; tests shorten them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// [`HELLO`].
    pub hello: Deadline,
    /// [`CALL`].
    pub call: Deadline,
    /// [`FINI`].
    pub fini: Deadline,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { hello: HELLO, call: CALL, fini: FINI }
    }
}

/// Called in every slice of a wait; fails when the wait has become pointless.
pub type Watch<'a> = dyn FnMut() -> Result<(), Error> + 'a;

/// A wait in progress.
#[derive(Clone, Copy, Debug)]
pub struct Wait {
    during: &'static str,
    deadline: Deadline,
    /// Not looked at for a wait without a bound: a rank in a short call does not read the clock.
    since: Option<Instant>,
}

impl Wait {
    /// Begins now; `during` names the call that waits.
    #[must_use]
    pub fn new(during: &'static str, deadline: Deadline) -> Self {
        Self { during, deadline, since: (deadline.limit != UNBOUNDED).then(Instant::now) }
    }

    /// The call that waits.
    #[must_use]
    pub const fn during(&self) -> &'static str {
        self.during
    }

    /// How long to sleep before the next look: a slice, or what is left of the bound.
    ///
    /// # Errors
    /// The job's end is decided, or the bound has passed.
    pub fn slice(&self, page: Option<&NodeShm>) -> Result<Duration, Error> {
        if let Some(decision) = page.and_then(NodeShm::exit_decision) {
            return Err(self.ending(decision));
        }
        let slice = SLICE.limit;
        let Some(since) = self.since else { return Ok(slice) };
        let waited = since.elapsed();
        match self.deadline.limit.checked_sub(waited) {
            Some(left) if !left.is_zero() => Ok(left.min(slice)),
            _ => Err(Error::Deadline {
                during: self.during,
                deadline: self.deadline.name,
                waited_ms: u64::try_from(waited.as_millis()).unwrap_or(u64::MAX),
            }),
        }
    }

    /// The end of the job is decided.
    #[must_use]
    pub const fn ending(&self, decision: ExitDecision) -> Error {
        Error::Ending { during: self.during, decision }
    }

    /// The connection broke. When the end of the job is decided, that is the reason to tell.
    #[must_use]
    pub fn lost(&self, page: Option<&NodeShm>) -> Error {
        match page.and_then(NodeShm::exit_decision) {
            Some(decision) => self.ending(decision),
            None => Error::Lost { during: self.during },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_ends_with_its_bound_or_with_the_job() {
        let over = CALL.within(Duration::ZERO);
        let error = Wait::new("barrier", over).slice(None).unwrap_err();
        assert!(matches!(
            error,
            Error::Deadline { during: "barrier", deadline: "bootstrap.call", .. }
        ));
        assert_eq!(Wait::new("barrier", CALL).slice(None).ok(), Some(SLICE.limit));
        assert!(Wait::new("fini", FINI).slice(None).is_ok_and(|slice| slice == SLICE.limit));
    }
}
