//! From checked flags to the plan of a job. Looks at the system, but changes nothing.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ::settings::Env;
use bootstrap::Rank;
use bootstrap::trace::VARIABLE;
use bootstrap::trace::far::KEY_VARIABLE;
use spawner_pmi::launch::{Call, System};
use supervisor::plan::{Binding, Checkpoint, JobPlan, Map, OutputPlan, Pmi, Reach, StdinTo};

use crate::attempts::Attempts;
use crate::command_line::CommandLine;
use crate::container::{self, Container};
use crate::cpus::Bound;
use crate::debugger::Debugger;
use crate::environment::{self, Forwarded};
use crate::failure::Failure;
use crate::flags::Flags;
use crate::hosts::Chosen;
use crate::mpi::Wire;
use crate::parts::{self, Found};
use crate::program::{Command, Places, check_directory};
use crate::slurm::{self, StepNote};
use crate::spawner::{self, Spawner};
use crate::trace::{self, Gather};
use crate::{cpus, hosts, process_manager, reach, settings};

/// Time that ranks have to write a checkpoint, without `--checkpoint-grace`.
const CHECKPOINT_GRACE: Duration = Duration::from_secs(30);

/// A job that can be started.
#[derive(Clone, Debug)]
pub struct Job {
    /// What the agent gets.
    pub plan: JobPlan,
    /// Ranks of the job; `plan.size` unless another launcher starts them.
    pub ranks: u32,
    /// How ranks are started.
    pub spawner: Spawner,
    /// The other launcher's call, which `plan` runs in place of the program.
    pub process_manager: Option<Call>,
    /// Where it leaves the number of its step, when a report is wanted.
    pub step: Option<Rc<StepNote>>,
    /// The program behind `plan.program`.
    pub command: Command,
    /// The programs of a job with several, the first among them.
    pub parts: Vec<Found>,
    /// What ranks run their program under.
    pub debugger: Option<Debugger>,
    /// What each rank runs in.
    pub container: Option<Container>,
    /// The `-E` list.
    pub forwarded: Forwarded,
    /// Whether ranks on other hosts would get `-E` names only.
    pub env_listed: bool,
    /// Which rank is bound to which cores of this host, where only it has ranks.
    pub picture: Vec<String>,
    /// Who named the hosts; none: nobody, so the job is on this host.
    pub host_source: Option<String>,
    /// What may be tried when hosts fail.
    pub attempts: Attempts,
    /// How often it was started.
    pub started: u32,
    /// Who gathers traces of the other launcher's ranks, if those are wanted.
    pub gather: Option<Rc<Gather>>,
    /// Bytes of memory for the events of a rank, should they be traced.
    pub trace_memory: u64,
    /// Things to tell the user, in order.
    pub warnings: Vec<String>,
}

impl Job {
    /// Before another attempt: where each rank runs now. The attempt has a name of its own.
    pub fn take_map(&mut self, map: Map) {
        self.plan.map = map;
        self.plan.job_id = job_id(&self.plan.host);
    }
}

