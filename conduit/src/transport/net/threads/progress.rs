//! Progress threads.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use fabric::Channel;
use nix::poll::PollTimeout;

use super::{SharedSink, Stop, readable, wait};
use crate::transport::net::am::receive::{Poll, Receiver};
use crate::transport::net::completions::Completions;
use crate::transport::net::context::NetContext;
use crate::transport::net::error::Error;
use crate::transport::net::settings::{PollMode, ThreadSettings};

pub(super) enum Task {
    Receive(SharedSink),
    Send,
}

pub(super) struct Progress {
    pub(super) context: Arc<NetContext>,
    pub(super) rail: usize,
    pub(super) settings: ThreadSettings,
    pub(super) task: Task,
    pub(super) stop: Arc<Stop>,
}

impl Progress {
    /// Tells others what is this thread's. Before it runs, so that nobody else waits on its
    /// channel.
    pub(super) fn claim(&self) {
        let rail = &self.context.rails[self.rail];
        let alone = self.settings.mode == PollMode::Exclusive;
        let (has, only) = match self.task {
            Task::Receive(_) => (&rail.has_receiver, &rail.is_taken),
            Task::Send => (&rail.has_reaper, &rail.is_reaped),
        };
        has.store(true, Ordering::SeqCst);
        only.store(alone, Ordering::SeqCst);
        // The service thread leaves the channel.
        self.context.connect_queue.wake_thread();
    }

    pub(super) fn run(self) {
        if let Err(error) = self.progress() {
            self.context.fail(error);
        }
    }

    fn poll(&self) -> Result<usize, Error> {
        let locked = self.settings.mode == PollMode::Serialized;
        let count = match &self.task {
            Task::Receive(sink) => {
                Receiver(&self.context).receive_on(self.rail, &**sink, Poll::All, locked)?
            }
            Task::Send => Completions(&self.context).reap_on(self.rail)?,
        };
        if count > 0 {
            self.context.members.ring();
        }
        Ok(count)
    }

    /// Sleeps until there is something, takes all of it, and goes on looking for the idle time.
    fn progress(&self) -> Result<(), Error> {
        let rail = &self.context.rails[self.rail];
        let (queue, channel): (_, &dyn Channel) = match self.task {
            Task::Receive(_) => (&rail.recv_cq, &*rail.recv_channel),
            Task::Send => (&rail.send_cq, &*rail.send_channel),
        };
        let pause = match self.settings.rate {
            0 => None,
            rate => Some(Duration::from_secs(1) / rate),
        };
        while !self.stop.is_requested() {
            let begin = Instant::now();
            let mut last = begin;
            let mut any = false;
            loop {
                if self.poll()? > 0 {
                    any = true;
                    last = Instant::now();
                } else if self.settings.idle.is_zero() || last.elapsed() >= self.settings.idle {
                    break;
                }
                if self.stop.is_requested() {
                    return Ok(());
                }
            }
            if let (true, Some(pause)) = (any, pause) {
                std::thread::sleep(pause.saturating_sub(begin.elapsed()));
            }
            queue.arm()?;
            if self.poll()? == 0 {
                let _ = wait(
                    &mut [readable(channel.fd()), readable(self.stop.event.as_fd())],
                    PollTimeout::NONE,
                )?;
            }
            channel.consume()?;
        }
        Ok(())
    }
}
