//! Hand-written loops to compare the launcher and its services with. Prints nanoseconds.
//!
//! Usage: `bench_raw fork|spawn|spawn-threads N PROGRAM`: starts N processes and waits for all.
//! `bench_raw trip COMMAND...`: the median round trip of 64 bytes through the standard input and
//! output of a command that gives back what it gets. `bench_raw wake GROUPS N`: a barrier of GROUPS
//! times N processes, one futex for each group: what their wake-ups cost.

use std::ffi::CString;
use std::io::{Read, Write};
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use bench::sys::{fork_child, futex_wait, futex_wake_all, leave, shared_lines};
use nix::spawn::{PosixSpawnAttr, PosixSpawnFileActions, posix_spawn};
use nix::sys::wait::waitpid;
use nix::unistd::{Pid, execv};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let outcome = match words[..] {
        ["fork", count, program] => number(count).and_then(|count| spawn(count, program, forked)),
        ["spawn", count, program] => number(count).and_then(|count| spawn(count, program, spawned)),
        ["spawn-threads", count, program] => {
            number(count).and_then(|count| spawn_threads(count, program))
        }
        ["trip", program, ref arguments @ ..] => trip(program, arguments),
        ["wake", groups, count] => number(groups).and_then(|groups| wake(groups, number(count)?)),
        _ => Err("see the head of bench_raw.rs for the usage".into()),
    };
    match outcome {
        Ok(nanos) => match writeln!(std::io::stdout(), "{nanos}") {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        },
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "bench_raw: {error}");
            ExitCode::FAILURE
        }
    }
}

fn number(text: &str) -> Result<usize> {
    match text.parse() {
        Ok(number) if number > 0 => Ok(number),
        _ => Err(format!("{text:?} is not a positive number").into()),
    }
}

const WARM: usize = 20;
const ROUNDS: usize = 300;

fn median(mut times: Vec<u128>) -> u128 {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or(0)
}

fn trip(program: &str, arguments: &[&str]) -> Result<u128> {
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let (mut to, mut from) = match (child.stdin.take(), child.stdout.take()) {
        (Some(to), Some(from)) => (to, from),
        _ => return Err("no pipes".into()),
    };
    let mut bytes = [7; 64];
    let mut times = Vec::new();
    for round in 0..WARM + ROUNDS {
        let begin = Instant::now();
        to.write_all(&bytes)?;
        from.read_exact(&mut bytes)?;
        if round >= WARM {
            times.push(begin.elapsed().as_nanos());
        }
    }
    drop(to);
    child.wait()?;
    Ok(median(times))
}

/// Words of [`wake`]: arrivals at a group, its rounds; at last the groups that have arrived.
fn wake(groups: usize, count: usize) -> Result<u128> {
    let words = shared_lines(2 * groups + 1)?;
    let (group_of, all) = words.split_at(2 * groups);
    let enter = |group: usize| {
        let (arrived, rounds) = (&group_of[2 * group].0, &group_of[2 * group + 1].0);
        let seen = rounds.load(Ordering::SeqCst);
        let last = |word: &AtomicU32, of: usize| {
            let last = word.fetch_add(1, Ordering::SeqCst) as usize + 1 == of;
            if last {
                word.store(0, Ordering::SeqCst);
            }
            last
        };
        if last(arrived, count) && last(&all[0].0, groups) {
            for group in group_of.chunks(2) {
                group[1].0.fetch_add(1, Ordering::SeqCst);
                futex_wake_all(&group[1].0);
            }
        }
        while rounds.load(Ordering::SeqCst) == seen {
            futex_wait(rounds, seen);
        }
    };
    let mut children = Vec::new();
    for number in 1..groups * count {
        children.push(fork_child(|| (0..WARM + ROUNDS).for_each(|_| enter(number % groups)))?);
    }
    let mut times = Vec::new();
    for round in 0..WARM + ROUNDS {
        let begin = Instant::now();
        enter(0);
        if round >= WARM {
            times.push(begin.elapsed().as_nanos());
        }
    }
    wait_all(&children)?;
    Ok(median(times))
}

fn wait_all(children: &[Pid]) -> Result<()> {
    for child in children {
        waitpid(*child, None)?;
    }
    Ok(())
}

fn forked(program: &CString) -> Result<Pid> {
    Ok(fork_child(|| {
        let _ = execv(program, &[program]);
        leave(127);
    })?)
}

fn spawned(program: &CString) -> Result<Pid> {
    let (actions, attributes) = (PosixSpawnFileActions::init()?, PosixSpawnAttr::init()?);
    let environment: Vec<CString> = settings::Env::from_process()
        .into_iter()
        .filter_map(|(name, value)| {
            let mut word = name.into_encoded_bytes();
            word.push(b'=');
            word.extend(value.into_encoded_bytes());
            CString::new(word).ok()
        })
        .collect();
    Ok(posix_spawn(program.as_c_str(), &actions, &attributes, &[program], &environment)?)
}

/// Starts all, then waits for all. The number is per run of `count`, not per process.
fn spawn(count: usize, program: &str, start: fn(&CString) -> Result<Pid>) -> Result<u128> {
    let program = CString::new(program)?;
    let begin = Instant::now();
    let children: Vec<Pid> = (0..count).map(|_| start(&program)).collect::<Result<_>>()?;
    wait_all(&children)?;
    Ok(begin.elapsed().as_nanos())
}

/// As [`spawn`] by posix_spawn, with one thread per processor.
fn spawn_threads(count: usize, program: &str) -> Result<u128> {
    let threads = std::thread::available_parallelism()?.get();
    let program = CString::new(program)?;
    let begin = Instant::now();
    let good = std::thread::scope(|scope| {
        let start = |thread: usize| {
            let program = &program;
            let mine = (thread..count).step_by(threads).count();
            scope.spawn(move || {
                let children: Vec<Pid> = (0..mine).filter_map(|_| spawned(program).ok()).collect();
                children.len() == mine && wait_all(&children).is_ok()
            })
        };
        let running: Vec<_> = (0..threads).map(start).collect();
        running.into_iter().all(|thread| thread.join().unwrap_or(false))
    });
    if good { Ok(begin.elapsed().as_nanos()) } else { Err("a process could not be started".into()) }
}
