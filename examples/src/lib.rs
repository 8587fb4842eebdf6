//! What the example and benchmark programs share.

pub mod sys;
pub mod words;
