//! Any bytes from a peer that has the key, as requests to a queue pair or as answers to its own
//! requests: its queue pair may fail; nothing panics, no memory changes or goes out that the peer
//! has no right to, nothing completes that was not posted.
//!
//! An input is flags (bit 0: answers instead of requests; bit 1: the peer's number is the larger
//! one, which decides who sends messages back on a stream; bits 4-7: bytes of a piece, as a power
//! of two) and items of 6 bytes: kind, flags, length, number, place, key. Some items take bytes
//! behind them as they are.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use fabric::conformance::Buffer;
use fabric::soft::testing::handshake as hello;
use fabric::soft::testing::wire::{Refusal, Request, Response};
use fabric::soft::{JobKey, SoftConfig, open};
use fabric::{
    Access, Address, Completion, CompletionQueue, Data, Device, Gid, Mtu, Operation, QpSpec,
    QpType, QueuePair, RcPeer, RecvWr, Retry, SendWr,
};

const KEY: JobKey = *b"0123456789abcdef";
const MODE: hello::Mode = hello::Mode::Plain;
const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const ROOM: usize = 1 << 16;
/// What stands in memory that the peer may not read.
const SECRET: u8 = 0xa5;
const RECEIVES: u32 = 6;
/// A peer that is not done by then is left: it waits for receives.
const LIMIT: Duration = Duration::from_millis(30);

struct Target {
    device: Arc<dyn Device>,
    service: u16,
    listener: TcpListener,
    /// All may be done to it; it may be read; nothing may be done to it by peers.
    memory: [Buffer; 3],
}

fn target() -> &'static Target {
    static TARGET: OnceLock<Target> = OnceLock::new();
    TARGET.get_or_init(|| {
        let config = SoftConfig {
            devices: 1,
            ports: 1,
            bind: HERE,
            key: KEY,
            secure: false,
            mtu: Mtu::B4096,
            faults: None,
        };
        let device = open(&config).and_then(|fabric| fabric.open(0)).expect("a device");
        let listener = TcpListener::bind((HERE, 0)).expect("a socket");
        listener.set_nonblocking(true).expect("a socket that does not block");
        let service = device.port(1).expect("the port").service;
        let rights = [Access::ALL, Access::REMOTE_READ, Access::LOCAL_WRITE];
        let memory =
            rights.map(|access| Buffer::new(&*device, ROOM, access).expect("registered memory"));
        memory[2].fill(SECRET);
        Target { device, service, listener, memory }
    })
}

/// A length: small ones as they are, others as powers of two and their neighbours.
const fn length(byte: u8) -> u32 {
    match byte {
        0..128 => byte as u32,
        _ => (1_u32 << (byte & 31)).wrapping_add((byte as u32 >> 5 & 3).wrapping_sub(1)),
    }
}

/// What the items of an input say, as bytes of a stream.
fn stream(mut rest: &[u8], memory: &[Buffer; 3]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut next = 0_u32;
    while let Some((&[kind, flags, len, number, place, key], tail)) = rest.split_first_chunk::<6>()
    {
        rest = tail;
        // Mostly the number that is due.
        let msn = next.wrapping_add_signed(i32::from(number.cast_signed()));
        let buffer = &memory[usize::from(key % 3)];
        let remote = buffer.addr(length(place) as usize);
        let rkey = buffer.rkey() ^ u32::from(key >> 7);
        let len = length(len);
        let (operation, credit_limit) = match kind % 10 {
            0 => (Operation::Send { imm: None }, number.into()),
            1 => (Operation::Send { imm: Some(7) }, 1 << (number & 31)),
            2 => (Operation::Write { remote, rkey }, 0),
            3 => (Operation::Read { remote, rkey }, 0),
            4 => (Operation::FetchAdd { remote, rkey, add: 0 }, 0),
            9 => (Operation::WriteImm { remote, rkey, imm: 7 }, 0),
            5 => {
                out.extend_from_slice(&Response::Ack { done: msn }.encode());
                continue;
            }
            6 => {
                out.extend_from_slice(&Response::Data { msn, len }.encode());
                out.resize(out.len() + (len as usize).min(ROOM), 1);
                next = next.wrapping_add(1);
                continue;
            }
            7 => {
                let why =
                    [Refusal::Invalid, Refusal::Access, Refusal::Operation, Refusal::NotReady];
                let why = why[usize::from(flags % 4)];
                out.extend_from_slice(&Response::Nak { msn, why }.encode());
                continue;
            }
            _ => {
                let (raw, tail) = rest.split_at(rest.len().min(len as usize));
                out.extend_from_slice(raw);
                rest = tail;
                continue;
            }
        };
        let ack = (flags & 1 == 1).then_some(u32::from(flags >> 4));
        let want_ack = flags & 2 == 2;
        let request = Request { operation, credit_limit, len, msn, ack, want_ack };
        out.extend_from_slice(&request.encode());
        out.resize(out.len() + request.body().min(ROOM), 2);
        next = next.wrapping_add(1);
    }
    out
}

