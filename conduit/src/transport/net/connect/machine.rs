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

/// A time on the clock of the driver, microseconds since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Micros(pub(crate) u64);

impl Micros {
    /// Time since `earlier`; zero when it was not earlier.
    pub(crate) const fn since(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }

    /// This much later.
    pub(crate) const fn after(self, interval: Self) -> Self {
        Self(self.0.saturating_add(interval.0))
    }

    /// As the standard library has it.
    pub(crate) const fn duration(self) -> Duration {
        Duration::from_micros(self.0)
    }
}

/// When packets are sent again. `min` is below `max`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Timing {
    min: Micros,
    max: Micros,
}

/// How often a packet is sent again at least before the connection is given up.
pub(crate) const RESENDS_LEAST: u32 = 8;

/// A lost packet makes the first interval of later connections at most this many times `min`: one
/// bad peer must not make every other connection wait a minute for its first resend.
const CARRIED_MOST: u64 = 64;

impl Timing {
    /// Microseconds until the first resend, and the longest interval between two resends. `None`
    /// unless `0 < min < max`.
    pub(crate) const fn new(min: u64, max: u64) -> Option<Self> {
        if min == 0 || min >= max {
            return None;
        }
        Some(Self { min: Micros(min), max: Micros(max) })
    }

    /// First interval, and how soon after an answer a repeated packet is not answered again.
    pub(crate) const fn least(self) -> Micros {
        self.min
    }

    /// The longest that one phase of a handshake can last: the intervals double up to `max`, and
    /// after the last of at least [`RESENDS_LEAST`] resends the connection is given up.
    #[cfg(test)]
    pub(crate) fn patience(self) -> Micros {
        let mut total = self.max.0.saturating_mul(u64::from(RESENDS_LEAST) + 2);
        let mut interval = self.min.0;
        while interval < self.max.0 {
            total = total.saturating_add(interval);
            interval = interval.saturating_mul(2);
        }
        Micros(total)
    }
}

impl Default for Timing {
    /// 1 ms, doubled up to 67 s: about two minutes in all.
    fn default() -> Self {
        Self { min: Micros(1_000), max: Micros(1 << 26) }
    }
}

/// The round trip, smoothed as TCP does it (Jacobson and Karels), over all peers together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Estimator {
    timing: Timing,
    /// Eight times the average.
    average: u64,
    /// Four times the mean deviation.
    deviation: u64,
    rto: Micros,
}

impl Estimator {
    pub(crate) const fn new(timing: Timing) -> Self {
        let rto = timing.min;
        Self { timing, average: rto.0 / 2 * 8, deviation: rto.0, rto }
    }

    /// First interval of a packet that is sent now.
    pub(crate) const fn rto(&self) -> Micros {
        self.rto
    }

    /// A round trip that was measured without doubt.
    fn sample(&mut self, took: Micros) {
        let took = took.0.min(self.timing.max.0);
        let average = self.average / 8;
        self.average = (self.average - average).saturating_add(took);
        let error = took.abs_diff(average);
        self.deviation = (self.deviation - self.deviation / 4).saturating_add(error);
        let rto = (self.average / 8).saturating_add(self.deviation / 2);
        self.rto = Micros(rto.clamp(self.timing.min.0, self.timing.max.0));
    }

    /// An answer that may belong to any of several packets tells nothing about the round trip
    /// (Karn): what is known is that `interval` was not too long.
    fn ambiguous(&mut self, interval: Micros) {
        let most = self.timing.min.0.saturating_mul(CARRIED_MOST).min(self.timing.max.0);
        self.rto = Micros(interval.0.min(most).max(self.rto.0));
    }
}

/// How far a connection is. The steps between "answer taken" and "caller continues" are inside one
/// event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Nothing happened.
    None,
    /// Asked.
    ReqSent,
    /// Got the answer, said that this rank can receive.
    RtuSent,
    /// Was asked, answered.
    RepSent,
    /// May send.
    Done,
}

