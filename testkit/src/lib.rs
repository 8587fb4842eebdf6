//! Fixtures for tests and benchmarks that run whole jobs.
//!
//! * [`tree`]: start a command under a warden process, wait with a named deadline, see who survived
//!   it;
//! * [`process`]: what `/proc` says about processes;
//! * [`apart`]: jobs over the network of one host;
//! * [`bins`]: where the workspace's binaries are; [`jobs`]: commands of the launcher; [`texts`]:
//!   real text files;
//! * [`cluster`]: several hosts on this machine, that can fail; [`bed`]: jobs on them;
//! * [`seeds`]: seeds of fuzz targets, cut and changed; [`terminal`]: programs in a terminal;
//! * [`report`]: skips and tables that reach the terminal although the test harness captures
//!   prints.
//!
//! Nothing here is part of the product.

pub mod apart;
pub mod bed;
pub mod bins;
pub mod cluster;
pub mod jobs;
pub mod process;
pub mod report;
pub mod seeds;
pub mod terminal;
pub mod texts;
pub mod tree;

pub use bed::Bed;
pub use bins::{all_requested, binary, repository};
pub use cluster::Cluster;
pub use jobs::{job, launcher};
pub use report::{Table, skip};
pub use tree::{End, Input, Outcome, Output, Running, Tree};
