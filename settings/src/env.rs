//! The environment as a value: everything that reads variables takes it as an argument, so tests
//! need no process-wide state. Nothing else in the workspace reads the environment of the process.

use std::ffi::{OsStr, OsString};

/// Environment variables in their order. The first of equal names counts, as with `getenv`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Env {
    pairs: Vec<(OsString, OsString)>,
    /// Names whose value is that of the installation.
    installed: Vec<&'static str>,
}

impl Env {
    /// The environment of this process.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "the one reader")]
    pub fn from_process() -> Self {
        std::env::vars_os().collect()
    }

    /// Value of a variable, as it is.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&OsStr> {
        self.pairs.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_os_str())
    }

    /// Value of a variable as text; bytes that are not UTF-8 are replaced, so such a value is seen
    /// and refused by the parser of its kind instead of being taken for unset.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<String> {
        self.get(name).map(|value| value.to_string_lossy().into_owned())
    }

    /// Gives a variable a value, in place of the one that counts if it is set.
    pub fn set(&mut self, name: &OsStr, value: &OsStr) {
        match self.pairs.iter_mut().find(|(key, _)| key == name) {
            Some((_, old)) => value.clone_into(old),
            None => self.pairs.push((name.to_owned(), value.to_owned())),
        }
    }

    /// Adds a default of an installation, for a variable that is not set.
    pub(crate) fn add_installed(&mut self, name: &'static str, value: String) {
        self.pairs.push((name.into(), value.into()));
        self.installed.push(name);
    }

    /// Where the value of a variable that is set comes from.
    pub(crate) fn origin(&self, name: &str) -> &'static str {
        if self.installed.contains(&name) { "installation" } else { "environment" }
    }

    /// All variables.
    pub fn iter(&self) -> impl Iterator<Item = (&OsStr, &OsStr)> {
        self.pairs.iter().map(|(key, value)| (key.as_os_str(), value.as_os_str()))
    }
}

/// Value of one variable of this process, for what reads no other.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "the one reader")]
pub fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name)
}

impl IntoIterator for Env {
    type Item = (OsString, OsString);
    type IntoIter = std::vec::IntoIter<Self::Item>;

    fn into_iter(self) -> Self::IntoIter {
        self.pairs.into_iter()
    }
}

impl<K: Into<OsString>, V: Into<OsString>> FromIterator<(K, V)> for Env {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Self {
        let pairs = pairs.into_iter().map(|(key, value)| (key.into(), value.into())).collect();
        Self { pairs, installed: Vec::new() }
    }
}
