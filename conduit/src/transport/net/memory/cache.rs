//! Regions of the program's memory outside segments, kept registered between transfers.
//!
//! [`Cache::hold`] finds regions, or makes them, and a [`Held`] keeps them until a transfer is
//! complete. A region stays right because a thread hears (`watch.rs`) which memory was unmapped: it
//! raises `unsettled`, reads the event, forgets the regions and lowers `unsettled`. A region is
//! used only when, after it was found and under the same lock, no change is under way and
//! `unsettled` is 0. In any other case, and for whatever cannot be watched or registered, the
//! answer is `None`, and the transfer is copied.
//!
//! The thread must never wait for somebody who waits for an event to be read, and freeing memory
//! may be such a wait. So the thread frees nothing, and nobody frees anything under the lock.

use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use ::settings::deadlines::net as deadlines;
use fabric::Sge;
use nix::poll::{PollFd, PollFlags, PollTimeout};
use nix::sys::eventfd::{EfdFlags, EventFd};
use settings::log::RANK;
use settings::say;

use super::loan_parts::MOST;
use super::refusals::Refusals;
use super::regions::{Limits, Regions, Span};
use super::registrar::{Registered, Registrar, as_len};
use super::uses::Use;
use super::watch::Watch;
use crate::sys::block_signals;
use crate::sys::spin_lock::{SpinGuard, SpinLock};
use crate::trace::{self, Counter};

/// Parts of memory as a device sees them.
pub(crate) type Entries = heapless::Vec<Sge, MOST>;

/// Whose transfers regions are registered for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Users {
    Own,
    /// Other ranks, to which they are lent.
    Peers,
}

/// Memory that is to be held.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) write: bool,
    pub(super) users: Users,
    /// It stays mapped as long as the network is open: nothing is to be heard of it.
    pub(super) lasts: bool,
}

/// Where the parts of what is held are entered. Nothing may be allocated there.
pub(super) trait Parts {
    fn is_full(&self) -> bool;
    fn clear(&mut self);
    fn enter(&mut self, at: u64, len: u32, region: &Registered);
}

/// Parts for requests of a rail, so many at most.
struct OnRail<'a> {
    rail: usize,
    most: usize,
    entries: &'a mut Entries,
}

impl Parts for OnRail<'_> {
    #[inline]
    fn is_full(&self) -> bool {
        self.entries.is_full() || self.entries.len() >= self.most
    }

    fn clear(&mut self) {
        self.entries.clear();
    }

    #[inline]
    fn enter(&mut self, addr: u64, len: u32, region: &Registered) {
        let lkey = region.keys.get(self.rail).copied().unwrap_or_default();
        let _ = self.entries.push(Sge { addr, len, lkey });
    }
}

/// What happened, for `GASNET_FIREHOSE_VERBOSE`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) hits: u64,
    pub(crate) made: u64,
    pub(crate) evicted: u64,
    /// Left to a copy: refused, or memory was being unmapped.
    pub(crate) copied: u64,
    pub(crate) unmapped: u64,
}

impl Counts {
    pub(super) fn copy(&mut self) {
        self.copied += 1;
        trace::count(Counter::Copied, 0);
    }
}

/// Regions for one kind of users, and what happened to them.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) regions: Regions<Registered>,
    pub(super) counts: Counts,
}

impl Table {
    fn new(limits: Limits) -> Self {
        Self { regions: Regions::new(limits), counts: Counts::default() }
    }
}

#[derive(Debug)]
pub(super) struct State {
    own: Table,
    peers: Table,
    /// `None` when the network is closed.
    pub(super) watch: Option<Arc<Watch>>,
}

impl State {
    #[inline]
    pub(super) const fn of(&mut self, users: Users) -> &mut Table {
        match users {
            Users::Own => &mut self.own,
            Users::Peers => &mut self.peers,
        }
    }

    /// Whether pages of a region that users have given up are still to be heard of: the system
    /// watches a page or does not.
    pub(super) fn others_have(&self, users: Users, pages: Span) -> bool {
        match users {
            Users::Own => self.peers.regions.has_any(pages),
            Users::Peers => self.own.regions.has_any(pages),
        }
    }
}

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) registrar: Box<dyn Registrar>,
    pub(super) limits: Limits,
    /// Of what is registered for other ranks; its blocks are the same.
    lent: Limits,
    verbose: bool,
    /// From the first use on; `None`: everything is copied.
    state: OnceLock<Option<SpinLock<State>>>,
    /// Above 0 while events were read whose regions are not forgotten yet.
    unsettled: AtomicU32,
    /// Held by the one who registers; whether the reason of a refusal was said.
    pub(super) refusals: Mutex<(Refusals, bool)>,
    listener: Mutex<Option<(JoinHandle<()>, Arc<EventFd>)>>,
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Regions that a transfer uses. None of them is deregistered before this is dropped.
#[derive(Debug, Default)]
pub(crate) struct Held(pub(super) heapless::Vec<Use, MOST>);

