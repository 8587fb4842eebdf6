//! Jobs on several hosts, which `scripts/cluster` makes on this machine. One program, so that tests
//! that wait overlap.

mod address;
mod adoption;
mod builtin;
mod clients;
mod cluster;
mod containers;
mod doctor;
mod elastic;
mod faults;
mod full_disk;
mod jobs;
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

/// Writes a program that hosts run, as a script.
fn executable(path: &str, text: &str) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::write(path, text).expect("the share can be written");
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755))
        .expect("it can be made executable");
}
