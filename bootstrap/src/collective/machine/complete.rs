//! What follows when everybody has given everything: bytes up, answers down, actions for the ranks
//! of this host.

use super::Collective;
use crate::collective::local::Member;
use crate::collective::message::{Bytes, Down, Service, TreeMessage};
use crate::collective::rows::Rows;
use crate::collective::{Action, To, next_seq};
use crate::rank::{HostId, Rank};

impl Collective {
    /// What goes up; at the root, what the answer is made of.
    pub(super) fn combine(&mut self, service: Service) -> Bytes {
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

    /// The contributions of all ranks below, `len` bytes each: in tree order, at the root in job
    /// order. They are not kept.
    fn gathered(&mut self, len: usize) -> Bytes {
        let ranks = self.below();
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
            let pieces = child.ranks.order.iter().zip(part.chunks(len));
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

    /// Ranks of the subtree.
    pub(super) fn below(&self) -> usize {
        let branches = self.children.iter().map(|child| child.ranks.order.len());
        self.local.ranks.len() + branches.sum::<usize>()
    }

    fn rows(&self, total: u32) -> Rows<'_> {
        let branches = self.children.iter();
        let branches = branches.map(|child| (&child.ranks, child.bytes())).collect();
        let locals = (&*self.local.ranks, &*self.local.members);
        Rows::new((self.size, total as usize), locals, branches)
    }

    /// A piece of a result goes down before the rest has come: the way through the tree takes the
    /// time of one piece for each level, not that of the whole.
    pub(super) fn pass_on(&mut self, piece: Down) -> Vec<Action> {
        if let Down::Piece { bytes, .. } = &piece {
            self.coming.push(bytes.clone());
        }
        self.send_down(piece, None);
        Vec::new()
    }

    /// The end of a result has come.
    pub(super) fn result(&mut self, service: Service, bytes: Bytes) -> Vec<Action> {
        let mut pieces = std::mem::take(&mut self.coming);
        pieces.push(bytes);
        self.answer(service, pieces)
    }

    /// Sends the end of a result, in pieces, to all branches but one.
    fn send_result(&mut self, number: u32, mut bytes: Bytes, but: Option<usize>) {
        while bytes.len() > self.piece {
            let bytes = bytes.split_to(self.piece);
            self.send_down(Down::Piece { number, bytes }, but);
        }
        self.send_down(Down::Result { number, bytes }, but);
    }

    /// The call is complete: answers this host's ranks and the branches, which have all pieces but
    /// the last.
    pub(super) fn answer(&mut self, service: Service, pieces: Vec<Bytes>) -> Vec<Action> {
        let number = next_seq(self.number);
        let last = pieces.last().cloned().unwrap_or_default();
        let seq = self.local.current();
        let actions = match service {
            Service::Barrier => {
                self.send_result(number, last, None);
                self.per_host(|host| Action::Release { to: To::Host(host), seq })
            }
            Service::Exchange { .. } => {
                self.send_result(number, last, None);
                self.per_host(|host| Action::Mapped { host, seq, pieces })
            }
            Service::Alltoall { total } => {
                self.transposed(total, &last, |bytes| Down::Result { number, bytes })
            }
            Service::Broadcast { root, .. } => {
                let (giver, bytes, last) = match self.given.take() {
                    Some((giver, bytes)) => (giver, bytes.clone(), bytes),
                    None => (None, joined(&pieces), last),
                };
                self.send_result(number, last, giver);
                if let Some(index) = giver.filter(|index| !self.children[*index].lost) {
                    let message = Down::Result { number, bytes: Bytes::default() };
                    self.messages.push_back(TreeMessage::Down { to: vec![index], message });
                }
                self.spread(|_| root, |_| bytes.clone())
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
        answer: impl Fn(Bytes) -> Down,
    ) -> Vec<Action> {
        let rows = self.rows(total);
        let live = self.children.iter().enumerate().filter(|(_, child)| !child.lost);
        let down = live.map(|(index, _)| TreeMessage::Down {
            to: vec![index],
            message: answer(rows.downwards(index, above).into()),
        });
        let down: Vec<TreeMessage> = down.collect();
        let seq = self.local.current();
        let column = |(index, to): (usize, &Rank)| Action::Data {
            to: *to,
            seq,
            bytes: rows.local(index, above).into(),
        };
        let actions = self.local.ranks.iter().enumerate().map(column).collect();
        self.messages.extend(down);
        actions
    }

    /// A call that does not leave the host.
    pub(super) fn complete_on_host(&mut self) -> Vec<Action> {
        let Some(shape) = self.local.call.map(|call| call.shape) else { return Vec::new() };
        let seq = self.local.current();
        let actions = if shape.is_grouped() {
            if let Err(reason) = self.local.check_groups(shape.kind) {
                return self.refuse_all(&reason);
            }
            self.on_host = self.on_host.wrapping_add(1);
            let take = |m: &mut Member| Bytes::from(std::mem::take(&mut m.data));
            let given: Vec<Bytes> = self.local.members.iter_mut().map(take).collect();
            let data = |root| self.local.index(Rank(root)).map(|index| given[index].clone());
            self.spread(|member| member.shape.root, |root| data(root).unwrap_or_default())
        } else {
            self.per_host(|host| Action::HostMemory { host, seq, len: shape.total })
        };
        self.local.finish();
        actions
    }

    /// An action for this host when it has ranks.
    pub(super) fn per_host(&self, action: impl FnOnce(HostId) -> Action) -> Vec<Action> {
        if self.local.ranks.is_empty() { Vec::new() } else { vec![action(self.local.host)] }
    }

    /// The answers of a broadcast to the ranks of this host.
    fn spread(&self, root: impl Fn(&Member) -> u32, data: impl Fn(u32) -> Bytes) -> Vec<Action> {
        let seq = self.local.current();
        let answer = |(to, member): (&Rank, &Member)| match root(member) {
            root if root == to.0 => Action::Release { to: To::Rank(*to), seq },
            root => Action::Data { to: *to, seq, bytes: data(root) },
        };
        self.local.ranks.iter().zip(&self.local.members).map(answer).collect()
    }
}

/// One piece is what it is; several are copied.
fn joined(pieces: &[Bytes]) -> Bytes {
    match pieces {
        [bytes] => bytes.clone(),
        pieces => pieces.concat().into(),
    }
}
