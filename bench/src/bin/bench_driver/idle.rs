//! Whether the machine has anything else to do.

use std::time::{Duration, Instant};

use testkit::report::show;

/// Longest wait for an idle machine, per figure.
const PATIENCE: Duration = Duration::from_secs(90);
/// How long the machine must have been idle.
const LOOK: Duration = Duration::from_millis(1500);
/// Share of the processors' time that may be in use.
const BUSY: f64 = 0.05;

/// Ticks in use and ticks altogether since boot.
fn ticks() -> Option<(f64, f64)> {
    let text = std::fs::read_to_string("/proc/stat").ok()?;
    let mut fields = text.lines().next()?.split_whitespace().skip(1);
    let ticks: Vec<f64> = fields.by_ref().take(8).filter_map(|field| field.parse().ok()).collect();
    let total: f64 = ticks.iter().sum();
    // Idle, and idle with input or output outstanding.
    Some((total - ticks.get(3)? - ticks.get(4)?, total))
}

/// Share of the processors' time that was in use during a look.
fn busy() -> Option<f64> {
    let before = ticks()?;
    std::thread::sleep(LOOK);
    let after = ticks()?;
    Some((after.0 - before.0) / (after.1 - before.1).max(1.0))
}

/// Waits until the machine is idle, or patience ends. Returns the percentage in use during the last
/// look.
pub(crate) fn wait(figure: &str) -> Option<f64> {
    let begin = Instant::now();
    loop {
        let share = busy()?;
        if share <= BUSY || begin.elapsed() > PATIENCE {
            if share > BUSY {
                show(&format!("{figure}: the machine stays busy ({:.0} %)\n", share * 100.0));
            }
            return Some(share * 100.0);
        }
    }
}
