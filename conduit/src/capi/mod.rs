//! The C interface: what `include/*.h` declare, for one thread mode. See `docs/design/c-face.md`.
//!
//! * `state`: what the process has joined, its objects, and the structure published to the headers. `fail`: errors.
//! * `call`: running handlers of C programs. `am`, `prepare`: sending. `token`: what a handler asks.
//! * `far`: one-sided operations at ranks that share no memory with this one, and their events.
//! * `rma`, `event`, `coll`, `endpoint`, `segment`, `system`, `tools`: the functions by the header that declares them.
//! * `ancestor`: leave for other ranks to reach memory of this one.
//!
//! Every exported function is `extern "C"`: a panic does not unwind into the program, it ends the process with a message.
//! Pointers come from the program; what its documentation promises about them (readable for so many bytes, alive until an
//! event is complete) is what the `SAFETY` comments of this folder rely on. Null pointers, wrong handles and wrong
//! numbers are refused by name.
#![allow(unsafe_code, reason = "the module that talks to C programs")]
#![allow(
    unreachable_pub,
    missing_docs,
    clippy::missing_safety_doc,
    reason = "documented where C programs look: in the headers"
)]

#[cfg(any(
    all(feature = "capi-seq", feature = "capi-parsync"),
    all(feature = "capi-seq", feature = "capi-par"),
    all(feature = "capi-parsync", feature = "capi-par"),
))]
compile_error!("the C interface is built for one thread mode at a time: choose one capi- feature");

mod am;
mod ancestor;
mod call;
mod coll;
mod endpoint;
mod event;
mod fail;
mod far;
mod prepare;
mod rma;
mod segment;
mod state;
mod system;
mod token;
mod tools;
mod types;

pub(crate) use call::{ANY_ARGS, Arrival, CHandler};
pub(crate) use coll::{arrived, is_collective};

#[cfg(feature = "capi-seq")]
type M = crate::Seq;
#[cfg(feature = "capi-parsync")]
type M = crate::ParSync;
#[cfg(not(any(feature = "capi-seq", feature = "capi-parsync")))]
type M = crate::Par;
