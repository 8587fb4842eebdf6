//! Completions of sends: what an operation used goes back, what waits for its end is told.

use std::sync::atomic::Ordering;
use std::time::Instant;

use ::settings::deadlines::net as deadlines;
use fabric::{Completion, Look, Status};

use super::context::NetContext;
use super::error::Error;
use super::memory::pool::Buffer;
use super::pending_ops::{OnComplete, OpKind, PendingOp};
use super::post::Slots;
use super::rail::Rail;
use super::signal::Signal;
use super::silent::SilentPuts;
use crate::trace::{self, Counter};

/// Most completions of sends that one poll takes from a rail.
const SENDS: usize = 32;

impl NetContext {
    /// Takes completions of sends of all rails that no thread has for itself; runs no handlers.
    pub(super) fn reap(&self) -> Result<usize, Error> {
        let mut count = 0;
        for at in 0..self.rails.len() {
            let rail = &self.rails[at];
            if rail.reaping.is_shared() {
                count += self.reap_in_turn(at)?;
            } else if !rail.is_reaped.load(Ordering::Relaxed) {
                count += self.reap_on(at)?;
            }
        }
        Ok(count)
    }

    /// As [`NetContext::reap`], where most often nothing is under way.
    #[inline(always)]
    pub(super) fn reap_if_any(&self) -> Result<usize, Box<Error>> {
        match &self.rails[..] {
            [rail] if rail.is_quiet() => Ok(0),
            _ => self.reap_any(),
        }
    }

    /// Counts a poll for a run of silent puts, and ends one that had many.
    #[inline(always)]
    pub(super) fn end_silent_if_due(&self) {
        if self.silent.as_ref().is_some_and(SilentPuts::is_due) {
            self.end_silent();
        }
    }

    #[inline(never)]
    fn reap_any(&self) -> Result<usize, Box<Error>> {
        Ok(self.reap()?)
    }

    /// As [`NetContext::reap`], for one rail.
    pub(super) fn reap_on(&self, at: usize) -> Result<usize, Error> {
        let rail = &self.rails[at];
        match rail.under_way() {
            0 if rail.is_quiet() => Ok(0),
            0 => {
                rail.looked();
                self.reap_some::<1>(at)
            }
            // Nothing else can be complete: no room for more is made ready.
            1 => self.reap_some::<1>(at),
            _ => self.reap_some::<SENDS>(at),
        }
    }

    /// Takes completions of sends until `done`, nothing is under way, or it has looked so many
    /// times; how often it may still look.
    #[inline(never)]
    pub(super) fn take_ends(&self, looks: u32, done: impl Fn() -> bool) -> Result<u32, Error> {
        self.failure.check()?;
        self.await_silent();
        if let [rail] = &self.rails[..]
            && rail.under_way() == 1
            && !rail.is_reaped.load(Ordering::Relaxed)
        {
            return self.take_end(rail, looks, done);
        }
        for left in (0..looks).rev() {
            self.reap()?;
            if done() || !self.rails.iter().any(Rail::is_sending) {
                return Ok(left);
            }
        }
        Ok(0)
    }

    /// As [`NetContext::take_ends`], of the only rail, where one request is under way.
    fn take_end(&self, rail: &Rail, looks: u32, done: impl Fn() -> bool) -> Result<u32, Error> {
        let mut one = Completion::EMPTY;
        for left in (0..looks).rev() {
            match rail.send_cq.look(&mut one) {
                Look::Nothing => {}
                Look::One => {
                    self.finished(0, &one)?;
                    return Ok(left);
                }
                Look::Failed => {
                    self.reap()?;
                }
            }
            // Another thread may have taken it.
            if done() {
                return Ok(left);
            }
        }
        Ok(0)
    }

    /// Looks once for the end of the [`Lone`](super::pending_ops::Lone) operation of this number,
    /// which was just posted on the only rail, where nothing else is under way. Whether it is
    /// complete; the next poll says what failed.
    #[inline(always)]
    pub(super) fn look_for(&self, slots: &Slots<'_>, number: u64) -> bool {
        let rail = slots.rail;
        if rail.under_way() != 1 || rail.is_reaped.load(Ordering::Relaxed) {
            return false;
        }
        let mut one = Completion::EMPTY;
        match rail.send_cq.look(&mut one) {
            // The next poll says what failed.
            Look::Nothing | Look::Failed => return false,
            Look::One if one.id == number && one.status == Status::Success => {
                // What it has is at hand.
                self.lone.end();
                slots.give_back();
                return true;
            }
            Look::One => self.finished_elsewhere(&one),
        }
        self.lone.is_complete()
    }

    #[cold]
    fn finished_elsewhere(&self, one: &Completion) {
        if let Err(error) = self.finished(0, one) {
            self.fail(error);
        }
    }

    /// Looks whether unsignalled requests have failed.
    pub(super) fn look_for_failures(&self) -> Result<(), Error> {
        let rails = self.rails.iter().enumerate();
        for (at, _) in rails.filter(|(_, rail)| rail.has_unsignaled()) {
            let _ = self.reap_some::<1>(at)?;
        }
        Ok(())
    }

    fn reap_some<const N: usize>(&self, at: usize) -> Result<usize, Error> {
        let mut batch = [Completion::EMPTY; N];
        let count = self.rails[at].send_cq.poll(&mut batch)?;
        let mut failure = None;
        trace::count_some(Counter::Reaped, count);
        for completion in &batch[..count] {
            if let Err(error) = self.finished(at, completion) {
                failure.get_or_insert(error);
            }
        }
        failure.map_or(Ok(count), Err)
    }

