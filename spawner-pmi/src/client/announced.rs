//! What the environment announces: a PMI or a PMIx server. Pure.

use bootstrap::provider::{contradiction, number, text};
use bootstrap::service::{Error, Rank};
use settings::Env;

use super::process_manager::ProcessManagerError;
use crate::wire::PmiVersion;

/// A server on an inherited descriptor (Hydra, `srun --mpi=pmi2`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Inherited {
    pub(super) fd: i32,
    pub(super) rank: Rank,
    pub(super) size: u32,
    /// Name of the job; PMI-2 only, where the launcher names it.
    pub(super) job: Option<String>,
    /// Version to begin with.
    pub(super) version: PmiVersion,
}

/// A PMI server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Server {
    Descriptor(Inherited),
    /// PMI-1 at an address (Hydra with `-pmi-port`).
    Port {
        /// `host:port`.
        address: String,
        /// What this process is known by there.
        id: String,
    },
}

/// A PMIx server (Open MPI's mpirun, `srun --mpi=pmix`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Announcement {
    /// This rank, as the environment says.
    pub(super) rank: u32,
    /// What else tells the number of ranks: the variable and its value.
    pub(super) announced: Option<(&'static str, u32)>,
}

/// Kinds of provider that `GASNET_IBV_SPAWNER` allows besides the agent and a job of one rank.
#[must_use]
pub fn allows(env: &Env, kind: &str) -> bool {
    env.text("GASNET_IBV_SPAWNER")
        .is_none_or(|spawner| spawner.is_empty() || spawner.eq_ignore_ascii_case(kind))
}

/// Whether the server that `sign` announces may be used.
fn is_allowed(env: &Env, sign: &str, value: &str, trace: &mut Vec<String>) -> bool {
    let allowed = allows(env, "pmi");
    if !allowed {
        let spawner = env.text("GASNET_IBV_SPAWNER").unwrap_or_default();
        trace.push(format!("{sign}={value:?}: not used, GASNET_IBV_SPAWNER={spawner:?}"));
    }
    allowed
}

