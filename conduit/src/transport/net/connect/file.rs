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

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(
        "connect file {path}: cannot read it: {source}; set GASNET_CONNECTFILE_IN to a readable file or leave it empty"
    )]
    Read { path: String, source: std::io::Error },
    #[error("connect file {path}: cannot write it: {source}")]
    Write { path: String, source: std::io::Error },
    /// It says something that is no connect file, or not one of this job.
    #[error("{path}:{line}:{column}: {seen} seen, {expected} expected")]
    Syntax { path: String, line: usize, column: usize, seen: String, expected: String },
}

pub(crate) const BASES: RangeInclusive<u32> = 2..=36;

/// Width that written lines keep to.
const WIDTH: usize = 79;

/// The name of this rank's file: every `%` stands for the rank.
pub(crate) fn expand(pattern: &Path, rank: u32) -> PathBuf {
    let parts: Vec<&[u8]> = pattern.as_os_str().as_bytes().split(|byte| *byte == b'%').collect();
    OsString::from_vec(parts.join(rank.to_string().as_bytes())).into()
}

/// Reads the file of rank `me` in a job of `size` ranks. The result has an entry for each rank:
/// whether to connect with it (also for `me`, when the file names it). What is wrong anywhere in
/// the file is an error, also on lines of other ranks.
pub(crate) fn read(pattern: &Path, me: u32, size: u32) -> Result<Vec<bool>, Error> {
    let path = expand(pattern, me);
    let name = path.display().to_string();
    match std::fs::read(&path) {
        Ok(text) => parse(&name, &text, me, size),
        Err(source) => Err(Error::Read { path: name, source }),
    }
}

/// As [`read`], from memory. `path` is for messages.
pub(crate) fn parse(path: &str, text: &[u8], me: u32, size: u32) -> Result<Vec<bool>, Error> {
    let mut chosen = vec![false; size as usize];
    let mut base = 10;
    for (line, number) in text.split(|byte| *byte == b'\n').zip(1..) {
        let reader = Reader { path, line, number, base, size };
        match reader.line()? {
            Line::Nothing => {}
            Line::Base(new) => base = new,
            Line::Peers { rank, list } => reader.peers(list, |range| {
                if rank == me {
                    let range = *range.start() as usize..=*range.end() as usize;
                    chosen.get_mut(range).unwrap_or_default().fill(true);
                }
            })?,
        }
    }
    Ok(chosen)
}

enum Line {
    Nothing,
    Base(u32),
    /// The list begins at this byte.
    Peers {
        rank: u32,
        list: usize,
    },
}

const fn is_blank(byte: &u8) -> bool {
    matches!(*byte, b' ' | b'\t' | b'\r')
}

struct Reader<'a> {
    path: &'a str,
    line: &'a [u8],
    /// From 1.
    number: usize,
    base: u32,
    size: u32,
}

