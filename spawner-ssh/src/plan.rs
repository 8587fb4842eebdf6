//! What is to be started. Plain data made by the launcher; nothing here touches the system.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use bootstrap::Rank;

/// Who gets the launcher's standard input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StdinTo {
    /// Nobody: every rank reads an empty file.
    None,
    /// Every rank gets a copy of every byte; the slowest reader sets the pace.
    All,
    /// One rank (the default is rank 0); the others read an empty file.
    Rank(Rank),
}

/// What is done with the ranks' standard output and error.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutputPlan {
    /// Put `[rank] ` in front of every line.
    pub tag: bool,
    /// Put the time of day in front of every line.
    pub timestamp: bool,
    /// Also write each rank's streams, untouched, to `rank.N.out` and `rank.N.err` in this directory (made if missing).
    pub directory: Option<PathBuf>,
}

/// Everything the agent of one host needs to know.
#[derive(Clone, Debug)]
pub struct JobPlan {
    /// Unique text for this job, for messages and reports.
    pub job_id: String,
    /// Ranks in the job; all are on this host for now.
    pub size: u32,
    /// Name of this host, for messages.
    pub host: String,
    /// Absolute path of the file to execute (the wrapper when there is one).
    pub program: PathBuf,
    /// Argument vector, with word 0.
    pub argv: Vec<OsString>,
    /// Complete environment of the ranks, without the per-rank variables that the agent adds.
    pub env: Vec<(OsString, OsString)>,
    /// Working directory of the ranks.
    pub directory: PathBuf,
    /// CPU set of each rank (logical numbers); empty = leave the binding alone.
    pub cpus: Vec<Vec<usize>>,
    /// Standard input.
    pub stdin: StdinTo,
    /// Standard output and error.
    pub output: OutputPlan,
    /// The job's time limit.
    pub timeout: Option<Duration>,
    /// Bound on exit coordination (`GASNET_EXITTIMEOUT` family).
    pub exit_bound: Duration,
    /// Whether the program carries the conduit's identification string; decides the wording of messages.
    pub conduit_program: bool,
    /// Verbosity: 0 quiet, 1 life-cycle lines, 2 every frame and signal, on standard error.
    pub verbose: u8,
}

impl JobPlan {
    /// A plan with everything at its default: empty environment, directory `/`, host `localhost`, standard input to
    /// rank 0, no binding, no time limit, an exit bound of 6 s. `program` is the file, `argv` the words with word 0.
    #[must_use]
    pub fn new(size: u32, program: PathBuf, argv: Vec<OsString>) -> Self {
        Self {
            job_id: "job".to_owned(),
            size,
            host: "localhost".to_owned(),
            program,
            argv,
            env: Vec::new(),
            directory: PathBuf::from("/"),
            cpus: Vec::new(),
            stdin: StdinTo::Rank(Rank(0)),
            output: OutputPlan::default(),
            timeout: None,
            exit_bound: Duration::from_secs(6),
            conduit_program: false,
            verbose: 0,
        }
    }
}

/// How many ranks each of `hosts` hosts gets when `ranks` are spread evenly: consecutive ranks, the first hosts take the
/// remainder. Fewer ranks than hosts leave the last hosts empty; no hosts, no entries.
#[must_use]
pub fn layout(ranks: u32, hosts: u32) -> Vec<u32> {
    let Some(each) = ranks.checked_div(hosts) else { return Vec::new() };
    let rest = ranks % hosts;
    (0..hosts).map(|host| each + u32::from(host < rest)).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ten_ranks_on_four_hosts() {
        assert_eq!(layout(10, 4), [3, 3, 2, 2]);
        assert_eq!(layout(3, 5), [1, 1, 1, 0, 0]);
        assert_eq!(layout(5, 0), [0; 0]);
    }

    proptest! {
        #[test]
        fn every_rank_has_a_place_and_shares_differ_by_one(ranks in 0u32..5000, hosts in 1u32..300) {
            let shares = layout(ranks, hosts);
            prop_assert_eq!(shares.len(), hosts as usize);
            prop_assert_eq!(shares.iter().sum::<u32>(), ranks);
            prop_assert!(shares.windows(2).all(|pair| pair[0] >= pair[1]));
            prop_assert!(shares[0] - shares[shares.len() - 1] <= 1);
        }
    }
}
