//! A thread that can be woken. It ends when nobody can wake it any more.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::signal::{SigSet, SigmaskHow, pthread_sigmask};

use crate::sync::Flag;

/// What the thread and its wakers share.
#[derive(Debug)]
pub(super) struct Signals {
    event: EventFd,
    signalled: Flag,
    pub(super) stop: Flag,
    /// The thread runs again within a nap, whatever happens.
    pub(super) napping: Flag,
}

impl Signals {
    fn wake(&self) {
        if !self.signalled.set() {
            let _ = self.event.write(1);
        }
    }

    /// The thread is awake. A wake-up between the two steps is lost, but the thread checks for work
    /// after this anyway.
    pub(super) fn clear(&self) {
        if self.signalled.is_set() {
            let _ = self.event.read();
            self.signalled.store(false);
        }
    }

    /// Readable after [`Waker::wake`].
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

/// Wakes the thread. The thread is stopped when this is dropped.
#[derive(Debug)]
pub(super) struct Waker {
    signals: Arc<Signals>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Waker {
    /// Starts a thread that takes no signals: they are for the program's own threads.
    pub(super) fn start(run: impl FnOnce(&Signals) + Send + 'static) -> io::Result<Self> {
        let event = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        let [signalled, stop, napping] = <[Flag; 3]>::default();
        let signals = Arc::new(Signals { event, signalled, stop, napping });
        let inside = Arc::clone(&signals);
        let mut before = SigSet::empty();
        pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::all()), Some(&mut before))?;
        let name = "soft-progress".to_owned();
        let thread = std::thread::Builder::new().name(name).spawn(move || run(&inside));
        pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&before), None)?;
        Ok(Self { signals, thread: Mutex::new(Some(thread?)) })
    }

    pub(super) fn wake(&self) {
        self.signals.wake();
    }

    /// Whether the thread runs within a nap anyway.
    pub(super) fn is_napping(&self) -> bool {
        self.signals.napping.is_set()
    }
}

impl Drop for Waker {
    fn drop(&mut self) {
        self.signals.stop.store(true);
        self.signals.wake();
        let thread = self.thread.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // The last holder may be the thread itself.
            if thread.thread().id() != std::thread::current().id() {
                let _ = thread.join();
            }
        }
    }
}
