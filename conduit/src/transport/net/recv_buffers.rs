//! Message buffers: what a rank has of them before it is connected, and what each connection adds.
//!
//! A rank that nobody is connected to has spares and send buffers for one lane. Each lane adds what can be under way on it, up
//! to the sizes that were agreed on (`sizes.rs`): receive buffers of its own, or buffers for the queues that all peers share.

use std::sync::atomic::{AtomicU32, Ordering};

use bootstrap::Rank;
use fabric::SharedReceiveQueue;

use super::Error;
use super::am::header::BUFFER;
use super::context::{NetContext, RESERVED_BUFFERS};
use super::memory::pool::Buffer;
use super::peer::SendQp;
use super::setup::Setup;

/// How many of `wanted` more there may be when there are `have` and at most `most`.
const fn more(have: u32, wanted: u32, most: u32) -> u32 {
    let room = most.saturating_sub(have);
    if wanted < room { wanted } else { room }
}

impl NetContext {
    /// What a rank has without connections.
    pub(super) fn add_initial(&self) -> Result<(), Error> {
        // As for one lane, so that messages can be prepared before there is a connection.
        self.add_bounce((RESERVED_BUFFERS + 1).saturating_add(self.bounce_of_lane()))?;
        for (at, rail) in self.rails.iter().enumerate() {
            if rail.shared.is_none() {
                for buffer in self.buffers(at, self.setup.limits.spares)? {
                    rail.spares.put(&self.pool, buffer);
                }
            }
        }
        Ok(())
    }

    /// What a lane on a rail adds. One lane at a time is made.
    pub(super) fn add_for_connection(
        &self,
        rank: Rank,
        at: usize,
        main: &SendQp,
    ) -> Result<(), Error> {
        let limits = &self.setup.limits;
        self.add_bounce(self.bounce_of_lane())?;
        let (Some(shared), Some(sizes)) = (&self.rails[at].shared, limits.shared) else {
            for buffer in self.buffers(at, limits.receives())? {
                self.post(buffer, at, |receive| main.qp.post_receive(receive))
                    .map_err(|source| self.post_error("a receive buffer", rank, at, source))?;
            }
            return Ok(());
        };
        let first = shared.posted.replies.load(Ordering::Relaxed) == 0;
        if first {
            // For messages of the library.
            self.add_shared(at, &shared.replies, &AtomicU32::new(0), sizes.internal)?;
        }
        let lane = limits.credits.max(1);
        let have = |count: &AtomicU32| count.load(Ordering::Relaxed);
        let requests = more(have(&shared.posted.requests), lane, sizes.requests);
        self.add_shared(at, &shared.requests, &shared.posted.requests, requests)?;
        let replies = more(have(&shared.posted.replies), lane, sizes.replies);
        self.add_shared(at, &shared.replies, &shared.posted.replies, replies)?;
        shared.reply_room.give(replies);
        Ok(())
    }

    /// Posts new buffers to a queue that peers share.
    fn add_shared(
        &self,
        at: usize,
        queue: &std::sync::Arc<dyn SharedReceiveQueue>,
        posted: &AtomicU32,
        count: u32,
    ) -> Result<(), Error> {
        for buffer in self.buffers(at, count)? {
            self.post(buffer, at, |receive| queue.post(receive)).map_err(|source| {
                self.post_error("a shared receive buffer", self.members.rank, at, source)
            })?;
            posted.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Send buffers that one lane can use.
    const fn bounce_of_lane(&self) -> u32 {
        self.setup.limits.send_lane.saturating_add(self.setup.limits.credits)
    }

    /// Makes send buffers, as many more as the limit allows.
    fn add_bounce(&self, wanted: u32) -> Result<(), Error> {
        let most = self.setup.limits.bounce.max(RESERVED_BUFFERS + 1);
        let count = more(self.bounced.load(Ordering::Relaxed), wanted, most);
        let devices: Vec<_> = self.rails.iter().map(|rail| Some(&*rail.device)).collect();
        for buffer in self.pool.grow(count, Setup::bounce_len(), &devices)? {
            self.bounce.put(&self.pool, buffer);
            self.bounced.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Receive buffers for one rail.
    fn buffers(&self, rail: usize, count: u32) -> Result<Vec<Buffer>, Error> {
        let only = |at: usize| (at == rail).then(|| &*self.rails[at].device);
        let devices: Vec<_> = (0..self.rails.len()).map(only).collect();
        self.pool.grow(count, BUFFER, &devices)
    }
}
