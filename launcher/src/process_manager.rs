//! Jobs whose ranks another launcher starts: from our options to its words, or to the reason why
//! not.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use spawner_pmi::launch::{Call, Family, Machine, PMI, Part, Wanted};
use supervisor::plan::{JobPlan, Program, StageMode, StdinTo};

use crate::environment::Variables;
use crate::flags::{BindTo, Flags, MapRule};
use crate::hosts::list::List;
use crate::hosts::{self, HostsError};
use crate::spawner::Spawner;

/// Why no other launcher can be called.
#[derive(Debug, thiserror::Error)]
pub enum ProcessManagerError {
    /// The call.
    #[error(transparent)]
    Plan(#[from] spawner_pmi::launch::PlanError),
    /// The list of hosts.
    #[error(transparent)]
    Hosts(#[from] HostsError),
    /// An option that only our own agents can carry out: its name, the spawner, what to do instead.
    #[error(
        "{0} is for ranks that our own agents start, with -spawner=ssh; with -spawner={1} another launcher \
         starts them. {2}"
    )]
    Option(&'static str, &'static str, &'static str),
}

/// Seconds beyond the exit bound.
const EXIT_MARGIN: u64 = 5;
/// Seconds for programs whose ranks do not know of each other, as GASNet has it for all.
const PLAIN_WAIT: u64 = 60;

/// Whether a batch system's allocation should be used through its own launcher although nobody
/// named a spawner: it has hosts other than `here`, and nobody named hosts.
#[must_use]
pub fn owns_the_hosts(flags: &Flags, here: &str, machine: &dyn Machine) -> bool {
    let named = flags.hosts.is_some()
        || flags.hostfile.is_some()
        || matches!(flags.map, MapRule::File(_))
        || hosts::SOURCES.iter().any(|(name, _, batch)| !batch && machine.variable(name).is_some());
    if named || machine.variable("SLURM_JOB_ID").is_none() {
        return false;
    }
    // On the only host of the allocation our own agent needs no login and tells more.
    let text =
        |name: &str| machine.variable(name).map(|value| value.to_string_lossy().into_owned());
    let only = text("SLURM_JOB_NUM_NODES").or_else(|| text("SLURM_NNODES")).as_deref() == Some("1");
    let this = text("SLURM_JOB_NODELIST")
        .is_some_and(|list| list == here || text("SLURMD_NODENAME").as_deref() == Some(&*list));
    !(only && this) && machine.find(OsStr::new("srun")).is_some()
}

const fn family(spawner: Spawner) -> &'static Family {
    match spawner {
        Spawner::Mpi => &spawner_mpi::launch::MPI,
        Spawner::Pmi | Spawner::Ssh => &PMI,
    }
}

