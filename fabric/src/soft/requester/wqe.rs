//! A posted send request.

use crate::soft::wire::{REQUEST, Request};
use crate::{Operation, Status};

/// Most bytes of a request's header, with operands of an atomic.
pub(in crate::soft) const HEADER: usize = REQUEST + 16;

#[derive(Clone, Copy, Debug)]
pub(in crate::soft) struct Wqe {
    pub(in crate::soft) id: u64,
    pub(in crate::soft) operation: Operation,
    pub(in crate::soft) len: u32,
    pub(in crate::soft) sges: u8,
    pub(in crate::soft) signaled: bool,
    pub(in crate::soft) inline: bool,
    /// Its data has come (reads and atomics).
    pub(in crate::soft) answered: bool,
    /// Found wrong before it was sent.
    pub(in crate::soft) fault: Option<Status>,
    /// Acknowledgement that goes with it.
    pub(in crate::soft) ack: Option<u32>,
    /// Messages of the peer that there were receives for when it was posted.
    pub(in crate::soft) credit_limit: u32,
}

impl Wqe {
    pub(in crate::soft) const EMPTY: Self = Self {
        id: 0,
        operation: Operation::Send { imm: None },
        len: 0,
        sges: 0,
        signaled: false,
        inline: false,
        answered: false,
        fault: None,
        ack: None,
        credit_limit: 0,
    };

    /// Bytes on the wire.
    pub(in crate::soft) const fn size(&self) -> usize {
        match self.operation {
            Operation::Read { .. } => REQUEST,
            _ if self.operation.is_atomic() => self.header_len(),
            _ => REQUEST + self.len as usize,
        }
    }

    pub(in crate::soft) fn header(&self, msn: u32) -> [u8; HEADER] {
        let Self { operation, credit_limit, len, ack, .. } = *self;
        let want_ack = self.signaled && matches!(operation, Operation::Write { .. });
        let request = Request { operation, credit_limit, len, msn, ack, want_ack };
        let (first, second) = match operation {
            Operation::FetchAdd { add, .. } => (add, 0),
            Operation::CompareSwap { compare, swap, .. } => (compare, swap),
            _ => (0, 0),
        };
        let mut out = [0; HEADER];
        out[..REQUEST].copy_from_slice(&request.encode());
        out[REQUEST..REQUEST + 8].copy_from_slice(&first.to_le_bytes());
        out[REQUEST + 8..].copy_from_slice(&second.to_le_bytes());
        out
    }

    pub(in crate::soft) const fn header_len(&self) -> usize {
        match self.operation {
            Operation::FetchAdd { .. } => REQUEST + 8,
            Operation::CompareSwap { .. } => REQUEST + 16,
            _ => REQUEST,
        }
    }
}
