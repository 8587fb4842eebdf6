//! Threads of the network.
//!
//! *Service*: one for each rank. It rings the rank's doorbell when an armed completion queue has something, makes dynamic
//! connections, and reads what devices say of themselves. It runs no handlers.
//!
//! *Progress*: one for each rail and direction, when the user asks for them. Those for receives run handlers.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bootstrap::Rank;
use fabric::{AsyncEvent, Channel};
use nix::poll::{PollFd, PollFlags, PollTimeout};
use nix::sys::eventfd::{EfdFlags, EventFd};
use settings::deadlines::net as deadlines;

use super::connect::driver::Connector;
use super::context::NetContext;
use super::peer::Peer;
use super::rail::Rail;
use super::settings::{PollMode, ThreadSettings};
use super::setup::start::Links;
use super::{Error, Poll};
use crate::transport::message::Sink;

/// A sink that progress threads may call.
pub(crate) type SharedSink = Arc<dyn Sink + Send + Sync>;

/// The threads of a rank.
#[derive(Debug)]
pub(super) struct Threads {
    links: Links,
    stop: Arc<EventFd>,
    stopping: Arc<AtomicBool>,
    running: Mutex<Vec<JoinHandle<()>>>,
}

fn os(operation: &'static str) -> impl Fn(nix::errno::Errno) -> Error {
    move |errno| Error::Os { operation, source: errno.into() }
}

impl Threads {
    /// Starts the service thread. `connector` comes with the channel of its completion queue.
    pub(super) fn start(
        links: Links,
        connector: Option<(Connector, Arc<dyn Channel>)>,
    ) -> Result<Self, Error> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let stop = EventFd::from_value_and_flags(0, flags);
        let threads = Self {
            links,
            stop: Arc::new(stop.map_err(os("make an event descriptor"))?),
            stopping: Arc::new(AtomicBool::new(false)),
            running: Mutex::new(Vec::new()),
        };
        let service = Service {
            links: threads.links.clone(),
            connector,
            stop: Arc::clone(&threads.stop),
            stopping: Arc::clone(&threads.stopping),
        };
        threads.spawn("gasnet-net", move || service.run())?;
        Ok(threads)
    }

    /// What connections are made with.
    pub(super) const fn links(&self) -> &Links {
        &self.links
    }

    fn spawn(&self, name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), Error> {
        let builder = std::thread::Builder::new().name(name.to_owned());
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
        for rail in 0..self.links.context.rails.len() {
            for (settings, task) in [(receive, Task::Receive(Arc::clone(sink))), (send, Task::Send)]
            {
                if settings.on {
                    let progress = Progress {
                        context: Arc::clone(&self.links.context),
                        rail,
                        settings: *settings,
                        task,
                        stop: Arc::clone(&self.stop),
                        stopping: Arc::clone(&self.stopping),
                    };
                    progress.claim();
                    self.spawn("gasnet-progress", move || progress.run())?;
                }
            }
        }
        Ok(())
    }

    /// Ends all threads; waits for them no longer than the deadline. (One that runs a handler of the client may take longer
    /// and is left alone; so is the calling thread.)
    pub(super) fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        let _ = self.stop.write(1);
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

/// Signals are for the client's threads.
fn block_signals() {
    let mut set = nix::sys::signal::SigSet::all();
    // A fault of this thread must still be seen as one.
    for fault in [
        nix::sys::signal::Signal::SIGSEGV,
        nix::sys::signal::Signal::SIGBUS,
        nix::sys::signal::Signal::SIGILL,
        nix::sys::signal::Signal::SIGFPE,
        nix::sys::signal::Signal::SIGABRT,
    ] {
        set.remove(fault);
    }
    let _ = set.thread_block();
}

