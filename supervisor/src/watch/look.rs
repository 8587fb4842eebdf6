//! A host's look at its ranks.

use std::fs;

use bootstrap::node_shm::Activity;
use bootstrap::trace::Cause;
use serde::{Deserialize, Serialize};

use crate::agent::sys::stat_fields;

/// What the system says of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Run {
    Ready,
    Asleep,
    Stopped,
}

/// One rank that has a process, as its host sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RankLook {
    pub(crate) rank: u32,
    pub(crate) pid: i32,
    pub(crate) run: Run,
    /// It sleeps inside the library, for this if it said so.
    pub(crate) sleeps: bool,
    pub(crate) waits_for: Option<Cause>,
    pub(crate) cpu_ms: u64,
    pub(crate) resident_kib: u64,
    pub(crate) messages: u64,
}

/// Looks at a process; `None` when it is gone.
pub(crate) fn look(rank: u32, pid: i32, activity: Activity) -> Option<RankLook> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let system = nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK).ok().flatten();
    let ticks = system.and_then(|ticks| u64::try_from(ticks).ok()).filter(|ticks| *ticks > 0);
    let (run, used, pages) = parse(&stat)?;
    let page = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE).ok().flatten();
    let page = page.and_then(|bytes| u64::try_from(bytes).ok()).unwrap_or(4096);
    Some(RankLook {
        rank,
        pid,
        run,
        sleeps: activity.sleeps,
        waits_for: activity.waits_for,
        cpu_ms: used.saturating_mul(1000) / ticks.unwrap_or(100),
        resident_kib: pages.saturating_mul(page) / 1024,
        messages: activity.messages,
    })
}

/// State, ticks of processor time and resident pages, of the text of `/proc/PID/stat` (proc(5)).
fn parse(stat: &str) -> Option<(Run, u64, u64)> {
    /// Fields behind the state, which is the third: `utime` is the 14th, `rss` the 24th.
    const TO_UTIME: usize = 10;
    const TO_RSS: usize = 8;
    let mut fields = stat_fields(stat)?;
    let run = match fields.next()? {
        "R" => Run::Ready,
        "T" | "t" => Run::Stopped,
        "Z" | "X" => return None,
        _ => Run::Asleep,
    };
    let user: u64 = fields.nth(TO_UTIME)?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    let resident: u64 = fields.nth(TO_RSS)?.parse().ok()?;
    Some((run, user.saturating_add(system), resident))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_a_process_are_found() {
        let stat = "12 (a) b) R 1 2 3 4 5 6 7 8 9 10 70 30 0 0 20 0 1 0 99 1000 512 18 0";
        assert_eq!(parse(stat), Some((Run::Ready, 100, 512)));
        assert_eq!(parse("12 (a) Z 1 2"), None);
        assert_eq!(parse("nonsense"), None);
        let own = i32::try_from(std::process::id()).unwrap();
        let seen = look(3, own, Activity { messages: 7, ..Activity::default() }).unwrap();
        assert!(seen.resident_kib > 100 && seen.messages == 7 && seen.rank == 3, "{seen:?}");
    }

    #[test]
    fn a_process_that_has_ended_is_not_seen() {
        assert_eq!(look(0, i32::MAX, Activity::default()), None);
    }
}
