//! Tracing and statistics: what the rank records of itself.
//!
//! Off, a hook is a load of a static word and a branch that is never taken. On, records go into a ring
//! in memory that the launcher reads when the rank is gone ([`bootstrap::trace`]), and as lines
//! into a file; counters and timers stand in the same memory. `docs/design/trace.md` has the whole.
//!
//! * `mask`: letters to bits. `recorder`: writes records. `runs`: messages that are alike become
//!   one record; `bursts`: those of a burst at once. `hooks`: what the rest of the crate calls. `lines`: the files for people,
//!   `report`: the statistics in words. `far`: ranks that another launcher starts. `open`: from the variables to all that.

mod bursts;
mod far;
mod hooks;
mod lines;
mod mask;
mod open;
mod recorder;
mod report;
mod runs;

pub(crate) use bootstrap::trace::{Cause, Counter};
pub(crate) use hooks::{
    About, Running, attached, burst, collective, connected, count, count_some, exiting, extend,
    finish, handler_begins, handler_ends, init_ends, lacks, leave, makes_receives, may_extend,
    notified, posts, reaches, registers, sends, sent, timed, took, wait_begins, waited,
};
pub use hooks::{Span, TransferKind, lock_waited, transfers};
pub use hooks::{
    dump_stats, mask_text, note, set_local, set_mask, stats_callback, stats_note, takes_note,
    traces_lines, traces_local, transfer,
};
pub(crate) use mask::{Category, is_off, on};
pub(crate) use open::open;
