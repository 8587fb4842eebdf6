//! Numbers of handlers.

use std::fmt;

/// Number of a handler at an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HandlerIndex(pub u8);

impl HandlerIndex {
    /// Lowest index that a client may use; the highest is 255.
    pub const FIRST_CLIENT: u8 = 128;
}

impl fmt::Display for HandlerIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
