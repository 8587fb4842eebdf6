//! `gasnetrun_ibv doctor`: examines hosts and says what to repair.

mod checks;
mod process_managers;

pub use checks::{CHECKS, main as check_this_host};

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt::Write;
use std::path::PathBuf;
use std::time::Duration;

use ::settings::say;
use clap::{CommandFactory, FromArgMatches, Parser, ValueHint};
use serde::Serialize;
use spawner_ssh::diagnosis::Class;
use supervisor::doctor::{CLIENT, Finding, Health, Level, Request, examine};
use supervisor::plan::{HostEntry, Reach, StageMode};

use crate::command_line::CommandLineError;
use crate::environment::{self, Forwarded};
use crate::failure::Failure;
use crate::flags::{duration, stage_mode};
use crate::hosts::list::List;
use crate::reach::NAME;
use crate::spawner::Spawner;
use crate::{hosts, reach, settings};

/// The word that asks for it.
pub const WORD: &str = "doctor";
/// Exit code when something must be repaired.
const CODE_PROBLEMS: u8 = 1;
/// Number of the report's format; grows when a field changes its meaning or goes.
const FORMAT: u32 = 1;

/// Runs every launch step on the hosts without starting ranks, and says what to repair.
///
/// Every step is made: login, agent, limits, adapters, shared memory and more. Each line says ok,
/// warning or problem, what was seen, and on how many hosts; what to do follows behind fix. The
/// exit code is 0 when there is no problem, 1 when there is one.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "doctor",
    bin_name = "gasnetrun_ibv doctor",
    version,
    args_override_self = true,
    max_term_width = 100
)]
pub struct DoctorFlags {
    /// Hosts, written as in a host list; without any those that a job would use, else this one
    #[arg(value_name = "HOST", conflicts_with_all = ["hosts", "hostfile"])]
    pub host: Vec<OsString>,

    /// Hosts between commas or blanks, as in n1,me@n2,n[3-6]; overrides all environment variables
    #[arg(long, value_name = "LIST", conflicts_with = "hostfile")]
    pub hosts: Option<OsString>,

    /// File with one host per line; overrides all environment variables
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub hostfile: Option<PathBuf>,

    /// Whether this launcher's program is sent to hosts that lack it, as for a job
    #[arg(long, value_name = "WHEN", value_parser = stage_mode(), default_value = "auto")]
    pub stage: StageMode,

    /// Give up on hosts that have not answered after this time (default: 2 minutes)
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub start_timeout: Option<Duration>,

    /// Also write what was found to this file, as JSON
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub report: Option<PathBuf>,
}

/// Its option table as a parser.
#[must_use]
pub fn command() -> clap::Command {
    DoctorFlags::command()
}

/// Does it; `words` are those behind [`WORD`].
///
/// # Errors
/// A wrong command line, hosts that cannot be used, a system that refuses.
pub fn main(words: &[OsString]) -> Result<(String, u8), Failure> {
    let flags = parse(words)?;
    let variables = ::settings::Env::from_process();
    let checked = settings::check(&variables, 1)?;
    checked.warnings.iter().for_each(|text| say!(WARN, NAME, "warning: {text}"));
    let variable = |name: &str| variables.get(name).map(OsStr::to_owned);
    let here = hosts::own_name()?;
    let named = named(&flags);
    let list = named.as_deref().or(flags.hosts.as_deref());
    let listed = hosts::all(list, flags.hostfile.as_deref(), &here, variable)?;
    let List { hosts, notes } =
        listed.unwrap_or_else(|| List { hosts: vec![HostEntry::here(&here)], notes: Vec::new() });
    notes.iter().for_each(|text| say!(WARN, NAME, "warning: {text}"));
    let report = flags.report.as_deref().map(|path| {
        let made = std::fs::File::create(path);
        made.map_err(|error| Failure::Report(path.to_owned(), error))
    });
    let report = report.transpose()?;
    let mut reach = reach::reach(&checked.values, hosts.len())?;
    reach.ssh.stage = flags.stage;
    let request = Request {
        reach: Reach { start_timeout: flags.start_timeout, ..reach },
        hosts,
        directory: std::env::current_dir().map_err(Failure::WorkingDirectory)?,
        env: environment::for_hosts(&variables, &Forwarded::default(), Spawner::Ssh, 0),
    };
    let health = examine(&request).map_err(Failure::Doctor)?;
    let lines = lines(&health, &request.hosts);
    let code = if lines.iter().any(|line| line.finding.level == Level::Problem) {
        CODE_PROBLEMS
    } else {
        0
    };
    if let (Some(file), Some(path)) = (report, flags.report) {
        write_report(file, &health, code).map_err(|error| Failure::Report(path, error.into()))?;
    }
    Ok((text(&lines, health.len()), code))
}

