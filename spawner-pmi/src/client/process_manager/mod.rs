//! Providers under an existing process manager: Slurm, Hydra, Open MPI and what else starts ranks
//! and serves them PMI, PMIx or MPI.
//!
//! # Primer
//!
//! A rank speaks to its process manager in its own process; there is no helper process and no
//! thread. The process manager offers little: a space of keys and values, and a fence after which
//! what was put can be read ([`ProcessManager`]). From that this module makes the services:
//!
//! * `mapping` finds out which ranks share a host: the process manager's own map where it has one,
//!   else an identity of the host that is exchanged once.
//! * `rendezvous`: the ranks of a host meet at its lowest one, the *leader*, over Unix packet
//!   sockets. The leader does for them what a node agent does: it makes the node memory and answers
//!   their calls (`leader`), from within its own calls.
//! * The leaders pass the messages of the tree of agents (`bootstrap::collective`) to each other
//!   through the key-value space: one datum per host and call, then a fence of all ranks. Each
//!   leader runs the root of that tree for itself; as all of them read the same messages, all come
//!   to the same answers. Calls that stay on a host never reach the server.
//!
//! `docs/design/process-managers.md` has the wires, the keys, and what each process manager does at
//! the end of a rank.

mod finalize;
mod identity;
mod join;
mod leader;
mod manager;
pub mod mapping;
mod rendezvous;
pub mod value;

pub use finalize::{Finalization, FinalizeCalls};
pub use identity::{Identity, mark};
pub use join::{ProcessManagerBounds, join};
pub use manager::{JobInfo, ProcessManager, ProcessManagerError, unwatched};
