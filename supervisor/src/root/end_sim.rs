//! The end of a job with very many hosts, in virtual time: the root's machine decides, agents carry
//! its commands down and events up, and one that has lost its parent decides with a machine of its
//! own. Links, ranks and losses are simulated. The table is that of docs/design/tree.md.

mod world;

use std::fmt::Write as _;

use settings::deadlines::agent::{DECISION_ACK, KILL_GRACE, QUIET_LIMIT, QUIET_WINDOW, REAP};
use settings::deadlines::tree::PARENT_SILENT;

use crate::agent::machine::CODE_LAUNCH;
use crate::report::CauseKind;
use world::{DEGREE, During, EVENT, EXIT_BOUND, LATENCY, LONE, MS, Seen, Time, WORK, World};

/// Hosts that are lost, far from each other: the last ones of as many parts of the list.
fn some(hosts: usize, count: usize) -> Vec<usize> {
    (1..=count).map(|part| part * hosts / count - 1).collect()
}

/// Decision, the last agent told, the end.
struct Times([Time; 3]);

/// Ends a job of so many hosts while `count` of them are lost; nobody may be left waiting.
fn end(hosts: usize, ranks: u32, during: During, (count, seen): (usize, Seen)) -> (u32, Times) {
    let what = format!("{hosts} hosts, {during:?}, {count} lost, {seen:?}");
    let mut world = World::new(hosts, ranks);
    world.lose(&some(hosts, count), seen);
    if during != During::Work {
        world.exit(during);
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
    let travel = 200 * MS + EVENT * 5 * world.size() as Time;
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
        // Beside the quiet window it takes two ways through the tree at most: a question and its
        // answer.
        let hop = LATENCY + WORK * DEGREE as Time;
        let ways = 2 * Time::from(world.depth) * hop;
        assert!(decided <= QUIET_WINDOW.ms() * MS + ways + MS, "{what}: decided after {decided}");
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

/// The rows of the table for a job of this size.
fn rows(hosts: usize, ranks: u32) -> String {
    let mut rows = String::new();
    let whats = [
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
            if (count == 0 && during == During::Work) || count * 2 > hosts {
                continue;
            }
            let (depth, Times(times)) = end(hosts, ranks, during, (count, seen));
            let [decided, told, finished] = times.map(duration);
            let how = match (count, seen) {
                (0, _) => "",
                (_, Seen::Closed) => "closed",
                (_, Seen::Silent) => "silent",
            };
            writeln!(
                rows,
                "| {hosts} | {depth} | {name} | {count} | {how} | {decided} | {told} | {finished} |"
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
