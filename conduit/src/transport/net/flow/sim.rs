//! Whole jobs of ranks that lend credits to each other, in any order of steps, and what must hold
//! after each. I1 to I14 are the invariants of `docs/design/flow.md`.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::borrow::Demand;
use super::lend::{Lender, WrongReturn};
use super::*;
use crate::transport::net::credits::Account;

const LIMITS: Limits =
    Limits { least: 1, most: 12, lent: 10, revoked: 4, low_water: 2, asked: 2, epoch: 16 };

#[derive(Clone, Copy, Debug)]
enum Message {
    Request { wanted: u32, epoch: bool },
    Reply { granted: u32, epoch: bool },
    Revoke { epoch: bool },
    Return { given: u32, epoch: bool },
}

/// What one rank keeps of another, and what is under way from it. Requests, replies and messages of
/// flow control pass each other.
struct Side {
    account: Account,
    demand: Demand,
    /// An epoch ended here, and the peer was not told.
    untold: bool,
    requests: VecDeque<Message>,
    replies: VecDeque<Message>,
    system: VecDeque<Message>,
    /// The request that waits for a credit has been counted.
    waits: bool,
    to_send: u32,
}

struct Job {
    size: usize,
    limits: Limits,
    total: u32,
    lenders: Vec<Lender>,
    /// `sides[a][b]`: of rank a about b.
    sides: Vec<Vec<Side>>,
    /// Messages that exist for credits alone, and credits that moved.
    system: u32,
    moved: u32,
    handled: u32,
}

impl Job {
    fn new(size: usize, banked: u32, limits: Limits) -> Self {
        let side = || Side {
            account: Account::new(limits.least, 0),
            demand: Demand::default(),
            untold: false,
            requests: VecDeque::new(),
            replies: VecDeque::new(),
            system: VecDeque::new(),
            waits: false,
            to_send: 0,
        };
        let lender = || {
            let mut lender = Lender::new(limits, banked);
            (0..size).for_each(|peer| assert_eq!(lender.add_peer() as usize, peer));
            lender
        };
        let lenders: Vec<_> = (0..size).map(|_| lender()).collect();
        let sides = (0..size).map(|_| (0..size).map(|_| side()).collect()).collect();
        let total = lenders[0].total();
        Self { size, limits, total, lenders, sides, system: 0, moved: 0, handled: 0 }
    }

    fn told(&mut self, from: usize, to: usize) -> bool {
        std::mem::take(&mut self.sides[from][to].untold)
    }

    /// One attempt to send one of the requests that are to be sent.
    fn try_request(&mut self, from: usize, to: usize) -> bool {
        let side = &mut self.sides[from][to];
        if side.to_send == 0 {
            return false;
        }
        if !side.account.take() {
            if !side.waits {
                side.demand.stalled(&side.account);
            }
            side.waits = true;
            return false;
        }
        side.waits = false;
        side.to_send -= 1;
        let wanted = side.demand.ask();
        assert!(wanted <= MOST_WANTED, "I11");
        let epoch = self.told(from, to);
        self.sides[from][to].requests.push_back(Message::Request { wanted, epoch });
        true
    }

    /// Delivers what is first in one of the three queues from a rank to another.
    fn deliver(&mut self, from: usize, to: usize, queue: usize) -> bool {
        let side = &mut self.sides[from][to];
        let queue = match queue {
            0 => &mut side.requests,
            1 => &mut side.replies,
            _ => &mut side.system,
        };
        let Some(message) = queue.pop_front() else { return false };
        self.arrive(from, to, message);
        true
    }

    fn arrive(&mut self, from: usize, to: usize, message: Message) {
        let epoch = match message {
            Message::Request { epoch, .. }
            | Message::Reply { epoch, .. }
            | Message::Revoke { epoch }
            | Message::Return { epoch, .. } => epoch,
        };
        if epoch {
            self.sides[to][from].demand.epoch_ended();
        }
        match message {
            Message::Request { wanted, .. } => self.request_arrives(from, to, wanted),
            Message::Reply { granted, .. } => {
                let side = &self.sides[to][from];
                side.demand.were_in_use(side.account.supply.made() - side.account.available());
                side.account.returned(1).expect("a correct peer");
                side.account.lent(granted);
                self.moved += granted;
            }
            Message::Revoke { .. } => {
                let side = &self.sides[to][from];
                let given = side.demand.give_back(&side.account, &self.limits);
                assert!(side.account.supply.made() >= self.limits.least, "I4");
                let epoch = self.told(to, from);
                self.sides[to][from].system.push_back(Message::Return { given, epoch });
                self.moved += given;
                self.system += 1;
            }
            Message::Return { given, .. } => {
                self.lenders[to].returned(index(from), given).expect("a correct peer");
            }
        }
    }

