//! Puts and gets of 1 MB to another rank's segment beside memcpy into and out of the own one.
//! Usage, on 2 ranks: `bench_putget PAIRS`. Prints `KEY MB/S` lines.

use std::hint::black_box;
use std::time::Instant;

use bench::arena::{Arena, Result};
use bench::timing::megabytes_per_second;
use gasnet_ibv::{BarrierFlags, Client, Rank, Seq};
use testkit::report::show;

const BYTES: usize = 1 << 20;
const TIMES: usize = 200;

fn main() -> Result<()> {
    let pairs: usize = std::env::args().nth(1).unwrap_or_default().parse()?;
    let client = Client::<Seq>::init("bench_putget")?;
    let segment = client.attach_segment(BYTES as u64)?;
    let own = Arena::of(&segment)?;
    client.barrier(0, BarrierFlags::ANONYMOUS)?;
    if client.rank() == Rank(0) {
        measure(&client, &own, pairs)?;
    }
    client.barrier(0, BarrierFlags::ANONYMOUS)?;
    client.exit(0)
}

/// MB/s of [`TIMES`] calls of `work`.
fn speed(mut work: impl FnMut() -> Result<()>) -> Result<f64> {
    let begin = Instant::now();
    for _ in 0..TIMES {
        work()?;
    }
    Ok(megabytes_per_second(begin, TIMES * BYTES))
}

fn measure(client: &Client<Seq>, own: &Arena, pairs: usize) -> Result<()> {
    let from = vec![1_u8; BYTES];
    let mut to = vec![2_u8; BYTES];
    // The first pair makes every page resident.
    for pair in 0..=pairs {
        let mut found = [0.0; 4];
        for step in 0..4 {
            // Half of the pairs begin with the reference.
            let which = if pair % 2 == 0 { step } else { step ^ 1 };
            found[which] = match which {
                0 => speed(|| Ok(client.put(Rank(1), 0, black_box(&from))?)),
                1 => speed(|| {
                    own.copy_in(0, black_box(&from));
                    Ok(())
                }),
                2 => speed(|| Ok(client.get(Rank(1), 0, black_box(&mut to))?)),
                _ => speed(|| {
                    own.copy_out(0, black_box(&mut to));
                    Ok(())
                }),
            }?;
        }
        if pair > 0 {
            let [put, copy_in, get, copy_out] = found;
            show(&format!(
                "put_mbps {put:.1}\ncopy_in_mbps {copy_in:.1}\nget_mbps {get:.1}\ncopy_out_mbps {copy_out:.1}\n"
            ));
        }
    }
    Ok(())
}
