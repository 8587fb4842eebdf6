//! Runs a command under a warden and tells how it ended and who survived it.
//!
//! # Primer
//!
//! The **warden** (`testkit-warden`) is a small process between the test and the command. It is a
//! child sub-reaper, so whatever the command starts and loses, in any process group or session,
//! becomes a child of the warden. When the command ends, the warden looks at its children *before*
//! it does anything else, sends what it saw to the test, and kills them. It speaks to the test over
//! a socket in the abstract name space; when that closes (the test died), it kills everything as
//! well. So tests that run side by side cannot see each other's processes, and none leaves any.

use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize};

use crate::process::{self, Process};

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum End {
    /// Exit status.
    Code(i32),
    /// Signal number.
    Signal(i32),
    /// It was still there at the deadline and was killed.
    Deadline,
}

/// What the warden tells the test, one line of JSON each.
#[derive(Debug, Serialize, Deserialize)]
pub enum Word {
    /// The command runs as this process.
    Started(i32),
    /// The command could not be started.
    Refused(String),
    /// The command is over.
    Ended {
        /// How.
        end: End,
        /// Nanoseconds from just before its start to its end.
        nanos: u64,
        /// When, by [`now_ns`].
        at_ns: u64,
        /// Descendants alive at that moment.
        survivors: Vec<Process>,
    },
}

/// Standard input of the command.
#[derive(Debug, Default)]
pub enum Input {
    /// `/dev/null`.
    #[default]
    Null,
    /// These bytes, then end of file.
    Bytes(Vec<u8>),
    /// This many bytes of [`pattern`], then end of file.
    Pattern(u64),
    /// A pipe that stays open and silent until [`Running::close_stdin`].
    Open,
    /// Any prepared stream.
    Stream(Stdio),
}

/// What becomes of the command's standard output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Output {
    /// Kept whole.
    #[default]
    Keep,
    /// Counted and summed (CRC-32), not kept.
    Digest,
}

/// Nanoseconds of the clock that all processes of a machine share (`CLOCK_MONOTONIC`).
///
/// # Panics
/// Never on Linux, where the clock always exists.
#[must_use]
pub fn now_ns() -> u64 {
    let clock = nix::time::ClockId::CLOCK_MONOTONIC;
    let now = Duration::from(nix::time::clock_gettime(clock).expect("the clock exists"));
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}

/// Block number `block` of an endless test datum, 64 KiB each, different from each other.
#[must_use]
pub fn pattern(block: u64) -> Vec<u8> {
    let mut word = block.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(1 << 16);
    while bytes.len() < 1 << 16 {
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    bytes
}

/// CRC-32 of the first `len` bytes of [`pattern`].
#[must_use]
pub fn pattern_crc(len: u64) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    let _ = write_pattern(len, |bytes| {
        crc.update(bytes);
        Ok(())
    });
    crc.finalize()
}

fn write_pattern(
    len: u64,
    mut write: impl FnMut(&[u8]) -> std::io::Result<()>,
) -> std::io::Result<()> {
    let (mut left, mut block) = (len, 0);
    while left > 0 {
        let bytes = pattern(block);
        let take = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
        write(&bytes[..take])?;
        left -= take as u64;
        block += 1;
    }
    Ok(())
}

/// A stream that is being read by a thread.
#[derive(Debug, Default)]
struct Collected {
    kept: Vec<u8>,
    len: u64,
    crc: crc32fast::Hasher,
    closed: bool,
}

type Stream = Arc<(Mutex<Collected>, Condvar)>;

fn collect(mut from: impl Read + Send + 'static, output: Output) -> (Stream, JoinHandle<()>) {
    let stream: Stream = Arc::default();
    let shared = Arc::clone(&stream);
    let thread = std::thread::spawn(move || {
        let mut buffer = vec![0; 1 << 16];
        loop {
            let got = match from.read(&mut buffer) {
                Ok(got) => got,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(_) => 0,
            };
            let mut state = shared.0.lock().unwrap_or_else(PoisonError::into_inner);
            state.closed = got == 0;
            state.len += got as u64;
            state.crc.update(&buffer[..got]);
            if output == Output::Keep {
                state.kept.extend_from_slice(&buffer[..got]);
            }
            shared.1.notify_all();
            if got == 0 {
                return;
            }
        }
    });
    (stream, thread)
}

