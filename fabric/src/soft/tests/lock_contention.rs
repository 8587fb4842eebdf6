//! The thread that drives the streams of a device, beside threads that post.

use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};
use settings::deadlines::soft::{POST_LOCK, WATCH_IDLE};

use super::{Memory, pair};
use crate::soft::device::SoftDevice;
use crate::{Access, Data, Operation, RecvWr, SendWr};

/// What this thread had of a processor so far.
fn processor_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap().into()
}

/// The longest of the passes of `time`, without what other threads took of it.
fn longest_pass(device: &SoftDevice, time: Duration) -> Duration {
    let end = Instant::now() + time;
    let mut longest = Duration::ZERO;
    while Instant::now() < end {
        let begin = processor_time();
        device.progress_now();
        longest = longest.max(processor_time() - begin);
    }
    longest
}

/// The longest time that a sender waits for the completion of a message that has come, over some
/// messages of different sizes.
fn longest_acknowledgement() -> Duration {
    let (a, b) = pair();
    let source = Memory::new(&a.device, 1 << 20, Access::LOCAL_WRITE);
    let target = Memory::new(&b.device, 1 << 20, Access::ALL);
    let acknowledged_after = |len| {
        b.qp.post_receive(&RecvWr { id: 1, buffer: target.sge(0, 1 << 20) }).unwrap();
        let piece = [source.sge(0, len)];
        let (operation, data) = (Operation::Send { imm: None }, Data::Gather(&piece));
        a.qp.post_send(&SendWr { id: 2, operation, data, signaled: true, to: None }).unwrap();
        assert_eq!(b.wait().id, 1);
        let begin = Instant::now();
        assert_eq!(a.wait().id, 2);
        begin.elapsed()
    };
    [0, 8, 4096, 70_000, 1 << 20].into_iter().map(acknowledged_after).max().unwrap_or_default()
}

/// A receiver that takes a message and polls no more: its progress thread, which slept when the
/// message came, acknowledges it.
#[test]
fn what_was_polled_last_is_acknowledged() {
    // Each alone may be unlucky: this thread has to share its processor.
    let soon = (0..20).filter(|_| longest_acknowledgement() < WATCH_IDLE.limit / 5).count();
    assert!(soon > 15, "only {soon} of 20 were acknowledged in {:?}", WATCH_IDLE.limit / 5);
}

/// The thread that posts may be without a processor because this one has it. While this one waited,
/// nobody drove the streams: a flood stood still for most of a time slice with every tick of the
/// timers.
#[test]
fn a_pass_does_not_wait_for_a_thread_that_posts() {
    let (a, b) = pair();
    let memory = Memory::new(&b.device, 64, Access::ALL);
    b.qp.post_receive(&RecvWr { id: 1, buffer: memory.sge(0, 64) }).unwrap();
    let operation = Operation::Send { imm: None };
    let data = Data::Inline(&[b"connected"]);
    a.qp.post_send(&SendWr { id: 2, operation, data, signaled: true, to: None }).unwrap();
    assert_eq!((b.wait().id, a.wait().id), (1, 2));
    let device = a.soft_device();
    let mut qps = Vec::new();
    assert!(device.qps.list(&mut qps));
    let _posting = qps[0].sq.lock().unwrap();
    // One that waits goes round with its processor, each time. (A machine that is a guest may count
    // what its host took.)
    let longest = (0..5).map(|_| longest_pass(device, 5 * POST_LOCK.limit)).min().unwrap();
    assert!(longest < POST_LOCK.limit / 4, "a pass took {longest:?} of a processor");
}
