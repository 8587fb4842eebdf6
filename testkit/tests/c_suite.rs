//! The C programs of `tests/c` against the libraries: how they link, what they do, how they end.
//!
//! By default every program is linked in every mode, static and shared, and runs with every number of ranks, the modes
//! and the kinds of library taking turns. `scripts/test --all` runs the whole product, and under sanitizers and valgrind.

#![expect(clippy::unwrap_used, reason = "what is missing here fails the test")]

#[path = "c_suite/build.rs"]
mod build;
#[path = "c_suite/symbols.rs"]
mod symbols;

use std::path::Path;
use std::time::{Duration, Instant};

use testkit::{Outcome, Table, all_requested, launcher};

use crate::build::{KINDS, Kind, MODES, built, compiles, installed, library, sources};

const RANKS: [u32; 5] = [1, 2, 3, 4, 7];
/// Far above what any program takes on a busy machine.
const BOUND: Duration = Duration::from_secs(120);
/// These have tests of their own, because they do not end with `PASS`.
const SPECIAL: [&str; 2] = ["exits", "wrong"];

/// Names of the programs that end with `PASS`.
fn programs() -> Vec<String> {
    let names: Vec<String> = sources()
        .iter()
        .map(|path| path.file_stem().unwrap().to_string_lossy().into_owned())
        .filter(|name| !SPECIAL.contains(&name.as_str()))
        .collect();
    assert!(names.len() >= 15, "{names:?}");
    names
}

fn run(program: &Path, ranks: u32, args: &[&str]) -> Outcome {
    launcher(["-n", &ranks.to_string()])
        .arg(program)
        .args(args)
        .env("GASNET_DUMMY", "GASNet dummy value")
        .env("T_EMPTY", "")
        .deadline("C program", BOUND)
        .run()
}

/// Arguments that a program wants; `environment` compares them on all ranks.
fn arguments(name: &str) -> &'static [&'static str] {
    match name {
        "environment" => {
            &["GASNet is \"Global Address Space Networking\"", "a b  c", "", "-n", "$HOME *"]
        }
        _ => &[],
    }
}

#[test]
fn every_program_links_in_every_mode() {
    let mut table = Table::new(
        "link table: C and C++ programs, modes, static and shared library",
        &["program", "seq a", "seq so", "parsync a", "parsync so", "par a", "par so"],
    );
    for source in sources() {
        let name = source.file_stem().unwrap().to_string_lossy().into_owned();
        let mut cells = vec![name.clone()];
        for mode in MODES {
            for kind in KINDS {
                let program = built(&name, mode, kind);
                assert!(program.is_file(), "{}", program.display());
                cells.push("ok".to_owned());
            }
        }
        table.row(cells);
    }
    table.show();
}

#[test]
fn every_program_passes_with_every_number_of_ranks() {
    let names = programs();
    let mut table = Table::new(
        "run table: C and C++ programs, ranks; mode and library (a static, so shared), milliseconds",
        &["program", "1 rank", "2", "3", "4", "7"],
    );
    let mut faults = Vec::new();
    for (line, name) in names.iter().enumerate() {
        let mut cells = vec![name.clone()];
        for (column, ranks) in RANKS.into_iter().enumerate() {
            let mut ways: Vec<(&str, Kind)> = MODES
                .iter()
                .flat_map(|mode| KINDS.iter().map(move |kind| (*mode, *kind)))
                .collect();
            if !all_requested() {
                // Five columns walk through six ways, each program beginning elsewhere.
                ways = vec![ways[(line + column * 5) % ways.len()]];
            }
            let begin = Instant::now();
            let mut label = String::new();
            for (mode, kind) in ways {
                let outcome = run(&built(name, mode, kind), ranks, arguments(name));
                let text = format!("PASS {name}\n");
                let said = outcome.out().matches(&text).count();
                label = format!("{mode} {}", kind.ending());
                if let Some(fault) = outcome
                    .fault(0)
                    .or_else(|| (said != 1).then(|| format!("said PASS {said} times")))
                {
                    faults.push(format!(
                        "{name} {label} on {ranks} ranks: {fault}\n{}",
                        outcome.err()
                    ));
                    label = format!("FAILED {label}");
                }
            }
            if all_requested() {
                label = "6 ways".to_owned();
            }
            cells.push(format!("{label} {}", begin.elapsed().as_millis()));
        }
        table.row(cells);
    }
    table.show();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn c_programs_are_valid_cxx_too_and_clang_takes_them() {
    for source in sources() {
        for mode in MODES {
            compiles("g++", &source, mode);
        }
        if installed("clang") && installed("clang++") {
            compiles("clang", &source, "par");
            compiles("clang++", &source, "par");
        }
    }
    if !installed("clang") || !installed("clang++") {
        testkit::skip("C programs with clang", "clang and clang++ are not both installed");
    }
}

#[test]
fn static_destructors_run_at_the_end_of_main_and_not_in_gasnet_exit() {
    for kind in KINDS {
        let program = built("destructors", "par", kind);
        let outcome = run(&program, 3, &[]);
        outcome.expect(0);
        assert_eq!(outcome.out().matches("DESTROYED object\n").count(), 3, "{}", outcome.out());
        let outcome = run(&program, 3, &["exit"]);
        outcome.expect(0);
        assert!(!outcome.out().contains("DESTROYED"), "{}", outcome.out());
    }
}

#[test]
fn header_and_exported_symbols_agree() {
    for mode in MODES {
        symbols::compare(mode, &library().join("lib"));
    }
}

#[test]
fn a_program_of_another_mode_does_not_link() {
    for header in MODES {
        for mode in MODES {
            for kind in KINDS {
                let said = build::link_across("hello", header, mode, kind);
                assert_eq!(said.is_none(), header == mode, "{header} on {mode}: {said:?}");
                if let Some(said) = said {
                    assert!(said.contains(&format!("ibv_{header}_abi")), "{said}");
                }
            }
        }
    }
}
