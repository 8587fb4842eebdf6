//! Collectives inside a host beside hand-written references in the same processes.
//! Usage: `bench_coll to-all PAIRS` or `bench_coll broadcast PAIRS`
//!
//! Prints `KEY VALUE` lines: nanoseconds per collective.

use std::sync::atomic::Ordering;

use bench::arena::{Arena, Result};
use bench::rounds::{in_turn, meet, nanos_per, ping_pong};
use bench::sys::spin_until;
use gasnet_ibv::{Client, Rank, ReduceOp, Seq};
use testkit::report::show;

const MEGABYTE: usize = 1 << 20;
/// Children of a rank in the reference's tree.
const FAN: u64 = 8;

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let (kind, pairs) = (args.next().unwrap_or_default(), args.next());
    let pairs: u64 = pairs.unwrap_or_default().parse()?;
    let client = Client::<Seq>::init("bench_coll")?;
    let segment = client.attach_segment(2 * MEGABYTE as u64)?;
    let arena = Arena::shared(&client, &segment, 2 * MEGABYTE)?;
    match kind.as_str() {
        "to-all" => to_all(&client, &arena, pairs)?,
        "broadcast" => broadcast(&client, &arena, pairs)?,
        _ => return Err("usage: bench_coll to-all|broadcast PAIRS".into()),
    }
    meet(&client)?;
    client.exit(0)
}

/// The hand-written reduction: each rank adds up what its children say and tells its parent; the
/// first one tells all. Lines: a sum and its round for each rank, then the result and its round.
struct Tree<'a> {
    arena: &'a Arena,
    rank: u64,
    ranks: u64,
}

impl Tree<'_> {
    fn wait(&self, line: usize, round: u64) {
        let word = self.arena.word(line);
        if self.ranks == 2 {
            return spin_until(word, round);
        }
        while word.load(Ordering::Acquire) != round {
            let _ = nix::sched::sched_yield();
        }
    }

    fn sum(&self, mut value: u64, round: u64) -> Result<u64> {
        let line = |rank: u64| usize::try_from(2 * rank);
        let (rank, ranks) = (self.rank, self.ranks);
        for child in (FAN * rank + 1..=FAN * rank + FAN).filter(|child| *child < ranks) {
            self.wait(line(child)? + 1, round);
            value += self.arena.word(line(child)?).load(Ordering::Relaxed);
        }
        let mine = line(if rank == 0 { ranks } else { rank })?;
        self.arena.word(mine).store(value, Ordering::Relaxed);
        self.arena.word(mine + 1).store(round, Ordering::Release);
        self.wait(line(ranks)? + 1, round);
        Ok(self.arena.word(line(ranks)?).load(Ordering::Relaxed))
    }
}

fn to_all(client: &Client<Seq>, arena: &Arena, pairs: u64) -> Result<()> {
    let (rank, ranks) = (u64::from(client.rank().0), u64::from(client.size()));
    let (team, tree) = (client.team(), Tree { arena, rank, ranks });
    let expected = ranks * (ranks + 1) / 2;
    let count = if ranks == 2 { 20_000 } else { 200 };
    for pair in 0..=pairs {
        let ours = || {
            nanos_per(count, |_| {
                let mut data = [rank + 1];
                team.reduce_to_all(&mut data, ReduceOp::Add)?;
                if data == [expected] { Ok(()) } else { Err("a wrong sum".into()) }
            })
        };
        let first = pair * u64::from(count) + 1;
        let reference = || {
            nanos_per(count, |round| {
                let sum = tree.sum(rank + 1, first + round)?;
                if sum == expected { Ok(()) } else { Err("a wrong sum of the reference".into()) }
            })
        };
        meet(client)?;
        let (ours, reference) = in_turn(pair, ours, reference)?;
        let ball = if ranks == 2 { ping_pong(client, arena.word(16), count, pair)? } else { 0.0 };
        if rank == 0 && pair > 0 {
            show(&format!("to_all_ns {ours:.1}\ntree_ns {reference:.1}\n"));
            if ranks == 2 {
                show(&format!("pingpong_ns {ball:.1}\n"));
            }
        }
    }
    Ok(())
}

/// A megabyte to all, and a copy of it by every rank; each with a barrier.
fn broadcast(client: &Client<Seq>, arena: &Arena, pairs: u64) -> Result<()> {
    let (team, mut data) = (client.team(), vec![1_u8; MEGABYTE]);
    if client.rank() == Rank(0) {
        arena.copy_in(MEGABYTE, &data);
    }
    let mut copy = data.clone();
    for pair in 0..=pairs {
        let mut root = 0;
        let ours = || {
            nanos_per(20, |_| {
                team.broadcast(Rank(root), &mut data)?;
                root = (root + 1) % client.size().min(2);
                meet(client)
            })
        };
        let reference = || {
            nanos_per(20, |_| {
                arena.copy_out(MEGABYTE, &mut copy);
                meet(client)
            })
        };
        meet(client)?;
        let (ours, reference) = in_turn(pair, ours, reference)?;
        if client.rank() == Rank(0) && pair > 0 {
            show(&format!("broadcast_ns {ours:.0}\ncopies_ns {reference:.0}\n"));
        }
    }
    Ok(())
}
