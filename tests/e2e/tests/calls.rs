//! Every public call in C and C++, over each transport, in each mode, as a table: a call passes where
//! all programs of `tests/c` that make it do. It takes long: `scripts/test --all` has it. Soft-RoCE:
//! `soft_roce.rs`.

#![expect(clippy::unwrap_used, reason = "what is missing here fails the test")]

#[expect(dead_code, reason = "the suite of C programs uses all of it")]
#[path = "c_suite/build.rs"]
mod build;
#[expect(dead_code, reason = "the suite of C programs uses all of it")]
#[path = "c_suite/symbols.rs"]
mod symbols;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use build::{Kind, MODES};
use testkit::apart::neighbourhoods;
use testkit::{Table, all_requested, launcher};

/// Far above what any program takes on a busy machine.
const BOUND: Duration = Duration::from_secs(120);
/// These end in ways of their own and have tests of their own.
const SPECIAL: [&str; 3] = ["exits", "wrong", "wrong_teams"];
const LANGUAGES: [&str; 2] = ["C", "C++"];

/// Name, ranks, how many of them share memory at most (`None`: all), software adapters of each.
const TRANSPORTS: [(&str, u32, Option<u32>, &str); 4] = [
    ("shared memory", 4, None, "1"),
    ("soft", 3, Some(1), "1"),
    ("two rails", 2, Some(1), "2"),
    ("mixed", 4, Some(2), "1"),
];

fn program(name: &str, language: &str, mode: &'static str) -> PathBuf {
    match language {
        "C" => build::built(name, mode, Kind::Shared),
        _ => build::built_as_cxx(name, mode, Kind::Shared),
    }
}

/// Runs a program; what was wrong.
fn run(name: &str, language: &str, mode: &'static str, transport: usize) -> Option<String> {
    let (way, ranks, most, rails) = TRANSPORTS[transport];
    let tree = launcher(["-n", &ranks.to_string()]).arg(program(name, language, mode));
    let tree = match most {
        Some(most) => neighbourhoods(tree, most)
            .env("GASNET_IBV_SOFT_DEVICES", rails)
            .env("GASNET_IBV_MAX_HCAS", rails),
        None => tree,
    };
    let outcome = tree.deadline("C program", BOUND).run();
    let said = outcome.out().matches(&format!("PASS {name}\n")).count();
    let fault = outcome.fault(0).or_else(|| (said != 1).then(|| format!("{said} times PASS")));
    fault.map(|fault| format!("{name}, {language}, {mode}, {way}: {fault}\n{}", outcome.err()))
}

/// Modes that pass, one bit each, by program, language and transport.
type Passed = BTreeMap<(String, usize, usize), u32>;

fn run_all(faults: &mut Vec<String>) -> Passed {
    let mut passed = Passed::new();
    for source in build::sources() {
        let name = source.file_stem().unwrap().to_string_lossy().into_owned();
        let only_cxx = source.extension().is_some_and(|ending| ending == "cpp");
        for (language, words) in LANGUAGES.into_iter().enumerate().skip(usize::from(only_cxx)) {
            for transport in 0..TRANSPORTS.len() {
                if SPECIAL.contains(&name.as_str()) {
                    continue;
                }
                let mut modes = 0;
                for (bit, mode) in MODES.into_iter().enumerate() {
                    match run(&name, words, mode, transport) {
                        None => modes |= 1 << bit,
                        Some(fault) => faults.push(fault),
                    }
                }
                passed.insert((name.clone(), language, transport), modes);
            }
        }
    }
    passed
}

/// Modes of bits.
fn words(modes: u32) -> String {
    let has = |bit: usize| modes & 1 << bit != 0;
    let names: Vec<&str> = (0..MODES.len()).filter(|bit| has(*bit)).map(|bit| MODES[bit]).collect();
    if names.len() == MODES.len() { "all".to_owned() } else { names.join(" ") + " !" }
}

#[test]
fn every_call_passes_in_every_language_transport_and_mode() {
    if !all_requested() || !build::ready() {
        // The long run has it.
        return;
    }
    let mut faults = Vec::new();
    let passed = run_all(&mut faults);
    let mut columns = vec!["call".to_owned(), "programs".to_owned()];
    let cells = || (0..LANGUAGES.len()).flat_map(|l| (0..TRANSPORTS.len()).map(move |t| (l, t)));
    columns.extend(cells().map(|(l, t)| format!("{} {}", LANGUAGES[l], TRANSPORTS[t].0)));
    let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
    let title = "calls, languages, transports: modes in which all programs with the call pass (all: seq, parsync, par)";
    let mut table = Table::new(title, &columns);
    for (call, programs) in symbols::callers() {
        let mut row = vec![call.clone(), programs.len().to_string()];
        for (language, transport) in cells() {
            let of = |name: &String| passed.get(&(name.clone(), language, transport)).copied();
            let modes = programs.iter().filter_map(of).reduce(|one, other| one & other);
            row.push(modes.map_or_else(|| "-".to_owned(), words));
        }
        table.row(row);
    }
    table.show();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
