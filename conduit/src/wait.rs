//! Waiting: spin, yield, sleep.
//!
//! Spinning helps only where every rank of the host has a processor. Yielding lets the ranks that
//! share one take turns quickly. After that a rank sleeps on its doorbell, which messages, barriers
//! and the exit decision ring.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use settings::deadlines::wait as deadlines;

use crate::error::Error;
use crate::mode::Mode;
use crate::rank::RankContext;
use crate::trace::{self, Category, Cause};
use crate::transport::net::NetTransport;
use crate::transport::shm::Which;
use crate::wait_mode::{AT_ONCE, WaitMode};

/// Fruitless polls without the processor's pause, which would delay an answer that is about to
/// come: a Short round trip took 132 ns with the pause, 118 ns without (measured between two bound
/// ranks).
const EAGER: u32 = 256;
/// Polls for messages alone that a wait makes between two whole ones.
pub(crate) const RECV_POLLS: u32 = 16;
/// Looks for ends of own requests between two whole polls.
pub(crate) const LOOKS: u32 = 64;
/// Fruitless polls between two looks at the clock. One wait in a row of short ones has fewer.
const CLOCK_EVERY: u32 = 64;
/// Yields before the first sleep.
const YIELDS: u32 = 100;
/// As above in [`WaitMode::Block`].
const YIELDS_BLOCK: u32 = 10;
/// Sleeps on the streams of the adapter, before those on the doorbell. So many that one who waits
/// for long is seldom awake, and one who waits for a peer that has to get its processor first sleeps
/// here.
const NAPS: u8 = 32;

/// One wait; counts its fruitless polls.
#[derive(Debug)]
pub struct Waiter {
    idle: u32,
    /// When it last looked at the clock, while it spins, and after how many polls it does again.
    spun: (Option<Instant>, u32),
    /// When it first found nothing, if that is traced, else 0; and what it waits for.
    began: u64,
    cause: Cause,
    /// One turn of a loop of the program: others are parts of the same wait.
    turn: bool,
    /// Arrivals from the network ring the doorbell, and a poll has found nothing since. The rings
    /// that it had before: one between that poll and the sleep must not be lost.
    armed: Option<u32>,
    slice: Duration,
    most: Duration,
    /// Sleeps that it may still spend where messages come in, which no doorbell ends.
    naps: u8,
    /// What had come when it last gave its processor away.
    arrivals: Option<u32>,
}

impl Default for Waiter {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Waiter {
    #[inline]
    fn drop(&mut self) {
        if self.began != 0 {
            trace::waited(self.cause, self.turn, self.began);
        }
    }
}

impl Waiter {
    /// A wait that is ended by the doorbell.
    #[must_use]
    pub const fn new() -> Self {
        Self::for_cause(Cause::Event)
    }

    /// As [`Waiter::new`], for something else than operations.
    pub(crate) const fn for_cause(cause: Cause) -> Self {
        Self::of(cause, 0, deadlines::SLEEP_FIRST.limit, deadlines::SLEEP_MOST.limit)
    }

    /// A wait for room at a peer, which rings nothing.
    pub(crate) const fn for_room() -> Self {
        Self::of(Cause::Room, 0, deadlines::ROOM_FIRST.limit, deadlines::ROOM_MOST.limit)
    }

    /// One turn of a wait that is driven from outside, after `idle` fruitless turns. It may be for
    /// something that rings no doorbell, so it rests for a short while only. `armed`: what
    /// [`Waiter::armed`] was after the turn before.
    #[must_use]
    pub const fn turn(idle: u32, armed: Option<u32>) -> Self {
        let most = deadlines::SLEEP_FIRST.limit;
        let mut waiter = Self::of(Cause::Condition, idle, most, most);
        (waiter.turn, waiter.armed) = (true, armed);
        waiter
    }

    /// Whether the network is armed, for the next turn.
    #[must_use]
    pub const fn armed(&self) -> Option<u32> {
        self.armed
    }

    const fn of(cause: Cause, idle: u32, slice: Duration, most: Duration) -> Self {
        let spun = (None, CLOCK_EVERY);
        Self {
            idle,
            spun,
            began: 0,
            cause,
            turn: false,
            armed: None,
            slice,
            most,
            naps: NAPS,
            arrivals: None,
        }
    }

    /// Something was done: start over.
    #[inline]
    pub const fn progressed(&mut self) {
        self.idle = 0;
        self.spun = (None, CLOCK_EVERY);
        self.armed = None;
        self.naps = NAPS;
    }

