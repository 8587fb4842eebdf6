//! A job in virtual time: machines, the messages between them, the provider that ends processes,
//! and the agent that hears announcements and decides. All chance comes from one seed.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use bootstrap::ExitPath;

use crate::blocks::of_blocks;
use crate::exit::machine::{
    Action, Actions, Code, Config, Event, Machine, Message, Millis, Phase, Timeouts,
};

/// SplitMix64: small, seeded, good enough to choose faults.
#[derive(Clone, Debug)]
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in `0..bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    pub(crate) fn chance(&mut self, permille: u64) -> bool {
        self.below(1000) < permille
    }
}

/// What may go wrong in a history.
#[derive(Clone, Debug, Default)]
pub(crate) struct Faults {
    pub(crate) loss_permille: u64,
    pub(crate) duplicate_permille: u64,
    /// A flush that never ends.
    pub(crate) stuck_flush_permille: u64,
    pub(crate) deaths: Vec<(Millis, u32)>,
    pub(crate) agent_death: Option<Millis>,
}

impl Faults {
    pub(crate) fn none(&self) -> bool {
        self.loss_permille == 0
            && self.stuck_flush_permille == 0
            && self.deaths.is_empty()
            && self.agent_death.is_none()
    }
}

/// One rank's exit call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    pub(crate) at: Millis,
    pub(crate) rank: u32,
    pub(crate) code: Code,
}

#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) size: u32,
    /// Ranks of a neighbourhood.
    pub(crate) each: u32,
    pub(crate) control: bool,
    pub(crate) timeouts: Timeouts,
    pub(crate) calls: Vec<Call>,
    pub(crate) faults: Faults,
    /// Messages take 1 to this long, each on its own: they overtake each other.
    pub(crate) delay_max: u64,
    /// No message of the reduction arrives.
    pub(crate) drop_reduction: bool,
}

/// How a rank ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// By its own last action.
    Own {
        code: Code,
        graceful: bool,
    },
    Died,
    Killed,
}

#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) machine: Machine,
    pub(crate) end: Option<End>,
    pub(crate) quits: u32,
    began: Option<Millis>,
    ended: Option<Millis>,
    /// The first call, if it came before anything else made the rank exit.
    pub(crate) local: Option<Code>,
    pub(crate) announced: Option<Code>,
    fini: Option<Code>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Step {
    Call(usize),
    Deliver { to: u32, from: u32, message: Message },
    Timer(u32),
    ExitDecision { rank: u32, code: Code },
    Flushed(u32),
    Die(u32),
    Kill(u32),
    Hear(u32, Code),
    Quiet { heard: u32 },
    AgentDies,
}

/// The agent's quiet window.
const QUIET: Millis = Millis(20);
/// A rank looks at the node memory at least this often.
const LOOK_MAX: u64 = 40;
/// From the end of the job to the kill of what is left.
const KILL_GRACE: Millis = Millis(2_000);

/// Whether a message belongs to the reduction, not to what follows when that fails.
pub(crate) const fn is_reduction(message: Message) -> bool {
    matches!(message, Message::Reduce { .. } | Message::Gather(_) | Message::Outcome(_))
}

#[derive(Debug)]
pub(crate) struct World {
    plan: Plan,
    rng: Rng,
    queue: BinaryHeap<Reverse<(Millis, u64, Step)>>,
    sequence: u64,
    pub(crate) now: Millis,
    pub(crate) nodes: Vec<Node>,
    heard: Vec<bool>,
    heard_count: u32,
    heard_max: Option<Code>,
    /// Only code 0 was heard, or everybody: when the agent decides all the same.
    patient: [Option<Millis>; 2],
    agent_alive: bool,
    pub(crate) decision: Option<Code>,
    killing: bool,
    /// Messages of election and requests sent; the reduction is not counted.
    pub(crate) coordination: u64,
    pub(crate) reductions: u64,
    /// Hash of everything that happened.
    pub(crate) trace: u64,
    out: Actions,
}

impl World {
    pub(crate) fn new(plan: Plan) -> Self {
        let node = |rank| Node {
            machine: Machine::new(Config {
                rank,
                size: plan.size,
                control: plan.control,
                timeouts: plan.timeouts,
                tree: of_blocks(rank, plan.size, plan.each),
            }),
            end: None,
            quits: 0,
            began: None,
            ended: None,
            local: None,
            announced: None,
            fini: None,
        };
        let mut world = Self {
            rng: Rng(plan.seed ^ 0x5eed),
            queue: BinaryHeap::new(),
            sequence: 0,
            now: Millis(0),
            nodes: (0..plan.size).map(node).collect(),
            heard: vec![false; plan.size as usize],
            heard_count: 0,
            heard_max: None,
            patient: [None; 2],
            agent_alive: plan.control,
            decision: None,
            killing: false,
            coordination: 0,
            reductions: 0,
            trace: 0xcbf2_9ce4_8422_2325,
            out: Actions::new(),
            plan,
        };
        for index in 0..world.plan.calls.len() {
            world.at(world.plan.calls[index].at, Step::Call(index));
        }
        for (at, rank) in world.plan.faults.deaths.clone() {
            world.at(at, Step::Die(rank));
        }
        if let Some(at) = world.plan.faults.agent_death {
            world.at(at, Step::AgentDies);
        }
        world
    }

    fn at(&mut self, at: Millis, step: Step) {
        self.sequence += 1;
        self.queue.push(Reverse((at, self.sequence, step)));
    }

    fn after(&mut self, bound: u64, step: Step) {
        let delay = 1 + self.rng.below(bound);
        self.at(self.now.plus(Millis(delay)), step);
    }

    fn note(&mut self, words: [u64; 3]) {
        for word in words {
            self.trace = (self.trace ^ word).wrapping_mul(0x0100_0000_01b3).rotate_left(23);
        }
    }

    /// Runs to the end and checks what must hold in every history.
    pub(crate) fn run(&mut self) {
        while let Some(Reverse((at, _, step))) = self.queue.pop() {
            assert!(at >= self.now);
            self.now = at;
            self.step(step);
            assert!(self.sequence < 1_000_000, "livelock");
        }
        self.check();
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Call(index) => {
                let call = self.plan.calls[index];
                let node = &mut self.nodes[call.rank as usize];
                if node.end.is_none() && node.machine.state() == Phase::Running {
                    node.local.get_or_insert(call.code);
                }
                let (code, path) = (call.code, ExitPath::Explicit);
                self.tell(call.rank, Event::LocalExit { code, path });
            }
            Step::Deliver { to, from, message } => {
                self.tell(to, Event::Message { from, message });
            }
            Step::Timer(rank) => self.tell(rank, Event::Timer),
            Step::ExitDecision { rank, code } => self.tell(rank, Event::ExitDecision(code)),
            Step::Flushed(rank) => self.tell(rank, Event::Flushed),
            Step::Die(rank) => self.dies(rank, End::Died),
            Step::Kill(rank) => self.dies(rank, End::Killed),
            Step::Hear(rank, code) => self.hear(rank, code),
            Step::Quiet { heard } => self.quiet(heard),
            Step::AgentDies => {
                // Its ranks die with it.
                self.agent_alive = false;
                for rank in 0..self.plan.size {
                    self.after(5, Step::Kill(rank));
                }
            }
        }
    }

    fn dies(&mut self, rank: u32, end: End) {
        let node = &mut self.nodes[rank as usize];
        if node.end.is_some() {
            return;
        }
        node.end = Some(end);
        self.note([1, u64::from(rank), self.now.0]);
        if end == End::Died {
            self.end_job(Code(137));
        }
    }

    /// The provider ends the job: a decision where there is an agent, kill after the grace.
    fn end_job(&mut self, code: Code) {
        if self.plan.control && !self.agent_alive || std::mem::replace(&mut self.killing, true) {
            return;
        }
        if self.plan.control {
            self.decide(code);
        }
        for rank in 0..self.plan.size {
            self.at(self.now.plus(KILL_GRACE), Step::Kill(rank));
        }
    }

    fn decide(&mut self, code: Code) -> Code {
        if let Some(decided) = self.decision {
            return decided;
        }
        self.decision = Some(code);
        for rank in 0..self.plan.size {
            self.after(LOOK_MAX, Step::ExitDecision { rank, code });
        }
        code
    }

    fn hear(&mut self, rank: u32, code: Code) {
        if !self.agent_alive {
            return;
        }
        if !std::mem::replace(&mut self.heard[rank as usize], true) {
            self.heard_count += 1;
        }
        self.heard_max = self.heard_max.max(Some(code));
        let heard = self.heard_count;
        self.at(self.now.plus(QUIET), Step::Quiet { heard });
    }

    fn quiet(&mut self, heard: u32) {
        if self.agent_alive && heard == self.heard_count {
            let code = self.heard_max.expect("somebody was heard");
            // Nobody failed: the others have their time. When there are no others, the reduction
            // has.
            let all = heard == self.plan.size;
            let timeouts = self.plan.timeouts;
            let patience = if all { timeouts.stall } else { timeouts.reduce };
            let until = *self.patient[usize::from(all)].get_or_insert(self.now.plus(patience));
            if !all && code != Code(0) || self.now >= until {
                self.decide(code);
            } else {
                self.at(until, Step::Quiet { heard });
            }
        }
    }

    fn tell(&mut self, rank: u32, event: Event) {
        let mut out = std::mem::take(&mut self.out);
        out.clear();
        let node = &mut self.nodes[rank as usize];
        if matches!(node.end, Some(End::Died | End::Killed)) {
            self.out = out;
            return;
        }
        let deadline = node.machine.deadline();
        node.machine.handle(self.now, event, &mut out);
        if node.end.is_some() {
            assert!(
                out.as_slice().is_empty(),
                "action after the terminal one: {:?}",
                out.as_slice()
            );
        }
        if node.machine.state() != Phase::Running {
            node.began.get_or_insert(self.now);
        }
        assert!(node.machine.state().text().len() <= 48);
        if let Some(due) = node.machine.deadline()
            && Some(due) != deadline
        {
            self.at(due.max(self.now), Step::Timer(rank));
        }
        self.note([2, u64::from(rank), self.now.0]);
        for &action in out.as_slice() {
            self.act(rank, action);
        }
        self.out = out;
    }

    fn act(&mut self, rank: u32, action: Action) {
        let node = &mut self.nodes[rank as usize];
        assert!(node.end.is_none(), "action after Terminate");
        match action {
            Action::Announce { code, .. } => {
                assert!(node.announced.replace(code).is_none(), "announced twice");
                self.after(3, Step::Hear(rank, code));
            }
            Action::StopClientHandlers => {}
            Action::Send { to, message } => self.send(rank, to, message),
            Action::SendAll(message) => {
                for to in (0..self.plan.size).filter(|&to| to != rank) {
                    self.send(rank, to, message);
                }
            }
            Action::RaiseQuit => {
                assert!(node.local.is_none(), "SIGQUIT for an exit that began here");
                node.quits += 1;
            }
            Action::Decide(code) => {
                let code = self.decide(code);
                self.at(self.now, Step::ExitDecision { rank, code });
            }
            Action::Flush(_) => {
                if !self.rng.chance(self.plan.faults.stuck_flush_permille) {
                    self.after(5, Step::Flushed(rank));
                }
            }
            Action::Fini(code) => {
                assert!(node.fini.replace(code).is_none(), "two farewells");
            }
            Action::Abort(code) => {
                assert!(node.fini.replace(code).is_none(), "abort after farewell");
                self.end_job(code);
            }
            Action::Terminate(code) => {
                assert_eq!(node.fini, Some(code), "terminated with another code than announced");
                let graceful = node.machine.state() == Phase::Finishing;
                node.ended = Some(self.now);
                node.end = Some(End::Own { code, graceful });
                self.note([3, u64::from(rank), u64::from(code.0)]);
            }
        }
    }

    fn send(&mut self, from: u32, to: u32, message: Message) {
        if is_reduction(message) {
            self.reductions += 1;
            if self.plan.drop_reduction {
                return;
            }
        } else {
            self.coordination += 1;
        }
        if self.rng.chance(self.plan.faults.loss_permille) {
            return;
        }
        let delay_max = self.plan.delay_max;
        if self.rng.chance(self.plan.faults.duplicate_permille) {
            self.after(delay_max * 3, Step::Deliver { to, from, message });
        }
        self.after(delay_max, Step::Deliver { to, from, message });
    }

    fn check(&self) {
        for (rank, node) in self.nodes.iter().enumerate() {
            let end = node.end;
            assert!(end.is_some(), "rank {rank} is still there: {:?}", node.machine);
            assert!(node.quits <= 1, "rank {rank}: SIGQUIT {} times", node.quits);
            if let (Some(began), Some(ended)) = (node.began, node.ended) {
                // The phases follow each other and none is entered twice; the other bounds run
                // inside the reduction's.
                let Timeouts { reduce, elect, coordinate, drain, .. } = self.plan.timeouts;
                let bound = reduce.plus(elect).plus(coordinate).plus(drain);
                assert!(ended <= began.plus(bound), "rank {rank} took from {began:?} to {ended:?}");
            }
            if let Some(local) = node.local {
                assert_eq!(node.announced, Some(local), "rank {rank}: announced another code");
            }
        }
    }
}