/// A command to run. Built like [`std::process::Command`].
#[derive(Debug)]
pub struct Tree {
    program: PathBuf,
    args: Vec<OsString>,
    env: Vec<(OsString, Option<OsString>)>,
    directory: Option<PathBuf>,
    input: Input,
    output: Output,
    deadline: (String, Duration),
    grace: Duration,
}

impl Tree {
    /// A command without arguments, with `/dev/null` as input and a deadline of 60 s.
    #[must_use]
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            args: Vec::new(),
            env: Vec::new(),
            directory: None,
            input: Input::Null,
            output: Output::Keep,
            deadline: ("default".to_owned(), Duration::from_secs(60)),
            grace: Duration::ZERO,
        }
    }

    /// Appends one argument.
    #[must_use]
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.args.push(arg.as_ref().to_owned());
        self
    }

    /// Appends arguments.
    #[must_use]
    pub fn args<I: IntoIterator<Item: AsRef<OsStr>>>(mut self, args: I) -> Self {
        self.args.extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// Sets a variable of the environment.
    #[must_use]
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.env.push((name.as_ref().to_owned(), Some(value.as_ref().to_owned())));
        self
    }

    /// Removes a variable from the environment.
    #[must_use]
    pub fn env_remove(mut self, name: impl AsRef<OsStr>) -> Self {
        self.env.push((name.as_ref().to_owned(), None));
        self
    }

    /// Sets the working directory.
    #[must_use]
    pub fn dir(mut self, directory: impl Into<PathBuf>) -> Self {
        self.directory = Some(directory.into());
        self
    }

    /// Chooses standard input.
    #[must_use]
    pub fn stdin(mut self, input: Input) -> Self {
        self.input = input;
        self
    }

    /// Chooses what becomes of standard output.
    #[must_use]
    pub const fn stdout(mut self, output: Output) -> Self {
        self.output = output;
        self
    }

    /// Bounds the run. After `limit` the whole tree is killed and the outcome says
    /// [`End::Deadline`].
    #[must_use]
    pub fn deadline(mut self, name: &str, limit: Duration) -> Self {
        self.deadline = (name.to_owned(), limit);
        self
    }

    /// Counts as survivors only those that are still there this long after the end of the command.
    /// For commands that are killed and so cannot end their descendants themselves.
    #[must_use]
    pub const fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Starts the command and waits for its end.
    ///
    /// # Panics
    /// As [`Tree::start`].
    #[must_use]
    pub fn run(self) -> Outcome {
        self.start().wait()
    }

    /// Starts the command.
    ///
    /// # Panics
    /// When the warden or the command cannot be started.
    #[must_use]
    pub fn start(self) -> Running {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("testkit-{}-{number}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).expect("a short name is legal");
        let listener = UnixListener::bind_addr(&address).expect("an unused name can be bound");
        let mut command = Command::new(crate::binary("testkit-warden"));
        command.arg(&name).arg(self.deadline.1.as_millis().to_string());
        command.arg(self.grace.as_millis().to_string());
        command.arg(&self.program).args(&self.args);
        for (name, value) in &self.env {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        if let Some(directory) = &self.directory {
            command.current_dir(directory);
        }
        let (stdin, feed) = match self.input {
            Input::Null => (Stdio::null(), None),
            Input::Stream(stream) => (stream, None),
            other => (Stdio::piped(), Some(other)),
        };
        command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut warden = command.spawn().expect("the warden starts");
        // The listener's back-log holds the connection of a warden that is faster than us; one that
        // never connects would be a broken build, which the test harness's own time limit covers.
        let (control, _) = listener.accept().expect("the warden connects");
        let stdout = collect(warden.stdout.take().expect("stdout is a pipe"), self.output);
        let stderr = collect(warden.stderr.take().expect("stderr is a pipe"), Output::Keep);
        let stdin = feed.and_then(|feed| feeder(feed, &mut warden));
        let mut words = BufReader::new(control);
        let pid = match next_word(&mut words) {
            Some(Word::Started(pid)) => pid,
            other => panic!("{} was not started: {other:?}", self.program.display()),
        };
        let name = format!("{} {:?}", self.program.display(), self.args);
        let _told = Told {
            name: name.clone(),
            words: words.get_ref().try_clone().ok(),
            stderr: Arc::clone(&stderr.0),
        };
        Running { _told, pid, warden, words, stdin, stdout, stderr, name, deadline: self.deadline }
    }
}

/// Writes the command's input from a thread; returns the pipe when the test keeps it open.
fn feeder(input: Input, warden: &mut Child) -> Option<std::process::ChildStdin> {
    let mut pipe = warden.stdin.take().expect("stdin is a pipe");
    if matches!(input, Input::Open) {
        return Some(pipe);
    }
    std::thread::spawn(move || {
        // The command may end without reading everything: that is its business, not an error of the
        // test.
        let _ = match input {
            Input::Bytes(bytes) => pipe.write_all(&bytes),
            Input::Pattern(len) => write_pattern(len, |bytes| pipe.write_all(bytes)),
            _ => Ok(()),
        };
    });
    None
}

fn next_word(words: &mut BufReader<UnixStream>) -> Option<Word> {
    let mut line = String::new();
    words.read_line(&mut line).ok()?;
    serde_json::from_str(&line).ok()
}

/// A command that runs.
#[derive(Debug)]
pub struct Running {
    // Dropped before what ends the command.
    _told: Told,
    pid: i32,
    warden: Child,
    words: BufReader<UnixStream>,
    stdin: Option<std::process::ChildStdin>,
    stdout: (Stream, JoinHandle<()>),
    stderr: (Stream, JoinHandle<()>),
    name: String,
    deadline: (String, Duration),
}

/// What a command has done, for a test that fails while it runs.
#[derive(Debug)]
struct Told {
    name: String,
    words: Option<UnixStream>,
    stderr: Stream,
}

impl Drop for Told {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        let ended = self.words.take().and_then(|words| {
            words.set_nonblocking(true).ok()?;
            next_word(&mut BufReader::new(words))
        });
        let state = match ended {
            Some(Word::Ended { end, nanos, .. }) => {
                format!("had ended after {:?} with {end:?}", Duration::from_nanos(nanos))
            }
            _ => "was running".to_owned(),
        };
        let stderr = self.stderr.0.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(&stderr.kept);
        eprintln!("{} {state}\n--- its stderr\n{text}", self.name);
    }
}

