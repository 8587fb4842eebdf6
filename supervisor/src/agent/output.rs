//! Merges the ranks' output line by line.
//!
//! Lines are never torn: what goes to our standard output is appended to one queue in whole lines,
//! and the queue is written in order. A line longer than [`PIECE`] passes in pieces. Back-pressure:
//! when the queue of a sink is full, the ranks' pipes behind it are not read until it has drained.
//! When the reader of a sink has gone, the pipes behind it are closed, so that the ranks get
//! SIGPIPE as they would without a launcher. On a terminal, an unfinished line of the rank that
//! reads our standard input is shown after a moment: it may be a prompt.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use settings::deadlines::agent::{PROMPT, UNREAD};
use settings::log;

use super::capture::Outlet;
use super::sink::{HIGH, LOW, Sink};
use super::standard::is_same_target;
use super::sys;
use crate::event_loop::{Poller, Which};
use crate::plan::{OutputPlan, StdinTo};

/// Longest line that is kept whole, bytes.
pub(crate) const PIECE: usize = 64 * 1024;
/// What is kept of a rank's standard error for the summary.
const TAIL_LINES: usize = 20;
const TAIL_BYTES: usize = 8 * 1024;

#[derive(Debug, Default)]
struct Stream {
    /// Start of a line whose end has not come.
    partial: Vec<u8>,
    file: Option<File>,
}

#[derive(Debug)]
pub(crate) struct Output {
    plan: OutputPlan,
    size: u32,
    /// With one rank nothing can be torn: pass bytes as they come, so that prompts show.
    alone: bool,
    sinks: Vec<Sink>,
    /// Index into `sinks` for standard output and error.
    sink_of: [usize; 2],
    streams: Vec<[Stream; 2]>,
    tails: Vec<Vec<u8>>,
    /// The rank whose prompts are shown, and when.
    prompter: Option<u32>,
    prompt_at: Option<Instant>,
    /// Since when the job is known not to end well: its readers are not waited for for ever.
    failing: Option<Instant>,
    /// Whether output was lost because our own streams or the output files could not be written (a
    /// reader that left does not count), or because nobody read it.
    pub(crate) lost: bool,
    lines: Vec<u8>,
}

/// Makes a file for output, and never waits for a reader or whoever holds a lease: what writes it
/// serves all ranks. A pipe is looked for before, because one without a reader cannot be opened, and
/// after, because by then it may be another file.
fn create(path: &Path) -> io::Result<File> {
    let pipe = || io::Error::other("it is a pipe; output can only go to files");
    if std::fs::metadata(path).is_ok_and(|known| known.file_type().is_fifo()) {
        return Err(pipe());
    }
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let mut options = File::options();
    let file = options.write(true).create(true).truncate(true).custom_flags(flags).open(path)?;
    if file.metadata()?.file_type().is_fifo() { Err(pipe()) } else { Ok(file) }
}

impl Output {
    pub(crate) fn new(poller: &Poller, plan: &OutputPlan, size: u32, stdin: StdinTo) -> Self {
        let prompter = match stdin {
            StdinTo::Rank(rank) => Some(rank.0),
            StdinTo::None | StdinTo::All => None,
        };
        let sink = |number| Sink::new(poller, number);
        let (sinks, sink_of) = match is_same_target() {
            true => (vec![sink(1)], [0, 0]),
            false => (vec![sink(1), sink(2)], [0, 1]),
        };
        Self {
            plan: plan.clone(),
            size,
            alone: size == 1 && !plan.tag && !plan.timestamp,
            sinks,
            sink_of,
            streams: Vec::new(),
            tails: Vec::new(),
            prompter,
            prompt_at: None,
            failing: None,
            lost: false,
            lines: Vec::new(),
        }
    }

    /// Makes the output directory if one is wanted, relative to the launcher's own directory.
    pub(crate) fn make_directory(&mut self) -> Result<(), (PathBuf, io::Error)> {
        if let Some(directory) = &mut self.plan.directory {
            let made = std::path::absolute(&*directory)
                .and_then(|path| std::fs::create_dir_all(&path).map(|()| path));
            *directory = made.map_err(|error| (directory.clone(), error))?;
        }
        Ok(())
    }

    fn path(&self, rank: u32, which: Which) -> Option<PathBuf> {
        let suffix = if which == Which::Out { "out" } else { "err" };
        Some(self.plan.directory.as_ref()?.join(format!("rank.{rank}.{suffix}")))
    }

    fn file(&self, rank: u32, which: Which) -> io::Result<Option<File>> {
        let Some(path) = self.path(rank, which) else { return Ok(None) };
        let named = |error: io::Error| {
            io::Error::new(error.kind(), format!("{}: {}", here(&path), seen(&error)))
        };
        create(&path).map(Some).map_err(named)
    }

    pub(crate) fn adopt(&mut self, rank: u32) -> io::Result<()> {
        let [out, err] = [self.file(rank, Which::Out)?, self.file(rank, Which::Err)?];
        if let Some([out_stream, err_stream]) = self.streams_of(rank) {
            out_stream.file = out;
            err_stream.file = err;
        }
        Ok(())
    }

