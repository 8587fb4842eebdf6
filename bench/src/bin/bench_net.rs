//! What two ranks on different "hosts" reach, beside raw TCP between the same two processes, or
//! writes by verbs alone, where that is asked for. Usage, on 2 ranks of a job with
//! `GASNET_SUPERNODE_MAXSIZE=1`: `bench_net short|rate|medium|put|large|puts|small|seen|get|barrier|
//! atomic|quiet PAIRS [COUNT] [tcp|verbs]`
//!
//! COUNT is how many round trips, Shorts or puts of a flood, barriers, blocks of 64 KiB, puts or gets of 1 MiB a sample has. Prints
//! `KEY VALUE` lines: microseconds of a round trip (the median of the trips, because a scheduling gap
//! sits in nearly every series), MB/s, or (`quiet`) allocations of both ranks together in each
//! round trip.

use std::hint::black_box;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use bench::arena::{Arena, Result};
use bench::poller::against_poller;
use bench::raw_tcp::{self, Wait};
use bench::raw_writes::RawWrites;
use bench::rounds;
use bench::sys::CountingAllocator;
use bench::timing::{in_turns, megabytes_per_second, middle, thousands_per_second, typical};
use gasnet_ibv::{
    AtomicOps, Client, Entry, Flags, HandlerIndex, LocalCompletion, Operations, Rank, ReduceOp, Seq,
};
use testkit::report::show;

#[global_allocator]
static HEAP: CountingAllocator = CountingAllocator::new();

/// Calls in a turn where ours and those by verbs take turns.
const TURN: usize = 50;
/// Payload of the flood of Mediums, bytes.
const BLOCK: usize = 64 << 10;
/// Bytes of a put.
const PUT: usize = 1 << 20;
/// Gets of [`PUT`] bytes that are under way together, each to a place of its own.
const WINDOW: usize = 8;

const PING: HandlerIndex = HandlerIndex(200);
const PONG: HandlerIndex = HandlerIndex(201);
const DATA: HandlerIndex = HandlerIndex(202);
const PORT: HandlerIndex = HandlerIndex(203);
const COUNTED: HandlerIndex = HandlerIndex(204);

/// Lines of 128 bytes of a segment that puts of 8 bytes, and raw writes, go to. `quiet` and
/// [`against_poller`] use the first two.
const TRIP_LINE: usize = 2;
const RAW_LINE: usize = 3;

/// What handlers tell the program.
#[derive(Default)]
struct Seen {
    pongs: AtomicU64,
    port: AtomicU64,
    sum: AtomicU64,
}

/// A rank of the two.
struct Side {
    client: Client<Seq>,
    seen: Arc<Seen>,
    /// This rank's segment.
    own: Arena,
    tcp: Option<TcpStream>,
    verbs: Option<RawWrites>,
    pairs: usize,
    count: usize,
}

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let usage = "usage: bench_net short|rate|medium|put|large|puts|small|seen|get|barrier|atomic|quiet PAIRS [COUNT] [tcp|verbs]";
    let (words, beside) = match words.split_last() {
        Some((&beside @ ("tcp" | "verbs"), words)) => (words, Some(beside)),
        _ => (&words[..], None),
    };
    let (kind, pairs, count) = match *words {
        [kind, pairs] => (kind, pairs.parse()?, None),
        [kind, pairs, count] => (kind, pairs.parse()?, Some(count.parse()?)),
        _ => return Err(usage.into()),
    };
    let (measure, usual): (fn(&mut Side) -> Result<()>, usize) = match kind {
        "short" => (short, 5_000),
        "rate" => (rate, 100_000),
        "medium" => (medium, 4_000),
        "put" => (put, 200),
        "large" => (large, 200),
        "puts" => (puts, 100_000),
        "small" => (small, 2_000),
        "seen" => (seen, 2_000),
        "get" => (get, 2_000),
        "barrier" => (barrier, 2_000),
        "atomic" => (atomic, 2_000),
        "quiet" => (quiet, 2_000),
        _ => return Err(usage.into()),
    };
    let client = Client::<Seq>::init("bench_net")?;
    if client.size() != 2 {
        return Err(format!("{usage}, on 2 ranks and not on {}", client.size()).into());
    }
    // The first words are for `quiet`.
    let own = Arena::of(&client.attach_segment(PUT as u64)?)?;
    let seen = Arc::new(Seen::default());
    register(&client, &seen)?;
    let count = count.unwrap_or(usual);
    let mut side = Side { client, seen, own, tcp: None, verbs: None, pairs, count };
    side.meet()?;
    match beside {
        Some("tcp") => side.tcp = Some(side.connect()?),
        Some(_) => side.verbs = Some(RawWrites::new(&side.own, RAW_LINE * 128, 128)?),
        None => {}
    }
    measure(&mut side)?;
    side.meet()?;
    side.client.exit(0)
}

