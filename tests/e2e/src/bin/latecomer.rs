//! The end of many programs: all meet in a barrier, then all leave but rank 0, which still has work
//! that needs nobody. Usage: `latecomer MILLISECONDS CODE`. Rank 0 computes outside the library for
//! so long, prints `result`, and exits with the code; the others return from `main`.
//!
//! `latecomer MILLISECONDS CODE stopped`: for so long rank 0 gets no processor, and that begins
//! while it waits in the barrier. When it goes on, the others have left and the barrier is
//! complete. All ranks run on one host.
//!
//! `latecomer MILLISECONDS CODE lines`: the result is 30 000 lines, more than the launcher and
//! pipes keep.

use std::hint::black_box;
use std::io::Write;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

use gasnet_ibv::{BarrierFlags, Client, Entry, Flags, HandlerIndex, Rank, Seq};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> Outcome<()> {
    let mut words = std::env::args().skip(1);
    let mut number = || words.next().ok_or("usage: latecomer MILLISECONDS CODE [stopped | lines]");
    let (busy, code) = (Duration::from_millis(number()?.parse()?), number()?.parse()?);
    let client = Client::<Seq>::init("LATECOMER")?;
    let how = words.next();
    let stopped = how.as_deref() == Some("stopped");
    if stopped {
        stop_first(&client, busy)?;
    }
    client.barrier(0, BarrierFlags::ANONYMOUS)?;
    if client.rank() == Rank(0) {
        writeln!(std::io::stdout(), "working")?;
        let begin = Instant::now();
        while !stopped && begin.elapsed() < busy {
            black_box(begin);
        }
        // Calls of the library that need nobody go on as before.
        client.poll()?;
        let lines = if how.as_deref() == Some("lines") { 30_000 } else { 1 };
        for _ in 0..lines {
            writeln!(std::io::stdout(), "result, a line of the usual length of one")?;
        }
        client.exit(code);
    }
    Ok(())
}

/// Returns on the last rank when rank 0, which waits for it in the next barrier, is stopped.
fn stop_first(client: &Client<Seq>, time: Duration) -> Outcome<()> {
    let pid = Arc::new(AtomicI32::new(0));
    let seen = Arc::clone(&pid);
    let take = move |_: &gasnet_ibv::Token<'_, Seq>, args: &[i32]| {
        seen.store(args[0], Ordering::SeqCst);
    };
    client.endpoint().register(&mut [Entry::short("pid", 1, take).at(200)])?;
    client.barrier(0, BarrierFlags::ANONYMOUS)?;
    let last = Rank(client.size() - 1);
    if client.rank() == Rank(0) {
        let mine = std::process::id().cast_signed();
        let _sent = client.team().request_short(last, HandlerIndex(200), &[mine], Flags::NONE)?;
    }
    if client.rank() == last {
        client.block_until(|| pid.load(Ordering::SeqCst) != 0)?;
        let first = pid.load(Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(100));
        kill(Pid::from_raw(first), Signal::SIGSTOP)?;
        let script = format!("sleep {}; kill -CONT {first}", time.as_secs_f64());
        Command::new("sh").args(["-c", &script]).spawn()?;
    }
    Ok(())
}
