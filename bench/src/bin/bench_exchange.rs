//! How much memory of a rank the result of an exchange takes. Run it as a job: every rank exchanges
//! 64 bytes, keeps the result, and prints what `/proc/self/smaps` says about the mapping that holds
//! it.
//!
//! With a number as argument: rank 0 prints the microseconds of one exchange, the median of so
//! many; with a second one, of so many bytes of each rank. With `start`: every rank goes through one barrier and one exchange, and prints nothing.

use bootstrap::Error;
use testkit::report::show;

const LEN: usize = 64;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut job = bootstrap::connect(&spawner_mpi::client::PROVIDERS)?;
    let place = job.rank_info();
    let argument = std::env::args().nth(1);
    let len = std::env::args().nth(2).map_or(Ok(LEN), |bytes| bytes.parse())?;
    let mine = vec![u8::try_from(place.rank.0 % 251)?; len];
    if argument.as_deref() == Some("start") {
        job.barrier()?;
        check(&job.exchange(&mine)?, len, place.size)?;
        return Ok(job.fini(0)?);
    }
    if let Some(count) = argument {
        let mut times = Vec::new();
        for round in 0..count.parse::<u32>()?.max(1) {
            let begin = (place.rank.0 == 0).then(std::time::Instant::now);
            let result = job.exchange(&mine)?;
            times.extend(begin.map(|begin| begin.elapsed().as_secs_f64() * 1e6));
            // All of it would take longer than the exchange: on the whole every row is looked at.
            check_row(&result, len, place.size, (round + place.rank.0) % place.size)?;
        }
        check(&job.exchange(&mine)?, len, place.size)?;
        times.sort_by(f64::total_cmp);
        if place.rank.0 == 0 {
            show(&format!("exchange_us {:.1}\n", times[times.len() / 2]));
        }
        return Ok(job.fini(0)?);
    }
    // Twice, because the first reading itself makes the heap larger.
    let _ = private_bytes()?;
    let before = private_bytes()?;
    let result = job.exchange(&mine)?;
    check(&result, len, place.size)?;
    // Everybody has touched all of the result now.
    job.barrier()?;
    let after = private_bytes()?;
    let mapping = mapping_of(result.as_ptr().addr())?;
    let ranks = u64::from(place.size);
    // smaps counts whole KiB and rounds shares down: take what is certain, the resident bytes of a
    // mapping that nobody has a page of for himself, divided by its holders.
    let share = if mapping.private == 0 {
        mapping.proportional.max(mapping.resident / ranks)
    } else {
        mapping.proportional
    };
    show(&format!(
        "resident_bytes {}\nproportional_bytes {share}\nprivate_bytes {}\ngrown_bytes {}\n",
        mapping.resident,
        mapping.private,
        after.saturating_sub(before),
    ));
    // Nobody unmaps before everybody has looked.
    job.barrier()?;
    drop(result);
    Ok(job.fini(0)?)
}

fn check_row(result: &[u8], len: usize, size: u32, rank: u32) -> Result<(), Error> {
    let row = result.chunks(len.max(1)).nth(rank as usize).unwrap_or_default();
    let good = result.len() == len * size as usize
        && row.len() == len
        && row.iter().all(|byte| u32::from(*byte) == rank % 251);
    if good {
        return Ok(());
    }
    let seen = format!("{} bytes for {size} ranks, or a wrong row of rank {rank}", result.len());
    Err(Error::Protocol { during: "exchange", seen })
}

fn check(result: &[u8], len: usize, size: u32) -> Result<(), Error> {
    let good = result.len() == len * size as usize
        && result
            .chunks(len.max(1))
            .zip(0_u32..)
            .all(|(row, rank)| row.iter().all(|byte| u32::from(*byte) == rank % 251));
    if good {
        return Ok(());
    }
    let seen = format!("{} bytes for {size} ranks, or wrong contents", result.len());
    Err(Error::Protocol { during: "exchange", seen })
}

/// A line `Key:   NUMBER kB`.
fn kilobytes(line: &str) -> Option<(&str, u64)> {
    let (key, value) = line.split_once(':')?;
    let number = value.trim().strip_suffix(" kB")?;
    Some((key, number.parse::<u64>().ok()? * 1024))
}

fn private_bytes() -> std::io::Result<u64> {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup")?;
    let private = |(key, bytes): (&str, u64)| key.starts_with("Private_").then_some(bytes);
    Ok(text.lines().filter_map(kilobytes).filter_map(private).sum())
}

#[derive(Default)]
struct Mapping {
    resident: u64,
    proportional: u64,
    private: u64,
}

/// The mapping that holds `address`.
fn mapping_of(address: usize) -> Result<Mapping, Box<dyn std::error::Error>> {
    let text = std::fs::read_to_string("/proc/self/smaps")?;
    let mut found = None;
    for line in text.lines() {
        let range = line.split(' ').next().and_then(|range| range.split_once('-'));
        let bounds = range.and_then(|(from, to)| {
            Some((usize::from_str_radix(from, 16).ok()?, usize::from_str_radix(to, 16).ok()?))
        });
        match (bounds, kilobytes(line), &mut found) {
            (Some((from, to)), _, None) if (from..to).contains(&address) => {
                found = Some(Mapping::default())
            }
            (Some(_), _, Some(_)) => break,
            (_, Some(("Rss", bytes)), Some(mapping)) => mapping.resident = bytes,
            (_, Some(("Pss", bytes)), Some(mapping)) => mapping.proportional = bytes,
            (_, Some((key, bytes)), Some(mapping)) if key.starts_with("Private_") => {
                mapping.private += bytes
            }
            _ => {}
        }
    }
    found.ok_or_else(|| "the result is in no mapping".into())
}
