//! Many threads, many sizes, both directions.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::{Failure, Memory, pair};
use crate::{Access, Completion, Data, Opcode, Operation, PostError, RecvWr, SendWr, Status};

const MESSAGES: u32 = 3_000;
const THREADS: u32 = 2;
/// Sends without completion, at most: well below the 256 entries of the queue.
const UNREAPED: u32 = 128;
const LIMIT: Duration = Duration::from_secs(120);
const ROOM: u32 = 8 << 10;

fn size(number: u32) -> u32 {
    // 4 bytes at least, to carry the number; up to more than what is copied.
    4 + number.wrapping_mul(2_654_435_761) % (ROOM - 4)
}

#[test]
fn threads_that_post_and_poll_lose_and_mix_nothing() {
    let (a, b) = pair();
    let bytes = vec![7_u8; ROOM as usize];
    let (sent, ended) = (AtomicU32::new(0), AtomicU32::new(0));
    let sums = AtomicU32::new(0);
    let (stop, failed) = (AtomicBool::new(false), AtomicBool::new(false));
    let memory = Memory::new(&b.device, ROOM as usize * 64, Access::ALL);
    let post = |id: u64| {
        let buffer = memory.sge(id * u64::from(ROOM), ROOM);
        let receive = RecvWr { id, buffer };
        while b.qp.post_receive(&receive) == Err(PostError::Full) {}
    };
    (0..64).for_each(post);
    let reap = || {
        let mut some = [Completion::EMPTY; 4];
        let count = a.cq.poll(&mut some).unwrap();
        for one in &some[..count] {
            assert_eq!(one.status, Status::Success);
        }
        ended.fetch_add(u32::try_from(count).unwrap(), Ordering::Relaxed);
    };
    let begin = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let _failure = Failure(&failed);
                loop {
                    let number = sent.fetch_add(1, Ordering::Relaxed);
                    if number >= MESSAGES {
                        break;
                    }
                    // As with a real adapter, who posts sees to it that the completion queue has
                    // room.
                    while number >= ended.load(Ordering::Relaxed) + UNREAPED {
                        if failed.load(Ordering::Relaxed) {
                            return;
                        }
                        assert!(begin.elapsed() < LIMIT, "no completions");
                        reap();
                    }
                    let body = &bytes[..size(number) as usize - 4];
                    let send = SendWr {
                        id: u64::from(number),
                        operation: Operation::Send { imm: Some(number) },
                        data: Data::Inline(&[&number.to_le_bytes(), body]),
                        signaled: true,
                        to: None,
                    };
                    loop {
                        match a.qp.post_send(&send) {
                            Ok(()) => break,
                            Err(PostError::Full) if failed.load(Ordering::Relaxed) => return,
                            Err(PostError::Full) => reap(),
                            Err(error) => panic!("{error}"),
                        }
                    }
                }
            });
            scope.spawn(|| {
                let _failure = Failure(&failed);
                while !stop.load(Ordering::Relaxed) && !failed.load(Ordering::Relaxed) {
                    assert!(begin.elapsed() < LIMIT, "no messages");
                    let mut some = [Completion::EMPTY; 4];
                    let count = b.cq.poll(&mut some).unwrap();
                    for one in &some[..count] {
                        assert_eq!((one.status, one.opcode), (Status::Success, Opcode::Receive));
                        let number = one.imm.unwrap();
                        assert_eq!(one.len, size(number));
                        // The word at the start is the number of the same message.
                        let word = memory.words()[usize::try_from(one.id).unwrap() * 1024];
                        assert_eq!(word & 0xffff_ffff, u64::from(number));
                        post(one.id);
                        if sums.fetch_add(1, Ordering::Relaxed) + 1 == MESSAGES {
                            stop.store(true, Ordering::Relaxed);
                        }
                    }
                }
            });
        }
    });
    while ended.load(Ordering::Relaxed) < MESSAGES {
        assert_eq!(a.wait().status, Status::Success);
        ended.fetch_add(1, Ordering::Relaxed);
    }
    assert_eq!(sums.load(Ordering::Relaxed), MESSAGES);
}
