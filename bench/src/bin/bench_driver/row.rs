//! One line of the table: a figure, what it is compared with, and the verdict.

use crate::run::{Failure, Result, Samples, median};

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
    pub(crate) verdict: Verdict,
}

/// Indices of values of `a` and `b` that differ by a tenth at most; the closest first, each used once.
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

    /// As [`Row::paired`] for figures of different launches that depend on how far apart the processors are, which changes
    /// from launch to launch: each launch has also measured that, as `distances`, and only launches that agree about it within
    /// a tenth are pairs. `Skipped` when there are fewer than three.
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
        let over = |combine: fn(f64, f64) -> f64| {
            let each: Vec<f64> = a.iter().zip(b).map(|(a, b)| combine(*a, *b)).collect();
            median(&each)
        };
        let (ratio, more) = (over(|a, b| a / b), over(|a, b| a - b));
        let (target, verdict) = match target {
            Target::AtMost(most) => (format!("at most {most:.2}x"), verdict(ratio <= most)),
            Target::AtLeast(least) => (format!("at least {least:.2}x"), verdict(ratio >= least)),
            Target::MoreByAtMost(most) => {
                (format!("at most +{most} {unit}"), verdict(more <= most))
            }
            Target::Bound(_) | Target::None => (String::new(), Verdict::Information),
        };
        let ratio = match verdict {
            _ if target.contains('+') => format!("+{}", quantity(more, unit)),
            _ => format!("{ratio:.2}x"),
        };
        let cells = [
            figure.to_owned(),
            quantity(median(a), unit),
            quantity(median(b), unit),
            ratio,
            target,
        ];
        Self { cells, verdict }
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
        let (target, verdict) = match target {
            Target::Bound(most) => (format!("at most {most} {unit}"), verdict(value <= most)),
            _ => (String::new(), Verdict::Information),
        };
        let cells =
            [figure.to_owned(), quantity(value, unit), String::new(), String::new(), target];
        Ok(Self { cells, verdict })
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
        Self { cells, verdict }
    }
}

/// What one figure produced.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    pub(crate) rows: Vec<Row>,
    pub(crate) samples: Samples,
    /// Sentences that say what exactly was compared.
    pub(crate) notes: Vec<String>,
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
