//! Several tables joined by a network that loses, delays, duplicates and reorders, under a virtual
//! clock.

use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::time::Duration;

use bootstrap::Rank;
use proptest::prelude::*;

use super::machine::{Action, Event, RESENDS_LEAST, answers};
use super::table::Table;
use super::wire::{Context, Kind, MAX_PAYLOAD, Numbers, Packet};
use crate::transport::net::settings::Timing;

pub(super) const fn micros(number: u64) -> Duration {
    Duration::from_micros(number)
}

impl Default for Timing {
    /// 1 ms, doubled up to 67 s: about two minutes in all.
    fn default() -> Self {
        Self { min: micros(1_000), max: micros(1 << 26) }
    }
}

impl Timing {
    /// The longest that one phase of a handshake can last: the intervals double up to `max`, and
    /// after the last of at least [`RESENDS_LEAST`] resends the connection is given up.
    fn patience(self) -> Duration {
        let mut total = self.max * (RESENDS_LEAST + 2);
        let mut interval = self.min;
        while interval < self.max {
            total += interval;
            interval *= 2;
        }
        total
    }
}

/// Small and fast, and reproducible from its seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % below.max(1)
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.roll(100) < percent
    }
}

/// How bad the network is.
#[derive(Clone, Copy, Debug)]
struct Weather {
    loss: u64,
    duplication: u64,
    delay: u64,
    /// Packets lost at most between two ranks, so that no connection has to be given up.
    losses: u32,
}

/// What a rank has towards one peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Pair {
    own: Option<u32>,
    peer: Option<u32>,
    send_ready: bool,
    open: bool,
    given_up: bool,
}

/// Something on its way.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Arrival {
    Datagram {
        immediate: u32,
        bytes: Vec<u8>,
    },
    /// Over the connection itself.
    Message,
    Need,
}

/// (time, order, to, from, what), earliest first.
type Flight = std::cmp::Reverse<(Duration, u64, u32, u32, Arrival)>;

struct World {
    now: Duration,
    dice: Dice,
    weather: Weather,
    tables: Vec<Table>,
    pairs: BTreeMap<(u32, u32), Pair>,
    flying: BinaryHeap<Flight>,
    order: u64,
    lost: BTreeMap<(u32, u32), u32>,
    dead: BTreeSet<u32>,
    datagrams: u64,
    next_number: u32,
}

const JOB: u32 = 0x51;

impl World {
    fn new(size: u32, seed: u64, weather: Weather, timing: Timing) -> Self {
        Self {
            now: micros(0),
            dice: Dice(seed | 1),
            weather,
            tables: (0..size).map(|rank| Table::new(Rank(rank), timing)).collect(),
            pairs: BTreeMap::new(),
            flying: BinaryHeap::new(),
            order: 0,
            lost: BTreeMap::new(),
            dead: BTreeSet::new(),
            datagrams: 0,
            next_number: 100,
        }
    }

    fn pair(&mut self, me: u32, peer: u32) -> &mut Pair {
        self.pairs.entry((me, peer)).or_default()
    }

    fn later(&mut self, delay: u64, to: u32, from: u32, what: Arrival) {
        self.order += 1;
        let at = self.now + micros(delay);
        self.flying.push(std::cmp::Reverse((at, self.order, to, from, what)));
    }

    fn need(&mut self, at: u64, me: u32, peer: u32) {
        self.later(at, me, peer, Arrival::Need);
    }

    fn event(&mut self, me: u32, peer: u32, event: &Event) {
        let open = self.pair(me, peer).open;
        let actions = self.tables[me as usize].handle(self.now, Rank(peer), event, open);
        self.act(me, peer, &actions);
    }

    fn act(&mut self, me: u32, peer: u32, actions: &[Action]) {
        for action in actions {
            match action {
                Action::Prepare => {
                    self.next_number += 1;
                    let number = self.next_number;
                    assert_eq!(
                        self.pair(me, peer).own.replace(number),
                        None,
                        "{me}->{peer} prepared twice"
                    );
                    self.tables[me as usize].prepared(Rank(peer), Numbers::new(&[number]).unwrap());
                }
                Action::Send { kind, original } => self.transmit(me, peer, *kind, *original),
                Action::ReceiveReady(numbers) => {
                    let [number] = numbers.as_slice() else { panic!("{numbers:?}") };
                    let pair = self.pair(me, peer);
                    assert!(pair.own.is_some() && pair.peer.is_none(), "{me}->{peer} {pair:?}");
                    pair.peer = Some(*number);
                }
                Action::ReceiveReadyFromSelf => {
                    assert_eq!(me, peer);
                    let pair = self.pair(me, peer);
                    pair.peer = pair.own;
                }
                Action::SendReady => {
                    let pair = self.pair(me, peer);
                    assert!(pair.peer.is_some() && !pair.send_ready, "{me}->{peer} {pair:?}");
                    pair.send_ready = true;
                }
                Action::Open => self.open(me, peer),
                Action::GiveUp { resends, .. } => {
                    assert!(*resends >= RESENDS_LEAST, "{action:?}");
                    self.pair(me, peer).given_up = true;
                }
            }
        }
    }

