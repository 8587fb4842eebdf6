//! Endpoint and team: registration of handlers and active-message requests.

use std::sync::Arc;

use bootstrap::Rank;

use crate::client::Client;
use crate::coll::Group;
use crate::error::Error;
use crate::handler::{Entry, HandlerIndex};
use crate::long_payload::SegmentOffset;
use crate::mode::Mode;
use crate::negotiate::{PreparedMessage, PreparedRequestLong, PreparedRequestMedium, Terms};
use crate::rank::RankContext;
use crate::transport::limits::max_reply_long;
use crate::transport::message::{self, AmMessage, AmPayload, Flags, MessageClass, Outcome};

/// Where messages arrive. There is one per process so far.
#[derive(Debug)]
pub struct Endpoint<'c, M: Mode> {
    pub(crate) client: &'c Client<M>,
}

impl<M: Mode> Endpoint<'_, M> {
    /// Registers handlers: entries with a fixed index first, then the others in table order, each
    /// at the highest free index. All or none. Local: barrier before peers send to them. Legal at
    /// any time, any number of times.
    ///
    /// # Errors
    /// Index out of range or taken, no index free, a table over 128 entries, more than 16
    /// arguments.
    pub fn register(&self, entries: &mut [Entry<M>]) -> Result<(), Error> {
        self.client.context.handlers.register(entries)
    }
}

/// A set of ranks to talk to, and what this rank is among them. Ranks in its calls are those of the
/// team. There is the team of all ranks ([`Client::team`]); others are made of it by
/// [`Team::split`] and [`Team::create`].
#[derive(Debug)]
pub struct Team<'c, M: Mode> {
    pub(crate) client: &'c Client<M>,
    /// `None` for the team of all ranks.
    pub(crate) group: Option<Arc<Group>>,
}

