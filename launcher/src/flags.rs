//! The one option table. Parser, `--help`, man page and completions are all made from [`Flags`].
//!
//! These are the words as typed, checked one by one and without a look at the system. GASNet's own
//! spellings (`-np 4`, `-spawner=ssh`) are turned into the table's by [`crate::normalise`] first.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use crate::chosen::{Ranks, Words};
use crate::environment::Asked;
use bootstrap::Rank;
use bootstrap::rank::MAX_RANKS;
use clap::builder::{OsStringValueParser, PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{ArgAction, CommandFactory, Parser, ValueEnum, ValueHint};
use nix::sys::signal::Signal;
use supervisor::plan::{Part, Pmi, Spread, StageMode, StdinTo};

/// How the launcher shows that the job starts and ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ProgressMode {
    /// A bar while ranks start, when standard error is a terminal and it takes noticeable time;
    /// else nothing.
    Auto,
    /// A bar until the job ends; lines when standard error is not a terminal.
    Bar,
    /// One line per milestone.
    Plain,
    /// Nothing.
    None,
}

/// Which rank runs on which host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MapRule {
    /// Consecutive ranks share a host.
    Block,
    /// Consecutive ranks are on consecutive hosts.
    Cyclic,
    /// Hosts are filled in order, each up to its slots.
    Slots,
    /// As a file says.
    File(PathBuf),
}

/// What ranks are bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BindTo {
    /// A core of its own.
    Core,
    /// A socket, with others.
    Socket,
    /// A NUMA node, with others.
    Numa,
    /// Nothing.
    None,
}

/// Launches P ranks of a program on one or more hosts, supervises them and returns one exit code.
///
/// No process of the job is left behind.
///
/// Options end at the first word that is no option, or at --. That word is the program, or a
/// command that runs it (env, numactl, valgrind ...); it and everything after it reach the ranks
/// untouched. Of a repeated option the last value counts. A word : behind a program begins another
/// one of the same job, with options of its own: -n 2 ./a x : -n 6 ./b y.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "gasnetrun_ibv",
    version,
    override_usage = "gasnetrun_ibv -n P [options] [--] [wrapper ...] program [arguments ...] [: -n P program ...]",
    args_override_self = true,
    disable_help_subcommand = true,
    max_term_width = 100
)]
pub struct Flags {
    /// Number of ranks (processes) of the job; also written -np P, -nP, -npP
    #[arg(short = 'n', value_name = "P", value_parser = ranks, help_heading = "Job options")]
    pub ranks: Option<u32>,

    /// Number of hosts: the first H of the host list are used (default: as many as it has, at most
    /// P; also -NH)
    ///
    /// A value above P, or above the number of hosts in the list, is reduced with a warning.
    #[arg(short = 'N', value_name = "H", value_parser = hosts, help_heading = "Job options")]
    pub host_count: Option<u32>,

    /// Hosts to start ranks on, between commas or blanks, as in n1,me@n2,n[3-6]; overrides all
    /// environment variables
    ///
    /// The section HOSTS of the manual says how hosts are written and which variables are read
    /// without this option.
    #[arg(long, value_name = "LIST", conflicts_with = "hostfile", help_heading = "Job options")]
    pub hosts: Option<OsString>,

    /// File with one host per line; overrides all environment variables
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Job options")]
    pub hostfile: Option<PathBuf>,

    /// Most ranks of a host: hosts get K consecutive ranks each, in order
    ///
    /// Without -N as many hosts are used as that takes. With --map cyclic ranks are dealt out over
    /// those hosts.
    #[arg(long, value_name = "K", value_parser = ranks_per_host, help_heading = "Job options")]
    pub ranks_per_host: Option<u32>,

    /// Which rank runs where: block, cyclic, slots, or a file with ranks and their host in each
    /// line
    ///
    /// block puts consecutive ranks on a host, cyclic deals them out one by one. In both each host
    /// gets the same number of ranks, the first ones get the remainder, and none gets more than its
    /// slots. slots fills one host after the other, each up to its slots; hosts without a number of
    /// slots share what is left. -t shows the map.
    #[arg(long, value_name = "block|cyclic|slots|FILE", value_parser = map_parser(), default_value = "block", value_hint = ValueHint::FilePath, help_heading = "Job options")]
    pub map: MapRule,

