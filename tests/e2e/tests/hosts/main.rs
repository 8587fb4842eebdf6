//! Jobs on several hosts, which `scripts/cluster` makes on this machine. One program, so that tests
//! that wait overlap.

mod address;
mod adoption;
mod builtin;
mod clients;
mod cluster;
mod doctor;
mod elastic;
mod faults;
mod full_disk;
mod jobs;
mod many;
mod placement;
mod reasons;
mod self_start;
mod staging;
#[path = "../timeline/mod.rs"]
mod timeline;
mod trace;
mod transports;
mod trees;
mod watch;
