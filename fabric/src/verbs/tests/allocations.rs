//! Posting and polling do not allocate: counted per thread.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use super::fake::{Fake, connected};
use super::*;
use crate::{Data, Operation, RecvWr, SendWr};

struct Counting;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: the system's allocator does everything; only a number is counted beside it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // A thread that ends has no count any more.
        let _counted = COUNT.try_with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn count() -> u64 {
    COUNT.with(Cell::get)
}

#[test]
fn posting_and_polling_do_not_allocate() {
    let before = count();
    drop(std::hint::black_box(Box::new(before)));
    assert_eq!(count(), before + 1, "the count works");
    let Some(fake) = Fake::new("allocations") else { return };
    let device = fake.device();
    let cq = device.completion_queue(64, None).expect("queue");
    let srq = device.shared_receive_queue(64).expect("queue");
    let pair = connected(&*device, &cq);
    let buffer = Sge { addr: 4096, len: 8, lkey: 1 };
    let parts: [&[u8]; 6] = [b"a", b"b", b"c", b"d", b"e", b"f"];
    let plain = Operation::Send { imm: Some(1) };
    let write = Operation::Write { remote: 64, rkey: 1 };
    let pieces = [buffer, buffer];
    let requests = [
        (plain, Data::Gather(&pieces)),
        (plain, Data::Inline(&parts[..2])),
        (plain, Data::Inline(&parts)),
        (write, Data::Gather(&pieces)),
    ];
    let mut room = [Completion::EMPTY; 32];
    let mut ends = 0;
    let before = count();
    for id in 0..500 {
        for (operation, data) in requests {
            let send = SendWr { id, operation, data, signaled: true, to: None };
            pair.post_send(&send).expect("taken");
        }
        pair.post_receive(&RecvWr { id, buffer }).expect("taken");
        let _full_at_the_end = srq.post(&RecvWr { id, buffer });
        ends += cq.poll(&mut room).expect("poll");
        ends += cq.poll(&mut room).expect("poll");
    }
    assert_eq!(count(), before);
    assert_eq!(ends, 2000);
    drop((pair, srq, cq, device));
    fake.is_clean();
}