impl Running {
    /// Process id of the command.
    #[must_use]
    pub const fn pid(&self) -> i32 {
        self.pid
    }

    /// Sends a signal to the command itself; `false` when it is gone.
    pub fn signal(&self, signal: Signal) -> bool {
        process::send(self.pid, signal)
    }

    /// Every live process below the command.
    #[must_use]
    pub fn descendants(&self) -> Vec<Process> {
        let mut found = Process::descendants(self.pid);
        found.retain(|process| !process.is_zombie());
        found
    }

    /// The pipe to the command's input, when it was started with [`Input::Open`].
    pub const fn stdin(&mut self) -> Option<&mut std::process::ChildStdin> {
        self.stdin.as_mut()
    }

    /// Closes the command's input.
    pub fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// Waits until standard output contains `text` `times` times.
    ///
    /// # Panics
    /// When the output ends or 30 s pass without it; shows what was there.
    pub fn wait_stdout(&self, text: &str, times: usize) {
        self.wait_text([&self.stdout.0, &self.stderr.0], text, times);
    }

    /// Waits until standard error contains `text` `times` times.
    ///
    /// # Panics
    /// As [`Running::wait_stdout`].
    pub fn wait_stderr(&self, text: &str, times: usize) {
        self.wait_text([&self.stderr.0, &self.stdout.0], text, times);
    }

