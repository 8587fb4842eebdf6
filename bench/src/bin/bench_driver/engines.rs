//! Start of ranks under other launchers, beside a program that does nothing but its own PMI init
//! and barrier; keys of ranks by PMI, served by our own agents and by Hydra.

use std::path::PathBuf;
use std::process::Command;

use testkit::Cluster;

use crate::Repetitions;
use crate::launch::in_path;
use crate::row::{Findings, Row, Target, Verdict};
use crate::run::{Failure, Result, Samples, run, sibling};

const SCRIPT: &str = include_str!("engines.sh");
const HOSTS: &str = "head n1 n2";

/// A launcher and the interface that the reference uses under it.
struct Engine {
    figure: &'static str,
    program: &'static str,
    words: &'static str,
    kind: &'static str,
}

const HYDRA: Engine = Engine {
    figure: "4 ranks under hydra, PMI-1",
    program: "mpiexec.hydra",
    words: "mpiexec.hydra -n 4",
    kind: "wire",
};
const MPIRUN: Engine = Engine {
    figure: "4 ranks under mpirun, PMIx",
    program: "mpirun.openmpi",
    words: "env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun.openmpi --oversubscribe -np 4",
    kind: "pmix",
};
const SRUN: [Engine; 2] = [
    Engine {
        figure: "4 ranks on 2 hosts under srun, PMI-2",
        program: "srun",
        words: "srun -N2 -n4 -m plane=2 --mpi=pmi2",
        kind: "pmi2",
    },
    Engine {
        figure: "4 ranks on 2 hosts under srun, PMIx",
        program: "srun",
        words: "srun -N2 -n4 -m plane=2 --mpi=pmix",
        kind: "pmix",
    },
];

fn text(path: PathBuf) -> String {
    path.display().to_string()
}

impl Engine {
    fn skipped(&self, reason: &str) -> Findings {
        let row = Row::without(self.figure, Verdict::Skipped(reason.to_owned()));
        Findings { rows: vec![row], ..Findings::default() }
    }

    /// Three programs in turn; `command` gives what runs the script.
    fn measure(&self, rounds: usize, command: impl FnOnce(&[&str]) -> Command) -> Result<Findings> {
        if in_path(self.program).is_none() {
            return Ok(self.skipped(&format!("{} is not installed", self.program)));
        }
        let bare = format!("{} {}", text(sibling("bench_pmi")?), self.kind);
        let (hello, services) = (text(sibling("hello")?), text(sibling("bench_exchange")?));
        let services = format!("{services} start");
        let rounds = rounds.to_string();
        let keys = ["hello", "services", "bare"];
        let all = [&rounds, self.words, keys[0], &hello, keys[1], &services, keys[2], &bare];
        let line = [&["bash", "-c", SCRIPT, "engines.sh"], &all[..]].concat();
        let ended = run(command(&line), true)?;
        let mut samples = Samples::default();
        for line in ended.out.lines() {
            let value = line.split_once(' ');
            let value = value.and_then(|(key, value)| Some((key, value.parse().ok()?)));
            let (key, value) = value.ok_or_else(|| Failure(line.to_owned()))?;
            samples.add(key, value);
        }
        let start = format!("{}, through barrier and exchange", self.figure);
        let whole = format!("{}, a whole program of the conduit", self.figure);
        let target = Target::AtMost(1.1);
        let rows = vec![
            Row::paired(&start, &samples, [keys[1], keys[2]], "ms", target)?,
            Row::paired(&whole, &samples, [keys[0], keys[2]], "ms", Target::None)?,
        ];
        Ok(Findings { rows, samples, notes: vec![NOTE.to_owned()], ..Findings::default() })
    }
}

const NOTE: &str = "engines: from the call of the launcher to its return. Through barrier and exchange: start of the bootstrap services, \
                    one barrier, one exchange of 64 bytes, farewell; a whole program (hello): init of the conduit, attach of \
                    64 KiB, a line of output of each rank, barrier, exit; the reference: init, barrier and finalise of PMI \
                    (bench_pmi.c), no output. The three take turns.";

