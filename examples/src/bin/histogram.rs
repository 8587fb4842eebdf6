//! Ranks count values into one histogram whose bins are spread over all of them, by atomic adds
//! without waiting for each; then every rank compares its bins with what a serial run counts.
//!
//! Usage: `histogram [VALUES]`, values per rank

use gasnet_ibv::{AtomicOp, AtomicOps, BarrierFlags, Client, Error, Flags, Operations, Rank, Seq};

const BINS: u64 = 64;
const PAGE: u64 = 4096;

fn main() -> Result<(), Error> {
    let client = Client::<Seq>::init("histogram")?;
    let values = match std::env::args().nth(1).map(|text| (text.parse::<u64>(), text)) {
        None => 10_000,
        Some((Ok(values), _)) => values,
        Some((_, text)) => {
            report(&client, &format!("{text:?} is not a number of values"));
            client.exit(2)
        }
    };
    // Bin b is word b / size of rank b % size. A fresh segment is zero.
    let segment = client.attach_segment(PAGE)?;
    let (me, size) = (u64::from(client.rank().0), u64::from(client.size()));
    let place = |bin: u64| (Rank(u32::try_from(bin % size).unwrap_or(0)), bin / size * 8);
    let team = client.team();
    let bins = team.atomic_domain::<u64>(AtomicOps::ADD | AtomicOps::GET)?;

    client.scope(|scope| {
        for index in 0..values {
            let at = place(bin_of(me, index));
            let _sent = scope.atomic_nbi(&bins, at, AtomicOp::Add, [1, 0], Flags::NONE)?;
        }
        scope.nbi_wait(Operations::RMW)
    })??;
    client.barrier(0, BarrierFlags::ANONYMOUS)?;

    let mut serial = vec![0_u64; 64];
    for (rank, index) in (0..size).flat_map(|rank| (0..values).map(move |index| (rank, index))) {
        if let Some(count) =
            usize::try_from(bin_of(rank, index)).ok().and_then(|bin| serial.get_mut(bin))
        {
            *count += 1;
        }
    }
    for (bin, expected) in (0..BINS).zip(serial) {
        let (rank, offset) = place(bin);
        if rank != client.rank() {
            continue;
        }
        let got = segment.atomic_u64(offset)?.load(std::sync::atomic::Ordering::Relaxed);
        if got != expected {
            report(&client, &format!("bin {bin} has {got} values, a serial run counts {expected}"));
            client.exit(1)
        }
    }
    client.barrier(0, BarrierFlags::ANONYMOUS)?;
    if me == 0 {
        let total = (0..BINS).map(|bin| {
            let (rank, offset) = place(bin);
            bins.get(rank, offset)
        });
        let total = total.sum::<Result<u64, Error>>()?;
        print(&format!("{total} values in {BINS} bins of {size} ranks, as in a serial run"));
    }
    client.barrier(0, BarrierFlags::ANONYMOUS)?;
    client.exit(0)
}

/// The bin of a value, mostly a low one.
const fn bin_of(rank: u64, index: u64) -> u64 {
    let mut word = (rank << 32 | index).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    word ^= word >> 29;
    word = word.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (word >> 58) & (word >> 40)
}

fn report(client: &Client<Seq>, text: &str) {
    use std::io::Write;
    let text = format!("histogram: {text} (rank {})\n", client.rank());
    let _ = std::io::stderr().write_all(text.as_bytes());
}

#[expect(clippy::print_stdout, reason = "the output of the example")]
fn print(text: &str) {
    println!("{text}");
}
