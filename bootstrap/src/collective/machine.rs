//! One node of the tree: combines the calls of its ranks with the parts of its branches.

mod check;
mod complete;

use std::collections::VecDeque;
use std::sync::Arc;

use super::error::{Link, ProtocolError};
use super::layout::{Node, Ranks};
use super::local::{Local, Phase};
use super::message::{Bytes, Contribution, Down, Gone, Service, TreeMessage, Up};
use super::{Action, To, next_seq};
use crate::frame::{Frame, Kind};
use crate::rank::{HostId, Rank};

/// Most bytes of a reason that goes from agent to agent.
pub const MAX_REASON: usize = 2048;

/// Bytes of a result in one message: as many as the links carry at once.
pub(super) const PIECE: usize = 64 << 10;

#[derive(Debug)]
struct Child {
    host: HostId,
    ranks: Ranks,
    /// Its part of the call in progress.
    part: Option<Bytes>,
    gone: bool,
    done: bool,
    lost: bool,
}

impl Child {
    fn bytes(&self) -> &[u8] {
        self.part.as_deref().unwrap_or_default()
    }
}

/// The call of the whole job that some ranks below have begun.
#[derive(Clone, Copy, Debug)]
struct Open {
    service: Service,
    on_host: u32,
    first: Rank,
    /// The part of this subtree is on its way up.
    sent: bool,
}

/// The machine. See the module's primer.
#[derive(Debug)]
pub struct Collective {
    size: u32,
    local: Local,
    children: Vec<Child>,
    parent: bool,
    /// Whether the ranks below in tree order are in job order.
    ordered: bool,
    open: Option<Open>,
    /// Children whose part of the next or current call has not come.
    missing: usize,
    /// Children that have not said their last farewell.
    present: usize,
    /// Bytes of a result go down in pieces of so many.
    piece: usize,
    /// What has come of the result of the open call.
    coming: Vec<Bytes>,
    /// Data of a broadcast from below, and the branch that it came from (`None`: a rank of this
    /// host).
    given: Option<(Option<usize>, Bytes)>,
    /// Number of the last call of the whole job.
    number: u32,
    /// Broadcasts inside the host since the start.
    on_host: u32,
    /// The first below that can give nothing any more.
    gone: Option<Gone>,
    /// Said to the parent that everybody below has said its farewell.
    done: bool,
    /// Everybody in the job has said its farewell.
    parted: bool,
    refused: bool,
    messages: VecDeque<TreeMessage>,
}

impl Collective {
    /// A machine for `size` ranks, all on one host: a tree of one node.
    #[must_use]
    pub fn new(size: u32) -> Self {
        let ranks = (0..size).map(Rank).collect();
        Self::build(Node { size, host: HostId(0), ranks, branches: Vec::new(), parent: false })
    }

    /// The machine of one agent of the tree. It takes memory for the ranks of its subtree, not for
    /// those of the job.
    ///
    /// # Errors
    /// A rank outside the job or named twice, a branch without ranks, ranks not ascending, or a
    /// root that does not have all ranks below it.
    pub fn node(node: Node) -> Result<Self, ProtocolError> {
        node.check()?;
        Ok(Self::build(node))
    }

    fn build(node: Node) -> Self {
        let Node { size, host, ranks, branches, parent } = node;
        let below = branches.iter().flat_map(|branch| &branch.ranks);
        let ordered = ranks.iter().chain(below).is_sorted();
        let child = |branch: super::Branch| Child {
            host: branch.host,
            ranks: Ranks::new(branch.ranks),
            part: None,
            gone: false,
            done: false,
            lost: false,
        };
        Self {
            size,
            local: Local::new(host, ranks),
            missing: branches.len(),
            present: branches.len(),
            piece: PIECE,
            coming: Vec::new(),
            given: None,
            children: branches.into_iter().map(child).collect(),
            parent,
            ordered,
            open: None,
            number: 0,
            on_host: 0,
            gone: None,
            done: false,
            parted: false,
            refused: false,
            messages: VecDeque::new(),
        }
    }

    /// Ranks of the job.
    #[must_use]
    pub const fn size(&self) -> u32 {
        self.size
    }

    /// Whether the ranks' calls did not fit together (or [`Collective::refuse_all`] was called): no
    /// call will complete any more.
    #[must_use]
    pub const fn is_refused(&self) -> bool {
        self.refused
    }

    /// The next message to be sent. To be called after every other call until there is none; a node
    /// without parent and branches never has one.
    pub fn poll_transmit(&mut self) -> Option<TreeMessage> {
        self.messages.pop_front()
    }

    /// Results go down in smaller pieces.
    #[cfg(test)]
    pub(super) const fn cut(&mut self, piece: usize) {
        self.piece = piece;
    }

    /// Bytes of calls that are kept.
    #[cfg(test)]
    pub(super) fn kept(&self) -> usize {
        let members = self.local.members.iter().map(|member| member.data.capacity());
        let parts = self.children.iter().map(|child| child.bytes().len());
        members.chain(parts).sum::<usize>() + self.coming.iter().map(Bytes::len).sum::<usize>()
    }

