//! Peers without the job key, and peers that go away.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::super::context::Context;
use super::super::device::SoftDevice;
use super::super::device_handle::DeviceHandle;
use super::super::fault_injection::FaultInjection;
use super::super::handshake::messages::{self, Mode, Rejection, Target};
use super::super::progress_thread::ProgressThread;
use super::super::wire::Request;
use super::{End, KEY, Memory, config, fabric, pair_with, spec};
use crate::{
    Access, Completion, Data, Device, DeviceInfo, Operation, RecvWr, Retry, SendWr, Status,
};

/// Connections without proof that such a device keeps.
const UNPROVEN: usize = 8;

/// A device whose inside the test sees.
fn device() -> (Arc<dyn Device>, (Arc<SoftDevice>, ProgressThread), SocketAddr) {
    let info = DeviceInfo { name: "soft0".to_owned(), ports: 1, ib_transport: true, numa: None };
    let thread = ProgressThread::start().unwrap();
    let faults = FaultInjection::new(&Arc::default());
    let ctx = Context::open(&info, &config(), UNPROVEN, faults, &thread.waker).unwrap();
    let soft = Arc::new(SoftDevice::new(ctx));
    thread.add(&soft);
    let device = DeviceHandle(Arc::clone(&soft));
    let port = device.port(1).unwrap();
    (Arc::new(device), (soft, thread), SocketAddr::new(port.gids[0].gid.ip(), port.service))
}

fn connect(to: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(to).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream
}

/// The other side closes the stream without an answer.
fn is_closed(mut stream: TcpStream) -> bool {
    let mut rest = Vec::new();
    match stream.read_to_end(&mut rest) {
        Ok(_) => true,
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    }
}

