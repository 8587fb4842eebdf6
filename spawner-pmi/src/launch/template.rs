//! `MPIRUN_CMD` and `PMIRUN_CMD`: how another launcher is called, as words with escapes. Pure.
//!
//! The text is cut into words as a shell does it, so quotes protect. An escape that is a word of
//! its own may become several words; inside a word it becomes text, in which the words of a command
//! are quoted for a shell (`sh -c 'exec %C'`). Escapes and the rules of what must be there are
//! GASNet's.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// Escapes with their meaning, in the order in which they are documented.
pub const ESCAPES: [(char, &str); 10] = [
    ('N', "number of ranks; as a word of its own followed by the words for -N, -c and the like"),
    ('M', "number of hosts with -N, else the number of ranks"),
    ('C', "the whole command: %P %A"),
    ('P', "the program, behind the words that carry the environment"),
    ('A', "the program's arguments"),
    ('Q', "the same, each quoted once more for a shell"),
    (
        'H',
        "file with the hosts: --hostfile, GASNET_NODEFILE, PBS_NODEFILE, or the machines file of SGE",
    ),
    ('D', "working directory"),
    ('V', "the words that make the launcher say more, with -v"),
    ('%', "a percent sign"),
];

/// Why a template cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "each message names its fields")]
pub enum TemplateError {
    /// Quotes that are not closed.
    #[error(
        "{from}={text:?}: a quote is not closed, or a backslash stands at the end; quote as in a shell"
    )]
    Quoting { from: String, text: String },
    /// A percent sign before something that is no escape.
    #[error(
        "{from}={text:?}: unknown escape {seen:?} in the word {word:?}; there are {known}, and %% is a percent sign"
    )]
    Escape { from: String, text: String, seen: String, word: String, known: String },
    /// No word that could be a launcher's program.
    #[error("{from}={text:?} names no launcher; write for example {example:?}")]
    NoLauncher { from: String, text: String, example: &'static str },
    /// Something without which no job can be started.
    #[error(
        "{from}={text:?} has no {missing}; write for example {example:?}, or set {from}_OK=1 to use it as it is"
    )]
    Missing { from: String, text: String, missing: &'static str, example: &'static str },
    /// `%H` without such a file.
    #[error(
        "{from} has %H, but no file with hosts is known: give --hostfile FILE, or set GASNET_NODEFILE (PBS_NODEFILE, and \
         the machines file of SGE below TMPDIR, are looked at as well)"
    )]
    NoHostFile { from: String },
}

/// Template that would do.
const EXAMPLE: &str = "mpirun -np %N %C";

#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::FromRepr)]
#[repr(u8)]
enum Escape {
    Ranks = b'N',
    Hosts = b'M',
    Command = b'C',
    Program = b'P',
    Arguments = b'A',
    Quoted = b'Q',
    HostFile = b'H',
    Directory = b'D',
    Verbose = b'V',
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(Vec<u8>),
    Escape(Escape),
}

/// A template that was understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    from: String,
    words: Vec<Vec<Piece>>,
    /// Index of the launcher's program: the first word, or the one behind `env NAME=VALUE …`.
    launcher: usize,
}

/// What escapes stand for.
#[derive(Clone, Debug, Default)]
pub struct Values {
    /// Ranks.
    pub ranks: u32,
    /// Hosts, when their number was asked for.
    pub hosts: Option<u32>,
    /// Words behind the number of ranks: layout, binding and the like.
    pub layout: Vec<OsString>,
    /// Words in front of the program, which carry the environment.
    pub environment: Vec<OsString>,
    /// The program.
    pub program: OsString,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// Words of `-v`; empty without it.
    pub verbose: Vec<OsString>,
    /// File with hosts.
    pub host_file: Option<OsString>,
    /// Working directory.
    pub directory: OsString,
}

