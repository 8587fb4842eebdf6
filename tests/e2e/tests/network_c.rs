//! The C programs of `tests/c` between ranks that share no memory, over the software adapter, in
//! every thread mode.
//!
//! By default each program runs a few times, modes, libraries and layouts taking turns;
//! `scripts/test --all` runs them all.

#![expect(clippy::unwrap_used, reason = "what is missing here fails the test")]

#[expect(dead_code, reason = "the suite of C programs uses all of it")]
#[path = "c_suite/build.rs"]
mod build;

use std::time::{Duration, Instant};

use build::{KINDS, Kind, MODES};
use testkit::apart::neighbourhoods;
use testkit::{Outcome, Table, all_requested, launcher};

/// Far above what any program takes on a busy machine.
const BOUND: Duration = Duration::from_secs(120);

/// Ranks, and how many of them at most share memory.
const LAYOUTS: [(u32, u32); 4] = [(2, 1), (3, 1), (4, 2), (5, 2)];

/// These end in ways of their own and have tests of their own.
const SPECIAL: [&str; 3] = ["exits", "wrong", "wrong_teams"];

fn programs() -> Vec<String> {
    let names: Vec<String> = build::sources()
        .iter()
        .map(|path| path.file_stem().unwrap().to_string_lossy().into_owned())
        .filter(|name| !SPECIAL.contains(&name.as_str()))
        .collect();
    assert!(names.len() >= 20, "{names:?}");
    names
}

fn run(name: &str, mode: &'static str, kind: Kind, (ranks, most): (u32, u32)) -> Outcome {
    let tree = launcher(["-n", &ranks.to_string()]).arg(build::built(name, mode, kind));
    neighbourhoods(tree, most).deadline("C program over the network", BOUND).run()
}

fn fault(name: &str, outcome: &Outcome) -> Option<String> {
    let said = outcome.out().matches(&format!("PASS {name}\n")).count();
    outcome.fault(0).or_else(|| (said != 1).then(|| format!("said PASS {said} times")))
}

/// Modes of one cell of the table. Three columns of a line, and three lines of a column, have three
/// modes.
fn modes(line: usize, column: usize) -> Vec<&'static str> {
    if all_requested() { MODES.to_vec() } else { vec![MODES[(line + column) % MODES.len()]] }
}

