//! Invariants of flow control, and a small simulation of whole jobs.

use std::collections::VecDeque;

use super::*;
use proptest::prelude::*;

#[test]
fn permits_keep_their_reserve() {
    let permits = Permits::new(3);
    assert!(permits.take(1) && permits.take(1));
    assert!(!permits.take(1));
    assert!(permits.take(0) && !permits.take(0));
    permits.give(2);
    assert_eq!(permits.left(), 2);
}

#[test]
fn too_many_credits_are_not_believed() {
    let account = Account::new(4, 1);
    assert_eq!(account.returned(1), Err(TooMany { returned: 1, possible: 0 }));
    assert!(account.take() && account.take());
    assert_eq!(account.returned(3), Err(TooMany { returned: 3, possible: 2 }));
    account.returned(2).unwrap();
    assert_eq!(account.available(), 4);
}

#[test]
fn slack_is_below_the_credits() {
    let account = Account::new(1, 200);
    assert!(account.bank(), "the only credit must not stay");
    let account = Account::new(1000, 500);
    assert!((0..255).all(|_| !account.bank()));
    assert!(account.bank());
    assert_eq!(account.carry(), Carried(255));
    assert_eq!(account.carry(), Carried(1));
}

#[test]
fn a_supply_grows_by_what_there_is_up_to_its_end() {
    let supply = Supply::new(2, 11);
    assert_eq!([supply.more(), supply.more(), supply.more(), supply.more()], [2, 4, 3, 0]);
    assert_eq!(supply.made(), 11);
    let supply = Supply::new(0, 300);
    let steps: Vec<u32> = std::iter::from_fn(|| Some(supply.more()).filter(|n| *n > 0)).collect();
    assert_eq!(steps, [1, 1, 2, 4, 8, 16, 32, 64, 64, 64, 44]);
    let supply = Supply::new(4, 100);
    let wanted = supply.more();
    supply.end(wanted);
    assert_eq!((supply.made(), supply.more()), (4, 0), "what failed is not tried again");
    assert_eq!(Supply::new(9, 3).made(), 3);
}

#[test]
fn a_growing_account_is_not_given_back_more_than_it_has() {
    let account = Account::growing((2, 12), 11, Sharing::Threads);
    assert!(account.take() && account.take() && !account.take());
    let more = account.supply.more();
    account.add(more);
    assert_eq!((more, account.available()), (2, 2));
    account.returned(2).unwrap();
    assert_eq!(account.returned(1), Err(TooMany { returned: 1, possible: 0 }));
    assert!((0..11).all(|_| !account.bank()) && account.bank(), "slack is of all credits");
}

#[test]
fn a_peer_that_has_few_credits_for_good_is_sent_them_back() {
    let account = Account::growing((2, 12), 5, Sharing::Threads);
    let wanted = account.supply.more();
    account.supply.end(wanted);
    assert!(!account.has_limit() && account.take_limit().is_none());
    assert!(account.ends());
    assert_eq!(account.take_limit(), Some(2));
    account.untold(2);
    assert_eq!((account.take_limit(), account.take_limit()), (Some(2), None));
    // The peer's view.
    let account = Account::growing((2, 12), 5, Sharing::Threads);
    assert!(!account.bank() && !account.bank() && !account.is_ack_due());
    account.peer_ends(2);
    assert!(account.is_ack_due());
    account.carry();
    assert!(!account.bank() && account.bank());
    account.peer_ends(7);
    assert!(account.is_ack_due(), "it does not grow again");
    // With more credits than can lie banked it need not know.
    assert!(
        !Account::growing((6, 12), 5, Sharing::Threads).ends()
            && Account::growing((5, 12), 5, Sharing::Threads).ends()
    );
}

proptest! {
    /// Whatever is put back and taken again in whatever portions, all arrives once.
    #[test]
    fn what_waits_for_a_message_arrives_once(
        banked in 0u32..600, lent in proptest::collection::vec(0u32..=7, 0..20), wanted in 0u32..=7,
        epoch: bool, fails in proptest::collection::vec(any::<bool>(), 1..20),
    ) {
        let account = Account::new(1000, 255);
        (0..banked).for_each(|_| { account.bank(); });
        lent.iter().for_each(|count| account.lend(*count));
        prop_assert_eq!(account.want(wanted), true);
        if epoch {
            account.tell_epoch();
        }
        let (mut back, mut granted, mut wants, mut ends) = (0, 0, 0, 0);
        for fails in fails.iter().chain(&[false; 30]) {
            let carried = account.carry();
            if *fails {
                account.uncarry(carried);
                continue;
            }
            back += carried.returned();
            granted += carried.granted();
            wants += carried.wanted();
            ends += u32::from(carried.epoch());
        }
        let all = (banked, lent.iter().sum(), wanted, u32::from(epoch));
        prop_assert_eq!((back, granted, wants, ends), all);
        prop_assert_eq!(account.carry(), Carried(0));
    }
}

#[derive(Clone, Copy)]
enum Kind {
    Request { answer: bool },
    Reply,
    Ack,
    Limit(u32),
}

struct Packet {
    kind: Kind,
    carried: Carried,
}

/// Ranks that all talk to each other; `links[a][b]` is what is under way from a to b.
struct Job {
    size: usize,
    credits: u32,
    accounts: Vec<Vec<Account>>,
    links: Vec<Vec<VecDeque<Packet>>>,
    /// Requests still to be sent, per pair.
    wanted: Vec<Vec<u32>>,
    /// Limits that are still to be told, per pair.
    untold: Vec<Vec<bool>>,
    total: Vec<Permits>,
    handled: u32,
}

