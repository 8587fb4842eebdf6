//! What goes in and out of the exit's machine.
#![forbid(unsafe_code)]

use bootstrap::ExitPath;

use super::timeouts::Timeouts;

/// An exit code. Ordered as unsigned numbers, so that negative codes count as very large.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Code(pub u32);

impl Code {
    /// The code of an `exit(value)`.
    #[must_use]
    pub const fn new(value: i32) -> Self {
        Self(value.cast_unsigned())
    }

    /// The value for `_exit`.
    #[must_use]
    pub const fn get(self) -> i32 {
        self.0.cast_signed()
    }
}

/// Most rounds of a reduction: job sizes fit 32 bits.
pub const MAX_ROUNDS: u8 = 32;

/// What ranks say to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Message {
    /// Running maximum of the sender before `round`.
    Reduce {
        /// Round, from 0.
        round: u8,
        /// Maximum so far.
        code: Code,
    },
    /// To rank 0: the sender wants to lead.
    RoleRequest,
    /// From rank 0.
    RoleReply {
        /// Whether the receiver leads.
        leader: bool,
    },
    /// From the leader: exit with this code.
    ExitRequest {
        /// The job's code.
        code: Code,
    },
    /// To the leader: the request arrived.
    ExitReply,
}

/// Something that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// The first exit call of this rank. Later ones never reach the machine with effect.
    LocalExit {
        /// Code given.
        code: Code,
        /// How it began.
        path: ExitPath,
        /// Sending is forbidden: the call came in a signal handler that interrupted a send.
        in_signal: bool,
    },
    /// A peer's message. Contents are checked; what cannot be is ignored.
    Message {
        /// Sender.
        from: u32,
        /// What it said.
        message: Message,
    },
    /// The control tree has decided the end of the job.
    ExitDecision {
        /// With this code.
        code: Code,
    },
    /// The action [`Action::Flush`] is complete.
    Flushed,
    /// The deadline may have passed.
    Timer,
}

/// Something to do, in the order given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Tell the control tree that this rank exits.
    Announce {
        /// With this code.
        code: Code,
        /// How it began.
        path: ExitPath,
    },
    /// From now on the client's message handlers do nothing; internal ones keep working.
    StopClientHandlers,
    /// Send to one rank, possibly this one.
    Send {
        /// Receiver.
        to: u32,
        /// What.
        message: Message,
    },
    /// Send to every rank but this one.
    SendAll {
        /// What.
        message: Message,
    },
    /// Let the user's SIGQUIT handler run, if there is one. The code is stored before.
    RaiseQuit,
    /// Decide the end of the job for this host, unless it is decided; the result comes back as
    /// [`Event::ExitDecision`].
    Decide {
        /// Largest code known.
        code: Code,
    },
    /// Flush the streams and, if `graceful`, let queued messages leave; then [`Event::Flushed`].
    Flush {
        /// Coordination succeeded.
        graceful: bool,
    },
    /// Say farewell to the provider.
    Fini {
        /// The job's code.
        code: Code,
    },
    /// Ask the provider to end the whole job.
    Abort {
        /// The job's code.
        code: Code,
    },
    /// End this process. Always the last action.
    Terminate {
        /// The code of the process.
        code: Code,
    },
}

/// Most actions of one [`Machine::handle`](super::machine::Machine::handle): all rounds at once and
/// a handful around them.
pub const MAX_ACTIONS: usize = MAX_ROUNDS as usize + 8;

/// Actions in order, in place (no allocation: it is filled in signal handlers too).
#[derive(Clone, Debug)]
pub struct Actions {
    items: [Action; MAX_ACTIONS],
    len: usize,
}

impl Default for Actions {
    fn default() -> Self {
        Self::new()
    }
}

impl Actions {
    /// None yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { items: [Action::StopClientHandlers; MAX_ACTIONS], len: 0 }
    }

    /// The actions so far.
    #[must_use]
    pub fn as_slice(&self) -> &[Action] {
        self.items.get(..self.len).unwrap_or_default()
    }

    /// Forgets them.
    pub const fn clear(&mut self) {
        self.len = 0;
    }

    pub(super) fn push(&mut self, action: Action) {
        if let Some(place) = self.items.get_mut(self.len) {
            *place = action;
            self.len += 1;
        } else {
            debug_assert!(false, "more actions than MAX_ACTIONS");
        }
    }
}

/// Where a machine stands. The design document's state table is checked against this.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// No exit yet.
    Running,
    /// Reducing the codes.
    Reducing,
    /// Asking rank 0 for a role.
    Electing,
    /// Waiting for replies.
    Leading,
    /// Waiting for the leader's request.
    Following,
    /// Flushing.
    Draining,
    /// Over, coordinated.
    Finishing,
    /// Over, not coordinated.
    Aborting,
}

impl Phase {
    /// All phases, in the order of their numbers.
    pub const ALL: [Self; 8] = [
        Self::Running,
        Self::Reducing,
        Self::Electing,
        Self::Leading,
        Self::Following,
        Self::Draining,
        Self::Finishing,
        Self::Aborting,
    ];

    /// What a rank in this phase is doing, in at most 48 bytes.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Reducing => "exit code reduction",
            Self::Electing => "exit leader election",
            Self::Leading => "coordinating shutdown as leader",
            Self::Following => "waiting for the leader's exit request",
            Self::Draining => "flushing output",
            Self::Finishing => "bootstrap fini",
            Self::Aborting => "bootstrap abort",
        }
    }
}

/// What a machine is told about its rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// This rank, below `size`.
    pub rank: u32,
    /// Ranks in the job, at least 1.
    pub size: u32,
    /// There is a control tree that hears announcements and decides.
    pub control: bool,
    /// The table of time-outs.
    pub timeouts: Timeouts,
}
