//! Connect files: who connects with whom at the start.
//!
//! ```text
//! size: 64          optional; must be the size of the job; decimal
//! base: 36          optional, 2..36, decimal; how ranks on the lines below it are written; 10 without it
//! # a comment
//! 7:0 4 6           rank 7 connects with ranks 0, 4 and 6
//! 6:9-12            ranges; a rank may have many lines
//! ```
//!
//! A line says nothing about the other direction: whoever reads the file connects a pair that
//! either side names. `docs/design/connect.md` says where this reader differs from the original's,
//! and why.

use std::ffi::OsString;
use std::ops::RangeInclusive;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Why a connect file could not be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// It could not be read.
    #[error(
        "connect file {path}: cannot read it: {source}; set GASNET_CONNECTFILE_IN to a readable file or leave it empty"
    )]
    Read { path: String, source: std::io::Error },
    /// It could not be written.
    #[error("connect file {path}: cannot write it: {source}")]
    Write { path: String, source: std::io::Error },
    /// It says something that is no connect file, or not one of this job.
    #[error("{path}:{line}:{column}: {seen} seen, {expected} expected")]
    Syntax { path: String, line: usize, column: usize, seen: String, expected: String },
}

/// Bases that ranks may be written in.
pub(crate) const BASES: RangeInclusive<u32> = 2..=36;

/// Width that written lines keep to.
const WIDTH: usize = 79;

/// The name of this rank's file: every `%` stands for the rank.
pub(crate) fn expand(pattern: &Path, rank: u32) -> PathBuf {
    let parts: Vec<&[u8]> = pattern.as_os_str().as_bytes().split(|byte| *byte == b'%').collect();
    OsString::from_vec(parts.join(rank.to_string().as_bytes())).into()
}

/// Reads the file of rank `me` in a job of `size` ranks. The result has an entry for each rank:
/// whether to connect with it (also for `me`, when the file names it).
pub(crate) fn read(pattern: &Path, me: u32, size: u32) -> Result<Vec<bool>, Error> {
    let path = expand(pattern, me);
    match std::fs::read(&path) {
        Ok(text) => parse(&path.display().to_string(), &text, me, size),
        Err(source) => Err(Error::Read { path: path.display().to_string(), source }),
    }
}

/// As [`read`], from memory. `path` is for messages.
pub(crate) fn parse(path: &str, text: &[u8], me: u32, size: u32) -> Result<Vec<bool>, Error> {
    let mut chosen = vec![false; usize::try_from(size).unwrap_or_default()];
    let mut base = 10;
    for (index, line) in text.split(|byte| *byte == b'\n').enumerate() {
        let reader = Reader { line, base, size };
        match reader.line() {
            Ok(Line::Nothing) => {}
            Ok(Line::Base(new)) => base = new,
            Ok(Line::Peers { rank, list }) => {
                let result = reader.peers(list, |range| {
                    let bounds = (usize::try_from(*range.start()), usize::try_from(*range.end()));
                    if let (true, (Ok(low), Ok(high))) = (rank == me, bounds) {
                        chosen.get_mut(low..=high).unwrap_or_default().fill(true);
                    }
                });
                result.map_err(|flaw| flaw.at(path, index))?;
            }
            Err(flaw) => return Err(flaw.at(path, index)),
        }
    }
    Ok(chosen)
}

/// What a line is.
enum Line {
    Nothing,
    Base(u32),
    /// The list begins at this byte.
    Peers {
        rank: u32,
        list: usize,
    },
}

/// Something wrong in a line, at a byte of it.
struct Flaw {
    at: usize,
    seen: String,
    expected: String,
}

impl Flaw {
    fn new(at: usize, seen: &[u8], expected: impl Into<String>) -> Self {
        let most = 24;
        let text = seen.get(..most).unwrap_or(seen).escape_ascii();
        let seen = match seen.len() {
            0 => "the end of the line".to_owned(),
            len if len > most => format!("\"{text}…\""),
            _ => format!("\"{text}\""),
        };
        Self { at, seen, expected: expected.into() }
    }