impl State {
    /// For messages to users.
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

/// What happens to a connection.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// This rank wants to send to the peer.
    Need,
    /// A packet of the peer. `original`: the first transmission of a packet, or the answer to one.
    Packet { kind: Kind, original: bool, numbers: Numbers },
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
    Send { kind: Kind, original: bool },
    /// INIT to RTR with the peer's numbers.
    ReceiveReady(Numbers),
    /// INIT to RTR with the own numbers: a rank connected to itself.
    ReceiveReadyFromSelf,
    /// RTR to RTS.
    SendReady,
    /// Messages may be sent.
    Open,
    /// The peer does not answer.
    GiveUp(GaveUp),
}

/// How a connection ended that did not come about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GaveUp {
    /// How far it was.
    pub(crate) state: State,
    /// How often the last packet was sent again.
    pub(crate) resends: u32,
    /// Since the set-up began.
    pub(crate) waited: Micros,
}

/// Whether `me` answers when `me` and `peer` ask each other at the same time: the lower rank of
/// equal parity, the higher of unequal parity. Both sides find the same answer without a message,
/// and over all peers every rank answers half.
pub(crate) const fn answers(me: Rank, peer: Rank) -> bool {
    (peer.0 > me.0) != ((peer.0 ^ me.0) & 1 == 1)
}

/// Set-up of the connection with one peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Machine {
    me: Rank,
    peer: Rank,
    timing: Timing,
    state: State,
    /// When the set-up began.
    began: Micros,
    /// When the first packet of this phase was sent.
    sent: Micros,
    /// When the peer was last answered, in state `RepSent`.
    answered: Option<Micros>,
    /// Between the last packet and the timer.
    interval: Micros,
    timer: Option<Micros>,
    resends: u32,
}

impl Machine {
    pub(crate) const fn new(me: Rank, peer: Rank, timing: Timing, now: Micros) -> Self {
        Self {
            me,
            peer,
            timing,
            state: State::None,
            began: now,
            sent: now,
            answered: None,
            interval: timing.min,
            timer: None,
            resends: 0,
        }
    }

    pub(crate) const fn state(&self) -> State {
        self.state
    }

    /// When it wants [`Event::Timer`].
    pub(crate) const fn deadline(&self) -> Option<Micros> {
        self.timer
    }

    /// What happened at `now`; what is to be done is added to `out`.
    pub(crate) fn handle(
        &mut self,
        now: Micros,
        event: &Event,
        estimator: &mut Estimator,
        out: &mut Vec<Action>,
    ) {
        match event {
            Event::Need => self.need(now, estimator, out),
            Event::Packet { kind, original, numbers } => match kind {
                Kind::Req => self.req(now, *original, *numbers, estimator, out),
                Kind::Rep if self.state == State::ReqSent => {
                    self.round_trip(now, *original, estimator);
                    self.ready(now, *numbers, estimator, out);
                }
                Kind::Rtu if self.state == State::RepSent => {
                    self.finish(out);
                    out.push(Action::Send { kind: Kind::Ack, original: *original });
                }
                Kind::Ack if self.state == State::RtuSent => {
                    self.round_trip(now, *original, estimator);
                    self.finish(out);
                }
                Kind::Rep | Kind::Rtu | Kind::Ack => {}
            },
            Event::Timer => self.expired(now, out),
            Event::Heard if self.state == State::RtuSent => self.finish(out),
            Event::Heard => {}
        }
    }

    fn need(&mut self, now: Micros, estimator: &Estimator, out: &mut Vec<Action>) {
        match self.state {
            State::None if self.me == self.peer => {
                out.extend([Action::Prepare, Action::ReceiveReadyFromSelf, Action::SendReady]);
                self.finish(out);
            }
            State::None => {
                out.extend([Action::Prepare, Action::Send { kind: Kind::Req, original: true }]);
                self.enter(State::ReqSent, now, estimator);
                self.arm(now, estimator);
            }
            // Somebody waits here now: if the peer never says RTU, the wait must end.
            State::RepSent if self.timer.is_none() => self.arm(now, estimator),
            _ => {}
        }
    }

