//! What the ranks of a traced job have recorded while they run.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use bootstrap::trace::far::Far;
use bootstrap::trace::{Place, Slot, VARIABLE, slot_len};
use testkit::process::{Process, variable};

/// How long a job may take until enough is recorded.
const BOUND: Duration = Duration::from_secs(60);

/// Waits until what each of the first `ranks` ranks of the memory for traces has recorded is
/// `enough`. `process`: a rank that sees the memory in the launcher or in its agent.
///
/// # Panics
/// It is never enough, or the job is not traced.
pub fn until_recorded(process: i32, ranks: u64, enough: impl Fn(&Slot) -> bool) {
    let limit = Instant::now() + BOUND;
    let mut number = 0;
    while number < ranks {
        if slot(process, number).is_some_and(|slot| enough(&slot)) {
            number += 1;
            continue;
        }
        assert!(
            Instant::now() < limit,
            "rank {number} beside process {process} records too little"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A slot of the memory that a rank was told of; `None` before its rank has opened it.
fn slot(process: i32, number: u64) -> Option<Slot> {
    let told = variable(process, VARIABLE)?;
    let (holder, fd, capacity) = if let Some(far) = Far::read(&told) {
        (i32::try_from(far.memory.0).ok()?, far.memory.1, far.capacity)
    } else {
        let place = Place::read(&told)?;
        (Process::read(process)?.parent, place.fd, place.capacity)
    };
    let len = slot_len(capacity);
    let mut bytes = vec![0; usize::try_from(len).ok()?];
    let memory = File::open(format!("/proc/{holder}/fd/{fd}")).ok()?;
    memory.read_exact_at(&mut bytes, number * len).ok()?;
    Slot::read(&bytes)
}
