//! Whole jobs of ranks that lend credits to each other, in any order of steps, and what must hold
//! after each. I1 to I14 are the invariants of `docs/design/flow.md`.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::borrow::Demand;
use super::lend::{Lender, Question, WrongReturn};
use super::*;
use crate::transport::net::credits::{Account, Carried};

const LIMITS: Limits =
    Limits { least: 1, most: 12, lent: 10, revoked: 4, low_water: 2, asked: 2, epoch: 16 };

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Request,
    Reply,
    Revoke { keep: Option<u32> },
    Return { given: u32 },
}

type Message = (Kind, Carried);

/// What one rank keeps of another, and what is under way from it. Requests, replies and messages of
/// flow control pass each other.
struct Side {
    account: Account,
    demand: Demand,
    requests: VecDeque<Message>,
    replies: VecDeque<Message>,
    system: VecDeque<Message>,
    to_send: u32,
}

impl Side {
    fn send(&mut self, kind: Kind) {
        let carried = self.account.carry();
        let queue = match kind {
            Kind::Request => &mut self.requests,
            Kind::Reply => &mut self.replies,
            Kind::Revoke { .. } | Kind::Return { .. } => &mut self.system,
        };
        queue.push_back((kind, carried));
    }

    fn queues(&self) -> impl Iterator<Item = &Message> {
        self.requests.iter().chain(&self.replies).chain(&self.system)
    }
}

