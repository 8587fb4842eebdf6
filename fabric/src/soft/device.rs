//! An open software device.

use std::any::Any;
use std::collections::{BTreeMap, HashSet, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::socket::{setsockopt, sockopt};
use settings::deadlines::soft::NAP;

use super::cq::{Cq, Gives, SoftChannel};
use super::engine::{Engine, wait_for};
use super::fault_script::FaultPlan;
use super::hello::{JobKey, Refused};
use super::limits::{
    MAX_CQE, MAX_INLINE, MAX_MESSAGE, MAX_QP, MAX_RD_ATOM, MAX_SGE, MAX_WR, TRIES, UDP_ROOM,
};
use super::memory::{Gather, Keys, MAX_REGIONS, Table};
use super::mishaps::Mishaps;
use super::progress::{DATAGRAMS, LISTENER, Progress};
use super::qp::{Handle, Qp};
use super::queue::Srq;
use super::{SoftConfig, hold, patiently, random, try_once};
use crate::{
    Access, Address, AddressHandle, AsyncEvent, Caps, Channel, CompletionQueue, Device, DeviceInfo,
    Error, Gid, GidEntry, GidKind, LinkLayer, Mtu, PortInfo, PortState, QpSpec, QpType, QueuePair,
    Region, SharedReceiveQueue,
};

/// Tries to find a port number that is free for TCP and for UDP.
const PORT_TRIES: u32 = 64;
/// Async events that wait to be read; more are lost.
const MAX_EVENTS: usize = 1024;

/// What a device counted.
#[derive(Debug, Default)]
pub struct Counters {
    /// Strangers that were refused.
    pub refused: AtomicU64,
    /// Datagrams that were dropped.
    pub dropped: AtomicU64,
}

/// Queue slots that were polled, by the low bits of the queue pair number.
#[derive(Debug, Default)]
struct Freed {
    number: AtomicU32,
    sends: AtomicU64,
    receives: AtomicU64,
}

const FREED_CHUNK: usize = 256;

/// An open device.
#[derive(Debug)]
pub(super) struct Dev {
    info: DeviceInfo,
    caps: Caps,
    key: JobKey,
    mtu: Mtu,
    ip: IpAddr,
    service: u16,
    listener: TcpListener,
    udp: UdpSocket,
    epoll: Epoll,
    table: Table,
    freed: Vec<OnceLock<Box<[Freed]>>>,
    qps: Mutex<BTreeMap<u32, Weak<Qp>>>,
    progress: Mutex<Progress>,
    polls: AtomicU64,
    polls_seen: AtomicU64,
    /// Polls that found another thread looking after the streams.
    turned_away: AtomicU32,
    posts: AtomicU64,
    armed: AtomicU32,
    blocked: AtomicU32,
    attention: AtomicBool,
    dirty: AtomicBool,
    ports: Vec<AtomicBool>,
    events: Mutex<VecDeque<AsyncEvent>>,
    event: EventFd,
    told: Mutex<HashSet<Refused>>,
    /// It was told that this host lacks something for connections.
    told_lack: AtomicBool,
    counters: Counters,
    mishaps: Mishaps,
    engine: Arc<Engine>,
}

fn os(device: &str, operation: &str) -> impl Fn(io::Error) -> Error + use<> {
    let (device, operation) = (device.to_owned(), operation.to_owned());
    move |source| Error::Os { device: device.clone(), operation: operation.clone(), source }
}

/// A TCP and a UDP socket on the same port number.
fn sockets(name: &str, ip: IpAddr) -> Result<(TcpListener, UdpSocket, u16), Error> {
    let fail = os(name, &format!("listen on {ip}"));
    let mut last = io::Error::other("no port number is free for TCP and UDP");
    for _ in 0..PORT_TRIES {
        let listener = TcpListener::bind((ip, 0)).map_err(&fail)?;
        let port = listener.local_addr().map_err(&fail)?.port();
        match UdpSocket::bind((ip, port)) {
            Ok(udp) => {
                listener.set_nonblocking(true).map_err(&fail)?;
                udp.set_nonblocking(true).map_err(&fail)?;
                // Requests of many peers at once: more room than usual, as far as the system grants it.
                let _ = setsockopt(&udp, sockopt::RcvBuf, &UDP_ROOM);
                return Ok((listener, udp, port));
            }
            Err(error) => last = error,
        }
    }
    Err(fail(last))
}

/// Opens a device.
pub(super) fn open(
    info: &DeviceInfo,
    config: &SoftConfig,
    faults: &Arc<FaultPlan>,
    engine: &Arc<Engine>,
) -> Result<Arc<Dev>, Error> {
    let name = info.name.as_str();
    let (listener, udp, service) = sockets(name, config.bind)?;
    let fail = os(name, "watch its sockets");
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(|errno| fail(errno.into()))?;
    let edge = EpollFlags::EPOLLIN | EpollFlags::EPOLLET;
    epoll
        .add(&listener, EpollEvent::new(edge, LISTENER))
        .and_then(|()| epoll.add(&udp, EpollEvent::new(EpollFlags::EPOLLIN, DATAGRAMS)))
        .map_err(|errno| fail(errno.into()))?;
    let event = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)
        .map_err(|errno| fail(errno.into()))?;
    let dev = Arc::new(Dev {
        info: info.clone(),
        caps: caps(),
        key: config.key,
        mtu: config.mtu,
        ip: config.bind,
        service,
        listener,
        udp,
        epoll,
        table: Table::new(),
        freed: (0..MAX_QP as usize / FREED_CHUNK).map(|_| OnceLock::new()).collect(),
        qps: Mutex::new(BTreeMap::new()),
        progress: Mutex::new(Progress::new()),
        polls: AtomicU64::new(0),
        polls_seen: AtomicU64::new(0),
        turned_away: AtomicU32::new(0),
        posts: AtomicU64::new(0),
        armed: AtomicU32::new(0),
        blocked: AtomicU32::new(0),
        attention: AtomicBool::new(false),
        dirty: AtomicBool::new(false),
        ports: (0..info.ports).map(|_| AtomicBool::new(true)).collect(),
        events: Mutex::new(VecDeque::new()),
        event,
        told: Mutex::new(HashSet::new()),
        told_lack: AtomicBool::new(false),
        counters: Counters::default(),
        mishaps: Mishaps::new(faults),
        engine: Arc::clone(engine),
    });
    engine.add(&dev);
    Ok(dev)
}

