//! The launcher `gasnetrun_ibv`, as a library so that tests and fuzz targets can call its parts.
//!
//! ```text
//! words ─ normalise (aliases) ─ flags ─> command_line ─ spawner, hosts, settings, program (ident), cpus, environment ─> job
//!                                                                     job ─> dry_run | supervisor::local::supervise
//!                                                                                    └─> progress, summary, report_file
//! ```
//!
//! [`watch`] asks jobs that run. `main.rs` ties them together; nothing else writes, except events of `tracing` (`settings::log`).
//! The job itself is supervised by `supervisor`.

#![forbid(unsafe_code)]

pub mod aliases;
pub mod attempts;
pub mod chosen;
pub mod command_line;
pub mod container;
pub mod cpus;
pub mod debugger;
pub mod doctor;
pub mod documents;
pub mod dry_run;
pub mod environment;
pub mod exit_code;
pub mod failure;
pub mod flags;
pub mod hosts;
pub mod ident;
pub mod job;
pub mod mpi;
pub mod normalise;
pub mod parts;
pub mod process_manager;
pub mod program;
pub mod progress;
pub mod reach;
pub mod report_file;
pub mod settings;
pub mod slurm;
pub mod spawner;
pub mod summary;
pub mod trace;
pub mod watch;
