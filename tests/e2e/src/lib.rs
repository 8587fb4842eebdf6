//! Tests of the product as its users run it, and the programs that they run: those that crash, hang
//! or misbehave.

pub mod recorded;
pub mod sys;
