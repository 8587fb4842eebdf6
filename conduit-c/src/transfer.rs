//! Bytes to and from segments: where a range of a segment is, and how it is reached.

use std::io;
use std::sync::atomic::{Ordering, fence};

use gasnet_ibv::Rank;
use gasnet_ibv::inner::{Destination, Place, Target};

use crate::fail::{Fail, RESOURCE};
use crate::state::State;

/// Puts and gets are copies that were made when they were called. What they wrote is to be seen
/// before whatever the program tells of them; no instruction on x86.
#[inline]
pub fn order() {
    fence(Ordering::AcqRel);
}

/// A rank whose memory is private, and its process on this host.
#[derive(Clone, Copy)]
pub struct Neighbour {
    pub rank: u32,
    pub process: i32,
}

/// How a checked range of a segment is reached.
#[derive(Clone, Copy)]
pub enum Access {
    /// By loads and stores at this address.
    Mapped(*mut u8),
    /// By cross-memory calls of the system, with an address there.
    CrossMemory(Neighbour, usize),
    /// Over the network: the word of a place in a segment.
    Network(u64),
}

/// Checks a range of at least one byte against the segments of an endpoint.
#[inline]
pub fn locate(
    state: &State,
    (rank, endpoint): (u32, u16),
    address: usize,
    len: usize,
) -> Result<Access, Fail> {
    if endpoint == 0
        && let Some(here) = state.reach(rank, address, len)
    {
        return Ok(Access::Mapped(here));
    }
    locate_unmapped(state, (rank, endpoint), address, len)
}

#[cold]
fn locate_unmapped(
    state: &State,
    (rank, endpoint): (u32, u16),
    address: usize,
    len: usize,
) -> Result<Access, Fail> {
    let outside = |what: &str| {
        let end = address.saturating_add(len);
        Err(Fail::bad(format!(
            "bytes {address:#x}..{end:#x} are not in a segment of endpoint {endpoint} of rank {rank}: {what}"
        )))
    };
    let Some(segment) = state.bound(rank, endpoint) else {
        return outside("none is attached, or bound and published");
    };
    let offset = address.wrapping_sub(segment.address);
    if offset >= segment.size || len > segment.size - offset {
        let (first, size) = (segment.address, segment.size);
        return outside(&format!("its segment has {size:#x} bytes from {first:#x} on"));
    }
    if rank == state.rank {
        return Ok(Access::Mapped(std::ptr::with_exposed_provenance_mut(address)));
    }
    let target = state.inner.target("one-sided call", Rank(rank))?;
    if !state.inner.is_local(target) {
        let place = Place { endpoint, offset: offset as u64 }.word();
        return place.map(Access::Network).ok_or_else(|| Fail::bad("an address beyond 2^48"));
    }
    Ok(match state.reach(rank, address, len) {
        Some(mapped) => Access::Mapped(mapped),
        // Nothing else is mapped, and the system does not let this rank reach it.
        None if state.goes_by_message(target, endpoint, segment.process) => {
            let place = Place { endpoint, offset: offset as u64 }.word();
            Access::Network(place.unwrap_or(u64::MAX))
        }
        None => Access::CrossMemory(Neighbour { rank, process: segment.process }, address),
    })
}

impl Access {
    /// Copies `len` bytes between the range and `local`, which a `PUT` only reads.
    #[inline]
    pub fn copy<const PUT: bool>(self, local: *mut u8, len: usize) -> Result<(), Fail> {
        match self {
            Self::Mapped(there) => {
                let (from, to) = if PUT { (local, there) } else { (there, local) };
                // SAFETY: `there` was checked (`locate`), `local` is so long by the program's
                // promise. Overlap is allowed.
                unsafe { std::ptr::copy(from, to, len) };
                order();
                Ok(())
            }
            Self::CrossMemory(peer, there) => {
                let call = if PUT { libc::process_vm_writev } else { libc::process_vm_readv };
                cross_memory(call, peer, local, there, len)
            }
            Self::Network(_) => Err(Fail::bad("the rank shares no memory with this one")),
        }
    }
}

type CrossMemory = unsafe extern "C" fn(
    libc::pid_t,
    *const libc::iovec,
    libc::c_ulong,
    *const libc::iovec,
    libc::c_ulong,
    libc::c_ulong,
) -> isize;

/// Copies between this process and the private memory of a rank. The system checks both ranges.
fn cross_memory(
    call: CrossMemory,
    Neighbour { rank, process }: Neighbour,
    here: *mut u8,
    there: usize,
    len: usize,
) -> Result<(), Fail> {
    let there = std::ptr::with_exposed_provenance_mut::<u8>(there);
    let mut done = 0;
    while done < len {
        let [ours, theirs] = [here, there].map(|first| libc::iovec {
            iov_base: first.wrapping_add(done).cast(),
            iov_len: len - done,
        });
        // SAFETY: one range each; the program promises ours, the other process's is checked by the
        // system.
        let moved = unsafe { call(process, &raw const ours, 1, &raw const theirs, 1, 0) };
        match usize::try_from(moved) {
            Ok(moved) if moved > 0 => done += moved,
            _ => {
                let why = io::Error::last_os_error();
                if why.raw_os_error() == Some(libc::EFAULT) {
                    return Err(not_mapped(rank, (there.addr(), here.addr()), len, &why));
                }
                let text = format!(
                    "cannot copy {len} bytes between this process and memory of process {process}: {why}; \
                     segments made by gex_Segment_Create are reached by the system's cross-memory calls, \
                     which this system may restrict: use gex_Segment_Attach"
                );
                return Err(Fail::new(RESOURCE, text));
            }
        }
    }
    Ok(())
}

#[cold]
fn not_mapped(rank: u32, (there, here): (usize, usize), len: usize, why: &io::Error) -> Fail {
    let end = there.saturating_add(len);
    Fail::bad(format!(
        "bytes {there:#x}..{end:#x} of rank {rank}, which has not mapped all of them so (or this rank not its own \
         from {here:#x} on): {why}"
    ))
}

/// Copies the payload of a Long to its destination; for a rank that shares no memory with this one
/// it says the offset in its segment. Without bytes any place will do.
pub fn place_long(
    state: &State,
    (target, rank): (Target, u32),
    bytes: &[u8],
    dest: usize,
) -> Result<Destination, Fail> {
    let access = match bytes {
        [] => None,
        _ => Some(locate(state, (rank, 0), dest, bytes.len())?),
    };
    if let Some(Access::Network(offset)) = access {
        return Ok(Destination::Offset(offset));
    }
    if state.inner.is_local(target) {
        if let Some(access) = access {
            access.copy::<true>(bytes.as_ptr().cast_mut(), bytes.len())?;
        }
        return Ok(Destination::Placed(dest as u64));
    }
    match access {
        Some(_) => Err(Fail::bad("the rank shares memory with this one")),
        None => {
            let base = state.inner.segment(target).map_or(0, |segment| segment.owner_base);
            Ok(Destination::Offset((dest as u64).wrapping_sub(base)))
        }
    }
}
