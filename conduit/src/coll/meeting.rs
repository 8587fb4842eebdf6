//! Small reductions to all of the team of all ranks. Where all are neighbours, operands and results
//! are in shared memory (`transport/shm/board.rs`); where none are, members write what they know
//! into each other's mailboxes ([`super::mailboxes`]).
//!
//! They complete in the order in which they were begun, so a count says which are complete: none
//! needs a row among the operations. One that is alone takes the lock twice and allocates nothing.

use std::collections::VecDeque;
use std::sync::Arc;

use super::doubling::{Doubling, Post, Reached};
use super::group::Group;
use super::letter::Signature;
use super::machine::{Mark, Others, Packet};
use super::mailboxes::{Data, Mailboxes};
use super::memory::Buffers;
use super::reduce::Combine;
use super::schedule::ASK;
use crate::rma::operations::OpCounters;
use crate::transport::shm::{AHEAD, Board, Differs, Seat, ShmTransport, WORDS};

/// One of them.
pub(super) struct Meeting {
    /// Of the collective in its team.
    pub(super) number: u32,
    turn: u32,
    pub(super) signature: Signature,
    buffers: Buffers,
    combine: Combine,
    /// Where it is waited for as an operation.
    counters: Option<Arc<OpCounters>>,
    /// This rank's operand was put down, on its seat.
    put: bool,
    /// How far it has come, where there are mailboxes.
    doubling: Option<Doubling>,
    /// The next member was shown what was begun here.
    asked: bool,
}

/// Those under way, in order; all are of the team of all ranks, whose seats and mailboxes are its
/// own.
#[derive(Default)]
pub(super) struct Meetings {
    queue: VecDeque<Meeting>,
    mailboxes: Option<Arc<Mailboxes>>,
}

/// What became of an attempt to go on.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Progress {
    /// Some are complete.
    pub(super) done: bool,
    /// Some could not send.
    pub(super) no_room: bool,
}

/// Something that one of them tells another member.
pub(super) struct Letter<'a> {
    pub(super) number: u32,
    pub(super) turn: u32,
    pub(super) signature: Signature,
    pub(super) packet: Packet<'a>,
}

/// How the members of one are reached: by `send`, which says whether it did, and by mailboxes.
struct ByMail<'a, F> {
    boxes: &'a Mailboxes,
    number: u32,
    turn: u32,
    signature: Signature,
    send: F,
}

impl<F: FnMut(Letter<'_>) -> bool> Post for ByMail<'_, F> {
    fn send(&mut self, to: u32, tag: u8, bytes: &[u8]) -> bool {
        let Self { number, turn, signature, .. } = *self;
        let packet = Packet { to, place: Mark { tag, lane: 0, at: 0 }, bytes };
        (self.send)(Letter { number, turn, signature, packet })
    }

    fn heard(&mut self, from: u32, tag: u8) -> Result<Option<Data>, String> {
        let Some((said, data)) = self.boxes.heard(self.turn, tag) else { return Ok(None) };
        match self.signature.problem(said) {
            None => Ok(Some(data)),
            Some(problem) => Err(format!("rank {from} {problem}")),
        }
    }
}

fn board<'s>(shm: &'s ShmTransport, group: &Group, turn: u32) -> Board<impl Fn(usize) -> &'s Seat> {
    // All ranks of the job are neighbours: team ranks are local indices.
    let seat = move |rank| shm.memory.seat(rank, turn);
    Board { ranks: group.size() as usize, me: group.rank() as usize, turn, seat }
}

/// Whether the first of those under way would be complete. Loads only.
pub(super) fn is_ready(shm: &ShmTransport, group: &Group) -> bool {
    board(shm, group, group.seen()).is_ready()
}

