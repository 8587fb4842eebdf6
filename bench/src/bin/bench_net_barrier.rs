//! Barriers of ranks in several neighbourhoods beside a hand-written one over the same connections.
//! Usage, on a job of neighbourhoods of equal size (`GASNET_SUPERNODE_MAXSIZE`) of one host:
//! `bench_net_barrier PAIRS [COUNT]`
//!
//! The hand-written one gathers in shared memory with a counter, its leaders disseminate by Shorts,
//! and a generation releases. Who waits yields; leaders poll in between. Prints microseconds per
//! barrier, as `KEY VALUE` lines.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bench::arena::{Arena, Result};
use bench::rounds::{in_turn, meet, nanos_per};
use gasnet_ibv::{Client, Entry, Flags, HandlerIndex, Rank, Seq};
use testkit::report::show;

const WORD: HandlerIndex = HandlerIndex(200);
const ROUNDS: usize = 32;
const COUNT: u32 = 100;

/// Words that leaders heard, by their round.
type Heard = [AtomicU64; ROUNDS];

/// The hand-written barrier.
struct Reference<'a> {
    client: &'a Client<Seq>,
    heard: Arc<Heard>,
    arrived: &'a AtomicU64,
    generation: &'a AtomicU64,
    /// Ranks of this neighbourhood, and neighbourhoods.
    members: u32,
    leaders: u32,
    /// Barriers so far.
    number: u64,
}

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (pairs, count) = match &args[..] {
        [pairs] => (pairs.parse()?, COUNT),
        [pairs, count] => (pairs.parse()?, count.parse()?),
        _ => return Err("usage: bench_net_barrier PAIRS [COUNT]".into()),
    };
    let client = Client::<Seq>::init("bench_net_barrier")?;
    let heard = Arc::new([const { AtomicU64::new(0) }; ROUNDS]);
    register(&client, &heard)?;
    let segment = client.attach_segment(1 << 16)?;
    let position = client.position();
    let members = u32::try_from(client.neighbours().len())?;
    if position.neighbourhoods * members != client.size() {
        return Err("neighbourhoods of different sizes".into());
    }
    let own = 2 * position.neighbourhood as usize;
    let arena = Arena::shared(&client, &segment, 256 * position.neighbourhoods as usize)?;
    let mut reference = Reference {
        client: &client,
        heard,
        arrived: arena.word(own),
        generation: arena.word(own + 1),
        members,
        leaders: position.neighbourhoods,
        number: 0,
    };
    reference.compare(pairs, count)?;
    meet(&client)?;
    client.exit(0)
}

fn register(client: &Client<Seq>, heard: &Arc<Heard>) -> Result<()> {
    let heard = Arc::clone(heard);
    let mut entries = [Entry::short("word", 1, move |_, args: &[i32]| {
        if let Some(round) = usize::try_from(args[0]).ok().and_then(|round| heard.get(round)) {
            round.fetch_add(1, Ordering::Release);
        }
    })
    .at(WORD.0)];
    client.endpoint().register(&mut entries)?;
    Ok(())
}

fn yield_until(word: &AtomicU64, least: u64) {
    while word.load(Ordering::Acquire) < least {
        let _ = nix::sched::sched_yield();
    }
}

impl Reference<'_> {
    fn enter(&mut self) -> Result<()> {
        self.number += 1;
        self.arrived.fetch_add(1, Ordering::AcqRel);
        if !self.client.rank().0.is_multiple_of(self.members) {
            yield_until(self.generation, self.number);
            return Ok(());
        }
        yield_until(self.arrived, self.number * u64::from(self.members));
        self.disseminate()?;
        self.generation.store(self.number, Ordering::Release);
        Ok(())
    }

    /// A leader tells those 1, 2, 4 … ahead, and hears as many behind.
    fn disseminate(&self) -> Result<()> {
        let own = self.client.rank().0 / self.members;
        for (round, heard) in self.heard.iter().enumerate() {
            let step = 1 << round;
            if step >= self.leaders {
                break;
            }
            let to = Rank((own + step) % self.leaders * self.members);
            let args = [i32::try_from(round)?];
            let _ = self.client.team().request_short(to, WORD, &args, Flags::NONE)?;
            while heard.load(Ordering::Acquire) < self.number {
                self.client.poll()?;
                if heard.load(Ordering::Acquire) < self.number {
                    let _ = nix::sched::sched_yield();
                }
            }
        }
        Ok(())
    }

    /// Pairs of both; half of them begin with the hand-written one, and the first pair warms up.
    fn compare(&mut self, pairs: u32, count: u32) -> Result<()> {
        for pair in 0..=pairs {
            let client = self.client;
            let ours = || nanos_per(count, |_| meet(client));
            let reference = || nanos_per(count, |_| self.enter());
            meet(client)?;
            let (ours, reference) = in_turn(pair.into(), ours, reference)?;
            let (ours, reference) = (ours / 1e3, reference / 1e3);
            if client.rank() == Rank(0) && pair > 0 {
                show(&format!("net_barrier_us {ours:.1}\nhand_written_us {reference:.1}\n"));
            }
        }
        Ok(())
    }
}
