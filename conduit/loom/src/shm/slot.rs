//! The product's slot with the message in a cell of loom: two threads in it at once fail the model.

use loom::cell::UnsafeCell;

use super::packet::{Packet, Post};
use crate::sys::atomic::{AtomicU32, Ordering};

pub(crate) struct Slot {
    state: AtomicU32,
    message: UnsafeCell<Packet>,
}

fn complete(position: u64) -> u32 {
    (position as u32).wrapping_add(1)
}

impl Slot {
    pub(crate) fn new() -> Self {
        Self { state: AtomicU32::new(0), message: UnsafeCell::new(Packet::empty()) }
    }

    pub(super) fn holds(&self, position: u64) -> bool {
        self.state.load(Ordering::Acquire) == complete(position)
    }

    pub(super) fn publish(&self, position: u64) {
        self.state.store(complete(position), Ordering::Release);
    }

    pub(super) unsafe fn write(&self, post: &Post<'_>) {
        // SAFETY: loom sees to it that nobody else is in the cell.
        self.message.with_mut(|message| unsafe { post.write(&raw mut (*message).0) });
    }

    pub(super) unsafe fn copy_to(&self, packet: &mut Packet) {
        // SAFETY: as above, for writers.
        self.message.with(|message| unsafe { packet.0 = (*message).0 });
    }
}
