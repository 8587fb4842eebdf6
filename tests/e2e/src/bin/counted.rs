//! What moves the counters of the statistics: `counted WAY [NUMBER]`. In most ways rank 0 works and
//! the others wait for it; how much of what it does, the constants say.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use gasnet_ibv::{
    AtomicOp, AtomicOps, BarrierFlags, Client, Entry, Error, Flags, HandlerIndex, LocalCompletion,
    Operations, Par, Rank, Role, Strided, Strides,
};

/// Messages of a rank that works.
const MESSAGES: u32 = 100;
/// Operations at once: more than any queue holds.
const MANY: u32 = 500;
/// Others surely wait by then.
const LATE: Duration = Duration::from_millis(60);
const SEGMENT: u64 = 1 << 20;
/// More than is ever copied, if the memory can be registered.
const LARGE: usize = 40_000;
const SHORT: HandlerIndex = HandlerIndex(200);
const SLOW: HandlerIndex = HandlerIndex(201);

/// In the program's file, so that nobody can watch whether it is unmapped.
static CONSTANT: [u8; LARGE] = [7; LARGE];

type Result<T> = std::result::Result<T, Error>;

/// A rank, and the messages that came to it.
struct Worker {
    client: Client<Par>,
    got: Arc<AtomicU32>,
}

impl Worker {
    fn join() -> Result<Self> {
        let client = Client::<Par>::init("counted")?;
        let got = Arc::<AtomicU32>::default();
        let [short, slow] = [(); 2].map(|()| Arc::clone(&got));
        let mut table = [
            Entry::short("short", 0, move |_, _| {
                short.fetch_add(1, Ordering::Relaxed);
            })
            .at(SHORT.0)
            .role(Role::Request),
            Entry::medium("slow", 0, move |_, _, _| {
                std::thread::sleep(Duration::from_millis(2));
                slow.fetch_add(1, Ordering::Relaxed);
            })
            .at(SLOW.0)
            .role(Role::Request),
        ];
        client.endpoint().register(&mut table)?;
        client.attach_segment(SEGMENT)?;
        Ok(Self { client, got })
    }

    fn is(&self, rank: u32) -> bool {
        self.client.rank().0 == rank
    }

    fn meet(&self) -> Result<()> {
        self.client.barrier(0, BarrierFlags::ANONYMOUS)
    }

    fn others(&self) -> impl Iterator<Item = Rank> + use<> {
        let me = self.client.rank();
        (0..self.client.size()).map(Rank).filter(move |rank| *rank != me)
    }

    fn send(&self, to: Rank, count: u32) -> Result<()> {
        for _ in 0..count {
            let _sent = self.client.team().request_short(to, SHORT, &[], Flags::NONE)?;
        }
        Ok(())
    }

    fn wait_for(&self, count: u32) -> Result<()> {
        self.client.block_until(|| self.got.load(Ordering::Relaxed) >= count)
    }

    /// Everything that programs ask for, in small numbers: each rank sends 100 messages to the
    /// next, puts 10 times, gets 7 times, has 5 atomics, 2 barriers and 2 collectives.
    fn all(&self) -> Result<()> {
        let (client, team) = (&self.client, self.client.team());
        let next = Rank((client.rank().0 + 1) % client.size());
        let words = team.atomic_domain::<u64>(AtomicOps::FADD)?;
        self.late(0);
        self.meet()?;
        self.late(0);
        self.send(next, MESSAGES)?;
        self.wait_for(MESSAGES)?;
        let mut bytes = [0; 64];
        for _ in 0..10 {
            client.put(next, 0, &bytes)?;
        }
        for _ in 0..7 {
            client.get(next, 0, &mut bytes)?;
        }
        for _ in 0..5 {
            words.apply(next, 4096, AtomicOp::FAdd, [1, 0])?;
        }
        for _ in 0..2 {
            self.late(0);
            team.broadcast(Rank(0), &mut bytes)?;
        }
        self.meet()
    }

    /// Transfers of each size: in the request, through a buffer, from and into the memory itself.
    fn sizes(&self) -> Result<()> {
        if self.is(0) {
            let (client, to) = (&self.client, Rank(1));
            let mut large = vec![1; LARGE];
            for _ in 0..10 {
                client.put(to, 0, &large[..8])?;
            }
            for _ in 0..9 {
                client.put(to, 0, &large[..1000])?;
            }
            for _ in 0..8 {
                client.get(to, 0, &mut large[..1000])?;
            }
            for _ in 0..4 {
                client.get(to, 0, &mut large[..8])?;
            }
            for _ in 0..7 {
                client.put(to, 0, &large)?;
            }
            for _ in 0..6 {
                client.get(to, 0, &mut large)?;
            }
            client.put(to, 0, &CONSTANT)?;
            self.send(to, MESSAGES)?;
        } else {
            self.wait_for(MESSAGES)?;
        }
        self.meet()
    }

