//! The node memory: memory shared by the ranks of one host and their agent.
//!
//! # Primer
//!
//! The provider creates it (a memfd, so a killed job leaves no file); every local rank maps it. It
//! holds
//!
//! * the **exit decision**, one word that the agent (or, where there is none, a rank) sets once
//!   when the end of the job is decided. Every poll of the conduit loads it: that is how a
//!   non-collective exit reaches ranks in milliseconds;
//! * one [`RankSlot`] per local rank: a **doorbell** (futex) that every blocking wait of the rank
//!   sleeps on, the acknowledgement that makes sure that the user's SIGQUIT handler runs exactly
//!   once, and what the rank shows to those who watch the job ([`Activity`]);
//! * the host map: the local ranks in order, and the host of every rank of the job. Once per host,
//!   not per rank.
//!
//! Layout: a header (one cache line pair), `locals` [`RankSlot`]s, `u32` local ranks, `u32` host of
//! each job rank; then, where an agent serves the ranks, the [`ShmCollectives`], on which they make
//! short calls.

mod collectives;

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

pub use collectives::{Published, ShmCollectives, SlotRef};

use crate::memfd;
use crate::rank::{HostId, Rank, RankInfo};
use crate::sys::{self, Mapping, SharedArray, SharedMap};
use crate::trace::Cause;

const NODE_SHM_MAGIC: u64 = 0x4741_534e_4554_5047;
/// Version of the layout; agent and rank must agree.
pub const NODE_SHM_VERSION: u32 = 6;

/// Fixed part of the page.
#[repr(C, align(128))]
struct Header {
    magic: AtomicU64,
    version: AtomicU32,
    size: AtomicU32,
    hosts: AtomicU32,
    host: AtomicU32,
    locals: AtomicU32,
    /// 1 when there are collectives.
    collectives: AtomicU32,
    /// 0, or [`ExitDecision`] encoded.
    exit_decision: AtomicU64,
}

/// One local rank's words, each on lines of its own.
#[repr(C, align(128))]
pub struct RankSlot {
    /// Bumped by whoever gives the rank something to do while [`RankSlot::sleeping`] is set; the
    /// rank's futex.
    doorbell: AtomicU32,
    /// 1 while the rank sleeps or is about to.
    sleeping: AtomicU32,
    /// [`Ack`] of the exit decision.
    ack: AtomicU32,
    /// Process id, written by the agent or by the rank at start.
    pid: AtomicI32,
    /// [`LEFT`] when the rank has said its farewell, the code of its end when it dies of a signal
    /// that its handler saw; only where there is no agent to hear it.
    left: AtomicU32,
    shown: Shown,
}

/// What a rank shows to those who watch the job. On a line of its own, because senders read the
/// rank's other words with each message.
#[derive(Default)]
#[repr(C, align(128))]
struct Shown {
    /// Messages that it has taken.
    messages: AtomicU64,
    /// What its last sleep in the library is or was for, plus 1.
    waits_for: AtomicU32,
    /// The processor that it last waited on, plus 1.
    processor: AtomicU32,
}

/// What a rank does, as far as its library shows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Activity {
    /// Messages that it has taken since its start. Where several threads poll, a few may be missing.
    pub messages: u64,
    /// What it sleeps for inside the library; `None` while it does not sleep there.
    pub waits_for: Option<Cause>,
    /// It sleeps inside the library.
    pub sleeps: bool,
}

/// See [`RankSlot`]; no code of a death by signal.
const LEFT: u32 = 1;

/// Who took on the task to let the user's SIGQUIT handler run on a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::FromRepr)]
#[repr(u32)]
pub enum Ack {
    /// Nobody yet.
    None = 0,
    /// The rank itself: it is exiting, or saw the decision and raises SIGQUIT.
    Rank = 1,
    /// The agent: it has sent SIGQUIT because the rank did not look.
    Agent = 2,
}

/// Decision that the job ends, as ranks see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExitDecision {
    /// Code to exit with.
    pub code: i32,
    /// Rank that caused it, if one did.
    pub cause: Option<Rank>,
}

const DECISION_SET: u64 = 1 << 63;
const DECISION_NO_RANK: u64 = 0x7fff_ffff;

impl ExitDecision {
    fn encode(self) -> u64 {
        let rank = self.cause.map_or(DECISION_NO_RANK, |rank| u64::from(rank.0) & DECISION_NO_RANK);
        DECISION_SET | rank << 32 | u64::from(self.code.cast_unsigned())
    }

