//! The handshake that connects two ranks on demand, without clock, network or queue pairs: one
//! [`Machine`] for each peer that is being connected. `docs/design/connect.md` has its state table,
//! which a test compares with the code.
//!
//! REQ asks, REP answers, RTU says that the asker can receive, ACK that the answerer knows it. A
//! rank may send on the connection only when it knows that the peer can receive: the answerer after
//! RTU, the asker after ACK.

use std::time::Duration;

use bootstrap::Rank;

use super::wire::{Kind, Numbers};
use crate::transport::net::settings::Timing;

/// How often a packet is sent again at least before the connection is given up.
pub(crate) const RESENDS_LEAST: u32 = 8;

/// A lost packet makes the first interval of later connections at most this many times `min`: one
/// bad peer must not make every other connection wait a minute for its first resend.
const CARRIED_MOST: u32 = 64;

/// The round trip, smoothed as TCP does it (Jacobson and Karels), over all peers together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Estimator {
    timing: Timing,
    /// Eight times the average.
    average: Duration,
    /// Four times the mean deviation.
    deviation: Duration,
    /// First interval of a packet that is sent now.
    rto: Duration,
}

impl Estimator {
    pub(crate) fn new(timing: Timing) -> Self {
        Self { timing, average: timing.min * 4, deviation: timing.min, rto: timing.min }
    }

    /// A round trip that was measured without doubt.
    fn sample(&mut self, took: Duration) {
        let took = took.min(self.timing.max);
        let average = self.average / 8;
        self.average = self.average - average + took;
        self.deviation = self.deviation - self.deviation / 4 + took.abs_diff(average);
        let rto = self.average / 8 + self.deviation / 2;
        self.rto = rto.clamp(self.timing.min, self.timing.max);
    }

    /// An answer that may belong to any of several packets tells nothing about the round trip
    /// (Karn): what is known is that `interval` was not too long.
    fn ambiguous(&mut self, interval: Duration) {
        let most = (self.timing.min * CARRIED_MOST).min(self.timing.max);
        self.rto = interval.min(most).max(self.rto);
    }
}

/// How far a connection is. The steps between "answer taken" and "caller continues" are inside one
/// event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    None,
    ReqSent,
    /// Got the answer, said that this rank can receive.
    RtuSent,
    /// Was asked, answered.
    RepSent,
    Done,
}

impl State {
    pub(crate) const fn words(self) -> &'static str {
        match self {
            Self::None => "nothing sent yet",
            Self::ReqSent => "request sent, no answer",
            Self::RtuSent => "ready to receive, not acknowledged",
            Self::RepSent => "request answered, the peer is not ready",
            Self::Done => "connected",
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) enum Event {
    Need,
    /// A packet of the peer. `original`: the first transmission of a packet, or the answer to one.
    Packet {
        kind: Kind,
        original: bool,
        numbers: Numbers,
    },
    /// The deadline of the machine has passed.
    Timer,
    /// A message of the peer came over the connection itself, so the peer may send: it has this
    /// rank's RTU.
    Heard,
}

/// What the driver does, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Make the queue pairs, state INIT, receives posted.
    Prepare,
    /// Send a packet. REQ and REP carry the numbers of the own queue pairs.
    Send {
        kind: Kind,
        original: bool,
    },
    /// INIT to RTR with the peer's numbers.
    ReceiveReady(Numbers),
    /// INIT to RTR with the own numbers: a rank connected to itself.
    ReceiveReadyFromSelf,
    SendReady,
    /// Messages may be sent.
    Open,
    /// The peer does not answer; how often the last packet was sent again, and how long ago the
    /// set-up began.
    GiveUp {
        state: State,
        resends: u32,
        waited: Duration,
    },
}

const fn send(kind: Kind, original: bool) -> Action {
    Action::Send { kind, original }
}

/// Whether `me` answers when `me` and `peer` ask each other at the same time: the lower rank of
/// equal parity, the higher of unequal parity. Both sides find the same answer without a message,
/// and over all peers every rank answers half.
pub(crate) const fn answers(me: Rank, peer: Rank) -> bool {
    (peer.0 > me.0) != ((peer.0 ^ me.0) & 1 == 1)
}

/// What one event is handled with; times are since the start of the driver.
pub(crate) struct Step<'a> {
    pub(crate) now: Duration,
    pub(crate) estimator: &'a mut Estimator,
    /// What is to be done is added here.
    pub(crate) out: &'a mut Vec<Action>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Machine {
    me: Rank,
    peer: Rank,
    timing: Timing,
    pub(crate) state: State,
    pub(super) began: Duration,
    /// When the first packet of this phase was sent.
    pub(super) sent: Duration,
    /// When the peer was last answered, in state `RepSent`.
    pub(super) answered: Option<Duration>,
    /// This rank has asked.
    pub(super) asked: bool,
    /// Between the last packet and the timer.
    interval: Duration,
    /// When it wants [`Event::Timer`].
    pub(crate) timer: Option<Duration>,
    resends: u32,
}