/// The peer's side of a stream.
struct Peer {
    stream: TcpStream,
    got: Vec<u8>,
}

impl Peer {
    fn new(stream: TcpStream) -> Option<Self> {
        stream.set_nonblocking(true).ok()?;
        stream.set_nodelay(true).ok()?;
        Some(Self { stream, got: Vec::new() })
    }

    /// Reads what there is. `false`: the other side has closed it.
    fn read(&mut self) -> bool {
        let mut some = [0; 4096];
        loop {
            match self.stream.read(&mut some) {
                Ok(0) => return false,
                Ok(count) => self.got.extend_from_slice(&some[..count]),
                Err(error) => return error.kind() == ErrorKind::WouldBlock,
            }
        }
    }

    /// The next bytes, when they are there.
    fn take<const N: usize>(&mut self, own: &mut Own) -> Option<[u8; N]> {
        while self.got.len() < N {
            own.poll();
            if !self.read() || own.is_late() {
                return None;
            }
        }
        self.got.drain(..N).collect::<Vec<_>>().try_into().ok()
    }

    /// Introduces itself as a requester.
    fn asks(&mut self, own: &mut Own, target: hello::Target) -> Option<()> {
        let nonce = [9; 16];
        self.stream.write_all(&hello::hello(MODE, &nonce)).ok()?;
        let answer = self.take::<{ hello::CHALLENGE }>(own)?;
        let proof = hello::prove(&KEY, MODE, &nonce, &answer, target).ok()?;
        self.stream.write_all(&proof).ok()?;
        let verdict = self.take::<{ hello::VERDICT }>(own)?;
        (hello::read_verdict(verdict) == Ok(true)).then_some(())
    }

    /// Hears a requester out.
    fn answers(&mut self, own: &mut Own) -> Option<()> {
        let theirs = hello::read_hello(&self.take::<{ hello::HELLO }>(own)?).ok()?.0;
        self.stream.write_all(&hello::challenge(&KEY, MODE, &theirs, &[8; 16])).ok()?;
        let proof = self.take::<{ hello::PROOF }>(own)?;
        hello::check(&KEY, MODE, &theirs, &[8; 16], &proof).ok()?;
        self.stream.write_all(&hello::verdict(true)).ok()
    }

