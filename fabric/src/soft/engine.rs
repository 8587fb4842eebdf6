//! The thread that moves data when nobody polls.
//!
//! While a device is polled the thread only naps and looks after timers: a poller must not lose packets and processor time
//! to it. When polls stop, or a queue is armed, it watches the device's streams.

use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use settings::deadlines::soft::{NAP, WATCH_BUSY, WATCH_IDLE};

use super::device::Dev;
use crate::Error;

#[derive(Debug)]
struct Shared {
    kick: EventFd,
    kicked: AtomicBool,
    stop: AtomicBool,
    /// The thread looks again within a nap, whatever happens.
    napping: AtomicBool,
    devices: Mutex<Vec<Weak<Dev>>>,
}

/// The engine's handle; the thread ends when it is dropped.
#[derive(Debug)]
pub(super) struct Engine {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Engine {
    pub(super) fn start() -> Result<Arc<Self>, Error> {
        let wrong = |operation: &str, source: std::io::Error| Error::Os {
            device: "soft".to_owned(),
            operation: operation.to_owned(),
            source,
        };
        let kick = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)
            .map_err(|errno| wrong("make the engine's descriptor", errno.into()))?;
        let shared = Arc::new(Shared {
            kick,
            kicked: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            napping: AtomicBool::new(false),
            devices: Mutex::new(Vec::new()),
        });
        let inside = Arc::clone(&shared);
        let thread = start_thread(move || run(&inside))
            .map_err(|source| wrong("start the engine's thread", source))?;
        Ok(Arc::new(Self { shared, thread: Mutex::new(Some(thread)) }))
    }

    pub(super) fn add(&self, dev: &Arc<Dev>) {
        let mut devices = self.shared.devices.lock().unwrap_or_else(PoisonError::into_inner);
        devices.retain(|one| one.strong_count() != 0);
        devices.push(Arc::downgrade(dev));
        drop(devices);
        self.kick();
    }

    /// Makes the thread look now.
    pub(super) fn kick(&self) {
        self.shared.kick();
    }

    /// Whether the thread looks within a nap anyway.
    pub(super) fn naps(&self) -> bool {
        self.shared.napping.load(Ordering::SeqCst)
    }
}

/// Starts a thread that takes no signals: they are for the program's own threads.
fn start_thread(run: impl FnOnce() + Send + 'static) -> std::io::Result<JoinHandle<()>> {
    use nix::sys::signal::{SigSet, SigmaskHow, pthread_sigmask};
    let mut before = SigSet::empty();
    pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::all()), Some(&mut before))?;
    let thread = std::thread::Builder::new().name("soft-engine".to_owned()).spawn(run);
    pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&before), None)?;
    thread
}

impl Shared {
    fn kick(&self) {
        if !self.kicked.swap(true, Ordering::SeqCst) {
            let _ = self.kick.write(1);
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.shared.kick();
        let thread = self.thread.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // The last holder of a device may be the engine itself.
            if thread.thread().id() != std::thread::current().id() {
                let _ = thread.join();
            }
        }
    }
}

fn run(shared: &Shared) {
    // Kept, because somebody who counts allocations of messages would count those of each nap too.
    let (mut devices, mut watched) = (Vec::<Arc<Dev>>::new(), Vec::new());
    while !shared.stop.load(Ordering::SeqCst) {
        let known = shared.devices.lock().unwrap_or_else(PoisonError::into_inner);
        devices.extend(known.iter().filter_map(Weak::upgrade));
        drop(known);
        let mut wait = WATCH_IDLE.limit;
        let mut napping = false;
        for (number, dev) in devices.iter().enumerate() {
            if dev.is_polled() {
                dev.tick();
                wait = wait.min(NAP.limit);
                napping = true;
            } else {
                wait = wait.min(dev.look());
                watched.push(number);
            }
        }
        shared.napping.store(napping, Ordering::SeqCst);
        if napping && devices.iter().any(|dev| dev.is_armed()) {
            // Somebody armed a queue after it was looked at.
            wait = Duration::ZERO;
        }
        sleep(shared, &devices, &watched, wait);
        shared.napping.store(false, Ordering::SeqCst);
        devices.clear();
        watched.clear();
    }
}

fn sleep(shared: &Shared, devices: &[Arc<Dev>], watched: &[usize], wait: Duration) {
    let wait = PollTimeout::try_from(wait.min(WATCH_IDLE.limit)).unwrap_or(PollTimeout::ZERO);
    let kick = PollFd::new(shared.kick.as_fd(), PollFlags::POLLIN);
    let polled = if watched.is_empty() {
        poll(&mut [kick], wait)
    } else {
        let watched = watched.iter().filter_map(|number| devices.get(*number));
        let fds = watched.map(|dev| PollFd::new(dev.ready_fd(), PollFlags::POLLIN));
        poll(&mut std::iter::once(kick).chain(fds).collect::<Vec<_>>(), wait)
    };
    if polled.is_err() {
        std::thread::sleep(NAP.limit);
    }
    if shared.kicked.load(Ordering::SeqCst) {
        // In this order: a kick in between is lost, but the loop goes round anyway.
        let _ = shared.kick.read();
        shared.kicked.store(false, Ordering::SeqCst);
    }
}

/// Longest wait of the engine for a device that has timers or requests out.
pub(super) const fn wait_for(busy: bool, soon: bool) -> Duration {
    match (soon, busy) {
        (true, _) => NAP.limit,
        (false, true) => WATCH_BUSY.limit,
        (false, false) => WATCH_IDLE.limit,
    }
}
