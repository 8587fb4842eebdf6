//! PMIx for the ranks of one host. libpmix has a server half, which speaks to the clients and joins what
//! ranks of one host do together; what goes to other hosts it leaves to its owner. It starts threads, so
//! it runs in a helper process; the agent, which has one thread, talks to that in frames.
//!
//! * [`Machine`] (`machine`): the agent's part, pure: fences of any set of ranks and requests for what
//!   one rank has put, carried over the tree of agents; who has begun and who has ended.
//! * `members`: sets of ranks. `frames`: what agent and helper say to each other.
//! * [`helper`]: the helper process. `library`: the calls of libpmix, `infos`: values for them, `locals`:
//!   for which ranks of this host it waits. [`session`]: the directory of its files.

mod frames;
pub mod helper;
mod infos;
mod library;
mod locals;
mod machine;
mod members;
pub mod session;
#[cfg(test)]
mod tests;

pub use frames::{FRAME_LIMIT, FrameError, Frames, FromHelper, Setup, ToHelper, encode};
pub use library::version;
pub use machine::{Action, Machine, Message, Place, StrayMessage};
pub use members::Members;
