//! Loans: memory of a rank that adapters reach although no segment of it is registered, in the segment
//! modes LARGE and EVERYTHING (`docs/design/memory.md`).
//!
//! A transfer asks the owner for its part of memory, which the owner registers or finds registered,
//! and holds: that is a *loan*. The answer brings keys; adapters move the bytes; the loan goes back.
//! What the owner cannot or may not register goes by messages.
//!
//! `wire`: what the messages say. `lane`: one part of a transfer after the other, as the borrower
//! sees it. `ledger`: what the owner has lent. These are pure; `sim` tests them together. `table`: the
//! lanes of a rank; `borrow` and `lend` do what they say.

pub(crate) mod borrow;
pub(crate) mod lane;
pub(crate) mod ledger;
pub(crate) mod lend;
pub(crate) mod table;
pub(crate) mod wire;

#[cfg(test)]
mod fuzz_seeds;
#[cfg(test)]
mod sim;
#[cfg(test)]
mod tests;

use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, MutexGuard, PoisonError};

use self::ledger::Ledger;
use self::table::Lanes;
use crate::transport::net::Held;

/// What a rank knows of loans.
pub(crate) struct Loans {
    /// `GASNET_PUTINMOVE_LIMIT`.
    carries: usize,
    lanes: Lanes,
    /// What this rank has lent.
    ledger: Mutex<Ledger<Held>>,
    /// Bytes that adapters moved to or from loans, and bytes that messages had to move.
    pub(crate) moved: AtomicU64,
    pub(crate) by_message: AtomicU64,
}

impl Loans {
    pub(crate) fn new(table: &settings::Values) -> Self {
        let carries = usize::try_from(table.size("GASNET_PUTINMOVE_LIMIT")).unwrap_or(usize::MAX);
        Self {
            carries,
            lanes: Lanes::default(),
            ledger: Mutex::default(),
            moved: AtomicU64::new(0),
            by_message: AtomicU64::new(0),
        }
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger<Held>> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The memory of callers is not to be touched any more.
    #[cold]
    pub(crate) fn forget(&self) {
        self.lanes.forget();
    }
}
