//! The client: a program's hold on the library.

use std::sync::Arc;

use bootstrap::{Bootstrap, Rank};

use crate::core::Core;
use crate::endpoint::{Endpoint, Team};
use crate::error::Error;
use crate::event::Scope;
use crate::mode::{Mode, Seq};
use crate::segment::Segment;
use crate::settings::Settings;

/// How a blocking call waits when there is nothing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitMode {
    /// Poll without giving the processor away (where there is one for every rank of the host).
    Spin,
    /// Give the processor away after each poll that found nothing; sleep soon.
    Block,
    /// Poll for a while, then yield, then sleep. The default.
    SpinBlock,
}

/// Position of this rank among the sets of its job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// Neighbourhoods in the job.
    pub neighbourhoods: u32,
    /// This rank's neighbourhood among them.
    pub neighbourhood: u32,
    /// Hosts in the job.
    pub hosts: u32,
    /// This rank's host among them.
    pub host: u32,
}

/// The library as one program sees it. `M` says how the program's threads use it.
pub struct Client<M: Mode = Seq> {
    pub(crate) core: Arc<Core>,
    marker: M::Marker,
}

impl<M: Mode> Client<M> {
    /// Joins the job that this process was started in (a job of one rank when no launcher started it). Collective over the job,
    /// once per process; contains a barrier. Reads the `GASNET_*` settings, installs the exit machinery.
    ///
    /// `name` is for diagnostics and the same on all ranks.
    ///
    /// # Errors
    /// No job, bad settings, no memory, a placement that needs a network.
    pub fn init(name: &str) -> Result<Self, Error> {
        let _ = name;
        todo!()
    }

    /// As [`Client::init`] over given bootstrap services and settings, without anything process-wide: no exit hook, no
    /// signal handler. Several such clients may live in one process, each on a thread of its own (each a rank).
    ///
    /// # Errors
    /// As [`Client::init`].
    pub fn with_bootstrap(
        name: &str,
        bootstrap: Box<dyn Bootstrap>,
        settings: Settings,
    ) -> Result<Self, Error> {
        let _ = (name, bootstrap, settings);
        todo!()
    }

    /// Name given at init.
    #[must_use]
    pub fn name(&self) -> &str {
        let _ = &self.marker;
        todo!()
    }

    /// This rank.
    #[must_use]
    pub fn rank(&self) -> Rank {
        self.core.place().rank
    }

    /// Ranks in the job.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.core.place().size
    }

    /// The primordial endpoint.
    #[must_use]
    pub fn endpoint(&self) -> Endpoint<'_, M> {
        Endpoint { client: self }
    }

    /// The team of all ranks.
    #[must_use]
    pub fn team(&self) -> Team<'_, M> {
        Team { client: self }
    }

    /// Job ranks on this host, ascending, this one included.
    #[must_use]
    pub fn host_ranks(&self) -> Vec<Rank> {
        todo!()
    }

    /// Job ranks that share memory with this one, ascending, this one included.
    #[must_use]
    pub fn neighbours(&self) -> Vec<Rank> {
        todo!()
    }

    /// Where this rank stands among hosts and neighbourhoods.
    #[must_use]
    pub fn position(&self) -> Position {
        todo!()
    }

    /// Runs handlers of messages that have arrived; a bounded number per call.
    ///
    /// # Errors
    /// Inside a handler; the end of the job.
    pub fn poll(&self) -> Result<(), Error> {
        todo!()
    }

    /// Polls until `condition` holds; it is asked before the first poll and after each. Waits by the wait mode.
    ///
    /// # Errors
    /// As [`Client::poll`].
    pub fn block_until(&self, condition: impl FnMut() -> bool) -> Result<(), Error> {
        let _ = condition;
        todo!()
    }

    /// Says how blocking calls of this process wait from now on.
    pub fn set_wait_mode(&self, mode: WaitMode) {
        let _ = mode;
        todo!()
    }

    /// Largest segment of this rank, a multiple of the page size.
    #[must_use]
    pub fn max_local_segment(&self) -> u64 {
        todo!()
    }

    /// Smallest of the [`Client::max_local_segment`] of all ranks.
    #[must_use]
    pub fn max_global_segment(&self) -> u64 {
        todo!()
    }

    /// Attaches a segment of `len` bytes (a multiple of the page size; may differ between ranks). Collective over the
    /// job, once; contains a barrier.
    ///
    /// # Errors
    /// A second attach, an impossible size, no memory.
    pub fn attach_segment(&self, len: u64) -> Result<Segment, Error> {
        let _ = len;
        todo!()
    }

    /// Copies `source` to `offset` in `rank`'s segment; complete on return.
    ///
    /// # Errors
    /// A rank outside the team, a range outside its segment, the end of the job.
    pub fn put(&self, rank: Rank, offset: u64, source: &[u8]) -> Result<(), Error> {
        let _ = (rank, offset, source);
        todo!()
    }

    /// Copies from `offset` in `rank`'s segment; complete on return.
    ///
    /// # Errors
    /// As [`Client::put`].
    pub fn get(&self, rank: Rank, offset: u64, into: &mut [u8]) -> Result<(), Error> {
        let _ = (rank, offset, into);
        todo!()
    }

    /// Writes the low `len` (1 to 8) bytes of `value`, native order.
    ///
    /// # Errors
    /// As [`Client::put`]; also a bad `len`.
    pub fn put_value(&self, rank: Rank, offset: u64, value: u64, len: usize) -> Result<(), Error> {
        let _ = (rank, offset, value, len);
        todo!()
    }

    /// Reads `len` (1 to 8) bytes, native order, zero extended.
    ///
    /// # Errors
    /// As [`Client::put_value`].
    pub fn get_value(&self, rank: Rank, offset: u64, len: usize) -> Result<u64, Error> {
        let _ = (rank, offset, len);
        todo!()
    }

    /// Runs `body` with a scope for non-blocking operations ([`Scope::put_nb`], …) and waits for all of them.
    ///
    /// # Errors
    /// The end of the job while waiting.
    pub fn scope<'env, T>(
        &'env self,
        body: impl for<'scope> FnOnce(&'scope Scope<'scope, 'env, M>) -> T,
    ) -> Result<T, Error> {
        let _ = body;
        todo!()
    }

    /// Ends the job with `code`. Collective by intent: the codes of the ranks are reduced by maximum; a rank that does not
    /// follow in time is ended. Never returns.
    pub fn exit(&self, code: i32) -> ! {
        let _ = code;
        todo!()
    }
}
