//! Lines that must be seen: skips and tables.
//!
//! The test harness captures what passing tests print through the print macros. These lines are
//! written to the stream itself, so that `scripts/test` shows and counts them.

use std::io::Write;

/// Writes `text` to standard output in one call, past the test harness.
pub fn show(text: &str) {
    let mut out = std::io::stdout().lock();
    // A closed output must not fail a test that passed.
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Says that the test `name` cannot run here and why; `scripts/test` counts these lines.
pub fn skip(name: &str, reason: &str) {
    show(&format!("\nSKIP {name}: {reason}\n"));
}

/// A table in plain text, columns aligned.
#[derive(Debug)]
pub struct Table {
    title: String,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// An empty table with its column names.
    #[must_use]
    pub fn new(title: &str, columns: &[&str]) -> Self {
        let header = columns.iter().map(|name| (*name).to_owned()).collect();
        Self { title: title.to_owned(), rows: vec![header] }
    }

    /// Adds one row.
    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// The table as text. The first column is left aligned, the others right.
    #[must_use]
    pub fn text(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            self.rows
                .iter()
                .filter_map(|row| row.get(column))
                .map(|cell| cell.chars().count())
                .max()
                .unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut out = format!("\n{}\n", self.title);
        for row in &self.rows {
            let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, &width))| {
                if column == 0 { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
            });
            out.push_str("  ");
            out.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
            out.push('\n');
        }
        out
    }

    /// Shows the table, also in a passing test.
    pub fn show(&self) {
        show(&self.text());
    }
}

#[cfg(test)]
mod tests {
    use super::Table;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new("t", &["name", "ms"]);
        table.row(vec!["a".into(), "1000".into()]);
        table.row(vec!["longer".into(), "2".into()]);
        assert_eq!(table.text(), "\nt\n  name      ms\n  a       1000\n  longer     2\n");
    }
}
