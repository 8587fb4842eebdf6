//! The conduit: what a rank of a PGAS job links.
//!
//! A job is a fixed set of processes, the *ranks*. Ranks send each other active messages (a
//! [handler](Entry) runs on the receiver), put and get bytes in each other's [segments](Segment),
//! and meet in [barriers](Client::barrier). Vocabulary and rules are those of GASNet-EX.
//!
//! ```no_run
//! use gasnet_ibv::{BarrierFlags, Client, Seq};
//!
//! fn main() -> Result<(), gasnet_ibv::Error> {
//!     let client = Client::<Seq>::init("HELLO")?;
//!     println!("rank {} of {}", client.rank(), client.size());
//!     client.barrier(0, BarrierFlags::ANONYMOUS)?;
//!     client.exit(0)
//! }
//! ```
//!
//! * [`Client`]: init, segment attach, put and get, barrier, waiting, exit.
//! * [`Endpoint`]: registration of handlers. [`Team`]: requests. [`Token`]: replies.
//! * [`Scope`]: non-blocking operations. [`mod@exit`]: how a job ends.

#[cfg(test)]
extern crate self as gasnet_ibv;

mod am;
mod atomics;
mod barrier;
mod call_state;
mod client;
mod coll;
mod data_type;
mod endpoint;
mod error;
mod event;
pub mod exit;
mod exit_link;
mod foreign;
mod handler;
mod handler_index;
mod identity;
#[doc(hidden)]
pub mod inner;
mod installed;
mod loans;
mod long_payload;
mod mode;
mod negotiate;
mod notes;
mod processor;
mod progress;
mod rank;
mod rma;
mod segment;
mod segment_mode;
mod settings;
mod spin_trial;
mod spread;
mod sys;
mod team;
mod token;
mod trace;
mod transport;
mod vis;
mod wait;
mod wait_mode;

pub use bootstrap::Rank;

pub use crate::atomics::{AtomicOp, AtomicOps, AtomicType, Favor};
pub use crate::client::{BarrierFlags, Client, Position};
pub use crate::coll::{Plain, ReduceOp};
pub use crate::data_type::DataType;
pub use crate::endpoint::{Endpoint, Team};
pub use crate::error::Error;
pub use crate::event::{AccessRegion, Event, LocalCompletion, Operations, Scope, wait_all};
pub use crate::exit::{exit, fatal_error, print_backtrace};
pub use crate::handler::{Category, Entry, HandlerIndex, Payload, Registered, Role};
pub use crate::long_payload::{LongPayload, SegmentOffset};
pub use crate::mode::{Mode, Par, ParSync, Seq};
pub use crate::negotiate::{
    PreparedMessage, PreparedReplyLong, PreparedReplyMedium, PreparedRequestLong,
    PreparedRequestMedium,
};
pub use crate::segment::Segment;
pub use crate::segment_mode::SegmentMode;
pub use crate::settings::{SegmentLimit, Settings};
pub use crate::team::{AtomicDomain, Element, Fetched};
pub use crate::token::Token;
pub use crate::transport::message::{Flags, LUB_LONG, LUB_MEDIUM, MAX_ARGS, Outcome};
pub use crate::vis::describe::{Strided, Strides, Vectors};
pub use crate::vis::list::Extent;
pub use crate::wait_mode::WaitMode;