/// One attempt to find all regions.
pub(super) enum Found {
    All,
    /// From this address on one is missing; those before are held meanwhile.
    Missing(u64),
    /// Memory is being unmapped.
    Unsettled,
}

impl Shared {
    pub(super) fn state(self: &Arc<Self>) -> Option<&SpinLock<State>> {
        self.state.get_or_init(|| self.start()).as_ref()
    }

    fn start(self: &Arc<Self>) -> Option<SpinLock<State>> {
        if self.limits.regions == 0 && self.lent.regions == 0 {
            return None;
        }
        match self.listen() {
            Ok(watch) => {
                let (own, peers) = (Table::new(self.limits), Table::new(self.lent));
                Some(SpinLock::new(State { own, peers, watch: Some(watch) }))
            }
            Err(error) => {
                self.say(&format!(
                    "transfers from and to memory outside segments are copied: the system does not tell when memory is unmapped \
                     (userfaultfd: {error})"
                ));
                None
            }
        }
    }

    fn listen(self: &Arc<Self>) -> std::io::Result<Arc<Watch>> {
        let watch = Arc::new(Watch::new()?);
        let stop = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        let stop = Arc::new(stop);
        let ready = Arc::new(std::sync::Barrier::new(2));
        let run = {
            let (shared, watch) = (Arc::clone(self), Arc::clone(&watch));
            let (stop, ready) = (Arc::clone(&stop), Arc::clone(&ready));
            move || {
                block_signals();
                // What starting allocates is allocated: nothing is watched before.
                ready.wait();
                drop(ready);
                shared.hear_until(watch, &stop);
            }
        };
        let thread = std::thread::Builder::new().name("gasnet-memory".to_owned()).spawn(run)?;
        ready.wait();
        *lock(&self.listener) = Some((thread, stop));
        Ok(watch)
    }

    /// Whether anything may be registered for other ranks.
    pub(super) const fn lends(&self) -> bool {
        self.lent.regions > 0
    }

    pub(super) fn say(&self, text: &str) {
        if self.verbose {
            say!(INFO, RANK, "{text}");
        } else {
            say!(DEBUG, RANK, "{text}");
        }
    }

    fn hear_until(&self, watch: Arc<Watch>, stop: &EventFd) {
        let mut stopped = false;
        while !stopped {
            let mut fds = [
                PollFd::new(watch.as_fd(), PollFlags::POLLIN),
                PollFd::new(stop.as_fd(), PollFlags::POLLIN),
            ];
            if nix::poll::poll(&mut fds, PollTimeout::NONE).is_ok() {
                stopped = fds[1].any() == Some(true);
                self.hear(&watch);
            }
        }
        if let Some(mut state) = self.state_within_bound() {
            state.watch = None;
        }
        // Who registers just now still uses it; what it unmaps has to be heard.
        while Arc::strong_count(&watch) > 1 {
            self.hear(&watch);
            std::thread::sleep(deadlines::CLOSE_SLICE.limit);
        }
    }

    /// The state, unless its lock is held for ever: by a thread that a signal interrupted.
    fn state_within_bound(&self) -> Option<SpinGuard<'_, State>> {
        let Some(Some(state)) = self.state.get() else { return None };
        let end = Instant::now() + deadlines::MEMORY_LOCK.limit;
        loop {
            match state.try_lock() {
                Some(state) => return Some(state),
                None if Instant::now() > end => return None,
                None => std::thread::yield_now(),
            }
        }
    }

    /// Reads events and forgets what they name. Allocates and frees nothing.
    fn hear(&self, watch: &Watch) {
        self.unsettled.fetch_add(1, Ordering::SeqCst);
        let mut spans: heapless::Vec<Span, 16> = heapless::Vec::new();
        watch.read(|span| spans.extend([span]));
        if !spans.is_empty() {
            // Without it the cache stays unsettled, and everything is copied from now on.
            let Some(mut state) = self.state_within_bound() else { return };
            for span in &spans {
                state.own.counts.unmapped += 1;
                state.peers.counts.unmapped += u64::from(state.peers.regions.has_any(*span));
                state.own.regions.forget(*span);
                state.peers.regions.forget(*span);
                trace::count(Counter::Unmapped, as_len(span.len()));
            }
        }
        self.unsettled.fetch_sub(1, Ordering::SeqCst);
    }

    /// Holds the regions of a transfer, and enters their parts.
    #[inline]
    pub(super) fn find(
        &self,
        state: &SpinLock<State>,
        wanted: Wanted,
        (held, parts): (&mut Held, &mut impl Parts),
    ) -> Found {
        let Wanted { from, to, write, users, lasts } = wanted;
        let mut at = from;
        let mut state = state.lock();
        while at < to && !held.0.is_full() && !parts.is_full() {
            let span = self.limits.first_block(at, to - at);
            let regions = &mut state.of(users).regions;
            let found = span.and_then(|span| Some((span, regions.hold(span, write)?)));
            let Some((span, (one, region))) = found else { return Found::Missing(at) };
            let end = span.to.min(to);
            let len = u32::try_from(end - at).unwrap_or(0);
            let _ = held.0.push(one);
            parts.enter(at, len, region);
            at = end;
        }
        // In this order: an event that is read between the two raises the number first.
        let is_quiet = || state.watch.as_ref().is_some_and(|watch| watch.is_quiet());
        if !lasts && (!is_quiet() || self.unsettled.load(Ordering::SeqCst) != 0) {
            state.of(users).counts.copy();
            return Found::Unsettled;
        }
        state.of(users).counts.hits += 1;
        drop(state);
        if trace::on(trace::Category::Conduit) {
            trace::count(Counter::Hit, as_len(at - from));
        }
        Found::All
    }
}

