//! Trace and statistics as lines for people, in the files that the variables name.

use std::fs::File;
use std::io::{self, Write};
use std::sync::{Mutex, TryLockError};

use bootstrap::trace::{CATEGORIES, Cause, Clock, Kind, Mark, REPLY, Record};
use settings::log::RANK;
use settings::say;

/// Bytes that are collected before they are written.
const BUFFER: usize = 64 * 1024;
/// Attempts to get at lines that another thread has, on the way out.
const TRIES: u32 = 1000;

/// Where lines go.
enum Out {
    Stdout,
    Stderr,
    File(File),
    /// It failed; what came after is not there.
    Cut,
}

/// The lines of one file.
pub(super) struct Lines {
    out: Out,
    name: String,
    buffer: Vec<u8>,
    /// Write each line at once.
    each: bool,
}

/// The name of a rank's file: every `%` is the rank.
fn file_name(pattern: &str, rank: u32) -> String {
    pattern.replace('%', &rank.to_string())
}

impl Lines {
    /// Opens what a variable names: a file, `stdout`, `stderr` or `-` for that. A file that cannot
    /// be made is said, and standard error takes its place.
    pub(super) fn open(variable: &str, pattern: &str, rank: u32, each: bool) -> Self {
        let name = file_name(pattern, rank);
        let out = match pattern {
            "stdout" => Out::Stdout,
            "stderr" | "-" => Out::Stderr,
            _ => match File::create(&name) {
                Ok(file) => Out::File(file),
                Err(error) => {
                    say!(
                        WARN,
                        RANK,
                        "rank {rank}: {variable}: cannot make {name}: {error}; standard error is \
                         used instead"
                    );
                    Out::Stderr
                }
            },
        };
        Self { out, name, buffer: Vec::with_capacity(BUFFER + 1024), each }
    }

    /// A record of a rank.
    pub(super) fn record(&mut self, rank: u32, record: &Record, clock: &Clock) {
        let letter = char::from(record.kind.letter());
        let (at, text) = (clock.time(record.at), describe(record, clock));
        self.line(rank, (at, record.thread), letter, &text);
    }

    /// A text of the program.
    pub(super) fn text(&mut self, rank: u32, (at, thread): (u64, u8), text: &str, clock: &Clock) {
        self.line(rank, (clock.time(at), thread), 'H', text);
    }

    fn line(&mut self, rank: u32, (at, thread): (u64, u8), letter: char, text: &str) {
        let (seconds, rest) = (at / 1_000_000_000, at % 1_000_000_000);
        // Into memory: cannot fail.
        let _ = writeln!(self.buffer, "{rank}({thread})> {seconds}.{rest:09} ({letter}) {text}");
        self.settle();
    }

    /// A line of statistics.
    pub(super) fn plain(&mut self, rank: u32, text: &str) {
        let _ = writeln!(self.buffer, "{rank}> {text}");
        self.settle();
    }

    fn settle(&mut self) {
        if self.each || self.buffer.len() >= BUFFER {
            self.flush();
        }
    }

    /// Writes what was collected. After a failure nothing more is written: the file is cut there.
    pub(super) fn flush(&mut self) {
        let written = match &mut self.out {
            Out::Stdout => io::stdout().write_all(&self.buffer),
            Out::Stderr => io::stderr().write_all(&self.buffer),
            Out::File(file) => file.write_all(&self.buffer),
            Out::Cut => Ok(()),
        };
        self.buffer.clear();
        if let Err(error) = written {
            self.out = Out::Cut;
            say!(WARN, RANK, "{}: {error}: it is cut here, the program goes on", self.name);
        }
    }
}

/// Runs `call` with lines, unless this thread has them already (a signal handler).
pub(super) fn with(lines: &Mutex<Lines>, mut call: impl FnMut(&mut Lines)) {
    for _ in 0..TRIES {
        match lines.try_lock() {
            Ok(mut lines) => return call(&mut lines),
            Err(TryLockError::Poisoned(poisoned)) => return call(&mut poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => std::thread::yield_now(),
        }
    }
}

/// A record in words.
fn describe(record: &Record, clock: &Clock) -> String {
    let Record { kind, detail, flavor, peer, bytes, count, .. } = *record;
    let us = || clock.span(record.span) / 1000;
    let name = kind.name();
    match kind {
        Kind::Sent | Kind::Handled => {
            let class = if flavor & REPLY == 0 { "request" } else { "reply" };
            let category = CATEGORIES.get(usize::from(flavor >> 1)).unwrap_or(&"?");
            let way = if kind == Kind::Sent { "to" } else { "from" };
            format!("{name} {category} {class} {way} {peer}, handler {detail}, {bytes} bytes")
        }
        Kind::Put | Kind::Get | Kind::Atomic => {
            format!("{name} rank {peer}, {bytes} bytes, {} us", us())
        }
        Kind::Waited => {
            let cause = Cause::of(detail).map_or("?", Cause::name);
            format!("{name} {cause} {} us", us())
        }
        Kind::Barrier if detail == 1 => format!("{name} notify"),
        Kind::Barrier => format!("{name} wait {} us", us()),
        Kind::Registered => format!("{name} {bytes} bytes, {} us", us()),
        Kind::Connected => format!("{name} rank {peer}"),
        Kind::Exiting => format!("{name} code {}", peer.cast_signed()),
        Kind::Marked => {
            let mark = Mark::of(detail).map_or("?", Mark::name);
            if bytes > 0 { format!("{mark}, {bytes} bytes") } else { mark.to_owned() }
        }
        Kind::Collective | Kind::Nothing | Kind::Text | Kind::More => format!("{name} {count}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_percent_sign_is_the_rank() {
        assert_eq!(file_name("trace-%.%", 12), "trace-12.12");
        assert_eq!(file_name("plain", 12), "plain");
    }

    #[test]
    fn a_full_disk_cuts_the_file_and_nothing_else() {
        let mut lines = Lines::open("GASNET_TRACEFILE", "/dev/full", 0, true);
        assert!(matches!(lines.out, Out::File(_)));
        lines.plain(0, "one");
        assert!(matches!(lines.out, Out::Cut));
        lines.plain(0, "two");
        assert!(lines.buffer.is_empty());
    }

    #[test]
    fn a_file_that_cannot_be_made_becomes_standard_error() {
        let lines = Lines::open("GASNET_STATSFILE", "/nowhere/at/all", 0, false);
        assert!(matches!(lines.out, Out::Stderr));
        for (pattern, error) in [("-", true), ("stderr", true), ("stdout", false)] {
            let lines = Lines::open("GASNET_STATSFILE", pattern, 0, false);
            assert_eq!(matches!(lines.out, Out::Stderr), error, "{pattern}");
        }
    }

    #[test]
    fn records_in_words() {
        let clock = Clock::new([0, 0, 1, 1]);
        let about = |record: Record| describe(&record, &clock);
        let new = Record::new(Kind::Sent, 0);
        assert_eq!(
            about(Record { flavor: 3, peer: 5, detail: 200, bytes: 9, ..new }),
            "send Medium reply to 5, handler 200, 9 bytes"
        );
        let wait =
            Record { detail: Cause::Credit as u8, span: 7_900, ..Record::new(Kind::Waited, 0) };
        assert_eq!(about(wait), "wait GET_AMREQ_CREDIT_STALL 7 us");
        assert_eq!(
            about(Record { peer: u32::MAX, ..Record::new(Kind::Exiting, 0) }),
            "exit code -1"
        );
    }
}
