//! The end of a job with very many hosts, in virtual time: the root's machine decides, agents carry
//! its commands down and events up, and one that has lost its parent decides with a machine of its
//! own. Links, ranks and losses are simulated. The table is that of docs/design/tree.md.

mod world;

use std::fmt::Write as _;

use settings::deadlines::agent::{DECISION_ACK, KILL_GRACE, QUIET_LIMIT, QUIET_WINDOW, REAP};
use settings::deadlines::tree::PARENT_SILENT;

use super::search::Search;
use crate::agent::machine::deed::{Deed, Who};
use crate::agent::machine::{CODE_LAUNCH, Event, Machine, RankEvent, Rules};
use crate::report::{CauseKind, End};
use world::{During, EACH, EVENT, EXIT_BOUND, LATENCY, LONE, MS, Seen, Time, WORK, World};

/// Hosts that are lost, far from each other: the last ones of as many parts of the list.
fn some(hosts: usize, count: usize) -> Vec<usize> {
    (1..=count).map(|part| part * hosts / count - 1).collect()
}

/// Decision, the last agent told, the end.
struct Times([Time; 3]);

/// Ends a job of so many hosts while `count` of them are lost; nobody may be left waiting.
fn end(hosts: usize, ranks: u32, during: During, (count, seen): (usize, Seen)) -> (u32, Times) {
    let what = format!("{hosts} hosts, {during:?}, {count} lost, {seen:?}");
    let mut world = World::new(hosts, ranks, during != During::Start);
    world.lose(&some(hosts, count), seen);
    match during {
        During::Start => world.start(),
        During::Work => {}
        During::CollectiveExit | During::NonCollectiveExit => world.exit(during),
    }
    world.run();
    let cause = world.machine.cause();
    let kind = cause.as_ref().map(|cause| cause.kind);
    // A rank that leaves alone and the loss of a host are both first causes; which of them counts
    // is a question of what was heard first.
    let alone = kind == Some(CauseKind::NonCollectiveExit) && during == During::NonCollectiveExit;
    let expected = match (count, during) {
        (0, During::CollectiveExit) => kind.is_none().then_some(0),
        (0, _) => alone.then_some(LONE),
        _ if alone => Some(LONE),
        // Ranks of a silent host may have been given up before the silence was long enough.
        _ if seen == Seen::Silent && kind == Some(CauseKind::Unkillable) => Some(CODE_LAUNCH),
        _ => (kind == Some(CauseKind::AgentLost)).then_some(CODE_LAUNCH),
    };
    assert_eq!(Some(world.machine.exit_code()), expected, "{what}: {cause:?}");
    let finished = world.finished.unwrap_or_else(|| panic!("{what}: the machine never finishes"));
    // Every wait on the way has its deadline.
    let named = if seen == Seen::Silent { PARENT_SILENT.ms() } else { 0 };
    let travel = 200 * MS + (EACH * 5 + EVENT) * world.size() as Time;
    let exit = QUIET_WINDOW.ms() + QUIET_LIMIT.ms() + DECISION_ACK.ms();
    let bound = (named + exit) * MS + travel;
    for (host, agent) in world.agents.iter().enumerate().filter(|(_, agent)| !agent.dead) {
        let told = agent.told.is_none_or(|told| told <= bound);
        assert!(told, "{what}: host {host} was told after {:?} ns", agent.told);
        assert!(agent.left.is_empty(), "{what}: ranks are left on host {host}");
    }
    let most = bound + (EXIT_BOUND + KILL_GRACE.ms() + REAP.ms()) * MS;
    assert!(finished <= most, "{what}: finished after {finished} ns");
    let decided = world.decided.unwrap();
    if (count, during) == (0, During::NonCollectiveExit) {
        // The question is asked before the quiet window is over.
        assert!(decided >= QUIET_WINDOW.ms() * MS, "{what}: decided after {decided}");
    }
    if count == 0 {
        let depths = 2 * hops(world.depth);
        assert!(decided <= window(during, count) + depths, "{what}: decided after {decided}");
    }
    (world.depth, Times([decided, world.told(), finished]))
}

fn duration(time: Time) -> String {
    match time {
        0 => "-".to_owned(),
        time if time < 10_000 * MS => format!("{:.1} ms", time as f64 / MS as f64),
        time => format!("{:.1} s", time as f64 / (1000 * MS) as f64),
    }
}

/// What a decision waits for by the rules.
fn window(during: During, lost: usize) -> Time {
    let alone = during == During::NonCollectiveExit && lost == 0;
    if alone { QUIET_WINDOW.ms() * MS } else { 0 }
}

