//! The record of a figure.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

/// Values beyond it leave no room around the drawing.
const LARGEST: f64 = 1e30;

/// What is drawn: series of points on two axes.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// What stands above.
    pub title: String,
    /// The axis of the first number of a point.
    pub x: Axis,
    /// That of the second.
    pub y: Axis,
    /// In the order of the legend; names differ.
    pub series: Vec<Series>,
    /// What was measured.
    pub commit: String,
    /// Where.
    pub machine: String,
}

/// An axis.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Axis {
    /// What is shown, with its unit.
    pub label: String,
    /// Logarithmic.
    pub log: bool,
}

/// Points of one colour, joined in their order.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// Pairs of numbers.
    pub points: Vec<[f64; 2]>,
}

/// Where a record is wrong, and how.
#[derive(Debug)]
pub(super) struct Wrong {
    pub(super) field: String,
    pub(super) reason: String,
}

fn wrong<T>(field: String, reason: impl Into<String>) -> Result<T, Wrong> {
    Err(Wrong { field, reason: reason.into() })
}

impl Figure {
    pub(super) fn read(text: &str) -> Result<Self, Wrong> {
        let mut reader = serde_json::Deserializer::from_str(text);
        let figure: Self = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
            let field = match error.path().to_string() {
                path if path == "." => "the record".to_owned(),
                path => path,
            };
            Wrong { field, reason: error.inner().to_string() }
        })?;
        if let Err(error) = reader.end() {
            return wrong("the record".to_owned(), error.to_string());
        }
        figure.check()?;
        Ok(figure)
    }

    fn check(&self) -> Result<(), Wrong> {
        let texts = [
            ("title", &self.title),
            ("x.label", &self.x.label),
            ("y.label", &self.y.label),
            ("commit", &self.commit),
            ("machine", &self.machine),
        ];
        if let Some((field, _)) = texts.iter().find(|(_, text)| text.is_empty()) {
            return wrong((*field).to_owned(), "empty");
        }
        if self.series.is_empty() {
            return wrong("series".to_owned(), "none");
        }
        let mut names = HashSet::new();
        for (at, series) in self.series.iter().enumerate() {
            if !names.insert(&series.name) {
                let reason = format!("'{}' is there before", series.name);
                return wrong(format!("series[{at}].name"), reason);
            }
            if series.points.is_empty() {
                return wrong(format!("series[{at}].points"), "none");
            }
            for (number, point) in series.points.iter().enumerate() {
                self.check_point(&format!("series[{at}].points[{number}]"), point)?;
            }
        }
        Ok(())
    }

    fn check_point(&self, field: &str, point: &[f64; 2]) -> Result<(), Wrong> {
        for (name, axis, value) in [("x", &self.x, point[0]), ("y", &self.y, point[1])] {
            if axis.log && value <= 0.0 {
                let reason = format!("{name} is {value}, and its axis logarithmic");
                return wrong(field.to_owned(), reason);
            }
        }
        match point.iter().copied().find(|value| value.abs() > LARGEST) {
            Some(value) => wrong(field.to_owned(), format!("{value:e} is too large")),
            None => Ok(()),
        }
    }

    /// Least and greatest value of one coordinate of all points.
    pub(super) fn span(&self, coordinate: usize) -> (f64, f64) {
        let all = self.series.iter().flat_map(|series| &series.points);
        all.map(|point| point[coordinate])
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
                (low.min(value), high.max(value))
            })
    }
}
