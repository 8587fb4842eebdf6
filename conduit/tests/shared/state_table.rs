//! State tables of the design pages: `| state | event | next | actions |` between two markers,
//! compared with what a machine does. What has no row must do nothing.

use std::collections::BTreeMap;
use std::io::Write as _;

/// State and event to next state and actions.
pub(crate) type Rows = BTreeMap<(String, String), (String, String)>;

const MARKER: &str = "<!-- state table -->";

fn line((state, event): &(String, String), (next, actions): &(String, String)) -> String {
    format!("| {state} | {event} | {next} | {actions} |")
}

/// Compares the table of a page with the rows of a machine, in both directions.
pub(crate) fn compare(page: &str, states: &[&str], events: &[&str], machine: &Rows) {
    let mut documented = Rows::new();
    let table = page.split(MARKER).nth(1).expect("markers of the table");
    for line in table.lines().filter(|line| line.starts_with('|')).skip(2) {
        let cells: Vec<_> =
            line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect();
        let [state, event, next, actions] = <[String; 4]>::try_from(cells).expect("four cells");
        assert!(states.contains(&&*state) && events.contains(&&*event), "unknown row {line}");
        assert!(documented.insert((state, event), (next, actions)).is_none(), "twice: {line}");
    }
    for (key, row) in machine {
        let seen = documented.remove(key);
        assert_eq!(seen.as_ref(), Some(row), "the machine says: {}", line(key, row));
    }
    assert!(documented.is_empty(), "rows where nothing happens: {documented:#?}");
}

/// Prints the rows in the order of states and events, to be pasted into the page when the machine
/// changes.
pub(crate) fn print(states: &[&str], events: &[&str], machine: &Rows) {
    for state in states {
        for event in events {
            let key = ((*state).to_owned(), (*event).to_owned());
            if let Some(row) = machine.get(&key) {
                writeln!(std::io::stdout(), "{}", line(&key, row)).expect("standard output");
            }
        }
    }
}
