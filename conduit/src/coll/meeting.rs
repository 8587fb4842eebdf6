//! A small reduction to all, of a team whose members are neighbours: operands and result are in
//! shared memory (`transport/shm/board.rs`).

use super::group::Group;
use super::letter::Signature;
use super::machine::{Memory, State};
use super::memory::Work;
use crate::transport::shm::{AHEAD, Board, Differs, Operand, Seat, ShmTransport};

/// One of them.
pub(super) struct Meeting {
    len: usize,
    /// Its turn, from when it is begun.
    turn: Option<u32>,
    /// This rank's operand, once it is put down.
    own: Option<Box<Operand>>,
}

fn board<'s>(shm: &'s ShmTransport, group: &Group, turn: u32) -> Board<impl Fn(usize) -> &'s Seat> {
    // All ranks of the job are neighbours: team ranks are local indices.
    let seat = move |rank| shm.memory.seat(rank, turn);
    Board { ranks: group.size() as usize, me: group.rank() as usize, turn, seat }
}

impl Meeting {
    pub(super) const fn new(len: usize) -> Self {
        Self { len, turn: None, own: None }
    }

    /// Takes its turn, when it is begun.
    pub(super) fn begin(&mut self, group: &Group) {
        self.turn = Some(group.next_turn());
    }

    /// Whether [`Meeting::advance`] would do something.
    pub(super) fn may_advance(&self, shm: &ShmTransport, group: &Group) -> bool {
        let Some(turn) = self.turn else { return false };
        let ahead = turn.wrapping_sub(group.seen());
        if self.own.is_none() {
            ahead < AHEAD
        } else {
            ahead == 0 && board(shm, group, turn).is_ready()
        }
    }

    /// Goes on as far as the others let it.
    pub(super) fn advance(
        &mut self,
        shm: &ShmTransport,
        group: &Group,
        signature: Signature,
        work: &mut Work,
    ) -> Result<State, String> {
        let Some(turn) = self.turn else { return Ok(State::Waiting) };
        let ahead = turn.wrapping_sub(group.seen());
        if ahead >= AHEAD {
            return Ok(State::Waiting);
        }
        let (board, len) = (board(shm, group, turn), self.len);
        let differs = |Differs { rank, check }| {
            let said = Signature::of_word(check).and_then(|other| signature.problem(other));
            format!("rank {rank} {}", said.as_deref().unwrap_or("put something else down"))
        };
        let mut join = |left: &mut Operand, right: &mut Operand| {
            if let (Some(left), Some(right)) =
                (left.bytes.get_mut(..len), right.bytes.get_mut(..len))
            {
                work.join(left, right);
            }
        };
        if self.own.is_none() {
            let own = Box::new(Operand::new(signature.word(), work.original(0..len)));
            let wakes = board.put(&own, &mut join).map_err(differs)?;
            self.own = Some(own);
            if wakes {
                (0..board.ranks).filter(|rank| *rank != board.me).for_each(|rank| shm.wake(rank));
            }
        }
        let Some(own) = self.own.as_ref().filter(|_| ahead == 0) else { return Ok(State::Waiting) };
        let Some(result) = board.result(own, &mut join).map_err(differs)? else {
            return Ok(State::Waiting);
        };
        group.see();
        let room = work.room(0..len);
        if let Some(bytes) = result.bytes.get(..room.len()) {
            room.copy_from_slice(bytes);
        }
        Ok(State::Done)
    }
}
