//! Which program runs when.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::kind_of;
use crate::program::{Ended, Program, Running};

/// How often the programs are looked at.
const LOOK: Duration = Duration::from_millis(20);

/// What a program does most of the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It waits for processes, hosts and deadlines; so many of its tests run at once.
    Waits(usize),
    /// It computes.
    Computes,
    /// It takes the whole machine for minutes: other tests would miss their deadlines.
    Alone,
}

/// Programs whose tests mostly wait, and how many of them run at once. The longest come first: they
/// begin first.
const WAITING: [(&str, usize); 12] = [
    ("e2e hosts", 4),
    ("e2e process_managers", 3),
    ("e2e soft_roce", 1),
    ("e2e c_suite", 3),
    ("e2e network_ends", 3),
    ("supervisor jobs", 4),
    ("e2e network", 3),
    ("e2e exits", 3),
    ("e2e faults", 3),
    ("e2e network_c", 2),
    ("e2e jobs", 3),
    ("e2e network_close", 3),
];
/// Programs that run when all others are over, one after the other.
const ALONE: [&str; 1] = ["e2e many_hosts"];
/// Programs that compute for long; the others follow.
const COMPUTING: [&str; 3] = ["e2e c_install", "e2e c_headers", "conduit gasnet_ibv"];
/// How many of those that wait run at a time.
const AT_ONCE: usize = 3;

/// What the program of this name does.
pub(crate) fn kind(name: &str) -> Kind {
    if ALONE.contains(&name) {
        return Kind::Alone;
    }
    let known = WAITING.iter().find(|(waiting, _)| *waiting == name);
    known.map_or(Kind::Computes, |(_, threads)| Kind::Waits(*threads))
}

fn place(program: &Program) -> usize {
    let mut known = WAITING.iter().map(|(name, _)| *name).chain(COMPUTING);
    known.position(|name| name == program.name).unwrap_or(usize::MAX)
}

/// Programs that wait for their turn, and those that run.
pub(crate) struct Queue {
    waiting: Vec<Program>,
    computing: Vec<Program>,
    alone: Vec<Program>,
    running: Vec<(Kind, Running)>,
    /// Programs that could not be started.
    broken: Vec<Ended>,
    processors: usize,
}

impl Queue {
    /// Nothing runs yet.
    pub(crate) fn new(programs: &[Program]) -> Self {
        let of = |kind: fn(Kind) -> bool| {
            let some = programs.iter().filter(|program| kind(kind_of(program)));
            some.cloned().collect::<Vec<_>>()
        };
        let alone = of(|kind| kind == Kind::Alone);
        let mut waiting = of(|kind| matches!(kind, Kind::Waits(_)));
        let mut computing = of(|kind| kind == Kind::Computes);
        waiting.sort_by_key(place);
        computing.sort_by_key(place);
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self { waiting, computing, alone, running: Vec::new(), broken: Vec::new(), processors }
    }

    /// Runs all, at most until `limit` or until `stop`; `each` hears of every end.
    pub(crate) fn run(
        mut self,
        limit: Option<Instant>,
        stop: &AtomicBool,
        mut each: impl FnMut(&Ended),
    ) -> Vec<Ended> {
        let mut ended = Vec::new();
        let mut late = false;
        loop {
            self.fill();
            for one in self.broken.drain(..) {
                each(&one);
                ended.push(one);
            }
            if self.running.is_empty() {
                return ended;
            }
            let over = limit.is_some_and(|limit| Instant::now() > limit);
            late |= over || stop.load(Ordering::Relaxed);
            if late {
                // What has not begun fails as well: it is started and ended at once.
                self.running.iter_mut().for_each(|(_, running)| running.end());
            }
            let over = self.running.iter().position(|(_, running)| running.is_over());
            let Some(at) = over else {
                std::thread::sleep(LOOK);
                continue;
            };
            let one = self.running.swap_remove(at).1.collect();
            each(&one);
            ended.push(one);
        }
    }

    fn fill(&mut self) {
        let count = |queue: &Self, computes: bool| {
            let running = queue.running.iter();
            running.filter(|(kind, _)| (*kind == Kind::Computes) == computes).count()
        };
        while count(self, false) < AT_ONCE && !self.waiting.is_empty() {
            let program = self.waiting.remove(0);
            self.start(program);
        }
        while count(self, true) < self.processors && !self.computing.is_empty() {
            let program = self.computing.remove(0);
            self.start(program);
        }
        if self.running.is_empty() && !self.alone.is_empty() {
            let program = self.alone.remove(0);
            self.start(program);
        }
    }

    fn start(&mut self, program: Program) {
        let kind = kind_of(&program);
        let threads = match kind {
            Kind::Waits(threads) => threads,
            // One for each processor run at once; more would only disturb what has deadlines.
            Kind::Computes | Kind::Alone => 1,
        };
        match Running::start(program.clone(), threads, kind == Kind::Computes) {
            Ok(running) => self.running.push((kind, running)),
            Err(error) => self.broken.push(Ended::never(program, &error)),
        }
    }
}
