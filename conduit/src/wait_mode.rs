//! How a rank waits, and what it has measured about its processor.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::processor::{LATE, PREEMPTED, Processor, SHARED};
use crate::sys;

/// Fruitless polls before the first yield, where there is a processor for every rank. About 50 µs.
const SPINS: u32 = 4000;

/// The same where others want the processor: the answer of a peer that runs comes meanwhile, about
/// 30 µs.
const SPINS_WANTED: u32 = SPINS / 8;
/// As above, where each poll takes system calls.
const CALLS_WANTED: u32 = SPINS / 64;

/// How a blocking call waits when there is nothing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitMode {
    /// Poll without giving the processor away (where there is one for every rank of the host).
    Spin,
    /// Give the processor away after each poll that found nothing; sleep soon.
    Block,
    /// Poll for a while, then yield, then sleep. The default.
    SpinBlock,
}

/// Whether this rank may keep its processor while it waits.
#[derive(Debug)]
pub(crate) struct WaitState {
    /// Fruitless polls of a wait before anything else; follows from all the others.
    spins: AtomicU32,
    oversubscribed: AtomicBool,
    /// A poll takes system calls.
    polls_call: AtomicBool,
    /// Others want this processor ([`Processor`]).
    wanted: AtomicBool,
    mode: AtomicU8,
    /// Looks for ends of own requests that may pass before the next whole poll.
    pub(crate) looks: AtomicU32,
    measured: Box<Measured>,
}

/// Apart from what polls read.
#[derive(Debug)]
struct Measured {
    begin: Instant,
    machine: Mutex<Machine>,
    #[cfg(test)]
    was_wanted: AtomicBool,
    #[cfg(test)]
    sleeps: std::sync::atomic::AtomicU64,
}

#[derive(Debug)]
struct Machine {
    processor: Processor,
    /// When a thread was seen last, at the end of a sleep.
    seen: Option<sys::Ran>,
}

impl WaitState {
    pub(crate) fn new() -> Self {
        let machine = Mutex::new(Machine { processor: Processor::new(), seen: None });
        let measured = Measured {
            begin: Instant::now(),
            machine,
            #[cfg(test)]
            was_wanted: AtomicBool::new(false),
            #[cfg(test)]
            sleeps: std::sync::atomic::AtomicU64::new(0),
        };
        Self {
            spins: AtomicU32::new(0),
            oversubscribed: AtomicBool::new(true),
            polls_call: AtomicBool::new(false),
            wanted: AtomicBool::new(false),
            mode: AtomicU8::new(WaitMode::SpinBlock as u8),
            looks: AtomicU32::new(0),
            measured: Box::new(measured),
        }
    }

    /// `oversubscribed`: there are more ranks than processors; `polls_call`: a poll takes system
    /// calls.
    pub(crate) fn set_place(&self, oversubscribed: bool, polls_call: bool) {
        self.oversubscribed.store(oversubscribed, Ordering::Relaxed);
        self.polls_call.store(polls_call, Ordering::Relaxed);
        self.set_spins();
    }

    #[inline]
    pub(crate) fn oversubscribed(&self) -> bool {
        self.oversubscribed.load(Ordering::Relaxed)
    }

    /// Whether others want this processor: it is given to them by a sleep, not by yields.
    #[inline]
    pub(crate) fn wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn mode(&self) -> WaitMode {
        match self.mode.load(Ordering::Relaxed) {
            0 => WaitMode::Spin,
            1 => WaitMode::Block,
            _ => WaitMode::SpinBlock,
        }
    }

    pub(crate) fn set_mode(&self, mode: WaitMode) {
        self.mode.store(mode as u8, Ordering::Relaxed);
        self.set_spins();
    }

    /// Whether a wait may keep the processor for a while.
    #[inline]
    pub(crate) fn may_spin(&self) -> bool {
        self.spins() != 0
    }

    /// Fruitless polls of a wait before anything else.
    #[inline]
    pub(crate) fn spins(&self) -> u32 {
        self.spins.load(Ordering::Relaxed)
    }

    fn set_spins(&self) {
        // Not only tried: what is set here holds whatever another thread measures now.
        let machine = self.measured.machine.lock().unwrap_or_else(PoisonError::into_inner);
        self.follow(&machine.processor);
    }

    fn follow(&self, processor: &Processor) {
        let may_spin = !self.oversubscribed() && self.mode() != WaitMode::Block;
        let spins = match may_spin {
            true if processor.is_wanted() && self.polls_call.load(Ordering::Relaxed) => {
                CALLS_WANTED
            }
            true if processor.is_wanted() => SPINS_WANTED,
            true => SPINS >> processor.step(),
            false => 0,
        };
        self.spins.store(spins, Ordering::Relaxed);
        self.wanted.store(processor.is_wanted(), Ordering::Relaxed);
        #[cfg(test)]
        self.measured.was_wanted.fetch_or(processor.is_wanted(), Ordering::Relaxed);
    }

    /// `None`: another thread has it, or the code below this signal handler.
    fn machine(&self) -> Option<MutexGuard<'_, Machine>> {
        self.measured.machine.try_lock().ok()
    }

    /// Gives the processor away, and sees for how long.
    #[inline]
    pub(crate) fn give_way(&self) {
        let begin = Instant::now();
        sys::give_way();
        let kept = begin.elapsed();
        let spins = self.spins();
        // Where ranks take turns by yields, somebody runs in each.
        let tells = if spins == 0 { kept >= LATE } else { kept >= SHARED || spins < SPINS };
        if tells {
            self.kept(kept);
        }
    }

    /// This rank has polled a few times, for so long.
    pub(crate) fn spun(&self, time: Duration) {
        if time >= PREEMPTED
            && let Some(mut machine) = self.machine()
        {
            machine.processor.late(self.measured.begin.elapsed());
            self.follow(&machine.processor);
        }
    }

    /// Lets somebody run who may need this processor to make room for us. Where the processor is
    /// wanted that takes too long; the wait around this sleeps.
    pub(crate) fn let_others_run(&self) {
        if !self.may_spin() && !self.wanted() {
            self.give_way();
        }
    }

    #[cold]
    fn kept(&self, kept: Duration) {
        if let Some(mut machine) = self.machine() {
            machine.processor.kept(self.measured.begin.elapsed(), kept);
            self.follow(&machine.processor);
        }
    }

    /// Before a sleep: whether the system has kept this thread from running since its last one.
    #[cold]
    pub(crate) fn before_sleep(&self) {
        #[cfg(test)]
        self.measured.sleeps.fetch_add(1, Ordering::Relaxed);
        if !self.wanted() {
            return;
        }
        let Some(mut machine) = self.machine() else { return };
        let now = self.measured.begin.elapsed();
        let kept = machine.seen.take().and_then(|seen| sys::Ran::now()?.kept_since(&seen));
        machine.processor.kept(now, kept.unwrap_or_default());
        self.follow(&machine.processor);
    }

    #[cold]
    pub(crate) fn after_sleep(&self) {
        if self.wanted()
            && let Some(mut machine) = self.machine()
        {
            machine.seen = sys::Ran::now();
        }
    }

    /// Whether others wanted this processor at any time, and sleeps so far.
    #[cfg(test)]
    pub(crate) fn seen(&self) -> (bool, u64) {
        let sleeps = self.measured.sleeps.load(Ordering::Relaxed);
        (self.measured.was_wanted.load(Ordering::Relaxed), sleeps)
    }
}
