//! The one event loop of every process that supervises: descriptors, signals with their senders,
//! deadlines.
//!
//! A process plugs in as a [`Role`]: the supervisor of ranks on this host or of a tree of hosts,
//! the agent of one host of several, the launcher's own process, the doctor. The loop waits; the
//! role says for how long, and serves what is ready.

mod poller;
mod signals;

use std::io;
use std::time::Duration;

pub(crate) use poller::{Pipe, Poller, Ready, Token, Which};
pub(crate) use signals::{Sender, Signals};

/// Rounds with events that may pass before a decision that is due is made: what has been sent is
/// heard first.
const TICK_PATIENCE: u32 = 64;

/// The system refused something that is needed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {operation}: {source}")]
pub struct OsError {
    operation: &'static str,
    source: io::Error,
}

pub(crate) fn cannot<E: Into<io::Error>>(operation: &'static str) -> impl Fn(E) -> OsError {
    move |error| OsError { operation, source: error.into() }
}

pub(crate) fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// What one process does in the loop. Times are milliseconds on its clock.
pub(crate) trait Role {
    fn sources(&self) -> (&Poller, &Signals);
    fn now(&self) -> u64 {
        self.sources().0.now()
    }
    fn is_over(&self) -> bool;
    /// Does what depends on several events, or on time. Whether there is more of it to do at once.
    fn step(&mut self) -> bool;
    /// When [`Role::step`] is due although nothing is ready.
    fn deadline(&self) -> Option<u64>;
    fn serve(&mut self, ready: Ready);
    /// All that was ready has been served.
    fn settle(&mut self) {}
    /// When its exit machine must decide, if it has one.
    fn decision_due(&self) -> Option<u64> {
        None
    }
    fn tick(&mut self) {}
}

pub(crate) fn run(role: &mut impl Role) -> io::Result<()> {
    let (mut ready, mut busy) = (Vec::new(), 0);
    while !role.is_over() {
        let more = role.step();
        // Nothing would wake us any more.
        if role.is_over() {
            break;
        }
        let left = role.deadline().map(|at| at.saturating_sub(role.now()));
        let (poller, signals) = role.sources();
        signals.during(|| poller.wait(if more { Some(0) } else { left }, &mut ready))?;
        for event in &ready {
            role.serve(*event);
        }
        role.settle();
        busy = if ready.is_empty() { 0 } else { busy + 1 };
        let due = role.decision_due().is_some_and(|at| role.now() >= at);
        if due && (ready.is_empty() || busy > TICK_PATIENCE) {
            busy = 0;
            role.tick();
        }
    }
    Ok(())
}
