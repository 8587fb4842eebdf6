//! What a small put, a small get and a Short with its answer cost in instructions of ours, over
//! adapters: the functions that callgrind is to count from their begin to their end. Usage, with a
//! libibverbs that moves data inside one process (`testkit/fake-verbs`) in the library path:
//! `bench_path_length COUNT [answer|reply|KIND]`
//!
//! With KIND (`put`, `fetch-add`, `fetch-add-by-owner`, `strided`, `barrier`, `broadcast`,
//! `reduce-to-all`) it makes operations with an event of that kind, and what both ranks do for one, from
//! its begin to its end, is inside `counted`.
//!
//! Two ranks are threads of this process, and each runs while the other waits, so that no poll that is
//! counted finds nothing, and every run counts alike. Each part happens COUNT times.
//!
//! With `answer` or `reply` waits spin, and what a rank waits for comes while it is between two whole
//! polls (`poll_recv`): the request or its answer. Nothing else calls that function. Whatever the
//! other rank does meanwhile is inside `hand_over`.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use bench::arena::{Arena, Result};
use bench::raw_writes::RawWrites;
use bootstrap::HostId;
use gasnet_ibv::{
    AtomicOp, AtomicOps, Client, Entry, Event, Flags, HandlerIndex, Operations, Rank, ReduceOp,
    Scope, Seq, Settings, Strided, Strides, WaitMode,
};

const PING: HandlerIndex = HandlerIndex(200);
const PONG: HandlerIndex = HandlerIndex(201);
/// Bytes of a segment; where the words of puts and gets are in it, and those of verbs alone.
const SEGMENT: u64 = (ROWS_AT + ROWS * APART) as u64;
const PLACE: u64 = 64;
const RAW_PLACE: usize = 1024;

/// Where rows of a strided put go, how many there are, of how many bytes, and how far apart.
const ROWS_AT: usize = 4096;
const ROWS: usize = 16;
const ROW: usize = 64;
const APART: usize = 256;

/// What is counted.
#[derive(Clone, Copy)]
enum Part {
    Calls,
    /// Waits of this rank, which spin.
    Spins(Rank),
    Kind(Kind),
}

/// An operation with an event.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Put,
    FetchAdd,
    FetchAddByOwner,
    Strided,
    Barrier,
    Broadcast,
    ReduceToAll,
}

impl Kind {
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "put" => Self::Put,
            "fetch-add" => Self::FetchAdd,
            "fetch-add-by-owner" => Self::FetchAddByOwner,
            "strided" => Self::Strided,
            "barrier" => Self::Barrier,
            "broadcast" => Self::Broadcast,
            "reduce-to-all" => Self::ReduceToAll,
            _ => return None,
        })
    }

    /// Whether both ranks call it.
    const fn is_collective(self) -> bool {
        matches!(self, Self::Barrier | Self::Broadcast | Self::ReduceToAll)
    }
}

type Started<'scope, 'env> = &'scope Scope<'scope, 'env, Seq>;

struct Side {
    client: Client<Seq>,
    pongs: Arc<AtomicU64>,
}

impl Side {
    #[inline(never)]
    fn put_word(&self, word: &[u8; 8]) -> Result<()> {
        Ok(self.client.put(Rank(1), PLACE, word)?)
    }

    #[inline(never)]
    fn get_word(&self, word: &mut [u8; 8]) -> Result<()> {
        Ok(self.client.get(Rank(1), PLACE, word)?)
    }

    #[inline(never)]
    fn send_request(&self) -> Result<()> {
        let _ = self.client.team().request_short(Rank(1), PING, &[], Flags::NONE)?;
        Ok(())
    }

    #[inline(never)]
    fn take_reply(&self, pongs: u64) -> Result<()> {
        Ok(self.client.block_until(|| self.pongs.load(Ordering::Relaxed) == pongs)?)
    }

    #[inline(never)]
    fn poll_nothing(&self) -> Result<()> {
        Ok(black_box(self).client.poll()?)
    }

    #[inline(never)]
    fn start_put(&self, scope: Started<'_, '_>, word: u64) -> Result<()> {
        let _ = scope.put_value_nbi(Rank(1), PLACE, word, 8, Flags::NONE)?;
        Ok(())
    }

    #[inline(never)]
    fn take_end(&self, scope: Started<'_, '_>) -> Result<()> {
        Ok(scope.nbi_wait(Operations::ALL)?)
    }

    #[inline(never)]
    fn answer_request(&self) -> Result<()> {
        Ok(self.client.poll()?)
    }
}

/// The other rank's turn.
#[inline(never)]
fn hand_over(turn: impl FnOnce() -> Result<()>) -> Result<()> {
    turn()
}

