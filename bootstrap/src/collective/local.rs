//! The ranks of one host: checks their frames and matches their calls.

use super::error::ProtocolError;
use super::next_seq;
use super::shape::Shape;
use crate::frame::{Frame, Kind};
use crate::rank::{HostId, Rank};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// In no call.
    Idle,
    /// Some pieces have come.
    Sending,
    /// All pieces have come.
    Waiting,
    /// Said `Fini`.
    Left,
}

#[derive(Debug)]
pub(super) struct Member {
    pub(super) phase: Phase,
    pub(super) shape: Shape,
    pub(super) data: Vec<u8>,
}

/// The call that some ranks of the host are in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    pub(super) shape: Shape,
    pub(super) first: Rank,
    /// Ranks that have given everything.
    arrived: usize,
}

#[derive(Debug)]
pub(super) struct Local {
    pub(super) host: HostId,
    pub(super) ranks: Vec<Rank>,
    pub(super) members: Vec<Member>,
    pub(super) call: Option<Call>,
    /// Number of the last call that was answered; the same for all ranks of a host.
    seq: u32,
    /// Ranks that have said their farewell.
    pub(super) left: usize,
}

impl Local {
    pub(super) fn new(host: HostId, ranks: Vec<Rank>) -> Self {
        let member = || Member { phase: Phase::Idle, shape: Shape::NONE, data: Vec::new() };
        let members = ranks.iter().map(|_| member()).collect();
        Self { host, ranks, members, call: None, seq: 0, left: 0 }
    }

    /// RankInfo of `rank` among the ranks of this host.
    pub(super) fn index(&self, rank: Rank) -> Option<usize> {
        // Mostly consecutive.
        let guess = rank.0.checked_sub(self.ranks.first()?.0)? as usize;
        if self.ranks.get(guess) == Some(&rank) {
            return Some(guess);
        }
        self.ranks.binary_search(&rank).ok()
    }

    /// Number of the call that the ranks are in or will make next.
    pub(super) const fn current(&self) -> u32 {
        next_seq(self.seq)
    }

    /// Whether every rank has given everything for its call.
    pub(super) fn is_complete(&self) -> bool {
        self.call.as_ref().map_or(self.ranks.is_empty(), |call| call.arrived == self.ranks.len())
    }

    /// Checks a frame against the state of its sender, `index`. Changes nothing.
    pub(super) fn check(
        &self,
        index: usize,
        frame: &Frame<'_>,
        size: u32,
    ) -> Result<Shape, ProtocolError> {
        let (member, from) = (&self.members[index], self.ranks[index]);
        let (kind, seq, shape) = (frame.kind, frame.seq, Shape::of(frame));
        let state = match member.phase {
            Phase::Idle => None,
            Phase::Sending if shape != member.shape => {
                Some("was sending the pieces of another call")
            }
            Phase::Sending => None,
            Phase::Waiting => Some("waits in an earlier call"),
            Phase::Left => Some("had said its farewell"),
        };
        if let Some(state) = state {
            return Err(ProtocolError::State { from, kind, state });
        }
        let expected = self.current();
        if seq != expected {
            return Err(ProtocolError::Sequence { from, expected, seen: seq });
        }
        if kind == Kind::Alltoall && !frame.total.is_multiple_of(size) {
            return Err(ProtocolError::Rows { from, total: frame.total, size });
        }
        let (whole, len, at) = (shape.gives(from), frame.payload.len(), member.data.len());
        let progress = len > 0 || whole == 0;
        if frame.offset as usize != at || at + len > whole || !progress {
            let (offset, total) = (frame.offset, frame.total);
            return Err(ProtocolError::Piece {
                from,
                kind,
                seq,
                len,
                offset,
                total,
                expected: at,
                whole,
            });
        }
        Ok(shape)
    }

    /// Joins `from` to the call that the others of this host are in, or begins one.
    pub(super) fn enter(&mut self, from: Rank, shape: Shape, size: u32) -> Result<(), String> {
        if let Some(call) = &self.call {
            if !shape.joins(call.shape) {
                let (first, other) = (call.first, call.shape);
                return Err(format!("rank {from} calls {shape}, rank {first} called {other}"));
            }
            if !shape.is_grouped() {
                return Ok(());
            }
        }
        let near = |rank| self.index(Rank(rank)).is_some();
        shape
            .check_alone(size, near)
            .map_err(|problem| format!("rank {from} calls {shape}: {problem}"))?;
        self.call.get_or_insert(Call { shape, first: from, arrived: 0 });
        Ok(())
    }

    /// Takes the bytes of a frame that was checked; `true` when its sender has given everything.
    pub(super) fn take(&mut self, index: usize, shape: Shape, payload: &[u8]) -> bool {
        let (member, from) = (&mut self.members[index], self.ranks[index]);
        member.shape = shape;
        member.data.extend_from_slice(payload);
        if member.data.len() < shape.gives(from) {
            member.phase = Phase::Sending;
            return false;
        }
        member.phase = Phase::Waiting;
        if let Some(call) = &mut self.call {
            call.arrived += 1;
        }
        true
    }

    /// Ends the call: the ranks may begin the next one.
    pub(super) fn finish(&mut self) {
        self.call = None;
        self.seq = self.current();
        for member in &mut self.members {
            // A rank that left inside the call stays gone.
            if member.phase == Phase::Waiting {
                member.phase = Phase::Idle;
            }
            member.data = Vec::new();
        }
    }

    /// Counts the farewell of a rank.
    pub(super) fn leave(&mut self, index: usize) -> Result<(), ProtocolError> {
        let (member, from) = (&mut self.members[index], self.ranks[index]);
        if member.phase == Phase::Left {
            let state = "had said its farewell";
            return Err(ProtocolError::State { from, kind: Kind::Fini, state });
        }
        member.phase = Phase::Left;
        self.left += 1;
        Ok(())
    }

    /// Roots and lengths of a broadcast inside the host or neighbourhoods: a group is a root and
    /// the ranks that name it.
    pub(super) fn check_groups(&self, kind: Kind) -> Result<(), String> {
        for (rank, member) in self.ranks.iter().zip(&self.members) {
            let shape = member.shape;
            let other =
                if kind == Kind::HostBroadcast { Some(0) } else { self.index(Rank(shape.root)) };
            let Some(other) = other else { continue };
            let pattern = self.members[other].shape;
            if shape != pattern {
                let other = self.ranks[other];
                return Err(format!("rank {rank} calls {shape}, rank {other} called {pattern}"));
            }
        }
        Ok(())
    }
}
