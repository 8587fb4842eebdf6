//! Options as users of other launchers write them: tables of what each is here, and of what we do not
//! have, with what serves instead. [`crate::normalise`] looks words up, [`crate::documents`] makes
//! pages of them.

pub mod pages;
mod refused;
mod table;
mod values;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use crate::environment::assignment;

pub use self::refused::{OTHER_MEANINGS, REFUSED};
pub use self::table::ALIASES;

settings::named! {
    /// Who writes an option so.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Origin {
        /// `mpiexec.hydra`: MPICH, Intel MPI, MVAPICH.
        Hydra = "Hydra",
        /// `mpirun` of Open MPI.
        OpenMpi = "Open MPI",
        /// `srun`.
        Slurm = "Slurm",
        /// `prun` and `prterun` of PRRTE.
        Prun = "PRRTE",
        /// GASNet's own launchers.
        Gasnet = "GASNet",
    }
}

/// Their names between commas.
#[must_use]
pub fn names(origins: &[Origin]) -> String {
    origins.iter().map(|origin| origin.name()).collect::<Vec<_>>().join(", ")
}

/// Makes our words of the values.
pub type Make = fn(&[OsString]) -> Result<Vec<OsString>, String>;

/// What an alias is here.
#[derive(Clone, Copy, Debug)]
pub enum Becomes {
    /// This option, with the same value.
    Option(&'static str),
    /// The same, where a repetition adds to the list.
    List(&'static str),
    /// These words.
    Words(&'static [&'static str]),
    /// What is made of the values; the error says what is right.
    Made(Make),
}

/// An option as others write it.
#[derive(Clone, Copy, Debug)]
pub struct Alias {
    /// Its spellings, with their dashes.
    pub words: &'static [&'static str],
    /// Who writes it so.
    pub origins: &'static [Origin],
    /// Names of the values that follow it.
    pub values: &'static [&'static str],
    /// Ours, as a user would write it.
    pub ours: &'static str,
    /// How it is made.
    pub becomes: Becomes,
    /// Where it differs; may be empty.
    pub note: &'static str,
}

/// An option of others that we do not have.
#[derive(Clone, Copy, Debug)]
pub struct Refused {
    /// Its spellings, with their dashes.
    pub words: &'static [&'static str],
    /// Whose it is.
    pub origins: &'static [Origin],
    /// What serves instead, or why nothing does.
    pub instead: &'static str,
}

/// Why an alias cannot be used as it was typed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AliasError {
    /// A value is missing: the option, its form, ours.
    #[error("option {0} needs {1}, here the same as {2}")]
    NoValue(String, String, &'static str),
    /// An option stands where a value must be: both, the form, ours.
    #[error("option {0} is followed by the option {1:?}, but needs {2}, here the same as {3}")]
    OptionAsValue(String, String, String, &'static str),
    /// A value where there is none: as typed, ours.
    #[error("option {0} takes no value; it is the same as {1} here")]
    Value(String, &'static str),
    /// A wrong value: as typed, ours, what is right.
    #[error("{0} (here {1}): {2}")]
    Wrong(String, String, String),
    /// An option that we do not have: as typed, whose it is, what serves.
    #[error("option {0} of {1} does not exist here: {2}")]
    Refused(String, String, &'static str),
}

/// A word that was found, with the value that is glued to it.
#[derive(Clone, Copy, Debug)]
pub struct Found<'a> {
    /// The spelling.
    pub name: &'a OsStr,
    /// Behind `=`.
    pub glued: Option<&'a OsStr>,
    /// Its row.
    pub alias: &'static Alias,
}

fn cut(word: &OsStr) -> (&OsStr, Option<&OsStr>) {
    assignment(word).map_or((word, None), |(name, value)| (name, Some(value)))
}

/// The row of a word as typed, if it is one.
///
/// # Errors
/// It is an option of others that we do not have.
pub fn find(word: &OsStr) -> Result<Option<Found<'_>>, AliasError> {
    let (name, glued) = cut(word);
    let is = |words: &[&str]| words.iter().any(|known| name == *known);
    if let Some(alias) = ALIASES.iter().find(|alias| is(alias.words)) {
        return Ok(Some(Found { name, glued, alias }));
    }
    match REFUSED.iter().find(|row| is(row.words)) {
        Some(row) => {
            let (typed, origins) = (name.to_string_lossy().into_owned(), names(row.origins));
            Err(AliasError::Refused(typed, origins, row.instead))
        }
        None => Ok(None),
    }
}

impl Alias {
    /// `-genv NAME VALUE`, for one of its spellings.
    #[must_use]
    pub fn form(&self, name: &str) -> String {
        std::iter::once(&name).chain(self.values).copied().collect::<Vec<_>>().join(" ")
    }
}

impl Found<'_> {
    fn name(self) -> String {
        self.name.to_string_lossy().into_owned()
    }

    /// Takes the values from behind the word.
    ///
    /// # Errors
    /// One is missing, or there is one too many.
    pub fn values(
        self,
        behind: &mut impl Iterator<Item = OsString>,
    ) -> Result<Vec<OsString>, AliasError> {
        let (name, alias) = (self.name(), self.alias);
        let form = || format!("{} value{}: {}", count(alias), plural(alias), alias.form(&name));
        let mut values: Vec<OsString> = self.glued.map(OsStr::to_owned).into_iter().collect();
        if alias.values.is_empty() && !values.is_empty() {
            return Err(AliasError::Value(name, alias.ours));
        }
        while values.len() < alias.values.len() {
            let Some(word) = behind.next() else {
                return Err(AliasError::NoValue(name.clone(), form(), alias.ours));
            };
            // The second one is the value of a variable, which may be anything.
            if values.is_empty() && word.as_bytes().starts_with(b"-") && word.len() > 1 {
                let word = word.to_string_lossy().into_owned();
                return Err(AliasError::OptionAsValue(name.clone(), word, form(), alias.ours));
            }
            values.push(word);
        }
        Ok(values)
    }

    /// Our words, each with its value glued to it.
    ///
    /// # Errors
    /// A value that is wrong.
    pub fn ours(self, values: &[OsString]) -> Result<Vec<OsString>, AliasError> {
        match self.alias.becomes {
            Becomes::Option(option) | Becomes::List(option) => {
                let value = values.first().map(|value| value.as_bytes()).unwrap_or_default();
                Ok(vec![OsString::from_vec([option.as_bytes(), b"=", value].concat())])
            }
            Becomes::Words(words) => Ok(words.iter().map(OsString::from).collect()),
            Becomes::Made(make) => make(values).map_err(|why| {
                AliasError::Wrong(self.typed(values), self.alias.ours.to_owned(), why)
            }),
        }
    }

    /// The option and its values, as typed.
    #[must_use]
    pub fn typed(self, values: &[OsString]) -> String {
        let values = values.iter().map(|value| value.to_string_lossy().into_owned());
        std::iter::once(self.name()).chain(values).collect::<Vec<_>>().join(" ")
    }
}

fn count(alias: &Alias) -> &'static str {
    if alias.values.len() == 2 { "two" } else { "a" }
}

fn plural(alias: &Alias) -> &'static str {
    if alias.values.len() == 2 { "s" } else { "" }
}

#[cfg(test)]
mod tests;
