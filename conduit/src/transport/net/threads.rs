//! Threads of the network.
//!
//! *Service* ([`Service`]): one for each rank. It rings the rank's doorbell when an armed
//! completion queue has something, makes dynamic connections, and reads what devices report. It
//! runs no handlers. A program that needs no other thread does without it (`single.rs`).
//!
//! *Progress* ([`Progress`]): one for each adapter and direction, when the user asks for them. Those
//! for receives run handlers. A program may run them in threads of its own ([`DeferredThread`]).

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ::settings::deadlines::net as deadlines;
use bootstrap::Rank;
use fabric::{Channel, CompletionQueue, Ringer};
use nix::poll::{PollFd, PollFlags, PollTimeout};
use nix::sys::eventfd::EventFd;
use smallvec::{SmallVec, smallvec};

use super::am::polls::Poll;
use super::am::receive::Receiver;
use super::connect::driver::Connector;
use super::connect_queue::wake_event;
use super::context::NetContext;
use super::error::Error;
use super::links::Links;
use super::peer::Peer;
use super::rail::{Rail, Turn};
use super::settings::{PollMode, ThreadSettings};
use crate::sys::block_signals;
use crate::trace::{self, Counter};
use crate::transport::message::Sink;

pub(crate) type SharedSink = Arc<dyn Sink + Send + Sync>;

/// What a sleep waits for; of one or two rails without an allocation.
type Watched<'a> = SmallVec<[PollFd<'a>; 8]>;

#[derive(Debug)]
struct Stop {
    event: EventFd,
    is_requested: AtomicBool,
}

impl Stop {
    fn new() -> Result<Self, Error> {
        Ok(Self { event: wake_event()?, is_requested: AtomicBool::new(false) })
    }

    fn request(&self) {
        self.is_requested.store(true, Ordering::SeqCst);
        let _ = self.event.write(1);
    }

    fn is_requested(&self) -> bool {
        self.is_requested.load(Ordering::SeqCst)
    }
}

#[derive(Debug)]
pub(super) struct Threads {
    pub(super) links: Links,
    stop: Arc<Stop>,
    running: Mutex<Vec<JoinHandle<()>>>,
    /// The service where it has no thread.
    pub(super) inline: Option<InlineService>,
}

/// A progress thread that the program runs.
pub struct DeferredThread {
    /// Name of its adapter.
    pub device: String,
    /// Whether it takes what arrives, and runs handlers; otherwise what has been sent.
    pub receives: bool,
    run: Box<dyn FnOnce() + Send>,
}

impl DeferredThread {
    /// Runs until the network closes.
    pub fn run(self) {
        (self.run)();
    }
}

impl Threads {
    /// Starts the service thread, where there is to be one. `connector` comes with the channel of its
    /// completion queue.
    pub(super) fn start(
        links: Links,
        connector: Option<(Connector, Arc<dyn Channel>)>,
    ) -> Result<Self, Error> {
        let stop = Arc::new(Stop::new()?);
        let mut threads = Self { links, stop, running: Mutex::new(Vec::new()), inline: None };
        let links = threads.links.clone();
        let single = links.context.is_single();
        let service = Service { links, connector, stop: threads.stop.clone() };
        if single {
            threads.inline = Some(InlineService { service, turns: AtomicU32::new(0) });
        } else {
            // Where the device can, its thread wakes the rank itself.
            let ringer = doorbell(&service.links);
            for channel in service.links.context.rails.iter().flat_map(own_channels) {
                channel.set_ringer(Some(Arc::clone(&ringer)));
            }
            threads.spawn("gasnet-net", move || service.run())?;
        }
        Ok(threads)
    }

    fn spawn(&self, name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), Error> {
        let stack = self.links.context.settings.stack;
        let builder = std::thread::Builder::new().name(name.to_owned()).stack_size(stack);
        let handle = builder
            .spawn(move || {
                block_signals();
                run();
            })
            .map_err(|source| Error::Os { operation: "start a thread of the network", source })?;
        self.running.lock().unwrap_or_else(PoisonError::into_inner).push(handle);
        Ok(())
    }

    /// Starts the progress threads that the settings ask for.
    pub(super) fn progress(
        &self,
        receive: &ThreadSettings,
        send: &ThreadSettings,
        sink: &SharedSink,
    ) -> Result<(), Error> {
        for progress in self.wanted(receive, send, sink) {
            progress.claim();
            self.spawn("gasnet-progress", move || progress.run())?;
        }
        Ok(())
    }

