//! Barriers beside a hand-written one and a cache-line ping-pong in the same processes.
//! Usage: `bench_barrier rounds PAIRS` or `bench_barrier idle`
//!
//! Prints `KEY VALUE` lines: nanoseconds per barrier; for `idle`, processor time of the ranks that
//! wait.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bench::arena::{Arena, Result};
use bench::sys::spin_until;
use gasnet_ibv::{BarrierFlags, Client, Rank, Seq};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use testkit::report::show;

const WAIT: Duration = Duration::from_secs(2);

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let (kind, pairs) = (args.next().unwrap_or_default(), args.next());
    let client = Client::<Seq>::init("bench_barrier")?;
    let segment = client.attach_segment(1 << 16)?;
    let arena = Arena::shared(&client, &segment, 4096)?;
    match kind.as_str() {
        "rounds" => rounds(&client, &arena, pairs.unwrap_or_default().parse()?)?,
        "idle" => idle(&client)?,
        _ => return Err("usage: bench_barrier rounds PAIRS | idle".into()),
    }
    meet(&client)?;
    client.exit(0)
}

fn meet(client: &Client<Seq>) -> Result<()> {
    Ok(client.barrier(0, BarrierFlags::ANONYMOUS)?)
}

/// Nanoseconds per call of `one`, as this rank sees it.
fn nanos_per(count: u32, mut one: impl FnMut(u64) -> Result<()>) -> Result<f64> {
    let begin = Instant::now();
    for round in 0..count {
        one(u64::from(round))?;
    }
    Ok(begin.elapsed().as_secs_f64() * 1e9 / f64::from(count))
}

/// The hand-written barrier: a counter, a generation, and a yield while waiting when processors are
/// shared.
struct Counter<'a> {
    arrived: &'a AtomicU64,
    generation: &'a AtomicU64,
    ranks: u64,
}

impl Counter<'_> {
    fn enter(&self) {
        let mine = self.generation.load(Ordering::Acquire);
        if self.arrived.fetch_add(1, Ordering::AcqRel) + 1 == self.ranks {
            self.arrived.store(0, Ordering::Relaxed);
            self.generation.store(mine + 1, Ordering::Release);
            return;
        }
        while self.generation.load(Ordering::Acquire) == mine {
            if self.ranks > 2 {
                let _ = nix::sched::sched_yield();
            } else {
                std::hint::spin_loop();
            }
        }
    }
}

fn rounds(client: &Client<Seq>, arena: &Arena, pairs: u64) -> Result<()> {
    let counter = Counter {
        arrived: arena.word(0),
        generation: arena.word(1),
        ranks: u64::from(client.size()),
    };
    let two = client.size() == 2;
    let count = if two { 20_000 } else { 200 };
    for pair in 0..=pairs {
        let ours = || nanos_per(count, |_| meet(client));
        let reference = || {
            nanos_per(count, |_| {
                counter.enter();
                Ok(())
            })
        };
        meet(client)?;
        // Half of the pairs begin with the reference.
        let (ours, reference) = if pair % 2 == 0 {
            (ours()?, reference()?)
        } else {
            let reference = reference()?;
            (ours()?, reference)
        };
        let ball = if two { ping_pong(client, arena.word(2), count, pair)? } else { 0.0 };
        if client.rank() == Rank(0) && pair > 0 {
            show(&format!("barrier_ns {ours:.1}\ncounter_ns {reference:.1}\n"));
            if two {
                show(&format!("pingpong_ns {ball:.1}\n"));
            }
        }
    }
    Ok(())
}

fn ping_pong(client: &Client<Seq>, ball: &AtomicU64, count: u32, pair: u64) -> Result<f64> {
    let first = 2 * pair * u64::from(count);
    let odd = client.rank() == Rank(1);
    nanos_per(count, |round| {
        let turn = first + 2 * round;
        if odd {
            spin_until(ball, turn + 1);
            ball.store(turn + 2, Ordering::Release);
        } else {
            ball.store(turn + 1, Ordering::Release);
            spin_until(ball, turn + 2);
        }
        Ok(())
    })
}

fn idle(client: &Client<Seq>) -> Result<()> {
    meet(client)?;
    let before = getrusage(UsageWho::RUSAGE_SELF)?;
    if client.rank() == Rank(0) {
        std::thread::sleep(WAIT);
    }
    meet(client)?;
    let after = getrusage(UsageWho::RUSAGE_SELF)?;
    if client.rank() != Rank(0) {
        let micros = |usage: &nix::sys::resource::Usage| {
            usage.user_time().num_microseconds() + usage.system_time().num_microseconds()
        };
        let spent = micros(&after) - micros(&before);
        let wakeups = after.voluntary_context_switches() - before.voluntary_context_switches();
        show(&format!("cpu_ms {}.{:03}\nwakeups {wakeups}\n", spent / 1000, spent % 1000));
    }
    Ok(())
}
