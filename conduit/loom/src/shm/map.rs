//! Models need no mapping.

/// # Safety
/// As in the product.
pub(crate) unsafe trait SharedLayout {}
