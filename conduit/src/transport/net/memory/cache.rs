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

use std::fmt;
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use ::settings::deadlines::net as deadlines;
use fabric::{Device, Region, Sge};
use nix::poll::{PollFd, PollFlags, PollTimeout};
use nix::sys::eventfd::{EfdFlags, EventFd};
use settings::log::RANK;
use settings::say;

use super::pool::{register_all_for_transfers, register_for_transfers};
use super::regions::{Limits, Plan, Regions, Span, Use};
use super::watch::Watch;
use crate::sys::block_signals;
use crate::trace::{self, Cause, Counter};

/// Most regions of one request.
pub(crate) const MOST: usize = 9;
/// Idle regions that give way when a device refuses one more.
const GIVE_WAY: usize = 8;
/// Attempts to register memory of a block that was refused are left out, so many.
const LEFT_OUT: u32 = 64;

/// Parts of memory as a device sees them.
pub(crate) type Entries = heapless::Vec<Sge, MOST>;

/// A region with the devices of all rails.
#[derive(Debug)]
pub(crate) struct Registered {
    /// By rail.
    keys: Box<[u32]>,
    _regions: Vec<Arc<dyn Region>>,
    /// For the statistics; 0 for all memory.
    bytes: u64,
}

impl Registered {
    fn new(keys: Box<[u32]>, regions: Vec<Arc<dyn Region>>, bytes: u64) -> Self {
        if bytes > 0 {
            trace::count(Counter::Pin, as_len(bytes));
        }
        Self { keys, _regions: regions, bytes }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        if self.bytes > 0 {
            trace::count(Counter::Unpin, as_len(self.bytes));
        }
    }
}

