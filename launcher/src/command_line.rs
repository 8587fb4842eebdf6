//! From the words of the command line to checked flags and the program's words.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use ::settings::log;
use bootstrap::rank::MAX_RANKS;
use clap::FromArgMatches;
use clap::error::ContextValue;

use crate::flags::{Flags, command};
use crate::normalise::{Line, LineError, Spellings};

/// A checked command line.
#[derive(Clone, Debug)]
pub struct CommandLine {
    /// Options.
    pub flags: Flags,
    /// Program (or wrapper) and arguments, as typed; those of the first of several programs.
    pub command: Vec<OsString>,
    /// The programs of a job with several, the first among them; else empty.
    pub parts: Vec<Part>,
}

/// One of several programs, as typed between colons.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// `-n`.
    pub ranks: u32,
    /// Assignments of `--env`.
    pub env: Vec<OsString>,
    /// `--wdir`.
    pub wdir: Option<PathBuf>,
    /// Program (or wrapper) and arguments.
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
    /// One of several programs without `-n`: its number, its words.
    #[error(
        "program {0} of the job ({1}) has no -n; write : -n P in front of it. A colon that is an argument of a program needs \
         -- in front of that: gasnetrun_ibv -n P -- program :"
    )]
    PartRanks(usize, String),
    /// Nothing between two colons, or at an end.
    #[error("program {0} of the job is missing {1}; write -n 2 ./a x : -n 6 ./b y")]
    PartProgram(usize, &'static str),
    /// An option that is for the whole job: itself, the number of the program it stands before.
    #[error(
        "{0} stands before program {1} of the job, but is for all of it; write it in front of the first program. \
         Only -n, --env (-x, -env) and --wdir are for one program"
    )]
    PartOption(String, usize),
    /// More ranks than a job can have.
    #[error("the programs of the job have more than {MAX_RANKS} ranks together")]
    PartSum,
    /// `--debugger-ranks` with a rank outside the job: that rank, the last one.
    #[error("--debugger-ranks: there is no rank {0}; the job has ranks 0 to {1} only")]
    DebuggerRank(u32, u32),
    /// `--debugger-ranks` without a debugger.
    #[error("--debugger-ranks needs a debugger; try --debugger gdb in front of it")]
    NoDebugger,
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
    let mut lines = cut(words)?.into_iter();
    let first = lines.next().unwrap_or_default();
    let mut flags = parse_options(&first.options)?;
    let several = lines.len() > 0;
    let mut parts = Vec::new();
    if several {
        let (env, wdir) = (std::mem::take(&mut flags.env), flags.wdir.take());
        let ranks = flags.ranks.unwrap_or(0);
        parts.push(Part { ranks, env, wdir, command: first.command.clone() });
        for line in lines {
            parts.push(part(line, parts.len() + 1)?);
        }
        flags.ranks = Some(check(&parts)?);
        // A name without a value is for other hosts, whatever runs there.
        for part in &mut parts {
            let names = part.env.extract_if(.., |entry| !entry.as_bytes().contains(&b'='));
            flags.env_all.extend(names);
        }
    } else {
        let own = std::mem::take(&mut flags.env);
        flags.env_all.extend(own);
    }
    Ok(CommandLine { flags, command: first.command, parts })
}

/// Cuts the line at colons, of which those behind `--` are arguments.
fn cut(words: impl IntoIterator<Item = OsString>) -> Result<Vec<Line>, LineError> {
    let spellings = Spellings::of(command());
    let mut lines = Vec::new();
    let mut rest: Vec<OsString> = words.into_iter().collect();
    loop {
        let mut line = spellings.cut(rest)?;
        let colon = line.command.iter().position(|word| word == ":").filter(|_| !line.ended);
        let Some(colon) = colon else {
            lines.push(line);
            return Ok(lines);
        };
        rest = line.command.split_off(colon).into_iter().skip(1).collect();
        lines.push(line);
    }
}

/// Another program of the job: the options that it may have of its own.
fn part(line: Line, number: usize) -> Result<Part, CommandLineError> {
    let own = |option: &&OsString| {
        ["-n=", "--env=", "--wdir="].iter().any(|own| option.as_bytes().starts_with(own.as_bytes()))
    };
    if let Some(option) = line.options.iter().find(|option| !own(option)) {
        // What is unknown is said first.
        parse_options(std::slice::from_ref(option))?;
        let option = option.to_string_lossy().into_owned();
        return Err(CommandLineError::PartOption(option, number));
    }
    let flags = parse_options(&line.options)?;
    let ranks = flags.ranks.unwrap_or(0);
    Ok(Part { ranks, env: flags.env, wdir: flags.wdir, command: line.command })
}

/// Checks several programs; all their ranks.
fn check(parts: &[Part]) -> Result<u32, CommandLineError> {
    let mut all = 0u32;
    for (number, part) in (1..).zip(parts) {
        if part.command.is_empty() {
            let colon =
                if number == parts.len() { "behind the last colon" } else { "before a colon" };
            return Err(CommandLineError::PartProgram(number, colon));
        }
        if part.ranks == 0 {
            let words = part.command.iter().map(|word| word.to_string_lossy().into_owned());
            return Err(CommandLineError::PartRanks(number, words.collect::<Vec<_>>().join(" ")));
        }
        all = all.saturating_add(part.ranks);
    }
    if all > MAX_RANKS { Err(CommandLineError::PartSum) } else { Ok(all) }
}

impl CommandLine {
    /// The number of ranks; checks what a job needs.
    ///
    /// # Errors
    /// No `-n`, no program, or a reader of standard input or a rank of a debugger that is none.
    pub fn ranks(&self) -> Result<u32, CommandLineError> {
        let ranks = self.flags.ranks.ok_or(CommandLineError::NoRanks)?;
        if self.command.is_empty() {
            return Err(CommandLineError::NoProgram(ranks));
        }
        match (&self.flags.debugger, &self.flags.debugger_ranks) {
            (None, Some(_)) => return Err(CommandLineError::NoDebugger),
            (_, Some(chosen)) if chosen.last() >= ranks => {
                return Err(CommandLineError::DebuggerRank(chosen.last(), ranks - 1));
            }
            _ => {}
        }
        match self.flags.reader() {
            supervisor::plan::StdinTo::Rank(rank) if rank.0 >= ranks => {
                Err(CommandLineError::StdinRank(rank.0, ranks - 1))
            }
            _ => Ok(ranks),
        }
    }
}
