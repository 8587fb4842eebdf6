//! Progress: polling both transports, and what follows when the network fails.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Instant;

use settings::deadlines::wait as deadlines;

use crate::am::{NetReceiver, ShmReceiver};
use crate::barrier::drive::is_driving;
use crate::error::Error;
use crate::mode::{Mode, Par};
use crate::rank::RankContext;
use crate::trace::{self, Category};
use crate::transport::message::{Arrived, MessageClass, Sink};
use crate::transport::net::{self, DeferredThread, Mark, NetTransport, Poll, SharedSink};
use crate::wait::{LOOKS, RECV_POLLS, Waiter};

impl RankContext {
    /// Whether a poll would find something. Loads only.
    #[inline]
    pub fn has_work(&self) -> bool {
        self.shm().memory.arrived()
            || self.node_shm().exit_decision().is_some()
            || self.net_has_work()
            || self.calls.may_go_on()
            || self.calls.meets() && self.may_meet()
    }

    /// Whether a poll would deliver something. Loads only. A rank without neighbours does not check
    /// for what it sent itself.
    #[inline]
    pub(crate) fn has_arrivals(&self) -> bool {
        let alone = self.networked() && self.shm().span.locals == 1;
        !alone && self.shm().memory.arrived() || self.net_has_work()
    }

    #[inline]
    fn net_has_work(&self) -> bool {
        self.transport.net().is_some_and(|net| net.has_work() | self.exit_inbox.any())
    }

    /// Delivers some messages; returns how many.
    #[inline]
    pub fn poll<M: Mode>(&self, call: &'static str) -> Result<usize, Error> {
        if self.networked() { self.poll_both::<M>(call) } else { self.poll_memory::<M>(call) }
    }

    // Left to the compiler: forced into sends it made the Rust round trip of a Short longer, 133 ns
    // instead of 112.
    #[inline]
    fn poll_memory<M: Mode>(&self, call: &'static str) -> Result<usize, Error> {
        self.begin_poll::<M>(call)?;
        let count = self.poll_shm::<M>();
        if self.calls.has_more() {
            self.drive_more::<M>()?;
        }
        Ok(count)
    }

    /// As [`RankContext::poll_memory`], and the network.
    #[inline(never)]
    fn poll_both<M: Mode>(&self, call: &'static str) -> Result<usize, Error> {
        self.begin_poll::<M>(call)?;
        let shm = if self.shm().receives() { self.poll_received::<M>() } else { 0 };
        let count = shm + self.poll_net::<M>(Poll::All)?;
        if self.calls.has_more() {
            self.drive_more::<M>()?;
        }
        Ok(count)
    }

    #[inline(always)]
    fn begin_poll<M: Mode>(&self, call: &'static str) -> Result<(), Error> {
        if !self.is_running::<M>() {
            self.check_open(call)?;
            self.check_outside::<M>(call)?;
        }
        self.shm().budget.end_burst();
        Ok(())
    }

    /// Drives what is not over with a message.
    #[inline(never)]
    fn drive_more<M: Mode>(&self) -> Result<(), Error> {
        if self.calls.has_collectives() {
            self.drive_collectives::<M>();
        }
        if self.calls.has_loans() { self.drive_loans::<M>() } else { Ok(()) }
    }

    #[inline(never)]
    fn poll_received<M: Mode>(&self) -> usize {
        self.poll_shm::<M>()
    }

    /// Delivers what is in the queues and lanes of this rank; returns how many.
    #[inline(always)]
    fn poll_shm<M: Mode>(&self) -> usize {
        let shm = self.shm();
        let queued = if shm.memory.queued() { self.poll_queues::<M>() } else { 0 };
        let count = queued + shm.drain_all_lanes::<M>(&ShmReceiver::<M>::new(self));
        if count > 0 {
            shm.slot().took_messages(count);
            if M::THREADED {
                // What the handlers did may be what another thread of this rank sleeps for.
                shm.wake_own();
            }
        }
        count
    }

    /// As [`RankContext::poll`] where nothing but memory is to be polled; `None` elsewhere, and
    /// where it would fail.
    #[inline(always)]
    pub fn try_poll_shm<M: Mode>(&self) -> Option<usize> {
        if self.networked() || !self.is_running::<M>() {
            return None;
        }
        self.shm().budget.end_burst();
        let count = self.poll_shm::<M>();
        if self.shm().is_asymmetric() && !trace::on(Category::Messages) {
            self.shm().budget.grant_one::<M>();
        }
        if self.calls.has_collectives() {
            self.drive_collectives::<M>();
        }
        Some(count)
    }

