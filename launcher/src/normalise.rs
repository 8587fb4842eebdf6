//! Turns GASNet's spellings into those of the option table, and cuts the program off.
//!
//! ```text
//! -np 4  -np4  -n4  -n 4      ->  -n=4          (likewise -N, -c, -E)
//! -spawner=ssh                ->  --spawner=ssh
//! --wdir d                    ->  --wdir=d
//! -ppn 4  (of others)         ->  --ranks-per-host=4
//! ```
//!
//! Every value becomes glued to its option, so that the parser behind can never take a value for an
//! option. Words from the program on are not looked at. Bytes that are not UTF-8 pass through.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use crate::aliases::{self, AliasError, Becomes, Found};
use crate::spawner::Spawner;

/// The option table, as far as the normaliser must know it.
#[derive(Clone, Debug)]
pub struct Spellings(clap::Command);

/// A command line, cut in two.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Line {
    /// Options for the table's parser. An unknown long option stands here as it was typed, as the
    /// last word.
    pub options: Vec<OsString>,
    /// Program and arguments, untouched.
    pub command: Vec<OsString>,
    /// Whether options were ended by `--`: then a colon in `command` is an argument.
    pub ended: bool,
}

/// What cannot be cut.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    /// Nothing follows an option that needs a value.
    #[error("option {0} needs a value, but the command line ends there; try {0} VALUE")]
    NoValue(String),
    /// An option follows where a value must stand: that before it, itself, how both are glued.
    #[error(
        "option {0} needs a value, but the next word is the option {1:?}; try {0} VALUE \
         (a value that really begins with - is written {0}{2}{1})"
    )]
    OptionAsValue(String, String, &'static str),
    /// An unknown option with one dash.
    #[error(
        "unknown option {0:?}; gasnetrun_ibv --help lists the options \
         (a program whose name begins with - is written after --)"
    )]
    Unknown(String),
    /// `-timeout` for `--timeout`.
    #[error("unknown option -{0}; try --{0}")]
    SingleDash(String),
    /// An option as others write it, or one that only they have.
    #[error(transparent)]
    Alias(#[from] AliasError),
    /// `-spawner ssh`.
    #[error("option -spawner needs its value glued with =; try -spawner={0}")]
    SpawnerValue(String),
}

impl Spellings {
    /// Reads the option table.
    #[must_use]
    pub fn of(mut command: clap::Command) -> Self {
        command.build();
        Self(command)
    }

    /// Whether an option takes a value; `None` when there is no such option.
    fn takes_value(&self, is: impl Fn(&clap::Arg) -> bool) -> Option<bool> {
        self.0.get_arguments().find(|arg| is(arg)).map(|arg| arg.get_action().takes_values())
    }

    fn short(&self, byte: u8) -> Option<bool> {
        self.takes_value(|arg| arg.get_short() == Some(char::from(byte)))
    }

    fn long(&self, name: &[u8]) -> Option<bool> {
        self.takes_value(|arg| arg.get_long().is_some_and(|long| long.as_bytes() == name))
    }

    /// Cuts `words` (without the launcher's own name) into options and program.
    ///
    /// # Errors
    /// A missing value, or a spelling that is close to a known one.
    pub fn cut(&self, words: impl IntoIterator<Item = OsString>) -> Result<Line, LineError> {
        let mut words = words.into_iter().peekable();
        let mut line = Line::default();
        while let Some(word) = words.next_if(|word| word.as_bytes().starts_with(b"-")) {
            if let Some(found) = aliases::find(&word)? {
                self.alias(found, &mut words, &mut line)?;
                continue;
            }
            let known = match word.as_bytes() {
                b"--" => {
                    line.ended = true;
                    break;
                }
                b"-spawner" | b"--spawner" => return Err(spawner_value(words.peek())),
                [b'-', rest @ ..] if rest.starts_with(b"spawner=") => {
                    vec![OsString::from_vec([b"--", rest].concat())]
                }
                [b'-', b'-', rest @ ..] => self.long_word(&word, rest, &mut words)?,
                [_, rest @ ..] => self.short_word(&word, rest, &mut words)?,
                [] => Vec::new(),
            };
            if known.is_empty() {
                // The table's parser knows what an unknown long option resembles.
                if !word.as_bytes().starts_with(b"--") {
                    return Err(LineError::Unknown(word.to_string_lossy().into_owned()));
                }
                line.options.push(word);
                break;
            }
            line.options.extend(known);
        }
        line.command.extend(words);
        Ok(line)
    }

