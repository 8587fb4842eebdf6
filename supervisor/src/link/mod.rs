//! Links to agents of other hosts: one process each (a remote shell, or our own program for this
//! host), with messages over its standard streams.
//!
//! * `process`: starts processes. `state`: one link. `links`: all of them. `below`: what is known
//!   of the hosts behind them, and what is awaited of those. `late`: silence that is nobody's.

mod below;
mod late;
mod links;
mod process;
mod state;

pub(crate) use late::Late;
pub(crate) use links::{LinkEvent, Links};