    /// Waits for a text in the first stream. The other one tells why it does not come.
    fn wait_text(&self, [stream, other]: [&Stream; 2], text: &str, times: usize) {
        let limit = Instant::now() + Duration::from_secs(30);
        let mut state = stream.0.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let seen = String::from_utf8_lossy(&state.kept);
            if seen.matches(text).count() >= times {
                return;
            }
            let left = limit.saturating_duration_since(Instant::now());
            if state.closed || left.is_zero() {
                let why = if state.closed { "until its end" } else { "in 30 s" };
                let other = other.0.lock().unwrap_or_else(PoisonError::into_inner);
                let other = String::from_utf8_lossy(&other.kept);
                panic!(
                    "{}: {text:?} did not appear {times} times {why}, seen: {seen}\nand: {other}",
                    self.name
                );
            }
            let waited = stream.1.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Waits for the end.
    ///
    /// # Panics
    /// When the warden itself breaks.
    #[must_use]
    pub fn wait(mut self) -> Outcome {
        let word = next_word(&mut self.words);
        let Some(Word::Ended { end, nanos, at_ns, survivors }) = word else {
            panic!("{}: the warden said {word:?} instead of the end", self.name);
        };
        self.stdin = None;
        // The warden has killed and reaped everything below it, so both pipes end.
        let status = self.warden.wait().expect("the warden can be waited for");
        assert!(status.success(), "{}: the warden failed: {status}", self.name);
        let finish = |(stream, thread): (Stream, JoinHandle<()>)| {
            thread.join().expect("a reader does not panic");
            let mut state = stream.0.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *state)
        };
        let (stdout, stderr) = (finish(self.stdout), finish(self.stderr));
        Outcome {
            name: self.name,
            deadline: self.deadline,
            end,
            duration: Duration::from_nanos(nanos),
            ended_ns: at_ns,
            survivors,
            stdout_len: stdout.len,
            stdout_crc: stdout.crc.finalize(),
            stdout: stdout.kept,
            stderr: stderr.kept,
        }
    }
}

/// How a command ended.
#[derive(Debug)]
pub struct Outcome {
    name: String,
    deadline: (String, Duration),
    /// How it ended.
    pub end: End,
    /// From just before its start to its end.
    pub duration: Duration,
    /// When it ended, by [`now_ns`].
    pub ended_ns: u64,
    /// Descendants that were alive when it ended (the warden has killed them since).
    pub survivors: Vec<Process>,
    /// Standard output, empty with [`Output::Digest`].
    pub stdout: Vec<u8>,
    /// Bytes of standard output.
    pub stdout_len: u64,
    /// CRC-32 of standard output.
    pub stdout_crc: u32,
    /// Standard error.
    pub stderr: Vec<u8>,
}

impl Outcome {
    /// The status as a shell shows it; -1 for a passed deadline.
    #[must_use]
    pub const fn code(&self) -> i32 {
        match self.end {
            End::Code(code) => code,
            End::Signal(signal) => 128 + signal,
            End::Deadline => -1,
        }
    }

    /// Milliseconds that it took.
    #[must_use]
    pub const fn ms(&self) -> u128 {
        self.duration.as_millis()
    }

    /// Standard output as text.
    #[must_use]
    pub fn out(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Standard error as text.
    #[must_use]
    pub fn err(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }

    /// Why this outcome is not `code` within the deadline with nothing left; `None` when it is.
    #[must_use]
    pub fn fault(&self, code: i32) -> Option<String> {
        let (name, limit) = &self.deadline;
        if self.end == End::Deadline {
            return Some(format!("still there after {limit:?} (deadline {name})"));
        }
        if !self.survivors.is_empty() {
            return Some(format!("{} survivors: {:?}", self.survivors.len(), self.survivors));
        }
        (self.code() != code).then(|| format!("ended with {}, expected {code}", self.code()))
    }

    /// Asserts the exit code, the deadline and that nothing survived.
    ///
    /// # Panics
    /// When one of them is not so; shows both streams.
    #[track_caller]
    pub fn expect(&self, code: i32) -> &Self {
        if let Some(fault) = self.fault(code) {
            panic!(
                "{}: {fault}\n--- stdout\n{}\n--- stderr\n{}",
                self.name,
                self.out(),
                self.err()
            );
        }
        self
    }
}
