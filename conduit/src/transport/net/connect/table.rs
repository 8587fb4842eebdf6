//! The connections that are being made, and what all of them share: the round trip estimate, the
//! last acknowledgements and the counters. Still without clock or network.

use std::collections::BTreeMap;
use std::time::Duration;

use bootstrap::Rank;

use super::machine::{Action, Estimator, Event, Machine, State, Step};
use super::notes::{Note, notes};
use super::wire::{Kind, Numbers};
use crate::trace::Counter;
use crate::transport::net::settings::Timing;

/// What happened so far; for tests.
#[cfg_attr(not(test), allow(dead_code, reason = "tests read them"))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    pub(crate) connected: u64,
    /// Packets sent, of which
    pub(crate) sent: u64,
    /// sent again because of a timer.
    pub(crate) resent: u64,
    /// Packets that were decoded.
    pub(crate) received: u64,
    /// Repeated RTUs of connected peers that were not acknowledged because an acknowledgement was
    /// just sent.
    pub(crate) too_soon: u64,
    /// Datagrams that were no packets for this rank.
    pub(crate) refused: u64,
    /// Packets whose datagram did not come from the sender's datagram queue pair.
    pub(crate) strangers: u64,
    /// Packets lost on purpose (`GASNET_CONNECT_DROP_DENOM`).
    pub(crate) lost: u64,
    /// Packets not sent because too many waited for a buffer; they are sent again.
    pub(crate) unsent: u64,
    /// Failed datagram queue pairs that were set up again.
    pub(crate) recovered: u64,
}

/// Slots for the times of the last acknowledgements, by low bits of the rank.
const RECENT: usize = 8;

#[derive(Debug)]
struct Entry {
    machine: Machine,
    /// Numbers of the own queue pairs, once they are made.
    own: Numbers,
}

#[derive(Debug)]
pub(crate) struct Table {
    me: Rank,
    timing: Timing,
    estimator: Estimator,
    entries: BTreeMap<Rank, Entry>,
    /// To whom and when ACK was sent.
    acknowledged: [Option<(Rank, Duration)>; RECENT],
    /// When [`Table::expired`] has to be called at the latest. It may find nothing then: an entry
    /// may have moved its own deadline to later since.
    pub(crate) next: Option<Duration>,
    pub(crate) counters: Counters,
    /// For the statistics, until the driver takes it.
    pub(crate) notes: Vec<Note>,
}

impl Table {
    pub(crate) fn new(me: Rank, timing: Timing) -> Self {
        Self {
            me,
            timing,
            estimator: Estimator::new(timing),
            entries: BTreeMap::new(),
            acknowledged: [None; RECENT],
            next: None,
            counters: Counters::default(),
            notes: Vec::new(),
        }
    }

    /// An event of one peer. `open`: the connection is made already. Returns what to do, in order.
    pub(crate) fn handle(
        &mut self,
        now: Duration,
        peer: Rank,
        event: &Event,
        open: bool,
    ) -> Vec<Action> {
        let mut out = Vec::new();
        if matches!(event, Event::Packet { .. }) {
            self.counters.received += 1;
        }
        // Who heard of the peer has opened the connection already; the machine has to end, too, or it
        // would send its last packet again and again, and give up.
        if open && !matches!(event, Event::Heard) {
            self.handle_open(now, peer, event, &mut out);
        } else {
            self.handle_closed(now, peer, event, &mut out);
        }
        for action in &out {
            match action {
                Action::Send { kind: Kind::Ack, .. } => {
                    *self.slot(peer) = Some((peer, now));
                    self.counters.sent += 1;
                }
                Action::Send { .. } => self.counters.sent += 1,
                Action::Open => self.counters.connected += 1,
                _ => {}
            }
        }
        out
    }

    /// A connected peer that repeats its RTU did not get the ACK. Everything else is late.
    fn handle_open(&mut self, now: Duration, peer: Rank, event: &Event, out: &mut Vec<Action>) {
        let Event::Packet { kind: Kind::Rtu, original, .. } = event else { return };
        let min = self.timing.min;
        if self.slot(peer).is_some_and(|(who, at)| who == peer && now.saturating_sub(at) < min) {
            self.counters.too_soon += 1;
            self.notes.push(Note::Count(Counter::NoAck));
        } else {
            out.push(Action::Send { kind: Kind::Ack, original: *original });
        }
    }

    fn handle_closed(&mut self, now: Duration, peer: Rank, event: &Event, out: &mut Vec<Action>) {
        let begins = matches!(event, Event::Need | Event::Packet { kind: Kind::Req, .. });
        if begins && !self.entries.contains_key(&peer) {
            let machine = Machine::new(self.me, peer, self.timing, now);
            self.entries.insert(peer, Entry { machine, own: Numbers::EMPTY });
        }
        let Some(entry) = self.entries.get_mut(&peer) else { return };
        let mut step = Step { now, estimator: &mut self.estimator, out };
        let before = entry.machine.clone();
        entry.machine.handle(event, &mut step);
        self.notes.extend(notes(&before, event, &entry.machine, now));
        let deadline = entry.machine.timer;
        self.next = [self.next, deadline].into_iter().flatten().min();
        let gave_up = out.iter().any(|action| matches!(action, Action::GiveUp { .. }));
        if gave_up || matches!(entry.machine.state, State::Done | State::None) {
            self.entries.remove(&peer);
        }
    }

    fn slot(&mut self, peer: Rank) -> &mut Option<(Rank, Duration)> {
        let index = usize::try_from(peer.0).unwrap_or_default() % RECENT;
        &mut self.acknowledged[index]
    }

    /// The next peer whose deadline has passed, with what to do. Call until `None`.
    pub(crate) fn expired(&mut self, now: Duration) -> Option<(Rank, Vec<Action>)> {
        if self.next.is_none_or(|at| at > now) {
            return None;
        }
        let due = |entry: &Entry| entry.machine.timer.is_some_and(|at| at <= now);
        let peer = self.entries.iter().find(|(_, entry)| due(entry)).map(|(peer, _)| *peer);
        let Some(peer) = peer else {
            self.next = self.entries.values().filter_map(|entry| entry.machine.timer).min();
            return None;
        };
        let out = self.handle(now, peer, &Event::Timer, false);
        self.counters.resent +=
            out.iter().filter(|action| matches!(action, Action::Send { .. })).count() as u64;
        Some((peer, out))
    }

    /// Remembers the numbers of the queue pairs that were made for a peer.
    pub(crate) fn prepared(&mut self, peer: Rank, own: Numbers) {
        if let Some(entry) = self.entries.get_mut(&peer) {
            entry.own = own;
        }
    }

    /// The own numbers towards a peer whose connection is under way.
    pub(crate) fn own(&self, peer: Rank) -> Numbers {
        self.entries.get(&peer).map_or(Numbers::EMPTY, |entry| entry.own)
    }

    #[cfg(test)]
    pub(crate) fn under_way(&self) -> usize {
        self.entries.len()
    }

    /// How far the connection with a peer is; `None` when nothing is under way.
    #[cfg(test)]
    pub(crate) fn state(&self, peer: Rank) -> Option<State> {
        self.entries.get(&peer).map(|entry| entry.machine.state)
    }
}
