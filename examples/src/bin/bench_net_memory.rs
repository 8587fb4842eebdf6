//! What a rank holds after init and attach, before its first message. Run it as a job with `GASNET_SUPERNODE_MAXSIZE=1` and
//! dynamic connections on different numbers of ranks: the difference is what grows with unconnected peers.
//!
//! Every rank prints `KEY BYTES` lines: `heap_bytes` that are allocated, `private_bytes` by `/proc/self/smaps_rollup`.

use gasnet_ibv::{Client, Seq};
use gasnet_ibv_examples::sys::CountingAllocator;
use testkit::report::show;

#[global_allocator]
static HEAP: CountingAllocator = CountingAllocator::new();

const SEGMENT: u64 = 1 << 16;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // The first reading itself makes the heap larger.
    let _ = private_bytes()?;
    let (heap, private) = (HEAP.live(), private_bytes()?);
    let client = Client::<Seq>::init("bench_net_memory")?;
    let _segment = client.attach_segment(SEGMENT)?;
    let (heap, private) =
        (HEAP.live().saturating_sub(heap), private_bytes()?.saturating_sub(private));
    show(&format!("heap_bytes {heap}\nprivate_bytes {private}\n"));
    client.exit(0)
}

fn private_bytes() -> std::io::Result<u64> {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup")?;
    let private = text.lines().filter_map(|line| {
        let (key, value) = line.split_once(':')?;
        let kib: u64 = value.trim().strip_suffix(" kB")?.parse().ok()?;
        key.starts_with("Private_").then_some(kib * 1024)
    });
    Ok(private.sum())
}