fn register(client: &Client<Seq>, seen: &Arc<Seen>) -> Result<()> {
    let (pong, data, port) = (Arc::clone(seen), Arc::clone(seen), Arc::clone(seen));
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
            data.sum.fetch_add(sum_lines(payload), Ordering::Relaxed);
            if args[0] != 0 {
                let _ = token.reply_short(PONG, &[], Flags::NONE);
            }
        })
        .at(DATA.0),
        Entry::short("port", 1, move |_, args: &[i32]| {
            port.port.store(u64::from(args[0].cast_unsigned()), Ordering::Relaxed);
        })
        .at(PORT.0),
        Entry::short("counted", 1, |token, args: &[i32]| {
            if args[0] != 0 {
                let _ = token.reply_short(PONG, &[], Flags::NONE);
            }
        })
        .at(COUNTED.0),
    ];
    client.endpoint().register(&mut entries)?;
    Ok(())
}

/// One byte of each cache line: the receiver looks at what arrived.
fn sum_lines(bytes: &[u8]) -> u64 {
    bytes.iter().step_by(64).map(|byte| u64::from(*byte)).sum()
}

impl Side {
    fn meet(&self) -> Result<()> {
        rounds::meet(&self.client)
    }

    fn first(&self) -> bool {
        self.client.rank() == Rank(0)
    }

    /// Rank 1 listens, rank 0 connects.
    fn connect(&self) -> Result<TcpStream> {
        let stream = if self.first() {
            self.client.block_until(|| self.seen.port.load(Ordering::Relaxed) != 0)?;
            let port = u16::try_from(self.seen.port.load(Ordering::Relaxed))?;
            TcpStream::connect((Ipv4Addr::LOCALHOST, port))?
        } else {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
            let port = i32::from(listener.local_addr()?.port());
            let _ = self.client.team().request_short(Rank(0), PORT, &[port], Flags::NONE)?;
            listener.accept()?.0
        };
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    /// Rank 0 runs `work`; rank 1 waits in a barrier, and so serves.
    fn against_server(&self, work: impl FnOnce() -> Result<f64>) -> Result<f64> {
        self.meet()?;
        let value = if self.first() { work()? } else { 0.0 };
        self.meet()?;
        Ok(value)
    }

    /// Rank 0 runs `work`. Over an adapter rank 1 waits as in any barrier, as perftest's server
    /// sleeps; over the software adapter it polls.
    fn against_peer<T: Default>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        if self.verbs.is_none() {
            return self.against_poller(work);
        }
        self.meet()?;
        let value = if self.first() { work()? } else { T::default() };
        self.meet()?;
        Ok(value)
    }

    fn against_poller<T: Default>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        against_poller(&self.client, work)
    }

    /// Both ranks run `measure` over the connection, of which rank 0 is the first side; neither calls
    /// the library.
    fn over_tcp(
        &mut self,
        measure: impl FnOnce(&mut TcpStream, bool) -> Result<f64>,
    ) -> Result<f64> {
        self.meet()?;
        let first = self.first();
        let value = measure(self.tcp.as_mut().ok_or("no connection")?, first)?;
        self.meet()?;
        Ok(value)
    }

    /// Time of a round trip over the connection, microseconds.
    fn tcp_trips(&mut self, wait: Wait) -> Result<f64> {
        let count = self.count;
        self.over_tcp(|stream, first| raw_tcp::trips(stream, first, count, wait))
    }

    /// Prints the samples of a pair; the first pair warms up.
    fn tell(&self, pair: usize, samples: &[(&str, f64)]) {
        if self.first() && pair > 0 {
            let lines: Vec<String> =
                samples.iter().map(|(key, value)| format!("{key} {value:.2}\n")).collect();
            show(&lines.concat());
        }
    }

    fn pongs(&self) -> u64 {
        self.seen.pongs.load(Ordering::Relaxed)
    }
}

