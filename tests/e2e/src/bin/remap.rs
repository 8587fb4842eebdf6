//! Memory that comes and goes under the registration cache: `remap SECONDS THREADS`, on 2 ranks that
//! share no memory.
//!
//! Each thread takes memory from the system, fills part of it, puts it to the other rank, gets it back
//! into memory as new, compares, and gives both back to the system: the next round, or another thread,
//! finds the same addresses with other pages.

use std::time::{Duration, Instant};

use gasnet_ibv::{BarrierFlags, Client, Par, Rank};
use testkit::report::show;

/// So much is always taken from the system, and given back to it.
const TAKEN: usize = 33 << 20;
/// So much of it is used.
const USED: usize = 700_000;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [seconds, threads] = args.as_slice() else {
        return Err("usage: remap SECONDS THREADS".into());
    };
    let (seconds, threads): (u64, usize) = (seconds.parse()?, threads.parse()?);
    let client = Client::<Par>::init("remap")?;
    let _segment = client.attach_segment(((threads * USED) as u64).next_multiple_of(4096))?;
    client.barrier(0, BarrierFlags::ANONYMOUS)?;
    let end = Instant::now() + Duration::from_secs(seconds);
    let rounds = std::thread::scope(|scope| -> Result<u64> {
        let run = |thread| {
            let client = &client;
            scope.spawn(move || work(client, thread, end))
        };
        let running: Vec<_> = (0..threads).map(run).collect();
        let results = running.into_iter().map(|one| one.join().map_err(|_| "a thread failed")?);
        results.sum()
    })?;
    client.barrier(0, BarrierFlags::ANONYMOUS)?;
    show(&format!("rank {}: {rounds} rounds, all bytes as they were put\n", client.rank()));
    client.exit(0)
}

fn work(client: &Client<Par>, thread: usize, end: Instant) -> Result<u64> {
    let peer = Rank(1 - client.rank().0);
    let place = (thread * USED) as u64;
    let mut rounds = 0_u64;
    while Instant::now() < end {
        rounds += 1;
        let mut from = vec![0_u8; TAKEN];
        let from = &mut from[..USED];
        let stamp = rounds.wrapping_mul(31) + thread as u64 + 7 * u64::from(peer.0);
        for (at, byte) in from.iter_mut().enumerate() {
            *byte = (stamp + (at as u64 >> 9)).to_le_bytes()[0];
        }
        client.put(peer, place, from)?;
        let mut into = vec![0_u8; TAKEN];
        client.get(peer, place, &mut into[..USED])?;
        if let Some(at) = (0..USED).find(|at| from[*at] != into[*at]) {
            let (put, got) = (from[at], into[at]);
            return Err(format!("round {rounds}, byte {at}: {put} was put, {got} is there").into());
        }
        // Again from the same memory, changed: now its registration is found.
        from.fill(rounds.to_le_bytes()[0]);
        client.put(peer, place, from)?;
        into.truncate(USED);
        client.get(peer, place, &mut into)?;
        if into != *from {
            return Err(format!("round {rounds}: other bytes the second time").into());
        }
    }
    Ok(rounds)
}