    /// Cpus per rank: rank i is bound to its own set of K cpus; 0, the default, leaves binding
    /// alone (also -cK)
    ///
    /// The sets are disjoint and taken in order from the cpus that the launcher, or the agent on
    /// another host, may use; -t shows them.
    #[arg(short = 'c', value_name = "K", value_parser = cpus, help_heading = "Job options")]
    pub cpus: Option<u32>,

    /// What each rank is bound to: core, socket, numa, or none, the default
    ///
    /// core gives each rank a core of its own, with all its hardware threads (-c K: K cores). A
    /// socket or NUMA node is shared by ranks, as many consecutive ones to each as the others get.
    /// Only cpus that the launcher, or the agent on another host, may use count. A binding that is
    /// not possible is refused. none is the same as -c 0.
    #[arg(long, value_name = "core|socket|numa|none", value_parser = bind_to, help_heading = "Job options")]
    pub bind_to: Option<BindTo>,

    /// Where consecutive ranks of a host are bound: socket, numa or core deals them out one by one
    /// over those; N:PART puts N to each
    ///
    /// Without --bind-to and -c, ranks are bound to the PART itself.
    #[arg(long, value_name = "PART|N:PART", value_parser = place, help_heading = "Job options")]
    pub place: Option<Spread>,

    /// Say which ranks are bound to which cores, on standard error, one line for each socket
    #[arg(long, help_heading = "Job options")]
    pub report_bindings: bool,

    /// Let hosts have more ranks than the host list gives them slots
    #[arg(long, overrides_with = "no_oversubscribe", help_heading = "Job options")]
    pub oversubscribe: bool,

    /// Refuse more ranks on a host than it has cores that may be used
    ///
    /// Without this, ranks of a host may share cores, unless -c or --bind-to bind them.
    #[arg(long, overrides_with = "oversubscribe", help_heading = "Job options")]
    pub no_oversubscribe: bool,

    /// Variables to forward to other hosts: comma-separated names, or ALL; NAME=VALUE sets one for
    /// all ranks (may be repeated)
    ///
    /// On this host every rank gets the launcher's whole environment, whatever the list says. Ranks
    /// on other hosts get what a login there sets, all GASNET_* variables, and those of the list.
    /// Names that are not set are skipped; unusual names and values of any bytes are carried
    /// exactly. Only ALL leaves out exported functions that bash could not read there. A value that is set here ends at the next comma; --env takes one with commas.
    #[arg(short = 'E', value_name = "LIST", action = ArgAction::Append, help_heading = "Job options")]
    pub env_lists: Vec<OsString>,

    /// One variable to forward to other hosts, or with a value to set for all ranks (may be
    /// repeated)
    ///
    /// As -E, but a value may have commas, and a NAME that ends with * stands for all variables that
    /// begin so. What is set here counts more than what -E sets. In a job of several programs it is
    /// set for the ranks of its own program only.
    #[arg(long, value_name = "NAME[=VALUE]", action = ArgAction::Append, help_heading = "Job options")]
    pub env: Vec<OsString>,

    /// The same for the ranks of all programs of the job
    #[arg(long, value_name = "NAME[=VALUE]", action = ArgAction::Append, help_heading = "Job options")]
    pub env_all: Vec<OsString>,

    /// How ranks are started: ssh, mpi or pmi; overrides GASNET_IBV_SPAWNER; also -spawner=NAME
    ///
    /// ssh, the default, starts ranks on this host without any ssh, on others by it. pmi and mpi
    /// call another launcher (srun, mpiexec, mpirun ...), by the template in PMIRUN_CMD or
    /// MPIRUN_CMD. In an allocation of Slurm that has other hosts, pmi is the default. The section
    /// OTHER LAUNCHERS of the manual says more.
    #[arg(long, value_name = "NAME", require_equals = true, help_heading = "Job options")]
    pub spawner: Option<OsString>,