fn caps() -> Caps {
    Caps {
        max_qp: MAX_QP - 1,
        max_qp_wr: MAX_WR,
        max_sge: MAX_SGE,
        max_cqe: MAX_CQE,
        max_mr: MAX_REGIONS,
        max_mr_size: 1 << 47,
        max_rd_atom: MAX_RD_ATOM,
        max_init_rd_atom: MAX_RD_ATOM,
        max_srq_wr: MAX_WR,
        max_srq_sge: 1,
        atomics: true,
        xrc: false,
        odp: false,
        // Inline bytes go from where they are into the socket.
        cheap_inline: MAX_INLINE,
        cheap_poll: false,
    }
}

impl Dev {
    pub(super) fn name(&self) -> &str {
        &self.info.name
    }

    pub(super) const fn key(&self) -> &JobKey {
        &self.key
    }

    pub(super) const fn mtu(&self) -> Mtu {
        self.mtu
    }

    pub(super) const fn table(&self) -> &Table {
        &self.table
    }

    pub(super) const fn listener(&self) -> &TcpListener {
        &self.listener
    }

    /// The socket of datagrams, on the listener's port number.
    pub(super) const fn udp(&self) -> &UdpSocket {
        &self.udp
    }

    /// What goes wrong here on purpose.
    pub(super) const fn mishaps(&self) -> &Mishaps {
        &self.mishaps
    }

