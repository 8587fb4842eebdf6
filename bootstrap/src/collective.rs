//! Matches the collective calls of a job's ranks: the pure half of every provider.
//!
//! # Primer
//!
//! A driver (the node agent, the in-memory provider, a test) owns one [`Collective`], gives it every collective frame
//! that a rank sends ([`Collective::handle`]) and carries out the [`Action`]s that come back. The machine does no I/O
//! and knows no time.
//!
//! * A rank is in at most one call. Its calls are numbered from 1 ([`next_seq`]); answers carry the number.
//! * Calls match by order. Job-wide calls need every rank of the job, [`Kind::HostMemory`] every rank of one host. All
//!   ranks of a host therefore always have the same number.
//! * Ranks that do not fit together (another kind, length or root: a mistake in the program) are *refused*: every rank
//!   gets one [`Action::Refuse`] that names both sides, and the machine answers nothing afterwards.
//! * A frame that no correct client sends (wrong number, piece out of order, foreign rank) is a [`ProtocolError`]; the
//!   driver ends the job for it.
//!
//! Memory grows only with bytes that have really arrived, never by a length that a frame announces.
//!
//! `Hello`, `Exiting`, `Abort` and `Fini` are the driver's own; [`Collective::fini`] counts the last one for it.

use std::sync::Arc;

use crate::frame::{Frame, Kind, MAX_TOTAL};
use crate::service::{HostId, Rank};

/// Number of the call after `seq`: counts from 1 and never yields 0, which means "no call".
#[must_use]
pub const fn next_seq(seq: u32) -> u32 {
    match seq.wrapping_add(1) {
        0 => 1,
        next => next,
    }
}

/// Whom an action addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum To {
    /// Every rank of a host.
    Host(HostId),
    /// One rank.
    Rank(Rank),
}

/// What the driver has to send. Each addressed rank gets one answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// A [`Kind::Release`] frame with `seq`.
    Release {
        /// Receivers.
        to: To,
        /// Their call; 0 answers `Fini`.
        seq: u32,
    },
    /// Put `bytes` into one memory of the host ([`crate::memfd::result`]) and send its descriptor to every rank of it
    /// in a [`Kind::Mapped`] frame with `total = bytes.len()`.
    Mapped {
        /// Host.
        host: HostId,
        /// Call.
        seq: u32,
        /// The same bytes for all hosts.
        bytes: Arc<Vec<u8>>,
    },
    /// [`Kind::Data`] frames that carry `bytes` in pieces ([`Frame::pieces`]); one empty frame when there are none.
    Data {
        /// Receiver.
        to: Rank,
        /// Call.
        seq: u32,
        /// Shared when several ranks get the same.
        bytes: Arc<Vec<u8>>,
    },
    /// Make zeroed memory of `len` bytes ([`crate::memfd::zeroed`]) and send its descriptor to every rank of the host
    /// in a [`Kind::HostMemory`] frame (`total` and `extra` as in the request). If that is impossible, say so with
    /// [`Collective::refuse_all`].
    HostMemory {
        /// Host.
        host: HostId,
        /// Call.
        seq: u32,
        /// Bytes.
        len: u64,
    },
    /// A [`Kind::Refuse`] frame with `reason` as payload.
    Refuse {
        /// Receiver.
        to: Rank,
        /// Its current or, when it is in none, its next call.
        seq: u32,
        /// One line for people.
        reason: Arc<str>,
    },
}

