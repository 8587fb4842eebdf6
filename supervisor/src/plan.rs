//! What is to be started. Plain data made by the launcher; nothing here touches the system.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use bootstrap::Rank;
use serde::{Deserialize, Serialize};

pub use spawner_ssh::{HostEntry, Ssh, StageMode};

pub use crate::binding::{Binding, Part, Spread};
pub use crate::map::{Map, MapError, Place};

/// Who gets the launcher's standard input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StdinTo {
    /// Nobody: every rank reads an empty file.
    #[default]
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
    /// Also write each rank's streams, untouched, to `rank.N.out` and `rank.N.err` in this
    /// directory (made if missing).
    pub directory: Option<PathBuf>,
}

/// A chance to write a checkpoint before the hosts are taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// The signal that asks for it.
    pub signal: i32,
    /// Until SIGTERM follows.
    pub grace: Duration,
    /// Exit code of a job whose ranks have then left in good order; none: 0 as ever.
    pub code: Option<i32>,
}

/// Ranks run in containers, whose programs are theirs: nothing is sent to hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Container {
    /// Number of the only descriptor that gets in, which is then that of a rank's socket.
    pub socket: Option<i32>,
}

/// Everything the agent of one host needs to know.
#[derive(Clone, Debug, Default)]
pub struct JobPlan {
    /// Unique text for this job, for messages and reports.
    pub job_id: String,
    /// What names its files on this host, where several agents share one; empty: `job_id`.
    pub session: String,
    /// Names of all hosts of the job, where ranks may ask for them; empty: `host` alone.
    pub host_names: Vec<String>,
    /// Ranks in the job.
    pub size: u32,
    /// Name of this host, for messages.
    pub host: String,
    /// Where each rank runs; `size` ranks.
    pub map: Map,
    /// Absolute path of the file to execute (the wrapper when there is one).
    pub program: PathBuf,
    /// Which word of `argv` is the GASNet program; 0: the one that is executed, which need not be
    /// one.
    pub program_word: usize,
    /// Argument vector, with word 0.
    pub argv: Vec<OsString>,
    /// The programs of a job with several, in the order of their ranks, the one above first; empty:
    /// all ranks run that one.
    pub programs: Vec<Program>,
    /// Ranks run in containers.
    pub container: Option<Container>,
    /// Complete environment of the ranks, without the per-rank variables that the agent adds.
    pub env: Vec<(OsString, OsString)>,
    /// What ranks on other hosts get on top of what a login there sets; it wins over that.
    pub env_for_hosts: Vec<(OsString, OsString)>,
    /// Working directory of the ranks.
    pub directory: PathBuf,
    /// CPU set of each rank on this host (logical numbers), by rank; empty = leave the binding
    /// alone. Of a job with other hosts it is empty: there each host's agent binds by
    /// `binding`.
    pub cpus: Vec<Vec<usize>>,
    /// How the ranks of each host use its cpus.
    pub binding: Binding,
    /// How other hosts are reached.
    pub reach: Reach,
    /// Standard input.
    pub stdin: StdinTo,
    /// Standard output and error.
    pub output: OutputPlan,
    /// The job's time limit.
    pub timeout: Option<Duration>,
    /// How long all ranks may wait without a message until that is said; none: it never is.
    pub stall_timeout: Option<Duration>,
    /// What the ranks get instead of the first SIGTERM.
    pub checkpoint: Option<Checkpoint>,
    /// Bound on exit coordination (`GASNET_EXITTIMEOUT` family).
    pub exit_bound: Duration,
    /// Whether the program carries the conduit's identification string; decides the wording of
    /// messages.
    pub conduit_program: bool,
    /// The program is another launcher, which starts the ranks: it gets neither our variables nor a
    /// socket.
    pub foreign: bool,
    /// Whether ranks that are MPI programs are served.
    pub pmi: Pmi,
    /// Where the library by which Open MPI speaks PMI-1 was sent; none: where this host has it.
    pub pmi_library: Option<PathBuf>,
    /// Where ranks leave traces and counters, if those are wanted.
    pub trace: Option<crate::trace::Memory>,
    /// Verbosity: 0 quiet, 1 life-cycle lines, 2 every frame and signal, on standard error.
    pub verbose: u8,
}

