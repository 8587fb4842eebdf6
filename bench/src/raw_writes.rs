//! The reference of puts and gets on an adapter: one write, or read, and its completion, or a flood
//! of large writes, by verbs alone.

use std::sync::Arc;

use fabric::{
    Access, Address, Completion, CompletionQueue, Data, GidKind, LinkLayer, Operation, PortInfo,
    QpSpec, QpType, QueuePair, RcPeer, Region, Retry, SendWr, Sge, Status,
};

use crate::arena::{Arena, Result};

/// Port of the first adapter.
const PORT: u8 = 1;
/// First packet sequence number of both.
const PSN: u32 = 7;
/// Most requests that are under way together.
const REQUESTS: u32 = 16;
/// Bytes of a write.
const LEN: usize = 8;
/// The same in the width that devices count in.
const BYTES: u32 = 8;

/// Two queue pairs of this process, connected with each other over the first adapter.
pub struct RawWrites {
    from: Arc<dyn QueuePair>,
    _to: Arc<dyn QueuePair>,
    ends: Arc<dyn CompletionQueue>,
    region: Arc<dyn Region>,
    remote: u64,
}

/// Where a port is: by its IPv4 GID where it has one.
fn address(port: &PortInfo) -> Result<Address> {
    let modern = port.gids.iter().filter(|entry| entry.kind != GidKind::IbOrRoceV1);
    let found = modern.clone().find(|entry| entry.gid.ip().is_ipv4());
    let gid = found.or(port.gids.first()).ok_or("the adapter has no GID")?;
    Ok(Address {
        lid: port.lid,
        service: port.service,
        gid: gid.gid,
        sgid_index: gid.index,
        global: port.link == LinkLayer::Ethernet || port.lid == 0,
    })
}

impl RawWrites {
    /// Writes will go to the beginning of the `len` bytes at `offset` of `memory`.
    pub fn new(memory: &Arena, offset: usize, len: usize) -> Result<Self> {
        let device = fabric::verbs::open(None)?.open(0)?;
        let port = device.port(PORT)?;
        let ends = device.completion_queue(REQUESTS, None)?;
        let make = || {
            device.queue_pair(&QpSpec {
                qp_type: QpType::Rc,
                send_cq: &ends,
                recv_cq: &ends,
                srq: None,
                max_send: REQUESTS,
                max_recv: 4,
                send_sge: 1,
                recv_sge: 1,
                inline: 64,
            })
        };
        let (from, to) = (make()?, make()?);
        for (own, other) in [(&from, &to), (&to, &from)] {
            let peer = RcPeer {
                address: address(&port)?,
                qpn: other.number(),
                psn: PSN,
                mtu: port.active_mtu,
                rd_atom: 1,
            };
            own.to_init(PORT, 0, 0, Access::ALL)?;
            own.to_rtr(Some(&peer), &Retry::default())?;
            own.to_rts(PSN, 1, &Retry::default())?;
        }
        let region = memory.register(&*device, offset, len)?;
        let remote = memory.bytes(offset, len).as_ptr() as u64;
        Ok(Self { from, _to: to, ends, region, remote })
    }

    /// Reads 8 bytes into a line of the same memory, and asks for the completion until it is there.
    pub fn read(&self) -> Result<()> {
        let operation = Operation::Read { remote: self.remote, rkey: self.region.rkey() };
        let into = Sge { addr: self.remote + LEN as u64, len: BYTES, lkey: self.region.lkey() };
        self.complete(operation, Data::Gather(&[into]))
    }

    /// Writes 8 bytes that go with the request, and asks for the completion until it is there.
    pub fn write(&self, bytes: &[u8; LEN]) -> Result<()> {
        let operation = Operation::Write { remote: self.remote, rkey: self.region.rkey() };
        self.complete(operation, Data::Inline(&[bytes]))
    }

    /// Writes what follows the first `len` bytes of the memory to its beginning, in `count` (at most
    /// 16) requests of `len` bytes that are under way together, and waits for the last.
    pub fn write_many(&self, count: usize, len: u32) -> Result<()> {
        self.many(Operation::Write { remote: self.remote, rkey: self.region.rkey() }, count, len)
    }

    /// Reads the beginning of the memory into what follows its first `len` bytes; the rest as
    /// [`Self::write_many`].
    pub fn read_many(&self, count: usize, len: u32) -> Result<()> {
        self.many(Operation::Read { remote: self.remote, rkey: self.region.rkey() }, count, len)
    }

    fn many(&self, operation: Operation, count: usize, len: u32) -> Result<()> {
        for number in 1..=count as u64 {
            let addr = self.remote + number * u64::from(len);
            let own = [Sge { addr, len, lkey: self.region.lkey() }];
            self.post(operation, Data::Gather(&own))?;
        }
        (0..count).try_for_each(|_| self.take())
    }

    fn complete(&self, operation: Operation, data: Data<'_>) -> Result<()> {
        self.post(operation, data)?;
        self.take()
    }

    fn post(&self, operation: Operation, data: Data<'_>) -> Result<()> {
        Ok(self.from.post_send(&SendWr { id: 1, operation, data, signaled: true, to: None })?)
    }

    /// Waits for the end of one request.
    fn take(&self) -> Result<()> {
        let mut end = [Completion::EMPTY];
        while self.ends.poll(&mut end)? == 0 {
            std::hint::spin_loop();
        }
        match end[0].status {
            Status::Success => Ok(()),
            other => Err(format!("a request ended with {other:?}").into()),
        }
    }
}