/// A PMI server that this process may speak to.
pub(super) fn pmi_server(env: &Env, trace: &mut Vec<String>) -> Result<Option<Server>, Error> {
    let sign = ["PMI_FD", "PMI_PORT"].into_iter().find(|name| env.get(name).is_some());
    let Some(sign) = sign else {
        trace.push("neither PMI_FD nor PMI_PORT is set: no PMI server".to_owned());
        return Ok(None);
    };
    let value = env.text(sign).unwrap_or_default();
    if !is_allowed(env, sign, &value, trace) {
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
        return Ok(Some(Server::Port { address: value, id }));
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
    Ok(Some(Server::Descriptor(Inherited { fd, rank: Rank(rank), size, job, version })))
}

/// A PMIx server that this process may speak to.
pub(super) fn pmix_server(
    env: &Env,
    trace: &mut Vec<String>,
) -> Result<Option<Announcement>, Error> {
    let server = env
        .iter()
        .find(|(name, _)| name.to_str().is_some_and(|name| name.starts_with("PMIX_SERVER_URI")));
    let (Some(value), Some(_)) = (env.text("PMIX_RANK"), server) else {
        trace.push("not both of PMIX_RANK and PMIX_SERVER_URI* are set: no PMIx server".to_owned());
        return Ok(None);
    };
    if !is_allowed(env, "PMIX_RANK", &value, trace) {
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
    Ok(Some(Announcement { rank, announced }))
}

/// Fails when the launcher has announced another number of ranks than the process manager serves.
pub(super) fn announced_is(announced: Option<(&'static str, u32)>, size: u32) -> Result<(), Error> {
    match announced {
        Some((variable, count)) if count != size => {
            let (manager, value) = ("PMIx", count.to_string());
            let advice = "the server of another launcher answered: say srun --mpi=pmix or --mpi=pmi2, or unset PMIX_RANK";
            Err(ProcessManagerError::Size { manager, size, variable, value, advice }.into())
        }
        _ => Ok(()),
    }
}

/// A process manager of Slurm's own must say as many ranks as the step has: otherwise each task
/// would be a job of its own. Other launchers inside a step start as many ranks as they like;
/// `sign` tells that the process manager is Slurm's.
fn slurm_agrees(env: &Env, sign: &str, manager: &'static str, size: u32) -> Result<(), Error> {
    let variable = "SLURM_STEP_NUM_TASKS";
    let (Some(value), true) = (env.text(variable), env.get(sign).is_some()) else { return Ok(()) };
    match value.trim().parse::<u32>() {
        Ok(tasks) if tasks == size => Ok(()),
        Ok(_) => {
            let advice = "say srun --mpi=pmi2, and unset PMI_FD, PMI_SIZE and PMIX_RANK if they come from elsewhere";
            Err(ProcessManagerError::Size { manager, size, variable, value, advice }.into())
        }
        Err(_) => Err(contradiction(env, variable, "is not a number of processes")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(pairs: &[(&str, &str)]) -> Env {
        pairs.iter().copied().collect()
    }

    fn server(pairs: &[(&str, &str)]) -> Result<Option<Server>, Error> {
        pmi_server(&env(pairs), &mut Vec::new())
    }

    #[test]
    fn pmi_servers_are_used() {
        let hydra = [("PMI_FD", "6"), ("PMI_RANK", "1"), ("PMI_SIZE", "4")];
        let one = |job: Option<&str>, version| {
            let (rank, job) = (Rank(1), job.map(str::to_owned));
            Some(Server::Descriptor(Inherited { fd: 6, rank, size: 4, job, version }))
        };
        assert_eq!(server(&hydra).unwrap(), one(None, PmiVersion::One));
        let with = |more: &[(&str, &str)]| server(&[&hydra[..], more].concat());
        let slurm = [("PMI_JOBID", "4.0"), ("SLURM_STEP_NUM_TASKS", "4")];
        assert_eq!(with(&slurm).unwrap(), one(Some("4.0"), PmiVersion::Two));
        let forced = with(&[slurm[0], ("GASNET_IBV_PMI", "1")]).unwrap();
        assert_eq!(forced, one(Some("4.0"), PmiVersion::One));
        assert_eq!(with(&[("GASNET_IBV_SPAWNER", "PMI")]).unwrap(), one(None, PmiVersion::One));
        assert_eq!(with(&[("GASNET_IBV_SPAWNER", "ssh")]).unwrap(), None);
        // Hydra inside a step of Slurm: its own number counts.
        assert!(with(&[("SLURM_STEP_NUM_TASKS", "2")]).is_ok());
        for (more, say) in [
            (&[("PMI_JOBID", "4.0"), ("SLURM_STEP_NUM_TASKS", "8")][..], "srun --mpi=pmi2"),
            (&[("GASNET_IBV_PMI", "3")], "not 1 or 2"),
        ] {
            let error = with(more).unwrap_err().to_string();
            assert!(error.contains(say), "{error}");
        }
        let port = server(&[("PMI_PORT", "n1:4000"), ("PMI_ID", "2")]).unwrap();
        let (address, id) = ("n1:4000".to_owned(), "2".to_owned());
        assert_eq!(port, Some(Server::Port { address, id }));
    }

    #[test]
    fn pmix_servers_are_used() {
        let base = [("PMIX_RANK", "2"), ("PMIX_SERVER_URI41", "x;tcp4://127.0.0.1:1")];
        let with =
            |more: &[(&str, &str)]| pmix_server(&env(&[&base[..], more].concat()), &mut Vec::new());
        let pmix = |announced| Some(Announcement { rank: 2, announced });
        assert_eq!(with(&[]).unwrap(), pmix(None));
        let open_mpi = [("OMPI_COMM_WORLD_SIZE", "4"), ("SLURM_STEP_NUM_TASKS", "2")];
        assert_eq!(with(&open_mpi).unwrap(), pmix(Some(("OMPI_COMM_WORLD_SIZE", 4))));
        let slurm = [("SLURM_STEP_NUM_TASKS", "3"), ("SLURM_PMIXP_ABORT_AGENT_PORT", "1")];
        assert_eq!(with(&slurm).unwrap(), pmix(Some(("SLURM_STEP_NUM_TASKS", 3))));
        assert_eq!(with(&slurm[..1]).unwrap(), pmix(None));
        assert_eq!(with(&[("GASNET_IBV_SPAWNER", "ssh")]).unwrap(), None);
        assert!(announced_is(Some(("SLURM_STEP_NUM_TASKS", 3)), 3).is_ok());
        let error = announced_is(Some(("SLURM_STEP_NUM_TASKS", 3)), 1).unwrap_err().to_string();
        assert!(
            error.contains("1 ranks") && error.contains("SLURM_STEP_NUM_TASKS=\"3\""),
            "{error}"
        );
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
            let error = server(pairs).unwrap_err().to_string();
            assert!(error.contains(say), "{error}");
        }
    }
}