#[inline(never)]
fn write_alone(raw: &RawWrites, word: &[u8; 8]) -> Result<()> {
    raw.write(word)
}

#[inline(never)]
fn read_alone(raw: &RawWrites) -> Result<()> {
    raw.read()
}

fn main() -> Result<()> {
    let mut words = std::env::args().skip(1);
    let usage = "usage: bench_path_length COUNT [answer|reply|KIND]";
    let count = words.next().ok_or(usage)?.parse()?;
    let word = words.next();
    let part = match word.as_deref() {
        None => Part::Calls,
        Some("answer") => Part::Spins(Rank(1)),
        Some("reply") => Part::Spins(Rank(0)),
        Some(kind) => Part::Kind(Kind::named(kind).ok_or(usage)?),
    };
    let services = bootstrap::memory::job_on_hosts(&[HostId(0), HostId(1)])?;
    let (ask, asked) = channel();
    let (answer, answered) = channel();
    let mut turns = [Some((ask, answered)), Some((answer, asked))].into_iter();
    std::thread::scope(|scope| {
        let ranks: Vec<_> = services
            .into_iter()
            .map(|services| {
                let (to, from) = turns.next().flatten().unwrap_or_else(channel);
                scope.spawn(move || {
                    // Under valgrind descriptors of the program's file share a position, so that
                    // two ranks which read it at once see different files.
                    let network =
                        [("GASNET_IBV_FABRIC", "verbs"), ("GASNET_IBV_SAME_PROGRAM", "0")];
                    let own = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
                    let network = network.map(own).to_vec();
                    let settings =
                        Settings { network, single_threaded: true, ..Settings::default() };
                    let client = Client::with_bootstrap("bench", services, settings);
                    let ran = client.map_err(Into::into);
                    // An error is no `Send`.
                    let ran = ran.and_then(|client| run_rank(client, count, part, (&to, &from)));
                    ran.map_err(|error: Box<dyn std::error::Error>| error.to_string())
                })
            })
            .collect();
        for rank in ranks {
            rank.join().map_err(|_| "a rank panicked")??;
        }
        Ok(())
    })
}

fn run_rank(
    client: Client<Seq>,
    count: u64,
    part: Part,
    (to, from): (&Sender<()>, &Receiver<()>),
) -> Result<()> {
    // Until waits may spin none of them calls `poll_recv`.
    client.set_wait_mode(WaitMode::Block);
    let segment = client.attach_segment(SEGMENT)?;
    let pongs = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&pongs);
    let mut entries = [
        Entry::short("ping", 0, |token, _| {
            // A reply that fails ends the job, which the waiting side sees.
            let _ = token.reply_short(PONG, &[], Flags::NONE);
        })
        .at(PING.0),
        Entry::short("pong", 0, move |_, _| {
            counter.fetch_add(1, Ordering::Relaxed);
        })
        .at(PONG.0),
    ];
    client.endpoint().register(&mut entries)?;
    client.barrier(0, gasnet_ibv::BarrierFlags::ANONYMOUS)?;
    let side = Side { client, pongs };
    match part {
        Part::Spins(spins) => return spin(&side, count, spins, (to, from)),
        Part::Kind(kind) => return together(&side.client, count, kind, (to, from)),
        Part::Calls => {}
    }
    if side.client.rank() == Rank(0) {
        alone(&side, count, &RawWrites::new(&Arena::of(&segment)?, RAW_PLACE, 128)?)?;
        for number in 1..=count {
            side.send_request()?;
            to.send(())?;
            from.recv()?;
            side.take_reply(number)?;
            // Nothing came: the next message is taken alone, as in a wait.
            side.client.poll()?;
        }
    } else {
        for _ in 0..count {
            from.recv()?;
            side.answer_request()?;
            side.client.poll()?;
            to.send(())?;
        }
    }
    Ok(())
}

/// Requests that are answered, one after the other, where waits spin.
fn spin(
    side: &Side,
    count: u64,
    spins: Rank,
    (to, from): (&Sender<()>, &Receiver<()>),
) -> Result<()> {
    let asks = side.client.rank() == Rank(0);
    for _ in 0..count {
        let turn = || {
            if asks {
                from.recv()?;
                side.send_request()?;
            }
            to.send(())?;
            Ok(from.recv()?)
        };
        // Ends of sends are taken apart.
        side.client.poll()?;
        if side.client.rank() == spins {
            spin_once(&side.client, turn)?;
        } else {
            turn()?;
            side.client.poll()?;
        }
        if !asks {
            to.send(())?;
        }
    }
    Ok(())
}

