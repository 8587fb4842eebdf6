//! Lanes of several ranks, an owner with a small budget, and messages that take their time: whatever
//! the order, every byte is moved once, and adapters name registered memory alone.

use std::collections::{HashSet, VecDeque};

use proptest::prelude::*;

use super::lane::{Chunk, Lane, Want};
use super::ledger::{Ledger, LoanId};
use crate::transport::net::regions_for_tests::{Limits, Plan, Regions, Span, Use};

const MEMORY: usize = 400;
const LIMITS: Limits = Limits { page: 1, block: 16, bytes: 80, regions: 6 };
/// Parts of a loan.
const PARTS: usize = 3;

/// What is lent: uses of regions, with their numbers.
type Held = Vec<(Use, u32)>;

struct Owner {
    regions: Regions<u32>,
    ledger: Ledger<Held>,
    /// Regions that devices know.
    registered: HashSet<u32>,
    next: u32,
}

impl Owner {
    fn new() -> Self {
        let (regions, ledger) = (Regions::new(LIMITS), Ledger::default());
        Self { regions, ledger, registered: HashSet::new(), next: 0 }
    }

    /// Makes what is missing, if there is room; `fails`: the device refuses.
    fn make(&mut self, span: Span, write: bool, fails: bool) -> bool {
        loop {
            match self.regions.plan(span, write) {
                Plan::Evict(_, gone) => assert!(self.registered.remove(&gone)),
                Plan::Full => return false,
                Plan::Register(..) if fails => return false,
                Plan::Register(union, write) => {
                    self.next += 1;
                    self.registered.insert(self.next);
                    assert_eq!(self.regions.insert(union, write, self.next), Ok(()));
                    return true;
                }
            }
        }
    }

    fn lend(
        &mut self,
        holder: usize,
        chunk: Chunk,
        write: bool,
        fails: bool,
    ) -> Option<(LoanId, usize)> {
        let (mut held, mut at) = (Held::new(), chunk.at as u64);
        let end = (chunk.at + chunk.len) as u64;
        while at < end && held.len() < PARTS {
            let span = LIMITS.first_block(at, end - at).expect("no overflow");
            let found = self.regions.hold(span, write).map(|(one, id)| (one, *id));
            match found {
                Some(found) => held.push(found),
                None if self.make(span, write, fails) => continue,
                None => break,
            }
            at = span.to;
        }
        let (bytes, regions) = (self.regions.held().1, self.regions.held().0);
        assert!(bytes <= LIMITS.bytes && regions <= LIMITS.regions as usize);
        if held.is_empty() {
            return None;
        }
        let loan = self.ledger.lend(holder, held).expect("room");
        Some((loan, usize::try_from(at).expect("small") - chunk.at))
    }
}

enum Message {
    Ask(Chunk, usize, Option<LoanId>),
    Return(LoanId),
}

enum Answer {
    Lent(LoanId, usize, Vec<u32>),
    Refused,
}

/// A rank with one lane.
struct Borrower {
    lane: Lane,
    put: bool,
    chunks: Vec<Chunk>,
    /// How often each byte was moved.
    moved: Vec<u8>,
    /// Regions of what it was lent.
    regions: Vec<u32>,
    out: VecDeque<Message>,
    back: VecDeque<Answer>,
    is_over: bool,
}

impl Borrower {
    fn new((first, len, put): (usize, usize, bool)) -> Self {
        let half = len / 2;
        let chunk = |at, len| Chunk { at: first + at, len };
        let chunks = vec![chunk(half, len - half)];
        Self {
            lane: Lane::new(chunk(0, half), if put { 5 } else { 0 }),
            put,
            chunks,
            moved: vec![0; MEMORY],
            regions: Vec::new(),
            out: VecDeque::new(),
            back: VecDeque::new(),
            is_over: false,
        }
    }

    fn count(&mut self, part: Chunk) {
        self.moved[part.at..part.at + part.len].iter_mut().for_each(|byte| *byte += 1);
    }

