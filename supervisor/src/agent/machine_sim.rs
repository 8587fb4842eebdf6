//! The machine in a virtual world: ranks with random behaviour, a virtual clock, and an oracle that
//! knows the first cause from the history alone.

use std::collections::BTreeMap;

use bootstrap::ExitPath;
use proptest::prelude::*;
use settings::deadlines::agent::{DECISION_ACK, KILL_GRACE, QUIET_LIMIT, REAP, STRAY_GRACE};

use super::machine::{CODE_LAUNCH, Command, Event, Machine, RankEvent, Rules};
use crate::report::{Cause, CauseKind, End};

const EXIT_BOUND: u64 = 3000;

/// What a rank does on its own.
#[derive(Clone, Copy, Debug)]
enum Deed {
    /// Plain program: exits with this code.
    Plain(i32),
    /// Dies of a signal, after `Hello` or not.
    Die { hello: bool, signal: i32 },
    /// Opens the bootstrap and ends with 0.
    NoFini,
    /// Opens it and exits through the library.
    Exit(i32),
    /// Opens it and calls abort.
    Abort(i32),
    /// Sends garbage.
    Garbage,
    /// Opens it and computes for ever.
    Spin,
}

/// How it reacts: delays in milliseconds, `None` = not at all.
#[derive(Clone, Copy, Debug)]
struct Temper {
    deed: Deed,
    at: u64,
    on_decision: Option<u64>,
    on_quit: Option<u64>,
    on_term: Option<u64>,
    /// Processes it leaves behind, and whether they heed TERM.
    orphans: u32,
    orphan_term: bool,
}

fn started(rank: u32) -> Event {
    Event::Rank(RankEvent::Started { rank, pid: 1, at: 0.0 })
}

fn hello(rank: u32) -> Event {
    Event::Rank(RankEvent::Hello { rank })
}

fn protocol(rank: u32) -> Event {
    Event::Rank(RankEvent::Protocol { rank, text: String::new() })
}

struct World {
    tempers: Vec<Temper>,
    machine: Machine,
    now: u64,
    queue: BTreeMap<(u64, u64), Event>,
    number: u64,
    gone: Vec<bool>,
    exiting: Vec<Option<i32>>,
    orphans: Vec<bool>,
    log: Vec<(u64, Event)>,
    actions: Vec<(u64, Command)>,
    causes: Vec<Cause>,
    decided: bool,
    samples: u32,
}

impl World {
    fn new(tempers: Vec<Temper>) -> Self {
        let size = tempers.len();
        let count = u32::try_from(size).unwrap();
        let machine = Machine::new(count, Rules { exit_bound: EXIT_BOUND, timeout_at: None });
        let mut world = Self {
            tempers,
            machine,
            now: 0,
            queue: BTreeMap::new(),
            number: 0,
            gone: vec![false; size],
            exiting: vec![None; size],
            orphans: Vec::new(),
            log: Vec::new(),
            actions: Vec::new(),
            causes: Vec::new(),
            decided: false,
            samples: 0,
        };
        for rank in 0..count {
            world.at(0, started(rank));
        }
        for rank in 0..count {
            world.plan(rank);
        }
        world
    }

    fn at(&mut self, delay: u64, event: Event) {
        self.number += 1;
        self.queue.insert((self.now + delay, self.number), event);
    }

