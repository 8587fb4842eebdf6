//! Jobs that other launchers start: every engine and provider that is here × results, ways to end, faults. Prints the table.

mod slurm;

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use testkit::process::Process;
use testkit::{Cluster, Outcome, Running, Table, Tree, all_requested, binary, skip};

/// Far above what a case takes on a busy machine.
const BOUND: Duration = Duration::from_secs(60);
const RANKS: &str = "4";
const HOSTS: &str = "head n1 n2";

/// A way to start four ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Engine {
    /// `mpiexec.hydra`, with a descriptor for PMI-1.
    Hydra,
    /// The same with a port.
    HydraPort,
    /// Our launcher in front of it.
    OursHydra,
    /// Open MPI's launcher, whose ranks speak PMIx.
    OpenMpi,
    /// Open MPI's launcher, whose ranks speak MPI through our plugin.
    Mpi,
    /// Our launcher in front of it, with the spawner mpi.
    OursMpi,
    /// `srun --mpi=pmi2` over two hosts.
    SrunPmi2,
    /// `srun --mpi=pmix` over two hosts.
    SrunPmix,
    /// Our launcher in an allocation of two hosts.
    OursSlurm,
}

impl Engine {
    const LOCAL: [Self; 4] = [Self::Hydra, Self::HydraPort, Self::OursHydra, Self::OpenMpi];
    const MPI: [Self; 2] = [Self::Mpi, Self::OursMpi];
    const SLURM: [Self; 3] = [Self::SrunPmi2, Self::SrunPmix, Self::OursSlurm];

    const fn name(self) -> &'static str {
        match self {
            Self::Hydra => "hydra, PMI-1",
            Self::HydraPort => "hydra -pmi-port",
            Self::OursHydra => "gasnetrun_ibv, hydra",
            Self::OpenMpi => "mpirun, PMIx",
            Self::Mpi => "mpirun, MPI",
            Self::OursMpi => "gasnetrun_ibv, mpirun",
            Self::SrunPmi2 => "srun, PMI-2",
            Self::SrunPmix => "srun, PMIx",
            Self::OursSlurm => "gasnetrun_ibv, Slurm",
        }
    }

    /// Programs without which it cannot run.
    const fn program(self) -> &'static str {
        match self {
            Self::Hydra | Self::HydraPort | Self::OursHydra => "mpiexec.hydra",
            Self::OpenMpi | Self::Mpi | Self::OursMpi => "mpirun.openmpi",
            Self::SrunPmi2 | Self::SrunPmix | Self::OursSlurm => "srun",
        }
    }

    fn words(self) -> Vec<String> {
        let launcher = binary("gasnetrun_ibv").display().to_string();
        let words: &[&str] = match self {
            Self::Hydra => &["mpiexec.hydra", "-n", RANKS],
            Self::HydraPort => &["mpiexec.hydra", "-pmi-port", "-n", RANKS],
            Self::OursHydra => &[&launcher, "-spawner=pmi", "-n", RANKS],
            Self::OpenMpi => &["mpirun.openmpi", "--oversubscribe", "-np", RANKS],
            Self::Mpi => {
                &["GASNET_IBV_SPAWNER=mpi", "mpirun.openmpi", "--oversubscribe", "-np", RANKS]
            }
            Self::OursMpi => &[
                "MPIRUN_CMD=mpirun.openmpi --oversubscribe -np %N %C",
                &launcher,
                "-spawner=mpi",
                "-n",
                RANKS,
            ],
            Self::SrunPmi2 => {
                &["srun", "-K0", "-W60", "-N2", "-n", RANKS, "-m", "plane=2", "--mpi=pmi2"]
            }
            Self::SrunPmix => {
                &["srun", "-K0", "-W60", "-N2", "-n", RANKS, "-m", "plane=2", "--mpi=pmix"]
            }
            Self::OursSlurm => {
                &["salloc", "-Q", "--exclusive", "-N2", &launcher, "-n", RANKS, "-N", "2"]
            }
        };
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    /// A command through this engine.
    fn job(self, bed: Option<&Cluster>, words: &[String]) -> Tree {
        let set = ["GASNET_QUIET=1", "GASNET_IBV_FABRIC=soft", "GASNET_BACKTRACE_TYPE=EXECINFO"];
        let root = ["OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"];
        let conf = bed.map(|bed| format!("SLURM_CONF={}", bed.slurm_conf().display()));
        let address = bed.map(|_| "GASNET_IBV_SOFT_ADDRESS=198.18.77.0/24");
        let mut line: Vec<String> =
            ["-C", "/"].into_iter().chain(set).chain(root).map(str::to_owned).collect();
        line.extend(conf.into_iter().chain(address.map(str::to_owned)));
        line.extend(self.words());
        line.extend_from_slice(words);
        let tree = match bed {
            Some(bed) => bed.on("head", &[vec!["env".to_owned()], line].concat()),
            None => Tree::new("env").args(line),
        };
        tree.deadline("a job of another launcher", BOUND)
    }
}