impl Template {
    /// Reads a template. `from` is the variable it came from; `unchecked` says that its `_OK`
    /// variable is set. The token `MPIRUN_CMD_OK` or `PMIRUN_CMD_OK` inside the text says the same
    /// and is taken out.
    ///
    /// # Errors
    /// [`TemplateError`].
    pub fn parse(from: &str, text: &OsStr, unchecked: bool) -> Result<Self, TemplateError> {
        let shown = || (from.to_owned(), text.to_string_lossy().into_owned());
        let mut cut = shlex::bytes::Shlex::new(text.as_bytes());
        let mut words: Vec<Vec<u8>> = cut.by_ref().collect();
        if cut.had_error {
            let (from, text) = shown();
            return Err(TemplateError::Quoting { from, text });
        }
        let before = words.len();
        words.retain(|word| !matches!(word.as_slice(), b"MPIRUN_CMD_OK" | b"PMIRUN_CMD_OK"));
        let unchecked = unchecked || words.len() < before;
        let Some(launcher) = launcher(&words) else {
            let (from, text) = shown();
            return Err(TemplateError::NoLauncher { from, text, example: EXAMPLE });
        };
        let words = words.iter().map(|word| {
            pieces(word).map_err(|seen| {
                let (from, text) = shown();
                let known =
                    ESCAPES[..ESCAPES.len() - 1].iter().map(|(message, _)| format!("%{message}"));
                let (word, known) =
                    (String::from_utf8_lossy(word).into_owned(), known.collect::<Vec<_>>());
                TemplateError::Escape { from, text, seen, word, known: known.join(" ") }
            })
        });
        let template =
            Self { from: from.to_owned(), words: words.collect::<Result<_, _>>()?, launcher };
        match template.missing().filter(|_| !unchecked) {
            None => Ok(template),
            Some(missing) => {
                let (from, text) = shown();
                Err(TemplateError::Missing { from, text, missing, example: EXAMPLE })
            }
        }
    }

    /// The word that names the launcher's program.
    #[must_use]
    pub fn launcher(&self) -> OsString {
        let word = self.words.get(self.launcher).map_or(&[][..], Vec::as_slice);
        OsString::from_vec(
            word.iter()
                .flat_map(|piece| match piece {
                    Piece::Text(text) => text.clone(),
                    Piece::Escape(_) => Vec::new(),
                })
                .collect(),
        )
    }

    /// The word behind the launcher's program, such as `run` in `flux run`.
    #[must_use]
    pub fn has_option(&self, option: &str) -> bool {
        self.words.iter().skip(self.launcher + 1).any(|word| match word.first() {
            Some(Piece::Text(text)) => text
                .strip_prefix(option.as_bytes())
                .is_some_and(|rest| matches!(rest.first(), None | Some(b'='))),
            _ => false,
        })
    }

    /// Whether the command is the last that is said.
    #[must_use]
    pub fn ends_with_command(&self) -> bool {
        self.words.last().is_some_and(|word| {
            matches!(word.as_slice(), [Piece::Escape(Escape::Command | Escape::Arguments)])
        })
    }

    /// The words of the call, the launcher's program among them as it is written.
    ///
    /// # Errors
    /// `%H` without a file.
    pub fn expand(&self, values: &Values) -> Result<Vec<OsString>, TemplateError> {
        let mut out = Vec::new();
        for word in &self.words {
            if let [Piece::Escape(escape)] = word.as_slice() {
                out.extend(self.words_of(*escape, values)?);
                continue;
            }
            let mut bytes = Vec::new();
            for piece in word {
                match piece {
                    Piece::Text(text) => bytes.extend_from_slice(text),
                    Piece::Escape(escape) => bytes.extend(self.text_of(*escape, values)?),
                }
            }
            out.push(OsString::from_vec(bytes));
        }
        Ok(out)
    }

    fn has(&self, wanted: &[Escape]) -> bool {
        let mut pieces = self.words.iter().flatten();
        pieces.any(|piece| matches!(piece, Piece::Escape(escape) if wanted.contains(escape)))
    }

