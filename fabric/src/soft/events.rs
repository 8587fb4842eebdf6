//! What a device tells its user without being asked: async events, and warnings.

use std::collections::{HashSet, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use nix::sys::eventfd::{EfdFlags, EventFd};
use settings::log::FABRIC;
use settings::say;

use super::handshake::messages::Rejection;
use super::lock::{Wait, try_lock_for};
use super::record::Tampered;
use crate::AsyncEvent;

/// Async events that wait to be read; more are lost.
const MAX_EVENTS: usize = 1024;

#[derive(Debug)]
pub(super) struct AsyncEvents {
    queue: Mutex<VecDeque<AsyncEvent>>,
    event: EventFd,
}

impl AsyncEvents {
    pub(super) fn new() -> io::Result<Self> {
        let event = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        Ok(Self { queue: Mutex::default(), event })
    }

    pub(super) fn push(&self, event: AsyncEvent) {
        let Some(mut queue) = try_lock_for(&self.queue, Wait::Post) else { return };
        if queue.len() < MAX_EVENTS {
            queue.push_back(event);
            let _ = self.event.write(1);
        }
    }

    pub(super) fn pop(&self) -> Option<AsyncEvent> {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let event = queue.pop_front();
        if queue.is_empty() {
            let _ = self.event.read();
        }
        event
    }

    /// Readable when an event waits.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

/// Warnings of a device. Each is given once.
#[derive(Debug)]
pub(super) struct Warnings {
    device: String,
    pub(super) rejections: Mutex<HashSet<Rejection>>,
    shortage: AtomicBool,
    /// Connections that were rejected.
    pub(super) rejected: AtomicU64,
    /// Connections that ended because somebody changed what went over them.
    pub(super) tampered: AtomicU64,
    /// Datagrams that were dropped.
    pub(super) dropped: AtomicU64,
}

impl Warnings {
    pub(super) fn new(device: &str) -> Self {
        Self {
            device: device.to_owned(),
            rejections: Mutex::default(),
            shortage: AtomicBool::new(false),
            rejected: AtomicU64::new(0),
            tampered: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
        }
    }

    /// A datagram had no receiver, or no valid tag.
    pub(super) fn datagram_dropped(&self) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }

    /// A handshake failed. Each reason is printed once.
    pub(super) fn connection_rejected(&self, why: Rejection, peer: SocketAddr) {
        self.rejected.fetch_add(1, Ordering::Relaxed);
        let first =
            try_lock_for(&self.rejections, Wait::Post).is_some_and(|mut seen| seen.insert(why));
        if first && why != Rejection::Closed {
            let (what, device) = (why.outcome(), &self.device);
            say!(WARN, FABRIC, "{device}: {what} a connection with {peer}: {why}");
        }
    }

    /// What came over an encrypted stream is not what the peer sent. Each connection ends with it.
    pub(super) fn stream_tampered(&self, why: Tampered, peer: Option<SocketAddr>, qpn: u32) {
        self.tampered.fetch_add(1, Ordering::Relaxed);
        let peer = peer.map_or_else(|| "a peer".to_owned(), |peer| peer.to_string());
        say!(
            WARN,
            FABRIC,
            "{}: ended the encrypted connection of queue pair {qpn:#x} with {peer}: {why}; see who is on the network between both hosts",
            self.device
        );
    }

    /// This host does not let the device do something (no descriptors, no route). The device tries
    /// again; printed once.
    pub(super) fn operation_failed(&self, operation: std::fmt::Arguments<'_>, error: &io::Error) {
        // A peer that is gone is noticed elsewhere.
        let gone = error.kind() == io::ErrorKind::ConnectionRefused;
        if !gone && !self.shortage.swap(true, Ordering::Relaxed) {
            let advice = match error.raw_os_error() {
                Some(libc::EMFILE) => "; raise the limit on open files (ulimit -n)",
                _ => "",
            };
            say!(WARN, FABRIC, "{}: cannot {operation}: {error}{advice}", self.device);
        }
    }
}
