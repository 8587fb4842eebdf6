//! `gasnetrun_ibv ps`, `top`, `stacks`, `kill` and `attach`: jobs of this user on this machine while
//! they run.
//!
//! * this module: the words, and which job is meant. `error`: what can go wrong. `table`: what is printed. `top`: the live
//!   picture. `attach`: a debugger for a rank.

mod attach;
pub mod error;
mod table;
mod top;

use std::ffi::OsString;
use std::time::Duration;

use ::settings::say;
use clap::{Args, Command, CommandFactory, Parser, Subcommand};
use supervisor::watch::client::{Client, ClientError};
use supervisor::watch::{Answer, Ask, JobView, grouped, lines, place};

use crate::chosen::Words;
use crate::command_line::CommandLineError;
use crate::failure::Failure;
use crate::flags::{duration, signal};
use crate::reach::NAME;

use self::error::WatchError;

/// The words that ask for it.
pub const WORDS: [&str; 5] = ["ps", "top", "stacks", "kill", "attach"];
/// Frames of a thread that `stacks` prints.
const FRAMES: usize = 64;

/// Shows and steers the jobs of this user whose launchers run on this machine.
#[derive(Clone, Debug, Parser)]
#[command(name = "gasnetrun_ibv", disable_help_subcommand = true, max_term_width = 100)]
struct WatchFlags {
    #[command(subcommand)]
    action: Action,
}

/// Which job.
#[derive(Clone, Debug, Args)]
struct Which {
    /// Name of the job, the beginning of it, or the process of its launcher; the only job if left
    /// out
    #[arg(value_name = "JOB")]
    job: Option<String>,
}

#[derive(Clone, Debug, Subcommand)]
enum Action {
    /// Lists this user's jobs on this machine
    Ps {
        /// Print JSON, a line per job
        #[arg(long)]
        json: bool,
    },
    /// Shows what the ranks of a job do: state, processor, memory, messages per second
    ///
    /// In a terminal the picture is live; q ends it, the arrows move, r, c, m and s sort by rank,
    /// processor, memory and messages. Elsewhere, and with --once, it is printed once.
    Top {
        #[command(flatten)]
        which: Which,
        /// Print one picture and end
        #[arg(long)]
        once: bool,
        /// Time between two pictures: seconds, or a number followed by s, m or h
        #[arg(long, value_name = "TIME", value_parser = duration, default_value = "1")]
        interval: Duration,
    },
    /// Shows where the ranks of a job are in their program, equal stacks together
    ///
    /// On each host eu-stack or gdb looks at the ranks, which stand still meanwhile; where neither is
    /// installed, the host's agent does it itself.
    Stacks {
        #[command(flatten)]
        which: Which,
        /// Print JSON, a line per rank
        #[arg(long)]
        json: bool,
    },
    /// Sends the ranks of a job a signal, as if its launcher had got it
    Kill {
        /// The signal: a name or a number
        #[arg(short = 's', long, value_name = "SIGNAL", value_parser = signal, default_value = "TERM")]
        signal: i32,
        /// Name of the job, the beginning of it, or the process of its launcher
        #[arg(value_name = "JOB")]
        job: String,
    },
    /// Runs a debugger for a rank of a job
    ///
    /// On another host it is run through the remote shell of GASNET_SSH_CMD and GASNET_SSH_OPTIONS, with
    /// a terminal.
    Attach {
        /// The debugger; it gets -p and the process
        #[arg(long, value_name = "COMMAND", value_parser = Words::parse, default_value = "gdb")]
        debugger: Words,
        /// Name of the job, the beginning of it, or the process of its launcher
        #[arg(value_name = "JOB")]
        job: String,
        /// The rank
        #[arg(value_name = "RANK")]
        rank: u32,
    },
}

/// The commands, for the manual and completions.
#[must_use]
pub fn commands() -> Vec<Command> {
    WatchFlags::command().get_subcommands().cloned().collect()
}

/// Does it: the text for standard output and the exit code; `words` begin with one of [`WORDS`].
///
/// # Errors
/// [`WatchError`], wrong words.
pub fn main(words: &[OsString]) -> Result<(String, u8), Failure> {
    let all = std::iter::once(OsString::from(NAME)).chain(words.iter().cloned());
    let flags = WatchFlags::try_parse_from(all).map_err(CommandLineError::from)?;
    Ok(act(&flags.action)?)
}