    fn plan(&mut self, rank: u32) {
        let Temper { deed, at, .. } = self.tempers[rank as usize];
        let opens = !matches!(deed, Deed::Plain(_) | Deed::Die { hello: false, .. });
        if opens {
            self.at(0, hello(rank));
        }
        match deed {
            Deed::Plain(code) => {
                self.at(at, Event::Rank(RankEvent::Ended { rank, end: End::Code(code), at: 0.0 }))
            }
            Deed::Die { signal, .. } => self
                .at(at, Event::Rank(RankEvent::Ended { rank, end: End::Signal(signal), at: 0.0 })),
            Deed::NoFini => {
                self.at(at, Event::Rank(RankEvent::Ended { rank, end: End::Code(0), at: 0.0 }))
            }
            Deed::Exit(code) => self.at(
                at,
                Event::Rank(RankEvent::Exiting { rank, code, path: ExitPath::Explicit as u32 }),
            ),
            Deed::Abort(code) => {
                self.at(at, Event::Rank(RankEvent::Abort { rank, code }));
                self.at(
                    at + 1,
                    Event::Rank(RankEvent::Ended { rank, end: End::Code(code), at: 0.0 }),
                );
            }
            Deed::Garbage => self.at(at, protocol(rank)),
            Deed::Spin => {}
        }
    }

    /// A rank leaves: an exiting one with the code that it knows.
    fn leave(&mut self, rank: u32, delay: u64, end: End) {
        self.at(delay, Event::Rank(RankEvent::Ended { rank, end, at: 0.0 }));
    }

    fn deliver(&mut self, event: Event) {
        match event {
            Event::Rank(RankEvent::Ended { rank, .. })
                if std::mem::replace(&mut self.gone[rank as usize], true) =>
            {
                return;
            }
            Event::Rank(RankEvent::Exiting { rank, .. })
            | Event::Rank(RankEvent::Fini { rank, .. })
            | Event::Rank(RankEvent::Abort { rank, .. })
                if self.gone[rank as usize] =>
            {
                return;
            }
            Event::Rank(RankEvent::Exiting { rank, code, .. }) => {
                self.exiting[rank as usize] = Some(code)
            }
            _ => {}
        }
        if let Event::Rank(RankEvent::Ended { rank, .. }) = event {
            let Temper { orphans, orphan_term, .. } = self.tempers[rank as usize];
            self.orphans.extend((0..orphans).map(|_| orphan_term));
        }
        self.log.push((self.now, event.clone()));
        let mut out = Vec::new();
        let finished = self.machine.is_finished();
        self.machine.handle(self.now, event, &mut out);
        assert!(!finished || out.is_empty(), "actions after the finish: {out:?}");
        if let Some(cause) =
            self.machine.cause().filter(|_| self.machine.is_ending() || self.decided)
        {
            self.causes.push(cause);
        }
        for action in out {
            self.actions.push((self.now, action));
            self.act(action);
        }
        self.reduce();
    }

    /// The library's reduction: complete when every rank is exiting.
    fn reduce(&mut self) {
        if !self.decided && self.exiting.iter().all(Option::is_some) {
            let code =
                self.exiting.iter().flatten().map(|code| code.cast_unsigned()).max().unwrap();
            for rank in 0..u32::try_from(self.gone.len()).unwrap() {
                self.at(1, Event::Rank(RankEvent::Fini { rank, code: code.cast_signed() }));
                self.leave(rank, 2, End::Code(code.cast_signed()));
            }
            self.decided = true;
        }
    }

