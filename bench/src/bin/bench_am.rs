//! Active messages between two ranks beside hand-written references in the same processes.
//! Usage, on 2 ranks that are bound to a processor each: `bench_am short|medium PAIRS`
//!
//! Prints `KEY VALUE` lines: nanoseconds per round trip, or MB/s.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use bench::arena::{Arena, Result, sum_lines};
use bench::rounds::meet;
use bench::sys::spin_until;
use gasnet_ibv::{Client, Entry, Flags, HandlerIndex, Rank, Seq};
use testkit::report::show;

/// Messages of the flood and blocks of its references.
const BLOCK: usize = 1024;
const BLOCKS: usize = 100_000;
const TRIPS: u64 = 20_000;
/// Slots of the hand-written ring.
const SLOTS: usize = 64;
const FIRST_SLOT: usize = 4096;
/// Larger than the caches of any machine that this is run on.
const LARGE: usize = 128 << 20;

const PING: HandlerIndex = HandlerIndex(200);
const PONG: HandlerIndex = HandlerIndex(201);
const DATA: HandlerIndex = HandlerIndex(202);
const STOP: HandlerIndex = HandlerIndex(203);

/// What handlers tell the program.
#[derive(Default)]
struct Seen {
    pongs: AtomicU64,
    stops: AtomicU64,
    sum: AtomicU64,
}

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let (kind, pairs) = (args.next().unwrap_or_default(), args.next().unwrap_or_default());
    let pairs: u64 = pairs.parse()?;
    let client = Client::<Seq>::init("bench_am")?;
    let segment = client.attach_segment(1 << 20)?;
    let seen = Arc::new(Seen::default());
    register(&client, &seen)?;
    let arena = Arena::shared(&client, &segment, FIRST_SLOT + SLOTS * BLOCK)?;
    match kind.as_str() {
        "short" => short(&client, &seen, &arena, pairs)?,
        "medium" => medium(&client, &seen, &arena, pairs)?,
        _ => return Err("usage: bench_am short|medium PAIRS".into()),
    }
    meet(&client)?;
    client.exit(0)
}

fn register(client: &Client<Seq>, seen: &Arc<Seen>) -> Result<()> {
    let (pong, data, stop) = (Arc::clone(seen), Arc::clone(seen), Arc::clone(seen));
    let mut entries = [
        Entry::short("ping", 0, |token, _| {
            // A reply that fails ends the job, which the waiting side sees.
            let _ = token.reply_short(PONG, &[], Flags::NONE);
        })
        .at(PING.0),
        Entry::short("pong", 0, move |_, _| {
            pong.pongs.fetch_add(1, Ordering::Relaxed);
        })
        .at(PONG.0),
        Entry::medium("data", 1, move |token, payload, args| {
            let sum = data.sum.load(Ordering::Relaxed);
            data.sum.store(sum.wrapping_add(sum_lines(payload)), Ordering::Relaxed);
            if args[0] != 0 {
                let _ = token.reply_short(PONG, &[], Flags::NONE);
            }
        })
        .at(DATA.0),
        Entry::short("stop", 0, move |_, _| {
            stop.stops.fetch_add(1, Ordering::Relaxed);
        })
        .at(STOP.0),
    ];
    client.endpoint().register(&mut entries)?;
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "quotients for people")]
fn nanos_per(begin: Instant, count: u64) -> f64 {
    begin.elapsed().as_nanos() as f64 / count as f64
}

/// MB/s of [`BLOCKS`] blocks.
fn megabytes_per_second(begin: Instant) -> f64 {
    1e3 * 1024.0 / nanos_per(begin, BLOCKS as u64)
}

/// Rank 0 runs `work`, rank 1 serves messages meanwhile.
fn against_server(
    client: &Client<Seq>,
    seen: &Seen,
    work: impl FnOnce() -> Result<f64>,
) -> Result<f64> {
    let stops = seen.stops.load(Ordering::Relaxed) + 1;
    meet(client)?;
    if client.rank() == Rank(0) {
        let value = work()?;
        let _ = client.team().request_short(Rank(1), STOP, &[], Flags::NONE)?;
        Ok(value)
    } else {
        client.block_until(|| seen.stops.load(Ordering::Relaxed) >= stops)?;
        Ok(0.0)
    }
}

/// Rank 0 runs `work`, rank 1 runs `peer`; neither calls the library.
fn against_peer(
    client: &Client<Seq>,
    work: impl FnOnce() -> f64,
    peer: impl FnOnce(),
) -> Result<f64> {
    meet(client)?;
    if client.rank() == Rank(0) {
        Ok(work())
    } else {
        peer();
        Ok(0.0)
    }
}

fn short(client: &Client<Seq>, seen: &Seen, arena: &Arena, pairs: u64) -> Result<()> {
    let trips = || {
        let pongs = seen.pongs.load(Ordering::Relaxed);
        let begin = Instant::now();
        for trip in 1..=TRIPS {
            let _ = client.team().request_short(Rank(1), PING, &[], Flags::NONE)?;
            client.block_until(|| seen.pongs.load(Ordering::Relaxed) == pongs + trip)?;
        }
        Ok(nanos_per(begin, TRIPS))
    };
    // The first pair warms up.
    for pair in 0..=pairs {
        let ours = against_server(client, seen, trips)?;
        let one = ping_pong(client, arena, [0, 0], pair)?;
        let two = ping_pong(client, arena, [1, 2], pair)?;
        if client.rank() == Rank(0) && pair > 0 {
            show(&format!(
                "am_short_ns {ours:.2}\npingpong_ns {one:.2}\npingpong_two_ns {two:.2}\n"
            ));
        }
    }
    Ok(())
}