fn here(line: &[&str]) -> Command {
    let mut command = Command::new(line[0]);
    command.args(&line[1..]).env("GASNET_QUIET", "1").env("GASNET_IBV_FABRIC", "soft");
    command
}

/// Ranks whose keys are exchanged, rounds of that in one job, and puts in one round.
const KEYS: [&str; 3] = ["64", "50", "8"];

/// Keys of 64 ranks by PMI-1: what our own agents serve, beside Hydra's proxy.
pub(crate) fn keys(repetitions: Repetitions) -> Result<Findings> {
    let [ranks, rounds, puts] = KEYS;
    let title = format!("{ranks} ranks, PMI-1: {puts} puts of each and a fence");
    if in_path("mpiexec.hydra").is_none() {
        let row =
            Row::without(&title, Verdict::Skipped("mpiexec.hydra is not installed".to_owned()));
        return Ok(Findings { rows: vec![row], ..Findings::default() });
    }
    let (launcher, program) = (text(sibling("gasnetrun_ibv")?), text(sibling("bench_keys")?));
    let servers = [
        ("gasnetrun_ibv", vec![&*launcher, "-q", "-n", ranks, &program, rounds, puts]),
        ("hydra", vec!["mpiexec.hydra", "-n", ranks, &program, rounds, puts]),
    ];
    let mut samples = Samples::default();
    // In turn, so that both see the same machine; the first turn warms up.
    for turn in 0..=repetitions.exits {
        for (server, line) in &servers {
            let ended = run(here(line), true)?;
            let times = ended.out.split_whitespace().map(str::parse::<f64>);
            let times = times.collect::<std::result::Result<Vec<_>, _>>()?;
            let [put, fence, get] = times[..] else { return Err(Failure(ended.out)) };
            if turn > 0 {
                samples.add(&format!("{server}, puts and fence"), put + fence);
                samples.add(&format!("{server}, gets"), get);
            }
        }
    }
    let row = |name: &str, part: &str, target| {
        let keys = ["gasnetrun_ibv", "hydra"].map(|server| format!("{server}, {part}"));
        Row::paired(name, &samples, [&keys[0], &keys[1]], "µs", target)
    };
    let rows = vec![
        row(&title, "puts and fence", Target::AtMost(1.1))?,
        row(&format!("the same, {puts} gets after it"), "gets", Target::None)?,
    ];
    let notes = vec![format!(
        "engine-keys: one round of tests/mpi/keys.c as rank 0 sees it, mean of {rounds} in a job; the server of the agent beside \
         that of Hydra's proxy, one after the other."
    )];
    Ok(Findings { rows, samples, notes, ..Findings::default() })
}

/// Four ranks of `mpiexec.hydra` on this host.
pub(crate) fn hydra(repetitions: Repetitions) -> Result<Findings> {
    HYDRA.measure(repetitions.launches, here)
}

/// Four ranks of Open MPI's `mpirun` on this host.
pub(crate) fn mpirun(repetitions: Repetitions) -> Result<Findings> {
    MPIRUN.measure(repetitions.launches, here)
}

/// Four ranks of `srun` on two hosts of `scripts/slurm-cluster`.
pub(crate) fn srun(repetitions: Repetitions) -> Result<Findings> {
    let Some(cluster) = Cluster::up("engine-srun", HOSTS).filter(|bed| bed.slurm("engine-srun"))
    else {
        return Ok(SRUN[0].skipped("Slurm cannot be started here"));
    };
    let conf = format!("SLURM_CONF={}", cluster.slurm_conf().display());
    let set = [
        "env",
        "-C",
        "/",
        &conf,
        "GASNET_QUIET=1",
        "GASNET_IBV_FABRIC=soft",
        "GASNET_IBV_SOFT_ADDRESS=198.18.77.0/24",
    ];
    let mut all = Findings::default();
    for engine in SRUN {
        let found = engine.measure(repetitions.launches, |line| {
            cluster.bare("head", &[&set[..], line].concat())
        })?;
        all.rows.extend(found.rows);
        all.notes = found.notes;
        for (key, values) in found.samples.0 {
            values
                .iter()
                .for_each(|value| all.samples.add(&format!("{}/{key}", engine.kind), *value));
        }
    }
    Ok(all)
}