    /// Serve ranks that are MPI programs, by PMI: on, openmpi, pmix or off (default: on, openmpi for a
    /// program of Open MPI 2 to 4, pmix for one that needs libpmix)
    ///
    /// The ranks of an MPI program then are one MPI job, on one host or many, also those that use
    /// GASNet as well. A rank that does not ask for it costs a descriptor. on serves MPICH and what is
    /// made from it, openmpi Open MPI 4 too, pmix all that speak PMIx, for which each host needs libpmix;
    /// they are needed where a script or an interpreter hides the program.
    /// With off each rank starts as an MPI job of its own. The section MPI PROGRAMS of the manual says
    /// more.
    #[arg(long, value_name = "on|openmpi|pmix|off", value_parser = pmi(), help_heading = "Job options")]
    pub pmi: Option<Pmi>,

    /// Working directory of the ranks (default: the launcher's own); counts more than
    /// GASNET_SSH_REMOTE_PATH
    ///
    /// It must be there on every host that has ranks, and on this one only if it has some.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, help_heading = "Job options")]
    pub wdir: Option<PathBuf>,

    /// End the job with code 124 after this time: seconds, or a number followed by s, m or h
    #[arg(long, value_name = "TIME", value_parser = duration, help_heading = "Job options")]
    pub timeout: Option<Duration>,

    /// Say once where the ranks are when all of them have waited for this time, and no message has
    /// come; same form as --timeout
    ///
    /// The job goes on. Ranks wait when they sleep inside the library: in a barrier, a collective,
    /// for a message. On each host they are looked at then, as gasnetrun_ibv stacks does.
    #[arg(long, value_name = "TIME", value_parser = duration, help_heading = "Job options")]
    pub stall_timeout: Option<Duration>,

    /// Run the program of ranks under this debugger, or another command: gdb, lldb, 'xterm -e gdb'
    ///
    /// gdb and lldb also get the word that makes them take the program's arguments (gdb --args). It must
    /// be installed on all hosts that have such ranks. Standard input goes to the rank of
    /// --debugger-ranks if that is one alone. Ranks have a day to end after the others, unless
    /// GASNET_EXITTIMEOUT or its kind is set. gasnetrun_ibv attach runs a debugger for a rank that runs
    /// already.
    #[arg(long, value_name = "COMMAND", value_parser = Words::parse, help_heading = "Job options")]
    pub debugger: Option<Words>,

    /// Ranks that --debugger is for, as in 0,3-5 (default: all)
    #[arg(long, value_name = "LIST", value_parser = Ranks::parse, help_heading = "Job options")]
    pub debugger_ranks: Option<Ranks>,

    /// Run each rank in a container that this command makes: 'apptainer exec a.sif', 'podman run IMAGE',
    /// 'bwrap --dev-bind / /'
    ///
    /// It stands in front of the program on every host; the program is that of the container, so
    /// nothing is sent (--stage). podman, bwrap and apptainer are told what ranks need; any other
    /// command must keep environment and descriptors. docs/containers.md says more.
    #[arg(long, value_name = "COMMAND", value_parser = Words::parse, help_heading = "Job options")]
    pub container: Option<Words>,

    /// Hosts at the end of the list that are kept back, to take the place of hosts that fail
    ///
    /// When a host cannot take part (it is not reached, the program is missing there ...), the next of
    /// these that has enough slots takes its ranks, before any rank runs. With -N, they are the hosts
    /// behind the first N.
    #[arg(long, value_name = "K", value_parser = count, help_heading = "Job options")]
    pub spares: Option<u32>,

    /// Start the job again when a host is lost or ranks cannot be started, at most so many times
    ///
    /// Never after the exit code of a program, a signal or a time limit. All ranks begin anew; hosts of
    /// --spares take the place of those that failed. What the ranks have read of standard input is
    /// read again from a file; a job that reads a pipe is not started again.
    #[arg(long, value_name = "N", value_parser = count, help_heading = "Job options")]
    pub retry: Option<u32>,

    /// Signal that the ranks get instead of the first SIGTERM to the launcher, so that they can write a
    /// checkpoint and exit
    ///
    /// For batch systems that take the hosts back. The ranks have the time of --checkpoint-grace, then
    /// they get SIGTERM.
    #[arg(long, value_name = "SIGNAL", value_parser = signal, help_heading = "Job options")]
    pub checkpoint_signal: Option<i32>,

    /// Time that ranks have after --checkpoint-signal (default: 30 s); same form as --timeout
    #[arg(long, value_name = "TIME", value_parser = duration, requires = "checkpoint_signal", help_heading = "Job options")]
    pub checkpoint_grace: Option<Duration>,

