//! Message buffers: what a rank has of them before it is connected, and what each connection adds.
//!
//! A rank that nobody is connected to has spares and send buffers for one connection. Each
//! connection adds what can be in flight on it, up to the sizes that were agreed on
//! (`settings/sizes.rs`): receive buffers of its own, or buffers for the queues that all peers
//! share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use ::settings::deadlines::net as deadlines;
use bootstrap::Rank;
use fabric::{Device, PostError, RecvWr, SharedReceiveQueue};

use super::am::header::{BUFFER, BUFFER_LEN};
use super::context::NetContext;
use super::error::Error;
use super::memory::buffers::RESERVED_BUFFERS;
use super::memory::pool::Buffer;
use super::peer::SendQp;

impl NetContext {
    /// What a rank has without connections.
    pub(super) fn add_initial_buffers(&self) -> Result<(), Error> {
        // As for one connection, so that messages can be prepared before there is one.
        self.add_sends(RESERVED_BUFFERS + 1)?;
        for (at, rail) in self.rails.iter().enumerate() {
            if rail.shared.is_none() {
                for buffer in self.make_receives(at, self.plan.sizes.spares)? {
                    rail.spares.put(&self.buffers.pool, buffer);
                }
            }
        }
        Ok(())
    }

    /// What a connection on a rail adds. One connection at a time is made.
    pub(super) fn add_buffers(&self, rank: Rank, at: usize, main: &SendQp) -> Result<(), Error> {
        let (rail, sizes) = (&self.rails[at], &self.plan.sizes);
        self.add_sends(0)?;
        let (Some(shared), Some(srq)) = (&rail.shared, sizes.srq) else {
            for buffer in self.make_receives(at, sizes.receives())? {
                let posted = self.post_receive(buffer, at, |receive| main.qp.post_receive(receive));
                posted.map_err(|source| rail.post_error("a receive buffer", rank, source))?;
            }
            return Ok(());
        };
        if shared.posted.replies.load(Ordering::Relaxed) == 0 {
            // For messages of the library.
            self.add_shared(at, &shared.replies, &AtomicU32::new(0), sizes.reserve)?;
        }
        let wanted = sizes.credits_per_connection.max(1);
        let room = |have: &AtomicU32, most: u32| most.saturating_sub(have.load(Ordering::Relaxed));
        let requests = wanted.min(room(&shared.posted.requests, srq.requests));
        self.add_shared(at, &shared.requests, &shared.posted.requests, requests)?;
        let replies = wanted.min(room(&shared.posted.replies, srq.replies));
        self.add_shared(at, &shared.replies, &shared.posted.replies, replies)?;
        shared.reply_room.give(replies);
        Ok(())
    }

    /// Posts new buffers to a queue that peers share.
    fn add_shared(
        &self,
        at: usize,
        queue: &Arc<dyn SharedReceiveQueue>,
        posted: &AtomicU32,
        count: u32,
    ) -> Result<(), Error> {
        let rank = self.members.rank;
        for buffer in self.make_receives(at, count)? {
            self.post_receive(buffer, at, |receive| queue.post(receive)).map_err(|source| {
                self.rails[at].post_error("a shared receive buffer", rank, source)
            })?;
            posted.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Makes the send buffers that one connection can use, and `more`.
    fn add_sends(&self, more: u32) -> Result<(), Error> {
        let sizes = &self.plan.sizes;
        let wanted = sizes.bounce_per_connection().saturating_add(more);
        let devices: Vec<_> = self.rails.iter().map(|rail| Some(&*rail.device)).collect();
        self.buffers.grow_send(wanted, sizes.bounce, &devices)
    }

    fn make_receives(&self, rail: usize, count: u32) -> Result<Vec<Buffer>, Error> {
        let only = |at: usize| (at == rail).then(|| &*self.rails[at].device);
        let devices: Vec<Option<&dyn Device>> = (0..self.rails.len()).map(only).collect();
        self.buffers.pool.grow(count, BUFFER, &devices)
    }

    /// Posts a receive buffer with `post`. There is always room for it, so a full queue only means
    /// that the device was busy (the software adapter says so when a thread that holds it has lost
    /// its processor): tried again for [`deadlines::REPOST`].
    #[inline]
    pub(super) fn post_receive(
        &self,
        buffer: Buffer,
        rail: usize,
        post: impl Fn(&RecvWr) -> Result<(), PostError>,
    ) -> Result<(), PostError> {
        let (index, piece) = self.buffers.pool.lend_piece(buffer, rail, BUFFER_LEN);
        let receive = RecvWr { id: u64::from(index), buffer: piece };
        match post(&receive) {
            Ok(()) => Ok(()),
            Err(first) => self.post_again(first, &receive, (index, rail), post),
        }
    }

    #[cold]
    fn post_again(
        &self,
        first: PostError,
        receive: &RecvWr,
        (index, rail): (u32, usize),
        post: impl Fn(&RecvWr) -> Result<(), PostError>,
    ) -> Result<(), PostError> {
        let mut posted = Err(first);
        let end = Instant::now() + deadlines::REPOST.limit;
        while posted == Err(PostError::Full) && Instant::now() < end {
            std::thread::yield_now();
            posted = post(receive);
        }
        let pool = &self.buffers.pool;
        if posted.is_err()
            && let Some(buffer) = pool.reclaim(index)
        {
            self.rails[rail].spares.put(pool, buffer);
        }
        posted
    }
}