fn as_len(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// Who registers: the devices, or a test.
pub(crate) trait Registrar: fmt::Debug + Send + Sync {
    /// All memory of the process, to be read or also written, if every device can.
    fn register_all(&self, write: bool) -> Result<Registered, fabric::Error>;

    /// Registers pages, to be read or also written.
    fn register(&self, span: Span, write: bool) -> Result<Registered, fabric::Error>;
}

/// Devices by rail.
#[derive(Debug)]
pub(crate) struct Devices(pub(crate) Vec<Arc<dyn Device>>);

impl Devices {
    fn on_each(
        &self,
        bytes: u64,
        register: impl Fn(&dyn Device) -> Result<Arc<dyn Region>, fabric::Error>,
    ) -> Result<Registered, fabric::Error> {
        let mut regions: Vec<Arc<dyn Region>> = Vec::with_capacity(self.0.len());
        for (rail, device) in self.0.iter().enumerate() {
            // Ports of one device share its regions.
            let same = self.0.iter().take(rail).position(|other| Arc::ptr_eq(other, device));
            let region = match same.and_then(|rail| regions.get(rail)) {
                Some(region) => Arc::clone(region),
                None => register(&**device)?,
            };
            regions.push(region);
        }
        let keys = regions.iter().map(|region| region.lkey()).collect();
        Ok(Registered::new(keys, regions, bytes))
    }
}

impl Registrar for Devices {
    fn register(&self, span: Span, write: bool) -> Result<Registered, fabric::Error> {
        self.on_each(span.len(), |device| register_for_transfers(device, span, write))
    }

    fn register_all(&self, write: bool) -> Result<Registered, fabric::Error> {
        self.on_each(0, |device| register_all_for_transfers(device, write))
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
    fn copy(&mut self) {
        self.copied += 1;
        trace::count(Counter::Copied, 0);
    }
}

#[derive(Debug)]
struct State {
    regions: Regions<Registered>,
    /// `None` when the network is closed.
    watch: Option<Arc<Watch>>,
    counts: Counts,
}

/// Blocks that were refused a short time ago, those for writing one higher.
#[derive(Debug, Default)]
struct Refusals {
    blocks: [(u64, u32); 8],
    next: usize,
    /// The reason was said.
    said: bool,
}

impl Refusals {
    fn leaves_out(&mut self, block: u64) -> bool {
        let found = self.blocks.iter_mut().find(|(one, left)| *one == block && *left > 0);
        found.map(|(_, left)| *left -= 1).is_some()
    }

    fn add(&mut self, block: u64) {
        if let Some(place) = self.blocks.get_mut(self.next) {
            *place = (block, LEFT_OUT);
        }
        self.next = (self.next + 1) % self.blocks.len();
    }
}

#[derive(Debug)]
struct Shared {
    registrar: Box<dyn Registrar>,
    limits: Limits,
    verbose: bool,
    /// From the first use on; `None`: everything is copied.
    state: OnceLock<Option<Mutex<State>>>,
    /// Above 0 while events were read whose regions are not forgotten yet.
    unsettled: AtomicU32,
    /// Held by the one who registers.
    refusals: Mutex<Refusals>,
    listener: Mutex<Option<(JoinHandle<()>, Arc<EventFd>)>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Regions that a transfer uses. None of them is deregistered before this is dropped.
#[derive(Debug, Default)]
pub(crate) struct Held(heapless::Vec<Use, MOST>);

/// One attempt to find all regions.
enum Found {
    All,
    /// From this address on one is missing; those before are held meanwhile.
    Missing(u64),
    /// Memory is being unmapped.
    Unsettled,
}

impl Shared {
    fn state(self: &Arc<Self>) -> Option<&Mutex<State>> {
        self.state.get_or_init(|| self.start()).as_ref()
    }

    fn start(self: &Arc<Self>) -> Option<Mutex<State>> {
        if self.limits.regions == 0 {
            return None;
        }
        match self.listen() {
            Ok(watch) => {
                let (regions, counts) = (Regions::new(self.limits), Counts::default());
                Some(Mutex::new(State { regions, watch: Some(watch), counts }))
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

    fn say(&self, text: &str) {
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
    fn state_within_bound(&self) -> Option<MutexGuard<'_, State>> {
        let Some(Some(state)) = self.state.get() else { return None };
        let end = Instant::now() + deadlines::MEMORY_LOCK.limit;
        loop {
            match state.try_lock() {
                Ok(state) => return Some(state),
                Err(std::sync::TryLockError::Poisoned(poisoned)) => {
                    return Some(poisoned.into_inner());
                }
                Err(_) if Instant::now() > end => return None,
                Err(_) => std::thread::yield_now(),
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
                state.regions.forget(*span);
                state.counts.unmapped += 1;
                trace::count(Counter::Unmapped, as_len(span.len()));
            }
        }
        self.unsettled.fetch_sub(1, Ordering::SeqCst);
    }

    /// Holds the regions of a transfer, and enters their parts.
    #[inline]
    fn find(
        &self,
        state: &Mutex<State>,
        (rail, most): (usize, usize),
        (from, to, write): (u64, u64, bool),
        (held, entries): (&mut Held, &mut Entries),
    ) -> Found {
        let mut at = from;
        let mut state = lock(state);
        while at < to && !entries.is_full() && entries.len() < most {
            let span = self.limits.first_block(at, to - at);
            let found = span.and_then(|span| Some((span, state.regions.hold(span, write)?)));
            let Some((span, (one, region))) = found else { return Found::Missing(at) };
            let end = span.to.min(to);
            let len = u32::try_from(end - at).unwrap_or(0);
            let lkey = region.keys.get(rail).copied().unwrap_or_default();
            let _ = held.0.push(one);
            let _ = entries.push(Sge { addr: at, len, lkey });
            at = end;
        }
        // In this order: an event that is read between the two raises the number first.
        let is_quiet = state.watch.as_ref().is_some_and(|watch| watch.is_quiet());
        if !is_quiet || self.unsettled.load(Ordering::SeqCst) != 0 {
            state.counts.copy();
            return Found::Unsettled;
        }
        state.counts.hits += 1;
        drop(state);
        if trace::on(trace::Category::Conduit) {
            trace::count(Counter::Hit, entries.iter().map(|part| part.len as usize).sum());
        }
        Found::All
    }

    /// Registers pages of one block that no region covers. `false`: they have to be copied.
    fn make(&self, state: &Mutex<State>, span: Span, write: bool) -> bool {
        let _time = trace::timed(Cause::Move);
        let mut refusals = lock(&self.refusals);
        let watch = {
            let mut state = lock(state);
            if state.regions.hold(span, write).is_some() {
                // Another thread was faster.
                return true;
            }
            state.watch.clone()
        };
        // The lowest bit is free.
        let block = span.from & !(self.limits.block - 1) | u64::from(write);
        let Some(watch) = watch.filter(|_| !refusals.leaves_out(block)) else {
            lock(state).counts.copy();
            return false;
        };
        let Some((union, union_write)) = self.room(state, &watch, span, write) else {
            lock(state).counts.copy();
            return false;
        };
        let mut made = self.attempt(state, &watch, union, union_write);
        if made.is_err() && (union, union_write) != (span, write) {
            // Memory around it may be read-only, or gone.
            lock(state).regions.begin(span);
            made = self.attempt(state, &watch, span, write);
        }
        if made.is_err() && self.give_way(state, &watch) {
            lock(state).regions.begin(span);
            made = self.attempt(state, &watch, span, write);
        }
        if let Err(reason) = &made {
            refusals.add(block);
            if !std::mem::replace(&mut refusals.said, true) {
                self.say(&format!(
                    "a transfer from or to memory outside segments is copied: {reason}"
                ));
            }
        }
        let made = made.unwrap_or(false);
        let mut state = lock(state);
        state.counts.made += u64::from(made);
        if !made {
            state.counts.copy();
        }
        made
    }

    /// Makes room; what to register then.
    fn room(
        &self,
        state: &Mutex<State>,
        watch: &Watch,
        span: Span,
        write: bool,
    ) -> Option<(Span, bool)> {
        loop {
            let plan = lock(state).regions.plan(span, write);
            match plan {
                Plan::Register(union, write) => return Some((union, write)),
                Plan::Evict(pages, region) => self.end(state, watch, pages, region),
                Plan::Full => return None,
            }
        }
    }

    fn end(&self, state: &Mutex<State>, watch: &Watch, pages: Span, region: Registered) {
        drop(region);
        if pages.len() > 0 {
            watch.remove(pages);
            lock(state).counts.evicted += 1;
            trace::count(Counter::Evicted, as_len(pages.len()));
        }
    }

    /// Deregisters some that nobody uses; whether there were any.
    fn give_way(&self, state: &Mutex<State>, watch: &Watch) -> bool {
        for count in 0..GIVE_WAY {
            let victim = lock(state).regions.evict();
            match victim {
                Some((pages, region)) => self.end(state, watch, pages, region),
                None => return count > 0,
            }
        }
        true
    }

    /// Watches and registers pages that have begun. `Ok(false)`: they were unmapped meanwhile.
    fn attempt(
        &self,
        state: &Mutex<State>,
        watch: &Watch,
        span: Span,
        write: bool,
    ) -> Result<bool, String> {
        watch.add(span).map_err(|error| {
            format!("it cannot be watched for being unmapped, as a mapped file cannot ({error})")
        })?;
        let region = self.registrar.register(span, write).map_err(|error| error.to_string())?;
        if !watch.is_private(span, self.limits.page) {
            return Err("others share its pages and may exchange them".to_owned());
        }
        let lost = lock(state).regions.insert(span, write, region);
        Ok(lost.is_ok())
    }
}

/// The cache of a rank.
#[derive(Debug)]
pub(crate) struct Cache {
    shared: Arc<Shared>,
    /// All memory, to be read and to be written, where devices page it in on demand: then nothing
    /// else is registered.
    all: Option<[Registered; 2]>,
}

impl Cache {
    /// Nothing is done before the first use. No regions at all: everything is copied.
    pub(crate) fn new(registrar: Box<dyn Registrar>, limits: Limits, verbose: bool) -> Self {
        let shared = Arc::new(Shared {
            registrar,
            limits,
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
        let state = shared.state()?;
        let from = address as u64;
        let to = from.checked_add(len as u64)?;
        let mut held = Held::default();
        match shared.find(state, (rail, most), (from, to, write), (&mut held, entries)) {
            Found::All => Some(held),
            Found::Unsettled => None,
            Found::Missing(at) => {
                self.make_and_hold(state, (rail, most), (from, to, write), (held, at), entries)
            }
        }
    }

    /// As [`Cache::hold`], when a region is missing from an address on; `held` are those before it.
    #[cold]
    fn make_and_hold(
        &self,
        state: &Mutex<State>,
        (rail, most): (usize, usize),
        (from, mut to, write): (u64, u64, bool),
        (mut held, mut at): (Held, u64),
        entries: &mut Entries,
    ) -> Option<Held> {
        let shared = &self.shared;
        let mut attempts = 2 * MOST;
        loop {
            let is_made = attempts > 0
                && shared
                    .limits
                    .first_block(at, to - at)
                    .is_some_and(|span| shared.make(state, span, write));
            held.0.clear();
            entries.clear();
            if !is_made {
                if at == from {
                    return None;
                }
                // Those before it are tried once more.
                (to, attempts) = (at, 0);
            }
            attempts = attempts.saturating_sub(1);
            match shared.find(state, (rail, most), (from, to, write), (&mut held, entries)) {
                Found::All => return Some(held),
                Found::Unsettled => return None,
                Found::Missing(missing) => at = missing,
            }
        }
    }

    /// What happened until now.
    pub(crate) fn counts(&self) -> Counts {
        match self.shared.state.get() {
            Some(Some(state)) => lock(state).counts,
            _ => Counts::default(),
        }
    }

    /// From now on everything is copied, and unmapping memory is nobody's business. Once.
    pub(crate) fn close(&self) {
        let Some((thread, stop)) = lock(&self.shared.listener).take() else { return };
        if self.shared.verbose {
            let Counts { hits, made, evicted, copied, unmapped } = self.counts();
            say!(
                INFO,
                RANK,
                "registered memory outside segments: {hits} times found, {made} times made, {evicted} times given up, {copied} times copied, {unmapped} times unmapped"
            );
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