    fn act(&mut self, action: Command) {
        let ranks = 0..u32::try_from(self.gone.len()).unwrap();
        let present: Vec<u32> = ranks.filter(|rank| !self.gone[*rank as usize]).collect();
        for rank in present {
            let temper = self.tempers[rank as usize];
            match action {
                Command::ExitDecision { code, .. } => {
                    self.decided = true;
                    if self.exiting[rank as usize].is_some() {
                        self.at(1, Event::Rank(RankEvent::Fini { rank, code }));
                    }
                    if let Some(delay) =
                        temper.on_decision.or(self.exiting[rank as usize].map(|_| 1))
                    {
                        self.leave(rank, delay, End::Code(code & 0xff));
                    }
                }
                Command::QuitUnclaimed => {
                    if let Some(delay) = temper.on_quit {
                        self.leave(rank, delay, End::Signal(libc::SIGQUIT));
                    }
                }
                Command::Forward(signal) | Command::End(signal) if signal == libc::SIGKILL => {
                    self.leave(rank, 1, End::Signal(signal));
                }
                Command::Forward(signal) | Command::End(signal) => {
                    if let Some(delay) = temper.on_term {
                        self.leave(rank, delay, End::Signal(signal));
                    }
                }
                Command::SampleCpu { .. }
                | Command::FindOrphans
                | Command::EndOrphans(_)
                | Command::Finish => {}
            }
        }
        match action {
            Command::SampleCpu { .. } => {
                self.samples += 1;
                let starved = self.samples % 4 < self.tempers[0].orphans;
                self.at(0, Event::CpuSampled { starved });
            }
            Command::FindOrphans => self.at(0, Event::Orphans { left: !self.orphans.is_empty() }),
            Command::EndOrphans(signal) => {
                let before = self.orphans.len();
                self.orphans.retain(|heeds| signal != libc::SIGKILL && !heeds);
                if self.orphans.len() < before {
                    self.at(1, Event::Orphans { left: !self.orphans.is_empty() });
                }
            }
            _ => {}
        }
    }

    /// Runs until the machine is finished; the virtual time that took.
    fn run(&mut self) -> u64 {
        for _ in 0..100_000 {
            if self.machine.is_finished() {
                return self.now;
            }
            let event = self.queue.first_key_value().map(|((at, _), _)| *at);
            let deadline = self.machine.deadline();
            match (event, deadline) {
                (Some(at), due) if due.is_none_or(|due| at <= due) => {
                    self.now = self.now.max(at);
                    let (_, event) = self.queue.pop_first().unwrap();
                    self.deliver(event);
                }
                (_, Some(due)) => {
                    self.now = self.now.max(due);
                    self.deliver(Event::Tick);
                }
                (None, None) => {
                    panic!("the machine waits for nothing: {:?}\n{:?}", self.machine, self.log)
                }
                (Some(_), None) => unreachable!("no deadline means the event comes first"),
            }
        }
        panic!("no end: {:?}", self.log)
    }

    /// The first cause, from the history alone: the first death, abort or protocol error, or a
    /// non-collective exit decided before.
    fn oracle(&self) -> Option<(CauseKind, u32)> {
        let decided = self
            .actions
            .iter()
            .find(|(_, a)| matches!(a, Command::ExitDecision { .. }))
            .map(|(at, _)| *at);
        let mut hello = false;
        let mut plain = None;
        let mut announced: Vec<Option<i32>> = vec![None; self.gone.len()];
        let mut finished = vec![false; self.gone.len()];
        let first_exit = self.log.iter().find_map(|(_, e)| match e {
            Event::Rank(RankEvent::Exiting { rank, .. }) => Some(*rank),
            _ => None,
        });
        for (at, event) in &self.log {
            if let (Some(decided), Event::CpuSampled { .. }) = (decided, event)
                && *at == decided
            {
                return first_exit.map(|rank| (CauseKind::NonCollectiveExit, rank));
            }
            match *event {
                Event::Rank(RankEvent::Hello { .. }) => {
                    hello = true;
                    if let Some(rank) = plain {
                        return Some((CauseKind::NoFini, rank));
                    }
                }
                Event::Rank(RankEvent::Exiting { rank, code, .. }) => {
                    announced[rank as usize] = Some(code)
                }
                Event::Rank(RankEvent::Fini { rank, .. }) => finished[rank as usize] = true,
                Event::Rank(RankEvent::Abort { rank, .. }) => {
                    return Some((CauseKind::Abort, rank));
                }
                Event::Rank(RankEvent::Protocol { rank, .. }) => {
                    return Some((CauseKind::Protocol, rank));
                }
                Event::Rank(RankEvent::Ended { rank, end, .. }) => match end {
                    End::Signal(_) => return Some((CauseKind::Signal, rank)),
                    End::Code(_) if finished[rank as usize] => {}
                    End::Code(code)
                        if announced[rank as usize].is_some_and(|said| said == code) =>
                    {
                        if announced.iter().flatten().any(|code| *code != 0) {
                            return first_exit.map(|rank| (CauseKind::NonCollectiveExit, rank));
                        }
                    }
                    End::Code(0) if hello => return Some((CauseKind::NoFini, rank)),
                    End::Code(0) => plain = plain.or(Some(rank)),
                    End::Code(_) => return Some((CauseKind::ExitCode, rank)),
                },
                _ => {}
            }
        }
        None
    }