    pub(super) fn wanted(
        &self,
        receive: &ThreadSettings,
        send: &ThreadSettings,
        sink: &SharedSink,
    ) -> Vec<Progress> {
        let adapters = adapters(&self.links.context.rails);
        let tasks = adapters.into_iter().flat_map(|rails| {
            let receives = (rails.clone(), receive, Task::Receive(Arc::clone(sink)));
            [receives, (rails, send, Task::Send)]
        });
        let wanted = tasks.filter(|(_, settings, _)| settings.on);
        let progress = wanted.map(|(rails, settings, task)| Progress {
            context: Arc::clone(&self.links.context),
            rails,
            settings: *settings,
            task,
            stop: Arc::clone(&self.stop),
        });
        progress.collect()
    }

    /// The progress threads that the settings ask for, for the program to run. Until each runs, its
    /// queue is anybody's.
    pub(super) fn deferred(
        &self,
        receive: &ThreadSettings,
        send: &ThreadSettings,
        sink: &SharedSink,
    ) -> Vec<DeferredThread> {
        let wanted = self.wanted(receive, send, sink).into_iter();
        let deferred = wanted.map(|progress| DeferredThread {
            device: progress.device(),
            receives: matches!(progress.task, Task::Receive(_)),
            run: Box::new(move || {
                progress.claim();
                progress.run();
            }),
        });
        deferred.collect()
    }

    /// Ends all threads; waits for them no longer than the deadline. (One that runs a handler of
    /// the client may take longer and is left alone; so is the calling thread.)
    pub(super) fn stop(&self) {
        self.stop.request();
        let end = Instant::now() + deadlines::THREADS.limit;
        let Ok(mut running) = self.running.try_lock() else { return };
        let me = std::thread::current().id();
        for handle in running.drain(..).filter(|handle| handle.thread().id() != me) {
            while !handle.is_finished() && Instant::now() < end {
                std::thread::sleep(deadlines::CLOSE_SLICE.limit);
            }
            if handle.is_finished() {
                let _ = handle.join();
            }
        }
    }
}

