//! Threads of the network.
//!
//! *Service* ([`service`]): one for each rank. It rings the rank's doorbell when an armed
//! completion queue has something, makes dynamic connections, and reads what devices report. It
//! runs no handlers.
//!
//! *Progress* ([`progress`]): one for each rail and direction, when the user asks for them. Those
//! for receives run handlers.

mod progress;
mod service;

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use ::settings::deadlines::net as deadlines;
use fabric::Channel;
use nix::poll::{PollFd, PollFlags, PollTimeout};
use nix::sys::eventfd::EventFd;

use self::progress::{Progress, Task};
use self::service::Service;
use super::connect::driver::Connector;
use super::connect_queue::wake_event;
use super::error::Error;
use super::links::Links;
use super::settings::ThreadSettings;
use crate::transport::message::Sink;

/// A sink that progress threads may call.
pub(crate) type SharedSink = Arc<dyn Sink + Send + Sync>;

#[derive(Debug)]
struct Stop {
    event: EventFd,
    is_requested: AtomicBool,
}

impl Stop {
    fn new() -> Result<Self, Error> {
        Ok(Self { event: wake_event()?, is_requested: AtomicBool::new(false) })
    }

    fn request(&self) {
        self.is_requested.store(true, Ordering::SeqCst);
        let _ = self.event.write(1);
    }

    fn is_requested(&self) -> bool {
        self.is_requested.load(Ordering::SeqCst)
    }
}

#[derive(Debug)]
pub(super) struct Threads {
    pub(super) links: Links,
    stop: Arc<Stop>,
    running: Mutex<Vec<JoinHandle<()>>>,
}

impl Threads {
    /// Starts the service thread. `connector` comes with the channel of its completion queue.
    pub(super) fn start(
        links: Links,
        connector: Option<(Connector, Arc<dyn Channel>)>,
    ) -> Result<Self, Error> {
        let stop = Arc::new(Stop::new()?);
        let threads = Self { links, stop, running: Mutex::new(Vec::new()) };
        let links = threads.links.clone();
        let service = Service { links, connector, stop: threads.stop.clone() };
        threads.spawn("gasnet-net", move || service.run())?;
        Ok(threads)
    }

    fn spawn(&self, name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), Error> {
        let builder = std::thread::Builder::new().name(name.to_owned());
        let handle = builder
            .spawn(move || {
                block_signals();
                run();
            })
            .map_err(|source| Error::Os { operation: "start a thread of the network", source })?;
        self.running.lock().unwrap_or_else(PoisonError::into_inner).push(handle);
        Ok(())
    }

    /// Starts the progress threads that the settings ask for.
    pub(super) fn progress(
        &self,
        receive: &ThreadSettings,
        send: &ThreadSettings,
        sink: &SharedSink,
    ) -> Result<(), Error> {
        for rail in 0..self.links.context.rails.len() {
            for (settings, task) in [(receive, Task::Receive(Arc::clone(sink))), (send, Task::Send)]
            {
                if settings.on {
                    let progress = Progress {
                        context: Arc::clone(&self.links.context),
                        rail,
                        settings: *settings,
                        task,
                        stop: Arc::clone(&self.stop),
                    };
                    progress.claim();
                    self.spawn("gasnet-progress", move || progress.run())?;
                }
            }
        }
        Ok(())
    }

    /// Ends all threads; waits for them no longer than the deadline. (One that runs a handler of
    /// the client may take longer and is left alone; so is the calling thread.)
    pub(super) fn stop(&self) {
        self.stop.request();
        let end = Instant::now() + deadlines::THREADS.limit;
        let Ok(mut running) = self.running.try_lock() else { return };
        let me = std::thread::current().id();
        for handle in running.drain(..).filter(|handle| handle.thread().id() != me) {
            while !handle.is_finished() && Instant::now() < end {
                std::thread::sleep(deadlines::CLOSE_SLICE.limit);
            }
            if handle.is_finished() {
                let _ = handle.join();
            }
        }
    }
}

/// Signals are for the client's threads.
fn block_signals() {
    use nix::sys::signal::Signal::{SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV};
    let mut set = nix::sys::signal::SigSet::all();
    // A fault of this thread must still be seen as one.
    for fault in [SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT] {
        set.remove(fault);
    }
    let _ = set.thread_block();
}

fn readable(fd: BorrowedFd<'_>) -> PollFd<'_> {
    PollFd::new(fd, PollFlags::POLLIN)
}

/// Waits until one of these is readable; `false` when none is.
fn wait(list: &mut [PollFd<'_>], timeout: PollTimeout) -> Result<bool, Error> {
    match nix::poll::poll(list, timeout) {
        Ok(0) | Err(nix::errno::Errno::EINTR) => Ok(false),
        Ok(_) => Ok(true),
        Err(errno) => Err(Error::os("wait for the network")(errno)),
    }
}
