//! Which provider serves this process: decided from the environment alone, by a pure function, with a trace.

use settings::{Env, Values};

use crate::agent;
use crate::deadlines::{Bounds, EngineBounds};
use crate::engine::{EngineError, mpi, pmi, pmix};
use crate::self_start;
use crate::service::{Bootstrap, Error, Rank};
use crate::solo;

/// Names of the variables that a rank gets from its agent.
pub mod names {
    /// Number of this rank in its job.
    pub const RANK: &str = "GASNETRUN_RANK";
    /// Ranks of the job.
    pub const SIZE: &str = "GASNETRUN_SIZE";
    /// Index of this rank on its host.
    pub const LOCAL_RANK: &str = "GASNETRUN_LOCAL_RANK";
    /// Ranks on this host.
    pub const LOCAL_SIZE: &str = "GASNETRUN_LOCAL_SIZE";
    /// Index of this host.
    pub const HOST: &str = "GASNETRUN_HOST";
    /// Address of this host at which the launcher's login reached it.
    pub const ADDRESS: &str = "GASNETRUN_ADDRESS";
    /// Unique text of the job.
    pub const JOB: &str = "GASNETRUN_JOB";
    /// Inherited descriptor of the packet socket to the node agent.
    pub const AGENT_FD: &str = "GASNETRUN_AGENT_FD";
}

/// What the environment asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Provider {
    /// The node agent of `gasnetrun_ibv`.
    Agent {
        /// Inherited descriptor.
        fd: i32,
        /// This rank.
        rank: Rank,
        /// Ranks of the job.
        size: u32,
    },
    /// A launcher that serves PMI on an inherited descriptor (Hydra, `srun --mpi=pmi2`).
    PmiDescriptor {
        /// Inherited descriptor.
        fd: i32,
        /// This rank.
        rank: Rank,
        /// Ranks of the job.
        size: u32,
        /// Name of the job, where the launcher speaks PMI-2 and names it.
        job: Option<String>,
        /// Version to begin with.
        version: PmiVersion,
    },
    /// A launcher that serves PMI-1 at an address (Hydra with `-pmi-port`).
    PmiPort {
        /// `host:port`.
        address: String,
        /// What this process is known by there.
        id: String,
    },
    /// A launcher with a PMIx server (Open MPI's mpirun, `srun --mpi=pmix`).
    Pmix {
        /// This rank, as the environment says.
        rank: u32,
        /// What else tells the number of ranks: the variable and its value.
        announced: Option<(&'static str, u32)>,
    },
    /// An MPI launcher, through the plugin for its MPI.
    Mpi {
        /// The variable that announces the number of ranks.
        variable: &'static str,
        /// That number.
        size: u32,
    },
    /// A job of one rank.
    Solo,
}

/// Generation of the PMI wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PmiVersion {
    /// Lines of words.
    One,
    /// Messages with their length in front.
    Two,
}

/// The outcome of the choice and, line by line, what was looked at on the way to it.
#[derive(Debug)]
pub struct Choice {
    /// The provider, or why there is none.
    pub provider: Result<Provider, Error>,
    /// One line per thing looked at; the last one is the decision and starts with `use` or `refuse`.
    pub trace: Vec<String>,
}

/// Another launcher's announcement that this build cannot join in the way it was made.
struct Foreign {
    launcher: &'static str,
    /// Says that this launcher started the process; absent: next row.
    sign: &'static str,
    /// Variables that may tell the number of processes; the first one set counts.
    sizes: &'static [&'static str],
    /// What would work.
    advice: &'static str,
}