struct Job {
    size: usize,
    limits: Limits,
    banked: u32,
    lenders: Vec<Lender>,
    clocks: Vec<EpochClock>,
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
            requests: VecDeque::new(),
            replies: VecDeque::new(),
            system: VecDeque::new(),
            to_send: 0,
        };
        let lenders = (0..size).map(|_| Lender::new(limits, banked)).collect();
        let clocks = (0..size).map(|_| EpochClock::default()).collect();
        let sides = (0..size).map(|_| (0..size).map(|_| side()).collect()).collect();
        Self { size, limits, banked, lenders, clocks, sides, system: 0, moved: 0, handled: 0 }
    }

    /// One attempt to send one of the requests that are to be sent.
    fn try_request(&mut self, from: usize, to: usize) -> bool {
        let side = &mut self.sides[from][to];
        if side.to_send == 0 {
            return false;
        }
        if !side.account.take() {
            side.demand.stalled(&side.account);
            return false;
        }
        side.to_send -= 1;
        side.send(Kind::Request);
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
        let Some((kind, carried)) = queue.pop_front() else { return false };
        self.arrive(from, to, kind, carried);
        true
    }

    fn arrive(&mut self, from: usize, to: usize, kind: Kind, carried: Carried) {
        let side = &mut self.sides[to][from];
        if carried.epoch() {
            side.demand.epoch_ended();
        }
        side.account.lent(carried.granted());
        self.moved += carried.granted();
        if kind == Kind::Reply {
            side.demand.answered(&side.account);
        }
        let back = carried.returned() + u32::from(kind == Kind::Reply);
        side.account.returned(back).expect("a correct peer");
        let collected = if side.demand.owes() { side.demand.collect(&side.account) } else { None };
        if kind == Kind::Request {
            self.handled += 1;
            if self.clocks[to].tick(self.lenders[to].epoch()) {
                self.lenders[to].end_epoch();
                self.sides[to].iter().for_each(|side| side.account.tell_epoch());
            }
        }
        self.answer(from, to, collected);
        self.lend(from, to, carried.wanted());
        let side = &mut self.sides[to][from];
        match kind {
            Kind::Request => side.send(Kind::Reply),
            Kind::Reply => {}
            Kind::Revoke { keep } => {
                assert!(!side.demand.owes(), "I7");
                let given = match keep {
                    None => Some(side.demand.give_back(&side.account, &self.limits)),
                    Some(keep) => side.demand.share(&side.account, &self.limits, keep),
                };
                self.answer(from, to, given);
            }
            Kind::Return { given } => {
                self.lenders[to].returned(index(from), given).expect("a correct peer");
            }
        }
    }

    /// A rank gives back what another asked for.
    fn answer(&mut self, from: usize, to: usize, given: Option<u32>) {
        let Some(given) = given else { return };
        self.sides[to][from].send(Kind::Return { given });
        self.moved += given;
        self.system += 1;
    }

    fn lend(&mut self, from: usize, to: usize, wanted: u32) {
        let mut ask = Vec::new();
        let granted = self.lenders[to].requested(index(from), wanted, &mut ask);
        assert!(granted <= wanted && wanted <= MOST_WANTED, "I11");
        self.sides[to][from].account.lend(granted);
        for Question { peer, keep } in ask {
            let side = &mut self.sides[to][peer as usize];
            let asks = |kind: &Kind| matches!(kind, Kind::Revoke { .. });
            assert!(!side.system.iter().any(|(kind, _)| asks(kind)), "I7");
            side.send(Kind::Revoke { keep });
            self.system += 1;
        }
    }

    fn check(&self) {
        for lender in &self.lenders {
            assert_eq!(lender.total(), self.banked, "I1");
            let [kept, counted] = lender.books();
            assert_eq!(kept, counted, "those that wait, and what is expected for them");
        }
        for (a, b) in self.pairs() {
            let (side, back) = (&self.sides[a][b], &self.sides[b][a]);
            let granted: u32 = back.queues().map(|(_, carried)| carried.granted()).sum();
            let given = side.system.iter().map(|(kind, _)| match kind {
                Kind::Return { given } => *given,
                _ => 0,
            });
            let made = side.account.supply.made();
            let held = self.lenders[b].held(index(a));
            let moving =
                granted + back.account.lending() + given.sum::<u32>() + side.demand.collected();
            assert_eq!(held, made + moving, "I2");
            assert!(made <= self.limits.most, "I3");
            assert!(made >= self.limits.least, "I4");
            let under_way = index(side.requests.len() + back.replies.len());
            assert!(under_way <= held, "I5");
            assert_eq!(side.account.available() + under_way, made, "I3");
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
            side.to_send == 0 && side.queues().next().is_none()
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

/// What is beyond its share a rank gives back however busy it is, when others wait for theirs: what
/// is under way when it is answered, in one answer, and never what is its share.
#[test]
fn beyond_its_share_a_rank_that_stalls_gives_back() {
    let account = Account::new(1, 0);
    account.lent(9);
    assert!((0..9).all(|_| account.take()));
    let demand = Demand::default();
    demand.stalled(&account);
    assert_eq!(demand.share(&account, &LIMITS, 7), None, "one of three is not under way");
    assert_eq!((demand.collected(), account.supply.made()), (1, 9));
    for (answer, made) in [(None, 8), (Some(3), 7)] {
        assert!(demand.owes());
        account.returned(1).expect("under way");
        assert_eq!((demand.collect(&account), account.supply.made()), (answer, made));
    }
    assert!(!demand.owes());
    // One more in this epoch, and never its share.
    assert_eq!(demand.share(&account, &LIMITS, 7), Some(0));
    account.returned(7).expect("under way");
    assert_eq!(demand.share(&account, &LIMITS, 2), Some(1));
    assert_eq!(demand.share(&account, &LIMITS, 0), Some(0));
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
    let limits = Limits { low_water: u32::MAX, ..LIMITS };
    let mut lender = Lender::new(limits, 40);
    let mut ask = Vec::new();
    for peer in 0..5 {
        assert_eq!(lender.requested(peer, 3, &mut ask), 3);
    }
    assert_eq!(ask, [], "all have asked for more lately");
    lender.end_epoch();
    let mut asked = Vec::new();
    for _ in 0..3 {
        lender.requested(5, 1, &mut ask);
        asked.append(&mut ask);
    }
    let mut sorted: Vec<_> = asked.iter().map(|question| question.peer).collect();
    sorted.sort_unstable();
    assert_eq!(sorted, [0, 1, 2, 3, 4], "each once");
    sorted.iter().for_each(|peer| lender.returned(*peer, 0).expect("was asked"));
    lender.requested(5, 1, &mut ask);
    assert_eq!(ask, [], "nobody has anything in this epoch");
}

/// A peer that gives back what nobody asked for, or more than it has, is not believed.
#[test]
fn wrong_returns_are_refused() {
    let limits = Limits { low_water: u32::MAX, ..LIMITS };
    let mut lender = Lender::new(limits, 9);
    let peers = [0, 1];
    assert_eq!(lender.returned(peers[0], 0), Err(WrongReturn::Unasked { returned: 0 }));
    assert_eq!(lender.returned(77, 1), Err(WrongReturn::Unasked { returned: 1 }));
    let mut ask = Vec::new();
    assert_eq!(lender.requested(peers[0], 3, &mut ask), 3);
    lender.end_epoch();
    lender.requested(peers[1], 1, &mut ask);
    assert_eq!(ask, [Question { peer: peers[0], keep: None }]);
    let wrong = WrongReturn::TooMany { returned: 4, held: 4, least: 1 };
    assert_eq!(lender.returned(peers[0], 4), Err(wrong));
    lender.returned(peers[0], 3).expect("all but the least");
    assert_eq!(lender.returned(peers[0], 0), Err(WrongReturn::Unasked { returned: 0 }), "twice");
}
