//! Jobs on four hosts over ssh: their start, an exchange, the memory of an agent, their end.

use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use testkit::Cluster;
use testkit::process::{Process, send};

use crate::Repetitions;
use crate::launch::in_path;
use crate::row::{Findings, Row, Target, Verdict};
use crate::run::{Failure, RUN, Result, Samples, largest_resident, run, sibling};

const HOSTS: &str = "head n1 n2 n3 n4";
const LIST: &str = "n1,n2,n3,n4";
const SCRIPT: &str = include_str!("ssh.sh");

/// The hosts; nothing after a line that says why there are none.
fn hosts(figure: &str) -> std::result::Result<Cluster, Findings> {
    Cluster::up(figure, HOSTS).ok_or_else(|| Findings {
        rows: vec![Row::without(
            figure,
            Verdict::Skipped(
                "several hosts cannot be made here (scripts/cluster up says why)".into(),
            ),
        )],
        ..Findings::default()
    })
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

/// Runs the script on the launching host; its lines.
fn script(cluster: &Cluster, words: &[&str]) -> Result<Vec<(String, f64)>> {
    let line = [&["bash", "-c", SCRIPT, "ssh.sh"], words].concat();
    let ended = run(cluster.bare("head", &line), true)?;
    let mut found = Vec::new();
    for line in ended.out.lines() {
        let value = line.rsplit_once(' ').and_then(|(key, value)| Some((key, value.parse().ok()?)));
        let (key, value) = value.ok_or_else(|| Failure(line.to_owned()))?;
        found.push((key.to_owned(), value));
    }
    Ok(found)
}

/// Sixteen ranks that do nothing on four hosts.
pub(crate) fn launch(repetitions: Repetitions) -> Result<Findings> {
    let cluster = match hosts("ssh-launch") {
        Ok(cluster) => cluster,
        Err(skipped) => return Ok(skipped),
    };
    let others = [in_path("mpiexec.hydra"), in_path("mpirun.openmpi"), logins().ok()];
    let [hydra, mpirun, logins] = others.map(|path| path.as_deref().map(text).unwrap_or_default());
    let count = repetitions.launches.to_string();
    let (launcher, noop) = (text(&sibling("gasnetrun_ibv")?), text(&sibling("noop")?));
    let words = [&*launcher, &noop, &count, &hydra, &mpirun, &logins];
    let mut samples = Samples::default();
    for (key, value) in script(&cluster, &words)? {
        if key == "ssh" {
            samples.add("1.3 x ssh + 50 ms", 1.3 * value + 50.0);
        }
        samples.add(&key, value);
    }
    let row = |name, ours, reference, target| match samples.median(reference) {
        Ok(_) => Row::paired(name, &samples, [ours, reference], "ms", target),
        Err(_) => Ok(Row::without(name, Verdict::Skipped(absent(reference).to_owned()))),
    };
    let (ours, program) = ("gasnetrun_ibv", "by the ssh program");
    let most = Target::AtMost;
    let rows = vec![
        row("launch of 16 ranks on 4 hosts, mpiexec.hydra", ours, "mpiexec.hydra", most(0.4))?,
        row("the same, mpirun of Open MPI", ours, "mpirun", most(0.4))?,
        row("the same, one login to each host by libssh2 in parallel", ours, "logins", most(1.2))?,
        row("the same, `ssh host true` to each in parallel", ours, "ssh", Target::None)?,
        row(
            "the same by the ssh program, 1.3 times that plus 50 ms",
            program,
            "1.3 x ssh + 50 ms",
            most(1.0),
        )?,
        row("the same by the ssh program, mpiexec.hydra", program, "mpiexec.hydra", Target::None)?,
    ];
    let notes = vec![
        "ssh: four hosts are network namespaces of one machine, which share its processors: logins are slower here than \
         on four machines. All are timed on the launching host, one after the other."
            .to_owned(),
    ];
    Ok(Findings { rows, samples, notes, ..Findings::default() })
}

/// The program that only logs in, an example of the built-in client's package.
fn logins() -> Result<PathBuf> {
    sibling("examples/logins")
}

/// Why a launch has no reference.
pub(crate) fn absent(reference: &str) -> &'static str {
    match reference {
        "logins" => {
            "no OpenSSL to build a login by libssh2 with (apt-get install libssl-dev pkg-config)"
        }
        "mpirun" => "no mpirun.openmpi in PATH; apt-get install openmpi-bin",
        _ => "no mpiexec.hydra in PATH; scripts/bench --install, or apt-get install mpich",
    }
}

/// Runs a job of `bench_exchange` on the launching host; what one exchange takes, µs.
fn exchange_us(cluster: &Cluster, job: &[&str]) -> Result<f64> {
    let ended = run(cluster.bare("head", job), true)?;
    let value = ended.out.trim().strip_prefix("exchange_us ");
    Ok(value.ok_or_else(|| Failure(ended.out.clone()))?.parse()?)
}

