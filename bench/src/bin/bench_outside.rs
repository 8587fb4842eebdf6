//! Puts and gets of 1 MB from and to memory inside and outside the segment. Usage, on 2 ranks of a
//! job with `GASNET_SUPERNODE_MAXSIZE=1`: `bench_outside SAMPLES [COUNT [floods|verbs]]`
//!
//! COUNT is how many transfers a sample has; `floods` leaves out single transfers, and so does
//! `verbs`, which measures writes and reads by verbs alone as well, in turns with ours. Prints `KEY VALUE`
//! lines, MB/s of a flood: `in_*` the segment, `out_*` memory that was transferred before, `first_*`
//! memory that never was (filled before the clock starts), `raw_*` by verbs; and `in_put_SIZE_us`
//! and so on: microseconds of a put or get of that size that waits for its end.

use std::hint::black_box;
use std::time::Duration;

use bench::arena::{Arena, Result};
use bench::raw_writes::RawWrites;
use bench::timing::{in_turns, times, typical};
use gasnet_ibv::{BarrierFlags, Client, Flags, LocalCompletion, Operations, Rank, Seq, WaitMode};
use testkit::report::show;

/// Bytes of a transfer.
const LEN: usize = 1 << 20;
/// Transfers that are under way together.
const WINDOW: usize = 8;
/// Single transfers of each size.
const CALLS: usize = 500;
/// Sizes of single puts, around the limit up to which they are copied.
const SIZES: [usize; 6] = [4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10];

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let (samples, count, singles): (usize, usize, bool) = match *words {
        [samples] => (samples.parse()?, 128, true),
        [samples, count] => (samples.parse()?, count.parse()?, true),
        [samples, count, "floods" | "verbs"] => (samples.parse()?, count.parse()?, false),
        _ => return Err("usage: bench_outside SAMPLES [COUNT [floods|verbs]]".into()),
    };
    let raw = words.last() == Some(&"verbs");
    let client = Client::<Seq>::init("bench_outside")?;
    let segment = client.attach_segment(((WINDOW + 1) * LEN) as u64)?;
    let mut own = Arena::of(&segment)?;
    client.barrier(0, BarrierFlags::ANONYMOUS)?;
    if client.rank() == Rank(0) {
        // As perftest waits: its client spins, its server sleeps.
        client.set_wait_mode(WaitMode::Spin);
        let raw = raw.then(|| RawWrites::new(&own, 0, (WINDOW + 1) * LEN)).transpose()?;
        // The first sample makes every page resident.
        for sample in 0..=samples {
            let mut lines = floods(&client, &mut own, count / WINDOW, raw.as_ref())?;
            if singles {
                lines += &single_transfers(&client, &mut own)?;
            }
            if sample > 0 {
                show(&lines);
            }
        }
    }
    client.barrier(0, BarrierFlags::ANONYMOUS)?;
    client.exit(0)
}

/// MB/s of [`WINDOW`] transfers for each of these times.
#[expect(clippy::cast_precision_loss, reason = "a quotient for people")]
fn speed_of(times: &[Duration]) -> f64 {
    let taken: Duration = times.iter().sum();
    (times.len() * WINDOW * LEN) as f64 / 1e6 / taken.as_secs_f64()
}

/// MB/s of `rounds` times [`WINDOW`] transfers.
fn speed(rounds: usize, round: impl FnMut() -> Result<()>) -> Result<f64> {
    let mut taken = Vec::with_capacity(rounds);
    times(rounds, round, &mut taken)?;
    Ok(speed_of(&taken))
}

/// As [`speed`], and that of as many by verbs, in turns.
fn beside_raw(
    rounds: usize,
    round: impl FnMut() -> Result<()>,
    by_verbs: impl FnMut() -> Result<()>,
) -> Result<[f64; 2]> {
    let both = in_turns((rounds, 1), round, by_verbs)?;
    Ok(both.map(|taken| speed_of(&taken)))
}

fn puts(client: &Client<Seq>, from: &[u8]) -> Result<()> {
    client.scope(|scope| -> Result<()> {
        for part in from.chunks(LEN) {
            let part = black_box(part);
            let _ = scope.put_nbi(Rank(1), 0, part, LocalCompletion::Defer, Flags::NONE)?;
        }
        Ok(scope.nbi_wait(Operations::ALL)?)
    })?
}

fn gets(client: &Client<Seq>, into: &mut [u8]) -> Result<()> {
    client.scope(|scope| -> Result<()> {
        for part in into.chunks_mut(LEN) {
            let _ = scope.get_nbi(Rank(1), 0, part, Flags::NONE)?;
        }
        Ok(scope.nbi_wait(Operations::ALL)?)
    })?
}

fn floods(
    client: &Client<Seq>,
    own: &mut Arena,
    rounds: usize,
    raw: Option<&RawWrites>,
) -> Result<String> {
    const ALL: usize = WINDOW * LEN;
    let mut lines = String::new();
    let mut say = |key: &str, value: f64| lines.push_str(&format!("{key} {value:.2}\n"));
    let fresh = vec![1_u8; rounds * ALL];
    // Each pass takes every part once.
    let mut parts = fresh.chunks(ALL).cycle();
    let mut outside = || puts(client, parts.next().unwrap_or_default());
    say("first_put_mbps", speed(rounds, &mut outside)?);
    let inside = || puts(client, own.bytes(LEN, ALL));
    let len = u32::try_from(LEN)?;
    if let Some(raw) = raw {
        let write = || raw.write_many(WINDOW, len);
        let [ours, theirs] = beside_raw(rounds, inside, write)?;
        say("in_put_mbps", ours);
        say("raw_in_mbps", theirs);
        let [ours, theirs] = beside_raw(rounds, outside, write)?;
        say("out_put_mbps", ours);
        say("raw_out_mbps", theirs);
    } else {
        say("in_put_mbps", speed(rounds, inside)?);
        say("out_put_mbps", speed(rounds, outside)?);
    }
    let inside = || gets(client, own.bytes_mut(LEN, ALL));
    if let Some(raw) = raw {
        let [ours, theirs] = beside_raw(rounds, inside, || raw.read_many(WINDOW, len))?;
        say("in_get_mbps", ours);
        say("raw_get_mbps", theirs);
    } else {
        say("in_get_mbps", speed(rounds, inside)?);
    }
    let mut fresh = vec![2_u8; rounds * ALL];
    for key in ["first_get_mbps", "out_get_mbps"] {
        let mut parts = fresh.chunks_mut(ALL);
        say(key, speed(rounds, || gets(client, parts.next().unwrap_or_default()))?);
    }
    Ok(lines)
}

fn single_transfers(client: &Client<Seq>, own: &mut Arena) -> Result<String> {
    let mut lines = String::new();
    let mut say = |key: &str, value: f64| lines.push_str(&format!("{key} {value:.2}\n"));
    let mut fresh = vec![2_u8; WINDOW * LEN];
    for size in SIZES {
        let kib = size >> 10;
        let put = |from: &[u8]| typical(CALLS, || Ok(client.put(Rank(1), 0, black_box(from))?));
        say(&format!("in_put_{kib}K_us"), put(own.bytes(LEN, size))?);
        say(&format!("out_put_{kib}K_us"), put(&fresh[..size])?);
        let get = |into: &mut [u8]| {
            typical(CALLS, || Ok(client.get(Rank(1), 0, black_box(&mut *into))?))
        };
        say(&format!("in_get_{kib}K_us"), get(own.bytes_mut(LEN, size))?);
        say(&format!("out_get_{kib}K_us"), get(&mut fresh[..size])?);
    }
    Ok(lines)
}