/// Time of a round trip of a Short, microseconds.
fn short_trips(side: &Side) -> Result<f64> {
    let mut pongs = side.pongs();
    typical(side.count, || {
        let _ = side.client.team().request_short(Rank(1), PING, &[], Flags::NONE)?;
        pongs += 1;
        Ok(side.client.block_until(|| side.pongs() == pongs)?)
    })
}

fn short(side: &mut Side) -> Result<()> {
    for pair in 0..=side.pairs {
        let mut samples = vec![("am_short_us", side.against_server(|| short_trips(side))?)];
        if side.tcp.is_some() {
            samples.push(("tcp_us", side.tcp_trips(Wait::Asleep)?));
            samples.push(("tcp_spin_us", side.tcp_trips(Wait::Awake)?));
        }
        side.tell(pair, &samples);
    }
    Ok(())
}

/// Fetch-adds by the adapter, those by messages to the owner, and round trips of a Short.
fn atomic(side: &mut Side) -> Result<()> {
    for pair in 0..=side.pairs {
        let fetch_adds = |side: &Side, ops| {
            let words = side.client.team().atomic_domain::<u64>(ops)?;
            typical(side.count, || {
                black_box(words.fetch_add(Rank(1), 64, 1)?);
                Ok(())
            })
        };
        let adapter = side.against_poller(|| fetch_adds(side, AtomicOps::FADD))?;
        // No adapter has exclusive or.
        let by = AtomicOps::FADD | AtomicOps::XOR;
        let messages = side.against_poller(|| fetch_adds(side, by))?;
        let short = side.against_poller(|| short_trips(side))?;
        let samples =
            [("fetch_add_us", adapter), ("am_fetch_add_us", messages), ("am_short_us", short)];
        side.tell(pair, &samples);
    }
    Ok(())
}

/// Barriers, and reductions of one number to all.
fn barrier(side: &mut Side) -> Result<()> {
    for pair in 0..=side.pairs {
        let barrier = typical(side.count, || side.meet())?;
        let to_all = typical(side.count, || {
            Ok(side.client.team().reduce_to_all(&mut [1_u64], ReduceOp::Add)?)
        })?;
        side.tell(pair, &[("barrier_us", barrier), ("to_all_us", to_all)]);
    }
    Ok(())
}

/// Sends as many messages as a sample has, and waits until all were taken. The argument of `send` is 1
/// for the last one: it is acknowledged, and so are all, because they arrive in order. When it began.
#[inline(always)]
fn flood(side: &Side, send: impl Fn(i32) -> Result<()>) -> Result<Instant> {
    let pongs = side.pongs();
    let begin = Instant::now();
    for number in 1..=side.count {
        send(i32::from(number == side.count))?;
    }
    side.client.block_until(|| side.pongs() > pongs)?;
    Ok(begin)
}

/// Thousands of Shorts of one argument in a second, one way, and of sends of as many bytes over TCP.
fn rate(side: &mut Side) -> Result<()> {
    for pair in 0..=side.pairs {
        let ours = |side: &Side| {
            let team = side.client.team();
            let begin = flood(side, |last| {
                let _ = team.request_short(Rank(1), COUNTED, &[last], Flags::NONE)?;
                Ok(())
            })?;
            Ok(thousands_per_second(begin, side.count))
        };
        let mut samples = vec![("short_rate", side.against_server(|| ours(side))?)];
        if side.tcp.is_some() {
            let count = side.count;
            let rate = side.over_tcp(|stream, first| raw_tcp::sends(stream, first, count))?;
            samples.push(("send_rate", rate));
        }
        side.tell(pair, &samples);
    }
    Ok(())
}

/// Thousands of puts of 8 bytes in a second, as many under way as there is room for.
fn puts(side: &mut Side) -> Result<()> {
    for pair in 0..=side.pairs {
        let value = side.against_server(|| {
            side.client.scope(|scope| -> Result<f64> {
                let begin = Instant::now();
                for number in 0..side.count as u64 {
                    let number = black_box(number);
                    let _ = scope.put_value_nbi(Rank(1), PLACE, number, 8, Flags::NONE)?;
                }
                scope.nbi_wait(Operations::ALL)?;
                Ok(thousands_per_second(begin, side.count))
            })?
        })?;
        side.tell(pair, &[("puts8_rate", value)]);
    }
    Ok(())
}

