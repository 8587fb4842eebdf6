//! Which provider serves this process: decided from the environment alone, by a pure function, with a trace.

use crate::agent;
use crate::deadlines::Bounds;
use crate::env::Env;
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
    /// Unique text of the job.
    pub const JOB: &str = "GASNETRUN_JOB";
    /// Inherited descriptor of the packet socket to the node agent.
    pub const AGENT_FD: &str = "GASNETRUN_AGENT_FD";
}

const ADVICE: &str = "start it with gasnetrun_ibv -n RANKS PROGRAM (inside the allocation or script, without the other \
                      launcher), or unset that variable to run it as a job of one rank";

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
    /// A job of one rank.
    Solo,
}

/// The outcome of the choice and, line by line, what was looked at on the way to it.
#[derive(Debug)]
pub struct Choice {
    /// The provider, or why there is none.
    pub provider: Result<Provider, Error>,
    /// One line per thing looked at; the last one is the decision and starts with `use` or `refuse`.
    pub trace: Vec<String>,
}

/// Another launcher's announcement, and how it is recognised.
struct Foreign {
    launcher: &'static str,
    /// Says that this launcher started the process; absent: next row.
    sign: &'static str,
    /// Variables that may tell the number of processes; the first one set counts.
    sizes: &'static [&'static str],
}

/// Most specific first: Open MPI also sets `PMIX_RANK`, and everything inside an allocation has `SLURM_NTASKS`.
const FOREIGN: [Foreign; 4] = [
    Foreign {
        launcher: "Open MPI",
        sign: "OMPI_COMM_WORLD_SIZE",
        sizes: &["OMPI_COMM_WORLD_SIZE"],
    },
    Foreign { launcher: "a PMI launcher (Hydra, srun)", sign: "PMI_SIZE", sizes: &["PMI_SIZE"] },
    Foreign {
        launcher: "a PMIx launcher",
        sign: "PMIX_RANK",
        sizes: &["OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"],
    },
    Foreign {
        launcher: "Slurm (srun)",
        sign: "SLURM_PROCID",
        sizes: &["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"],
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
        Provider::Solo => solo::job(),
    }
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
        Ok(Provider::Solo) => "use solo: no launcher announces more than one rank".to_owned(),
        Err(error) => format!("refuse: {error}"),
    });
    Choice { provider, trace }
}

fn decide(env: &Env, trace: &mut Vec<String>) -> Result<Provider, Error> {
    if let Some(value) = env.text(names::AGENT_FD) {
        trace.push(format!("{}={value:?}: started by gasnetrun_ibv", names::AGENT_FD));
        return agent(env);
    }
    trace.push(format!("{} is not set", names::AGENT_FD));
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

fn agent(env: &Env) -> Result<Provider, Error> {
    let fd = number(env, names::AGENT_FD)?;
    let (rank, size) = (number(env, names::RANK)?, number(env, names::SIZE)?);
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

fn number(env: &Env, name: &'static str) -> Result<u32, Error> {
    let Some(text) = env.text(name) else {
        return Err(contradiction(
            env,
            name,
            &format!("is missing although {} is set", names::AGENT_FD),
        ));
    };
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
            advice: ADVICE,
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
        // An allocation without a size is no announcement; a rank number is.
        None if foreign.sign == "SLURM_PROCID" => {
            trace.push("no number of tasks is set: that is no obstacle".to_owned());
            Ok(())
        }
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
            (&[("OMPI_COMM_WORLD_SIZE", "2"), ("PMIX_RANK", "0")], "OMPI_COMM_WORLD_SIZE=\"2\""),
            (&[("PMIX_RANK", "0")], "PMIX_RANK=\"0\""),
            (&[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "16")], "SLURM_NTASKS=\"16\""),
            (
                &[("SLURM_PROCID", "3"), ("SLURM_STEP_NUM_TASKS", "8"), ("SLURM_NTASKS", "16")],
                "SLURM_STEP_NUM_TASKS",
            ),
        ] {
            let choice = choose(&env(pairs));
            let error = choice.provider.unwrap_err().to_string();
            assert!(error.contains(variable) && error.contains("gasnetrun_ibv -n"), "{error}");
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
            &[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "1")],
            &[("SLURM_NTASKS", "16")],
            &[("OMPI_COMM_WORLD_SIZE", "1"), ("PMIX_RANK", "0")],
            &[("PMIX_RANK", "0"), ("SLURM_NTASKS", "1"), ("SLURM_PROCID", "0")],
        ] {
            assert_eq!(choose(&env(pairs)).provider.unwrap(), Provider::Solo, "{pairs:?}");
        }
        assert!(choose(&env(&[("PMI_SIZE", "four")])).provider.is_err());
    }
}