/// Most specific first: Open MPI also sets `PMIX_RANK`, and everything inside an allocation has `SLURM_NTASKS`.
const FOREIGN: [Foreign; 4] = [
    Foreign {
        launcher: "Open MPI",
        sign: "OMPI_COMM_WORLD_SIZE",
        sizes: &["OMPI_COMM_WORLD_SIZE"],
        advice: "start it with gasnetrun_ibv -n RANKS PROGRAM (-spawner=mpi keeps mpirun as its launcher)",
    },
    Foreign {
        launcher: "a PMI launcher (Hydra, srun)",
        sign: "PMI_SIZE",
        sizes: &["PMI_SIZE"],
        advice: "start it with the launcher's PMI server: srun --mpi=pmi2, mpiexec.hydra, or gasnetrun_ibv -n RANKS PROGRAM",
    },
    Foreign {
        launcher: "a PMIx launcher",
        sign: "PMIX_RANK",
        sizes: &["OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"],
        advice: "start it with srun --mpi=pmi2, mpiexec.hydra, or gasnetrun_ibv -n RANKS PROGRAM",
    },
    Foreign {
        launcher: "Slurm (srun without PMI)",
        sign: "SLURM_STEP_NUM_TASKS",
        sizes: &["SLURM_STEP_NUM_TASKS"],
        advice: "say srun --mpi=pmi2, or start it with gasnetrun_ibv -n RANKS PROGRAM inside the allocation",
    },
];

/// Connects to the provider that this process's environment names.
///
/// # Errors
/// The environment contradicts itself, another launcher started this process as one of several, or the provider
/// refuses.
pub fn connect() -> Result<Box<dyn Bootstrap>, Error> {
    connect_from(&Env::from_process())
}

/// As [`connect`], with a given environment.
///
/// # Errors
/// As [`connect`].
pub fn connect_from(env: &Env) -> Result<Box<dyn Bootstrap>, Error> {
    match choose(env).provider? {
        Provider::Agent { fd, rank, size } => agent::connect(fd, rank, size, Bounds::default()),
        Provider::PmiDescriptor { fd, rank, size, job, version } => {
            let server = pmi::Inherited { fd, rank, size, job, version };
            pmi::inherited(&server, exit_bounds(env, size))
        }
        Provider::PmiPort { address, id } => {
            pmi::at_port(&address, &id, |size| exit_bounds(env, size))
        }
        Provider::Pmix { announced, .. } => {
            pmix::connect(|size| announced_is(announced, size), |size| exit_bounds(env, size))
        }
        Provider::Mpi { variable, size } => {
            mpi::connect(env, (variable, size), |size| exit_bounds(env, size))
        }
        Provider::Solo => {
            self_start::exec_if_asked(env)?;
            solo::job()
        }
    }
}

/// The bounds under an engine: the time for the end of a decided job is the user's.
fn exit_bounds(env: &Env, size: u32) -> EngineBounds {
    let mut bounds = EngineBounds::default();
    // Whoever reads the variables afterwards says what is wrong with them.
    if let Ok(time) = Values::from_env(env).and_then(|settings| settings.exit_timeout(size)) {
        bounds.others.bound = Some(time);
    }
    bounds
}

/// What [`connect_from`] would do with this environment, for `GASNET_SPAWN_VERBOSE`.
#[must_use]
pub fn provider_trace(env: &Env) -> Vec<String> {
    choose(env).trace
}

/// Chooses the provider. Pure.
#[must_use]
pub fn choose(env: &Env) -> Choice {
    let mut trace = Vec::new();
    let provider = decide(env, &mut trace);
    trace.push(match &provider {
        Ok(Provider::Agent { fd, rank, size }) => {
            format!("use agent on descriptor {fd}: rank {rank} of {size}")
        }
        Ok(Provider::PmiDescriptor { fd, rank, size, version, .. }) => {
            let number = if *version == PmiVersion::Two { 2 } else { 1 };
            format!("use PMI-{number} on descriptor {fd}: rank {rank} of {size}")
        }
        Ok(Provider::PmiPort { address, id }) => {
            format!("use PMI-1 at {address}: process {id} there")
        }
        Ok(Provider::Pmix { rank, .. }) => format!("use PMIx through libpmix: rank {rank}"),
        Ok(Provider::Mpi { size, .. }) => format!("use MPI through its plugin: {size} ranks"),
        Ok(Provider::Solo) => "use solo: no launcher announces more than one rank".to_owned(),
        Err(error) => format!("refuse: {error}"),
    });
    Choice { provider, trace }
}

/// Kinds of provider that `GASNET_IBV_SPAWNER` allows besides the agent and a job of one rank.
fn allows(env: &Env, kind: &str) -> bool {
    env.text("GASNET_IBV_SPAWNER")
        .is_none_or(|spawner| spawner.is_empty() || spawner.eq_ignore_ascii_case(kind))
}