    fn check(&mut self) {
        let took = self.run();
        let planned = self.tempers.iter().map(|t| t.at).max().unwrap_or(0);
        let reactions = 3 * 500;
        let bound = planned
            + QUIET_LIMIT.ms()
            + DECISION_ACK.ms()
            + EXIT_BOUND
            + 2 * KILL_GRACE.ms()
            + STRAY_GRACE.ms()
            + REAP.ms()
            + reactions;
        assert!(took <= bound, "{took} ms, bound {bound}: {:?}", self.log);
        assert!(self.gone.iter().all(|gone| *gone), "a rank is still there: {:?}", self.log);
        assert!(self.orphans.is_empty(), "something was left behind");
        assert_eq!(self.actions.iter().filter(|(_, a)| *a == Command::Finish).count(), 1);
        assert!(
            self.actions.iter().filter(|(_, a)| matches!(a, Command::ExitDecision { .. })).count()
                <= 1
        );
        assert!(
            self.causes.windows(2).all(|pair| pair[0] == pair[1]),
            "the cause changed: {:?}",
            self.causes
        );
        let seen = self.machine.cause().filter(|c| c.kind != CauseKind::CollectiveExit);
        assert_eq!(
            seen.map(|c| (c.kind, c.rank.unwrap())),
            self.oracle(),
            "{:?}\n{:?}",
            self.log,
            self.actions
        );
        let first = self.log.iter().find_map(|(at, event)| {
            matches!(event, Event::Rank(RankEvent::Exiting { .. })).then_some(*at)
        });
        let early = |(at, command): &(u64, Command)| {
            matches!(command, Command::ExitDecision { code: 0, .. })
                && first.is_some_and(|first| *at < first + EXIT_BOUND)
        };
        // Ranks that stay may be at work on the last result when others leave with 0.
        let alone = |cause: &Cause| cause.kind == CauseKind::NonCollectiveExit;
        assert!(
            !self.machine.cause().is_some_and(|cause| alone(&cause))
                || !self.actions.iter().any(early),
            "{:?}\n{:?}",
            self.log,
            self.actions
        );
        let code = self.machine.cause().map_or(0, |cause| cause.code);
        assert_eq!(self.machine.exit_code(), code);
        assert!((0..=255).contains(&code));
    }
}

fn deed() -> impl Strategy<Value = Deed> {
    prop_oneof![
        3 => prop_oneof![2 => Just(0), 1 => 1i32..256].prop_map(Deed::Plain),
        2 => (any::<bool>(), 1i32..32).prop_map(|(hello, signal)| Deed::Die { hello, signal }),
        1 => Just(Deed::NoFini),
        6 => (0i32..256).prop_map(Deed::Exit),
        1 => (0i32..256).prop_map(Deed::Abort),
        1 => Just(Deed::Garbage),
        2 => Just(Deed::Spin),
    ]
}

fn temper(deed: impl Strategy<Value = Deed>) -> impl Strategy<Value = Temper> {
    let delay = || proptest::option::weighted(0.7, 1u64..500);
    (deed, 0u64..200, delay(), delay(), delay(), 0u32..3, any::<bool>()).prop_map(
        |(deed, at, on_decision, on_quit, on_term, orphans, orphan_term)| Temper {
            deed,
            at,
            on_decision,
            on_quit,
            on_term,
            orphans,
            orphan_term,
        },
    )
}

