//! The record of a figure.

use std::collections::HashSet;

use serde::Deserialize;

/// Values beyond it leave no room around the drawing.
const LARGEST: f64 = 1e30;

/// What is drawn: series of points on two axes.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    pub(super) title: String,
    pub(super) x: Axis,
    pub(super) y: Axis,
    pub(super) series: Vec<Series>,
    pub(super) commit: String,
    pub(super) machine: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Axis {
    pub(super) label: String,
    pub(super) log: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Series {
    pub(super) name: String,
    pub(super) points: Vec<[f64; 2]>,
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
