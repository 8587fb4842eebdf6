//! Threads that poll and sleep on the streams.

use super::*;
use crate::{Data, Operation, RecvWr, SendWr, Sleep};

const ROUNDS: u64 = 100;
const SECOND: Duration = Duration::from_secs(1);

/// Two ends that are connected, and memory of the second.
fn pair() -> (End, End, Memory) {
    let (a, b) = (End::new(), End::new());
    let retry = Retry::default();
    a.connect(b.address(), b.qp.number(), &retry);
    b.connect(a.address(), a.qp.number(), &retry);
    let memory = Memory::new(&b.device, 64, Access::ALL);
    (a, b, memory)
}

/// Sleeps as one who polls does; returns once it may.
fn begin_sleep(end: &End) -> Sleep {
    let limit = Instant::now() + Duration::from_secs(20);
    loop {
        assert_eq!(end.cq.poll(&mut [Completion::EMPTY]).unwrap(), 0);
        if let Some(sleep) = end.device.begin_sleep() {
            return sleep;
        }
        assert!(Instant::now() < limit, "there is always something");
    }
}

fn send(from: &End, id: u64) {
    let send = SendWr {
        id,
        operation: Operation::Send { imm: None },
        data: Data::Inline(&[b"wake up"]),
        signaled: true,
        to: None,
    };
    from.qp.post_send(&send).unwrap();
}

#[test]
fn a_message_ends_the_sleep_of_who_polls() {
    let (a, b, memory) = pair();
    assert!(b.device.has_sleep());
    let (mut ended, arrivals) = (0, b.device.arrivals());
    for id in 0..ROUNDS {
        b.qp.post_receive(&RecvWr { id, buffer: memory.sge(0, 64) }).unwrap();
        let sleep = begin_sleep(&b);
        send(&a, id);
        // The device's own thread takes it if it was awake when the sleep began.
        ended += u64::from(sleep.wait(SECOND).unwrap());
        b.device.end_sleep();
        assert_eq!(b.wait().id, id);
        assert_eq!(a.wait().id, id);
    }
    assert!(ended > ROUNDS / 2, "the device's thread took all but {ended} of {ROUNDS}");
    assert_ne!(b.device.arrivals(), arrivals);
}

/// Streams that had data lately leave the epoll for the sleep, and come back when nobody polls.
#[test]
fn one_who_sleeps_no_more_is_served_by_the_devices_own_thread() {
    let (a, b, memory) = pair();
    for round in 0..3 {
        for id in 0..ROUNDS {
            b.qp.post_receive(&RecvWr { id, buffer: memory.sge(0, 64) }).unwrap();
            let sleep = begin_sleep(&b);
            send(&a, id);
            let _ = sleep.wait(SECOND).unwrap();
            b.device.end_sleep();
            assert_eq!(b.wait().id, id, "round {round}");
            assert_eq!(a.wait().id, id, "round {round}");
        }
        // From now on nobody polls here: the acknowledgement is the thread's.
        b.qp.post_receive(&RecvWr { id: ROUNDS, buffer: memory.sge(0, 64) }).unwrap();
        send(&a, ROUNDS);
        assert_eq!(a.wait().id, ROUNDS, "round {round}");
        assert_eq!(b.wait().id, ROUNDS, "round {round}");
    }
}

/// The device leaves time to sleep, and a sleep that nothing ends takes no more than was asked for.
#[test]
fn a_sleep_ends_at_its_time() {
    const MOST: Duration = Duration::from_millis(1);
    let (_a, b, _memory) = pair();
    let limit = Instant::now() + Duration::from_secs(20);
    loop {
        let sleep = begin_sleep(&b);
        let begin = Instant::now();
        let found = sleep.wait(MOST).unwrap();
        let slept = begin.elapsed();
        b.device.end_sleep();
        // What is left of the connecting may end the first ones.
        if !found && slept >= MOST {
            break;
        }
        assert!(Instant::now() < limit, "no sleep lasts: {slept:?}, something came: {found}");
    }
    assert!(Instant::now() < limit, "a sleep lasted for much longer than it was to");
}
