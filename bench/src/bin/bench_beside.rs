//! What a job reaches beside processes of others: each rank makes calls for a fixed time.
//! Usage, on 2 or more ranks: `bench_beside short|put|barrier|queue SECONDS`
//!
//! `short`: round trips of a Short between ranks 0 and 1, and `put`: puts of 8 bytes from rank 0 to
//! rank 1, while all others wait in a barrier. `queue`: rank 0 sends floods of Shorts to rank 1,
//! which takes a while for each, and waits for the last. Prints `KEY VALUE` lines: calls, calls per
//! second, the median of a call's microseconds, and milliseconds of processor time of all ranks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bench::rounds::meet;
use gasnet_ibv::{Client, Entry, Flags, HandlerIndex, Rank, ReduceOp, Seq};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use testkit::report::show;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const PING: HandlerIndex = HandlerIndex(200);
const PONG: HandlerIndex = HandlerIndex(201);
const WORK: HandlerIndex = HandlerIndex(202);
/// Shorts of a flood.
const FLOOD: u32 = 200;
/// What a handler of a flood takes.
const WORKS: Duration = Duration::from_micros(5);

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [kind, seconds] = &args[..] else {
        return Err("usage: bench_beside short|put|barrier|queue SECONDS".into());
    };
    let limit = Duration::from_secs_f64(seconds.parse()?);
    let client = Client::<Seq>::init("bench_beside")?;
    let _segment = client.attach_segment(1 << 16)?;
    let pongs = Arc::new(AtomicU64::new(0));
    register(&client, &pongs)?;
    let team = client.team();
    let first = client.rank() == Rank(0);
    let answered = |before: u64| client.block_until(|| pongs.load(Ordering::Relaxed) > before);
    let trip = || -> Result<()> {
        let before = pongs.load(Ordering::Relaxed);
        let _ = team.request_short(Rank(1), PING, &[], Flags::NONE)?;
        Ok(answered(before)?)
    };
    meet(&client)?;
    let cpu = cpu_millis()?;
    let (mut taken, begin) = (Vec::with_capacity(1 << 22), Instant::now());
    let mut timed = |call: &mut dyn FnMut() -> Result<()>| -> Result<()> {
        while begin.elapsed() < limit {
            let one = Instant::now();
            call()?;
            taken.push(one.elapsed());
        }
        Ok(())
    };
    match kind.as_str() {
        "short" if first => timed(&mut || trip())?,
        "put" if first => timed(&mut || Ok(client.put(Rank(1), 0, &[7; 8])?))?,
        "queue" if first => timed(&mut || {
            let before = pongs.load(Ordering::Relaxed);
            for _ in 1..FLOOD {
                let _ = team.request_short(Rank(1), WORK, &[0], Flags::NONE)?;
            }
            let _ = team.request_short(Rank(1), WORK, &[1], Flags::NONE)?;
            Ok(answered(before)?)
        })?,
        "short" | "put" | "queue" => {}
        "barrier" => barriers(&client, limit, &mut taken)?,
        _ => return Err("unknown kind".into()),
    }
    meet(&client)?;
    let elapsed = begin.elapsed();
    let cpu = cpu_millis()? - cpu;
    let mut sum = [cpu];
    team.reduce_to_all(&mut sum, ReduceOp::Add)?;
    if first {
        tell(kind, &mut taken, elapsed, sum[0])?;
    }
    client.exit(0)
}

/// Barriers until rank 0 says, with a put before the last but one, that the time is over.
fn barriers(client: &Client<Seq>, limit: Duration, taken: &mut Vec<Duration>) -> Result<()> {
    let team = client.team();
    let mut count = 1;
    let begin = Instant::now();
    // The time is looked at seldom: to agree takes a collective.
    loop {
        for _ in 0..count {
            let one = Instant::now();
            meet(client)?;
            taken.push(one.elapsed());
        }
        let mut more = [u64::from(client.rank() == Rank(0) && begin.elapsed() < limit)];
        team.reduce_to_all(&mut more, ReduceOp::Add)?;
        if more[0] == 0 {
            return Ok(());
        }
        count = 10;
    }
}

fn register(client: &Client<Seq>, pongs: &Arc<AtomicU64>) -> Result<()> {
    let pongs = Arc::clone(pongs);
    let mut entries = [
        Entry::short("ping", 0, |token, _| {
            // A reply that fails ends the job, which the waiting side sees.
            let _ = token.reply_short(PONG, &[], Flags::NONE);
        })
        .at(PING.0),
        Entry::short("pong", 0, move |_, _| {
            pongs.fetch_add(1, Ordering::Relaxed);
        })
        .at(PONG.0),
        Entry::short("work", 1, |token, args: &[i32]| {
            let begin = Instant::now();
            while begin.elapsed() < WORKS {
                std::hint::spin_loop();
            }
            if args[0] != 0 {
                let _ = token.reply_short(PONG, &[], Flags::NONE);
            }
        })
        .at(WORK.0),
    ];
    client.endpoint().register(&mut entries)?;
    Ok(())
}

fn cpu_millis() -> Result<u64> {
    let usage = getrusage(UsageWho::RUSAGE_SELF)?;
    let millis = usage.user_time().num_milliseconds() + usage.system_time().num_milliseconds();
    Ok(u64::try_from(millis)?)
}

fn tell(kind: &str, taken: &mut [Duration], elapsed: Duration, cpu: u64) -> Result<()> {
    let calls = taken.len();
    if calls == 0 {
        return Err("no call ended in time".into());
    }
    taken.sort_unstable();
    let rate = calls as f64 / elapsed.as_secs_f64();
    let middle = taken[calls / 2].as_secs_f64() * 1e6;
    show(&format!(
        "{kind}_calls {calls}\n{kind}_per_s {rate:.1}\n{kind}_median_us {middle:.3}\n{kind}_cpu_ms {cpu}"
    ));
    Ok(())
}
