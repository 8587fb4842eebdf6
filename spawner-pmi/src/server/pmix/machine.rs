//! The agent's part of PMIx, pure: it does no I/O and knows no time.
//!
//! # Primer
//!
//! * libpmix says when all ranks of this host that belong to a *fence* are inside ([`FromHelper::Fence`]).
//!   The lowest agent whose subtree has all members joins the parts: each agent waits for the branches
//!   below that have members, then sends one part up or, where all are there, the whole down again.
//! * A rank may ask for what one other has put without a fence that collects it: the request goes to
//!   that rank's host and the answer back, each along the tree.
//! * A rank that is *gone* (it has finalized or ended) makes fences that need it impossible. Agents
//!   tell those above of it, so who joins the parts of a fence knows it: a rank that waits there is
//!   named, with the one that is gone. Of a fence without ranks of this host that are gone the helper
//!   tells as well. A rank that has ended without PMIx, which others speak, is named at once.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use bootstrap::Rank;
use bootstrap::collective::Bytes;
use serde::{Deserialize, Serialize};

use super::frames::{FRAME_LIMIT, FromHelper, ToHelper};
use super::members::Members;
use crate::server::Event;

/// Statuses of PMIx.
const SUCCESS: i32 = 0;
const BAD_PARAM: i32 = -27;
const NOT_FOUND: i32 = -46;
/// Most that ranks put before one fence; below the limit of a frame with room for what surrounds it.
const DATA_LIMIT: usize = FRAME_LIMIT / 2;

/// The place of a [`Machine`] in its job.
#[derive(Clone, Debug, Default)]
pub struct Place {
    /// Ranks of this host, ascending.
    pub ranks: Vec<Rank>,
    /// Ranks of the job.
    pub size: u32,
    /// By agent below: all ranks of its subtree.
    pub branches: Vec<Vec<Rank>>,
    /// Whether there is an agent above.
    pub parent: bool,
}

/// What agents say to each other, up and down the tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Message {
    /// A rank of the job has begun to speak PMIx.
    InUse,
    /// Up: a rank of the subtree has finalized or ended.
    Gone(Rank),
    /// Up: all members in the subtree are inside. Down: all members are.
    Fence {
        /// Who takes part.
        members: Members,
        /// What they have put.
        data: Bytes,
    },
    /// What has this rank put?
    Want {
        /// Who asks: a rank of its host, and its number for the request.
        asker: (Rank, u32),
        /// The rank.
        rank: Rank,
    },
    /// The answer.
    Found {
        /// Who has asked.
        asker: (Rank, u32),
        /// A status of PMIx.
        status: i32,
        /// What the rank has put.
        data: Bytes,
    },
}

/// A message that no correct agent sends.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StrayMessage {
    /// From an agent that is none of those below.
    #[error("a message of PMIx from branch {0} of {1}")]
    Branch(usize, usize),
    /// Members that are none of its subtree, or no ranks of the job.
    #[error("a PMIx fence of ranks that cannot be")]
    Members,
    /// A second part of a fence.
    #[error("a second part of a PMIx fence from branch {0}")]
    Twice(usize),
    /// The end of a fence in which this subtree is not.
    #[error("the end of a PMIx fence that has not begun here")]
    NotBegun,
}

/// What the driver has to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send a frame to the helper.
    Helper(ToHelper),
    /// Tell what a rank did.
    Tell {
        /// The rank, by its number in the job.
        rank: Rank,
        /// What.
        event: Event,
    },
    /// Send a message to the agent above.
    Up(Message),
    /// Send a message to these agents below.
    Down {
        /// By number of the branch.
        to: Vec<usize>,
        /// What.
        message: Message,
    },
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Silent,
    Open,
    Finalized,
    Ended,
}

/// One fence that is not complete.
#[derive(Debug, Default)]
struct Gather {
    /// The helper's number, once this host's ranks are inside.
    own: Option<u32>,
    /// By branch: its part has come.
    parts: Vec<bool>,
    data: Vec<u8>,
    /// The part of this subtree is on its way up.
    sent: bool,
}

/// The machine. See the module.
#[derive(Debug, Default)]
pub struct Machine {
    place: Place,
    phases: Vec<Phase>,
    fences: BTreeMap<Members, Gather>,
    /// Requests of other hosts that the helper has: who has asked, and for which rank.
    asked: HashMap<u32, ((Rank, u32), Rank)>,
    last_asked: u32,
    /// Ranks of this subtree that take part in no further fence.
    gone: BTreeSet<Rank>,
    in_use: bool,
    actions: VecDeque<Action>,
}

