//! What a provider is to the choice between them: a name, a sign in the environment, a way to
//! connect.

use crate::service::{Bootstrap, Error};
use settings::Env;

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
