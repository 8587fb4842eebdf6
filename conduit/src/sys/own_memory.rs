//! Memory of this process that another rank named: copied by the system, which answers for what is
//! not mapped instead of ending the process.
#![allow(unsafe_code, reason = "system calls about memory")]

use std::io;
use std::ptr::{with_exposed_provenance, with_exposed_provenance_mut};

/// A range of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    /// Address of the first.
    pub(crate) at: usize,
    pub(crate) len: usize,
}

/// Ranges that one call of the system takes at a time.
const BATCH: usize = 64;

/// A range that cannot be read, or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unmapped {
    pub(crate) range: Range,
    /// Why, as the system says it.
    pub(crate) errno: i32,
}

impl Unmapped {
    fn of(range: Range, error: &io::Error) -> Self {
        Self { range, errno: error.raw_os_error().unwrap_or(libc::EFAULT) }
    }
}

/// Copies all of `from` to ranges, one after the other.
pub(crate) fn store(from: &[u8], ranges: impl IntoIterator<Item = Range>) -> Result<(), Unmapped> {
    copy(from.as_ptr().expose_provenance(), from.len(), ranges.into_iter(), true)
}

/// Fills `into` with the bytes of ranges, one after the other.
pub(crate) fn load(
    into: &mut [u8],
    ranges: impl IntoIterator<Item = Range>,
) -> Result<(), Unmapped> {
    copy(into.as_mut_ptr().expose_provenance(), into.len(), ranges.into_iter(), false)
}

/// Copies between `len` bytes at `here` and ranges. No more than `len` bytes are touched.
fn copy(
    here: usize,
    len: usize,
    mut ranges: impl Iterator<Item = Range>,
    store: bool,
) -> Result<(), Unmapped> {
    let mut done = 0;
    let mut batch: Vec<Range> = Vec::with_capacity(BATCH);
    loop {
        batch.clear();
        let mut bytes = 0;
        for range in ranges.by_ref().take(BATCH) {
            let range = Range { len: range.len.min(len - done - bytes), ..range };
            bytes += range.len;
            batch.push(range);
        }
        if bytes == 0 {
            return Ok(());
        }
        copy_batch(here + done, bytes, &batch, store)?;
        done += bytes;
    }
}

fn copy_batch(here: usize, len: usize, ranges: &[Range], store: bool) -> Result<(), Unmapped> {
    let mut left = ranges.iter().copied().filter(|range| range.len > 0);
    let (mut done, mut first) = (0, left.next());
    while let Some(range) = first {
        let vector = |range: Range| libc::iovec {
            iov_base: with_exposed_provenance_mut(range.at),
            iov_len: range.len,
        };
        let there: Vec<_> = std::iter::once(range).chain(left.clone()).map(vector).collect();
        let ours = vector(Range { at: here + done, len: len - done });
        let mut moved = match call(&ours, &there, store) {
            Ok(moved) if moved > 0 => moved,
            Ok(_) => return Err(Unmapped::of(range, &io::Error::from_raw_os_error(libc::EFAULT))),
            Err(error) if is_refused(&error) => {
                plain(here + done, range, store);
                range.len
            }
            Err(error) => return Err(Unmapped::of(range, &error)),
        };
        done += moved;
        // What is left of the range where the system stopped.
        let mut at = range;
        while moved >= at.len {
            moved -= at.len;
            match left.next() {
                Some(next) => at = next,
                None => return Ok(()),
            }
        }
        first = Some(Range { at: at.at.wrapping_add(moved), len: at.len - moved });
    }
    Ok(())
}

fn call(ours: &libc::iovec, there: &[libc::iovec], store: bool) -> io::Result<usize> {
    let call = if store { libc::process_vm_writev } else { libc::process_vm_readv };
    let process = i32::try_from(std::process::id()).unwrap_or(-1);
    let count = libc::c_ulong::try_from(there.len()).unwrap_or(0);
    // SAFETY: `ours` is a buffer that the caller of `store` or `load` has borrowed; the system
    // checks the other side, whose bytes are the program's by the promise of the segment mode.
    let moved = unsafe { call(process, ours, 1, there.as_ptr(), count, 0) };
    usize::try_from(moved).map_err(|_| io::Error::last_os_error())
}

/// Whether the system has no such call, or a filter forbids it.
fn is_refused(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM))
}

