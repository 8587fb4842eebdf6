//! Message buffers: what a rank has of them before it is connected, and what each connection adds.
//!
//! A rank that nobody is connected to has spares and send buffers for one connection. Each
//! connection adds what can be in flight on it, up to the sizes that were agreed on
//! (`settings/sizes.rs`): receive buffers of its own, or buffers for the queues that all peers
//! share. Buffers for replies are posted when so many requests are under way for the first time.
//!
//! The buffer of a Short waits to be posted while somebody waits for the Short, or for its answer. On
//! each rail one waits at most, and each receive queue of a connection has one more than credits
//! promise (`Sizes::waiting`), so that no message lacks one. A queue for requests that connections
//! share promises nothing, and has many. The look that finds
//! nothing posts it, and so does the next message whose buffer is to wait.

use std::sync::atomic::Ordering;
use std::time::Instant;

use ::settings::deadlines::net as deadlines;
use bootstrap::Rank;
use fabric::{Device, PostError, QueuePair, RecvWr, Sge, SharedReceiveQueue};
use settings::log::RANK;
use settings::say;

use super::am::header::{BUFFER, BUFFER_LEN};
use super::context::NetContext;
use super::error::Error;
use super::memory::buffers::RESERVED_BUFFERS;
use super::memory::pool::Buffer;
use super::peer::{Connection, SendQp};
use super::rail::Rail;
use super::settings::sizes::FIRST_REPLIES;

/// Number of a receive that names no memory: no index of a buffer.
pub(super) const EMPTY_RECEIVE: u64 = u64::MAX;

