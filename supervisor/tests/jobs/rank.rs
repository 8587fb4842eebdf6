//! Programs that the tests run as ranks: `jobs rank NAME [words]`.

use std::io::Write;
use std::time::Duration;

use bootstrap::frame::{Frame, Kind};
use bootstrap::{Bootstrap, ExitPath, conformance};

type Outcome = Result<i32, Box<dyn std::error::Error>>;

fn say(text: &str) {
    let mut out = std::io::stdout();
    let _ = writeln!(out, "{text}");
    let _ = out.flush();
}

fn first(b: &dyn Bootstrap) -> bool {
    b.rank_info().rank.0 == 0
}

/// Waits for the exit decision as the conduit's waits do, then leaves with its code.
fn until_decision(b: &mut dyn Bootstrap) -> Outcome {
    let place = b.rank_info();
    loop {
        if let Some(decision) = b.node_shm().exit_decision() {
            b.node_shm().slot(place.local).claim_ack(bootstrap::node_shm::Ack::Rank);
            b.exit_notifier().fini(decision.code);
            return Ok(decision.code);
        }
        b.node_shm()
            .slot(place.local)
            .sleep(Duration::from_secs(60), || b.node_shm().exit_decision().is_some());
    }
}

fn spin() -> ! {
    loop {
        std::thread::sleep(Duration::from_secs(60));
    }
}

fn garbage(bytes: &[u8]) -> Outcome {
    let b = bootstrap::connect(&bootstrap::PROVIDERS)?;
    if !first(&*b) {
        spin();
    }
    let fd: i32 = settings::Env::from_process()
        .text("GASNETRUN_AGENT_FD")
        .ok_or("GASNETRUN_AGENT_FD is not set")?
        .parse()?;
    nix::sys::socket::send(fd, bytes, nix::sys::socket::MsgFlags::empty())?;
    spin()
}

fn act(name: &str, words: &[String]) -> Outcome {
    let number = |at: usize| -> Result<i32, Box<dyn std::error::Error>> {
        Ok(words.get(at).ok_or("a number is missing")?.parse()?)
    };
    match name {
        "services" => {
            let mut b = bootstrap::connect(&bootstrap::PROVIDERS)?;
            conformance::services(&mut *b)?;
            say("conforms");
            Ok(0)
        }
        "mismatch" => {
            let mut b = bootstrap::connect(&bootstrap::PROVIDERS)?;
            b.barrier()?;
            let refused = if first(&*b) { b.barrier().err() } else { b.exchange(b"x").err() };
            say(&format!("refused: {}", refused.ok_or("the call went through")?));
            Ok(0)
        }
        // Every rank exits with the first word plus its rank, as the conduit's collective exit
        // does.
        "collective" => {
            let mut b = bootstrap::connect(&bootstrap::PROVIDERS)?;
            let code = number(0)? + i32::try_from(b.rank_info().rank.0)?;
            b.barrier()?;
            b.exit_notifier().exiting(code, ExitPath::Explicit);
            let most = number(0)? + i32::try_from(b.rank_info().size)? - 1;
            b.fini(most)?;
            Ok(most)
        }
        "non-collective" => {
            let mut b = bootstrap::connect(&bootstrap::PROVIDERS)?;
            b.barrier()?;
            if first(&*b) {
                b.exit_notifier().exiting(number(0)?, ExitPath::Explicit);
            }
            until_decision(&mut *b)
        }
        // Rank 0 leaves without a word to the others, who never look.
        "non-collective-spin" => {
            let mut b = bootstrap::connect(&bootstrap::PROVIDERS)?;
            b.barrier()?;
            if !first(&*b) {
                spin();
            }
            b.exit_notifier().exiting(number(0)?, ExitPath::Hook);
            until_decision(&mut *b)
        }
        "no-fini" => {
            let mut b = bootstrap::connect(&bootstrap::PROVIDERS)?;
            b.barrier()?;
            if first(&*b) { Ok(0) } else { spin() }
        }
        "before-hello" => {
            if settings::Env::from_process()
                .text("GASNETRUN_RANK")
                .ok_or("GASNETRUN_RANK is not set")?
                == "0"
            {
                return Ok(0);
            }
            let mut b = bootstrap::connect(&bootstrap::PROVIDERS)?;
            b.barrier()?;
            Err("the barrier completed".into())
        }
        "abort" => {
            let mut b = bootstrap::connect(&bootstrap::PROVIDERS)?;
            b.barrier()?;
            if first(&*b) { b.abort(number(0)?) } else { spin() }
        }
        "crash" => {
            let mut b = bootstrap::connect(&bootstrap::PROVIDERS)?;
            b.barrier()?;
            if first(&*b) {
                nix::sys::signal::raise(nix::sys::signal::Signal::SIGKILL)?;
            }
            spin()
        }
        "garbage" => garbage(b"this is not a frame, and long enough to have a header of one"),
        "version" => {
            let mut header = Frame::bare(Kind::Barrier, 1, 0, 0).header();
            header[2] = 77;
            garbage(&header)
        }
        "foreign-rank" => garbage(&Frame::bare(Kind::Barrier, 1, 99, 0).header()),
        "other-name" => garbage(&Frame::bare(Kind::Exiting, 0, 1, 5).header()),
        "hello-twice" => {
            let mut b = bootstrap::connect(&bootstrap::PROVIDERS)?;
            let again = bootstrap::connect(&bootstrap::PROVIDERS)
                .err()
                .ok_or("a second Hello was accepted")?;
            say(&format!("again: {again}"));
            b.fini(0)?;
            Ok(0)
        }
        other => Err(format!("no rank program {other}").into()),
    }
}

/// Runs a rank program and ends the process with its code.
#[expect(clippy::disallowed_methods, reason = "the process is a rank, not a test")]
pub(crate) fn main(words: &[String]) -> ! {
    let outcome = words
        .split_first()
        .ok_or_else(|| "no rank program".into())
        .and_then(|(name, rest)| act(name, rest));
    let code = outcome.unwrap_or_else(|error| {
        eprintln!("rank program failed: {error}");
        99
    });
    std::process::exit(code)
}