    #[inline(never)]
    fn poll_queues<M: Mode>(&self) -> usize {
        let (shm, receiver) = (self.shm(), ShmReceiver::<M>::new(self));
        let mut count = 0;
        if shm.is_ready(MessageClass::Internal) {
            count += self.poll_internal();
        }
        for class in [MessageClass::Reply, MessageClass::Request] {
            if shm.is_ready(class) {
                count += shm.drain::<M>(class, &receiver);
            }
        }
        count
    }

    /// One poll of the network.
    #[inline(always)]
    fn poll_net<M: Mode>(&self, what: Poll) -> Result<usize, Error> {
        let Some(net) = self.transport.net() else { return Ok(0) };
        let receiver = NetReceiver::<M>::new(self);
        match net.poll::<M, _>(&receiver, what) {
            // Most polls find nothing.
            None | Some(Ok(0)) if !receiver.has_internal() => Ok(self.go_on()),
            polled => self.after_poll(&receiver, polled),
        }
    }

    /// As [`RankContext::poll_net`] for the library's own messages alone. Async-signal-safe in the
    /// sense of [`RankContext::poll_internal`].
    pub(crate) fn poll_net_internal(&self) -> usize {
        if is_driving() {
            return 0;
        }
        // What fails on this way is found again by the client's own poll, or the job ends anyway.
        self.poll_net::<Par>(Poll::Internal).unwrap_or(0)
    }

    /// Whether only messages can come from outside, so that a wait need not poll for more
    /// ([`RankContext::poll_recv`]).
    #[inline]
    pub(crate) fn only_receives(&self) -> bool {
        self.transport.net().is_some_and(NetTransport::only_receives)
    }

    /// What a wait does between two polls that find nothing: a few polls for messages alone. Ends
    /// when one has come, or `done`; returns how many.
    #[inline(never)]
    pub(crate) fn poll_recv<M: Mode>(
        &self,
        mut done: impl FnMut() -> bool,
    ) -> Result<usize, Error> {
        let Some(net) = self.transport.net() else { return Ok(0) };
        let alone = self.shm().span.locals == 1;
        let receiver = NetReceiver::<M>::new(self);
        for _ in 0..RECV_POLLS {
            let written = self.has_barriers() && self.any_written();
            if done() || !alone && self.shm().memory.arrived() || written {
                break;
            }
            match net.poll_recv::<M, _>(&receiver) {
                None | Some(Ok(0)) => {}
                // Only the library's own messages have consequences.
                Some(Ok(count)) if !receiver.has_internal() => {
                    self.shm().slot().took_messages(count);
                    return Ok(count);
                }
                polled => return self.after_poll(&receiver, polled),
            }
        }
        Ok(0)
    }

    /// What follows a call into the network that has brought something.
    #[inline(never)]
    fn after_poll<M: Mode>(
        &self,
        receiver: &NetReceiver<'_, M>,
        polled: Option<Result<usize, Box<net::Error>>>,
    ) -> Result<usize, Error> {
        receiver.check();
        let count = match polled {
            None => 0,
            Some(Ok(count)) => count,
            Some(Err(error)) => self.failed_poll(*error)?,
        };
        if count > 0 {
            self.shm().slot().took_messages(count);
        }
        Ok(count + self.go_on())
    }

    /// What messages of the library, and words of barriers, have made possible; how much.
    #[inline(always)]
    fn go_on(&self) -> usize {
        if !(self.exit_inbox.any() | self.has_barriers()) {
            return 0;
        }
        let told = if self.exit_inbox.any() { self.deliver_exit_inbox() } else { 0 };
        told + self.drive_barriers()
    }

    /// Arms the network before a sleep; `false` when that is not possible.
    #[cold]
    pub(crate) fn arm_net(&self) -> bool {
        self.transport.net().is_some_and(|net| net.arm().is_ok())
    }

    /// Starts the threads of the network that the settings ask for. Those that run handlers do so
    /// beside the program: handlers of C programs are written for that, those of Rust programs need
    /// not be in modes where one thread at a time is inside the library.
    pub(crate) fn start_threads<M: Mode>(self: &Arc<Self>) -> Result<(), Error> {
        let Some(net) = self.transport.net() else { return Ok(()) };
        if net.has_receivers() && !M::THREADED {
            if !self.shm().c_face {
                let problem = format!(
                    "a thread for receives runs handlers beside the program, and those of a Rust program of mode {} \
                     may be of its thread alone; use mode Par, or unset it",
                    M::NAME
                );
                return Err(Error::Setting { name: "GASNET_RCV_THREAD", problem });
            }
            self.calls.by_thread();
        }
        if self.settings.defer_threads {
            return Ok(());
        }
        Ok(net.start_threads(&self.progress_sink())?)
    }

    fn progress_sink(self: &Arc<Self>) -> SharedSink {
        Arc::new(ProgressSink(Arc::downgrade(self)))
    }