/// Waits until one of the descriptors is readable; says for each whether it is.
fn wait<const N: usize>(
    fds: [std::os::fd::BorrowedFd<'_>; N],
    timeout: PollTimeout,
) -> Result<[bool; N], Error> {
    let mut list = fds.map(|fd| PollFd::new(fd, PollFlags::POLLIN));
    match nix::poll::poll(&mut list, timeout) {
        Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(list.map(|fd| fd.any() == Some(true))),
        Err(errno) => Err(os("wait for the network")(errno)),
    }
}

/// The service thread.
struct Service {
    links: Links,
    connector: Option<(Connector, Arc<dyn Channel>)>,
    stop: Arc<EventFd>,
    stopping: Arc<AtomicBool>,
}

impl Service {
    fn run(self) {
        if let Err(error) = self.serve() {
            self.links.context.fail(error);
        }
    }

    fn serve(&self) -> Result<(), Error> {
        let context = &*self.links.context;
        while !self.stopping.load(Ordering::SeqCst) {
            let timeout = [self.connect()?, self.pay()].into_iter().flatten().min();
            let timeout = timeout.map_or(PollTimeout::NONE, |left| {
                PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
            });
            let mut list = Vec::new();
            let watched = |fd| PollFd::new(fd, PollFlags::POLLIN);
            list.push(watched(self.stop.as_fd()));
            list.push(watched(context.connect_queue.wake.as_fd()));
            if let Some((_, channel)) = &self.connector {
                list.push(watched(channel.fd()));
            }
            for rail in &context.rails {
                list.push(watched(rail.device.event_fd()));
                if !rail.has_receiver.load(Ordering::Relaxed) {
                    list.push(watched(rail.recv_channel.fd()));
                }
                if !rail.has_reaper.load(Ordering::Relaxed) {
                    list.push(watched(rail.send_channel.fd()));
                }
            }
            match nix::poll::poll(&mut list, timeout) {
                Ok(0) | Err(nix::errno::Errno::EINTR) => continue,
                Ok(_) => {}
                Err(errno) => return Err(os("wait for the network")(errno)),
            }
            drop(list);
            let _ = context.connect_queue.wake.read();
            if let Some((_, channel)) = &self.connector {
                channel.consume()?;
            }
            let mut events = 0;
            for rail in &context.rails {
                if !rail.has_receiver.load(Ordering::Relaxed) {
                    events += rail.recv_channel.consume()?;
                }
                if !rail.has_reaper.load(Ordering::Relaxed) {
                    events += rail.send_channel.consume()?;
                }
            }
            context.watch()?;
            if events > 0 {
                context.ring();
            }
        }
        Ok(())
    }

    /// Acks that somebody could not send, where ranks may count on progress without polls; returns when to try again.
    fn pay(&self) -> Option<Duration> {
        let context = &*self.links.context;
        let owes = || context.ack_pending.load(Ordering::Relaxed) != 0;
        if !owes() || !context.has_receivers() {
            return None;
        }
        let paid = context.reap().and_then(|count| {
            if count > 0 {
                // The rank may sleep until one of these is complete.
                context.ring();
            }
            context.flush_acks()
        });
        if let Err(error) = paid {
            context.fail(error);
            return None;
        }
        owes().then_some(deadlines::ACK_RETRY.limit)
    }

    /// Connections that are wanted or under way; returns how long the handshake can be left alone.
    fn connect(&self) -> Result<Option<Duration>, Error> {
        let context = &*self.links.context;
        let Some((connector, _)) = &self.connector else {
            while let Some((rank, heard)) = context.connect_queue.take() {
                context.cannot_connect(rank, heard)?;
            }
            return Ok(None);
        };
        connector.arm()?;
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
            context.ring();
        }
        Ok(connector.deadline().map(|left| left.saturating_add(Duration::from_millis(1))))
    }
}

/// What a progress thread does.
enum Task {
    Receive(SharedSink),
    Send,
}

/// A progress thread.
struct Progress {
    context: Arc<NetContext>,
    rail: usize,
    settings: ThreadSettings,
    task: Task,
    stop: Arc<EventFd>,
    stopping: Arc<AtomicBool>,
}

impl Progress {
    /// Tells others what is this thread's. Before it runs, so that nobody else waits on its channel.
    fn claim(&self) {
        let rail = &self.context.rails[self.rail];
        let alone = self.settings.mode == PollMode::Exclusive;
        let (has, only) = match self.task {
            Task::Receive(_) => (&rail.has_receiver, &rail.is_taken),
            Task::Send => (&rail.has_reaper, &rail.is_reaped),
        };
        has.store(true, Ordering::SeqCst);
        only.store(alone, Ordering::SeqCst);
        // The service thread leaves the channel.
        let _ = self.context.connect_queue.wake.write(1);
    }

    fn run(self) {
        if let Err(error) = self.progress() {
            self.context.fail(error);
        }
    }

    fn poll(&self) -> Result<usize, Error> {
        let locked = self.settings.mode == PollMode::Serialized;
        let count = match &self.task {
            Task::Receive(sink) => {
                self.context.receive_on(self.rail, &**sink, Poll::All, locked)?
            }
            Task::Send => self.context.reap_on(self.rail)?,
        };
        if count > 0 {
            self.context.ring();
        }
        Ok(count)
    }