    fn at(self, path: &str, index: usize) -> Error {
        let Self { at, seen, expected } = self;
        Error::Syntax { path: path.to_owned(), line: index + 1, column: at + 1, seen, expected }
    }
}

const fn is_blank(byte: &u8) -> bool {
    matches!(*byte, b' ' | b'\t' | b'\r')
}

struct Reader<'a> {
    line: &'a [u8],
    base: u32,
    size: u32,
}

impl Reader<'_> {
    fn line(&self) -> Result<Line, Flaw> {
        let start = "a rank and ':', \"size:\" or \"base:\" at the start of the line";
        if self.line.iter().all(is_blank) || self.line.first() == Some(&b'#') {
            return Ok(Line::Nothing);
        }
        if self.line.first().is_some_and(is_blank) {
            return Err(Flaw::new(0, &self.line[..1], start));
        }
        let Some(colon) = self.line.iter().position(|byte| *byte == b':') else {
            let word = self.word(0);
            return Err(Flaw::new(0, word, start));
        };
        match &self.line[..colon] {
            b"" => Err(Flaw::new(0, b":", start)),
            b"size" => {
                let (at, size) = self.value(colon + 1)?;
                let expected = || format!("the size of this job, {},", self.size);
                (size == Some(u64::from(self.size)))
                    .then_some(Line::Nothing)
                    .ok_or_else(|| Flaw::new(at, self.word(at), expected()))
            }
            b"base" => {
                let (at, base) = self.value(colon + 1)?;
                base.and_then(|base| u32::try_from(base).ok())
                    .filter(|base| BASES.contains(base))
                    .map(Line::Base)
                    .ok_or_else(|| Flaw::new(at, self.word(at), "a base from 2 to 36"))
            }
            tag => Ok(Line::Peers { rank: self.rank(0, tag)?, list: colon + 1 }),
        }
    }

    /// Calls `each` for every rank or range in the list from byte `at`.
    fn peers(&self, mut at: usize, mut each: impl FnMut(RangeInclusive<u32>)) -> Result<(), Flaw> {
        loop {
            at = self.skip_blanks(at);
            let word = self.word(at);
            if word.is_empty() {
                return Ok(());
            }
            match word.iter().position(|byte| *byte == b'-') {
                None => {
                    let rank = self.rank(at, word)?;
                    each(rank..=rank);
                }
                Some(dash) => {
                    let low = self.rank(at, &word[..dash])?;
                    let high = self.rank(at + dash + 1, &word[dash + 1..])?;
                    if low > high {
                        return Err(Flaw::new(at, word, "a range with the lower rank first"));
                    }
                    each(low..=high);
                }
            }
            at += word.len();
        }
    }

    /// The only word of the rest of the line, as a decimal number, and where it begins.
    fn value(&self, from: usize) -> Result<(usize, Option<u64>), Flaw> {
        let at = self.skip_blanks(from);
        let word = self.word(at);
        let number = digits(word, 10).map_err(|bad| self.bad_digit(at + bad, at, 10))?;
        let end = self.skip_blanks(at + word.len());
        if end < self.line.len() {
            return Err(Flaw::new(end, self.word(end), "the end of the line"));
        }
        Ok((at, number))
    }

    fn rank(&self, at: usize, word: &[u8]) -> Result<u32, Flaw> {
        match digits(word, self.base) {
            Err(bad) => Err(self.bad_digit(at + bad, at, self.base)),
            Ok(rank) => rank
                .and_then(|rank| u32::try_from(rank).ok())
                .filter(|rank| *rank < self.size)
                .ok_or_else(|| {
                    let last = self.size.saturating_sub(1);
                    let text = number_text(last, self.base);
                    Flaw::new(
                        at,
                        word,
                        format!("a rank of this job, 0 to {text} in base {},", self.base),
                    )
                }),
        }
    }

    /// `at`: the byte that is no digit; `start`: where the number begins.
    fn bad_digit(&self, at: usize, start: usize, base: u32) -> Flaw {
        let seen = self.line.get(at..).unwrap_or_default();
        let len = if seen.first().is_none_or(is_blank) { 0 } else { 1 };
        let what = if at == start { "a number" } else { "a digit" };
        let mut flaw = Flaw::new(at, &seen[..len], format!("{what} in base {base}"));
        if len == 0 && at < self.line.len() {
            flaw.seen = "a blank".to_owned();
        }
        flaw
    }

    fn skip_blanks(&self, from: usize) -> usize {
        let rest = self.line.get(from..).unwrap_or_default();
        from + rest.iter().take_while(|byte| is_blank(byte)).count()
    }

    fn word(&self, from: usize) -> &[u8] {
        let rest = self.line.get(from..).unwrap_or_default();
        &rest[..rest.iter().take_while(|byte| !is_blank(byte)).count()]
    }
}