/// A frame that no correct client sends. The rank named is the one that broke the rules.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// The sender is not a rank of this job.
    #[error("rank {from} is outside the job of {size} ranks")]
    Outside {
        /// Sender.
        from: Rank,
        /// Ranks of the job.
        size: u32,
    },
    /// The frame speaks of another rank than its sender.
    #[error("rank {from} sent a {kind:?} frame in the name of rank {seen}")]
    Name {
        /// Sender.
        from: Rank,
        /// Kind.
        kind: Kind,
        /// Rank in the frame.
        seen: u32,
    },
    /// The kind is no collective call.
    #[error("rank {from} sent a {kind:?} frame, which is no collective call")]
    Kind {
        /// Sender.
        from: Rank,
        /// Kind.
        kind: Kind,
    },
    /// The call is not the rank's next one.
    #[error("rank {from} began call {seen}, its next call is {expected}")]
    Sequence {
        /// Sender.
        from: Rank,
        /// Next number.
        expected: u32,
        /// Number seen.
        seen: u32,
    },
    /// The rank is already in a call, or has left.
    #[error("rank {from} sent a {kind:?} frame while it {state}")]
    State {
        /// Sender.
        from: Rank,
        /// Kind.
        kind: Kind,
        /// What the rank is doing.
        state: &'static str,
    },
    /// A piece that does not continue the one before, or has data where none belongs.
    #[error(
        "rank {from} sent {len} bytes at {offset} of {total} for {kind:?} call {seq}, expected a piece at {expected} of {whole}"
    )]
    Piece {
        /// Sender.
        from: Rank,
        /// Kind.
        kind: Kind,
        /// Call.
        seq: u32,
        /// Bytes in the frame.
        len: usize,
        /// Offset seen.
        offset: u32,
        /// Total seen.
        total: u32,
        /// Offset expected.
        expected: usize,
        /// Bytes that this rank has to give.
        whole: usize,
    },
    /// The rows of an all-to-all cannot be of equal length.
    #[error("rank {from} announced {total} bytes for an all-to-all of {size} ranks")]
    Rows {
        /// Sender.
        from: Rank,
        /// Total seen.
        total: u32,
        /// Ranks of the job.
        size: u32,
    },
}

/// What a rank says when it begins a call; must agree between ranks (group broadcasts: inside the group).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shape {
    kind: Kind,
    /// Bytes stated.
    total: u64,
    /// Root of a broadcast, else 0.
    root: u32,
}

impl Shape {
    const NONE: Self = Self { kind: Kind::Barrier, total: 0, root: 0 };

    fn of(frame: &Frame<'_>) -> Self {
        let (kind, total) = (frame.kind, u64::from(frame.total));
        match kind {
            Kind::Barrier => Self { kind, total: 0, root: 0 },
            Kind::HostMemory => Self { kind, total: total | u64::from(frame.extra) << 32, root: 0 },
            Kind::Broadcast | Kind::NbrhdBroadcast | Kind::HostBroadcast => {
                Self { kind, total, root: frame.arg }
            }
            _ => Self { kind, total, root: 0 },
        }
    }

    /// Bytes that `rank` has to send in this call.
    fn gives(self, rank: Rank) -> usize {
        let gives = match self.kind {
            Kind::Exchange | Kind::Alltoall => true,
            Kind::Broadcast | Kind::NbrhdBroadcast | Kind::HostBroadcast => self.root == rank.0,
            _ => false,
        };
        // Below MAX_TOTAL for these kinds, see `Frame::decode`.
        if gives { usize::try_from(self.total).unwrap_or(usize::MAX) } else { 0 }
    }

    /// Whether root and length are a matter of each host or neighbourhood.
    const fn is_grouped(self) -> bool {
        matches!(self.kind, Kind::NbrhdBroadcast | Kind::HostBroadcast)
    }
}