/// 64 bytes of each of 256 ranks.
pub(crate) fn exchange(repetitions: Repetitions) -> Result<Findings> {
    let cluster = match hosts("ssh-exchange") {
        Ok(cluster) => cluster,
        Err(skipped) => return Ok(skipped),
    };
    let (launcher, program) = (text(&sibling("gasnetrun_ibv")?), text(&sibling("bench_exchange")?));
    let raw = text(&sibling("bench_raw")?);
    let trip = [&raw, "trip", "ssh", "-o", "BatchMode=yes", "-T", "n1", "cat"];
    let wake = [&raw, "wake", "4", "64"];
    let job = [&launcher, "-n", "256", "--hosts", LIST, &program, "100"];
    let mut samples = Samples::default();
    // The first turn warms up.
    for round in 0..=repetitions.exits {
        let mut found = Vec::new();
        for (key, line) in [("trip", &trip[..]), ("wake", &wake)] {
            let ended = run(cluster.bare("head", line), true)?;
            found.push((key, ended.out.trim().parse::<f64>()? / 1e3));
        }
        found.push(("exchange", exchange_us(&cluster, &job)?));
        let [(_, trip), (_, wake), _] = found[..] else { continue };
        found.push(("wake + 3 x trip", wake + 3.0 * trip));
        for (key, value) in found.into_iter().filter(|_| round > 0) {
            samples.add(key, value);
        }
    }
    let row = |name, reference, target| {
        Row::paired(name, &samples, ["exchange", reference], "µs", target)
    };
    let rows = vec![
        row(
            "exchange of 64 B, 4 hosts × 64 ranks, round trip of 64 B through one ssh channel (tree of one level)",
            "trip",
            Target::AtMost(3.0),
        )?,
        row("the same, a barrier of 256 bare processes in four groups", "wake", Target::None)?,
        row("the same, that barrier plus three round trips", "wake + 3 x trip", Target::None)?,
    ];
    let notes = vec![
        "ssh-exchange: all 256 ranks share the processors of this machine, and each must get one once in every exchange. \
         The bare barrier (one futex for each group of 64, woken at once) is what that takes at least; where it is longer \
         than three round trips of the channel, the target cannot be reached on so few processors."
            .to_owned(),
    ];
    Ok(Findings { rows, samples, notes, ..Findings::default() })
}

/// Bytes of a rank in the exchange that shows what a byte costs.
const LONG: u32 = 4 << 20;

/// What one link of the tree costs: the exchange of four hosts in a chain beside the same with all of
/// them below the root, and a long one of a single host beside a short one.
pub(crate) fn hop(repetitions: Repetitions) -> Result<Findings> {
    let cluster = match hosts("ssh-hop") {
        Ok(cluster) => cluster,
        Err(skipped) => return Ok(skipped),
    };
    let (launcher, program) = (text(&sibling("gasnetrun_ibv")?), text(&sibling("bench_exchange")?));
    let raw = text(&sibling("bench_raw")?);
    let measure = |degree: &str, hosts: &str, ranks: &str, args: &[&str]| -> Result<f64> {
        let degree = format!("GASNET_SSH_OUT_DEGREE={degree}");
        let job = ["env", &degree, &launcher, "-n", ranks, "--hosts", hosts, &program];
        exchange_us(&cluster, &[&job[..], args].concat())
    };
    let long = LONG.to_string();
    let mut samples = Samples::default();
    // The first turn warms up.
    for round in 0..=repetitions.exits {
        let trip = [&raw, "trip", "ssh", "-o", "BatchMode=yes", "-T", "n1", "cat"];
        let trip = run(cluster.bare("head", &trip), true)?.out.trim().parse::<f64>()? / 1e3;
        let chain = measure("1", LIST, "4", &["300"])?;
        let flat = measure("32", LIST, "4", &["300"])?;
        let (few, many) =
            (measure("32", "n1", "1", &["300"])?, measure("32", "n1", "1", &["9", &long])?);
        if round > 0 {
            samples.add("chain", chain);
            samples.add("flat", flat);
            // Three links more, each of them crossed twice.
            samples.add("hop", (chain - flat) / 6.0);
            samples.add("half a trip", trip / 2.0);
            samples.add("byte", (many - few) * 1e3 / (2.0 * f64::from(LONG)));
        }
    }
    let row = Row::paired(
        "one way over a link of the tree, half a round trip through one ssh channel",
        &samples,
        ["hop", "half a trip"],
        "µs",
        Target::None,
    )?;
    let byte = Row::alone("a byte over a link of the tree", &samples, "byte", "ns", Target::None)?;
    let notes = vec![
        "ssh-hop: the simulations of docs/design/tree.md and tree-collectives.md take these as what a message and a byte cost."
            .to_owned(),
    ];
    Ok(Findings { rows: vec![row, byte], samples, notes, ..Findings::default() })
}