/// Makes the job of a command line in the launcher's own `environment`.
///
/// # Errors
/// Everything that keeps the job from being started, in the order in which a user would want to
/// hear of it: command line, spawner, hosts, variables, program, binding, directories.
pub fn prepare(line: &CommandLine, environment: &Env) -> Result<Job, Failure> {
    let flags = &line.flags;
    let ranks = line.ranks()?;
    let host = hosts::own_name()?;
    let spawner = choose_spawner(flags, environment, &host)?;
    let checked = settings::check(environment, ranks)?;
    let chosen = match spawner {
        Spawner::Ssh => {
            let variable = |name: &str| environment.get(name).map(OsStr::to_owned);
            let keep_duplicates = checked.values.bool("GASNET_SSH_KEEPDUP");
            hosts::choose(flags, ranks, keep_duplicates, &host, variable)?
        }
        // One process on this host: the other launcher.
        Spawner::Mpi | Spawner::Pmi => Chosen {
            map: Map::here(&host, 1),
            spares: Vec::new(),
            source: None,
            asked: false,
            warnings: Vec::new(),
        },
    };
    let mut warnings = chosen.warnings;
    warnings.extend(checked.warnings);
    let reach = if chosen.map.is_here_only() {
        Reach::default()
    } else {
        let mut reach = reach::reach(&checked.values, chosen.map.hosts.len())?;
        (reach.ssh.stage, reach.ssh.keep) = (flags.stage, flags.keep);
        reach.directory = reach.directory.filter(|_| flags.wdir.is_none());
        Reach { start_timeout: flags.start_timeout, ..reach }
    };
    let here = std::env::current_dir().map_err(Failure::WorkingDirectory)?;
    let path = environment.get("PATH").map(OsStr::to_owned);
    let places = Places { directory: here.clone(), path };
    let find = |words: &[OsString]| match &flags.container {
        None => places.resolve(words, spawner),
        Some(_) => container::resolve(&places, words, spawner),
    };
    let command = find(&line.command)?;
    // What is in a container is not known.
    let quiet = checked.values.bool("GASNET_QUIET") || flags.container.is_some();
    if line.parts.is_empty() && !quiet {
        warnings.extend(plain_warning(&command, flags, &line.command, ranks));
    }
    let level = flags.level();
    let forwarded = environment::forwarded(flags.asked(), environment);
    let binding = cpus::wanted(flags)?;
    let bound = match chosen.map.is_here_only() && spawner == Spawner::Ssh {
        true => cpus::bind(&binding, flags, ranks)?,
        // Each host's agent knows which cpus it may use.
        false => Bound::default(),
    };
    let parts = parts::resolve(&line.parts, &places, find)?;
    for (part, found) in line.parts.iter().zip(&parts).filter(|_| !quiet) {
        warnings.extend(plain_warning(&found.command, flags, &part.command, part.ranks));
    }
    let commands: Vec<_> =
        std::iter::once(&command).chain(parts.iter().map(|part| &part.command)).collect();
    let pmi = choose_pmi(&commands, flags, spawner, ranks)?;
    let has_ranks = spawner != Spawner::Ssh || chosen.map.hosts.iter().any(|host| host.here);
    let here_has = |rank| spawner != Spawner::Ssh || chosen.map.is_here(rank);
    let programs = parts::programs(&parts, here_has)?;
    let plan = JobPlan {
        job_id: job_id(&host),
        session: String::new(),
        host_names: Vec::new(),
        map: chosen.map,
        size: ranks,
        host,
        program: command.executable.clone(),
        program_word: command.program.unwrap_or(0),
        argv: command.argv.clone(),
        programs,
        container: None,
        env: environment::of_ranks(environment, spawner, level),
        env_for_hosts: environment::for_hosts(environment, &forwarded, spawner, level),
        directory: working_directory(&here, flags.wdir.as_deref(), has_ranks)?,
        binding,
        reach,
        cpus: bound.sets,
        stdin: flags.reader(),
        output: OutputPlan {
            tag: flags.tag_output,
            timestamp: flags.timestamp_output,
            directory: flags.output_dir.as_deref().map(|dir| here.join(dir)),
        },
        timeout: flags.timeout,
        stall_timeout: flags.stall_timeout,
        checkpoint: flags.checkpoint_signal.map(|signal| Checkpoint {
            signal,
            grace: flags.checkpoint_grace.unwrap_or(CHECKPOINT_GRACE),
            code: flags.requeue_code.map(i32::from),
        }),
        exit_bound: checked.exit_bound,
        conduit_program: command.program.is_some()
            || parts.iter().any(|part| part.command.program.is_some()),
        foreign: false,
        pmi,
        pmi_library: None,
        trace: None,
        verbose: if checked.values.bool("GASNET_SPAWN_VERBOSE") { 2 } else { level.min(2) },
    };
    let names = parts.iter().flat_map(|part| part.env.iter().map(|(name, _)| name));
    let names: Vec<OsString> = forwarded.set.iter().chain(names).cloned().collect();
    let more = flags.records().or_else(|| {
        let asked = flags.pmi.is_some_and(|pmi| pmi != Pmi::Off);
        asked.then_some("--pmi")
    });
    let container =
        flags.container.as_ref().map(|words| Container::of(words, &places, spawner, &names, more));
    let (host_source, env_listed) = (chosen.source, !flags.asked().is_empty());
    let mut job = Job {
        plan,
        ranks,
        spawner,
        process_manager: None,
        step: None,
        command,
        parts,
        debugger: Debugger::of(flags, &places)?,
        container: container.transpose()?,
        forwarded,
        env_listed,
        picture: bound.picture,
        host_source,
        attempts: Attempts { spares: chosen.spares, retries: flags.retry.unwrap_or(0) },
        started: 0,
        gather: None,
        trace_memory: checked.values.size("GASNET_TRACE_MEMORY"),
        warnings,
    };
    put_wrappers(&mut job);
    if spawner != Spawner::Ssh {
        put_gather(&mut job, flags)?;
        put_engine(&mut job, flags, &System::new(environment))?;
    }
    Ok(job)
}

/// The spawner that somebody named, or the one that is right here.
fn choose_spawner(flags: &Flags, environment: &Env, here: &str) -> Result<Spawner, Failure> {
    let named = Spawner::choose(flags.spawner.as_deref(), environment.get(spawner::VARIABLE))?;
    Ok(named.unwrap_or(
        match process_manager::owns_the_hosts(flags, here, &System::new(environment)) {
            true => Spawner::Pmi,
            false => Spawner::Ssh,
        },
    ))
}

/// Puts the debugger in front of the programs of its ranks, and containers around all.
fn put_wrappers(job: &mut Job) {
    if job.debugger.is_none() && job.container.is_none() {
        return;
    }
    let plan = &mut job.plan;
    let mut programs = plan.all_programs();
    if let Some(debugger) = &job.debugger {
        programs = debugger.cut(&programs, plan.size);
    }
    if let Some(container) = &job.container {
        programs = container.around(programs);
        plan.container = Some(container.planned);
        if container.planned.socket.is_some() {
            plan.pmi = Pmi::Off;
        }
    }
    if let ([only], true) = (programs.as_mut_slice(), plan.programs.is_empty()) {
        let only = std::mem::take(only);
        plan.program = only.file.into();
        plan.program_word = only.word as usize;
        plan.argv = only.argv;
    } else {
        plan.programs = programs;
    }
}

