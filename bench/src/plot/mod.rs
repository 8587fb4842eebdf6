//! Plots of records: reads a [`Figure`] and draws it as SVG. The same record makes the same bytes.

mod figure;
mod svg;

use std::path::{Path, PathBuf};

pub use figure::{Axis, Figure, Series};
pub use svg::draw;

/// Why a plot could not be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The record cannot be read, or the plot cannot be written.
    #[error("cannot {operation} {}: {source}", path.display())]
    File {
        /// What was tried.
        operation: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// The record is not one of a figure.
    #[error("{}: {field}: {reason}", path.display())]
    Record {
        /// The record.
        path: PathBuf,
        /// Where in it, as `series[0].points[2]`.
        field: String,
        /// What is wrong there.
        reason: String,
    },
    /// The drawing itself failed.
    #[error("cannot draw {}: {reason}", path.display())]
    Draw {
        /// The record.
        path: PathBuf,
        /// What the plotter says.
        reason: String,
    },
}

/// The records of a folder, in the order of their names.
///
/// # Errors
/// When the folder cannot be listed.
pub fn records(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let failed = |source| Error::File { operation: "list", path: folder.to_owned(), source };
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_some_and(|extension| extension == "json") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// The plot of one record.
///
/// # Errors
/// When the record cannot be read, is wrong, or cannot be drawn.
pub fn plot(record: &Path) -> Result<String, Error> {
    let path = || record.to_owned();
    let text = std::fs::read_to_string(record).map_err(|source| Error::File {
        operation: "read",
        path: path(),
        source,
    })?;
    let figure = Figure::read(&text).map_err(|wrong| Error::Record {
        path: path(),
        field: wrong.field,
        reason: wrong.reason,
    })?;
    draw(&figure).map_err(|reason| Error::Draw { path: path(), reason })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &str = r#"{
        "title": "Start of a job", "commit": "0123abc", "machine": "a & b",
        "x": {"label": "hosts", "log": true}, "y": {"label": "ms", "log": false},
        "series": [
            {"name": "degree 32", "points": [[100, 0.5], [1000, 0.75], [100000, 2]]},
            {"name": "flat", "points": [[100, 1], [100000, 3]]}
        ]
    }"#;

    fn written(folder: &Path, text: &str) -> PathBuf {
        let record = folder.join("figure.json");
        std::fs::write(&record, text).unwrap();
        record
    }

    #[test]
    fn a_sample_is_drawn_the_same_each_time() {
        let folder = tempfile::tempdir().unwrap();
        let record = written(folder.path(), SAMPLE);
        let svg = plot(&record).unwrap();
        assert_eq!(svg, plot(&record).unwrap());
        assert!(svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>"), "{svg}");
        for text in ["Start of a job", "hosts", "degree 32", "flat", "0123abc, a &amp; b"] {
            assert!(svg.contains(text), "{text}: {svg}");
        }
        // Each series has a line and a mark at each point; the legend repeats one of each.
        assert_eq!(svg.matches("<circle ").count(), 5, "{svg}");
        // A decade of a logarithmic axis.
        assert!(svg.contains("\n1000\n") || svg.contains(">1000<"), "{svg}");
        assert_eq!(records(folder.path()).unwrap(), [record]);
    }

    #[test]
    fn one_point_and_equal_values_have_room() {
        for points in ["[[5, 5]]", "[[1, 0], [2, 0]]"] {
            let text = format!(
                r#"{{"title": "t", "x": {{"label": "x", "log": true}}, "y": {{"label": "y", "log": false}},
                "series": [{{"name": "s", "points": {points}}}], "commit": "c", "machine": "m"}}"#
            );
            let svg =
                draw(&Figure::read(&text).unwrap_or_else(|wrong| panic!("{wrong:?}"))).unwrap();
            assert!(svg.contains("<circle ") && !svg.contains("NaN"), "{svg}");
        }
    }

    #[test]
    fn a_bad_record_is_told_with_file_and_field() {
        for (from, to, told) in [
            ("\"log\": true", "\"log\": 1", "x.log: invalid type"),
            ("\"label\": \"ms\", ", "", "y: missing field `label`"),
            ("\"commit\": \"0123abc\", ", "", "commit"),
            ("[1000, 0.75]", "[1000]", "series[0].points[1]: invalid length 1"),
            ("[1000, 0.75]", "[0, 0.75]", "series[0].points[1]: x is 0, and its axis logarithmic"),
            ("[100, 1]", "[1e300, 1e308]", "series[1].points[0]: 1e300 is too large"),
            ("[[100, 1], [100000, 3]]", "[]", "series[1].points: none"),
            ("\"flat\"", "\"degree 32\"", "series[1].name: 'degree 32' is there before"),
            ("\"title\": \"Start of a job\"", "\"title\": \"\"", "title: empty"),
            ("\"title\"", "\"tilte\"", "tilte: unknown field `tilte`"),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let record = written(folder.path(), &SAMPLE.replacen(from, to, 1));
            let error = plot(&record).unwrap_err().to_string();
            assert!(error.starts_with(&format!("{}: ", record.display())), "{error}");
            assert!(error.contains(told), "{error}\nlacks {told}");
        }
        let error = plot(Path::new("/nowhere/figure.json")).unwrap_err().to_string();
        assert!(error.starts_with("cannot read /nowhere/figure.json: "), "{error}");
    }

    #[test]
    fn the_plots_of_the_docs_are_those_of_their_records() {
        let folder = testkit::repository().join("docs/bench/scale");
        for record in records(&folder).unwrap() {
            let beside = record.with_extension("svg");
            let kept = std::fs::read_to_string(&beside).unwrap_or_default();
            let same = kept == plot(&record).unwrap_or_else(|error| panic!("{error}"));
            assert!(same, "{} is not what scripts/plots draws: run it", beside.display());
        }
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let lonely = path.extension().is_some_and(|extension| extension == "svg")
                && !path.with_extension("json").exists();
            assert!(!lonely, "{} has no record", path.display());
        }
    }
}
