//! From the words of the command line to checked flags and the program's words.

use std::ffi::OsString;

use ::settings::log;
use clap::FromArgMatches;
use clap::error::ContextValue;

use crate::flags::{Flags, command};
use crate::normalise::{LineError, Spellings};

/// A checked command line.
#[derive(Clone, Debug)]
pub struct CommandLine {
    /// Options.
    pub flags: Flags,
    /// Program (or wrapper) and arguments, as typed.
    pub command: Vec<OsString>,
}

/// Why a command line is refused, or why it needs no job.
#[derive(Debug, thiserror::Error)]
pub enum CommandLineError {
    /// Refused before the table's parser saw it.
    #[error(transparent)]
    Line(#[from] LineError),
    /// Refused by the table's parser. The text has several lines.
    #[error("{0}")]
    Option(String),
    /// `--help` or `--version`: the text for standard output.
    #[error("{0}")]
    Information(String),
    /// No `-n`.
    #[error("the number of ranks is missing; try gasnetrun_ibv -n 4 ./program")]
    NoRanks,
    /// No program.
    #[error("no program is named; try gasnetrun_ibv -n {0} ./program")]
    NoProgram(u32),
    /// `--stdin RANK` outside the job: that rank, the last one.
    #[error("--stdin {0}: the job has ranks 0 to {1} only; try --stdin 0")]
    StdinRank(u32, u32),
}

fn shown(word: &ContextValue) -> Option<ContextValue> {
    let line = |word: &String| log::line(word).into_owned();
    match word {
        ContextValue::String(word) => Some(ContextValue::String(line(word))),
        ContextValue::Strings(words) => {
            Some(ContextValue::Strings(words.iter().map(line).collect()))
        }
        _ => None,
    }
}

/// What the parser of a table says: a mistake, or the text that was asked for (`--help`,
/// `--version`).
impl From<clap::Error> for CommandLineError {
    fn from(mut error: clap::Error) -> Self {
        // The parser's text has several lines; words of the user begin none.
        let words: Vec<_> =
            error.context().filter_map(|(kind, word)| Some((kind, shown(word)?))).collect();
        for (kind, word) in words {
            error.insert(kind, word);
        }
        let text = error.to_string();
        if error.use_stderr() {
            let text = text.strip_prefix("error: ").unwrap_or(&text);
            Self::Option(text.trim_end().to_owned())
        } else {
            Self::Information(text)
        }
    }
}

/// Parses words in the table's own spelling.
///
/// # Errors
/// As [`parse`], without the checks that need the whole line.
pub fn parse_options(options: &[OsString]) -> Result<Flags, CommandLineError> {
    let words = std::iter::once(OsString::from("gasnetrun_ibv")).chain(options.iter().cloned());
    let matches = command().try_get_matches_from(words);
    Ok(matches.and_then(|matches| Flags::from_arg_matches(&matches))?)
}

/// Parses the words of the command line, without the launcher's own name.
///
/// # Errors
/// Every mistake that can be seen without a look at the system; all of them are usage errors (exit
/// code 2), except [`CommandLineError::Information`].
pub fn parse(words: impl IntoIterator<Item = OsString>) -> Result<CommandLine, CommandLineError> {
    let line = Spellings::of(command()).cut(words)?;
    Ok(CommandLine { flags: parse_options(&line.options)?, command: line.command })
}

impl CommandLine {
    /// The number of ranks; checks what a job needs.
    ///
    /// # Errors
    /// No `-n`, no program, or a reader of standard input that is no rank.
    pub fn ranks(&self) -> Result<u32, CommandLineError> {
        let ranks = self.flags.ranks.ok_or(CommandLineError::NoRanks)?;
        if self.command.is_empty() {
            return Err(CommandLineError::NoProgram(ranks));
        }
        match self.flags.stdin {
            supervisor::plan::StdinTo::Rank(rank) if rank.0 >= ranks => {
                Err(CommandLineError::StdinRank(rank.0, ranks - 1))
            }
            _ => Ok(ranks),
        }
    }
}
