//! The shape of the sources against its limits, one test for each line of the table that
//! `scripts/shape` prints.
//!
//! As a test, a line that is over its limit fails when it is worse than `known.txt` beside it says;
//! `--strict` prints the table and fails while any line is over; `--keep` writes today's values of
//! such lines to that file.

mod graph;
mod sources;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};
use testkit::report::show;

use crate::sources::Sources;

/// Today's values of the lines that are over their limits.
const KNOWN: &str = "testkit/tests/shape/known.txt";
/// The conduit's layers, from the bottom up; nothing imports from a layer above its own.
const CONDUIT: &graph::Layers = &[
    &[
        "sys",
        "error",
        "handler_index",
        "identity",
        "mode",
        "segment_mode",
        "settings",
        "installed",
        "call_state",
        "processor",
        "spin_trial",
        "wait_mode",
        "data_type",
        "trace",
    ],
    &["transport"],
    &["exit", "long_payload"],
    &[
        "rank",
        "handler",
        "token",
        "foreign",
        "negotiate",
        "am",
        "rma",
        "loans",
        "vis",
        "atomics",
        "coll",
        "barrier",
        "progress",
        "wait",
        "spread",
        "exit_link",
    ],
    &["endpoint", "team", "segment", "event"],
    &["notes", "client", "inner", "lib"],
];

/// Most lines of production code: 66,000 for what there was before, 14,000 for vectors, atomics,
/// teams, collectives and the debug library, 11,000 for the registration of memory, segment modes,
/// tracing, statistics and the rest of the documents' variables, 1,000 for memory that is lent, and
/// 2,000 for flow control by credits that move and by bytes, 1,000 for limits, curves and plots, and
/// 10,000 for launching: options of other launchers, several programs, binding, the choice of the
/// ssh client, jobs that are watched, started again and ended whatever is stuck, and 5,000 for PMI servers,
/// containers, debuggers of chosen ranks, stacks without a debugger, and encrypted streams, 2,000 for
/// a PMIx server and credits of late senders, and 2,000 for ends of large jobs told together and
/// bursts of the software adapter, and 1,000 for messages that are signalled one in some and waits
/// that see other processes, and 1,000 for the straight way of Shorts, sleeps on streams and figures
/// of whole programs, and 500 for requests that are posted together, and 100 for
/// counts that one thread changes.
const PRODUCTION: usize = 66_000
    + 14_000
    + 11_000
    + 1_000
    + 2_000
    + 1_000
    + 10_000
    + 5_000
    + 2_000
    + 2_000
    + 1_000
    + 1_000
    + 500
    + 100;

/// One line of the table.
struct Line {
    name: String,
    value: f64,
    limit: f64,
    /// The value must not be under the limit, instead of not over it.
    at_least: bool,
    /// What to look at first.
    worst: Vec<String>,
}

impl Line {
    fn at_most(name: impl Into<String>, value: usize, limit: usize, worst: Vec<String>) -> Self {
        let (value, limit) = (number(value), number(limit));
        Self { name: name.into(), value, limit, at_least: false, worst }
    }

    /// A line without a limit.
    fn told(name: &str, value: usize) -> Self {
        let name = name.to_owned();
        Self {
            name,
            value: number(value),
            limit: f64::INFINITY,
            at_least: false,
            worst: Vec::new(),
        }
    }

    fn is_over(&self) -> bool {
        self.is_worse_than(self.limit)
    }

    fn is_worse_than(&self, other: f64) -> bool {
        if self.at_least { self.value < other } else { self.value > other }
    }
}

fn number(count: usize) -> f64 {
    f64::from(u32::try_from(count).expect("the checkout is not that big"))
}

fn main() -> ExitCode {
    let root = testkit::repository();
    let asked = std::env::args().nth(1);
    let lines = measure(&root);
    match asked.as_deref() {
        Some("--strict") => {
            show(&table(&lines));
            ExitCode::from(u8::from(lines.iter().any(Line::is_over)))
        }
        Some("--keep") => {
            show(&table(&lines));
            fs::write(root.join(KNOWN), kept(&lines)).expect("the checkout can be written");
            ExitCode::SUCCESS
        }
        _ => check(&root, lines),
    }
}

/// Each line as a test.
fn check(root: &Path, lines: Vec<Line>) -> ExitCode {
    let known = fs::read_to_string(root.join(KNOWN)).unwrap_or_default();
    let known: BTreeMap<String, f64> = known
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once(" = "))
        .filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?)))
        .collect();
    let trial = |line: Line| {
        let allowed = known.get(&line.name).copied();
        let name = format!("shape: {}", line.name);
        Trial::test(name, move || {
            if !line.is_over() || allowed.is_some_and(|known| !line.is_worse_than(known)) {
                return Ok(());
            }
            let known = allowed.map_or(String::new(), |known| format!(", {known} was known"));
            let text = format!("{}, limit {}{known}\n{}", line.value, line.limit, list(&line));
            Err(text.into())
        })
    };
    libtest_mimic::run(
        &Arguments::from_args(),
        lines.into_iter().filter(|line| line.limit.is_finite()).map(trial).collect(),
    )
    .exit_code()
}

fn list(line: &Line) -> String {
    line.worst.iter().map(|one| format!("    {one}\n")).collect()
}