impl Job {
    /// `limit`: credits that a sender has for good, which its peers learn when it lacks one.
    fn new(size: usize, (credits, limit): (u32, u32), slack: u32, total: u32, each: u32) -> Self {
        let square = |make: &dyn Fn() -> Account| {
            (0..size).map(|_| (0..size).map(|_| make()).collect()).collect()
        };
        let account = || {
            let account = Account::growing((limit, credits), slack, Sharing::Threads);
            account.supply.end(0);
            account
        };
        Self {
            size,
            credits: limit,
            accounts: square(&account),
            links: (0..size).map(|_| (0..size).map(|_| VecDeque::new()).collect()).collect(),
            wanted: (0..size)
                .map(|a| (0..size).map(|b| if a == b { 0 } else { each }).collect())
                .collect(),
            untold: vec![vec![true; size]; size],
            total: (0..size).map(|_| Permits::new(total)).collect(),
            handled: 0,
        }
    }

    fn send(&mut self, from: usize, to: usize, kind: Kind) {
        let carried = self.accounts[from][to].carry();
        self.links[from][to].push_back(Packet { kind, carried });
    }

    fn try_request(&mut self, from: usize, to: usize, answer: bool) -> bool {
        if self.wanted[from][to] == 0 || !self.total[from].take(0) {
            return false;
        }
        let account = &self.accounts[from][to];
        if !account.take() {
            self.total[from].give(1);
            let tells = std::mem::take(&mut self.untold[from][to]) && account.ends();
            if let Some(limit) = account.take_limit() {
                self.send(from, to, Kind::Limit(limit));
            }
            return tells;
        }
        self.wanted[from][to] -= 1;
        self.send(from, to, Kind::Request { answer });
        true
    }

    /// A message arrives. Handlers answer with one reply at most, which needs no credit.
    fn deliver(&mut self, from: usize, to: usize) -> bool {
        let Some(packet) = self.links[from][to].pop_front() else { return false };
        let own = match packet.kind {
            Kind::Reply => 1,
            Kind::Request { .. } | Kind::Ack | Kind::Limit(_) => 0,
        };
        let back = own + packet.carried.returned();
        self.accounts[to][from].returned(back).expect("a correct peer");
        self.total[to].give(back);
        if let Kind::Request { answer } = packet.kind {
            self.handled += 1;
            if answer {
                self.send(to, from, Kind::Reply);
            } else if self.accounts[to][from].bank() {
                self.send(to, from, Kind::Ack);
            }
        }
        if let Kind::Limit(limit) = packet.kind {
            self.accounts[to][from].peer_ends(limit);
            if self.accounts[to][from].is_ack_due() {
                self.send(to, from, Kind::Ack);
            }
        }
        true
    }

    /// Credits neither appear nor vanish, and the receive queues hold what is under way.
    fn check(&self) {
        for a in 0..self.size {
            for b in (0..self.size).filter(|b| *b != a) {
                let link = |x: usize, y: usize| self.links[x][y].iter();
                let requests =
                    link(a, b).filter(|p| matches!(p.kind, Kind::Request { .. })).count();
                let answers = link(b, a).filter(|p| matches!(p.kind, Kind::Reply)).count();
                let carried: u32 = link(b, a).map(|p| p.carried.returned()).sum();
                let banked = self.accounts[b][a].banked();
                let under_way = u32::try_from(requests + answers).unwrap();
                let sum = self.accounts[a][b].available() + under_way + carried + banked;
                assert_eq!(sum, self.credits, "credits of {a} towards {b}");
                let limits = link(a, b).filter(|p| matches!(p.kind, Kind::Limit(_))).count();
                let most = 2 * self.credits as usize + limits;
                assert!(self.links[a][b].len() <= most, "receive queue");
            }
        }
    }

    fn is_done(&self) -> bool {
        self.wanted.iter().flatten().all(|n| *n == 0)
            && self.links.iter().flatten().all(VecDeque::is_empty)
    }
}

proptest! {
    #[test]
    fn floods_end_and_lose_no_credit(
        size in 2usize..5, credits in 1u32..9, limit in 1u32..9, slack in 0u32..8, total in 1u32..12, each in 1u32..30,
        answers in 0usize..=4, choices in proptest::collection::vec(any::<u32>(), 50..400),
    ) {
        // A total below what can lie banked at the peers would never come back.
        let slack = slack.min(credits - 1);
        let total = total.max((u32::try_from(size).unwrap() - 1) * slack + 1);
        let mut job = Job::new(size, (credits, limit.min(credits)), slack, total, each);
        let mut choice = choices.iter().copied().cycle();
        let mut idle = 0;
        while !job.is_done() {
            let word = choice.next().unwrap() as usize;
            let (a, b) = (word % size, word / 8 % size);
            let moved = if (word / 64).is_multiple_of(2) {
                job.try_request(a, b, word / 128 % 4 < answers)
            } else {
                job.deliver(a, b)
            };
            idle = if moved { 0 } else { idle + 1 };
            if idle > 50 {
                // The dice may be unlucky: every possible step is tried before the job counts as
                // stuck.
                let pairs: Vec<_> =
                    (0..size).flat_map(|a| (0..size).map(move |b| (a, b))).collect();
                let any = pairs.iter().any(|(a, b)| job.deliver(*a, *b))
                    || pairs.iter().any(|(a, b)| job.try_request(*a, *b, false));
                prop_assert!(any, "deadlock");
                idle = 0;
            }
            job.check();
        }
        prop_assert_eq!(job.handled, u32::try_from(size * (size - 1)).unwrap() * each);
    }
}
