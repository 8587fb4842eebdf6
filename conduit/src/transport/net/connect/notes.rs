//! What the statistics are told of handshakes: found from a machine before and after an event.

use std::time::Duration;

use super::machine::{Event, Machine, State};
use super::wire::Kind;
use crate::trace::{Cause, Counter};

/// Something to count, or that took a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Note {
    Count(Counter),
    Took(Cause, Duration),
}

/// What an event that was handled `now` is counted as.
pub(super) fn notes(
    before: &Machine,
    event: &Event,
    after: &Machine,
    now: Duration,
) -> heapless::Vec<Note, 2> {
    let since = |at: Duration| now.saturating_sub(at);
    // An answer that may be to any of several packets tells nothing of the time.
    let (kind, original) = match event {
        Event::Packet { kind, original, .. } => (Some(*kind), *original),
        _ => (None, false),
    };
    let step = match (kind, before.state, after.state) {
        (Some(Kind::Req), State::ReqSent, State::RepSent) => {
            Some(Note::Count(Counter::BecamePassive))
        }
        (Some(Kind::Req), State::ReqSent, State::RtuSent) => {
            Some(Note::Count(Counter::StayedActive))
        }
        (Some(Kind::Req), State::RepSent, State::RepSent) => {
            (before.answered == after.answered).then_some(Note::Count(Counter::NoRep))
        }
        (Some(Kind::Rep), State::ReqSent, State::RtuSent) => {
            original.then(|| Note::Took(Cause::ReqToRep, since(before.sent)))
        }
        (Some(Kind::Ack), State::RtuSent, State::Done) => {
            original.then(|| Note::Took(Cause::RtuToAck, since(before.sent)))
        }
        (None, State::RtuSent, State::Done) => Some(Note::Count(Counter::ImpliedAck)),
        _ => None,
    };
    let whole = match (before.state, after.state) {
        (State::RtuSent, State::Done) => Some(Cause::Active),
        (State::RepSent, State::Done) if before.asked => Some(Cause::Turned),
        (State::RepSent, State::Done) => Some(Cause::Passive),
        _ => None,
    };
    let whole = whole.map(|cause| Note::Took(cause, since(before.began)));
    step.into_iter().chain(whole).collect()
}

#[cfg(test)]
mod tests {
    use bootstrap::Rank;

    use super::super::sim::micros;
    use super::super::table::Table;
    use super::super::wire::Numbers;
    use super::*;
    use crate::transport::net::settings::Timing;

    fn packet(kind: Kind, original: bool) -> Event {
        Event::Packet { kind, original, numbers: Numbers::EMPTY }
    }

    /// Notes of rank 1 when events of a peer come at microseconds. Towards rank 2 it asks when both
    /// ask, towards rank 3 it answers.
    fn noted(peer: u32, open: bool, events: &[(u64, Event)]) -> Vec<Note> {
        let mut table = Table::new(Rank(1), Timing::default());
        for (at, event) in events {
            let _ = table.handle(micros(*at), Rank(peer), event, open);
        }
        table.notes
    }

    #[test]
    fn the_steps_of_a_connection_have_times() {
        let asked =
            [(0, Event::Need), (30, packet(Kind::Rep, true)), (70, packet(Kind::Ack, true))];
        let steps = [(Cause::ReqToRep, 30), (Cause::RtuToAck, 40), (Cause::Active, 70)];
        let took = |(cause, time)| Note::Took(cause, micros(time));
        assert_eq!(noted(2, false, &asked), steps.map(took));
        let again = packet(Kind::Req, false);
        let answered = [(0, packet(Kind::Req, true)), (5, again), (50, packet(Kind::Rtu, true))];
        let expected = [Note::Count(Counter::NoRep), took((Cause::Passive, 50))];
        assert_eq!(noted(2, false, &answered), expected);
        // An answer to a packet that was sent again tells no time.
        let doubtful = [(0, Event::Need), (30, packet(Kind::Rep, false))];
        assert_eq!(noted(2, false, &doubtful), []);
    }

    #[test]
    fn who_gives_way_when_both_ask_is_counted() {
        let both = [(0, Event::Need), (20, packet(Kind::Req, true))];
        let asks = [both.as_slice(), &[(60, Event::Heard)]].concat();
        let expected = [
            Note::Count(Counter::StayedActive),
            Note::Count(Counter::ImpliedAck),
            Note::Took(Cause::Active, micros(60)),
        ];
        assert_eq!(noted(2, false, &asks), expected);
        let answers = [both.as_slice(), &[(50, packet(Kind::Rtu, true))]].concat();
        let expected = [Note::Count(Counter::BecamePassive), Note::Took(Cause::Turned, micros(50))];
        assert_eq!(noted(3, false, &answers), expected);
    }

    #[test]
    fn a_message_ends_the_machine_of_a_connection_that_it_has_opened() {
        let mut table = Table::new(Rank(1), Timing::default());
        let _ = table.handle(micros(0), Rank(2), &Event::Need, false);
        let _ = table.handle(micros(20), Rank(2), &packet(Kind::Req, true), false);
        let actions = table.handle(micros(60), Rank(2), &Event::Heard, true);
        assert_eq!(actions, [super::super::machine::Action::Open]);
        assert_eq!(table.under_way(), 0);
        assert_eq!(table.handle(micros(70), Rank(2), &Event::Heard, true), []);
    }

    #[test]
    fn what_is_not_acknowledged_again_is_counted() {
        let repeated = [(10, packet(Kind::Rtu, false)), (20, packet(Kind::Rtu, false))];
        assert_eq!(noted(2, true, &repeated), [Note::Count(Counter::NoAck)]);
    }
}
