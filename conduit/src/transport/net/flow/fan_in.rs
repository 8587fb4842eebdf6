//! Many ranks send to one: how often they stall, and what it costs the receiver's memory, with
//! credits that are fixed and with credits that move. Virtual time; the machines are those of the
//! network. `docs/design/flow.md` has the tables.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::borrow::Demand;
use super::lend::{Lender, Question};
use super::{EpochClock, Limits};
use crate::transport::net::credits::{Account, Carried};

/// Nanoseconds on the way, of a handler, and until a sender can send again. Without the last all of a
/// burst would come in at once, and the receiver would serve one sender after the other.
const LATENCY: u64 = 2_000;
const SERVICE: u64 = 100;
const POST: u64 = 100;
/// Requests of a burst of one sender, and bursts before others send.
const BURST: u32 = 64;
const BURSTS: u32 = 128;

/// Who sends to the one rank.
#[derive(Clone, Copy, Debug)]
struct Traffic {
    senders: u32,
    /// Senders that are busy at once, in turn.
    busy: u32,
    turns: u32,
}

/// How credits are shared out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scheme {
    pub(super) limits: Limits,
    pub(super) banked: u32,
}

impl Scheme {
    const fn fixed(credits: u32) -> Self {
        let (least, most) = (credits, credits);
        let limits =
            Limits { least, most, lent: 0, revoked: 0, low_water: 0, asked: 0, epoch: u32::MAX };
        Self { limits, banked: 0 }
    }

    /// As the defaults of the variables, but for the bank.
    pub(super) fn moving(banked: u32) -> Self {
        Self { limits: Limits::of(1, 400, banked, 1024), banked }
    }