/// The number; `None` when it is too large for anything. The error is the index of the first byte
/// that is no digit.
fn digits(word: &[u8], base: u32) -> Result<Option<u64>, usize> {
    if word.is_empty() {
        return Err(0);
    }
    let mut number = Some(0_u64);
    for (index, byte) in word.iter().enumerate() {
        let digit = char::from(*byte).to_digit(base).ok_or(index)?;
        number = number
            .and_then(|number| number.checked_mul(u64::from(base)))
            .and_then(|number| number.checked_add(u64::from(digit)));
    }
    Ok(number)
}

/// A number in lower-case digits; a base outside [`BASES`] is taken as 10.
fn number_text(mut number: u32, base: u32) -> String {
    let base = if BASES.contains(&base) { base } else { 10 };
    let mut text = Vec::new();
    loop {
        text.extend(char::from_digit(number % base, base));
        number /= base;
        if number == 0 {
            return text.into_iter().rev().collect();
        }
    }
}

/// First lines of a written file.
pub(crate) fn header(size: u32, base: u32) -> String {
    format!("size: {size}\nbase: {base}\n")
}

/// The lines of rank `me`; `peers` ascending. Empty when there are none.
pub(crate) fn lines(me: u32, peers: impl IntoIterator<Item = u32>, base: u32) -> String {
    let mut tag = number_text(me, base);
    if tag == "size" || tag == "base" {
        // Such a rank exists in large jobs in base 36; a zero in front tells it from the word.
        tag.insert(0, '0');
    }
    let (mut text, mut line) = (String::new(), String::new());
    let mut add = |token: &str| {
        if !line.is_empty() && line.len() + 1 + token.len() > WIDTH {
            text.push_str(&line);
            text.push('\n');
            line.clear();
        }
        if line.is_empty() {
            line = format!("{tag}:{token}");
        } else {
            line.push(' ');
            line.push_str(token);
        }
    };
    let mut finish = |(low, high): (u32, u32)| {
        let (first, last) = (number_text(low, base), number_text(high, base));
        match high - low {
            0 => add(&first),
            1 => [first, last].iter().for_each(|token| add(token)),
            _ => add(&format!("{first}-{last}")),
        }
    };
    let mut run: Option<(u32, u32)> = None;
    for peer in peers {
        run = match run {
            Some((low, high)) if high.checked_add(1) == Some(peer) => Some((low, peer)),
            Some(done) => {
                finish(done);
                Some((peer, peer))
            }
            None => Some((peer, peer)),
        };
    }
    if let Some(done) = run {
        finish(done);
    }
    if !line.is_empty() {
        text.push_str(&line);
        text.push('\n');
    }
    text
}

/// Writes a whole file, replacing what was there.
pub(crate) fn write(path: &Path, text: &str) -> Result<(), Error> {
    std::fs::write(path, text)
        .map_err(|source| Error::Write { path: path.display().to_string(), source })
}

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;
