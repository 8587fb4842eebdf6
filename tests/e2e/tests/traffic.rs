//! Random traffic of all kinds of operations against a model (`tests/c/traffic.c`): in shared
//! memory, over the software adapter, over two rails, mixed, and over a network with faults.
//!
//! `TESTKIT_SEED` runs a seed again. By default 10^6 operations, `scripts/test --all` runs 10^8, with
//! optimized libraries; a program in Rust has fewer.

#![expect(clippy::unwrap_used, reason = "what is missing here fails the test")]

#[expect(dead_code, reason = "the suite of C programs uses all of it")]
#[path = "c_suite/build.rs"]
mod build;

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, SystemTime};

use build::{KINDS, MODES};
use testkit::apart::neighbourhoods;
use testkit::{Table, Tree, all_requested, job, launcher};

const DEFAULT: u64 = 1_000_000;
const ALL: u64 = 100_000_000;
/// Of all operations, so many per mille are begun in each way but the first: over a network they
/// cost twenty times as much.
const SHARE: u64 = 15;

/// What lies between ranks: how many share memory at most, variables, faults.
struct Way {
    name: &'static str,
    ranks: u32,
    most: Option<u32>,
    variables: &'static [(&'static str, &'static str)],
    faults: bool,
}

const RAILS: [(&str, &str); 2] = [("GASNET_IBV_SOFT_DEVICES", "2"), ("GASNET_IBV_MAX_HCAS", "2")];
const SECURE: [(&str, &str); 1] = [("GASNET_IBV_SOFT_SECURE", "1")];
const MOVING: [(&str, &str); 3] = [
    ("GASNET_AM_FLOW_CONTROL", "dynamic"),
    ("GASNET_AM_CREDITS_BANK", "4"),
    ("GASNET_AM_CREDITS_EPOCH", "64"),
];
const RINGS: [(&str, &str); 2] =
    [("GASNET_AM_FLOW_CONTROL", "volume"), ("GASNET_NETWORKDEPTH_SPACE", "132K")];
/// The first one does most of the operations, and mostly cheap ones: puts, gets, atomics.
const WAYS: [Way; 9] = [
    Way { name: "shared memory, light", ranks: 3, most: None, variables: &[], faults: false },
    Way { name: "shared memory", ranks: 4, most: None, variables: &[], faults: false },
    Way { name: "soft", ranks: 3, most: Some(1), variables: &[], faults: false },
    Way { name: "mixed", ranks: 4, most: Some(2), variables: &[], faults: false },
    Way { name: "moving credits", ranks: 4, most: Some(1), variables: &MOVING, faults: false },
    Way { name: "rings", ranks: 4, most: Some(1), variables: &RINGS, faults: false },
    Way { name: "encrypted", ranks: 4, most: Some(1), variables: &SECURE, faults: false },
    Way { name: "two rails", ranks: 2, most: Some(1), variables: &RAILS, faults: false },
    Way {
        name: "faults",
        ranks: 3,
        most: Some(1),
        variables: &[("GASNET_CONNECT_STATIC", "0")],
        faults: true,
    },
];

/// Datagrams of connections get lost, double and overtake each other; then rank 1 is cut off for a
/// moment.
fn faults(seed: u32) -> String {
    format!("seed={seed} drop-ud=20% dup-ud=20% delay-ud=2ms@30%; 1: partition=all@300ms+40ms")
}

fn seed() -> u32 {
    let given = settings::variable("TESTKIT_SEED");
    let given = given.map(|text| text.to_str().unwrap().parse().unwrap());
    given.unwrap_or_else(|| SystemTime::UNIX_EPOCH.elapsed().unwrap().subsec_nanos())
}

/// The program with an optimized library.
fn optimized(mode: &'static str) -> PathBuf {
    let (out, root) = (build::target().join("c-optimized"), build::root());
    let mut libraries = Command::new(root.join("scripts/build-libs"));
    libraries.args(["--profile", "release", "--out"]).arg(&out).arg(mode);
    build::must(libraries.env("CARGO_TARGET_DIR", build::target()));
    let path = out.join(format!("traffic-{mode}"));
    let mut compiler = Command::new("gcc");
    compiler.args(["-std=c11", "-D_GNU_SOURCE", "-O2", "-g"]).args(build::defines(mode));
    compiler.arg("-I").arg(out.join("include")).arg(root.join("tests/c/traffic.c"));
    compiler.arg(out.join(format!("lib/libgasnet-ibv-{mode}.a")));
    build::must(compiler.args(["-lpthread", "-lm", "-ldl", "-lgcc_s", "-o"]).arg(&path));
    path
}