    pub(super) const fn ip(&self) -> IpAddr {
        self.ip
    }

    /// Port number of the listener.
    pub(super) const fn service(&self) -> u16 {
        self.service
    }

    /// A datagram was for nobody.
    pub(super) fn dropped(&self) {
        self.counters.dropped.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) const fn epoll(&self) -> &Epoll {
        &self.epoll
    }

    pub(super) fn ready_fd(&self) -> BorrowedFd<'_> {
        self.epoll.0.as_fd()
    }

    pub(super) const fn ports(&self) -> u8 {
        self.info.ports
    }

    #[cfg(test)]
    pub(super) const fn counters(&self) -> &Counters {
        &self.counters
    }

    // ---- activity -------------------------------------------------------------------------------------------------

    /// Somebody polls.
    pub(super) fn polled(&self) {
        self.polls.fetch_add(1, Ordering::Relaxed);
    }

    /// Moves data, unless another thread does.
    pub(super) fn progress(self: &Arc<Self>) {
        match try_once(&self.progress) {
            Some(mut progress) => drop(progress.pass(self, false)),
            None => self.turned_away(),
        }
    }

    /// Another thread is in there. It may be one that lost its processor to this one.
    #[cold]
    fn turned_away(&self) {
        let times = self.turned_away.fetch_add(1, Ordering::Relaxed);
        if times % TRIES == TRIES - 1 {
            std::thread::yield_now();
        }
    }

    /// Writes a small message on the stream of the peer's requests; `rest` copies what is left of it after so many bytes. False:
    /// not now, nothing was written.
    pub(super) fn send_back(
        &self,
        qp: &Qp,
        message: Gather<'_>,
        rest: impl FnOnce(usize) -> Vec<u8>,
    ) -> bool {
        try_once(&self.progress).is_some_and(|mut inside| inside.send_back(qp, message, rest))
    }

    /// Moves everything there is, for control calls.
    pub(super) fn progress_now(self: &Arc<Self>) {
        if let Some(mut progress) = hold(&self.progress) {
            progress.pass(self, true);
        }
    }

    /// For the engine: looks at everything; how long it may sleep then.
    pub(super) fn look(self: &Arc<Self>) -> Duration {
        // Whoever is in there does the engine's work.
        match try_once(&self.progress) {
            Some(mut progress) => {
                let looked = progress.pass(self, true);
                drop(progress);
                if looked.hindered {
                    // The next look comes at once, and the other thread may be waiting for this processor.
                    std::thread::yield_now();
                }
                wait_for(looked.busy, looked.soon)
            }
            None => NAP.limit,
        }
    }

    /// For the engine: timers only.
    pub(super) fn tick(self: &Arc<Self>) {
        if let Some(mut progress) = try_once(&self.progress) {
            progress.tick(self);
        }
    }

    /// For the engine: whether somebody polled since the last question, and nobody wants to be woken.
    pub(super) fn is_polled(&self) -> bool {
        let polls = self.polls.load(Ordering::Relaxed);
        let before = self.polls_seen.swap(polls, Ordering::Relaxed);
        polls != before && !self.is_armed()
    }

    pub(super) fn is_armed(&self) -> bool {
        self.armed.load(Ordering::SeqCst) != 0
    }

    pub(super) fn armed(&self) {
        self.armed.fetch_add(1, Ordering::SeqCst);
        self.engine.kick();
    }

    pub(super) fn disarmed(&self) {
        self.armed.fetch_sub(1, Ordering::SeqCst);
    }

    /// There is work that no socket tells of.
    pub(super) fn wake(&self) {
        if !self.engine.naps() {
            self.engine.kick();
        }
    }

    /// The engine looks again within a nap, so that small requests may be gathered.
    pub(super) fn somebody_looks(&self) -> bool {
        self.posts.fetch_add(1, Ordering::Relaxed);
        self.engine.naps()
    }

    /// The engine looks again within a nap, whatever the system tells.
    pub(super) fn engine_naps(&self) -> bool {
        self.engine.naps()
    }

    pub(super) fn posts(&self) -> u64 {
        self.posts.load(Ordering::Relaxed)
    }

    pub(super) fn mark_dirty(&self) {
        self.dirty.store(true, Ordering::SeqCst);
        self.wake();
    }

    pub(super) fn take_dirty(&self) -> bool {
        self.dirty.load(Ordering::Relaxed) && self.dirty.swap(false, Ordering::SeqCst)
    }

    pub(super) fn attend(&self) {
        self.attention.store(true, Ordering::SeqCst);
        self.wake();
    }

    pub(super) fn take_attention(&self) -> bool {
        self.attention.load(Ordering::Relaxed) && self.attention.swap(false, Ordering::SeqCst)
    }

    /// A stream takes no more, or again.
    pub(super) fn blocked(&self, is: bool) {
        if is {
            self.blocked.fetch_add(1, Ordering::Relaxed);
        } else {
            self.blocked.fetch_sub(1, Ordering::Relaxed);
        }
    }

    pub(super) fn is_blocked(&self) -> bool {
        self.blocked.load(Ordering::Relaxed) != 0
    }

    // ---- queue pairs ----------------------------------------------------------------------------------------------

    fn freed(&self, number: u32) -> Option<&Freed> {
        let at = (number & (MAX_QP - 1)) as usize;
        let one = self.freed.get(at / FREED_CHUNK)?.get()?.get(at % FREED_CHUNK)?;
        (one.number.load(Ordering::Relaxed) == number).then_some(one)
    }

    /// A completion was polled.
    pub(super) fn give_back(&self, qpn: u32, gives: Gives) {
        match gives {
            Gives::Nothing => {}
            Gives::Sends(number) => {
                if let Some(freed) = self.freed(qpn) {
                    freed.sends.fetch_max(number, Ordering::SeqCst);
                }
            }
            Gives::Receives(number) => {
                if let Some(freed) = self.freed(qpn) {
                    freed.receives.fetch_max(number, Ordering::SeqCst);
                }
            }
        }
    }

    /// Sends before this number were polled.
    pub(super) fn sends_freed(&self, qpn: u32) -> u64 {
        self.freed(qpn).map_or(0, |freed| freed.sends.load(Ordering::SeqCst))
    }

    /// Receives before this number were polled.
    pub(super) fn receives_freed(&self, qpn: u32) -> u64 {
        self.freed(qpn).map_or(0, |freed| freed.receives.load(Ordering::SeqCst))
    }

    pub(super) fn qp(&self, number: u32) -> Option<Arc<Qp>> {
        patiently(&self.qps)?.get(&number)?.upgrade()
    }

    pub(super) fn all_qps(&self) -> Option<Vec<Arc<Qp>>> {
        Some(hold(&self.qps)?.values().filter_map(Weak::upgrade).collect())
    }

    /// As [`Dev::all_qps`], into a list that is there already. False: not now.
    pub(super) fn list_qps(&self, into: &mut Vec<Arc<Qp>>) -> bool {
        let Some(qps) = hold(&self.qps) else { return false };
        into.extend(qps.values().filter_map(Weak::upgrade));
        true
    }

    pub(super) fn forget_qp(&self, number: u32) {
        if let Some(freed) = self.freed(number) {
            freed.number.store(0, Ordering::Relaxed);
        }
        if let Some(mut qps) = patiently(&self.qps) {
            qps.remove(&number);
        }
    }

    pub(super) fn pay(&self, qp: &Qp) {
        if let Some(mut progress) = hold(&self.progress) {
            progress.pay(self, qp);
        }
    }

    pub(super) fn drop_streams(&self, qp: &Qp) -> Option<()> {
        patiently(&self.progress)?.drop_streams(qp);
        Some(())
    }

    fn make_qp(self: &Arc<Self>, spec: &QpSpec<'_>) -> Result<Arc<Qp>, Error> {
        let wrong = |problem: String| Error::Argument {
            device: self.name().to_owned(),
            operation: "make a queue pair",
            problem,
        };
        let mut qps = self.qps.lock().unwrap_or_else(PoisonError::into_inner);
        if qps.len() >= MAX_QP as usize - 1 {
            return Err(wrong(format!("all {} are in use", MAX_QP - 1)));
        }
        // The high bits are random: a number of a queue pair that is gone is hardly ever one that lives.
        let number = loop {
            let number = u32::from_le_bytes(random()) & 0x00ff_ffff;
            let low = number & (MAX_QP - 1);
            let taken = qps.keys().any(|one| one & (MAX_QP - 1) == low);
            if low != 0 && number >= MAX_QP && !taken {
                break number;
            }
        };
        let at = (number & (MAX_QP - 1)) as usize;
        let chunk = self.freed.get(at / FREED_CHUNK);
        let slots = chunk.map(|chunk| {
            chunk.get_or_init(|| (0..FREED_CHUNK).map(|_| Freed::default()).collect())
        });
        if let Some(freed) = slots.and_then(|slots| slots.get(at % FREED_CHUNK)) {
            freed.sends.store(0, Ordering::SeqCst);
            freed.receives.store(0, Ordering::SeqCst);
            freed.number.store(number, Ordering::SeqCst);
        }
        let qp = Arc::new(Qp::new(self, number, spec));
        qps.insert(number, Arc::downgrade(&qp));
        Ok(qp)
    }

    // ---- events ---------------------------------------------------------------------------------------------------

    pub(super) fn report(&self, event: AsyncEvent) {
        let Some(mut events) = hold(&self.events) else { return };
        if events.len() < MAX_EVENTS {
            events.push_back(event);
            let _ = self.event.write(1);
        }
    }

    /// A stranger was turned away. Each reason is told once.
    pub(super) fn refused(&self, why: Refused, peer: SocketAddr) {
        self.counters.refused.fetch_add(1, Ordering::Relaxed);
        let first = hold(&self.told).is_some_and(|mut told| told.insert(why));
        if first && why != Refused::Closed {
            eprintln!("fabric: {}: refused a connection with {peer}: {why}", self.name());
        }
    }

    /// This host does not let the device do something (no descriptors, no way to an address). It is tried again; told once.
    pub(super) fn lacks(&self, operation: std::fmt::Arguments<'_>, error: &io::Error) {
        // That a peer is gone is noticed otherwise.
        let gone = error.kind() == io::ErrorKind::ConnectionRefused;
        if !gone && !self.told_lack.swap(true, Ordering::Relaxed) {
            let advice = match error.raw_os_error() {
                Some(libc::EMFILE) => "; raise the limit on open files (ulimit -n)",
                _ => "",
            };
            eprintln!("fabric: {}: cannot {operation}: {error}{advice}", self.name());
        }
    }

    /// Takes a port up or down, and tells when that is a change.
    pub(super) fn set_up(&self, port: u8, up: bool) {
        let place = self.ports.get(usize::from(port).wrapping_sub(1));
        if place.is_some_and(|place| place.swap(up, Ordering::Relaxed) != up) {
            let event =
                if up { AsyncEvent::PortActive { port } } else { AsyncEvent::PortDown { port } };
            self.report(event);
        }
    }

    pub(super) fn is_up(&self, port: u8) -> bool {
        self.ports
            .get(usize::from(port).wrapping_sub(1))
            .is_some_and(|up| up.load(Ordering::Relaxed))
    }
}