    /// Says `bytes` in pieces and waits until the other side closes the stream or nothing more
    /// happens.
    fn say(&mut self, own: &mut Own, bytes: &[u8], piece: usize) {
        let mut pieces = bytes.chunks(piece);
        let mut rest: &[u8] = &[];
        loop {
            own.poll();
            if rest.is_empty() {
                rest = pieces.next().unwrap_or_default();
            }
            match self.stream.write(rest) {
                _ if rest.is_empty() => {
                    let _ = self.stream.shutdown(std::net::Shutdown::Write);
                }
                Ok(count) => rest = &rest[count..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => return,
            }
            if !self.read() || own.is_late() {
                return;
            }
        }
    }
}

/// The queue pair that the peer talks to.
struct Own {
    qp: Arc<dyn QueuePair>,
    queue: Arc<dyn CompletionQueue>,
    seen: u32,
    end: Instant,
}

impl Own {
    fn new(target: &Target, service: u16, theirs: u32) -> Self {
        let queue = target.device.completion_queue(64, None).expect("a queue");
        let spec = QpSpec {
            qp_type: QpType::Rc,
            send_cq: &queue,
            recv_cq: &queue,
            srq: None,
            max_send: 8,
            max_recv: 8,
            send_sge: 1,
            recv_sge: 1,
            inline: 64,
        };
        let qp = target.device.queue_pair(&spec).expect("a queue pair");
        let retry = Retry { timeout: 10, count: 1, ..Retry::default() };
        let address = Address { service, gid: Gid::of(HERE), global: true, ..Address::default() };
        let peer = RcPeer { address, qpn: theirs, psn: 7, mtu: Mtu::B4096, rd_atom: 4 };
        qp.to_init(1, 0, 0, Access::ALL).expect("INIT");
        for id in 0..RECEIVES {
            let buffer = target.memory[0].sge(id as usize * 4096, 4096);
            qp.post_receive(&RecvWr { id: id.into(), buffer }).expect("a receive");
        }
        qp.to_rtr(Some(&peer), &retry).expect("RTR");
        qp.to_rts(7, 4, &retry).expect("RTS");
        Self { qp, queue, seen: 0, end: Instant::now() + LIMIT }
    }

    fn is_late(&self) -> bool {
        Instant::now() > self.end
    }

    fn poll(&mut self) {
        let mut some = [Completion::EMPTY; 8];
        let count = self.queue.poll(&mut some).expect("a poll");
        for completion in &some[..count] {
            assert!(completion.id < 16, "{completion:?} was never posted");
            self.seen += 1;
        }
        assert!(self.seen <= RECEIVES + 4, "more ends than requests");
    }

    /// One of each, for the peer to answer.
    fn ask(&self, target: &Target) {
        let (remote, rkey) = (64, 5);
        let piece = target.memory[0].sge(0, 64);
        let word = target.memory[0].sge(128, 8);
        let both = [
            (Operation::Send { imm: Some(1) }, Data::Inline(&[b"a message"])),
            (Operation::Write { remote, rkey }, Data::Gather(&[piece])),
            (Operation::Read { remote, rkey }, Data::Gather(&[piece])),
            (Operation::FetchAdd { remote, rkey, add: 1 }, Data::Gather(&[word])),
        ];
        for (id, (operation, data)) in (10..).zip(both) {
            let send = SendWr { id, operation, data, signaled: true, to: None };
            self.qp.post_send(&send).expect("a request");
        }
    }
}

/// One input.
pub(crate) fn run(bytes: &[u8]) {
    let Some((&flags, items)) = bytes.split_first() else { return };
    let target = target();
    let said = stream(items, &target.memory);
    let theirs = if flags & 2 == 2 { 0xff_fffe } else { 1 };
    let piece = 1 << (flags >> 4);
    let mut got = Vec::new();
    if flags & 1 == 0 {
        let mut own = Own::new(target, target.service, theirs);
        let wanted = hello::Target { to: own.qp.number(), from: theirs, psn: 7, rnr: 7 };
        let stream = TcpStream::connect((HERE, target.service)).ok().and_then(Peer::new);
        if let Some(mut peer) = stream
            && peer.asks(&mut own, wanted).is_some()
        {
            peer.say(&mut own, &said, piece);
            got = peer.got;
        }
    } else {
        let service = target.listener.local_addr().expect("an address").port();
        let mut own = Own::new(target, service, theirs);
        own.ask(target);
        while !own.is_late() {
            own.poll();
            let Ok((stream, _)) = target.listener.accept() else { continue };
            let Some(mut peer) = Peer::new(stream) else { continue };
            if peer.answers(&mut own).is_some() {
                peer.say(&mut own, &said, piece);
                got = peer.got;
                break;
            }
        }
    }
    let [_, readable, closed] = &target.memory;
    assert!(readable.get(0, ROOM).iter().all(|byte| *byte == 0), "written without the right");
    assert!(closed.get(0, ROOM).iter().all(|byte| *byte == SECRET), "written without any right");
    assert!(!got.windows(16).any(|part| part == [SECRET; 16]), "read without the right");
}
