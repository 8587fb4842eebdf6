//! Shared memory for the references that run inside the ranks of a job, beside the library.

#![expect(unsafe_code, reason = "hand-written references over raw shared memory")]

use std::fs::{File, OpenOptions};
use std::num::NonZeroUsize;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use fabric::{Access, Device, Region};
use gasnet_ibv::{BarrierFlags, Client, Rank, Segment, Seq};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::mman::{MapFlags, ProtFlags, mmap};

/// What rank programs end with.
pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Memory that every rank of the job maps. Never unmapped.
#[derive(Clone, Copy)]
pub struct Arena {
    base: *mut u8,
    len: usize,
}

impl Arena {
    /// Collective: `len` bytes of memory shared by all ranks. Uses the first 16 bytes of rank 0's
    /// segment.
    pub fn shared(client: &Client<Seq>, segment: &Segment, len: usize) -> Result<Self> {
        let mut own = None;
        if client.rank() == Rank(0) {
            let file = File::from(memfd_create("bench", MFdFlags::MFD_CLOEXEC)?);
            file.set_len(len as u64)?;
            segment.write(0, &u64::from(std::process::id()).to_ne_bytes())?;
            segment.write(8, &i64::from(file.as_raw_fd()).to_ne_bytes())?;
            own = Some(file);
        }
        client.barrier(0, BarrierFlags::ANONYMOUS)?;
        let file = if let Some(file) = own {
            file
        } else {
            let process = client.get_value(Rank(0), 0, 8)?;
            let descriptor = client.get_value(Rank(0), 8, 8)?;
            OpenOptions::new()
                .read(true)
                .write(true)
                .open(format!("/proc/{process}/fd/{descriptor}"))?
        };
        let arena = Self::map(&file, len)?;
        client.barrier(0, BarrierFlags::ANONYMOUS)?;
        Ok(arena)
    }

    fn map(file: &File, len: usize) -> Result<Self> {
        let size = NonZeroUsize::new(len).ok_or("an arena of no bytes")?;
        let (prot, flags) = (ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, MapFlags::MAP_SHARED);
        // SAFETY: a fresh mapping at an address that the kernel chooses.
        let base = unsafe { mmap(None, size, prot, flags, file, 0) }?;
        Ok(Self { base: base.cast().as_ptr(), len })
    }

    /// The rank's own segment.
    pub fn of(segment: &Segment) -> Result<Self> {
        Ok(Self { base: segment.base(), len: usize::try_from(segment.len())? })
    }

    fn place(&self, offset: usize, len: usize) -> *mut u8 {
        assert!(offset + len <= self.len, "{offset} + {len} of {} bytes", self.len);
        // SAFETY: inside the mapping by the assertion.
        unsafe { self.base.add(offset) }
    }

    /// The word at the start of 128-byte line `line`.
    pub fn word(&self, line: usize) -> &AtomicU64 {
        // SAFETY: inside a mapping that stays, aligned as mappings start on pages; bytes that are
        // copied are others.
        unsafe { AtomicU64::from_ptr(self.place(line * 128, 128).cast()) }
    }

    /// Makes `len` bytes at `offset` known to a device, for everything.
    pub fn register(
        &self,
        device: &dyn Device,
        offset: usize,
        len: usize,
    ) -> Result<Arc<dyn Region>> {
        let base = NonNull::new(self.place(offset, len)).ok_or("no memory")?;
        // SAFETY: inside a mapping that stays; of what the device writes only words are read
        // meanwhile, as atomics.
        Ok(unsafe { device.register(base, len, Access::ALL) }?)
    }

    /// Copies `from` into the memory.
    pub fn copy_in(&self, offset: usize, from: &[u8]) {
        let place = self.place(offset, from.len());
        // SAFETY: room by `place`; no references to these bytes exist, and the peer waits for a
        // word before it reads.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), place, from.len()) };
    }

    /// Copies bytes out of the memory.
    pub fn copy_out(&self, offset: usize, to: &mut [u8]) {
        let place = self.place(offset, to.len());
        // SAFETY: as in `copy_in`.
        unsafe { std::ptr::copy_nonoverlapping(place, to.as_mut_ptr(), to.len()) };
    }

    /// Bytes of the memory, as the source of a put.
    pub fn bytes(&self, offset: usize, len: usize) -> &[u8] {
        let place = self.place(offset, len);
        // SAFETY: inside the mapping; nobody writes what is a source.
        unsafe { std::slice::from_raw_parts(place, len) }
    }

    /// Bytes of the memory, as the target of a get.
    pub fn bytes_mut(&mut self, offset: usize, len: usize) -> &mut [u8] {
        let place = self.place(offset, len);
        // SAFETY: inside the mapping; nobody else uses what is a target.
        unsafe { std::slice::from_raw_parts_mut(place, len) }
    }

    /// Sum of the first word of every cache line of `len` bytes.
    pub fn sum(&self, offset: usize, len: usize) -> u64 {
        let place = self.place(offset, len);
        // SAFETY: inside the mapping; the writer waits for a word before it writes these bytes
        // again.
        sum_lines(unsafe { std::slice::from_raw_parts(place, len) })
    }
}

/// Sum of the first word of every cache line of `bytes`.
pub fn sum_lines(bytes: &[u8]) -> u64 {
    let words = bytes.chunks(64).filter_map(|line| line.first_chunk());
    words.fold(0, |sum, word| sum.wrapping_add(u64::from_ne_bytes(*word)))
}
