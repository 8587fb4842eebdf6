//! Reliable connections.

use std::time::{Duration, Instant};

use super::{End, Memory, pair};
use crate::{Access, Data, Opcode, Operation, RecvWr, SendWr, Status};

fn send(id: u64, operation: Operation, data: Data<'_>) -> SendWr<'_> {
    SendWr { id, operation, data, signaled: true, to: None }
}

#[test]
fn a_message_a_write_a_read_and_an_addition() {
    let (a, b) = pair();
    let mut source = Memory::new(&a.device, 1 << 20, Access::LOCAL_WRITE);
    let target = Memory::new(&b.device, 1 << 20, Access::ALL);
    source.fill(1);
    for len in [0_u32, 1, 8, 4096, 70_000, 1 << 20] {
        b.qp.post_receive(&RecvWr { id: 9, buffer: target.sge(0, 1 << 20) }).unwrap();
        let piece = [source.sge(0, len)];
        let operation = Operation::Send { imm: Some(77) };
        a.qp.post_send(&send(5, operation, Data::Gather(&piece))).unwrap();
        let got = b.wait();
        assert_eq!((got.id, got.status, got.len, got.imm), (9, Status::Success, len, Some(77)));
        assert_eq!(got.opcode, Opcode::Receive);
        let sent = a.wait();
        assert_eq!((sent.id, sent.status, sent.opcode), (5, Status::Success, Opcode::Send));
        let words = len as usize / 8;
        assert_eq!(source.words()[..words], target.words()[..words]);
    }
    source.fill(2);
    let piece = [source.sge(0, 1 << 20)];
    let write = Operation::Write { remote: target.addr(), rkey: target.rkey() };
    a.qp.post_send(&send(6, write, Data::Gather(&piece))).unwrap();
    assert_eq!(a.wait().status, Status::Success);
    assert_eq!(source.words(), target.words());

    let back = Memory::new(&a.device, 1 << 20, Access::LOCAL_WRITE);
    let piece = [back.sge(0, 1 << 19), back.sge(1 << 19, 1 << 19)];
    let read = Operation::Read { remote: target.addr(), rkey: target.rkey() };
    a.qp.post_send(&send(7, read, Data::Gather(&piece))).unwrap();
    assert_eq!(a.wait().status, Status::Success);
    assert_eq!(back.words(), target.words());

    let old = target.words()[3];
    let piece = [back.sge(0, 8)];
    let add = Operation::FetchAdd { remote: target.addr() + 24, rkey: target.rkey(), add: 5 };
    a.qp.post_send(&send(8, add, Data::Gather(&piece))).unwrap();
    assert_eq!(a.wait().status, Status::Success);
    assert_eq!(back.words()[0], old);
    assert_eq!(target.words()[3], old.wrapping_add(5));
}

/// The device's mark may be taken while the queue pair's is left: what waits later must be found all the
/// same.
#[test]
fn what_waits_is_marked_again_when_only_the_device_s_mark_was_taken() {
    let end = End::new();
    let device = end.soft_device();
    let qp = device.qps.find(end.qp.number()).unwrap();
    // A pass of the device's own thread may take a mark before we do, but not each.
    let until = |marked: &dyn Fn() -> bool| {
        let begin = Instant::now();
        while !marked() {
            assert!(begin.elapsed() < Duration::from_secs(60), "the thread takes each mark");
            std::thread::yield_now();
        }
    };
    let again = || {
        qp.mark_deferred();
        device.ctx.activity.deferred.take().numbers().any(|number| number == qp.number)
    };
    until(&|| again() && qp.deferred.is_set());
    until(&again);
}
