//! Measures the figures of speed and memory, each beside its reference in the same run, and judges
//! them.
//!
//! `scripts/bench` builds everything and starts this. Times are never asserted: the exit code is 0
//! unless something could not be measured at all.

mod beside;
mod c_face;
mod curves;
mod engines;
mod exits;
mod flow_cost;
mod idle;
mod launch;
mod machine;
mod many_hosts;
mod many_to_few;
mod network;
mod path_length;
mod peers;
mod programs;
mod ranks;
mod record;
mod results;
mod row;
mod run;
mod scale;
mod ssh;
mod system_calls;
mod tables;
mod tree_sim;
mod vectors;
mod watched;

use std::collections::BTreeSet;
use std::process::ExitCode;

use testkit::report::{Table, show};

use crate::row::{Findings, Row, Verdict};
use crate::run::Failure;

/// How often things are measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Repetitions {
    /// Launches of many processes.
    launches: usize,
    /// Pairs inside rank programs.
    pairs: usize,
    /// Ends of jobs.
    exits: usize,
    /// Ranks that have a processor each run with real-time priority, so that other load of the
    /// machine does not take it.
    realtime: bool,
}

type Measure = fn(Repetitions) -> run::Result<Findings>;

const FIGURES: [(&str, Measure); 13] = [
    ("launch", launch::launch),
    ("one", launch::one),
    ("hello", launch::hello),
    ("exchange", ranks::exchange),
    ("am", ranks::short),
    ("medium", ranks::medium),
    ("putget", ranks::put_get),
    ("strided", vectors::shared),
    ("barrier", ranks::barrier),
    ("collectives", ranks::collectives),
    ("idle", ranks::idle),
    ("exit", exits::exits),
    ("top", watched::top),
];

/// Figures of the C face, by `--c` instead of the others.
const C_FIGURES: [(&str, Measure); 8] = [
    ("c-am", c_face::short),
    ("c-flood", c_face::flood),
    ("c-medium", c_face::medium),
    ("c-sizes", c_face::medium_sizes),
    ("c-putget", c_face::put_get),
    ("c-put8", c_face::put_word),
    ("c-atomic", c_face::atomic),
    ("c-barrier", c_face::barrier),
];

/// Figures of the network over the software adapter, by `--net`.
const NET_FIGURES: [(&str, Measure); 13] = [
    ("net-short", network::short),
    ("net-barrier", network::barrier),
    ("net-atomic", network::atomic),
    ("net-flood", network::flood),
    ("net-put", network::put_and_quiet),
    ("net-strided", vectors::soft),
    ("net-memory", network::memory),
    ("net-flow", flow_cost::instructions),
    ("net-path", path_length::instructions),
    ("net-beside", beside::beside),
    ("net-calls", system_calls::system_calls),
    ("net-polls", network::polls),
    ("net-wordcount", programs::wordcount),
];

/// Figures of the network on Soft-RoCE, by `--softroce`.
const SOFTROCE_FIGURES: [(&str, Measure); 2] =
    [("softroce", network::soft_roce), ("softroce-boots", network::soft_roce_boots)];

/// Figures beside other libraries, by `--peers`.
const PEER_FIGURES: [(&str, Measure); 2] =
    [("peers-tcp", peers::tcp), ("peers-roce", peers::soft_roce)];

/// Figures of jobs on four hosts over ssh, by `--ssh`.
const SSH_FIGURES: [(&str, Measure); 5] = [
    ("ssh-launch", ssh::launch),
    ("ssh-exchange", ssh::exchange),
    ("ssh-hop", ssh::hop),
    ("ssh-memory", ssh::memory),
    ("ssh-end", ssh::ends),
];

/// Figures of jobs on 64 hosts, by `--hosts`.
const HOSTS_FIGURES: [(&str, Measure); 2] =
    [("hosts-ssh", many_hosts::ssh), ("hosts-slurm", many_hosts::slurm)];

/// Figures of starts under other launchers, by `--engines`.
const ENGINE_FIGURES: [(&str, Measure); 4] = [
    ("engine-keys", engines::keys),
    ("engine-hydra", engines::hydra),
    ("engine-mpirun", engines::mpirun),
    ("engine-srun", engines::srun),
];

/// Figures of jobs of many ranks on this host, by `--scale`.
const SCALE_FIGURES: [(&str, Measure); 7] = [
    ("scale-launch", scale::launch),
    ("scale-memory", scale::memory),
    ("scale-tables", tables::tables),
    ("scale-fan-in", many_to_few::fan_in),
    ("scale-fan-in-simulated", many_to_few::simulated_fan_in),
    ("scale-barrier", many_to_few::barrier),
    ("scale-tree", tree_sim::tree),
];

const FULL: Repetitions = Repetitions { launches: 15, pairs: 15, exits: 7, realtime: false };
const QUICK: Repetitions = Repetitions { launches: 3, pairs: 3, exits: 1, realtime: false };

