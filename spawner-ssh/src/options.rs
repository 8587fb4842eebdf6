//! How logins are made, as the launcher decided it and every agent is told.

use std::ffi::OsString;

use serde::{Deserialize, Serialize};

use crate::auto;

/// How agents start further agents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ssh {
    /// Remote shell (`GASNET_SSH_CMD`): a name that is looked up in `PATH`, or a path;
    /// [`auto::NAME`] or [`NAME`](crate::builtin::NAME) for the client of our own.
    pub command: OsString,
    /// Words in front of everything that we add and of the host (`GASNET_SSH_OPTIONS`).
    pub options: Vec<OsString>,
    /// Most agents that one host, or the launcher, starts (`GASNET_SSH_OUT_DEGREE`); 0 = no limit.
    pub out_degree: u32,
    /// Where the agent's program should be.
    pub agent: OsString,
    /// When the agent's program, and the job's, is sent to a host.
    pub stage: StageMode,
    /// Leave what was sent where it is.
    pub keep: bool,
    /// Most bytes of programs that a host keeps for later jobs (`GASNET_SSH_STAGE_CACHE`).
    pub cache: u64,
}

impl Default for Ssh {
    fn default() -> Self {
        Self {
            command: auto::NAME.into(),
            options: Vec::new(),
            out_degree: 32,
            agent: "gasnetrun_ibv".into(),
            stage: StageMode::default(),
            keep: false,
            cache: 1 << 30,
        }
    }
}

settings::named! {
    /// When the agent's program, and the job's, is sent to a host. The names are as the option has
    /// them, and the script on the other side.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    pub enum StageMode {
        /// When it is missing there, or another one.
        #[default]
        Auto = "auto",
        /// Never.
        Never = "never",
        /// Always.
        Always = "always",
    }
}