impl Meetings {
    pub(super) fn new(mailboxes: Option<Arc<Mailboxes>>) -> Self {
        Self { queue: VecDeque::new(), mailboxes }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Adds one that begins now; its turn.
    pub(super) fn begin(
        &mut self,
        group: &Group,
        (number, signature): (u32, Signature),
        (buffers, combine): (Buffers, Combine),
        counters: Option<Arc<OpCounters>>,
    ) -> u32 {
        let turn = group.next_turn();
        let operand = |_: &Arc<Mailboxes>| Doubling::new(buffers.operand(signature.bytes()));
        let doubling = self.mailboxes.as_ref().map(operand);
        let (put, asked) = (false, false);
        self.queue.push_back(Meeting {
            number,
            turn,
            signature,
            buffers,
            combine,
            counters,
            put,
            doubling,
            asked,
        });
        turn
    }

    /// Keeps a message for one; `None`: it is not under way.
    pub(super) fn arrive(
        &mut self,
        (number, signature): (u32, Signature),
        (from, tag): (u32, u8),
        bytes: &[u8],
    ) -> Option<Result<(), String>> {
        let meeting = self.queue.iter_mut().find(|meeting| meeting.number == number)?;
        let problem = meeting.signature.problem(signature);
        let steps = self.mailboxes.as_ref().map(|boxes| &*boxes.steps).unwrap_or_default();
        let mut taken = || {
            let doubling = meeting.doubling.as_mut();
            tag == ASK || doubling.is_some_and(|one| one.arrive(steps, from, tag, bytes))
        };
        Some(match problem {
            None if taken() => Ok(()),
            problem => Err(problem.unwrap_or_else(|| "sends what nobody waits for".to_owned())),
        })
    }

    /// The memory of one is its owner's again.
    pub(super) fn give_up(&mut self, number: u32) {
        for meeting in self.queue.iter_mut().filter(|meeting| meeting.number == number) {
            meeting.buffers = Buffers::NONE;
        }
    }

    pub(super) fn give_up_all(&mut self) {
        self.queue.clear();
    }

    /// As `Running::ask`.
    pub(super) fn unasked(&mut self) -> impl Iterator<Item = &mut Meeting> {
        self.queue.iter_mut().filter(|meeting| !meeting.asked)
    }

    /// Goes on with them by mailboxes as far as the other ranks let it. `run` runs what may call a
    /// function of the program, and says so.
    pub(super) fn advance_by_mail(
        &mut self,
        group: &Group,
        mut send: impl FnMut(Letter<'_>) -> bool,
        mut run: impl FnMut(bool, &mut dyn FnMut()),
    ) -> Result<Progress, String> {
        let mut progress = Progress::default();
        let Self { queue, mailboxes } = self;
        let Some(boxes) = mailboxes.as_deref() else { return Ok(progress) };
        loop {
            let mut first = None;
            // The first one has seen the result of all before it.
            for meeting in queue.iter_mut().take(AHEAD as usize) {
                let mut reached = Ok(Reached::End);
                let calls_program = meeting.calls_program();
                run(calls_program, &mut || reached = meeting.double(boxes, &mut send));
                let reached = reached?;
                progress.no_room |= reached == Reached::NoRoom;
                first = first.or(Some((meeting.turn, reached)));
            }
            let Some((_, Reached::End)) = first else {
                boxes.wait_at(match first {
                    Some((turn, Reached::Waits(step))) => Some((turn, step)),
                    _ => None,
                });
                return Ok(progress);
            };
            if let Some(mut meeting) = queue.pop_front() {
                meeting.keep();
                meeting.end(group);
                progress.done = true;
            }
        }
    }

    /// Goes on with them by seats, as [`Meetings::advance_by_mail`]; whether one is complete.
    pub(super) fn advance(
        &mut self,
        shm: &ShmTransport,
        group: &Group,
        mut run: impl FnMut(bool, &mut dyn FnMut()),
    ) -> Result<bool, String> {
        let mut done = false;
        loop {
            // The first one has seen the result of all before it.
            for meeting in self.queue.iter_mut().take(AHEAD as usize).filter(|one| !one.put) {
                let mut wakes = Ok(false);
                run(meeting.calls_program(), &mut || wakes = meeting.put_down(shm, group));
                if wakes? {
                    let others = (0..group.size()).filter(|rank| *rank != group.rank());
                    others.for_each(|rank| shm.wake(rank as usize));
                }
            }
            let Some(first) = self.queue.front_mut() else { return Ok(done) };
            let board = board(shm, group, first.turn);
            if !board.is_ready() {
                return Ok(done);
            }
            let mut taken = Ok(());
            run(first.calls_program(), &mut || taken = first.take(&board));
            taken?;
            if let Some(meeting) = self.queue.pop_front() {
                meeting.end(group);
            }
            done = true;
        }
    }
}

impl Meeting {
    fn calls_program(&self) -> bool {
        matches!(self.combine, Combine::Function(_))
    }

    fn len(&self) -> usize {
        self.signature.bytes()
    }

    /// It is complete.
    fn end(self, group: &Group) {
        if let Some(counters) = self.counters {
            counters.gets.end(false);
        }
        group.see();
    }

    /// Goes on by mailboxes.
    fn double(
        &mut self,
        boxes: &Mailboxes,
        send: impl FnMut(Letter<'_>) -> bool,
    ) -> Result<Reached, String> {
        let Self { number, turn, signature, combine, doubling, .. } = self;
        let Some(doubling) = doubling else { return Ok(Reached::End) };
        let (number, turn, signature) = (*number, *turn, *signature);
        let join = |mine: &mut [u8], came: &mut [u8], left: bool| combine.apply(mine, came, left);
        doubling.advance(&boxes.steps, &join, &mut ByMail { boxes, number, turn, signature, send })
    }

    /// The result of mailboxes to where it belongs.
    fn keep(&mut self) {
        let room = self.buffers.room(0..self.signature.bytes());
        let result = self.doubling.as_mut().map(|doubling| doubling.sum.bytes());
        if let Some(bytes) = result.unwrap_or_default().get(..room.len()) {
            room.copy_from_slice(bytes);
        }
    }

    fn problem(&self, Differs { rank, check }: Differs) -> String {
        let said = Signature::of_word(check).and_then(|other| self.signature.problem(other));
        format!("rank {rank} {}", said.as_deref().unwrap_or("put something else down"))
    }

    fn join(&self) -> impl Fn(&mut [u8], &mut [u8]) {
        |left, right| self.combine.apply(left, right, false)
    }

    /// Puts this rank's operand down; whether others may have waited for it.
    fn put_down(&mut self, shm: &ShmTransport, group: &Group) -> Result<bool, String> {
        self.put = true;
        let (board, own) = (board(shm, group, self.turn), self.buffers.operand(self.len()));
        let put = board.put(self.signature.word(), own, &self.join());
        put.map_err(|differs| self.problem(differs))
    }

    /// Takes the result, which is there.
    fn take<'s>(&mut self, board: &Board<impl Fn(usize) -> &'s Seat>) -> Result<(), String> {
        // One word needs no room for many.
        if self.len() <= 8 { self.take_words::<1>(board) } else { self.take_words::<WORDS>(board) }
    }

    fn take_words<'s, const N: usize>(
        &mut self,
        board: &Board<impl Fn(usize) -> &'s Seat>,
    ) -> Result<(), String> {
        let found = board.result::<N>(self.signature.word(), self.len(), &self.join());
        let mut result = found.map_err(|differs| self.problem(differs))?;
        let room = self.buffers.room(0..self.len());
        if let Some(bytes) = result.bytes().get(..room.len()) {
            room.copy_from_slice(bytes);
        }
        Ok(())
    }

    /// Members wait for each other for ever when they differ: each shows the next one once what it
    /// has begun.
    pub(super) fn ask(&mut self, group: &Group, others: &mut impl Others) {
        let place = Mark { tag: ASK, lane: 0, at: 0 };
        let to = (group.rank() + 1) % group.size();
        self.asked = others.send(Packet { to, place, bytes: &[] });
    }
}
