//! What agents of several hosts say to each other, and what is known about each host. Pure; `link`
//! carries it.
//!
//! * `frames`: messages in pieces on a byte stream, control before bulk. `message`: what they mean.
//! * `told`: what many ranks or hosts have in common, in one message. `aggregate`: brings that together
//!   on the way up.
//! * [`hosts`]: the state of every host.

pub(crate) mod aggregate;
pub(crate) mod frames;
#[cfg(any(test, feature = "fuzz"))]
#[doc(hidden)]
pub mod fuzz;
pub mod hosts;
pub(crate) mod message;
pub(crate) mod told;
