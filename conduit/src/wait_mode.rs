//! How a rank waits, and what it has measured about its processor.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::processor::{LATE, PREEMPTED, Processor, SHARED, takes_turns};
use crate::spin_trial::SpinTrial;
use crate::sys;

/// Fruitless polls before the first yield, where there is a processor for every rank. About 50 µs.
const SPINS: u32 = 4000;

/// The same where others want the processor: the answer of a peer that runs comes meanwhile, about
/// 30 µs.
const SPINS_WANTED: u32 = SPINS / 8;
/// [`SPINS`] where each poll takes system calls. Some 100 µs.
const CALLS: u32 = SPINS / 16;
/// [`SPINS_WANTED`] where each poll takes system calls.
const CALLS_WANTED: u32 = SPINS / 64;
/// A wait that sleeps after one fruitless poll.
pub(crate) const AT_ONCE: u32 = 1;
/// What a thread has run is asked again after so long.
const SEEN_FOR: Duration = Duration::from_micros(250);

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
    /// Yields since the last that came back late, where ranks take turns by yields.
    quick: AtomicU32,
    /// Times that it gave the processor away.
    given: AtomicU32,
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
    trial: SpinTrial,
    /// When the last sleep ended.
    woke: Option<Instant>,
    /// What the thread had run at the end of a sleep, not long before.
    seen: Option<sys::Ran>,
}

impl Machine {
    const fn new() -> Self {
        Self { processor: Processor::new(), trial: SpinTrial::new(), woke: None, seen: None }
    }

    /// How long the system has kept this thread from running since its last sleep, where that was
    /// for long.
    fn kept(&mut self, now: Instant) -> Option<Duration> {
        let awake = now.duration_since(self.woke.take()?);
        let kept = || sys::Ran::now()?.kept_since(self.seen.as_ref()?, awake);
        (awake >= LATE).then(kept).flatten()
    }

    /// A sleep has ended.
    fn woke(&mut self, now: Instant) {
        self.woke = Some(now);
        if self.seen.as_ref().is_none_or(|seen| now.duration_since(seen.at) >= SEEN_FOR) {
            self.seen = sys::Ran::now();
        }
    }
}

impl WaitState {
    pub(crate) fn new() -> Self {
        let machine = Mutex::new(Machine::new());
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
            quick: AtomicU32::new(0),
            given: AtomicU32::new(0),
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
        self.follow(&machine);
    }

    fn follow(&self, Machine { processor, trial, .. }: &Machine) {
        let may_spin = !self.oversubscribed() && self.mode() != WaitMode::Block;
        let spins = match (processor.is_wanted(), self.polls_call.load(Ordering::Relaxed)) {
            _ if !may_spin => 0,
            (true, true) if trial.spins() => CALLS_WANTED,
            (true, true) => AT_ONCE,
            (true, false) => SPINS_WANTED,
            // A poll that calls the system takes as long as dozens of others: who shares the
            // processor with a peer soon does not spin at all.
            (false, true) => (CALLS >> (2 * processor.step())).max(AT_ONCE),
            (false, false) => SPINS >> processor.step(),
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
        let (kept, spins) = (begin.elapsed(), self.spins());
        let most = if self.polls_call.load(Ordering::Relaxed) { CALLS } else { SPINS };
        // Where ranks take turns by yields, somebody runs in each.
        let tells = if spins == 0 {
            let (tells, quick) = takes_turns(self.quick.load(Ordering::Relaxed), kept);
            self.quick.store(quick, Ordering::Relaxed);
            tells
        } else {
            kept >= SHARED || spins < most
        };
        if tells {
            self.learn(|processor, now| processor.kept(now, kept));
        }
    }

    /// Counts; true each `every`th time.
    pub(crate) fn counts_to(&self, every: u32) -> bool {
        let given = self.given.load(Ordering::Relaxed).wrapping_add(1);
        self.given.store(given, Ordering::Relaxed);
        given.is_multiple_of(every)
    }

    /// This rank has polled a few times, for so long.
    pub(crate) fn spun(&self, time: Duration) {
        if time >= PREEMPTED {
            self.learn(Processor::late);
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
    fn learn(&self, how: impl FnOnce(&mut Processor, Duration)) {
        if let Some(mut machine) = self.machine() {
            how(&mut machine.processor, self.measured.begin.elapsed());
            self.follow(&machine);
        }
    }

    /// Before a sleep: whether the system has kept this thread from running since its last one.
    /// Returns when that is, where others want the processor.
    #[cold]
    pub(crate) fn before_sleep(&self) -> Option<Instant> {
        #[cfg(test)]
        self.measured.sleeps.fetch_add(1, Ordering::Relaxed);
        if !self.wanted() {
            return None;
        }
        let mut machine = self.machine()?;
        let now = Instant::now();
        let kept = machine.kept(now).unwrap_or_default();
        machine.processor.kept(now.duration_since(self.measured.begin), kept);
        self.follow(&machine);
        Some(now)
    }

    /// After a sleep. `began`: what [`WaitState::before_sleep`] returned, if a message that came ends
    /// such a sleep.
    #[cold]
    pub(crate) fn after_sleep(&self, began: Option<Instant>) {
        if self.wanted()
            && let Some(mut machine) = self.machine()
        {
            let now = Instant::now();
            machine.woke(now);
            if let Some(began) = began {
                let ended = now.duration_since(self.measured.begin);
                machine.trial.slept(ended, now.duration_since(began));
                self.follow(&machine);
            }
        }
    }

    /// Whether others wanted this processor at any time, and sleeps so far.
    #[cfg(test)]
    pub(crate) fn seen(&self) -> (bool, u64) {
        let sleeps = self.measured.sleeps.load(Ordering::Relaxed);
        (self.measured.was_wanted.load(Ordering::Relaxed), sleeps)
    }
}