    fn req(
        &mut self,
        now: Micros,
        original: bool,
        numbers: Numbers,
        estimator: &mut Estimator,
        out: &mut Vec<Action>,
    ) {
        let send = |kind, original| Action::Send { kind, original };
        match self.state {
            State::None if self.me != self.peer => {
                out.extend([Action::Prepare, send(Kind::Rep, original)]);
                out.extend([Action::ReceiveReady(numbers), Action::SendReady]);
                self.answered = Some(now);
                self.enter(State::RepSent, now, estimator);
            }
            // Both asked, and each request has all that an answer would say.
            State::ReqSent if answers(self.me, self.peer) => {
                self.round_trip(now, false, estimator);
                out.extend([Action::ReceiveReady(numbers), Action::SendReady]);
                self.enter(State::RepSent, now, estimator);
                self.arm(now, estimator);
            }
            State::ReqSent => {
                self.round_trip(now, false, estimator);
                self.ready(now, numbers, estimator, out);
            }
            State::RepSent if !self.too_soon(now) => {
                self.answered = Some(now);
                out.push(send(Kind::Rep, original));
            }
            // The peer is to answer and did not get the request.
            State::RtuSent => out.push(send(Kind::Req, false)),
            _ => {}
        }
    }

    /// A repeated packet right behind its answer says that this rank was slow, not that the answer
    /// was lost.
    fn too_soon(&self, now: Micros) -> bool {
        self.answered.is_some_and(|at| now.since(at) < self.timing.min)
    }

    /// The peer's numbers are here and this rank is the asker.
    fn ready(
        &mut self,
        now: Micros,
        numbers: Numbers,
        estimator: &Estimator,
        out: &mut Vec<Action>,
    ) {
        out.push(Action::ReceiveReady(numbers));
        out.push(Action::Send { kind: Kind::Rtu, original: true });
        out.push(Action::SendReady);
        self.enter(State::RtuSent, now, estimator);
        self.arm(now, estimator);
    }

    fn expired(&mut self, now: Micros, out: &mut Vec<Action>) {
        if self.timer.is_none_or(|at| at > now) {
            return;
        }
        let kind = match self.state {
            State::ReqSent => Kind::Req,
            State::RtuSent => Kind::Rtu,
            State::RepSent => Kind::Rep,
            State::None | State::Done => return,
        };
        let next = Micros(self.interval.0.saturating_mul(2));
        if next > self.timing.max && self.resends >= RESENDS_LEAST {
            let waited = now.since(self.began);
            out.push(Action::GiveUp(GaveUp { state: self.state, resends: self.resends, waited }));
            self.timer = None;
            return;
        }
        if self.state == State::RepSent {
            self.answered = Some(now);
        }
        self.resends += 1;
        self.interval = next.min(self.timing.max);
        self.timer = Some(now.after(self.interval));
        out.push(Action::Send { kind, original: false });
    }

    fn round_trip(&self, now: Micros, original: bool, estimator: &mut Estimator) {
        if original {
            estimator.sample(now.since(self.sent));
        } else if self.resends > 0 {
            estimator.ambiguous(self.interval);
        }
    }

    fn enter(&mut self, state: State, now: Micros, estimator: &Estimator) {
        self.state = state;
        self.sent = now;
        self.resends = 0;
        self.interval = estimator.rto();
        self.timer = None;
    }

    fn arm(&mut self, now: Micros, estimator: &Estimator) {
        self.interval = estimator.rto();
        self.timer = Some(now.after(self.interval));
    }

    fn finish(&mut self, out: &mut Vec<Action>) {
        out.push(Action::Open);
        self.state = State::Done;
        self.timer = None;
    }
}
