//! Collectives on teams: any number under way, in the same order on all members.
//!
//! * `members`, `group`: who is in a team; `places`: where they are (`ascending`, `numbering`).
//!   `schedule`, `blocks`: who sends what to whom. `machine`: one collective of one member.
//!   `reduce`: how elements are combined. `letter`: the words of a message. All pure.
//! * `memory`: the buffers of programs. `table`: what is under way here, and what came early.
//! * `order`, `compare`: what members call, compared by the debug library.
//! * `meeting`, `meet`: small reductions to all through shared memory or `mailboxes` (`doubling`).
//! * `drive`: the rank around them. Handlers keep what comes; polls send.

mod aligned;
mod ascending;
mod blocks;
mod compare;
mod doubling;
mod drive;
mod group;
mod hierarchy;
mod lend;
mod letter;
mod machine;
mod mailboxes;
mod meet;
mod meeting;
mod members;
mod memory;
mod moves;
mod numbering;
mod order;
mod places;
mod quick_hash;
mod reduce;
mod schedule;
mod table;
mod task;
mod ways;

use crate::error::Error;

pub(crate) use compare::order_handler;
pub(crate) use drive::{brief_handler, handler};
pub use group::Group;
pub(crate) use group::team_id;
pub(crate) use mailboxes::Mailboxes;
pub(crate) use members::Members;
pub use memory::{Buffers, Plain};
pub(crate) use memory::{elements, elements_mut};
pub use moves::Fences;
pub(crate) use order::Order;
pub(crate) use places::Places;
pub use reduce::{Combine, DataType, ReduceOp};
pub(crate) use table::Collectives;
pub use task::{Reduction, Task};

/// The error of a call about a team that cannot be.
#[cold]
pub(crate) fn refused(call: &'static str, problem: String) -> Error {
    Error::Team { call, problem }
}
