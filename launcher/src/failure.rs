//! What can keep a job from being started, and the exit code of each.

use std::path::PathBuf;

use crate::command_line::CommandLineError;
use crate::cpus::CpusError;
use crate::exit_code::ExitClass;
use crate::hosts::{self, HostsError};
use crate::process_manager::ProcessManagerError;
use crate::program::ProgramError;
use crate::reach::ReachError;
use crate::settings::SettingsError;
use crate::spawner::SpawnerError;

/// A launch that failed.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The command line.
    #[error(transparent)]
    CommandLine(#[from] CommandLineError),
    /// The spawner.
    #[error(transparent)]
    Spawner(#[from] SpawnerError),
    /// The hosts.
    #[error(transparent)]
    Hosts(#[from] HostsError),
    /// The other launcher that is to start the ranks.
    #[error(transparent)]
    ProcessManager(#[from] ProcessManagerError),
    /// How hosts are reached.
    #[error(transparent)]
    Reach(#[from] ReachError),
    /// The program.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// The binding.
    #[error(transparent)]
    Cpus(#[from] CpusError),
    /// A `GASNET_*` variable.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The launcher's working directory.
    #[error("cannot read the working directory: {0}; change to an existing directory")]
    WorkingDirectory(std::io::Error),
    /// `--wdir`.
    #[error("--wdir {}: {problem}; name an existing directory", .path.display())]
    Wdir {
        /// Value.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// `--output-dir`.
    #[error("--output-dir {}: {source}; name a directory that you may write, or one that can be made", .path.display())]
    OutputDirectory {
        /// Value.
        path: PathBuf,
        /// What is wrong with it.
        source: std::io::Error,
    },
    /// `--report`.
    #[error(
        "--report {}: cannot write it on host {}: {source}; name a file in a directory that you may write, with room for it",
        .path.display(),
        hosts::own_name().unwrap_or_default()
    )]
    Report {
        /// Value.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// Standard output, for what is printed there.
    #[error("cannot write to standard output: {0}")]
    Output(std::io::Error),
    /// Hosts could not be examined.
    #[error("cannot examine hosts: {0}")]
    Doctor(std::io::Error),
    /// The job could not be supervised.
    #[error("{0}; nothing was started")]
    Supervise(#[from] supervisor::local::LocalError),
}

impl Failure {
    /// The class of the exit code.
    #[must_use]
    pub fn class(&self) -> ExitClass {
        match self {
            Self::CommandLine(_) => ExitClass::Usage,
            Self::Spawner(error) if error.is_usage() => ExitClass::Usage,
            Self::ProcessManager(ProcessManagerError::Option { .. }) => ExitClass::Usage,
            Self::Program(ProgramError::Missing { .. }) => ExitClass::NotFound,
            Self::Program(
                ProgramError::Directory { .. }
                | ProgramError::NotExecutable { .. }
                | ProgramError::Unreachable { .. },
            ) => ExitClass::NotExecutable,
            _ => ExitClass::Launch,
        }
    }
}
