//! What a rank holds after init, when it is connected to nobody, and after attach, whose barriers
//! have connected it to those 1, 2, 4 … ranks away. Run it as a job with
//! `GASNET_SUPERNODE_MAXSIZE=1` and dynamic connections on different numbers of ranks: the
//! difference after init is what grows with unconnected peers.
//!
//! Every rank prints `KEY BYTES` lines: `heap_bytes` that are allocated after init, `private_bytes`
//! by `/proc/self/smaps_rollup`, `attached_heap_bytes` and `attached_private_bytes` after attach.

use bench::sys::CountingAllocator;
use gasnet_ibv::{Client, Seq};
use testkit::report::show;

#[global_allocator]
static HEAP: CountingAllocator = CountingAllocator::new();

const SEGMENT: u64 = 1 << 16;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // The first reading itself makes the heap larger.
    let _ = private_bytes()?;
    let (heap, private) = (HEAP.live(), private_bytes()?);
    let since = || -> std::io::Result<(u64, u64)> {
        Ok((HEAP.live().saturating_sub(heap), private_bytes()?.saturating_sub(private)))
    };
    let client = Client::<Seq>::init("bench_net_memory")?;
    let (first_heap, first_private) = since()?;
    let _segment = client.attach_segment(SEGMENT)?;
    let (heap, private) = since()?;
    show(&format!(
        "heap_bytes {first_heap}\nprivate_bytes {first_private}\n\
         attached_heap_bytes {heap}\nattached_private_bytes {private}\n"
    ));
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
