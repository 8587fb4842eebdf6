//! What goes in and out of the exit's machine: events, actions, and its messages as internal active
//! messages, an id and words.
#![forbid(unsafe_code)]

use bootstrap::ExitPath;
use heapless::Deque;

use super::timeouts::Timeouts;
use super::tree::{FAN_OUT, Tree};

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

const REDUCE: u8 = 1;
const ROLE_REQUEST: u8 = 2;
const ROLE_REPLY: u8 = 3;
const EXIT_REQUEST: u8 = 4;
const EXIT_REPLY: u8 = 5;
const GATHER: u8 = 6;
const OUTCOME: u8 = 7;

/// What ranks say to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Message {
    /// To the parent: the maximum of the sender and of those below it.
    Gather(Code),
    /// To a child: the maximum of all ranks, which all exit.
    Outcome(Code),
    /// To a leader: the running maximum of the sender, a leader, before `round`.
    Reduce {
        /// Round, from 0.
        round: u8,
        /// Maximum so far.
        code: Code,
    },
    /// To rank 0: the sender wants to lead.
    RoleRequest,
    /// From rank 0: whether the receiver leads.
    RoleReply(bool),
    /// From the leader: exit with this code, the job's.
    ExitRequest(Code),
    /// To the leader: the request arrived.
    ExitReply,
}

impl Message {
    /// Id and words; the second number says how many words count.
    pub(super) fn encode(self) -> (u8, [i32; 2], usize) {
        match self {
            Self::Gather(code) => (GATHER, [code.get(), 0], 1),
            Self::Outcome(code) => (OUTCOME, [code.get(), 0], 1),
            Self::Reduce { round, code } => (REDUCE, [i32::from(round), code.get()], 2),
            Self::RoleRequest => (ROLE_REQUEST, [0; 2], 0),
            Self::RoleReply(leader) => (ROLE_REPLY, [i32::from(leader), 0], 1),
            Self::ExitRequest(code) => (EXIT_REQUEST, [code.get(), 0], 1),
            Self::ExitReply => (EXIT_REPLY, [0; 2], 0),
        }
    }

    /// The message, `None` when the words are none.
    pub(super) fn decode(id: u8, args: &[i32]) -> Option<Self> {
        Some(match (id, args) {
            (REDUCE, &[round, code]) => {
                let round = u8::try_from(round).ok().filter(|round| *round < MAX_ROUNDS)?;
                Self::Reduce { round, code: Code::new(code) }
            }
            (GATHER, &[code]) => Self::Gather(Code::new(code)),
            (OUTCOME, &[code]) => Self::Outcome(Code::new(code)),
            (ROLE_REQUEST, []) => Self::RoleRequest,
            (ROLE_REPLY, &[leader @ (0 | 1)]) => Self::RoleReply(leader == 1),
            (EXIT_REQUEST, &[code]) => Self::ExitRequest(Code::new(code)),
            (EXIT_REPLY, []) => Self::ExitReply,
            _ => return None,
        })
    }
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
    },
    /// A peer's message. Contents are checked; what cannot be is ignored.
    Message {
        /// Sender.
        from: u32,
        /// What it said.
        message: Message,
    },
    /// The control tree has decided the end of the job, with this code.
    ExitDecision(Code),
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
    SendAll(Message),
    /// Let the user's SIGQUIT handler run, if there is one. The code is stored before.
    RaiseQuit,
    /// Decide the end of the job for this host, with the largest code known, unless it is decided;
    /// the result comes back as [`Event::ExitDecision`].
    Decide(Code),
    /// Flush the streams and, if coordination succeeded (*graceful*), let queued messages leave;
    /// then [`Event::Flushed`].
    Flush(bool),
    /// Tell the provider that this rank is done, with the job's code.
    Fini(Code),
    /// Ask the provider to end the whole job, with its code.
    Abort(Code),
    /// End this process with this code. Always the last action.
    Terminate(Code),
}

/// Most actions of one [`Machine::handle`](super::machine::Machine::handle): all rounds at once, all
/// children, and a handful around them.
pub const MAX_ACTIONS: usize = MAX_ROUNDS as usize + FAN_OUT as usize + 8;

/// Actions in order, in place (no allocation: it is filled in signal handlers too).
pub type Actions = heapless::Vec<Action, MAX_ACTIONS>;

settings::named! {
    /// Where a machine stands. The design document's state table is checked against this.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Phase {
        /// No exit yet.
        Running = "running",
        /// Reducing the codes.
        Reducing = "exit code reduction",
        /// Asking rank 0 for a role.
        Electing = "exit leader election",
        /// Waiting for replies.
        Leading = "coordinating shutdown as leader",
        /// Waiting for the leader's request.
        Following = "waiting for the leader's exit request",
        /// Flushing.
        Draining = "flushing output",
        /// Over, coordinated.
        Finishing = "bootstrap fini",
        /// Over, not coordinated.
        Aborting = "bootstrap abort",
    }
}

impl Phase {
    /// What a rank in this phase is doing, in at most 48 bytes.
    #[must_use]
    pub const fn text(self) -> &'static str {
        self.name()
    }
}

