//! Many ranks send Shorts to one or to few: what the receivers' memory for messages is, how often a
//! sender stalls, and how evenly the senders come forward. Usage, on ranks that share no memory
//! (`GASNET_SUPERNODE_MAXSIZE=1`): `bench_fan_in RECEIVERS BUSY REQUESTS`
//!
//! The first RECEIVERS ranks receive; the next BUSY send, each REQUESTS one after the other as fast as
//! credits allow, to the receivers in turn; the others were connected and are silent. Prints
//! `KEY VALUE` lines: `stall_percent` (requests that found no credit), `even_percent` (of the sender
//! that has come least far, when half of all requests are there, beside the one that has come
//! farthest; the worst receiver), `receive_mib` (memory that a receiver has for messages: buffers for
//! requests and replies, rings; the most), `memory_mib` (address space that a receiver has gained
//! since it was initialized, also for queues and connections; the most), `seconds`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use bench::arena::Result;
use gasnet_ibv::{BarrierFlags, Client, Entry, Flags, HandlerIndex, Outcome, Rank, ReduceOp, Seq};
use testkit::report::show;

const ASK: HandlerIndex = HandlerIndex(200);
const DONE: HandlerIndex = HandlerIndex(201);
const MIB: f64 = 1_048_576.0;

/// What a rank knows of the requests that came to it.
struct Came {
    from: Box<[AtomicU64]>,
    total: AtomicU64,
    half: u64,
    /// Least and most of a busy sender when half of all were there.
    least: AtomicU64,
    most: AtomicU64,
}

impl Came {
    fn one(&self, from: u32, busy: std::ops::Range<usize>) {
        self.from[from as usize].fetch_add(1, Ordering::Relaxed);
        if self.total.fetch_add(1, Ordering::Relaxed) + 1 == self.half {
            let counts = self.from[busy].iter().map(|count| count.load(Ordering::Relaxed));
            self.least.store(counts.clone().min().unwrap_or(0), Ordering::Relaxed);
            self.most.store(counts.max().unwrap_or(0), Ordering::Relaxed);
        }
    }
}

struct Star {
    client: Client<Seq>,
    came: Arc<Came>,
    answers: Arc<AtomicU64>,
    receivers: u32,
    busy: u32,
    requests: u64,
}

fn main() -> Result<()> {
    let args: Vec<u32> =
        std::env::args().skip(1).map(|arg| arg.parse()).collect::<std::result::Result<_, _>>()?;
    let &[receivers, busy, requests] = &args[..] else {
        return Err("usage: bench_fan_in RECEIVERS BUSY REQUESTS".into());
    };
    let client = Client::<Seq>::init("bench_fan_in")?;
    if receivers == 0 || busy == 0 || receivers + busy > client.size() {
        return Err(format!("{receivers} and {busy} of {} ranks", client.size()).into());
    }
    if !requests.is_multiple_of(receivers) {
        return Err(format!("{requests} requests to {receivers} in turn").into());
    }
    let before = address_space()?;
    let each = u64::from(requests / receivers);
    let came = Arc::new(Came {
        from: (0..client.size()).map(|_| AtomicU64::new(0)).collect(),
        total: AtomicU64::new(0),
        half: u64::from(busy) * each / 2,
        least: AtomicU64::new(0),
        most: AtomicU64::new(0),
    });
    let answers = Arc::<AtomicU64>::default();
    register(&client, &came, &answers, receivers as usize..(receivers + busy) as usize)?;
    client.attach_segment(1 << 16)?;
    let star = Star { client, came, answers, receivers, busy, requests: u64::from(requests) };
    star.run(each, before)?;
    star.client.exit(0)
}

fn register(
    client: &Client<Seq>,
    came: &Arc<Came>,
    answers: &Arc<AtomicU64>,
    busy: std::ops::Range<usize>,
) -> Result<()> {
    let (came, answers) = (Arc::clone(came), Arc::clone(answers));
    let mut entries = [
        Entry::short("ask", 1, move |token, args: &[i32]| {
            if args[0] == 1 {
                came.one(token.source().0, busy.clone());
            }
            // A reply that fails ends the job, which the waiting side sees.
            let _ = token.reply_short(DONE, &[], Flags::NONE);
        })
        .at(ASK.0),
        Entry::short("done", 0, move |_, _| {
            answers.fetch_add(1, Ordering::Relaxed);
        })
        .at(DONE.0),
    ];
    client.endpoint().register(&mut entries)?;
    Ok(())
}