    /// Sleeps until there is something, takes all of it, and goes on looking for the idle time.
    fn progress(&self) -> Result<(), Error> {
        let rail = &self.context.rails[self.rail];
        let (queue, channel): (_, &dyn Channel) = match self.task {
            Task::Receive(_) => (&rail.recv_cq, &*rail.recv_channel),
            Task::Send => (&rail.send_cq, &*rail.send_channel),
        };
        let pause = match self.settings.rate {
            0 => None,
            rate => Some(Duration::from_secs(1) / rate),
        };
        while !self.stopping.load(Ordering::SeqCst) {
            let begin = Instant::now();
            let mut last = begin;
            let mut any = false;
            loop {
                if self.poll()? > 0 {
                    any = true;
                    last = Instant::now();
                } else if self.settings.idle.is_zero() || last.elapsed() >= self.settings.idle {
                    break;
                }
                if self.stopping.load(Ordering::SeqCst) {
                    return Ok(());
                }
            }
            if let (true, Some(pause)) = (any, pause) {
                std::thread::sleep(pause.saturating_sub(begin.elapsed()));
            }
            queue.arm()?;
            if self.poll()? == 0 {
                let _ = wait([channel.fd(), self.stop.as_fd()], PollTimeout::NONE)?;
            }
            channel.consume()?;
        }
        Ok(())
    }
}

impl NetContext {
    /// Whether a thread takes messages although the client does not poll.
    fn has_receivers(&self) -> bool {
        self.rails.iter().any(|rail| rail.has_receiver.load(Ordering::Relaxed))
    }

    /// A lane owes an ack. Without polls only the service thread can pay it.
    pub(super) fn note_pending_ack(&self) {
        self.ack_pending.fetch_add(1, Ordering::AcqRel);
        if self.has_receivers() {
            let _ = self.connect_queue.wake.write(1);
        }
    }

    /// Wakes the rank if it sleeps.
    pub(super) fn ring(&self) {
        self.members.page.slot(self.members.slot).ring();
    }

    /// Hears what the devices say of themselves. When it returns, a device that failed is the failure that the next poll
    /// reports.
    pub(super) fn watch(&self) -> Result<(), Error> {
        let _one_at_a_time = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        for rail in &self.rails {
            while let Some(event) = rail.device.next_event()? {
                if let Err(error) = self.happened(rail, event) {
                    self.fail(error);
                }
            }
        }
        Ok(())
    }

    /// Something that a device says of itself. What ends connections is also seen by their requests, which name the peer.
    fn happened(&self, rail: &Rail, event: AsyncEvent) -> Result<(), Error> {
        if self.is_quiet() {
            return Ok(());
        }
        let (rank, name) = (self.members.rank, rail.name());
        let text = match event {
            AsyncEvent::PortActive { port } => format!("port {port} is up"),
            AsyncEvent::PortDown { port } => {
                format!("port {port} went down; messages wait until it is up again, or fail")
            }
            AsyncEvent::QpFatal { qpn } => {
                let peers = self.peers.iter();
                let peer = peers.filter(|peer| peer.has(qpn)).map(|peer| peer.rank);
                let peer = peer.last().map_or("no rank".to_owned(), |rank| format!("rank {rank}"));
                format!("queue pair {qpn:#x} (connected to {peer}) failed")
            }
            AsyncEvent::CqError => return Err(self.broken(rail, "a completion queue overflowed")),
            AsyncEvent::DeviceFatal => return Err(self.broken(rail, "the device failed")),
            AsyncEvent::Other(number) => format!("event {number}"),
        };
        super::say(&format!("gasnet_ibv: rank {rank}: {name}: {text}\n"));
        Ok(())
    }

    /// Without dynamic connections: a rank that is wanted is missing.
    fn cannot_connect(&self, peer: Rank, heard: bool) -> Result<(), Error> {
        if heard || self.peers.get(peer).is_some_and(Peer::is_open) {
            return Ok(());
        }
        let problem = "it was not connected at the start, and GASNET_CONNECT_DYNAMIC=0; see GASNET_CONNECTFILE_IN".to_owned();
        Err(Error::NoConnection { rank: self.members.rank, peer, problem })
    }

    fn broken(&self, rail: &Rail, problem: &'static str) -> Error {
        Error::Device { rank: self.members.rank, device: rail.name(), problem }
    }
}
