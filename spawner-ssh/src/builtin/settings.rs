//! How the client of our own logs in.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Which addresses of a host count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Family {
    /// All.
    #[default]
    Any,
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// Where the user's ssh agent is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum AgentAt {
    /// Where `SSH_AUTH_SOCK` says.
    #[default]
    Usual,
    /// It is not asked.
    None,
    /// At this socket.
    Socket(PathBuf),
}

/// What is done about a host that no list knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Strict {
    /// It is refused.
    #[default]
    Yes,
    /// It is noted, unless it is known under another key.
    AcceptNew,
    /// Everything is accepted.
    No,
}

/// Algorithms of one kind, the preferred first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wanted {
    /// Their names.
    pub names: Vec<String>,
    /// It must be the one that OpenSSH would take; the list is the user's own.
    pub exact: bool,
}

/// Algorithms that may be used. Those that the client does not have count only where the order
/// does.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Algorithms {
    /// Key exchange.
    pub kex: Wanted,
    /// Encryption.
    pub ciphers: Wanted,
    /// Integrity.
    pub macs: Wanted,
    /// Keys of hosts.
    pub host_keys: Wanted,
    /// Keys of users.
    pub signatures: Vec<String>,
}

/// All of it. What is not set is as OpenSSH has it without configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Name or address that is connected to, instead of the host's.
    pub hostname: Option<String>,
    /// Port of the ssh server.
    pub port: Option<u16>,
    /// Who logs in.
    pub user: Option<String>,
    /// Which addresses count.
    pub family: Family,
    /// Files of private keys, in the order in which they are tried.
    pub identities: Vec<PathBuf>,
    /// Of the agent's keys only those that are among them count.
    pub identities_only: bool,
    /// The user's agent.
    pub agent: AgentAt,
    /// Lists of known hosts, instead of the usual ones.
    pub known_hosts: Option<Vec<PathBuf>>,
    /// Name that the host has there.
    pub alias: Option<String>,
    /// What is done about an unknown host.
    pub strict: Strict,
    /// The address must not be known under another key.
    pub check_address: bool,
    /// Bits of an RSA key at least.
    pub least_rsa: u32,
    /// Algorithms that may be used.
    pub algorithms: Option<Algorithms>,
    /// Seconds until a host must have answered.
    pub timeout: Option<u64>,
    /// The system looks whether the connection still is.
    pub keep_alive: bool,
    /// Variables that the other side is given.
    pub env: Vec<(String, String)>,
    /// What the client cannot decide as OpenSSH would is left to the ssh program.
    pub hand_over: bool,
}
