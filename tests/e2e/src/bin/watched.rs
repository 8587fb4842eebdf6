//! What those who watch a job are to see: `watched WAY`. Every rank prints `up` first.
//!
//! * `barrier`: rank 0 computes, the others are in a barrier.
//! * `stall`: rank 0 waits for a message that nobody sends, the others are in a barrier.
//! * `chat`: every rank sends messages to the next one, some thousand per second.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use gasnet_ibv::{BarrierFlags, Client, Entry, Error, Flags, HandlerIndex, Rank, Seq};
use testkit::report::show;

const PING: HandlerIndex = HandlerIndex(200);

fn main() -> Result<(), Error> {
    let way = std::env::args().nth(1).unwrap_or_default();
    let client = Client::<Seq>::init("watched")?;
    let got = Arc::<AtomicU32>::default();
    let count = Arc::clone(&got);
    let ping = Entry::short("ping", 0, move |_, _| {
        count.fetch_add(1, Ordering::Relaxed);
    });
    client.endpoint().register(&mut [ping.at(PING.0)])?;
    client.attach_segment(1 << 16)?;
    show("up\n");
    match (way.as_str(), client.rank()) {
        ("barrier", Rank(0)) => compute(),
        ("stall", Rank(0)) => client.block_until(|| false)?,
        ("chat", Rank(rank)) => loop {
            let next = Rank((rank + 1) % client.size());
            let _ = client.team().request_short(next, PING, &[], Flags::NONE)?;
            client.poll()?;
            std::thread::sleep(Duration::from_micros(200));
        },
        _ => client.barrier(0, BarrierFlags::ANONYMOUS)?,
    }
    client.exit(0)
}

/// Has a name of its own in a stack.
#[inline(never)]
fn compute() {
    loop {
        std::hint::spin_loop();
    }
}