#[test]
fn every_program_passes_in_every_mode() {
    if !build::ready() {
        return;
    }
    let layouts = if all_requested() { &LAYOUTS[..] } else { &LAYOUTS[1..3] };
    let mut columns = vec!["program".to_owned()];
    columns.extend(layouts.iter().map(|(ranks, most)| format!("{ranks} ranks by {most}")));
    let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
    let title = "C programs over the software adapter: modes, milliseconds (! = wrong)";
    let mut table = Table::new(title, &columns);
    let mut faults = Vec::new();
    for (line, name) in programs().iter().enumerate() {
        let mut cells = vec![name.clone()];
        for (column, layout) in layouts.iter().enumerate() {
            let mut cell = String::new();
            let begin = Instant::now();
            for mode in modes(line, column) {
                let kind = build::kind(2 * line + column, KINDS[(line + column) % 2]);
                let outcome = run(name, mode, kind, *layout);
                let fault = fault(name, &outcome);
                cell.push_str(&format!("{mode}{} ", if fault.is_some() { "!" } else { "" }));
                if let Some(fault) = fault {
                    let err = outcome.err();
                    faults.push(format!("{name} {mode} in {layout:?}: {fault}\n{err}"));
                }
            }
            cells.push(format!("{cell}{}", begin.elapsed().as_millis()));
        }
        table.row(cells);
    }
    table.show();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Every operation, size and place of `matrix.c` over two rails, with fences and stripes, and over a
/// network that loses, doubles and delays datagrams and cuts a rank off for a moment.
#[test]
fn every_size_from_every_place_arrives_over_rails_and_faults() {
    const RAILS: [(&str, &str); 2] =
        [("GASNET_IBV_SOFT_DEVICES", "2"), ("GASNET_IBV_MAX_HCAS", "2")];
    const FENCED: [(&str, &str); 3] = [
        ("GASNET_USE_FENCED_PUTS", "1"),
        ("GASNET_PUT_STRIPE_SZ", "4"),
        ("GASNET_GET_STRIPE_SZ", "4"),
    ];
    if !build::ready() {
        return;
    }
    let faults = |seed: usize| {
        let text = format!(
            "seed={seed} drop-ud=20% dup-ud=20% delay-ud=2ms@30%; 1: partition=all@300ms+40ms"
        );
        [("GASNET_IBV_SOFT_FAULTS", text), ("GASNET_CONNECT_STATIC", "0".to_owned())]
    };
    let owned = |list: &[(&'static str, &str)]| -> Vec<(&'static str, String)> {
        list.iter().map(|(name, value)| (*name, (*value).to_owned())).collect()
    };
    let seeds = if all_requested() { 6 } else { 2 };
    let mut ways = vec![owned(&RAILS), owned(&[&RAILS[..], &FENCED].concat())];
    ways.extend((1..=seeds).map(|seed| {
        let rails = if seed % 2 == 0 { owned(&RAILS) } else { Vec::new() };
        rails.into_iter().chain(faults(seed)).collect()
    }));
    let most = if all_requested() { "1048579" } else { "65537" };
    for (turn, variables) in ways.iter().enumerate() {
        let program = build::built("matrix", MODES[turn % MODES.len()], KINDS[turn % 2]);
        let tree = launcher(["-n", "2"]).arg(program).arg(most);
        let tree = variables.iter().fold(tree, |tree, (name, value)| tree.env(name, value));
        let tree = neighbourhoods(tree, 1).deadline("C program over the network", 2 * BOUND);
        let outcome = tree.run();
        assert_eq!(fault("matrix", &outcome), None, "{variables:?}: {}", outcome.err());
        assert!(outcome.out().contains(" cells\n"), "{}", outcome.out());
    }
}

#[test]
fn no_atomic_is_lost_between_neighbours_remote_ranks_and_their_threads() {
    if !build::ready() {
        return;
    }
    // Alone it takes 11 s with 2001 turns, beside busy processes ten times as long: each turn has
    // several round trips, and whoever answers must get a processor first.
    let (turns, bound) = if all_requested() { ("1001", 5 * BOUND) } else { ("51", BOUND) };
    // Adapters that are atomic to processors, to themselves alone, not at all.
    let faults = ["", "atomics=device", "atomics=none"];
    let cases = [(1, 0), (2, 0), (2, 1), (2, 2)];
    for (turn, (most, which)) in cases.into_iter().enumerate() {
        let program = build::built("atomics", "par", KINDS[turn % 2]);
        let tree = launcher(["-n", "8"]).arg(program).args(["contend", turns]);
        let tree = tree.env("GASNET_IBV_SOFT_FAULTS", faults[which]);
        let outcome =
            neighbourhoods(tree, most).deadline("C program over the network", bound).run();
        let what = faults[which];
        assert_eq!(fault("atomics", &outcome), None, "by {most}, {what}: {}", outcome.err());
    }
}

/// By way of the adapter also at neighbours and at the rank itself, in both places of segments.
#[test]
fn adapters_that_are_atomic_to_themselves_alone_do_all() {
    if !build::ready() {
        return;
    }
    for (turn, name) in ["atomics", "created_segment", "published"].into_iter().enumerate() {
        let tree = launcher(["-n", "4"]).arg(build::built(name, MODES[turn], KINDS[turn % 2]));
        let tree = tree.env("GASNET_IBV_SOFT_FAULTS", "atomics=device");
        let outcome = neighbourhoods(tree, 2).deadline("C program over the network", BOUND).run();
        assert_eq!(fault(name, &outcome), None, "{}", outcome.err());
    }
}

#[test]
fn atomics_on_their_way_keep_their_domain_and_promises_about_targets_are_checked() {
    if !build::ready() {
        return;
    }
    let cases = [
        (
            "destroy in flight",
            "gex_AD_Destroy: GASNET_ERR_BAD_ARG: 1 operations of the domain are in flight",
        ),
        ("not my neighbour", "gex_AD_OpNB_U64: GASNET_ERR_BAD_ARG: GEX_FLAG_AD_MY_NBRHD for rank"),
        ("outside", "gex_AD_OpNB_U64: GASNET_ERR_BAD_ARG: bytes 0x"),
        ("misaligned", "gex_AD_OpNB_U64: GASNET_ERR_BAD_ARG: address 0x"),
    ];
    for (turn, (name, words)) in cases.into_iter().enumerate() {
        let program = build::built("atomics", MODES[turn % 3], KINDS[turn % 2]);
        let tree = launcher(["-n", "2"]).arg(program).arg(name);
        let outcome = neighbourhoods(tree, 1).deadline("C program over the network", BOUND).run();
        outcome.expect(128 + 6);
        let err = outcome.err();
        assert!(err.contains(words) && !err.contains("TEST FAILED"), "{name}: {err}");
    }
}

/// How many payloads each rank of a program says that it treated in one way, and in another, with a
/// value of a variable.
fn counted(name: &str, variable: &str, value: &str, turn: usize) -> Vec<(u32, u32)> {
    let ranks = 2 + u32::try_from(turn % 2).unwrap();
    let tree = launcher(["-n", &ranks.to_string()])
        .arg(build::built(name, MODES[turn % MODES.len()], KINDS[turn % KINDS.len()]))
        .arg("apart")
        .env(variable, value);
    let outcome = neighbourhoods(tree, 1).deadline("C program over the network", BOUND).run();
    let problem = fault(name, &outcome);
    assert_eq!(problem, None, "{variable}={value}: {}", outcome.err());
    let out = outcome.out();
    let counts = |line: &str| {
        let numbers = line.split(": ").nth(1)?.split(|c: char| !c.is_ascii_digit());
        let mut numbers = numbers.filter_map(|word| word.parse().ok());
        Some((numbers.next()?, numbers.next()?))
    };
    let counts: Vec<(u32, u32)> = out.lines().filter_map(counts).collect();
    assert_eq!(counts.len(), ranks as usize, "{out}");
    counts
}

#[test]
fn payloads_are_read_in_place_from_the_set_size_on_and_never_changed_too_early() {
    if !build::ready() {
        return;
    }
    // The program checks each event; the more is gathered, the more events there are.
    let lent = |(turn, value)| counted("lent", "GASNET_AM_GATHER_MIN", value, turn)[0].0;
    let lent: Vec<u32> = ["-1", "1500", "64", "0"].into_iter().enumerate().map(lent).collect();
    assert!(lent.is_sorted() && lent.windows(2).all(|pair| pair[0] < pair[1]), "{lent:?}");
}

#[test]
fn a_source_that_is_overwritten_at_once_has_arrived_as_it_was() {
    if !build::ready() {
        return;
    }
    let name = "GASNET_NONBULKPUT_BOUNCE_LIMIT";
    let waited = |(turn, value)| counted("overwrite", name, value, turn)[0].1;
    let waited: Vec<u32> =
        ["4096", "100000", "400000"].into_iter().enumerate().map(waited).collect();
    // The program checks each put.
    assert!(waited[0] > waited[2], "the limit changes nothing: {waited:?}");
}

/// Handlers run on threads of the network beside programs of every mode; the checks of the debug
/// libraries have nothing against it.
#[test]
fn programs_of_every_mode_have_threads_of_the_network() {
    if !build::ready() {
        return;
    }
    for (turn, name) in ["legacy", "traffic", "legacy"].into_iter().enumerate() {
        let (mode, kind) = (MODES[turn % MODES.len()], KINDS[turn % KINDS.len()]);
        let tree = launcher(["-n", "3"])
            .arg(build::built(name, mode, kind))
            .env("GASNET_RCV_THREAD", "1")
            // Handlers of these programs count without locks.
            .env("GASNET_RCV_THREAD_POLL_MODE", "exclusive")
            .env("GASNET_SND_THREAD", "1");
        let outcome = neighbourhoods(tree, 1).deadline("threads of the network", BOUND).run();
        assert_eq!(fault(name, &outcome), None, "{mode}: {}", outcome.err());
    }
}

#[test]
fn a_program_runs_the_threads_of_the_network_itself() {
    if !build::ready() {
        return;
    }
    for (turn, (mode, extra)) in
        [("par", "0"), ("seq", "1"), ("parsync", "1"), ("seq", "0")].into_iter().enumerate()
    {
        let tree = launcher(["-n", "2"])
            .arg(build::built("deferred_threads", mode, KINDS[turn % KINDS.len()]))
            .arg("network")
            .env("GASNET_RCV_THREAD", "1")
            .env("GASNET_SND_THREAD", extra);
        let outcome = neighbourhoods(tree, 1).deadline("deferred threads", BOUND).run();
        assert_eq!(fault("deferred_threads", &outcome), None, "{}", outcome.err());
    }
}