/// What ranks that are MPI programs are offered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Pmi {
    /// Nothing: each would start as a job of its own.
    #[default]
    Off,
    /// PMI-1 and PMI-2, over a descriptor of each rank.
    On,
    /// The same, and what makes Open MPI speak PMI-1.
    OpenMpi,
    /// PMI-1, PMI-2 and PMIx, which a helper process on each host serves by libpmix.
    Pmix,
}

/// One of several programs of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// Its first rank; its ranks are those up to the first one of the next program.
    pub first: u32,
    /// Absolute path of the file to execute (the wrapper when there is one).
    pub file: OsString,
    /// Which word of `argv` is the GASNet program; 0: the one that is executed.
    pub word: u32,
    /// Whether it carries the conduit's identification string.
    pub gasnet: bool,
    /// Argument vector, with word 0.
    pub argv: Vec<OsString>,
    /// Variables of its ranks, on top of those of all.
    pub env: Vec<(OsString, OsString)>,
    /// Working directory of its ranks, in place of that of the others.
    pub directory: Option<OsString>,
}

impl Program {
    /// The file of the program itself, behind a wrapper if there is one.
    #[must_use]
    pub fn own_file(&self) -> &OsString {
        self.argv.get(self.word as usize).filter(|_| self.word > 0).unwrap_or(&self.file)
    }

    /// Puts it at another place.
    pub fn set_own_file(&mut self, place: OsString) {
        match self.argv.get_mut(self.word as usize).filter(|_| self.word > 0) {
            Some(word) => *word = place,
            None => self.file = place,
        }
    }

    /// Puts the words of a wrapper, the first one an absolute path, in front of it.
    pub fn put_behind(&mut self, wrapper: &[OsString]) {
        let Some(first) = wrapper.first() else { return };
        self.file.clone_from(first);
        self.argv.splice(..0, wrapper.iter().cloned());
        self.word = self.word.saturating_add(u32::try_from(wrapper.len()).unwrap_or(u32::MAX));
    }

    /// `env` with its own variables.
    #[must_use]
    pub fn environment(&self, env: &[(OsString, OsString)]) -> Vec<(OsString, OsString)> {
        let other =
            |(name, _): &&(OsString, OsString)| !self.env.iter().any(|(own, _)| own == name);
        env.iter().filter(other).chain(&self.env).cloned().collect()
    }

    /// What is wrong with the programs of a job of so many ranks, if anything is.
    #[must_use]
    pub fn problem(programs: &[Self], size: u32) -> Option<String> {
        let first = programs.first()?;
        let ascending = programs.is_sorted_by(|a, b| a.first < b.first);
        if first.first != 0 || !ascending || programs.iter().any(|program| program.first >= size) {
            return Some(format!("the ranks of its programs are not those of {size}"));
        }
        let wrong = |program: &&Self| program.argv.len() <= program.word as usize;
        programs.iter().find(wrong).map(|program| {
            format!("word {} of a program with {}", program.word, program.argv.len())
        })
    }

    /// The index of the program of a rank.
    #[must_use]
    pub fn index_of(programs: &[Self], rank: u32) -> usize {
        programs.partition_point(|program| program.first <= rank).saturating_sub(1)
    }
}

/// How other hosts are reached: the `GASNET_SSH_*` variables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reach {
    /// How agents start further agents. Where their program should be is known to the supervisor.
    pub ssh: Ssh,
    /// Working directory on other hosts instead of the plan's (`GASNET_SSH_REMOTE_PATH`).
    pub directory: Option<PathBuf>,
    /// Whether hosts that have other GASNet programs at the same place are refused
    /// (`GASNET_IBV_SAME_PROGRAM`).
    pub same_program: bool,
    /// Bound on the start of all agents; none = the default of
    /// [`settings::deadlines::tree::START`].
    pub start_timeout: Option<Duration>,
}