/// Where receive buffers are posted.
#[derive(Clone, Copy)]
pub(super) enum Queue<'a> {
    Own(&'a dyn QueuePair),
    Shared(&'a dyn SharedReceiveQueue),
}

impl Queue<'_> {
    fn post(self, receive: &RecvWr) -> Result<(), PostError> {
        match self {
            Self::Own(qp) => qp.post_receive(receive),
            Self::Shared(queue) => queue.post(receive),
        }
    }

    /// How many of these, in their order, were posted.
    fn post_list(self, receives: &[RecvWr]) -> usize {
        match self {
            Self::Own(qp) => qp.post_receives(receives),
            Self::Shared(queue) => queue.post_list(receives),
        }
    }
}

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
            return self.add_receives((rank, at), sizes.first_receives(), Queue::Own(&*main.qp));
        };
        let replies = Queue::Shared(&*shared.replies);
        if shared.reply_supply.made() == 0 {
            // For messages of the library, and the first replies.
            self.add_receives((rank, at), sizes.reserve, replies)?;
            while shared.reply_supply.made() < FIRST_REPLIES.min(srq.replies) {
                let first = shared.reply_supply.more();
                self.add_receives((rank, at), first, replies)?;
                shared.reply_room.give(first);
            }
        }
        let requests = sizes.more_shared(srq, shared.posted_requests.load(Ordering::Relaxed));
        match sizes.volume {
            // What comes is in the ring.
            Some(_) => {
                let notes = self.buffers.pool.grow(requests, 0, &vec![None; self.rails.len()])?;
                for note in notes {
                    shared.notes.put(&self.buffers.pool, note);
                    let posted = self.post_empty(&*shared.requests);
                    posted.map_err(|source| rail.post_error("a receive", rank, source))?;
                }
            }
            None => self.add_receives((rank, at), requests, Queue::Shared(&*shared.requests))?,
        }
        shared.posted_requests.fetch_add(requests, Ordering::Relaxed);
        Ok(())
    }

    /// Posts buffers for replies to more requests than were ever under way at once, on a connection
    /// or, where receive queues are shared, on its rail, and takes the first for a request. `false`:
    /// there are as many as there may be, so the request waits for a reply.
    #[cold]
    pub(super) fn add_replies(&self, rank: Rank, connection: &Connection) -> bool {
        let at = connection.rail;
        let (supply, added) = match &self.rails[at].shared {
            None => {
                let supply = &connection.account.supply;
                let queue = Queue::Own(&*connection.main.qp);
                let count = supply.more();
                (supply, (count, self.add_receives((rank, at), count, queue)))
            }
            Some(shared) => {
                let queue = Queue::Shared(&*shared.replies);
                let count = shared.reply_supply.more();
                (&shared.reply_supply, (count, self.add_receives((rank, at), count, queue)))
            }
        };
        let more = match added {
            (0, _) => return false,
            (count, Ok(())) => count - 1,
            (count, Err(error)) => {
                supply.end(count);
                self.no_more_replies(&error);
                if self.rails[at].shared.is_none() && connection.account.ends() {
                    self.ack_later(connection);
                }
                return false;
            }
        };
        match &self.rails[at].shared {
            None => connection.account.add(more),
            Some(shared) => shared.reply_room.give(more),
        }
        true
    }

    /// Requests go on with the buffers that there are.
    #[cold]
    fn no_more_replies(&self, error: &Error) {
        if !self.failure.is_ignored() && !self.settings.quiet {
            let rank = self.members.rank;
            say!(WARN, RANK, "rank {rank}: {error}; fewer requests are sent at once");
        }
    }

    /// Makes buffers and posts them to a receive queue of a rail, in lists.
    fn add_receives(
        &self,
        (rank, at): (Rank, usize),
        count: u32,
        queue: Queue<'_>,
    ) -> Result<(), Error> {
        let pool = &self.buffers.pool;
        let lent = self.make_receives(at, count)?.into_iter().map(|buffer| {
            let (index, piece) = pool.lend_piece(buffer, at, BUFFER_LEN);
            (index, RecvWr { id: u64::from(index), buffer: piece })
        });
        let (indices, receives): (Vec<_>, Vec<_>) = lent.unzip();
        let posted = queue.post_list(&receives);
        // Whatever is wrong, or only busy, is seen with each of the others.
        for buffer in indices[posted..].iter().filter_map(|index| pool.reclaim(*index)) {
            let posted = self.post_receive(buffer, at, queue);
            posted.map_err(|source| self.rails[at].post_error("a receive buffer", rank, source))?;
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
        let buffers = self.buffers.pool.grow(count, BUFFER, &devices)?;
        self.buffers.made_receives(count, BUFFER);
        Ok(buffers)
    }

    /// The queue that messages of a connection come through; `of_requests`: those, where queues are
    /// shared.
    #[inline]
    pub(super) fn receive_queue<'a>(
        &'a self,
        connection: &'a Connection,
        of_requests: bool,
    ) -> Queue<'a> {
        match &self.rails[connection.rail].shared {
            Some(shared) if of_requests => Queue::Shared(&*shared.requests),
            Some(shared) => Queue::Shared(&*shared.replies),
            None => Queue::Own(&*connection.main.qp),
        }
    }

    /// Posts a receive buffer to a queue of a rail. There is always room for it, so a full queue only means
    /// that the device was busy (the software adapter says so when a thread that holds it has lost
    /// its processor): tried again for [`deadlines::REPOST`].
    #[inline]
    pub(super) fn post_receive(
        &self,
        buffer: Buffer,
        rail: usize,
        queue: Queue<'_>,
    ) -> Result<(), PostError> {
        let (index, piece) = self.buffers.pool.lend_piece(buffer, rail, BUFFER_LEN);
        let receive = RecvWr { id: u64::from(index), buffer: piece };
        match queue.post(&receive) {
            Ok(()) => Ok(()),
            Err(first) => {
                let posted = post_again(first, || queue.post(&receive));
                let pool = &self.buffers.pool;
                if posted.is_err()
                    && let Some(buffer) = pool.reclaim(index)
                {
                    self.rails[rail].spares.put(pool, buffer);
                }
                posted
            }
        }
    }

    /// Posts a buffer later to the receive queue of a connection, by its rank and index.
    #[inline(always)]
    pub(super) fn post_later(
        &self,
        (rank, index, rail): (Rank, usize, usize),
        buffer: Buffer,
    ) -> Result<(), Error> {
        let place = [rank.0, u32::try_from(index).unwrap_or(u32::MAX)];
        match self.rails[rail].waiting.put(&self.buffers.pool, buffer, place) {
            None => Ok(()),
            Some(before) => self.post_waited(before),
        }
    }

    /// Posts the buffer of a rail that waits, if one does.
    #[inline(always)]
    pub(super) fn post_waiting(&self, rail: &Rail) -> Result<(), Error> {
        if rail.waiting.is_empty() { Ok(()) } else { self.post_taken(rail) }
    }

    #[inline(never)]
    fn post_taken(&self, rail: &Rail) -> Result<(), Error> {
        let taken = rail.waiting.take(&self.buffers.pool);
        taken.map_or(Ok(()), |taken| self.post_waited(taken))
    }

    #[inline(never)]
    fn post_waited(&self, (buffer, [rank, index]): (Buffer, [u32; 2])) -> Result<(), Error> {
        let rank = Rank(rank);
        let peer = self.peers.get(rank);
        // There is one: the buffer's message has come through it.
        let Some(connection) = peer.and_then(|peer| peer.connections.get(index as usize)) else {
            return Ok(());
        };
        let rail = connection.rail;
        // Where queues are shared only buffers of requests wait.
        let posted = self.post_receive(buffer, rail, self.receive_queue(connection, true));
        posted.or_else(|error| self.not_reposted((rank, rail), error))
    }

    #[cold]
    pub(super) fn not_reposted(
        &self,
        (rank, rail): (Rank, usize),
        error: PostError,
    ) -> Result<(), Error> {
        match error {
            // The connection is gone; what failed on it says so.
            PostError::State(_) => Ok(()),
            _ if self.failure.is_ignored() => Ok(()),
            error => Err(self.rails[rail].post_error("a receive buffer", rank, error)),
        }
    }

    /// As [`NetContext::post_receive`], of one that names no memory and has no buffer.
    #[inline]
    pub(super) fn post_empty(&self, queue: &dyn SharedReceiveQueue) -> Result<(), PostError> {
        let receive = RecvWr { id: EMPTY_RECEIVE, buffer: Sge::default() };
        queue.post(&receive).or_else(|first| post_again(first, || queue.post(&receive)))
    }
}

#[cold]
fn post_again(first: PostError, post: impl Fn() -> Result<(), PostError>) -> Result<(), PostError> {
    let mut posted = Err(first);
    let end = Instant::now() + deadlines::REPOST.limit;
    while posted == Err(PostError::Full) && Instant::now() < end {
        std::thread::yield_now();
        posted = post();
    }
    posted
}