/// Words `there` and `back` count up: odd is rank 0's turn done, even rank 1's.
fn ping_pong(
    client: &Client<Seq>,
    arena: &Arena,
    [there, back]: [usize; 2],
    pair: u64,
) -> Result<f64> {
    let (there, back) = (arena.word(there), arena.word(back));
    let first = pair * TRIPS;
    against_peer(
        client,
        || {
            let begin = Instant::now();
            for trip in first..first + TRIPS {
                there.store(2 * trip + 1, Ordering::Release);
                spin_until(back, 2 * trip + 2);
            }
            nanos_per(begin, TRIPS)
        },
        || {
            for trip in first..first + TRIPS {
                spin_until(there, 2 * trip + 1);
                back.store(2 * trip + 2, Ordering::Release);
            }
        },
    )
}

fn medium(client: &Client<Seq>, seen: &Seen, arena: &Arena, pairs: u64) -> Result<()> {
    // At the start of a line: elsewhere a copy costs more, and where the heap puts it differs from
    // build to build.
    let block = Aligned([1_u8; BLOCK]);
    let block = &block.0;
    let mut large = Large::new(client.rank() == Rank(0));
    for pair in 0..=pairs {
        let ours = against_server(client, seen, || flood(client, seen, block))?;
        let ring = ring(client, arena, block, pair)?;
        let (streamed, hot) =
            if client.rank() == Rank(0) { (large.copy(), hot(block)) } else { (0.0, 0.0) };
        if client.rank() == Rank(0) && pair > 0 {
            show(&format!(
                "medium_mbps {ours:.1}\nring_mbps {ring:.1}\nmemcpy_mbps {streamed:.1}\nmemcpy_hot_mbps {hot:.1}\n"
            ));
        }
    }
    black_box(seen.sum.load(Ordering::Relaxed));
    Ok(())
}

/// A block that starts at a cache line.
#[repr(align(128))]
struct Aligned([u8; BLOCK]);

/// Every block is a request; the last one is acknowledged, which acknowledges all, as they arrive
/// in order.
fn flood(client: &Client<Seq>, seen: &Seen, block: &[u8]) -> Result<f64> {
    let pongs = seen.pongs.load(Ordering::Relaxed);
    let begin = Instant::now();
    for number in 1..=BLOCKS {
        let last = i32::from(number == BLOCKS);
        let _ =
            client.team().request_medium(Rank(1), DATA, black_box(block), &[last], Flags::NONE)?;
    }
    client.block_until(|| seen.pongs.load(Ordering::Relaxed) > pongs)?;
    Ok(megabytes_per_second(begin))
}

/// The same over a hand-written ring with one writer and one reader.
fn ring(client: &Client<Seq>, arena: &Arena, block: &[u8], pair: u64) -> Result<f64> {
    let (sent, taken) = (arena.word(3), arena.word(4));
    let numbers = || pair * BLOCKS as u64 + 1..=(pair + 1) * BLOCKS as u64;
    let slot =
        |number: u64| FIRST_SLOT + usize::try_from(number % SLOTS as u64).unwrap_or(0) * BLOCK;
    against_peer(
        client,
        || {
            let begin = Instant::now();
            for number in numbers() {
                spin_until(taken, number.saturating_sub(SLOTS as u64));
                arena.copy_in(slot(number), black_box(block));
                sent.store(number, Ordering::Release);
            }
            spin_until(taken, (pair + 1) * BLOCKS as u64);
            megabytes_per_second(begin)
        },
        || {
            for number in numbers() {
                spin_until(sent, number);
                black_box(arena.sum(slot(number), BLOCK));
                taken.store(number, Ordering::Release);
            }
        },
    )
}

/// Two buffers that no cache holds.
struct Large {
    from: Vec<u8>,
    to: Vec<u8>,
    at: usize,
}

impl Large {
    fn new(wanted: bool) -> Self {
        let len = if wanted { LARGE } else { 0 };
        Self { from: vec![1; len], to: vec![2; len], at: 0 }
    }

    /// Copies [`BLOCKS`] blocks from where the last call ended.
    fn copy(&mut self) -> f64 {
        let begin = Instant::now();
        for _ in 0..BLOCKS {
            let block = self.at..self.at + BLOCK;
            self.to[block.clone()].copy_from_slice(black_box(&self.from[block]));
            self.at = (self.at + BLOCK) % LARGE;
        }
        black_box(&self.to);
        megabytes_per_second(begin)
    }
}

fn hot(block: &[u8]) -> f64 {
    let mut to = vec![0; BLOCK];
    let begin = Instant::now();
    for _ in 0..BLOCKS {
        to.copy_from_slice(black_box(block));
        black_box(&to);
    }
    megabytes_per_second(begin)
}