/// A wait that is asked for the second time, before the first poll for messages alone, when the
/// other rank gets its turn.
fn spin_once(client: &Client<Seq>, turn: impl Fn() -> Result<()>) -> Result<()> {
    let (mut asked, mut turned) = (0, Ok(()));
    client.set_wait_mode(WaitMode::SpinBlock);
    client.block_until(|| {
        asked += 1;
        if asked == 2 {
            turned = hand_over(&turn);
        }
        asked > 2
    })?;
    client.set_wait_mode(WaitMode::Block);
    turned
}

/// What needs no help of the other rank, one kind after the other.
fn alone(side: &Side, count: u64, raw: &RawWrites) -> Result<()> {
    let mut word = count.to_ne_bytes();
    for _ in 0..count {
        side.put_word(black_box(&word))?;
    }
    for _ in 0..count {
        side.poll_nothing()?;
    }
    side.client.scope(|scope| -> Result<()> {
        for number in 0..count {
            side.start_put(scope, black_box(number))?;
            side.take_end(scope)?;
        }
        Ok(())
    })??;
    for _ in 0..count {
        side.get_word(&mut word)?;
        black_box(word);
    }
    for _ in 0..count {
        write_alone(raw, black_box(&word))?;
    }
    for _ in 0..count {
        read_alone(raw)?;
    }
    Ok(())
}

/// A part of an operation that is counted.
#[inline(never)]
fn counted<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    let done = work();
    // So it is unlike other functions, with which it would be made one, and no jump ends it.
    let _ = black_box(&done);
    done
}

/// Operations of a kind, one after the other, by ranks that run in turns: who calls it begins it, and
/// both poll in their turns until it is over.
fn together(
    client: &Client<Seq>,
    count: u64,
    kind: Kind,
    (to, from): (&Sender<()>, &Receiver<()>),
) -> Result<()> {
    /// Ranks for which an operation is over, of all operations.
    static OVER: AtomicU64 = AtomicU64::new(0);
    let (first, team) = (client.rank() == Rank(0), client.team());
    // No adapter has exclusive or: the owner of the word does all of that domain.
    let ops = match kind {
        Kind::FetchAddByOwner => AtomicOps::FADD | AtomicOps::XOR,
        _ => AtomicOps::FADD,
    };
    let words = team.atomic_domain::<u64>(ops)?;
    let (rows, far) = (vec![1; ROWS * APART], [APART.cast_signed()]);
    let shape = Strided {
        local: Strides { first: 0, strides: &far },
        remote: Strides { first: ROWS_AT, strides: &far },
        element: ROW,
        counts: &[ROWS],
    };
    for number in 1..=count {
        let mut data = [1_u64];
        let (data, words, rows, shape, team) = (&mut data, &words, &rows[..], &shape, &team);
        client.scope(|scope| -> Result<()> {
            if !first {
                from.recv()?;
            }
            let mut event = counted(move || {
                let (peer, none) = (Rank(1), Flags::NONE);
                Ok(match kind {
                    _ if !first && !kind.is_collective() => None,
                    Kind::Put => scope.put_value_nb(peer, PLACE, 7, 8, none)?,
                    Kind::Strided => scope.put_strided_nb(peer, rows, shape, none)?,
                    Kind::FetchAdd | Kind::FetchAddByOwner => {
                        let (op, add) = (AtomicOp::FAdd, [1, 0]);
                        let begun = scope.atomic_nb(words, (peer, PLACE), op, add, none)?;
                        begun.map(|event| event.leaf(Operations::ALL))
                    }
                    Kind::Barrier => Some(scope.barrier_nb(team)?),
                    Kind::Broadcast => {
                        let begun = scope.broadcast_nb(team, Rank(0), data)?;
                        Some(begun.leaf(Operations::ALL))
                    }
                    Kind::ReduceToAll => {
                        let begun = scope.reduce_to_all_nb(team, data, ReduceOp::Add)?;
                        Some(begun.leaf(Operations::ALL))
                    }
                })
            })?;
            let mut over = false;
            while OVER.load(Ordering::Acquire) < 2 * number {
                counted(|| Ok(client.poll()?))?;
                match event.take().map(Event::test) {
                    Some(Err(under_way)) => event = Some(under_way),
                    None | Some(Ok(())) if over => {}
                    None | Some(Ok(())) => {
                        OVER.fetch_add(1, Ordering::Release);
                        over = true;
                    }
                }
                // Before the other one changes it.
                let last = OVER.load(Ordering::Acquire) == 2 * number;
                to.send(())?;
                if !last {
                    from.recv()?;
                }
            }
            Ok(())
        })??;
    }
    Ok(())
}
