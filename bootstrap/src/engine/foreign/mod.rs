//! Libraries of others, opened at run time: a program that uses this crate starts where they are not installed.
#![allow(unsafe_code, reason = "the module that owns the calls into libraries opened at run time")]

mod library;
pub(super) mod mpi;
pub(super) mod pmix;