/// A job in which nobody ever does anything runs for ever: somebody must act.
fn acts(tempers: &[Temper]) -> bool {
    tempers.iter().any(|t| !matches!(t.deed, Deed::Spin | Deed::Plain(0)))
        || tempers.iter().all(|t| !matches!(t.deed, Deed::Spin))
}

fn event() -> impl Strategy<Value = Event> {
    let rank = || 0u32..4;
    prop_oneof![
        rank().prop_map(started),
        (rank(), 125i32..128).prop_map(|(rank, code)| Event::Rank(RankEvent::StartFailed {
            rank: Some(rank),
            code,
            text: String::new()
        })),
        rank().prop_map(hello),
        (rank(), any::<i32>()).prop_map(|(rank, code)| Event::Rank(RankEvent::Exiting {
            rank,
            code,
            path: ExitPath::Hook as u32
        })),
        (rank(), any::<i32>()).prop_map(|(rank, code)| Event::Rank(RankEvent::Fini { rank, code })),
        (rank(), any::<i32>())
            .prop_map(|(rank, code)| Event::Rank(RankEvent::Abort { rank, code })),
        rank().prop_map(protocol),
        (rank(), 0i32..256).prop_map(|(rank, code)| Event::Rank(RankEvent::Ended {
            rank,
            end: End::Code(code),
            at: 0.0
        })),
        (rank(), 1i32..65).prop_map(|(rank, signal)| Event::Rank(RankEvent::Ended {
            rank,
            end: End::Signal(signal),
            at: 0.0
        })),
        prop_oneof![Just(2), Just(15), Just(1), Just(10), Just(18), Just(20)]
            .prop_map(Event::Signal),
        Just(Event::LauncherLost),
        (0u64..20_000).prop_map(|silent| Event::HostLost { silent }),
        any::<bool>().prop_map(|starved| Event::CpuSampled { starved }),
        any::<bool>().prop_map(|left| Event::Orphans { left }),
        Just(Event::Tick),
    ]
}

/// The cause when rank 0 of two exits alone at 10 s, and the other's host is lost 2 s later, silent
/// for so long.
fn cause_with_silence(silent: u64, end: Event) -> Cause {
    let mut machine = Machine::new(2, Rules { exit_bound: EXIT_BOUND, timeout_at: None });
    let mut out = Vec::new();
    for rank in 0..2 {
        machine.handle(0, started(rank), &mut out);
        machine.handle(0, hello(rank), &mut out);
    }
    let exiting =
        Event::Rank(RankEvent::Exiting { rank: 0, code: 99, path: ExitPath::Explicit as u32 });
    machine.handle(10_000, exiting, &mut out);
    machine.handle(10_100, end, &mut out);
    assert!(machine.cause().is_some());
    machine.handle(12_000, Event::HostLost { silent }, &mut out);
    machine.handle(
        12_000,
        Event::Rank(RankEvent::Ended { rank: 1, end: End::Signal(9), at: 0.0 }),
        &mut out,
    );
    machine.cause().expect("it ended badly")
}

#[test]
fn a_host_that_fell_silent_before_a_rank_failed_is_the_cause() {
    let exit = Event::Rank(RankEvent::Ended { rank: 0, end: End::Code(99), at: 0.0 });
    let lost = cause_with_silence(12_000, exit.clone());
    assert_eq!((lost.kind, lost.code, lost.rank), (CauseKind::AgentLost, CODE_LAUNCH, None));
    // Heard shortly before, or after, the rank began to exit: the rank came first.
    for silent in [0, 1_900, 5_900] {
        let exit = cause_with_silence(silent, exit.clone());
        assert_eq!(
            (exit.kind, exit.code, exit.rank),
            (CauseKind::NonCollectiveExit, 99, Some(0)),
            "{silent}"
        );
    }
    // What the user asked for stays what he asked for.
    let mut machine = Machine::new(1, Rules { exit_bound: EXIT_BOUND, timeout_at: None });
    let mut out = Vec::new();
    machine.handle(0, started(0), &mut out);
    machine.handle(10_000, Event::Signal(15), &mut out);
    machine.handle(
        10_100,
        Event::Rank(RankEvent::Ended { rank: 0, end: End::Signal(15), at: 0.0 }),
        &mut out,
    );
    machine.handle(12_000, Event::HostLost { silent: 12_000 }, &mut out);
    assert_eq!(machine.cause().map(|cause| cause.kind), Some(CauseKind::LauncherSignal));
}