/// Codes of a case.
#[derive(Clone, Copy, Debug)]
enum Codes {
    /// Every engine conveys it.
    Same(i32),
    /// What each engine makes of it, in the order of [`Engine::LOCAL`] and [`Engine::SLURM`]; any of them.
    Each([&'static [i32]; 7]),
}

impl Codes {
    /// The code that an engine should return: `seen` when it is one of those.
    fn wanted(self, engine: usize, seen: i32) -> i32 {
        match self {
            Self::Same(code) => code,
            Self::Each(codes) if codes[engine].contains(&seen) => seen,
            Self::Each(codes) => codes[engine][0],
        }
    }
}

/// One thing to do through every engine.
#[derive(Clone, Copy, Debug)]
struct Case {
    name: &'static str,
    words: &'static [&'static str],
    codes: Codes,
    /// What rank 0, or anybody, must have printed.
    says: &'static str,
}

const fn result(name: &'static str, words: &'static [&'static str], says: &'static str) -> Case {
    Case { name, words, codes: Codes::Same(0), says }
}

const fn exit(name: &'static str, words: &'static [&'static str], code: i32) -> Case {
    Case { name, words, codes: Codes::Same(code), says: "" }
}

/// Hydra shows the bare signal of a process that it saw end: the one that aborted, or those that it ended itself.
const OF_HYDRA: &[i32] = &[6, 9, 15];
const KILLED: &[i32] = &[137];
const ABORTED: Codes =
    Codes::Each([OF_HYDRA, OF_HYDRA, OF_HYDRA, &[134], &[134, 137], &[1, 134, 137], &[134, 137]]);
/// Ranks of another host that never enter the library can only be ended by the engine, and PMI-2 has no code for that.
const SPINS: Codes = Codes::Each([&[5], &[5], &[5], &[5], &[5, 137], &[5], &[5, 137]]);
const BY_KILL: Codes = Codes::Each([&[9], &[9], &[9], KILLED, KILLED, &[1, 137], KILLED]);

const CASES: &[Case] = &[
    result("hello", &["hello"], "rank 3 of 4"),
    result("ring", &["ring"], "laps around 4 ranks"),
    exit("collective exit", &["testexit", "1"], 1),
    exit("exit before attach", &["testexit", "6"], 6),
    exit("lone exit, others in a barrier", &["testexit", "3", "--delay", "150"], 3),
    Case {
        name: "lone exit, others spin",
        words: &["testexit", "5", "--delay", "150"],
        codes: SPINS,
        says: "",
    },
    exit("lone exit of a thread", &["testexit", "54", "--delay", "150"], 54),
    exit("exits asked for by requests", &["testexit", "10", "--delay", "150"], 10),
    Case { name: "abort", words: &["testexit", "103", "--delay", "150"], codes: ABORTED, says: "" },
];

/// Who is killed while the ranks run, the process by its command, and the codes that may come of it.
const KILLS: &[(&str, &str, Codes)] = &[
    ("kill -9 of a rank", "testexit", BY_KILL),
    ("kill -9 of the engine's launcher", "", Codes::Same(137)),
];

/// Waits until Slurm has freed all nodes; what is left when it has not.
fn at_rest(bed: &Cluster) -> Option<String> {
    let conf = format!("SLURM_CONF={}", bed.slurm_conf().display());
    let begin = Instant::now();
    loop {
        let queue = bed.on("head", &["env", &conf, "squeue"]).run();
        if queue.code() == 0 && queue.out().lines().count() == 1 {
            return None;
        }
        if begin.elapsed() > BOUND {
            return Some(format!("jobs are left: {}", queue.out()));
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// The ranks, wherever they are.
fn ranks(running: &Running, bed: Option<&Cluster>) -> Vec<Process> {
    let mut all = match bed {
        Some(bed) => HOSTS.split(' ').flat_map(|host| bed.processes(host)).collect(),
        None => running.descendants(),
    };
    all.retain(|process| process.command.starts_with("(testexit)"));
    all
}

/// Kills somebody in the middle of a job; returns the code, the time until every rank was gone, and what was wrong.
fn kill(
    engine: Engine,
    at: usize,
    bed: Option<&Cluster>,
    who: &str,
    codes: Codes,
) -> (i32, u128, Option<String>) {
    let program = binary("testexit").display().to_string();
    // Ranks that are in the library notice that one of them is gone; a launcher's end is noticed without them.
    let number = if who.is_empty() { "5" } else { "3" };
    let words = [program, number.into(), "--delay".into(), "90000".into()];
    let running = engine.job(bed, &words).start();
    running.wait_stderr("on 4 ranks", 1);
    std::thread::sleep(Duration::from_millis(300));
    let victim = match who {
        "" => {
            let name = format!("({}", engine.program());
            // Names of processes are cut at 15 bytes.
            let name = &name[..name.len().min(14)];
            let all = running.descendants().into_iter();
            // srun has a second process, which looks after the first.
            all.filter(|process| process.command.starts_with(name))
                .min_by_key(|process| process.pid)
        }
        // One that shares its host with others, which notice it.
        _ => ranks(&running, bed).into_iter().nth(1),
    };
    let begin = Instant::now();
    // Nobody below the command with this name: the command is the engine's launcher.
    let killed = match victim {
        Some(victim) => testkit::process::send(victim.pid, Signal::SIGKILL),
        None => who.is_empty() && running.signal(Signal::SIGKILL),
    };
    if !killed {
        return (-1, 0, Some(format!("nobody to kill among {:?}", running.descendants())));
    }
    let mut gone = 0;
    while !ranks(&running, bed).is_empty() && begin.elapsed() < BOUND {
        std::thread::sleep(Duration::from_millis(5));
        gone = begin.elapsed().as_millis();
    }
    let left = ranks(&running, bed);
    let outcome = running.wait();
    let held = bed.and_then(at_rest);
    let fits = codes.wanted(at, outcome.code()) == outcome.code();
    let wrong = match (left.is_empty(), fits) {
        (false, _) => Some(format!("ranks are left: {left:?}")),
        (true, false) => Some(format!("code {} is not one of {codes:?}", outcome.code())),
        (true, true) => held,
    };
    (
        outcome.code(),
        gone,
        wrong.map(|text| format!("{text}\n{}\n{}", outcome.out(), outcome.err())),
    )
}

fn here(engine: Engine) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(engine.program()).is_file())
}

fn fault(case: &Case, engine: usize, outcome: &Outcome) -> Option<String> {
    let wrong = outcome.fault(case.codes.wanted(engine, outcome.code()));
    let missing =
        (!outcome.out().contains(case.says)).then(|| format!("no {:?} in its output", case.says));
    wrong.or(missing)
}

/// Which codes count for the engine at `at`.
fn column(engines: &[Engine], first: usize, at: usize) -> usize {
    if engines == Engine::MPI { first } else { first + at }
}

/// Runs all cases through these engines; returns what was wrong.
fn run(engines: &[Engine], first: usize, bed: Option<&Cluster>, table: &mut Table) -> Vec<String> {
    let mut wrong = Vec::new();
    for case in CASES {
        let mut row = vec![case.name.to_owned()];
        for (at, engine) in engines.iter().enumerate() {
            if !here(*engine) {
                row.push("skipped".to_owned());
                continue;
            }
            let mut words: Vec<String> = case.words.iter().map(|word| (*word).to_owned()).collect();
            words[0] = binary(&words[0]).display().to_string();
            let outcome = engine.job(bed, &words).run();
            let fault = fault(case, column(engines, first, at), &outcome);
            row.push(format!(
                "{}{}: {} ms",
                if fault.is_some() { "! " } else { "" },
                outcome.code(),
                outcome.ms()
            ));
            if let Some(fault) = fault {
                wrong.push(format!(
                    "{}, {}: {fault}\n--- stdout\n{}\n--- stderr\n{}",
                    engine.name(),
                    case.name,
                    outcome.out(),
                    outcome.err()
                ));
            }
        }
        table.row(row);
    }
    for (name, who, codes) in KILLS {
        let mut row = vec![(*name).to_owned()];
        for (at, engine) in engines.iter().enumerate() {
            if !here(*engine) {
                row.push("skipped".to_owned());
                continue;
            }
            let column = column(engines, first, at);
            let (code, ms, fault) = kill(*engine, column, bed, who, *codes);
            row.push(format!("{}{code}: {ms} ms", if fault.is_some() { "! " } else { "" }));
            wrong.extend(fault.map(|fault| format!("{}, {name}: {fault}", engine.name())));
        }
        table.row(row);
    }
    wrong
}

/// Builds our plugin for Open MPI next to the programs; why not.
fn plugin() -> Result<(), String> {
    let package = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let script = package.parent().unwrap_or(package).join("scripts/build-mpi-plugin");
    let programs = binary("hello").parent().map(std::path::Path::to_owned).unwrap_or_default();
    let mut build = std::process::Command::new(script);
    let built = build.arg(&programs).env("MPICC", "mpicc.openmpi").output();
    let built = built.map_err(|error| error.to_string())?;
    let said = String::from_utf8_lossy(&[built.stdout, built.stderr].concat()).into_owned();
    let last = said.lines().last().unwrap_or("it said nothing").to_owned();
    if built.status.code() == Some(0) { Ok(()) } else { Err(last) }
}

fn columns(engines: &[Engine]) -> Vec<&'static str> {
    ["case"].into_iter().chain(engines.iter().map(|engine| engine.name())).collect()
}

#[test]
fn engines_on_this_host() {
    for engine in Engine::LOCAL.into_iter().filter(|engine| !here(*engine)) {
        skip(
            &format!("jobs of {}", engine.name()),
            &format!("{} is not installed", engine.program()),
        );
    }
    let mut table =
        Table::new("Other launchers on this host: code and time", &columns(&Engine::LOCAL));
    let wrong = run(&Engine::LOCAL, 0, None, &mut table);
    testkit::report::show(&table.text());
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn engines_that_speak_mpi() {
    let name = "jobs over MPI";
    if !all_requested() {
        skip(name, "only with --all: the plugin takes minutes to build");
        return;
    }
    if let Some(engine) = Engine::MPI.into_iter().find(|engine| !here(*engine)) {
        skip(name, &format!("{} is not installed", engine.program()));
        return;
    }
    if let Err(reason) = plugin() {
        skip(name, &format!("no plugin: {reason}"));
        return;
    }
    let mut table = Table::new("Open MPI on this host: code and time", &columns(&Engine::MPI));
    // The codes are those of the same launcher with PMIx.
    let wrong = run(&Engine::MPI, Engine::LOCAL.len() - 1, None, &mut table);
    testkit::report::show(&table.text());
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn slurm_over_two_hosts() {
    let name = "jobs of Slurm";
    let Some(bed) = Cluster::up(name, HOSTS) else { return };
    if !bed.slurm(name) {
        return;
    }
    let mut table = Table::new("Slurm over two hosts: code and time", &columns(&Engine::SLURM));
    let wrong = run(&Engine::SLURM, Engine::LOCAL.len(), Some(&bed), &mut table);
    testkit::report::show(&table.text());
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}