/// A device as its user holds it.
#[derive(Debug)]
pub(super) struct Opened(pub(super) Arc<Dev>);

impl Drop for Opened {
    fn drop(&mut self) {
        // The engine lets go of the device when it looks next.
        self.0.engine.kick();
    }
}

#[derive(Debug)]
struct SoftRegion {
    dev: Arc<Dev>,
    keys: Keys,
}

impl Region for SoftRegion {
    fn lkey(&self) -> u32 {
        self.keys.lkey
    }

    fn rkey(&self) -> u32 {
        self.keys.rkey
    }
}

impl Drop for SoftRegion {
    fn drop(&mut self) {
        self.dev.table.leave(self.keys);
    }
}

/// How to reach a port with datagrams.
#[derive(Debug)]
pub(super) struct SoftAddress {
    /// Where its socket is.
    pub(super) to: SocketAddr,
}

impl AddressHandle for SoftAddress {
    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Opened {
    fn wrong(&self, operation: &'static str, problem: String) -> Error {
        Error::Argument { device: self.0.name().to_owned(), operation, problem }
    }

    fn check_port(&self, operation: &'static str, port: u8) -> Result<(), Error> {
        if port == 0 || port > self.0.ports() {
            let problem = format!("port {port}, the device has ports 1 to {}", self.0.ports());
            return Err(self.wrong(operation, problem));
        }
        Ok(())
    }

    fn check_spec(&self, spec: &QpSpec<'_>) -> Result<(), Error> {
        const OPERATION: &str = "make a queue pair";
        if spec.qp_type == QpType::XrcSend {
            let device = self.info().name.clone();
            let what = "extended reliable connections (XRC): a process cannot receive for another";
            return Err(Error::Unsupported { device, what });
        }
        let own = |cq: &Arc<dyn CompletionQueue>| {
            cq.as_any().downcast_ref::<Cq>().is_some_and(|cq| Arc::ptr_eq(cq.dev(), &self.0))
        };
        if !own(spec.send_cq) || !own(spec.recv_cq) {
            let problem = "a completion queue is of another device".to_owned();
            return Err(self.wrong(OPERATION, problem));
        }
        if let Some(srq) = spec.srq {
            let srq = srq.as_any().downcast_ref::<Srq>();
            if !srq.is_some_and(|srq| Arc::ptr_eq(srq.dev(), &self.0)) {
                let problem = "the shared receive queue is of another device".to_owned();
                return Err(self.wrong(OPERATION, problem));
            }
            if spec.max_recv != 0 {
                let problem = format!("{} receives beside a shared receive queue", spec.max_recv);
                return Err(self.wrong(OPERATION, problem));
            }
        }
        let limits = [
            ("send requests", spec.max_send, MAX_WR),
            ("receive requests", spec.max_recv, MAX_WR),
            ("gather entries", spec.send_sge, MAX_SGE),
            ("scatter entries", spec.recv_sge, 1),
        ];
        for (what, seen, most) in limits {
            if seen > most {
                return Err(self.wrong(OPERATION, format!("{seen} {what}, at most {most}")));
            }
        }
        Ok(())
    }
}

impl Device for Opened {
    fn info(&self) -> &DeviceInfo {
        &self.0.info
    }

