//! Bytes to and from segments: where a range of a segment is, and how it is reached.

use std::ffi::c_void;
use std::io;
use std::sync::atomic::{Ordering, fence};

use gasnet_ibv::inner::{Destination, OpCounters, Part, Target};
use gasnet_ibv::{Flags as Options, Outcome};

use crate::fail::{Fail, RESOURCE};
use crate::state::State;
use crate::types::{EVENT_DEFER, EVENT_GROUP, EVENT_NOW, EventValue};
use crate::{M, events};

/// Puts and gets are copies that were made when they were called. What they wrote is to be seen
/// before whatever the program tells of them; no instruction on x86.
#[inline]
pub fn order() {
    fence(Ordering::AcqRel);
}

/// Where a checked remote range is.
#[derive(Clone, Copy)]
pub enum Place {
    /// In a mapping of this process.
    Mapped(*mut u8),
    /// In the private memory of another rank: its process and the address there.
    OtherProcess(i32, usize),
    /// In the segment of a rank that is reached over the network: offset.
    Remote(u64),
}

/// Checks a range of at least one byte against the segments of an endpoint.
#[inline]
pub fn place(
    state: &State,
    rank: u32,
    endpoint: u16,
    address: usize,
    len: usize,
) -> Result<Place, Fail> {
    if endpoint == 0
        && let Some(here) = state.reach(rank, address, len)
    {
        return Ok(Place::Mapped(here));
    }
    elsewhere(state, rank, endpoint, address, len)
}

#[cold]
fn elsewhere(
    state: &State,
    rank: u32,
    endpoint: u16,
    address: usize,
    len: usize,
) -> Result<Place, Fail> {
    let here = || Place::Mapped(std::ptr::with_exposed_provenance_mut(address));
    let seen = state.bound(rank, endpoint);
    let outside = |what: &str| {
        let end = address.saturating_add(len);
        Err(Fail::bad(format!(
            "bytes {address:#x}..{end:#x} are not in a segment of endpoint {endpoint} of rank {rank}: {what}"
        )))
    };
    let Some(segment) = seen else { return outside("none is attached, or bound and published") };
    let offset = address.wrapping_sub(segment.address);
    if offset >= segment.size || len > segment.size - offset {
        let (first, size) = (segment.address, segment.size);
        return outside(&format!("its segment has {size:#x} bytes from {first:#x} on"));
    }
    if rank == state.rank {
        return Ok(here());
    }
    let target = state.inner.target("one-sided call", rank)?;
    if !state.inner.is_local(target) {
        let attached = endpoint == 0 && state.inner.segment(target).is_some();
        if !attached {
            return outside(
                "over the network only segments of gex_Segment_Attach are reached, and this one was made by gex_Segment_Create",
            );
        }
        return Ok(Place::Remote(offset as u64));
    }
    if let Some(mapped) = state.reach(rank, address, len) {
        return Ok(Place::Mapped(mapped));
    }
    Ok(Place::OtherProcess(segment.process, address))
}

impl Place {
    /// Offset in a segment that is reached over the network.
    pub fn remote(self) -> Result<u64, Fail> {
        match self {
            Self::Remote(offset) => Ok(offset),
            Self::Mapped(_) | Self::OtherProcess(..) => {
                Err(Fail::bad("the rank shares memory with this one"))
            }
        }
    }

    /// Copies `len` bytes to the range.
    #[inline]
    pub fn write(self, from: *const u8, len: usize) -> Result<(), Fail> {
        match self {
            Self::Mapped(to) => {
                // SAFETY: `to` was checked (`place`); `from` is readable by the program's promise.
                // Overlap is allowed.
                unsafe { std::ptr::copy(from, to, len) };
                order();
                Ok(())
            }
            Self::OtherProcess(process, to) => move_bytes(process, from.cast_mut(), to, len, true),
            Self::Remote(_) => Err(not_here()),
        }
    }

    /// Copies `len` bytes from the range.
    #[inline]
    pub fn read(self, to: *mut u8, len: usize) -> Result<(), Fail> {
        match self {
            Self::Mapped(from) => {
                // SAFETY: as in `write`, the other way round.
                unsafe { std::ptr::copy(from, to, len) };
                order();
                Ok(())
            }
            Self::OtherProcess(process, from) => move_bytes(process, to, from, len, false),
            Self::Remote(_) => Err(not_here()),
        }
    }
}

#[cold]
fn not_here() -> Fail {
    Fail::bad("the rank shares no memory with this one")
}

