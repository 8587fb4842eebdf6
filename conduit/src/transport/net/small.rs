//! Small operations that their caller waits for, one at a time: they take slots of their queues and
//! nothing else. The number of such a request says all of it, its end is counted here, and what it
//! reads comes into registered words.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bootstrap::Rank;
use fabric::{Data, Operation};

use super::atomics::WordOp;
use super::context::NetContext;
use super::error::Error;
use super::memory::pool::Inbox;
use super::peer::{Peer, SmallPath};
use super::pending_ops::{Lone, OpKind, PendingOp, PutNumber};
use super::post::{Sent, Slots};
use super::rma::{OneSided, RESERVE};
use super::signal::Signal;
use super::silent::SilentPuts;
use super::transport::NetTransport;
use crate::mode::Mode;
use crate::trace::{self, Counter};
use crate::transport::op_counter::OpCounter;

const WORD: usize = size_of::<u64>();
const WORDS: usize = 8;
/// Bytes of such a put or get at most.
pub(crate) const MOST_SMALL: usize = WORDS * WORD;

/// What is done at the other rank.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Small<'a> {
    Atomic(WordOp),
    Put(&'a [u8]),
    /// Of so many bytes.
    Get(usize),
}

impl Small<'_> {
    #[inline(always)]
    pub(crate) const fn len(&self) -> usize {
        match self {
            Self::Atomic(_) => WORD,
            Self::Put(bytes) => bytes.len(),
            Self::Get(len) => *len,
        }
    }

    /// As a request for memory of the other rank.
    #[inline(always)]
    const fn request(&self, remote: u64, rkey: u32) -> (OpKind, Operation) {
        match *self {
            Self::Atomic(WordOp::Add(add)) => {
                (OpKind::Atomic, Operation::FetchAdd { remote, rkey, add })
            }
            Self::Atomic(WordOp::CompareSwap { compare, swap }) => {
                (OpKind::Atomic, Operation::CompareSwap { remote, rkey, compare, swap })
            }
            Self::Put(_) => (OpKind::Put, Operation::Write { remote, rkey }),
            Self::Get(_) => (OpKind::Get, Operation::Read { remote, rkey }),
        }
    }
}

/// What became of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum SmallSent {
    /// It is complete.
    Complete,
    UnderWay,
    /// Poll and call again.
    Full,
    /// It cannot be done so.
    Unsuited,
}

/// The right to one such operation, for one call.
pub(crate) struct OneCall<'a> {
    net: &'a NetTransport,
    lone: &'a Lone,
}

impl Drop for OneCall<'_> {
    #[inline]
    fn drop(&mut self) {
        // One that nobody waits for, as the job ends, keeps the words.
        if self.is_complete() {
            self.lone.lent.store(false, Ordering::Release);
        }
    }
}

impl OneCall<'_> {
    /// One attempt to post it; once. With `look`, looks once for its end: an adapter that is a part
    /// of the system has done it when the system returns.
    #[inline(always)]
    pub(crate) fn post(
        &self,
        to: (Rank, u64),
        what: Small<'_>,
        look: bool,
    ) -> Result<SmallSent, Box<Error>> {
        match self.net.inside() {
            Some(inside) => OneSided(inside.context).small(to, what, look),
            None => Ok(SmallSent::Full),
        }
    }

    /// As [`OneCall::post`], when the first attempt found no room.
    #[cold]
    pub(crate) fn post_again(
        &self,
        to: (Rank, u64),
        what: Small<'_>,
    ) -> Result<SmallSent, Box<Error>> {
        self.post(to, what, false)
    }

    #[inline]
    pub(crate) fn is_complete(&self) -> bool {
        self.lone.is_complete()
    }

    /// A word of what it read; of an atomic, the old value.
    #[inline]
    pub(crate) fn word(&self, index: usize) -> u64 {
        self.lone.words.get().map_or(0, |words| words.load(index))
    }

    /// The first bytes of what it read.
    #[inline]
    pub(crate) fn read(&self, into: &mut [u8]) {
        if let Ok(word) = <&mut [u8; WORD]>::try_from(&mut *into) {
            *word = self.word(0).to_ne_bytes();
            return;
        }
        for (index, bytes) in into.chunks_mut(WORD).enumerate() {
            let word = self.word(index).to_ne_bytes();
            bytes.copy_from_slice(&word[..bytes.len()]);
        }
    }
}

impl<'a> OneSided<'a> {
    /// Words of the first rail.
    #[cold]
    fn make_words(self) -> Option<()> {
        let words = Inbox::new(&*self.0.rails.first()?.device, WORDS).ok()?;
        let _ = self.0.lone.words.set(words);
        Some(())
    }