fn readable(fd: BorrowedFd<'_>) -> PollFd<'_> {
    PollFd::new(fd, PollFlags::POLLIN)
}

/// Waits until one of these is readable; `false` when none is.
fn wait(list: &mut [PollFd<'_>], timeout: PollTimeout) -> Result<bool, Error> {
    match nix::poll::poll(list, timeout) {
        Ok(0) | Err(nix::errno::Errno::EINTR) => Ok(false),
        Ok(_) => Ok(true),
        Err(errno) => Err(Error::os("wait for the network")(errno)),
    }
}

impl NetContext {
    /// Completions of sends of one rail, where pollers take turns; none while another thread asks.
    pub(super) fn reap_in_turn(&self, at: usize) -> Result<usize, Error> {
        let turn = &self.rails[at].reaping;
        if !turn.take() {
            return Ok(0);
        }
        let count = self.reap_on(at);
        turn.give();
        count
    }
}

enum Task {
    Receive(SharedSink),
    Send,
}

pub(super) struct Progress {
    context: Arc<NetContext>,
    /// All of one adapter.
    rails: Vec<usize>,
    settings: ThreadSettings,
    task: Task,
    stop: Arc<Stop>,
}

/// The rails of each adapter, in order.
fn adapters(rails: &[Rail]) -> Vec<Vec<usize>> {
    let mut adapters: Vec<(&str, Vec<usize>)> = Vec::new();
    for (at, rail) in rails.iter().enumerate() {
        let name = rail.device.info().name.as_str();
        match adapters.iter_mut().find(|(known, _)| *known == name) {
            Some((_, all)) => all.push(at),
            None => adapters.push((name, vec![at])),
        }
    }
    adapters.into_iter().map(|(_, all)| all).collect()
}

impl Progress {
    fn rails(&self) -> impl Iterator<Item = &Rail> {
        self.rails.iter().filter_map(|at| self.context.rails.get(*at))
    }

    /// Name of its adapter.
    fn device(&self) -> String {
        self.rails().next().map_or_else(String::new, |rail| rail.device.info().name.clone())
    }

    /// Queue and channel of a rail, and whose turn it is to ask the queue.
    fn queue<'a>(&self, rail: &'a Rail) -> (&'a dyn CompletionQueue, &'a dyn Channel, &'a Turn) {
        match self.task {
            Task::Receive(_) => (&*rail.recv_cq, &*rail.recv_channel, &rail.receiving),
            Task::Send => (&*rail.send_cq, &*rail.send_channel, &rail.reaping),
        }
    }

    /// Tells others what is this thread's. Before it runs, so that nobody else waits on its
    /// channels.
    pub(super) fn claim(&self) {
        let alone = self.settings.mode == PollMode::Exclusive;
        for rail in self.rails() {
            let (has, only) = match self.task {
                Task::Receive(_) => (&rail.has_receiver, &rail.is_taken),
                Task::Send => (&rail.has_reaper, &rail.is_reaped),
            };
            if self.settings.mode == PollMode::Serialized {
                self.queue(rail).2.share();
            }
            has.store(true, Ordering::SeqCst);
            only.store(alone, Ordering::SeqCst);
        }
        // The service thread leaves the channels. From now on it looks for acks whenever something
        // is complete.
        for rail in &self.context.rails {
            rail.recv_channel.set_ringer(None);
            rail.send_channel.set_ringer(None);
        }
        self.context.connect_queue.wake_thread();
    }

    fn run(self) {
        if let Err(error) = self.progress() {
            self.context.fail(error);
        }
    }

    fn poll(&self) -> Result<usize, Error> {
        let locked = self.settings.mode == PollMode::Serialized;
        let mut count = 0;
        for at in &self.rails {
            count += match &self.task {
                Task::Receive(sink) => {
                    Receiver(&self.context).receive_on(*at, &**sink, Poll::All, locked)?
                }
                Task::Send => {
                    let context = &self.context;
                    let reaped =
                        if locked { context.reap_in_turn(*at) } else { context.reap_on(*at) }?;
                    trace::count_some(Counter::ReapedByThread, reaped);
                    reaped
                }
            };
        }
        if count > 0 {
            self.context.members.ring();
        }
        Ok(count)
    }

    /// As [`Progress::poll`] before a sleep: whoever has the turn now may have asked before the queue
    /// was armed, so what came since would wake nobody.
    fn poll_in_turn(&self) -> Result<usize, Error> {
        let missed =
            || self.rails().map(|rail| self.queue(rail).2.missed()).fold(0, u32::wrapping_add);
        loop {
            let before = missed();
            let count = self.poll()?;
            if count > 0 || missed() == before || self.stop.is_requested() {
                return Ok(count);
            }
            std::thread::yield_now();
        }
    }

    /// Takes all that there is, and goes on looking for the idle time; whether there was any.
    fn take_all(&self) -> Result<bool, Error> {
        let (mut last, mut any) = (Instant::now(), false);
        while !self.stop.is_requested() {
            if self.poll()? > 0 {
                any = true;
                last = Instant::now();
            } else if self.settings.idle.is_zero() || last.elapsed() >= self.settings.idle {
                break;
            }
        }
        Ok(any)
    }

    /// Sleeps until there is something, and takes it.
    fn progress(&self) -> Result<(), Error> {
        let pause = match self.settings.rate {
            0 => None,
            rate => Some(Duration::from_secs(1) / rate),
        };
        while !self.stop.is_requested() {
            let begin = Instant::now();
            if let (true, Some(pause)) = (self.take_all()?, pause) {
                std::thread::sleep(pause.saturating_sub(begin.elapsed()));
            }
            for rail in self.rails() {
                self.queue(rail).0.arm()?;
                if let Task::Send = self.task {
                    rail.look_soon();
                }
            }
            if self.poll_in_turn()? == 0 {
                let mut list: Watched<'_> = smallvec![readable(self.stop.event.as_fd())];
                list.extend(self.rails().map(|rail| readable(self.queue(rail).1.fd())));
                let _ = wait(&mut list, PollTimeout::NONE)?;
            }
            for rail in self.rails() {
                self.queue(rail).1.consume()?;
            }
        }
        Ok(())
    }
}

/// The service of a network without threads (`single.rs`).
pub(super) struct InlineService {
    service: Service,
    /// Polls so far.
    pub(super) turns: AtomicU32,
}

impl std::fmt::Debug for InlineService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("InlineService")
    }
}

impl InlineService {
    /// Connections that are wanted or under way. Arms nothing, which would be a system call.
    pub(super) fn connect(&self) -> Result<(), Error> {
        self.service.connect().map(|_| ())
    }

    /// All that is to be done now, without a sleep after it.
    pub(super) fn serve(&self) -> Result<(), Error> {
        self.connect()?;
        self.service.links.context.read_device_events()
    }

    /// All that is to be done before [`InlineService::wait`].
    pub(super) fn serve_and_arm(&self) -> Result<(), Error> {
        self.service.arm()?;
        self.serve()
    }

    /// Whether a datagram for connections has made an event that nobody has consumed.
    #[cfg(test)]
    pub(super) fn has_event(&self) -> bool {
        let channels = self.service.connector.iter().map(|(_, channel)| readable(channel.fd()));
        wait(&mut channels.collect::<Vec<_>>(), PollTimeout::ZERO).expect("poll")
    }

    /// Sleeps until something is readable, at most so long.
    pub(super) fn wait(&self, most: Duration) -> Result<bool, Error> {
        self.service.wait(PollTimeout::try_from(most).unwrap_or(PollTimeout::ZERO))
    }

    /// Takes what ended the sleep.
    pub(super) fn consume(&self) -> Result<(), Error> {
        self.service.consume().map(|_| ())
    }
}

