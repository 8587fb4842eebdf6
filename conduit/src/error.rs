//! What can go wrong, by operation.

use bootstrap::Rank;

use crate::handler_index::HandlerIndex;

/// Why a call of the conduit failed. Texts say what was seen and what is legal.
///
/// `Debug` shows the text too: it is what a `main` that returns the error prints.
#[derive(thiserror::Error)]
pub enum Error {
    /// The bootstrap layer failed; the job cannot go on.
    #[error(transparent)]
    Bootstrap(#[from] bootstrap::Error),
    /// A second init.
    #[error("init was called before: a process joins its job once")]
    InitTwice,
    /// An environment variable has a value that cannot be used.
    #[error(transparent)]
    Variable(#[from] settings::Error),
    /// A setting has a value that cannot be used.
    #[error("setting {name}: {problem}")]
    Setting {
        /// Variable.
        name: &'static str,
        /// What is wrong and what is legal.
        problem: String,
    },
    /// The defaults of the installation cannot be used.
    #[error("{0}")]
    Defaults(String),
    /// The network could not be set up, or a connection failed.
    #[error("{0}")]
    Network(String),
    /// More one-sided operations in flight than can be counted.
    #[error("{call}: too many operations are in flight: wait for some of them")]
    TooManyOperations {
        /// Call.
        call: &'static str,
    },
    /// The system refused an operation.
    #[error("cannot {operation}: {source}")]
    Os {
        /// What was tried.
        operation: &'static str,
        /// Why not.
        source: std::io::Error,
    },
    /// Ranks of one job disagree on how shared memory is laid out.
    #[error(
        "rank {rank}: shared memory of the host has layout {seen:#018x}, this rank has {mine:#018x}: the ranks of a job must run the same build of the library with the same GASNET_* settings"
    )]
    LayoutMismatch {
        /// This rank.
        rank: Rank,
        /// Fingerprint found.
        seen: u64,
        /// Fingerprint of this rank.
        mine: u64,
    },
    /// A second attach.
    #[error("the segment is attached already: a process attaches one segment, once")]
    SegmentAttached,
    /// A segment size that is not possible.
    #[error(
        "segment of {len} bytes: the size must be a multiple of the page size {page} and at most {max} bytes on this rank (GASNET_MAX_SEGSIZE)"
    )]
    SegmentSize {
        /// Bytes asked for.
        len: u64,
        /// Page size.
        page: u64,
        /// Largest size.
        max: u64,
    },
    /// A rank outside the team.
    #[error("{call}: rank {rank} is not in the team of {size} ranks")]
    RankOutOfRange {
        /// Call.
        call: &'static str,
        /// Rank given.
        rank: Rank,
        /// Team size.
        size: u32,
    },
    /// A call about a team, or a collective, that cannot be.
    #[error("{call}: {problem}")]
    Team {
        /// Call.
        call: &'static str,
        /// What is wrong and what is legal.
        problem: String,
    },
    /// A remote range outside the peer's segment.
    #[error(
        "{call}: bytes {offset}..{end} are outside the segment of rank {rank} ({segment} bytes)"
    )]
    OutsideSegment {
        /// Call.
        call: &'static str,
        /// Owner of the segment.
        rank: Rank,
        /// First byte.
        offset: u64,
        /// One past the last byte, saturated.
        end: u64,
        /// Bytes of the segment; 0 before it is attached.
        segment: u64,
    },
    /// A word of the segment at an odd place.
    #[error("{call}: offset {offset} is not a multiple of {align}")]
    Misaligned {
        /// Call.
        call: &'static str,
        /// Offset given.
        offset: u64,
        /// Alignment needed.
        align: u64,
    },
    /// A vector, indexed or strided transfer that cannot be.
    #[error("{call}: {problem}")]
    BadTransfer {
        /// Call.
        call: &'static str,
        /// What is wrong, and what is legal.
        problem: String,
    },
    /// An atomic operation, or a domain of them, that cannot be.
    #[error("{call}: {problem}")]
    Atomic {
        /// Call.
        call: &'static str,
        /// What was asked for and what is possible.
        problem: String,
    },
    /// A value of more than 8 bytes, or of none.
    #[error("{call}: a value has 1 to 8 bytes, {len} were asked for")]
    ValueSize {
        /// Call.
        call: &'static str,
        /// Bytes asked for.
        len: usize,
    },
    /// Handler index outside the client's range.
    #[error("handler index {index} is outside {}..=255", HandlerIndex::FIRST_CLIENT)]
    HandlerIndexRange {
        /// Index given.
        index: u8,
    },
    /// Handler index in use.
    #[error("handler index {index} is registered already (by {name:?})")]
    HandlerIndexTaken {
        /// Index given.
        index: u8,
        /// Name of the handler that has it.
        name: String,
    },
    /// No free handler index.
    #[error(
        "no handler index is free: an endpoint has 128, {left} entries of the table are without one"
    )]
    HandlerTableFull {
        /// Entries without index.
        left: usize,
    },
    /// A table longer than the index range.
    #[error("a table of {count} handlers: an endpoint has room for 128")]
    HandlerTableSize {
        /// Entries.
        count: usize,
    },
    /// The entry's function was moved into an endpoint by an earlier call.
    #[error("entry {name:?} of the handler table was registered before; make a new entry")]
    HandlerSpent {
        /// Entry.
        name: String,
    },
    /// More arguments than a message can carry.
    #[error("{call}: {count} arguments, a message carries at most {}", crate::MAX_ARGS)]
    TooManyArgs {
        /// Call.
        call: &'static str,
        /// Arguments given.
        count: usize,
    },
    /// Commit with another number of arguments than Prepare.
    #[error(
        "{call}: {given} arguments given, {promised} were announced when the message was prepared"
    )]
    ArgCount {
        /// Call.
        call: &'static str,
        /// Arguments given.
        given: usize,
        /// Arguments announced.
        promised: usize,
    },
    /// Payload over the limit.
    #[error("{call}: payload of {len} bytes, at most {max} are possible here")]
    PayloadSize {
        /// Call.
        call: &'static str,
        /// Bytes given.
        len: usize,
        /// Largest legal payload.
        max: usize,
    },
    /// Least payload above the most payload.
    #[error("{call}: least payload {least} is above most payload {most}")]
    PayloadBounds {
        /// Call.
        call: &'static str,
        /// Least.
        least: usize,
        /// Most.
        most: usize,
    },
    /// The destination named at Prepare and at Commit differ.
    #[error("{call}: destination differs from the one given when the message was prepared")]
    DestinationChanged {
        /// Call.
        call: &'static str,
    },
    /// A second reply, or a reply from a reply handler.
    #[error("{call}: {problem}")]
    Reply {
        /// Call.
        call: &'static str,
        /// Which rule is broken.
        problem: &'static str,
    },
    /// A call that is not legal inside a handler.
    #[error(
        "{call} inside an active-message handler: handlers may only reply and ask local questions"
    )]
    InHandler {
        /// Call.
        call: &'static str,
    },
    /// Barrier calls out of order.
    #[error("{call}: {problem}")]
    BarrierOrder {
        /// Call.
        call: &'static str,
        /// Which rule is broken.
        problem: &'static str,
    },
    /// The ids or flags of a barrier do not fit together.
    #[error("barrier ids do not match")]
    BarrierMismatch,
    /// The end of the job is decided; communication is over.
    #[error("the job is ending with code {code}: no communication is possible any more")]
    JobEnding {
        /// Code that the job ends with.
        code: i32,
    },
    /// Communication after this process began to exit.
    #[error("{call} after exit was called")]
    AfterExit {
        /// Call.
        call: &'static str,
    },
}

impl std::fmt::Debug for Error {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, formatter)
    }
}
