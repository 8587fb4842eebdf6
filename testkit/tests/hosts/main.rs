//! Jobs on several hosts, which `scripts/cluster` makes on this machine. One program, so that tests that wait overlap.

mod adoption;
mod builtin;
mod cluster;
mod doctor;
mod faults;
mod jobs;
mod placement;
mod reasons;
mod staging;
mod trees;