    /// Takes one frame that `from`, a rank of this host, sent. Most frames need no action; the last
    /// one of a call yields all its answers.
    ///
    /// # Errors
    /// The frame is not one that a correct client sends now; the machine is unchanged and the
    /// driver ends the job.
    pub fn handle(&mut self, from: Rank, frame: &Frame<'_>) -> Result<Vec<Action>, ProtocolError> {
        let (kind, size) = (frame.kind, self.size);
        let index = self.local.index(from).ok_or(ProtocolError::Outside { from, size })?;
        if frame.rank != from.0 {
            return Err(ProtocolError::Name { from, kind, seen: frame.rank });
        }
        if !(Kind::Barrier as u8..=Kind::HostMemory as u8).contains(&(kind as u8)) {
            return Err(ProtocolError::Kind { from, kind });
        }
        if self.refused {
            return Ok(Vec::new());
        }
        let shape = self.local.check(index, frame, size)?;
        if self.local.members[index].phase == Phase::Idle {
            let begins = self.local.call.is_none();
            let mut outcome = self.local.enter(from, shape, size);
            if let (true, Ok(()), Some(service)) = (begins, &outcome, Service::of(shape)) {
                outcome = self.join(service, self.on_host, from);
            }
            if let Err(reason) = outcome {
                return Ok(self.refuse_all(&reason));
            }
        }
        if !self.local.take(index, shape, frame.payload) || !self.local.is_complete() {
            return Ok(Vec::new());
        }
        Ok(if shape.stays_on_host() { self.complete_on_host() } else { self.advance() })
    }

    /// Counts the farewell of a rank of this host. When every rank of the job has said it, the
    /// answer (`Release` with seq 0) for all of them.
    ///
    /// # Errors
    /// A rank of elsewhere, or a second farewell. A rank that is inside a call may leave: the
    /// driver decides whether the job can go on.
    pub fn fini(&mut self, from: Rank) -> Result<Vec<Action>, ProtocolError> {
        let size = self.size;
        let index = self.local.index(from).ok_or(ProtocolError::Outside { from, size })?;
        self.local.leave(index)?;
        Ok(self.depart(Gone::Rank(from)))
    }

    /// The link to branch `index` broke: nothing is sent there any more, and nothing expected but
    /// what has come. Calls that need it stay open ([`Collective::stuck`] names the host); its
    /// ranks count as having said their farewell.
    pub fn lost(&mut self, index: usize) -> Vec<Action> {
        let Some(child) = self.children.get_mut(index).filter(|child| !child.lost) else {
            return Vec::new();
        };
        child.lost = true;
        let gone = Gone::Host(child.host);
        // Whoever had taken its leave is missed by nobody.
        if std::mem::replace(&mut child.done, true) {
            return Vec::new();
        }
        self.present -= 1;
        self.depart(gone)
    }

    /// Why the calls in progress can never complete, if that is so: a rank that they need has said
    /// its farewell, or its host is lost. The driver decides what follows (an agent ends such a job
    /// by its exit rules; without one, refuse). The root knows it of the whole job, another node of
    /// its subtree.
    #[must_use]
    pub fn stuck(&self) -> Option<String> {
        if self.refused {
            return None;
        }
        let on_host = self.local.call.filter(|call| call.shape.stays_on_host());
        let (first, shape, gone) = if let Some(open) = &self.open {
            (open.first, open.service.shape(), self.gone?)
        } else {
            let call = on_host?;
            let mut ranks = self.local.ranks.iter().zip(&self.local.members);
            let (rank, _) = ranks.find(|(_, member)| member.phase == Phase::Left)?;
            (call.first, call.shape, Gone::Rank(*rank))
        };
        Some(format!("rank {first} calls {shape}, {gone}"))
    }

    /// Refuses the current and all later calls of every rank, once: a rank in a call fails now,
    /// another at its next call. Later frames are swallowed. The other agents hear it by message.
    pub fn refuse_all(&mut self, reason: &str) -> Vec<Action> {
        self.refuse(reason, None)
    }

    /// As [`Collective::refuse_all`]; the link that the refusal came from need not hear it.
    fn refuse(&mut self, reason: &str, from: Option<Link>) -> Vec<Action> {
        if std::mem::replace(&mut self.refused, true) {
            return Vec::new();
        }
        (self.open, self.given, self.coming) = (None, None, Vec::new());
        self.children.iter_mut().for_each(|child| child.part = None);
        let told = &reason[..reason.floor_char_boundary(MAX_REASON)];
        if self.parent && from != Some(Link::Parent) {
            self.messages.push_back(TreeMessage::Up(Up::Refuse(told.to_owned())));
        }
        let source = match from {
            Some(Link::Child { index, .. }) => Some(index),
            _ => None,
        };
        self.send_down(Down::Refuse(told.to_owned()), source);
        let (reason, seq): (Arc<str>, u32) = (reason.into(), self.local.current());
        let mut actions = Vec::new();
        for (to, member) in self.local.ranks.iter().zip(&mut self.local.members) {
            member.data = Vec::new();
            if member.phase != Phase::Left {
                actions.push(Action::Refuse { to: *to, seq, reason: Arc::clone(&reason) });
            }
        }
        actions
    }

