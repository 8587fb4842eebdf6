//! One job of a million ranks, 64 in each neighbourhood: a collective exit, then non-collective
//! ones.

use std::time::Instant;

use bootstrap::ExitPath;

use crate::blocks::of_blocks;
use crate::exit::machine::{
    Action, Actions, Code, Config, Event, Machine, Message, Millis, Phase, Timeouts,
};

use crate::world::is_reduction;

const SIZE: u32 = 1_000_000;
const EACH: u32 = 64;

enum Step {
    Call(u32),
    Deliver { to: u32, from: u32, message: Message },
    Flushed(u32),
    Timer(u32),
}

/// Steps by millisecond; a delay is shorter than the ring.
struct Ring {
    buckets: Vec<Vec<Step>>,
    now: Millis,
}

impl Ring {
    fn put(&mut self, delay: u64, step: Step) {
        let len = self.buckets.len() as u64;
        assert!(delay < len);
        let index = usize::try_from((self.now.0 + delay) % len).expect("small");
        self.buckets[index].push(step);
    }
}

/// Runs it; returns the messages of the reduction and of the coordination.
fn run(callers: std::ops::Range<u32>, expected: Code) -> (u64, u64) {
    let timeouts = Timeouts::new(Millis(2_000));
    let tree = |rank| of_blocks(rank, SIZE, EACH);
    let config = |rank| Config { rank, size: SIZE, control: false, timeouts, tree: tree(rank) };
    let mut machines: Vec<_> = (0..SIZE).map(|rank| Machine::new(config(rank))).collect();
    let mut ring = Ring { buckets: (0..4_096).map(|_| Vec::new()).collect(), now: Millis(0) };
    for rank in callers {
        ring.put(u64::from(rank.wrapping_mul(2_654_435_761) >> 24), Step::Call(rank));
    }
    let (mut reductions, mut coordination, mut finished) = (0_u64, 0_u64, 0_u32);
    let mut out = Actions::new();
    while finished < SIZE {
        assert!(ring.now.0 < 60_000, "{finished} of {SIZE} ranks have finished");
        let index = usize::try_from(ring.now.0 % 4_096).expect("small");
        for step in std::mem::take(&mut ring.buckets[index]) {
            let (rank, event) = match step {
                Step::Call(rank) => {
                    let (code, path) = (Code(rank % 200), ExitPath::Explicit);
                    (rank, Event::LocalExit { code, path })
                }
                Step::Deliver { to, from, message } => (to, Event::Message { from, message }),
                Step::Flushed(rank) => (rank, Event::Flushed),
                Step::Timer(rank) => (rank, Event::Timer),
            };
            out.clear();
            let machine = &mut machines[rank as usize];
            let before = machine.state();
            machine.handle(ring.now, event, &mut out);
            if machine.state() != before
                && matches!(machine.state(), Phase::Reducing | Phase::Electing)
            {
                ring.put(machine.deadline().expect("a deadline").0 - ring.now.0, Step::Timer(rank));
            }
            for &action in out.as_slice() {
                match action {
                    Action::Send { to, message } => {
                        let reduce = is_reduction(message);
                        *(if reduce { &mut reductions } else { &mut coordination }) += 1;
                        ring.put(
                            1 + u64::from((to ^ rank) & 7),
                            Step::Deliver { to, from: rank, message },
                        );
                    }
                    Action::SendAll(message) => {
                        for to in (0..SIZE).filter(|&to| to != rank) {
                            coordination += 1;
                            ring.put(
                                1 + u64::from(to & 7),
                                Step::Deliver { to, from: rank, message },
                            );
                        }
                    }
                    Action::Flush(graceful) => {
                        assert!(graceful);
                        ring.put(1, Step::Flushed(rank));
                    }
                    Action::Terminate(code) => {
                        assert_eq!(code, expected, "rank {rank}");
                        finished += 1;
                    }
                    _ => {}
                }
            }
        }
        ring.now = ring.now.plus(Millis(1));
    }
    assert!(machines.iter().all(|machine| machine.state() == Phase::Finishing));
    (reductions, coordination)
}

#[test]
fn a_million_ranks() {
    assert!(size_of::<Machine>() <= 256, "{} bytes per rank", size_of::<Machine>());
    let leaders = u64::from(SIZE / EACH);
    let begin = Instant::now();
    assert_eq!(run(0..SIZE, Code(199)), (2 * (u64::from(SIZE) - leaders) + 14 * leaders, 0));
    println!("collective exit of {SIZE} ranks: {:?}", begin.elapsed());
    // A leader of others waits for those.
    for (caller, reductions) in [(64, 0), (SIZE - 1, 1)] {
        let begin = Instant::now();
        let code = Code(caller % 200);
        assert_eq!(run(caller..caller + 1, code), (reductions, 2 * u64::from(SIZE)));
        println!("non-collective exit in {SIZE} ranks: {:?}", begin.elapsed());
    }
}