/// What a machine is told about its rank.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// This rank, below `size`.
    pub rank: u32,
    /// Ranks in the job, at least 1.
    pub size: u32,
    /// There is a control tree that hears announcements and decides.
    pub control: bool,
    /// The table of time-outs.
    pub timeouts: Timeouts,
    /// Whom the reduction talks with.
    pub tree: Tree,
}

/// Messages that wait for room at their receiver.
const SENDS: usize = 256;

/// What a machine has asked for and the driver has not done yet: things to do, in order, and
/// messages to send. In place, because it is filled in signal handlers too; only a broadcast
/// allocates.
#[derive(Debug)]
pub(super) struct Outbox {
    todo: Deque<Action, MAX_ACTIONS>,
    sends: Deque<(u32, Message), SENDS>,
    /// A message to all, and the ranks that it has not reached.
    broadcast: Option<(Message, Vec<u32>)>,
}

impl Outbox {
    pub(super) const fn new() -> Self {
        Self { todo: Deque::new(), sends: Deque::new(), broadcast: None }
    }

    /// Takes over what the machine of `rank` in a job of `size` asked for.
    pub(super) fn take(&mut self, actions: &Actions, rank: u32, size: u32) {
        for &action in actions {
            // What finds no room is dropped. With so many messages stuck the receivers are stuck,
            // and it costs them a time-out; each other action comes at most twice in all.
            match action {
                Action::Send { to, message } => drop(self.sends.push_back((to, message))),
                Action::SendAll(message) => {
                    let left = (0..size).filter(|to| *to != rank).collect();
                    self.broadcast = Some((message, left));
                }
                _ => drop(self.todo.push_back(action)),
            }
        }
    }

    /// The next thing to do that is not a message.
    pub(super) fn next(&mut self) -> Option<Action> {
        self.todo.pop_front()
    }

    /// Whether nothing but messages is left.
    pub(super) fn is_quiet(&self) -> bool {
        self.todo.is_empty()
    }

    /// Tries to send every waiting message once; those that `send` refuses stay. Whether all are
    /// out.
    pub(super) fn send(&mut self, mut send: impl FnMut(u32, Message) -> bool) -> bool {
        for _ in 0..self.sends.len() {
            if let Some((to, message)) = self.sends.pop_front()
                && !send(to, message)
            {
                let _ = self.sends.push_back((to, message));
            }
        }
        if let Some((message, left)) = &mut self.broadcast {
            left.retain(|to| !send(*to, *message));
        }
        self.broadcast.take_if(|(_, left)| left.is_empty());
        self.sends.is_empty() && self.broadcast.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::super::machine::Machine;
    use super::super::timeouts::Millis;
    use super::*;
    use crate::exit::tree::blocks::of_blocks;

    #[test]
    fn every_message_survives_the_wire() {
        let messages = [
            Message::Reduce { round: 0, code: Code::new(-1) },
            Message::Reduce { round: 31, code: Code(255) },
            Message::Gather(Code(3)),
            Message::Outcome(Code::new(-2)),
            Message::RoleRequest,
            Message::RoleReply(true),
            Message::RoleReply(false),
            Message::ExitRequest(Code(7)),
            Message::ExitReply,
        ];
        for message in messages {
            let (id, words, count) = message.encode();
            assert_eq!(Message::decode(id, &words[..count]), Some(message));
            assert_eq!(Message::decode(id, &[0; 3]), None, "{message:?} with too many words");
        }
    }

    #[test]
    fn bad_words_are_no_message() {
        for (id, words) in [
            (0, &[][..]),
            (1, &[-1, 0]),
            (1, &[32, 0]),
            (1, &[256, 0]),
            (3, &[2]),
            (6, &[]),
            (7, &[1, 2]),
            (8, &[]),
            (255, &[]),
        ] {
            assert_eq!(Message::decode(id, words), None, "{id} {words:?}");
        }
    }

    #[test]
    fn a_refused_message_is_kept_and_a_broadcast_goes_round_stuck_ranks() {
        let (timeouts, tree) = (Timeouts::new(Millis(1)), of_blocks(2, 5, 1));
        let config = Config { rank: 2, size: 5, control: false, timeouts, tree };
        let mut machine = Machine::new(config);
        let mut out = Actions::new();
        let exit = Event::LocalExit { code: Code(1), path: ExitPath::Explicit };
        machine.handle(Millis(0), exit, &mut out);
        machine.handle(Millis(9), Event::Timer, &mut out);
        let lead = Event::Message { from: 0, message: Message::RoleReply(true) };
        machine.handle(Millis(9), lead, &mut out);
        let mut outbox = Outbox::new();
        outbox.take(&out, 2, 5);
        assert!(matches!(outbox.next(), Some(Action::Announce { .. })));
        assert!(matches!(outbox.next(), Some(Action::StopClientHandlers)));
        assert!(outbox.is_quiet());
        let mut sent = Vec::new();
        for stuck in [vec![0, 3, 1], vec![3], vec![]] {
            let all = outbox.send(|to, _| {
                let free = !stuck.contains(&to);
                if free {
                    sent.push(to);
                }
                free
            });
            assert_eq!(all, stuck.is_empty());
        }
        assert_eq!(sent, [4, 0, 0, 1, 3, 3]);
    }
}
