//! The segment mode EVERYTHING inside a neighbourhood: which neighbours' memory this rank reaches by
//! the system's cross-memory calls. The others, as ranks elsewhere, are reached by messages.

use std::sync::atomic::{AtomicU64, Ordering};

use gasnet_ibv::Rank;

use crate::fail::Fail;
use crate::state::State;
use crate::transfer::{Access, Neighbour};
use crate::{M, ancestor};

/// What a neighbour reads as a trial: a process of another name space with the same number has it
/// not.
static COOKIE: AtomicU64 = AtomicU64::new(0);

const WORD: usize = size_of::<u64>();
const ROW: usize = 3 * WORD;

/// What a rank tells: its process, where its cookie is, and what that is.
#[derive(Clone, Copy)]
struct Row {
    process: i32,
    at: usize,
    cookie: u64,
}

impl Row {
    fn own(rank: u32) -> Self {
        let at = COOKIE.as_ptr().expose_provenance();
        let process = std::process::id();
        let cookie =
            (u64::from(rank) << 32 | u64::from(process)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let cookie = cookie ^ at as u64 ^ nanoseconds();
        COOKIE.store(cookie, Ordering::Relaxed);
        Self { process: process.cast_signed(), at, cookie }
    }

    fn encode(self) -> [u8; ROW] {
        let words = [u64::from(self.process.cast_unsigned()), self.at as u64, self.cookie];
        let mut bytes = [0; ROW];
        bytes.copy_from_slice(words.map(u64::to_le_bytes).as_flattened());
        bytes
    }

    /// `None` for what no rank tells.
    fn decode(bytes: &[u8]) -> Option<Self> {
        let ([process, at, cookie], []) = bytes.as_chunks::<WORD>() else { return None };
        let [process, at, cookie] = [process, at, cookie].map(|word| u64::from_le_bytes(*word));
        let (process, at) = (i32::try_from(process).ok()?, usize::try_from(at).ok()?);
        Some(Self { process, at, cookie })
    }

    /// Whether this rank may read the memory of the one that told it.
    fn is_reached(self) -> bool {
        let peer = Neighbour { rank: 0, process: self.process };
        let mut seen = [0; WORD];
        let read = Access::CrossMemory(peer, self.at).copy::<false>(seen.as_mut_ptr(), WORD);
        read.is_ok() && u64::from_le_bytes(seen) == self.cookie
    }
}

fn nanoseconds() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |now| u64::from(now.subsec_nanos()))
}

/// Collective in that mode: finds out which neighbours are reached.
pub fn learn(state: &State) -> Result<(), Fail> {
    let inner = state.inner;
    if !inner.segment_mode().is_everything() {
        return Ok(());
    }
    let all = inner.exchange(&Row::own(state.rank).encode())?;
    let told = |rank: Rank| {
        let at = rank.0 as usize * ROW;
        all.get(at..at + ROW).and_then(Row::decode)
    };
    let rows: Vec<Option<Row>> = state.client.neighbours().into_iter().map(told).collect();
    let processes = rows.iter().flatten().map(|row| row.process.cast_unsigned());
    ancestor::allow(&processes.collect::<Vec<_>>());
    // Before this some have not given leave.
    inner.meet_at_start::<M>("gex_Client_Init")?;
    let me = inner.local_of(Rank(state.rank));
    let reached = rows.iter().enumerate().map(|(local, row)| match row {
        Some(row) if Some(local) != me && row.is_reached() => row.process,
        _ => 0,
    });
    let _first = state.across.set(reached.collect());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_read_as_it_was_told_and_by_itself() {
        let row = Row::own(3);
        let read = Row::decode(&row.encode()).expect("a row");
        assert_eq!((read.process, read.at, read.cookie), (row.process, row.at, row.cookie));
        assert!(row.is_reached());
        assert!(!Row { cookie: row.cookie ^ 1, ..row }.is_reached(), "another process");
        assert!(!Row { at: 4096, ..row }.is_reached());
        assert!(Row::decode(&[0; ROW - 1]).is_none());
    }
}