fn decide(env: &Env, trace: &mut Vec<String>) -> Result<Provider, Error> {
    if let Some(value) = env.text(names::AGENT_FD) {
        trace.push(format!("{}={value:?}: started by gasnetrun_ibv", names::AGENT_FD));
        return agent(env);
    }
    trace.push(format!("{} is not set", names::AGENT_FD));
    if let Some(provider) = pmi_server(env, trace)? {
        return Ok(provider);
    }
    if let Some(provider) = pmix_server(env, trace)? {
        return Ok(provider);
    }
    if let Some(provider) = mpi_launcher(env, trace)? {
        return Ok(provider);
    }
    for foreign in &FOREIGN {
        let Some(value) = env.text(foreign.sign) else {
            trace.push(format!("{} is not set: not {}", foreign.sign, foreign.launcher));
            continue;
        };
        trace.push(format!("{}={value:?}: {}", foreign.sign, foreign.launcher));
        foreign_job(env, foreign, value, trace)?;
    }
    Ok(Provider::Solo)
}

/// A PMI server that this process may speak to.
fn pmi_server(env: &Env, trace: &mut Vec<String>) -> Result<Option<Provider>, Error> {
    let sign = ["PMI_FD", "PMI_PORT"].into_iter().find(|name| env.get(name).is_some());
    let Some(sign) = sign else {
        trace.push("neither PMI_FD nor PMI_PORT is set: no PMI server".to_owned());
        return Ok(None);
    };
    let value = env.text(sign).unwrap_or_default();
    if !allows(env, "pmi") {
        let spawner = env.text("GASNET_IBV_SPAWNER").unwrap_or_default();
        trace.push(format!("{sign}={value:?}: not used, GASNET_IBV_SPAWNER={spawner:?}"));
        return Ok(None);
    }
    if sign == "PMI_PORT" {
        trace.push(format!("PMI_PORT={value:?}: a PMI server"));
        let id = text(env, "PMI_ID", sign)?;
        let sound = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if id.is_empty() || !id.chars().all(sound) {
            return Err(contradiction(env, "PMI_ID", "is no name of a process"));
        }
        if value
            .rsplit_once(':')
            .is_none_or(|(host, port)| host.is_empty() || port.parse::<u16>().is_err())
        {
            return Err(contradiction(env, "PMI_PORT", "is not HOST:PORT"));
        }
        return Ok(Some(Provider::PmiPort { address: value, id }));
    }
    trace.push(format!("PMI_FD={value:?}: a PMI server"));
    let fd = number(env, "PMI_FD", sign)?;
    let fd =
        i32::try_from(fd).map_err(|_| contradiction(env, "PMI_FD", "is no descriptor number"))?;
    let (rank, size) = (number(env, "PMI_RANK", sign)?, number(env, "PMI_SIZE", sign)?);
    if rank >= size {
        let problem = format!("is outside the job of {size} ranks");
        return Err(contradiction(env, "PMI_RANK", &problem));
    }
    slurm_agrees(env, "PMI_JOBID", "PMI-2 of Slurm", size)?;
    let job = env.text("PMI_JOBID").filter(|job| !job.is_empty());
    let version = match env.text("GASNET_IBV_PMI").as_deref() {
        Some("1") => PmiVersion::One,
        Some("2") => PmiVersion::Two,
        Some(other) if !other.is_empty() => {
            let problem = "is not 1 or 2, the versions of the PMI wire that this build speaks";
            return Err(Error::Environment {
                name: "GASNET_IBV_PMI",
                value: other.to_owned(),
                problem: problem.to_owned(),
            });
        }
        _ if job.is_some() => PmiVersion::Two,
        _ => PmiVersion::One,
    };
    Ok(Some(Provider::PmiDescriptor { fd, rank: Rank(rank), size, job, version }))
}

