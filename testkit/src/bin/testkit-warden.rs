//! The process between a test and the command it runs. See `testkit::tree`.
//!
//! Usage: `testkit-warden SOCKET-NAME DEADLINE-MS GRACE-MS PROGRAM [ARGUMENT …]`

use std::io::{Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::process::{Command, ExitCode};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::Signal;
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::Pid;
use testkit::process::{self, Process};
use testkit::tree::{End, Word};

/// Bound on clearing up after a command: everything has been sent SIGKILL, so only the kernel is
/// waited for.
const CLEAR_UP: Duration = Duration::from_secs(20);

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            let _ = writeln!(std::io::stderr(), "testkit-warden: {problem}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), String> {
    let mut args = std::env::args_os().skip(1);
    let name = args.next().ok_or("socket name missing")?;
    let mut millis = |what: &str| {
        let number = args.next().and_then(|text| text.to_str()?.parse().ok());
        number.map(Duration::from_millis).ok_or(format!("{what} missing or not a number"))
    };
    let (limit, grace) = (millis("deadline")?, millis("grace")?);
    let program = args.next().ok_or("program missing")?;
    let address = SocketAddr::from_abstract_name(name.as_encoded_bytes())
        .map_err(|error| format!("socket name: {error}"))?;
    let mut control =
        UnixStream::connect_addr(&address).map_err(|error| format!("connect: {error}"))?;
    nix::sys::prctl::set_child_subreaper(true).map_err(|errno| format!("sub-reaper: {errno}"))?;

    let begin = Instant::now();
    let child = match Command::new(&program).args(args).spawn() {
        Ok(child) => child,
        Err(error) => {
            say(&mut control, &Word::Refused(format!("{}: {error}", program.display())));
            return Ok(());
        }
    };
    let pid = i32::try_from(child.id()).map_err(|_| "process id out of range")?;
    close_streams();
    say(&mut control, &Word::Started(pid));

    let end = wait(pid, begin, limit, &control)?;
    let at_ns = testkit::tree::now_ns();
    let nanos = u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let limit = Instant::now() + grace;
    let mut survivors = alive_except(pid);
    while !survivors.is_empty() && Instant::now() < limit {
        std::thread::sleep(Duration::from_millis(1));
        survivors = alive_except(pid);
    }
    if end == End::Deadline {
        survivors.clear();
    }
    let cleared = clear_up();
    say(&mut control, &Word::Ended { end, nanos, at_ns, survivors });
    cleared
}

/// Everything below this process that is alive, but for the command.
fn alive_except(pid: i32) -> Vec<Process> {
    let mut found = Process::descendants(own_pid());
    found.retain(|process| process.pid != pid && !process.is_zombie());
    found
}

fn own_pid() -> i32 {
    nix::unistd::getpid().as_raw()
}

/// Lets the command be the only holder of the three streams, so that the test sees their end when
/// the command's tree closes them, and a full pipe never involves this process.
fn close_streams() {
    if let Ok(null) = std::fs::File::options().read(true).write(true).open("/dev/null") {
        let _ = nix::unistd::dup2_stdin(&null);
        let _ = nix::unistd::dup2_stdout(&null);
    }
}

fn say(control: &mut UnixStream, word: &Word) {
    // Nobody to tell means that the test died; the caller clears up in any case.
    if let Ok(line) = serde_json::to_string(word) {
        let _ = control.write_all(format!("{line}\n").as_bytes());
    }
}

enum Happening {
    Child(End),
    TestGone,
}

/// Waits for the command, the deadline, or the end of the test, whichever comes first. The command
/// stays unreaped.
fn wait(pid: i32, begin: Instant, limit: Duration, control: &UnixStream) -> Result<End, String> {
    let (tell, happenings) = channel();
    let child = tell.clone();
    std::thread::spawn(move || {
        let _ = child.send(Happening::Child(wait_child(pid)));
    });
    let mut lease = control.try_clone().map_err(|error| format!("control socket: {error}"))?;
    std::thread::spawn(move || {
        let _ = lease.read(&mut [0; 1]);
        let _ = tell.send(Happening::TestGone);
    });
    Ok(first_of(&happenings, limit.saturating_sub(begin.elapsed())))
}

fn first_of(happenings: &Receiver<Happening>, limit: Duration) -> End {
    match happenings.recv_timeout(limit) {
        Ok(Happening::Child(end)) => end,
        Ok(Happening::TestGone)
        | Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => End::Deadline,
    }
}

fn wait_child(pid: i32) -> End {
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT;
    loop {
        match waitid(Id::Pid(Pid::from_raw(pid)), flags) {
            Ok(WaitStatus::Exited(_, code)) => return End::Code(code),
            Ok(WaitStatus::Signaled(_, signal, _)) => return End::Signal(signal as i32),
            Err(Errno::EINTR) | Ok(_) => {}
            Err(_) => return End::Deadline,
        }
    }
}

/// Kills and reaps until no child is left. Killing a parent hands its children to this process, so
/// one pass is not enough.
fn clear_up() -> Result<(), String> {
    let limit = Instant::now() + CLEAR_UP;
    loop {
        for process in Process::descendants(own_pid()) {
            let _ = process::send(process.pid, Signal::SIGKILL);
        }
        loop {
            match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::StillAlive) | Err(Errno::EINTR) => break,
                Ok(_) => {}
                Err(_) => return Ok(()),
            }
        }
        if Instant::now() > limit {
            return Err(format!("not gone after SIGKILL: {:?}", Process::descendants(own_pid())));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}
