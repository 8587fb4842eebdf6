//! A rail: one opened port with its queues.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use bootstrap::Rank;
use fabric::{
    Address, Channel, CompletionQueue, Device, Mtu, PostError, Region, SharedReceiveQueue,
    XrcDomain,
};

use super::am::header::BUFFER_LEN;
use super::credits::{Permits, Supply};
use super::error::Error;
use super::flow::bank::Bank;
use super::memory::lists::{FreeList, WaitingBuffer};
use super::plan::RailPlan;
use super::settings::sizes::Sizes;
use super::signal::{MOST_UNSIGNALED, SELDOM, Unsignaled};
use crate::sys::tally::Sharing;

/// Completion queue slots that only replies, acks and the library's own messages may use, so that a
/// flood of requests does not hold them up.
pub(super) const RESERVED_CQ_SLOTS: u32 = 4;

/// Entries of requests for parts of this rank's memory: each takes 16 bytes of every request that a
/// queue pair has room for, used or not.
pub(super) const MOST_ENTRIES: u32 = 16;

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) requests: Arc<dyn SharedReceiveQueue>,
    /// For replies, acks and messages of the library.
    pub(super) replies: Arc<dyn SharedReceiveQueue>,
    /// Buffers for replies that no request under way counts on.
    pub(super) reply_room: Permits,
    /// Buffers for replies that have been posted (`recv_buffers.rs`).
    pub(super) reply_supply: Supply,
    /// Buffers for requests that have been posted.
    pub(super) posted_requests: AtomicU32,
    /// Where credits move.
    pub(super) bank: Option<Bank>,
    /// Rows that note a request in a ring which a poll for something else has found: as many as
    /// receives are posted for those.
    pub(super) notes: FreeList,
}

impl Shared {
    /// `None` where each connection has a receive queue of its own.
    fn open(
        device: &Arc<dyn Device>,
        recv_cq: &Arc<dyn CompletionQueue>,
        sizes: &Sizes,
        domain: Option<&Arc<dyn XrcDomain>>,
    ) -> Result<Option<Self>, Error> {
        let Some(srq) = sizes.srq else { return Ok(None) };
        let queue = |depth| match domain {
            Some(domain) => domain.receive_queue(depth, recv_cq),
            None => device.shared_receive_queue(depth),
        };
        Ok(Some(Self {
            requests: queue(srq.requests)?,
            replies: queue(srq.replies + sizes.reserve)?,
            reply_room: Permits::new(0),
            reply_supply: Supply::new(0, srq.replies),
            posted_requests: AtomicU32::new(0),
            bank: sizes.flow.map(|(limits, banked)| Bank::new(limits, banked)),
            notes: FreeList::default(),
        }))
    }
}

/// Who asks a completion queue, where pollers take turns.
#[derive(Debug, Default)]
pub(super) struct Turn {
    taken: AtomicBool,
    /// A progress thread takes turns with everybody else.
    shared: AtomicBool,
    /// How often somebody else had it.
    missed: AtomicU32,
}

impl Turn {
    /// From now on a progress thread takes turns with everybody else.
    pub(super) fn share(&self) {
        self.shared.store(true, Ordering::SeqCst);
    }

    #[inline]
    pub(super) fn is_shared(&self) -> bool {
        self.shared.load(Ordering::Relaxed)
    }

    /// `false`: somebody else has it.
    #[inline]
    pub(super) fn take(&self) -> bool {
        let taken = !self.taken.swap(true, Ordering::Acquire);
        if !taken {
            self.missed.fetch_add(1, Ordering::Relaxed);
        }
        taken
    }

    /// Whose turn it was not, so far.
    pub(super) fn missed(&self) -> u32 {
        self.missed.load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn give(&self) {
        self.taken.store(false, Ordering::Release);
    }
}

#[derive(Debug)]
pub(super) struct Rail {
    pub(super) device: Arc<dyn Device>,
    pub(super) port: u8,
    pub(super) pkey_index: u16,
    pub(super) address: Address,
    pub(super) mtu: Mtu,
    pub(super) rd_atom: u8,
    pub(super) max_message: u32,
    pub(super) send_channel: Arc<dyn Channel>,
    pub(super) recv_channel: Arc<dyn Channel>,
    pub(super) send_cq: Arc<dyn CompletionQueue>,
    pub(super) recv_cq: Arc<dyn CompletionQueue>,
    /// Slots of the completion queue of sends for signalled requests.
    pub(super) sends: Permits,
    pub(super) send_depth: u32,
    /// The others, for failures of unsignalled requests.
    unsignaled: Permits,
    most_unsignaled: u32,
    /// Polls since the last look for such failures.
    unlooked: AtomicU32,
    pub(super) shared: Option<Shared>,
    /// Buffers to put in the place of one that a handler works on.
    pub(super) spares: FreeList,
    /// A receive buffer that is posted when nobody waits (`recv_buffers.rs`).
    pub(super) waiting: WaitingBuffer,
    /// Polls in a row that found one message each (`am/polls.rs`).
    pub(super) row: AtomicU8,
    /// Polling an empty completion queue needs no system call.
    pub(super) cheap_poll: bool,
    /// A thread alone takes messages from this rail.
    pub(super) is_taken: AtomicBool,
    /// A thread alone takes completions of sends.
    pub(super) is_reaped: AtomicBool,
    /// One poller at a time takes completions of receives, in threaded modes, and where a thread
    /// takes turns with others.
    pub(super) receiving: Turn,
    /// The same for completions of sends.
    pub(super) reaping: Turn,
    /// A thread waits on the channel of receives.
    pub(super) has_receiver: AtomicBool,
    /// A thread waits on the channel of sends.
    pub(super) has_reaper: AtomicBool,
    pub(super) segment: OnceLock<Arc<dyn Region>>,
}

impl Rail {
    /// Entries that requests of its queue pairs have at most.
    pub(super) fn entries(&self) -> u32 {
        self.device.caps().max_sge.min(MOST_ENTRIES)
    }