impl Machine {
    /// A machine to which nobody has spoken.
    #[must_use]
    pub fn new(mut place: Place) -> Self {
        place.branches.iter_mut().for_each(|ranks| ranks.sort_unstable());
        let phases = vec![Phase::Silent; place.ranks.len()];
        Self { place, phases, ..Self::default() }
    }

    /// The next thing to do; to be called after every other call until there is none.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    fn tell(&mut self, rank: Rank, event: Event) {
        self.actions.push_back(Action::Tell { rank, event });
    }

    fn local(&self, rank: Rank) -> Option<usize> {
        self.place.ranks.binary_search(&rank).ok()
    }

    /// The branch in which a rank is.
    fn branch_of(&self, rank: Rank) -> Option<usize> {
        self.place.branches.iter().position(|ranks| ranks.binary_search(&rank).is_ok())
    }

    /// Takes what the helper says.
    pub fn hear_helper(&mut self, said: FromHelper) {
        match said {
            FromHelper::Init { rank } => self.init(Rank(rank)),
            FromHelper::Finalize { rank, open: false } => self.over(Rank(rank), Phase::Finalized),
            FromHelper::Finalize { rank, open: true } => {
                if self.local(Rank(rank)).is_some() {
                    self.tell(Rank(rank), Event::Finalize);
                }
            }
            FromHelper::Abort { rank, status } => {
                if self.local(Rank(rank)).is_some() {
                    self.tell(Rank(rank), Event::Abort(status));
                }
            }
            FromHelper::Fence { number, members, data, absent } => {
                if !self.names_absent(&members, &absent) {
                    self.enter(number, members, &data);
                }
            }
            FromHelper::Want { number, rank } => {
                // Any rank of this host stands for it; there is one, or nobody would ask.
                let own = self.place.ranks.first().copied().unwrap_or(Rank(0));
                self.route_want((own, number), Rank(rank));
            }
            FromHelper::Answer { number, status, data } => {
                if let Some((asker, _)) = self.asked.remove(&number) {
                    self.route_found(asker, status, data);
                }
            }
            // For the driver.
            FromHelper::Ready(_) | FromHelper::Failed(_) | FromHelper::Here => {}
        }
    }

    fn init(&mut self, rank: Rank) {
        let Some(local) = self.local(rank) else { return };
        self.phases[local] = Phase::Open;
        self.tell(rank, Event::Init);
        self.used();
    }

    /// A rank of the job speaks PMIx.
    fn used(&mut self) {
        if std::mem::replace(&mut self.in_use, true) {
            return;
        }
        if self.place.parent {
            self.actions.push_back(Action::Up(Message::InUse));
        }
        let all: Vec<usize> = (0..self.place.branches.len()).collect();
        if !all.is_empty() {
            self.actions.push_back(Action::Down { to: all, message: Message::InUse });
        }
        let silent = |(phase, _): &(&Phase, &Rank)| **phase == Phase::Ended;
        let ended = self.phases.iter().zip(&self.place.ranks).filter(silent);
        // Who has ended before anybody spoke never did so itself.
        let ended: Vec<Rank> = ended.map(|(_, rank)| *rank).collect();
        for rank in ended {
            self.never_began(rank);
        }
    }

    fn never_began(&mut self, rank: Rank) {
        let text = "PMIx: it has ended without PMIx_Init, which other ranks have called: they would wait for it in \
                    their first fence, as in MPI_Init";
        self.tell(rank, Event::Broken(text.to_owned()));
    }

    /// A local rank takes part in no further fence.
    fn over(&mut self, rank: Rank, phase: Phase) {
        let Some(local) = self.local(rank) else { return };
        let before = std::mem::replace(&mut self.phases[local], phase);
        match (before, phase) {
            (_, Phase::Finalized) => self.tell(rank, Event::Finalize),
            (Phase::Silent, _) if self.in_use => self.never_began(rank),
            _ => {}
        }
        self.is_gone(rank);
    }

    /// A local rank has ended.
    pub fn ended(&mut self, local: u32) {
        let Some(rank) = self.place.ranks.get(local as usize).copied() else { return };
        self.actions.push_back(Action::Helper(ToHelper::Ended { rank: rank.0 }));
        self.over(rank, Phase::Ended);
        let of_it = |(_, (_, of)): &(&u32, &((Rank, u32), Rank))| *of == rank;
        let waits: Vec<u32> = self.asked.iter().filter(of_it).map(|(number, _)| *number).collect();
        for number in waits {
            if let Some((asker, _)) = self.asked.remove(&number) {
                self.route_found(asker, NOT_FOUND, Bytes::default());
            }
        }
    }

    /// An agent below has left: all ranks of its subtree have ended.
    pub fn left(&mut self, branch: usize) {
        for rank in self.place.branches.get(branch).cloned().unwrap_or_default() {
            self.is_gone(rank);
        }
    }

    fn is_gone(&mut self, rank: Rank) {
        if self.gone.insert(rank) {
            if self.place.parent && self.in_use {
                self.actions.push_back(Action::Up(Message::Gone(rank)));
            }
            self.blame(rank);
        }
    }

    /// Names a rank that waits in a fence for one that is gone, if any does.
    fn blame(&mut self, gone: Rank) {
        let (local, branch) = (self.local(gone), self.branch_of(gone));
        let waits = |(members, gather): &(&Members, &Gather)| {
            let inside = match (local, branch) {
                (Some(_), _) => gather.own.is_some(),
                (_, Some(branch)) => gather.parts.get(branch).is_some_and(|part| *part),
                _ => true,
            };
            members.has(gone) && !inside
        };
        let Some((members, gather)) = self.fences.iter().find(waits) else { return };
        let own = gather.own.is_some().then_some(&self.place.ranks);
        let below = self.place.branches.iter().zip(&gather.parts);
        let below = below.filter(|(_, part)| **part).map(|(ranks, _)| ranks);
        let mut inside = own.into_iter().chain(below).flatten();
        let waiter = inside.find(|rank| members.has(**rank) && !self.gone.contains(rank)).copied();
        if let Some(waiter) = waiter {
            self.waits_for(waiter, gone, &members.clone());
        }
    }

    fn waits_for(&mut self, waiter: Rank, gone: Rank, members: &Members) {
        let whole = members.len() == self.place.size as usize;
        let of = if whole { "of all ranks (as in MPI_Init)" } else { "of some ranks" };
        let gone = gone.0;
        let text =
            format!("PMIx: it waits in a barrier {of}, but rank {gone} has ended or finalized");
        self.tell(waiter, Event::Broken(text));
    }

    /// Ranks of this host are inside a fence without others of it, which are gone: it can never end.
    fn names_absent(&mut self, members: &Members, absent: &[u32]) -> bool {
        let ranks = self.place.ranks.iter().filter(|rank| members.has(**rank));
        let (gone, there): (Vec<Rank>, Vec<Rank>) =
            ranks.partition(|rank| absent.contains(&rank.0));
        let (Some(gone), Some(waiter)) = (gone.first(), there.first()) else { return false };
        self.waits_for(*waiter, *gone, members);
        true
    }

    /// The ranks of this host enter a fence.
    fn enter(&mut self, number: u32, members: Members, data: &Bytes) {
        let own = members.count_in(&self.place.ranks);
        let known = self.fences.get(&members).is_some_and(|gather| gather.own.is_some());
        if !members.is_valid(self.place.size) || own == 0 || known {
            let done = ToHelper::FenceDone { number, status: BAD_PARAM, data: Bytes::default() };
            return self.actions.push_back(Action::Helper(done));
        }
        self.gather(&members).own = Some(number);
        self.add(&members, data);
    }

    fn gather(&mut self, members: &Members) -> &mut Gather {
        let parts = vec![false; self.place.branches.len()];
        self.fences.entry(members.clone()).or_insert_with(|| Gather { parts, ..Gather::default() })
    }

    /// Adds a part's data; the fence goes on if that was the last one.
    fn add(&mut self, members: &Members, data: &Bytes) {
        let gather = self.gather(members);
        if gather.data.len() + data.len() > DATA_LIMIT {
            let rank = self.place.ranks.first().copied().unwrap_or(Rank(0));
            let text = format!("PMIx: more than {DATA_LIMIT} bytes put before a fence");
            return self.tell(rank, Event::Broken(text));
        }
        gather.data.extend_from_slice(data);
        self.advance(members);
        for gone in self.gone.iter().copied().filter(|rank| members.has(*rank)).collect::<Vec<_>>()
        {
            self.blame(gone);
        }
    }

    /// All members of this subtree are inside: the agent above goes on, or the fence is complete.
    fn advance(&mut self, members: &Members) {
        let (own, below) = self.counts(members);
        let Some(gather) = self.fences.get_mut(members) else { return };
        let missing = below.iter().zip(&gather.parts).any(|(count, part)| *count > 0 && !part);
        if gather.sent || missing || (own > 0 && gather.own.is_none()) {
            return;
        }
        let whole = own + below.iter().sum::<usize>() == members.len();
        let data = std::mem::take(&mut gather.data);
        if whole || !self.place.parent {
            self.complete(members, &Bytes::from(data));
        } else {
            gather.sent = true;
            let message = Message::Fence { members: members.clone(), data: data.into() };
            self.actions.push_back(Action::Up(message));
        }
    }

    /// How many members this host has, and each branch.
    fn counts(&self, members: &Members) -> (usize, Vec<usize>) {
        let below = self.place.branches.iter().map(|ranks| members.count_in(ranks)).collect();
        (members.count_in(&self.place.ranks), below)
    }

    /// Every member is inside.
    fn complete(&mut self, members: &Members, data: &Bytes) {
        let (_, below) = self.counts(members);
        let to: Vec<usize> =
            below.iter().enumerate().filter(|(_, count)| **count > 0).map(|(at, _)| at).collect();
        if !to.is_empty() {
            let message = Message::Fence { members: members.clone(), data: data.clone() };
            self.actions.push_back(Action::Down { to, message });
        }
        let own = self.fences.remove(members).and_then(|gather| gather.own);
        if let Some(number) = own {
            let done = ToHelper::FenceDone { number, status: SUCCESS, data: data.clone() };
            self.actions.push_back(Action::Helper(done));
        }
    }

    /// Sends a request on towards the rank that it is about.
    fn route_want(&mut self, asker: (Rank, u32), rank: Rank) {
        if let Some(local) = self.local(rank) {
            if self.phases[local] == Phase::Ended {
                return self.route_found(asker, NOT_FOUND, Bytes::default());
            }
            self.last_asked = self.last_asked.wrapping_add(1);
            let number = self.last_asked;
            self.asked.insert(number, (asker, rank));
            let wanted = ToHelper::Wanted { number, rank: rank.0 };
            self.actions.push_back(Action::Helper(wanted));
        } else if let Some(branch) = self.branch_of(rank) {
            let message = Message::Want { asker, rank };
            self.actions.push_back(Action::Down { to: vec![branch], message });
        } else if self.place.parent && rank.0 < self.place.size {
            self.actions.push_back(Action::Up(Message::Want { asker, rank }));
        } else {
            self.route_found(asker, NOT_FOUND, Bytes::default());
        }
    }

    /// Sends an answer on towards who has asked.
    fn route_found(&mut self, asker: (Rank, u32), status: i32, data: Bytes) {
        let (rank, number) = asker;
        if self.local(rank).is_some() {
            self.actions.push_back(Action::Helper(ToHelper::Found { number, status, data }));
        } else if let Some(branch) = self.branch_of(rank) {
            let message = Message::Found { asker, status, data };
            self.actions.push_back(Action::Down { to: vec![branch], message });
        } else if self.place.parent && rank.0 < self.place.size {
            self.actions.push_back(Action::Up(Message::Found { asker, status, data }));
        }
    }

    /// Takes a message of an agent below.
    ///
    /// # Errors
    /// No correct agent sends it now; nothing has changed.
    pub fn hear_child(&mut self, branch: usize, message: Message) -> Result<(), StrayMessage> {
        let all = self.place.branches.len();
        let ranks = self.place.branches.get(branch).ok_or(StrayMessage::Branch(branch, all))?;
        match message {
            Message::InUse => self.used(),
            Message::Gone(rank) if ranks.binary_search(&rank).is_ok() => self.is_gone(rank),
            Message::Gone(_) => return Err(StrayMessage::Members),
            Message::Fence { members, data } => {
                if !members.is_valid(self.place.size) || members.count_in(ranks) == 0 {
                    return Err(StrayMessage::Members);
                }
                let part = self.gather(&members).parts.get_mut(branch);
                if part.is_some_and(|part| std::mem::replace(part, true)) {
                    return Err(StrayMessage::Twice(branch));
                }
                self.add(&members, &data);
            }
            Message::Want { asker, rank } => self.route_want(asker, rank),
            Message::Found { asker, status, data } => self.route_found(asker, status, data),
        }
        Ok(())
    }

    /// Takes a message of the agent above.
    ///
    /// # Errors
    /// No correct agent sends it now; nothing has changed.
    pub fn hear_parent(&mut self, message: Message) -> Result<(), StrayMessage> {
        match message {
            Message::InUse => self.used(),
            Message::Gone(_) => {}
            Message::Fence { members, data } => {
                if !self.fences.get(&members).is_some_and(|gather| gather.sent) {
                    return Err(StrayMessage::NotBegun);
                }
                self.complete(&members, &data);
            }
            Message::Want { asker, rank } => self.route_want(asker, rank),
            Message::Found { asker, status, data } => self.route_found(asker, status, data),
        }
        Ok(())
    }
}