/// The cache of a rank.
#[derive(Debug)]
pub(crate) struct Cache {
    pub(super) shared: Arc<Shared>,
    /// All memory, to be read and to be written, where devices page it in on demand: then nothing
    /// else is registered.
    all: Option<[Registered; 2]>,
}

impl Cache {
    /// Nothing is done before the first use. `limits` are for this rank's transfers, and for those of
    /// others, with the same blocks. No regions at all: everything is copied.
    pub(crate) fn new(
        registrar: Box<dyn Registrar>,
        [limits, lent]: [Limits; 2],
        verbose: bool,
    ) -> Self {
        let shared = Arc::new(Shared {
            registrar,
            limits,
            lent,
            verbose,
            state: OnceLock::new(),
            unsettled: AtomicU32::new(0),
            refusals: Mutex::default(),
            listener: Mutex::new(None),
        });
        Self { shared, all: None }
    }

    /// Registers all memory at once, where devices page it in on demand.
    pub(crate) fn use_paging(&mut self) -> Result<(), fabric::Error> {
        let registrar = &self.shared.registrar;
        self.all = Some([registrar.register_all(false)?, registrar.register_all(true)?]);
        Ok(())
    }

    /// Registered parts that cover the first of `len` bytes from `address` on, at most `most`, as a
    /// device of rail `rail` sees them, are put into `entries`; `None`: copy. The program keeps the
    /// memory mapped until the transfer is complete.
    pub(crate) fn hold(
        &self,
        (rail, most): (usize, usize),
        (address, len): (usize, usize),
        write: bool,
        entries: &mut Entries,
    ) -> Option<Held> {
        entries.clear();
        if let Some(all) = &self.all {
            let lkey = *all.get(usize::from(write))?.keys.get(rail)?;
            let entry = Sge { addr: address as u64, len: u32::try_from(len).ok()?, lkey };
            entries.push(entry).ok()?;
            return Some(Held::default());
        }
        let shared = &self.shared;
        if shared.limits.regions == 0 {
            return None;
        }
        let state = shared.state()?;
        let from = address as u64;
        let to = from.checked_add(len as u64)?;
        let wanted = Wanted { from, to, write, users: Users::Own, lasts: false };
        let mut parts = OnRail { rail, most, entries };
        let mut held = Held::default();
        match shared.find(state, wanted, (&mut held, &mut parts)) {
            Found::All => Some(held),
            Found::Unsettled => None,
            Found::Missing(at) => shared.make_and_hold(state, wanted, (held, at), &mut parts),
        }
    }

    /// What happened until now.
    pub(crate) fn counts(&self) -> Counts {
        match self.shared.state.get() {
            Some(Some(state)) => state.lock().own.counts,
            _ => Counts::default(),
        }
    }

    /// The same of what was registered for other ranks.
    pub(crate) fn lent_counts(&self) -> Counts {
        match self.shared.state.get() {
            Some(Some(state)) => state.lock().peers.counts,
            _ => Counts::default(),
        }
    }

    fn say_counts(what: &str, counts: Counts) {
        let Counts { hits, made, evicted, copied, unmapped } = counts;
        say!(
            INFO,
            RANK,
            "{what}: {hits} times found, {made} times made, {evicted} times given up, {copied} times copied, {unmapped} times unmapped"
        );
    }

    /// From now on everything is copied, and unmapping memory is nobody's business. Once.
    pub(crate) fn close(&self) {
        let Some((thread, stop)) = lock(&self.shared.listener).take() else { return };
        if self.shared.verbose {
            Self::say_counts("registered memory outside segments", self.counts());
            if self.shared.lends() {
                Self::say_counts("memory registered for other ranks", self.lent_counts());
            }
        }
        let _ = stop.write(1);
        let end = Instant::now() + 2 * deadlines::MEMORY_LOCK.limit;
        while !thread.is_finished() && Instant::now() < end {
            std::thread::sleep(deadlines::CLOSE_SLICE.limit);
        }
        if thread.is_finished() {
            let _ = thread.join();
        }
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        self.close();
    }
}

#[cfg(test)]
#[path = "cache_tests.rs"]
mod tests;