    /// Makes the queues of a port. `domain`: where connections are shared.
    pub(super) fn open(
        choice: &RailPlan,
        sizes: &Sizes,
        domain: Option<&Arc<dyn XrcDomain>>,
        sharing: Sharing,
    ) -> Result<Self, Error> {
        let RailPlan { device, port, pkey_index, address, mtu, rd_atom, max_message } =
            choice.clone();
        let (send_channel, recv_channel) = (device.channel()?, device.channel()?);
        let more = MOST_UNSIGNALED.min(sizes.send_cq / 2);
        let wanted = (sizes.send_cq + more).min(device.caps().max_cqe).max(sizes.send_cq);
        let send_cq = device.completion_queue(wanted, Some(&send_channel))?;
        let recv_cq = device.completion_queue(sizes.receive_cq, Some(&recv_channel))?;
        let most_unsignaled = send_cq.depth().saturating_sub(sizes.send_cq).min(more);
        let send_depth = send_cq.depth() - most_unsignaled;
        let shared = Shared::open(&device, &recv_cq, sizes, domain)?;
        Ok(Self {
            cheap_poll: device.caps().cheap_poll,
            device,
            port,
            pkey_index,
            address,
            mtu,
            rd_atom,
            max_message: max_message.max(BUFFER_LEN),
            send_channel,
            recv_channel,
            send_cq,
            recv_cq,
            sends: Permits::used_by(sharing, send_depth),
            send_depth,
            unsignaled: Permits::used_by(sharing, most_unsignaled),
            most_unsignaled,
            unlooked: AtomicU32::new(0),
            shared,
            spares: FreeList::default(),
            waiting: WaitingBuffer::new(sharing),
            row: AtomicU8::new(0),
            is_taken: AtomicBool::new(false),
            is_reaped: AtomicBool::new(false),
            receiving: Turn::default(),
            reaping: Turn::default(),
            has_receiver: AtomicBool::new(false),
            has_reaper: AtomicBool::new(false),
            segment: OnceLock::new(),
        })
    }

    /// Buffers for replies that no request in flight counts on, where receive queues are shared.
    #[inline]
    pub(super) fn reply_room(&self) -> Option<&Permits> {
        self.shared.as_ref().map(|shared| &shared.reply_room)
    }

    /// Key of the own segment for this rank's requests; 0 before attach.
    #[inline]
    pub(super) fn segment_key(&self) -> u32 {
        self.segment.get().map_or(0, |region| region.lkey())
    }

    pub(super) fn post_error(
        &self,
        operation: &'static str,
        peer: Rank,
        source: PostError,
    ) -> Error {
        Error::Post { operation, peer, device: self.name(), source }
    }

    pub(super) fn name(&self) -> String {
        format!("{} port {}", self.device.info().name, self.port)
    }

    #[inline]
    pub(super) fn is_sending(&self) -> bool {
        self.under_way() > 0
    }

    /// Signalled requests that are not complete.
    #[inline]
    pub(super) fn under_way(&self) -> u32 {
        self.send_depth.saturating_sub(self.sends.left())
    }

    /// Entries for unsignalled requests that a queue pair with `sends` others has.
    pub(super) fn room_for_unsignaled(&self, sends: u32) -> u32 {
        Unsignaled::room(sends).min(self.device.caps().max_qp_wr.saturating_sub(sends))
    }

    /// Takes the right to an unsignalled request.
    #[inline]
    pub(super) fn take_unsignaled(&self) -> bool {
        self.unsignaled.take(0)
    }

    #[inline]
    pub(super) fn give_unsignaled(&self, count: u32) {
        if count > 0 {
            self.unsignaled.give(count);
        }
    }

    /// Whether unsignalled requests may be under way, which may fail.
    #[inline]
    pub(super) fn has_unsignaled(&self) -> bool {
        self.unsignaled.left() < self.most_unsignaled
    }

    /// Whether a poll need not look for ends of sends: nothing is under way but unsignalled requests, and
    /// those it looks for seldom. It counts this poll; one that looks says [`Rail::looked`].
    #[inline]
    pub(super) fn is_quiet(&self) -> bool {
        if self.is_sending() {
            return false;
        }
        if !self.has_unsignaled() {
            return true;
        }
        let polls = self.unlooked.load(Ordering::Relaxed) + 1;
        let quiet = polls < SELDOM;
        if quiet {
            self.unlooked.store(polls, Ordering::Relaxed);
        }
        quiet
    }

    /// Failures of unsignalled requests were looked for.
    pub(super) fn looked(&self) {
        self.unlooked.store(0, Ordering::Relaxed);
    }

    /// The next poll looks for them.
    pub(super) fn look_soon(&self) {
        self.unlooked.store(SELDOM - 1, Ordering::Relaxed);
    }
}