/// Copies between this process and the private memory of a rank. The system checks both ranges.
fn move_bytes(
    process: i32,
    here: *mut u8,
    there: usize,
    len: usize,
    write: bool,
) -> Result<(), Fail> {
    let mut done = 0;
    while done < len {
        let ours = libc::iovec { iov_base: here.wrapping_add(done).cast(), iov_len: len - done };
        let theirs = libc::iovec {
            iov_base: std::ptr::with_exposed_provenance_mut(there + done),
            iov_len: len - done,
        };
        let call = if write { libc::process_vm_writev } else { libc::process_vm_readv };
        // SAFETY: one range each; the program promises ours, the other process's is checked by the
        // system.
        let moved = unsafe { call(process, &raw const ours, 1, &raw const theirs, 1, 0) };
        match usize::try_from(moved) {
            Ok(moved) if moved > 0 => done += moved,
            _ => {
                let why = io::Error::last_os_error();
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

/// Copies the payload of a Long to its destination; for a rank that shares no memory with this one
/// it says the offset in its segment. Without bytes any place will do.
pub fn place_long(
    state: &State,
    (target, rank): (Target, u32),
    bytes: &[u8],
    dest: *const c_void,
) -> Result<Destination, Fail> {
    let dest = dest.addr();
    let range = || place(state, rank, 0, dest, bytes.len());
    if state.inner.is_local(target) {
        if !bytes.is_empty() {
            range()?.write(bytes.as_ptr(), bytes.len())?;
        }
        return Ok(Destination::Placed(dest as u64));
    }
    if !bytes.is_empty() {
        return Ok(Destination::Offset(range()?.remote()?));
    }
    let base = state.inner.segment(target).map_or(0, |segment| segment.owner_base);
    Ok(Destination::Offset((dest as u64).wrapping_sub(base)))
}

/// How an operation completes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Way {
    Blocking,
    /// With an event, and that for the source of a put.
    Event(*mut EventValue),
    /// Without event; a put's source is the program's again on return.
    Implicit {
        now: bool,
    },
}

impl Way {
    /// For a put whose local completion is asked for like this, with or without event.
    pub fn of_put(lc_opt: *mut EventValue, implicit: bool) -> Self {
        if implicit {
            Self::Implicit { now: !matches!(lc_opt.addr(), EVENT_DEFER | EVENT_GROUP) }
        } else {
            Self::Event(lc_opt)
        }
    }
}

/// What became of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begun {
    Complete,
    Event(EventValue),
    /// It was not to wait.
    Declined,
}

/// An operation at a rank that shares no memory with this one, checked.
#[derive(Clone, Copy)]
pub struct Remote {
    pub call: &'static str,
    pub rank: u32,
    /// Offset in the segment of the rank.
    pub offset: u64,
    pub flags: Options,
}

impl Remote {
    /// Runs `start` with the row that counts the operation.
    fn counted(
        &self,
        state: &State,
        way: Way,
        start: impl FnOnce(&OpCounters) -> Result<Outcome, gasnet_ibv::Error>,
    ) -> Result<Begun, Fail> {
        let inner = state.inner;
        let Way::Event(lc_opt) = way else {
            return Ok(match start(&*events::group(inner, self.call)?)? {
                Outcome::Sent => Begun::Complete,
                Outcome::NotSent => Begun::Declined,
            });
        };
        let (op, row) = inner.begin(self.call)?;
        if start(&row)? == Outcome::NotSent {
            let _complete = inner.finish(op, Part::All);
            return Ok(Begun::Declined);
        }
        events::write(lc_opt, || events::of(inner, op, Part::Local));
        Ok(Begun::Event(events::of(inner, op, Part::All)))
    }

    fn target(&self, state: &State) -> Result<Target, Fail> {
        Ok(state.inner.target(self.call, self.rank)?)
    }

    pub fn put(self, state: &State, from: *const u8, len: usize, way: Way) -> Result<Begun, Fail> {
        let Self { call, offset, flags, .. } = self;
        let (inner, target) = (state.inner, self.target(state)?);
        // SAFETY: readable by the program's promise, and left alone until local completion.
        let source = unsafe { std::slice::from_raw_parts(from, len) };
        let now = match way {
            Way::Blocking => {
                inner.put::<M>((call, target), offset, source)?;
                return Ok(Begun::Complete);
            }
            Way::Event(lc_opt) => lc_opt.addr() == EVENT_NOW,
            Way::Implicit { now } => now,
        };
        self.counted(state, way, |row| {
            inner.start_put::<M>((call, target, flags), offset, source, (row, now))
        })
    }

    pub fn get(self, state: &State, to: *mut u8, len: usize, way: Way) -> Result<Begun, Fail> {
        let Self { call, offset, flags, .. } = self;
        let (inner, target) = (state.inner, self.target(state)?);
        // SAFETY: writable by the program's promise, and left alone until the operation is
        // complete.
        let into = unsafe { std::slice::from_raw_parts_mut(to, len) };
        if way == Way::Blocking {
            inner.get::<M>((call, target), offset, into)?;
            return Ok(Begun::Complete);
        }
        self.counted(state, way, |row| {
            inner.start_get::<M>((call, target, flags), offset, into, row)
        })
    }
}