impl std::fmt::Display for Shape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { kind, total, root } = self;
        let name = crate::service::call_name(*kind);
        match kind {
            Kind::Barrier => write!(f, "{name}"),
            Kind::Broadcast | Kind::NbrhdBroadcast | Kind::HostBroadcast => {
                write!(f, "{name} of {total} bytes from root {root}")
            }
            _ => write!(f, "{name} of {total} bytes"),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
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
struct Member {
    seq: u32,
    phase: Phase,
    shape: Shape,
    data: Vec<u8>,
}

/// A call that some ranks have begun.
#[derive(Clone, Copy, Debug)]
struct Call {
    shape: Shape,
    first: Rank,
    /// Ranks that have given everything.
    arrived: u32,
}

#[derive(Debug)]
struct Host {
    /// Lowest rank of it; its `seq` is that of all its ranks between calls.
    first: Rank,
    locals: u32,
    /// Ranks that are in the job-wide call.
    in_job: u32,
    /// The call of this host alone.
    call: Option<Call>,
}

/// The machine. See the module's primer.
#[derive(Debug)]
pub struct Collective {
    host_of: Vec<HostId>,
    hosts: Vec<Host>,
    members: Vec<Member>,
    job: Option<Call>,
    finished: u32,
    refused: bool,
}

impl Collective {
    /// A machine for `size` ranks on one host.
    #[must_use]
    pub fn new(size: u32) -> Self {
        Self::on_hosts(&vec![HostId(0); size as usize])
    }

    /// A machine for one rank per element; the element is its host. Hosts are numbered without gaps from 0.
    ///
    /// # Panics
    /// When host numbers have gaps or there are more than `u32::MAX` ranks.
    #[must_use]
    pub fn on_hosts(host_of: &[HostId]) -> Self {
        let count = host_of.iter().map(|h| h.0 + 1).max().unwrap_or(0);
        let host = |id| {
            let ranks = (0u32..).zip(host_of).filter(|(_, h)| h.0 == id);
            let first = ranks.clone().next().map(|(rank, _)| Rank(rank));
            let locals = u32::try_from(ranks.count()).unwrap_or(u32::MAX);
            assert!(first.is_some(), "host {id} of {count} has no rank");
            Host { first: first.unwrap_or(Rank(0)), locals, in_job: 0, call: None }
        };
        let member = || Member { seq: 0, phase: Phase::Idle, shape: Shape::NONE, data: Vec::new() };
        Self {
            host_of: host_of.to_vec(),
            hosts: (0..count).map(host).collect(),
            members: host_of.iter().map(|_| member()).collect(),
            job: None,
            finished: 0,
            refused: false,
        }
    }

    /// Ranks of the job.
    #[must_use]
    pub fn size(&self) -> u32 {
        u32::try_from(self.members.len()).unwrap_or(u32::MAX)
    }

    /// Whether the ranks' calls did not fit together (or [`Collective::refuse_all`] was called): no call will complete
    /// any more.
    #[must_use]
    pub const fn is_refused(&self) -> bool {
        self.refused
    }

    /// Takes one frame that `from` sent. Most frames need no action; the last one of a call yields all its answers.
    ///
    /// # Errors
    /// The frame is not one that a correct client sends now; the machine is unchanged and the driver ends the job.
    pub fn handle(&mut self, from: Rank, frame: &Frame<'_>) -> Result<Vec<Action>, ProtocolError> {
        let shape = self.check(from, frame)?;
        if self.refused {
            return Ok(Vec::new());
        }
        let begins = self.members[from.0 as usize].phase == Phase::Idle;
        if begins && let Err(reason) = self.enter(from, shape) {
            return Ok(self.refuse_all(&reason));
        }
        let member = &mut self.members[from.0 as usize];
        if begins {
            member.seq = frame.seq;
            member.shape = shape;
        }
        member.data.extend_from_slice(frame.payload);
        if member.data.len() < shape.gives(from) {
            member.phase = Phase::Sending;
            return Ok(Vec::new());
        }
        member.phase = Phase::Waiting;
        Ok(self.arrive(from, shape.kind))
    }

    /// Counts the farewell of a rank. When every rank has said it, the answer (`Release` with seq 0) for all of them.
    ///
    /// # Errors
    /// A rank outside the job, or a second farewell. A rank that is inside a call may leave: the driver decides
    /// whether the job can go on.
    pub fn fini(&mut self, from: Rank) -> Result<Vec<Action>, ProtocolError> {
        let size = self.size();
        let member = self.members.get_mut(from.0 as usize);
        let member = member.ok_or(ProtocolError::Outside { from, size })?;
        if member.phase == Phase::Left {
            let state = "had said its farewell";
            return Err(ProtocolError::State { from, kind: Kind::Fini, state });
        }
        member.phase = Phase::Left;
        self.finished += 1;
        if self.finished < size {
            return Ok(Vec::new());
        }
        let hosts = (0u32..).zip(&self.hosts);
        Ok(hosts.map(|(id, _)| Action::Release { to: To::Host(HostId(id)), seq: 0 }).collect())
    }

    /// Why the calls in progress can never complete, if that is so: a rank that they need has said its farewell. The
    /// driver decides what follows (an agent ends such a job by its exit rules; without one, refuse).
    #[must_use]
    pub fn stuck(&self) -> Option<String> {
        if self.refused || self.finished == 0 {
            return None;
        }
        let left = |on: Option<u32>| {
            let members = (0u32..).zip(&self.members).zip(&self.host_of);
            let mut gone = members
                .filter(|((_, m), h)| m.phase == Phase::Left && on.is_none_or(|id| h.0 == id));
            gone.next().map(|((rank, _), _)| rank)
        };
        let hosts = (0u32..).zip(&self.hosts).map(|(id, host)| (host.call, Some(id)));
        std::iter::once((self.job, None)).chain(hosts).find_map(|(call, on)| {
            let (Call { shape, first, .. }, gone) = (call?, left(on)?);
            Some(format!("rank {first} calls {shape}, rank {gone} has said its farewell"))
        })
    }

    /// Refuses the current and all later calls of every rank, once: a rank in a call fails now, another at its next
    /// call. Later frames are swallowed.
    pub fn refuse_all(&mut self, reason: &str) -> Vec<Action> {
        if std::mem::replace(&mut self.refused, true) {
            return Vec::new();
        }
        let reason: Arc<str> = reason.into();
        let mut actions = Vec::new();
        for (rank, member) in (0u32..).zip(&mut self.members) {
            member.data = Vec::new();
            let seq = match member.phase {
                Phase::Left => continue,
                Phase::Idle => next_seq(member.seq),
                Phase::Sending | Phase::Waiting => member.seq,
            };
            actions.push(Action::Refuse { to: Rank(rank), seq, reason: Arc::clone(&reason) });
        }
        actions
    }

    /// Checks a frame against the state of its sender. Changes nothing.
    fn check(&self, from: Rank, frame: &Frame<'_>) -> Result<Shape, ProtocolError> {
        let (kind, seq, size) = (frame.kind, frame.seq, self.size());
        let member =
            self.members.get(from.0 as usize).ok_or(ProtocolError::Outside { from, size })?;
        if frame.rank != from.0 {
            return Err(ProtocolError::Name { from, kind, seen: frame.rank });
        }
        let collective = (Kind::Barrier as u8..=Kind::HostMemory as u8).contains(&(kind as u8));
        if !collective {
            return Err(ProtocolError::Kind { from, kind });
        }
        if self.refused {
            return Ok(Shape::of(frame));
        }
        let shape = Shape::of(frame);
        let state = match member.phase {
            Phase::Idle | Phase::Sending => None,
            Phase::Waiting => Some("waits in an earlier call"),
            Phase::Left => Some("had said its farewell"),
        };
        if let Some(state) = state {
            return Err(ProtocolError::State { from, kind, state });
        }
        let begins = member.phase == Phase::Idle;
        let expected = if begins { next_seq(member.seq) } else { member.seq };
        if seq != expected {
            return Err(ProtocolError::Sequence { from, expected, seen: seq });
        }
        if !begins && shape != member.shape {
            return Err(ProtocolError::State {
                from,
                kind,
                state: "was sending the pieces of another call",
            });
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

    /// Joins `from` to the call that the others are in, or begins one.
    fn enter(&mut self, from: Rank, shape: Shape) -> Result<(), String> {
        let size = self.size();
        let host = &mut self.hosts[self.host_of[from.0 as usize].0 as usize];
        let against = |call: &Call| {
            format!("rank {from} calls {shape}, rank {} called {}", call.first, call.shape)
        };
        let slot = if shape.kind == Kind::HostMemory {
            if host.in_job > 0
                && let Some(call) = &self.job
            {
                return Err(against(call));
            }
            &mut host.call
        } else {
            if let Some(call) = &host.call {
                return Err(against(call));
            }
            check_alone(shape, from, size, &self.host_of)?;
            host.in_job += 1;
            &mut self.job
        };
        match slot {
            Some(call) => {
                let same = if shape.is_grouped() {
                    call.shape.kind == shape.kind
                } else {
                    call.shape == shape
                };
                if same { Ok(()) } else { Err(against(call)) }
            }
            None => {
                *slot = Some(Call { shape, first: from, arrived: 0 });
                Ok(())
            }
        }
    }

    /// `from` has given everything; completes the call when it was the last.
    fn arrive(&mut self, from: Rank, kind: Kind) -> Vec<Action> {
        let size = self.size();
        let id = self.host_of[from.0 as usize];
        let host = &mut self.hosts[id.0 as usize];
        let (slot, needed) = if kind == Kind::HostMemory {
            (&mut host.call, host.locals)
        } else {
            (&mut self.job, size)
        };
        let Some(call) = slot else { return Vec::new() };
        call.arrived += 1;
        if call.arrived < needed {
            return Vec::new();
        }
        let shape = call.shape;
        *slot = None;
        if kind == Kind::HostMemory {
            let seq = self.members[host.first.0 as usize].seq;
            for (member, _) in self.members.iter_mut().zip(&self.host_of).filter(|(_, h)| **h == id)
            {
                member.phase = Phase::Idle;
            }
            return vec![Action::HostMemory { host: id, seq, len: shape.total }];
        }
        self.complete(shape)
    }

    fn complete(&mut self, shape: Shape) -> Vec<Action> {
        for host in &mut self.hosts {
            host.in_job = 0;
        }
        if shape.is_grouped()
            && let Err(reason) = self.check_groups(shape.kind)
        {
            return self.refuse_all(&reason);
        }
        let actions = match shape.kind {
            Kind::Exchange => self.gathered(),
            Kind::Alltoall => self.transposed(),
            Kind::Broadcast | Kind::NbrhdBroadcast | Kind::HostBroadcast => self.spread(),
            _ => self.per_host(|host, seq| Action::Release { to: To::Host(host), seq }),
        };
        for member in &mut self.members {
            // A rank that left inside the call stays gone.
            if member.phase == Phase::Waiting {
                member.phase = Phase::Idle;
            }
            member.data = Vec::new();
        }
        actions
    }

    fn per_host(&self, action: impl Fn(HostId, u32) -> Action) -> Vec<Action> {
        let hosts = (0u32..).zip(&self.hosts);
        hosts
            .map(|(id, host)| action(HostId(id), self.members[host.first.0 as usize].seq))
            .collect()
    }

    fn gathered(&self) -> Vec<Action> {
        let mut bytes = Vec::with_capacity(self.members.iter().map(|m| m.data.len()).sum());
        for member in &self.members {
            bytes.extend_from_slice(&member.data);
        }
        let bytes = Arc::new(bytes);
        self.per_host(|host, seq| Action::Mapped { host, seq, bytes: Arc::clone(&bytes) })
    }

    fn transposed(&self) -> Vec<Action> {
        let row = self.members.first().map_or(0, |m| m.data.len()) / self.members.len().max(1);
        let column = |to: u32| {
            let at = to as usize * row;
            let pieces = self.members.iter().flat_map(|m| &m.data[at..at + row]);
            Arc::new(pieces.copied().collect::<Vec<u8>>())
        };
        let ranks = (0u32..).zip(&self.members);
        ranks.map(|(to, m)| Action::Data { to: Rank(to), seq: m.seq, bytes: column(to) }).collect()
    }

    fn spread(&mut self) -> Vec<Action> {
        let take = |m: &mut Member| Arc::new(std::mem::take(&mut m.data));
        let given: Vec<Arc<Vec<u8>>> = self.members.iter_mut().map(take).collect();
        let answer = |(rank, m): (u32, &Member)| {
            let (root, seq, to) = (m.shape.root, m.seq, Rank(rank));
            if root == rank {
                Action::Release { to: To::Rank(to), seq }
            } else {
                Action::Data { to, seq, bytes: Arc::clone(&given[root as usize]) }
            }
        };
        (0u32..).zip(&self.members).map(answer).collect()
    }

    /// Roots and lengths of a broadcast inside hosts or neighbourhoods: a group is a root and the ranks that name it.
    fn check_groups(&self, kind: Kind) -> Result<(), String> {
        for (rank, member) in (0u32..).zip(&self.members) {
            let (shape, root) = (member.shape, &self.members[member.shape.root as usize]);
            let first = self.hosts[self.host_of[rank as usize].0 as usize].first;
            let pattern = if kind == Kind::HostBroadcast {
                self.members[first.0 as usize].shape
            } else {
                root.shape
            };
            if shape != pattern {
                let other = if kind == Kind::HostBroadcast { first.0 } else { shape.root };
                return Err(format!("rank {rank} calls {shape}, rank {other} called {pattern}"));
            }
        }
        Ok(())
    }
}

/// What can be said about a call without looking at the other ranks.
fn check_alone(shape: Shape, from: Rank, size: u32, host_of: &[HostId]) -> Result<(), String> {
    let gathers = matches!(shape.kind, Kind::Exchange | Kind::Alltoall);
    if gathers && shape.total.saturating_mul(u64::from(size)) > MAX_TOTAL as u64 {
        return Err(format!(
            "rank {from} calls {shape}: over {size} ranks that exceeds {MAX_TOTAL} bytes"
        ));
    }
    if shape.root >= size {
        return Err(format!("rank {from} calls {shape}: the job has {size} ranks"));
    }
    let away = host_of[shape.root as usize] != host_of[from.0 as usize];
    if shape.is_grouped() && away {
        return Err(format!("rank {from} calls {shape}: the root is on another host"));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