    fn missing(&self) -> Option<&'static str> {
        use Escape::{Arguments, Command, Program, Quoted, Ranks};
        let rules: [(&[Escape], &str); 3] = [
            (&[Ranks], "%N (the number of ranks)"),
            (&[Command, Program], "%C or %P (the program)"),
            (&[Command, Arguments, Quoted], "%C, %A or %Q (the program's arguments)"),
        ];
        rules.into_iter().find(|(any, _)| !self.has(any)).map(|(_, text)| text)
    }

    /// An escape that is a word of its own.
    fn words_of(&self, escape: Escape, values: &Values) -> Result<Vec<OsString>, TemplateError> {
        let mut program = values.environment.clone();
        program.push(values.program.clone());
        Ok(match escape {
            Escape::Ranks => {
                let mut words = vec![values.ranks.to_string().into()];
                words.extend(values.layout.iter().cloned());
                words
            }
            Escape::Command => {
                program.into_iter().chain(values.arguments.iter().cloned()).collect()
            }
            Escape::Program => program,
            Escape::Arguments => values.arguments.clone(),
            Escape::Quoted => values.arguments.iter().map(|word| quoted(word)).collect(),
            Escape::Verbose => values.verbose.clone(),
            Escape::Hosts | Escape::HostFile | Escape::Directory => {
                vec![OsString::from_vec(self.text_of(escape, values)?)]
            }
        })
    }

    /// An escape inside a word.
    fn text_of(&self, escape: Escape, values: &Values) -> Result<Vec<u8>, TemplateError> {
        Ok(match escape {
            Escape::Ranks => values.ranks.to_string().into_bytes(),
            Escape::Hosts => values.hosts.unwrap_or(values.ranks).to_string().into_bytes(),
            Escape::Directory => values.directory.as_bytes().to_vec(),
            Escape::HostFile => match &values.host_file {
                Some(file) => file.as_bytes().to_vec(),
                None => return Err(TemplateError::NoHostFile { from: self.from.clone() }),
            },
            Escape::Command
            | Escape::Program
            | Escape::Arguments
            | Escape::Quoted
            | Escape::Verbose => {
                let words = self.words_of(escape, values)?;
                words.iter().map(|word| quoted(word).into_vec()).collect::<Vec<_>>().join(&b' ')
            }
        })
    }
}

/// Where the launcher's program stands.
fn launcher(words: &[Vec<u8>]) -> Option<usize> {
    let is_env = |word: &[u8]| word.rsplit(|b| *b == b'/').next() == Some(b"env");
    if !is_env(words.first()?) {
        return Some(0);
    }
    let mut at = 1;
    while let Some(word) = words.get(at) {
        match word.as_slice() {
            b"-u" | b"--unset" | b"-C" | b"--chdir" => at += 2,
            word if word.starts_with(b"-") || word.contains(&b'=') => at += 1,
            _ => return Some(at),
        }
    }
    None
}

/// Cuts a word at its escapes; the error is the unknown one.
fn pieces(word: &[u8]) -> Result<Vec<Piece>, String> {
    let mut pieces = Vec::new();
    let mut text = Vec::new();
    let mut rest = word.iter();
    while let Some(byte) = rest.next() {
        if *byte != b'%' {
            text.push(*byte);
            continue;
        }
        match rest.next() {
            Some(b'%') => text.push(b'%'),
            Some(message) => {
                let escape = Escape::from_repr(*message);
                let escape =
                    escape.ok_or_else(|| format!("%{}", char::from(*message).escape_default()))?;
                if !text.is_empty() {
                    pieces.push(Piece::Text(std::mem::take(&mut text)));
                }
                pieces.push(Piece::Escape(escape));
            }
            None => return Err("%".to_owned()),
        }
    }
    if !text.is_empty() || pieces.is_empty() {
        pieces.push(Piece::Text(text));
    }
    Ok(pieces)
}

/// A word as a shell reads it back. Words have no NUL: they are arguments.
fn quoted(word: &OsStr) -> OsString {
    let bytes = shlex::bytes::try_quote(word.as_bytes());
    OsString::from_vec(
        bytes.map_or_else(|_| word.as_bytes().to_vec(), |quoted| quoted.into_owned()),
    )
}

#[cfg(test)]
#[path = "template_tests.rs"]
mod tests;
