//! What the examples share.

pub mod words;