impl<M: Mode> Team<'_, M> {
    pub(crate) fn context(&self) -> &RankContext {
        &self.client.context
    }

    /// Its members.
    pub(crate) fn group(&self) -> &Arc<Group> {
        self.group.as_ref().unwrap_or(&self.client.context.collectives.whole)
    }

    /// Where messages for a rank of the team go.
    #[inline]
    fn target(&self, call: &'static str, rank: Rank) -> Result<usize, Error> {
        match &self.group {
            None => self.context().target(call, rank),
            Some(_) => self.context().target(call, self.job_rank_of(call, rank)?),
        }
    }

    fn checked_target(&self, call: &'static str, rank: Rank) -> Result<usize, Error> {
        self.context().rma_target::<M>(call, self.job_rank_of(call, rank)?)
    }

    fn job_rank_of(&self, call: &'static str, rank: Rank) -> Result<Rank, Error> {
        let outside = || Error::RankOutOfRange { call, rank, size: self.size() };
        self.job_rank(rank).ok_or_else(outside)
    }

    /// This process's rank in the team.
    #[must_use]
    pub fn rank(&self) -> Rank {
        Rank(self.group().rank())
    }

    /// Ranks in the team.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.group().size()
    }

    /// Rank in the job of a rank of the team; `None` for one that the team does not have.
    #[must_use]
    #[inline]
    pub fn job_rank(&self, rank: Rank) -> Option<Rank> {
        self.group().job_rank(rank.0).map(Rank)
    }

    /// Rank in the team of a rank of the job; `None` for one that is no member.
    #[must_use]
    #[inline]
    pub fn rank_of(&self, job: Rank) -> Option<Rank> {
        self.group().rank_of(job.0).map(Rank)
    }

    #[inline]
    fn message<'m>(
        &self,
        call: &'static str,
        rank: Rank,
        handler: HandlerIndex,
        args: &'m [i32],
        payload: AmPayload<'m>,
    ) -> Result<AmMessage<'m>, Error> {
        let target = self.target(call, rank)?;
        let message =
            AmMessage { class: MessageClass::Request, target, handler: handler.0, args, payload };
        message.check(call)?;
        Ok(message)
    }

    /// Sends a request without payload. May run handlers of messages that have arrived; waits (and
    /// polls) for room.
    ///
    /// # Errors
    /// A rank outside the team, too many arguments, a call inside a handler, the end of the job.
    #[inline]
    pub fn request_short(
        &self,
        rank: Rank,
        handler: HandlerIndex,
        args: &[i32],
        flags: Flags,
    ) -> Result<Outcome, Error> {
        let call = "request_short";
        let message = self.message(call, rank, handler, args, AmPayload::None)?;
        self.context().request::<M>(call, &message, flags)
    }

    /// Sends a request with a payload that is delivered into a buffer of the library. `payload` may
    /// be used again on return.
    ///
    /// # Errors
    /// As [`Team::request_short`]; also a payload over [`Team::max_request_medium`].
    #[inline]
    pub fn request_medium(
        &self,
        rank: Rank,
        handler: HandlerIndex,
        payload: &[u8],
        args: &[i32],
        flags: Flags,
    ) -> Result<Outcome, Error> {
        let call = "request_medium";
        let message = self.message(call, rank, handler, args, AmPayload::Medium(payload))?;
        self.context().request::<M>(call, &message, flags)
    }

    /// Sends a request whose payload is written to `dest` in the target's segment before the
    /// handler runs. Without payload any `dest` will do, and no segment is needed. With
    /// [`Flags::IMMEDIATE`] and [`Outcome::NotSent`] the contents of the destination are undefined.
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
        let call = "request_long";
        let context = self.context();
        let message =
            self.message(call, rank, handler, args, AmPayload::Long { payload, dest: dest.0 })?;
        context.check_outside::<M>(call)?;
        let full = !context.has_room::<M>(message.target, MessageClass::Request, args.len());
        if flags.contains(Flags::IMMEDIATE) && full {
            return Ok(Outcome::NotSent);
        }
        context.check_open(call)?;
        let message = context.placed(call, message)?;
        let send = |message: &AmMessage<'_>| context.request::<M>(call, message, flags);
        context.send_lent::<M>(call, &message, flags, &(), send)
    }

    /// Prepares a Medium request of `least` to `most` bytes with `nargs` arguments, with the
    /// client's buffer or one of the library. `None` only with [`Flags::IMMEDIATE`].
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
        let call = "prepare_request_medium";
        let target = self.checked_target(call, rank)?;
        let terms = (Terms::medium(call, (least, most), nargs), client_buf);
        PreparedMessage::medium(self.context(), (target, None), terms, flags)
    }

    /// Prepares a Long request. `dest` may be given now (and must then be repeated at commit) or
    /// only at commit. Never waits.
    ///
    /// # Errors
    /// As [`Team::prepare_request_medium`].
    pub fn prepare_request_long<'t>(
        &'t self,
        rank: Rank,
        client_buf: Option<&'t [u8]>,
        least: usize,
        most: usize,
        dest: Option<SegmentOffset>,
        nargs: usize,
    ) -> Result<PreparedRequestLong<'t, M>, Error> {
        let call = "prepare_request_long";
        let target = self.checked_target(call, rank)?;
        let terms = (Terms::long(call, (least, most), nargs, dest), client_buf);
        PreparedMessage::long(self.context(), (target, None), terms)
    }

    /// Most payload bytes of a Medium request to `rank` (`None`: to any rank of the team) with
    /// `nargs` arguments; with the `LEAST` flags the largest legal `least` of a prepare. 0 for more
    /// than [`MAX_ARGS`](crate::MAX_ARGS) arguments.
    #[must_use]
    pub const fn max_request_medium(
        &self,
        rank: Option<Rank>,
        nargs: usize,
        flags: Flags,
    ) -> usize {
        let _ = (rank, flags);
        message::medium_limit(nargs)
    }

    /// As [`Team::max_request_medium`] for Medium replies.
    #[must_use]
    pub const fn max_reply_medium(&self, rank: Option<Rank>, nargs: usize, flags: Flags) -> usize {
        self.max_request_medium(rank, nargs, flags)
    }

    /// As [`Team::max_request_medium`] for Long requests.
    #[must_use]
    pub const fn max_request_long(&self, rank: Option<Rank>, nargs: usize, flags: Flags) -> usize {
        let _ = rank;
        if flags.contains(Flags::LEAST_ALLOC) {
            message::long_alloc_limit(nargs)
        } else {
            message::MAX_LONG
        }
    }

    /// As [`Team::max_request_long`] for Long replies.
    #[must_use]
    pub fn max_reply_long(&self, rank: Option<Rank>, nargs: usize, flags: Flags) -> usize {
        let limit = max_reply_long(self.context().settings.segment_mode);
        self.max_request_long(rank, nargs, flags).min(limit)
    }
}