/// A job that lasts.
struct Lasting {
    child: Child,
    ranks: Vec<Process>,
}

impl Lasting {
    fn new(cluster: &Cluster, ranks: usize, script: &str) -> Result<Self> {
        let launcher = text(&sibling("gasnetrun_ibv")?);
        let count = ranks.to_string();
        let line =
            ["env", "GASNET_QUIET=1", &launcher, "-n", &count, "--hosts", LIST, "sh", "-c", script];
        let mut command = cluster.bare("head", &line);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn()?;
        let begin = Instant::now();
        loop {
            let all = LIST.split(',').flat_map(|host| cluster.processes(host));
            let ranks_now: Vec<Process> =
                all.filter(|process| process.command.contains("sleep 601")).collect();
            if ranks_now.iter().filter(|process| process.command.starts_with("(sleep)")).count()
                == ranks
            {
                return Ok(Self { child, ranks: ranks_now });
            }
            if begin.elapsed() > RUN {
                let _ = child.kill();
                return Err(Failure(format!("{ranks} ranks do not come up")));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Milliseconds until no process of the job is left on any host.
    fn clean(mut self, cluster: &Cluster, begin: Instant) -> Result<f64> {
        while HOSTS.split(' ').any(|host| !cluster.processes(host).is_empty()) {
            if begin.elapsed() > RUN {
                return Err(Failure("processes are left".to_owned()));
            }
        }
        let took = begin.elapsed();
        self.child.wait()?;
        Ok(took.as_secs_f64() * 1e3)
    }

    fn end(self, cluster: &Cluster) -> Result<()> {
        for process in cluster.processes("head") {
            if process.command.starts_with("(gasnetrun_ibv)") {
                let _ = send(process.pid, Signal::SIGTERM);
                break;
            }
        }
        self.clean(cluster, Instant::now()).map(drop)
    }
}

/// Resident memory of an agent that has 64 ranks.
pub(crate) fn memory(_: Repetitions) -> Result<Findings> {
    let cluster = match hosts("ssh-memory") {
        Ok(cluster) => cluster,
        Err(skipped) => return Ok(skipped),
    };
    let job = Lasting::new(&cluster, 256, "exec sleep 601")?;
    let mut samples = Samples::default();
    for host in LIST.split(',') {
        for process in cluster.processes(host) {
            if !process.command.starts_with("(gasnetrun_ibv)") {
                continue;
            }
            let value = largest_resident(process.pid)?;
            let value = value.ok_or_else(|| Failure("no VmHWM".to_owned()))?;
            let guard = process.parent != 0
                && cluster.processes(host).iter().any(|child| {
                    child.parent == process.pid && child.command.starts_with("(gasnetrun_ibv)")
                });
            samples.add(if guard { "guard" } else { "agent" }, value / 1024.0);
        }
    }
    job.end(&cluster)?;
    let row = Row::alone(
        "largest resident memory of an agent with 64 ranks",
        &samples,
        "agent",
        "MiB",
        Target::Bound(8.0),
    )?;
    Ok(Findings { rows: vec![row], samples, ..Findings::default() })
}

/// From a rank's end until no host has a process of the job any more.
pub(crate) fn ends(repetitions: Repetitions) -> Result<Findings> {
    let cluster = match hosts("ssh-end") {
        Ok(cluster) => cluster,
        Err(skipped) => return Ok(skipped),
    };
    let go = cluster.directory().join("share/go");
    let script = format!(
        "if test $GASNETRUN_RANK = 5; then sleep 601 & until test -e {}; do sleep 0.002; done; exit 7; fi; exec sleep 601",
        go.display()
    );
    let mut samples = Samples::default();
    for _ in 0..repetitions.exits {
        let job = Lasting::new(&cluster, 16, "exec sleep 601")?;
        let victim = job.ranks.last().ok_or_else(|| Failure("no rank".to_owned()))?.pid;
        let begin = Instant::now();
        let _ = send(victim, Signal::SIGKILL);
        samples.add("kill", job.clean(&cluster, begin)?);
        let _ = std::fs::remove_file(&go);
        let job = Lasting::new(&cluster, 16, &script)?;
        let begin = Instant::now();
        std::fs::write(&go, "")?;
        samples.add("exit", job.clean(&cluster, begin)?);
    }
    let row = |name, key| Row::alone(name, &samples, key, "ms", Target::Bound(300.0));
    let rows = vec![
        row("kill -9 of a rank on 4 hosts, until all of them are clean", "kill")?,
        row("one rank leaves with a code on 4 hosts, until all of them are clean", "exit")?,
    ];
    Ok(Findings { rows, samples, ..Findings::default() })
}
