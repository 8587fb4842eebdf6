//! Benchmarks of the product beside hand-written references; `scripts/bench` runs them.

pub mod arena;
pub mod plot;
pub mod poller;
pub mod raw_tcp;
pub mod raw_writes;
pub mod rounds;
pub mod sys;
pub mod timing;
