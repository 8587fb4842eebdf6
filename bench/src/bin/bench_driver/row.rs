//! One line of the table: a figure, what it is compared with, and the verdict.

use bench::timing::median;

use crate::curves::Curve;
use crate::run::{Failure, Result, Samples};

/// What a figure has to reach.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Target {
    /// Ours over reference, for times.
    AtMost(f64),
    /// Ours over reference, for bandwidths.
    AtLeast(f64),
    /// Ours minus reference.
    MoreByAtMost(f64),
    /// Ours alone.
    Bound(f64),
    /// Nothing: printed for information.
    None,
}

/// What came out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Met,
    Missed,
    Information,
    Skipped(String),
    /// Could not be measured although it should.
    Failed(String),
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Met => f.write_str("met"),
            Self::Missed => f.write_str("missed"),
            Self::Information => f.write_str("-"),
            Self::Skipped(_) => f.write_str("skipped"),
            Self::Failed(_) => f.write_str("FAILED"),
        }
    }
}

/// A line of the table.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) cells: [String; 5],
    /// How the ratio varied from pair to pair: median and quartiles.
    pub(crate) pairs: Option<String>,
    pub(crate) verdict: Verdict,
}

/// Indices of values of `a` and `b` that differ by a tenth at most; the closest first, each used
/// once.
fn matched(a: &[f64], b: &[f64]) -> Vec<(usize, usize)> {
    let mut all = Vec::new();
    for (i, x) in a.iter().enumerate() {
        for (j, y) in b.iter().enumerate() {
            all.push(((x / y).max(y / x), i, j));
        }
    }
    all.sort_by(|x, y| x.0.total_cmp(&y.0));
    let mut pairs: Vec<(usize, usize)> = Vec::new();
    for (off, i, j) in all {
        if off <= 1.1 && !pairs.iter().any(|pair| pair.0 == i || pair.1 == j) {
            pairs.push((i, j));
        }
    }
    pairs
}

fn verdict(met: bool) -> Verdict {
    if met { Verdict::Met } else { Verdict::Missed }
}

impl Verdict {
    /// Why there is no number.
    pub(crate) fn reason(&self) -> Option<&str> {
        match self {
            Self::Skipped(reason) | Self::Failed(reason) => Some(reason),
            Self::Met | Self::Missed | Self::Information => None,
        }
    }
}

/// The ratio column and the verdict, by what the other columns print: a reader who divides them
/// finds the same.
pub(crate) fn judge(ours: &str, reference: &str, target: &str) -> (String, Verdict) {
    let number = |text: &str| text.split(' ').find(|word| !word.is_empty())?.parse::<f64>().ok();
    let (own, other) = (number(ours), number(reference));
    let more = target.strip_prefix("at most +").is_some();
    let quotient = match (own, other) {
        (Some(own), Some(other)) if other != 0.0 => Some((own / other * 100.0).round() / 100.0),
        _ => None,
    };
    let ratio = match (own, other, quotient) {
        (Some(own), Some(other), _) if more => {
            let unit = ours.split_once(' ').map_or("", |(_, unit)| unit);
            format!("+{}", quantity(own - other, unit))
        }
        (_, _, Some(quotient)) => format!("{quotient:.2}x"),
        _ => String::new(),
    };
    // `at most 1.30x`, `at least 0.50x`, `at most +10 ms`, `at most 100 ms`, `no growth`
    let bound = target.rsplit_once(['+', ' ']).and_then(|_| {
        let words = target.trim_start_matches("at most ").trim_start_matches("at least ");
        let word = words.split([' ', ',']).next()?.trim_start_matches('+');
        word.trim_end_matches('x').parse::<f64>().ok()
    });
    let times = target.split(',').next().is_some_and(|first| first.ends_with('x'));
    let value = match (times, more) {
        (true, _) => quotient,
        (_, true) => number(ratio.trim_start_matches('+')),
        _ => own,
    };
    let met = match (value, bound) {
        (Some(value), Some(bound)) if target.starts_with("at least") => value >= bound,
        (Some(value), Some(bound)) => value <= bound,
        _ if target == "no growth" => own <= other,
        _ => return (ratio, Verdict::Information),
    };
    (ratio, verdict(met))
}

/// Three significant digits and the unit.
pub(crate) fn quantity(value: f64, unit: &str) -> String {
    let digits = match value.abs() {
        large if large >= 100.0 => 0,
        middle if middle >= 10.0 => 1,
        _ => 2,
    };
    format!("{value:.digits$} {unit}")
}

impl Row {
    /// Compares the samples `ours` with `reference`, pair by pair.
    pub(crate) fn paired(
        figure: &str,
        samples: &Samples,
        [ours, reference]: [&str; 2],
        unit: &str,
        target: Target,
    ) -> Result<Self> {
        let (a, b) = (samples.of(ours)?, samples.of(reference)?);
        if a.len() != b.len() {
            return Err(Failure(format!("{ours}: {} samples, {reference}: {}", a.len(), b.len())));
        }
        Ok(Self::judged(figure, [a, b], unit, target))
    }