fn act(action: &Action) -> Result<(String, u8), WatchError> {
    match action {
        Action::Ps { json } => Ok((table::jobs(&jobs()?, *json), 0)),
        Action::Top { which, once, interval } => {
            let job = find(which.job.as_deref())?;
            Ok((top::run(job, *once, *interval)?, 0))
        }
        Action::Stacks { which, json } => {
            let mut job = find(which.job.as_deref())?;
            let Answer::Stacks { stacks, silent } = job.ask(&Ask::Stacks)? else {
                return Err(job.version());
            };
            silent_hosts(&silent);
            let text = match json {
                true => table::json_lines(&stacks),
                false => {
                    let text = table::joined(&lines(&grouped(&stacks), FRAMES));
                    ::settings::log::visible(&text).into_owned()
                }
            };
            Ok((text, 0))
        }
        Action::Kill { signal, job } => {
            let mut job = find(Some(job))?;
            match job.ask(&Ask::Signal { number: *signal })? {
                Answer::Sent => Ok((String::new(), 0)),
                _ => Err(job.version()),
            }
        }
        Action::Attach { debugger, job, rank } => {
            attach::run(find(Some(job))?, *rank, debugger).map(|code| (String::new(), code))
        }
    }
}

/// Says which hosts are missing in an answer.
fn silent_hosts(silent: &[String]) {
    if !silent.is_empty() {
        say!(WARN, NAME, "warning: without an answer: {}", silent.join(", "));
    }
}

/// A job that answers.
struct Job {
    view: JobView,
    client: Client,
}

impl Job {
    fn ask(&mut self, ask: &Ask) -> Result<Answer, WatchError> {
        let job = self.view.job.clone();
        self.client.ask(ask).map_err(|source| WatchError::Client { job, source })
    }

    fn version(&self) -> WatchError {
        WatchError::Version(self.view.job.clone())
    }
}

/// All jobs that answer, by name. Sockets of dead jobs are removed.
fn jobs() -> Result<Vec<Job>, WatchError> {
    let directory = place::directory(::settings::variable);
    let mut found = Vec::new();
    for (job, path) in place::sockets(&directory).map_err(WatchError::Directory)? {
        let mut client = match Client::connect(&path) {
            Ok(client) => client,
            Err(ClientError::Dead(path)) => {
                place::remove_dead(&path);
                continue;
            }
            Err(source) => {
                say!(WARN, NAME, "warning: job {job}: {source}");
                continue;
            }
        };
        match client.ask(&Ask::Job) {
            Ok(Answer::Job(view)) => found.push(Job { view, client }),
            // It has just ended.
            Err(ClientError::Ended) => {}
            Ok(_) => say!(WARN, NAME, "warning: {}", WatchError::Version(job)),
            Err(source) => say!(WARN, NAME, "warning: job {job}: {source}"),
        }
    }
    Ok(found)
}

fn names<'a>(jobs: impl Iterator<Item = &'a Job>) -> String {
    let one = |job: &Job| format!("{} (process {})", job.view.job, job.view.launcher);
    jobs.map(one).collect::<Vec<_>>().join(", ")
}

/// The job that is meant.
fn find(name: Option<&str>) -> Result<Job, WatchError> {
    let all = jobs()?;
    if all.is_empty() {
        let directory = place::directory(::settings::variable);
        return Err(WatchError::None(directory.display().to_string()));
    }
    let exact = |job: &Job| {
        name.is_some_and(|name| job.view.job == name || job.view.launcher.to_string() == name)
    };
    let begins = |job: &Job| name.is_none_or(|name| job.view.job.starts_with(name));
    let meant: Vec<bool> = match all.iter().any(exact) {
        true => all.iter().map(exact).collect(),
        false => all.iter().map(begins).collect(),
    };
    let chosen = || all.iter().zip(&meant).filter(|(_, meant)| **meant).map(|(job, _)| job);
    match (chosen().count(), name) {
        (1, _) => {}
        (0, _) => {
            let (name, all) = (name.unwrap_or_default().to_owned(), names(all.iter()));
            return Err(WatchError::Unknown { name, all });
        }
        (count, None) => {
            return Err(WatchError::Several {
                what: format!("{count} jobs run"),
                all: names(chosen()),
            });
        }
        (count, Some(name)) => {
            let what = format!("{count} jobs begin with {name:?}");
            return Err(WatchError::Several { what, all: names(chosen()) });
        }
    }
    let found = all.into_iter().zip(meant).find(|(_, meant)| *meant).map(|(job, _)| job);
    found.ok_or_else(|| WatchError::None(String::new()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_are_those_of_the_commands() {
        let names: Vec<String> = commands().iter().map(|one| one.get_name().to_owned()).collect();
        assert_eq!(names, WORDS);
    }
}
