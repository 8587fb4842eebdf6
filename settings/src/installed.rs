//! Defaults of an installation: one file in the installed tree, written by `scripts/install`, found
//! from where the program or the library lies, so that the tree may be moved.
//!
//! ```text
//! gasnet-ibv defaults 1
//! # a comment
//! GASNET_IBV_SPAWNER=pmi
//! end
//! ```
//!
//! The first line names the form, the last one shows that nothing is missing. Every other line is a
//! variable of the table with a value of its form. What the environment sets comes first.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::Env;
use crate::parse::parse;
use crate::table::find;
use crate::values;
use crate::variable::Variable;

const FIRST: &str = "gasnet-ibv defaults 1";
const LAST: &str = "end";
/// Below the folder of the installation.
const PLACE: &str = "share/gasnet-ibv/defaults";
/// Far more than a row for every variable takes.
const MOST_BYTES: u64 = 1 << 16;

/// Variables with their values in one installation, each once.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Defaults(pub(crate) Vec<(&'static Variable, String)>);

/// A file of defaults that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DefaultsError {
    /// It is there and cannot be read.
    #[error(
        "cannot read {}, the defaults of this installation: {source}; make it readable, or install again",
        path.display()
    )]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// It is not what the installation wrote.
    #[error(
        "{}, the defaults of this installation, is damaged: {problem}; correct it, remove it, or install again",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Which line, and what is wrong with it.
        problem: String,
    },
}

impl Defaults {
    /// Those of the installation that holds one of these files, the first that has any: programs in
    /// its `bin`, libraries in its `lib`. Links are followed.
    ///
    /// # Errors
    /// A file that cannot be read, or is damaged.
    pub fn around(files: &[&Path]) -> Result<Self, DefaultsError> {
        for file in files {
            let Ok(file) = file.canonicalize() else { continue };
            let Some(tree) = file.parent().and_then(Path::parent) else { continue };
            if let Some(defaults) = Self::read(tree.join(PLACE))? {
                return Ok(defaults);
            }
        }
        Ok(Self::default())
    }

    /// `None` where there is no such file.
    fn read(path: PathBuf) -> Result<Option<Self>, DefaultsError> {
        use std::io::Read as _;
        let mut bytes = Vec::new();
        let read = std::fs::File::open(&path)
            .and_then(|file| file.take(MOST_BYTES + 1).read_to_end(&mut bytes));
        match read {
            Ok(_) => {}
            Err(error)
                if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) =>
            {
                return Ok(None);
            }
            Err(source) => return Err(DefaultsError::Read { path, source }),
        }
        match Self::of(&bytes) {
            Ok(defaults) => Ok(Some(defaults)),
            Err(problem) => Err(DefaultsError::Damaged { path, problem }),
        }
    }

    /// Those in the bytes of a file, or what is wrong with them.
    ///
    /// # Errors
    /// Anything that `scripts/install` does not write.
    pub fn of(bytes: &[u8]) -> Result<Self, String> {
        if bytes.len() as u64 > MOST_BYTES {
            return Err(format!("it has more than {MOST_BYTES} bytes"));
        }
        let text = std::str::from_utf8(bytes).map_err(|_| "it is no text".to_owned())?;
        let mut lines = text.lines();
        if lines.next() != Some(FIRST) {
            return Err(format!("it does not begin with the line \"{FIRST}\""));
        }
        let mut found: Vec<(&'static Variable, String)> = Vec::new();
        let mut ended = false;
        for (number, line) in (2..).zip(lines) {
            if ended {
                return Err(format!("line {number} comes after the line \"{LAST}\""));
            }
            if line == LAST {
                ended = true;
            } else if !line.trim().is_empty() && !line.starts_with('#') {
                let (row, value) = assignment(line)
                    .map_err(|problem| format!("line {number}, {line:?}, {problem}"))?;
                if found.iter().any(|(other, _)| other.name == row.name) {
                    return Err(format!("line {number} sets {} again", row.name));
                }
                found.push((row, value));
            }
        }
        if !ended {
            return Err(format!("the line \"{LAST}\" is missing, so it is not complete"));
        }
        Ok(Self(found))
    }
}

impl Env {
    /// Adds the defaults of an installation, for what is not set.
    #[must_use]
    pub fn with_defaults(mut self, defaults: Defaults) -> Self {
        for (row, value) in defaults.0 {
            if values::seen(row, &self).is_none() {
                self.add_installed(row.name, value);
            }
        }
        self
    }
}

