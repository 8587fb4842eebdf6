//! `--trace` and `--stats`: from the slots that ranks have left to a timeline and a table.
//!
//! * `align`: the clocks of the hosts (pure). `merge`: records of all ranks to slices and arrows
//!   (pure). `write`: those as a file in the Trace Event format. `table`: the counters as a table
//!   (pure). `gather`: slots of ranks that another launcher starts.

mod align;
mod gather;
mod merge;
mod nest;
mod table;
mod write;

use std::fs::File;
use std::path::PathBuf;
use std::rc::Rc;

use bootstrap::trace::{Slot, capacity};
use settings::{say, say_lines};
use supervisor::local::{HostsStart, Observer, Progress};
use supervisor::report::JobReport;
use supervisor::trace::{ClockSample, Memory, Wanted};

use self::align::Alignment;
pub use self::gather::Gather;
use self::gather::{Gathering, clock_of};
use crate::failure::Failure;
use crate::flags::Flags;
use crate::job::Job;
use crate::reach::NAME;

/// What was asked for, until the job is over.
#[derive(Debug)]
pub struct Tracing {
    file: Option<(PathBuf, File)>,
    stats: bool,
    /// Where another launcher starts the ranks.
    gather: Option<Gather>,
    gathering: Option<Gathering>,
}

/// The memory that is wanted of the ranks, if any.
///
/// # Errors
/// The memory cannot be made.
pub fn memory(flags: &Flags, bytes: u64, ranks: u32) -> Result<Option<Memory>, Failure> {
    let (events, counts) = (flags.trace.is_some(), flags.stats);
    if !events && !counts {
        return Ok(None);
    }
    let wanted = Wanted { capacity: if events { capacity(bytes) } else { 0 }, events, counts };
    Memory::new(wanted, ranks).map(Some).map_err(Failure::TraceMemory)
}

impl Tracing {
    /// Opens the file and makes the memory, before anything is started; the plan of the job gets
    /// it.
    ///
    /// # Errors
    /// The file cannot be made, or the memory.
    pub fn begin(flags: &Flags, job: &mut Job) -> Result<Self, Failure> {
        let stats = flags.stats;
        let mut options = File::options();
        // Read, too: a file that fills its disk is cut behind its last event.
        options.read(true).write(true).create(true).truncate(true);
        let create = |path: &PathBuf| match options.open(path) {
            Ok(file) => Ok((path.clone(), file)),
            Err(error) => Err(Failure::Trace(path.clone(), error)),
        };
        let file = flags.trace.as_ref().map(create).transpose()?;
        // The job is not copied from here on.
        let gather = job.gather.take().and_then(Rc::into_inner);
        job.plan.trace = match &gather {
            Some(gather) => Some(gather.memory().clone()),
            None => memory(flags, job.trace_memory, job.ranks)?,
        };
        Ok(Self { file, stats, gather, gathering: None })
    }

    /// Before another attempt: memory without what the last one has left.
    ///
    /// # Errors
    /// The memory cannot be made.
    pub fn anew(&mut self, flags: &Flags, job: &mut Job) -> Result<(), Failure> {
        job.plan.trace = memory(flags, job.trace_memory, job.ranks)?;
        Ok(())
    }

    /// Passes on how far the job is, and begins to gather: with the first news there is an agent,
    /// and before it was made this process had to have one thread.
    pub fn watch<'a>(&'a mut self, observer: &'a mut dyn Observer) -> Watching<'a> {
        Watching { tracing: self, observer }
    }

    /// Writes what ranks have left. What goes wrong is said; the job's own outcome stays.
    pub fn finish(self, job: &Job, outcome: &JobReport) {
        let elsewhere = job.process_manager.is_some();
        let clocks = self.gathering.map(Gathering::finish).unwrap_or_default();
        let Some(memory) = &job.plan.trace else { return };
        let read = |rank: u32| match memory.read(rank) {
            Ok(bytes) => Slot::read(&bytes),
            Err(error) => {
                say!(WARN, NAME, "what rank {rank} has recorded cannot be read: {error}");
                None
            }
        };
        let mut slots: Vec<Option<Slot>> = (0..job.ranks).map(read).collect();
        if elsewhere {
            say_missing(&slots);
        }
        if self.stats {
            let hosts = hosts(&slots, outcome, elsewhere);
            say_lines!(INFO, NAME, "{}", table::text(&slots, &hosts));
        }
        let Some((path, file)) = self.file else { return };
        let host_of = |rank: usize| match elsewhere {
            true => u32::try_from(rank).map_or(0, clock_of),
            false => job.plan.map.host_of.get(rank).copied().unwrap_or(0),
        };
        let clocks: Vec<ClockSample> = outcome.clocks.iter().copied().chain(clocks).collect();
        let alignment = Alignment::of(&clocks);
        let hosts = hosts(&slots, outcome, elsewhere);
        for (rank, slot) in slots.iter_mut().enumerate() {
            if let Some(slot) = slot {
                alignment.apply(host_of(rank), slot);
            }
        }
        let names = hosts.iter().enumerate().map(|(rank, host)| format!("rank {rank} ({host})"));
        let names: Vec<String> = names.collect();
        let mut timeline = merge::timeline(&slots);
        timeline.clock_error = alignment.error();
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

/// The host of each rank: as the report has it, or as the rank says where another launcher chose.
fn hosts(slots: &[Option<Slot>], outcome: &JobReport, elsewhere: bool) -> Vec<String> {
    if !elsewhere {
        return outcome.ranks.iter().map(|rank| rank.host.clone()).collect();
    }
    let host = |slot: &Option<Slot>| slot.as_ref().map_or("?".to_owned(), |slot| slot.host.clone());
    slots.iter().map(host).collect()
}

/// Names the ranks of another launcher that have left nothing.
fn say_missing(slots: &[Option<Slot>]) {
    let ranks = slots.iter().enumerate().filter(|(_, slot)| slot.is_none());
    let missing: Vec<String> = ranks.map(|(rank, _)| rank.to_string()).collect();
    if !missing.is_empty() {
        say!(
            WARN,
            NAME,
            "nothing came from these ranks, which crashed, were killed, could not reach this host \
             or are no GASNet program: {}",
            missing.join(" ")
        );
    }
}

/// See [`Tracing::watch`].
pub struct Watching<'a> {
    tracing: &'a mut Tracing,
    observer: &'a mut dyn Observer,
}

impl Observer for Watching<'_> {
    fn event(&mut self, progress: &Progress) {
        if let Some(gather) = self.tracing.gather.take() {
            match gather.start() {
                Ok(gathering) => self.tracing.gathering = Some(gathering),
                Err(error) => {
                    say!(
                        WARN,
                        NAME,
                        "what ranks on other hosts record is lost: no thread: {error}"
                    );
                }
            }
        }
        self.observer.event(progress);
    }

    fn hosts(&mut self, start: &HostsStart) {
        self.observer.hosts(start);
    }
}