/// Makes the call for the ranks of `plan`. `note` is a script that notes the step of a batch
/// system, run before the ranks.
///
/// # Errors
/// [`ProcessManagerError`].
pub fn call(
    plan: &JobPlan,
    flags: &Flags,
    spawner: Spawner,
    note: Option<PathBuf>,
    machine: &dyn Machine,
) -> Result<Call, ProcessManagerError> {
    refuse(flags, spawner)?;
    // What variables say is for our own agents; the other launcher knows its hosts.
    let (text, file) = (flags.hosts.as_deref(), flags.hostfile.as_deref());
    let List { hosts, notes } = hosts::all(text, file, &plan.host, |_| None)?.unwrap_or_default();
    let list: Vec<_> = hosts.iter().map(|host| (host.to_string(), host.slots)).collect();
    let ranks_of = |at: usize, first: u32| {
        plan.programs.get(at + 1).map_or(plan.size, |next| next.first) - first
    };
    let part = |(at, program): (usize, &Program)| Part {
        ranks: ranks_of(at, program.first),
        argv: program.argv.clone(),
        environment: program.env.clone(),
        directory: program.directory.clone(),
    };
    let parts: Vec<Part> = plan.programs.iter().enumerate().map(part).collect();
    let wanted = Wanted {
        ranks: plan.size,
        hosts: flags.host_count.map(|hosts| hosts.min(plan.size)),
        host_list: &list,
        ranks_per_host: flags.ranks_per_host,
        cyclic: matches!(flags.map, MapRule::Cyclic),
        cpus: flags.cpus.or((flags.bind_to == Some(BindTo::None)).then_some(0)),
        bind_to: match flags.bind_to {
            Some(BindTo::Core) => Some((0, "--bind-to core")),
            Some(BindTo::Socket) => Some((1, "--bind-to socket")),
            Some(BindTo::Numa) => Some((2, "--bind-to numa")),
            Some(BindTo::None) | None => None,
        },
        oversubscribe: flags.oversubscribe,
        report_bindings: flags.report_bindings,
        stdin: match flags.reader() {
            StdinTo::Rank(rank) if rank.0 == 0 => None,
            StdinTo::Rank(rank) => Some(rank.to_string()),
            StdinTo::None => Some("none".to_owned()),
            StdinTo::All => Some("all".to_owned()),
        },
        label: flags.tag_output,
        wait: match plan.conduit_program {
            // All ranks leave together; what is left then does not look at the others.
            true => plan.exit_bound.as_secs() + EXIT_MARGIN,
            false => PLAIN_WAIT,
        },
        verbose: flags.level() >= 1,
        program: plan.program.as_os_str(),
        arguments: plan.argv.get(1..).unwrap_or_default(),
        parts: &parts,
        environment: &plan.env_for_hosts,
        secrets: &[bootstrap::trace::far::KEY_VARIABLE],
        host_file: host_file(flags, machine),
        before: note,
        directory: &plan.directory,
    };
    let mut call = spawner_pmi::launch::plan(family(spawner), &wanted, machine)?;
    call.warnings.splice(..0, notes);
    Ok(call)
}

/// Refuses what only our own agents can do.
fn refuse(flags: &Flags, spawner: Spawner) -> Result<(), ProcessManagerError> {
    let checks = [
        (flags.output_dir.is_some(), "--output-dir", "Use its own option for that in the template"),
        (flags.spares.is_some(), "--spares", "The other launcher chooses the hosts"),
        (flags.retry.is_some(), "--retry", "The other launcher does not say why it failed"),
        (flags.pmi.is_some(), "--pmi", "That one serves PMI or not; leave the option out"),
        (flags.stall_timeout.is_some(), "--stall-timeout", "It needs our own agents"),
        (flags.start_timeout.is_some(), "--start-timeout", "--timeout bounds the whole job"),
        (
            flags.stage != StageMode::Auto,
            "--stage",
            "Use its own option for that in the template, as srun's --bcast",
        ),
        (
            matches!(flags.map, MapRule::File(_)),
            "--map FILE",
            "Use its own option for that in the template",
        ),
        (flags.map == MapRule::Slots, "--map slots", "Use its own option for that in the template"),
        (flags.place.is_some(), "--place", "Use its own option for that in the template"),
        (
            flags.no_oversubscribe,
            "--no-oversubscribe",
            "Use its own option for that in the template",
        ),
    ];
    match checks.into_iter().find(|(set, ..)| *set) {
        None => Ok(()),
        Some((_, option, advice)) => {
            Err(ProcessManagerError::Option(option, spawner.name(), advice))
        }
    }
}

/// The file of `%H`.
fn host_file(flags: &Flags, machine: &dyn Machine) -> Option<PathBuf> {
    let named = |name: &str| machine.variable(name).map(PathBuf::from);
    let sge = || {
        machine.variable("PE_HOSTFILE")?;
        let below = |name: &str| Some(named(name)?.join("machines")).filter(|file| file.is_file());
        below("TMPDIR").or_else(|| below("TMP"))
    };
    let own = flags.hostfile.clone();
    own.or_else(|| named("GASNET_NODEFILE")).or_else(|| named("PBS_NODEFILE")).or_else(sge)
}

/// Where a launcher's own variables say which batch job this is.
#[must_use]
pub fn batch_job(environment: &Variables) -> Option<(&'static str, OsString)> {
    const NAMES: [&str; 4] = ["SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "FLUX_JOB_ID"];
    NAMES.into_iter().find_map(|name| {
        let value = environment.iter().find(|(n, _)| n == name)?.1.clone();
        (!value.is_empty()).then_some((name, value))
    })
}

#[cfg(test)]
#[path = "process_manager_tests.rs"]
mod tests;
