//! Atomics at ranks that share no memory with this one: by their adapters, where those do what the
//! domain has, else by messages: the owner of the word does the operation in its handler and replies
//! with the old value. Any number may be in flight.

use std::sync::Arc;

use super::domain::Domain;
use super::offload::{Favor, Offload, offload, word_op};
use super::pending::{InFlight, Memory, ResultPlace};
use super::types::{AtomicOps, Update};
use super::wire::{Refusal, Request, decode_reply, encode_reply};
use super::word::{AtomicCall, AtomicWord};
use crate::data_type::DataType;
use crate::error::Error;
use crate::foreign::ANY_ARGS;
use crate::handler::{Function, Registered, Role};
use crate::mode::Mode;
use crate::rank::RankContext;
use crate::rma::operations::{OpCounters, Part};
use crate::rma::remote::RemoteOp;
use crate::token::RawToken;
use crate::transport::message::{AmMessage, AmPayload, Flags, MessageClass, Outcome};
use crate::transport::net::{AtomicCap, FetchedBy, NetTransport, Sent, Small, WordOp};
use crate::transport::op_counter::OpCounter;
use crate::transport::shm::ShmTransport;
use crate::transport::{OutsideSegment, Route};
use crate::wait::Waiter;

/// Handler of requests; below the client's indices.
const REQUEST: u8 = 80;
/// Handler of replies.
const REPLY: u8 = 81;

/// An operation that the owner of the word is asked to do.
#[derive(Clone, Copy, Debug)]
pub struct RemoteAtomic {
    /// What the program called.
    pub call: &'static str,
    /// Whose word it is.
    pub target: usize,
    /// Endpoint that its segment is bound to.
    pub endpoint: u16,
    /// Offset in that segment, or what else the owner finds the word by ([`Memory`]).
    pub place: u64,
    /// The word of its [`Place`](crate::inner::Place), where adapters find it.
    pub word: Option<u64>,
    /// The operation, which the domain allows.
    pub atomic: AtomicCall,
    /// Give up instead of waiting for room.
    pub immediate: bool,
}

/// The word at an offset in a neighbour's segment.
fn word(shm: &ShmTransport, local: usize, offset: u64, of: DataType) -> Option<AtomicWord<'_>> {
    match of.size() {
        4 => shm.word32(local, offset).map(AtomicWord::Bits32),
        _ => shm.word64(local, offset).map(AtomicWord::Bits64),
    }
}

/// Where an operation is started.
impl RankContext {
    /// What adapters do of a domain, the same on all members of its team. `together`: they all
    /// share memory.
    #[must_use]
    pub fn offload(
        &self,
        (data_type, operations): (DataType, AtomicOps),
        favor: Favor,
        together: bool,
    ) -> Offload {
        let net = self.transport.net().filter(|_| self.settings.segment_mode.is_fast());
        let cap = net.map_or(AtomicCap::None, NetTransport::atomics);
        offload(cap, (data_type, operations), favor, together)
    }

