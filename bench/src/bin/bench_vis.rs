//! What a strided put of 1024 times 64 bytes costs, beside 1024 puts, beside one put of as many
//! bytes, and beside a loop of copies where the other rank's segment is mapped. Usage, on 2 ranks
//! (of neighbourhoods of their own for the network): `bench_vis PAIRS [COUNT [ROW]]`
//!
//! COUNT is how many transfers a sample has. With ROW, 1 MiB in rows of so many bytes instead, by
//! puts from the own segment: to one range at the other rank, to rows there, each row by itself,
//! and all as one range; also to one range from other memory. Prints `KEY VALUE` lines:
//! microseconds of a transfer, complete at the other rank. The ways take turns, sample by sample.
//! What arrived of rows in one range is checked.

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
    let usage = "usage: bench_vis PAIRS [COUNT [ROW]], on 2 ranks; ROW divides 1 MiB";
    let (pairs, count, row) = match &args[..] {
        [pairs] => (pairs.parse()?, 200, 0),
        [pairs, count] => (pairs.parse()?, count.parse()?, 0),
        [pairs, count, row] => (pairs.parse()?, count.parse()?, row.parse()?),
        _ => return Err(usage.into()),
    };
    let client = Client::<Seq>::init("bench_vis")?;
    if client.size() != 2 || row > 0 && !MEGABYTE.is_multiple_of(row) {
        return Err(usage.into());
    }
    if row > 0 {
        return megabyte(&client, row, (pairs, count));
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

const MEGABYTE: usize = 1 << 20;

/// The ways of 1 MiB in rows of so many bytes.
fn megabyte(client: &Client<Seq>, row: usize, (pairs, count): (u32, u32)) -> Result<()> {
    // Rows of this rank lie in the first half of its segment, those of the other in the second.
    let segment = client.attach_segment(4 * MEGABYTE as u64)?;
    let own = Arena::of(&segment)?;
    let pattern: Vec<u8> =
        (0..4 * MEGABYTE).map(|at| (at ^ at >> 8 ^ at >> 16).to_le_bytes()[0]).collect();
    own.copy_in(0, &pattern);
    client.barrier(0, BarrierFlags::ANONYMOUS)?;
    if client.rank() == Rank(0) {
        let (source, heap) = (own.bytes(0, 2 * MEGABYTE), vec![9; 2 * MEGABYTE]);
        let (apart, close) = ([2 * row.cast_signed()], [row.cast_signed()]);
        let counts = [MEGABYTE / row];
        let first = 2 * MEGABYTE;
        let put = |source: &[u8], there: &[isize]| -> Result<()> {
            let local = Strides { first: 0, strides: &apart };
            let remote = Strides { first, strides: there };
            let what = Strided { element: row, counts: &counts, local, remote };
            Ok(client.put_strided(PEER, source, &what)?)
        };
        let sample = |name: &str, way: &dyn Fn() -> Result<()>| {
            let begin = Instant::now();
            for _ in 0..count {
                way()?;
            }
            let each = begin.elapsed().as_secs_f64() * 1e6 / f64::from(count);
            show(&format!("{name}_us {each:.3}\n"));
            Ok::<(), Box<dyn std::error::Error>>(())
        };
        for _ in 0..pairs {
            sample("whole", &|| Ok(client.put(PEER, first as u64, &source[..MEGABYTE])?))?;
            sample("gather", &|| put(source, &close))?;
            sample("heap", &|| put(&heap, &close))?;
            sample("both", &|| put(source, &apart))?;
            sample("each", &|| {
                client.scope(|scope| {
                    for at in (0..2 * MEGABYTE).step_by(2 * row) {
                        let (bytes, local) = (&source[at..at + row], LocalCompletion::Defer);
                        let to = (first + at) as u64;
                        let _sent = scope.put_nbi(PEER, to, bytes, local, Flags::NONE)?;
                    }
                    scope.nbi_wait(Operations::PUT)
                })??;
                Ok(())
            })?;
        }
        put(source, &close)?;
    }
    client.barrier(0, BarrierFlags::ANONYMOUS)?;
    let rows =
        pattern.chunks_exact(row).step_by(2).zip(own.bytes(2 * MEGABYTE, MEGABYTE).chunks(row));
    if client.rank() == PEER && rows.take(MEGABYTE / row).any(|(sent, came)| sent != came) {
        return Err("other bytes arrived".into());
    }
    client.exit(0)
}
