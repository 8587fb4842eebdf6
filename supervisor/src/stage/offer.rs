//! The job's program, as agents are told of it.

use std::ffi::OsString;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use nix::unistd::{AccessFlags, eaccess};
use serde::{Deserialize, Serialize};

use super::digest::Digest;

/// What tells a file without a look at its content: its number in its file system, and when it was
/// changed. A host that sees the launcher's own file, over a shared file system, need not read all
/// of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stamp {
    number: u64,
    /// Seconds and nanoseconds.
    changed: (i64, i64),
}

impl Stamp {
    pub(crate) fn of(data: &Metadata) -> Self {
        Self { number: data.ino(), changed: (data.mtime(), data.mtime_nsec()) }
    }
}

/// The job's program, as every agent is told of it. Its hash is told to those who ask: where all
/// hosts see the launcher's file, nobody reads it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Offer {
    pub(crate) name: OsString,
    pub(crate) size: u64,
    pub(crate) stamp: Stamp,
    /// Whether a host's own file must be the same one: so for a GASNet program, while of a tool
    /// like `hostname` each host has its own.
    pub(crate) same: bool,
}

impl Offer {
    /// Whether this is certain to be the file itself, without a look at its content.
    pub(super) fn is_seen_at(&self, path: &Path) -> bool {
        let data = path.metadata();
        data.is_ok_and(|data| data.len() == self.size && Stamp::of(&data) == self.stamp)
    }

    /// Whether ranks of a host can run what is at `path`, as far as can be said without its hash.
    pub(crate) fn is_good_at(&self, path: &Path) -> bool {
        let runs = path.is_file() && eaccess(path, AccessFlags::X_OK).is_ok();
        runs && (!self.same || self.is_seen_at(path))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Program {
    pub(crate) offer: Offer,
    pub(crate) digest: Digest,
}