    /// Puts an option of others in our words, each of which must be right by itself.
    fn alias(
        &self,
        found: Found<'_>,
        words: &mut impl Iterator<Item = OsString>,
        line: &mut Line,
    ) -> Result<(), LineError> {
        let values = found.values(words)?;
        let ours = found.ours(&values)?;
        for word in &ours {
            let alone = [OsStr::new("gasnetrun_ibv"), word];
            if let Err(error) = self.0.clone().try_get_matches_from(alone)
                && error.use_stderr()
            {
                let text = error.to_string();
                let first = text.lines().next().unwrap_or_default();
                let why = first.strip_prefix("error: ").unwrap_or(first).to_owned();
                let here = word.to_string_lossy().into_owned();
                return Err(AliasError::Wrong(found.typed(&values), here, why).into());
            }
        }
        if let (Becomes::List(option), Some(value)) = (found.alias.becomes, values.first()) {
            let begin = format!("{option}=");
            let earlier = line.options.iter_mut().rev();
            let mut same = earlier.filter(|word| word.as_bytes().starts_with(begin.as_bytes()));
            if let Some(list) = same.next() {
                list.push(",");
                list.push(value);
                return Ok(());
            }
        }
        line.options.extend(ours);
        Ok(())
    }

    /// The word with its value, as the table has it; nothing when it is unknown.
    fn long_word(
        &self,
        word: &OsStr,
        rest: &[u8],
        words: &mut impl Iterator<Item = OsString>,
    ) -> Result<Vec<OsString>, LineError> {
        let name = rest.split(|b| *b == b'=').next().unwrap_or(rest);
        match self.long(name) {
            None => Ok(Vec::new()),
            Some(true) if name.len() == rest.len() => {
                Ok(vec![glue(word.as_bytes(), &value_after(word, words, "=")?)])
            }
            Some(_) => Ok(vec![word.to_owned()]),
        }
    }

    fn short_word(
        &self,
        word: &OsStr,
        rest: &[u8],
        words: &mut impl Iterator<Item = OsString>,
    ) -> Result<Vec<OsString>, LineError> {
        if rest.len() > 1 && self.long(rest).is_some() {
            return Err(LineError::SingleDash(String::from_utf8_lossy(rest).into_owned()));
        }
        let rest = rest.strip_prefix(b"np").map_or(rest.to_vec(), |tail| [b"n", tail].concat());
        match rest.as_slice() {
            [name, value @ ..] if self.short(*name) == Some(true) => {
                let value = match value {
                    [] => value_after(word, words, "")?,
                    [b'=', value @ ..] | value => OsString::from_vec(value.to_vec()),
                };
                Ok(vec![glue(&[b'-', *name], &value)])
            }
            // `-vn4` is a slip, not a spelling: only a word that begins with the option may carry
            // its value.
            switches if switches.iter().all(|b| self.short(*b) == Some(false)) => {
                Ok(switches.iter().map(|b| OsString::from_vec(vec![b'-', *b])).collect())
            }
            _ => Ok(Vec::new()),
        }
    }
}

fn glue(name: &[u8], value: &OsStr) -> OsString {
    OsString::from_vec([name, b"=", value.as_bytes()].concat())
}

fn spawner_value(behind: Option<&OsString>) -> LineError {
    let name = behind.and_then(|word| word.to_str());
    let name = name.filter(|word| Spawner::ALL.iter().any(|s| word.eq_ignore_ascii_case(s.name())));
    LineError::SpawnerValue(name.unwrap_or("ssh").to_owned())
}

