//! What the doctor finds on a host, as data.

use serde::{Deserialize, Serialize};
use spawner_ssh::diagnosis::Failure;

settings::named! {
    /// What a finding means.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Level {
        /// As it should be.
        Ok = "ok",
        /// Jobs run, but something may be slower or missing.
        Warning = "warning",
        /// Jobs will fail.
        Problem = "problem",
    }
}

/// Name of the check that says which ssh client logs in.
pub const CLIENT: &str = "ssh client";

/// What one check has found on one host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// Name of the check.
    pub check: String,
    /// What it means.
    pub level: Level,
    /// What was seen.
    pub seen: String,
    /// What to do; empty when nothing is to be done.
    pub fix: String,
}

impl Finding {
    /// All is well.
    #[must_use]
    pub fn ok(check: &str, seen: impl Into<String>) -> Self {
        Self { check: check.to_owned(), level: Level::Ok, seen: seen.into(), fix: String::new() }
    }

    /// Something is wrong, and what to do.
    #[must_use]
    pub fn bad(check: &str, level: Level, seen: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { check: check.to_owned(), level, seen: seen.into(), fix: fix.into() }
    }
}

/// What became of one host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Health {
    /// Its name.
    pub host: String,
    /// Why it cannot take part in any job, if so.
    pub failure: Option<Failure>,
    /// The findings; of a host that could not be reached there are none but which client tried.
    pub findings: Vec<Finding>,
}

/// What is said about a clock that was read between two moments of ours. All in seconds since the
/// epoch.
#[must_use]
pub(crate) fn clock(before: f64, theirs: f64, after: f64) -> Finding {
    /// More is worth a word: times in output and reports do not fit together any more.
    const NOTICED: f64 = 1.0;
    let ahead = (theirs - after).max(0.0);
    let behind = (before - theirs).max(0.0);
    let (off, way) = if ahead > 0.0 { (ahead, "ahead") } else { (behind, "behind") };
    if off < NOTICED {
        return Finding::ok("clock", format!("less than {NOTICED} s from the launcher's"));
    }
    let seen = format!("the clock is at least {off:.0} s {way} of the launcher's");
    let fix = "run a time service there (chrony, systemd-timesyncd); times in output and reports do not fit together";
    Finding::bad("clock", Level::Warning, seen, fix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_difference_that_is_certain_counts() {
        let level = |before, theirs, after| clock(before, theirs, after).level;
        assert_eq!(level(100.0, 100.5, 101.0), Level::Ok);
        // The answer took five seconds: their clock was read at some time in between.
        assert_eq!(level(100.0, 104.0, 105.0), Level::Ok);
        assert_eq!(level(100.0, 105.9, 105.0), Level::Ok);
        assert_eq!(level(100.0, 107.0, 105.0), Level::Warning);
        let behind = clock(100.0, 40.0, 101.0);
        assert!(behind.seen.contains("60 s behind") && !behind.fix.is_empty(), "{behind:?}");
        assert!(clock(100.0, 200.0, 101.0).seen.contains("99 s ahead"));
    }
}
