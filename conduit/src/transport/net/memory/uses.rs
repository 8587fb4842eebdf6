//! Who uses a region: uses begin under the lock of the table, and end without it.

use std::fmt;

use crate::sys::atomic::{AtomicU32, Ordering};

/// Words of a region that one use has for itself.
pub(crate) const OWN: usize = 7;
/// What is in such a word while it is in use; else 0.
const IN_USE: u32 = 1;
/// What an end adds to the word that further uses share: so it is even, and never [`IN_USE`].
const SHARED: u32 = 2;

/// How uses end.
#[derive(Debug)]
pub(crate) struct Ends {
    /// Each of one use at a time, whose end is a plain store.
    own: [AtomicU32; OWN],
    /// Of all uses that found no word of their own.
    shared: AtomicU32,
}

impl Ends {
    pub(crate) fn new() -> Self {
        let own = std::array::from_fn(|_| AtomicU32::new(0));
        Self { own, shared: AtomicU32::new(0) }
    }
}

/// One use of a region, which is not deregistered before this is dropped. That takes no lock. The
/// word is never freed, as a transfer may outlive the table.
#[must_use]
pub(crate) struct Use(&'static AtomicU32);

impl fmt::Debug for Use {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Use")
    }
}

impl Drop for Use {
    #[inline]
    fn drop(&mut self) {
        // Whoever sees that nobody uses the region sees all that was done with it.
        if self.0.load(Ordering::Relaxed) == IN_USE {
            self.0.store(0, Ordering::Release);
        } else {
            self.0.fetch_add(SHARED, Ordering::Release);
        }
    }
}

/// The uses of a region, as the table knows them.
#[derive(Debug)]
pub(crate) struct Uses {
    ends: &'static Ends,
    /// As much as ends of the shared word's uses will have added when all have ended. Both wrap.
    shared: u32,
}

impl Uses {
    pub(crate) const fn new(ends: &'static Ends) -> Self {
        Self { ends, shared: 0 }
    }

    #[inline]
    pub(crate) fn begin(&mut self) -> Use {
        for word in &self.ends.own {
            // What was done in the use before comes before what is done after this one.
            if word.load(Ordering::Acquire) == 0 {
                word.store(IN_USE, Ordering::Relaxed);
                return Use(word);
            }
        }
        self.shared = self.shared.wrapping_add(SHARED);
        Use(&self.ends.shared)
    }

    /// May be true for a moment longer than it is; never the other way round under the lock.
    pub(crate) fn is_used(&self) -> bool {
        let own = self.ends.own.iter().any(|word| word.load(Ordering::Acquire) != 0);
        own || self.ends.shared.load(Ordering::Acquire) != self.shared
    }
}