    #[inline]
    fn finished(&self, at: usize, completion: &Completion) -> Result<(), Error> {
        let op = PendingOp::of_number(completion.id);
        match op.filter(|_| completion.status == Status::Success) {
            Some(op) => {
                if op.has_end && !self.pending.end_counted(completion.id, self.sharing) {
                    self.lone.end();
                }
                self.give_back(at, &op, Signal::of(completion.id));
                Ok(())
            }
            None => self.finished_in_row(at, completion),
        }
    }

    /// Slots of an operation and of the unsignalled ones before it, and the permit of a message of
    /// the library.
    #[inline]
    fn give_back(&self, at: usize, op: &PendingOp, signal: Signal) {
        let rail = &self.rails[at];
        let connection =
            self.peers.get(op.peer).and_then(|peer| peer.connections.get(op.connection));
        let send_qp = connection.map(|connection| connection.send_qp(op.for_requests));
        let slots = match signal {
            Signal::End { before } => {
                rail.sends.give(1);
                rail.give_unsignaled(before);
                1 + before
            }
            Signal::Failure => {
                if !send_qp.is_some_and(|send_qp| send_qp.unsignaled.failed()) {
                    return;
                }
                rail.give_unsignaled(1);
                1
            }
        };
        let (Some(connection), Some(send_qp)) = (connection, send_qp) else { return };
        send_qp.slots.give(slots);
        if op.kind == OpKind::Internal {
            connection.internal.give(1);
        }
    }

    /// One that has more than its number, or failed.
    fn finished_in_row(&self, at: usize, completion: &Completion) -> Result<(), Error> {
        let Some((op, signal, end)) = self.pending.end(completion.id) else { return Ok(()) };
        let buffer = op.buffer.and_then(|index| self.buffers.pool.reclaim(index));
        let success = completion.status == Status::Success;
        if success {
            self.conclude(end, buffer);
        } else if let Some(buffer) = buffer {
            self.buffers.put_send(buffer);
        }
        self.give_back(at, &op, signal);
        if success || self.failure.is_ignored() {
            return Ok(());
        }
        // A device that failed is the cause; its requests are flushed at the same moment.
        self.read_device_events()?;
        self.failure.check()?;
        Err(Error::Failed {
            operation: op.kind.name(),
            rank: self.members.rank,
            peer: op.peer,
            status: status_text(completion.status),
            qpn: completion.qpn,
            device: self.rails[at].name(),
            vendor: completion.vendor,
            advice: advice(completion.status),
        })
    }

    fn conclude(&self, end: Option<OnComplete>, buffer: Option<Buffer>) {
        match (end, buffer) {
            (Some(OnComplete::CopyOut { counter, target, len }), Some(mut buffer)) => {
                target.fill(&self.buffers.pool.bytes(&mut buffer)[..len]);
                self.buffers.put_send(buffer);
                counter.end(true);
            }
            (Some(OnComplete::Fetched { counter, by: (by, slot) }), Some(mut buffer)) => {
                let old = self.buffers.pool.bytes(&mut buffer).first_chunk().copied();
                self.buffers.put_send(buffer);
                by.fetched(slot, u64::from_ne_bytes(old.unwrap_or_default()));
                counter.end(false);
            }
            (end, buffer) => {
                if let Some(buffer) = buffer {
                    self.buffers.put_send(buffer);
                }
                match end {
                    Some(OnComplete::Count { counter, local }) => counter.end(local),
                    Some(OnComplete::Held { counter, held }) => {
                        drop(held);
                        counter.end(true);
                    }
                    _ => {}
                }
            }
        }
    }

    /// Takes completions of sends while something waits for them. `false`: the network is closing,
    /// give up.
    pub(super) fn await_sends(&self) -> Result<bool, Error> {
        if self.reap()? == 0 {
            std::thread::yield_now();
        }
        Ok(!self.failure.is_ignored())
    }

    /// As [`NetContext::await_sends`]; also `false` when nothing has completed for a while. Then
    /// the peer is short of receive buffers, perhaps because it waits like this rank: the caller
    /// polls, and later sends all of it again, which changes nothing for the peer, as no handler
    /// has been told of it. `stalled`: since when nothing has completed.
    pub(super) fn await_unless_stalled(
        &self,
        stalled: &mut Option<Instant>,
    ) -> Result<bool, Error> {
        if self.reap()? > 0 {
            *stalled = None;
        } else {
            let since = *stalled.get_or_insert_with(Instant::now);
            if since.elapsed() > deadlines::STALL.limit {
                return Ok(false);
            }
            std::thread::yield_now();
        }
        Ok(!self.failure.is_ignored())
    }
}

/// A status in words.
pub(super) const fn status_text(status: Status) -> &'static str {
    match status {
        Status::Success => "success",
        Status::LocalLength => "the message was longer than the buffer",
        Status::LocalQp => "the queue pair could not do it",
        Status::LocalProtection => "local memory is not registered for it",
        Status::Flushed => "flushed, because the queue pair failed before",
        Status::RemoteInvalid => "the peer found the message invalid",
        Status::RemoteAccess => "the peer's memory is not registered for it",
        Status::RemoteOperation => "the peer could not do it",
        Status::RetryExceeded => "the peer does not answer",
        Status::RnrRetryExceeded => "the peer had no receive buffer",
        Status::Other(_) => "an error of the device",
    }
}

const fn advice(status: Status) -> &'static str {
    match status {
        Status::RetryExceeded | Status::Flushed => {
            "the peer has ended or its network is down; see what it printed, and the state of the ports"
        }
        Status::RnrRetryExceeded => "see GASNET_RBUF_COUNT and GASNET_USE_SRQ",
        Status::LocalProtection | Status::RemoteAccess => {
            "memory was unmapped or addressed outside a segment"
        }
        _ => "see the device's own log",
    }
}