    fn request_arrives(&mut self, from: usize, to: usize, wanted: u32) {
        self.handled += 1;
        let mut ask = Vec::new();
        let granted = self.lenders[to].requested(index(from), wanted, &mut ask);
        assert!(granted <= wanted, "I11");
        if self.lenders[to].received() {
            self.sides[to].iter_mut().for_each(|side| side.untold = true);
        }
        for peer in ask {
            let peer = peer as usize;
            let epoch = self.told(to, peer);
            let system = &mut self.sides[to][peer].system;
            assert!(!system.iter().any(|m| matches!(m, Message::Revoke { .. })), "I7");
            system.push_back(Message::Revoke { epoch });
            self.system += 1;
        }
        let epoch = self.told(to, from);
        self.sides[to][from].replies.push_back(Message::Reply { granted, epoch });
    }

    fn check(&self) {
        for (lender, own) in self.lenders.iter().zip(&self.sides) {
            assert_eq!(lender.total(), self.total, "I1");
            assert_eq!(own.len(), self.size);
        }
        for (a, b) in self.pairs() {
            let (side, back) = (&self.sides[a][b], &self.sides[b][a]);
            let granted = back.replies.iter().map(|message| match message {
                Message::Reply { granted, .. } => *granted,
                _ => 0,
            });
            let given = side.system.iter().map(|message| match message {
                Message::Return { given, .. } => *given,
                _ => 0,
            });
            let made = side.account.supply.made();
            let held = self.lenders[b].held(index(a));
            assert_eq!(held, made + granted.sum::<u32>() + given.sum::<u32>(), "I2");
            assert!(side.account.available() <= made && made <= self.limits.most, "I3");
            assert!(made >= self.limits.least, "I4");
            let under_way = index(side.requests.len());
            assert!(under_way + index(back.replies.len()) <= held, "I5");
            assert_eq!(side.account.available() + under_way + index(back.replies.len()), made);
        }
    }

    fn pairs(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let size = self.size;
        (0..size).flat_map(move |a| (0..size).map(move |b| (a, b))).filter(|(a, b)| a != b)
    }

    /// One step that the word chooses; whether anything could be done.
    fn step(&mut self, word: usize) -> bool {
        let (a, b) = (word % self.size, word / 8 % self.size);
        match word / 64 % 4 {
            queue @ 0..3 => a != b && self.deliver(a, b, queue),
            _ => a != b && self.try_request(a, b),
        }
    }

    /// All that can be done, pair by pair, until nothing is left. Ranks send as much as they can.
    fn settle(&mut self) {
        let pairs: Vec<_> = self.pairs().collect();
        loop {
            let mut any = false;
            for (a, b) in &pairs {
                for queue in 0..3 {
                    any |= self.deliver(*a, *b, queue);
                }
                while self.try_request(*a, *b) {
                    any = true;
                }
                self.check();
            }
            if !any {
                return;
            }
        }
    }

    fn is_done(&self) -> bool {
        self.pairs().all(|(a, b)| {
            let side = &self.sides[a][b];
            let quiet = [&side.requests, &side.replies, &side.system];
            side.to_send == 0 && quiet.iter().all(|queue| queue.is_empty())
        })
    }

    /// A round of traffic in which each pair has so many requests.
    fn round(&mut self, traffic: impl Fn(usize, usize) -> u32) {
        for (a, b) in self.pairs() {
            self.sides[a][b].to_send += traffic(a, b);
        }
        self.settle();
        assert!(self.is_done(), "I13: a rank waits for a credit for ever");
    }
}

fn index(number: usize) -> u32 {
    u32::try_from(number).expect("few")
}

proptest! {
    /// I1 to I5, I7, I11 and I13 after every step, whatever the order.
    #[test]
    fn credits_neither_appear_nor_vanish(
        size in 2usize..5, banked in 0u32..10, low_water in 0u32..4, epoch in 1u32..20,
        traffic in proptest::collection::vec(0u32..30, 16),
        choices in proptest::collection::vec(any::<u32>(), 50..400),
    ) {
        let limits = Limits { low_water, epoch, ..LIMITS };
        let mut job = Job::new(size, banked, limits);
        for (a, b) in job.pairs() {
            job.sides[a][b].to_send = traffic[a * 4 + b];
        }
        for word in choices.iter().cycle().take(2000) {
            job.step(*word as usize);
            job.check();
        }
        job.settle();
        prop_assert!(job.is_done(), "I13");
        let sent = job.pairs().map(|(a, b)| traffic[a * 4 + b]).sum::<u32>();
        prop_assert_eq!(job.handled, sent);
    }

    /// I14: where no credit may move, the numbers stay what they were and nothing is said.
    #[test]
    fn without_a_bank_credits_are_fixed(
        traffic in proptest::collection::vec(0u32..30, 9), least in 1u32..5,
    ) {
        let limits = Limits { least, most: least, low_water: 0, ..LIMITS };
        let mut job = Job::new(3, 0, limits);
        job.round(|a, b| traffic[a * 3 + b]);
        prop_assert_eq!((job.system, job.moved), (0, 0));
        for (a, b) in job.pairs() {
            prop_assert_eq!(job.sides[a][b].account.available(), least);
        }
    }
}