fn medium(side: &mut Side) -> Result<()> {
    let most = side.client.team().max_request_medium(Some(Rank(1)), 1, Flags::NONE);
    let block = vec![1_u8; BLOCK.min(most)];
    for pair in 0..=side.pairs {
        let ours = |side: &Side| {
            let team = side.client.team();
            let begin = flood(side, |last| {
                let _ =
                    team.request_medium(Rank(1), DATA, black_box(&block), &[last], Flags::NONE)?;
                Ok(())
            })?;
            Ok(megabytes_per_second(begin, block.len() * side.count))
        };
        let mut samples = vec![("medium_mbps", side.against_server(|| ours(side))?)];
        if side.tcp.is_some() {
            let blocks = (&block[..], side.count);
            let rate =
                side.over_tcp(|tcp, first| raw_tcp::flood(tcp, first, blocks, (1, sum_lines)))?;
            samples.push(("tcp_mbps", rate));
        }
        side.tell(pair, &samples);
    }
    black_box(side.seen.sum.load(Ordering::Relaxed));
    Ok(())
}

/// Million bytes per second of puts of [`PUT`] bytes, all under way together.
fn put_flood(side: &Side, from: &[u8]) -> Result<f64> {
    let begin = Instant::now();
    side.client.scope(|scope| -> Result<()> {
        for _ in 0..side.count {
            let from = black_box(from);
            let _ = scope.put_nbi(Rank(1), 0, from, LocalCompletion::Defer, Flags::NONE)?;
        }
        Ok(scope.nbi_wait(Operations::ALL)?)
    })??;
    Ok(megabytes_per_second(begin, PUT * side.count))
}

/// As [`put_flood`] for gets, as many under way as there are places of [`PUT`] bytes in `into`.
fn get_flood(side: &Side, into: &mut [u8]) -> Result<f64> {
    let begin = Instant::now();
    let mut left = side.count;
    while left > 0 {
        side.client.scope(|scope| -> Result<()> {
            for place in into.chunks_mut(PUT).take(left) {
                let _ = scope.get_nbi(Rank(1), 0, place, Flags::NONE)?;
                left -= 1;
            }
            Ok(scope.nbi_wait(Operations::ALL)?)
        })??;
        black_box(&mut *into);
    }
    Ok(megabytes_per_second(begin, PUT * side.count))
}

/// Puts of 1 MB and nothing else, for a program that another one takes turns with.
fn put(side: &mut Side) -> Result<()> {
    let from = vec![1_u8; PUT];
    for pair in 0..=side.pairs {
        let value = side.against_server(|| put_flood(side, &from))?;
        side.tell(pair, &[("put_mbps", value)]);
    }
    Ok(())
}

/// Puts and gets of 1 MB, and as much over TCP: read into one place as what is put, into as many as
/// what is got.
fn large(side: &mut Side) -> Result<()> {
    let (from, mut into) = (vec![1_u8; PUT], vec![1_u8; WINDOW * PUT]);
    for pair in 0..=side.pairs {
        let mut samples = vec![
            ("put_mbps", side.against_server(|| put_flood(side, &from))?),
            ("get_mbps", side.against_server(|| get_flood(side, &mut into))?),
        ];
        if side.tcp.is_some() {
            let blocks = (&from[..], side.count);
            for (key, places) in [("tcp_mbps", 1), ("tcp_places_mbps", WINDOW)] {
                let rate = side
                    .over_tcp(|tcp, first| raw_tcp::flood(tcp, first, blocks, (places, |_| 0)))?;
                samples.push((key, rate));
            }
        }
        side.tell(pair, &samples);
    }
    Ok(())
}

/// Where the peer's word of puts and gets of 8 bytes is.
const PLACE: u64 = 64;

fn get_word(side: &Side) -> Result<()> {
    let mut word = [0; 8];
    side.client.get(Rank(1), PLACE, &mut word)?;
    black_box(word);
    Ok(())
}

/// Gets of 8 bytes and nothing else, for a program that another one takes turns with.
fn get(side: &mut Side) -> Result<()> {
    for pair in 0..=side.pairs {
        let value = side.against_peer(|| typical(side.count, || get_word(side)))?;
        side.tell(pair, &[("get8_turns_us", value)]);
    }
    Ok(())
}