/// Rank 0 leaves alone with code 0, rank 1 stays; both are decided about after the exit bound.
fn left_with_zero() -> (Machine, u64) {
    let mut machine = Machine::new(2, Rules { exit_bound: EXIT_BOUND, timeout_at: None });
    let mut out = Vec::new();
    for rank in 0..2 {
        machine.handle(0, started(rank), &mut out);
        machine.handle(0, hello(rank), &mut out);
    }
    let path = ExitPath::Explicit as u32;
    machine.handle(0, Event::Rank(RankEvent::Exiting { rank: 0, code: 0, path }), &mut out);
    let end = Event::Rank(RankEvent::Ended { rank: 0, end: End::Code(0), at: 0.0 });
    machine.handle(1, end, &mut out);
    machine.handle(QUIET_LIMIT.ms(), Event::Tick, &mut out);
    let mut now = 0;
    while !machine.is_ending() {
        now = now.max(machine.deadline().expect("the exit is bounded"));
        machine.handle(now, Event::Tick, &mut out);
        machine.handle(now, Event::CpuSampled { starved: false }, &mut out);
    }
    assert_eq!(machine.cause().map(|cause| (cause.rank, cause.code)), Some((Some(0), 0)));
    (machine, now)
}

#[test]
fn an_exit_with_code_0_does_not_hide_a_lost_host_or_a_rank_that_stays() {
    let (mut machine, now) = left_with_zero();
    machine.handle(now + 1, Event::HostLost { silent: 0 }, &mut Vec::new());
    let cause = machine.cause().expect("a cause");
    assert_eq!((cause.kind, machine.exit_code()), (CauseKind::AgentLost, CODE_LAUNCH));

    let (mut machine, mut now) = left_with_zero();
    while !machine.is_finished() {
        now = now.max(machine.deadline().expect("every wait has a deadline"));
        machine.handle(now, Event::Tick, &mut Vec::new());
    }
    let cause = machine.cause().expect("a cause");
    assert_eq!((cause.kind, cause.rank), (CauseKind::Unkillable, Some(1)));
    assert_eq!(machine.exit_code(), CODE_LAUNCH);
}

#[test]
fn a_rank_that_starts_behind_the_order_to_end_is_ended_by_us() {
    let mut machine = Machine::new(3, Rules { exit_bound: EXIT_BOUND, timeout_at: None });
    let mut out = Vec::new();
    machine.handle(0, started(0), &mut out);
    machine.handle(0, started(1), &mut out);
    let end = |rank| RankEvent::Ended { rank, end: End::Signal(11), at: 0.0 };
    machine.handle(1, Event::Rank(end(0)), &mut out);
    machine.handle(2, started(2), &mut out);
    machine.handle(QUIET_LIMIT.ms(), Event::Rank(end(2)), &mut out);
    assert_eq!([0, 1, 2].map(|rank| machine.is_killed(rank)), [false, true, true]);
}

