//! What a rank holds after init, when it is connected to nobody, and after attach, whose barriers
//! have connected it to those 1, 2, 4 … ranks away. Run it as a job with
//! `GASNET_SUPERNODE_MAXSIZE=1` and dynamic connections on different numbers of ranks: the
//! difference after init is what grows with unconnected peers.
//!
//! Every rank prints `KEY BYTES` lines: `heap_bytes` that are allocated after init, `private_bytes`
//! by `/proc/self/smaps_rollup`, `attached_heap_bytes` and `attached_private_bytes` after attach.
//! And what was attached by kind: `attached_anonymous_bytes` are its own, `attached_memfd_bytes` its
//! share of the memory that the ranks of a host have together.

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
    let kinds = || -> std::io::Result<[u64; 2]> {
        Ok([rollup(|key| key == "Pss_Anon")?, rollup(|key| key == "Pss_Shmem")?])
    };
    let before = kinds()?;
    let since = || -> std::io::Result<(u64, u64)> {
        Ok((HEAP.live().saturating_sub(heap), private_bytes()?.saturating_sub(private)))
    };
    let client = Client::<Seq>::init("bench_net_memory")?;
    let (first_heap, first_private) = since()?;
    let _segment = client.attach_segment(SEGMENT)?;
    let (heap, private) = since()?;
    let after = kinds()?;
    let [anonymous, memfd] = [0, 1].map(|kind| after[kind].saturating_sub(before[kind]));
    show(&format!(
        "heap_bytes {first_heap}\nprivate_bytes {first_private}\n\
         attached_heap_bytes {heap}\nattached_private_bytes {private}\n\
         attached_anonymous_bytes {anonymous}\nattached_memfd_bytes {memfd}\n"
    ));
    client.exit(0)
}

fn private_bytes() -> std::io::Result<u64> {
    rollup(|key| key.starts_with("Private_"))
}

/// The sum of those numbers of `/proc/self/smaps_rollup` whose name is wanted.
fn rollup(wanted: impl Fn(&str) -> bool) -> std::io::Result<u64> {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup")?;
    let bytes = text.lines().filter_map(|line| {
        let (key, value) = line.split_once(':')?;
        let kib: u64 = value.trim().strip_suffix(" kB")?.parse().ok()?;
        wanted(key).then_some(kib * 1024)
    });
    Ok(bytes.sum())
}
