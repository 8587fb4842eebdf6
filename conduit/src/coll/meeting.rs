//! Small reductions to all, of a team whose members are neighbours: operands and results are in
//! shared memory (`transport/shm/board.rs`).
//!
//! They complete in the order in which they were begun, so a count says which are complete: none
//! needs a row among the operations. One that is alone takes the lock twice and allocates nothing.

use std::collections::VecDeque;
use std::sync::Arc;

use super::group::Group;
use super::letter::Signature;
use super::machine::{Mark, Others, Packet};
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
    /// This rank's operand was put down.
    put: bool,
    /// The next member was shown what was begun here.
    asked: bool,
}

/// Those under way, in order; all are of the team of all ranks, whose seats are its own.
#[derive(Default)]
pub(super) struct Meetings(VecDeque<Meeting>);

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
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
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
        let (put, asked) = (false, false);
        let meeting = Meeting { number, turn, signature, buffers, combine, counters, put, asked };
        self.0.push_back(meeting);
        turn
    }

    pub(super) fn get(&self, number: u32) -> Option<&Meeting> {
        self.0.iter().find(|meeting| meeting.number == number)
    }

    /// The memory of one is its owner's again.
    pub(super) fn give_up(&mut self, number: u32) {
        for meeting in self.0.iter_mut().filter(|meeting| meeting.number == number) {
            meeting.buffers = Buffers::NONE;
        }
    }

    pub(super) fn give_up_all(&mut self) {
        self.0.clear();
    }

    /// As `Running::ask`.
    pub(super) fn unasked(&mut self) -> impl Iterator<Item = &mut Meeting> {
        self.0.iter_mut().filter(|meeting| !meeting.asked)
    }

    /// Goes on with them as far as the other ranks let it; whether one is complete. `run` runs what
    /// may call a function of the program, and says so.
    pub(super) fn advance(
        &mut self,
        shm: &ShmTransport,
        group: &Group,
        mut run: impl FnMut(bool, &mut dyn FnMut()),
    ) -> Result<bool, String> {
        let mut done = false;
        loop {
            // The first one has seen the result of all before it.
            for meeting in self.0.iter_mut().take(AHEAD as usize).filter(|one| !one.put) {
                let mut wakes = Ok(false);
                run(meeting.calls_program(), &mut || wakes = meeting.put_down(shm, group));
                if wakes? {
                    let others = (0..group.size()).filter(|rank| *rank != group.rank());
                    others.for_each(|rank| shm.wake(rank as usize));
                }
            }
            let Some(first) = self.0.front_mut() else { return Ok(done) };
            let board = board(shm, group, first.turn);
            if !board.is_ready() {
                return Ok(done);
            }
            let mut taken = Ok(());
            run(first.calls_program(), &mut || taken = first.take(&board));
            taken?;
            if let Some(Meeting { counters: Some(counters), .. }) = self.0.pop_front() {
                counters.gets.end(false);
            }
            group.see();
            done = true;
        }
    }
}

impl Meeting {
    fn calls_program(&self) -> bool {
        matches!(self.combine, Combine::Function(_))
    }

    fn len(&self) -> usize {
        usize::try_from(self.signature.len).unwrap_or(0)
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
