//! What can keep a job from being started, and the exit code of each.

use std::path::PathBuf;

use crate::command_line::CommandLineError;
use crate::container::ContainerError;
use crate::cpus::CpusError;
use crate::environment::EnvironmentError;
use crate::exit_code::{LAUNCH, NOT_EXECUTABLE, NOT_FOUND, USAGE};
use crate::hosts::{self, HostsError};
use crate::process_manager::ProcessManagerError;
use crate::program::ProgramError;
use crate::reach::ReachError;
use crate::settings::SettingsError;
use crate::spawner::SpawnerError;
use crate::watch::error::WatchError;

/// A launch that failed.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The launcher's own stack.
    #[error(transparent)]
    Stack(#[from] supervisor::LowStack),
    /// The command line.
    #[error(transparent)]
    CommandLine(#[from] CommandLineError),
    /// A variable of `-E`.
    #[error(transparent)]
    Environment(#[from] EnvironmentError),
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
    /// A container for ranks.
    #[error(transparent)]
    Container(#[from] ContainerError),
    /// Jobs that are watched.
    #[error(transparent)]
    Watch(#[from] WatchError),
    /// The binding.
    #[error(transparent)]
    Cpus(#[from] CpusError),
    /// A `GASNET_*` variable.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The defaults of the installation.
    #[error(transparent)]
    Defaults(#[from] settings::DefaultsError),
    /// A client of PMIx that is to be served something else: the library that it needs.
    #[error(
        "the program needs {0} and so a PMIx server, which --pmi excludes: each rank would be a job of its own. Leave \
         --pmi out, or say --pmi=pmix, or --pmi=off if that is what is wanted"
    )]
    Pmix(String),
    /// The launcher's working directory.
    #[error("cannot read the working directory: {0}; change to an existing directory")]
    WorkingDirectory(std::io::Error),
    /// `--wdir`: its value, what is wrong with it.
    #[error("--wdir {path}: {1}; name an existing directory", path = .0.display())]
    Wdir(PathBuf, String),
    /// `--output-dir`: its value, what is wrong with it.
    #[error(
        "--output-dir {path}: {1}; name a directory that you may write, or one that can be made",
        path = .0.display()
    )]
    OutputDirectory(PathBuf, std::io::Error),
    /// `--report`: its value, why it cannot be written.
    #[error(
        "--report {path}: cannot write it on host {here}: {1}; name a file in a directory that you may write, with room for it",
        path = .0.display(),
        here = hosts::own_name().unwrap_or_default()
    )]
    Report(PathBuf, std::io::Error),
    /// `--trace`: its value, why it cannot be written.
    #[error(
        "--trace {path}: cannot write it: {1}; name a file in a directory that you may write",
        path = .0.display()
    )]
    Trace(PathBuf, std::io::Error),
    /// Memory for traces.
    #[error("cannot make the memory for traces of the ranks: {0}; GASNET_TRACE_MEMORY can be less")]
    TraceMemory(std::io::Error),
    /// `--trace` or `--stats` with another launcher.
    #[error("cannot gather what ranks of another launcher record: {0}")]
    TraceGather(std::io::Error),
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
    /// Whether its text has several lines; what came from outside has begun none of them.
    #[must_use]
    pub const fn has_lines(&self) -> bool {
        matches!(self, Self::CommandLine(CommandLineError::Option(_)) | Self::Settings(_))
    }

    /// The exit code.
    #[must_use]
    pub fn code(&self) -> u8 {
        match self {
            Self::CommandLine(_)
            | Self::Environment(_)
            | Self::Cpus(CpusError::Contradiction(..))
            | Self::Hosts(HostsError::PerHostMap)
            | Self::ProcessManager(ProcessManagerError::Option(..)) => USAGE,
            Self::Spawner(error) if error.is_usage() => USAGE,
            Self::Program(ProgramError::Missing(..)) => NOT_FOUND,
            Self::Program(
                ProgramError::Directory(_)
                | ProgramError::NotExecutable(_)
                | ProgramError::Unreachable(..),
            ) => NOT_EXECUTABLE,
            _ => LAUNCH,
        }
    }
}
