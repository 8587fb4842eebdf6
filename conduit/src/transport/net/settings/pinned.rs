//! How much memory may be pinned: `GASNET_PHYSMEM_*`.

use std::path::PathBuf;

use settings::{Env, Values};

use crate::settings::SegmentLimit;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PinnedMemory {
    /// `GASNET_PHYSMEM_MAX`: bytes on this host.
    pub most: u64,
    /// `GASNET_PHYSMEM_PROBE`: whether pinning finds out if it is so much.
    pub probe: bool,
    /// `GASNET_PHYSMEM_WARN`.
    pub warn: bool,
    /// Where what was found is kept, best first.
    pub places: Vec<PathBuf>,
}

impl PinnedMemory {
    pub(super) fn of(table: &Values, env: &Env) -> Self {
        let most = "GASNET_PHYSMEM_MAX";
        let limit = table.memory(most).map(SegmentLimit::of);
        Self {
            most: limit.map_or(u64::MAX, |limit| limit.for_each(1)),
            // Who says how much is believed.
            probe: table.bool_opt("GASNET_PHYSMEM_PROBE").unwrap_or(!table.is_set(most)),
            warn: table.bool("GASNET_PHYSMEM_WARN"),
            places: places(env),
        }
    }
}

/// Directories of the user, those that end with the session first.
fn places(env: &Env) -> Vec<PathBuf> {
    let set = |name| env.get(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let user = format!("gasnetrun-{}", nix::unistd::geteuid().as_raw());
    let temporary = set("TMPDIR").unwrap_or_else(|| PathBuf::from("/tmp")).join(user);
    let own = ["XDG_RUNTIME_DIR", "XDG_CACHE_HOME"].into_iter().filter_map(set);
    own.map(|path| path.join("gasnetrun")).chain([temporary]).collect()
}
