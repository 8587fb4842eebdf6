//! Encrypted streams: what somebody between both hosts sees, and what becomes of what he changes.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nix::sys::socket::{setsockopt, sockopt};

use super::super::handshake::messages::{CHALLENGE, HELLO, Mode, PROOF, Rejection, VERDICT};
use super::super::memory::{Gather, Scatter};
use super::super::record::{HEAD, Sealer, Secrets, TAG};
use super::super::stream::{Received, Stream};
use super::{End, KEY, Memory, config};
use crate::soft::{SoftConfig, open};
use crate::{Access, Address, Data, Opcode, Operation, QpState, RecvWr, Retry, SendWr, Status};

/// 4.096 µs × 2^14 × 4: 268 ms.
const RETRY: Retry = Retry { timeout: 14, count: 3, rnr: 7, rnr_timer: 6 };
const SEEN: Duration = Duration::from_secs(20);
/// Receives of an end, as many as it may have.
const RECEIVES: u64 = 64;
/// What must not stand on the wire.
const SECRET: &[u8; 32] = b"the secret text of a whole rank.";

fn end(host: u8, secure: bool) -> End {
    let bind = IpAddr::from([127, 0, 0, host]);
    End::with(open(&SoftConfig { bind, secure, ..config() }).unwrap(), 64)
}

/// What somebody does with bytes of a direction of a stream: everything since its first byte, and what
/// of it goes on now.
type Change = dyn Fn(bool, &[u8], Vec<u8>) -> Vec<u8> + Send + Sync;

/// Somebody between two hosts.
struct Between {
    service: u16,
    seen: Arc<Mutex<Vec<u8>>>,
    stop: Arc<AtomicBool>,
}

impl Drop for Between {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

impl Between {
    /// Stands in front of `end`, on another port number of its address.
    fn of(end: &End, change: Arc<Change>) -> Self {
        let Address { gid, service, .. } = end.address();
        let listener = TcpListener::bind((gid.ip(), 0)).unwrap();
        let own = listener.local_addr().unwrap().port();
        listener.set_nonblocking(true).unwrap();
        let (seen, stop) = (Arc::<Mutex<Vec<u8>>>::default(), Arc::<AtomicBool>::default());
        let (log, over) = (Arc::clone(&seen), Arc::clone(&stop));
        std::thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                let Ok((near, _)) = listener.accept() else {
                    std::thread::sleep(Duration::from_millis(1));
                    continue;
                };
                near.set_nonblocking(false).unwrap();
                let Ok(far) = TcpStream::connect(SocketAddr::new(gid.ip(), service)) else {
                    return;
                };
                for (requests, from, to) in [(true, &near, &far), (false, &far, &near)] {
                    let pair = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let (log, change) = (Arc::clone(&log), Arc::clone(&change));
                    std::thread::spawn(move || carry(pair, &log, (requests, &*change)));
                }
            }
        });
        Self { service: own, seen, stop }
    }

    fn address(&self, end: &End) -> Address {
        Address { service: self.service, ..end.address() }
    }

    fn saw(&self, text: &[u8]) -> bool {
        self.seen.lock().unwrap().windows(text.len()).any(|part| part == text)
    }
}

