//! Hand-written references without the conduit or the launcher. Prints one number: nanoseconds per operation.
//!
//! Usage: `bench_raw pingpong|barrier N|memcpy BYTES|stream BYTES|fork N PROGRAM|spawn N PROGRAM|spawn-threads N PROGRAM`

use std::ffi::CString;
use std::io::Write;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::Instant;

use gasnet_ibv_examples::sys::{SharedMemory, fork_child, leave, pin, spin_until};
use nix::spawn::{PosixSpawnAttr, PosixSpawnFileActions, posix_spawn};
use nix::sys::wait::waitpid;
use nix::unistd::{Pid, execv};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let outcome = match words[..] {
        ["pingpong"] => pingpong(),
        ["barrier", ranks] => number(ranks).and_then(barrier),
        ["memcpy", bytes] => number(bytes).and_then(memcpy),
        ["stream", bytes] => number(bytes).and_then(stream),
        ["fork", count, program] => number(count).and_then(|count| spawn(count, program, forked)),
        ["spawn", count, program] => number(count).and_then(|count| spawn(count, program, spawned)),
        ["spawn-threads", count, program] => {
            number(count).and_then(|count| spawn_threads(count, program))
        }
        _ => Err("see the head of bench_raw.rs for the usage".into()),
    };
    match outcome {
        Ok(nanos) => match writeln!(std::io::stdout(), "{nanos:.1}") {
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

#[expect(clippy::cast_precision_loss, reason = "a quotient for people")]
fn per(begin: Instant, operations: usize) -> f64 {
    begin.elapsed().as_nanos() as f64 / operations as f64
}

fn wait_all(children: &[Pid]) -> Result<()> {
    for child in children {
        waitpid(*child, None)?;
    }
    Ok(())
}

/// Round trip of one cache line between two processes on two processors.
fn pingpong() -> Result<f64> {
    const ROUNDS: u64 = 500_000;
    let memory = SharedMemory::new(4096)?;
    let ball = memory.word(0);
    let child = fork_child(|| {
        if pin(1).is_err() {
            leave(1);
        }
        for round in 0..ROUNDS {
            spin_until(ball, 2 * round + 1);
            ball.store(2 * round + 2, Ordering::Release);
        }
    })?;
    pin(0)?;
    let begin = Instant::now();
    for round in 0..ROUNDS {
        ball.store(2 * round + 1, Ordering::Release);
        spin_until(ball, 2 * round + 2);
    }
    let nanos = per(begin, usize::try_from(ROUNDS)?);
    wait_all(&[child])?;
    Ok(nanos)
}

/// Barrier of `ranks` processes: a counter, a generation, and a yield while waiting.
fn barrier(ranks: usize) -> Result<f64> {
    let rounds = if ranks <= 2 { 200_000 } else { 20_000 / ranks.min(100) };
    let memory = SharedMemory::new(4096)?;
    let (arrived, generation) = (memory.word(0), memory.word(1));
    let last = ranks as u64 - 1;
    let enter = || {
        let mine = generation.load(Ordering::Acquire);
        if arrived.fetch_add(1, Ordering::AcqRel) == last {
            arrived.store(0, Ordering::Relaxed);
            generation.store(mine + 1, Ordering::Release);
        } else {
            while generation.load(Ordering::Acquire) == mine {
                let _ = nix::sched::sched_yield();
            }
        }
    };
    let mut children = Vec::with_capacity(ranks - 1);
    for _ in 1..ranks {
        children.push(fork_child(|| (0..rounds + 10).for_each(|_| enter()))?);
    }
    (0..10).for_each(|_| enter());
    let begin = Instant::now();
    (0..rounds).for_each(|_| enter());
    let nanos = per(begin, rounds);
    wait_all(&children)?;
    Ok(nanos)
}

/// Copies of `bytes` from private to shared memory, always the same two places.
fn memcpy(bytes: usize) -> Result<f64> {
    let memory = SharedMemory::new(bytes)?;
    let from = vec![1_u8; bytes];
    let rounds = ((4_usize << 30) / bytes).clamp(100, 2_000_000);
    memory.copy_in(0, &from);
    let begin = Instant::now();
    for _ in 0..rounds {
        memory.copy_in(0, std::hint::black_box(&from));
    }
    Ok(per(begin, rounds))
}

/// Messages of `bytes` through a ring of 64 slots from one pinned process to another: copy in, flag, copy out, flag.
fn stream(bytes: usize) -> Result<f64> {
    const SLOTS: usize = 64;
    const MESSAGES: usize = 1_000_000;
    let stride = bytes.next_multiple_of(128);
    let memory = SharedMemory::new(256 + SLOTS * stride)?;
    let (sent, taken) = (memory.word(0), memory.word(1));
    let place = |message: usize| 256 + message % SLOTS * stride;
    let child = fork_child(|| {
        if pin(1).is_err() {
            leave(1);
        }
        let mut to = vec![0; bytes];
        for message in 0..MESSAGES {
            spin_until(sent, message as u64 + 1);
            memory.copy_out(place(message), &mut to);
            std::hint::black_box(&to);
            taken.store(message as u64 + 1, Ordering::Release);
        }
    })?;
    pin(0)?;
    let from = vec![1; bytes];
    let begin = Instant::now();
    for message in 0..MESSAGES {
        spin_until(taken, (message as u64 + 1).saturating_sub(SLOTS as u64));
        memory.copy_in(place(message), std::hint::black_box(&from));
        sent.store(message as u64 + 1, Ordering::Release);
    }
    spin_until(taken, MESSAGES as u64);
    let nanos = per(begin, MESSAGES);
    wait_all(&[child])?;
    Ok(nanos)
}

fn forked(program: &CString) -> Result<Pid> {
    Ok(fork_child(|| {
        let _ = execv(program, &[program]);
        leave(127);
    })?)
}

fn spawned(program: &CString) -> Result<Pid> {
    let (actions, attributes) = (PosixSpawnFileActions::init()?, PosixSpawnAttr::init()?);
    let environment: Vec<CString> = std::env::vars_os()
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
fn spawn(count: usize, program: &str, start: fn(&CString) -> Result<Pid>) -> Result<f64> {
    let program = CString::new(program)?;
    let begin = Instant::now();
    let children: Vec<Pid> = (0..count).map(|_| start(&program)).collect::<Result<_>>()?;
    wait_all(&children)?;
    Ok(per(begin, 1))
}

/// As [`spawn`] by posix_spawn, with one thread per processor.
fn spawn_threads(count: usize, program: &str) -> Result<f64> {
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
    if good { Ok(per(begin, 1)) } else { Err("a process could not be started".into()) }
}
