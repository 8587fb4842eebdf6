//! The network: messages, puts and gets between ranks that share no memory.
//!
//! [`Network`] is there only when some rank of the job is outside the neighbourhood. It never runs a handler itself: arrived
//! messages go to a [`Sink`]. It never waits for a peer's program, only (where a method says so) for the device to finish
//! what was posted. `docs/design/am.md` has the protocol.

mod am;
mod choice;
mod connect;
mod error;
mod family;
mod list;
mod ops;
mod ports;
mod settings;
mod sizes;
mod topology;

use std::cell::Cell;
use std::sync::Arc;

use bootstrap::page::HostPage;
use bootstrap::{Bootstrap, Rank};

pub(crate) use self::am::pool::{LastingMemory, RawTarget};
pub(crate) use self::error::Error;
pub(crate) use self::ops::OpCounter;
use crate::mode::Mode;

/// Handler numbers below this one are the library's own.
pub(crate) const FIRST_CLIENT_HANDLER: u8 = 64;

/// One active message to a remote rank.
#[derive(Debug)]
pub(crate) struct Outgoing<'a> {
    /// Target, outside this rank's neighbourhood.
    pub(crate) to: Rank,
    /// A reply; sent with [`Network::reply`].
    pub(crate) reply: bool,
    /// Of the library: then `handler` is below [`FIRST_CLIENT_HANDLER`]. Such messages need no credits.
    pub(crate) internal: bool,
    /// Handler at the target; 0 is the network's own.
    pub(crate) handler: u8,
    /// At most 16.
    pub(crate) args: &'a [i32],
    /// Payload.
    pub(crate) load: Freight<'a>,
}

/// What a message carries.
#[derive(Debug)]
pub(crate) enum Freight<'a> {
    /// A Short.
    None,
    /// A Medium; copied before the call returns.
    Medium(&'a [u8]),
    /// A Long to `dest`, an offset in the target's attached segment; the payload is free when the call returns.
    Long {
        /// Source.
        payload: &'a [u8],
        /// Destination.
        dest: u64,
    },
    /// A Medium in a buffer of the library, which the client filled. Taken out only when the message was sent.
    Buffer {
        /// From [`Network::buffer`].
        buffer: &'a mut Option<SendBuffer>,
        /// Payload bytes in it.
        len: u32,
    },
    /// A Long (always packed) in a buffer of the library.
    LongBuffer {
        /// From [`Network::buffer`].
        buffer: &'a mut Option<SendBuffer>,
        /// Payload bytes in it.
        len: u32,
        /// Destination.
        dest: u64,
    },
}

/// What became of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Sent {
    /// Posted.
    Yes,
    /// No credit, buffer or slot, or not connected yet: poll and try again.
    Full,
}

/// What a poll looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Poll {
    /// Everything.
    All,
    /// Completions of sends, and messages of the library; messages of the client are kept for a later poll. Takes no lock:
    /// for exit paths.
    Internal,
    /// Completions of sends only: what a rank inside a handler may look at.
    SendsOnly,
}

/// An arrived message.
#[derive(Debug)]
pub(crate) struct Incoming<'a> {
    /// Sender.
    pub(crate) source: Rank,
    /// A reply.
    pub(crate) reply: bool,
    /// Of the library.
    pub(crate) internal: bool,
    /// Handler number.
    pub(crate) handler: u8,
    /// Arguments, at most 16.
    pub(crate) args: &'a [i32],
    /// Payload.
    pub(crate) load: Arrived<'a>,
    /// How to reply to it.
    pub(crate) ticket: &'a Ticket,
}

/// The payload of an arrived message.
#[derive(Debug)]
pub(crate) enum Arrived<'a> {
    /// A Short.
    None,
    /// A Medium, aligned to 8; gone when the sink returns.
    Medium(&'a mut [u8]),
    /// A Long that is in this rank's attached segment already. Inside it: checked.
    Long {
        /// First byte, as an offset in the own segment.
        offset: u64,
        /// Bytes.
        len: usize,
    },
}