    /// The threads of the network that the settings ask for, for the program to run, where it said
    /// so before it joined. Once.
    pub(crate) fn deferred_threads(self: &Arc<Self>) -> Vec<DeferredThread> {
        let net = self.transport.net().filter(|_| self.settings.defer_threads);
        net.map_or_else(Vec::new, |net| net.deferred_threads(&self.progress_sink()))
    }
}

/// [`Waiter::poll_for`] of some mode.
pub(crate) type PollFn =
    fn(&mut Waiter, &RankContext, &'static str, &mut dyn FnMut() -> bool) -> Result<usize, Error>;

/// Waiting for operations that adapters do for this rank.
impl RankContext {
    /// Waits (and polls) until `complete`, which ends of this rank's own requests mostly make true.
    #[inline]
    pub(crate) fn wait_for_ends<M: Mode>(
        &self,
        call: &'static str,
        complete: impl Fn() -> bool,
    ) -> Result<(), Error> {
        self.wait_polling(call, Waiter::poll_for::<M>, complete)
    }

    /// As [`RankContext::wait_for_ends`], with the poll of some mode.
    pub(crate) fn wait_polling(
        &self,
        call: &'static str,
        poll: PollFn,
        complete: impl Fn() -> bool,
    ) -> Result<(), Error> {
        if complete() || self.look_for_ends(&complete)? {
            return Ok(());
        }
        let mut waiter = Waiter::new();
        loop {
            match poll(&mut waiter, self, call, &mut || complete())? {
                0 => waiter.idle(self, || self.has_work() || complete()),
                _ => waiter.progressed(),
            }
            if complete() || self.look_for_ends(&complete)? {
                return Ok(());
            }
        }
    }

    /// Before a wait by polls for operations that adapters do for this rank.
    #[inline]
    pub fn await_ends(&self) {
        if let Some(net) = self.transport.net() {
            net.await_ends();
        }
    }

    /// The right to one look for ends of this rank's requests, unless a whole poll is due
    /// ([`RankContext::look_for_ends`]).
    #[inline]
    pub(crate) fn takes_look(&self) -> bool {
        let left = self.waits.looks.load(Ordering::Relaxed);
        if left > 0 {
            self.waits.looks.store(left - 1, Ordering::Relaxed);
        }
        left > 0
    }

    /// Takes ends of this rank's requests alone, which takes a part of a whole poll, until `done`;
    /// whether it is. A rank that makes one call after the other still polls: a whole poll is due
    /// after so many looks, in however many calls.
    #[inline]
    fn look_for_ends(&self, done: impl Fn() -> bool) -> Result<bool, Error> {
        let left = self.waits.looks.load(Ordering::Relaxed);
        let Some(net) = self.transport.net().filter(|net| left > 0 && net.is_adapter()) else {
            self.waits.looks.store(LOOKS, Ordering::Relaxed);
            return Ok(false);
        };
        let left = match net.take_ends(left, &done) {
            None => 0,
            Some(Ok(left)) => left,
            Some(Err(error)) => {
                self.failed_poll(error)?;
                0
            }
        };
        let done = done();
        self.waits.looks.store(if done { left } else { LOOKS }, Ordering::Relaxed);
        Ok(done)
    }
}

/// Takes what threads of the network find, in the mode that lets any thread run handlers.
struct ProgressSink(Weak<RankContext>);

impl Sink for ProgressSink {
    fn arrived(&self, message: Arrived<'_>) {
        let Some(context) = self.0.upgrade() else { return };
        let receiver = NetReceiver::<Par>::new(&context);
        receiver.arrived(message);
        receiver.check();
    }
}

/// The network has failed: usually a peer has died, and those who know the cause say so in a
/// moment.
impl RankContext {
    #[cold]
    pub(crate) fn failed_send(&self, error: &net::Error) -> bool {
        // The call is over: an exit may use the network.
        let _outside = Mark::outside();
        if !self.is_closed() && !self.ends_soon() {
            self.fatal(&error.to_string());
        }
        false
    }

    #[cold]
    fn failed_poll(&self, error: net::Error) -> Result<usize, Error> {
        if self.is_closed() {
            return Ok(0);
        }
        self.ends_soon();
        // Where the end of the job is decided, that is what the caller hears.
        self.check_open("poll")?;
        Err(error.into())
    }

    #[cold]
    fn ends_soon(&self) -> bool {
        let end = Instant::now() + deadlines::LOST_PEER.limit;
        while self.node_shm().exit_decision().is_none() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            // Who decides the end rings every doorbell.
            let slice = left.min(deadlines::SLEEP_MOST.limit);
            self.shm().slot().sleep(slice, || self.node_shm().exit_decision().is_some());
        }
        true
    }
}
