//! A value that cannot be used.

/// A value that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("environment variable {name}={value:?}: {problem}; expected {expected}")]
pub struct Error {
    /// Variable, by the name under which it was set.
    pub name: String,
    /// Value seen.
    pub value: String,
    /// What is wrong with it.
    pub problem: String,
    /// Accepted forms with an example.
    pub expected: String,
}