    /// The word at an offset in the attached segment of a target; `None` when only its owner or an
    /// adapter may operate on it.
    ///
    /// # Errors
    /// Outside the segment, or not at a multiple of its size.
    #[inline]
    pub(crate) fn atomic_word(
        &self,
        call: &'static str,
        (target, offset): (usize, u64),
        domain: &Domain,
    ) -> Result<Option<AtomicWord<'_>>, Error> {
        let of = domain.data_type();
        let len = of.size();
        if !offset.is_multiple_of(len as u64) {
            return Err(Error::Misaligned { call, offset, align: len as u64 });
        }
        if self.transport.is_any_memory(offset) {
            return Ok(None);
        }
        let found = match self.transport.route(target) {
            Route::Shm(local) => word(self.shm(), local, offset, of)
                .map(|word| (domain.offload() != Offload::All).then_some(word))
                .ok_or(OutsideSegment { target, offset, len }),
            Route::Net(rank) => self.transport.check_remote(rank, offset, len).map(|()| None),
        };
        found.map_err(|outside| self.outside(call, outside))
    }

    /// Asks the owner of a word, or an adapter, for an operation that `row` counts. It waits for
    /// room, and polls, unless told not to; then nothing may have been sent.
    ///
    /// # Errors
    /// A call inside a handler, too many operations in flight, the end of the job.
    pub fn atomic_counted<M: Mode>(
        &self,
        domain: &Domain,
        remote: &RemoteAtomic,
        row: &Arc<OpCounters>,
        result: ResultPlace,
    ) -> Result<Outcome, Error> {
        let &RemoteAtomic { call, target, atomic, .. } = remote;
        let begun = InFlight::begin((call, target), atomic.op, row, domain.counter(), result);
        let slot = match self.atomics.pending.keep(begun) {
            Ok(slot) => slot,
            Err(begun) => {
                begun.end(None);
                return Err(Error::TooManyOperations { call });
            }
        };
        let offloaded = domain.offload() != Offload::None;
        let sent = match (word_op(atomic).filter(|_| offloaded), remote.word) {
            (Some(op), Some(word)) => {
                self.post_atomic::<M>(remote, (word, op), slot, row.of_atomic(atomic.op))
            }
            // An owner that shares its memory operates on it as its neighbours do.
            _ => self.ask_owner::<M>(remote, slot),
        };
        if !matches!(sent, Ok(Outcome::Sent))
            && let Some(unsent) = self.atomics.pending.take(slot, target)
        {
            unsent.end(None);
        }
        sent
    }

    fn ask_owner<M: Mode>(&self, remote: &RemoteAtomic, slot: u32) -> Result<Outcome, Error> {
        let &RemoteAtomic { call, target, endpoint, place, atomic, immediate, .. } = remote;
        let words = Request { slot, endpoint, place, call: atomic }.encode();
        let (class, args, payload) = (MessageClass::Request, words.as_slice(), AmPayload::None);
        let message = AmMessage { class, target, handler: REQUEST, args, payload };
        let flags = if immediate { Flags::IMMEDIATE } else { Flags::NONE };
        self.request::<M>(call, &message, flags)
    }

    /// Has an adapter do it; the operation is kept in `slot`.
    fn post_atomic<M: Mode>(
        &self,
        remote: &RemoteAtomic,
        (word, op): (u64, WordOp),
        slot: u32,
        counter: &Arc<OpCounter>,
    ) -> Result<Outcome, Error> {
        let to = (self.rank_of(remote.target), word);
        let by: FetchedBy = (Arc::clone(&self.atomics.pending) as _, slot);
        let mut waiter = Waiter::for_room();
        loop {
            let post = |net: &NetTransport| net.atomic(to, op, &by, counter);
            match self.transport.net().map_or(Ok(Sent::Full), post)? {
                Sent::Yes => return Ok(Outcome::Sent),
                Sent::Full if remote.immediate => return Ok(Outcome::NotSent),
                Sent::Full => self.wait_for_room::<M>(remote.call, &mut waiter)?,
            }
        }
    }

    /// An operation at a remote rank that is complete on return: what it fetches. `None`: no adapter
    /// does it, or it goes another way ([`RankContext::small`]).
    #[inline]
    pub(crate) fn atomic_by_adapter<M: Mode>(
        &self,
        call: &'static str,
        (target, offset): (usize, u64),
        domain: &Domain,
        atomic: AtomicCall,
    ) -> Option<Result<u64, Error>> {
        if domain.offload() == Offload::None
            || !self.transport.is_remote(target)
            || !offset.is_multiple_of(size_of::<u64>() as u64)
        {
            return None;
        }
        let what = Small::Atomic(word_op(atomic)?);
        let op = RemoteOp { call, target, offset, immediate: false };
        Some(self.small::<M>(op, what)?.map(|done| done.word(0)))
    }

    /// Waits (and polls) until all that `row` counts is complete.
    ///
    /// # Errors
    /// The end of the job.
    pub(crate) fn wait_atomics<M: Mode>(
        &self,
        call: &'static str,
        row: &OpCounters,
    ) -> Result<(), Error> {
        self.wait_for_ends::<M>(call, || row.is_complete(Part::ALL))
    }
}

