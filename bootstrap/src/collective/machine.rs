//! One node of the tree: combines the calls of its ranks with the parts of its branches.

use std::collections::VecDeque;
use std::sync::Arc;

use super::error::{Link, Nonsense, ProtocolError};
use super::layout::{Node, Ranks};
use super::local::{Local, Member, Phase};
use super::message::{Bytes, Down, Gone, Letter, Part, Service, Up};
use super::rows::Rows;
use super::{Action, To, next_seq};
use crate::frame::{Frame, Kind};
use crate::service::{HostId, Rank};

/// Most bytes of a reason that goes from agent to agent.
pub const MAX_REASON: usize = 2048;

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
    /// Data of a broadcast from below, and the branch that it came from (`None`: a rank of this host).
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
    letters: VecDeque<Letter>,
}

impl Collective {
    /// A machine for `size` ranks, all on one host: a tree of one node.
    #[must_use]
    pub fn new(size: u32) -> Self {
        let ranks = (0..size).map(Rank).collect();
        Self::build(Node { size, host: HostId(0), ranks, branches: Vec::new(), parent: false })
    }

    /// The machine of one agent of the tree. It takes memory for the ranks of its subtree, not for those of the job.
    ///
    /// # Errors
    /// A rank outside the job or named twice, a branch without ranks, ranks not ascending, or a root that does not have
    /// all ranks below it.
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
            letters: VecDeque::new(),
        }
    }

    /// Ranks of the job.
    #[must_use]
    pub const fn size(&self) -> u32 {
        self.size
    }

    /// Whether the ranks' calls did not fit together (or [`Collective::refuse_all`] was called): no call will complete
    /// any more.
    #[must_use]
    pub const fn is_refused(&self) -> bool {
        self.refused
    }

    /// The next message to be sent. To be called after every other call until there is none; a node without parent and
    /// branches never has one.
    pub fn letter(&mut self) -> Option<Letter> {
        self.letters.pop_front()
    }

    /// Bytes of calls that are kept.
    #[cfg(test)]
    pub(super) fn kept(&self) -> usize {
        let members = self.local.members.iter().map(|member| member.data.capacity());
        let parts = self.children.iter().map(|child| child.bytes().len());
        members.chain(parts).sum()
    }

    /// Takes one frame that `from`, a rank of this host, sent. Most frames need no action; the last one of a call yields
    /// all its answers.
    ///
    /// # Errors
    /// The frame is not one that a correct client sends now; the machine is unchanged and the driver ends the job.
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

    /// Counts the farewell of a rank of this host. When every rank of the job has said it, the answer (`Release` with
    /// seq 0) for all of them.
    ///
    /// # Errors
    /// A rank of elsewhere, or a second farewell. A rank that is inside a call may leave: the driver decides whether the
    /// job can go on.
    pub fn fini(&mut self, from: Rank) -> Result<Vec<Action>, ProtocolError> {
        let size = self.size;
        let index = self.local.index(from).ok_or(ProtocolError::Outside { from, size })?;
        self.local.leave(index)?;
        Ok(self.depart(Gone::Rank(from)))
    }

    /// The link to branch `index` broke: nothing is sent there any more, and nothing expected but what has come. Calls
    /// that need it stay open ([`Collective::stuck`] names the host); its ranks count as having said their farewell.
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

    /// Why the calls in progress can never complete, if that is so: a rank that they need has said its farewell, or its
    /// host is lost. The driver decides what follows (an agent ends such a job by its exit rules; without one, refuse).
    /// The root knows it of the whole job, another node of its subtree.
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

    /// Refuses the current and all later calls of every rank, once: a rank in a call fails now, another at its next
    /// call. Later frames are swallowed. The other agents hear it by letter.
    pub fn refuse_all(&mut self, reason: &str) -> Vec<Action> {
        self.refuse(reason, None)
    }

    /// As [`Collective::refuse_all`]; the link that the refusal came from need not hear it.
    fn refuse(&mut self, reason: &str, from: Option<Link>) -> Vec<Action> {
        if std::mem::replace(&mut self.refused, true) {
            return Vec::new();
        }
        (self.open, self.given) = (None, None);
        self.children.iter_mut().for_each(|child| child.part = None);
        let told = &reason[..reason.floor_char_boundary(MAX_REASON)];
        if self.parent && from != Some(Link::Parent) {
            self.letters.push_back(Letter::Up(Up::Refuse(told.to_owned())));
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
    /// The message is not one that a correct agent sends now; the machine is unchanged and the driver ends the job.
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
            Up::Part(part) => self.take_part(index, part),
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
            (Down::Answer { bytes, .. }, Some(open)) => self.answer(open.service, bytes),
            (Down::Answer { .. }, None) => Vec::new(),
            (Down::Farewell, _) => self.farewell(),
            (Down::Refuse(reason), _) => self.refuse(&reason, Some(from)),
        })
    }

    fn check_child(&self, child: &Child, message: &Up) -> Result<(), Nonsense> {
        let out = |what, state| Err(Nonsense::State { what, state });
        let known = |gone: &Gone| match gone {
            Gone::Rank(seen) if !child.ranks.contains(*seen) => {
                Err(Nonsense::Stranger { seen: *seen })
            }
            _ => Ok(()),
        };
        match message {
            Up::Refuse(reason) => check_reason(reason),
            Up::Gone(_) if child.gone || child.done => out("a farewell", "it had said one"),
            Up::Done(_) if child.done => out("the last farewell", "it had said it"),
            Up::Gone(gone) | Up::Done(gone) => known(gone),
            Up::Part(_) if child.done => out("a call", "it had said the last farewell"),
            Up::Part(_) if self.refused => Ok(()),
            Up::Part(part) => self.check_part(child, part),
        }
    }

    fn check_part(&self, child: &Child, part: &Part) -> Result<(), Nonsense> {
        let (expected, seen, size) = (next_seq(self.number), part.number, self.size);
        if seen != expected {
            return Err(Nonsense::Number { expected, seen });
        }
        if child.part.is_some() {
            return Err(Nonsense::Twice { number: seen });
        }
        if !child.ranks.contains(part.first) {
            return Err(Nonsense::Stranger { seen: part.first });
        }
        let shape = part.service.shape();
        let uneven = shape.kind == Kind::Alltoall && !shape.total.is_multiple_of(size.into());
        if uneven || shape.check_alone(size, |_| true).is_err() {
            return Err(Nonsense::Call { call: shape.to_string(), size });
        }
        let expected = self.length_up(part.service, &child.ranks);
        check_length(part.service, expected, &part.bytes)
    }

    fn check_parent(&self, message: &Down) -> Result<(), Nonsense> {
        let out = |what, state| Err(Nonsense::State { what, state });
        match (message, &self.open) {
            (Down::Refuse(reason), _) => check_reason(reason),
            (Down::Farewell, _) if !self.done => out("a farewell", "ranks had not said theirs"),
            (Down::Farewell, _) if self.parted => out("a farewell", "it had been said"),
            (Down::Farewell, _) => Ok(()),
            (Down::Answer { .. }, _) if self.refused => Ok(()),
            (Down::Answer { number, bytes }, Some(open)) if open.sent => {
                let (expected, seen) = (next_seq(self.number), *number);
                if seen != expected {
                    return Err(Nonsense::Number { expected, seen });
                }
                check_length(open.service, self.length_down(open.service), bytes)
            }
            (Down::Answer { .. }, _) => out("an answer", "no call was complete"),
        }
    }

    /// Bytes that the part of a subtree of `ranks` has.
    fn length_up(&self, service: Service, ranks: &Ranks) -> u64 {
        let below = ranks.len() as u64;
        match service {
            Service::Barrier => 0,
            Service::Exchange { len } => u64::from(len) * below,
            Service::Alltoall { total } => {
                let size = u64::from(self.size);
                u64::from(total) / size * below * (size - below)
            }
            Service::Broadcast { root, len } if ranks.contains(Rank(root)) => len.into(),
            Service::Broadcast { .. } => 0,
        }
    }

    /// Bytes that the answer from above has.
    fn length_down(&self, service: Service) -> u64 {
        let size = u64::from(self.size);
        match service {
            Service::Barrier => 0,
            Service::Exchange { len } => u64::from(len) * size,
            Service::Alltoall { total } => {
                let branches = self.children.iter().map(|child| child.ranks.len());
                let below = self.local.ranks.len() as u64 + branches.sum::<usize>() as u64;
                u64::from(total) / size * below * (size - below)
            }
            Service::Broadcast { .. } if self.given.is_some() => 0,
            Service::Broadcast { len, .. } => len.into(),
        }
    }

    fn take_part(&mut self, index: usize, part: Part) -> Vec<Action> {
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
            return self.answer(open.service, bytes);
        }
        let Open { service, on_host, first, .. } = open;
        let number = next_seq(self.number);
        self.open = Some(Open { sent: true, ..open });
        let part = Part { number, service, on_host, first, bytes };
        self.letters.push_back(Letter::Up(Up::Part(part)));
        Vec::new()
    }

    /// What goes up; at the root, what the answer is made of.
    fn combine(&mut self, service: Service) -> Bytes {
        match service {
            Service::Barrier => Bytes::default(),
            Service::Exchange { len } => self.gathered(len as usize),
            Service::Alltoall { .. } if !self.parent => Bytes::default(),
            Service::Alltoall { total } => self.rows(total).upwards().into(),
            Service::Broadcast { root, .. } => {
                self.given = self.giver(Rank(root));
                self.given.as_ref().map(|(_, bytes)| bytes.clone()).unwrap_or_default()
            }
        }
    }

    /// The contributions of all ranks below, `len` bytes each: in tree order, at the root in job order. They are not kept.
    fn gathered(&mut self, len: usize) -> Bytes {
        let branches = self.children.iter().map(|child| child.ranks.len());
        let ranks = self.local.ranks.len() + branches.sum::<usize>();
        let locals = self.local.members.iter_mut().map(|member| std::mem::take(&mut member.data));
        if self.parent || self.ordered {
            let mut bytes = Vec::with_capacity(ranks * len);
            locals.for_each(|data| bytes.extend_from_slice(&data));
            for part in self.children.iter_mut().filter_map(|child| child.part.as_mut()) {
                bytes.extend_from_slice(&std::mem::take(part));
            }
            return bytes.into();
        }
        let mut bytes = vec![0; ranks * len];
        let mut put = |rank: Rank, data: &[u8]| {
            let at = rank.0 as usize * len;
            if let Some(slot) = bytes.get_mut(at..at + len).filter(|slot| slot.len() == data.len())
            {
                slot.copy_from_slice(data);
            }
        };
        self.local.ranks.iter().zip(locals).for_each(|(rank, data)| put(*rank, &data));
        for child in self.children.iter_mut().filter(|_| len > 0) {
            let part = child.part.as_mut().map(std::mem::take).unwrap_or_default();
            let pieces = child.ranks.order().iter().zip(part.chunks(len));
            pieces.for_each(|(rank, data)| put(*rank, data));
        }
        bytes.into()
    }

    /// Which branch gave the data of a broadcast (`None`: a rank of this host), and what.
    fn giver(&mut self, root: Rank) -> Option<(Option<usize>, Bytes)> {
        if let Some(index) = self.local.index(root) {
            return Some((None, std::mem::take(&mut self.local.members[index].data).into()));
        }
        let index = self.children.iter().position(|child| child.ranks.contains(root))?;
        Some((Some(index), self.children[index].part.clone().unwrap_or_default()))
    }

    fn rows(&self, total: u32) -> Rows<'_> {
        let branches = self.children.iter();
        let branches = branches.map(|child| (&child.ranks, child.bytes())).collect();
        let locals = (&*self.local.ranks, &*self.local.members);
        Rows::new((self.size, total as usize), locals, branches)
    }

    /// The call is complete: answers this host's ranks and the branches.
    fn answer(&mut self, service: Service, bytes: Bytes) -> Vec<Action> {
        let number = next_seq(self.number);
        let answer = |bytes: &Bytes| Down::Answer { number, bytes: bytes.clone() };
        let seq = self.local.current();
        let actions = match service {
            Service::Barrier => {
                self.send_down(answer(&bytes), None);
                self.per_host(|host| Action::Release { to: To::Host(host), seq })
            }
            Service::Exchange { .. } => {
                self.send_down(answer(&bytes), None);
                self.per_host(|host| Action::Mapped { host, seq, bytes: bytes.0 })
            }
            Service::Alltoall { total } => self.transposed(total, &bytes, answer),
            Service::Broadcast { root, .. } => {
                let (giver, bytes) = self.given.take().unwrap_or((None, bytes));
                self.send_down(answer(&bytes), giver);
                if let Some(index) = giver.filter(|index| !self.children[*index].lost) {
                    let message = answer(&Bytes::default());
                    self.letters.push_back(Letter::Down { to: vec![index], message });
                }
                self.spread(|_| root, |_| Arc::clone(&bytes.0))
            }
        };
        self.number = number;
        self.open = None;
        self.missing = self.children.len();
        self.children.iter_mut().for_each(|child| child.part = None);
        self.local.finish();
        actions
    }

    fn transposed(
        &mut self,
        total: u32,
        above: &Bytes,
        answer: impl Fn(&Bytes) -> Down,
    ) -> Vec<Action> {
        let rows = self.rows(total);
        let live = self.children.iter().enumerate().filter(|(_, child)| !child.lost);
        let down = live.map(|(index, _)| Letter::Down {
            to: vec![index],
            message: answer(&rows.downwards(index, above).into()),
        });
        let down: Vec<Letter> = down.collect();
        let seq = self.local.current();
        let column = |(index, to): (usize, &Rank)| Action::Data {
            to: *to,
            seq,
            bytes: Arc::new(rows.local(index, above)),
        };
        let actions = self.local.ranks.iter().enumerate().map(column).collect();
        self.letters.extend(down);
        actions
    }

    /// A call that does not leave the host.
    fn complete_on_host(&mut self) -> Vec<Action> {
        let Some(shape) = self.local.call.map(|call| call.shape) else { return Vec::new() };
        let seq = self.local.current();
        let actions = if shape.is_grouped() {
            if let Err(reason) = self.local.check_groups(shape.kind) {
                return self.refuse_all(&reason);
            }
            self.on_host = self.on_host.wrapping_add(1);
            let take = |m: &mut Member| Arc::new(std::mem::take(&mut m.data));
            let given: Vec<Arc<Vec<u8>>> = self.local.members.iter_mut().map(take).collect();
            let data = |root| self.local.index(Rank(root)).map(|index| Arc::clone(&given[index]));
            self.spread(|member| member.shape.root, |root| data(root).unwrap_or_default())
        } else {
            self.per_host(|host| Action::HostMemory { host, seq, len: shape.total })
        };
        self.local.finish();
        actions
    }

    /// An action for this host when it has ranks.
    fn per_host(&self, action: impl FnOnce(HostId) -> Action) -> Vec<Action> {
        if self.local.ranks.is_empty() { Vec::new() } else { vec![action(self.local.host)] }
    }

    /// The answers of a broadcast to the ranks of this host.
    fn spread(
        &self,
        root: impl Fn(&Member) -> u32,
        data: impl Fn(u32) -> Arc<Vec<u8>>,
    ) -> Vec<Action> {
        let seq = self.local.current();
        let answer = |(to, member): (&Rank, &Member)| match root(member) {
            root if root == to.0 => Action::Release { to: To::Rank(*to), seq },
            root => Action::Data { to: *to, seq, bytes: data(root) },
        };
        self.local.ranks.iter().zip(&self.local.members).map(answer).collect()
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
                self.letters.push_back(Letter::Up(Up::Done(first)));
            }
        } else if is_first && self.parent {
            self.letters.push_back(Letter::Up(Up::Gone(first)));
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
            self.letters.push_back(Letter::Down { to, message });
        }
    }
}

fn check_reason(reason: &str) -> Result<(), Nonsense> {
    match reason.len() {
        seen if seen > MAX_REASON => Err(Nonsense::Reason { seen, limit: MAX_REASON }),
        _ => Ok(()),
    }
}

fn check_length(service: Service, expected: u64, bytes: &[u8]) -> Result<(), Nonsense> {
    match bytes.len() {
        seen if seen as u64 == expected => Ok(()),
        seen => Err(Nonsense::Length { call: service.shape().to_string(), expected, seen }),
    }
}