    /// As [`Row::paired`] for figures of different launches that depend on how far apart the
    /// processors are, which changes from launch to launch: each launch has also measured that, as
    /// `distances`, and only launches that agree about it within a tenth are pairs. `Skipped` when
    /// there are fewer than three.
    pub(crate) fn equally_far(
        figure: &str,
        samples: &Samples,
        [ours, reference]: [&str; 2],
        distances: [&str; 2],
        unit: &str,
        target: Target,
    ) -> Result<Self> {
        let [far_a, far_b] = distances.map(|key| samples.of(key));
        let pairs = matched(far_a?, far_b?);
        if pairs.len() < 3 {
            let reason = format!(
                "the processors were equally far in {} pairs of launches only",
                pairs.len()
            );
            return Ok(Self::without(figure, Verdict::Skipped(reason)));
        }
        let (a, b) = (samples.of(ours)?, samples.of(reference)?);
        let pick = |values: &[f64], which: fn(&(usize, usize)) -> usize| {
            pairs.iter().filter_map(|pair| values.get(which(pair)).copied()).collect::<Vec<_>>()
        };
        let (a, b) = (pick(a, |pair| pair.0), pick(b, |pair| pair.1));
        let figure = format!("{figure} ({} pairs)", pairs.len());
        Ok(Self::judged(&figure, [&a, &b], unit, target))
    }

    fn judged(figure: &str, [a, b]: [&[f64]; 2], unit: &str, target: Target) -> Self {
        let mut ratios: Vec<f64> = a.iter().zip(b).map(|(a, b)| a / b).collect();
        ratios.sort_by(f64::total_cmp);
        let at = |part: usize| ratios.get((ratios.len() - 1) * part / 4).copied().unwrap_or(0.0);
        let target = match target {
            Target::AtMost(most) => format!("at most {most:.2}x"),
            Target::AtLeast(least) => format!("at least {least:.2}x"),
            Target::MoreByAtMost(most) => format!("at most +{most} {unit}"),
            Target::Bound(_) | Target::None => String::new(),
        };
        let (ours, reference) = (quantity(median(a), unit), quantity(median(b), unit));
        let (ratio, verdict) = judge(&ours, &reference, &target);
        let pairs = Some(format!("{:.2}x, {:.2}x to {:.2}x", median(&ratios), at(1), at(3)));
        let cells = [figure.to_owned(), ours, reference, ratio, target];
        Self { cells, pairs, verdict }
    }

    /// Compares the median of `ours` with a fixed bound.
    pub(crate) fn alone(
        figure: &str,
        samples: &Samples,
        ours: &str,
        unit: &str,
        target: Target,
    ) -> Result<Self> {
        let value = samples.median(ours)?;
        let target = match target {
            Target::Bound(most) => format!("at most {most} {unit}"),
            _ => String::new(),
        };
        Ok(Self::single(figure, quantity(value, unit), target))
    }

    /// A value beside a fixed bound, or beside nothing.
    pub(crate) fn single(figure: &str, ours: String, target: String) -> Self {
        let (_, verdict) = judge(&ours, "", &target);
        let cells = [figure.to_owned(), ours, String::new(), String::new(), target];
        Self { cells, pairs: None, verdict }
    }

    /// The reason behind a verdict without number, as a sentence.
    pub(crate) fn explanation(&self) -> Option<String> {
        let reason = self.verdict.reason()?;
        Some(format!("{}: {}: {reason}", self.cells[0], self.verdict))
    }

    /// A line without numbers.
    pub(crate) fn without(figure: &str, verdict: Verdict) -> Self {
        let mut cells: [String; 5] = Default::default();
        figure.clone_into(&mut cells[0]);
        Self { cells, pairs: None, verdict }
    }
}

/// What one figure produced.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    pub(crate) rows: Vec<Row>,
    pub(crate) samples: Samples,
    /// Sentences that say what exactly was compared.
    pub(crate) notes: Vec<String>,
    /// What is kept as a plot.
    pub(crate) curves: Vec<Curve>,
}

impl Findings {
    /// What a reader has to know beside the numbers.
    pub(crate) fn explanations(&self) -> impl Iterator<Item = String> {
        self.rows.iter().filter_map(Row::explanation).chain(self.notes.iter().cloned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launches_are_matched_by_distance() {
        let (near, middle, far) = (30.0, 75.0, 440.0);
        let pairs = matched(&[near, far, middle, 52.0], &[far * 1.05, middle * 1.02, middle, near]);
        assert_eq!(pairs.len(), 3);
        for pair in [(0, 3), (1, 0), (2, 2)] {
            assert!(pairs.contains(&pair), "{pair:?} in {pairs:?}");
        }
    }

    #[test]
    fn verdicts_are_those_of_the_printed_columns() {
        for (ours, reference, target, ratio, met) in [
            ("48.1 µs", "70.0 µs", "at most 1.25x", "0.69x", Verdict::Met),
            ("64.6 MB/s", "80.4 MB/s", "at least 0.90x", "0.80x", Verdict::Missed),
            ("2.80 ms", "0.73 ms", "at most +10 ms", "+2.07 ms", Verdict::Met),
            ("105 ms", "", "at most 100 ms, 0 survivors", "", Verdict::Missed),
            ("0.00 ", "", "at most 0 ", "", Verdict::Met),
            ("64.0 B", "256 B", "no growth", "0.25x", Verdict::Met),
            ("17.0 ", "", "", "", Verdict::Information),
        ] {
            assert_eq!(judge(ours, reference, target), (ratio.to_owned(), met), "{target}");
        }
    }

    #[test]
    fn too_few_pairs_are_no_figure() {
        let mut samples = Samples::default();
        for (key, value) in [("a", 1.0), ("b", 1.0), ("far a", 30.0), ("far b", 400.0)] {
            samples.add(key, value);
        }
        let row =
            Row::equally_far("x", &samples, ["a", "b"], ["far a", "far b"], "ns", Target::None);
        assert!(matches!(row.expect("row").verdict, Verdict::Skipped(_)));
    }
}
