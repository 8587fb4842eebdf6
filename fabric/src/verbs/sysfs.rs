//! What only sysfs tells about a device.

use std::ffi::c_char;
use std::fs;
use std::path::{Path, PathBuf};

use crate::GidKind;

/// A text of fixed room as C leaves it.
pub(super) fn text(field: &[c_char]) -> String {
    let bytes: Vec<u8> =
        field.iter().take_while(|byte| **byte != 0).map(|byte| byte.to_ne_bytes()[0]).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Directory of a device below `/sys/class/infiniband`.
pub(super) fn directory(field: &[c_char]) -> PathBuf {
    PathBuf::from(text(field))
}

/// NUMA node of the adapter; none where it is not known (software, one node).
pub(super) fn numa(directory: &Path) -> Option<u32> {
    fs::read_to_string(directory.join("device/numa_node")).ok()?.trim().parse().ok()
}

/// Whether it is made of software above a network device (Soft-RoCE), which its `parent` names.
pub(super) fn is_soft(directory: &Path) -> bool {
    directory.join("parent").is_file()
}

pub(super) fn ports(directory: &Path) -> Option<u8> {
    let count = fs::read_dir(directory.join("ports")).ok()?.filter_map(Result::ok).count();
    u8::try_from(count).ok().filter(|count| *count > 0)
}

/// Protocol of a GID entry. A kernel that does not say has only InfiniBand and `RoCE` version 1.
pub(super) fn gid_kind(directory: &Path, port: u8, index: u8) -> GidKind {
    let file = directory.join(format!("ports/{port}/gid_attrs/types/{index}"));
    match fs::read_to_string(file) {
        Ok(text) if text.contains("v2") => GidKind::RoceV2,
        _ => GidKind::IbOrRoceV1,
    }
}