fn main() -> ExitCode {
    let (mut repetitions, mut write, mut when_idle) = (FULL, false, false);
    let mut wanted = Vec::new();
    let figures = figures();
    for argument in std::env::args().skip(1) {
        match argument.as_str() {
            "--c" | "--net" | "--softroce" | "--peers" | "--ssh" | "--hosts" | "--engines"
            | "--scale" => {}
            "--quick" => repetitions = Repetitions { realtime: repetitions.realtime, ..QUICK },
            "--realtime" => repetitions.realtime = true,
            "--write" => write = true,
            "--when-idle" => when_idle = true,
            "--results" => return renew_results(),
            name if figures.iter().any(|(figure, _)| *figure == name) => wanted.push(argument),
            other => {
                let names: Vec<&str> = figures.iter().map(|(figure, _)| *figure).collect();
                complain(&format!("unknown argument {other:?}; figures: {}", names.join(" ")));
                return ExitCode::from(2);
            }
        }
    }
    let machine = machine::described(repetitions);
    let mut found = Vec::new();
    for &(name, measure) in &figures {
        if wanted.is_empty() || wanted.iter().any(|figure| figure == name) {
            let in_use = if when_idle { idle::wait(name) } else { None };
            show(&format!("measuring {name} …\n"));
            let mut findings = attempt(name, measure, repetitions);
            if let Some(percent) = in_use {
                findings.samples.add("percent of the processors in use before", percent);
            }
            found.push((name, findings));
        }
    }
    report(&machine, &found);
    if write {
        let written =
            write_curves(&machine, &found).and_then(|()| record::write(suite(), &machine, &found));
        match written.and_then(|path| Ok((path, results::write()?))) {
            Ok((path, page)) => show(&format!("written to {} and {page}\n", path.display())),
            Err(Failure(text)) => {
                complain(&text);
                return ExitCode::FAILURE;
            }
        }
    }
    let failed = |row: &Row| matches!(row.verdict, Verdict::Failed(_));
    if found.iter().any(|(_, findings)| findings.rows.iter().any(failed)) {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}

/// Writes the curves of what was measured.
fn write_curves(machine: &[(&str, String)], found: &[(&str, Findings)]) -> run::Result<()> {
    let all = found.iter().flat_map(|(_, findings)| &findings.curves);
    for path in curves::write(all, &described(machine))? {
        show(&format!("written to {}\n", path.display()));
    }
    Ok(())
}

fn described(machine: &[(&str, String)]) -> String {
    let machine: Vec<String> =
        machine.iter().map(|(name, value)| format!("{name} {value}")).collect();
    machine.join(", ")
}

/// Writes the page of results from the records.
fn renew_results() -> ExitCode {
    match results::write() {
        Ok(page) => show(&format!("written to {page}\n")),
        Err(Failure(text)) => {
            complain(&text);
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// What the figures are together.
fn suite() -> &'static str {
    let suites =
        ["--c", "--net", "--softroce", "--peers", "--ssh", "--hosts", "--engines", "--scale"];
    let mut arguments = std::env::args().skip(1);
    let suite = arguments.find_map(|argument| suites.into_iter().find(|suite| *suite == argument));
    suite.map_or("host", |suite| suite.trim_start_matches('-'))
}

/// What there is to measure, by the arguments.
fn figures() -> Vec<(&'static str, Measure)> {
    let mut figures = Vec::new();
    let sets: BTreeSet<String> = std::env::args().skip(1).collect();
    for argument in sets {
        figures.extend_from_slice(match argument.as_str() {
            "--c" => &C_FIGURES[..],
            "--net" => &NET_FIGURES[..],
            "--softroce" => &SOFTROCE_FIGURES[..],
            "--peers" => &PEER_FIGURES[..],
            "--ssh" => &SSH_FIGURES[..],
            "--hosts" => &HOSTS_FIGURES[..],
            "--engines" => &ENGINE_FIGURES[..],
            "--scale" => &SCALE_FIGURES[..],
            _ => &[],
        });
    }
    if figures.is_empty() { FIGURES.to_vec() } else { figures }
}

fn complain(text: &str) {
    use std::io::Write;
    let _ = std::io::stderr().write_all(format!("bench_driver: {text}\n").as_bytes());
}

fn attempt(name: &str, measure: Measure, repetitions: Repetitions) -> Findings {
    measure(repetitions).unwrap_or_else(|Failure(text)| Findings {
        rows: vec![Row::without(name, Verdict::Failed(text))],
        ..Findings::default()
    })
}

fn report(machine: &[(&str, String)], found: &[(&str, Findings)]) {
    let columns = ["figure, reference", "ours", "reference", "ratio", "target", "verdict"];
    let mut table = Table::new(&described(machine), &columns);
    for row in found.iter().flat_map(|(_, findings)| &findings.rows) {
        let mut cells = row.cells.to_vec();
        cells.push(row.verdict.to_string());
        table.row(cells);
    }
    show(&format!("load after {}\n", machine::load()));
    table.show();
    for (_, findings) in found {
        for text in findings.explanations() {
            show(&format!("{text}\n"));
        }
    }
}