    /// A poll; while the wait spins also a few polls of the network for messages alone when nothing
    /// was found, which take a quarter of a whole one each. `done` ends them. Returns how many
    /// messages were delivered.
    #[inline]
    pub(crate) fn poll<M: Mode>(
        &mut self,
        context: &RankContext,
        call: &'static str,
        done: impl FnMut() -> bool,
    ) -> Result<usize, Error> {
        let count = context.poll::<M>(call)?;
        let spins = self.idle + RECV_POLLS < context.waits.spins();
        if count > 0 || !spins || !context.only_receives() {
            return Ok(count);
        }
        self.idle += RECV_POLLS;
        context.poll_recv::<M>(done)
    }

    /// As [`Waiter::poll`], for who has no mode.
    pub(crate) fn poll_for<M: Mode>(
        &mut self,
        context: &RankContext,
        call: &'static str,
        done: &mut dyn FnMut() -> bool,
    ) -> Result<usize, Error> {
        self.poll::<M>(context, call, done)
    }

    /// Spends a while after a poll that found nothing. `ready` is asked just before a sleep.
    #[inline]
    pub fn idle(&mut self, context: &RankContext, ready: impl FnOnce() -> bool) {
        self.idle = self.idle.saturating_add(1);
        if self.began == 0 && trace::on(Category::Waits) {
            self.began = trace::wait_begins(self.turn);
        }
        let spins = context.waits.spins();
        if self.idle < spins {
            if self.idle >= self.spun.1 {
                self.look_at_clock(context);
            }
            if self.idle > EAGER {
                pause(context);
            }
        } else {
            self.give_way(context, self.idle - spins, ready);
        }
    }

    /// Whether the system has let others run instead of this rank, while it spins.
    #[cold]
    fn look_at_clock(&mut self, context: &RankContext) {
        let now = Instant::now();
        if let Some(before) = self.spun.0.replace(now) {
            context.waits.spun(now.duration_since(before));
        }
        self.spun.1 = self.idle.saturating_add(CLOCK_EVERY);
    }

    /// Whether peers have put or got something since the last call: this rank moves the data, and
    /// they wait for it.
    fn serves(&mut self, context: &RankContext) -> bool {
        let Some(net) = context.transport.net() else { return false };
        let arrivals = net.arrivals();
        self.arrivals.replace(arrivals).is_some_and(|before| before != arrivals)
    }

    #[cold]
    fn give_way(&mut self, context: &RankContext, yielded: u32, ready: impl FnOnce() -> bool) {
        if self.serves(context) {
            (self.idle, self.naps) = (0, NAPS);
            if context.waits.spins() != AT_ONCE {
                return;
            }
        }
        context.keep_apart();
        let waits = &context.waits;
        let yields = match waits.mode() {
            WaitMode::Spin if waits.oversubscribed() => u32::MAX,
            WaitMode::Spin => return pause(context),
            _ if waits.wanted() => 0,
            WaitMode::Block => YIELDS_BLOCK,
            WaitMode::SpinBlock => YIELDS,
        };
        if yielded < yields {
            return waits.give_way();
        }
        if self.naps > 0 && context.may_nap() {
            self.naps -= 1;
            let began = waits.before_sleep();
            let slept = context.nap(ready);
            waits.after_sleep(began.filter(|_| slept));
            return;
        }
        if context.networked() && self.armed.is_none() {
            let rung = context.shm().slot().rung();
            if context.arm_net() {
                // The caller polls once more.
                self.armed = Some(rung);
                return;
            }
        }
        let armed = self.armed;
        context.want_messages();
        context.want_operand();
        context.shm().slot().show_wait(self.cause);
        let _ = waits.before_sleep();
        context.sleep(self.slice, || {
            armed.is_some_and(|rung| context.shm().slot().rung() != rung) || ready()
        });
        waits.after_sleep(None);
        if self.slice == self.most {
            // Long enough to see who may have died, where no agent does it.
            context.exit_notifier.look();
            // Long enough to see that collectives may differ, too.
            context.collectives.doubt();
            context.calls.stir();
        }
        self.armed = None;
        self.slice = (self.slice * 2).min(self.most);
    }
}

/// The processor's pause, where polls look at memory alone. Those of a network, which look at queues
/// of an adapter or make system calls, leave the memory in peace long enough by themselves; a pause
/// may be far longer there than what is waited for: on an emulated machine a round trip of a Short
/// over Soft-RoCE took 0.88 of the time without.
#[inline]
fn pause(context: &RankContext) {
    if !context.networked() {
        std::hint::spin_loop();
    }
}

impl RankContext {
    /// Whether all that this rank waits for comes over an adapter on whose streams it can sleep.
    fn may_nap(&self) -> bool {
        let sleeper = self.transport.net().and_then(NetTransport::sleeper);
        self.shm().span.locals == 1 && sleeper.is_some()
    }