fn wait_for(what: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !what() {
        assert!(Instant::now() < end, "it did not happen");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn garbage_and_a_wrong_key_are_refused_and_counted() {
    let (_device, (soft, _thread), to) = device();
    let refused = || soft.ctx.warnings.rejected.load(Ordering::Relaxed);
    let mut stream = connect(to);
    stream.write_all(b"GET / HTTP/1.1\r\nHost: somebody\r\n\r\n").unwrap();
    assert!(is_closed(stream));
    wait_for(|| refused() == 1);

    let mut stream = connect(to);
    let nonce = [1; 16];
    stream.write_all(&messages::hello(Mode::Plain, &nonce)).unwrap();
    let mut answer = [0; messages::CHALLENGE];
    stream.read_exact(&mut answer).unwrap();
    let target = Target { to: 0x4001, from: 1, psn: 0, rnr: 7 };
    assert!(messages::prove(&[0; 16], Mode::Plain, &nonce, &answer, target).is_err());
    let mut proof = messages::prove(&KEY, Mode::Plain, &nonce, &answer, target).unwrap();
    proof[20] ^= 1;
    stream.write_all(&proof).unwrap();
    assert!(is_closed(stream));
    wait_for(|| refused() == 2);

    let stream = connect(to);
    drop(stream);
    wait_for(|| refused() == 3);
}

/// Whoever says nothing, and whoever is only slow, is not taken for somebody without the key; and no
/// number of them takes more descriptors than there are for them.
#[test]
fn the_slow_are_told_from_the_wrong_and_strangers_have_a_bound() {
    let (_device, (soft, _thread), to) = device();
    let said = |why| soft.ctx.warnings.rejections.lock().unwrap().contains(&why);
    let silent = connect(to);
    let mut slow = connect(to);
    slow.write_all(&messages::hello(Mode::Plain, &[1; 16])).unwrap();
    slow.read_exact(&mut [0; messages::CHALLENGE]).unwrap();
    assert!(is_closed(silent) && is_closed(slow));
    wait_for(|| said(Rejection::Silent) && said(Rejection::Slow));
    assert!(!said(Rejection::WrongKey));

    let mut greeted = connect(to);
    greeted.write_all(&messages::hello(Mode::Plain, &[1; 16])).unwrap();
    greeted.read_exact(&mut [0; messages::CHALLENGE]).unwrap();
    let before = soft.ctx.warnings.rejected.load(Ordering::Relaxed);
    let crowd: Vec<TcpStream> = (0..3 * UNPROVEN).map(|_| connect(to)).collect();
    let dropped = || soft.ctx.warnings.rejected.load(Ordering::Relaxed) - before;
    wait_for(|| dropped() > 2 * UNPROVEN as u64);
    assert_eq!(dropped(), 2 * UNPROVEN as u64 + 1, "one of the crowd gives way to who has begun");
    assert!(said(Rejection::TooMany));
    greeted.write_all(&[0; messages::PROOF]).unwrap();
    assert!(is_closed(greeted));
    wait_for(|| said(Rejection::WrongKey));
    drop(crowd);
}

#[test]
fn half_a_hello_ends_in_time_and_hinders_nobody() {
    let end = End::new();
    let port = end.address();
    let to = SocketAddr::new(port.gid.ip(), port.service);
    let mut half: Vec<TcpStream> = (0..600).map(|_| connect(to)).collect();
    for stream in &mut half {
        stream.write_all(&messages::hello(Mode::Plain, &[0; 16])[..10]).unwrap();
    }
    let other = End::new();
    other.connect(end.address(), end.qp.number(), &Retry::default());
    end.connect(other.address(), other.qp.number(), &Retry::default());
    let memory = Memory::new(&end.device, 64, Access::ALL);
    end.qp.post_receive(&RecvWr { id: 1, buffer: memory.sge(0, 64) }).unwrap();
    let bytes: [&[u8]; 1] = [b"over the heads of the crowd"];
    let send = SendWr {
        id: 2,
        operation: Operation::Send { imm: None },
        data: Data::Inline(&bytes),
        signaled: true,
        to: None,
    };
    other.qp.post_send(&send).unwrap();
    assert_eq!(end.wait().status, Status::Success);
    assert_eq!(other.wait().status, Status::Success);
    assert!(half.into_iter().all(is_closed));
}

/// A requester made by hand: what it sends is up to the test.
fn requester(end: &End, target: Target) -> TcpStream {
    let port = end.address();
    let mut stream = connect(SocketAddr::new(port.gid.ip(), port.service));
    let nonce = [9; 16];
    stream.write_all(&messages::hello(Mode::Plain, &nonce)).unwrap();
    let mut answer = [0; messages::CHALLENGE];
    stream.read_exact(&mut answer).unwrap();
    stream
        .write_all(&messages::prove(&KEY, Mode::Plain, &nonce, &answer, target).unwrap())
        .unwrap();
    stream
}

#[test]
fn a_peer_with_the_key_that_sends_garbage_fails_its_queue_pair_only() {
    let fabric = fabric();
    let (end, other) = (End::with(Arc::clone(&fabric), 8), End::with(fabric, 8));
    let address = other.address();
    // The peer is this test: its queue pair number is its own affair.
    end.connect(address, 0x1234, &Retry { timeout: 10, count: 1, ..Retry::default() });
    let target = Target { to: end.qp.number(), from: 0x1234, psn: 7, rnr: 7 };
    let mut stream = requester(&end, target);
    let mut verdict = [0; messages::VERDICT];
    stream.read_exact(&mut verdict).unwrap();
    assert_eq!(messages::read_verdict(verdict), Ok(true));
    let memory = Memory::new(&end.device, 64, Access::ALL);
    end.qp.post_receive(&RecvWr { id: 1, buffer: memory.sge(0, 64) }).unwrap();
    let header = Request {
        operation: Operation::Send { imm: None },
        credit_limit: 0,
        len: 4,
        msn: 0,
        ack: None,
        want_ack: false,
    };
    // In three parts: a message may arrive so.
    let bytes = header.encode();
    for piece in [&bytes[..5], &bytes[5..], b"good"] {
        stream.write_all(piece).unwrap();
        std::thread::sleep(Duration::from_millis(3));
    }
    let got = end.wait();
    assert_eq!((got.status, got.len), (Status::Success, 4));
    stream.write_all(&[0xee; 64]).unwrap();
    wait_for(|| end.qp.state() == crate::QpState::Error);
    let mut rest = Vec::new();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let _ = stream.read_to_end(&mut rest);
    assert_eq!(other.qp.state(), crate::QpState::Reset);
}

#[test]
fn a_peer_that_names_another_connection_is_told_no() {
    let end = End::new();
    end.connect(end.address(), 0x1234, &Retry::default());
    let good = Target { to: end.qp.number(), from: 0x1234, psn: 7, rnr: 7 };
    for wrong in [
        Target { to: end.qp.number() ^ 1, ..good },
        Target { from: 0x1235, ..good },
        Target { psn: 8, ..good },
    ] {
        let mut stream = requester(&end, wrong);
        let mut verdict = [0; messages::VERDICT];
        stream.read_exact(&mut verdict).unwrap();
        assert_eq!(messages::read_verdict(verdict), Ok(false));
    }
}

#[test]
fn a_gone_peer_is_reported_after_the_retries() {
    let retry = Retry { timeout: 12, count: 2, ..Retry::default() };
    let (a, b) = pair_with(&retry);
    let send = SendWr {
        id: 1,
        operation: Operation::Send { imm: None },
        data: Data::Inline(&[]),
        signaled: true,
        to: None,
    };
    drop(b);
    a.qp.post_send(&send).unwrap();
    a.qp.post_send(&SendWr { id: 2, ..send }).unwrap();
    assert_eq!((a.wait().id, a.qp.state()), (1, crate::QpState::Error));
    assert_eq!(a.wait().status, Status::Flushed);

    // And one that never was.
    let lonely = End::new();
    lonely.connect(a.address(), 0x77_7777, &retry);
    lonely.qp.post_send(&send).unwrap();
    assert_eq!(lonely.wait().status, Status::RetryExceeded);
    let event = lonely.device.next_event().unwrap();
    assert_eq!(event, Some(crate::AsyncEvent::QpFatal { qpn: lonely.qp.number() }));
    let mut none = [Completion::EMPTY];
    assert_eq!(lonely.cq.poll(&mut none).unwrap(), 0);
    let _ = spec(&lonely.cq, 1);
}
