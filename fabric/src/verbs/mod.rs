//! Real adapters, through libibverbs: InfiniBand by LID, `RoCE` by GID.
//!
//! The library is opened at run time ([`open`]). Objects keep alive what they were made from, so
//! that everything goes in the order that verbs asks for, whatever a caller drops first. Posting
//! and polling go straight to the provider: nothing of ours allocates, locks or enters the kernel
//! there. `docs/design/fabric.md` says more.
#![allow(unsafe_code, reason = "the module that calls a C library")]

mod address_handle;
mod context;
mod convert;
mod create_qp;
mod device;
mod diagnose;
mod domain;
mod ffi;
mod library;
mod memory;
mod port;
mod post;
mod qp;
mod queues;
mod sysfs;

#[cfg(test)]
mod tests;
mod xrc;
mod xrc_functions;

use std::ffi::c_int;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::{Device, DeviceInfo, Error, Fabric};

use context::{Opened, explained};
use device::VerbsDevice;
use library::Library;

/// Opens libibverbs, or the library at `library`, and lists its devices (possibly none).
///
/// # Errors
/// [`Error::Library`] with the missing file or function and what to install; [`Error::Os`] when the
/// devices cannot be listed.
pub fn open(library: Option<&Path>) -> Result<Arc<dyn Fabric>, Error> {
    let library = Arc::new(Library::open(library)?);
    be_ready_for_forks(&library);
    let mut verbs = Verbs::list(library)?;
    verbs.devices = (0..verbs.count).map(|index| verbs.describe(index)).collect();
    Ok(Arc::new(verbs))
}

/// Before any other call. From Linux 5.12 on children get copies of pinned pages. The library knows,
/// but once it is told to, it keeps registered pages out of children all the same, at a system call
/// for each registration and, of memory that was unmapped meanwhile, many at its end: it is told
/// only where the kernel needs that. A refusal leaves things as they were: a fork then still works
/// for a child that only executes a program, which is all that the project does.
fn be_ready_for_forks(library: &Library) {
    /// `IBV_FORK_UNNEEDED`.
    const UNNEEDED: c_int = 2;
    // SAFETY: no arguments.
    let known = library.is_fork_initialized.map(|ask| unsafe { ask() });
    if known != Some(UNNEEDED) {
        // SAFETY: no arguments.
        let _refused = unsafe { (library.fork_init)() };
    }
}

/// The fabric of one library, with what `ibv_get_device_list` gave.
struct Verbs {
    library: Arc<Library>,
    base: NonNull<*mut ffi::Device>,
    count: usize,
    devices: Vec<DeviceInfo>,
}

// SAFETY: the array and the devices in it do not change until they are freed in `drop`; the library
// locks inside.
unsafe impl Send for Verbs {}
// SAFETY: as above.
unsafe impl Sync for Verbs {}

impl std::fmt::Debug for Verbs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} of {}", self.devices, self.library.name)
    }
}

impl Fabric for Verbs {
    fn name(&self) -> &'static str {
        "verbs"
    }

    fn devices(&self) -> &[DeviceInfo] {
        &self.devices
    }

    fn open(&self, index: usize) -> Result<Arc<dyn Device>, Error> {
        let info = self.devices.get(index).ok_or_else(|| {
            let problem = format!("there is no device {index}, only {}", self.devices.len());
            Error::argument("verbs", "open a device", problem)
        })?;
        let opened = self.open_listed(index, info.clone())?;
        Ok(Arc::new(VerbsDevice::new(Arc::new(opened))?))
    }
}

impl Verbs {
    fn list(library: Arc<Library>) -> Result<Self, Error> {
        let mut count = 0;
        // SAFETY: `count` takes the number.
        let base = unsafe { (library.get_device_list)(&raw mut count) };
        let Some(base) = NonNull::new(base) else {
            let said = std::io::Error::last_os_error();
            let source = if said.raw_os_error() == Some(libc::ENOSYS) {
                explained(&said, "the kernel has no RDMA: load the module ib_uverbs")
            } else {
                said
            };
            return Err(Error::os(&library.name, "list the devices", source));
        };
        let count = usize::try_from(count).unwrap_or(0);
        Ok(Self { library, base, count, devices: Vec::new() })
    }

    /// A device of the list; `index` is below `count`.
    fn device(&self, index: usize) -> NonNull<ffi::Device> {
        assert!(index < self.count, "device {index} of {}", self.count);
        // SAFETY: the array has `count` entries before its null.
        let entry = unsafe { self.base.add(index) };
        // SAFETY: as above; entries are pointers.
        let device = unsafe { entry.read() };
        // SAFETY: no entry before the end is null.
        unsafe { NonNull::new_unchecked(device) }
    }

    fn open_listed(&self, index: usize, info: DeviceInfo) -> Result<Opened, Error> {
        let device = self.device(index);
        // SAFETY: devices of the list live as long as it does, and nobody changes them.
        let directory = sysfs::directory(unsafe { &device.as_ref().ibdev_path });
        Opened::open(&self.library, device, directory, info)
    }

    fn describe(&self, index: usize) -> DeviceInfo {
        let device = self.device(index);
        // SAFETY: devices of the list live as long as it does, and nobody changes them.
        let seen = unsafe { device.as_ref() };
        let directory = sysfs::directory(&seen.ibdev_path);
        let mut info = DeviceInfo {
            name: sysfs::text(&seen.name),
            ports: 0,
            ib_transport: seen.transport_type == ffi::TRANSPORT_IB,
            numa: sysfs::numa(&directory),
        };
        info.ports = match sysfs::ports(&directory) {
            Some(ports) => ports,
            // A device that cannot be opened stays in the list; opening it says why.
            None => self
                .open_listed(index, info.clone())
                .and_then(|opened| opened.attributes())
                .map_or(0, |seen| seen.phys_port_cnt),
        };
        info
    }
}

impl Drop for Verbs {
    fn drop(&mut self) {
        // SAFETY: the list came from the library and is freed once; open devices hold their own
        // reference.
        unsafe { (self.library.free_device_list)(self.base.as_ptr()) };
    }
}
