//! Whom a login reaches: a host as the user wrote it, and how a process ended.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A host of a job, as the user wrote it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostEntry {
    /// Name or address; an IPv6 address without brackets.
    pub name: String,
    /// Who logs in there, if that is not left to the remote shell.
    pub user: Option<String>,
    /// Port of its ssh server, if that is not left to the remote shell.
    pub port: Option<u16>,
    /// Most ranks that it takes; none = no limit.
    pub slots: Option<u32>,
    /// Whether it is the launching host, reached by the launching user without a login.
    pub here: bool,
}

impl HostEntry {
    /// A host with nothing but a name.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// The launching host.
    #[must_use]
    pub fn here(name: impl Into<String>) -> Self {
        Self { here: true, ..Self::new(name) }
    }

    /// Whether both mean the same login: user, name and port as written. Slots do not matter.
    #[must_use]
    pub fn same_login(&self, other: &Self) -> bool {
        (&self.name, &self.user, self.port) == (&other.name, &other.user, other.port)
    }
}

/// As it may be written in a host list, without the slots.
impl fmt::Display for HostEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(user) = &self.user {
            write!(f, "{user}@")?;
        }
        match self.port {
            Some(port) if self.name.contains(':') => write!(f, "[{}]:{port}", self.name),
            Some(port) => write!(f, "{}:{port}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// `exit` status, 0..=255.
    Code(i32),
    /// Signal number.
    Signal(i32),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_written_as_they_are_read() {
        let mut host = HostEntry::new("::1");
        assert_eq!(host.to_string(), "::1");
        host.port = Some(22);
        host.user = Some("me".into());
        assert_eq!(host.to_string(), "me@[::1]:22");
        host.name = "n1".into();
        assert_eq!(host.to_string(), "me@n1:22");
    }
}
