//! The adapter as its users see it. (The suite for every fabric is `fabric::conformance`.)

mod bursts;
mod handshake;
mod kill;
mod lock_contention;
mod partition;
mod rc;
mod secure;
mod sleep;
mod speed;
mod stress;

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::device::SoftDevice;
use super::queue_handles::CqHandle;
use super::{SoftConfig, open};
use crate::{
    Access, Address, Completion, CompletionQueue, Device, Fabric, Gid, Mtu, QpSpec, QpType,
    QueuePair, RcPeer, Region, Retry, Sge,
};

pub(super) const KEY: [u8; 16] = *b"key of the tests";

pub(super) fn config() -> SoftConfig {
    SoftConfig {
        devices: 2,
        ports: 1,
        bind: "127.0.0.1".parse().unwrap(),
        key: KEY,
        secure: false,
        mtu: Mtu::B4096,
        faults: None,
    }
}

pub(super) fn fabric() -> Arc<dyn Fabric> {
    open(&config()).unwrap()
}

/// Registered memory of a test.
pub(super) struct Memory {
    region: Arc<dyn Region>,
    words: Box<[u64]>,
}

impl Memory {
    pub(super) fn new(device: &Arc<dyn Device>, len: usize, access: Access) -> Self {
        let mut words = vec![0_u64; len.div_ceil(8)].into_boxed_slice();
        let base = NonNull::new(words.as_mut_ptr().cast()).unwrap();
        let region = super::memory::tests_register(&**device, base, len, access);
        Self { region, words }
    }

    pub(super) fn addr(&self) -> u64 {
        self.words.as_ptr() as u64
    }

    pub(super) fn sge(&self, from: u64, len: u32) -> Sge {
        Sge { addr: self.addr() + from, len, lkey: self.region.lkey() }
    }

    pub(super) fn rkey(&self) -> u32 {
        self.region.rkey()
    }

    pub(super) fn fill(&mut self, seed: u64) {
        for (index, word) in self.words.iter_mut().enumerate() {
            *word = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(index as u64);
        }
    }

    pub(super) fn words(&self) -> &[u64] {
        &self.words
    }
}

/// One end: a device with a queue pair and its queue.
pub(super) struct End {
    pub(super) qp: Arc<dyn QueuePair>,
    pub(super) cq: Arc<dyn CompletionQueue>,
    pub(super) device: Arc<dyn Device>,
    pub(super) _fabric: Arc<dyn Fabric>,
}

impl End {
    pub(super) fn new() -> Self {
        Self::with(fabric(), 64)
    }

    pub(super) fn with(fabric: Arc<dyn Fabric>, depth: u32) -> Self {
        let device = fabric.open(0).unwrap();
        let cq = device.completion_queue(4 * depth, None).unwrap();
        let qp = device.queue_pair(&spec(&cq, depth)).unwrap();
        Self { qp, cq, device, _fabric: fabric }
    }

    /// The queue as the adapter has it.
    /// The device as its own threads see it.
    pub(super) fn soft_device(&self) -> &SoftDevice {
        &(&*self.cq as &dyn std::any::Any).downcast_ref::<CqHandle>().unwrap().device
    }

    pub(super) fn address(&self) -> Address {
        let port = self.device.port(1).unwrap();
        Address { service: port.service, gid: port.gids[0].gid, global: true, ..Address::default() }
    }

    pub(super) fn connect(&self, to: Address, qpn: u32, retry: &Retry) {
        let peer = RcPeer { address: to, qpn, psn: 7, mtu: Mtu::B4096, rd_atom: 4 };
        self.qp.to_init(1, 0, 0, Access::ALL).unwrap();
        self.qp.to_rtr(Some(&peer), retry).unwrap();
        self.qp.to_rts(7, 4, retry).unwrap();
    }

    pub(super) fn wait(&self) -> Completion {
        let end = Instant::now() + Duration::from_secs(20);
        let mut one = [Completion::EMPTY];
        while self.cq.poll(&mut one).unwrap() == 0 {
            assert!(Instant::now() < end, "no completion");
        }
        one[0]
    }
}

/// Tells the other threads to end when this one fails.
pub(super) struct Failure<'a>(pub(super) &'a AtomicBool);

impl Drop for Failure<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}

pub(super) fn spec(cq: &Arc<dyn CompletionQueue>, depth: u32) -> QpSpec<'_> {
    QpSpec {
        qp_type: QpType::Rc,
        send_cq: cq,
        recv_cq: cq,
        srq: None,
        max_send: depth,
        max_recv: depth,
        send_sge: 4,
        recv_sge: 1,
        inline: 68 << 10,
    }
}

/// Two connected ends of two fabrics.
pub(super) fn pair_with(retry: &Retry) -> (End, End) {
    let (a, b) = (End::new(), End::new());
    a.connect(b.address(), b.qp.number(), retry);
    b.connect(a.address(), a.qp.number(), retry);
    (a, b)
}

pub(super) fn pair() -> (End, End) {
    pair_with(&Retry::default())
}

#[test]
fn devices_and_ports_are_as_configured() {
    let fabric = fabric();
    assert_eq!(fabric.devices().len(), 2);
    let device = fabric.open(1).unwrap();
    assert_eq!(device.info().name, "soft1");
    let port = device.port(1).unwrap();
    assert_eq!(port.gids[0].gid, Gid::of("127.0.0.1".parse().unwrap()));
    assert!(device.port(0).is_err() && device.port(2).is_err());
    assert!(fabric.open(2).is_err());
}
