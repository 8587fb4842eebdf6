//! What all objects of an open device share: who the device is, its sockets, its regions, its
//! counters.

use std::io;
use std::net::{IpAddr, TcpListener, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::socket::{setsockopt, sockopt};

use super::activity::Activity;
use super::config::SoftConfig;
use super::events::{AsyncEvents, Warnings};
use super::fault_injection::FaultInjection;
use super::handshake::Own;
use super::handshake::messages::{JobKey, Mode};
use super::limits::UDP_BUFFER;
use super::memory::Table;
use super::random::random;
use super::sealed_datagram::DatagramCipher;
use super::slots::SlotTable;
use super::waker::Waker;
use crate::{AsyncEvent, DeviceInfo, Error, Mtu};

/// The listener's name in the epoll.
pub(super) const LISTENER: u64 = u64::MAX;
/// The datagram socket's name in the epoll.
pub(super) const DATAGRAMS: u64 = u64::MAX - 1;

/// Tries to find a port number that is free for TCP and for UDP.
const PORT_TRIES: u32 = 64;

#[derive(Debug)]
pub(super) struct Context {
    pub(super) info: DeviceInfo,
    pub(super) key: JobKey,
    /// Streams are encrypted.
    pub(super) secure: bool,
    /// Datagrams are encrypted with this.
    pub(super) datagrams: Option<DatagramCipher>,
    pub(super) mtu: Mtu,
    pub(super) ip: IpAddr,
    /// Port number of the listener and of the datagram socket.
    pub(super) service: u16,
    pub(super) listener: TcpListener,
    pub(super) udp: UdpSocket,
    pub(super) epoll: Epoll,
    pub(super) regions: Table,
    pub(super) slots: SlotTable,
    pub(super) activity: Activity,
    pub(super) events: AsyncEvents,
    pub(super) warnings: Warnings,
    /// Connections without proof of the job key that are kept.
    pub(super) unproven: usize,
    pub(super) faults: FaultInjection,
    /// Which ports are up.
    ports: Vec<AtomicBool>,
}

/// A TCP and a UDP socket on the same port number.
fn sockets(name: &str, ip: IpAddr) -> Result<(TcpListener, UdpSocket, u16), Error> {
    let failed = |source| Error::os(name, format!("listen on {ip}"), source);
    let mut last = io::Error::other("no port number is free for TCP and UDP");
    for _ in 0..PORT_TRIES {
        let listener = TcpListener::bind((ip, 0)).map_err(&failed)?;
        let port = listener.local_addr().map_err(&failed)?.port();
        match UdpSocket::bind((ip, port)) {
            Ok(udp) => {
                listener.set_nonblocking(true).map_err(&failed)?;
                udp.set_nonblocking(true).map_err(&failed)?;
                // Many peers ask at once: a larger buffer than usual, as far as the system grants
                // it.
                let _ = setsockopt(&udp, sockopt::RcvBuf, &UDP_BUFFER);
                return Ok((listener, udp, port));
            }
            Err(error) => last = error,
        }
    }
    Err(failed(last))
}

impl AsFd for Context {
    /// Readable when a socket of the device is ready.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.0.as_fd()
    }
}

impl Context {
    pub(super) fn open(
        info: &DeviceInfo,
        config: &SoftConfig,
        unproven: usize,
        faults: FaultInjection,
        waker: &Arc<Waker>,
    ) -> Result<Self, Error> {
        let SoftConfig { bind: ip, key, secure, mtu, .. } = *config;
        let name = info.name.as_str();
        let (listener, udp, service) = sockets(name, ip)?;
        let failed = |source| Error::os(name, "watch its sockets", source);
        let watch = || {
            let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
            let edge = EpollFlags::EPOLLIN | EpollFlags::EPOLLET;
            epoll.add(&listener, EpollEvent::new(edge, LISTENER))?;
            epoll.add(&udp, EpollEvent::new(EpollFlags::EPOLLIN, DATAGRAMS))?;
            Ok(epoll)
        };
        let epoll = watch().map_err(|errno: nix::errno::Errno| failed(errno.into()))?;
        Ok(Self {
            info: info.clone(),
            key,
            secure,
            datagrams: secure.then(|| DatagramCipher::new(&key, random())),
            mtu,
            ip,
            service,
            listener,
            udp,
            epoll,
            regions: Table::new(),
            slots: SlotTable::new(),
            activity: Activity::new(waker),
            events: AsyncEvents::new().map_err(&failed)?,
            warnings: Warnings::new(name),
            unproven,
            faults,
            ports: (0..info.ports).map(|_| AtomicBool::new(true)).collect(),
        })
    }

    pub(super) fn name(&self) -> &str {
        &self.info.name
    }

    /// What the device proves to peers, and how its streams go on.
    pub(super) const fn own(&self) -> Own<'_> {
        (&self.key, Mode::of(self.secure))
    }

    /// Takes a port up or down, and reports a change.
    pub(super) fn set_port(&self, port: u8, up: bool) {
        let place = self.ports.get(usize::from(port).wrapping_sub(1));
        if place.is_some_and(|place| place.swap(up, Ordering::Relaxed) != up) {
            let event =
                if up { AsyncEvent::PortActive { port } } else { AsyncEvent::PortDown { port } };
            self.events.push(event);
        }
    }

    pub(super) fn is_up(&self, port: u8) -> bool {
        let place = self.ports.get(usize::from(port).wrapping_sub(1));
        place.is_some_and(|up| up.load(Ordering::Relaxed))
    }

    /// Whether a fault script lets nothing through between here and `address`.
    pub(super) fn is_unreachable(&self, address: IpAddr) -> bool {
        self.faults.is_active() && self.faults.is_unreachable(address, Instant::now())
    }

    pub(super) fn invalid(&self, operation: &'static str, problem: impl Into<String>) -> Error {
        Error::argument(self.name(), operation, problem)
    }
}
