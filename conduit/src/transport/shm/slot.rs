//! A slot of the queue that all senders share: a state word and a message.

use std::cell::UnsafeCell;

use super::map::SharedLayout;
use super::packet::{LINE, Packet, Post, Raw};
use crate::sys::atomic::{AtomicU32, Ordering};

/// A state word and the message in the rest of the same 128 bytes.
#[repr(C, align(128))]
pub(crate) struct Slot(UnsafeCell<Raw>);

// SAFETY: `state` is an atomic view of the first word; the rest is written by the one producer that
// claimed the position and read by the consumer after the state was published.
unsafe impl SharedLayout for Slot {}
// SAFETY: as above.
unsafe impl Sync for Slot {}

/// State of a slot whose message of a position is complete.
#[expect(clippy::cast_possible_truncation, reason = "the state is the low word of the position")]
const fn complete(position: u64) -> u32 {
    (position as u32).wrapping_add(1)
}

impl Slot {
    /// Any bytes are a slot.
    #[cfg(test)]
    pub(super) const fn of(raw: Raw) -> Self {
        Self(UnsafeCell::new(raw))
    }

    #[inline]
    fn state(&self) -> &AtomicU32 {
        // SAFETY: the first word of the slot is only ever accessed as this atomic.
        unsafe { AtomicU32::from_ptr(self.0.get().cast()) }
    }

    /// Whether the message of a position is complete.
    #[inline(always)]
    pub(super) fn holds(&self, position: u64) -> bool {
        self.state().load(Ordering::Acquire) == complete(position)
    }

    /// The message of a position is complete.
    #[inline(always)]
    pub(super) fn publish(&self, position: u64) {
        self.state().store(complete(position), Ordering::Release);
    }

    /// Writes a message.
    ///
    /// # Safety
    /// The caller alone accesses the slot until it publishes it. At most 16 arguments, and the
    /// payload fits beside them.
    #[inline(always)]
    pub(super) unsafe fn write(&self, post: &Post<'_>) {
        // SAFETY: as the caller promises.
        unsafe { post.write(self.0.get()) };
    }

    /// Copies the message, its second line only when it needs it.
    ///
    /// # Safety
    /// The slot is published and stays unchanged meanwhile.
    #[inline(always)]
    pub(super) unsafe fn copy_to(&self, packet: &mut Packet) {
        let (from, to) = (self.0.get().cast::<u8>(), (&raw mut packet.0).cast::<u8>());
        // SAFETY: unchanged, as the caller promises; a slot and a packet have the same size and are
        // different memory. Any bytes are a packet.
        unsafe { to.copy_from_nonoverlapping(from, LINE) };
        if packet.extent() > LINE {
            // SAFETY: as above, the second line.
            #[expect(clippy::multiple_unsafe_ops_per_block, reason = "two addresses, one copy")]
            unsafe {
                to.add(LINE).copy_from_nonoverlapping(from.add(LINE), LINE);
            }
        }
    }
}
