//! One lane of a transfer: it takes a chunk of it after the other, borrows the memory of each part and
//! gives it back. Pure: [`Lane::wants`] says what is to be done, the other methods that it was done.
//!
//! The state changes only where its method says so; what does not fit the state is refused.

use super::ledger::LoanId;

/// Bytes from `at` on, counted from the beginning of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chunk {
    pub(crate) at: usize,
    pub(crate) len: usize,
}

/// What a lane waits for somebody to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Want {
    /// The owner is to be asked for a part. The first `carries` bytes of it go with the request, and a
    /// loan goes back.
    Ask { part: Chunk, carries: usize, returns: Option<LoanId> },
    /// Adapters are to move a part of what is lent, `skip` bytes behind its beginning.
    Move { part: Chunk, skip: usize },
    /// Messages are to move it.
    Send(Chunk),
    /// What was posted or sent is under way.
    End,
    /// The next chunk, if there is one.
    Next,
    /// Nothing more is to be moved; the last loan goes back.
    Return(LoanId),
    /// An answer.
    Answer,
    /// Nothing any more.
    Nothing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Asking,
    Asked,
    /// Lent from here on, up to there.
    Lent(usize, usize),
    Messages,
    /// All of a part is under way.
    Moving,
    Between,
    Over,
}

/// The message does not fit what was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unasked;

/// One lane.
#[derive(Debug)]
pub(crate) struct Lane {
    chunk: Chunk,
    /// Bytes of the chunk that are moved, or under way.
    done: usize,
    state: State,
    /// Not given back yet.
    loan: Option<LoanId>,
    /// Bytes that go with a request: of puts.
    carries: usize,
}

impl Lane {
    /// A lane that begins with a chunk.
    pub(crate) fn new(chunk: Chunk, carries: usize) -> Self {
        let (state, loan) = (State::Asking, None);
        let mut lane = Self { chunk, done: 0, state, loan, carries };
        lane.go_on();
        lane
    }

    /// Where what is left of the chunk begins.
    pub(crate) const fn begins(&self) -> usize {
        self.chunk.at + self.done
    }

    /// The bytes of the chunk that are left.
    const fn left(&self) -> Chunk {
        Chunk { at: self.begins(), len: self.chunk.len - self.done }
    }

    /// What is left is asked for, if a message does not take all of it along.
    fn go_on(&mut self) {
        self.state = match self.left().len {
            0 => State::Between,
            left if left <= self.carries => State::Messages,
            _ => State::Asking,
        };
    }

    pub(crate) fn wants(&self) -> Want {
        let left = self.left();
        match (self.state, self.loan) {
            (State::Asking, returns) => Want::Ask { part: left, carries: self.carries, returns },
            (State::Asked, _) => Want::Answer,
            (State::Lent(from, to), _) => {
                Want::Move { part: Chunk { len: to - self.done, ..left }, skip: self.done - from }
            }
            (State::Messages, _) => Want::Send(left),
            (State::Moving, _) => Want::End,
            (State::Between, _) => Want::Next,
            (State::Over, Some(loan)) => Want::Return(loan),
            (State::Over, None) => Want::Nothing,
        }
    }

    /// The request has left, and with it the loan of before.
    pub(crate) fn asked(&mut self) {
        if self.state == State::Asking {
            (self.state, self.loan) = (State::Asked, None);
        }
    }

    /// The owner lends so many of the bytes that did not go with the request.
    pub(crate) fn lent(&mut self, loan: LoanId, len: usize) -> Result<(), Unasked> {
        let left = self.left().len - self.carries.min(self.left().len);
        if self.state != State::Asked || len == 0 || len > left {
            return Err(Unasked);
        }
        self.done += self.carries;
        (self.state, self.loan) = (State::Lent(self.done, self.done + len), Some(loan));
        Ok(())
    }

