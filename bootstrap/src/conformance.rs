//! What every provider must do, as functions that each rank of a job runs.
//!
//! A provider whose ranks are processes runs [`services`] in each of them. A provider whose ranks
//! can be threads of one process hands a way to make jobs to [`check`], which also makes the ranks'
//! calls differ on purpose (each such job ends with a refusal, so every entry of [`MISMATCHES`] and
//! [`HOST_MISMATCHES`] needs a job of its own).

pub mod choice;

use std::fmt::Debug;
use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::frame::MAX_PAYLOAD;
use crate::service::{Bootstrap, Error, HostId, Rank};

/// What was not as it must be: one line with rank, service and what was seen.
pub type Failure = String;

/// Most bytes that the result of one large exchange has, so that big jobs stay quick.
const LARGE_RESULT: usize = 1 << 20;

/// A named group of checks on one rank.
pub type Group = (&'static str, fn(&mut dyn Bootstrap) -> Result<(), Failure>);

/// The checks of the services that leave the job usable, in the order in which all ranks run them.
pub const SERVICES: [Group; 8] = [
    ("place", place),
    ("barriers", barriers),
    ("exchange", exchange),
    ("results that stay", results_stay),
    ("alltoall", alltoall),
    ("broadcast", broadcast),
    ("broadcasts on a host", host_broadcasts),
    ("host memory", host_memory),
];

/// A call that fits on no rank when the second argument is 1 on one rank and 0 on the others.
pub type Mismatch = (&'static str, fn(&mut dyn Bootstrap, usize) -> Result<(), Error>);

/// Calls of the job that do not fit together: on every rank the call must be refused, on whatever
/// hosts the ranks are. For jobs of 2 ranks or more.
pub const MISMATCHES: [Mismatch; 6] = [
    ("another service", |b, odd| if odd == 1 { b.barrier() } else { b.exchange(&[1]).map(drop) }),
    ("length of an exchange", |b, odd| b.exchange(&vec![1; 8 + odd]).map(drop)),
    ("length of a large exchange", |b, odd| b.exchange(&vec![1; 2 * MAX_PAYLOAD + odd]).map(drop)),
    ("length of rows", |b, odd| {
        let rows = vec![0; (4 + odd) * b.rank_info().size as usize];
        b.alltoall(&rows, 4 + odd).map(drop)
    }),
    ("root", |b, odd| b.broadcast(Rank(u32::from(odd == 1)), &mut [0; 4])),
    ("length of a broadcast", |b, odd| b.broadcast(Rank(0), &mut vec![0; 4 + odd])),
];

/// As [`MISMATCHES`], for calls that do not leave a host. For jobs of 2 ranks or more on one host.
pub const HOST_MISMATCHES: [Mismatch; 2] = [
    ("root on a host", |b, odd| b.host_broadcast(Rank(u32::from(odd == 1)), &mut [0; 4])),
    ("host memory against the job", |b, odd| {
        if odd == 1 { b.barrier() } else { b.host_memory(64).map(drop) }
    }),
];

/// Runs [`SERVICES`] on this rank, with [`Bootstrap::cleanup`] between them, and ends the job.
/// Collective.
///
/// # Errors
/// The first check that fails.
pub fn services(b: &mut dyn Bootstrap) -> Result<(), Failure> {
    for (name, group) in SERVICES {
        group(b).map_err(|failure| format!("{name}: {failure}"))?;
        b.cleanup();
    }
    b.cleanup();
    b.fini(0).map_err(|error| format!("fini: {error}"))
}

/// Runs everything on jobs whose ranks are threads; `job` makes a new one each time.
///
/// # Errors
/// The first check that fails on some rank.
pub fn check(mut job: impl FnMut() -> Vec<Box<dyn Bootstrap>>) -> Result<(), Failure> {
    run(job(), |b| services(b))?;
    let probe = job();
    let place = probe.first().map(|b| b.rank_info());
    run(probe, |b| b.fini(0).map_err(|error| error.to_string()))?;
    let Some(place) = place.filter(|place| place.size > 1) else { return Ok(()) };
    let on_host = if place.hosts == 1 { &HOST_MISMATCHES[..] } else { &[] };
    for (name, call) in MISMATCHES.iter().chain(on_host) {
        run(job(), |b| {
            let last = b.rank_info().rank.0 + 1 == b.rank_info().size;
            refused(call(b, usize::from(last)))
                .map_err(|failure| format!("mismatch, {name}: {failure}"))
        })?;
    }
    Ok(())
}

/// Runs `rank` on a thread for each member of a job and waits for all of them.
///
/// # Errors
/// The failure of the lowest rank that failed, with its number.
pub fn run(
    job: Vec<Box<dyn Bootstrap>>,
    rank: impl Fn(&mut dyn Bootstrap) -> Result<(), Failure> + Sync,
) -> Result<(), Failure> {
    let rank = &rank;
    std::thread::scope(|scope| {
        let start = |mut member: Box<dyn Bootstrap>| {
            scope.spawn(move || {
                let number = member.rank_info().rank;
                rank(member.as_mut()).map_err(|failure| format!("rank {number}: {failure}"))
            })
        };
        let threads: Vec<_> = job.into_iter().map(start).collect();
        let ends = threads
            .into_iter()
            .map(|t| t.join().unwrap_or_else(|_| Err("a rank panicked".to_owned())));
        ends.collect::<Vec<_>>().into_iter().collect()
    })
}

fn refused(outcome: Result<(), Error>) -> Result<(), Failure> {
    match outcome {
        Err(Error::Refused { reason, .. }) if !reason.is_empty() => Ok(()),
        other => Err(format!("{other:?} instead of a refusal")),
    }
}

fn same<T: PartialEq + Debug>(what: &str, seen: &T, expected: &T) -> Result<(), Failure> {
    if seen == expected { Ok(()) } else { Err(format!("{what}: {seen:?} instead of {expected:?}")) }
}

/// As [`same`] for long data: names the first place that differs.
fn same_bytes(what: &str, seen: &[u8], expected: &[u8]) -> Result<(), Failure> {
    same(&format!("{what}: length"), &seen.len(), &expected.len())?;
    match seen.iter().zip(expected).position(|(a, b)| a != b) {
        None => Ok(()),
        Some(at) => Err(format!("{what}: byte {at} is {} instead of {}", seen[at], expected[at])),
    }
}

fn call<T>(outcome: Result<T, Error>) -> Result<T, Failure> {
    outcome.map_err(|error| error.to_string())
}

/// Bytes that depend on who made them, for whom, and where they stand.
fn pattern(from: u32, to: u32, len: usize) -> Vec<u8> {
    let start = from.wrapping_mul(31).wrapping_add(to.wrapping_mul(17));
    let byte = |i: u32| start.wrapping_add(i.wrapping_mul(7)).wrapping_add(i >> 8).to_le_bytes()[0];
    (0u32..).take(len).map(byte).collect()
}

/// 0 to 32 bytes, around one frame, and several frames where the result stays moderate.
fn lengths(size: u32) -> impl Iterator<Item = usize> {
    let large = [MAX_PAYLOAD - 1, MAX_PAYLOAD, MAX_PAYLOAD + 1, 3 * MAX_PAYLOAD + 5];
    (0..=32).chain(large).filter(move |len| len * size as usize <= LARGE_RESULT || *len <= 32)
}

fn place(b: &mut dyn Bootstrap) -> Result<(), Failure> {
    let place = b.rank_info();
    same("place by the node's shared memory", &b.node_shm().rank_info(place.rank), &Some(place))?;
    same("size in the node's shared memory", &b.node_shm().size(), &place.size)?;
    same("exit decision", &b.node_shm().exit_decision(), &None)?;
    let all = call(b.exchange(&place.host.0.to_le_bytes()))?;
    for (rank, word) in (0u32..).zip(all.chunks_exact(4)) {
        let seen = b.node_shm().host_of(Rank(rank)).map(|HostId(id)| id.to_le_bytes().to_vec());
        same("host of a rank", &seen, &Some(word.to_vec()))?;
    }
    Ok(())
}

/// Every rank writes its round before each barrier; after it nobody may be behind or more than one
/// round ahead.
fn barriers(b: &mut dyn Bootstrap) -> Result<(), Failure> {
    let place = b.rank_info();
    let memory = File::from(call(b.host_memory(place.locals as usize * 4))?);
    for round in 1..=50u32 {
        let os = |error: std::io::Error| format!("shared memory: {error}");
        memory.write_all_at(&round.to_le_bytes(), u64::from(place.local) * 4).map_err(os)?;
        call(b.barrier())?;
        for local in 0..place.locals {
            let mut word = [0; 4];
            memory.read_exact_at(&mut word, u64::from(local) * 4).map_err(os)?;
            let seen = u32::from_le_bytes(word);
            if seen != round && seen != round + 1 {
                return Err(format!(
                    "after barrier {round}, rank {local} of the host is in round {seen}"
                ));
            }
        }
    }
    Ok(())
}

fn exchange(b: &mut dyn Bootstrap) -> Result<(), Failure> {
    let place = b.rank_info();
    for len in lengths(place.size) {
        // In place: the caller's buffer is free for other use at once.
        let mut mine = pattern(place.rank.0, 0, len);
        let all = call(b.exchange(&mine))?;
        mine.fill(0xEE);
        let expected: Vec<u8> = (0..place.size).flat_map(|rank| pattern(rank, 0, len)).collect();
        same_bytes(&format!("exchange of {len} bytes"), &all, &expected)?;
    }
    Ok(())
}

/// Results are independent of each other, of later calls, of cleanup, and of the connection's other
/// users.
fn results_stay(b: &mut dyn Bootstrap) -> Result<(), Failure> {
    let place = b.rank_info();
    let first = call(b.exchange(&pattern(place.rank.0, 1, 24)))?;
    let copy = first.clone();
    b.cleanup();
    let again = call(b.exchange(&first[..24]))?;
    call(b.barrier())?;
    let expected =
        |salt| (0..place.size).flat_map(|rank| pattern(rank, salt, 24)).collect::<Vec<u8>>();
    same_bytes("earlier result", &first, &expected(1))?;
    drop(first);
    same_bytes("copy of a result", &copy, &expected(1))?;
    let repeated = pattern(0, 1, 24).repeat(place.size as usize);
    same_bytes("result of giving part of a result", &again, &repeated)
}

fn alltoall(b: &mut dyn Bootstrap) -> Result<(), Failure> {
    let (me, size) = (b.rank_info().rank.0, b.rank_info().size);
    for len in lengths(size * size) {
        let rows: Vec<u8> = (0..size).flat_map(|to| pattern(me, to, len)).collect();
        let got = call(b.alltoall(&rows, len))?;
        let expected: Vec<u8> = (0..size).flat_map(|from| pattern(from, me, len)).collect();
        same_bytes(&format!("alltoall of {len} bytes"), &got, &expected)?;
    }
    Ok(())
}

fn broadcast(b: &mut dyn Bootstrap) -> Result<(), Failure> {
    let (me, size) = (b.rank_info().rank.0, b.rank_info().size);
    for (round, len) in (0u32..).zip(lengths(1)) {
        let root = round % size;
        let expected = pattern(root, round, len);
        let mut data = if me == root { expected.clone() } else { vec![0xEE; len] };
        call(b.broadcast(Rank(root), &mut data))?;
        same_bytes(&format!("broadcast of {len} bytes from {root}"), &data, &expected)?;
    }
    Ok(())
}

/// Each host has its own root, which moves from call to call.
fn host_broadcasts(b: &mut dyn Bootstrap) -> Result<(), Failure> {
    let place = b.rank_info();
    for (round, len) in (0u32..).zip(lengths(1)) {
        let root = b.node_shm().local_rank(round % place.locals);
        let expected = pattern(root.0, round, len);
        let give = if place.rank == root { expected.clone() } else { vec![0xEE; len] };
        let mut data = give.clone();
        call(b.host_broadcast(root, &mut data))?;
        same_bytes(&format!("host broadcast of {len} bytes from {root}"), &data, &expected)?;
        let mut data = give;
        call(b.neighbourhood_broadcast(root, &mut data))?;
        same_bytes(
            &format!("neighbourhood broadcast of {len} bytes from {root}"),
            &data,
            &expected,
        )?;
    }
    Ok(())
}

fn host_memory(b: &mut dyn Bootstrap) -> Result<(), Failure> {
    let place = b.rank_info();
    let os = |error: std::io::Error| format!("shared memory: {error}");
    // More than one word of length; pages are taken only where they are touched.
    let large = if size_of::<usize>() == 8 { 5 << 30 } else { 1 << 20 };
    for len in [place.locals as usize * 8, 4096, large] {
        let len = len.max(place.locals as usize * 8);
        let memory = File::from(call(b.host_memory(len))?);
        same("length of host memory", &memory.metadata().map_err(os)?.len(), &(len as u64))?;
        let at = |local: u32| len as u64 - u64::from(place.locals - local) * 8;
        let mut word = [0xEE; 8];
        memory.read_exact_at(&mut word, at(place.local)).map_err(os)?;
        same("new host memory", &word, &[0; 8])?;
        let mark = |rank: Rank| ((u64::from(rank.0) + 1) * 1000 + len as u64 % 97).to_le_bytes();
        memory.write_all_at(&mark(place.rank), at(place.local)).map_err(os)?;
        call(b.barrier())?;
        for local in 0..place.locals {
            memory.read_exact_at(&mut word, at(local)).map_err(os)?;
            same("word of another rank", &word, &mark(b.node_shm().local_rank(local)))?;
        }
    }
    Ok(())
}