/// One hop for each level.
fn hops(depth: u32) -> Time {
    Time::from(depth) * (LATENCY + WORK)
}

/// The time of a decision in depths of the tree, one hop for each level, and whether that is at most
/// two. The quiet window is no part of it; what waits for a silent host is none of it.
fn depths(decided: Time, depth: u32, during: During, (count, seen): (usize, Seen)) -> String {
    if count > 0 && seen == Seen::Silent {
        return "- | -".to_owned();
    }
    let depths = (decided - window(during, count)) as f64 / hops(depth) as f64;
    let verdict = if depths <= 2.0 { "yes" } else { "no" };
    format!("{depths:.1} | {verdict}")
}

/// The rows of the table for a job of this size.
fn rows(hosts: usize, ranks: u32) -> String {
    let mut rows = String::new();
    let whats = [
        (During::Start, "start"),
        (During::Work, "work"),
        (During::CollectiveExit, "collective exit"),
        (During::NonCollectiveExit, "exit of one rank"),
    ];
    for (during, name) in whats {
        for (count, seen) in [
            (0, Seen::Closed),
            (1, Seen::Closed),
            (10, Seen::Closed),
            (1000, Seen::Closed),
            (1, Seen::Silent),
            (1000, Seen::Silent),
        ] {
            // Nothing ends a job that works and loses nothing.
            if (count == 0 && matches!(during, During::Start | During::Work)) || count * 2 > hosts {
                continue;
            }
            let (depth, Times(times)) = end(hosts, ranks, during, (count, seen));
            let depths = depths(times[0], depth, during, (count, seen));
            let [decided, told, finished] = times.map(duration);
            let how = match (count, seen) {
                (0, _) => "",
                (_, Seen::Closed) => "closed",
                (_, Seen::Silent) => "silent",
            };
            writeln!(
                rows,
                "| {hosts} | {depth} | {name} | {count} | {how} | {decided} | {depths} | {told} | {finished} |"
            )
            .unwrap();
        }
    }
    rows
}

fn is_in_the_page(rows: &str) {
    println!("{rows}");
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/design/tree.md");
    let page = std::fs::read_to_string(page).unwrap();
    for row in rows.lines() {
        assert!(page.lines().any(|line| line == row), "docs/design/tree.md lacks the row\n{row}");
    }
}

/// What the root's work for each rank of many is taken for.
#[test]
#[ignore = "a measurement: prints what the simulation assumes"]
fn alike() {
    const RANKS: u32 = 1_000_000;
    let rules = Rules { exit_bound: EXIT_BOUND, timeout_at: None };
    let mut machine = Machine::new(RANKS, rules);
    let mut out = Vec::new();
    for rank in 0..RANKS {
        let started = RankEvent::Started { rank, pid: 1, at: 0.0 };
        machine.handle(0, Event::Rank(started), &mut out);
    }
    let exit = Deed::Exiting { code: 0, path: 0 };
    for deed in [Deed::Hello, exit, Deed::Fini { code: 0 }] {
        let begun = std::time::Instant::now();
        machine.handle(1, Event::Alike { deed, who: Who::Runs(vec![(0, RANKS)]) }, &mut out);
        println!(
            "{deed:?}: {:.1} ns a rank",
            begun.elapsed().as_secs_f64() * 1e9 / f64::from(RANKS)
        );
    }
    let begun = std::time::Instant::now();
    let end = Deed::Ended { end: End::Code(0), orderly: true, free: true };
    machine.handle(1, Event::Alike { deed: end, who: Who::Rest(0) }, &mut out);
    println!("the rest: {:.1} µs", begun.elapsed().as_secs_f64() * 1e6);
    let begun = std::time::Instant::now();
    let mut search = Search::new((0..RANKS).map(|host| (host, None)));
    (0..RANKS).for_each(|host| _ = search.answer(host, false));
    println!("search: {:.1} ns a host", begun.elapsed().as_secs_f64() * 1e9 / f64::from(RANKS));
}

#[test]
fn jobs_of_a_thousand_hosts_end_whatever_is_lost() {
    is_in_the_page(&rows(1000, 10));
}

#[test]
fn jobs_of_a_hundred_thousand_hosts_end_whatever_is_lost() {
    if !testkit::all_requested() {
        let name = "jobs_of_a_hundred_thousand_hosts_end_whatever_is_lost";
        return testkit::skip(name, "takes long; scripts/test --all runs it");
    }
    is_in_the_page(&rows(100_000, 10));
}
