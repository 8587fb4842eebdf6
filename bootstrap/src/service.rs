//! The service trait and the values around it.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, send};
use settings::deadlines::bootstrap::ANNOUNCE;

pub use crate::rank::{HostId, Rank, RankInfo};

use crate::frame::{Frame, FrameError, Kind};
use crate::node_shm::{NodeShm, NodeShmError};
use crate::sys::{ANNOUNCE_SLICE_MS, poll_one};

/// How an exit began on a rank; carried to the agent so that the summary can say it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::FromRepr)]
#[repr(u32)]
pub enum ExitPath {
    /// The program asked for it (`exit`, `gasnet_exit`).
    Explicit = 0,
    /// Return from `main` or `exit(3)`.
    Hook = 1,
    /// A termination signal.
    Signal = 2,
    /// An exit request of another rank or of the agent.
    Remote = 3,
}

impl ExitPath {
    /// Reads the wire form; unknown numbers read as `Explicit`.
    #[must_use]
    pub fn from_wire(value: u32) -> Self {
        Self::from_repr(value).unwrap_or(Self::Explicit)
    }
}

/// Result of an exchange: `size * len` bytes ordered by rank. Behind it is one mapping of memory
/// shared by all ranks of the host where the provider can do that, else owned bytes.
#[derive(Clone)]
pub enum Shared {
    /// Memory of this process.
    Owned(Vec<u8>),
    /// Read-only mapping of memory shared by the host.
    Mapped(Arc<crate::sys::Mapping>),
    /// A place of the node memory, until the last clone is dropped.
    Slot(crate::node_shm::SlotRef),
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Shared({} bytes)", self.len())
    }
}

impl std::ops::Deref for Shared {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Owned(bytes) => bytes,
            Self::Mapped(map) => map.bytes(),
            Self::Slot(lent) => lent.bytes(),
        }
    }
}