/// An MPI program may end with status 0 before it has begun to speak PMI, and after it has finalized.
#[test]
fn an_mpi_program_must_finalize() {
    let ended = |rank| Event::Rank(RankEvent::Ended { rank, end: End::Code(0), at: 0.0 });
    let [init, finalize]: [fn(u32) -> Event; 2] = [
        |rank| Event::Rank(RankEvent::PmiInit { rank }),
        |rank| Event::Rank(RankEvent::PmiFinalize { rank }),
    ];
    let cause = |events: &[Event]| {
        let mut machine = Machine::new(2, Rules { exit_bound: EXIT_BOUND, timeout_at: None });
        for event in [started(0), started(1)].iter().chain(events) {
            machine.handle(0, event.clone(), &mut Vec::new());
        }
        machine.cause().map(|cause| (cause.kind, cause.rank, cause.code))
    };
    assert_eq!(cause(&[ended(1), init(0), finalize(0), ended(0)]), None);
    let left = Some((CauseKind::NoMpiFinalize, Some(1), 1));
    assert_eq!(cause(&[init(0), init(1), finalize(0), ended(1)]), left);
    let broken = Event::Rank(RankEvent::PmiBroken { rank: Some(0), text: String::new() });
    let broken = cause(&[init(0), broken, ended(1)]);
    assert_eq!(broken, Some((CauseKind::Pmi, Some(0), CODE_LAUNCH)));
    let lost = Event::Rank(RankEvent::PmiBroken { rank: None, text: String::new() });
    assert_eq!(cause(&[init(0), lost]), Some((CauseKind::Pmi, None, CODE_LAUNCH)));
    // Who said its farewell to the bootstrap need not finalize.
    let fini = Event::Rank(RankEvent::Fini { rank: 1, code: 0 });
    assert_eq!(cause(&[hello(0), hello(1), init(1), fini, ended(1)]), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn every_world_ends_in_bounded_time_with_the_first_cause(
        tempers in proptest::collection::vec(temper(deed()), 1..18)
            .prop_filter("somebody acts", |tempers| acts(tempers)),
    ) {
        World::new(tempers).check();
    }

    #[test]
    fn worlds_of_exits_alone(
        tempers in proptest::collection::vec(
            temper(prop_oneof![8 => (0i32..256).prop_map(Deed::Exit), 1 => Just(Deed::Spin)]), 1..18)
            .prop_filter("somebody acts", |tempers| acts(tempers)),
    ) {
        World::new(tempers).check();
    }

    /// Any history, also impossible ones: nothing panics, nothing follows the finish, the cause
    /// stays.
    #[test]
    fn nonsense_is_survived(history in proptest::collection::vec((event(), 0u64..3000), 0..60)) {
        let mut machine = Machine::new(3, Rules { exit_bound: EXIT_BOUND, timeout_at: Some(20_000) });
        let (mut now, mut out, mut first) = (0, Vec::new(), None::<Cause>);
        for (event, delay) in history {
            now += delay;
            let finished = machine.is_finished();
            machine.handle(now, event, &mut out);
            prop_assert!(!finished || out.is_empty());
            prop_assert!(out.iter().position(|a| *a == Command::Finish).is_none_or(|at| at + 1 == out.len()));
            out.clear();
            let ended = machine.cause().filter(|_| machine.is_ending());
            if let (Some(kept), Some(cause)) = (&first, &ended) {
                let of_silence = cause.kind == CauseKind::AgentLost && kept.rank.is_some();
                let of_silence = of_silence || (cause.kind == CauseKind::Unkillable && kept.code == 0);
                prop_assert!(kept == cause || kept.kind == CauseKind::CollectiveExit || of_silence);
            }
            first = ended.or(first);
        }
        // From any state, time alone ends a job that has begun to end.
        if machine.is_ending() {
            for _ in 0..20 {
                if let Some(at) = machine.deadline() {
                    now = now.max(at);
                    machine.handle(now, Event::Tick, &mut out);
                }
                if machine.is_cleaning_up() {
                    machine.handle(now, Event::Orphans { left: false }, &mut out);
                }
            }
            prop_assert!(machine.is_finished(), "{machine:?}");
        }
    }
}
