//! Polls: how a completion queue is asked, and by whom. A wait mostly looks at the queue of receives
//! alone, and mostly finds nothing.

use std::hint::cold_path;
use std::sync::atomic::Ordering;

use fabric::{Completion, Look};

use super::acks::AcksOfBatch;
use super::header::{self, FIRST_CLIENT_HANDLER};
use super::receive::Receiver;
use crate::trace::{self, Counter};
use crate::transport::message::Sink;
use crate::transport::net::error::Error;
use crate::transport::net::rail::Rail;

/// What the first look of a poll has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum First {
    /// No message, and there is nothing else to do.
    Nothing,
    NoMessage,
    One,
    /// Nobody has looked yet.
    NoLook,
}

/// Messages of a batch.
const MESSAGES: usize = 16;
/// Polls in a row that find a message each before one asks for a batch. An answer may be there each time somebody
/// looks for it, and a batch costs a poll that finds one message 100 instructions more.
const ROW: u8 = 8;

/// What a poll takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Poll {
    All,
    /// Completions of sends, and messages of the library; messages of the client wait for a later
    /// poll. Takes no lock: for exit paths.
    Internal,
}

/// Whether messages come one after the other.
#[inline(always)]
fn asks_for_batch(rail: &Rail) -> bool {
    rail.row.load(Ordering::Relaxed) >= ROW
}

/// Whether a poll of a rail is one look, by the only thread that polls it.
#[inline(always)]
fn is_for_one(rail: &Rail, locked: bool) -> bool {
    let by_others = rail.is_taken.load(Ordering::Relaxed) | rail.receiving.is_shared();
    !(locked | by_others | asks_for_batch(rail))
}

