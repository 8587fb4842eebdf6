//! How logins are made, as the launcher decided it and every agent is told.

use std::ffi::OsString;

use serde::{Deserialize, Serialize};

/// How agents start further agents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ssh {
    /// The remote shell.
    pub command: OsString,
    /// The user's options, in front of ours.
    pub options: Vec<OsString>,
    /// Most children of one agent; 0 = no limit.
    pub out_degree: u32,
    /// Where the agent's program should be.
    pub agent: OsString,
    /// When the agent's program is sent.
    pub stage: StageMode,
    /// Leave what was sent where it is.
    pub keep: bool,
    /// Most bytes that a host keeps for later jobs.
    pub cache: u64,
}

/// When the agent's program, and the job's, is sent to a host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum StageMode {
    /// When it is missing there, or another one.
    #[default]
    Auto,
    /// Never.
    Never,
    /// Always.
    Always,
}

impl StageMode {
    /// As the option has it, and the script on the other side.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Never => "never",
            Self::Always => "always",
        }
    }
}
