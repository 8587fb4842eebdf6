//! Parts of memory that is lent, as other ranks name them. Pure.

/// Most regions of one request.
pub(crate) const MOST: usize = 9;
/// Most rails whose keys are told.
pub(crate) const MOST_KEYS: usize = 16;

/// A part of what is lent, as other ranks name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LentPart {
    pub(crate) at: u64,
    pub(crate) len: u32,
    /// By rail.
    pub(crate) keys: heapless::Vec<u32, MOST_KEYS>,
}

/// Parts of a loan, one behind the other.
pub(crate) type LentParts = heapless::Vec<LentPart, MOST>;