    /// Exit code of the launcher when all ranks have left in good order after --checkpoint-signal, so
    /// that a batch script can queue the job again
    #[arg(long, value_name = "CODE", value_parser = code, requires = "checkpoint_signal", help_heading = "Job options")]
    pub requeue_code: Option<u8>,

    /// Give up when not every host is ready after this time (default: 2 minutes); same form as
    /// --timeout
    ///
    /// Ranks start once all hosts are ready. When a host fails before that, the launcher names it
    /// with the reason and exits with code 125.
    #[arg(long, value_name = "TIME", value_parser = duration, help_heading = "Job options")]
    pub start_timeout: Option<Duration>,

    /// When the program, and this launcher as agent, are copied to other hosts
    ///
    /// auto copies the program to hosts where it is missing; a GASNet program also to hosts where
    /// it differs. never copies nothing and names the hosts that lack it. always copies it to every
    /// host. The program is copied once per host, from host to host, and checked by its SHA-256.
    /// The launcher itself is copied to hosts where it is missing or of another version. Ranks run
    /// the copy from a directory of the job, below XDG_CACHE_HOME/gasnetrun or TMPDIR/gasnetrun-UID
    /// on their host; it is removed when the job ends, unless -k is given. Copies are cached there
    /// for later jobs, for a week and up to GASNET_SSH_STAGE_CACHE bytes; -k does not change that.
    /// Shared libraries and other files are not copied.
    #[arg(long, value_name = "WHEN", value_parser = stage_mode(), default_value = "auto", help_heading = "Job options")]
    pub stage: StageMode,

    /// Who reads the launcher's standard input: none, all, or one rank (default: 0, or the rank of
    /// --debugger-ranks)
    #[arg(long, value_name = "none|all|RANK", value_parser = stdin_to, help_heading = "Input and output options")]
    pub stdin: Option<StdinTo>,

    #[allow(rustdoc::broken_intra_doc_links, reason = "the help text, not a link")]
    /// Put "[rank] " in front of every line that a rank writes
    #[arg(long, help_heading = "Input and output options")]
    pub tag_output: bool,

    /// Put the time of day in front of every line that a rank writes
    #[arg(long, help_heading = "Input and output options")]
    pub timestamp_output: bool,

    /// Also write every rank's output, unchanged, to rank.N.out and rank.N.err in this directory
    /// (made if missing)
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, help_heading = "Input and output options")]
    pub output_dir: Option<PathBuf>,

    /// Write a JSON job report to this file, even when the job could not be started
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Input and output options")]
    pub report: Option<PathBuf>,

    /// Record what the ranks do, and write it to this file as a timeline for Perfetto or
    /// chrome://tracing
    ///
    /// Messages (as arrows from sender to handler), puts, gets, waits, barriers, registrations,
    /// connections and exits of all ranks, with clocks aligned. Each rank keeps its newest events
    /// (GASNET_TRACE_MEMORY), also when it is killed. GASNET_TRACEMASK chooses kinds,
    /// GASNET_TRACENODES ranks.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Input and output options")]
    pub trace: Option<PathBuf>,

    /// Print a table of what each rank sent and how long it waited, on standard error, at the end
    ///
    /// The three ranks that differ most from the others are named below it. GASNET_STATSMASK
    /// chooses what is counted.
    #[arg(long, help_heading = "Input and output options")]
    pub stats: bool,

    /// How to show progress, on standard error
    #[arg(long, value_name = "MODE", value_enum, default_value_t = ProgressMode::Auto, help_heading = "Input and output options")]
    pub progress: ProgressMode,

    /// Print more on standard error; twice: every step (sets GASNET_VERBOSEENV, twice also
    /// GASNET_SPAWN_VERBOSE)
    #[arg(short = 'v', action = ArgAction::Count, help_heading = "Information options")]
    pub verbose: u8,

    /// No warnings: sets GASNET_QUIET=1, for the ranks too, unless it is set already
    #[arg(short = 'q', long, help_heading = "Information options")]
    pub quiet: bool,

    /// Dry run: print exactly what would be started, start nothing and change nothing; implies -v
    #[arg(short = 't', help_heading = "Information options")]
    pub dry_run: bool,

    /// Keep temporary files; implies -v. On this host there are none; on other hosts those are the
    /// copies made by --stage
    #[arg(short = 'k', help_heading = "Information options")]
    pub keep: bool,

    /// Print the GASNET_* variables with their values, defaults and meaning, and end
    #[arg(long, help_heading = "Information options")]
    pub print_settings: bool,

    /// Print a completion script for this shell, and end
    #[arg(long, value_name = "SHELL", value_enum, help_heading = "Information options")]
    pub completions: Option<clap_complete::Shell>,

    /// Print the manual page in roff, and end
    #[arg(long, hide = true)]
    pub man: bool,
}