    /// The streams of a rank of this job, made when they are first needed.
    fn streams_of(&mut self, rank: u32) -> Option<&mut [Stream; 2]> {
        let index = rank as usize;
        if index >= self.streams.len() && rank < self.size {
            self.streams.resize_with(index + 1, Default::default);
            self.tails.resize_with(index + 1, Vec::new);
        }
        self.streams.get_mut(index)
    }

    fn merge(&mut self, rank: u32, which: Which, data: &[u8]) {
        let Some(streams) = self.streams_of(rank) else { return };
        let stream = &mut streams[which as usize];
        if let Some(file) = &mut stream.file
            && let Err(error) = file.write_all(data)
        {
            stream.file = None;
            self.file_failed(rank, which, &error);
        }
        if which == Which::Err {
            keep_tail(&mut self.tails[rank as usize], data);
        }
        let sink = &mut self.sinks[self.sink_of[which as usize]];
        let stream = &mut self.streams[rank as usize][which as usize];
        if self.alone {
            return sink.push(Some(rank), &[data]);
        }
        let cut = data.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let (whole, rest) = data.split_at(cut);
        if !whole.is_empty() {
            if self.plan.tag || self.plan.timestamp {
                stream.partial.extend_from_slice(whole);
                self.lines.clear();
                prefixed(&self.plan, rank, &stream.partial, &mut self.lines);
                sink.push(Some(rank), &[&self.lines]);
            } else {
                sink.push(Some(rank), &[&stream.partial, whole]);
            }
            stream.partial.clear();
        }
        stream.partial.extend_from_slice(rest);
        if stream.partial.len() >= PIECE {
            self.flush_partial(rank, which);
        } else if sink.stream.terminal && self.prompter == Some(rank) && !stream.partial.is_empty()
        {
            self.prompt_at = Some(Instant::now() + PROMPT.limit);
        }
    }

    /// The job goes on, and fails at its end. One line: the files of the other ranks are in the
    /// same place.
    fn file_failed(&mut self, rank: u32, which: Which, error: &io::Error) {
        let path = self.path(rank, which).unwrap_or_default();
        if !std::mem::replace(&mut self.lost, true) {
            self.push_line(&format!(
                "cannot write {}: {}; output files there are not complete",
                here(&path),
                seen(error)
            ));
        }
    }

    pub(crate) fn prompt_in(&self) -> Option<u64> {
        let left = self.prompt_at?.saturating_duration_since(Instant::now());
        // Rounded up: not to come just too early, again and again.
        Some(u64::try_from(left.as_micros().div_ceil(1000)).unwrap_or(u64::MAX))
    }

    /// Shows the reading rank's unfinished lines on terminals when it is time.
    pub(crate) fn show_prompt(&mut self) {
        if self.prompt_at.is_none_or(|at| Instant::now() < at) {
            return;
        }
        self.prompt_at = None;
        let Some(rank) = self.prompter.filter(|_| !self.plan.tag && !self.plan.timestamp) else {
            return;
        };
        for which in [Which::Out, Which::Err] {
            if self.sink(which).stream.terminal {
                self.flush_partial(rank, which);
            }
        }
        self.settle();
    }

    fn flush_partial(&mut self, rank: u32, which: Which) {
        let sink = &mut self.sinks[self.sink_of[which as usize]];
        let Some(streams) = self.streams.get_mut(rank as usize) else { return };
        let stream = &mut streams[which as usize];
        if stream.partial.is_empty() {
            return;
        }
        if self.plan.tag || self.plan.timestamp {
            stream.partial.push(b'\n');
            self.lines.clear();
            prefixed(&self.plan, rank, &stream.partial, &mut self.lines);
            sink.push(Some(rank), &[&self.lines]);
        } else {
            sink.push(Some(rank), &[&stream.partial]);
        }
        stream.partial.clear();
    }

    pub(crate) fn writable(&mut self, number: u8) {
        for sink in self.sinks.iter_mut().filter(|sink| sink.stream.number == number) {
            sink.flush();
        }
        self.settle();
    }

    /// After anything that changed the queues: watch what waits, and say what was lost.
    pub(crate) fn settle(&mut self) {
        for at in 0..self.sinks.len() {
            self.sinks[at].watch();
            if let Some(error) = self.sinks[at].failure.take() {
                self.lost = true;
                let name = if self.sinks[at].stream.number == 1 { "output" } else { "error" };
                let place = self.sinks[at].stream.path().map(|path| format!(", {}", here(&path)));
                let place = place.unwrap_or_default();
                let error = seen(&error);
                self.push_line(&format!("cannot write standard {name}{place}: {error}"));
            }
        }
    }

    fn sink(&self, which: Which) -> &Sink {
        &self.sinks[self.sink_of[which as usize]]
    }

    /// A line of our own, among those of the ranks.
    pub(crate) fn message(&mut self, text: &str) {
        self.push_line(text);
        self.settle();
    }

    fn push_line(&mut self, text: &str) {
        let line = format!("{}: {}\n", log::LAUNCHER, log::line(text));
        self.sinks[self.sink_of[1]].push(None, &[line.as_bytes()]);
    }

