//! The state table of `docs/design/connect.md` against the machine: every row must be what the
//! machine does, and what has no row must do nothing.

use bootstrap::Rank;

use super::machine::{Action, Event};
use super::sim::micros;
use super::state_table::{self, Rows};
use super::table::Table;
use super::wire::{Kind, Numbers};
use crate::transport::net::settings::Timing;

const DOCUMENT: &str = include_str!("../../../../../docs/design/connect.md");

/// Towards rank 2 this rank asks when both ask, towards rank 3 it answers.
const ME: Rank = Rank(1);
const ASKED: Rank = Rank(2);
const ANSWERED: Rank = Rank(3);

const EVENTS: [&str; 10] = [
    "need",
    "REQ",
    "REQ, later",
    "REQ again",
    "REP",
    "RTU",
    "RTU again",
    "ACK",
    "timer",
    "message",
];

/// State, peer, whether the connection is open, events that lead there (all at time 0).
const STATES: [(&str, Rank, bool, &[&str]); 9] = [
    ("None", ASKED, false, &[]),
    ("None, itself", ME, false, &[]),
    ("ReqSent, asks", ASKED, false, &["need"]),
    ("ReqSent, answers", ANSWERED, false, &["need"]),
    ("RtuSent", ASKED, false, &["need", "REP"]),
    ("RepSent", ASKED, false, &["REQ"]),
    ("RepSent, needed", ASKED, false, &["REQ", "need"]),
    ("RepSent, both asked", ANSWERED, false, &["need", "REQ"]),
    ("Done", ASKED, true, &["RTU"]),
];

fn event(name: &str) -> Option<Event> {
    let numbers = |kind: Kind| if kind.has_numbers() { Numbers::new(&[42]) } else { None };
    let packet = |kind, original| {
        let numbers = numbers(kind).unwrap_or(Numbers::EMPTY);
        Some(Event::Packet { kind, original, numbers })
    };
    match name {
        "need" => Some(Event::Need),
        "REQ" | "REQ, later" => packet(Kind::Req, true),
        "REQ again" => packet(Kind::Req, false),
        "REP" => packet(Kind::Rep, true),
        "RTU" => packet(Kind::Rtu, true),
        "RTU again" => packet(Kind::Rtu, false),
        "ACK" => packet(Kind::Ack, true),
        "message" => Some(Event::Heard),
        "timer" => None,
        other => panic!("unknown event {other:?}"),
    }
}

fn render(action: &Action) -> String {
    match action {
        Action::Prepare => "prepare".into(),
        Action::Send { kind, original } => {
            let name = format!("{kind:?}").to_uppercase();
            if *original { name } else { format!("{name} again") }
        }
        Action::ReceiveReady(numbers) => {
            assert_eq!(numbers.as_slice(), [42]);
            "RTR".into()
        }
        Action::ReceiveReadyFromSelf => "RTR with itself".into(),
        Action::SendReady => "RTS".into(),
        Action::Open => "open".into(),
        Action::GiveUp { .. } => "give up".into(),
    }
}

/// Where an event leads and what it does; `None` when it does nothing.
fn row(peer: Rank, mut open: bool, path: &[&str], name: &str) -> Option<(String, String)> {
    let mut table = Table::new(ME, Timing::default());
    for name in path {
        let actions = table.handle(micros(0), peer, &event(name).unwrap(), open);
        assert!(!actions.is_empty() || *name == "need", "{path:?}");
    }
    let state = |table: &Table, open| match table.state(peer) {
        Some(state) => format!("{state:?}"),
        None if open => "Done".to_owned(),
        None => "None".to_owned(),
    };
    let before = (state(&table, open), table.next);
    let actions = match event(name) {
        // Half a millisecond is too soon, two are not.
        Some(event) => {
            let now = micros(if name.ends_with("later") { 2_000 } else { 500 });
            table.handle(now, peer, &event, open)
        }
        // The table's deadline may be one that an entry has left behind.
        None => (0..2).find_map(|_| table.expired(table.next?)).map(|(_, actions)| actions)?,
    };
    open |= actions.contains(&Action::Open);
    let timer = table.next != before.1 && !open && name != "timer";
    let words = actions.iter().map(render).chain(timer.then(|| "timer".to_owned()));
    let actions = words.collect::<Vec<_>>().join(", ");
    let after = state(&table, open);
    (after != before.0 || !actions.is_empty()).then_some((after, actions))
}

fn rows() -> Rows {
    let mut rows = Rows::new();
    for (state, peer, open, path) in STATES {
        for name in EVENTS {
            if let Some(row) = row(peer, open, path, name) {
                rows.insert((state.to_owned(), name.to_owned()), row);
            }
        }
    }
    rows
}

#[test]
fn the_documented_table_is_the_machine() {
    state_table::compare(DOCUMENT, &STATES.map(|(name, ..)| name), &EVENTS, &rows());
}

/// Prints the table, to be pasted into the document when the machine changes.
#[test]
#[ignore = "a tool, not a check"]
fn print_table() {
    state_table::print(&STATES.map(|(name, ..)| name), &EVENTS, &rows());
}