/// Puts and gets of 8 bytes, each complete before the next; puts that are seen and answered.
fn small(side: &mut Side) -> Result<()> {
    let word = 7_u64.to_ne_bytes();
    let mut trips = 0;
    for pair in 0..=side.pairs {
        let put = || Ok(side.client.put(Rank(1), PLACE, black_box(&word))?);
        let get = || get_word(side);
        let mut samples = Vec::new();
        if let Some(raw) = &side.verbs {
            let turns = (side.count.div_ceil(TURN), TURN);
            let [put, write] =
                side.against_peer(|| in_turns(turns, put, || raw.write(black_box(&word))))?;
            let [get, read] = side.against_peer(|| in_turns(turns, get, || raw.read()))?;
            if side.first() {
                samples.extend([("put8_us", middle(put)?), ("raw_write_us", middle(write)?)]);
                samples.extend([("get8_us", middle(get)?), ("raw_read_us", middle(read)?)]);
            }
        } else {
            samples.push(("put8_us", side.against_peer(|| typical(side.count, put))?));
            samples.push(("get8_us", side.against_peer(|| typical(side.count, get))?));
        }
        let seen = half_trip(side, &mut trips, |peer, word| {
            Ok(side.client.put(peer, TRIP_PLACE, black_box(&word.to_ne_bytes()))?)
        })?;
        samples.push(("put8_seen_us", seen));
        if side.tcp.is_some() {
            samples.push(("tcp_spin_us", side.tcp_trips(Wait::Awake)?));
        }
        side.tell(pair, &samples);
    }
    Ok(())
}

/// Where what is put is seen.
const TRIP_PLACE: u64 = (TRIP_LINE * 128) as u64;

/// Puts that are seen and answered, and nothing else, for a program that another one takes turns
/// with. As those of UCX they are not waited for.
fn seen(side: &mut Side) -> Result<()> {
    let mut trips = 0;
    for pair in 0..=side.pairs {
        let first = trips + 1;
        let words: Vec<[u8; 8]> = (first..).map(u64::to_ne_bytes).take(side.count).collect();
        let value = side.client.scope(|scope| -> Result<f64> {
            let half = half_trip(side, &mut trips, |peer, number| {
                let word = black_box(&words[usize::try_from(number - first)?]);
                let _ = scope.put_nbi(peer, TRIP_PLACE, word, LocalCompletion::Now, Flags::NONE)?;
                Ok(())
            })?;
            scope.nbi_wait(Operations::ALL)?;
            Ok(half)
        })??;
        side.tell(pair, &[("put8_seen_turns_us", value)]);
    }
    Ok(())
}

/// Half of a round trip of two puts of 8 bytes, as `ib_write_lat` takes it: each rank looks into
/// its own segment until it sees what the other one has put, and answers. `trips`: how many there
/// were, which is what is put.
fn half_trip(side: &Side, trips: &mut u64, put: impl Fn(Rank, u64) -> Result<()>) -> Result<f64> {
    let peer = Rank(1 - side.client.rank().0);
    let own = side.own.word(TRIP_LINE);
    let seen = |number: u64| -> Result<()> {
        while own.load(Ordering::Acquire) != number {
            side.client.poll()?;
        }
        Ok(())
    };
    side.meet()?;
    let trip = || {
        *trips += 1;
        if side.first() {
            put(peer, *trips)?;
            return seen(*trips);
        }
        seen(*trips)?;
        put(peer, *trips)
    };
    let half = typical(side.count, trip)? / 2.0;
    side.meet()?;
    Ok(half)
}

/// Counts what a round trip allocates, once everything that is made on first use is there.
#[expect(clippy::cast_precision_loss, reason = "a quotient for people")]
fn quiet(side: &mut Side) -> Result<()> {
    for pair in 0..=side.pairs {
        side.meet()?;
        let before = HEAP.calls();
        side.meet()?;
        if side.first() {
            for _ in 0..side.count {
                let pongs = side.pongs();
                let _ = side.client.team().request_short(Rank(1), PING, &[], Flags::NONE)?;
                side.client.block_until(|| side.pongs() > pongs)?;
            }
        }
        side.meet()?;
        let calls = HEAP.calls() - before;
        if !side.first() {
            side.client.put_value(Rank(0), 0, calls, 8)?;
        }
        side.meet()?;
        if side.first() {
            let both = calls + side.client.get_value(Rank(0), 0, 8)?;
            side.tell(pair, &[("allocations_per_trip", both as f64 / side.count as f64)]);
        }
    }
    Ok(())
}
