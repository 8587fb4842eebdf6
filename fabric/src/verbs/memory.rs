//! Registered memory, and a useful text when the system refuses it.

use std::ffi::c_int;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

use settings::deadlines::verbs::BUSY_FIRST;

use crate::{Access, Error, Region};

use super::context::explained;
use super::domain::{Domain, Object};
use super::ffi;

/// A driver that is short of resources for a moment says EAGAIN: so often it is asked.
const TRIES: u32 = 8;

/// Memory known to the device.
#[derive(Debug)]
pub(super) struct VerbsRegion {
    _mr: Object<ffi::Mr>,
    lkey: u32,
    rkey: u32,
}

/// Registers memory. Where the device has no atomics the right to them is left out: nobody can use
/// it.
///
/// # Safety
/// As [`crate::Device::register`].
pub(super) unsafe fn register(
    domain: &Arc<Domain>,
    base: NonNull<u8>,
    len: usize,
    access: Access,
) -> Result<VerbsRegion, Error> {
    let opened = &domain.opened;
    if len == 0 {
        return Err(opened.argument("register memory", "it has no bytes"));
    }
    if u64::try_from(len).is_ok_and(|len| len > domain.caps.max_mr_size) {
        let limit = domain.caps.max_mr_size;
        let problem = format!("{len} bytes, and one region of the device has at most {limit}");
        return Err(opened.argument("register memory", problem));
    }
    let rights = rights(access, domain.caps.has_atomics());
    let mut wait = BUSY_FIRST.limit;
    let mut tries = 1;
    loop {
        // SAFETY: a living domain; the caller promises that the memory stays and may be changed.
        let made = unsafe {
            (opened.library.reg_mr)(domain.pd.as_ptr(), base.as_ptr().cast(), len, rights)
        };
        if !made.is_null() {
            // SAFETY: the library made it and does not change its keys.
            let ffi::Mr { lkey, rkey, .. } = unsafe { *made };
            let _mr = Object::new(domain, made, opened.library.dereg_mr, "register memory")?;
            return Ok(VerbsRegion { _mr, lkey, rkey });
        }
        let said = io::Error::last_os_error();
        if said.raw_os_error() == Some(libc::EAGAIN) && tries < TRIES {
            std::thread::sleep(wait);
            wait *= 2;
            tries += 1;
            continue;
        }
        let operation = format!("register {len} bytes at {base:p} with {}", named(access));
        return Err(opened.os(operation, explained(&said, &advice(&said, tries, len))));
    }
}

/// Registers all memory of the process, to be paged in on demand.
///
/// # Safety
/// As [`crate::Device::register_all_memory`].
pub(super) unsafe fn register_all(domain: &Arc<Domain>, write: bool) -> Result<VerbsRegion, Error> {
    let opened = &domain.opened;
    if !domain.caps.odp {
        return Err(opened.unsupported("paging on demand (ODP)"));
    }
    let write = if write { ffi::ACCESS_LOCAL_WRITE } else { 0 };
    let rights = write | ffi::ACCESS_ON_DEMAND;
    // SAFETY: a living domain; address 0 with the greatest length means all memory, and the caller
    // promises that what requests name may be used so.
    let made = unsafe {
        (opened.library.reg_mr)(domain.pd.as_ptr(), std::ptr::null_mut(), usize::MAX, rights)
    };
    if made.is_null() {
        let said = io::Error::last_os_error();
        let advice = "GASNET_USE_ODP=0 does without it";
        return Err(opened.os("register all memory for paging on demand", explained(&said, advice)));
    }
    // SAFETY: the library made it and does not change its keys.
    let ffi::Mr { lkey, rkey, .. } = unsafe { *made };
    let _mr = Object::new(domain, made, opened.library.dereg_mr, "register memory")?;
    Ok(VerbsRegion { _mr, lkey, rkey })
}

/// The bits of verbs.
pub(super) fn rights(access: Access, atomics: bool) -> c_int {
    // The four bits have the same values there.
    let atomics = if atomics { 8 } else { 0 };
    c_int::try_from(access.0 & (7 | atomics)).unwrap_or(0)
}

fn named(access: Access) -> String {
    let all = [
        (Access::LOCAL_WRITE, "local write"),
        (Access::REMOTE_WRITE, "remote write"),
        (Access::REMOTE_READ, "remote read"),
        (Access::REMOTE_ATOMIC, "remote atomics"),
    ];
    let names: Vec<&str> =
        all.iter().filter(|(bit, _)| access.has(*bit)).map(|(_, name)| *name).collect();
    if names.is_empty() { "local read".to_owned() } else { names.join(", ") }
}

fn advice(said: &io::Error, tries: u32, len: usize) -> String {
    match said.raw_os_error() {
        Some(libc::ENOMEM | libc::EPERM) => {
            let limit = locked_memory();
            format!(
                "the limit on locked memory is {limit} and {len} bytes were wanted; raise it (ulimit -l, memlock in \
                 limits.conf, LimitMEMLOCK of the batch daemon) or use a smaller segment"
            )
        }
        Some(libc::EAGAIN) => format!(
            "the driver still said so after {tries} tries; the limit on locked memory is {}, and the adapter may be \
             out of translation entries",
            locked_memory()
        ),
        Some(libc::EFAULT) => "the memory is not mapped, or not writable".to_owned(),
        Some(libc::EACCES) => "the mapping does not allow that access".to_owned(),
        _ => "the memory cannot be pinned".to_owned(),
    }
}

/// Soft and hard limit as text.
fn locked_memory() -> String {
    use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
    let text = |bytes: u64| {
        if bytes == RLIM_INFINITY {
            "unlimited".to_owned()
        } else {
            format!("{} KiB", bytes / 1024)
        }
    };
    match getrlimit(Resource::RLIMIT_MEMLOCK) {
        Ok((soft, hard)) if soft == hard => text(soft),
        Ok((soft, hard)) => format!("{} (at most {})", text(soft), text(hard)),
        Err(_) => "unknown".to_owned(),
    }
}

impl Region for VerbsRegion {
    fn lkey(&self) -> u32 {
        self.lkey
    }

    fn rkey(&self) -> u32 {
        self.rkey
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_keep_their_bits_and_lose_atomics_where_there_are_none() {
        assert_eq!(rights(Access::ALL, true), 15);
        assert_eq!(rights(Access::ALL, false), 7);
        assert_eq!(rights(Access::REMOTE_READ, true), 4);
        assert_eq!(rights(Access(!0), true), 15);
    }

    #[test]
    fn advice_names_the_limit_of_locked_memory() {
        let said = io::Error::from_raw_os_error(libc::ENOMEM);
        assert!(advice(&said, 1, 4096).contains("locked memory"));
        let said = io::Error::from_raw_os_error(libc::EAGAIN);
        assert!(advice(&said, 8, 4096).contains("after 8 tries"));
    }
}