/// Where messages arrive.
impl RankContext {
    /// Registers the handlers; before the first meeting of the ranks.
    pub(crate) fn register_atomics<M: Mode>(&self) {
        let request = |token: &RawToken<'_>, words: &[i32]| {
            token.context.on_atomic_request::<M>(token, words);
        };
        let reply = |token: &RawToken<'_>, words: &[i32]| {
            token.context.on_atomic_reply::<M>(token, words);
        };
        let rows = [
            (REQUEST, "atomic", Role::Request, Function::Short(Box::new(request))),
            (REPLY, "result of an atomic", Role::Reply, Function::Short(Box::new(reply))),
        ];
        for (index, name, role, function) in rows {
            let row = Registered::new(index, name.to_owned(), ANY_ARGS, role, function);
            self.handlers.register_library(row);
        }
    }

    /// Says how this rank finds its own words, if not by offsets in its attached segment.
    pub fn set_atomic_memory(&self, memory: Memory) {
        let _first = self.atomics.memory.set(memory);
    }

    /// A word of this rank that another one asks for.
    fn own_word(&self, request: &Request) -> Result<AtomicWord<'_>, Refusal> {
        let (of, place) = (request.call.data_type, request.place);
        if request.endpoint == 0 && self.settings.segment_mode.is_everything() {
            return self.word_in_memory(place, of.size(), request.call.op.update() != Update::Get);
        }
        if let Some(find) = self.atomics.memory.get() {
            return find(request.endpoint, place, of.size());
        }
        if !place.is_multiple_of(of.size() as u64) {
            return Err(Refusal::Misaligned);
        }
        let found = word(self.shm(), self.shm().local(), place, of);
        found.filter(|_| request.endpoint == 0).ok_or(Refusal::Outside)
    }

    fn on_atomic_request<M: Mode>(&self, token: &RawToken<'_>, words: &[i32]) {
        let Some(request) = Request::decode(words) else {
            return self.malformed_atomic("request", token, words);
        };
        let done = self.own_word(&request).and_then(|word| {
            let old = word.perform(request.call).ok_or(Refusal::Misaligned)?;
            Ok(request.call.op.fetches().then_some(old))
        });
        let words = encode_reply(request.slot, done);
        // Answered before: nothing is left to be said.
        let _answered = token.answer::<M>("atomic", REPLY, words.as_slice(), AmPayload::None);
    }

    fn on_atomic_reply<M: Mode>(&self, token: &RawToken<'_>, words: &[i32]) {
        let reply = decode_reply(words).and_then(|(slot, outcome)| {
            Some((self.atomics.pending.take(slot, token.source)?, outcome))
        });
        match reply {
            Some((operation, Ok(old))) if operation.fits(old) => operation.end(old),
            Some((operation, Err(refusal))) => self.fatal(&format!(
                "{} of rank {}: rank {} does not do it: {}",
                operation.call,
                self.rank_info.rank,
                token.source(),
                refusal.text()
            )),
            _ => self.malformed_atomic("reply", token, words),
        }
        if M::THREADED {
            // Another thread of this rank may sleep for it.
            self.shm().wake_own();
        }
    }

    #[cold]
    fn malformed_atomic(&self, what: &str, token: &RawToken<'_>, words: &[i32]) {
        let (rank, source) = (self.rank_info.rank, token.source());
        self.fatal(&format!(
            "rank {rank} received a malformed {what} of an atomic from rank {source}: words {words:?}"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::super::types::AtomicOp;
    use super::*;
    use crate::{Client, Seq, Settings};

    #[test]
    fn words_that_a_request_may_not_touch_are_refused() {
        let services = bootstrap::memory::job(1).expect("a job").remove(0);
        let client = Client::<Seq>::with_bootstrap("TEST", services, Settings::default());
        let client = client.expect("init");
        let seen = |endpoint, place, data_type| {
            let call = AtomicCall { data_type, op: AtomicOp::FInc, operands: [0; 2] };
            let request = Request { slot: 0, endpoint, place, call };
            client.context.own_word(&request).map(|word| word.perform(call))
        };
        assert_eq!(seen(0, 0, DataType::U64), Err(Refusal::Outside), "nothing is attached");
        let segment = client.attach_segment(4096).expect("attach");
        assert_eq!(seen(0, 4088, DataType::U64), Ok(Some(0)));
        assert_eq!(seen(0, 4088, DataType::U64), Ok(Some(1)));
        assert_eq!(seen(0, 4092, DataType::U64), Err(Refusal::Misaligned));
        assert_eq!(seen(0, 4092, DataType::I32), Ok(Some(0)));
        for (endpoint, place) in [(0, 4096), (0, u64::MAX - 7), (1, 0), (u16::MAX, 8)] {
            assert_eq!(seen(endpoint, place, DataType::F64), Err(Refusal::Outside), "{place}");
        }
        let word = segment.atomic_u64(4088).expect("the last word");
        let expected = 1 << 32 | 2;
        assert_eq!(word.load(std::sync::atomic::Ordering::Relaxed), expected);
    }
}