/// What the network calls for an arrived message. Must not call [`Network::poll`] with more than [`Poll::SendsOnly`].
pub(crate) trait Sink {
    /// A message has arrived.
    fn arrived(&self, message: Incoming<'_>);
}

/// How to reply to an arrived message. Made by the network, valid during the call of the sink.
#[derive(Debug)]
pub(crate) struct Ticket {
    source: Rank,
    rail: u32,
    request: bool,
    replied: Cell<bool>,
}

impl Ticket {
    /// Whether a reply was sent.
    pub(crate) const fn is_replied(&self) -> bool {
        self.replied.get()
    }
}

/// The ranks of the job as the network sees them.
#[derive(Clone, Debug)]
pub(crate) struct Members {
    /// This rank.
    pub(crate) rank: Rank,
    /// Ranks of the job.
    pub(crate) size: u32,
    /// Ranks of this rank's neighbourhood with itself, ascending.
    pub(crate) neighbours: Vec<Rank>,
    /// Hosts of the job.
    pub(crate) hosts: u32,
    /// This host's page.
    pub(crate) page: Arc<HostPage>,
    /// This rank's slot in it: its index among the ranks of the host.
    pub(crate) slot: u32,
}

impl Members {
    /// Whether a rank is reached over the network.
    pub(crate) fn is_remote(&self, rank: Rank) -> bool {
        rank.0 < self.size && self.neighbours.binary_search(&rank).is_err()
    }
}

/// A buffer of the library that the client fills for a negotiated payload. Goes back when dropped.
#[derive(Debug)]
pub(crate) struct SendBuffer {
    bytes: Box<[u8]>,
}

impl SendBuffer {
    /// Room for the payload.
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

/// The local end of a put, and how much of it was posted. Memory outside attached segments is copied while the put is
/// posted; memory inside is read by the device until the operation is locally complete.
#[derive(Debug)]
pub(crate) struct RawSource<'a> {
    /// What is left.
    bytes: &'a [u8],
    /// Bytes posted so far.
    done: u64,
}

impl<'a> RawSource<'a> {
    /// All of `bytes` is to be put.
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, done: 0 }
    }
}

/// The network of one rank.
#[derive(Debug)]
pub(crate) struct Network {
    members: Members,
}

#[allow(unused_variables)]
impl Network {
    /// Collective. `None` when every rank is in this neighbourhood.
    ///
    /// # Errors
    /// No usable device, settings that cannot be met, ranks that do not fit together.
    pub(crate) fn start(
        settings: &bootstrap::vars::Settings,
        members: &Members,
        services: &mut dyn Bootstrap,
    ) -> Result<Option<Self>, Error> {
        Ok(None)
    }

    /// One attempt. Starts a connection when there is none. Runs no handlers. Waits only for an unpacked Long, and then for
    /// the device to have taken the payload.
    ///
    /// # Errors
    /// A message that cannot be sent at all, or a lost connection.
    pub(crate) fn try_send<M: Mode>(&self, message: &mut Outgoing<'_>) -> Result<Sent, Error> {
        Ok(Sent::Full)
    }

    /// Replies inside the sink's call; waits for completions of sends, runs no handlers. `Full` only when the network is
    /// closing.
    ///
    /// # Errors
    /// As [`Network::try_send`].
    pub(crate) fn reply<M: Mode>(
        &self,
        ticket: &Ticket,
        message: &mut Outgoing<'_>,
    ) -> Result<Sent, Error> {
        Ok(Sent::Full)
    }

    /// A buffer for a negotiated payload of at most 65528 bytes; `None`: none is free, poll and try again. `reply`: inside a
    /// handler, where the last buffers may be used.
    pub(crate) fn buffer<M: Mode>(&self, reply: bool) -> Option<SendBuffer> {
        None
    }

    /// Takes arrived messages and completions, a bounded number, and calls `sink` for each message. Returns how many things
    /// happened.
    ///
    /// # Errors
    /// A failed completion (not while closing), a malformed message.
    pub(crate) fn poll<M: Mode>(&self, sink: &dyn Sink, what: Poll) -> Result<usize, Error> {
        Ok(0)
    }

    /// Whether a poll would certainly find something. A hint: completions of the device do not count.
    pub(crate) fn has_work(&self) -> bool {
        false
    }

    /// Before a sleep: completions from now on ring the rank's doorbell. Poll once more after it.
    ///
    /// # Errors
    /// The device refuses.
    pub(crate) fn arm(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Collective, once, after each rank has its segment (which may be empty): registers it and exchanges addresses and keys.
    ///
    /// # Errors
    /// The device cannot register the memory; the exchange fails.
    pub(crate) fn attach(
        &self,
        memory: LastingMemory,
        services: &mut dyn Bootstrap,
    ) -> Result<(), Error> {
        Ok(())
    }

    /// Bytes of a rank's attached segment; 0 before attach.
    pub(crate) fn segment_len(&self, rank: Rank) -> u64 {
        0
    }

    /// Posts as much of a put as there is room for. `Yes`: all of it; `Full`: poll and call again with the same source.
    ///
    /// # Errors
    /// A range outside the target's segment, a lost connection.
    pub(crate) fn put<M: Mode>(
        &self,
        to: Rank,
        offset: u64,
        source: &mut RawSource<'_>,
        completion: &Arc<OpCounter>,
    ) -> Result<Sent, Error> {
        Ok(Sent::Full)
    }

    /// Posts as much of a get as there is room for, as [`Network::put`].
    ///
    /// # Errors
    /// As [`Network::put`].
    pub(crate) fn get<M: Mode>(
        &self,
        from: Rank,
        offset: u64,
        into: &mut RawTarget,
        completion: &Arc<OpCounter>,
    ) -> Result<Sent, Error> {
        Ok(Sent::Full)
    }

    /// From now on failed completions are ignored: the job is ending. Safe in signal handlers.
    pub(crate) fn quiet(&self) {}

    /// Stops threads and closes queue pairs, bounded by a named deadline. Nothing may be called afterwards.
    pub(crate) fn close(&self) {}
}