/// Ranks of another launcher are told in their environment where they leave traces.
fn put_gather(job: &mut Job, flags: &Flags) -> Result<(), Failure> {
    if flags.dry_run {
        return Ok(());
    }
    let Some(memory) = trace::memory(flags, job.trace_memory, job.ranks)? else { return Ok(()) };
    let gather = Gather::open(memory).map_err(Failure::TraceGather)?;
    let variables = [(VARIABLE, gather.text()), (KEY_VARIABLE, gather.key_text())];
    for (name, value) in variables {
        let variable = (OsString::from(name), OsString::from(value));
        job.plan.env.push(variable.clone());
        job.plan.env_for_hosts.push(variable);
    }
    job.gather = Some(Rc::new(gather));
    Ok(())
}

/// Puts the call of another launcher in the place of the ranks' program.
fn put_engine(job: &mut Job, flags: &Flags, system: &System<'_>) -> Result<(), Failure> {
    let plan = &mut job.plan;
    let mut call = process_manager::call(plan, flags, job.spawner, None, system)?;
    if flags.report.is_some() && !flags.dry_run && slurm::may_note(&call, system) {
        // A report without the step is better than no job.
        job.step = StepNote::create().ok().map(Rc::new);
        if let Some(note) = &job.step {
            let script = Some(note.script());
            call = process_manager::call(plan, flags, job.spawner, script, system)?;
        }
    }
    job.warnings.extend(call.warnings.iter().cloned());
    plan.size = 1;
    plan.program.clone_from(&call.program);
    plan.argv.clone_from(&call.argv);
    plan.program_word = 0;
    plan.programs.clear();
    plan.foreign = true;
    plan.conduit_program = false;
    plan.binding = Binding::cpus(0);
    plan.output.tag = false;
    // What the other launcher is told to do with its input.
    plan.stdin = match flags.reader() {
        StdinTo::None => StdinTo::None,
        StdinTo::All | StdinTo::Rank(_) => StdinTo::Rank(Rank(0)),
    };
    job.process_manager = Some(call);
    Ok(())
}

/// What is said of a plain program. One of an MPI that is served is what it should be.
fn plain_warning(
    command: &Command,
    flags: &Flags,
    words: &[OsString],
    ranks: u32,
) -> Option<String> {
    let served = command.mpi.is_some() && flags.pmi != Some(Pmi::Off);
    if command.program.is_some() || served {
        return None;
    }
    let program = words.first().map(|word| word.to_string_lossy()).unwrap_or_default();
    let alone = match &command.mpi {
        Some(mpi) if ranks > 1 => {
            format!(
                ", each an MPI job of its own, as --pmi=off wants it (it needs {})",
                mpi.library
            )
        }
        _ => String::new(),
    };
    Some(format!(
        "{program} is a plain program (no GASNet program among the first words): starting {ranks} \
         {}, with GASNETRUN_RANK and GASNETRUN_SIZE in their environment{alone}. GASNET_QUIET=1 silences this",
        if ranks == 1 { "copy" } else { "copies" }
    ))
}

/// What ranks are served. Refuses a program that would start as so many jobs of one rank, unless that is
/// what is asked for.
fn choose_pmi(
    commands: &[&Command],
    flags: &Flags,
    spawner: Spawner,
    ranks: u32,
) -> Result<Pmi, Failure> {
    let needs = |wire| {
        let mut all = commands.iter().filter_map(|command| command.mpi.as_ref());
        all.find(|mpi| mpi.wire == wire)
    };
    // One rank alone needs nobody.
    let open_mpi = ranks > 1 && needs(Wire::OpenMpi).is_some();
    let default = match needs(Wire::Pmix) {
        Some(_) => Pmi::Pmix,
        None if open_mpi => Pmi::OpenMpi,
        None => Pmi::On,
    };
    let pmi = flags.pmi.unwrap_or(default);
    match needs(Wire::Pmix) {
        Some(mpi) if spawner == Spawner::Ssh && !matches!(pmi, Pmi::Off | Pmi::Pmix) => {
            Err(Failure::Pmix(mpi.library.clone()))
        }
        _ => Ok(pmi),
    }
}

/// The directory of the ranks. When this host has none of them, the others look whether it is there.
fn working_directory(here: &Path, wdir: Option<&Path>, look: bool) -> Result<PathBuf, Failure> {
    let Some(wdir) = wdir else { return Ok(here.to_owned()) };
    let path = here.join(wdir);
    match check_directory(&path) {
        _ if !look => Ok(path),
        Ok(()) => Ok(path),
        Err(problem) => Err(Failure::Wdir(path, problem)),
    }
}

/// Unique on this host while the job lives, and hard to meet again.
fn job_id(host: &str) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    format!("{host}.{}.{:x}", std::process::id(), now.as_micros())
}
