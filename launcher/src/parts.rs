//! Several programs in one job: `-n 2 ./a x : -n 6 ./b y`. Their ranks are numbered through.

use std::ffi::OsString;
use std::path::PathBuf;

use settings::Env;
use supervisor::plan::Program;

use crate::command_line::Part;
use crate::environment::{self, Asked, Variables};
use crate::failure::Failure;
use crate::program::{Command, Places, ProgramError, check_directory};

/// One of several programs, found on this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its first rank.
    pub first: u32,
    /// Its number of ranks.
    pub ranks: u32,
    /// What they run.
    pub command: Command,
    /// Variables of its own.
    pub env: Variables,
    /// A working directory of its own.
    pub directory: Option<PathBuf>,
}

impl Found {
    /// Its ranks, as text.
    #[must_use]
    pub fn span(&self) -> String {
        match self.ranks {
            1 => format!("rank {}", self.first),
            ranks => format!("ranks {} to {}", self.first, self.first + ranks - 1),
        }
    }

    /// The file that a user would call the program.
    #[must_use]
    pub fn name(&self) -> &OsString {
        &self.command.argv[self.command.program.unwrap_or(0)]
    }
}

/// Finds and checks the programs.
///
/// # Errors
/// A program that cannot be started, or a variable that cannot be set.
pub fn resolve(
    parts: &[Part],
    places: &Places,
    find: impl Fn(&[OsString]) -> Result<Command, ProgramError>,
) -> Result<Vec<Found>, Failure> {
    let mut first = 0;
    let mut found = Vec::with_capacity(parts.len());
    for part in parts {
        let mut own = Env::default();
        environment::assign(Asked { lists: &[], each: &part.env }, &mut own)?;
        found.push(Found {
            first,
            ranks: part.ranks,
            command: find(&part.command)?,
            env: own.into_iter().collect(),
            directory: part.wdir.as_ref().map(|wdir| places.directory.join(wdir)),
        });
        first += part.ranks;
    }
    Ok(found)
}

/// The same as the supervisor wants it. `here` says which ranks are on this host, which must have
/// their directory.
///
/// # Errors
/// A directory that is not there.
pub fn programs(parts: &[Found], here: impl Fn(u32) -> bool) -> Result<Vec<Program>, Failure> {
    let program = |part: &Found| {
        let ranks = part.first..part.first + part.ranks;
        if let Some(directory) = &part.directory
            && ranks.into_iter().any(&here)
        {
            check_directory(directory).map_err(|why| Failure::Wdir(directory.clone(), why))?;
        }
        Ok(Program {
            first: part.first,
            file: part.command.executable.clone().into(),
            word: part.command.program.map_or(0, |word| u32::try_from(word).unwrap_or(0)),
            gasnet: part.command.program.is_some(),
            argv: part.command.argv.clone(),
            env: part.env.clone(),
            directory: part.directory.clone().map(OsString::from),
        })
    };
    parts.iter().map(program).collect()
}
