//! Every wait of this crate has a name and a bound; this is the table.

use std::time::{Duration, Instant};

use crate::node_shm::{NodeShm, Notice};
use crate::service::Error;

/// A named bound on a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline {
    /// Name, as in error messages.
    pub name: &'static str,
    /// Bound; `None` when only the end of the job ends the wait.
    pub bound: Option<Duration>,
    /// What is waited for, and why the bound is what it is.
    pub doc: &'static str,
}

/// See [`Deadline::doc`].
pub const HELLO: Deadline = Deadline {
    name: "bootstrap.hello",
    bound: Some(Duration::from_secs(60)),
    doc: "Answer of the node agent to a rank's first frame. The agent answers at once; the bound leaves room for an \
          overloaded host that starts hundreds of ranks.",
};

/// See [`Deadline::doc`].
pub const CALL: Deadline = Deadline {
    name: "bootstrap.call",
    bound: None,
    doc: "A collective call waits as long as the slowest rank computes, so only the end of the job bounds it: a decided \
          exit (notice in the node's shared memory) or a closed agent socket ends the wait.",
};

/// See [`Deadline::doc`].
pub const FINI: Deadline = Deadline {
    name: "bootstrap.fini",
    bound: Some(Duration::from_secs(30)),
    doc: "A rank's wait for the other ranks' farewells. It ends anyway; the bound keeps one stuck rank from holding the \
          others.",
};

/// See [`Deadline::doc`].
pub const SLICE: Deadline = Deadline {
    name: "bootstrap.slice",
    bound: Some(Duration::from_millis(50)),
    doc: "Longest single sleep inside a wait; between sleeps the exit notice is looked at. Twenty wake-ups per second \
          cost nothing measurable and bound how late a rank in a collective call sees a decided exit.",
};

/// See [`Deadline::doc`].
pub const ANNOUNCE: Deadline = Deadline {
    name: "bootstrap.announce",
    bound: Some(Duration::from_secs(2)),
    doc: "Room in the socket for a one-packet message of an exit path. The agent reads all the time; when it is stopped, \
          the exit goes on without it.",
};

/// See [`Deadline::doc`].
pub const ENGINE_ANSWER: Deadline = Deadline {
    name: "bootstrap.engine.answer",
    bound: Some(Duration::from_secs(60)),
    doc: "Answer of an engine's server to anything but a fence. Servers answer in milliseconds; one that does not know a \
          command may stay silent, and one on a busy machine may be slow.",
};

/// See [`Deadline::doc`].
pub const ENGINE_MEET: Deadline = Deadline {
    name: "bootstrap.engine.meet",
    bound: Some(Duration::from_secs(60)),
    doc: "Meeting of the ranks of a host at start. Engines start them together; the bound leaves room for an overloaded \
          host, and ends the wait where the engine's map of hosts is wrong.",
};

/// See [`Deadline::doc`].
pub const ENGINE_REFUSAL: Deadline = Deadline {
    name: "bootstrap.engine.refusal",
    bound: Some(Duration::from_secs(5)),
    doc: "Fence that carries a refusal to the other hosts. When they do not come to it, the ranks of this host hear the \
          refusal all the same.",
};

/// See [`Deadline::doc`].
pub const ENGINE_LEAVE: Deadline = Deadline {
    name: "bootstrap.engine.leave",
    bound: Some(Duration::from_secs(2)),
    doc: "Last answer of an engine's server to a rank that leaves. The rank ends anyway.",
};

/// See [`Deadline::doc`].
pub const ENGINE_OTHERS: Deadline = Deadline {
    name: "bootstrap.engine.others",
    bound: Some(Duration::from_secs(10)),
    doc: "How long the rank that decided the end of the job waits for the other ranks of its host to follow; then the \
          engine ends them. GASNET_EXITTIMEOUT and its parts give the time where they can be read.",
};

/// All deadlines of this crate.
pub const TABLE: [&Deadline; 10] = [
    &HELLO,
    &CALL,
    &FINI,
    &SLICE,
    &ANNOUNCE,
    &ENGINE_ANSWER,
    &ENGINE_MEET,
    &ENGINE_REFUSAL,
    &ENGINE_LEAVE,
    &ENGINE_OTHERS,
];

/// Bound of [`ANNOUNCE`], for exit paths.
#[must_use]
pub fn announce() -> Duration {
    ANNOUNCE.bound.unwrap_or_default()
}

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
        Self { during, deadline, since: deadline.bound.map(|_| Instant::now()) }
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
        if let Some(notice) = page.and_then(NodeShm::notice) {
            return Err(self.ending(notice));
        }
        let slice = SLICE.bound.unwrap_or(Duration::MAX);
        let (Some(bound), Some(since)) = (self.deadline.bound, self.since) else {
            return Ok(slice);
        };
        let waited = since.elapsed();
        match bound.checked_sub(waited) {
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
    pub const fn ending(&self, notice: Notice) -> Error {
        Error::Ending { during: self.during, notice }
    }

    /// The connection broke. When the end of the job is decided, that is the reason to tell.
    #[must_use]
    pub fn lost(&self, page: Option<&NodeShm>) -> Error {
        match page.and_then(NodeShm::notice) {
            Some(notice) => self.ending(notice),
            None => Error::Lost { during: self.during },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_deadline_has_a_name_of_its_own_and_a_reason() {
        for (at, deadline) in TABLE.iter().enumerate() {
            assert!(
                deadline.name.starts_with("bootstrap.") && deadline.doc.ends_with('.'),
                "{deadline:?}"
            );
            assert!(!deadline.doc.contains("  "), "{deadline:?}");
            assert!(TABLE[..at].iter().all(|other| other.name != deadline.name), "{deadline:?}");
        }
    }

    #[test]
    fn a_wait_ends_with_its_bound_or_with_the_job() {
        let over = Deadline { bound: Some(Duration::ZERO), ..CALL };
        let error = Wait::new("barrier", over).slice(None).unwrap_err();
        assert!(matches!(
            error,
            Error::Deadline { during: "barrier", deadline: "bootstrap.call", .. }
        ));
        assert_eq!(Wait::new("barrier", CALL).slice(None).ok(), SLICE.bound);
        assert!(Wait::new("fini", FINI).slice(None).is_ok_and(|slice| Some(slice) == SLICE.bound));
    }
}
