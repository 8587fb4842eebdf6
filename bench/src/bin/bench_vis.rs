//! What a strided put of 1024 times 64 bytes costs, beside 1024 puts, beside one put of as many
//! bytes, and beside a loop of copies where the other rank's segment is mapped. Usage, on 2 ranks
//! (of neighbourhoods of their own for the network): `bench_vis PAIRS [COUNT]`
//!
//! COUNT is how many transfers a sample has. Prints `KEY VALUE` lines: microseconds of a transfer,
//! complete at the other rank. The ways take turns, sample by sample.

use std::hint::black_box;
use std::time::Instant;

use bench::arena::Arena;
use gasnet_ibv::{
    BarrierFlags, Client, Flags, LocalCompletion, Operations, Outcome, Rank, Seq, Strided, Strides,
};
use testkit::report::show;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const ROWS: usize = 1024;
const ROW: usize = 64;
/// From one row to the next, on both sides.
const APART: usize = 256;
const PEER: Rank = Rank(1);

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let usage = "usage: bench_vis PAIRS [COUNT], on 2 ranks";
    let (pairs, count) = match &args[..] {
        [pairs] => (pairs.parse()?, 200),
        [pairs, count] => (pairs.parse()?, count.parse()?),
        _ => return Err(usage.into()),
    };
    let client = Client::<Seq>::init("bench_vis")?;
    if client.size() != 2 {
        return Err(usage.into());
    }
    let segment = client.attach_segment((ROWS * APART) as u64)?;
    let near = client.neighbours().len() == 2;
    let arena = if near { Some(Arena::shared(&client, &segment, ROWS * APART)?) } else { None };
    client.barrier(0, BarrierFlags::ANONYMOUS)?;
    if client.rank() == Rank(0) {
        let source: Vec<u8> = (0..=255).cycle().take(ROWS * APART).collect();
        let sample = |name: &str, way: &dyn Fn(&[u8]) -> Result<()>| {
            let begin = Instant::now();
            for _ in 0..count {
                way(black_box(&source))?;
            }
            let each = begin.elapsed().as_secs_f64() * 1e6 / f64::from(count);
            show(&format!("{name}_us {each:.3}\n"));
            Ok::<(), Box<dyn std::error::Error>>(())
        };
        for _ in 0..pairs {
            sample("strided", &|source| strided(&client, source))?;
            sample("get", &|source| get(&client, source))?;
            sample("puts", &|source| puts(&client, source))?;
            sample("contiguous", &|source| contiguous(&client, source))?;
            if let Some(arena) = arena {
                sample("loop", &|source| copies(&arena, source))?;
            }
        }
    }
    client.barrier(0, BarrierFlags::ANONYMOUS)?;
    client.exit(0)
}

const SIDE: Strides<'_> = Strides { first: 0, strides: &[APART.cast_signed()] };
const ALL: Strided<'_> = Strided { element: ROW, counts: &[ROWS], local: SIDE, remote: SIDE };

fn strided(client: &Client<Seq>, source: &[u8]) -> Result<()> {
    Ok(client.put_strided(PEER, source, &ALL)?)
}

fn get(client: &Client<Seq>, source: &[u8]) -> Result<()> {
    thread_local! {
        static INTO: std::cell::RefCell<Vec<u8>> = const { std::cell::RefCell::new(Vec::new()) };
    }
    INTO.with_borrow_mut(|into| {
        into.resize(source.len(), 0);
        Ok(client.get_strided(PEER, into, &ALL)?)
    })
}

fn puts(client: &Client<Seq>, source: &[u8]) -> Result<()> {
    client.scope(|scope| {
        for row in 0..ROWS {
            let at = row * APART;
            let local = LocalCompletion::Defer;
            let sent = scope.put_nbi(PEER, at as u64, &source[at..at + ROW], local, Flags::NONE)?;
            debug_assert_eq!(sent, Outcome::Sent);
        }
        scope.nbi_wait(Operations::PUT)
    })??;
    Ok(())
}

fn contiguous(client: &Client<Seq>, source: &[u8]) -> Result<()> {
    Ok(client.put(PEER, 0, &source[..ROWS * ROW])?)
}

/// What a program would write that knows a mapping.
#[expect(clippy::unnecessary_wraps, reason = "one of several ways")]
fn copies(arena: &Arena, source: &[u8]) -> Result<()> {
    for (row, bytes) in source.chunks_exact(APART).enumerate() {
        arena.copy_in(row * APART, &bytes[..ROW]);
    }
    Ok(())
}
