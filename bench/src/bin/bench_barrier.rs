//! Barriers beside a hand-written one and a cache-line ping-pong in the same processes.
//! Usage: `bench_barrier rounds PAIRS` or `bench_barrier idle`
//!
//! Prints `KEY VALUE` lines: nanoseconds per barrier; for `idle`, processor time of the ranks that
//! wait.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bench::arena::{Arena, Result};
use bench::rounds::{in_turn, meet, nanos_per, ping_pong};
use gasnet_ibv::{Client, Rank, Seq};
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
        let (ours, reference) = in_turn(pair, ours, reference)?;
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
