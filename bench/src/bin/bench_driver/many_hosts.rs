//! 256 ranks on 64 hosts, over ssh and under Slurm: time of the job, memory of everybody in it.

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use testkit::Cluster;
use testkit::process::{Process, send};

use crate::Repetitions;
use crate::launch::in_path;
use crate::row::{Findings, Row, Target, Verdict};
use crate::run::{Failure, RUN, Result, Samples, largest_resident, proportional, run, sibling};
use crate::ssh::absent;

const HOSTS: usize = 64;
const RANKS: usize = 256;
/// What a job under Slurm begins with.
const ALLOCATION: [&str; 4] = ["salloc", "-Q", "--exclusive", "-N64"];

/// How jobs come to the hosts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Ssh,
    Slurm,
}

impl Way {
    const fn figure(self) -> &'static str {
        match self {
            Self::Ssh => "hosts-ssh",
            Self::Slurm => "hosts-slurm",
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Ssh => "over ssh",
            Self::Slurm => "under Slurm",
        }
    }

    /// What takes the same way and does nothing: its name.
    const fn bare_name(self) -> &'static str {
        match self {
            Self::Ssh => "`ssh host true` to each in parallel",
            Self::Slurm => "`srun -N64 -n256 true`",
        }
    }
}

/// Hosts that are up.
struct Bed {
    cluster: Cluster,
    hosts: Vec<String>,
    way: Way,
}

impl Bed {
    /// Nothing after a line that says why there are none.
    fn up(way: Way) -> Option<Self> {
        let hosts: Vec<String> = (1..=HOSTS).map(|number| format!("n{number}")).collect();
        let cluster = Cluster::up(way.figure(), &format!("head {}", hosts.join(" ")))?;
        let is_up = way == Way::Ssh || cluster.slurm(way.figure());
        is_up.then_some(Self { cluster, hosts, way })
    }

    /// A command line on the launching host.
    fn command(&self, words: &[&str]) -> Command {
        let conf = format!("SLURM_CONF={}", self.cluster.slurm_conf().display());
        let set = ["env", "GASNET_QUIET=1", "GASNET_IBV_SOFT_ADDRESS=198.18.77.0/24", &conf];
        self.cluster.bare("head", &[&set, words].concat())
    }

    /// A job of all ranks.
    fn job(&self, words: &[&str]) -> Result<Command> {
        let (launcher, list) = (text(sibling("gasnetrun_ibv")?), self.hosts.join(","));
        let count = RANKS.to_string();
        let line = match self.way {
            Way::Ssh => vec![&*launcher, "-n", &count, "--hosts", &list],
            Way::Slurm => [&ALLOCATION[..], &[&launcher, "-n", &count, "-N", "64"]].concat(),
        };
        Ok(self.command(&[&line, words].concat()))
    }

    /// What takes the same way without us.
    fn bare(&self) -> Command {
        match self.way {
            Way::Ssh => {
                let each = "for host in $0; do ssh -o BatchMode=yes -T $host true & all+=($!); done; \
                            for one in ${all[@]}; do wait $one || exit; done";
                self.command(&["bash", "-c", each, &self.hosts.join(" ")])
            }
            Way::Slurm => self.command(&["srun", "-N64", "-n256", "true"]),
        }
    }

    /// What runs on all hosts, by host.
    fn processes(&self) -> Vec<(usize, Process)> {
        let space = |pid: i32| std::fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
        let all = ["head"].into_iter().chain(self.hosts.iter().map(String::as_str));
        let spaces: HashMap<PathBuf, usize> = all
            .enumerate()
            .filter_map(|(number, host)| Some((space(self.cluster.init(host)?)?, number)))
            .collect();
        let there = |process: Process| Some((*spaces.get(&space(process.pid)?)?, process));
        Process::all().into_iter().filter(|one| !one.is_zombie()).filter_map(there).collect()
    }
}

fn text(path: PathBuf) -> String {
    path.display().to_string()
}

/// Who a process of the job is, if it is ours.
fn role(
    bed: &Bed,
    all: &[(usize, Process)],
    (host, process): &(usize, Process),
) -> Option<&'static str> {
    let ours = |process: &Process| process.command.starts_with("(gasnetrun_ibv)");
    let of_pid = |pid: i32| all.iter().find(|(_, one)| one.pid == pid).map(|(_, one)| one);
    if process.command.starts_with("(testexit)") {
        return Some("rank");
    }
    if !ours(process) {
        return None;
    }
    if *host == 0 {
        return Some(if of_pid(process.parent).is_some_and(ours) {
            "beside the launcher"
        } else {
            "launcher"
        });
    }
    let guards = all.iter().any(|(_, child)| child.parent == process.pid && ours(child));
    Some(if guards && bed.way == Way::Ssh { "guard" } else { "agent" })
}

/// Ranks that have met and wait in the library.
fn lasting(bed: &Bed) -> Result<Child> {
    let program = text(sibling("testexit")?);
    let mut command = bed.job(&[&program, "3", "--delay", "600000"])?;
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    Ok(command.spawn()?)
}