/// The option table as a parser.
#[must_use]
pub fn command() -> clap::Command {
    let end = [crate::aliases::pages::help(), crate::exit_code::help()].join("\n");
    Flags::command().after_long_help(end)
}

impl Flags {
    /// What is said about the environment of all ranks.
    #[must_use]
    pub fn asked(&self) -> Asked<'_> {
        Asked { lists: &self.env_lists, each: &self.env_all }
    }

    /// Who reads the launcher's standard input.
    #[must_use]
    pub fn reader(&self) -> StdinTo {
        let debugged = self.debugger_ranks.as_ref().and_then(Ranks::only);
        self.stdin.unwrap_or_else(|| StdinTo::Rank(Rank(debugged.unwrap_or(0))))
    }

    /// The option by which ranks record what they do, if one is given.
    #[must_use]
    pub fn records(&self) -> Option<&'static str> {
        self.trace.as_ref().map(|_| "--trace").or(self.stats.then_some("--stats"))
    }

    /// Verbosity with what -t and -k imply.
    #[must_use]
    pub fn level(&self) -> u8 {
        self.verbose.max(u8::from(self.dry_run || self.keep))
    }
}

fn whole(text: &str) -> Option<u64> {
    (!text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()))
        .then(|| text.parse().unwrap_or(u64::MAX))
}

fn positive(text: &str, what: &str, example: &str) -> Result<u32, String> {
    match whole(text) {
        None => Err(format!("not a whole number; write {what} in digits, as in {example}")),
        Some(0) => Err(format!("{what} must be at least 1, as in {example}")),
        Some(number) => u32::try_from(number)
            .ok()
            .filter(|n| *n <= MAX_RANKS)
            .ok_or_else(|| format!("{what} can be at most {MAX_RANKS}")),
    }
}

fn count(text: &str) -> Result<u32, String> {
    positive(text, "the number", "--spares 2 or --retry 2")
}

fn code(text: &str) -> Result<u8, String> {
    let code = whole(text).and_then(|code| u8::try_from(code).ok()).filter(|code| *code > 0);
    code.ok_or_else(|| "write an exit code from 1 to 255, as in --requeue-code 85".to_owned())
}

/// A signal by name, with SIG or without, or by number.
pub(crate) fn signal(text: &str) -> Result<i32, String> {
    let named = || {
        let upper = text.to_ascii_uppercase();
        let name = if upper.starts_with("SIG") { upper } else { format!("SIG{upper}") };
        name.parse::<Signal>().ok().map(|signal| signal as i32)
    };
    let number = text.parse::<i32>().ok().filter(|number| (1..=libc::SIGRTMAX()).contains(number));
    number.or_else(named).ok_or_else(|| "write a signal, as in TERM, SIGUSR1 or 15".to_owned())
}

fn ranks(text: &str) -> Result<u32, String> {
    positive(text, "the number of ranks", "-n 4")
}

fn hosts(text: &str) -> Result<u32, String> {
    positive(text, "the number of hosts", "-N 1")
}

fn ranks_per_host(text: &str) -> Result<u32, String> {
    positive(text, "the number of ranks per host", "--ranks-per-host 4")
}

/// `--bind-to`.
fn bind_to(text: &str) -> Result<BindTo, String> {
    match text {
        "core" => Ok(BindTo::Core),
        "socket" | "package" => Ok(BindTo::Socket),
        "numa" => Ok(BindTo::Numa),
        "none" => Ok(BindTo::None),
        "hwthread" => Err("hardware threads are what -c counts, as in -c 1".to_owned()),
        _ => {
            Err("write core, socket, numa or none, as in --bind-to core; -c K gives K of them"
                .into())
        }
    }
}

