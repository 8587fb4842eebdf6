//! Jobs that other launchers start: every process manager and provider that is here × results, ways
//! to end, faults. Prints the table.

mod cases;
mod limits;
mod process_manager;
mod slurm;
#[path = "../timeline/mod.rs"]
mod timeline;
mod traces;

use std::time::{Duration, Instant};

use cases::{CASES, KILLS, Kill};
use nix::sys::signal::Signal;
use process_manager::ProcessManager;
use testkit::process::Process;
use testkit::{Cluster, Running, Table, all_requested, binary, skip};

/// Far above what a case takes on a busy machine.
pub(crate) const BOUND: Duration = Duration::from_secs(60);
pub(crate) const RANKS: &str = "4";
const HOSTS: &str = "head n1 n2";

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
    ranks_of("(testexit)", running, bed)
}

/// Processes with this name, in parentheses.
fn ranks_of(name: &str, running: &Running, bed: Option<&Cluster>) -> Vec<Process> {
    let mut all = match bed {
        Some(bed) => HOSTS.split(' ').flat_map(|host| bed.processes(host)).collect(),
        None => running.descendants(),
    };
    all.retain(|process| process.command.starts_with(name));
    all
}

/// Kills somebody in the middle of a job; returns the code, the time until every rank was gone, and
/// what was wrong.
fn kill(
    manager: ProcessManager,
    bed: Option<&Cluster>,
    case: &Kill,
) -> (i32, u128, Option<String>) {
    let program = binary("testexit").display().to_string();
    // Ranks that are in the library notice that one of them is gone; a launcher's end is noticed
    // without them.
    let number = if case.compute { "5" } else { "3" };
    let words = [program, number.into(), "--delay".into(), "90000".into()];
    let running = manager.job(bed, &words).start();
    running.wait_stderr("on 4 ranks", 1);
    std::thread::sleep(Duration::from_millis(300));
    let victim = match case.rank {
        false => {
            let name = format!("({}", manager.program());
            // Names of processes are cut at 15 bytes.
            let name = &name[..name.len().min(14)];
            let all = running.descendants().into_iter();
            // srun has a second process, which looks after the first.
            all.filter(|process| process.command.starts_with(name))
                .min_by_key(|process| process.pid)
        }
        // One that shares its host with others, which notice it.
        true => ranks(&running, bed).into_iter().nth(1),
    };
    let begin = Instant::now();
    // Nobody below the command with this name: the command is the process manager's launcher.
    let killed = match victim {
        Some(victim) => testkit::process::send(victim.pid, Signal::SIGKILL),
        None => !case.rank && running.signal(Signal::SIGKILL),
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
    let fits = case.codes.wanted(manager.codes(), outcome.code()) == outcome.code();
    let wrong = match (left.is_empty(), fits) {
        (false, _) => Some(format!("ranks are left: {left:?}")),
        (true, false) => Some(format!("code {} is not one of {:?}", outcome.code(), case.codes)),
        (true, true) => held,
    };
    (
        outcome.code(),
        gone,
        wrong.map(|text| format!("{text}\n{}\n{}", outcome.out(), outcome.err())),
    )
}

/// Runs all cases through these process managers; returns what was wrong.
fn run(managers: &[ProcessManager], bed: Option<&Cluster>, table: &mut Table) -> Vec<String> {
    let mut wrong = Vec::new();
    for case in CASES.iter().filter(|case| all_requested() || !case.long) {
        let mut row = vec![case.name.to_owned()];
        for manager in managers {
            if !manager.is_here() {
                row.push("skipped".to_owned());
                continue;
            }
            if case.slow_over_hosts && *manager == ProcessManager::OursSlurm && !all_requested() {
                // Hundreds of fences, each of which takes Slurm a while; its provider is that of
                // srun.
                row.push("with --all".to_owned());
                continue;
            }
            let outcome = manager.job(bed, &case.line()).run();
            let fault = case.fault(manager.codes(), &outcome);
            let mark = if fault.is_some() { "! " } else { "" };
            row.push(format!("{mark}{}: {} ms", outcome.code(), outcome.ms()));
            let (out, err) = (outcome.out(), outcome.err());
            wrong.extend(fault.map(|fault| {
                let name = manager.name();
                format!("{name}, {}: {fault}\n--- stdout\n{out}\n--- stderr\n{err}", case.name)
            }));
        }
        table.row(row);
    }
    for case in KILLS {
        let mut row = vec![case.name.to_owned()];
        for manager in managers {
            if !manager.is_here() {
                row.push("skipped".to_owned());
                continue;
            }
            if case.rank && case.compute && manager.waits_for_the_rest() {
                row.push("goes on".to_owned());
                continue;
            }
            if case.rank
                && case.compute
                && *manager == ProcessManager::OursSlurm
                && !all_requested()
            {
                // srun's -W.
                row.push("with --all".to_owned());
                continue;
            }
            let (code, ms, fault) = kill(*manager, bed, case);
            row.push(format!("{}{code}: {ms} ms", if fault.is_some() { "! " } else { "" }));
            wrong.extend(fault.map(|fault| format!("{}, {}: {fault}", manager.name(), case.name)));
        }
        table.row(row);
    }
    wrong
}

/// The process managers of a table, with the others in a long run; says what is left out.
fn chosen(always: &[ProcessManager], more: &[ProcessManager]) -> Vec<ProcessManager> {
    let mut managers = always.to_vec();
    if all_requested() {
        managers.extend(more);
    } else {
        for manager in more {
            skip(&format!("jobs of {}", manager.name()), "only with --all");
        }
    }
    for manager in managers.iter().filter(|manager| !manager.is_here()) {
        let reason = format!("{} is not installed", manager.program());
        skip(&format!("jobs of {}", manager.name()), &reason);
    }
    managers
}

/// Builds our plugin for one MPI next to the programs; why not.
fn plugin(flavour: &str) -> Result<(), String> {
    let script = testkit::repository().join("scripts/build-mpi-plugin");
    let programs = binary("hello").parent().map(std::path::Path::to_owned).unwrap_or_default();
    let mut build = std::process::Command::new(script);
    let built = build.arg(&programs).env("MPICC", format!("mpicc.{flavour}")).output();
    let built = built.map_err(|error| error.to_string())?;
    let said = String::from_utf8_lossy(&[built.stdout, built.stderr].concat()).into_owned();
    let last = said.lines().last().unwrap_or("it said nothing").to_owned();
    if built.status.code() == Some(0) { Ok(()) } else { Err(last) }
}

fn columns(managers: &[ProcessManager]) -> Vec<&'static str> {
    ["case"].into_iter().chain(managers.iter().map(|manager| manager.name())).collect()
}

