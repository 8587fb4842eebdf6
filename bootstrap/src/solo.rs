//! Provider: a job of one rank, started without any launcher: the in-memory job of that size.

use settings::Env;

use crate::provider::{Announced, Provider};
use crate::service::{Bootstrap, Error, HostId};
use crate::{foreign, memory, self_start};

/// A job of one rank, unless another launcher announces more; or the launcher of itself, if it is
/// asked to.
pub const PROVIDER: Provider = Provider {
    name: "solo",
    find: |env, trace| {
        foreign::refuse_several(env, trace)?;
        Ok(Some(Box::new(Alone)))
    },
};

#[derive(Debug)]
struct Alone;

impl Announced for Alone {
    fn describe(&self) -> String {
        "solo: no launcher announces more than one rank".to_owned()
    }

    fn connect(&self, env: &Env) -> Result<Box<dyn Bootstrap>, Error> {
        self_start::exec_if_asked(env)?;
        job()
    }
}

/// A job of one rank.
///
/// # Errors
/// No memory or descriptors for the node memory.
pub fn job() -> Result<Box<dyn Bootstrap>, Error> {
    let none = || Error::Argument { during: "job", problem: "no rank".to_owned() };
    memory::job_on_hosts(&[HostId(0)])?.pop().ok_or_else(none)
}
