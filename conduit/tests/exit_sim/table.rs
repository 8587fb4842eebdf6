//! The state table of `docs/design/exit.md` against the machine: every row must be what the machine
//! does, and what has no row must change nothing.

use bootstrap::ExitPath;

use super::state_table::{self, Rows};
use crate::blocks::of_blocks;
use crate::exit::machine::{
    Action, Actions, Code, Config, Event, Machine, Message, Millis, Timeouts,
};

const DOCUMENT: &str = include_str!("../../../docs/design/exit.md");

const EVENTS: [&str; 13] = [
    "local 3",
    "gather 5",
    "outcome 9",
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
        "gather 5" => message(5, Message::Gather(Code(5))),
        "outcome 9" => message(0, Message::Outcome(Code(9))),
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

/// State name, whether there is a control tree, and the events that lead there. "in a tree": between
/// a parent and a child.
const STATES: [(&str, bool, &[&str]); 15] = [
    ("Running", true, &[]),
    ("Running, no tree", false, &[]),
    ("Running, in a tree", false, &[]),
    ("Reducing", true, &["local 3"]),
    ("Reducing, in a tree", false, &["local 3"]),
    ("Reducing, passed on in a tree", false, &["local 3", "gather 5"]),
    ("Electing, in a tree", false, &["local 3", "gather 5", "timer"]),
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
        Message::Gather(code) => format!("gather {}", code.0),
        Message::Outcome(code) => format!("outcome {}", code.0),
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
    machine_in((4, 1), rank, control, path)
}

/// In a job of so many ranks, so many in each neighbourhood.
fn machine_in((size, each): (u32, u32), rank: u32, control: bool, path: &[&str]) -> Machine {
    let (timeouts, tree) = (Timeouts::new(Millis(4_000)), of_blocks(rank, size, each));
    let mut machine = Machine::new(Config { rank, size, control, timeouts, tree });
    for name in path {
        apply(&mut machine, name);
    }
    machine
}

/// All rows that the machine has: those where something happens.
fn rows() -> Rows {
    let mut rows = Rows::new();
    for (state, control, path) in STATES {
        let job = if state.ends_with("in a tree") { (6, 6) } else { (4, 1) };
        let before = machine_in(job, 1, control, path);
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
        (0, Message::Gather(Code(99))),
        (0, Message::Outcome(Code(99))),
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

#[test]
fn only_children_and_the_parent_are_believed() {
    let forged = [
        (0, Message::Gather(Code(99))),
        (2, Message::Gather(Code(99))),
        (5, Message::Outcome(Code(99))),
        (2, Message::Outcome(Code(99))),
        (0, Message::Reduce { round: 0, code: Code(99) }),
        // Before the child has given its code there is no outcome.
        (0, Message::Outcome(Code(99))),
    ];
    let before = machine_in((6, 6), 1, false, &["local 3"]);
    for (from, message) in forged {
        let (mut machine, mut out) = (before.clone(), Actions::new());
        machine.handle(Millis(0), Event::Message { from, message }, &mut out);
        assert!(machine == before && out.is_empty(), "{from} {message:?}");
    }
}

/// Prints the table, to be pasted into the document when the machine changes.
#[test]
#[ignore = "a tool, not a check"]
fn print_table() {
    state_table::print(&STATES.map(|(name, ..)| name), &EVENTS, &rows());
}
