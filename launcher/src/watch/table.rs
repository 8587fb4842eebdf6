//! What is printed of jobs and ranks.

use std::io::Write;

use serde::Serialize;
use supervisor::watch::{JobView, RankView};
use tabwriter::TabWriter;

use super::Job;

/// Lines, each with an end.
pub(super) fn joined(lines: &[String]) -> String {
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// One line of JSON for each.
pub(super) fn json_lines<T: Serialize>(all: &[T]) -> String {
    let line = |one: &T| serde_json::to_string(one).unwrap_or_default();
    joined(&all.iter().map(line).collect::<Vec<_>>())
}

/// Rows with aligned columns.
pub(super) fn aligned(rows: &[Vec<String>]) -> String {
    let mut writer = TabWriter::new(Vec::new()).padding(2);
    for row in rows {
        // Writing to memory does not fail.
        let _ = writeln!(writer, "{}", row.join("\t"));
    }
    String::from_utf8(writer.into_inner().unwrap_or_default()).unwrap_or_default()
}

/// How far a job is.
pub(super) fn phase(view: &JobView) -> String {
    let JobView { ranks, started, hello, ended, .. } = *view;
    match (view.ending, ended) {
        (true, _) => format!("ending, {ended} of {ranks} ended"),
        _ if started < ranks => format!("starting, {started} of {ranks}"),
        (_, 0) if hello > 0 && hello < ranks => {
            format!("starting, {hello} of {ranks} in bootstrap")
        }
        (_, 0) => "running".to_owned(),
        _ => format!("running, {ended} of {ranks} ended"),
    }
}

/// Hours, minutes and seconds.
pub(super) fn time(seconds: f64) -> String {
    let whole = std::time::Duration::try_from_secs_f64(seconds).unwrap_or_default().as_secs();
    format!("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60)
}

/// The words of a program on one line, control characters as escapes.
pub(super) fn command(view: &JobView) -> String {
    view.command.iter().map(|word| word.escape_debug().to_string()).collect::<Vec<_>>().join(" ")
}

pub(super) fn jobs(jobs: &[Job], json: bool) -> String {
    if json {
        return json_lines(&jobs.iter().map(|job| &job.view).collect::<Vec<_>>());
    }
    let head = ["JOB", "LAUNCHER", "RANKS", "HOSTS", "TIME", "STATE", "COMMAND"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for Job { view, .. } in jobs {
        rows.push(vec![
            view.job.clone(),
            view.launcher.to_string(),
            view.ranks.to_string(),
            view.hosts.len().to_string(),
            time(view.seconds),
            phase(view),
            command(view),
        ]);
    }
    aligned(&rows)
}

/// Two looks at the same rank.
pub(super) struct Pair<'a> {
    pub(super) before: Option<&'a RankView>,
    pub(super) now: &'a RankView,
    pub(super) seconds: f64,
}

impl Pair<'_> {
    #[expect(clippy::cast_precision_loss, reason = "a quotient for people")]
    fn rate(&self, value: impl Fn(&RankView) -> u64) -> f64 {
        let before = self.before.map_or(0, &value);
        value(self.now).saturating_sub(before) as f64 / self.seconds.max(1e-3)
    }

    /// Hundredths of a processor.
    pub(super) fn cpu(&self) -> f64 {
        self.rate(|rank| rank.cpu_ms) / 10.0
    }

    pub(super) fn messages(&self) -> f64 {
        self.rate(|rank| rank.messages)
    }

    /// The columns of [`RANK_HEAD`].
    pub(super) fn cells(&self) -> [String; 7] {
        let rank = self.now;
        [
            rank.rank.to_string(),
            rank.host.clone(),
            rank.pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string()),
            rank.state.to_string(),
            format!("{:.0}", self.cpu()),
            format!(
                "{:.1}",
                f64::from(u32::try_from(rank.resident_kib).unwrap_or(u32::MAX)) / 1024.0
            ),
            format!("{:.0}", self.messages()),
        ]
    }
}

/// Titles of the columns of [`Pair::cells`].
pub(super) const RANK_HEAD: [&str; 7] = ["RANK", "HOST", "PID", "STATE", "CPU%", "MIB", "MSG/S"];

#[cfg(test)]
mod tests {
    use supervisor::watch::RankState;

    use super::*;

    #[test]
    fn a_job_is_described_in_words() {
        let view = JobView { ranks: 4, started: 2, ..JobView::default() };
        assert_eq!(phase(&view), "starting, 2 of 4");
        let view = JobView { started: 4, hello: 3, ..view };
        assert_eq!(phase(&view), "starting, 3 of 4 in bootstrap");
        assert_eq!(phase(&JobView { hello: 4, ..view.clone() }), "running");
        assert_eq!(
            phase(&JobView { ended: 1, ending: true, ..view.clone() }),
            "ending, 1 of 4 ended"
        );
        let words = vec!["a\u{1b}[2J".to_owned(), "b".to_owned()];
        assert_eq!(command(&JobView { command: words, ..view }), "a\\u{1b}[2J b");
        assert_eq!(time(3723.9), "1:02:03");
    }

    #[test]
    fn rates_come_from_two_looks() {
        let rank = |cpu_ms, messages| RankView {
            rank: 1,
            host: "n1".into(),
            pid: Some(7),
            state: RankState::Computing,
            cpu_ms,
            resident_kib: 2048,
            messages,
        };
        let (before, now) = (rank(1000, 10), rank(1500, 30));
        let pair = Pair { before: Some(&before), now: &now, seconds: 0.5 };
        assert_eq!(pair.cells(), ["1", "n1", "7", "computing", "100", "2.0", "40"]);
        // A rank that was started again since then, or counts that go back, say nothing.
        let pair = Pair { before: Some(&now), now: &before, seconds: 0.5 };
        assert_eq!(pair.cells()[4..], ["0", "2.0", "0"]);
    }

    #[test]
    fn columns_are_aligned() {
        let rows = [vec!["A".to_owned(), "B".to_owned()], vec!["long".to_owned(), "c".to_owned()]];
        assert_eq!(aligned(&rows), "A     B\nlong  c\n");
    }
}