/// A PMIx server that this process may speak to.
fn pmix_server(env: &Env, trace: &mut Vec<String>) -> Result<Option<Provider>, Error> {
    let server = env
        .iter()
        .find(|(name, _)| name.to_str().is_some_and(|name| name.starts_with("PMIX_SERVER_URI")));
    let (Some(value), Some(_)) = (env.text("PMIX_RANK"), server) else {
        trace.push("not both of PMIX_RANK and PMIX_SERVER_URI* are set: no PMIx server".to_owned());
        return Ok(None);
    };
    if !allows(env, "pmi") {
        let spawner = env.text("GASNET_IBV_SPAWNER").unwrap_or_default();
        trace.push(format!("PMIX_RANK={value:?}: not used, GASNET_IBV_SPAWNER={spawner:?}"));
        return Ok(None);
    }
    trace.push(format!("PMIX_RANK={value:?}: a PMIx server"));
    let rank = number(env, "PMIX_RANK", "PMIX_SERVER_URI*")?;
    // Open MPI inside a step of Slurm: its own number counts.
    let tellers = ["OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS"];
    let teller = tellers.into_iter().find(|name| env.get(name).is_some());
    let teller = teller.filter(|name| {
        *name != "SLURM_STEP_NUM_TASKS" || env.get("SLURM_PMIXP_ABORT_AGENT_PORT").is_some()
    });
    let announced = match teller {
        Some(name) => Some((name, number(env, name, "PMIX_RANK")?)),
        None => None,
    };
    Ok(Some(Provider::Pmix { rank, announced }))
}

/// An MPI launcher: when the user asks for MPI, or the launcher offers nothing simpler.
fn mpi_launcher(env: &Env, trace: &mut Vec<String>) -> Result<Option<Provider>, Error> {
    let asked = env.text("GASNET_IBV_SPAWNER").is_some_and(|name| name.eq_ignore_ascii_case("mpi"));
    let tellers: &[&'static str] = if asked {
        &["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"]
    } else {
        &["OMPI_COMM_WORLD_SIZE"]
    };
    let Some(variable) = tellers.iter().find(|name| env.get(name).is_some()) else {
        trace.push("no MPI launcher tells a number of processes".to_owned());
        return Ok(None);
    };
    let value = env.text(variable).unwrap_or_default();
    if !allows(env, "mpi") {
        trace.push(format!("{variable}={value:?}: an MPI launcher, not used as one"));
        return Ok(None);
    }
    trace.push(format!("{variable}={value:?}: an MPI launcher"));
    let size = number(env, variable, variable)?;
    Ok((size > 1 || asked).then_some(Provider::Mpi { variable, size }))
}

