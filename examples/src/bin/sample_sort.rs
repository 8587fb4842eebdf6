//! Ranks sort numbers that are spread over them, with collectives alone; then every rank compares
//! its part with that of a serial run.
//!
//! Usage: `sample_sort [NUMBERS]`, numbers per rank

use gasnet_ibv::{BarrierFlags, Client, Error, Rank, ReduceOp, Seq, Team};

fn main() -> Result<(), Error> {
    let client = Client::<Seq>::init("sample_sort")?;
    let count = match std::env::args().nth(1).map(|text| (text.parse::<usize>(), text)) {
        None => 10_000,
        Some((Ok(count), _)) => count,
        Some((_, text)) => {
            report(&client, &format!("{text:?} is not a number of numbers"));
            client.exit(2)
        }
    };
    let (me, size) = (client.rank().0, client.size());
    let part = sort(&client.team(), numbers(me, count))?;
    // Where this part begins in all numbers.
    let mut end = [part.len() as u64];
    client.team().scan(&mut end, ReduceOp::Add)?;
    let [end] = end.map(|end| usize::try_from(end).unwrap_or(usize::MAX));

    let mut serial: Vec<u64> = (0..size).flat_map(|rank| numbers(rank, count)).collect();
    serial.sort_unstable();
    if serial.get(end - part.len()..end) != Some(&part[..]) {
        report(&client, &format!("numbers {} to {end} differ from a serial run", end - part.len()));
        client.exit(1)
    }
    let mut most = [part.len() as u64];
    client.team().reduce_to_one(Rank(0), &mut most, ReduceOp::Max)?;
    if me == 0 {
        let [most] = most;
        print(&format!(
            "{} numbers in order on {size} ranks, at most {most} on one, as in a serial run",
            serial.len()
        ));
    }
    client.barrier(0, BarrierFlags::ANONYMOUS)?;
    client.exit(0)
}

/// Gives this rank its part of all numbers in order, those of lower ranks first.
fn sort(team: &Team<'_, Seq>, mut mine: Vec<u64>) -> Result<Vec<u64>, Error> {
    mine.sort_unstable();
    let borders = borders(team, &mine)?;

    // How many go where, in the order of the ranks, and come from where.
    let size = team.size() as usize;
    let mut ends: Vec<usize> =
        borders.iter().map(|border| mine.partition_point(|number| number < border)).collect();
    ends.push(mine.len());
    let starts = std::iter::once(0).chain(ends.iter().copied());
    let parts: Vec<&[u64]> =
        starts.zip(&ends).filter_map(|(start, end)| mine.get(start..*end)).collect();
    let to_all: Vec<u64> = parts.iter().map(|part| part.len() as u64).collect();
    let mut from_all = vec![0; size];
    team.exchange(&to_all, &mut from_all)?;

    // Blocks of an exchange have one size: that of the largest part, here or anywhere.
    let mut block = [to_all.iter().copied().max().unwrap_or(0)];
    team.reduce_to_all(&mut block, ReduceOp::Max)?;
    let [block] = block.map(|block| usize::try_from(block).unwrap_or(0));
    let padding = |part: &&[u64]| std::iter::repeat_n(0, block - part.len());
    let sent: Vec<u64> =
        parts.iter().flat_map(|part| part.iter().copied().chain(padding(part))).collect();
    let mut come = vec![0; sent.len()];
    team.exchange(&sent, &mut come)?;
    let parts = come.chunks(block.max(1)).zip(from_all);
    let mut part: Vec<u64> = parts
        .flat_map(|(block, len)| block.iter().copied().take(usize::try_from(len).unwrap_or(0)))
        .collect();
    part.sort_unstable();
    Ok(part)
}

/// The least number of every rank but the first, from samples of all.
fn borders(team: &Team<'_, Seq>, sorted: &[u64]) -> Result<Vec<u64>, Error> {
    const SAMPLES: usize = 16;
    let size = team.size() as usize;
    let sample = |at: usize| sorted.get(at * sorted.len() / SAMPLES).copied().unwrap_or(u64::MAX);
    let samples: Vec<u64> = (0..SAMPLES).map(sample).collect();
    let mut all = if team.rank().0 == 0 { vec![0; SAMPLES * size] } else { Vec::new() };
    team.gather(Rank(0), &samples, &mut all)?;
    all.sort_unstable();
    let mut borders: Vec<u64> =
        (1..size).map(|rank| all.get(rank * SAMPLES).copied().unwrap_or(0)).collect();
    team.broadcast(Rank(0), &mut borders)?;
    Ok(borders)
}

/// The numbers that a rank begins with.
fn numbers(rank: u32, count: usize) -> Vec<u64> {
    let number = |index: u64| {
        let mut word = (u64::from(rank) << 32 | index).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        word ^= word >> 29;
        word.wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 12
    };
    (0..count as u64).map(number).collect()
}

fn report(client: &Client<Seq>, text: &str) {
    use std::io::Write;
    let text = format!("sample_sort: {text} (rank {})\n", client.rank());
    let _ = std::io::stderr().write_all(text.as_bytes());
}

#[expect(clippy::print_stdout, reason = "the output of the example")]
fn print(text: &str) {
    println!("{text}");
}
