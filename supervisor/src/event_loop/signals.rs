//! Signals of this process as events of its loop, each with the process that sent it.
//!
//! `signal-hook` keeps what its handlers were told and wakes the loop through a socket. The
//! handlers run only while the loop waits: at any other time the signals are blocked, so nothing is
//! interrupted, and a process that is being started with our memory never runs one of them.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use nix::sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask};
use serde::{Deserialize, Serialize};
use signal_hook::flag::register_conditional_default;
use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::origin::{Origin, WithOrigin};

use super::{Poller, Token};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Sender {
    pid: i32,
    /// Empty when it has gone.
    name: String,
}

impl Sender {
    pub(crate) fn new(pid: i32) -> Self {
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        Self { pid, name: name.trim_end().chars().filter(|c| !c.is_control()).collect() }
    }
}

/// As in `pid 4711 (slurmstepd)`.
impl std::fmt::Display for Sender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "pid {}", self.pid)?;
        if self.name.is_empty() { Ok(()) } else { write!(f, " ({})", self.name) }
    }
}

/// Signals that have been taken once in this process. Handlers stay for ever, so while nobody takes
/// a signal, it must do what it does by default.
struct Defaults {
    signals: Mutex<Vec<Signal>>,
    on: Arc<AtomicBool>,
}

static DEFAULTS: LazyLock<Defaults> = LazyLock::new(|| Defaults {
    signals: Mutex::new(Vec::new()),
    on: Arc::new(AtomicBool::new(false)),
});

/// Signals that are taken, until dropped. At most one at a time in a process.
#[derive(Debug)]
pub(crate) struct Signals {
    delivery: SignalDelivery<UnixStream, WithOrigin>,
    taken: SigSet,
    /// The signal mask without them.
    pub(crate) before: SigSet,
    given_up: bool,
}

impl Signals {
    /// Takes these signals, and lets their socket wake `poller`.
    pub(crate) fn take(poller: &Poller, signals: &[Signal]) -> io::Result<Self> {
        let taken: SigSet = signals.iter().copied().collect();
        let mut before = SigSet::empty();
        sigprocmask(SigmaskHow::SIG_BLOCK, Some(&taken), Some(&mut before))?;
        let delivery = deliver(signals).inspect_err(|_| {
            let _ = sigprocmask(SigmaskHow::SIG_SETMASK, Some(&before), None);
        })?;
        let taken = Self { delivery, taken, before, given_up: false };
        poller.add_read(taken.delivery.get_read().as_fd(), Token::Signals)?;
        Ok(taken)
    }

    /// Lets signals come in while `wait` waits.
    pub(super) fn during<T>(&self, wait: impl FnOnce() -> T) -> T {
        let _ = sigprocmask(SigmaskHow::SIG_UNBLOCK, Some(&self.taken), None);
        let done = wait();
        let _ = sigprocmask(SigmaskHow::SIG_BLOCK, Some(&self.taken), None);
        done
    }

    /// What has come, by number of the signal.
    pub(crate) fn pending(&mut self) -> Vec<(i32, Option<Sender>)> {
        let sender = |origin: &Origin| {
            let pid = origin.process.filter(|_| origin.signal != libc::SIGCHLD)?.pid;
            (pid > 0).then(|| Sender::new(pid))
        };
        self.delivery.pending().map(|origin| (origin.signal, sender(&origin))).collect()
    }

    /// In a fork: leaves them to the process that took them; they stay blocked here.
    pub(crate) fn give_up(mut self) {
        self.given_up = true;
    }
}

fn deliver(signals: &[Signal]) -> io::Result<SignalDelivery<UnixStream, WithOrigin>> {
    let (read, write) = UnixStream::pair()?;
    let numbers = signals.iter().map(|signal| *signal as i32);
    let delivery = SignalDelivery::with_pipe(read, write, WithOrigin::default(), numbers)?;
    let mut known = DEFAULTS.signals.lock().unwrap_or_else(PoisonError::into_inner);
    for signal in signals {
        if !known.contains(signal) {
            register_conditional_default(*signal as i32, Arc::clone(&DEFAULTS.on))?;
            known.push(*signal);
        }
    }
    DEFAULTS.on.store(false, Ordering::Relaxed);
    Ok(delivery)
}

impl Drop for Signals {
    fn drop(&mut self) {
        if !self.given_up {
            DEFAULTS.on.store(true, Ordering::Relaxed);
            let _ = sigprocmask(SigmaskHow::SIG_SETMASK, Some(&self.before), None);
        }
    }
}