/// Runs everything through these process managers and shows the table.
fn check(title: &str, managers: &[ProcessManager], bed: Option<&Cluster>) {
    let mut table = Table::new(title, &columns(managers));
    let wrong = run(managers, bed, &mut table);
    table.show();
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn process_managers_on_this_host() {
    let managers = chosen(&ProcessManager::LOCAL, &ProcessManager::LOCAL_MORE);
    check("Other launchers on this host: code and time", &managers, None);
}

#[test]
fn process_managers_that_speak_mpi() {
    let mut managers = chosen(&[], &ProcessManager::MPI);
    managers.retain(|manager| manager.is_here());
    for flavour in ["openmpi", "mpich"] {
        let uses = |manager: &ProcessManager| manager.flavour() == Some(flavour);
        let Some(Err(reason)) = managers.iter().any(uses).then(|| plugin(flavour)) else {
            continue;
        };
        for manager in managers.iter().filter(|manager| uses(manager)) {
            skip(&format!("jobs of {}", manager.name()), &format!("no plugin: {reason}"));
        }
        managers.retain(|manager| !uses(manager));
    }
    if !managers.is_empty() {
        check("Ranks that speak MPI, on this host: code and time", &managers, None);
    }
}

#[test]
fn slurm_over_two_hosts() {
    let Some(bed) = Cluster::up("jobs of Slurm", HOSTS) else { return };
    if !bed.slurm("jobs of Slurm") {
        return;
    }
    let managers = chosen(&ProcessManager::SLURM, &ProcessManager::SLURM_MORE);
    check("Slurm over two hosts: code and time", &managers, Some(&bed));
}
