//! The state table of `docs/design/exit.md` against the machine: every row must be what the machine
//! does, and what has no row must change nothing.

use bootstrap::ExitPath;

use super::state_table::{self, Rows};
use crate::exit::machine::{
    Action, Actions, Code, Config, Event, Machine, Message, Millis, Timeouts,
};

const DOCUMENT: &str = include_str!("../../../docs/design/exit.md");

const EVENTS: [&str; 11] = [
    "local 3",
    "reduce 0 5",
    "reduce 1 9",
    "role-request",
    "leader",
    "member",
    "request 9",
    "reply",
    "decision 9",
    "timer",
    "flushed",
];

fn event(name: &str) -> Event {
    let message = |from, message| Event::Message { from, message };
    match name {
        "local 3" => Event::LocalExit { code: Code(3), path: ExitPath::Explicit },
        "reduce 0 5" => message(0, Message::Reduce { round: 0, code: Code(5) }),
        "reduce 1 9" => message(3, Message::Reduce { round: 1, code: Code(9) }),
        "role-request" => message(2, Message::RoleRequest),
        "leader" => message(0, Message::RoleReply(true)),
        "member" => message(0, Message::RoleReply(false)),
        "request 9" => message(3, Message::ExitRequest(Code(9))),
        "reply" => message(2, Message::ExitReply),
        "decision 9" => Event::ExitDecision(Code(9)),
        "timer" => Event::Timer,
        "flushed" => Event::Flushed,
        other => panic!("unknown event {other:?}"),
    }
}

/// State name, whether there is a control tree, and the events that lead there.
const STATES: [(&str, bool, &[&str]); 11] = [
    ("Running", true, &[]),
    ("Running, no tree", false, &[]),
    ("Reducing", true, &["local 3"]),
    ("Reducing, last round", false, &["local 3", "reduce 0 5"]),
    ("Electing", false, &["local 3", "timer"]),
    ("Leading, last reply", false, &["local 3", "timer", "leader", "reply 0", "reply 3"]),
    ("Following", false, &["local 3", "timer", "member"]),
    ("Draining", false, &["request 9"]),
    ("Draining, failed", false, &["local 3", "timer", "member", "timer"]),
    ("Finishing", false, &["request 9", "flushed"]),
    ("Aborting", false, &["local 3", "timer", "timer", "flushed"]),
];

fn apply(machine: &mut Machine, name: &str) -> String {
    let now = machine.deadline().filter(|_| name == "timer").unwrap_or_default();
    let event = match name {
        "reply 0" => Event::Message { from: 0, message: Message::ExitReply },
        "reply 3" => Event::Message { from: 3, message: Message::ExitReply },
        name => event(name),
    };
    let mut out = Actions::new();
    machine.handle(now, event, &mut out);
    out.as_slice().iter().map(render).collect::<Vec<_>>().join(", ")
}

fn render(action: &Action) -> String {
    let say = |message: &Message| match *message {
        Message::Reduce { round, code } => format!("reduce {round} {}", code.0),
        Message::RoleRequest => "role-request".into(),
        Message::RoleReply(true) => "leader".into(),
        Message::RoleReply(false) => "member".into(),
        Message::ExitRequest(code) => format!("request {}", code.0),
        Message::ExitReply => "reply".into(),
    };
    match action {
        Action::Announce { code, path } => format!("announce {} {path:?}", code.0),
        Action::StopClientHandlers => "stop handlers".into(),
        Action::Send { to, message } => format!("send {to} ({})", say(message)),
        Action::SendAll(message) => format!("send all ({})", say(message)),
        Action::RaiseQuit => "quit".into(),
        Action::Decide(code) => format!("decide {}", code.0),
        Action::Flush(true) => "flush".into(),
        Action::Flush(false) => "flush (failed)".into(),
        Action::Fini(code) => format!("fini {}", code.0),
        Action::Abort(code) => format!("abort {}", code.0),
        Action::Terminate(code) => format!("end {}", code.0),
    }
}

fn machine(rank: u32, control: bool, path: &[&str]) -> Machine {
    let timeouts = Timeouts::new(Millis(4_000));
    let mut machine = Machine::new(Config { rank, size: 4, control, timeouts });
    for name in path {
        apply(&mut machine, name);
    }
    machine
}

/// All rows that the machine has: those where something happens.
fn rows() -> Rows {
    let mut rows = Rows::new();
    for (state, control, path) in STATES {
        let before = machine(1, control, path);
        assert!(
            state.starts_with(&format!("{:?}", before.state())),
            "{state} is {:?}",
            before.state()
        );
        for name in EVENTS {
            let mut after = before.clone();
            let actions = apply(&mut after, name);
            if after != before || !actions.is_empty() {
                let row = (format!("{:?}", after.state()), actions);
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

#[test]
fn rank_0_makes_the_first_candidate_the_leader() {
    for path in [&[] as &[&str], &["local 3"], &["local 3", "timer"], &["request 9"]] {
        let mut machine = machine(0, false, path);
        let before = machine.state();
        let ask = |machine: &mut Machine, from| {
            let mut out = Actions::new();
            machine.handle(
                Millis(0),
                Event::Message { from, message: Message::RoleRequest },
                &mut out,
            );
            out.as_slice().iter().map(render).collect::<Vec<_>>().join(", ")
        };
        assert_eq!(ask(&mut machine, 2), "send 2 (leader)");
        assert_eq!(ask(&mut machine, 0), "send 0 (member)");
        assert_eq!(ask(&mut machine, 3), "send 3 (member)");
        assert_eq!(
            ask(&mut machine, 2),
            "send 2 (leader)",
            "a repeated request gets the same answer"
        );
        assert_eq!(ask(&mut machine, 4), "", "no rank of this job");
        assert_eq!(machine.state(), before);
    }
}

#[test]
fn nothing_from_the_wire_is_trusted() {
    let before = machine(1, false, &["local 3"]);
    let reduce = |from, round| (from, Message::Reduce { round, code: Code(99) });
    let forged = [
        reduce(0, 1),
        reduce(2, 0),
        reduce(0, 2),
        reduce(0, 255),
        reduce(4, 0),
        reduce(u32::MAX, 0),
    ];
    let others = [
        (9, Message::ExitRequest(Code(99))),
        (1, Message::ExitRequest(Code(99))),
        (0, Message::RoleReply(true)),
        (2, Message::ExitReply),
        (2, Message::RoleRequest),
    ];
    for (from, message) in forged.into_iter().chain(others) {
        let mut machine = before.clone();
        let mut out = Actions::new();
        machine.handle(Millis(0), Event::Message { from, message }, &mut out);
        assert_eq!(
            (machine == before, out.as_slice()),
            (true, &[] as &[Action]),
            "{from} {message:?}"
        );
    }
}

/// Prints the table, to be pasted into the document when the machine changes.
#[test]
#[ignore = "a tool, not a check"]
fn print_table() {
    state_table::print(&STATES.map(|(name, ..)| name), &EVENTS, &rows());
}