    fn caps(&self) -> &Caps {
        &self.0.caps
    }

    fn port(&self, number: u8) -> Result<PortInfo, Error> {
        self.check_port("query a port", number)?;
        let dev = &self.0;
        Ok(PortInfo {
            number,
            state: if dev.is_up(number) { PortState::Active } else { PortState::Down },
            link: LinkLayer::Ethernet,
            lid: 0,
            active_mtu: dev.mtu,
            max_message: MAX_MESSAGE,
            gids: vec![GidEntry { index: 0, gid: Gid::of(dev.ip), kind: GidKind::Soft }],
            pkeys: vec![0xffff],
            service: dev.service,
        })
    }

    #[expect(unsafe_code, reason = "the trait's promise, kept by the caller")]
    unsafe fn register(
        &self,
        base: NonNull<u8>,
        len: usize,
        access: Access,
    ) -> Result<Arc<dyn Region>, Error> {
        const OPERATION: &str = "register memory";
        let writes = Access::REMOTE_WRITE.0 | Access::REMOTE_ATOMIC.0;
        if !Access::ALL.has(access) {
            return Err(self.wrong(OPERATION, format!("rights {:#x} do not exist", access.0)));
        }
        if access.0 & writes != 0 && !access.has(Access::LOCAL_WRITE) {
            let problem = "remote writes and atomics need local writes too".to_owned();
            return Err(self.wrong(OPERATION, problem));
        }
        let len = len as u64;
        if len > self.0.caps.max_mr_size {
            let problem = format!("{len} bytes, at most {}", self.0.caps.max_mr_size);
            return Err(self.wrong(OPERATION, problem));
        }
        if self.0.mishaps.faults().refuse_registration() {
            return Err(Error::Os {
                device: self.0.name().to_owned(),
                operation: format!("register {len} bytes"),
                source: io::Error::from_raw_os_error(libc::ENOMEM),
            });
        }
        let base = base.as_ptr() as u64;
        let keys = self.0.table.enter(base, len, access, || u32::from_le_bytes(random()));
        let Some(keys) = keys else {
            return Err(self.wrong(OPERATION, format!("all {MAX_REGIONS} regions are in use")));
        };
        Ok(Arc::new(SoftRegion { dev: Arc::clone(&self.0), keys }))
    }

