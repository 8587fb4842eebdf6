//! Hand-written loops that start N processes and wait for all, to compare the launcher with. Prints nanoseconds.
//!
//! Usage: `bench_raw fork|spawn|spawn-threads N PROGRAM`

use std::ffi::CString;
use std::io::Write;
use std::process::ExitCode;
use std::time::Instant;

use gasnet_ibv_examples::sys::{fork_child, leave};
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