impl Machine {
    pub(crate) const fn new(me: Rank, peer: Rank, timing: Timing, now: Duration) -> Self {
        Self {
            me,
            peer,
            timing,
            state: State::None,
            began: now,
            sent: now,
            answered: None,
            asked: false,
            interval: timing.min,
            timer: None,
            resends: 0,
        }
    }

    pub(crate) fn handle(&mut self, event: &Event, step: &mut Step<'_>) {
        match event {
            Event::Need => self.need(step),
            Event::Packet { kind, original, numbers } => match kind {
                Kind::Req => self.req(*original, *numbers, step),
                Kind::Rep if self.state == State::ReqSent => {
                    self.round_trip(*original, step);
                    self.ready(*numbers, step);
                }
                Kind::Rtu if self.state == State::RepSent => {
                    self.finish(step);
                    step.out.push(send(Kind::Ack, *original));
                }
                Kind::Ack if self.state == State::RtuSent => {
                    self.round_trip(*original, step);
                    self.finish(step);
                }
                Kind::Rep | Kind::Rtu | Kind::Ack => {}
            },
            Event::Timer => self.expired(step),
            Event::Heard if self.state == State::RtuSent => self.finish(step),
            Event::Heard => {}
        }
    }

    fn need(&mut self, step: &mut Step<'_>) {
        match self.state {
            State::None if self.me == self.peer => {
                step.out.extend([Action::Prepare, Action::ReceiveReadyFromSelf, Action::SendReady]);
                self.finish(step);
            }
            State::None => {
                step.out.extend([Action::Prepare, send(Kind::Req, true)]);
                self.asked = true;
                self.enter(State::ReqSent, step);
                self.arm(step);
            }
            // Somebody waits here now: if the peer never says RTU, the wait must end.
            State::RepSent if self.timer.is_none() => self.arm(step),
            _ => {}
        }
    }

    fn req(&mut self, original: bool, numbers: Numbers, step: &mut Step<'_>) {
        match self.state {
            State::None if self.me != self.peer => {
                step.out.extend([Action::Prepare, send(Kind::Rep, original)]);
                step.out.extend([Action::ReceiveReady(numbers), Action::SendReady]);
                self.answered = Some(step.now);
                self.enter(State::RepSent, step);
            }
            // Both asked, and each request has all that an answer would say.
            State::ReqSent if answers(self.me, self.peer) => {
                self.round_trip(false, step);
                step.out.extend([Action::ReceiveReady(numbers), Action::SendReady]);
                self.enter(State::RepSent, step);
                self.arm(step);
            }
            State::ReqSent => {
                self.round_trip(false, step);
                self.ready(numbers, step);
            }
            State::RepSent if !self.too_soon(step.now) => {
                self.answered = Some(step.now);
                step.out.push(send(Kind::Rep, original));
            }
            // The peer is to answer and did not get the request.
            State::RtuSent => step.out.push(send(Kind::Req, false)),
            _ => {}
        }
    }

    /// A repeated packet right behind its answer says that this rank was slow, not that the answer
    /// was lost.
    fn too_soon(&self, now: Duration) -> bool {
        self.answered.is_some_and(|at| now.saturating_sub(at) < self.timing.min)
    }

    /// The peer's numbers are here and this rank is the asker.
    fn ready(&mut self, numbers: Numbers, step: &mut Step<'_>) {
        step.out.extend([Action::ReceiveReady(numbers), send(Kind::Rtu, true), Action::SendReady]);
        self.enter(State::RtuSent, step);
        self.arm(step);
    }

    fn expired(&mut self, step: &mut Step<'_>) {
        if self.timer.is_none_or(|at| at > step.now) {
            return;
        }
        let kind = match self.state {
            State::ReqSent => Kind::Req,
            State::RtuSent => Kind::Rtu,
            State::RepSent => Kind::Rep,
            State::None | State::Done => return,
        };
        let next = self.interval * 2;
        if next > self.timing.max && self.resends >= RESENDS_LEAST {
            let (state, resends) = (self.state, self.resends);
            let waited = step.now.saturating_sub(self.began);
            step.out.push(Action::GiveUp { state, resends, waited });
            self.timer = None;
            return;
        }
        if self.state == State::RepSent {
            self.answered = Some(step.now);
        }
        self.resends += 1;
        self.interval = next.min(self.timing.max);
        self.timer = Some(step.now + self.interval);
        step.out.push(send(kind, false));
    }

    fn round_trip(&self, original: bool, step: &mut Step<'_>) {
        if original {
            step.estimator.sample(step.now.saturating_sub(self.sent));
        } else if self.resends > 0 {
            step.estimator.ambiguous(self.interval);
        }
    }

    fn enter(&mut self, state: State, step: &Step<'_>) {
        self.state = state;
        self.sent = step.now;
        self.resends = 0;
        self.interval = step.estimator.rto;
        self.timer = None;
    }

    fn arm(&mut self, step: &Step<'_>) {
        self.interval = step.estimator.rto;
        self.timer = Some(step.now + self.interval);
    }

    fn finish(&mut self, step: &mut Step<'_>) {
        step.out.push(Action::Open);
        self.state = State::Done;
        self.timer = None;
    }
}
