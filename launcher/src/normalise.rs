//! Turns GASNet's spellings into those of the option table, and cuts the program off.
//!
//! ```text
//! -np 4  -np4  -n4  -n 4      ->  -n=4          (likewise -N, -c, -E)
//! -spawner=ssh                ->  --spawner=ssh
//! --wdir d                    ->  --wdir=d
//! ```
//!
//! Every value becomes glued to its option, so that the parser behind can never take a value for an
//! option. Words from the program on are not looked at. Bytes that are not UTF-8 pass through.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// What the normaliser must know of the option table.
#[derive(Clone, Debug)]
pub struct Spellings {
    shorts: Vec<(u8, bool)>,
    longs: Vec<(String, bool)>,
}

/// A command line, cut in two.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Line {
    /// Options for the table's parser. An unknown long option stands here as it was typed, as the
    /// last word.
    pub options: Vec<OsString>,
    /// Program and arguments, untouched.
    pub command: Vec<OsString>,
}

/// What cannot be cut.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    /// Nothing follows an option that needs a value.
    #[error("option {option} needs a value, but the command line ends there; try {option} VALUE")]
    NoValue {
        /// Option as typed.
        option: String,
    },
    /// An option follows where a value must stand.
    #[error(
        "option {option} needs a value, but the next word is the option {seen:?}; try {option} VALUE \
         (a value that really begins with - is written {glued})"
    )]
    OptionAsValue {
        /// Option as typed.
        option: String,
        /// Word seen.
        seen: String,
        /// Glued spelling.
        glued: String,
    },
    /// An unknown option with one dash.
    #[error(
        "unknown option {seen:?}; gasnetrun_ibv --help lists the options \
         (a program whose name begins with - is written after --)"
    )]
    Unknown {
        /// Word seen.
        seen: String,
    },
    /// `-timeout` for `--timeout`.
    #[error("unknown option -{name}; try --{name}")]
    SingleDash {
        /// Name of the long option.
        name: String,
    },
    /// `-spawner ssh`.
    #[error("option -spawner needs its value glued with =; try -spawner={seen}")]
    SpawnerValue {
        /// Word seen behind it.
        seen: String,
    },
}

impl Spellings {
    /// Reads the option table.
    #[must_use]
    pub fn of(mut command: clap::Command) -> Self {
        command.build();
        let mut spellings = Self { shorts: Vec::new(), longs: Vec::new() };
        for arg in command.get_arguments() {
            let takes_value = arg.get_action().takes_values();
            if let Some(short) = arg.get_short().and_then(|c| u8::try_from(c).ok()) {
                spellings.shorts.push((short, takes_value));
            }
            if let Some(long) = arg.get_long() {
                spellings.longs.push((long.to_owned(), takes_value));
            }
        }
        spellings
    }

    fn short(&self, byte: u8) -> Option<bool> {
        self.shorts.iter().find(|(name, _)| *name == byte).map(|(_, value)| *value)
    }

    fn long(&self, name: &[u8]) -> Option<bool> {
        self.longs.iter().find(|(long, _)| long.as_bytes() == name).map(|(_, value)| *value)
    }

    /// Cuts `words` (without the launcher's own name) into options and program.
    ///
    /// # Errors
    /// A missing value, or a spelling that is close to a known one.
    pub fn cut(&self, words: impl IntoIterator<Item = OsString>) -> Result<Line, LineError> {
        let mut words = words.into_iter().peekable();
        let mut line = Line::default();
        while let Some(word) = words.next_if(|word| word.as_bytes().first() == Some(&b'-')) {
            let known = match word.as_bytes() {
                b"--" => break,
                [b'-', b'-', rest @ ..] => {
                    self.long_word(&word, rest, &mut words, &mut line.options)?
                }
                [b'-', rest @ ..] => self.short_word(&word, rest, &mut words, &mut line.options)?,
                _ => false,
            };
            if !known {
                // The table's parser knows what an unknown long option resembles.
                if !word.as_bytes().starts_with(b"--") {
                    return Err(LineError::Unknown { seen: word.to_string_lossy().into_owned() });
                }
                line.options.push(word);
                break;
            }
        }
        line.command.extend(words);
        Ok(line)
    }

    fn long_word(
        &self,
        word: &OsStr,
        rest: &[u8],
        words: &mut Words<impl Iterator<Item = OsString>>,
        out: &mut Vec<OsString>,
    ) -> Result<bool, LineError> {
        let name = rest.split(|b| *b == b'=').next().unwrap_or(rest);
        let Some(takes_value) = self.long(name) else { return Ok(false) };
        if !takes_value || name.len() < rest.len() {
            out.push(word.to_owned());
        } else if name == b"spawner" {
            return Err(LineError::SpawnerValue { seen: spawner_hint(words) });
        } else {
            let value = value_after(word, words, "=")?;
            out.push(glue(&[b"--", name], &value));
        }
        Ok(true)
    }

