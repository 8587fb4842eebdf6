//! Transfers to memory that its owner lends: polls do what their lanes want.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::lane::{Chunk, Lane, Unasked, Want};
use super::ledger::LoanId;
use super::table::{Answer, Borrowing, MOST_LANES, Transfer};
use super::wire::{ASK, Ask, RETURN, of_loan};
use crate::error::Error;
use crate::mode::Mode;
use crate::rank::RankContext;
use crate::rma::memory;
use crate::rma::operations::OpCounters;
use crate::rma::remote::RemoteOp;
use crate::transport::message::{AmMessage, AmPayload, Flags, MessageClass, Outcome};
use crate::transport::net::{LentParts, NetTransport};
use crate::transport::place::Place;
use crate::vis::describe::Shape;
use crate::vis::list::{Entries, Extent, List};
use crate::vis::memory::Region;
use crate::vis::send::VisOp;
use crate::vis::state::ROOM;
use crate::vis::ticket::Ticket;

/// Bytes that one message carries, with what it says of them. Up to here a transfer takes one message
/// and its answer, which is what a loan takes before its first byte moves.
const ONE_MESSAGE: usize = ROOM - 16;

/// How far a lane came.
enum Came {
    /// It waits for an answer.
    Asks,
    /// For the end of what is under way.
    Flies,
    /// For room.
    Stands,
    Over,
}

impl RankContext {
    /// Starts a put or get of one range of memory without keys, which `row` counts, where its owner
    /// may lend it. `false`: it goes by messages as a whole.
    pub(crate) fn borrow<M: Mode>(
        &self,
        op: RemoteOp,
        row: &OpCounters,
        local: Region,
        put: bool,
    ) -> Result<bool, Error> {
        let RemoteOp { call, target, offset: place, .. } = op;
        let len = local.extent().len;
        let net =
            self.transport.net().filter(|net| net.lends() && self.transport.is_remote(target));
        let inside = place.checked_add(len as u64).is_some_and(|end| end <= Place::MAX_LEN);
        if net.is_none() || len <= ONE_MESSAGE || !inside {
            return Ok(false);
        }
        self.remote_range(op, len)?;
        let counter = Arc::clone(if put { &row.puts } else { &row.gets });
        let taken = AtomicUsize::new(0);
        let transfer = Arc::new(Transfer { call, target, place, local, put, counter, taken });
        for _ in 0..MOST_LANES {
            let Some(chunk) = transfer.take() else { break };
            let carries = if put { self.loans.carries } else { 0 };
            let (lane, parts) = (Lane::new(chunk, carries), LentParts::new());
            let (transfer, row) = (Arc::clone(&transfer), OpCounters::default());
            // The source is read until all has ended.
            transfer.counter.begin(true);
            self.loans.lanes.add(Borrowing { transfer, lane, parts, row });
        }
        self.calls.stir_loans();
        self.drive_loans::<M>()?;
        Ok(true)
    }

    /// Does what lanes want, as far as that is possible now.
    pub(crate) fn drive_loans<M: Mode>(&self) -> Result<(), Error> {
        if self.is_closed() {
            return Ok(());
        }
        // Another thread that does so comes back for what comes now.
        let Some(driver) = self.loans.lanes.driver() else { return Ok(()) };
        self.calls.settle_loans();
        let (mut flies, mut stands) = (false, false);
        let mut done = Ok(());
        for number in driver.numbers.iter() {
            match self.drive_lane::<M>(*number) {
                Ok(Came::Flies) => flies = true,
                Ok(Came::Stands) => stands = true,
                Ok(Came::Asks | Came::Over) => {}
                Err(error) => {
                    done = Err(error);
                    break;
                }
            }
        }
        self.calls.set_loans_fly(flies);
        drop(driver);
        if stands {
            self.calls.stir_loans();
            self.waits.let_others_run();
        }
        // Nobody may wait for these any more.
        done.inspect_err(|_| self.cut_off())
    }

    fn drive_lane<M: Mode>(&self, number: u32) -> Result<Came, Error> {
        let lanes = &self.loans.lanes;
        let Some((ticket, mut one, answer)) = lanes.take(number) else { return Ok(Came::Over) };
        if let Some(answer) = answer
            && self.answered(&mut one, answer).is_err()
        {
            let (rank, owner) = (self.rank_info.rank, self.rank_of(one.transfer.target));
            self.fatal(&format!(
                "rank {rank} received a loan from rank {owner} of other memory than it asked for"
            ));
        }
        let came = self.advance::<M>(ticket, &mut one);
        match came {
            Ok(Came::Over) => lanes.end(ticket),
            _ => lanes.put_back(ticket, one),
        }
        came
    }

    fn answered(&self, one: &mut Borrowing, answer: Answer) -> Result<(), Unasked> {
        let Transfer { target, place, put, .. } = *one.transfer;
        let Want::Answer = one.lane.wants() else { return Err(Unasked) };
        match answer {
            Answer::Lent(loan, parts) => {
                let base = match self.transport.is_any_memory(place) {
                    true => 0,
                    false => self.transport.segment(target).map_or(0, |one| one.owner_base),
                };
                let carries = if put { self.loans.carries } else { 0 };
                let from = (one.lane.begins() + carries) as u64;
                let at = base.wrapping_add(place).wrapping_add(from);
                let first = parts.first().ok_or(Unasked)?;
                if first.at != at
                    || first.keys.len() != self.transport.net().map_or(0, NetTransport::rails)
                {
                    return Err(Unasked);
                }
                one.lane.lent(loan, parts.iter().map(|part| part.len as usize).sum())?;
                one.parts = *parts;
            }
            Answer::Refused(stored) => {
                self.loans.lanes.was_refused(target, place + one.lane.begins() as u64);
                one.lane.refused(stored)?;
            }
        }
        Ok(())
    }