fn table(lines: &[Line]) -> String {
    let mut text = format!("{:44} {:>9} {:>10}\n", "", "value", "limit");
    for line in lines {
        if line.limit.is_infinite() {
            let _ = writeln!(text, "{:44} {:>9}", line.name, line.value);
            continue;
        }
        let verdict = if line.is_over() { "over" } else { "ok" };
        let sign = if line.at_least { ">=" } else { "<=" };
        let row = format!("{:44} {:>9} {sign}{:>8} {verdict}", line.name, line.value, line.limit);
        let _ = writeln!(text, "{row}");
        if line.is_over() {
            text += &list(line);
        }
    }
    text
}

fn kept(lines: &[Line]) -> String {
    let mut text = String::from(
        "# Lines of scripts/shape that are over their limits today. A change that makes one worse fails its test;\n\
         # `scripts/shape --keep` writes this file. It is empty when the shape is right.\n",
    );
    for line in lines.iter().filter(|line| line.is_over()) {
        let _ = writeln!(text, "{} = {}", line.name, line.value);
    }
    text
}

fn measure(root: &Path) -> Vec<Line> {
    let sources = Sources::read(root);
    let mut lines = Vec::new();
    for one in &sources.crates {
        let uses = graph::uses(one);
        let circles = graph::circles(&uses);
        let largest = circles.first().map_or(0, Vec::len);
        let worst = circles.iter().filter(|circle| circle.len() > 4).map(|circle| names(circle));
        lines.push(Line::at_most(
            format!("circle of modules, {}", one.name),
            largest,
            4,
            worst.collect(),
        ));
        if one.name == "conduit" {
            let (upward, unnamed) = graph::upward(&uses, "conduit/src", CONDUIT);
            let arrows =
                upward.iter().map(|(from, to)| format!("{} -> {}", from.display(), to.display()));
            lines.push(Line::at_most("upward imports, conduit", upward.len(), 3, arrows.collect()));
            let paths = unnamed.iter().map(|file| file.display().to_string()).collect();
            lines.push(Line::at_most("modules without a layer, conduit", unnamed.len(), 0, paths));
            lines.push(Line::told("floors, conduit", graph::floors(&uses)));
        }
    }
    lines.extend(sizes(&sources));
    lines.extend(unsafe_places(root, &sources));
    lines
}

fn names(files: &[PathBuf]) -> String {
    let names: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
    format!("{}: {}", files.len(), names.join(" "))
}

fn sizes(sources: &Sources) -> Vec<Line> {
    let mut files = sources.files.clone();
    files.sort_by_key(|(_, lines)| *lines);
    let median = files.get(files.len() / 2).map_or(0, |(_, lines)| *lines);
    let longest = files.last().map_or(0, |(_, lines)| *lines);
    let long = files.iter().rev().filter(|(_, lines)| *lines > 600);
    let long = long.map(|(file, lines)| format!("{} {lines}", file.display())).collect();
    let mut functions = sources.functions.clone();
    functions.sort_by_key(|(_, _, lines)| *lines);
    let p90 = functions.get(functions.len() * 9 / 10).map_or(0, |(_, _, lines)| *lines);
    let longest_functions = functions.iter().rev().take(10);
    let longest_functions =
        longest_functions.map(|(file, line, lines)| format!("{}:{line} {lines}", file.display()));
    let ratio = number(sources.test_lines) / number(sources.production_lines);
    vec![
        Line::at_most("production lines", sources.production_lines, PRODUCTION, Vec::new()),
        Line::told("lines of headers and scripts", sources.other_lines),
        Line {
            name: "test lines to production lines".to_owned(),
            value: (ratio * 1000.0).floor() / 1000.0,
            limit: 0.65,
            at_least: true,
            worst: vec![format!("{} lines of tests", sources.test_lines)],
        },
        Line::at_most("lines of a file, median", median, 199, Vec::new()),
        Line::at_most("lines of a file, most", longest, 600, long),
        Line::at_most("lines of a function, p90", p90, 25, longest_functions.collect()),
    ]
}

/// Files with unsafe code that docs/ARCHITECTURE.md does not name, and places that it names without
/// a reason.
fn unsafe_places(root: &Path, sources: &Sources) -> Vec<Line> {
    let page = fs::read_to_string(root.join("docs/ARCHITECTURE.md")).expect("the page is there");
    let list = page.split("Unsafe code lives only in").nth(1).expect("the page has the list");
    let list = list.split("Everything else").next().unwrap_or_default();
    let mut places = Vec::new();
    let mut unreasoned = Vec::new();
    for entry in list.split("\n- ").skip(1) {
        let mut parts = entry.splitn(3, '`').skip(1);
        let (place, reason) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        places.push(place);
        if !reason.starts_with(": ") || reason.len() < 8 || !root.join(place).exists() {
            unreasoned.push(place.to_owned());
        }
    }
    let named = |file: &Path| {
        let file = file.to_str().unwrap_or_default();
        places.iter().any(|place| {
            let folder = place.strip_suffix('/');
            file == *place
                || folder.is_some_and(|_| file.starts_with(*place))
                || folder.is_some_and(|folder| file == format!("{folder}.rs"))
        })
    };
    let strangers: Vec<String> = sources
        .with_unsafe
        .iter()
        .filter(|file| !named(file))
        .map(|file| file.display().to_string())
        .collect();
    vec![
        Line::at_most("files with unsafe that no list names", strangers.len(), 0, strangers),
        Line::at_most("places of unsafe gone or without a reason", unreasoned.len(), 0, unreasoned),
    ]
}
