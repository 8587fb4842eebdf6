//! Links to agents of other hosts: one process each (a remote shell, or our own program for this
//! host), with messages over its standard streams.
//!
//! * `process`: starts processes. `state`: one link. `links`: all of them.

mod links;
mod process;
mod state;

pub(crate) use links::{LinkEvent, Links};