impl JobPlan {
    /// The programs with their ranks: one at least.
    #[must_use]
    pub fn all_programs(&self) -> Vec<Program> {
        if !self.programs.is_empty() {
            return self.programs.clone();
        }
        vec![Program {
            first: 0,
            file: self.program.clone().into(),
            word: u32::try_from(self.program_word).unwrap_or(0),
            gasnet: self.conduit_program,
            argv: self.argv.clone(),
            env: Vec::new(),
            directory: None,
        }]
    }

    /// Whether ranks that are MPI programs are served.
    pub(crate) fn offers_pmi(&self) -> bool {
        self.pmi != Pmi::Off && !self.foreign
    }

    /// Indices of the programs that some of `ranks` run.
    pub(crate) fn programs_of(&self, ranks: &[Rank]) -> Vec<usize> {
        let of = |rank: &Rank| Program::index_of(&self.programs, rank.0);
        let mut all: Vec<usize> = ranks.iter().map(of).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Directories that `ranks` start in.
    pub(crate) fn directories_of(&self, ranks: &[Rank]) -> Vec<PathBuf> {
        let own = |at: usize| self.programs.get(at)?.directory.clone().map(PathBuf::from);
        let programs = self.programs_of(ranks).into_iter();
        let mut all: Vec<PathBuf> =
            programs.map(|at| own(at).unwrap_or_else(|| self.directory.clone())).collect();
        all.dedup();
        all
    }

    /// A plan with everything at its default: empty environment, directory `/`, host `localhost`,
    /// standard input to rank 0, no binding, no time limit, an exit bound of 6 s. `program` is the
    /// file, `argv` the words with word 0.
    #[must_use]
    pub fn new(size: u32, program: PathBuf, argv: Vec<OsString>) -> Self {
        Self {
            job_id: "job".to_owned(),
            size,
            host: "localhost".to_owned(),
            map: Map::here("localhost", size),
            program,
            argv,
            directory: PathBuf::from("/"),
            stdin: StdinTo::Rank(Rank(0)),
            exit_bound: Duration::from_secs(6),
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn programs(firsts: &[u32]) -> Vec<Program> {
        let program = |first: &u32| Program {
            first: *first,
            file: "/bin/env".into(),
            argv: vec!["env".into(), "/bin/a".into()],
            ..Program::default()
        };
        firsts.iter().map(program).collect()
    }

    #[test]
    fn ranks_have_the_program_that_begins_last_before_them() {
        let all = programs(&[0, 2, 3]);
        let seen: Vec<usize> = (0..5).map(|rank| Program::index_of(&all, rank)).collect();
        assert_eq!(seen, [0, 0, 1, 2, 2]);
        assert_eq!(Program::index_of(&[], 7), 0);
    }

    /// They also come from a message.
    #[test]
    fn programs_that_cannot_be_are_refused() {
        assert_eq!(Program::problem(&[], 3), None);
        assert_eq!(Program::problem(&programs(&[0, 2]), 3), None);
        for bad in [&[1][..], &[0, 0], &[0, 2, 1], &[0, 3]] {
            assert!(Program::problem(&programs(bad), 3).is_some(), "{bad:?}");
        }
        let mut no_word = programs(&[0]);
        no_word[0].word = 2;
        assert!(Program::problem(&no_word, 1).is_some());
    }

    #[test]
    fn a_program_has_its_own_file_and_variables() {
        let mut program = Program { word: 1, ..programs(&[0]).remove(0) };
        assert_eq!(program.own_file(), "/bin/a");
        program.set_own_file("/tmp/a".into());
        assert_eq!(
            (program.file.to_str(), program.argv[1].to_str()),
            (Some("/bin/env"), Some("/tmp/a"))
        );
        program.env = vec![("A".into(), "2".into())];
        let all = [("A".into(), "1".into()), ("B".into(), "1".into())];
        assert_eq!(program.environment(&all), [("B".into(), "1".into()), ("A".into(), "2".into())]);
    }
}
