//! What two ranks on different "hosts" reach, beside raw TCP between the same two processes, or
//! writes by verbs alone, where that is asked for. Usage, on 2 ranks of a job with
//! `GASNET_SUPERNODE_MAXSIZE=1`: `bench_net short|rate|medium|put|puts|small|seen|get|barrier|atomic|
//! quiet PAIRS [COUNT] [tcp|verbs]`
//!
//! COUNT is how many round trips, Shorts or puts of a flood, barriers, blocks of 64 KiB or puts of 1 MiB a sample has. Prints
//! `KEY VALUE` lines: microseconds of a round trip (the median of the trips, because a scheduling gap
//! sits in nearly every series), MB/s, or (`quiet`) allocations of both ranks together in each
//! round trip.

use std::hint::black_box;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use bench::arena::{Arena, Result};
use bench::poller::against_poller;
use bench::raw_writes::RawWrites;
use bench::sys::CountingAllocator;
use bench::timing::{in_turns, middle, typical};
use gasnet_ibv::{
    AtomicOps, BarrierFlags, Client, Entry, Flags, HandlerIndex, LocalCompletion, Operations, Rank,
    ReduceOp, Seq,
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
/// Bytes of a message of the TCP ping-pong: about what a Short without arguments takes on the wire
/// of the software adapter.
const TCP_TRIP: usize = 32;

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
    let usage = "usage: bench_net short|rate|medium|put|puts|small|seen|get|barrier|atomic|quiet PAIRS [COUNT] [tcp|verbs]";
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

/// Million bytes per second.
#[expect(clippy::cast_precision_loss, reason = "a quotient for people")]
fn megabytes_per_second(begin: Instant, bytes: usize) -> f64 {
    bytes as f64 / 1e6 / begin.elapsed().as_secs_f64()
}

impl Side {
    fn meet(&self) -> Result<()> {
        Ok(self.client.barrier(0, BarrierFlags::ANONYMOUS)?)
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

    /// Rank 0 runs `work`, rank 1 `peer`; neither calls the library.
    fn over_tcp(
        &mut self,
        work: impl FnOnce(&mut TcpStream) -> Result<f64>,
        peer: impl FnOnce(&mut TcpStream) -> Result<f64>,
    ) -> Result<f64> {
        self.meet()?;
        let first = self.first();
        let stream = self.tcp.as_mut().ok_or("no connection")?;
        let value = if first { work(stream) } else { peer(stream) }?;
        self.meet()?;
        Ok(value)
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
            samples.push(("tcp_us", tcp_trips(side, read_asleep)?));
            samples.push(("tcp_spin_us", tcp_trips(side, read_awake)?));
        }
        side.tell(pair, &samples);
    }
    Ok(())
}

type ReadWay = fn(&mut TcpStream, &mut [u8]) -> std::io::Result<()>;

fn read_asleep(stream: &mut TcpStream, into: &mut [u8]) -> std::io::Result<()> {
    stream.read_exact(into)
}

/// Asks again and again instead of sleeping in the system.
fn read_awake(stream: &mut TcpStream, into: &mut [u8]) -> std::io::Result<()> {
    let mut filled = 0;
    while filled < into.len() {
        match stream.read(&mut into[filled..]) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(got) => filled += got,
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::hint::spin_loop(),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn tcp_trips(side: &mut Side, read: ReadWay) -> Result<f64> {
    let count = side.count;
    let awake = read as usize == read_awake as ReadWay as usize;
    let message = [1_u8; TCP_TRIP];
    let (mut question, mut answer) = (message, message);
    let stream = side.tcp.as_ref().ok_or("no connection")?;
    stream.set_nonblocking(awake)?;
    let value = side.over_tcp(
        |stream| {
            typical(count, || {
                stream.write_all(&message)?;
                Ok(read(stream, &mut answer)?)
            })
        },
        |stream| {
            for _ in 0..count {
                read(stream, &mut question)?;
                stream.write_all(&question)?;
            }
            Ok(0.0)
        },
    )?;
    if let Some(stream) = &side.tcp {
        stream.set_nonblocking(false)?;
    }
    Ok(value)
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
            samples.push(("send_rate", tcp_sends(side)?));
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

#[expect(clippy::cast_precision_loss, reason = "a quotient for people")]
fn thousands_per_second(begin: Instant, count: usize) -> f64 {
    count as f64 / begin.elapsed().as_secs_f64() / 1e3
}

/// A send for each message; the other side reads what is there.
fn tcp_sends(side: &mut Side) -> Result<f64> {
    let count = side.count;
    side.over_tcp(
        |stream| {
            let begin = Instant::now();
            for _ in 0..count {
                stream.write_all(black_box(&[1_u8; TCP_TRIP]))?;
            }
            stream.read_exact(&mut [0])?;
            Ok(thousands_per_second(begin, count))
        },
        |stream| {
            let (mut into, mut left) = (vec![0; BLOCK], count * TCP_TRIP);
            while left > 0 {
                let most = into.len().min(left);
                match stream.read(&mut into[..most])? {
                    0 => return Err("the sender has gone".into()),
                    got => left -= got,
                }
            }
            stream.write_all(&[1])?;
            Ok(0.0)
        },
    )
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
            samples.push(("tcp_mbps", tcp_flood(side, &block)?));
        }
        side.tell(pair, &samples);
    }
    black_box(side.seen.sum.load(Ordering::Relaxed));
    Ok(())
}

fn tcp_flood(side: &mut Side, block: &[u8]) -> Result<f64> {
    let count = side.count;
    side.over_tcp(
        |stream| {
            let begin = Instant::now();
            for _ in 0..count {
                stream.write_all(black_box(block))?;
            }
            stream.read_exact(&mut [0])?;
            Ok(megabytes_per_second(begin, block.len() * count))
        },
        |stream| {
            let mut into = vec![0; block.len()];
            for _ in 0..count {
                stream.read_exact(&mut into)?;
                black_box(sum_lines(&into));
            }
            stream.write_all(&[1])?;
            Ok(0.0)
        },
    )
}

fn put(side: &mut Side) -> Result<()> {
    let from = vec![1_u8; PUT];
    for pair in 0..=side.pairs {
        let ours = |side: &Side| {
            let begin = Instant::now();
            side.client.scope(|scope| -> Result<()> {
                for _ in 0..side.count {
                    let _ = scope.put_nbi(
                        Rank(1),
                        0,
                        black_box(&from),
                        LocalCompletion::Defer,
                        Flags::NONE,
                    )?;
                }
                Ok(scope.nbi_wait(Operations::ALL)?)
            })??;
            Ok(megabytes_per_second(begin, PUT * side.count))
        };
        let value = side.against_server(|| ours(side))?;
        side.tell(pair, &[("put_mbps", value)]);
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