fn program(mode: &'static str, turn: usize) -> PathBuf {
    if all_requested() { optimized(mode) } else { build::built("traffic", mode, KINDS[turn % 2]) }
}

fn tree(way: &Way, mode: &'static str, turn: usize, operations: u64, seed: u32) -> Tree {
    let tree = launcher(["-n", &way.ranks.to_string()]).arg(program(mode, turn));
    let tree = tree.args([(operations / u64::from(way.ranks)).to_string(), seed.to_string()]);
    let tree = if turn == 0 { tree.arg("light") } else { tree };
    let tree = match way.most {
        Some(most) => neighbourhoods(tree, most),
        None => tree,
    };
    let tree = way.variables.iter().fold(tree, |tree, (name, value)| tree.env(name, value));
    let tree = if way.faults { tree.env("GASNET_IBV_SOFT_FAULTS", faults(seed)) } else { tree };
    tree.deadline("random traffic", Duration::from_secs(if all_requested() { 900 } else { 180 }))
}

#[test]
fn random_traffic_is_what_its_model_says() {
    if !build::ready() {
        return;
    }
    let (seed, wanted) = (seed(), if all_requested() { ALL } else { DEFAULT });
    let title = format!("random traffic, seed {seed}: mode, operations, milliseconds");
    let mut table = Table::new(&title, &["between ranks", "mode", "operations", "ms"]);
    let (mut total, mut faults) = (0, Vec::new());
    for (turn, way) in WAYS.iter().enumerate().rev() {
        let mode = MODES[(seed as usize + turn) % MODES.len()];
        // What the others did not do; some draws start nothing.
        let rest = wanted.saturating_sub(total) * 21 / 20;
        let share = (wanted * SHARE / 1000).min(200_000);
        let operations = if turn == 0 { rest } else { share };
        let outcome = tree(way, mode, turn, operations, seed).run();
        let out = outcome.out();
        let done = out.split(" operations, seed ").next();
        let done: u64 = done.and_then(|text| text.lines().last()?.parse().ok()).unwrap_or(0);
        total += done;
        let passed = out.contains("PASS traffic\n");
        let fault = outcome.fault(0).or_else(|| (!passed).then(|| "it did not pass".into()));
        if let Some(fault) = fault {
            let (name, err) = (way.name, outcome.err());
            faults.push(format!("{name} {mode}, TESTKIT_SEED={seed}: {fault}\n{err}"));
        }
        table.row(vec![way.name.into(), mode.into(), done.to_string(), outcome.ms().to_string()]);
    }
    table.show();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(total >= wanted, "{total} operations");
}

/// The same of the Rust interface: `src/bin/traffic.rs`.
#[test]
fn random_traffic_of_a_rust_program_is_what_its_model_says() {
    let (seed, wanted) = (seed(), if all_requested() { 200_000 } else { 1500 });
    let title = format!("random traffic of a Rust program, seed {seed}");
    let mut table =
        Table::new(&title, &["ranks", "share memory", "rails", "operations of each", "ms"]);
    for (ranks, most, rails) in
        [(4, None, "1"), (3, Some(1), "1"), (4, Some(2), "1"), (2, Some(1), "2")]
    {
        let tree = job(ranks, "traffic").args([wanted.to_string(), seed.to_string()]);
        let tree = match most {
            Some(most) => neighbourhoods(tree, most),
            None => tree,
        };
        let tree = RAILS.iter().fold(tree, |tree, (name, _)| tree.env(name, rails));
        let outcome = tree.deadline("random traffic", Duration::from_secs(300)).run();
        let lines = outcome.out().matches(" operations as the model says\n").count();
        let fault = outcome.fault(0);
        assert!(
            fault.is_none() && lines == ranks as usize,
            "TESTKIT_SEED={seed}, {ranks} ranks, {most:?}: {fault:?}\n{}",
            outcome.err()
        );
        let share = most.map_or("all".to_owned(), |most| most.to_string());
        let (ms, wanted) = (outcome.ms().to_string(), wanted.to_string());
        table.row(vec![ranks.to_string(), share, rails.to_owned(), wanted, ms]);
    }
    table.show();
}
