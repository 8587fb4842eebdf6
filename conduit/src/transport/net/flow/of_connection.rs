//! Which flow control a connection has: sending and receiving choose by it once for each message.

use super::bank::Borrowed;
use super::ring::Rings;

/// How requests over a connection are kept from overrunning their target.
#[derive(Debug)]
pub(crate) enum Flow {
    /// Each peer has the same number of credits.
    Fixed,
    /// What this rank borrows of the peer's.
    Moving(Box<Borrowed>),
    /// Requests are written into rings.
    Rings(Box<Rings>),
}

impl Flow {
    #[inline]
    pub(crate) fn borrowed(&self) -> Option<&Borrowed> {
        if let Self::Moving(borrowed) = self { Some(borrowed) } else { None }
    }

    #[inline]
    pub(crate) fn rings(&self) -> Option<&Rings> {
        if let Self::Rings(rings) = self { Some(rings) } else { None }
    }
}