/// Why a bootstrap call failed. Every variant ends the job: after an error no further call is
/// possible.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each message names its fields")]
pub enum Error {
    /// The system refused an operation.
    #[error("bootstrap: cannot {operation}: {source}")]
    Os { operation: &'static str, source: std::io::Error },
    /// The agent is gone.
    #[error("bootstrap: the node agent closed the connection during {during}")]
    Lost { during: &'static str },
    /// The agent or a peer sent something that is not a legal frame.
    #[error("bootstrap: bad frame during {during}: {source}")]
    Frame { during: &'static str, source: FrameError },
    /// A legal frame at the wrong time, or with the wrong contents.
    #[error("bootstrap: protocol error during {during}: {seen}")]
    Protocol { during: &'static str, seen: String },
    /// The provider refused the call and said why.
    #[error("bootstrap: {during} refused: {reason}")]
    Refused { during: &'static str, reason: String },
    /// A deadline passed.
    #[error("bootstrap: {during} not complete after {waited_ms} ms (deadline {deadline})")]
    Deadline { during: &'static str, deadline: &'static str, waited_ms: u64 },
    /// The end of the job is decided; the call will not complete.
    #[error("bootstrap: {during} given up: the job is ending with code {}", .decision.code)]
    Ending { during: &'static str, decision: crate::node_shm::ExitDecision },
    /// The environment announces something that cannot be true.
    #[error("bootstrap: environment variable {name}={value:?}: {problem}")]
    Environment { name: &'static str, value: String, problem: String },
    /// Another launcher started this process as one of several, and this library cannot talk to
    /// that launcher.
    #[error(
        "bootstrap: {launcher} started this program as one of {announced}{}",
        match rank {
            Some(1..) => "; process 0 says why they cannot be a job".to_owned(),
            _ => format!(
                " ({variable}={value:?}), but this build cannot join such a job, and running each process as a job of \
                 its own would be wrong; {advice}"
            ),
        }
    )]
    Launcher {
        launcher: &'static str,
        variable: &'static str,
        value: String,
        announced: String,
        /// Number of this process there, if it is told.
        rank: Option<u32>,
        advice: &'static str,
    },
    /// The program was asked to start itself as a job and cannot.
    #[error("bootstrap: {0}")]
    SelfStart(#[from] crate::self_start::SelfStartError),
    /// The process manager that started this rank cannot serve it.
    #[error("bootstrap: {0}")]
    Provider(Box<dyn std::error::Error + Send + Sync>),
    /// The caller's arguments are wrong.
    #[error("bootstrap: {during}: {problem}")]
    Argument { during: &'static str, problem: String },
}

impl Error {
    /// Whether another process of the job has the same to say and says it for all.
    #[must_use]
    pub const fn is_said_elsewhere(&self) -> bool {
        matches!(self, Self::Launcher { rank: Some(1..), .. })
    }

    /// The system refused `operation`.
    pub fn os<E: Into<std::io::Error>>(operation: &'static str) -> impl Fn(E) -> Self {
        move |source| Self::Os { operation, source: source.into() }
    }
}

impl From<NodeShmError> for Error {
    fn from(error: NodeShmError) -> Self {
        let source = match error {
            NodeShmError::Os { source, .. } => source,
            other @ NodeShmError::Layout { .. } => std::io::Error::other(other),
        };
        Self::Os { operation: "create the node's shared memory", source }
    }
}

/// Name of the service that a rank calls with frames of this kind; as in [`Bootstrap`].
#[must_use]
pub const fn call_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Hello | Kind::Welcome => "hello",
        Kind::Barrier => "barrier",
        Kind::Exchange => "exchange",
        Kind::Alltoall => "alltoall",
        Kind::Broadcast => "broadcast",
        Kind::NbrhdBroadcast => "neighbourhood broadcast",
        Kind::HostBroadcast => "host broadcast",
        Kind::HostMemory => "host memory",
        Kind::Fini => "fini",
        _ => "notification",
    }
}

/// The nine bootstrap services (and host memory). Object safe and byte oriented.
///
/// "Collective" means called by every rank of the job, in the same order, with lengths that agree.
/// None of the calls polls the network. Calls are numbered; a provider refuses calls that do not
/// match between ranks.
pub trait Bootstrap: Send {
    /// Who this rank is.
    fn rank_info(&self) -> RankInfo;

    /// The page that this host's ranks and agent share. Same object for the whole job.
    fn node_shm(&self) -> &Arc<NodeShm>;

    /// A handle for exit paths. See [`ExitNotifier`].
    fn exit_notifier(&self) -> ExitNotifier;

    /// Collective. Returns when every rank has called it.
    ///
    /// # Errors
    /// Lost agent, passed deadline, mismatched call.
    fn barrier(&mut self) -> Result<(), Error>;

    /// Collective allgather: `mine` has the same length on all ranks; the result is `size *
    /// mine.len()` bytes ordered by rank.
    ///
    /// # Errors
    /// As [`Bootstrap::barrier`]; also lengths that differ between ranks.
    fn exchange(&mut self, mine: &[u8]) -> Result<Shared, Error>;

    /// Collective all-to-all: `rows` is `size` rows of `len` bytes, row `j` goes to rank `j`; the
    /// result is `size` rows, row `i` from rank `i`.
    ///
    /// # Errors
    /// As [`Bootstrap::exchange`]; also `rows.len() != size * len`.
    fn alltoall(&mut self, rows: &[u8], len: usize) -> Result<Vec<u8>, Error>;

    /// Collective: every rank gets `root`'s `data`. Lengths must agree.
    ///
    /// # Errors
    /// As [`Bootstrap::exchange`]; also a root outside the job or not the same on all ranks.
    fn broadcast(&mut self, root: Rank, data: &mut [u8]) -> Result<(), Error>;

    /// Collective over the job; `root` is a rank of the caller's neighbourhood and agrees inside
    /// each neighbourhood.
    ///
    /// # Errors
    /// As [`Bootstrap::broadcast`].
    fn neighbourhood_broadcast(&mut self, root: Rank, data: &mut [u8]) -> Result<(), Error>;

    /// Collective over the job; `root` is a rank of the caller's host and agrees on each host.
    ///
    /// # Errors
    /// As [`Bootstrap::broadcast`].
    fn host_broadcast(&mut self, root: Rank, data: &mut [u8]) -> Result<(), Error>;

    /// Collective over the host: memory of `len` bytes, zero filled, shared by the ranks of this
    /// host and by nobody else. All ranks of the host pass the same `len`.
    ///
    /// # Errors
    /// As [`Bootstrap::exchange`]; also no memory.
    fn host_memory(&mut self, len: usize) -> Result<OwnedFd, Error>;

    /// Frees temporary state. May be called repeatedly; services keep working afterwards.
    fn cleanup(&mut self);

    /// Collective farewell with the job's (reduced) exit code: the last service call of this rank,
    /// which ends soon. Waits for the other ranks no longer than the named deadline
    /// `bootstrap.fini`.
    ///
    /// # Errors
    /// As [`Bootstrap::barrier`].
    fn fini(&mut self, code: i32) -> Result<(), Error>;

    /// Not collective: asks the provider to end the whole job with `code` and ends this process
    /// with it.
    fn abort(&mut self, code: i32) -> !;
}

/// How a rank leaves where no agent watches it; [`ExitNotifier`] calls it on exit paths, so the
/// same promises hold as far as the process manager allows.
pub trait Finalizer: std::fmt::Debug + Send + Sync {
    /// Whether the ranks of one host are the whole job, so that its page reaches all of them.
    fn page_reaches_all(&self) -> bool;

    /// Looks whether a rank of this host ended without farewell, and decides the end of the job if
    /// so. Never waits.
    fn look(&self);

    /// This rank dies of a signal; `code` is 128 and its number.
    fn dying(&self, code: i32);

    /// Orderly end of this rank with `code`.
    fn fini(&self, code: i32);

    /// Ends the whole job with `code`.
    fn abort(&self, code: i32);
}

/// What an exit path may tell the provider at any time, from any thread and from signal handlers,
/// also while another thread is inside a collective call. All methods are async-signal-safe: one
/// packet, no allocation, no lock; they wait only when the socket is full, and then no longer than
/// the deadline `bootstrap.announce`.
///
/// It is a name for the provider's connection, not an owner: keep the provider as long as it may be
/// used.
#[derive(Clone, Copy, Debug)]
pub struct ExitNotifier {
    /// Descriptor of the agent's packet socket; -1 where there is no agent (then all methods do
    /// nothing).
    pub(crate) socket: i32,
    pub(crate) rank: u32,
    /// How the process manager that started this rank hears of its end, where it is not an agent.
    pub(crate) finalizer: Option<&'static dyn Finalizer>,
}

impl ExitNotifier {
    /// An exit notifier that reaches nobody.
    pub const NONE: Self = Self { socket: -1, rank: 0, finalizer: None };

    /// An exit notifier of a rank that no agent watches.
    #[must_use]
    pub fn finalizing(rank: Rank, finalizer: &'static dyn Finalizer) -> Self {
        Self { socket: -1, rank: rank.0, finalizer: Some(finalizer) }
    }

    /// Whether what is decided in the node memory reaches all ranks of the job: there is a control
    /// tree, or the job has one host.
    #[must_use]
    pub fn is_connected(self) -> bool {
        self.socket >= 0 || self.finalizer.is_some_and(Finalizer::page_reaches_all)
    }

    /// Whether there is a control tree that decides a non-collective exit in milliseconds. Without
    /// one a rank decides.
    #[must_use]
    pub const fn has_agent(self) -> bool {
        self.socket >= 0
    }

    /// Looks whether a rank of this host ended without farewell, where no agent watches; the end of
    /// the job is then decided in the node memory. For waits that take long; never waits itself.
    pub fn look(self) {
        if let Some(finalizer) = self.finalizer {
            finalizer.look();
        }
    }

    /// This rank dies of a signal now; `code` is 128 and its number. For ranks whose end no agent
    /// sees.
    pub fn dying(self, code: i32) {
        if let Some(finalizer) = self.finalizer {
            finalizer.dying(code);
        }
    }

    /// This rank has begun to exit with `code`.
    pub fn exiting(self, code: i32, path: ExitPath) {
        self.send(Kind::Exiting, code, path as u32);
    }

    /// Orderly end with the job's code; does not wait. (The exit body calls this, not
    /// [`Bootstrap::fini`], when it may run in a signal handler.)
    pub fn fini(self, code: i32) {
        if let Some(finalizer) = self.finalizer {
            return finalizer.fini(code);
        }
        self.send(Kind::Fini, code, 0);
    }

    /// End the whole job with `code`.
    pub fn abort(self, code: i32) {
        if let Some(finalizer) = self.finalizer {
            return finalizer.abort(code);
        }
        self.send(Kind::Abort, code, 0);
    }

    fn send(self, kind: Kind, code: i32, extra: u32) {
        if self.socket < 0 {
            return;
        }
        let mut frame = Frame::bare(kind, 0, self.rank, code.cast_unsigned());
        frame.extra = extra;
        send_best_effort(self.socket, &frame.header(), ANNOUNCE.limit);
    }
}

/// Sends one packet; when there is no room, waits for it for at most `bound`. Errors are dropped
/// because the caller is on its way out. Async-signal-safe.
pub fn send_best_effort(socket: i32, bytes: &[u8], bound: Duration) {
    for _ in 0..=bound.as_millis() / ANNOUNCE_SLICE_MS as u128 {
        match send(socket, bytes, MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT) {
            Err(Errno::EINTR) => {}
            Err(Errno::EAGAIN) => {
                poll_one(socket, libc::POLLOUT, ANNOUNCE_SLICE_MS);
            }
            Ok(_) | Err(_) => return,
        }
    }
}
