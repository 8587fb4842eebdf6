//! The end of many programs: all meet in a barrier, then all leave but rank 0, which still has work
//! that needs nobody. Usage: `latecomer MILLISECONDS CODE`. Rank 0 computes outside the library for
//! so long, prints `result`, and exits with the code; the others return from `main`.

use std::hint::black_box;
use std::io::Write;
use std::time::{Duration, Instant};

use gasnet_ibv::{BarrierFlags, Client, Rank, Seq};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let mut number = || words.next().ok_or("usage: latecomer MILLISECONDS CODE");
    let (busy, code) = (Duration::from_millis(number()?.parse()?), number()?.parse()?);
    let client = Client::<Seq>::init("LATECOMER")?;
    client.barrier(0, BarrierFlags::ANONYMOUS)?;
    if client.rank() == Rank(0) {
        writeln!(std::io::stdout(), "working")?;
        let begin = Instant::now();
        while begin.elapsed() < busy {
            black_box(begin);
        }
        writeln!(std::io::stdout(), "result")?;
        client.exit(code);
    }
    Ok(())
}