impl Reader<'_> {
    fn wrong(&self, at: usize, seen: &[u8], expected: impl Into<String>) -> Error {
        let most = 24;
        let text = seen.get(..most).unwrap_or(seen).escape_ascii();
        let seen = match seen.len() {
            0 if at < self.line.len() => "a blank".to_owned(),
            0 => "the end of the line".to_owned(),
            len if len > most => format!("\"{text}…\""),
            _ => format!("\"{text}\""),
        };
        let (path, line, column) = (self.path.to_owned(), self.number, at + 1);
        Error::Syntax { path, line, column, seen, expected: expected.into() }
    }

    fn line(&self) -> Result<Line, Error> {
        let start = "a rank and ':', \"size:\" or \"base:\" at the start of the line";
        if self.line.iter().all(is_blank) || self.line.first() == Some(&b'#') {
            return Ok(Line::Nothing);
        }
        if self.line.first().is_some_and(is_blank) {
            return Err(self.wrong(0, &self.line[..1], start));
        }
        let Some(colon) = self.line.iter().position(|byte| *byte == b':') else {
            return Err(self.wrong(0, self.word(0), start));
        };
        match &self.line[..colon] {
            b"" => Err(self.wrong(0, b":", start)),
            b"size" => match self.value(colon + 1)? {
                (_, Some(size)) if size == self.size => Ok(Line::Nothing),
                (at, _) => {
                    let expected = format!("the size of this job, {},", self.size);
                    Err(self.wrong(at, self.word(at), expected))
                }
            },
            b"base" => match self.value(colon + 1)? {
                (_, Some(base)) if BASES.contains(&base) => Ok(Line::Base(base)),
                (at, _) => Err(self.wrong(at, self.word(at), "a base from 2 to 36")),
            },
            tag => Ok(Line::Peers { rank: self.rank(0, tag)?, list: colon + 1 }),
        }
    }

    /// Calls `each` for every rank or range in the list from byte `at`.
    fn peers(&self, mut at: usize, mut each: impl FnMut(RangeInclusive<u32>)) -> Result<(), Error> {
        loop {
            at = self.skip_blanks(at);
            let word = self.word(at);
            if word.is_empty() {
                return Ok(());
            }
            // A rank alone is the range from it to itself.
            let dash = word.iter().position(|byte| *byte == b'-');
            let low = self.rank(at, &word[..dash.unwrap_or(word.len())])?;
            let high = dash.map(|dash| self.rank(at + dash + 1, &word[dash + 1..]));
            let high = high.transpose()?.unwrap_or(low);
            if low > high {
                return Err(self.wrong(at, word, "a range with the lower rank first"));
            }
            each(low..=high);
            at += word.len();
        }
    }

    /// The only word of the rest of the line, as a decimal number, and where it begins.
    fn value(&self, from: usize) -> Result<(usize, Option<u32>), Error> {
        let at = self.skip_blanks(from);
        let word = self.word(at);
        let number = self.digits(at, word, 10)?;
        let end = self.skip_blanks(at + word.len());
        if end < self.line.len() {
            return Err(self.wrong(end, self.word(end), "the end of the line"));
        }
        Ok((at, number))
    }

    fn rank(&self, at: usize, word: &[u8]) -> Result<u32, Error> {
        let rank = self.digits(at, word, self.base)?.filter(|rank| *rank < self.size);
        rank.ok_or_else(|| {
            let last = number_text(self.size.saturating_sub(1), self.base);
            let expected = format!("a rank of this job, 0 to {last} in base {},", self.base);
            self.wrong(at, word, expected)
        })
    }

    /// The number that begins at byte `start`; `None` when it is too large for anything.
    fn digits(&self, start: usize, word: &[u8], base: u32) -> Result<Option<u32>, Error> {
        // An empty word ends in what is no digit.
        let odd = word.iter().position(|byte| !char::from(*byte).is_digit(base));
        if let Some(at) = odd.or(word.is_empty().then_some(0)) {
            let seen = self.line.get(start + at..).unwrap_or_default();
            let seen = if seen.first().is_none_or(is_blank) { &[] } else { &seen[..1] };
            let what = if at == 0 { "a number" } else { "a digit" };
            return Err(self.wrong(start + at, seen, format!("{what} in base {base}")));
        }
        let mut digits = word.iter().filter_map(|byte| char::from(*byte).to_digit(base));
        Ok(digits.try_fold(0_u32, |number, digit| number.checked_mul(base)?.checked_add(digit)))
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
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for peer in peers {
        match runs.last_mut() {
            Some((_, high)) if high.checked_add(1) == Some(peer) => *high = peer,
            _ => runs.push((peer, peer)),
        }
    }
    for (low, high) in runs {
        let (first, last) = (number_text(low, base), number_text(high, base));
        match high - low {
            0 => add(&first),
            1 => [first, last].iter().for_each(|token| add(token)),
            _ => add(&format!("{first}-{last}")),
        }
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