    /// A short sleep where messages come in ([`RankContext::may_nap`]). False: there was none.
    fn nap(&self, ready: impl FnOnce() -> bool) -> bool {
        let net = self.transport.net();
        let net = net.filter(|_| !ready() && self.node_shm().exit_decision().is_none());
        net.is_some_and(NetTransport::sleep_on_streams)
    }

    /// Sleeps until the doorbell rings or `slice` passes; not at all when the end of the job is
    /// decided or `ready` says so. A barrier under way that completes rings; one that was complete
    /// before is the caller's affair.
    pub(crate) fn sleep(&self, slice: Duration, ready: impl FnOnce() -> bool) {
        let shm = self.shm();
        if let Some(net) = self.transport.net().filter(|net| net.is_single()) {
            if !ready() && self.node_shm().exit_decision().is_none() {
                net.nap(slice);
            }
            return;
        }
        let barriers = [Which::Client, Which::Inner]
            .map(|which| shm.sleepers_of(which).map(|sleepers| (which, sleepers)));
        for (_, sleepers) in barriers.iter().flatten() {
            sleepers.fetch_add(1, Ordering::SeqCst);
        }
        let opened = || {
            let mut waited = barriers.iter().flatten();
            waited.any(|(which, _)| shm.is_open(*which) || self.may_disseminate(*which))
                || self.any_written()
        };
        shm.slot().sleep(slice, || {
            // Without the fence there is no sleep.
            !shm.fence_for_senders()
                || self.node_shm().exit_decision().is_some()
                || opened()
                || ready()
        });
        for (_, sleepers) in barriers.iter().flatten() {
            sleepers.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicU32;

    use super::*;
    use crate::spread::tests::stay_on_first;
    use crate::transport::shm::BarrierName as Name;
    use crate::{Client, Entry, Flags, HandlerIndex, Rank, Seq, Settings};

    /// So long that a lost wake-up cannot be mistaken for a slow machine.
    const FOREVER: Duration = Duration::from_secs(600);
    const ROUNDS: u32 = 2000;

    fn ranks(size: u32, rank: impl Fn(&Client<Seq>) + Sync) {
        ranks_with(&Settings::default(), size, rank);
    }

    fn ranks_with(settings: &Settings, size: u32, rank: impl Fn(&Client<Seq>) + Sync) {
        let services = bootstrap::memory::job(size).expect("job");
        let begin = Instant::now();
        std::thread::scope(|scope| {
            for services in services {
                let rank = &rank;
                scope.spawn(move || {
                    let client = Client::with_bootstrap("TEST", services, settings.clone());
                    rank(&client.expect("init"));
                });
            }
        });
        assert!(begin.elapsed() < FOREVER, "a wake-up was lost");
    }

    #[test]
    fn a_message_always_wakes() {
        messages_wake(|client| {
            assert_eq!(client.context.shm().is_asymmetric(), crate::sys::barrier_everywhere());
        });
    }

    #[test]
    fn a_message_wakes_where_senders_make_the_fence() {
        messages_wake(|client| client.context.shm().leave_fences());
    }

    fn messages_wake(prepare: impl Fn(&Client<Seq>) + Sync) {
        let sleep = |client: &Client<Seq>| {
            client.context.sleep(FOREVER, || client.context.has_work());
        };
        ranks(2, |client| {
            prepare(client);
            take_turns(client, ROUNDS, sleep);
        });
    }

    #[test]
    fn a_message_ends_a_sleep_on_the_streams() {
        let network = vec![("GASNET_IBV_FABRIC".to_owned(), "soft".to_owned())];
        let settings = Settings {
            neighbourhood_max: 1,
            single_threaded: true,
            network,
            ..Settings::default()
        };
        ranks_with(&settings, 2, |client| {
            assert!(client.context.may_nap());
            take_turns(client, ROUNDS / 4, |client| {
                let _ = client.context.nap(|| false);
            });
        });
    }

    /// Its polls look into its queues only once it has sent to itself.
    #[test]
    fn a_rank_without_neighbours_hears_itself() {
        let network = vec![("GASNET_IBV_FABRIC".to_owned(), "soft".to_owned())];
        let settings = Settings { neighbourhood_max: 1, network, ..Settings::default() };
        ranks_with(&settings, 2, |client| {
            let got = counts(client);
            assert!(!client.context.shm().receives());
            for round in 1..=3 {
                let own = client.rank();
                let sent = client.team().request_short(own, HandlerIndex(200), &[], Flags::NONE);
                let _ = sent.expect("request");
                client.poll().expect("poll");
                assert_eq!(got.load(Ordering::Relaxed), round);
            }
            assert!(client.context.shm().receives());
            client.context.meet::<Seq>("test").expect("meet");
        });
    }

    /// Handler 200 counts; once all ranks have it.
    fn counts(client: &Client<Seq>) -> Arc<AtomicU32> {
        let got = Arc::new(AtomicU32::new(0));
        let counter = Arc::clone(&got);
        let count = move |_: &crate::Token<'_, Seq>, _: &[i32]| {
            counter.fetch_add(1, Ordering::Relaxed);
        };
        let mut entries = [Entry::short("count", 0, count).at(200)];
        client.endpoint().register(&mut entries).expect("table");
        client.context.meet::<Seq>("test").expect("meet");
        got
    }

    /// Two ranks send to each other in turns; who has nothing sleeps.
    fn take_turns(client: &Client<Seq>, rounds: u32, sleep: impl Fn(&Client<Seq>)) {
        let (got, handler) = (counts(client), HandlerIndex(200));
        let peer = Rank(1 - client.rank().0);
        for round in 1..=rounds {
            let send = || client.team().request_short(peer, handler, &[], Flags::NONE);
            if client.rank() == Rank(0) {
                let _ = send().expect("request");
            }
            while got.load(Ordering::Relaxed) < round {
                sleep(client);
                client.poll().expect("poll");
            }
            if client.rank() == Rank(1) {
                let _ = send().expect("request");
            }
        }
    }

    #[test]
    fn a_barrier_always_wakes() {
        for size in [2, 3, 10] {
            ranks(size, |client| {
                for round in 0..ROUNDS / size {
                    let context = &client.context;
                    context.shm().arrive(Which::Client, Name::Anonymous);
                    while context.shm().try_pass(Which::Client).is_none() {
                        context.sleep(FOREVER, || context.shm().is_open(Which::Client));
                    }
                    assert_eq!(context.shm().progress_of(Which::Client).generation(), round + 1);
                }
            });
        }
    }

    /// A process that computes, for as long as this lives.
    struct Hog(std::process::Child);

    impl Hog {
        fn start() -> std::io::Result<Self> {
            let mut shell = std::process::Command::new("sh");
            shell.args(["-c", "while :; do :; done"]).spawn().map(Self)
        }
    }

    impl Drop for Hog {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    /// Two ranks and two others on one processor: whether the ranks believe that there is one for
    /// each, or know better, they must notice the others, and sleep.
    fn others_are_noticed(cpus: u32) {
        if stay_on_first().is_none() {
            return println!("SKIP: no thread may be bound to a processor here");
        }
        let hogs = [Hog::start(), Hog::start()];
        if hogs.iter().any(Result::is_err) {
            return println!("SKIP: no shell");
        }
        let services = bootstrap::memory::job(2).expect("job");
        let settings = Settings { cpus: Some(cpus), ..Settings::default() };
        let rank = |services| {
            let client = Client::<Seq>::with_bootstrap("TEST", services, settings.clone());
            let client = client.expect("init");
            for _ in 0..300 {
                client.context.meet::<Seq>("test").expect("meet");
            }
            client.context.waits.seen()
        };
        let rank = &rank;
        let seen: Vec<_> = std::thread::scope(|scope| {
            let start = |services| scope.spawn(move || rank(services));
            let ranks: Vec<_> = services.into_iter().map(start).collect();
            ranks.into_iter().map(|rank| rank.join().expect("rank")).collect()
        });
        // One that always comes last never waits.
        assert!(seen.iter().any(|(wanted, sleeps)| *wanted && *sleeps > 0), "{seen:?}");
    }

    #[test]
    fn ranks_with_processors_of_their_own_notice_others() {
        std::thread::spawn(|| others_are_noticed(2)).join().expect("ranks");
    }

    #[test]
    fn ranks_that_share_a_processor_notice_others() {
        std::thread::spawn(|| others_are_noticed(1)).join().expect("ranks");
    }
}