    /// The job has failed, or was told to end: a reader that takes nothing is given up in time.
    pub(crate) fn bound_reader(&mut self) {
        self.failing.get_or_insert_with(Instant::now);
    }

    /// When the first reader is given up, unless it takes something.
    fn patience_ends(&self, sink: &Sink) -> Option<Instant> {
        sink.unread_since()?.max(self.failing?).checked_add(UNREAD.limit)
    }

    pub(crate) fn unread_in(&self) -> Option<u64> {
        let ends = self.sinks.iter().filter_map(|sink| self.patience_ends(sink)).min()?;
        let left = ends.saturating_duration_since(Instant::now());
        Some(u64::try_from(left.as_micros().div_ceil(1000)).unwrap_or(u64::MAX))
    }

    /// Drops what nobody has read in time; whether there was anything.
    pub(crate) fn drop_unread(&mut self) -> bool {
        let (now, mut dropped) = (Instant::now(), false);
        for at in 0..self.sinks.len() {
            if self.patience_ends(&self.sinks[at]).is_some_and(|ends| now >= ends) {
                self.sinks[at].give_up();
                (self.lost, dropped) = (true, true);
            }
        }
        if dropped {
            self.settle();
        }
        dropped
    }

    /// Says once what was dropped, where somebody may still read.
    pub(crate) fn say_dropped(&mut self) {
        let none = super::unread::Dropped::default();
        let all = self.sinks.iter_mut().map(|sink| std::mem::take(&mut sink.dropped));
        if let Some(text) = all.fold(none, |sum, more| sum.and(&more)).text() {
            self.message(&text);
        }
    }

    pub(crate) fn is_written(&self) -> bool {
        self.sinks.iter().all(|sink| sink.waiting() == 0)
    }

    /// Whether a slow reader holds ranks up, or may.
    pub(crate) fn is_held(&self) -> bool {
        !(self.has_room(Which::Out) && self.has_room(Which::Err))
    }

    pub(crate) fn tail(&self, rank: u32) -> Vec<String> {
        let bytes = self.tails.get(rank as usize).map(Vec::as_slice).unwrap_or_default();
        let text = String::from_utf8_lossy(bytes);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(TAIL_LINES)..]
            .iter()
            .map(|line| (*line).to_owned())
            .collect()
    }
}

impl Outlet for Output {
    fn is_full(&self, which: Which) -> bool {
        self.sink(which).waiting() > HIGH
    }

    fn has_room(&self, which: Which) -> bool {
        self.sink(which).waiting() < LOW
    }

    fn is_gone(&self, which: Which) -> bool {
        self.sink(which).gone && self.plan.directory.is_none()
    }

    fn take(&mut self, rank: u32, which: Which, data: &[u8]) {
        self.merge(rank, which, data);
    }

    fn end(&mut self, rank: u32, which: Which) {
        self.flush_partial(rank, which);
        if let Some(streams) = self.streams.get_mut(rank as usize) {
            streams[which as usize] = Stream::default();
        }
    }
}

fn here(path: &Path) -> String {
    format!("{} on host {}", path.display(), sys::host_name())
}

fn seen(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            format!("{error}; free some space there, or write somewhere else")
        }
        _ => error.to_string(),
    }
}

fn keep_tail(tail: &mut Vec<u8>, data: &[u8]) {
    let data = &data[data.len().saturating_sub(TAIL_BYTES)..];
    tail.extend_from_slice(data);
    if tail.len() > 2 * TAIL_BYTES {
        tail.drain(..tail.len() - TAIL_BYTES);
    }
}

/// Appends `lines` to `out`, each with the prefixes that the plan wants.
fn prefixed(plan: &OutputPlan, rank: u32, lines: &[u8], out: &mut Vec<u8>) {
    let mut prefix = String::new();
    if plan.timestamp {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let (hour, minute, second) = sys::time_of_day(i64::try_from(now.as_secs()).unwrap_or(0));
        prefix = format!("{hour:02}:{minute:02}:{second:02}.{:03} ", now.subsec_millis());
    }
    if plan.tag {
        prefix.push_str(&format!("[{rank}] "));
    }
    for line in lines.split_inclusive(|byte| *byte == b'\n') {
        out.extend_from_slice(prefix.as_bytes());
        out.extend_from_slice(line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_gets_its_prefix() {
        let plan = OutputPlan { tag: true, ..OutputPlan::default() };
        let mut out = Vec::new();
        prefixed(&plan, 7, b"one\n\nthree\n", &mut out);
        assert_eq!(out, b"[7] one\n[7] \n[7] three\n");
    }

    #[test]
    fn the_tail_is_bounded_and_ends_with_the_last_byte() {
        let mut tail = Vec::new();
        for round in 0..100u8 {
            keep_tail(&mut tail, &vec![round; 3000]);
            assert!(tail.len() <= 2 * TAIL_BYTES && tail.last() == Some(&round));
        }
        keep_tail(&mut tail, &vec![b'x'; 10 * TAIL_BYTES]);
        assert!(tail.len() <= 2 * TAIL_BYTES && tail.ends_with(&[b'x'; TAIL_BYTES]));
    }
}
