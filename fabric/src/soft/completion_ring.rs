//! The lock-free ring of a completion queue.
//!
//! The ring takes no lock. A thread that is interrupted for ever inside a push hides the entries
//! behind its own; one inside a pop keeps nothing.

use super::slots::{Releases, SlotRelease, ring_index};
use crate::sync::{AtomicBool, AtomicU64, Ordering, fence};
use crate::{Completion, Opcode, Status};

#[derive(Debug, Default)]
struct Slot {
    /// The position behind that of the entry that was written last; zero at first.
    published: AtomicU64,
    words: [AtomicU64; 5],
}

/// Completions from any thread to any thread.
#[derive(Debug)]
pub(super) struct CompletionRing {
    slots: Box<[Slot]>,
    head: AtomicU64,
    tail: AtomicU64,
    /// The next completion is to be reported.
    armed: AtomicBool,
}

const STATUSES: [Status; 11] = [
    Status::Success,
    Status::LocalLength,
    Status::LocalQp,
    Status::LocalProtection,
    Status::Flushed,
    Status::RemoteInvalid,
    Status::RemoteAccess,
    Status::RemoteOperation,
    Status::RetryExceeded,
    Status::RnrRetryExceeded,
    Status::Other(0),
];
const OPCODES: [Opcode; 7] = [
    Opcode::Send,
    Opcode::Write,
    Opcode::Read,
    Opcode::FetchAdd,
    Opcode::CompareSwap,
    Opcode::Receive,
    Opcode::ReceivedWrite,
];

const IMM: u64 = 1 << 16;
const SENDS: u64 = 1 << 17;
const RECEIVES: u64 = 1 << 18;

#[expect(clippy::cast_possible_truncation, reason = "takes one half of a word")]
const fn halves(word: u64) -> (u32, u32) {
    (word as u32, (word >> 32) as u32)
}

fn pack(entry: &Completion, release: SlotRelease) -> [u64; 5] {
    let (flag, number) = match release {
        SlotRelease::None => (0, 0),
        SlotRelease::Sends(number) => (SENDS, number),
        SlotRelease::Receives(number) => (RECEIVES, number),
    };
    // What is not in the list is the last of it, as `Other`.
    let status = STATUSES.iter().position(|one| *one == entry.status);
    let status = status.unwrap_or(STATUSES.len() - 1) as u64;
    let imm = if entry.imm.is_some() { IMM } else { 0 };
    let opcode = (entry.opcode as u64) << 8;
    let first = status | opcode | imm | flag | u64::from(entry.len) << 32;
    [
        entry.id,
        first,
        u64::from(entry.imm.unwrap_or(0)) | u64::from(entry.qpn) << 32,
        u64::from(entry.source_qpn) | u64::from(entry.vendor) << 32,
        number,
    ]
}

fn unpack(words: [u64; 5]) -> (Completion, SlotRelease) {
    let [id, first, second, third, number] = words;
    let (imm, qpn) = halves(second);
    let (source_qpn, vendor) = halves(third);
    let entry = Completion {
        id,
        status: STATUSES.get((first & 0xff) as usize).copied().unwrap_or(Status::Other(0)),
        opcode: OPCODES.get((first >> 8 & 0xff) as usize).copied().unwrap_or(Opcode::Send),
        len: halves(first).1,
        imm: (first & IMM != 0).then_some(imm),
        qpn,
        source_qpn,
        vendor,
    };
    let release = match first & (SENDS | RECEIVES) {
        0 => SlotRelease::None,
        SENDS => SlotRelease::Sends(number),
        _ => SlotRelease::Receives(number),
    };
    (entry, release)
}

impl CompletionRing {
    pub(super) fn new(depth: u32) -> Self {
        let size = depth.max(2).next_power_of_two();
        Self {
            slots: (0..size).map(|_| Slot::default()).collect(),
            head: AtomicU64::new(0),
            tail: AtomicU64::new(0),
            armed: AtomicBool::new(false),
        }
    }

    pub(super) fn depth(&self) -> usize {
        self.slots.len()
    }

