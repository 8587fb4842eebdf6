//! The C interface: what `include/*.h` declare, for one thread mode. See `docs/design/c-face.md`.
//!
//! The Rust side is the crate `gasnet_ibv`: its public calls, and `gasnet_ibv::inner`.
//!
//! * `types`: what the headers define. `fail`: errors. `arguments`: checks of what programs pass.
//! * `state`: what the process has joined, its objects, and the structure published to the headers.
//! * `call`: running handlers of C programs. `current`: the token of the one that runs.
//! * `events`: events by number. `collectives`: barriers of all ranks. `transfer`: bytes to and
//!   from segments.
//! * `teams`: teams by handle.
//! * `am`, `prepare`, `rma`, `vis`, `atomics`, `event`, `coll`, `team`, `endpoint`, `segment`,
//!   `kinds`, `query`, `system`, `tools`, `diagnostics`: the functions.
//! * `checks`, `hsl`: what the debug library checks.
//! * `ancestor`: leave for other ranks to reach memory of this one. `across`: which neighbours this
//!   one reaches so, where all memory is reached.
//!
//! Every exported function is `extern "C"`: a panic does not unwind into the program, it ends the
//! process with a message. Pointers come from the program; what its documentation promises about
//! them (readable for so many bytes, alive until an event is complete) is what the `SAFETY`
//! comments of this folder rely on. Null pointers, wrong handles and wrong numbers are refused by
//! name.
#![allow(unsafe_code, reason = "the crate that talks to C programs")]
#![allow(
    unreachable_pub,
    missing_docs,
    clippy::missing_safety_doc,
    reason = "documented where C programs look: in the headers"
)]

#[cfg(any(
    all(feature = "seq", feature = "parsync"),
    all(feature = "seq", feature = "par"),
    all(feature = "parsync", feature = "par"),
    not(any(feature = "seq", feature = "parsync", feature = "par")),
))]
compile_error!("the C interface is built for one thread mode: choose one of seq, parsync, par");

mod across;
mod am;
mod ancestor;
mod arguments;
mod atomics;
mod call;
mod checks;
mod coll;
mod collectives;
mod current;
mod diagnostics;
mod endpoint;
mod event;
mod events;
mod fail;
#[cfg(feature = "debug")]
mod hsl;
mod kinds;
mod legacy_coll;
mod misuse;
mod prepare;
mod query;
mod rma;
mod segment;
mod state;
mod system;
mod team;
mod team_barrier;
mod teams;
mod tools;
mod trace;
mod transfer;
mod types;
mod vis;

#[cfg(not(any(feature = "seq", feature = "parsync")))]
use gasnet_ibv::Par as M;
#[cfg(feature = "parsync")]
use gasnet_ibv::ParSync as M;
#[cfg(feature = "seq")]
use gasnet_ibv::Seq as M;
