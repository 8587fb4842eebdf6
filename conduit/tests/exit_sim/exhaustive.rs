//! Every interleaving of jobs of 2 and 3 ranks: who exits when, which message arrives next, which
//! timer fires, what the control tree decides, and a bounded number of faults. Time is abstract: a
//! timer may fire at any moment, which covers all speeds. States that were seen before (by hash)
//! are not entered again.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use bootstrap::ExitPath;

use crate::blocks::of_blocks;
use crate::exit::machine::{
    Action, Actions, Code, Config, Event, Machine, Message, Millis, Phase, Timeouts,
};

const TIMEOUTS: Timeouts = Timeouts {
    reduce: Millis(4),
    patience: Millis(6),
    non_collective: Millis(4),
    elect: Millis(4),
    coordinate: Millis(4),
    drain: Millis(8),
    stall: Millis(2),
};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Peer {
    machine: Machine,
    clock: Millis,
    called: bool,
    local: Option<Code>,
    quit: bool,
    flushing: bool,
    notified: bool,
    heard: bool,
    fini: Option<Code>,
    ended: Option<(Code, bool)>,
    /// Ended by death or by the provider.
    gone: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Job {
    peers: Vec<Peer>,
    flights: Vec<(u32, u32, Message)>,
    announced: Vec<(u32, Code)>,
    heard_max: Option<Code>,
    decision: Option<Code>,
    killing: bool,
    tree: bool,
    faults_left: u8,
    /// No fault, no timer and no decision so far.
    clean: bool,
}

#[derive(Clone, Copy, Debug)]
enum Choice {
    Call { rank: u32 },
    Deliver { index: usize },
    Drop { index: usize },
    Duplicate { index: usize },
    Timer { rank: u32 },
    Flushed { rank: u32 },
    Hear { index: usize },
    Decide,
    See { rank: u32 },
    TreeDies,
    Die { rank: u32 },
    Kill { rank: u32 },
}

impl Job {
    fn new((size, each): (u32, u32), tree: bool, faults_left: u8) -> Self {
        let config = |rank| Config {
            rank,
            size,
            control: tree,
            timeouts: TIMEOUTS,
            tree: of_blocks(rank, size, each),
        };
        let peer = |rank| Peer {
            machine: Machine::new(config(rank)),
            clock: Millis(0),
            called: false,
            local: None,
            quit: false,
            flushing: false,
            notified: false,
            heard: false,
            fini: None,
            ended: None,
            gone: false,
        };
        Self {
            peers: (0..size).map(peer).collect(),
            flights: Vec::new(),
            announced: Vec::new(),
            heard_max: None,
            decision: None,
            killing: false,
            tree,
            faults_left,
            clean: true,
        }
    }

    fn choices(&self) -> Vec<Choice> {
        let mut choices = Vec::new();
        let faulty = self.faults_left > 0;
        for (rank, peer) in (0..).zip(&self.peers) {
            if peer.gone || peer.ended.is_some() {
                continue;
            }
            if !peer.called {
                choices.push(Choice::Call { rank });
            }
            if peer.machine.deadline().is_some() {
                choices.push(Choice::Timer { rank });
            }
            if peer.flushing {
                choices.push(Choice::Flushed { rank });
            }
            if self.decision.is_some() && !peer.notified {
                choices.push(Choice::See { rank });
            }
            if faulty {
                choices.push(Choice::Die { rank });
            }
            if self.killing {
                choices.push(Choice::Kill { rank });
            }
        }
        for index in 0..self.flights.len() {
            choices.push(Choice::Deliver { index });
            if faulty {
                choices.extend([Choice::Drop { index }, Choice::Duplicate { index }]);
            }
        }
        if self.tree {
            choices.extend((0..self.announced.len()).map(|index| Choice::Hear { index }));
            let alone = self.heard_max.is_some() && self.peers.iter().any(|peer| !peer.heard);
            if alone && self.decision.is_none() {
                choices.push(Choice::Decide);
            }
            if faulty {
                choices.push(Choice::TreeDies);
            }
        }
        choices
    }

    fn take(&mut self, choice: Choice) {
        let fault = matches!(
            choice,
            Choice::Drop { .. } | Choice::Duplicate { .. } | Choice::TreeDies | Choice::Die { .. }
        );
        self.faults_left -= u8::from(fault);
        self.clean &= !fault && !matches!(choice, Choice::Timer { .. } | Choice::Decide);
        match choice {
            Choice::Call { rank } => {
                let code = Code(10 + (rank * 7) % 5);
                let peer = &mut self.peers[rank as usize];
                peer.called = true;
                if peer.machine.state() == Phase::Running {
                    peer.local = Some(code);
                }
                self.tell(rank, Event::LocalExit { code, path: ExitPath::Explicit });
            }
            Choice::Deliver { index } => {
                let (to, from, message) = self.flights.remove(index);
                self.tell(to, Event::Message { from, message });
            }
            Choice::Drop { index } => drop(self.flights.remove(index)),
            Choice::Duplicate { index } => self.flights.push(self.flights[index]),
            Choice::Timer { rank } => {
                let peer = &mut self.peers[rank as usize];
                peer.clock = peer.clock.max(peer.machine.deadline().unwrap_or_default());
                self.tell(rank, Event::Timer);
            }
            Choice::Flushed { rank } => {
                self.peers[rank as usize].flushing = false;
                self.tell(rank, Event::Flushed);
            }
            Choice::Hear { index } => {
                let (rank, code) = self.announced.remove(index);
                self.peers[rank as usize].heard = true;
                self.heard_max = self.heard_max.max(Some(code));
            }
            Choice::Decide => self.decision = self.heard_max,
            Choice::See { rank } => self.see(rank),
            Choice::TreeDies => {
                // Its ranks die with it, one after the other.
                self.tree = false;
                self.killing = true;
            }
            Choice::Die { rank } => {
                self.peers[rank as usize].gone = true;
                self.killing = true;
            }
            Choice::Kill { rank } => self.peers[rank as usize].gone = true,
        }
        self.flights.sort_unstable();
        self.announced.sort_unstable();
    }

    fn see(&mut self, rank: u32) {
        if let Some(code) = self.decision {
            self.peers[rank as usize].notified = true;
            self.tell(rank, Event::ExitDecision(code));
        }
    }

    fn tell(&mut self, rank: u32, event: Event) {
        let peer = &mut self.peers[rank as usize];
        if peer.gone {
            return;
        }
        let mut out = Actions::new();
        peer.machine.handle(peer.clock, event, &mut out);
        assert!(peer.ended.is_none() || out.as_slice().is_empty(), "action after the terminal one");
        for &action in out.as_slice() {
            self.act(rank, action);
        }
    }

    fn act(&mut self, rank: u32, action: Action) {
        let size = u32::try_from(self.peers.len()).expect("small");
        let peer = &mut self.peers[rank as usize];
        assert!(peer.ended.is_none(), "action after Terminate");
        match action {
            Action::Announce { code, .. } => {
                assert!(peer.local.is_none_or(|local| local == code), "not the first code");
                self.announced.push((rank, code));
            }
            Action::StopClientHandlers => {}
            Action::Send { to, message } => self.flights.push((to, rank, message)),
            Action::SendAll(message) => {
                self.flights
                    .extend((0..size).filter(|&to| to != rank).map(|to| (to, rank, message)));
            }
            Action::RaiseQuit => {
                assert!(peer.local.is_none(), "SIGQUIT for an exit that began here");
                assert!(!std::mem::replace(&mut peer.quit, true), "SIGQUIT twice");
            }
            Action::Decide(code) => {
                self.decision.get_or_insert(code);
                self.clean = false;
                self.see(rank);
            }
            Action::Flush(_) => peer.flushing = true,
            Action::Fini(code) => assert!(peer.fini.replace(code).is_none()),
            Action::Abort(code) => {
                assert!(peer.fini.replace(code).is_none());
                self.killing = true;
            }
            Action::Terminate(code) => {
                assert_eq!(peer.fini, Some(code));
                peer.ended = Some((code, peer.machine.state() == Phase::Finishing));
            }
        }
    }

    /// What must hold when only further exit calls could change anything.
    fn check_rest(&self) {
        let over = |peer: &Peer| peer.gone || peer.ended.is_some();
        let begun =
            self.peers.iter().any(|peer| over(peer) || peer.machine.state() != Phase::Running);
        assert!(!begun || self.peers.iter().all(over), "a rank waits for ever: {self:#?}");
        let collective = self.peers.iter().all(|peer| peer.local.is_some());
        if self.clean && collective {
            let max = self.peers.iter().filter_map(|peer| peer.local).max();
            for peer in &self.peers {
                assert_eq!(peer.ended, max.map(|code| (code, true)), "{self:#?}");
            }
        }
    }
}

fn hash(job: &Job) -> u64 {
    let mut hasher = DefaultHasher::new();
    job.hash(&mut hasher);
    hasher.finish()
}

#[expect(clippy::print_stdout, reason = "how much was explored belongs to the test's result")]
/// Explores to `depth` steps a job of so many ranks, so many in each neighbourhood; returns the
/// number of states.
fn explore((size, each): (u32, u32), tree: bool, faults: u8, depth: u32) -> usize {
    let start = Job::new((size, each), tree, faults);
    let mut seen = HashSet::from([hash(&start)]);
    let mut level = vec![start];
    let mut steps = 0;
    while steps < depth && !level.is_empty() {
        steps += 1;
        let mut next = Vec::new();
        for job in &level {
            let choices = job.choices();
            if choices.iter().all(|choice| matches!(choice, Choice::Call { .. })) {
                job.check_rest();
            }
            for choice in choices {
                let mut after = job.clone();
                after.take(choice);
                if seen.insert(hash(&after)) {
                    next.push(after);
                }
            }
        }
        level = next;
    }
    let bound = if level.is_empty() { "complete" } else { "bounded" };
    let count = seen.len();
    println!(
        "{size} ranks by {each}, tree {tree}, {faults} faults: {count} states, {steps} steps, {bound}"
    );
    count
}

#[test]
fn two_ranks() {
    for (tree, each) in [(false, 1), (true, 1), (false, 2), (true, 2)] {
        let job = (2, each);
        assert!(explore(job, tree, 0, u32::MAX) > 1_000);
        assert!(explore(job, tree, 1, u32::MAX) > 1_000);
        assert!(explore(job, tree, 2, 9) > 1_000);
    }
}

#[test]
fn three_ranks() {
    for (tree, each) in [false, true].into_iter().flat_map(|tree| [(tree, 1), (tree, 2), (tree, 3)])
    {
        assert!(explore((3, each), tree, 0, 11) > 1_000);
        assert!(explore((3, each), tree, 1, 7) > 1_000);
    }
}