    /// Does what the lane wants, `most` bytes at most.
    fn step(&mut self, owner: &Owner, most: usize) {
        match self.lane.wants() {
            Want::Ask { part, carries, returns } => {
                self.out.push_back(Message::Ask(part, carries, returns));
                self.lane.asked();
            }
            Want::Move { part, .. } => {
                let part = Chunk { len: part.len.min(most), ..part };
                assert!(self.regions.iter().all(|region| owner.registered.contains(region)));
                self.count(part);
                self.lane.moved(part.len);
            }
            Want::Send(part) => {
                let part = Chunk { len: part.len.min(most), ..part };
                self.count(part);
                self.lane.moved(part.len);
            }
            Want::End => self.lane.ended(),
            Want::Next => {
                let chunk = self.chunks.pop();
                self.lane.next(chunk);
            }
            Want::Return(loan) => {
                self.out.push_back(Message::Return(loan));
                self.lane.returned();
            }
            Want::Answer => {}
            Want::Nothing => self.is_over = true,
        }
    }

    /// The owner takes a message.
    fn serve(&mut self, number: usize, owner: &mut Owner, fails: bool) {
        match self.out.pop_front() {
            Some(Message::Return(loan)) => {
                assert!(owner.ledger.give_back(number, loan).is_some());
                assert!(owner.ledger.give_back(number, loan).is_none(), "twice");
            }
            Some(Message::Ask(part, carries, returns)) => {
                if let Some(loan) = returns {
                    assert!(owner.ledger.give_back(number + 1, loan).is_none(), "another's");
                    assert!(owner.ledger.give_back(number, loan).is_some());
                }
                self.count(Chunk { len: carries, ..part });
                let rest = Chunk { at: part.at + carries, len: part.len - carries };
                let lent = owner.lend(number, rest, self.put, fails);
                self.back.push_back(match lent {
                    Some((loan, len)) => {
                        let held = owner.ledger.give_back(number, loan).expect("just lent");
                        let ids = held.iter().map(|(_, id)| *id).collect();
                        let loan = owner.ledger.lend(number, held).expect("room");
                        Answer::Lent(loan, len, ids)
                    }
                    None => Answer::Refused,
                });
            }
            None => {}
        }
    }

    fn hear(&mut self) {
        match self.back.pop_front() {
            Some(Answer::Lent(loan, len, regions)) => {
                self.regions = regions;
                assert_eq!(self.lane.lent(loan, len), Ok(()));
            }
            Some(Answer::Refused) => assert_eq!(self.lane.refused(true), Ok(())),
            None => {}
        }
    }
}

proptest! {
    #[test]
    fn every_byte_is_moved_once_in_any_order(
        transfers in proptest::collection::vec((0_usize..200, 2_usize..200, any::<bool>()), 1..5),
        steps in proptest::collection::vec((0_u8..8, any::<u8>(), 1_usize..60), 0..300),
    ) {
        let mut owner = Owner::new();
        let mut all: Vec<Borrower> = transfers.iter().copied().map(Borrower::new).collect();
        for (step, choice, amount) in steps {
            let number = usize::from(choice) % all.len();
            let one = &mut all[number];
            match step {
                0..=2 => one.step(&owner, amount),
                3 | 4 => one.serve(number, &mut owner, amount % 7 == 0),
                5 | 6 => one.hear(),
                // Memory is unmapped, also what is lent: then the program is wrong, and yet its
                // region stays registered.
                _ => {
                    let from = amount as u64 * 6;
                    owner.regions.forget(Span { from, to: from + u64::from(choice % 64) });
                }
            }
        }
        for _ in 0..10_000 {
            for (number, one) in all.iter_mut().enumerate() {
                one.step(&owner, 1000);
                one.serve(number, &mut owner, false);
                one.hear();
            }
            if all.iter().all(|one| one.is_over && one.out.is_empty()) {
                break;
            }
        }
        prop_assert_eq!(owner.ledger.len(), 0, "all is given back");
        for (one, (first, len, _)) in all.iter().zip(&transfers) {
            prop_assert!(one.is_over);
            let expected = |at| u8::from((*first..first + len).contains(&at));
            prop_assert!((0..MEMORY).all(|at| one.moved[at] == expected(at)), "{:?}", one.moved);
        }
        // Nothing is in use any more: all of it gives way.
        while let Some((_, gone)) = owner.regions.evict() {
            prop_assert!(owner.registered.remove(&gone));
        }
    }
}