/// I6: ranks that never stall send nothing for credits alone, and none moves.
#[test]
fn who_does_not_stall_says_nothing() {
    let mut job = Job::new(4, 3, LIMITS);
    for _ in 0..200 {
        job.round(|_, _| 1);
    }
    assert_eq!((job.system, job.moved), (0, 0));
}

/// I8: the same traffic in each round comes to rest; then credits lie where they are used.
#[test]
fn credits_come_to_rest_where_they_are_used() {
    let mut job = Job::new(4, 12, LIMITS);
    let traffic = |a: usize, b: usize| if b == (a + 1) % 4 { 8 } else { 0 };
    (0..200).for_each(|_| job.round(traffic));
    let moved = job.moved;
    (0..200).for_each(|_| job.round(traffic));
    assert_eq!(job.moved, moved, "credits still move");
    for a in 0..4 {
        assert!(job.lenders[(a + 1) % 4].held(index(a)) >= 6, "the neighbour has what it uses");
    }
}

/// I13, and that idle peers lose what they had: a hot spot that moves.
#[test]
fn a_hot_spot_that_moves_takes_the_credits_with_it() {
    let mut job = Job::new(4, 6, LIMITS);
    for turn in 0..6 {
        let sender = 1 + turn % 3;
        (0..150).for_each(|_| job.round(|a, b| if (a, b) == (sender, 0) { 8 } else { 0 }));
        let held = job.lenders[0].held(index(sender));
        assert!(held >= 4, "turn {turn}: rank {sender} has {held} credits");
    }
}

/// I9.
#[test]
fn numbers_of_the_past_vanish_within_eight_epochs() {
    let mut number = u32::from(u16::MAX);
    (0..8).for_each(|_| number = decayed(number));
    assert_eq!(number, 0);
}

/// I10, first half: who stalled in this epoch keeps all.
#[test]
fn who_stalled_lately_gives_nothing_back() {
    let account = Account::new(1, 0);
    account.lent(9);
    let demand = Demand::default();
    demand.stalled(&account);
    assert_eq!(demand.give_back(&account, &LIMITS), 0);
    demand.epoch_ended();
    assert_eq!(demand.give_back(&account, &LIMITS), LIMITS.revoked);
    assert_eq!(demand.give_back(&account, &LIMITS), 0, "no more in this epoch");
}

/// What is under way is never given back, even when the past has been forgotten.
#[test]
fn what_is_in_use_stays() {
    let account = Account::new(1, 0);
    account.lent(5);
    assert!((0..5).all(|_| account.take()));
    let demand = Demand::default();
    assert_eq!(demand.give_back(&account, &LIMITS), 1);
    assert_eq!((account.supply.made(), account.available()), (5, 0));
}

/// I10, second half, and I12: a peer with nothing to give is left alone until the epoch ends, and a
/// search goes on where the last one stopped.
#[test]
fn each_peer_is_asked_in_turn() {
    let limits = Limits { low_water: u32::MAX, asked: 2, epoch: 1000, ..LIMITS };
    let mut lender = Lender::new(limits, 40);
    (0..6).for_each(|_| {
        lender.add_peer();
    });
    let mut ask = Vec::new();
    for peer in 0..5 {
        assert_eq!(lender.requested(peer, 3, &mut ask), 3);
    }
    assert_eq!(ask, [], "all have asked for more lately");
    (0..2000).for_each(|_| {
        lender.received();
    });
    let mut asked = Vec::new();
    for _ in 0..3 {
        lender.requested(5, 1, &mut ask);
        asked.append(&mut ask);
    }
    let mut sorted = asked.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, [0, 1, 2, 3, 4], "each once");
    asked.iter().for_each(|peer| lender.returned(*peer, 0).expect("was asked"));
    lender.requested(5, 1, &mut ask);
    assert_eq!(ask, [], "nobody has anything in this epoch");
}

/// A peer that gives back what nobody asked for, or more than it has, is not believed.
#[test]
fn wrong_returns_are_refused() {
    let limits = Limits { low_water: u32::MAX, epoch: 1, ..LIMITS };
    let mut lender = Lender::new(limits, 9);
    let peers = [lender.add_peer(), lender.add_peer()];
    assert_eq!(lender.returned(peers[0], 0), Err(WrongReturn::Unasked { returned: 0 }));
    assert_eq!(lender.returned(77, 1), Err(WrongReturn::Unasked { returned: 1 }));
    let mut ask = Vec::new();
    assert_eq!(lender.requested(peers[0], 3, &mut ask), 3);
    assert!(lender.received());
    lender.requested(peers[1], 1, &mut ask);
    assert_eq!(ask, [peers[0]]);
    let wrong = WrongReturn::TooMany { returned: 4, held: 4, least: 1 };
    assert_eq!(lender.returned(peers[0], 4), Err(wrong));
    lender.returned(peers[0], 3).expect("all but the least");
    assert_eq!(lender.returned(peers[0], 0), Err(WrongReturn::Unasked { returned: 0 }), "twice");
}