    fn decode(word: u64) -> Option<Self> {
        if word & DECISION_SET == 0 {
            return None;
        }
        #[expect(clippy::cast_possible_truncation, reason = "the two halves of the word")]
        let (rank, code) = ((word >> 32) as u32 & 0x7fff_ffff, (word as u32).cast_signed());
        let cause = (u64::from(rank) != DECISION_NO_RANK).then_some(Rank(rank));
        Some(Self { code, cause })
    }
}

/// Why a page cannot be used.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each message names its fields")]
pub enum NodeShmError {
    /// Mapping or sizing failed.
    #[error("cannot {operation} the node's shared memory: {source}")]
    Os { operation: &'static str, source: std::io::Error },
    /// The contents are not a page of this version.
    #[error("the node's shared memory is damaged or of another version: {seen}")]
    Layout { seen: String },
}

/// The mapped page. Shared freely between threads; all mutable parts are atomics.
#[derive(Debug)]
pub struct NodeShm {
    map: Arc<SharedMap>,
    /// One.
    header: SharedArray<Header>,
    slots: SharedArray<RankSlot>,
    size: u32,
    hosts: u32,
    host: HostId,
    locals: u32,
    collectives: Option<collectives::Layout>,
    /// The places for results of the collectives, in a rank.
    results: Option<Mapping>,
    /// Which of these this process looks at.
    slot_refs: collectives::SlotRefs,
}

/// What a page is made of; the agent fills it.
#[derive(Clone, Debug)]
pub struct NodeShmSpec<'a> {
    /// This host.
    pub host: HostId,
    /// Hosts in the job.
    pub hosts: u32,
    /// Ranks of this host, ascending.
    pub local_ranks: &'a [Rank],
    /// Host of every rank of the job; its length is the job size.
    pub host_of: &'a [HostId],
}

const fn slots_at() -> usize {
    size_of::<Header>()
}

fn locals_at(locals: u32) -> usize {
    slots_at() + locals as usize * size_of::<RankSlot>()
}

fn page_len(locals: u32, size: u32) -> usize {
    locals_at(locals) + (locals as usize + size as usize) * size_of::<u32>()
}

impl Header {
    const fn words(&self) -> [&AtomicU32; 6] {
        [&self.version, &self.size, &self.hosts, &self.host, &self.locals, &self.collectives]
    }
}

fn check_counts(size: u32, hosts: u32, host: u32, locals: u32) -> Result<(), NodeShmError> {
    if size == 0 || locals == 0 || locals > size || hosts > size || host >= hosts {
        let seen = format!("{locals} of {size} ranks on host {host} of {hosts}");
        return Err(NodeShmError::Layout { seen });
    }
    Ok(())
}

impl NodeShm {
    /// Creates a page for a host. Its descriptor is given to the ranks with [`NodeShm::fd`].
    ///
    /// # Errors
    /// No memory or descriptors.
    pub fn create(spec: &NodeShmSpec<'_>) -> Result<Self, NodeShmError> {
        Self::make(spec, |_, _| None)
    }

    /// As [`NodeShm::create`], with a [`ShmCollectives`], which the creator must serve. Hosts with
    /// very many ranks have none.
    ///
    /// # Errors
    /// As there.
    pub fn create_with_collectives(spec: &NodeShmSpec<'_>) -> Result<Self, NodeShmError> {
        Self::make(spec, collectives::Layout::new)
    }

    fn make(
        spec: &NodeShmSpec<'_>,
        collectives: impl FnOnce(usize, u32) -> Option<collectives::Layout>,
    ) -> Result<Self, NodeShmError> {
        let count = |n: usize| {
            u32::try_from(n).map_err(|_| NodeShmError::Layout { seen: format!("{n} ranks") })
        };
        let (locals, size) = (count(spec.local_ranks.len())?, count(spec.host_of.len())?);
        let (hosts, host) = (spec.hosts, spec.host);
        check_counts(size, hosts, host.0, locals)?;
        let os = |source| NodeShmError::Os { operation: "create", source };
        let collectives = collectives(page_len(locals, size), locals);
        let len = collectives.map_or(page_len(locals, size), |collectives| collectives.end());
        let fd = memfd::named(c"gasnet-node-shm", len as u64).map_err(os)?;
        let map = Arc::new(SharedMap::open(fd).map_err(os)?);
        let header = SharedArray::new(&map, 0, 1);
        let slots = SharedArray::new(&map, slots_at(), locals as usize);
        let (results, slot_refs) = (None, collectives::SlotRefs::default());
        let page =
            Self { map, header, slots, size, hosts, host, locals, collectives, results, slot_refs };
        let header = page.header();
        header.magic.store(NODE_SHM_MAGIC, Ordering::Relaxed);
        let values =
            [NODE_SHM_VERSION, size, hosts, host.0, locals, u32::from(collectives.is_some())];
        let tables = spec.local_ranks.iter().map(|r| r.0).chain(spec.host_of.iter().map(|h| h.0));
        let words = header.words().into_iter().chain(page.tables());
        for (word, value) in words.zip(values.into_iter().chain(tables)) {
            word.store(value, Ordering::Relaxed);
        }
        page.check_locals().map_err(|seen| NodeShmError::Layout { seen })?;
        Ok(page)
    }