/// Fails when the launcher has announced another number of ranks than the engine serves.
fn announced_is(announced: Option<(&'static str, u32)>, size: u32) -> Result<(), Error> {
    match announced {
        Some((variable, count)) if count != size => {
            let (engine, value) = ("PMIx", count.to_string());
            let advice = "the server of another launcher answered: say srun --mpi=pmix or --mpi=pmi2, or unset PMIX_RANK";
            Err(EngineError::Size { engine, size, variable, value, advice }.into())
        }
        _ => Ok(()),
    }
}

/// An engine of Slurm's own must say as many ranks as the step has: otherwise each task would be a job of its own. Other
/// launchers inside a step start as many ranks as they like; `sign` tells that the engine is Slurm's.
pub(crate) fn slurm_agrees(
    env: &Env,
    sign: &str,
    engine: &'static str,
    size: u32,
) -> Result<(), Error> {
    let variable = "SLURM_STEP_NUM_TASKS";
    let (Some(value), true) = (env.text(variable), env.get(sign).is_some()) else { return Ok(()) };
    match value.trim().parse::<u32>() {
        Ok(tasks) if tasks == size => Ok(()),
        Ok(_) => {
            let advice = "say srun --mpi=pmi2, and unset PMI_FD, PMI_SIZE and PMIX_RANK if they come from elsewhere";
            Err(EngineError::Size { engine, size, variable, value, advice }.into())
        }
        Err(_) => Err(contradiction(env, variable, "is not a number of processes")),
    }
}

fn agent(env: &Env) -> Result<Provider, Error> {
    let sign = names::AGENT_FD;
    let fd = number(env, names::AGENT_FD, sign)?;
    let (rank, size) = (number(env, names::RANK, sign)?, number(env, names::SIZE, sign)?);
    let fd = i32::try_from(fd)
        .map_err(|_| contradiction(env, names::AGENT_FD, "is no descriptor number"))?;
    if rank >= size {
        return Err(contradiction(
            env,
            names::RANK,
            &format!("is outside the job of {size} ranks"),
        ));
    }
    Ok(Provider::Agent { fd, rank: Rank(rank), size })
}

fn contradiction(env: &Env, name: &'static str, problem: &str) -> Error {
    Error::Environment {
        name,
        value: env.text(name).unwrap_or_default(),
        problem: problem.to_owned(),
    }
}

fn text(env: &Env, name: &'static str, sign: &str) -> Result<String, Error> {
    env.text(name)
        .ok_or_else(|| contradiction(env, name, &format!("is missing although {sign} is set")))
}

fn number(env: &Env, name: &'static str, sign: &str) -> Result<u32, Error> {
    let text = text(env, name, sign)?;
    text.parse().map_err(|_| contradiction(env, name, "is not a number from 0 to 4294967295"))
}

/// Fails unless the announcement is certainly about one process.
fn foreign_job(
    env: &Env,
    foreign: &Foreign,
    value: String,
    trace: &mut Vec<String>,
) -> Result<(), Error> {
    let told = foreign.sizes.iter().find_map(|name| Some((*name, env.text(name)?)));
    let refuse = |variable, value, announced| {
        Err(Error::Launcher {
            launcher: foreign.launcher,
            variable,
            value,
            announced,
            advice: foreign.advice,
        })
    };
    match told {
        Some((name, text)) => match text.trim().parse::<u32>() {
            Ok(0 | 1) => {
                trace.push(format!("{name}={text:?}: one process, that is no obstacle"));
                Ok(())
            }
            Ok(count) => refuse(name, text, format!("{count} processes")),
            Err(_) => Err(contradiction(env, name, "is not a number of processes")),
        },
        None => refuse(foreign.sign, value, "an unknown number of processes".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(pairs: &[(&str, &str)]) -> Env {
        pairs.iter().copied().collect()
    }

    #[test]
    fn nothing_set_means_solo() {
        assert_eq!(choose(&Env::default()).provider.unwrap(), Provider::Solo);
        let mut job = connect_from(&Env::default()).unwrap();
        assert_eq!(job.place().size, 1);
        job.fini(0).unwrap();
    }

    #[test]
    fn agent_wins_over_every_other_launcher() {
        let all = [
            ("GASNETRUN_AGENT_FD", "5"),
            ("GASNETRUN_RANK", "1"),
            ("GASNETRUN_SIZE", "3"),
            ("PMI_SIZE", "8"),
        ];
        let provider = choose(&env(&all)).provider.unwrap();
        assert_eq!(provider, Provider::Agent { fd: 5, rank: Rank(1), size: 3 });
    }

    #[test]
    fn agent_variables_are_checked() {
        for (name, value, say) in [
            ("GASNETRUN_RANK", "3", "outside the job"),
            ("GASNETRUN_RANK", "-1", "not a number"),
            ("GASNETRUN_SIZE", "", "not a number"),
            ("GASNETRUN_AGENT_FD", "x", "not a number"),
            ("GASNETRUN_AGENT_FD", "4000000000", "no descriptor"),
        ] {
            let base =
                [("GASNETRUN_AGENT_FD", "5"), ("GASNETRUN_RANK", "1"), ("GASNETRUN_SIZE", "3")];
            let pairs: Vec<_> =
                base.into_iter().filter(|(n, _)| *n != name).chain([(name, value)]).collect();
            let error = choose(&env(&pairs)).provider.unwrap_err().to_string();
            assert!(error.contains(say) && error.contains(name), "{error}");
        }
        let error = choose(&env(&[("GASNETRUN_AGENT_FD", "5")])).provider.unwrap_err().to_string();
        assert!(error.contains("is missing"), "{error}");
    }

    #[test]
    fn foreign_launchers_of_several_are_refused_by_name() {
        for (pairs, variable) in [
            (&[("PMI_SIZE", "4"), ("PMI_RANK", "0")][..], "PMI_SIZE=\"4\""),
            (
                &[("OMPI_COMM_WORLD_SIZE", "2"), ("GASNET_IBV_SPAWNER", "pmi")],
                "OMPI_COMM_WORLD_SIZE=\"2\"",
            ),
            (&[("PMIX_RANK", "0")], "PMIX_RANK=\"0\""),
            (&[("PMIX_RANK", "0"), ("SLURM_NTASKS", "16")], "SLURM_NTASKS=\"16\""),
            (
                &[("SLURM_PROCID", "3"), ("SLURM_STEP_NUM_TASKS", "8"), ("SLURM_NTASKS", "16")],
                "SLURM_STEP_NUM_TASKS",
            ),
        ] {
            let choice = choose(&env(pairs));
            let error = choice.provider.unwrap_err().to_string();
            assert!(error.contains(variable) && error.contains("gasnetrun_ibv -n"), "{error}");
            assert!(!variable.starts_with("SLURM") || error.contains("srun --mpi=pmi2"), "{error}");
            assert!(
                choice
                    .trace
                    .last()
                    .is_some_and(|line| line.starts_with("refuse: ") && line.contains(variable))
            );
        }
    }

    #[test]
    fn foreign_launchers_of_one_are_no_obstacle() {
        for pairs in [
            &[("PMI_SIZE", "1")][..],
            &[("OMPI_COMM_WORLD_SIZE", "1")],
            &[("SLURM_STEP_NUM_TASKS", "1"), ("SLURM_NTASKS", "1")],
            // A batch script: it is task 0, but no step.
            &[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "16")],
            &[("SLURM_NTASKS", "16")],
            &[("OMPI_COMM_WORLD_SIZE", "1"), ("PMIX_RANK", "0")],
            &[("PMIX_RANK", "0"), ("SLURM_NTASKS", "1"), ("SLURM_PROCID", "0")],
        ] {
            assert_eq!(choose(&env(pairs)).provider.unwrap(), Provider::Solo, "{pairs:?}");
        }
        assert!(choose(&env(&[("PMI_SIZE", "four")])).provider.is_err());
    }

    #[test]
    fn pmi_servers_are_used() {
        let hydra = [("PMI_FD", "6"), ("PMI_RANK", "1"), ("PMI_SIZE", "4")];
        let choice = choose(&env(&hydra));
        let one = |job: Option<&str>, version| Provider::PmiDescriptor {
            fd: 6,
            rank: Rank(1),
            size: 4,
            job: job.map(str::to_owned),
            version,
        };
        assert_eq!(choice.provider.unwrap(), one(None, PmiVersion::One));
        assert_eq!(choice.trace.last().unwrap(), "use PMI-1 on descriptor 6: rank 1 of 4");
        let with = |more: &[(&str, &str)]| {
            let pairs: Vec<_> = hydra.iter().chain(more).copied().collect();
            choose(&env(&pairs)).provider
        };
        let slurm = [("PMI_JOBID", "4.0"), ("SLURM_STEP_NUM_TASKS", "4")];
        assert_eq!(with(&slurm).unwrap(), one(Some("4.0"), PmiVersion::Two));
        let forced = with(&[slurm[0], ("GASNET_IBV_PMI", "1")]).unwrap();
        assert_eq!(forced, one(Some("4.0"), PmiVersion::One));
        assert_eq!(with(&[("GASNET_IBV_SPAWNER", "PMI")]).unwrap(), one(None, PmiVersion::One));
        // Hydra inside a step of Slurm: its own number counts.
        assert!(with(&[("SLURM_STEP_NUM_TASKS", "2")]).is_ok());
        for (more, say) in [
            (&[("PMI_JOBID", "4.0"), ("SLURM_STEP_NUM_TASKS", "8")][..], "srun --mpi=pmi2"),
            (&[("GASNET_IBV_PMI", "3")], "not 1 or 2"),
            (&[("GASNET_IBV_SPAWNER", "ssh")], "PMI_SIZE=\"4\""),
        ] {
            let error = with(more).unwrap_err().to_string();
            assert!(error.contains(say), "{error}");
        }
        let port = choose(&env(&[("PMI_PORT", "n1:4000"), ("PMI_ID", "2")])).provider.unwrap();
        let (address, id) = ("n1:4000".to_owned(), "2".to_owned());
        assert_eq!(port, Provider::PmiPort { address, id });
    }

    #[test]
    fn pmix_servers_are_used() {
        let base = [("PMIX_RANK", "2"), ("PMIX_SERVER_URI41", "x;tcp4://127.0.0.1:1")];
        let with = |more: &[(&str, &str)]| {
            let pairs: Vec<_> = base.iter().chain(more).copied().collect();
            choose(&env(&pairs)).provider
        };
        let pmix = |announced| Provider::Pmix { rank: 2, announced };
        assert_eq!(with(&[]).unwrap(), pmix(None));
        let open_mpi = [("OMPI_COMM_WORLD_SIZE", "4"), ("SLURM_STEP_NUM_TASKS", "2")];
        assert_eq!(with(&open_mpi).unwrap(), pmix(Some(("OMPI_COMM_WORLD_SIZE", 4))));
        let slurm = [("SLURM_STEP_NUM_TASKS", "3"), ("SLURM_PMIXP_ABORT_AGENT_PORT", "1")];
        assert_eq!(with(&slurm).unwrap(), pmix(Some(("SLURM_STEP_NUM_TASKS", 3))));
        assert_eq!(with(&slurm[..1]).unwrap(), pmix(None));
        assert!(with(&[("GASNET_IBV_SPAWNER", "ssh")]).is_err());
        assert!(announced_is(Some(("SLURM_STEP_NUM_TASKS", 3)), 3).is_ok());
        let error = announced_is(Some(("SLURM_STEP_NUM_TASKS", 3)), 1).unwrap_err().to_string();
        assert!(
            error.contains("1 ranks") && error.contains("SLURM_STEP_NUM_TASKS=\"3\""),
            "{error}"
        );
    }

    #[test]
    fn mpi_launchers_are_used_when_asked_for_or_when_there_is_nothing_else() {
        let mpi = |variable, size| Provider::Mpi { variable, size };
        let server = ("PMIX_SERVER_URI2", "x");
        for (pairs, provider) in [
            (
                &[("OMPI_COMM_WORLD_SIZE", "2"), ("PMIX_RANK", "0")][..],
                mpi("OMPI_COMM_WORLD_SIZE", 2),
            ),
            (
                &[
                    ("OMPI_COMM_WORLD_SIZE", "2"),
                    ("PMIX_RANK", "0"),
                    server,
                    ("GASNET_IBV_SPAWNER", "mpi"),
                ],
                mpi("OMPI_COMM_WORLD_SIZE", 2),
            ),
            (
                &[
                    ("PMI_SIZE", "3"),
                    ("PMI_FD", "5"),
                    ("PMI_RANK", "0"),
                    ("GASNET_IBV_SPAWNER", "mpi"),
                ],
                mpi("PMI_SIZE", 3),
            ),
        ] {
            assert_eq!(choose(&env(pairs)).provider.unwrap(), provider);
        }
    }

    #[test]
    fn pmi_variables_are_checked() {
        for (pairs, say) in [
            (&[("PMI_FD", "x"), ("PMI_RANK", "0"), ("PMI_SIZE", "1")][..], "PMI_FD"),
            (&[("PMI_FD", "5"), ("PMI_SIZE", "1")], "PMI_RANK"),
            (&[("PMI_FD", "5"), ("PMI_RANK", "2"), ("PMI_SIZE", "2")], "outside the job"),
            (&[("PMI_PORT", "n1:4000")], "PMI_ID"),
            (&[("PMI_PORT", "n1"), ("PMI_ID", "0")], "HOST:PORT"),
            (&[("PMI_PORT", "n1:1"), ("PMI_ID", "0 cmd=abort")], "no name"),
        ] {
            let error = choose(&env(pairs)).provider.unwrap_err().to_string();
            assert!(error.contains(say), "{error}");
        }
        // The descriptor is closed or no socket: no job of one rank instead.
        let closed = [("PMI_FD", "987"), ("PMI_RANK", "0"), ("PMI_SIZE", "1")];
        let error = connect_from(&env(&closed)).err().unwrap().to_string();
        assert!(error.contains("PMI_FD=987"), "{error}");
    }
}