    /// The next completion is to be reported; false: that was so before.
    pub(super) fn arm(&self) -> bool {
        let was_armed = self.armed.swap(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        !was_armed
    }

    /// After a push: whether it is to be reported. At most one push is, for each time the ring was
    /// armed.
    pub(super) fn take_armed(&self) -> bool {
        // An arming thread polls after it armed: either it finds the entry, or this finds the ring
        // armed.
        fence(Ordering::SeqCst);
        self.armed.load(Ordering::Relaxed) && self.armed.swap(false, Ordering::SeqCst)
    }

    fn slot(&self, position: u64) -> Option<&Slot> {
        self.slots.get(ring_index(position, self.slots.len()))
    }

    /// False when the queue is full.
    pub(super) fn push(&self, entry: &Completion, release: SlotRelease) -> bool {
        let mut position = self.tail.load(Ordering::Relaxed);
        loop {
            // After the tail, so that what this thread has seen polled counts. It may be beyond a
            // tail that is out of date; the exchange fails then.
            if position >= self.head.load(Ordering::Acquire) + self.slots.len() as u64 {
                return false;
            }
            let Some(slot) = self.slot(position) else { return false };
            let next = position + 1;
            let (done, missed) = (Ordering::Relaxed, Ordering::Relaxed);
            match self.tail.compare_exchange_weak(position, next, done, missed) {
                Ok(_) => {
                    for (word, value) in slot.words.iter().zip(pack(entry, release)) {
                        word.store(value, Ordering::Relaxed);
                    }
                    slot.published.store(next, Ordering::Release);
                    return true;
                }
                Err(seen) => position = seen,
            }
        }
    }

    /// Takes entries, as many as there are and have room; how many. `releases`: what they free.
    ///
    /// Copies the next entries first and claims them then: a slot is free from its claim on, so
    /// that a thread that loses its processor here keeps no slot.
    pub(super) fn pop_list(&self, into: &mut [Completion], releases: &mut Releases) -> usize {
        let mut position = self.head.load(Ordering::Relaxed);
        loop {
            let count = self.copy(position, into, releases);
            if count == 0 {
                return 0;
            }
            // Release: who finds a slot free writes it after it was read here. It fails if another
            // thread took an entry, and what was read may be of several.
            let next = position + count as u64;
            let (done, missed) = (Ordering::Release, Ordering::Relaxed);
            match self.head.compare_exchange_weak(position, next, done, missed) {
                Ok(_) => return count,
                Err(seen) => position = seen,
            }
        }
    }

    fn copy(&self, from: u64, into: &mut [Completion], releases: &mut Releases) -> usize {
        releases.clear();
        let mut count = 0;
        for (place, position) in into.iter_mut().zip(from..) {
            let Some(slot) = self.slot(position) else { break };
            if slot.published.load(Ordering::Acquire) <= position {
                break;
            }
            let (entry, release) =
                unpack(slot.words.each_ref().map(|word| word.load(Ordering::Relaxed)));
            if !releases.add(entry.qpn, release) {
                break;
            }
            *place = entry;
            count += 1;
        }
        count
    }

    #[cfg(test)]
    pub(super) fn pop(&self) -> Option<(Completion, SlotRelease)> {
        let (mut one, mut releases) = ([Completion::EMPTY], Releases::new());
        (self.pop_list(&mut one, &mut releases) == 1)
            .then(|| (one[0], releases.iter().next().map_or(SlotRelease::None, |(_, one)| one)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU32};

    use proptest::prelude::*;

    use super::*;
    use crate::soft::tests::Failure;

    const ENTRIES: u32 = 400_000;

    /// Each thread pushes one entry and pops one, so that the ring always has room. A thread that
    /// lost its processor inside a pop used to keep its slot, and the others met it when they had
    /// gone around the ring.
    #[test]
    fn a_queue_that_has_room_is_never_full() {
        let ring = CompletionRing::new(2);
        let next = AtomicU32::new(0);
        let times = (0..ENTRIES).map(|_| AtomicU32::new(0)).collect::<Vec<_>>();
        let failed = AtomicBool::new(false);
        let push_and_take = || {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= ENTRIES {
                return false;
            }
            let entry = Completion { id: u64::from(number), len: !number, ..Completion::EMPTY };
            assert!(ring.push(&entry, SlotRelease::None), "full at entry {number}");
            loop {
                if let Some((one, _)) = ring.pop() {
                    assert_eq!(one.id, u64::from(!one.len));
                    times[usize::try_from(one.id).unwrap()].fetch_add(1, Ordering::Relaxed);
                    return true;
                }
                // The entry that is there is behind one that another thread is writing.
                std::thread::yield_now();
                if failed.load(Ordering::Relaxed) {
                    return false;
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..ring.depth() {
                scope.spawn(|| {
                    let _failure = Failure(&failed);
                    while push_and_take() {}
                });
            }
        });
        assert!(times.iter().all(|times| times.load(Ordering::Relaxed) == 1));
        assert!(ring.pop().is_none());
    }

    /// A list ends where what it frees has no more room.
    #[test]
    fn a_list_frees_what_its_entries_freed() {
        const PAIRS: u32 = 20;
        let ring = CompletionRing::new(64);
        for number in 0..3 * PAIRS {
            let entry = Completion { qpn: number / 3, ..Completion::EMPTY };
            assert!(ring.push(&entry, SlotRelease::Sends(u64::from(number))));
        }
        let (mut some, mut releases) = ([Completion::EMPTY; 64], Releases::new());
        let (mut taken, mut freed) = (0, Vec::new());
        loop {
            let count = ring.pop_list(&mut some, &mut releases);
            freed.extend(releases.iter().take(count));
            taken += count;
            if count == 0 {
                break;
            }
        }
        assert_eq!(taken, 3 * PAIRS as usize);
        let last = |qpn: u32| (qpn, SlotRelease::Sends(u64::from(3 * qpn + 2)));
        assert_eq!(freed, (0..PAIRS).map(last).collect::<Vec<_>>());
    }

    proptest! {
        #[test]
        fn an_entry_comes_back(
            id in any::<u64>(),
            (status, opcode) in (0_usize..10, 0_usize..OPCODES.len()),
            numbers in any::<[u32; 4]>(),
            imm in any::<Option<u32>>(),
            number in any::<u64>(),
            which in 0..3,
        ) {
            let [len, qpn, source_qpn, vendor] = numbers;
            let (status, opcode) = (STATUSES[status], OPCODES[opcode]);
            let entry = Completion { id, status, opcode, len, imm, qpn, source_qpn, vendor };
            let release = match which {
                0 => SlotRelease::None,
                1 => SlotRelease::Sends(number),
                _ => SlotRelease::Receives(number),
            };
            prop_assert_eq!(unpack(pack(&entry, release)), (entry, release));
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;

    fn entry(id: u64) -> Completion {
        Completion { id, ..Completion::EMPTY }
    }

    /// As often as the other threads let it, at most three preemptions.
    fn model(run: impl Fn() + Sync + Send + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(run);
    }

    fn pushing(ring: &Arc<CompletionRing>, ids: &'static [u64]) -> loom::thread::JoinHandle<()> {
        let ring = Arc::clone(ring);
        loom::thread::spawn(move || {
            for id in ids {
                assert!(ring.push(&entry(*id), SlotRelease::Sends(*id)));
            }
        })
    }

    fn popped(ring: &CompletionRing, times: usize) -> Vec<u64> {
        let taken = (0..times).filter_map(|_| ring.pop());
        let ids = taken.map(|(one, release)| {
            assert_eq!(release, SlotRelease::Sends(one.id));
            one.id
        });
        ids.collect()
    }

    /// As [`popped`], in one list.
    fn popped_list(ring: &CompletionRing, _: usize) -> Vec<u64> {
        let (mut some, mut releases) = ([Completion::EMPTY; 2], Releases::new());
        let count = ring.pop_list(&mut some, &mut releases);
        some[..count].iter().map(|one| one.id).collect()
    }

    #[test]
    fn loom_two_pushers_and_a_popper_lose_nothing() {
        model(|| {
            let ring = Arc::new(CompletionRing::new(2));
            let pushers = [pushing(&ring, &[1]), pushing(&ring, &[2])];
            let mut seen = popped(&ring, 2);
            pushers.into_iter().for_each(|one| one.join().unwrap());
            seen.extend(popped(&ring, 2));
            seen.sort_unstable();
            assert_eq!(seen, [1, 2]);
        });
    }

    fn two_poppers(pop: fn(&CompletionRing, usize) -> Vec<u64>) {
        model(move || {
            let ring = Arc::new(CompletionRing::new(2));
            assert!(ring.push(&entry(1), SlotRelease::Sends(1)));
            let other = Arc::clone(&ring);
            let popper = loom::thread::spawn(move || pop(&other, 1));
            let pusher = pushing(&ring, &[2]);
            let mut seen = pop(&ring, 1);
            seen.extend(popper.join().unwrap());
            pusher.join().unwrap();
            seen.extend(pop(&ring, 2));
            seen.sort_unstable();
            assert_eq!(seen, [1, 2]);
        });
    }

    #[test]
    fn loom_lists_hold_each_entry_once() {
        two_poppers(popped_list);
    }

    #[test]
    fn loom_two_poppers_take_each_entry_once() {
        two_poppers(popped);
    }

    /// A slot is free from its claim on: who popped an entry has room for another.
    #[test]
    fn loom_a_popped_slot_takes_the_next_round() {
        model(|| {
            let ring = Arc::new(CompletionRing::new(2));
            assert!(ring.push(&entry(1), SlotRelease::Sends(1)));
            assert!(ring.push(&entry(2), SlotRelease::Sends(2)));
            let other = Arc::clone(&ring);
            let popper = loom::thread::spawn(move || {
                let mut seen = popped(&other, 1);
                if !seen.is_empty() {
                    assert!(other.push(&entry(3), SlotRelease::Sends(3)));
                    seen.extend(popped(&other, 1));
                }
                seen
            });
            let mut seen = popped(&ring, 1);
            seen.extend(popper.join().unwrap());
            seen.extend(popped(&ring, 3));
            seen.sort_unstable();
            assert_eq!(seen, [1, 2, 3]);
        });
    }

    /// A thread that arms the ring and then finds it empty is notified of the entry that comes.
    #[test]
    fn loom_an_armed_ring_reports() {
        model(|| {
            let ring = Arc::new(CompletionRing::new(2));
            let other = Arc::clone(&ring);
            let pusher = loom::thread::spawn(move || {
                assert!(other.push(&entry(1), SlotRelease::Sends(1)));
                other.take_armed()
            });
            ring.arm();
            let found = ring.pop().is_some();
            let notified = pusher.join().unwrap();
            assert!(found || notified);
        });
    }
}