/// `--place`.
fn place(text: &str) -> Result<Spread, String> {
    let (each, part) = text.split_once(':').map_or((None, text), |(each, part)| (Some(each), part));
    let over = match part {
        "core" => Part::Core,
        "socket" => Part::Socket,
        "numa" => Part::Numa,
        _ => {
            return Err(
                "write socket, numa or core, or N:socket ..., as in --place 2:socket".into()
            );
        }
    };
    let each = each.map(|each| positive(each, "the number of ranks", "--place 2:socket"));
    Ok(Spread { over, each: each.transpose()? })
}

fn map_parser() -> impl TypedValueParser<Value = MapRule> {
    OsStringValueParser::new().try_map(|text| match text.to_str() {
        Some("") => Err("write block, cyclic, slots, or the name of a file, as in --map cyclic"),
        Some("block") => Ok(MapRule::Block),
        Some("cyclic") => Ok(MapRule::Cyclic),
        Some("slots") => Ok(MapRule::Slots),
        _ => Ok(MapRule::File(text.into())),
    })
}

/// `--stage`, for jobs and for the doctor.
pub(crate) fn stage_mode() -> impl TypedValueParser<Value = StageMode> {
    let modes = [
        (StageMode::Auto, "When they are missing there, or others"),
        (StageMode::Never, "Never"),
        (StageMode::Always, "Always"),
    ];
    let named = modes.map(|(mode, help)| PossibleValue::new(mode.name()).help(help));
    let mode = move |name: String| modes.into_iter().find(|(mode, _)| mode.name() == name);
    PossibleValuesParser::new(named)
        .map(move |name| mode(name).map_or(StageMode::Auto, |(mode, _)| mode))
}

/// `--pmi`.
fn pmi() -> impl TypedValueParser<Value = Pmi> {
    let values = [
        PossibleValue::new("on").help("PMI-1 and PMI-2"),
        PossibleValue::new("openmpi").help("The same, and what makes Open MPI speak PMI-1"),
        PossibleValue::new("pmix").help("PMI-1, PMI-2 and PMIx, through libpmix of each host"),
        PossibleValue::new("off").help("Nothing"),
    ];
    PossibleValuesParser::new(values).map(|name| match name.as_str() {
        "on" => Pmi::On,
        "openmpi" => Pmi::OpenMpi,
        "pmix" => Pmi::Pmix,
        _ => Pmi::Off,
    })
}

fn cpus(text: &str) -> Result<u32, String> {
    if whole(text) == Some(0) {
        Ok(0)
    } else {
        positive(text, "the number of cpus per rank", "-c 1 (or -c 0: no binding)")
    }
}

fn stdin_to(text: &str) -> Result<StdinTo, String> {
    match text {
        "none" => Ok(StdinTo::None),
        "all" => Ok(StdinTo::All),
        _ => whole(text)
            .and_then(|rank| u32::try_from(rank).ok())
            .map(|rank| StdinTo::Rank(Rank(rank)))
            .ok_or_else(|| "write none, all, or a rank number, as in --stdin 0".to_owned()),
    }
}

pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = match text.as_bytes().last() {
        Some(b's') => (&text[..text.len() - 1], 1.0),
        Some(b'm') => (&text[..text.len() - 1], 60.0),
        Some(b'h') => (&text[..text.len() - 1], 3600.0),
        _ => (text, 1.0),
    };
    let plain = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let seconds: f64 = plain
        .then(|| number.parse().ok())
        .flatten()
        .ok_or("write seconds, or a number with s, m or h, as in --timeout 90 or --timeout 1.5h")?;
    let limit = Duration::try_from_secs_f64(seconds * unit)
        .ok()
        .filter(|limit| *limit <= Duration::from_secs(10 * 365 * 24 * 3600))
        .ok_or("more than ten years; leave the option out for no limit")?;
    if limit.is_zero() {
        return Err(
            "a limit of 0 would end the job at once; leave the option out for no limit".to_owned()
        );
    }
    Ok(limit)
}

#[cfg(test)]
#[path = "flags_tests.rs"]
mod tests;