    /// Maps a page received from the provider, checking every length against the memory that is
    /// really there.
    ///
    /// # Errors
    /// Not a page, another version, or lengths that do not fit.
    pub fn open(fd: std::os::fd::OwnedFd) -> Result<Self, NodeShmError> {
        let mapped = SharedMap::open(fd);
        let mapped = mapped.map_err(|source| NodeShmError::Os { operation: "map", source })?;
        let map = Arc::new(mapped);
        let bad = |seen: String| NodeShmError::Layout { seen };
        if map.len() < size_of::<Header>() {
            return Err(bad(format!("{} bytes", map.len())));
        }
        let headers = SharedArray::<Header>::new(&map, 0, 1);
        let header = &headers[0];
        if header.magic.load(Ordering::Relaxed) != NODE_SHM_MAGIC {
            return Err(bad("wrong magic".into()));
        }
        let [version, size, hosts, host, locals, has_collectives] =
            header.words().map(|word| word.load(Ordering::Relaxed));
        if version != NODE_SHM_VERSION {
            return Err(bad(format!("version {version}, this build has {NODE_SHM_VERSION}")));
        }
        check_counts(size, hosts, host, locals)?;
        let collectives = collectives::Layout::new(page_len(locals, size), locals)
            .filter(|_| has_collectives == 1);
        let need = collectives.map_or(page_len(locals, size), |collectives| collectives.end());
        if map.len() < need {
            return Err(bad(format!("{} bytes for {locals} of {size} ranks", map.len())));
        }
        let results = collectives.map(|collectives| {
            let results =
                Mapping::shared(map.fd(), collectives.results, collectives::Layout::RESULTS);
            results.map_err(|source| NodeShmError::Os { operation: "map the results in", source })
        });
        let results = results.transpose()?;
        let (host, slot_refs) = (HostId(host), collectives::SlotRefs::default());
        let slots = SharedArray::new(&map, slots_at(), locals as usize);
        let page = Self {
            map,
            header: headers,
            slots,
            size,
            hosts,
            host,
            locals,
            collectives,
            results,
            slot_refs,
        };
        page.check_locals().map_err(bad)?;
        Ok(page)
    }

    /// The searches in the table of local ranks rely on its order. (The hosts of all ranks are not
    /// looked at here: they may be many, and nothing relies on them.)
    fn check_locals(&self) -> Result<(), String> {
        let mut last = None;
        for rank in (0..self.locals).map(|local| self.local_rank(local)) {
            if last >= Some(rank) || self.host_of(rank) != Some(self.host) {
                return Err(format!(
                    "local rank {rank} out of order or not on host {}",
                    self.host.0
                ));
            }
            last = Some(rank);
        }
        Ok(())
    }

