//! Which job and step of Slurm a job of ours is, for the report.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::path::PathBuf;

use nix::sys::memfd::{MFdFlags, memfd_create};
use serde::Serialize;
use spawner_pmi::launch::{Call, Machine};

use crate::environment::Variables;

/// Most bytes of a note: two numbers.
const NOTE: u64 = 64;

/// A place where srun leaves the numbers of the job and step that it makes, which nobody else on
/// its host is told: the script that it runs before the ranks (`--prolog`) writes them there. Both
/// are files without a name and end with this process.
#[derive(Debug)]
pub struct StepNote {
    script: File,
    note: File,
}

fn path(file: &File) -> PathBuf {
    format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()).into()
}

impl StepNote {
    /// Makes both files. The process that calls must live as long as srun.
    ///
    /// # Errors
    /// The system refuses one of them.
    pub fn create() -> std::io::Result<Self> {
        let note = File::from(memfd_create("slurm-step", MFdFlags::MFD_CLOEXEC)?);
        let mut text = File::from(memfd_create("note-slurm-step", MFdFlags::MFD_CLOEXEC)?);
        let to = path(&note);
        writeln!(text, "#!/bin/sh\necho \"$SLURM_JOB_ID $SLURM_STEP_ID\" >{}", to.display())?;
        // A file that is open for writing cannot be executed.
        let script = File::open(path(&text))?;
        Ok(Self { script, note })
    }

    /// The script, for processes on this host.
    #[must_use]
    pub fn script(&self) -> PathBuf {
        path(&self.script)
    }

    /// The numbers of job and step, when the script has run.
    #[must_use]
    pub fn read(&self) -> Option<(String, String)> {
        let mut text = String::new();
        // Opened anew, so that the place in the file is its own and the beginning.
        let note = File::open(path(&self.note)).ok()?;
        note.take(NOTE).read_to_string(&mut text).ok()?;
        let (job, step) = text.trim_end().split_once(' ')?;
        let number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        (number(job) && number(step)).then(|| (job.to_owned(), step.to_owned()))
    }
}

/// Whether a script of ours may run before the ranks: it would take the place of the site's or the
/// user's.
#[must_use]
pub fn may_note(call: &Call, machine: &dyn Machine) -> bool {
    if call.dialect.before.is_none() || machine.variable("SLURM_PROLOG").is_some() {
        return false;
    }
    let said = machine
        .find(OsStr::new("scontrol"))
        .and_then(|scontrol| machine.ask(&scontrol, &["show", "config"]))
        .unwrap_or_default();
    let site = said.lines().find_map(|line| line.trim_start().strip_prefix("SrunProlog"));
    site.is_some_and(|value| matches!(value.trim_start_matches([' ', '=']).trim(), "" | "(null)"))
}

/// Job and step of Slurm.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Slurm {
    /// `SLURM_JOB_ID`.
    job: String,
    /// The step of the ranks; none when they run in no step of their own, or when srun was told to
    /// run another prolog.
    step: Option<String>,
    /// Job array that this job is a task of.
    array_job: Option<String>,
    /// Which one.
    array_task: Option<String>,
}

/// Slurm's job of ranks that `process_manager` starts, or our own agents, in this environment.
#[must_use]
pub fn of(
    environment: &Variables,
    process_manager: Option<&Call>,
    note: Option<&StepNote>,
) -> Option<Slurm> {
    let value = |name: &str| {
        let (_, value) = environment.iter().find(|(known, _)| known == name)?;
        value.to_str().filter(|text| !text.is_empty()).map(str::to_owned)
    };
    let (job, step) = match note.and_then(StepNote::read) {
        Some((job, step)) => (Some(job), Some(step)),
        // A step in which the launcher runs is that of the ranks unless srun makes another.
        None if process_manager.is_some_and(|call| call.dialect.before.is_some()) => {
            (value("SLURM_JOB_ID"), None)
        }
        None => (value("SLURM_JOB_ID"), value("SLURM_STEP_ID")),
    };
    // A call of srun outside of the allocation that the environment tells of makes a job of its
    // own.
    let same = job.is_some() && job == value("SLURM_JOB_ID");
    let of_array = |name| value(name).filter(|_| same);
    Some(Slurm {
        job: job?,
        step,
        array_job: of_array("SLURM_ARRAY_JOB_ID"),
        array_task: of_array("SLURM_ARRAY_TASK_ID"),
    })
}

#[cfg(test)]
#[path = "slurm_tests.rs"]
mod tests;
