//! Events, flags and addresses that the specification forbids and the library lets pass: checked in
//! the debug library only, as [`crate::checks`] says.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use gasnet_ibv::Rank;

use crate::checks::ON;
use crate::events;
use crate::fail::{Fail, ensure};
use crate::state::State;
use crate::types::{EventValue, Flags};

/// Roots that a wait or test has consumed. Their numbers are not used again.
static CONSUMED: Mutex<Option<HashSet<EventValue>>> = Mutex::new(None);
/// More are not remembered.
const MOST_CONSUMED: usize = 1 << 20;

fn with_consumed<T>(see: impl FnOnce(&mut HashSet<EventValue>) -> T) -> T {
    let mut consumed = CONSUMED.lock().unwrap_or_else(PoisonError::into_inner);
    see(consumed.get_or_insert_default())
}

/// Checks that no event of an operation was consumed before, and that none comes twice.
pub fn fresh(given: &[EventValue]) -> Result<(), Fail> {
    if !ON {
        return Ok(());
    }
    let mut seen = HashSet::new();
    for (at, event) in given.iter().enumerate().filter(|(_, event)| **event != 0) {
        ensure!(*event != 1, "event {at} is GEX_EVENT_NO_OP");
        ensure!(seen.insert(*event), "event {at} ({event:#x}) is in the array twice");
        let Some(root) = events::root(*event) else { continue };
        let old = with_consumed(|consumed| consumed.contains(&root));
        let what = if root == *event { "it was" } else { "it is a leaf whose root was" };
        ensure!(!old, "event {at} ({event:#x}): {what} consumed by a wait or test before");
    }
    Ok(())
}

/// An event was seen complete by a wait or test.
pub fn consume(event: EventValue) {
    if ON && events::root(event) == Some(event) {
        with_consumed(|consumed| {
            if consumed.len() < MOST_CONSUMED {
                consumed.insert(event);
            }
        });
    }
}

/// Flags of a put or get that say where something is.
const SELF_SEG: Flags = 1 << 4 | 1 << 5;
const NEVER_NBRHD: Flags = 1 << 14;
const NEVER_SELF: Flags = 1 << 15;
/// Flags of puts and gets: immediate, where addresses are, who the peer is not.
pub const TRANSFER_FLAGS: Flags = 1 | 0b1111 << 3 | 0b1111 << 7 | NEVER_NBRHD | NEVER_SELF;
/// Flags of messages.
pub const MESSAGE_FLAGS: Flags = 1 | 0b1111 << 3 | 0b1111 << 7 | NEVER_NBRHD | NEVER_SELF;

/// Checks that a call has flags for others than these.
pub fn flags(flags: Flags, known: Flags) -> Result<(), Fail> {
    let unknown = flags & !known;
    ensure!(!ON || unknown == 0, "flags {flags:#x}: bits {unknown:#x} mean nothing here");
    Ok(())
}

/// Checks what a put or get says about its two ends: `len` bytes from `local` on, and a rank.
pub fn transfer(
    state: &State,
    rank: u32,
    (local, len): (usize, usize),
    given: Flags,
) -> Result<(), Fail> {
    if !ON {
        return Ok(());
    }
    flags(given, TRANSFER_FLAGS)?;
    let near = state.inner.local_of(Rank(rank)).is_some();
    ensure!(
        given & NEVER_NBRHD == 0 || !near,
        "flags {given:#x} have GEX_FLAG_PEER_NEVER_NBRHD, and rank {rank} is of this neighbourhood"
    );
    ensure!(
        given & NEVER_SELF == 0 || rank != state.rank,
        "flags {given:#x} have GEX_FLAG_PEER_NEVER_SELF, and rank {rank} is the caller"
    );
    if given & SELF_SEG != 0 {
        let objects = state.objects();
        let segments = objects.endpoints.iter().filter_map(|endpoint| endpoint.segment());
        let mut places =
            segments.map(|segment| (local.wrapping_sub(segment.address), segment.size));
        ensure!(
            places.any(|(offset, size)| offset < size && len <= size - offset),
            "flags {given:#x} say that the local address is in a bound segment of the caller: {len} bytes \
             from {local:#x} on are in none"
        );
    }
    Ok(())
}