    fn short_word(
        &self,
        word: &OsStr,
        rest: &[u8],
        words: &mut Words<impl Iterator<Item = OsString>>,
        out: &mut Vec<OsString>,
    ) -> Result<bool, LineError> {
        if let Some(tail) = rest.strip_prefix(b"spawner") {
            match tail {
                [] => return Err(LineError::SpawnerValue { seen: spawner_hint(words) }),
                [b'=', value @ ..] => {
                    out.push(glue(&[b"--spawner"], OsStr::from_bytes(value)));
                    return Ok(true);
                }
                _ => return Ok(false),
            }
        }
        if rest.len() > 1 && self.long(rest).is_some() {
            return Err(LineError::SingleDash { name: String::from_utf8_lossy(rest).into_owned() });
        }
        let rest =
            if rest.starts_with(b"np") { [b"n", &rest[2..]].concat() } else { rest.to_vec() };
        let switches = rest.iter().take_while(|b| self.short(**b) == Some(false)).count();
        let end = match rest.get(switches) {
            None => rest.len(),
            // `-vn4` is a slip, not a spelling: only a word that begins with the option may carry
            // its value.
            Some(byte) if switches == 0 && self.short(*byte) == Some(true) => 0,
            Some(_) => return Ok(false),
        };
        if end == rest.len() && !rest.is_empty() {
            out.extend(rest.iter().map(|b| OsString::from_vec(vec![b'-', *b])));
            return Ok(true);
        }
        let [name, value @ ..] = rest.as_slice() else { return Ok(false) };
        let value = match value {
            [] => value_after(word, words, "")?,
            [b'=', value @ ..] | value => OsString::from_vec(value.to_vec()),
        };
        out.push(glue(&[&[b'-', *name]], &value));
        Ok(true)
    }
}

type Words<I> = std::iter::Peekable<I>;

fn glue(name: &[&[u8]], value: &OsStr) -> OsString {
    OsString::from_vec([&name.concat()[..], b"=", value.as_bytes()].concat())
}

fn spawner_hint(words: &mut Words<impl Iterator<Item = OsString>>) -> String {
    words
        .peek()
        .and_then(|word| word.to_str())
        .filter(|word| ["ssh", "mpi", "pmi"].contains(&word.to_ascii_lowercase().as_str()))
        .unwrap_or("ssh")
        .to_owned()
}

fn value_after(
    option: &OsStr,
    words: &mut Words<impl Iterator<Item = OsString>>,
    glue: &str,
) -> Result<OsString, LineError> {
    let option = option.to_string_lossy().into_owned();
    match words.next() {
        None => Err(LineError::NoValue { option }),
        Some(word) if word.as_bytes().first() == Some(&b'-') && word.len() > 1 => {
            let seen = word.to_string_lossy().into_owned();
            let glued = format!("{option}{glue}{seen}");
            Err(LineError::OptionAsValue { option, seen, glued })
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
        assert!(matches!(cut(&["-n"]), Err(LineError::NoValue { .. })));
        assert!(matches!(cut(&["-E", "-n", "2", "p"]), Err(LineError::OptionAsValue { .. })));
        assert!(matches!(cut(&["-n", "-N", "2", "p"]), Err(LineError::OptionAsValue { .. })));
        assert_eq!(cut(&["-timeout", "3"]), Err(LineError::SingleDash { name: "timeout".into() }));
        assert_eq!(cut(&["-spawner", "mpi"]), Err(LineError::SpawnerValue { seen: "mpi".into() }));
    }

    #[test]
    fn unknown_option_stops_and_stays() {
        for unknown in ["-x", "-", "-vn4", "-vx", "-encode", "-spawners"] {
            assert_eq!(
                cut(&["-n", "2", unknown, "prog"]),
                Err(LineError::Unknown { seen: unknown.into() })
            );
        }
        for unknown in ["--foo=1", "---", "--np"] {
            let line = cut(&["-n", "2", unknown, "prog"]).expect("left to the parser");
            assert_eq!(line.options, words(&["-n=2", unknown]));
        }
    }

    fn word() -> impl Strategy<Value = OsString> {
        prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..12).prop_map(OsString::from_vec),
            "-{0,3}(n|np|N|c|E|v|t|k|spawner|timeout|wdir|man|help)?=?[0-9a-z-]{0,4}"
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
