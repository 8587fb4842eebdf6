//! A fault script that cuts one side off: what the other, which knows nothing of it, sees.

use std::time::{Duration, Instant};

use super::{End, Memory, config};
use crate::soft::FaultScript;
use crate::soft::{SoftConfig, open};
use crate::{Access, Completion, Data, Operation, RecvWr, Retry, SendWr, Status};

/// 4.096 µs × 2^14 × 4: 268 ms.
const RETRY: Retry = Retry { timeout: 14, count: 3, rnr: 7, rnr_timer: 6 };
const RETRY_TIMEOUT: Duration = Duration::from_millis(268);
/// When the script begins to work; on a busy machine, where not everything is connected by then,
/// later.
const CUT: Duration = Duration::from_millis(600);
/// A cut is there by then.
const SEEN: Duration = Duration::from_secs(5);

fn cut_off(script: &str) -> End {
    let faults = Some(FaultScript::parse(script).unwrap());
    End::with(open(&SoftConfig { faults, ..config() }).unwrap(), 64)
}

fn send(id: u64, data: Data<'_>) -> SendWr<'_> {
    SendWr { id, operation: Operation::Send { imm: None }, data, signaled: true, to: None }
}

/// A pair of which the second is cut off after a message went there, and when it was opened and was
/// cut off.
fn pair(script: &dyn Fn(Duration) -> String) -> (End, End, Memory, (Instant, Duration)) {
    for cut in [CUT, 4 * CUT, 16 * CUT] {
        let opened = Instant::now();
        let (a, b) = (End::new(), cut_off(&script(cut)));
        a.connect(b.address(), b.qp.number(), &RETRY);
        b.connect(a.address(), a.qp.number(), &RETRY);
        let memory = Memory::new(&b.device, 64 << 10, Access::ALL);
        for id in 0..8 {
            b.qp.post_receive(&RecvWr { id, buffer: memory.sge(0, 64 << 10) }).unwrap();
        }
        a.qp.post_send(&send(100, Data::Inline(&[b"before"]))).unwrap();
        let statuses = [b.wait().status, a.wait().status];
        if opened.elapsed() < cut {
            assert_eq!(statuses, [Status::Success; 2]);
            std::thread::sleep(cut.saturating_sub(opened.elapsed()));
            // Polls run the script too: the progress thread may come late on a busy machine. A poll
            // that finds that thread inside does not. (What this misses was over before.)
            let ctx = &b.soft_device().ctx;
            let mut none = [Completion::EMPTY];
            while ctx.is_up(1) && !ctx.is_unreachable(ctx.ip) && opened.elapsed() < cut + SEEN {
                assert_eq!(b.cq.poll(&mut none).unwrap(), 0);
                std::thread::yield_now();
            }
            return (a, b, memory, (opened, cut));
        }
    }
    panic!("the machine is too busy: the script always began before the test");
}

/// The first completion of `end`, while nobody needs to poll the other side.
fn gives_up(a: &End) {
    let begin = Instant::now();
    a.qp.post_send(&send(1, Data::Inline(&[b"into the dark"]))).unwrap();
    a.qp.post_send(&send(2, Data::Inline(&[b"and behind it"]))).unwrap();
    let (first, second) = (a.wait(), a.wait());
    assert_eq!((first.id, first.status), (1, Status::RetryExceeded));
    assert_eq!((second.id, second.status), (2, Status::Flushed));
    // Not at once, and not for ever; the rest is for a busy machine.
    let took = begin.elapsed();
    assert!(took >= RETRY_TIMEOUT && took < 2 * RETRY_TIMEOUT + Duration::from_secs(5), "{took:?}");
}

#[test]
fn a_peer_of_one_that_is_cut_off_gives_up() {
    for script in ["partition=all@", "port-down=soft0:1@"] {
        let (a, b, _memory, _) = pair(&|cut| format!("{script}{}ms", cut.as_millis()));
        gives_up(&a);
        let mut none = [Completion::EMPTY];
        assert_eq!(b.cq.poll(&mut none).unwrap(), 0, "{script}: the message came through");
        // What the other side sends later finds nobody either.
        b.qp.post_send(&send(3, Data::Inline(&[b"too late"]))).unwrap();
        assert_eq!(b.wait().status, Status::RetryExceeded, "{script}");
    }
}

#[test]
fn a_peer_of_one_that_is_cut_off_for_a_moment_waits() {
    let (a, b, _memory, _) = pair(&|cut| format!("partition=all@{}ms+150ms", cut.as_millis()));
    a.qp.post_send(&send(1, Data::Inline(&[b"late"]))).unwrap();
    let got = b.wait();
    assert_eq!((got.status, got.len), (Status::Success, 4));
    assert_eq!(a.wait().status, Status::Success);
}

#[test]
fn a_connection_that_nobody_uses_while_it_is_cut_off_stays() {
    let script = |cut: Duration| format!("partition=all@{}ms+1s", cut.as_millis());
    let (a, b, _memory, (opened, cut)) = pair(&script);
    let over = cut + Duration::from_millis(1100);
    std::thread::sleep(over.saturating_sub(opened.elapsed()));
    a.qp.post_send(&send(1, Data::Inline(&[b"after"]))).unwrap();
    assert_eq!(b.wait().status, Status::Success);
    assert_eq!(a.wait().status, Status::Success);
}