/// The copy without the system's answer, where it gives none.
fn plain(here: usize, range: Range, store: bool) {
    let (from, to) = if store { (here, range.at) } else { (range.at, here) };
    // SAFETY: one side is a buffer (`store`, `load`), and the other rank's program promises that
    // the range is memory of this one.
    unsafe {
        std::ptr::copy(
            with_exposed_provenance::<u8>(from),
            with_exposed_provenance_mut(to),
            range.len,
        );
    }
}

/// Bytes of a pattern that go out at a time.
const PATTERN: usize = 4096;

/// Sets each byte of a range.
pub(crate) fn fill(range: Range, value: u8) -> Result<(), Unmapped> {
    let pattern = [value; PATTERN];
    let mut done = 0;
    while done < range.len {
        let part = Range { at: range.at.wrapping_add(done), len: PATTERN.min(range.len - done) };
        store(&pattern[..part.len], [part]).map_err(|lacks| Unmapped { range, ..lacks })?;
        done += part.len;
    }
    Ok(())
}

/// Whether an aligned word can be read, and also written if `write`. Changes nothing.
pub(crate) fn has_word(range: Range, write: bool) -> bool {
    if !write {
        return load(&mut [0; 8][..range.len.min(8)], [range]).is_ok();
    }
    /// Adds 0 to a word atomically, then wakes who waits there if the word was -2048: no more than a
    /// wake-up for no reason, for which such waiters are prepared.
    const ADD_NOTHING: u32 = 1 << 28 | 0x800;
    static NOBODY: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let operation = libc::FUTEX_WAKE_OP | libc::FUTEX_PRIVATE_FLAG;
    let word = with_exposed_provenance_mut::<u32>(range.at);
    // SAFETY: the system checks the address of the second word, to which it adds 0; nobody waits at
    // the first.
    let done = unsafe {
        libc::syscall(libc::SYS_futex, NOBODY.as_ptr(), operation, 0, 0_usize, word, ADD_NOTHING)
    };
    done >= 0 || is_refused(&io::Error::last_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;

    static CONSTANT: [u8; 64] = [7; 64];

    fn of(bytes: &[u8]) -> Range {
        Range { at: bytes.as_ptr().expose_provenance(), len: bytes.len() }
    }

    #[test]
    fn ranges_are_copied_in_order() {
        let mut memory = vec![0_u8; 1000];
        let base = memory.as_mut_ptr().expose_provenance();
        let ranges: Vec<_> =
            (0..200).map(|at| Range { at: base + 5 * at, len: 1 + at % 3 }).collect();
        let len = ranges.iter().map(|range| range.len).sum();
        let from: Vec<u8> = (0..=255).cycle().take(len).collect();
        store(&from, ranges.iter().copied()).expect("mapped");
        let mut back = vec![0; len];
        load(&mut back, ranges.iter().copied()).expect("mapped");
        assert_eq!(back, from);
        fill(Range { at: base, len: 1000 }, 9).expect("mapped");
        let mut all = [0; 1000];
        load(&mut all, [Range { at: base, len: 1000 }]).expect("mapped");
        assert!(all.iter().all(|byte| *byte == 9));
        drop(memory);
    }

    #[test]
    fn what_is_not_there_is_named() {
        let mut memory = [0_u8; 16];
        let good = Range { at: memory.as_mut_ptr().expose_provenance(), len: 8 };
        for at in [8, 4096, usize::MAX - 4096, 1 << 60] {
            let bad = Range { at, len: 8 };
            let lacks = store(&[1; 16], [good, bad]).expect_err("not mapped");
            assert_eq!((lacks.range, lacks.errno), (bad, libc::EFAULT));
            let lacks = load(&mut [1; 16], [good, bad]).expect_err("not mapped");
            assert_eq!(lacks.range, bad);
            assert!(fill(bad, 1).is_err() && !has_word(bad, true) && !has_word(bad, false));
        }
        let constant = Range { len: 8, ..of(&CONSTANT) };
        let lacks = store(&[1; 8], [constant]).expect_err("read-only");
        assert_eq!(lacks.range, constant);
        load(&mut memory[..8], [constant]).expect("readable");
        assert!(has_word(constant, false) && !has_word(constant, true));
        assert_eq!(memory[..8], CONSTANT[..8]);
    }

    #[test]
    fn a_word_that_is_looked_at_stays_what_it_is() {
        let word = std::sync::atomic::AtomicU64::new(u64::MAX - 2047);
        let range = Range { at: word.as_ptr().expose_provenance(), len: 8 };
        assert!(has_word(range, true) && has_word(range, false));
        assert_eq!(word.load(std::sync::atomic::Ordering::Relaxed), u64::MAX - 2047);
    }
}
