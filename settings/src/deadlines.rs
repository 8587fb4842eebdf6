//! The one table of deadlines: every wait of every crate is a row with a name, a bound, who waits
//! for what, and what a user can set it with. No length of time stands anywhere else.
//!
//! Two waits have no bound on purpose: a job without `--timeout` runs as long as it runs, and the
//! output of a job that ended well is written however slowly its reader reads (a signal to the
//! launcher ends that wait).

use std::time::Duration;

mod rows;

pub use rows::*;

/// A named bound on a wait, a pause between two tries or two polls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline {
    /// Name, as messages show it.
    pub name: &'static str,
    /// Bound; of a row that follows the exit time-out, its fixed part. [`UNBOUNDED`]: only the end
    /// of the job ends the wait.
    pub limit: Duration,
    /// What the exit time-out has to do with it.
    pub exit: ExitTerm,
    /// Option or variable that sets it; empty if nothing does.
    pub set_by: &'static str,
    /// Who waits for what, and why so long.
    pub doc: &'static str,
}

/// How a bound follows the exit time-out T (`GASNET_EXITTIMEOUT` and its three terms).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitTerm {
    /// Not at all.
    None,
    /// T more than the fixed part.
    Plus,
    /// T, but at least the fixed part.
    AtLeast,
    /// T, but at most the fixed part.
    AtMost,
}

/// Bound of a wait that only the end of the job ends.
pub const UNBOUNDED: Duration = Duration::MAX;

/// Least exit time-out.
pub const EXIT_FLOOR: Duration = Duration::from_secs(2);

impl Deadline {
    /// The bound in whole milliseconds.
    #[must_use]
    pub fn ms(self) -> u64 {
        u64::try_from(self.limit.as_millis()).unwrap_or(u64::MAX)
    }

    /// The bound of a row that follows the exit time-out, for an exit time-out.
    #[must_use]
    pub fn after(self, exit_timeout: Duration) -> Duration {
        match self.exit {
            ExitTerm::None => self.limit,
            ExitTerm::Plus => exit_timeout.saturating_add(self.limit),
            ExitTerm::AtLeast => exit_timeout.max(self.limit),
            ExitTerm::AtMost => exit_timeout.min(self.limit),
        }
    }

    /// The same wait with another bound.
    #[must_use]
    pub const fn within(self, limit: Duration) -> Self {
        Self { limit, ..self }
    }

    const fn set_by(self, set_by: &'static str) -> Self {
        Self { set_by, ..self }
    }

    const fn exit(self, exit: ExitTerm) -> Self {
        Self { exit, set_by: "GASNET_EXITTIMEOUT", ..self }
    }
}

/// The bound of a row that has no name yet.
const fn bound(limit: Duration) -> Deadline {
    Deadline { name: "", limit, exit: ExitTerm::None, set_by: "", doc: "" }
}

const fn us(limit: u64) -> Deadline {
    bound(Duration::from_micros(limit))
}

const fn ms(limit: u64) -> Deadline {
    bound(Duration::from_millis(limit))
}

const fn secs(limit: u64) -> Deadline {
    bound(Duration::from_secs(limit))
}

/// A module of rows for each part that waits, and [`ALL`] of them.
macro_rules! deadlines {
    ($($(#[$about:meta])* $part:ident {
        $($NAME:ident = $name:literal, $bound:expr, $doc:literal;)*
    })*) => {
        $($(#[$about])* pub mod $part {
            use crate::deadlines::*;
            $(
                #[doc = $doc]
                pub const $NAME: Deadline = Deadline { name: $name, doc: $doc, ..$bound };
            )*
        })*
        /// The table.
        pub const ALL: &[&[Deadline]] = &[$(&[$($part::$NAME),*]),*];
    };
}
use deadlines;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_deadline_has_a_name_of_its_own_a_bound_and_a_reason() {
        let mut names = std::collections::HashSet::new();
        for row in ALL.iter().copied().flatten() {
            assert!(names.insert(row.name), "{row:?}");
            assert!(
                row.name.contains('.') && row.limit + Duration::ZERO > Duration::ZERO
                    || row.exit != ExitTerm::None
            );
            assert!(row.doc.ends_with('.') && !row.doc.contains("  "), "{row:?}");
            let variable = row.set_by.starts_with("GASNET_");
            assert!(!variable || crate::find(row.set_by).is_some(), "{row:?}");
        }
        assert!(names.len() > 80, "{}", names.len());
    }

    #[test]
    fn bounds_follow_the_exit_time_out() {
        let (short, long) = (Duration::from_secs(3), Duration::from_secs(300));
        assert_eq!(exit::REDUCE.after(short), short);
        assert_eq!([exit::DRAIN.after(short), exit::DRAIN.after(long)], [exit::DRAIN.limit, long]);
        assert_eq!(
            [exit::STALL.after(EXIT_FLOOR / 2), exit::STALL.after(long)],
            [EXIT_FLOOR / 2, exit::STALL.limit]
        );
        assert_eq!(exit::ALARM_STEP.after(short), Duration::from_secs(8));
        assert_eq!(agent::REAP.after(short), agent::REAP.limit);
        assert_eq!([bootstrap::CALL.ms(), bootstrap::CALL.within(short).ms()], [u64::MAX, 3000]);
    }
}
