//! Numbers of what waits for an answer. Pure.

/// Number of a packet in flight. An old number is never taken for a later packet's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

impl Ticket {
    pub(crate) const fn to_wire(self) -> [i32; 2] {
        [self.slot.cast_signed(), self.generation.cast_signed()]
    }

    pub(crate) const fn of(slot: i32, generation: i32) -> Self {
        Self { slot: slot.cast_unsigned(), generation: generation.cast_unsigned() }
    }
}
