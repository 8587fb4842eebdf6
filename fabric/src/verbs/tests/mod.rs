//! Tests against a library: the fake one, and the real one where a device is.

mod allocations;
mod device;
mod fake;
mod layout;
mod suite;

use std::ptr::NonNull;
use std::sync::Arc;

use crate::{
    Access, Address, Completion, CompletionQueue, Device, GidKind, LinkLayer, PortInfo, PortState,
    QpSpec, QpType, QueuePair, RcPeer, Region, Retry, Sge,
};

/// A directory of a test, removed with what is in it.
pub(super) struct Room(pub(super) std::path::PathBuf);

impl Room {
    pub(super) fn new(name: &str) -> Self {
        let name = format!("fabric-verbs-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).expect("a directory");
        Self(path)
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

/// Memory with its registration, in the order in which they must go.
pub(super) struct Memory {
    pub(super) region: Arc<dyn Region>,
    bytes: Vec<u64>,
}

impl Memory {
    pub(super) fn new(device: &dyn Device, len: usize) -> Self {
        let mut bytes = vec![0_u64; len.div_ceil(8)];
        let base = NonNull::new(bytes.as_mut_ptr().cast::<u8>()).expect("vectors are not null");
        // SAFETY: the vector outlives the region (field order), and is read only when nothing is in
        // flight.
        let region = unsafe { device.register(base, len, Access::ALL) }.expect("register");
        Self { region, bytes }
    }

    pub(super) fn addr(&self) -> u64 {
        self.bytes.as_ptr().expose_provenance() as u64
    }

    pub(super) fn sge(&self, offset: u64, len: u32) -> Sge {
        Sge { addr: self.addr() + offset, len, lkey: self.region.lkey() }
    }

    pub(super) fn fill(&mut self, offset: usize, bytes: &[u8]) {
        for (at, byte) in bytes.iter().enumerate() {
            let place = self.bytes.as_mut_ptr().cast::<u8>().wrapping_add(offset + at);
            // SAFETY: inside the vector by the tests' numbers; volatile because the device reads
            // it.
            unsafe { place.write_volatile(*byte) };
        }
    }

    pub(super) fn read(&self, offset: usize, len: usize) -> Vec<u8> {
        assert!(offset + len <= self.bytes.len() * 8, "outside");
        let one = |at| {
            let place = self.bytes.as_ptr().cast::<u8>().wrapping_add(at);
            // SAFETY: inside; volatile because the device wrote it.
            unsafe { place.read_volatile() }
        };
        (offset..offset + len).map(one).collect()
    }
}

/// The address of a port from itself.
pub(super) fn own_address(port: &PortInfo) -> Address {
    let best = port
        .gids
        .iter()
        .filter(|entry| entry.kind == GidKind::RoceV2)
        .max_by_key(|entry| entry.gid.ip().is_ipv4())
        .or_else(|| port.gids.first());
    Address {
        lid: port.lid,
        service: port.service,
        gid: best.map(|entry| entry.gid).unwrap_or_default(),
        sgid_index: best.map_or(0, |entry| entry.index),
        global: port.link == LinkLayer::Ethernet,
    }
}

/// The first usable port.
pub(super) fn active_port(device: &dyn Device) -> Option<PortInfo> {
    let ports = 1..=device.info().ports;
    ports.filter_map(|number| device.port(number).ok()).find(|port| port.state == PortState::Active)
}

pub(super) fn spec<'a>(qp_type: QpType, cq: &'a Arc<dyn CompletionQueue>) -> QpSpec<'a> {
    QpSpec {
        qp_type,
        send_cq: cq,
        recv_cq: cq,
        srq: None,
        max_send: 16,
        max_recv: 16,
        send_sge: 4,
        recv_sge: 1,
        inline: 128,
    }
}

/// Connects two queue pairs of one port with each other.
pub(super) fn connect(port: &PortInfo, one: &dyn QueuePair, other: &dyn QueuePair) {
    for (own, peer, psn) in [(one, other, 100), (other, one, 200)] {
        own.to_init(port.number, 0, 0, Access::ALL).expect("INIT");
        let peer = RcPeer {
            address: own_address(port),
            qpn: peer.number(),
            psn: 300 - psn,
            mtu: port.active_mtu,
            rd_atom: 4,
        };
        own.to_rtr(Some(&peer), &Retry::default()).expect("RTR");
    }
    one.to_rts(100, 4, &Retry::default()).expect("RTS");
    other.to_rts(200, 4, &Retry::default()).expect("RTS");
}

/// Waits for completions. Emulated machines are slow.
pub(super) fn wait(cq: &dyn CompletionQueue, count: usize) -> Vec<Completion> {
    let mut found = Vec::new();
    let start = std::time::Instant::now();
    while found.len() < count {
        let mut room = [Completion::EMPTY; 8];
        let got = cq.poll(&mut room).expect("poll");
        found.extend_from_slice(&room[..got]);
        assert!(start.elapsed().as_secs() < 30, "only {found:?} of {count} after 30 s");
    }
    found
}
