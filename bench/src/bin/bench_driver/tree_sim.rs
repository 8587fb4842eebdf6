//! The simulated tree of agents as curves over its hosts: the tables of the design pages, which tests
//! compare with the simulations.

use std::collections::BTreeMap;

use crate::Repetitions;
use crate::curves::{Curve, series};
use crate::row::{Findings, Row};
use crate::run::{Failure, Result};

const CALLS: &str = "docs/design/tree-collectives.md";
const ENDS: &str = "docs/design/tree.md";
/// The default of GASNET_SSH_OUT_DEGREE.
const DEGREE: &str = "32";

/// Milliseconds of `1.5 ms` or `12.0 s`.
fn milliseconds(text: &str) -> Option<f64> {
    let (number, unit) = text.split_once(' ')?;
    let factor = match unit {
        "ms" => 1.0,
        "s" => 1000.0,
        _ => return None,
    };
    Some(number.parse::<f64>().ok()? * factor)
}

/// The cells of every row that begins with a number.
fn rows(page: &str) -> Result<Vec<Vec<String>>> {
    let text = std::fs::read_to_string(page)?;
    let cells = |line: &str| -> Option<Vec<String>> {
        let line = line.strip_prefix("| ")?.strip_suffix(" |")?;
        let cells: Vec<String> = line.split(" | ").map(|cell| cell.trim().to_owned()).collect();
        cells[0].parse::<u32>().is_ok().then_some(cells)
    };
    Ok(text.lines().filter_map(cells).collect())
}

/// Points by the name of their line.
#[derive(Default)]
struct Lines(BTreeMap<String, Vec<(f64, f64)>>);

impl Lines {
    fn add(&mut self, name: &str, hosts: &str, time: &str) -> Result<()> {
        let point = hosts.parse().ok().zip(milliseconds(time));
        let point = point.ok_or_else(|| Failure(format!("{name}: {time} on {hosts} hosts")))?;
        self.0.entry(name.to_owned()).or_default().push(point);
        Ok(())
    }
}

/// Start, calls and ends over the number of hosts.
pub(crate) fn tree(_: Repetitions) -> Result<Findings> {
    let mut lines = Lines::default();
    for row in rows(CALLS)? {
        let cells: Vec<&str> = row.iter().map(String::as_str).collect();
        if let [hosts, _, _, _, _, whole, _] = cells[..] {
            lines.add("start: logins, exchange and barrier", hosts, whole)?;
        }
        let &[hosts, DEGREE, _, call, _, _, _, time] = &cells[..] else { continue };
        // The second table has times only: in place of a call the start with 8 logins at a time.
        if milliseconds(call).is_some() {
            lines.add("start, 8 logins at a time", hosts, call)?;
            lines.add("a lost host, until all ranks know", hosts, time)?;
        } else {
            lines.add(call, hosts, time)?;
        }
    }
    for row in rows(ENDS)? {
        let cells: Vec<&str> = row.iter().map(String::as_str).collect();
        match cells[..] {
            [hosts, _, "exit of one rank", "0", "", _, _, _, told, _] => {
                lines.add("exit of one rank, until all agents know", hosts, told)?;
            }
            [hosts, _, "collective exit", "0", "", decided, _, _, _, over] => {
                lines.add("collective exit, until the root knows", hosts, decided)?;
                lines.add("collective exit, until all is over", hosts, over)?;
            }
            _ => {}
        }
    }
    let found = lines.0.into_iter();
    let found: Vec<_> = found.map(|(name, points)| series(&name, points)).collect();
    if found.is_empty() {
        return Err(Failure(format!("{CALLS} and {ENDS} have no rows of out-degree {DEGREE}")));
    }
    let mut out = Vec::new();
    for line in &found {
        let Some([hosts, ms]) = line.points.last() else { continue };
        let figure = format!("simulated tree of agents, {}, {hosts} hosts", line.name);
        out.push(Row::single(&figure, crate::row::quantity(*ms, "ms"), String::new()));
    }
    let title = format!("The tree of agents in simulation, out-degree {DEGREE}");
    let (x, y) = (("hosts", true), ("ms", true));
    let curves = vec![Curve { name: "tree", title, x, y, series: found }];
    Ok(Findings { rows: out, curves, ..Findings::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read() {
        assert_eq!(milliseconds("1.5 ms"), Some(1.5));
        assert_eq!(milliseconds("12.0 s"), Some(12_000.0));
        assert_eq!([milliseconds("-"), milliseconds("3 B")], [None, None]);
    }
}