fn parse(words: &[OsString]) -> Result<DoctorFlags, Failure> {
    let all = std::iter::once(OsString::from(WORD)).chain(words.iter().cloned());
    let matches = command().try_get_matches_from(all);
    let flags = matches.and_then(|matches| DoctorFlags::from_arg_matches(&matches));
    Ok(flags.map_err(CommandLineError::from)?)
}

/// The words that name hosts as one list.
fn named(flags: &DoctorFlags) -> Option<OsString> {
    (!flags.host.is_empty()).then(|| flags.host.join(OsStr::new(" ")))
}

/// One line of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Line {
    finding: Finding,
    /// Hosts with it.
    hosts: Vec<String>,
}

/// Findings of one host, with those that follow from how far it came.
fn findings(health: &Health) -> Vec<Finding> {
    let mut all = match &health.failure {
        Some(failure) => {
            let rule = failure.class.rule();
            let check = match failure.class {
                Class::Version => "version",
                Class::Directory => "directory",
                _ => "login",
            };
            let seen = format!("at the step `{}`: {}", rule.step.name(), failure.seen);
            vec![Finding::bad(check, Level::Problem, seen, rule.advice)]
        }
        None => vec![
            Finding::ok("login", "the agent answers"),
            Finding::ok("version", env!("CARGO_PKG_VERSION")),
        ],
    };
    all.extend(health.findings.iter().cloned());
    all
}

/// Everything, grouped by check, level and what was seen.
fn lines(health: &[Health], entries: &[HostEntry]) -> Vec<Line> {
    let mut groups: BTreeMap<(usize, Level, String), Line> = BTreeMap::new();
    for (health, entry) in health.iter().zip(entries) {
        for finding in findings(health) {
            let known = CHECKS.iter().position(|(name, _)| *name == finding.check);
            let Some(index) = known else { continue };
            // What differs only in the host's own name, or is well, is the same.
            let key = match finding.level {
                Level::Ok if finding.check != CLIENT => String::new(),
                _ => finding.seen.replace(&entry.name, "HOST"),
            };
            let line = groups
                .entry((index, finding.level, key))
                .or_insert_with(|| Line { finding: finding.clone(), hosts: Vec::new() });
            if line.finding.seen != finding.seen && finding.level == Level::Ok {
                line.finding.seen = "differs, see --report".to_owned();
            }
            line.hosts.push(health.host.clone());
        }
    }
    let mut lines: Vec<_> = groups.into_iter().collect();
    // The worst of a check first, then what concerns most hosts.
    lines.sort_by_key(|((index, level, _), line)| {
        (*index, Reverse(*level), Reverse(line.hosts.len()))
    });
    lines.into_iter().map(|(_, line)| line).collect()
}

/// The table for people.
fn text(lines: &[Line], hosts: usize) -> String {
    const SHOWN: usize = 4;
    let width = CHECKS.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for line in lines {
        let (count, Finding { check, level, seen, fix }) = (line.hosts.len(), &line.finding);
        let plural = if hosts == 1 { "host" } else { "hosts" };
        let which = if *level == Level::Ok && (check != CLIENT || count == hosts) {
            String::new()
        } else {
            let more = count.saturating_sub(SHOWN);
            let names = line.hosts[..count.min(SHOWN)].join(" ");
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            format!(" ({names}{more})")
        };
        let level = level.name();
        let _ = writeln!(
            text,
            "{level:<8} {check:<width$}  {count} of {hosts} {plural}{which}: {seen}"
        );
        if !fix.is_empty() {
            let _ = writeln!(text, "{:<8} {:<width$}  fix: {fix}", "", "");
        }
    }
    let count = |level| lines.iter().filter(|line| line.finding.level == level).count();
    let (problems, warnings) = (count(Level::Problem), count(Level::Warning));
    let named = |count: usize, one: &str| match count {
        1 => format!("1 {one}"),
        _ => format!("{count} {one}s"),
    };
    let _ = writeln!(text, "{}, {}", named(problems, "problem"), named(warnings, "warning"));
    text
}

#[derive(Serialize)]
struct Report<'a> {
    format: u32,
    version: &'static str,
    exit_code: u8,
    hosts: &'a [Health],
}

fn write_report(file: std::fs::File, hosts: &[Health], exit_code: u8) -> serde_json::Result<()> {
    let version = env!("CARGO_PKG_VERSION");
    serde_json::to_writer_pretty(file, &Report { format: FORMAT, version, exit_code, hosts })
}

#[cfg(test)]
mod tests;