    /// Descriptor of the memory, to be passed to a rank.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.map.fd()
    }

    /// Where short calls are made, if this page has it.
    #[must_use]
    pub fn collectives(&self) -> Option<ShmCollectives<'_>> {
        self.collectives.map(|layout| ShmCollectives::new(self, layout))
    }

    /// The bytes of a result on the collectives; `None` in the process that made the page, and when
    /// there is no such place. They change when every rank of the host has given them back.
    pub(crate) fn result(&self, published: Published) -> Option<&[u8]> {
        self.results.as_ref()?.bytes().get(ShmCollectives::range(published)?)
    }

    /// Ranks in the job.
    #[must_use]
    pub const fn size(&self) -> u32 {
        self.size
    }

    /// Ranks on this host.
    #[must_use]
    pub const fn locals(&self) -> u32 {
        self.locals
    }

    /// Job rank of the `local`-th rank of this host.
    ///
    /// # Panics
    /// When `local` is not below [`NodeShm::locals`].
    #[must_use]
    pub fn local_rank(&self, local: u32) -> Rank {
        assert!(local < self.locals, "local index {local} of {}", self.locals);
        Rank(self.tables()[local as usize].load(Ordering::Relaxed))
    }

    /// Host of a job rank, `None` outside the job.
    #[must_use]
    pub fn host_of(&self, rank: Rank) -> Option<HostId> {
        let word = self.tables().get(self.locals as usize + rank.0 as usize)?;
        Some(HostId(word.load(Ordering::Relaxed)))
    }

    /// Index of a job rank among the ranks of this host; `None` when it is elsewhere.
    #[must_use]
    pub fn local_of(&self, rank: Rank) -> Option<u32> {
        let ranks = self.tables().get(..self.locals as usize)?;
        let at = ranks.binary_search_by_key(&rank.0, |word| word.load(Ordering::Relaxed)).ok()?;
        u32::try_from(at).ok()
    }

    /// The place of a rank of this host; `None` when `rank` is not on it.
    #[must_use]
    pub fn rank_info(&self, rank: Rank) -> Option<RankInfo> {
        let local = self.local_of(rank)?;
        let (size, hosts, locals) = (self.size, self.hosts, self.locals);
        Some(RankInfo { rank, size, host: self.host, hosts, local, locals })
    }

    /// The local ranks in order, then the host of each rank of the job.
    fn tables(&self) -> &[AtomicU32] {
        let count = self.locals as usize + self.size as usize;
        self.map.words(locals_at(self.locals), count)
    }

    #[inline(always)]
    fn header(&self) -> &Header {
        &self.header[0]
    }

    /// The words of the `local`-th rank.
    ///
    /// # Panics
    /// When `local` is not below [`NodeShm::locals`].
    #[must_use]
    #[inline(always)]
    pub fn slot(&self, local: u32) -> &RankSlot {
        match self.slots.get(local as usize) {
            Some(slot) => slot,
            None => panic!("local index {local} of {}", self.locals),
        }
    }

    /// The exit decision, if the end of the job is decided. One load; made for polling loops.
    #[must_use]
    #[inline(always)]
    pub fn exit_decision(&self) -> Option<ExitDecision> {
        ExitDecision::decode(self.header().exit_decision.load(Ordering::Acquire))
    }

    /// Decides the end of the job; the first decision stays. Wakes every sleeping rank of the host.
    /// Returns the decision in force. Async-signal-safe.
    pub fn decide(&self, decision: ExitDecision) -> ExitDecision {
        let set = self.header().exit_decision.compare_exchange(
            0,
            decision.encode(),
            Ordering::SeqCst,
            Ordering::SeqCst,
        );
        for local in 0..self.locals {
            self.slot(local).ring();
        }
        if let Some(collectives) = self.collectives() {
            collectives.ring();
        }
        set.map_or_else(|word| ExitDecision::decode(word).unwrap_or(decision), |_| decision)
    }
}

impl RankSlot {
    /// Gives the rank a reason to look, and wakes it if it sleeps. Async-signal-safe.
    ///
    /// The caller has published its work before, with an instruction that is a full barrier (on
    /// x86-64 any locked one), or calls [`RankSlot::ring`], which contains one.
    #[inline(always)]
    pub fn ring_if_sleeping(&self) {
        if self.sleeping.load(Ordering::Relaxed) != 0 {
            self.ring();
        }
    }

    /// As [`RankSlot::ring_if_sleeping`], without looking first.
    #[cold]
    pub fn ring(&self) {
        self.doorbell.fetch_add(1, Ordering::SeqCst);
        if self.sleeping.load(Ordering::SeqCst) != 0 {
            sys::futex_wake(&self.doorbell, i32::MAX);
        }
    }

    /// How often the doorbell rang, modulo 2^32. Who looks for work whose ringer needs no
    /// [`RankSlot::sleep`] to be seen (a thread of the rank that waits for a device) reads it
    /// before it looks, and does not sleep once it has changed.
    #[must_use]
    pub fn rung(&self) -> u32 {
        self.doorbell.load(Ordering::SeqCst)
    }

