//! The clocks of the hosts, in the time of the launching one.
//!
//! A look at a clock says: between `sent` and `received` here it was `there` there. In the middle
//! of that, give or take half of it, both clocks show the same moment. So the look with the
//! shortest way is the best. Clocks also drift: with a good look from the first third of the job and
//! one from the last third the offset is a straight line through them. As they are at least a third
//! of the time apart, no end of the line is further from the truth than one and a half times the
//! longest way.

use std::collections::BTreeMap;

use bootstrap::trace::{Kind, Slot};
use supervisor::trace::ClockSample;

/// A moment: the time there, and how far that is ahead of the time here. Nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Point {
    there: u64,
    ahead: i128,
    /// How long the look took.
    way: u64,
}

/// How far a host's clock is ahead.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Line {
    first: Point,
    /// How far a time may be off, nanoseconds.
    error: u64,
    /// Nanoseconds that the offset grows in a nanosecond there.
    slope: f64,
}

/// Greatest drift that is believed, nanoseconds in a nanosecond: ten times that of bad clocks. What
/// is more comes from looks that took long.
const MOST_DRIFT: f64 = 1e-3;
/// Least distance of two looks that say something about drift, nanoseconds.
const FAR: u64 = 500_000_000;

impl Line {
    /// The best line through looks; `None` without any.
    fn through(samples: &[ClockSample]) -> Option<Self> {
        let point = |sample: &ClockSample| {
            let way = sample.received.checked_sub(sample.sent)?;
            let middle = i128::from(sample.sent) + i128::from(way / 2);
            Some(Point { there: sample.there, ahead: i128::from(sample.there) - middle, way })
        };
        let points: Vec<Point> = samples.iter().filter_map(point).collect();
        let best = *points.iter().min_by_key(|point| point.way)?;
        let begin = points.iter().map(|point| point.there).min()?;
        let end = points.iter().map(|point| point.there).max()?;
        let third = (end - begin) / 3;
        let best_of = |from: u64, to: u64| {
            let part = points.iter().filter(|point| (from..=to).contains(&point.there));
            part.min_by_key(|point| point.way)
        };
        let (Some(early), Some(late)) = (best_of(begin, begin + third), best_of(end - third, end))
        else {
            return Some(Self::level(best));
        };
        let distance = late.there - early.there;
        #[expect(clippy::cast_precision_loss, reason = "a ratio of differences")]
        let slope = (late.ahead - early.ahead) as f64 / distance.max(1) as f64;
        if distance < FAR || slope.abs() > MOST_DRIFT {
            return Some(Self::level(best));
        }
        // Behind its ends a line is further off than at them.
        let way = early.way.max(late.way);
        Some(Self { first: *early, error: way.saturating_add(way / 2), slope })
    }

    /// A clock that goes as the one here.
    const fn level(first: Point) -> Self {
        Self { first, error: first.way / 2, slope: 0.0 }
    }

    /// A time there, in the time here.
    fn here(&self, there: u64) -> u64 {
        let since = i128::from(there) - i128::from(self.first.there);
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            reason = "nanoseconds of a drift"
        )]
        let drift = (since as f64 * self.slope) as i128;
        let here = i128::from(there) - self.first.ahead - drift;
        u64::try_from(here.max(0)).unwrap_or(u64::MAX)
    }
}

/// The clocks of all hosts.
#[derive(Clone, Debug, Default)]
pub(super) struct Alignment(BTreeMap<u32, Line>);

impl Alignment {
    /// From all looks. A host without any has the clock of the launching one.
    pub(super) fn of(samples: &[ClockSample]) -> Self {
        let mut by_host: BTreeMap<u32, Vec<ClockSample>> = BTreeMap::new();
        for sample in samples {
            by_host.entry(sample.host).or_default().push(*sample);
        }
        let line = |(host, samples): (u32, Vec<ClockSample>)| {
            Line::through(&samples).map(|line| (host, line))
        };
        Self(by_host.into_iter().filter_map(line).collect())
    }

    /// How far two hosts' times of the same moment may be apart, in nanoseconds, as long as clocks
    /// go evenly.
    pub(super) fn error(&self) -> u64 {
        let mut errors: Vec<u64> = self.0.values().map(|line| line.error).collect();
        errors.sort_unstable();
        errors.iter().rev().take(2).fold(0, |sum, error| sum.saturating_add(*error))
    }

