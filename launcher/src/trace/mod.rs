//! `--trace` and `--stats`: from the slots that ranks have left to a timeline and a table.
//!
//! * `align`: the clocks of the hosts (pure). `merge`: records of all ranks to slices and arrows
//!   (pure). `write`: those as a file in the Trace Event format. `table`: the counters as a table
//!   (pure).

mod align;
mod merge;
mod table;
mod write;

use std::fs::File;
use std::path::PathBuf;

use bootstrap::trace::{Slot, capacity};
use settings::say;
use supervisor::report::JobReport;
use supervisor::trace::{Memory, Wanted};

use self::align::Alignment;
use crate::failure::Failure;
use crate::flags::Flags;
use crate::job::Job;
use crate::reach::NAME;
use crate::spawner::Spawner;

/// What was asked for, until the job is over.
#[derive(Debug)]
pub struct Tracing {
    file: Option<(PathBuf, File)>,
    stats: bool,
}

impl Tracing {
    /// Opens the file and makes the memory, before anything is started; the plan of the job gets
    /// it.
    ///
    /// # Errors
    /// The file cannot be made, or the memory; or ranks are started by somebody else.
    pub fn begin(flags: &Flags, job: &mut Job) -> Result<Self, Failure> {
        let stats = flags.stats;
        if flags.trace.is_none() && !stats {
            return Ok(Self { file: None, stats });
        }
        if job.spawner != Spawner::Ssh {
            return Err(Failure::TraceElsewhere(job.spawner.name()));
        }
        let mut options = File::options();
        // Read, too: a file that fills its disk is cut behind its last event.
        options.read(true).write(true).create(true).truncate(true);
        let create = |path: &PathBuf| match options.open(path) {
            Ok(file) => Ok((path.clone(), file)),
            Err(error) => Err(Failure::Trace(path.clone(), error)),
        };
        let file = flags.trace.as_ref().map(create).transpose()?;
        let events = file.is_some();
        let capacity = if events { capacity(job.trace_memory) } else { 0 };
        let wanted = Wanted { capacity, events, counts: stats };
        let memory = Memory::new(wanted, job.plan.size).map_err(Failure::TraceMemory)?;
        job.plan.trace = Some(memory);
        Ok(Self { file, stats })
    }

    /// Writes what ranks have left. What goes wrong is said; the job's own outcome stays.
    pub fn finish(self, job: &Job, outcome: &JobReport) {
        let Some(memory) = &job.plan.trace else { return };
        let read = |rank: u32| match memory.read(rank) {
            Ok(bytes) => Slot::read(&bytes),
            Err(error) => {
                say!(WARN, NAME, "what rank {rank} has recorded cannot be read: {error}");
                None
            }
        };
        let mut slots: Vec<Option<Slot>> = (0..job.plan.size).map(read).collect();
        if self.stats {
            let hosts: Vec<&str> = outcome.ranks.iter().map(|rank| rank.host.as_str()).collect();
            say!(INFO, NAME, "{}", table::text(&slots, &hosts));
        }
        let Some((path, file)) = self.file else { return };
        let host_of = |rank: usize| job.plan.map.host_of.get(rank).copied().unwrap_or(0);
        let alignment = Alignment::of(&outcome.clocks);
        for (rank, slot) in slots.iter_mut().enumerate() {
            if let Some(slot) = slot {
                alignment.apply(host_of(rank), slot);
            }
        }
        let names: Vec<String> = outcome
            .ranks
            .iter()
            .map(|record| format!("rank {} ({})", record.rank, record.host))
            .collect();
        let timeline = merge::timeline(&slots);
        match write::write(file, &names, &timeline) {
            Ok(written) => {
                let (path, text) = (path.display(), written.text(&timeline));
                if written.cut.is_some() {
                    say!(WARN, NAME, "--trace {path}: {text}");
                } else {
                    say!(DEBUG, NAME, "--trace {path}: {text}");
                }
            }
            Err(error) => say!(ERROR, NAME, "--trace {}: {error}", path.display()),
        }
    }
}
