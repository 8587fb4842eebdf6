//! Threads that poll and sleep on the streams.

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::*;
use crate::{Data, Operation, RecvWr, SendWr};

const ROUNDS: u64 = 100;

/// Whether it becomes readable in the time.
fn is_readable(device: &dyn Device, time: PollTimeout) -> bool {
    let fd = device.sleep_fd().expect("the software adapter has one");
    poll(&mut [PollFd::new(fd, PollFlags::POLLIN)], time).unwrap() > 0
}

/// Sleeps as one who polls does; returns once it may.
fn begin_sleep(end: &End) -> Duration {
    let limit = Instant::now() + Duration::from_secs(20);
    loop {
        assert_eq!(end.cq.poll(&mut [Completion::EMPTY]).unwrap(), 0);
        if let Some(rest) = end.device.begin_sleep() {
            return rest;
        }
        assert!(Instant::now() < limit, "there is always something");
    }
}

#[test]
fn a_message_ends_the_sleep_of_who_polls() {
    let (a, b) = (End::new(), End::new());
    let retry = Retry::default();
    a.connect(b.address(), b.qp.number(), &retry);
    b.connect(a.address(), a.qp.number(), &retry);
    let memory = Memory::new(&b.device, 64, Access::ALL);
    let (mut ended, arrivals) = (0, b.device.arrivals());
    for id in 0..ROUNDS {
        b.qp.post_receive(&RecvWr { id, buffer: memory.sge(0, 64) }).unwrap();
        let rest = begin_sleep(&b);
        assert!(!rest.is_zero());
        let send = SendWr {
            id,
            operation: Operation::Send { imm: None },
            data: Data::Inline(&[b"wake up"]),
            signaled: true,
            to: None,
        };
        a.qp.post_send(&send).unwrap();
        // The device's own thread takes it if it was awake when the sleep began.
        let one_second = PollTimeout::from(1000_u16);
        ended += u64::from(is_readable(&*b.device, one_second));
        b.device.end_sleep();
        assert_eq!(b.wait().id, id);
        assert_eq!(a.wait().id, id);
    }
    assert!(ended > ROUNDS / 2, "the device's thread took all but {ended} of {ROUNDS}");
    assert_ne!(b.device.arrivals(), arrivals);
}
