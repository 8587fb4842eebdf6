//! Completion queues.

use std::sync::Arc;

use super::channel::SoftChannel;
use super::completion_ring::CompletionRing;
use super::context::Context;
use super::slots::SlotRelease;
use crate::sync::{AtomicBool, Ordering};
use crate::{AsyncEvent, Completion, Error};

/// A completion queue.
#[derive(Debug)]
pub(super) struct Cq {
    ring: CompletionRing,
    overflowed: AtomicBool,
    channel: Option<SoftChannel>,
    ctx: Arc<Context>,
}

impl Cq {
    pub(super) fn new(ctx: &Arc<Context>, depth: u32, channel: Option<SoftChannel>) -> Self {
        let (ring, ctx) = (CompletionRing::new(depth), Arc::clone(ctx));
        Self { ring, overflowed: AtomicBool::new(false), channel, ctx }
    }

    pub(super) fn depth(&self) -> usize {
        self.ring.depth()
    }

    /// Adds a completion and reports it if the queue is armed. A queue without room is broken for
    /// good.
    pub(super) fn push(&self, entry: &Completion, release: SlotRelease) {
        if !self.ring.push(entry, release) && !self.overflowed.swap(true, Ordering::SeqCst) {
            self.ctx.events.push(AsyncEvent::CqError);
        }
        if self.ring.take_armed() {
            self.ctx.activity.armed.fetch_sub(1, Ordering::SeqCst);
            if let Some(channel) = &self.channel {
                channel.notify();
            }
        }
    }

    /// Takes completions that are there; returns how many.
    pub(super) fn drain(&self, into: &mut [Completion]) -> usize {
        let mut count = 0;
        for place in into {
            let Some((entry, release)) = self.ring.pop() else { break };
            self.ctx.slots.release(entry.qpn, release);
            *place = entry;
            count += 1;
        }
        count
    }

    /// An error when more ended than was polled.
    pub(super) fn check_overflow(&self) -> Result<(), Error> {
        if !self.overflowed.load(Ordering::Relaxed) {
            return Ok(());
        }
        let operation = format!("poll a completion queue of {} entries", self.depth());
        let source = std::io::Error::other("it overflowed: more ended than was polled");
        Err(Error::os(self.ctx.name(), operation, source))
    }

    pub(super) fn arm(&self) -> Result<(), Error> {
        if self.channel.is_none() {
            return Err(self
                .ctx
                .invalid("arm a completion queue", "it was made without a channel"));
        }
        if self.ring.arm() {
            self.ctx.activity.arm();
        }
        Ok(())
    }
}

impl Drop for Cq {
    fn drop(&mut self) {
        if self.ring.take_armed() {
            self.ctx.activity.armed.fetch_sub(1, Ordering::SeqCst);
        }
    }
}
