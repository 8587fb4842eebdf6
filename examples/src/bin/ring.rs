//! A token goes around all ranks by Short requests and counts its steps; every rank checks every
//! step.
//!
//! Usage: `ring [LAPS]`

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Instant;

use gasnet_ibv::{BarrierFlags, Client, Entry, Error, Flags, Rank, Role, Seq};

fn main() -> Result<(), Error> {
    let client = Client::<Seq>::init("ring")?;
    let laps = match std::env::args().nth(1).map(|text| (text.parse::<i32>(), text)) {
        None => 100,
        Some((Ok(laps), _)) if laps > 0 => laps,
        Some((_, text)) => {
            report(&client, &format!("ring: {text:?} is not a number of laps"));
            client.exit(2)
        }
    };
    // The last step that this rank was told; -1 before the first.
    let told = Arc::new(AtomicI32::new(-1));
    let seen = Arc::clone(&told);
    let mut table = [Entry::short("step", 1, move |_, args: &[i32]| {
        seen.store(args[0], Ordering::Release);
    })
    .role(Role::Request)];
    client.endpoint().register(&mut table)?;
    let step = table[0].index();
    client.barrier(0, BarrierFlags::ANONYMOUS)?;

    let (rank, size) = (client.rank().0.cast_signed(), client.size().cast_signed());
    let next = Rank((client.rank().0 + 1) % client.size());
    let begin = Instant::now();
    for lap in 0..laps {
        let expected = lap * size + rank;
        if expected > 0 {
            client.block_until(|| told.load(Ordering::Acquire) >= expected)?;
            let got = told.load(Ordering::Acquire);
            if got != expected {
                report(&client, &format!("ring: rank {rank} was told step {got} after {expected}"));
                client.exit(1)
            }
        }
        let _sent = client.team().request_short(next, step, &[expected + 1], Flags::NONE)?;
    }
    if rank == 0 {
        client.block_until(|| told.load(Ordering::Acquire) == laps * size)?;
        let steps = laps * size;
        let each = begin.elapsed().as_secs_f64() * 1e6 / f64::from(steps);
        print(&format!(
            "{laps} laps around {size} ranks: {steps} steps in order, {each:.2} µs each"
        ));
    }
    client.barrier(0, BarrierFlags::ANONYMOUS)?;
    client.exit(0)
}

fn report(client: &Client<Seq>, text: &str) {
    use std::io::Write;
    let text = format!("{text} (rank {})\n", client.rank());
    let _ = std::io::stderr().write_all(text.as_bytes());
}

#[expect(clippy::print_stdout, reason = "the output of the example")]
fn print(text: &str) {
    println!("{text}");
}
