//! Endpoint and team: registration of handlers and active-message requests.

use bootstrap::Rank;

use crate::client::Client;
use crate::error::Error;
use crate::handler::{Entry, HandlerIndex};
use crate::message::{Flags, Outcome};
use crate::mode::Mode;
use crate::negotiate::{PreparedRequestLong, PreparedRequestMedium};
use crate::segment::SegmentOffset;

/// Where messages arrive. There is one per process so far.
pub struct Endpoint<'c, M: Mode> {
    pub(crate) client: &'c Client<M>,
}

impl<M: Mode> Endpoint<'_, M> {
    /// Registers handlers: entries with a fixed index first, then the others in table order, each at the highest free index.
    /// All or none. Local: barrier before peers send to them. Legal at any time, any number of times.
    ///
    /// # Errors
    /// Index out of range or taken, no index free, a table over 128 entries, more than 16 arguments.
    pub fn register(&self, entries: &mut [Entry<M>]) -> Result<(), Error> {
        let _ = (self.client, entries);
        todo!()
    }
}

/// A set of ranks to talk to; so far the team of all ranks.
pub struct Team<'c, M: Mode> {
    pub(crate) client: &'c Client<M>,
}

impl<M: Mode> Team<'_, M> {
    /// This process's rank in the team.
    #[must_use]
    pub fn rank(&self) -> Rank {
        self.client.rank()
    }

    /// Ranks in the team.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.client.size()
    }

    /// Sends a request without payload. May run handlers of other messages while it waits for room.
    ///
    /// # Errors
    /// A rank outside the team, too many arguments, a call inside a handler, the end of the job.
    pub fn request_short(
        &self,
        rank: Rank,
        handler: HandlerIndex,
        args: &[i32],
        flags: Flags,
    ) -> Result<Outcome, Error> {
        let _ = (rank, handler, args, flags);
        todo!()
    }

    /// Sends a request with a payload that is delivered into a buffer of the library. `payload` may be used again on return.
    ///
    /// # Errors
    /// As [`Team::request_short`]; also a payload over [`Team::max_request_medium`].
    pub fn request_medium(
        &self,
        rank: Rank,
        handler: HandlerIndex,
        payload: &[u8],
        args: &[i32],
        flags: Flags,
    ) -> Result<Outcome, Error> {
        let _ = (rank, handler, payload, args, flags);
        todo!()
    }

    /// Sends a request whose payload is written to `dest` in the target's segment before the handler runs.
    ///
    /// # Errors
    /// As [`Team::request_medium`]; also a destination outside the target's segment.
    pub fn request_long(
        &self,
        rank: Rank,
        handler: HandlerIndex,
        payload: &[u8],
        dest: SegmentOffset,
        args: &[i32],
        flags: Flags,
    ) -> Result<Outcome, Error> {
        let _ = (rank, handler, payload, dest, args, flags);
        todo!()
    }

    /// Prepares a Medium request of `least` to `most` bytes with `nargs` arguments, with the client's buffer or one of the
    /// library. Until commit or cancel only local questions and exit are legal on this thread. `None` only with
    /// [`Flags::IMMEDIATE`].
    ///
    /// # Errors
    /// As [`Team::request_medium`]; also `least` above `most`.
    pub fn prepare_request_medium<'t>(
        &'t self,
        rank: Rank,
        client_buf: Option<&'t [u8]>,
        least: usize,
        most: usize,
        nargs: usize,
        flags: Flags,
    ) -> Result<Option<PreparedRequestMedium<'t, M>>, Error> {
        let _ = (rank, client_buf, least, most, nargs, flags);
        todo!()
    }

    /// Prepares a Long request. `dest` may be given now (and must then be repeated at commit) or only at commit.
    ///
    /// # Errors
    /// As [`Team::prepare_request_medium`].
    #[expect(clippy::too_many_arguments, reason = "the negotiation has this many terms")]
    pub fn prepare_request_long<'t>(
        &'t self,
        rank: Rank,
        client_buf: Option<&'t [u8]>,
        least: usize,
        most: usize,
        dest: Option<SegmentOffset>,
        nargs: usize,
        flags: Flags,
    ) -> Result<Option<PreparedRequestLong<'t, M>>, Error> {
        let _ = (rank, client_buf, least, most, dest, nargs, flags);
        todo!()
    }

    /// Most payload bytes of a Medium request to `rank` (`None`: to any rank) with `nargs` arguments.
    #[must_use]
    pub fn max_request_medium(&self, rank: Option<Rank>, nargs: usize) -> usize {
        let _ = (rank, nargs);
        todo!()
    }
}
