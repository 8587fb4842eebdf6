//! Stacks of a process on a host without a debugger: each thread is stopped for a moment, and its stack
//! is followed by the tables for exceptions that programs and libraries carry (`.eh_frame`).
//!
//! * this module: threads and their registers, the walk. `files`: what is mapped, and names of
//!   functions.

mod files;

use std::fmt::Write;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use framehop::{
    CacheNative, FrameAddress, MayAllocateDuringUnwind, UnwindRegsNative as Registers,
    Unwinder as _, UnwinderNative,
};
use nix::sys::ptrace::{self, Options};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use self::files::{Files, Mapped};
use super::stacks::MOST_FRAMES;

type Walker = UnwinderNative<Vec<u8>, MayAllocateDuringUnwind>;

/// Between two looks whether a thread has stopped.
const POLL: Duration = Duration::from_millis(1);

/// Why there is no stack.
#[derive(Debug, thiserror::Error)]
pub(super) enum UnwindError {
    #[error("cannot read {what} of process {pid}: {source}")]
    Process { what: &'static str, pid: i32, source: io::Error },
    #[error("cannot stop thread {tid}: {source}")]
    Stop { tid: i32, source: io::Error },
    #[error("thread {tid} did not stop in time: it is inside the kernel")]
    Stuck { tid: i32 },
}

/// Looks at processes; what it has read of their files serves the next ones.
#[derive(Default)]
pub(super) struct Unwinder {
    files: Files,
}

impl Unwinder {
    /// The stacks of all threads, as a debugger prints them.
    pub(super) fn print(&mut self, pid: i32, until: Instant) -> Result<String, UnwindError> {
        let failed = |what| move |source| UnwindError::Process { what, pid, source };
        let mut tids = Vec::new();
        for task in std::fs::read_dir(format!("/proc/{pid}/task")).map_err(failed("the threads"))? {
            let name = task.map_err(failed("the threads"))?.file_name();
            tids.extend(name.to_str().and_then(|name| name.parse::<i32>().ok()));
        }
        tids.sort_unstable();
        let memory = File::open(format!("/proc/{pid}/mem")).map_err(failed("the memory"))?;
        let mapped = self.files.mapped(pid).map_err(failed("the map of memory"))?;
        let mut walker = Walker::new();
        for one in &mapped {
            walker.add_module(one.module());
        }
        let mut text = String::new();
        let mut last = None;
        for tid in tids {
            match frames(tid, &walker, &memory, until) {
                Ok(frames) => self.write(&mut text, tid, &frames, &mapped),
                // A thread may end at any time; the others are shown all the same.
                Err(error) => last = Some(error),
            }
        }
        match last {
            Some(error) if text.is_empty() => Err(error),
            _ => Ok(text),
        }
    }

    fn write(&mut self, text: &mut String, tid: i32, frames: &[FrameAddress], mapped: &[Mapped]) {
        let _ = writeln!(text, "TID {tid}:");
        for (number, frame) in frames.iter().enumerate() {
            let address = frame.address_for_lookup();
            let place = mapped.iter().find(|one| one.range.contains(&address));
            let name = place.and_then(|one| self.files.name(one, address));
            let name = name.unwrap_or_else(|| "??".to_owned());
            let _ = writeln!(text, "#{number} 0x{address:x} {name}");
        }
    }
}

/// A thread that we have stopped; it goes on when this is dropped.
struct Stopped(Pid);

impl Stopped {
    fn new(tid: i32, until: Instant) -> Result<Self, UnwindError> {
        let thread = Pid::from_raw(tid);
        let refused = |errno: nix::Error| UnwindError::Stop { tid, source: errno.into() };
        ptrace::seize(thread, Options::empty()).map_err(refused)?;
        ptrace::interrupt(thread).map_err(refused)?;
        let flags = WaitPidFlag::__WALL | WaitPidFlag::WNOHANG;
        loop {
            match waitpid(thread, Some(flags)).map_err(refused)? {
                WaitStatus::StillAlive if Instant::now() >= until => {
                    // It is let go when this process ends.
                    return Err(UnwindError::Stuck { tid });
                }
                WaitStatus::StillAlive => std::thread::sleep(POLL),
                WaitStatus::Exited(..) | WaitStatus::Signaled(..) => {
                    return Err(refused(nix::Error::ESRCH));
                }
                // A signal came at this moment: it is delivered, and the stop is still to come.
                WaitStatus::Stopped(_, signal) => ptrace::cont(thread, signal).map_err(refused)?,
                _ => return Ok(Self(thread)),
            }
        }
    }