    /// Goes on until the lane waits for something.
    fn advance<M: Mode>(&self, ticket: Ticket, one: &mut Borrowing) -> Result<Came, Error> {
        loop {
            let has_left = match one.lane.wants() {
                Want::Ask { part, carries, returns } => {
                    self.ask::<M>((ticket, one), part, carries, returns)?
                }
                Want::Move { part, skip } => self.move_lent(one, part, skip)?,
                Want::Send(part) => self.send_part::<M>(one, part)?,
                Want::End if one.is_idle() => {
                    one.lane.ended();
                    true
                }
                Want::Next => {
                    let chunk = one.transfer.take();
                    one.lane.next(chunk);
                    if chunk.is_none() {
                        one.transfer.counter.end(true);
                        if M::THREADED {
                            // Another thread of this rank may sleep for it.
                            self.shm().wake_own();
                        }
                    }
                    true
                }
                Want::Return(loan) => self.give_back::<M>(one, loan)?,
                Want::End => return Ok(Came::Flies),
                Want::Answer => return Ok(Came::Asks),
                Want::Nothing => return Ok(Came::Over),
            };
            if !has_left {
                return Ok(Came::Stands);
            }
        }
    }

    /// Asks the owner, unless it has refused a short time ago.
    fn ask<M: Mode>(
        &self,
        (ticket, one): (Ticket, &mut Borrowing),
        part: Chunk,
        carries: usize,
        returns: Option<LoanId>,
    ) -> Result<bool, Error> {
        let Transfer { call, target, place, local, put, .. } = *one.transfer;
        let (place, lanes) = (place + part.at as u64, &self.loans.lanes);
        if returns.is_none() && lanes.leaves_out(target, place) {
            one.lane.asked();
            // It was asked for just now.
            let _refused = one.lane.refused(false);
            return Ok(true);
        }
        let len = u32::try_from(part.len).unwrap_or(u32::MAX);
        let args = Ask { ticket, place, len, put, returns }.to_wire();
        let carried = local.bytes(extent(&local, Chunk { len: carries, ..part }));
        let payload = AmPayload::Medium(carried.unwrap_or_default());
        let (class, handler) = (MessageClass::Request, ASK);
        let message = AmMessage { class, target, handler, args: &args, payload };
        lanes.expect(ticket, true);
        let sent = self.request::<M>(call, &message, Flags::IMMEDIATE);
        if matches!(sent, Ok(Outcome::Sent)) {
            one.lane.asked();
            return Ok(true);
        }
        lanes.expect(ticket, false);
        sent.map(|_| false)
    }

    /// Adapters move what is lent. `false`: not all of it now.
    fn move_lent(&self, one: &mut Borrowing, part: Chunk, skip: usize) -> Result<bool, Error> {
        let Transfer { target, local, put, .. } = *one.transfer;
        let (rank, range) = (self.rank_of(target), extent(&local, part));
        let Some(net) = self.transport.net() else { return Ok(false) };
        let lent = (&one.parts[..], skip);
        let moved = if put {
            let bytes = local.bytes(range).unwrap_or_default();
            net.put_lent(rank, lent, bytes, &one.row.puts)?
        } else {
            let mut into = memory::target(local.bytes_mut(range).unwrap_or_default());
            net.get_lent(rank, lent, &mut into, &one.row.gets)?
        };
        self.loans.moved.fetch_add(moved as u64, Ordering::Relaxed);
        one.lane.moved(moved);
        Ok(moved == part.len)
    }

    /// One message takes a part, or as much of it as it carries. `false`: not now.
    fn send_part<M: Mode>(&self, one: &mut Borrowing, part: Chunk) -> Result<bool, Error> {
        let Transfer { call, target, place, local, put, .. } = *one.transfer;
        let part = Chunk { len: part.len.min(ONE_MESSAGE), ..part };
        let at = usize::try_from(place).unwrap_or(usize::MAX).saturating_add(part.at);
        let (here, there) = ([extent(&local, part)], [Extent { at, len: part.len }]);
        let list = |entries| List { entries: Entries::Vector(entries), base: 0 };
        let shape = Shape::Lists { local: list(&here), remote: list(&there) };
        let op = VisOp { call, target, immediate: true, shape, local, peer: None };
        if self.start_vis::<M>(&op, put, &one.row)? == Outcome::NotSent {
            return Ok(false);
        }
        self.loans.by_message.fetch_add(part.len as u64, Ordering::Relaxed);
        one.lane.moved(part.len);
        Ok(true)
    }

    fn give_back<M: Mode>(&self, one: &mut Borrowing, loan: LoanId) -> Result<bool, Error> {
        let Transfer { call, target, .. } = *one.transfer;
        let (class, handler, payload) = (MessageClass::Request, RETURN, AmPayload::None);
        let args = of_loan(loan);
        let message = AmMessage { class, target, handler, args: &args, payload };
        let sent = self.request::<M>(call, &message, Flags::IMMEDIATE)? == Outcome::Sent;
        if sent {
            one.lane.returned();
        }
        Ok(sent)
    }
}

impl Borrowing {
    /// Whether nothing of it is under way.
    fn is_idle(&self) -> bool {
        self.row.puts.is_complete() && self.row.gets.is_complete()
    }
}

/// A part as a range of the local region.
const fn extent(local: &Region, part: Chunk) -> Extent {
    Extent { at: local.extent().at + part.at, len: part.len }
}