    #[inline(always)]
    fn small(
        self,
        (rank, place): (Rank, u64),
        what: Small<'_>,
        look: bool,
    ) -> Result<SmallSent, Box<Error>> {
        if let Some(way) = self.known_path((rank, place), what) {
            return self.small_by(way, place, what, look);
        }
        match self.small_path((rank, place), what)? {
            Ok((peer, path)) => self.small_by((peer, &path), place, what, look),
            Err(otherwise) => Ok(otherwise),
        }
    }

    /// The way of an operation, where an earlier one has found it.
    #[inline(always)]
    fn known_path(
        self,
        (rank, place): (Rank, u64),
        what: Small<'_>,
    ) -> Option<(&'a Peer, &'a SmallPath)> {
        let peer = self.0.peers.get(rank)?;
        let path = peer.small.get()?;
        path.takes(place, &what).then_some((peer, path))
    }

    /// One attempt to put few bytes, which a counter counts, that of a group if `grouped`. `false`: not
    /// so, or not now.
    #[inline(always)]
    fn put_by(
        self,
        (peer, path): (&'a Peer, &SmallPath),
        place: u64,
        source: &[u8],
        (counter, grouped): (&Arc<OpCounter>, bool),
    ) -> bool {
        let context = self.0;
        let Some(number) = context.pending.number_of(counter) else { return false };
        let run = path.puts.counted_by(number);
        let silent = context.silent.as_ref().filter(|_| grouped);
        let may_be = silent.is_some_and(|silent| silent.may_be(run));
        let Some(slots) = self.small_slots((peer, path), may_be) else { return false };
        let before = silent.filter(|_| slots.signaled).map_or(0, |silent| silent.before(run));
        counter.begin_by(context.sharing, false);
        let to = (path.base.wrapping_add(place), path.rkey);
        let posted = slots.post_write((run, before), to, source);
        match silent {
            _ if !posted => counter.end_by(context.sharing, false),
            Some(silent) if !slots.signaled => silent.posted(run),
            Some(silent) if before > 0 => silent.ended(),
            _ => {}
        }
        posted
    }

    /// Finds the way of an operation, and keeps it for the next ones where it goes to the attached
    /// segment.
    #[inline(never)]
    fn small_path(
        self,
        (rank, place): (Rank, u64),
        what: Small<'_>,
    ) -> Result<Result<(&'a Peer, SmallPath), SmallSent>, Box<Error>> {
        let (context, len) = (self.0, what.len() as u64);
        let aimed = context.segments.reach(rank, place, len, 0)?;
        let Some(peer) = context.connected(rank) else { return Ok(Err(SmallSent::Full)) };
        let mut connections = peer.connections.iter().zip(0..);
        let found = connections.find(|(connection, _)| connection.rail == 0);
        let (Some((connection, index)), Some((remote, rkey))) = (found, aimed) else {
            return Ok(Err(SmallSent::Unsuited));
        };
        if context.lone.words.get().is_none() && self.make_words().is_none() {
            return Ok(Err(SmallSent::Unsuited));
        }
        // A fence follows a put.
        let most_put = if context.fences.is_some() { 0 } else { connection.main.inline };
        let path = SmallPath {
            base: remote.wrapping_sub(place),
            end: place.saturating_add(len),
            rkey,
            connection: index,
            most_put: u16::try_from(most_put).unwrap_or(u16::MAX),
            puts: PutNumber::new(rank, index),
        };
        if let Some(attached) = context.segments.attached(rank).filter(|found| found.holds(place)) {
            let _first = peer.small.set(SmallPath { end: attached.len, ..path });
        }
        if !path.takes(place, &what) {
            return Ok(Err(SmallSent::Unsuited));
        }
        Ok(Ok((peer, path)))
    }

    /// Slots of an operation, `silent` if it may be; `None`: not now.
    #[inline(always)]
    fn small_slots(self, (peer, path): (&'a Peer, &SmallPath), silent: bool) -> Option<Slots<'a>> {
        let send_qp = &peer.connections.get(usize::from(path.connection))?.main;
        let rail = self.0.rails.first()?;
        if silent {
            Slots::take_for_message(rail, send_qp, RESERVE)
        } else {
            Slots::take(rail, send_qp, RESERVE)
        }
    }

    #[inline(always)]
    fn small_by(
        self,
        (peer, path): (&'a Peer, &SmallPath),
        place: u64,
        what: Small<'_>,
        look: bool,
    ) -> Result<SmallSent, Box<Error>> {
        let (context, lone) = (self.0, &self.0.lone);
        let Some(words) = lone.words.get() else { return Ok(SmallSent::Unsuited) };
        let Some(slots) = self.small_slots((peer, path), false) else {
            return Ok(SmallSent::Full);
        };
        let (kind, operation) = what.request(path.base.wrapping_add(place), path.rkey);
        let op = PendingOp::plain(kind, peer.rank, path.connection.into(), true);
        lone.begin();
        let sent = match what {
            Small::Put(source) => {
                context.post_numbered(&slots, operation, Data::Inline(&[source]), &op)
            }
            Small::Get(_) | Small::Atomic(_) => {
                let own = words.own(0, u32::try_from(what.len()).unwrap_or(0));
                context.post_numbered(&slots, operation, Data::Gather(&[own]), &op)
            }
        };
        if !matches!(sent, Ok(Sent::Yes)) {
            lone.end();
            return sent.map(|_| SmallSent::Full);
        }
        match what {
            Small::Put(_) => trace::count(Counter::PutInline, what.len()),
            // What is read goes from the words into the program's memory.
            Small::Get(_) => trace::count(Counter::GetBounce, what.len()),
            Small::Atomic(_) => {}
        }
        let done = look
            && context.rails.len() == 1
            && context.look_for(&slots, op.number(Signal::End { before: 0 }));
        Ok(if done { SmallSent::Complete } else { SmallSent::UnderWay })
    }
}

impl NetContext {
    /// Somebody waits for ends of requests.
    #[inline]
    pub(super) fn await_silent(&self) {
        if self.silent.as_ref().is_some_and(SilentPuts::is_awaited) {
            self.end_silent();
        }
    }

    /// Ends the run of silent puts with a write of no bytes, if there is room for it now.
    #[inline(never)]
    pub(super) fn end_silent(&self) {
        let ended = || {
            let silent = self.silent.as_ref()?;
            let (run, count) = silent.run()?;
            let peer = self.peers.get(run.peer())?;
            let path = peer.small.get()?;
            let slots = OneSided(self).small_slots((peer, path), false)?;
            let before = count.saturating_sub(1);
            let posted = slots.post_write((run, before), (path.base, path.rkey), &[]);
            posted.then(|| silent.ended())
        };
        // Who waits or polls tries again.
        let _ = ended();
    }
}

impl SmallPath {
    /// Whether it is the way of an operation at a place.
    #[inline(always)]
    fn takes(&self, place: u64, what: &Small<'_>) -> bool {
        let fits = match what {
            Small::Put(source) => source.len() <= usize::from(self.most_put),
            Small::Atomic(_) | Small::Get(_) => true,
        };
        fits && place.saturating_add(what.len() as u64) <= self.end
    }
}

impl NetTransport {
    /// One attempt to put at most [`MOST_SMALL`] bytes so that they are copied on return and a counter
    /// tells when they are there. `false`: it goes the general way, which also says what is wrong.
    #[inline(never)]
    pub(crate) fn small_put(
        &self,
        to: (Rank, u64),
        source: &[u8],
        counter: &Arc<OpCounter>,
    ) -> bool {
        let Some(inside) = self.inside() else { return false };
        let (one_sided, what) = (OneSided(inside.context), Small::Put(source));
        let known = one_sided.known_path(to, what);
        let put = |way: (&Peer, &SmallPath)| one_sided.put_by(way, to.1, source, (counter, false));
        let posted = match known {
            Some(way) => put(way),
            // What is wrong is said when it is tried again.
            None => match one_sided.small_path(to, what) {
                Ok(Ok((peer, path))) => put((peer, &path)),
                _ => false,
            },
        };
        if posted {
            trace::posts(&Data::Inline(&[source]));
            trace::count(Counter::PutInline, source.len());
        }
        posted
    }

    /// As [`NetTransport::small_put`], by a way that an earlier operation has found, and uncounted in
    /// traces. The counter is that of a group if `grouped`.
    #[inline(always)]
    pub(crate) fn known_put(
        &self,
        to: (Rank, u64),
        source: &[u8],
        (counter, grouped): (&Arc<OpCounter>, bool),
    ) -> bool {
        let Some(inside) = self.inside() else { return false };
        let one_sided = OneSided(inside.context);
        let known = one_sided.known_path(to, Small::Put(source));
        known.is_some_and(|way| one_sided.put_by(way, to.1, source, (counter, grouped)))
    }

    /// The right to an operation that its caller waits for; `None` while another call has it.
    #[inline(always)]
    pub(crate) fn one_call<M: Mode>(&self) -> Option<OneCall<'_>> {
        let lone = &self.context.lone;
        let lent = if M::THREADED {
            lone.lent.swap(true, Ordering::Acquire)
        } else {
            // One thread at a time makes calls.
            let lent = lone.lent.load(Ordering::Acquire);
            lone.lent.store(true, Ordering::Relaxed);
            lent
        };
        (!lent).then(|| OneCall { net: self, lone })
    }
}
