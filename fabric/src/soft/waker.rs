//! A thread that can be woken. It ends when nobody can wake it any more.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::signal::{SigSet, SigmaskHow, pthread_sigmask};

use crate::sync::{AtomicBool, Ordering};

/// What the thread and its wakers share.
#[derive(Debug)]
pub(super) struct Signals {
    event: EventFd,
    signalled: AtomicBool,
    stop: AtomicBool,
    /// The thread runs again within a nap, whatever happens.
    napping: AtomicBool,
}

impl Signals {
    fn wake(&self) {
        if !self.signalled.swap(true, Ordering::SeqCst) {
            let _ = self.event.write(1);
        }
    }

    /// The thread is awake. A wake-up between the two steps is lost, but the thread checks for work
    /// after this anyway.
    pub(super) fn clear(&self) {
        if self.signalled.load(Ordering::SeqCst) {
            let _ = self.event.read();
            self.signalled.store(false, Ordering::SeqCst);
        }
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    pub(super) fn set_napping(&self, napping: bool) {
        self.napping.store(napping, Ordering::SeqCst);
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
        let signals = Arc::new(Signals {
            event,
            signalled: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            napping: AtomicBool::new(false),
        });
        let inside = Arc::clone(&signals);
        let mut before = SigSet::empty();
        pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::all()), Some(&mut before))?;
        let name = "soft-progress".to_owned();
        let thread = std::thread::Builder::new().name(name).spawn(move || run(&inside));
        pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&before), None)?;
        Ok(Self { signals, thread: Mutex::new(Some(thread?)) })
    }

    /// Makes the thread run now.
    pub(super) fn wake(&self) {
        self.signals.wake();
    }

    /// Whether the thread runs within a nap anyway.
    pub(super) fn is_napping(&self) -> bool {
        self.signals.napping.load(Ordering::SeqCst)
    }
}

impl Drop for Waker {
    fn drop(&mut self) {
        self.signals.stop.store(true, Ordering::SeqCst);
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