    /// The owner does not lend it. `stored`: what went with the request is where it belongs.
    pub(crate) fn refused(&mut self, stored: bool) -> Result<(), Unasked> {
        if self.state != State::Asked {
            return Err(Unasked);
        }
        if stored {
            self.done += self.carries;
        }
        self.state = State::Messages;
        Ok(())
    }

    /// So many bytes were posted, or have left in a message.
    pub(crate) fn moved(&mut self, len: usize) {
        let end = match self.state {
            State::Lent(_, to) => to,
            State::Messages => self.chunk.len,
            _ => return,
        };
        self.done = (self.done + len).min(end);
        if self.done == end {
            self.state = State::Moving;
        }
    }

    /// All that was under way has ended.
    pub(crate) fn ended(&mut self) {
        if self.state == State::Moving {
            self.go_on();
        }
    }

    /// The next chunk, or none any more.
    pub(crate) fn next(&mut self, chunk: Option<Chunk>) {
        if self.state != State::Between {
            return;
        }
        match chunk {
            Some(chunk) => {
                (self.chunk, self.done) = (chunk, 0);
                self.go_on();
            }
            None => self.state = State::Over,
        }
    }

    /// The loan was given back.
    pub(crate) fn returned(&mut self) {
        if self.state == State::Over {
            self.loan = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOAN: LoanId = LoanId { slot: 1, generation: 2 };
    const OTHER: LoanId = LoanId { slot: 3, generation: 4 };

    #[test]
    fn a_chunk_is_borrowed_moved_and_given_back() {
        let mut lane = Lane::new(Chunk { at: 100, len: 50 }, 10);
        let part = Chunk { at: 100, len: 50 };
        assert_eq!(lane.wants(), Want::Ask { part, carries: 10, returns: None });
        assert_eq!(lane.lent(LOAN, 5), Err(Unasked), "before it was asked");
        lane.asked();
        assert_eq!(lane.lent(LOAN, 41), Err(Unasked), "more than was asked for");
        assert_eq!(lane.lent(LOAN, 0), Err(Unasked));
        assert_eq!(lane.lent(LOAN, 15), Ok(()));
        assert_eq!(lane.lent(LOAN, 15), Err(Unasked), "twice");
        assert_eq!(lane.refused(true), Err(Unasked));
        assert_eq!(lane.wants(), Want::Move { part: Chunk { at: 110, len: 15 }, skip: 0 });
        lane.moved(7);
        assert_eq!(lane.wants(), Want::Move { part: Chunk { at: 117, len: 8 }, skip: 7 });
        lane.moved(8);
        assert_eq!(lane.wants(), Want::End);
        lane.ended();
        let part = Chunk { at: 125, len: 25 };
        assert_eq!(lane.wants(), Want::Ask { part, carries: 10, returns: Some(LOAN) });
        lane.asked();
        assert_eq!(lane.lent(OTHER, 10), Ok(()));
        lane.moved(10);
        lane.ended();
        assert_eq!(lane.wants(), Want::Send(Chunk { at: 145, len: 5 }), "it fits in a message");
        lane.moved(5);
        lane.ended();
        assert_eq!(lane.wants(), Want::Next);
        lane.next(None);
        assert_eq!(lane.wants(), Want::Return(OTHER));
        lane.returned();
        assert_eq!(lane.wants(), Want::Nothing);
    }

    #[test]
    fn what_is_not_lent_goes_by_messages() {
        let mut lane = Lane::new(Chunk { at: 0, len: 50 }, 10);
        lane.asked();
        lane.refused(false).expect("asked");
        assert_eq!(lane.wants(), Want::Send(Chunk { at: 0, len: 50 }));
        lane.moved(50);
        lane.ended();
        lane.next(Some(Chunk { at: 50, len: 30 }));
        lane.asked();
        lane.refused(true).expect("asked");
        assert_eq!(lane.wants(), Want::Send(Chunk { at: 60, len: 20 }));
        lane.moved(20);
        lane.ended();
        lane.next(None);
        assert_eq!(lane.wants(), Want::Nothing);
    }
}