impl Receiver<'_> {
    /// One poll. `locked`: take turns with other threads.
    #[inline(always)]
    pub(crate) fn poll<S: Sink + ?Sized>(
        self,
        sink: &S,
        what: Poll,
        locked: bool,
    ) -> Result<usize, Box<Error>> {
        if what == Poll::Internal {
            return self.poll_internal(sink, locked);
        }
        let mut one = Completion::EMPTY;
        match self.first_look(locked, &mut one) {
            // Most polls.
            First::Nothing => Ok(0),
            first => self.poll_all(sink, locked, (first, &one)),
        }
    }

    /// How a poll for all begins where one thread polls one rail: a look, and whether there is anything else
    /// to do, of which [`Receiver::poll_all`] does the rest. `locked`: take turns with other threads.
    #[inline(always)]
    fn first_look(self, locked: bool, one: &mut Completion) -> First {
        let [rail] = &self.0.rails[..] else { return First::NoLook };
        // Looked at together: most often none of it is so.
        let unusual = self.0.failure.is_set() | !self.0.receive.deferred.is_empty();
        if unusual | !is_for_one(rail, locked) {
            return First::NoLook;
        }
        match rail.recv_cq.look(one) {
            Look::Nothing => {}
            Look::One => return First::One,
            // The poll says why.
            Look::Failed => return First::NoLook,
        }
        rail.row.store(0, Ordering::Relaxed);
        self.0.end_silent_if_due();
        if rail.waiting.is_empty() & !self.0.has_pending_acks() && rail.is_quiet() {
            First::Nothing
        } else {
            First::NoMessage
        }
    }

    /// The rest of a poll for all that may come, after its first look, which may have found `one`. `locked`: as there.
    #[inline(never)]
    fn poll_all<S: Sink + ?Sized>(
        self,
        sink: &S,
        locked: bool,
        (first, one): (First, &Completion),
    ) -> Result<usize, Box<Error>> {
        let mut count = match (first, &self.0.rails[..]) {
            (First::One, _) => self.receive_one(one, sink)?,
            (First::NoMessage, [rail]) => self.0.post_waiting(rail).map(|()| 0)?,
            _ => {
                self.0.failure.check()?;
                self.0.end_silent_if_due();
                let has_deferred = !self.0.receive.deferred.is_empty();
                let deferred = if has_deferred { self.deliver_deferred(sink)? } else { 0 };
                deferred + self.receive_in_turn(sink, Poll::All, locked)?
            }
        };
        if count == 0 || self.is_short() {
            count += self.0.reap_if_any()?;
        }
        if self.0.has_pending_acks() {
            cold_path();
            count += self.0.flush_acks()?;
        }
        Ok(count)
    }

    /// One poll for what [`Poll::Internal`] says. `locked`: take turns with other threads.
    #[inline(never)]
    fn poll_internal<S: Sink + ?Sized>(self, sink: &S, locked: bool) -> Result<usize, Box<Error>> {
        self.0.failure.check()?;
        let came = self.receive_in_turn(sink, Poll::Internal, locked)?;
        Ok(came + self.0.reap()?)
    }

    /// What a wait may do between two polls: take messages alone. Most looks find none. Returns how many came.
    // An error in a box, as there is no room for it in registers.
    #[inline(always)]
    pub(crate) fn poll_recv<S: Sink + ?Sized>(
        self,
        sink: &S,
        locked: bool,
    ) -> Result<usize, Box<Error>> {
        if let [rail] = &self.0.rails[..]
            && is_for_one(rail, locked)
        {
            let mut one = Completion::EMPTY;
            match rail.recv_cq.look(&mut one) {
                Look::Nothing => return Ok(self.found_none(rail)?),
                Look::One => return self.receive_one(&one, sink),
                // The poll below says why.
                Look::Failed => {}
            }
        }
        self.receive_in_turn(sink, Poll::All, locked)
    }

    /// Whether completions of sends should be taken although there is something else to do.
    #[cold]
    fn is_short(self) -> bool {
        self.0.rails.iter().any(|rail| rail.sends.left() < rail.send_depth / 2)
            || self.0.buffers.send.len() < self.0.plan.sizes.bounce / 2
    }

    /// Takes the message that a look at the only rail has found.
    #[inline(never)]
    fn receive_one<S: Sink + ?Sized>(
        self,
        one: &Completion,
        sink: &S,
    ) -> Result<usize, Box<Error>> {
        trace::count_some(Counter::Received, 1);
        Ok(self.take_one(0, one, sink, Poll::All)?)
    }

    /// Takes messages where there are other rails, or threads that take turns, or a batch came before.
    #[inline(never)]
    fn receive_in_turn<S: Sink + ?Sized>(
        self,
        sink: &S,
        what: Poll,
        locked: bool,
    ) -> Result<usize, Box<Error>> {
        let all = what == Poll::All;
        let locked = |rail: usize| all && (locked || self.0.rails[rail].receiving.is_shared());
        let is_taken = |rail: &Rail| rail.is_taken.load(Ordering::Relaxed) && what == Poll::All;
        if let [rail] = &self.0.rails[..] {
            if is_taken(rail) {
                return Ok(0);
            }
            return self.receive_on(0, sink, what, locked(0)).map_err(Box::new);
        }
        let (rails, first) =
            (self.0.rails.len(), self.0.receive.next_rail.fetch_add(1, Ordering::Relaxed) as usize);
        for step in 0..rails {
            let rail = first.wrapping_add(step) % rails;
            if is_taken(&self.0.rails[rail]) {
                continue;
            }
            let count = self.receive_on(rail, sink, what, locked(rail))?;
            if count > 0 {
                return Ok(count);
            }
        }
        Ok(0)
    }

    /// Takes messages from one rail: one, or a batch where each of the last polls found one.
    #[inline(never)]
    pub(crate) fn receive_on<S: Sink + ?Sized>(
        self,
        at: usize,
        sink: &S,
        what: Poll,
        locked: bool,
    ) -> Result<usize, Error> {
        let rail = &self.0.rails[at];
        if asks_for_batch(rail) {
            return self.receive_batch(at, sink, what, locked);
        }
        let mut one = [Completion::EMPTY];
        if self.poll_cq(rail, &mut one, locked)? == 0 {
            return self.found_none(rail);
        }
        self.take_one(at, &one[0], sink, what)
    }

    /// After a look that found nothing; 0.
    #[inline(always)]
    fn found_none(self, rail: &Rail) -> Result<usize, Error> {
        rail.row.store(0, Ordering::Relaxed);
        self.0.post_waiting(rail).map(|()| 0)
    }

    /// Takes the message that a look found.
    #[inline(always)]
    fn take_one<S: Sink + ?Sized>(
        self,
        at: usize,
        one: &Completion,
        sink: &S,
        what: Poll,
    ) -> Result<usize, Error> {
        // After `ROW` of them messages come by another way.
        let row = &self.0.rails[at].row;
        row.store(row.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        let mut acks = AcksOfBatch::NONE;
        if !self.took_short(at, one, sink, what, &mut acks)? {
            self.received(at, one, sink, what, &mut acks)?;
        }
        acks.send(self.0)?;
        Ok(1)
    }

    /// Takes a batch from one rail. The library's messages come first: a client's handler may end
    /// this process.
    #[inline(never)]
    fn receive_batch<S: Sink + ?Sized>(
        self,
        at: usize,
        sink: &S,
        what: Poll,
        locked: bool,
    ) -> Result<usize, Error> {
        let rail = &self.0.rails[at];
        let mut batch = [Completion::EMPTY; MESSAGES];
        let count = self.poll_cq(rail, &mut batch, locked)?;
        let batch = &batch[..count];
        if batch.is_empty() {
            return self.found_none(rail);
        }
        if batch.len() == 1 {
            rail.row.store(0, Ordering::Relaxed);
        }
        let internal = |completion: &&Completion| {
            completion.imm.is_some_and(|imm| header::handler_of(imm) < FIRST_CLIENT_HANDLER)
        };
        let mut acks = AcksOfBatch::NONE;
        for completion in batch.iter().filter(internal) {
            self.received(at, completion, sink, what, &mut acks)?;
        }
        for completion in batch.iter().filter(|completion| !internal(completion)) {
            if !self.took_short(at, completion, sink, what, &mut acks)? {
                self.received(at, completion, sink, what, &mut acks)?;
            }
        }
        acks.send(self.0)?;
        Ok(count)
    }

    /// Asks a rail for completions of receives; `locked`: none while another thread asks.
    #[inline(always)]
    fn poll_cq(self, rail: &Rail, into: &mut [Completion], locked: bool) -> Result<usize, Error> {
        if locked && !rail.receiving.take() {
            return Ok(0);
        }
        let count = rail.recv_cq.poll(into);
        if locked {
            rail.receiving.give();
        }
        let count = count?;
        trace::count_some(Counter::Received, count);
        Ok(count)
    }
}