    /// The heart of it: whoever may send knows a peer that can receive, and each has the other's
    /// queue pair.
    fn open(&mut self, me: u32, peer: u32) {
        let other = *self.pair(peer, me);
        let pair = self.pair(me, peer);
        assert!(pair.send_ready && !pair.open, "{me}->{peer} {pair:?}");
        pair.open = true;
        let own = *pair;
        assert!(own.own.is_some() && other.own.is_some());
        assert_eq!((own.own, own.peer), (other.peer, other.own), "{me}->{peer}");
        if self.dice.chance(50) {
            let delay = self.dice.roll(self.weather.delay);
            self.later(delay, peer, me, Arrival::Message);
        }
    }

    fn transmit(&mut self, me: u32, peer: u32, kind: Kind, original: bool) {
        self.datagrams += 1;
        let numbers = self.tables[me as usize].own(Rank(peer));
        let packet = Packet { kind, original, from: me, to: peer, numbers };
        let mut bytes = [0; MAX_PAYLOAD];
        let (immediate, len) = packet.encode(JOB, &mut bytes);
        let copies = 1 + u32::from(self.dice.chance(self.weather.duplication));
        for _ in 0..copies {
            let lost = self.lost.entry((me.min(peer), me.max(peer))).or_default();
            if self.dice.chance(self.weather.loss) && *lost < self.weather.losses {
                *lost += 1;
                continue;
            }
            let delay = 5 + self.dice.roll(self.weather.delay);
            let what = Arrival::Datagram { immediate, bytes: bytes[..len].to_vec() };
            self.later(delay, peer, me, what);
        }
    }

    /// Runs until nothing is on its way and no timer runs, or `until`.
    fn run(&mut self, until: Duration) {
        loop {
            let arrival = self.flying.peek().map(|next| next.0.0);
            let timer = self.tables.iter().filter_map(|table| table.next).min();
            let Some(next) = [arrival, timer].into_iter().flatten().min() else { return };
            if next > until {
                return;
            }
            self.now = self.now.max(next);
            if arrival == Some(next) {
                let Some(std::cmp::Reverse((_, _, to, from, what))) = self.flying.pop() else {
                    return;
                };
                if !self.dead.contains(&to) {
                    self.arrive(to, from, what);
                }
            } else {
                self.timers();
            }
        }
    }

    fn timers(&mut self) {
        for me in 0..u32::try_from(self.tables.len()).unwrap() {
            while let Some((peer, actions)) = self.tables[me as usize].expired(self.now) {
                if !self.dead.contains(&me) {
                    self.act(me, peer.0, &actions);
                }
            }
        }
    }

    fn arrive(&mut self, to: u32, from: u32, what: Arrival) {
        match what {
            Arrival::Need if self.pair(to, from).open => {}
            Arrival::Need => self.event(to, from, &Event::Need),
            Arrival::Message => {
                let pair = *self.pair(to, from);
                assert!(pair.peer.is_some(), "a message for {to} that cannot receive from {from}");
                self.event(to, from, &Event::Heard);
            }
            Arrival::Datagram { immediate, bytes } => {
                let size = u32::try_from(self.tables.len()).unwrap();
                let context = Context { me: to, size, job: JOB, count: 1 };
                let packet = Packet::decode(Some(immediate), &bytes, &context).unwrap();
                let Packet { kind, original, numbers, .. } = packet;
                self.event(to, from, &Event::Packet { kind, original, numbers });
            }
        }
    }

    fn assert_connected(&mut self, me: u32, peer: u32) {
        let (a, b) = (*self.pair(me, peer), *self.pair(peer, me));
        assert!(a.open && b.open, "{me}-{peer} at {:?}: {a:?} {b:?}", self.now);
    }
}

fn weather() -> impl Strategy<Value = Weather> {
    (0u64..90, 0u64..50, prop_oneof![Just(1u64), Just(300), Just(3_000)], 0u32..15)
        .prop_map(|(loss, duplication, delay, losses)| Weather { loss, duplication, delay, losses })
}