    /// Puts the times of a rank of a host into the time here.
    pub(super) fn apply(&self, host: u32, slot: &mut Slot) {
        if let Some(line) = self.0.get(&host) {
            for record in &mut slot.records {
                let (at, end) = (record.at, record.at.saturating_add(record.span));
                record.at = line.here(at);
                // With another drift it is longer or shorter, too, or it would reach into the next.
                if record.kind != Kind::More {
                    record.span = line.here(end).saturating_sub(record.at);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// What a clock shows that is so far ahead, and gains so many nanoseconds a second.
    fn shown(here: u64, ahead: i64, gains: i64) -> u64 {
        let drift = i128::from(here) * i128::from(gains) / i128::from(SECOND);
        u64::try_from(i128::from(here) + i128::from(ahead) + drift).unwrap()
    }

    proptest! {
        #[test]
        fn the_error_is_bounded_by_the_longest_way(
            ahead in -1_000_000_000_i64..1_000_000_000_000,
            gains in -100_000_i64..100_000,
            ways in proptest::collection::vec((20_000_u64..5_000_000, 0_u64..=100), 2..40),
        ) {
            let mut samples = Vec::new();
            for (number, (way, part)) in (0..).zip(&ways) {
                let sent = 3 * SECOND + number * SECOND;
                // The way there takes any part of the whole.
                let there = shown(sent + way * part / 100, ahead, gains);
                samples.push(ClockSample { host: 1, sent, there, received: sent + way });
            }
            let (begin, end) = (samples[0].sent, samples[samples.len() - 1].received);
            let line = Line::through(&samples).unwrap();
            let worst = samples.iter().map(|s| s.received - s.sent).max().unwrap();
            let allowed = worst + worst / 2 + 10;
            prop_assert!(line.error < allowed);
            for here in [begin, begin + (end - begin) / 2, end] {
                let found = line.here(shown(here, ahead, gains));
                prop_assert!(found.abs_diff(here) <= allowed, "{} for {here}: {line:?}", found);
            }
        }

        #[test]
        fn nonsense_never_panics(
            // Few hosts, so that most have looks enough for a line.
            looks in proptest::collection::vec((0_u32..3, any::<[u64; 3]>()), 0..20),
            at in any::<u64>(),
        ) {
            let sample = |(host, times): (u32, [u64; 3])| {
                let [sent, there, received] = times;
                ClockSample { host, sent, there, received }
            };
            let samples: Vec<_> = looks.into_iter().map(sample).collect();
            let _ = Alignment::of(&samples).error();
            if let Some(line) = Line::through(&samples) {
                let _ = line.here(at);
            }
        }
    }

    #[test]
    fn the_shortest_way_counts() {
        let look = |sent, way, ahead| {
            let there = sent + way / 2 + ahead;
            ClockSample { host: 0, sent, there, received: sent + way }
        };
        let line = Line::through(&[look(100, 1000, 5_300), look(400, 10, 5_000)]).unwrap();
        assert_eq!(line.here(7_000), 2_000);
        assert_eq!(line.error, 5);
        assert!(Line::through(&[]).is_none());
    }

    /// Clocks of a host come from its supervisor, so they may say anything.
    #[test]
    fn a_way_of_centuries_is_an_error_of_centuries() {
        let look = |sent, there, received| ClockSample { host: 0, sent, there, received };
        let looks = [look(0, 1 << 60, u64::MAX - FAR), look(FAR, (1 << 60) + FAR, u64::MAX)];
        let line = Line::through(&looks).unwrap();
        assert_eq!((line.slope, line.error), (0.0, u64::MAX));
        assert_eq!(Alignment::of(&looks).error(), u64::MAX);
    }

    #[test]
    fn what_was_apart_there_is_apart_here() {
        use bootstrap::trace::Record;
        let look = |sent: u64, gains| ClockSample {
            host: 1,
            sent,
            there: shown(sent, 1_000, gains),
            received: sent,
        };
        // A clock that gains half a millisecond a second.
        let alignment = Alignment::of(&[look(SECOND, 500_000), look(5 * SECOND, 500_000)]);
        let long = Record { span: SECOND, ..Record::new(Kind::Waited, 2 * SECOND) };
        let next = Record::new(Kind::Sent, 3 * SECOND);
        let bytes = Record { span: 77, ..Record::new(Kind::More, 3 * SECOND) };
        let mut slot = Slot { records: vec![long, next, bytes], ..Slot::default() };
        alignment.apply(1, &mut slot);
        let [long, next, bytes] = &slot.records[..] else { panic!() };
        assert_eq!(long.at + long.span, next.at);
        assert!(long.span < SECOND - 400_000, "{long:?}");
        assert_eq!(bytes.span, 77, "that is no time");
    }

    #[test]
    fn hosts_have_clocks_of_their_own() {
        use bootstrap::trace::Record;
        let sample = ClockSample { host: 2, sent: 10, there: 1_010, received: 10 };
        let alignment = Alignment::of(&[sample]);
        assert_eq!(alignment.error(), 0);
        let far = |host, way: u64| ClockSample { host, sent: 10, there: 1_010, received: 10 + way };
        let three = [far(1, 200), far(2, 40), far(3, 100), far(2, 60)];
        assert_eq!(Alignment::of(&three).error(), 150, "of the two that are furthest off");
        let mut slot = Slot { records: vec![Record::new(Kind::Put, 1_500)], ..Slot::default() };
        alignment.apply(1, &mut slot);
        assert_eq!(slot.records[0].at, 1_500);
        alignment.apply(2, &mut slot);
        assert_eq!(slot.records[0].at, 500);
    }
}
