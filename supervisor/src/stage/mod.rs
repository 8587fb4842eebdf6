//! The job's program on hosts that do not have it (`--stage`): sent once per host through the tree,
//! from parent to child, checked by its hash, kept in a cache of the user's for the next job.
//!
//! * `offer`: the program as agents are told of it. `digest`: its hash. `cache`: the directory on a
//!   host, what is kept in it and for how long. `incoming`: a file that is being received.
//!   `staging`: what an agent, or the root, has to do about a file; `programs`: about all of a job; the
//!   driver carries it out. `trial`: the same for the doctor, without a job.
//!
//! `docs/design/tree.md` says what lies where and when it is removed.

mod cache;
pub(crate) mod digest;
mod incoming;
pub(crate) mod offer;
mod programs;
mod staging;
mod trial;

pub(crate) use cache::{forget_job, job_directory_name};
pub(crate) use digest::Digest;
pub(crate) use offer::{Offer, Stamp};
pub(crate) use programs::Programs;
pub(crate) use staging::{Action, Host};
pub(crate) use trial::trial;