    /// Where it is: the next instruction, and what the walk begins with.
    fn registers(&self) -> nix::Result<(u64, Registers)> {
        let registers = ptrace::getregs(self.0)?;
        #[cfg(target_arch = "x86_64")]
        let own = (registers.rip, Registers::new(registers.rip, registers.rsp, registers.rbp));
        #[cfg(target_arch = "aarch64")]
        let own = {
            let [.., frame, link] = registers.regs;
            (registers.pc, Registers::new(link, registers.sp, frame))
        };
        Ok(own)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        // One that is gone needs no leave.
        let _ = ptrace::detach(self.0, None);
    }
}

/// The frames of a thread, the innermost first.
fn frames(
    tid: i32,
    walker: &Walker,
    memory: &File,
    until: Instant,
) -> Result<Vec<FrameAddress>, UnwindError> {
    let stopped = Stopped::new(tid, until)?;
    let refused = |errno: nix::Error| UnwindError::Stop { tid, source: errno.into() };
    let (at, registers) = stopped.registers().map_err(refused)?;
    let mut cache = CacheNative::<MayAllocateDuringUnwind>::new();
    let mut read = |address: u64| {
        let mut word = [0; 8];
        memory.read_exact_at(&mut word, address).map_err(|_| ())?;
        Ok(u64::from_le_bytes(word))
    };
    let mut walk = walker.iter_frames(at, registers, &mut cache, &mut read);
    let mut frames = Vec::new();
    // What cannot be followed further ends there.
    while frames.len() < MOST_FRAMES
        && let Ok(Some(frame)) = walk.next()
    {
        frames.push(frame);
    }
    Ok(frames)
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use super::*;

    struct Sleeper(Child);

    impl Sleeper {
        fn new() -> Self {
            Self(Command::new("sleep").arg("600").spawn().unwrap())
        }

        fn pid(&self) -> i32 {
            i32::try_from(self.0.id()).unwrap()
        }

        fn state(&self) -> String {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap();
            stat.rsplit(')').next().unwrap().trim_start()[..1].to_owned()
        }
    }

    impl Drop for Sleeper {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(20)
    }

    #[test]
    fn a_process_is_seen_where_it_sleeps_and_goes_on() {
        let sleeper = Sleeper::new();
        let limit = soon();
        let mut unwinder = Unwinder::default();
        let text = loop {
            let text = unwinder.print(sleeper.pid(), limit).unwrap();
            if text.contains("nanosleep") && text.contains("libc_start") {
                break text;
            }
            assert!(Instant::now() < limit, "{text}");
        };
        assert!(text.starts_with(&format!("TID {}:\n#0 0x", sleeper.pid())), "{text}");
        // It has to get a processor to go on sleeping.
        while sleeper.state() != "S" {
            assert!(Instant::now() < limit, "{}", sleeper.state());
        }
    }

    #[test]
    fn one_that_was_stopped_stays_so() {
        let sleeper = Sleeper::new();
        let pid = Pid::from_raw(sleeper.pid());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGSTOP).unwrap();
        let text = Unwinder::default().print(sleeper.pid(), soon()).unwrap();
        assert!(text.contains("#0 "), "{text}");
        let limit = soon();
        while sleeper.state() != "T" {
            assert!(Instant::now() < limit, "{}", sleeper.state());
        }
    }

    #[test]
    fn who_is_not_there_is_told() {
        let error = Unwinder::default().print(i32::MAX, soon()).unwrap_err().to_string();
        assert!(error.contains("the threads of process"), "{error}");
    }
}
