//! Providers, and the choice between them: decided from the environment alone, by a pure function,
//! with a trace.

use crate::service::{Bootstrap, Error};
use settings::Env;
use settings::deadlines::bootstrap::FIRST_SPEAKS;

/// What the environment announces to a provider.
pub trait Announced: std::fmt::Debug {
    /// Who serves, and what is known of this rank, as in the trace.
    fn describe(&self) -> String;

    /// Joins the job.
    ///
    /// # Errors
    /// The provider refuses, or cannot be reached.
    fn connect(&self, env: &Env) -> Result<Box<dyn Bootstrap>, Error>;
}

/// Whether the environment announces a provider, with a line for each thing looked at. Pure.
pub type Find = fn(&Env, &mut Vec<String>) -> Result<Option<Box<dyn Announced>>, Error>;

/// One way to be a rank of a job.
#[derive(Clone, Copy, Debug)]
pub struct Provider {
    /// For people.
    pub name: &'static str,
    /// Looks for its signs.
    pub find: Find,
}

/// Names of the variables that a rank gets from its agent.
pub mod names {
    /// Number of this rank in its job.
    pub const RANK: &str = "GASNETRUN_RANK";
    /// Ranks of the job.
    pub const SIZE: &str = "GASNETRUN_SIZE";
    /// Index of this host.
    pub const HOST: &str = "GASNETRUN_HOST";
    /// Address of this host at which the launcher's login reached it.
    pub const ADDRESS: &str = "GASNETRUN_ADDRESS";
    /// Unique text of the job.
    pub const JOB: &str = "GASNETRUN_JOB";
    /// Inherited descriptor of the packet socket to the node agent.
    pub const AGENT_FD: &str = "GASNETRUN_AGENT_FD";
}

/// A variable says what cannot be.
#[must_use]
pub fn contradiction(env: &Env, name: &'static str, problem: &str) -> Error {
    Error::Environment {
        name,
        value: env.text(name).unwrap_or_default(),
        problem: problem.to_owned(),
    }
}

/// A variable that must be there, because `sign` is.
///
/// # Errors
/// It is not.
pub fn text(env: &Env, name: &'static str, sign: &str) -> Result<String, Error> {
    env.text(name)
        .ok_or_else(|| contradiction(env, name, &format!("is missing although {sign} is set")))
}

/// As [`text`], a number.
///
/// # Errors
/// As there; also no number.
pub fn number(env: &Env, name: &'static str, sign: &str) -> Result<u32, Error> {
    let text = text(env, name, sign)?;
    text.parse().map_err(|_| contradiction(env, name, "is not a number from 0 to 4294967295"))
}

/// The outcome of the choice and, line by line, what was looked at on the way to it.
#[derive(Debug)]
pub struct Choice {
    /// The provider, or why there is none.
    pub provider: Result<Box<dyn Announced>, Error>,
    /// One line per thing looked at; the last one is the decision and starts with `use` or
    /// `refuse`.
    pub trace: Vec<String>,
}

/// Connects to the provider that this process's environment names.
///
/// # Errors
/// The environment contradicts itself, another launcher started this process as one of several, or
/// the provider refuses.
pub fn connect(providers: &[Provider]) -> Result<Box<dyn Bootstrap>, Error> {
    connect_from(&Env::from_process(), providers)
}

/// As [`connect`], with a given environment.
///
/// # Errors
/// As [`connect`].
pub fn connect_from(env: &Env, providers: &[Provider]) -> Result<Box<dyn Bootstrap>, Error> {
    let chosen = choose(env, providers).provider;
    if chosen.as_ref().is_err_and(Error::is_said_elsewhere) {
        std::thread::sleep(FIRST_SPEAKS.limit);
    }
    chosen?.connect(env)
}

/// What [`connect_from`] would do with this environment, for `GASNET_SPAWN_VERBOSE`.
#[must_use]
pub fn provider_trace(env: &Env, providers: &[Provider]) -> Vec<String> {
    choose(env, providers).trace
}

/// Chooses the first provider that the environment announces. Pure.
#[must_use]
pub fn choose(env: &Env, providers: &[Provider]) -> Choice {
    let mut trace = Vec::new();
    let provider = decide(env, providers, &mut trace);
    trace.push(match &provider {
        Ok(announced) => format!("use {}", announced.describe()),
        Err(error) => format!("refuse: {error}"),
    });
    Choice { provider, trace }
}

fn decide(
    env: &Env,
    providers: &[Provider],
    trace: &mut Vec<String>,
) -> Result<Box<dyn Announced>, Error> {
    for provider in providers {
        if let Some(announced) = (provider.find)(env, trace)? {
            return Ok(announced);
        }
    }
    let names: Vec<&str> = providers.iter().map(|provider| provider.name).collect();
    let problem = format!("none of {} is announced", names.join(", "));
    Err(Error::Argument { during: "connect", problem })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PROVIDERS;
    use crate::conformance::choice;

    fn chosen(pairs: &[(&str, &str)]) -> Choice {
        choice::chosen(pairs, &PROVIDERS)
    }

    fn decision(pairs: &[(&str, &str)]) -> String {
        choice::decision(pairs, &PROVIDERS)
    }

    #[test]
    fn nothing_set_means_solo() {
        assert!(decision(&[]).starts_with("use solo: "));
        let mut job = connect_from(&Env::default(), &PROVIDERS).unwrap();
        assert_eq!(job.rank_info().size, 1);
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
        assert_eq!(decision(&all), "use agent on descriptor 5: rank 1 of 3");
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
            let error = chosen(&pairs).provider.unwrap_err().to_string();
            assert!(error.contains(say) && error.contains(name), "{error}");
        }
        let error = chosen(&[("GASNETRUN_AGENT_FD", "5")]).provider.unwrap_err().to_string();
        assert!(error.contains("is missing"), "{error}");
    }

    #[test]
    fn foreign_launchers_of_several_are_refused_by_name() {
        choice::several_are_refused_by_name(&PROVIDERS);
    }

    #[test]
    fn foreign_launchers_of_one_are_no_obstacle() {
        choice::one_is_no_obstacle(&PROVIDERS);
    }
}
