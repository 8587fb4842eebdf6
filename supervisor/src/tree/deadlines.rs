//! Every time limit between hosts, with its name.

use spawner_ssh::deadlines::Deadline;
pub use spawner_ssh::deadlines::{CONNECT, FAREWELL, RETRY};

/// All hosts, unless `--start-timeout` says otherwise.
pub const START: Deadline =
    Deadline::new("tree.start", 120_000, "until every host is ready to start its ranks");
/// An agent that was started but is told nothing ends.
pub const SETUP: Deadline =
    Deadline::new("tree.setup", 30_000, "from an agent's first word until it is told its part");
/// Once a host has failed, the others are given this to settle, so that one table shows all that is wrong.
pub const GATHER: Deadline =
    Deadline::new("tree.gather", 3_000, "after a host failed, until the job is given up");
/// Silence after which a side says that it is there.
pub const HEARTBEAT: Deadline =
    Deadline::new("tree.heartbeat", 2_000, "of silence, until a heartbeat is sent");
/// Silence of a child after which its hosts are lost.
pub const CHILD_SILENT: Deadline =
    Deadline::new("tree.child-silent", 12_000, "of silence, until an agent counts as lost");
/// Silence of the parent after which an agent is on its own. Longer: a stopped launcher may come back.
pub const PARENT_SILENT: Deadline = Deadline::new(
    "tree.parent-silent",
    30_000,
    "of silence, until an agent ends its ranks by itself",
);
/// The process behind a link has closed its output: how long its end and its last words are waited for.
pub const LAST_WORDS: Deadline = Deadline::new(
    "tree.last-words",
    200,
    "after a link's output ended, for the exit code of its process",
);
/// The checks of one host.
pub const CHECKS: Deadline =
    Deadline::new("tree.checks", 8_000, "until the doctor's checks of a host are over");
/// From the order to finish until an agent that still has not is given up, when nobody reads slowly.
pub const FINISH: Deadline =
    Deadline::new("tree.finish", 10_000, "until agents have drained and said so");

/// News that nobody waits for goes up together with more of its kind.
pub const HOLD: Deadline =
    Deadline::new("tree.hold", 5, "after the orderly end of a rank, until its host tells of it");

/// A loader that is slower (a file system that hangs) tells what it has to say when the ranks start.
pub const LOADER: Deadline =
    Deadline::new("tree.loader", 5_000, "for the loader to list the libraries of the program");

/// The table.
pub const ALL: [Deadline; 14] = [
    CONNECT,
    START,
    SETUP,
    GATHER,
    RETRY,
    HEARTBEAT,
    CHILD_SILENT,
    PARENT_SILENT,
    LAST_WORDS,
    FAREWELL,
    CHECKS,
    FINISH,
    HOLD,
    LOADER,
];

#[cfg(test)]
mod tests {
    use super::ALL;

    #[test]
    fn every_limit_has_a_name_of_its_own_a_value_and_a_text() {
        let here = crate::agent::deadlines::ALL;
        let names: std::collections::HashSet<_> =
            ALL.iter().chain(&here).map(|deadline| deadline.name).collect();
        assert_eq!(names.len(), ALL.len() + here.len());
        assert!(ALL.iter().all(|d| d.ms() > 0 && !d.doc.is_empty()));
    }
}
