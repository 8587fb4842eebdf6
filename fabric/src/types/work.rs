//! Work requests and completions.

use crate::device::AddressHandle;

/// A fragment of local memory, by the key of the region that holds it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sge {
    /// Address in this process.
    pub addr: u64,
    /// Bytes.
    pub len: u32,
    /// [`crate::Region::lkey`].
    pub lkey: u32,
}

/// What a send request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A message into the peer's next receive buffer.
    Send {
        /// 32 bits beside it.
        imm: Option<u32>,
    },
    /// A write to remote memory.
    Write {
        /// Address at the peer.
        remote: u64,
        /// [`crate::Region::rkey`] at the peer.
        rkey: u32,
    },
    /// A write that uses up the peer's next receive once its data is there. That receive's completion
    /// ([`Opcode::ReceivedWrite`]) has the number and the length; its buffer is left alone.
    WriteImm {
        /// Address at the peer.
        remote: u64,
        /// [`crate::Region::rkey`] at the peer.
        rkey: u32,
        /// 32 bits beside it.
        imm: u32,
    },
    /// A read from remote memory into the (local, writable) data.
    Read {
        /// Address at the peer.
        remote: u64,
        /// Key at the peer.
        rkey: u32,
    },
    /// Adds to a remote 8-byte word; its old value goes to the (local, writable, 8 bytes) data.
    FetchAdd {
        /// Address at the peer, a multiple of 8.
        remote: u64,
        /// Key at the peer.
        rkey: u32,
        /// What to add.
        add: u64,
    },
    /// Puts a value into a remote 8-byte word if the word is as expected; its old value goes to the
    /// (local, writable, 8 bytes) data in any case.
    CompareSwap {
        /// Address at the peer, a multiple of 8.
        remote: u64,
        /// Key at the peer.
        rkey: u32,
        /// What the word is expected to be.
        compare: u64,
        /// What it becomes then.
        swap: u64,
    },
}

impl Operation {
    /// What its completion is of.
    pub(crate) const fn opcode(&self) -> Opcode {
        match self {
            Self::Send { .. } => Opcode::Send,
            Self::Write { .. } | Self::WriteImm { .. } => Opcode::Write,
            Self::Read { .. } => Opcode::Read,
            Self::FetchAdd { .. } => Opcode::FetchAdd,
            Self::CompareSwap { .. } => Opcode::CompareSwap,
        }
    }

    /// Whether data comes back from the peer.
    pub(crate) const fn awaits_data(&self) -> bool {
        matches!(self, Self::Read { .. }) || self.is_atomic()
    }

    /// Whether it is done on a word of 8 bytes, whose old value comes back.
    pub(crate) const fn is_atomic(&self) -> bool {
        matches!(self, Self::FetchAdd { .. } | Self::CompareSwap { .. })
    }
}

/// Data of a send request.
#[derive(Clone, Copy, Debug)]
pub enum Data<'a> {
    /// Fragments of registered memory, not to be changed until completion.
    Gather(&'a [Sge]),
    /// Bytes that are taken during the post, in this order; together at most
    /// [`crate::QueuePair::max_inline`]. Not for reads and atomics.
    Inline(&'a [&'a [u8]]),
}

impl Data<'_> {
    /// How many fragments, or slices of bytes.
    pub(crate) const fn parts(&self) -> usize {
        match self {
            Self::Gather(list) => list.len(),
            Self::Inline(list) => list.len(),
        }
    }

    /// Bytes together.
    #[inline]
    pub(crate) fn total(&self) -> u64 {
        match self {
            Self::Gather(list) => list.iter().map(|sge| u64::from(sge.len)).sum(),
            Self::Inline(list) => list.iter().map(|bytes| bytes.len() as u64).sum(),
        }
    }
}

/// Where a datagram goes.
#[derive(Clone, Copy, Debug)]
pub struct UdTarget<'a> {
    /// Its port.
    pub handle: &'a (dyn AddressHandle + 'static),
    /// Its queue pair.
    pub qpn: u32,
    /// Its key.
    pub qkey: u32,
}

/// A send request.
#[derive(Clone, Copy, Debug)]
pub struct SendWr<'a> {
    /// Comes back in the completion.
    pub id: u64,
    /// What to do.
    pub operation: Operation,
    /// With what.
    pub data: Data<'a>,
    /// Whether success makes a completion. Failure always does. (A send queue slot of an
    /// unsignalled request is free when a later signalled one completes.)
    pub signaled: bool,
    /// For datagrams only, and always for them.
    pub to: Option<UdTarget<'a>>,
}

/// A receive request. A datagram's first 40 bytes are a GRH (or undefined). One of 0 bytes names no
/// memory: it takes empty messages and writes with immediate data.
#[derive(Clone, Copy, Debug)]
pub struct RecvWr {
    /// Comes back in the completion.
    pub id: u64,
    /// Where to.
    pub buffer: Sge,
}

/// How a work request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Well.
    Success,
    /// The message was longer than the buffer.
    LocalLength,
    /// The queue pair was in a wrong state, or an internal error.
    LocalQp,
    /// A local key did not cover the data.
    LocalProtection,
    /// The queue pair failed before; this request was not done.
    Flushed,
    /// A bad message at the peer.
    RemoteInvalid,
    /// A remote key did not cover the range, or did not allow it.
    RemoteAccess,
    /// The peer could not complete it.
    RemoteOperation,
    /// The peer did not answer.
    RetryExceeded,
    /// The peer had no receive buffer.
    RnrRetryExceeded,
    /// Anything else, by the number that verbs gives it.
    Other(u32),
}

/// What a completion is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opcode {
    /// A send.
    Send,
    /// A write.
    Write,
    /// A read.
    Read,
    /// A fetch-and-add.
    FetchAdd,
    /// A compare-and-swap.
    CompareSwap,
    /// A receive.
    Receive,
    /// A receive that a write with immediate data has used up.
    ReceivedWrite,
}

/// The end of a work request. When `status` is not success only `id`, `status`, `qpn` and `vendor`
/// count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// As posted.
    pub id: u64,
    /// How it ended.
    pub status: Status,
    /// What it was.
    pub opcode: Opcode,
    /// The vendor's detail of an error.
    pub vendor: u32,
    /// Bytes received (a datagram's with its 40 bytes of GRH), or written with immediate data.
    pub len: u32,
    /// Immediate data of a received message.
    pub imm: Option<u32>,
    /// The local queue pair.
    pub qpn: u32,
    /// A datagram's sender.
    pub source_qpn: u32,
}

impl Completion {
    /// Room to poll into.
    pub const EMPTY: Self = Self {
        id: 0,
        status: Status::Success,
        opcode: Opcode::Send,
        len: 0,
        imm: None,
        qpn: 0,
        source_qpn: 0,
        vendor: 0,
    };
}