/// Bytes of address space of this process.
fn address_space() -> Result<f64> {
    let text = std::fs::read_to_string("/proc/self/status")?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmSize:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")).ok_or("no VmSize")?;
    Ok(kib.parse::<f64>()? * 1024.0)
}

#[expect(clippy::cast_precision_loss, reason = "numbers for people")]
fn percent(part: u64, whole: u64) -> f64 {
    part as f64 * 100.0 / whole.max(1) as f64
}

impl Star {
    fn is_receiver(&self) -> bool {
        self.client.rank().0 < self.receivers
    }

    fn is_busy(&self) -> bool {
        let rank = self.client.rank().0;
        (self.receivers..self.receivers + self.busy).contains(&rank)
    }

    fn meet(&self) -> Result<()> {
        Ok(self.client.barrier(0, BarrierFlags::ANONYMOUS)?)
    }

    /// One request, which counts or not; whether it had to wait.
    fn ask(&self, to: u32, counts: bool) -> Result<bool> {
        let args = [i32::from(counts)];
        let team = self.client.team();
        let sent = team.request_short(Rank(to), ASK, &args, Flags::IMMEDIATE)?;
        if sent == Outcome::NotSent {
            let _ = team.request_short(Rank(to), ASK, &args, Flags::NONE)?;
        }
        Ok(sent == Outcome::NotSent)
    }

    fn await_answers(&self, count: u64) -> Result<()> {
        Ok(self.client.block_until(|| self.answers.load(Ordering::Relaxed) >= count)?)
    }

    /// Every rank that may send says so once, so all are connected.
    fn connect(&self) -> Result<u64> {
        if !self.is_receiver() {
            for to in 0..self.receivers {
                let _ = self.ask(to, false)?;
            }
            self.await_answers(self.receivers.into())?;
        }
        self.meet()?;
        Ok(self.answers.load(Ordering::Relaxed))
    }

    /// `each`: requests of a sender to each receiver.
    fn run(&self, each: u64, before: f64) -> Result<()> {
        let answered = self.connect()?;
        let begin = Instant::now();
        let mut stalls = 0;
        if self.is_receiver() {
            let all = each * u64::from(self.busy);
            self.client.block_until(|| self.came.total.load(Ordering::Relaxed) >= all)?;
        } else if self.is_busy() {
            for number in 0..self.requests {
                let to = number % u64::from(self.receivers);
                stalls += u64::from(self.ask(u32::try_from(to)?, true)?);
            }
            self.await_answers(answered + self.requests)?;
        }
        self.meet()?;
        let receive = u32::try_from(self.client.receive_memory())?;
        self.tell(begin, stalls, [f64::from(receive), address_space()? - before])
    }

    /// Rank 0 collects and prints.
    fn tell(&self, begin: Instant, stalls: u64, memory: [f64; 2]) -> Result<()> {
        let seconds = begin.elapsed().as_secs_f64();
        let (least, most) = (&self.came.least, &self.came.most);
        let (least, most) = (least.load(Ordering::Relaxed), most.load(Ordering::Relaxed));
        // Senders have nothing to say of what came.
        let (even, memory) =
            if self.is_receiver() { (percent(least, most), memory) } else { (100.0, [0.0; 2]) };
        let mut sum = [stalls];
        let mut extremes = [memory[0], memory[1], -even];
        let team = self.client.team();
        team.reduce_to_all(&mut sum, ReduceOp::Add)?;
        team.reduce_to_all(&mut extremes, ReduceOp::Max)?;
        if self.client.rank() == Rank(0) {
            show(&format!(
                "stall_percent {:.2}\neven_percent {:.1}\nreceive_mib {:.3}\nmemory_mib {:.2}\nseconds {seconds:.3}\n",
                percent(sum[0], self.requests * u64::from(self.busy)),
                -extremes[2],
                extremes[0] / MIB,
                extremes[1] / MIB,
            ));
        }
        Ok(())
    }
}