fn value_after(
    option: &OsStr,
    words: &mut impl Iterator<Item = OsString>,
    glue: &'static str,
) -> Result<OsString, LineError> {
    let option = option.to_string_lossy().into_owned();
    match words.next() {
        None => Err(LineError::NoValue(option)),
        Some(word) if word.as_bytes().starts_with(b"-") && word.len() > 1 => {
            Err(LineError::OptionAsValue(option, word.to_string_lossy().into_owned(), glue))
        }
        Some(word) => Ok(word),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::flags::command;

    fn words(line: &[&str]) -> Vec<OsString> {
        line.iter().map(OsString::from).collect()
    }

    fn cut(line: &[&str]) -> Result<Line, LineError> {
        Spellings::of(command()).cut(words(line))
    }

    #[test]
    fn spellings() {
        for (typed, options) in [
            (&["-n", "4"][..], &["-n=4"][..]),
            (&["-n4"], &["-n=4"]),
            (&["-np", "4"], &["-n=4"]),
            (&["-np4"], &["-n=4"]),
            (&["-n=4"], &["-n=4"]),
            (&["-N2", "-c0"], &["-N=2", "-c=0"]),
            (&["-E", "A,B"], &["-E=A,B"]),
            (&["-E", ""], &["-E="]),
            (&["-v", "-vv", "-vt"], &["-v", "-v", "-v", "-v", "-t"]),
            (&["-spawner=MPI"], &["--spawner=MPI"]),
            (&["--spawner=mpi"], &["--spawner=mpi"]),
            (&["--timeout", "3"], &["--timeout=3"]),
            (&["--timeout=3", "--tag-output"], &["--timeout=3", "--tag-output"]),
            (&["--output-dir=-x"], &["--output-dir=-x"]),
        ] {
            let line = cut(&[typed, &["prog", "-n", "--", "-np4"]].concat()).expect("legal");
            assert_eq!(line.options, words(options), "{typed:?}");
            assert_eq!(line.command, words(&["prog", "-n", "--", "-np4"]), "{typed:?}");
        }
    }

    #[test]
    fn double_dash_ends_options_and_is_dropped_once() {
        let line = cut(&["-n", "2", "--", "-prog", "--", "x"]).expect("legal");
        assert_eq!(line.options, words(&["-n=2"]));
        assert_eq!(line.command, words(&["-prog", "--", "x"]));
    }

    #[test]
    fn refusals() {
        assert!(matches!(cut(&["-n"]), Err(LineError::NoValue(_))));
        assert!(matches!(cut(&["-E", "-n", "2", "p"]), Err(LineError::OptionAsValue(..))));
        assert!(matches!(cut(&["-n", "-N", "2", "p"]), Err(LineError::OptionAsValue(..))));
        assert_eq!(cut(&["-report", "3"]), Err(LineError::SingleDash("report".into())));
        assert_eq!(cut(&["-spawner", "mpi"]), Err(LineError::SpawnerValue("mpi".into())));
    }

    #[test]
    fn unknown_option_stops_and_stays() {
        for unknown in ["-y", "-", "-vn4", "-vx", "-encode", "-spawners"] {
            assert_eq!(cut(&["-n", "2", unknown, "prog"]), Err(LineError::Unknown(unknown.into())));
        }
        for unknown in ["--foo=1", "---", "--npp"] {
            let line = cut(&["-n", "2", unknown, "prog"]).expect("left to the parser");
            assert_eq!(line.options, words(&["-n=2", unknown]));
        }
    }

    fn word() -> impl Strategy<Value = OsString> {
        prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..12).prop_map(OsString::from_vec),
            "-{0,3}(n|np|N|c|E|v|t|k|q|x|l|genv|host|ppn|map-by|time|spawner|timeout|wdir|man|help)?=?[0-9a-z-]{0,4}"
                .prop_map(OsString::from),
        ]
    }

    proptest! {
        #[test]
        fn never_panics_and_never_touches_the_program(words in proptest::collection::vec(word(), 0..12)) {
            let spellings = Spellings::of(command());
            if let Ok(line) = spellings.cut(words.clone()) {
                prop_assert!(words.ends_with(&line.command));
                prop_assert!(line.options.iter().all(|word| word.as_bytes().starts_with(b"-")));
            }
        }

        #[test]
        fn program_words_stay(program in proptest::collection::vec(word(), 0..8)) {
            let spellings = Spellings::of(command());
            let head = ["-np3", "-v", "--timeout", "1m", "--"].map(OsString::from).to_vec();
            let line = spellings.cut([head, program.clone()].concat()).expect("legal");
            prop_assert_eq!(line.command, program);
        }

        #[test]
        fn what_is_cut_never_confuses_the_parser(words in proptest::collection::vec(word(), 0..12)) {
            // No option takes another one for its value: together they mean what each means alone.
            let Ok(line) = Spellings::of(command()).cut(words) else { return Ok(()) };
            let accepted = |options: &[OsString]| crate::command_line::parse_options(options).is_ok();
            let each = line.options.chunks(1).all(accepted);
            prop_assert_eq!(accepted(&line.options), each, "{:?}", line.options);
        }
    }
}