    /// Takes a message of branch `index`.
    ///
    /// # Errors
    /// The message is not one that a correct agent sends now; the machine is unchanged and the
    /// driver ends the job.
    pub fn from_child(&mut self, index: usize, message: Up) -> Result<Vec<Action>, ProtocolError> {
        let Some(child) = self.children.get(index) else {
            let problem = format!("a message of branch {index} of {}", self.children.len());
            return Err(ProtocolError::Layout { problem });
        };
        let from = Link::Child { index, host: child.host };
        if child.lost {
            return Ok(Vec::new());
        }
        self.check_child(child, &message)
            .map_err(|problem| ProtocolError::Message { from, problem })?;
        Ok(match message {
            Up::Contribution(part) => self.take_part(index, part),
            Up::Gone(gone) => {
                self.children[index].gone = true;
                self.depart(gone)
            }
            Up::Done(gone) => {
                self.children[index].done = true;
                self.present -= 1;
                self.depart(gone)
            }
            Up::Refuse(reason) => self.refuse(&reason, Some(from)),
        })
    }

    /// Takes a message from above.
    ///
    /// # Errors
    /// As [`Collective::from_child`].
    pub fn from_parent(&mut self, message: Down) -> Result<Vec<Action>, ProtocolError> {
        let from = Link::Parent;
        self.check_parent(&message).map_err(|problem| ProtocolError::Message { from, problem })?;
        Ok(match (message, self.open) {
            (Down::Result { bytes, .. }, Some(open)) => self.result(open.service, bytes),
            (message @ Down::Piece { .. }, Some(_)) => self.pass_on(message),
            (Down::Result { .. } | Down::Piece { .. }, None) => Vec::new(),
            (Down::Farewell, _) => self.farewell(),
            (Down::Refuse(reason), _) => self.refuse(&reason, Some(from)),
        })
    }

    fn take_part(&mut self, index: usize, part: Contribution) -> Vec<Action> {
        if self.refused {
            return Vec::new();
        }
        if let Err(reason) = self.join(part.service, part.on_host, part.first) {
            return self.refuse(&reason, None);
        }
        self.children[index].part = Some(part.bytes);
        self.missing -= 1;
        self.advance()
    }

    /// Joins the call of the job that `first` makes to the one that others are in, or begins one.
    fn join(&mut self, service: Service, on_host: u32, first: Rank) -> Result<(), String> {
        let Some(open) = &self.open else {
            self.open = Some(Open { service, on_host, first, sent: false });
            return Ok(());
        };
        let (shape, other) = (service.shape(), open.first);
        if service != open.service {
            let called = open.service.shape();
            return Err(format!("rank {first} calls {shape}, rank {other} called {called}"));
        }
        if on_host != open.on_host {
            let before = open.on_host;
            return Err(format!(
                "rank {first} calls {shape} after {on_host} broadcasts inside its host, rank {other} after {before}"
            ));
        }
        Ok(())
    }

    /// Passes the call on when everybody below has given everything.
    fn advance(&mut self) -> Vec<Action> {
        let Some(open) = self.open.filter(|open| !open.sent) else { return Vec::new() };
        if self.missing > 0 || !self.local.is_complete() {
            return Vec::new();
        }
        let bytes = self.combine(open.service);
        if !self.parent {
            return self.answer(open.service, vec![bytes]);
        }
        let Open { service, on_host, first, .. } = open;
        let number = next_seq(self.number);
        self.open = Some(Open { sent: true, ..open });
        let part = Contribution { number, service, on_host, first, bytes };
        self.messages.push_back(TreeMessage::Up(Up::Contribution(part)));
        Vec::new()
    }

    /// Somebody below can give nothing any more.
    fn depart(&mut self, who: Gone) -> Vec<Action> {
        let is_first = self.gone.is_none();
        let first = *self.gone.get_or_insert(who);
        if self.present == 0 && self.local.left == self.local.ranks.len() {
            if !self.parent {
                return self.farewell();
            }
            if !std::mem::replace(&mut self.done, true) {
                self.messages.push_back(TreeMessage::Up(Up::Done(first)));
            }
        } else if is_first && self.parent {
            self.messages.push_back(TreeMessage::Up(Up::Gone(first)));
        }
        Vec::new()
    }

    /// Everybody in the job has said its farewell.
    fn farewell(&mut self) -> Vec<Action> {
        self.parted = true;
        self.send_down(Down::Farewell, None);
        self.per_host(|host| Action::Release { to: To::Host(host), seq: 0 })
    }

    /// To all children but one.
    fn send_down(&mut self, message: Down, but: Option<usize>) {
        let children = self.children.iter().enumerate();
        let live = children.filter(|(index, child)| !child.lost && Some(*index) != but);
        let to: Vec<usize> = live.map(|(index, _)| index).collect();
        if !to.is_empty() {
            self.messages.push_back(TreeMessage::Down { to, message });
        }
    }
}
