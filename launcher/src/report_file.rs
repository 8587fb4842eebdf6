//! The report file (`--report`): one JSON object about the job, or about why there was none.

use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;
use supervisor::plan::HostEntry;
use supervisor::report::{Cause, HostRecord, JobReport, Phases, RankRecord};

use crate::failure::Failure;
use crate::job::Job;
use crate::slurm::{self, Slurm};

/// Number of the format; grows when a field changes its meaning or goes.
pub const FORMAT: u32 = 1;

/// Contents of the file. Words that are not UTF-8 are shown with replacement characters.
#[derive(Debug, Serialize)]
struct Document<'a> {
    format: u32,
    launcher: &'static str,
    version: &'static str,
    /// Version of the frames between ranks and agent.
    protocol: u8,
    /// Seconds since the epoch.
    written: f64,
    command_line: &'a [String],
    /// Job id; absent when no job was made.
    job: Option<&'a str>,
    /// Exit code of the launcher.
    exit_code: u8,
    /// Text of the failure when the job could not be started.
    failure: Option<String>,
    cause: Option<&'a Cause>,
    plan: Option<Plan<'a>>,
    ranks: &'a [RankRecord],
    phases: Option<&'a Phases>,
    strays_killed: u32,
    /// How far the start of each host came; empty for a job on the launching host alone.
    hosts: &'a [HostRecord],
    /// How often the job was started (`--spares`, `--retry`).
    attempts: u32,
    /// The ranks were asked for a checkpoint and left in good order.
    checkpointed: bool,
}

#[derive(Debug, Serialize)]
struct Plan<'a> {
    ranks: u32,
    /// The launching host.
    host: String,
    /// The hosts of the ranks, and which rank is on which.
    hosts: Vec<String>,
    host_of: &'a [u32],
    spawner: &'static str,
    /// The other launcher that started the ranks.
    #[serde(rename = "engine")]
    process_manager: Option<ProcessManager>,
    /// Job and step of Slurm, whoever started the ranks.
    slurm: Option<Slurm>,
    program: String,
    argv: Vec<String>,
    /// Those of a job with several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    programs: Vec<PartOf>,
    directory: String,
    gasnet_program: bool,
    cpus: Vec<Vec<usize>>,
    timeout_seconds: Option<f64>,
}

/// One of several programs.
#[derive(Debug, Serialize)]
struct PartOf {
    first_rank: u32,
    ranks: u32,
    program: String,
    argv: Vec<String>,
    directory: Option<String>,
    gasnet_program: bool,
}

/// Another launcher, as it was called.
#[derive(Debug, Serialize)]
struct ProcessManager {
    dialect: &'static str,
    template: String,
    from: String,
    argv: Vec<String>,
    /// Variable and value that name the batch job.
    batch_job: Option<[String; 2]>,
}

/// A report file that is open for writing.
#[derive(Debug)]
pub struct ReportFile {
    file: File,
    path: PathBuf,
    command_line: Vec<String>,
}

impl ReportFile {
    /// Opens (and empties) the file, before anything is started, so that a job is never run for a
    /// report that cannot be kept. `words` is the whole command line.
    ///
    /// # Errors
    /// [`Failure::Report`].
    pub fn create(path: &Path, words: &[OsString]) -> Result<Self, Failure> {
        let file = File::create(path).map_err(|error| Failure::Report(path.to_owned(), error))?;
        let command_line = words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        Ok(Self { file, path: path.to_owned(), command_line })
    }

    /// Writes the report of a job that ran, or of a launch that failed.
    ///
    /// # Errors
    /// [`Failure::Report`].
    pub fn write(
        mut self,
        job: Option<&Job>,
        outcome: Result<&JobReport, &Failure>,
        exit_code: u8,
    ) -> Result<(), Failure> {
        let report = outcome.ok();
        let document = Document {
            format: FORMAT,
            launcher: "gasnetrun_ibv",
            version: env!("CARGO_PKG_VERSION"),
            protocol: bootstrap::frame::VERSION,
            written: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0.0, |now| now.as_secs_f64()),
            command_line: &self.command_line,
            job: job.map(|job| job.plan.job_id.as_str()),
            exit_code,
            failure: outcome.err().map(ToString::to_string),
            cause: report.and_then(|report| report.cause.as_ref()),
            plan: job.map(plan),
            // Of another launcher's ranks nothing is known, and the launcher is no rank.
            ranks: report
                .filter(|_| job.is_none_or(|job| job.process_manager.is_none()))
                .map_or(&[], |report| &report.ranks),
            phases: report.map(|report| &report.phases),
            strays_killed: report.map_or(0, |report| report.orphans_killed),
            hosts: report.map_or(&[], |report| &report.hosts),
            attempts: job.map_or(0, |job| job.started),
            checkpointed: report.is_some_and(|report| report.checkpointed),
        };
        let done = serde_json::to_vec_pretty(&document)
            .map_err(std::io::Error::from)
            .and_then(|text| self.file.write_all(&text))
            .and_then(|()| self.file.write_all(b"\n"));
        done.map_err(|error| {
            // Half a report could be taken for a whole one.
            let _ = self.file.set_len(0);
            Failure::Report(self.path, error)
        })
    }
}

fn plan(job: &Job) -> Plan<'_> {
    let plan = &job.plan;
    let text =
        |words: &[OsString]| words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let process_manager = job.process_manager.as_ref().map(|call| ProcessManager {
        dialect: call.dialect.name,
        template: call.template.to_string_lossy().into_owned(),
        from: call.from.clone(),
        argv: text(&call.argv),
        batch_job: crate::process_manager::batch_job(&plan.env)
            .map(|(name, value)| [name.to_owned(), value.to_string_lossy().into_owned()]),
    });
    // Which rank is on which host is known to another launcher alone.
    let hosts: &[HostEntry] = if process_manager.is_some() { &[] } else { &plan.map.hosts };
    Plan {
        ranks: job.ranks,
        host: plan.host.clone(),
        hosts: hosts.iter().map(ToString::to_string).collect(),
        host_of: if process_manager.is_some() { &[] } else { &plan.map.host_of },
        spawner: job.spawner.name(),
        process_manager,
        slurm: slurm::of(&plan.env, job.process_manager.as_ref(), job.step.as_deref()),
        program: job.command.executable.to_string_lossy().into_owned(),
        argv: text(&job.command.argv),
        programs: job
            .parts
            .iter()
            .map(|part| PartOf {
                first_rank: part.first,
                ranks: part.ranks,
                program: part.command.executable.to_string_lossy().into_owned(),
                argv: text(&part.command.argv),
                directory: part
                    .directory
                    .as_ref()
                    .map(|directory| directory.to_string_lossy().into_owned()),
                gasnet_program: part.command.program.is_some(),
            })
            .collect(),
        directory: plan.directory.to_string_lossy().into_owned(),
        gasnet_program: job.command.program.is_some(),
        cpus: plan.cpus.clone(),
        timeout_seconds: plan.timeout.map(|limit| limit.as_secs_f64()),
    }
}
