//! The fence under way, and what agents tell each other about it.

use bootstrap::Rank;
use serde::{Deserialize, Serialize};

use super::dialect::Reply;
use super::{Action, Event, Phase, Server, pmix};

/// What agents say to each other, up and down the tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Message {
    /// A rank of the job has begun to speak PMI.
    InUse,
    /// Up: every rank of the subtree is inside the fence; the keys that they have put since the last
    /// one. Down: every rank of the job is, with the keys of all.
    Fence(Vec<(String, String)>),
    /// The first rank that takes part in no further fence.
    Gone(Rank),
    /// Of the machine that serves PMIx.
    Pmix(pmix::Message),
}

/// A message that no correct agent sends.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StrayMessage {
    /// From an agent that is none of those below.
    #[error("a message of PMI from branch {0} of {1}")]
    Branch(usize, usize),
    /// A second part of a fence.
    #[error("a second part of a PMI fence from branch {0}")]
    Twice(usize),
    /// The end of a fence in which this host's ranks are not.
    #[error("the end of a PMI fence that has not begun here")]
    NotBegun,
    /// Of the other machine.
    #[error("a message of PMIx, which this job does not serve")]
    NotServed,
    /// For the other machine.
    #[error(transparent)]
    Pmix(#[from] pmix::StrayMessage),
}

/// What is known of the fence under way.
#[derive(Debug, Default)]
pub(super) struct Fence {
    /// Local ranks and agents below that are not inside.
    missing: usize,
    /// How many those are in all.
    all: usize,
    /// By agent below: its part has come.
    parts: Vec<bool>,
    /// Keys put since the last fence, of this host and of the agents below whose part has come.
    put: Vec<(String, String)>,
    /// The part of this subtree is on its way up.
    sent: bool,
    /// A rank of the job speaks PMI.
    in_use: bool,
    gone: Option<Rank>,
    /// The agents above and below know who is gone.
    told: bool,
}

impl Fence {
    pub(super) fn new(locals: usize, children: usize) -> Self {
        let all = locals + children;
        Self { missing: all, all, parts: vec![false; children], ..Self::default() }
    }

    pub(super) fn put(&mut self, key: String, value: String) {
        self.put.push((key, value));
    }

    /// The next fence.
    fn reset(&mut self) {
        self.missing = self.all;
        self.parts.fill(false);
        self.sent = false;
    }
}

impl Server {
    /// A local rank enters a fence.
    pub(super) fn enter(&mut self, local: u32, thread: Option<String>) {
        let Some(client) = self.clients.get_mut(local as usize) else { return };
        client.fencing = true;
        client.thread = thread;
        self.fence.missing = self.fence.missing.saturating_sub(1);
        self.blame();
        self.advance();
    }

    /// All of this subtree are inside: the agent above goes on, or the fence is complete.
    fn advance(&mut self) {
        if self.fence.missing > 0 || self.fence.sent || self.fence.all == 0 {
            return;
        }
        let put = std::mem::take(&mut self.fence.put);
        if self.site.parent {
            self.fence.sent = true;
            self.actions.push_back(Action::Up(Message::Fence(put)));
        } else {
            self.complete(put);
        }
    }

    /// Every rank of the job is inside.
    fn complete(&mut self, put: Vec<(String, String)>) {
        self.fence.reset();
        if !self.site.branches.is_empty() {
            self.actions.push_back(Action::Down(Message::Fence(put.clone())));
        }
        if !self.clients.is_empty() {
            self.store.extend(put);
        }
        for local in (0u32..).take(self.clients.len()) {
            let client = &mut self.clients[local as usize];
            client.put = 0;
            if std::mem::take(&mut client.fencing) && client.phase == Phase::Open {
                let thread = client.thread.take();
                self.reply(local, thread.as_deref(), &Reply::Fence);
            }
        }
    }

    /// A rank of the job speaks PMI: from now on agents tell each other who is gone.
    pub(super) fn in_use(&mut self) {
        if std::mem::replace(&mut self.fence.in_use, true) {
            return;
        }
        if self.site.parent {
            self.actions.push_back(Action::Up(Message::InUse));
        }
        if !self.site.branches.is_empty() {
            self.actions.push_back(Action::Down(Message::InUse));
        }
        self.tell_gone();
    }

    /// A local rank takes part in no further fence.
    pub(super) fn gone(&mut self, local: u32) {
        let rank = self.rank(local);
        self.rank_gone(rank);
    }

    pub(super) fn rank_gone(&mut self, rank: Rank) {
        if self.fence.gone.is_none() {
            self.fence.gone = Some(rank);
            self.tell_gone();
            self.blame();
        }
    }

    fn tell_gone(&mut self) {
        let Some(rank) = self.fence.gone.filter(|_| self.fence.in_use && !self.fence.told) else {
            return;
        };
        self.fence.told = true;
        if self.site.parent {
            self.actions.push_back(Action::Up(Message::Gone(rank)));
        }
        if !self.site.branches.is_empty() {
            self.actions.push_back(Action::Down(Message::Gone(rank)));
        }
    }

    /// A local rank waits for one that is gone: names it, once. (The end of a fence is sent down before
    /// anybody can leave it and be gone, so who waits now needs the one that is.)
    fn blame(&mut self) {
        let Some(gone) = self.fence.gone else { return };
        let waits = |client: &super::Client| client.fencing && client.phase == Phase::Open;
        let Some(at) = self.clients.iter().position(waits) else { return };
        // Who has gone while it was inside is there in this fence.
        let own = self.site.ranks.binary_search(&gone).ok();
        if own.is_some_and(|own| self.clients[own].fencing) {
            return;
        }
        let local = u32::try_from(at).unwrap_or(u32::MAX);
        let version = self.clients[at].input.version.name();
        self.clients[at].end();
        let text = format!(
            "{version}: it waits in a barrier of all ranks (as in MPI_Init), but rank {} has ended or finalized",
            gone.0
        );
        self.tell(local, Event::Broken(text));
    }

    /// Takes a message of an agent below.
    ///
    /// # Errors
    /// No correct agent sends it now; nothing has changed.
    pub fn hear_child(&mut self, index: usize, message: Message) -> Result<(), StrayMessage> {
        let children = self.fence.parts.len();
        let part = self.fence.parts.get_mut(index).ok_or(StrayMessage::Branch(index, children))?;
        match message {
            Message::InUse => self.in_use(),
            Message::Gone(rank) => self.rank_gone(rank),
            Message::Fence(put) => {
                if std::mem::replace(part, true) {
                    return Err(StrayMessage::Twice(index));
                }
                self.fence.missing = self.fence.missing.saturating_sub(1);
                self.fence.put.extend(put);
                self.advance();
            }
            Message::Pmix(_) => return Err(StrayMessage::NotServed),
        }
        Ok(())
    }

    /// Takes a message of the agent above.
    ///
    /// # Errors
    /// No correct agent sends it now; nothing has changed.
    pub fn hear_parent(&mut self, message: Message) -> Result<(), StrayMessage> {
        match message {
            Message::InUse => self.in_use(),
            Message::Gone(rank) => self.rank_gone(rank),
            Message::Fence(_) if !self.fence.sent => return Err(StrayMessage::NotBegun),
            Message::Fence(put) => self.complete(put),
            Message::Pmix(_) => return Err(StrayMessage::NotServed),
        }
        Ok(())
    }
}