struct Service {
    links: Links,
    connector: Option<(Connector, Arc<dyn Channel>)>,
    stop: Arc<Stop>,
}

impl Service {
    fn run(self) {
        if let Err(error) = self.serve() {
            self.links.context.fail(error);
        }
    }

    fn serve(&self) -> Result<(), Error> {
        let context = &*self.links.context;
        while !self.stop.is_requested() {
            self.arm()?;
            let timeout = [self.connect()?, self.flush_acks()].into_iter().flatten().min();
            let timeout = timeout.map_or(PollTimeout::NONE, |left| {
                PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
            });
            if !self.wait(timeout)? {
                continue;
            }
            let events = self.consume()?;
            context.read_device_events()?;
            if events > 0 {
                context.members.ring();
            }
        }
        Ok(())
    }

    /// Sleeps until something is readable; `false` when nothing is.
    fn wait(&self, timeout: PollTimeout) -> Result<bool, Error> {
        let context = &*self.links.context;
        let mut list: Watched<'_> = smallvec![
            readable(self.stop.event.as_fd()),
            readable(context.connect_queue.wake.as_fd())
        ];
        list.extend(self.connector.iter().map(|(_, channel)| readable(channel.fd())));
        for rail in &context.rails {
            list.push(readable(rail.device.event_fd()));
            list.extend(own_channels(rail).map(|channel| readable(channel.fd())));
        }
        wait(&mut list, timeout)
    }

    /// Takes what woke the thread; how many events of completion queues there were.
    fn consume(&self) -> Result<u32, Error> {
        let context = &*self.links.context;
        let _ = context.connect_queue.wake.read();
        if let Some((_, channel)) = &self.connector {
            channel.consume()?;
        }
        let mut events = 0;
        for channel in context.rails.iter().flat_map(own_channels) {
            events += channel.consume()?;
        }
        Ok(events)
    }

    /// Acks that somebody could not send, where ranks may count on progress without polls; returns
    /// when to try again.
    fn flush_acks(&self) -> Option<Duration> {
        let context = &*self.links.context;
        if !context.has_pending_acks() || !context.has_receivers() {
            return None;
        }
        let flushed = context.reap().and_then(|count| {
            if count > 0 {
                // The rank may sleep until one of these is complete.
                context.members.ring();
            }
            context.flush_acks()
        });
        if let Err(error) = flushed {
            context.fail(error);
            return None;
        }
        context.has_pending_acks().then_some(deadlines::ACK_RETRY.limit)
    }

    /// A datagram for connections makes an event from now on.
    fn arm(&self) -> Result<(), Error> {
        self.connector.as_ref().map_or(Ok(()), |(connector, _)| Ok(connector.arm()?))
    }

    /// Connections that are wanted or under way; returns how long the handshake can be left alone.
    fn connect(&self) -> Result<Option<Duration>, Error> {
        let context = &*self.links.context;
        let Some((connector, _)) = &self.connector else {
            while let Some((rank, heard)) = context.connect_queue.take() {
                cannot_connect(context, rank, heard)?;
            }
            return Ok(None);
        };
        let mut opened = 0;
        while let Some((rank, heard)) = context.connect_queue.take() {
            if heard {
                connector.heard(rank, &self.links)?;
            } else {
                connector.need(rank, &self.links)?;
            }
            opened += 1;
        }
        loop {
            let count = connector.poll(&self.links)?;
            if count == 0 {
                break;
            }
            opened += count;
        }
        if opened > 0 {
            // A connection may be open now that somebody waits for.
            context.members.ring();
        }
        Ok(connector.deadline().map(|left| left.saturating_add(Duration::from_millis(1))))
    }
}

/// Rings the doorbell of the rank.
fn doorbell(links: &Links) -> Ringer {
    let members = links.context.members.clone();
    Arc::new(move || members.ring())
}

/// Channels of a rail that no progress thread waits on.
fn own_channels(rail: &Rail) -> impl Iterator<Item = &Arc<dyn Channel>> {
    let receives = !rail.has_receiver.load(Ordering::Relaxed);
    let sends = !rail.has_reaper.load(Ordering::Relaxed);
    let receives = receives.then_some(&rail.recv_channel);
    receives.into_iter().chain(sends.then_some(&rail.send_channel))
}

/// Without dynamic connections: a rank that is wanted is missing.
fn cannot_connect(context: &NetContext, peer: Rank, heard: bool) -> Result<(), Error> {
    if heard || context.peers.get(peer).is_some_and(Peer::is_open) {
        return Ok(());
    }
    let problem = "it was not connected at the start, and GASNET_CONNECT_DYNAMIC=0; see GASNET_CONNECTFILE_IN".to_owned();
    Err(Error::NoConnection { rank: context.members.rank, peer, problem })
}