    /// Receive buffers for requests.
    fn buffers(self, senders: u32) -> u32 {
        senders * self.limits.least + self.banked
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Outcome {
    requests: u32,
    /// Requests that found no credit.
    stalls: u32,
    /// Messages for credits alone.
    pub(super) system: u32,
    /// Time in which a request waited at a sender and the receiver had nothing to do.
    idle: u64,
    total: u64,
    /// Time of the slowest burst over that of the fastest of the same turn, in percent; the worst.
    unfair: u64,
}

impl Outcome {
    const fn permille(self) -> u32 {
        self.stalls * 1000 / self.requests
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Posted { from: u32 },
    Arrive { from: u32, carried: u16 },
    Served { from: u32 },
    Reply { to: u32, carried: u16 },
    Revoke { to: u32, keep: Option<u32>, carried: u16 },
    Return { from: u32, given: u32, carried: u16 },
}

/// A sender, and what the receiver keeps of it.
struct Pair {
    account: Account,
    demand: Demand,
    at_receiver: Account,
    to_send: u32,
    under_way: u32,
    stalled: bool,
    posting: bool,
    begun: u64,
    done: u64,
}

pub(super) struct Star {
    scheme: Scheme,
    pairs: Vec<Pair>,
    pub(super) lender: Lender,
    clock: EpochClock,
    queue: BinaryHeap<Reverse<(u64, u64, Step)>>,
    sequence: u64,
    now: u64,
    waiting: VecDeque<u32>,
    serving: bool,
    /// Senders with a request that waits for a credit.
    hungry: u32,
    pub(super) outcome: Outcome,
}

impl Star {
    pub(super) fn new(scheme: Scheme, senders: u32) -> Self {
        let pair = |_| Pair {
            account: Account::new(scheme.limits.least, 0),
            demand: Demand::default(),
            at_receiver: Account::new(scheme.limits.least, 0),
            to_send: 0,
            under_way: 0,
            stalled: false,
            posting: false,
            begun: 0,
            done: 0,
        };
        let outcome = Outcome { requests: 0, stalls: 0, system: 0, idle: 0, total: 0, unfair: 100 };
        Self {
            scheme,
            pairs: (0..senders).map(pair).collect(),
            lender: Lender::new(scheme.limits, scheme.banked),
            clock: EpochClock::default(),
            queue: BinaryHeap::new(),
            sequence: 0,
            now: 0,
            waiting: VecDeque::new(),
            serving: false,
            hungry: 0,
            outcome,
        }
    }

    fn after(&mut self, delay: u64, step: Step) {
        self.sequence += 1;
        self.queue.push(Reverse((self.now + delay, self.sequence, step)));
    }

    fn pair(&mut self, at: u32) -> &mut Pair {
        &mut self.pairs[at as usize]
    }

    /// Sends the next request, if there is a credit for it.
    fn send(&mut self, from: u32) {
        let pair = self.pair(from);
        if pair.to_send == 0 || pair.posting {
            return;
        }
        if !pair.account.take() {
            pair.demand.stalled(&pair.account);
            if !std::mem::replace(&mut pair.stalled, true) {
                self.outcome.stalls += 1;
                self.hungry += 1;
            }
            return;
        }
        let was_stalled = std::mem::take(&mut pair.stalled);
        pair.to_send -= 1;
        pair.under_way += 1;
        pair.posting = true;
        let carried = pair.account.carry().0;
        self.hungry -= u32::from(was_stalled);
        self.after(LATENCY, Step::Arrive { from, carried });
        self.after(POST, Step::Posted { from });
    }

    fn serve(&mut self) {
        if !self.serving
            && let Some(from) = self.waiting.pop_front()
        {
            self.serving = true;
            self.after(SERVICE, Step::Served { from });
        }
    }

    /// What the receiver does with what a message carries.
    fn lend(&mut self, from: u32, carried: Carried, request: bool) {
        if request && self.clock.tick(self.lender.epoch()) {
            self.lender.end_epoch();
            self.pairs.iter().for_each(|pair| pair.at_receiver.tell_epoch());
        }
        let mut ask = Vec::new();
        let granted = self.lender.requested(from, carried.wanted(), &mut ask);
        self.pair(from).at_receiver.lend(granted);
        for Question { peer: to, keep } in ask {
            let carried = self.pair(to).at_receiver.carry().0;
            self.outcome.system += 2;
            self.after(LATENCY, Step::Revoke { to, keep, carried });
        }
    }

    /// What a sender does with it.
    fn borrow(&mut self, to: u32, carried: Carried) {
        let pair = self.pair(to);
        if carried.epoch() {
            pair.demand.epoch_ended();
        }
        pair.account.lent(carried.granted());
    }

    /// A sender gives back what it was asked for.
    fn answer(&mut self, from: u32, given: Option<u32>) {
        let Some(given) = given else { return };
        let carried = self.pair(from).account.carry().0;
        self.after(LATENCY, Step::Return { from, given, carried });
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Posted { from } => {
                self.pair(from).posting = false;
                self.send(from);
            }
            Step::Arrive { from, carried } => {
                self.lend(from, Carried(carried), true);
                self.waiting.push_back(from);
            }
            Step::Served { from } => {
                self.serving = false;
                let carried = self.pair(from).at_receiver.carry().0;
                self.after(LATENCY, Step::Reply { to: from, carried });
            }
            Step::Reply { to, carried } => {
                self.borrow(to, Carried(carried));
                let now = self.now;
                let pair = self.pair(to);
                pair.demand.answered(&pair.account);
                pair.account.returned(1).expect("a correct receiver");
                let given =
                    if pair.demand.owes() { pair.demand.collect(&pair.account) } else { None };
                pair.under_way -= 1;
                if pair.to_send + pair.under_way == 0 {
                    pair.done = now;
                }
                self.answer(to, given);
                self.send(to);
            }
            Step::Revoke { to, keep, carried } => {
                self.borrow(to, Carried(carried));
                let limits = self.scheme.limits;
                let pair = self.pair(to);
                let given = match keep {
                    None => Some(pair.demand.give_back(&pair.account, &limits)),
                    Some(keep) => pair.demand.share(&pair.account, &limits, keep),
                };
                self.answer(to, given);
            }
            Step::Return { from, given, carried } => {
                self.lender.returned(from, given).expect("a correct sender");
                self.lend(from, Carried(carried), false);
            }
        }
        self.serve();
    }

    /// Sends without end.
    pub(super) fn floods(&mut self, from: u32) {
        self.pair(from).to_send = u32::MAX;
        self.send(from);
    }

    /// Goes on for some epochs; how many requests of one sender came in, and of all.
    pub(super) fn goes_on(&mut self, epochs: u32, of: u32) -> (u32, u32) {
        let (mut count, mut all) = (0, 0);
        while all < epochs * self.lender.epoch() {
            let Some(Reverse((at, _, step))) = self.queue.pop() else { break };
            if let Step::Arrive { from, .. } = step {
                all += 1;
                count += u32::from(from == of);
            }
            self.now = at;
            self.step(step);
        }
        (count, all)
    }

    /// One burst of each of the busy ones, to its end.
    fn burst(&mut self, busy: impl Iterator<Item = u32> + Clone) {
        let begin = self.now;
        for from in busy.clone() {
            let pair = self.pair(from);
            (pair.to_send, pair.begun) = (BURST, begin);
            self.outcome.requests += BURST;
            self.send(from);
        }
        while let Some(Reverse((at, _, step))) = self.queue.pop() {
            if self.hungry > 0 && !self.serving {
                self.outcome.idle += at - self.now;
            }
            self.now = at;
            self.step(step);
        }
        let times = busy.map(|from| self.pairs[from as usize].done - begin);
        let (least, most) = (times.clone().min().unwrap_or(1), times.max().unwrap_or(1));
        self.outcome.unfair = self.outcome.unfair.max(most * 100 / least.max(1));
    }
}

fn run(scheme: Scheme, traffic: Traffic) -> Outcome {
    let mut star = Star::new(scheme, traffic.senders);
    for turn in 0..traffic.turns {
        let busy = (0..traffic.busy).map(|at| (turn * traffic.busy + at) % traffic.senders);
        (0..BURSTS).for_each(|_| star.burst(busy.clone()));
    }
    let total = star.now;
    assert_eq!(star.lender.total(), scheme.banked, "credits neither appear nor vanish");
    Outcome { total, ..star.outcome }
}

/// A row of the table. `like`: the buffers that fixed credits take to stall as rarely.
fn show(name: &str, (scheme, it): (Scheme, Outcome), traffic: Traffic, like: u32) {
    let buffers = scheme.buffers(traffic.senders);
    println!(
        "| {} of {} | {name} | {buffers} | {} % | {}.{} % | {}.{} % | {}.{:02} | {} |",
        traffic.busy,
        traffic.senders,
        buffers * 100 / like,
        it.permille() / 10,
        it.permille() % 10,
        it.idle * 1000 / it.total / 10,
        it.idle * 1000 / it.total % 10,
        it.unfair / 100,
        it.unfair % 100,
        it.system,
    );
}

/// The least number of fixed credits with which senders stall as rarely.
fn fixed_like(moving: Outcome, traffic: Traffic) -> u32 {
    let enough = |credits: u32| run(Scheme::fixed(credits), traffic).stalls <= moving.stalls;
    let (mut least, mut most) = (1, BURST);
    while least < most {
        let middle = least.midpoint(most);
        (least, most) = if enough(middle) { (least, middle) } else { (middle + 1, most) };
    }
    least
}

/// A row for credits that move, and one for as many fixed credits as it takes to stall as rarely.
/// How many times as many buffers those are.
fn compare(traffic: Traffic) -> u32 {
    let moving = Scheme::moving(traffic.busy * BURST);
    let moved = run(moving, traffic);
    let credits = fixed_like(moved, traffic);
    let fixed = Scheme::fixed(credits);
    let like = fixed.buffers(traffic.senders);
    show("dynamic", (moving, moved), traffic, like);
    show(&format!("static, {credits}"), (fixed, run(fixed, traffic)), traffic, like);
    like / moving.buffers(traffic.senders)
}

/// Of many senders few are busy at a time. Credits that move do with a tenth of the buffers.
#[test]
fn a_tenth_of_the_buffers_do_where_few_are_busy() {
    for busy in [1, 2, 4] {
        assert!(compare(Traffic { senders: 64, busy, turns: 4 }) >= 10, "{busy} busy senders");
    }
}

/// Of many more senders it is so with more of them busy.
#[test]
fn a_tenth_of_the_buffers_do_of_ten_thousand() {
    let asked = settings::variable("TESTKIT_ALL");
    if asked.is_none_or(|value| value.is_empty() || value == "0") {
        println!("SKIP: ten thousand senders run with TESTKIT_ALL");
        return;
    }
    for busy in [1, 16] {
        assert!(compare(Traffic { senders: 10_000, busy, turns: 2 }) >= 10, "{busy} busy senders");
    }
}

/// Prints the table of the page.
#[test]
#[ignore = "a tool, not a check: takes half a minute in a release build"]
fn print_table() {
    for (senders, busy) in [(64, 1), (64, 2), (64, 4), (64, 8), (64, 64)] {
        compare(Traffic { senders, busy, turns: 12 });
    }
    for busy in [1, 16, 256] {
        compare(Traffic { senders: 10_000, busy, turns: 8 });
    }
}

/// Prints the points of a plot: MiB that a receiver has for requests, and how many of a hundred stall.
#[test]
#[ignore = "a tool, not a check: takes half a minute in a release build"]
fn print_curve() {
    const BUFFERS_IN_A_MIB: f64 = 16.0;
    /// Bytes of the least ring and the usual one of each peer, in which a burst has room.
    const RINGS: [f64; 2] = [128.0 * 1024.0, 256.0 * 1024.0];
    let traffic = Traffic { senders: 10_000, busy: 16, turns: 8 };
    let stalls = |scheme| f64::from(run(scheme, traffic).permille()) / 10.0;
    let buffers = |name: &str, scheme: Scheme| {
        let mib = f64::from(scheme.buffers(traffic.senders)) / BUFFERS_IN_A_MIB;
        println!("curve {name} {mib:.1} {:.1}", stalls(scheme));
    };
    for credits in [1, 2, 4, 8, 16, 24, 32, 40, 48, 56, 64] {
        buffers("static", Scheme::fixed(credits));
    }
    for each in [1, 4, 16, 32, 64, 128] {
        buffers("dynamic", Scheme::moving(each * traffic.busy));
    }
    for ring in RINGS {
        let mib = ring * f64::from(traffic.senders) / 1_048_576.0;
        println!("curve volume {mib:.1} {:.1}", stalls(Scheme::fixed(BURST)));
    }
}
