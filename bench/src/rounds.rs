//! Rounds of calls that all ranks of a job make together, beside a reference.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use gasnet_ibv::{BarrierFlags, Client, Rank, Seq};

use crate::arena::Result;
use crate::sys::spin_until;

/// A barrier of all ranks.
pub fn meet(client: &Client<Seq>) -> Result<()> {
    Ok(client.barrier(0, BarrierFlags::ANONYMOUS)?)
}

/// Nanoseconds per call of `one`, which gets its round, as this rank sees it.
pub fn nanos_per(count: u32, mut one: impl FnMut(u64) -> Result<()>) -> Result<f64> {
    let begin = Instant::now();
    for round in 0..count {
        one(u64::from(round))?;
    }
    Ok(begin.elapsed().as_secs_f64() * 1e9 / f64::from(count))
}

/// Both measures of a pair; half of the pairs begin with the reference.
pub fn in_turn(
    pair: u64,
    ours: impl FnOnce() -> Result<f64>,
    reference: impl FnOnce() -> Result<f64>,
) -> Result<(f64, f64)> {
    if pair.is_multiple_of(2) {
        return Ok((ours()?, reference()?));
    }
    let reference = reference()?;
    Ok((ours()?, reference))
}

/// Nanoseconds of a round trip of a word between two ranks.
pub fn ping_pong(client: &Client<Seq>, ball: &AtomicU64, count: u32, pair: u64) -> Result<f64> {
    let first = 2 * pair * u64::from(count);
    let odd = client.rank() == Rank(1);
    nanos_per(count, |round| {
        let turn = first + 2 * round;
        if odd {
            spin_until(ball, turn + 1);
            ball.store(turn + 2, Ordering::Release);
        } else {
            ball.store(turn + 1, Ordering::Release);
            spin_until(ball, turn + 2);
        }
        Ok(())
    })
}
