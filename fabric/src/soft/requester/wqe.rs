//! A posted send request.

use crate::soft::wire::{REQUEST, Request, Verb};
use crate::{Opcode, Operation, Status};

/// One posted send request.
#[derive(Clone, Copy, Debug)]
pub(in crate::soft) struct Wqe {
    pub(in crate::soft) id: u64,
    pub(in crate::soft) operation: Operation,
    pub(in crate::soft) len: u32,
    pub(in crate::soft) sges: u8,
    pub(in crate::soft) signaled: bool,
    pub(in crate::soft) inline: bool,
    /// Its data has come (reads and additions).
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

    pub(in crate::soft) const fn awaits_data(&self) -> bool {
        matches!(self.operation, Operation::Read { .. } | Operation::FetchAdd { .. })
    }

    pub(in crate::soft) const fn opcode(&self) -> Opcode {
        match self.operation {
            Operation::Send { .. } => Opcode::Send,
            Operation::Write { .. } => Opcode::Write,
            Operation::Read { .. } => Opcode::Read,
            Operation::FetchAdd { .. } => Opcode::FetchAdd,
        }
    }

    /// Bytes on the wire.
    pub(in crate::soft) const fn size(&self) -> usize {
        match self.operation {
            Operation::Read { .. } => REQUEST,
            Operation::FetchAdd { .. } => REQUEST + 8,
            _ => REQUEST + self.len as usize,
        }
    }

    pub(in crate::soft) fn header(&self, msn: u32) -> [u8; REQUEST + 8] {
        let (verb, add) = match self.operation {
            Operation::Send { imm } => (Verb::Send { imm, credit_limit: self.credit_limit }, 0),
            Operation::Write { remote, rkey } => (Verb::Write { remote, rkey }, 0),
            Operation::Read { remote, rkey } => (Verb::Read { remote, rkey }, 0),
            Operation::FetchAdd { remote, rkey, add } => (Verb::FetchAdd { remote, rkey }, add),
        };
        let want_ack = self.signaled && matches!(self.operation, Operation::Write { .. });
        let request = Request { verb, len: self.len, msn, ack: self.ack, want_ack };
        let mut out = [0; REQUEST + 8];
        out[..REQUEST].copy_from_slice(&request.encode());
        out[REQUEST..].copy_from_slice(&add.to_le_bytes());
        out
    }

    pub(in crate::soft) const fn header_len(&self) -> usize {
        if matches!(self.operation, Operation::FetchAdd { .. }) { REQUEST + 8 } else { REQUEST }
    }
}
