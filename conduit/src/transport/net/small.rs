//! Small operations that their caller waits for, one at a time: they take slots of their queues and
//! nothing else. The number of such a request says all of it, its end is counted here, and what it
//! reads comes into registered words.

use std::sync::atomic::Ordering;

use bootstrap::Rank;
use fabric::{Data, Operation};

use super::atomics::WordOp;
use super::error::Error;
use super::memory::pool::Inbox;
use super::pending_ops::{Lone, OpKind, PendingOp};
use super::post::{Sent, Slots};
use super::rma::{OneSided, RESERVE};
use super::transport::NetTransport;
use crate::trace::{self, Counter};

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
    pub(crate) const fn len(&self) -> usize {
        match self {
            Self::Atomic(_) => WORD,
            Self::Put(bytes) => bytes.len(),
            Self::Get(len) => *len,
        }
    }

    /// As a request for a range of the other rank's memory.
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
    /// One attempt to post it; once. `None`: it cannot be done so; `Full`: poll and call again. With
    /// `look`, looks once for its end: an adapter that is a part of the system has done it when the
    /// system returns.
    #[inline]
    pub(crate) fn post(
        &self,
        to: (Rank, u64),
        what: Small<'_>,
        look: bool,
    ) -> Result<Option<Sent>, Error> {
        let posted = self.net.enter(|context| OneSided(context).small(to, what, look));
        posted.unwrap_or(Ok(Some(Sent::Full)))
    }

    #[inline]
    pub(crate) fn is_complete(&self) -> bool {
        self.lone.counter.is_complete()
    }

    /// A word of what it read; of an atomic, the old value.
    #[inline]
    pub(crate) fn word(&self, index: usize) -> u64 {
        self.lone.words.get().map_or(0, |words| words.load(index))
    }

    /// The first bytes of what it read.
    #[inline]
    pub(crate) fn read(&self, into: &mut [u8]) {
        for (index, bytes) in into.chunks_mut(WORD).enumerate() {
            let word = self.word(index).to_ne_bytes();
            bytes.copy_from_slice(&word[..bytes.len()]);
        }
    }
}

impl OneSided<'_> {
    /// Words of the first rail.
    #[cold]
    fn make_words(self) -> Option<()> {
        let words = Inbox::new(&*self.0.rails.first()?.device, WORDS).ok()?;
        let _ = self.0.lone.words.set(words);
        Some(())
    }

    #[inline]
    fn small(
        self,
        (rank, place): (Rank, u64),
        what: Small<'_>,
        look: bool,
    ) -> Result<Option<Sent>, Error> {
        let (context, lone, len) = (self.0, &self.0.lone, what.len());
        // A fence follows a put.
        if matches!(what, Small::Put(_)) && context.fences.is_some() {
            return Ok(None);
        }
        if lone.words.get().is_none() && self.make_words().is_none() {
            return Ok(None);
        }
        let aimed = context.segments.reach(rank, place, len as u64, 0)?;
        let Some(peer) = context.connected(rank) else { return Ok(Some(Sent::Full)) };
        let mut connections = peer.connections.iter().enumerate();
        let (Some(rail), Some((index, connection)), Some((remote, rkey)), Some(words)) = (
            context.rails.first(),
            connections.find(|(_, connection)| connection.rail == 0),
            aimed,
            lone.words.get(),
        ) else {
            return Ok(None);
        };
        let own = [words.own(0, u32::try_from(len).unwrap_or(0))];
        let bytes;
        let data = match what {
            Small::Put(source) if source.len() <= connection.main.inline => {
                bytes = [source];
                Data::Inline(&bytes)
            }
            Small::Put(_) => return Ok(None),
            Small::Atomic(_) | Small::Get(_) => Data::Gather(&own),
        };
        let Some(slots) = Slots::take(rail, &connection.main, RESERVE) else {
            return Ok(Some(Sent::Full));
        };
        let (kind, operation) = what.request(remote, rkey);
        let (for_requests, buffer, has_end) = (false, None, true);
        let op = PendingOp { kind, peer: rank, connection: index, for_requests, buffer, has_end };
        lone.counter.begin(false);
        let sent = context.post(&slots, operation, data, &op, None);
        if !matches!(sent, Ok(Sent::Yes)) {
            lone.counter.end(false);
            return sent.map(Some);
        }
        match what {
            Small::Put(_) => trace::count(Counter::PutInline, len),
            // What is read goes from the words into the program's memory.
            Small::Get(_) => trace::count(Counter::GetBounce, len),
            Small::Atomic(_) => {}
        }
        if look && context.rails.len() == 1 {
            context.look_for(&slots, &op);
        }
        sent.map(Some)
    }
}

impl NetTransport {
    /// The right to an operation that its caller waits for; `None` while another call has it.
    #[inline]
    pub(crate) fn one_call(&self) -> Option<OneCall<'_>> {
        let lone = &self.context.lone;
        let free = !lone.lent.swap(true, Ordering::Acquire);
        free.then(|| OneCall { net: self, lone })
    }
}