    /// Puts and gets of as many rows as go together, each too long to be packed.
    fn rows(&self) -> Result<()> {
        if self.is(0) {
            let side = Strides { first: 0, strides: &[6000] };
            let rows = Strided { element: 5000, counts: &[16], local: side, remote: side };
            let mut memory = vec![1; 16 * 6000];
            for _ in 0..2 {
                self.client.put_strided(Rank(1), &memory, &rows)?;
                self.client.get_strided(Rank(1), &mut memory, &rows)?;
            }
        }
        self.meet()
    }

    /// So many messages to ranks that do not look.
    fn flood(&self, count: u32) -> Result<()> {
        if self.is(0) {
            for to in self.others() {
                self.send(to, count)?;
            }
        } else {
            std::thread::sleep(LATE);
            self.wait_for(count)?;
        }
        self.meet()
    }

    /// Many puts of so many bytes at once.
    fn puts(&self, len: usize) -> Result<()> {
        if self.is(0) {
            let bytes = vec![3; len];
            self.client.scope(|scope| -> Result<()> {
                for _ in 0..MANY {
                    for to in self.others() {
                        let local = LocalCompletion::Defer;
                        let _begun = scope.put_nbi(to, 0, &bytes, local, Flags::NONE)?;
                    }
                }
                scope.nbi_wait(Operations::ALL)
            })??;
        }
        self.meet()
    }

    /// Puts and messages in turn, many at once.
    fn mixed(&self) -> Result<()> {
        if self.is(0) {
            let bytes = [4; 8];
            self.client.scope(|scope| -> Result<()> {
                for _ in 0..MANY {
                    for to in self.others() {
                        let local = LocalCompletion::Defer;
                        let _begun = scope.put_nbi(to, 0, &bytes, local, Flags::NONE)?;
                        self.send(to, 1)?;
                    }
                }
                scope.nbi_wait(Operations::ALL)
            })??;
        } else {
            self.wait_for(MANY)?;
        }
        self.meet()
    }

    /// Many atomic operations at once.
    fn atomics(&self) -> Result<()> {
        let words = self.client.team().atomic_domain::<u64>(AtomicOps::ADD)?;
        if self.is(0) {
            self.client.scope(|scope| -> Result<()> {
                for _ in 0..MANY {
                    for to in self.others() {
                        let (place, add) = ((to, 0), [1, 0]);
                        let _begun =
                            scope.atomic_nbi(&words, place, AtomicOp::Add, add, Flags::NONE)?;
                    }
                }
                scope.nbi_wait(Operations::RMW)
            })??;
        }
        self.meet()
    }

    /// Each rank sends a message to the next. A job of 3 has met in a barrier before: each rank has
    /// asked the next for a connection, and the one before has asked it.
    fn ask(&self) -> Result<()> {
        let next = Rank((self.client.rank().0 + 1) % self.client.size());
        self.send(next, 1)?;
        self.wait_for(1)?;
        self.meet()
    }

    /// All others send a message to one rank. In a job of 6 one of them, 3, is not connected with it
    /// by the barrier before.
    fn crowd(&self) -> Result<()> {
        if self.is(0) {
            std::thread::sleep(LATE);
            self.wait_for(self.client.size() - 1)?;
        } else {
            self.send(Rank(0), 1)?;
        }
        self.meet()
    }

    /// Two handlers at once that keep their messages.
    fn handlers(&self) -> Result<()> {
        if self.is(0) {
            for _ in 0..MESSAGES {
                let to = (Rank(1), SLOW);
                let payload = [5; 500];
                let team = self.client.team();
                let _sent = team.request_medium(to.0, to.1, &payload, &[], Flags::NONE)?;
            }
        } else {
            std::thread::scope(|scope| {
                let threads: Vec<_> =
                    (0..3).map(|_| scope.spawn(|| self.wait_for(MESSAGES))).collect();
                threads.into_iter().try_for_each(|one| one.join().unwrap_or(Ok(())))
            })?;
        }
        self.meet()
    }

    fn late(&self, rank: u32) {
        if self.is(rank) {
            std::thread::sleep(LATE);
        }
    }
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let way = args.next().unwrap_or_default();
    let number: u32 = args.next().map_or(Ok(8), |text| text.parse())?;
    let rank = Worker::join()?;
    match way.as_str() {
        "all" => rank.all()?,
        "sizes" => rank.sizes()?,
        "rows" => rank.rows()?,
        "flood" => rank.flood(number)?,
        "puts" => rank.puts(number as usize)?,
        "mixed" => rank.mixed()?,
        "atomics" => rank.atomics()?,
        "ask" => rank.ask()?,
        "crowd" => rank.crowd()?,
        "handlers" => rank.handlers()?,
        other => return Err(format!("counted: no way {other:?}").into()),
    }
    rank.client.exit(0)
}