/// Peak and share of every process of ours in a job, once all ranks have met.
fn memory(bed: &Bed, samples: &mut Samples) -> Result<()> {
    let mut child = lasting(bed)?;
    let begin = Instant::now();
    let found = loop {
        let all = bed.processes();
        let ranks = all.iter().filter(|(_, one)| one.command.starts_with("(testexit)")).count();
        // They meet within this time; it is not measured.
        if ranks == RANKS && begin.elapsed() > Duration::from_secs(10) {
            std::thread::sleep(Duration::from_secs(5));
            break bed.processes();
        }
        if begin.elapsed() > RUN {
            break Vec::new();
        }
        std::thread::sleep(Duration::from_millis(200));
    };
    for one in &found {
        let Some(role) = role(bed, &found, one) else { continue };
        let pid = one.1.pid;
        for (what, value) in [("peak", largest_resident(pid)), ("share", proportional(pid))] {
            // A process that has just ended has neither.
            if let Ok(Some(value)) = value {
                samples.add(&format!("{what} of {role}"), value / 1024.0);
            }
        }
    }
    end(bed, &mut child, found.iter().map(|(_, process)| process))?;
    if found.is_empty() { Err(Failure("256 ranks do not come up".to_owned())) } else { Ok(()) }
}

/// Ends a job by its launcher, and waits for everybody.
fn end<'a>(bed: &Bed, child: &mut Child, mut all: impl Iterator<Item = &'a Process>) -> Result<()> {
    let ours = |process: &&Process| process.command.starts_with("(gasnetrun_ibv)");
    match all.find(ours) {
        Some(launcher) => drop(send(launcher.pid, Signal::SIGTERM)),
        None => child.kill()?,
    }
    let begin = Instant::now();
    while bed.processes().iter().any(|(_, one)| one.command.starts_with("(testexit)")) {
        if begin.elapsed() > RUN {
            return Err(Failure("ranks are left".to_owned()));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    child.wait()?;
    Ok(())
}

fn times(bed: &Bed, repetitions: Repetitions, samples: &mut Samples) -> Result<()> {
    let programs = [("noop", text(sibling("noop")?)), ("hello", text(sibling("hello")?))];
    // The first round fills the caches.
    for round in 0..=repetitions.exits {
        for step in 0..3 {
            let (key, command) = match programs.get((round + step) % 3) {
                Some((key, program)) => (*key, bed.job(&[program])?),
                None => ("bare", bed.bare()),
            };
            let took = run(command, false)?.wall_ms;
            if round > 0 {
                samples.add(key, took);
            }
        }
    }
    Ok(())
}

/// One rank that does nothing on each host, beside hydra's, in turns.
fn beside_hydra(bed: &Bed, repetitions: Repetitions, samples: &mut Samples) -> Result<Row> {
    const NAME: &str = "64 no-op ranks on 64 hosts over ssh, mpiexec.hydra";
    let Some(hydra) = in_path("mpiexec.hydra") else {
        return Ok(Row::without(NAME, Verdict::Skipped(absent("mpiexec.hydra").to_owned())));
    };
    let (launcher, hydra) = (text(sibling("gasnetrun_ibv")?), text(hydra));
    let (noop, list, count) = (text(sibling("noop")?), bed.hosts.join(","), HOSTS.to_string());
    let ours = [&*launcher, "-n", &count, "--hosts", &list, &noop];
    let theirs = [&*hydra, "-launcher", "ssh", "-hosts", &list, "-n", &count, "-ppn", "1", &noop];
    // The first round fills the caches.
    for round in 0..=repetitions.exits {
        let mut turns = [("one", &ours[..]), ("mpiexec.hydra", &theirs)];
        turns.rotate_left(round % 2);
        for (key, words) in turns {
            let took = run(bed.command(words), false)?.wall_ms;
            if round > 0 {
                samples.add(key, took);
            }
        }
    }
    Row::paired(NAME, samples, ["one", "mpiexec.hydra"], "ms", Target::AtMost(0.5))
}

fn measure(way: Way, repetitions: Repetitions) -> Result<Findings> {
    let Some(bed) = Bed::up(way) else {
        let reason = "such hosts cannot be made here (the lines above say why)";
        let rows = vec![Row::without(way.figure(), Verdict::Skipped(reason.into()))];
        return Ok(Findings { rows, ..Findings::default() });
    };
    let mut samples = Samples::default();
    let mut rows = Vec::new();
    if way == Way::Ssh {
        rows.push(beside_hydra(&bed, repetitions, &mut samples)?);
    }
    times(&bed, repetitions, &mut samples)?;
    memory(&bed, &mut samples)?;
    for (key, what) in [("noop", "256 no-op ranks"), ("hello", "hello on 256 ranks")] {
        let name = format!("{what} on 64 hosts {}, {}", way.name(), way.bare_name());
        rows.push(Row::paired(&name, &samples, [key, "bare"], "ms", Target::None)?);
    }
    for role in ["launcher", "guard", "agent", "rank"] {
        for what in ["peak", "share"] {
            let key = format!("{what} of {role}");
            let kind = if what == "peak" { "largest" } else { "proportional" };
            let name = format!("the same, {kind} resident memory of one {role}");
            if samples.median(&key).is_ok() {
                rows.push(Row::alone(&name, &samples, &key, "MiB", Target::None)?);
            }
        }
    }
    let notes = vec![format!(
        "{}: the hosts are network namespaces of one machine, which share its processors and its memory, so the times are \
         those of that machine, and proportional memory divides pages among all ranks of all hosts that map them. Memory is that \
         of ranks that have met and wait.",
        way.figure()
    )];
    Ok(Findings { rows, samples, notes, ..Findings::default() })
}

pub(crate) fn ssh(repetitions: Repetitions) -> Result<Findings> {
    measure(Way::Ssh, repetitions)
}

pub(crate) fn slurm(repetitions: Repetitions) -> Result<Findings> {
    measure(Way::Slurm, repetitions)
}