/// One direction of a stream.
fn carry(
    (mut from, mut to): (TcpStream, TcpStream),
    log: &Mutex<Vec<u8>>,
    (requests, change): (bool, &Change),
) {
    let (mut all, mut some) = (Vec::new(), [0; 4096]);
    to.set_nodelay(true).unwrap();
    while let Ok(count) = from.read(&mut some) {
        all.extend_from_slice(&some[..count]);
        log.lock().unwrap().extend_from_slice(&some[..count]);
        let changed = change(requests, &all, some[..count].to_vec());
        if count == 0 || to.write_all(&changed).is_err() {
            break;
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Both);
    let _ = from.shutdown(std::net::Shutdown::Both);
}

/// Two ends with somebody before each. (Addresses that differ, so that both sides agree on who sends
/// on the reverse path.)
fn apart(secure: bool, change: Arc<Change>) -> ([End; 2], [Between; 2]) {
    let ends = [end(1, secure), end(2, secure)];
    let between = ends.each_ref().map(|one| Between::of(one, Arc::clone(&change)));
    let [a, b] = &ends;
    a.connect(between[1].address(b), b.qp.number(), &RETRY);
    b.connect(between[0].address(a), a.qp.number(), &RETRY);
    (ends, between)
}

fn send(id: u64, operation: Operation, data: Data<'_>) -> SendWr<'_> {
    SendWr { id, operation, data, signaled: true, to: None }
}

/// Fills memory with the secret.
fn secrets(memory: &mut Memory) {
    for (word, bytes) in memory.words.iter_mut().zip(SECRET.as_chunks::<8>().0.iter().cycle()) {
        *word = u64::from_ne_bytes(*bytes);
    }
}

/// Messages of both ways, inline and not, small and large, a put, a get and an addition.
fn talk(a: &End, b: &End) {
    let text = Data::Inline(&[SECRET]);
    let message = Operation::Send { imm: None };
    let [mut source, mut target, back] =
        [a, b, a].map(|end| Memory::new(&end.device, 1 << 20, Access::ALL));
    secrets(&mut source);
    for (from, to, memory) in [(a, b, &target), (b, a, &back)].into_iter().cycle().take(6) {
        to.qp.post_receive(&RecvWr { id: 1, buffer: memory.sge(0, 64) }).unwrap();
        from.qp.post_send(&send(2, message, text)).unwrap();
        assert_eq!((to.wait().status, from.wait().status), (Status::Success, Status::Success));
        assert_eq!(memory.words()[..4], source.words()[..4]);
    }
    for len in [100, 5000, 300_000, 1 << 20] {
        b.qp.post_receive(&RecvWr { id: 1, buffer: target.sge(0, 1 << 20) }).unwrap();
        a.qp.post_send(&send(2, message, Data::Gather(&[source.sge(0, len)]))).unwrap();
        assert_eq!((b.wait().len, a.wait().status), (len, Status::Success));
        let words = len as usize / 8;
        assert_eq!(target.words()[..words], source.words()[..words]);
        target.words.fill(0);
    }
    let (remote, rkey) = (target.addr(), target.rkey());
    let all = [source.sge(0, 1 << 20)];
    a.qp.post_send(&send(3, Operation::Write { remote, rkey }, Data::Gather(&all))).unwrap();
    assert_eq!((a.wait().status, target.words() == source.words()), (Status::Success, true));
    let all = [back.sge(0, 1 << 20)];
    a.qp.post_send(&send(4, Operation::Read { remote, rkey }, Data::Gather(&all))).unwrap();
    assert_eq!((a.wait().status, back.words() == source.words()), (Status::Success, true));
    let word = [back.sge(0, 8)];
    let add = Operation::FetchAdd { remote, rkey, add: 1 };
    a.qp.post_send(&send(5, add, Data::Gather(&word))).unwrap();
    let done = a.wait();
    assert_eq!((done.opcode, done.status), (Opcode::FetchAdd, Status::Success));
    assert_eq!(target.words()[0], source.words()[0] + 1);
}

/// The plain mode shows that the one in between would see the text.
#[test]
fn text_stands_on_the_wire_only_where_it_may() {
    for secure in [false, true] {
        let ([a, b], between) = apart(secure, Arc::new(|_, _, now| now));
        talk(&a, &b);
        assert_eq!(between.each_ref().map(|one| one.saw(&SECRET[..16])), [!secure; 2]);
        // Nor do headers: of messages of 32 bytes.
        let header = |part: &[u8]| part[..3] == [0xf1, 0x5d, 1] && part[4..] == [32, 0, 0, 0];
        let seen = between[1].seen.lock().unwrap();
        assert_eq!(seen.windows(8).any(header), !secure);
    }
}

/// Where the records of a direction begin, after the messages of the handshake.
const fn begin(requests: bool) -> usize {
    if requests { HELLO + PROOF } else { CHALLENGE + VERDICT }
}

/// Where record `number` of a direction begins and ends, as far as it has come.
fn record(all: &[u8], requests: bool, number: usize) -> Option<(usize, usize)> {
    let mut at = begin(requests);
    for left in (0..=number).rev() {
        let len = u16::from_le_bytes(*all.get(at..)?.first_chunk()?);
        let end = at + HEAD + usize::from(len) + TAG;
        if left == 0 {
            return (end <= all.len()).then_some((at, end));
        }
        at = end;
    }
    None
}

/// Sends until the connection ends, and waits until both sides have seen that.
fn ends_with_one_error(change: Arc<Change>) {
    let ([a, b], _between) = apart(true, change);
    let memory = Memory::new(&b.device, 4096, Access::ALL);
    // Many: a receiver that waits for receives reads no record, and messages may share one.
    for id in 0..RECEIVES {
        b.qp.post_receive(&RecvWr { id, buffer: memory.sge(0, 64) }).unwrap();
    }
    let until = Instant::now() + SEEN;
    for id in 0.. {
        let states = [&a, &b].map(|end| end.qp.state());
        if states == [QpState::Error; 2] {
            break;
        }
        assert!(Instant::now() < until, "{states:?}");
        // A queue pair that has failed takes no more.
        let message = Operation::Send { imm: None };
        let _ = a.qp.post_send(&send(id, message, Data::Inline(&[SECRET])));
        let mut some = [crate::Completion::EMPTY; 8];
        for end in [&a, &b] {
            end.cq.poll(&mut some).unwrap();
        }
        std::thread::sleep(Duration::from_millis(3));
    }
    let warnings = |end: &End| end.soft_device().ctx.warnings.tampered.load(Ordering::Relaxed);
    assert_eq!(warnings(&a) + warnings(&b), 1, "told once");
}

#[test]
fn a_changed_byte_ends_the_connection() {
    for at in [0, 2, HEAD, HEAD + 40, usize::MAX] {
        // Of the second record of requests.
        let change = move |requests: bool, all: &[u8], mut now: Vec<u8>| {
            if requests && let Some((from, end)) = record(all, requests, 1) {
                let before = all.len() - now.len();
                let place = if at == usize::MAX { end - 1 } else { from + at };
                if let Some(byte) = place.checked_sub(before).and_then(|at| now.get_mut(at)) {
                    *byte ^= 1;
                }
            }
            now
        };
        ends_with_one_error(Arc::new(change));
    }
}

#[test]
fn a_record_that_comes_twice_or_not_at_all_ends_the_connection() {
    for times in [0, 2] {
        let change = move |requests: bool, all: &[u8], now: Vec<u8>| {
            let before = all.len() - now.len();
            match record(all, requests, 1) {
                Some((from, end)) if requests && from >= before && end > before => {
                    let (head, rest) = now.split_at(from - before);
                    let (one, rest) = rest.split_at(end - from);
                    [head, &one.repeat(times), rest].concat()
                }
                _ => now,
            }
        };
        ends_with_one_error(Arc::new(change));
    }
}

#[test]
fn a_peer_of_the_other_mode_is_told_so_by_both() {
    let (a, b) = (end(1, true), end(1, false));
    a.connect(b.address(), b.qp.number(), &RETRY);
    b.connect(a.address(), a.qp.number(), &RETRY);
    for one in [&a, &b] {
        one.qp.post_send(&send(1, Operation::Send { imm: None }, Data::Inline(&[b"x"]))).unwrap();
        assert_eq!(one.wait().status, Status::RetryExceeded);
    }
    for (end, mode) in [(&a, Mode::Encrypted), (&b, Mode::Plain)] {
        let rejections = end.soft_device().ctx.warnings.rejections.lock().unwrap();
        assert!(rejections.contains(&Rejection::Mode(mode)), "{rejections:?}");
        assert!(!rejections.contains(&Rejection::WrongKey), "{rejections:?}");
    }
}

/// Sockets that take little at once, parts of any size: what is read is what was written.
#[test]
fn a_stream_through_small_sockets_is_the_same_bytes() {
    const TOTAL: usize = 2 << 20;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (other, _) = listener.accept().unwrap();
    for tcp in [&one, &other] {
        tcp.set_nonblocking(true).unwrap();
        setsockopt(tcp, sockopt::SndBuf, &4096).unwrap();
    }
    let Secrets { requests, responses } = Secrets::derive(&KEY, &[1; 16], &[2; 16]);
    let writer = Stream::encrypted(one, &requests, &responses);
    let reader = Stream::encrypted(other, &responses, &requests);
    let mut state = 1_usize;
    let mut random = |below: usize| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33 & (below - 1)
    };
    let bytes: Vec<u8> = (0..TOTAL).map(|_| random(256).to_le_bytes()[0]).collect();
    let (mut sent, mut attempt, mut got) = (0, 0, Vec::with_capacity(TOTAL));
    let until = Instant::now() + SEEN;
    while got.len() < TOTAL {
        assert!(Instant::now() < until, "{sent} sent, {} got", got.len());
        if !writer.is_committed() {
            let most = if random(4) == 0 { 1 << 18 } else { 64 };
            attempt = (1 + random(most)).min(TOTAL - sent);
        }
        // More may follow what was begun, never less.
        attempt = (attempt + random(16)).min(TOTAL - sent);
        let (first, second) = bytes[sent..sent + attempt].split_at(random(1 << 17).min(attempt));
        let mut data = Gather::new();
        assert!(data.bytes(first) && data.bytes(second));
        sent += writer.send(&mut data).unwrap().unwrap_or(0);
        let (mut place, mut buffer) = (vec![0; random(8192)], vec![0; 1 + random(8192)]);
        let mut into = Scatter::new();
        let direct = (random(2) == 0).then_some(&mut place);
        let direct = direct.filter(|place| !place.is_empty()).map(|place| into.buffer(place));
        let received = reader.receive(direct.map(|_| into), &mut buffer).unwrap();
        if let Some(Received { placed, buffered, dry }) = received {
            let asked = buffer.len() + direct.map_or(0, |_| place.len());
            assert!(!dry || placed + buffered < asked, "{placed} {buffered}");
            got.extend_from_slice(&place[..placed]);
            got.extend_from_slice(&buffer[..buffered]);
        }
    }
    assert_eq!((sent, got == bytes), (TOTAL, true));
    drop(writer);
    let end = loop {
        match reader.receive(None, &mut [0; 16]) {
            Ok(None) => std::thread::yield_now(),
            other => break other,
        }
    };
    assert_eq!(end.unwrap_err().kind(), std::io::ErrorKind::UnexpectedEof);
}

/// A record of which a part is missing is no record, and no part of it is read.
#[test]
fn a_cut_record_is_a_lost_stream() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (other, _) = listener.accept().unwrap();
    other.set_nonblocking(true).unwrap();
    let Secrets { requests, responses } = Secrets::derive(&KEY, &[1; 16], &[2; 16]);
    let reader = Stream::encrypted(other, &responses, &requests);
    let mut record = Vec::new();
    Sealer::new(&requests).seal(9, &mut record, |_| true).unwrap();
    one.write_all(&record[..record.len() - 1]).unwrap();
    drop(one);
    let mut buffer = [1; 16];
    let end = loop {
        match reader.receive(None, &mut buffer) {
            Ok(None) => std::thread::yield_now(),
            other => break other,
        }
    };
    assert_eq!(end.unwrap_err().kind(), std::io::ErrorKind::UnexpectedEof);
    assert_eq!(buffer, [1; 16]);
}
