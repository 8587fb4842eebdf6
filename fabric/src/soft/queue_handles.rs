//! Completion queues and shared receive queues as their users hold them. A handle keeps its device
//! open.

use std::sync::Arc;

use super::activity::Activity;
use super::cq::Cq;
use super::device::SoftDevice;
use super::rq::Rq;
use super::wire::narrow;
use crate::{Completion, CompletionQueue, Error, PostError, RecvWr, SharedReceiveQueue};

#[derive(Debug)]
pub(super) struct CqHandle {
    pub(super) cq: Arc<Cq>,
    pub(super) device: Arc<SoftDevice>,
}

impl CompletionQueue for CqHandle {
    fn depth(&self) -> u32 {
        narrow(self.cq.depth())
    }

    fn poll(&self, into: &mut [Completion]) -> Result<usize, Error> {
        self.cq.check_overflow()?;
        Activity::count(&self.device.ctx.activity.polls);
        let count = self.cq.drain(into);
        if count != 0 || into.is_empty() {
            return Ok(count);
        }
        self.device.progress();
        Ok(self.cq.drain(into))
    }

    fn arm(&self) -> Result<(), Error> {
        self.cq.arm()
    }
}

#[derive(Debug)]
pub(super) struct SrqHandle {
    pub(super) rq: Arc<Rq>,
    pub(super) device: Arc<SoftDevice>,
}

impl SharedReceiveQueue for SrqHandle {
    fn post(&self, receive: &RecvWr) -> Result<(), PostError> {
        self.rq.post(receive, None)?;
        if self.rq.counters.take_wanted() {
            self.device.ctx.activity.wake();
        }
        Ok(())
    }

    fn depth(&self) -> u32 {
        self.rq.depth
    }
}