    fn channel(&self) -> Result<Arc<dyn Channel>, Error> {
        Ok(Arc::new(SoftChannel::new(self.0.name())?))
    }

    fn completion_queue(
        &self,
        depth: u32,
        channel: Option<&Arc<dyn Channel>>,
    ) -> Result<Arc<dyn CompletionQueue>, Error> {
        const OPERATION: &str = "make a completion queue";
        if depth == 0 || depth > MAX_CQE {
            return Err(self.wrong(OPERATION, format!("{depth} entries, 1 to {MAX_CQE}")));
        }
        let channel = match channel {
            None => None,
            Some(channel) => match channel.as_any().downcast_ref::<SoftChannel>() {
                Some(channel) => Some(channel.again()),
                None => {
                    let problem = "the channel is of another device".to_owned();
                    return Err(self.wrong(OPERATION, problem));
                }
            },
        };
        Ok(Arc::new(Cq::new(&self.0, depth, channel)))
    }

    fn shared_receive_queue(&self, depth: u32) -> Result<Arc<dyn SharedReceiveQueue>, Error> {
        if depth == 0 || depth > MAX_WR {
            let problem = format!("{depth} receives, 1 to {MAX_WR}");
            return Err(self.wrong("make a shared receive queue", problem));
        }
        Ok(Arc::new(Srq::new(&self.0, depth)))
    }

    fn queue_pair(&self, spec: &QpSpec<'_>) -> Result<Arc<dyn QueuePair>, Error> {
        self.check_spec(spec)?;
        Ok(Arc::new(Handle(self.0.make_qp(spec)?)))
    }

    fn address_handle(&self, port: u8, to: &Address) -> Result<Arc<dyn AddressHandle>, Error> {
        const OPERATION: &str = "make an address handle";
        self.check_port(OPERATION, port)?;
        if !to.global || to.gid.is_empty() || to.service == 0 {
            let problem = "the address needs a GID and a service number".to_owned();
            return Err(self.wrong(OPERATION, problem));
        }
        Ok(Arc::new(SoftAddress { to: SocketAddr::new(to.gid.ip(), to.service) }))
    }

    fn next_event(&self) -> Result<Option<AsyncEvent>, Error> {
        let mut events = self.0.events.lock().unwrap_or_else(PoisonError::into_inner);
        let event = events.pop_front();
        if events.is_empty() {
            let _ = self.0.event.read();
        }
        Ok(event)
    }

    fn event_fd(&self) -> BorrowedFd<'_> {
        self.0.event.as_fd()
    }
}