    /// Sleeps until the doorbell rings or `timeout` passes. Only the rank that owns the slot calls
    /// it; several of its threads may.
    ///
    /// `ready` is asked once more after the rank has declared that it sleeps: work published before
    /// the ringer looked is seen by `ready`, work published after it rings. Returns at once when
    /// `ready` says yes.
    pub fn sleep(&self, timeout: Duration, ready: impl FnOnce() -> bool) {
        self.sleeping.fetch_add(1, Ordering::SeqCst);
        let seen = self.doorbell.load(Ordering::SeqCst);
        if !ready() {
            sys::futex_wait(&self.doorbell, seen, timeout);
        }
        self.sleeping.fetch_sub(1, Ordering::SeqCst);
    }

    /// Takes the task of running the user's SIGQUIT handler; true for exactly one caller.
    pub fn claim_ack(&self, by: Ack) -> bool {
        self.ack
            .compare_exchange(Ack::None as u32, by as u32, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok()
    }

    /// The rank has taken so many messages more. Only the rank itself calls it.
    #[inline(always)]
    pub fn took_messages(&self, count: usize) {
        // No locked instruction on the way of a message.
        let before = self.shown.messages.load(Ordering::Relaxed);
        self.shown.messages.store(before.wrapping_add(count as u64), Ordering::Relaxed);
    }

    /// What the next [`RankSlot::sleep`] is for.
    pub fn show_wait(&self, cause: Cause) {
        self.shown.waits_for.store(u32::from(cause as u8) + 1, Ordering::Relaxed);
    }

    /// The processor that the rank waits on. Only the rank itself calls it.
    pub fn show_processor(&self, processor: u32) {
        self.shown.processor.store(processor.wrapping_add(1), Ordering::Relaxed);
    }

    /// The processor that the rank last waited on; `None`: it has not waited yet.
    #[must_use]
    pub fn processor(&self) -> Option<u32> {
        self.shown.processor.load(Ordering::Relaxed).checked_sub(1)
    }

    /// What the rank does, for those who watch the job.
    #[must_use]
    pub fn activity(&self) -> Activity {
        let sleeps = self.sleeping.load(Ordering::Relaxed) != 0;
        let cause = self.shown.waits_for.load(Ordering::Relaxed).checked_sub(1);
        let cause = cause.and_then(|number| Cause::ALL.get(number as usize).copied());
        Activity {
            messages: self.shown.messages.load(Ordering::Relaxed),
            waits_for: cause.filter(|_| sleeps),
            sleeps,
        }
    }

    /// Who has the task.
    #[must_use]
    pub fn ack(&self) -> Ack {
        Ack::from_repr(self.ack.load(Ordering::SeqCst)).unwrap_or(Ack::Agent)
    }

    /// Process id of the rank, 0 before it is known.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.pid.load(Ordering::Relaxed)
    }

    /// Whether the rank has taken its leave. Only where there is no agent, which would have heard
    /// it.
    #[must_use]
    pub fn has_left(&self) -> bool {
        self.left.load(Ordering::SeqCst) == LEFT
    }

    /// Records that the rank has taken its leave. Async-signal-safe.
    pub fn set_left(&self) {
        self.left.store(LEFT, Ordering::SeqCst);
    }

    /// The code that the rank is dying with, if it could say so.
    #[must_use]
    pub fn dying_with(&self) -> Option<i32> {
        Some(self.left.load(Ordering::SeqCst))
            .filter(|code| !matches!(*code, 0 | LEFT))
            .map(u32::cast_signed)
    }

    /// Records that the rank is dying of a signal: `code` is 128 and its number. Async-signal-safe.
    pub fn set_dying(&self, code: i32) {
        self.left.store(code.cast_unsigned(), Ordering::SeqCst);
    }

    /// Records the process id.
    pub fn set_pid(&self, pid: i32) {
        self.pid.store(pid, Ordering::Relaxed);
    }
}

#[allow(unsafe_code, reason = "the layouts promise that only atomics change while shared")]
mod layout {
    // SAFETY: all fields are atomics.
    unsafe impl crate::sys::SharedLayout for super::Header {}
    // SAFETY: as above.
    unsafe impl crate::sys::SharedLayout for super::RankSlot {}
    // SAFETY: as above.
    unsafe impl crate::sys::SharedLayout for super::collectives::Head {}
    // SAFETY: as above.
    unsafe impl crate::sys::SharedLayout for super::collectives::Post {}
    // SAFETY: as above.
    unsafe impl crate::sys::SharedLayout for super::collectives::Result {}
}

#[cfg(test)]
mod tests;
