//! Who looks after the streams of a device, beside threads that post.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Memory, pair};
use crate::soft::cq::Cq;
use crate::soft::device::Dev;
use crate::soft::limits::HOLD;
use crate::{Access, Data, Operation, Receive, Send};

/// The longest of the looks of `time`.
fn longest_look(dev: &Arc<Dev>, time: Duration) -> Duration {
    let end = Instant::now() + time;
    let mut longest = Duration::ZERO;
    while Instant::now() < end {
        let begin = Instant::now();
        dev.progress_now();
        longest = longest.max(begin.elapsed());
    }
    longest
}

/// The thread that posts may be without a processor because this one has it. While this one waited, nobody could look: a flood
/// stood still for most of a time slice with every tick of the timers.
#[test]
fn a_look_does_not_wait_for_a_thread_that_posts() {
    let (a, b) = pair();
    let memory = Memory::new(&b.device, 64, Access::ALL);
    b.qp.post_receive(&Receive { id: 1, buffer: memory.sge(0, 64) }).unwrap();
    let operation = Operation::Send { imm: None };
    let data = Data::Inline(&[b"connected"]);
    a.qp.post_send(&Send { id: 2, operation, data, signaled: true, to: None }).unwrap();
    assert_eq!((b.wait().id, a.wait().id), (1, 2));
    let dev = a.cq.as_any().downcast_ref::<Cq>().unwrap().dev();
    let qps = dev.all_qps().unwrap();
    let _posting = qps[0].tx.lock().unwrap();
    // One round without a pause will do: this thread may lose its processor to others. A look that waits has a pause in each.
    let looks = || longest_look(dev, 3 * HOLD);
    assert!((0..20).any(|_| looks() < HOLD / 2), "each time a look took more than {:?}", HOLD / 2);
}
