//! Shows how far the job has come. Created and called only while the job runs, on the one thread
//! there is; starts no thread of its own.

use std::io::IsTerminal;
use std::time::Instant;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use settings::deadlines::launcher::{PROGRESS, START_TOLD};
use settings::say;
use supervisor::local::{HostsStart, Observer, Progress};

use crate::flags::ProgressMode;
use crate::reach::NAME;

/// The observer of a job.
#[derive(Debug)]
pub struct Display {
    /// As asked for, or what is left of it without a terminal.
    mode: ProgressMode,
    began: Instant,
    bar: Option<ProgressBar>,
    shown: Progress,
    /// The bar counts hosts.
    of_hosts: bool,
    /// Nobody asked for silence.
    may_tell: bool,
}

impl Display {
    /// A display that has not shown anything yet.
    #[must_use]
    pub fn new(mode: ProgressMode) -> Self {
        let terminal = std::io::stderr().is_terminal();
        let may_tell = mode != ProgressMode::None;
        let mode = match mode {
            ProgressMode::Auto if !terminal => ProgressMode::None,
            ProgressMode::Bar if !terminal => ProgressMode::Plain,
            mode => mode,
        };
        Self {
            mode,
            began: Instant::now(),
            bar: None,
            shown: Progress::default(),
            of_hosts: false,
            may_tell,
        }
    }

    fn bar_event(&mut self, now: &Progress, until_end: bool) {
        let over = if until_end {
            now.ended == now.total
        } else {
            now.started == now.total || now.ended > 0
        };
        if over {
            self.clear();
            return;
        }
        if !until_end && self.began.elapsed() < PROGRESS.limit {
            return;
        }
        let bar = self.bar.get_or_insert_with(|| new_bar(now.total));
        let (position, what) = phase(now);
        bar.set_message(what);
        bar.set_position(u64::from(position));
    }

    /// Removes the bar, so that what is written next stands alone.
    pub fn clear(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

impl Observer for Display {
    fn event(&mut self, now: &Progress) {
        if std::mem::take(&mut self.of_hosts) {
            self.clear();
        }
        match self.mode {
            ProgressMode::None => {}
            ProgressMode::Plain => {
                milestones(&self.shown, now).iter().for_each(|line| say!(INFO, NAME, "{line}"))
            }
            ProgressMode::Auto => self.bar_event(now, false),
            ProgressMode::Bar => self.bar_event(now, true),
        }
        self.shown = *now;
    }

    fn hosts(&mut self, start: &HostsStart) {
        match self.mode {
            ProgressMode::Auto | ProgressMode::Bar => {
                let bar = self.bar.get_or_insert_with(|| new_bar(start.total));
                self.of_hosts = true;
                bar.set_message(format!("hosts ready{}", waited_for(start)));
                bar.set_position(u64::from(start.ready));
            }
            // Once, where no bar can be shown.
            ProgressMode::None | ProgressMode::Plain => {
                if self.may_tell && self.began.elapsed() >= START_TOLD.limit {
                    self.may_tell = false;
                    let HostsStart { ready, total, .. } = start;
                    say!(INFO, NAME, "{ready} of {total} hosts are ready{}", waited_for(start));
                }
            }
        }
    }
}

/// What the start waits for, to be put behind what is ready.
fn waited_for(start: &HostsStart) -> String {
    let HostsStart { total, ready, failed, slowest } = start;
    let names: Vec<String> =
        slowest.iter().map(|(host, step)| format!("{host} ({step})")).collect();
    let failed_text = if *failed > 0 { format!(", {failed} failed") } else { String::new() };
    if names.is_empty() {
        return failed_text;
    }
    let waiting = total.saturating_sub(*ready).saturating_sub(*failed) as usize;
    let more = waiting.saturating_sub(names.len());
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{failed_text}; waiting for {}{more}", names.join(", "))
}

fn phase(now: &Progress) -> (u32, &'static str) {
    if now.ended > 0 {
        (now.ended, "ranks ended")
    } else if now.hello > 0 {
        (now.hello, "ranks connected")
    } else {
        (now.started, "ranks started")
    }
}

/// Lines for what has become complete between two states.
fn milestones(before: &Progress, now: &Progress) -> Vec<String> {
    let total = now.total;
    let steps = [
        (before.started, now.started, "ranks are started"),
        (before.hello, now.hello, "ranks have opened the bootstrap"),
        (before.ended, now.ended, "ranks have ended"),
    ];
    let complete =
        steps.into_iter().filter(|(old, new, _)| total > 0 && *old < total && *new == total);
    complete.map(|(_, _, what)| format!("{total} of {total} {what}")).collect()
}

fn new_bar(total: u32) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(
        Some(u64::from(total)),
        ProgressDrawTarget::stderr_with_hz(20),
    );
    if let Ok(style) =
        ProgressStyle::with_template("gasnetrun_ibv: [{bar:30}] {pos}/{len} {msg} ({elapsed})")
    {
        bar.set_style(style.progress_chars("=> "));
    }
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_that_are_waited_for_are_named_with_their_step() {
        let slowest = ["n7", "n8"].map(|host| (host.to_owned(), "connect".to_owned())).to_vec();
        let start = HostsStart { total: 9, ready: 4, failed: 1, slowest };
        let text = waited_for(&start);
        assert_eq!(text, ", 1 failed; waiting for n7 (connect), n8 (connect) and 2 more");
        assert_eq!(waited_for(&HostsStart { total: 2, ready: 2, ..HostsStart::default() }), "");
    }

    #[test]
    fn each_milestone_is_said_once() {
        let at = |started, hello, ended| Progress { total: 3, started, hello, ended };
        let mut lines = Vec::new();
        let path = [
            at(0, 0, 0),
            at(2, 0, 0),
            at(3, 1, 0),
            at(3, 3, 0),
            at(3, 3, 2),
            at(3, 3, 3),
            at(3, 3, 3),
        ];
        for pair in path.windows(2) {
            lines.extend(milestones(&pair[0], &pair[1]));
        }
        assert_eq!(
            lines,
            [
                "3 of 3 ranks are started",
                "3 of 3 ranks have opened the bootstrap",
                "3 of 3 ranks have ended"
            ]
        );
        assert!(milestones(&Progress::default(), &Progress::default()).is_empty());
    }
}
