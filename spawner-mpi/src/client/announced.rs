//! What the environment announces: an MPI launcher. Pure.

use bootstrap::provider::number;
use bootstrap::service::Error;
use settings::Env;
use spawner_pmi::client::allows;

/// An MPI launcher that tells how many ranks it started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Launcher {
    /// The variable that announces the number of ranks.
    pub(super) variable: &'static str,
    /// That number.
    pub(super) size: u32,
}

/// An MPI launcher: when the user asks for MPI, or the launcher offers nothing simpler.
pub(super) fn mpi_launcher(env: &Env, trace: &mut Vec<String>) -> Result<Option<Launcher>, Error> {
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
    Ok((size > 1 || asked).then_some(Launcher { variable, size }))
}
