//! What polls of the software adapter cost by the number of its connections. Usage:
//! `bench_polls PAIRS`
//!
//! Two devices of one process are connected by 1 and by 1,000 pairs of queue pairs, each of which has
//! carried a message. Prints nanoseconds of a poll that finds nothing, and microseconds of a message
//! there and back between one pair while the others rest, as `KEY VALUE` lines; samples take turns.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bench::arena::Result;
use fabric::soft::{SoftConfig, open};
use fabric::{
    Access, Address, Completion, CompletionQueue, Data, Device, Fabric, Mtu, Opcode, Operation,
    QpSpec, QpType, QueuePair, RcPeer, RecvWr, Retry, SendWr, Sge,
};
use testkit::report::show;

const MANY: usize = 1000;
/// Requests that a queue pair has room for.
const DEPTH: u32 = 4;
const POLLS: u32 = 20_000;
const TRIPS: u32 = 2_000;
/// Polls after which a stream that has carried something rests.
const COOL: u32 = 2_000;
/// Longest that a message may take.
const LIMIT: Duration = Duration::from_secs(20);

/// A device with its queue pairs.
struct End {
    device: Arc<dyn Device>,
    cq: Arc<dyn CompletionQueue>,
    qps: Vec<Arc<dyn QueuePair>>,
    _fabric: Arc<dyn Fabric>,
}

impl End {
    fn new(count: usize) -> Result<Self> {
        let config = SoftConfig {
            devices: 1,
            ports: 1,
            bind: "127.0.0.1".parse()?,
            key: *b"cost of its poll",
            secure: false,
            mtu: Mtu::B4096,
            faults: None,
        };
        let fabric = open(&config)?;
        let device = fabric.open(0)?;
        let cq = device.completion_queue(4 * DEPTH * u32::try_from(count)?, None)?;
        let spec = QpSpec {
            qp_type: QpType::Rc,
            send_cq: &cq,
            recv_cq: &cq,
            srq: None,
            max_send: DEPTH,
            max_recv: DEPTH,
            send_sge: 1,
            recv_sge: 1,
            inline: 8,
        };
        let qps =
            (0..count).map(|_| device.queue_pair(&spec)).collect::<std::result::Result<_, _>>()?;
        Ok(Self { device, cq, qps, _fabric: fabric })
    }

    fn address(&self) -> Result<Address> {
        let port = self.device.port(1)?;
        let gid = port.gids.first().ok_or("a port without address")?.gid;
        Ok(Address { service: port.service, gid, global: true, ..Address::default() })
    }

    fn connect(&self, to: &Self) -> Result<()> {
        let (address, retry) = (to.address()?, Retry::default());
        for (own, other) in self.qps.iter().zip(&to.qps) {
            let qpn = other.number();
            let peer = RcPeer { address, qpn, psn: 7, mtu: Mtu::B4096, rd_atom: 1 };
            own.to_init(1, 0, 0, Access::ALL)?;
            own.to_rtr(Some(&peer), &retry)?;
            own.to_rts(7, 1, &retry)?;
        }
        Ok(())
    }

    fn poll(&self) -> Result<Option<Opcode>> {
        let mut one = [Completion::EMPTY];
        Ok((self.cq.poll(&mut one)? > 0).then_some(one[0].opcode))
    }

    /// A message to the other end of a queue pair, which takes it and acknowledges it.
    fn send(&self, to: &Self, at: usize) -> Result<()> {
        let (own, other) = (self.qps.get(at).ok_or("no such")?, to.qps.get(at).ok_or("no such")?);
        other.post_receive(&RecvWr { id: 0, buffer: Sge::default() })?;
        let (operation, data) = (Operation::Send { imm: Some(1) }, Data::Inline(&[]));
        own.post_send(&SendWr { id: 0, operation, data, signaled: true, to: None })?;
        let (begin, mut received, mut sent) = (Instant::now(), false, false);
        while !(received && sent) {
            if begin.elapsed() > LIMIT {
                return Err("a message did not arrive".into());
            }
            received |= to.poll()? == Some(Opcode::Receive);
            sent |= self.poll()? == Some(Opcode::Send);
        }
        Ok(())
    }
}

/// Both ends of connections.
struct Ends([End; 2]);

impl Ends {
    fn new(count: usize) -> Result<Self> {
        let [a, b] = [End::new(count)?, End::new(count)?];
        a.connect(&b)?;
        b.connect(&a)?;
        for at in 0..count {
            a.send(&b, at)?;
            b.send(&a, at)?;
        }
        Ok(Self([a, b]))
    }

    fn tell(&self) -> Result<()> {
        let Self([a, b]) = self;
        for _ in 0..COOL {
            a.poll()?;
            b.poll()?;
        }
        let begin = Instant::now();
        for _ in 0..POLLS {
            a.poll()?;
        }
        let poll = begin.elapsed().as_secs_f64() * 1e9 / f64::from(POLLS);
        let begin = Instant::now();
        for _ in 0..TRIPS {
            a.send(b, 0)?;
            b.send(a, 0)?;
        }
        let trip = begin.elapsed().as_secs_f64() * 1e6 / f64::from(TRIPS);
        let count = a.qps.len();
        show(&format!("poll_{count}_ns {poll:.1}\ntrip_{count}_us {trip:.2}\n"));
        Ok(())
    }
}

fn main() -> Result<()> {
    let pairs: u32 = std::env::args().nth(1).ok_or("usage: bench_polls PAIRS")?.parse()?;
    let ends = [Ends::new(1)?, Ends::new(MANY)?];
    for _ in 0..pairs {
        for one in &ends {
            one.tell()?;
        }
    }
    Ok(())
}
