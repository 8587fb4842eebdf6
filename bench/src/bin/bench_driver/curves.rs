//! Curves: what was measured over the size of a job, for `scripts/plots` to draw.

use std::path::{Path, PathBuf};

use bench::plot::{Axis, Figure, Series};

use crate::record;
use crate::run::Result;

/// Where they are.
const FOLDER: &str = "docs/bench/scale";

/// One plot: a label and whether it is logarithmic, for both axes.
#[derive(Debug)]
pub(crate) struct Curve {
    /// Of its file, without ending.
    pub(crate) name: &'static str,
    pub(crate) title: String,
    pub(crate) x: (&'static str, bool),
    pub(crate) y: (&'static str, bool),
    pub(crate) series: Vec<Series>,
}

/// A named line through points, from left to right.
pub(crate) fn series(name: &str, points: impl IntoIterator<Item = (f64, f64)>) -> Series {
    let mut points: Vec<[f64; 2]> = points.into_iter().map(|(x, y)| [x, y]).collect();
    points.sort_by(|a, b| a[0].total_cmp(&b[0]));
    Series { name: name.to_owned(), points }
}

/// Writes them; their paths.
pub(crate) fn write<'a>(
    curves: impl IntoIterator<Item = &'a Curve>,
    machine: &str,
) -> Result<Vec<PathBuf>> {
    let axis = |(label, log): (&str, bool)| Axis { label: label.to_owned(), log };
    let mut paths = Vec::new();
    for curve in curves {
        let figure = Figure {
            title: curve.title.clone(),
            x: axis(curve.x),
            y: axis(curve.y),
            series: curve.series.clone(),
            commit: record::commit()?,
            machine: machine.to_owned(),
        };
        std::fs::create_dir_all(FOLDER)?;
        let path = Path::new(FOLDER).join(curve.name).with_extension("json");
        std::fs::write(&path, serde_json::to_string_pretty(&figure)? + "\n")?;
        paths.push(path);
    }
    Ok(paths)
}
