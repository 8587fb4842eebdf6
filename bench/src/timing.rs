//! Times of calls, and those of two calls that take turns.

use std::time::{Duration, Instant};

use crate::arena::Result;

/// The times of `count` calls are appended to `into`; one look at the clock for each, as perftest
/// takes them.
///
/// # Errors
/// The first of a call.
pub fn times(
    count: usize,
    mut call: impl FnMut() -> Result<()>,
    into: &mut Vec<Duration>,
) -> Result<()> {
    let mut before = Instant::now();
    for _ in 0..count {
        call()?;
        let now = Instant::now();
        into.push(now - before);
        before = now;
    }
    Ok(())
}

/// The median, microseconds.
///
/// # Errors
/// There are none.
pub fn middle(mut times: Vec<Duration>) -> Result<f64> {
    times.sort_unstable();
    let middle = times.get(times.len() / 2).ok_or("no calls to time")?;
    Ok(middle.as_secs_f64() * 1e6)
}

/// Median; 0 of nothing.
#[must_use]
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        odd if odd % 2 == 1 => sorted[odd / 2],
        even => f64::midpoint(sorted[even / 2 - 1], sorted[even / 2]),
    }
}

/// The median of the times of `count` calls, microseconds.
///
/// # Errors
/// The first of a call, or there are none.
pub fn typical(count: usize, call: impl FnMut() -> Result<()>) -> Result<f64> {
    let mut taken = Vec::with_capacity(count);
    times(count, call, &mut taken)?;
    middle(taken)
}

/// Million bytes per second since `begin`.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "a quotient for people")]
pub fn megabytes_per_second(begin: Instant, bytes: usize) -> f64 {
    bytes as f64 / 1e6 / begin.elapsed().as_secs_f64()
}

/// Thousands in a second since `begin`.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "a quotient for people")]
pub fn thousands_per_second(begin: Instant, count: usize) -> f64 {
    count as f64 / begin.elapsed().as_secs_f64() / 1e3
}

/// The times of `turns` turns of two calls, `turn` calls of each in a turn: a machine that changes
/// its speed changes it for both.
///
/// # Errors
/// The first of a call.
pub fn in_turns(
    (turns, turn): (usize, usize),
    mut first: impl FnMut() -> Result<()>,
    mut second: impl FnMut() -> Result<()>,
) -> Result<[Vec<Duration>; 2]> {
    let [mut one, mut other] = [Vec::new(), Vec::new()];
    for _ in 0..turns {
        times(turn, &mut first, &mut one)?;
        times(turn, &mut second, &mut other)?;
    }
    Ok([one, other])
}