fn assignment(line: &str) -> Result<(&'static Variable, String), String> {
    let (name, value) = line.split_once('=').ok_or("is not NAME=VALUE")?;
    let row = find(name).ok_or("does not begin with the name of a variable")?;
    match parse(row.kind, value) {
        Ok(_) => Ok((row, value.to_owned())),
        Err(problem) => {
            Err(format!("has a value that is {problem}; expected {}", row.kind.expected()))
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Values, explain_settings};

    fn file(lines: &str) -> String {
        format!("{FIRST}\n{lines}{LAST}\n")
    }

    #[test]
    fn what_is_not_set_takes_the_default_of_the_installation() {
        let text = file(
            "# of this cluster\n\nGASNET_IBV_SPAWNER=pmi\nGASNET_NUM_QPS=2\nGASNET_BBUF_COUNT=9\n",
        );
        let defaults = Defaults::of(text.as_bytes()).unwrap();
        let set = [("GASNET_NUM_QPS", "3"), ("GASNET_BBUF_LIMIT", "5")];
        let env = set.into_iter().collect::<Env>().with_defaults(defaults);
        let values = Values::from_env(&env).unwrap();
        assert_eq!((values.word("GASNET_IBV_SPAWNER"), values.int("GASNET_NUM_QPS")), ("pmi", 3));
        assert_eq!(values.int("GASNET_BBUF_COUNT"), 5, "an old name counts as set");
        let text = explain_settings(&env);
        let line =
            |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
        assert!(line("GASNET_IBV_SPAWNER ").ends_with("(installation; default: ssh)"), "{text}");
        assert!(line("GASNET_NUM_QPS ").ends_with("(environment; default: 0)"), "{text}");
    }

    #[test]
    fn a_damaged_file_is_named_with_the_line() {
        let whole = file("GASNET_NUM_QPS=2\n");
        for (text, part) in [
            ("".to_owned(), "does not begin"),
            ("GASNET_NUM_QPS=2\n".to_owned(), "does not begin"),
            (whole[..whole.len() - 5].to_owned(), "is missing"),
            (file("GASNET_NUM_QPS\n"), "line 2, \"GASNET_NUM_QPS\", is not NAME=VALUE"),
            (file("\nGASNET_NUM_QPSS=2\n"), "line 3, \"GASNET_NUM_QPSS=2\", does not begin"),
            (file("GASNET_NUM_QPS=two\n"), "expected"),
            (file("GASNET_NUM_QPS=1\nGASNET_NUM_QPS=2\n"), "line 3 sets GASNET_NUM_QPS again"),
            (whole.clone() + "GASNET_QUIET=1\n", "line 4 comes after"),
            (file(&"#\n".repeat(1 << 16)), "more than"),
        ] {
            let problem = Defaults::of(text.as_bytes()).unwrap_err();
            assert!(problem.contains(part), "{problem}");
        }
        assert!(Defaults::of(b"\xff").unwrap_err().contains("no text"));
    }

    #[test]
    fn the_file_lies_beside_bin_and_lib() {
        let tree = std::env::temp_dir().join(format!("gasnet-defaults-{}", std::process::id()));
        let make = |name: &str, text: &str| {
            let path = tree.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, text).unwrap();
            path
        };
        let (program, library) = (make("bin/program", ""), make("lib/library.so", ""));
        assert_eq!(Defaults::around(&[&program, &library]).unwrap(), Defaults::default());
        let path = make(PLACE, &file("GASNET_NUM_QPS=2\n"));
        let far = Path::new("/no/such/program");
        let found = Defaults::around(&[far, &library]).unwrap();
        assert_eq!(found, Defaults::around(&[&program]).unwrap());
        assert_eq!((found.0[0].0.name, &*found.0[0].1), ("GASNET_NUM_QPS", "2"));
        std::fs::write(&path, "x").unwrap();
        let text = Defaults::around(&[&program]).unwrap_err().to_string();
        assert!(text.contains(PLACE) && text.contains("is damaged"), "{text}");
        std::fs::remove_dir_all(&tree).unwrap();
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Defaults::of(&bytes);
        }

        #[test]
        fn a_file_cut_short_is_refused(cut in 0usize..60) {
            let whole = file("GASNET_NUM_QPS=2\nGASNET_IBV_SPAWNER=pmi\n");
            let cut = cut.min(whole.len() - 2);
            prop_assert!(Defaults::of(&whole.as_bytes()[..cut]).is_err());
        }
    }
}
