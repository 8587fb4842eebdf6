//! One kind of operation again and again, for who counts what it costs. Usage, on 2 ranks:
//! `bench_calls put|get|fetch-add|fetch-add-by-owner|strided|barrier|broadcast|reduce-to-all SERIES COUNT`
//!
//! There are SERIES and one more, of COUNT operations each, every one complete before the next. Rank 0
//! makes them while rank 1 polls; of collectives both do. Prints nothing.

use std::hint::black_box;

use bench::arena::Result;
use bench::poller::against_poller;
use gasnet_ibv::{AtomicOps, BarrierFlags, Client, Rank, ReduceOp, Seq, Strided, Strides};

/// Rank 1's word of all operations, and where rows go.
const PLACE: u64 = 64;
const ROWS_AT: usize = 4096;
/// A strided put: rows of bytes, so far apart on both sides.
const ROWS: usize = 16;
const ROW: usize = 64;
const APART: usize = 256;
const SEGMENT: u64 = (ROWS_AT + ROWS * APART) as u64;

struct Bench {
    client: Client<Seq>,
    count: usize,
}

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let usage = "usage: bench_calls put|get|fetch-add|fetch-add-by-owner|strided|barrier|broadcast|reduce-to-all SERIES COUNT, on 2 ranks";
    let [kind, series, count] = &args[..] else { return Err(usage.into()) };
    let (series, count): (usize, usize) = (series.parse()?, count.parse()?);
    let client = Client::<Seq>::init("bench_calls")?;
    if client.size() != 2 {
        return Err(usage.into());
    }
    let _segment = client.attach_segment(SEGMENT)?;
    let bench = Bench { client, count };
    bench.meet()?;
    for _ in 0..=series {
        match kind.as_str() {
            "put" | "get" | "fetch-add" | "fetch-add-by-owner" | "strided" => {
                against_poller(&bench.client, || bench.one_sided(kind))?;
            }
            "barrier" | "broadcast" | "reduce-to-all" => bench.collective(kind)?,
            _ => return Err(usage.into()),
        }
    }
    bench.meet()?;
    bench.client.exit(0)
}

impl Bench {
    fn meet(&self) -> Result<()> {
        Ok(self.client.barrier(0, BarrierFlags::ANONYMOUS)?)
    }

    fn one_sided(&self, kind: &str) -> Result<()> {
        let (client, peer) = (&self.client, Rank(1));
        // No adapter has exclusive or: the owner of the word does all of that domain.
        let ops = match kind {
            "fetch-add-by-owner" => AtomicOps::FADD | AtomicOps::XOR,
            _ => AtomicOps::FADD,
        };
        let words = client.team().atomic_domain::<u64>(ops)?;
        let rows = vec![1_u8; ROWS * APART];
        let shape = Strided {
            local: Strides { first: 0, strides: &[APART.cast_signed()] },
            remote: Strides { first: ROWS_AT, strides: &[APART.cast_signed()] },
            element: ROW,
            counts: &[ROWS],
        };
        for _ in 0..self.count {
            match kind {
                "put" => client.put(peer, PLACE, black_box(&[7; 8]))?,
                "get" => client.get(peer, PLACE, black_box(&mut [0; 8]))?,
                "strided" => client.put_strided(peer, black_box(&rows), &shape)?,
                _ => drop(black_box(words.fetch_add(peer, PLACE, 1)?)),
            }
        }
        Ok(())
    }

    fn collective(&self, kind: &str) -> Result<()> {
        let team = self.client.team();
        for _ in 0..self.count {
            match kind {
                "broadcast" => team.broadcast(Rank(0), black_box(&mut [7_u64]))?,
                "reduce-to-all" => team.reduce_to_all(black_box(&mut [1_u64]), ReduceOp::Add)?,
                _ => self.meet()?,
            }
        }
        Ok(())
    }
}