const FAIR: Weather = Weather { loss: 0, duplication: 0, delay: 1, losses: 0 };

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn two_ranks_end_connected(
        seed: u64, weather in weather(), low in 0u32..6, high in 0u32..6,
        gap in 0u64..4_000, both: bool,
    ) {
        prop_assume!(low != high);
        let mut world = World::new(6, seed, weather, Timing::default());
        world.need(0, low, high);
        if both {
            world.need(gap, high, low);
        }
        world.run(Duration::MAX);
        world.assert_connected(low, high);
        prop_assert!(world.tables.iter().all(|table| table.under_way() == 0));
        // Resends are bounded by what was lost and by how slow the network is.
        prop_assert!(world.datagrams <= 20 * u64::from(weather.losses + 2), "{} sent", world.datagrams);
    }

    #[test]
    fn everybody_at_once(seed: u64, weather in weather(), size in 2u32..9) {
        let mut world = World::new(size, seed, weather, Timing::default());
        let mut wanted = BTreeSet::new();
        for me in 0..size {
            for _ in 0..size {
                let (peer, at) = (world.dice.roll(u64::from(size)), world.dice.roll(2_000));
                let peer = u32::try_from(peer).unwrap();
                world.need(at, me, peer);
                wanted.insert((me, peer));
            }
        }
        world.run(Duration::MAX);
        for (me, peer) in wanted {
            world.assert_connected(me, peer);
        }
        prop_assert!(world.tables.iter().all(|table| table.under_way() == 0));
        for table in &world.tables {
            prop_assert_eq!(table.next, None);
        }
    }

    #[test]
    fn a_peer_that_disappears_at_any_time_ends_the_wait(
        seed: u64, weather in weather(), at in 0u64..8_000, both: bool,
    ) {
        let timing = Timing { min: micros(1_000), max: micros(64_000) };
        let mut world = World::new(2, seed, weather, timing);
        world.need(0, 0, 1);
        if both {
            world.need(at / 2, 1, 0);
        }
        world.run(micros(at));
        world.dead.insert(1);
        // Whoever waits again from now on must not wait for ever either.
        world.need(0, 0, 1);
        world.run(Duration::MAX);
        let pair = *world.pair(0, 1);
        prop_assert!(pair.open != pair.given_up, "{:?}", pair);
        prop_assert!(world.now <= micros(at) + 3 * timing.patience(), "{:?}", world.now);
    }
}

#[test]
fn the_same_seed_makes_the_same_history() {
    let history = |seed| {
        let weather = Weather { loss: 40, duplication: 30, delay: 3_000, losses: 9 };
        let mut world = World::new(5, seed, weather, Timing::default());
        (0..5).for_each(|me| (0..5).for_each(|peer| world.need(0, me, peer)));
        world.run(Duration::MAX);
        (world.now, world.datagrams, world.pairs)
    };
    assert_eq!(history(12), history(12));
    assert_ne!(history(12), history(14));
}

#[test]
fn a_quiet_network_needs_four_packets_and_simultaneous_requests_four_as_well() {
    let mut world = World::new(2, 1, FAIR, Timing::default());
    world.need(0, 0, 1);
    world.run(Duration::MAX);
    assert_eq!(world.datagrams, 4);
    let mut world = World::new(2, 1, FAIR, Timing::default());
    world.need(0, 0, 1);
    world.need(0, 1, 0);
    world.run(Duration::MAX);
    assert_eq!(world.datagrams, 4, "REQ both ways, RTU, ACK");
    world.assert_connected(0, 1);
}

#[test]
fn a_rank_connects_to_itself_without_a_packet() {
    let mut world = World::new(2, 1, FAIR, Timing::default());
    world.need(0, 1, 1);
    world.run(Duration::MAX);
    world.assert_connected(1, 1);
    assert_eq!(world.datagrams, 0);
}

#[test]
fn exactly_one_side_answers_and_everybody_answers_half() {
    for me in 0..64 {
        let count = (0..64).filter(|peer| answers(Rank(me), Rank(*peer))).count();
        assert!((31..=32).contains(&count), "rank {me} answers {count} of 63");
        for peer in (0..64).filter(|peer| *peer != me) {
            assert_ne!(answers(Rank(me), Rank(peer)), answers(Rank(peer), Rank(me)));
        }
    }
    assert!(answers(Rank(0), Rank(2)) && answers(Rank(1), Rank(0)));
}

#[test]
fn the_default_gives_up_after_two_minutes() {
    let mut world = World::new(2, 1, FAIR, Timing::default());
    world.dead.insert(1);
    world.need(0, 0, 1);
    world.run(Duration::MAX);
    assert!(world.pair(0, 1).given_up);
    let seconds = world.now.as_secs();
    assert!((120..=140).contains(&seconds), "{seconds} s");
    assert_eq!(world.tables[0].counters.resent, 16);
}

#[test]
fn a_repeated_rtu_is_acknowledged_again_but_not_at_once() {
    let mut table = Table::new(Rank(1), Timing::default());
    let rtu = Event::Packet { kind: Kind::Rtu, original: false, numbers: Numbers::EMPTY };
    let ack = [Action::Send { kind: Kind::Ack, original: false }];
    assert_eq!(table.handle(micros(10), Rank(0), &rtu, true), ack);
    assert_eq!(table.handle(micros(1_009), Rank(0), &rtu, true), []);
    assert_eq!(table.handle(micros(1_009), Rank(8), &rtu, true), ack, "same slot, other peer");
    assert_eq!(table.handle(micros(1_010), Rank(0), &rtu, true), ack);
    assert_eq!(table.counters.too_soon, 1);
    // Before the connection an RTU means nothing.
    assert_eq!(table.handle(micros(5_000), Rank(0), &rtu, false), []);
    assert_eq!(table.under_way(), 0);
}
