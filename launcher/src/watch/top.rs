//! The live picture of a job's ranks.

use std::cmp::Reverse;
use std::io::IsTerminal;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Modifier, Style};
use ratatui::widgets::{Paragraph, Row, Table, TableState};
use ratatui::{DefaultTerminal, Frame};
use supervisor::watch::client::ClientError;
use supervisor::watch::{Answer, Ask, JobView, RankState, RankView};

use super::error::WatchError;
use super::table::{Pair, RANK_HEAD, aligned, command, phase, time};
use super::{Job, silent_hosts};

/// Longest time without a look at the keyboard.
const KEYS: Duration = Duration::from_millis(100);

/// By what ranks are sorted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Order {
    #[default]
    Rank,
    Cpu,
    Memory,
    Messages,
}

/// One look at all ranks.
struct Picture {
    view: JobView,
    ranks: Vec<RankView>,
    silent: Vec<String>,
    taken: Instant,
}

fn take(job: &mut Job) -> Result<Picture, WatchError> {
    let Answer::Job(view) = job.ask(&Ask::Job)? else { return Err(job.version()) };
    let Answer::Ranks { ranks, silent } = job.ask(&Ask::Ranks)? else { return Err(job.version()) };
    Ok(Picture { view, ranks, silent, taken: Instant::now() })
}

fn pairs<'a>(before: &'a Picture, now: &'a Picture, order: Order) -> Vec<Pair<'a>> {
    let seconds = (now.taken - before.taken).as_secs_f64();
    let of = |at: usize| before.ranks.get(at);
    let pair = |(at, now)| Pair { before: of(at), now, seconds };
    let mut all: Vec<Pair<'_>> = now.ranks.iter().enumerate().map(pair).collect();
    match order {
        Order::Rank => {}
        Order::Cpu => all.sort_by(|a, b| b.cpu().total_cmp(&a.cpu())),
        Order::Memory => all.sort_by_key(|pair| Reverse(pair.now.resident_kib)),
        Order::Messages => all.sort_by(|a, b| b.messages().total_cmp(&a.messages())),
    }
    all
}

/// How many ranks are in which state, the most frequent first.
fn states(ranks: &[RankView]) -> String {
    let mut counts: Vec<(String, usize)> = Vec::new();
    for rank in ranks {
        let name = match rank.state {
            RankState::Ended(_) => "ended".to_owned(),
            ref state => state.to_string(),
        };
        match counts.iter_mut().find(|(one, _)| *one == name) {
            Some((_, count)) => *count += 1,
            None => counts.push((name, 1)),
        }
    }
    counts.sort_by_key(|(_, count)| Reverse(*count));
    counts.iter().map(|(name, count)| format!("{count} {name}")).collect::<Vec<_>>().join(", ")
}

fn head(picture: &Picture) -> String {
    let view = &picture.view;
    let hosts = view.hosts.len();
    format!(
        "job {}  {}  {} ranks on {hosts} host{}  {}\n{}\n{}",
        view.job,
        time(view.seconds),
        view.ranks,
        if hosts == 1 { "" } else { "s" },
        phase(view),
        command(view),
        states(&picture.ranks)
    )
}

/// Shows the job until the user or the job ends that, or prints one picture.
pub(super) fn run(mut job: Job, once: bool, interval: Duration) -> Result<String, WatchError> {
    if once || !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        let before = take(&mut job)?;
        std::thread::sleep(interval);
        let now = take(&mut job)?;
        silent_hosts(&now.silent);
        let rows = pairs(&before, &now, Order::Rank);
        let all = [RANK_HEAD.map(str::to_owned)].into_iter().chain(rows.iter().map(Pair::cells));
        let all: Vec<Vec<String>> = all.map(|cells| cells.to_vec()).collect();
        return Ok(format!("{}\n\n{}", head(&now), aligned(&all)));
    }
    // SIGHUP ends this process at once: there is no terminal any more that could be restored.
    let over = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&over);
    signal_hook::flag::register(Signal::SIGTERM as i32, flag).map_err(WatchError::Terminal)?;
    let mut terminal = ratatui::try_init().map_err(WatchError::Terminal)?;
    let shown = live(&mut terminal, &mut job, interval, &over);
    let restored = ratatui::try_restore().map_err(WatchError::Terminal);
    match shown {
        Err(WatchError::Client { source: ClientError::Ended | ClientError::Dead(_), .. }) => {
            restored.map(|()| format!("job {} has ended\n", job.view.job))
        }
        Err(error) => Err(error),
        Ok(()) => restored.map(|()| String::new()),
    }
}

fn live(
    terminal: &mut DefaultTerminal,
    job: &mut Job,
    interval: Duration,
    over: &AtomicBool,
) -> Result<(), WatchError> {
    let mut before = take(job)?;
    let mut now = take(job)?;
    let (mut order, mut state) = (Order::default(), TableState::default().with_selected(0));
    loop {
        let rows = pairs(&before, &now, order);
        let drawn = terminal.draw(|frame| draw(frame, &now, &rows, &mut state));
        drawn.map_err(WatchError::Terminal)?;
        let due = now.taken + interval;
        while Instant::now() < due {
            if over.load(Ordering::Relaxed) || hung_up(Duration::ZERO) {
                return Ok(());
            }
            if !event::poll(Duration::ZERO).map_err(WatchError::Terminal)? {
                let _ = hung_up(due.saturating_duration_since(Instant::now()).min(KEYS));
                continue;
            }
            match key(&event::read().map_err(WatchError::Terminal)?, &mut order, &mut state) {
                Asked::End => return Ok(()),
                Asked::Draw => break,
                Asked::Nothing => {}
            }
        }
        if Instant::now() >= due {
            let next = take(job)?;
            before = std::mem::replace(&mut now, next);
        }
    }
}

/// Whether the terminal is gone. Waits until that or something is typed, for `limit` at most. (The
/// library that reads keys does not know an end of them: it reads it over and over.)
fn hung_up(limit: Duration) -> bool {
    let stdin = std::io::stdin();
    let mut seen = [PollFd::new(stdin.as_fd(), PollFlags::POLLIN)];
    let limit = PollTimeout::try_from(limit).unwrap_or(PollTimeout::ZERO);
    // An interrupted wait, as by a change of the window's size, has seen nothing.
    let gone = PollFlags::POLLHUP | PollFlags::POLLERR | PollFlags::POLLNVAL;
    poll(&mut seen, limit).is_ok()
        && seen[0].revents().is_some_and(|events| events.intersects(gone))
}

enum Asked {
    End,
    Draw,
    Nothing,
}

/// What a key asks for.
fn key(event: &Event, order: &mut Order, state: &mut TableState) -> Asked {
    const PAGE: u16 = 20;
    let Event::Key(key) = event else { return Asked::Draw };
    if key.kind == KeyEventKind::Release {
        return Asked::Nothing;
    }
    match key.code {
        KeyCode::Char('q') | KeyCode::Esc => return Asked::End,
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return Asked::End,
        KeyCode::Char('r') => *order = Order::Rank,
        KeyCode::Char('c') => *order = Order::Cpu,
        KeyCode::Char('m') => *order = Order::Memory,
        KeyCode::Char('s') => *order = Order::Messages,
        KeyCode::Down | KeyCode::Char('j') => state.select_next(),
        KeyCode::Up | KeyCode::Char('k') => state.select_previous(),
        KeyCode::PageDown => state.scroll_down_by(PAGE),
        KeyCode::PageUp => state.scroll_up_by(PAGE),
        KeyCode::Home => state.select_first(),
        KeyCode::End => state.select_last(),
        _ => return Asked::Nothing,
    }
    Asked::Draw
}

fn draw(frame: &mut Frame<'_>, picture: &Picture, pairs: &[Pair<'_>], state: &mut TableState) {
    let silent = match picture.silent.len() {
        0 => String::new(),
        count => format!("\nwithout an answer: {count} hosts, {}", picture.silent.join(", ")),
    };
    let text = head(picture) + &silent;
    let lines = u16::try_from(text.lines().count()).unwrap_or(3);
    let parts = Layout::vertical([Constraint::Length(lines + 1), Constraint::Min(1)]);
    let [top, rest] = parts.areas(frame.area());
    frame.render_widget(Paragraph::new(text), top);
    let widths = [6, 16, 8, 24, 6, 9, 10].map(Constraint::Length);
    let strong = Style::new().add_modifier(Modifier::REVERSED);
    let table = Table::new(pairs.iter().map(|pair| Row::new(pair.cells())), widths)
        .header(Row::new(RANK_HEAD).style(Style::new().add_modifier(Modifier::BOLD)))
        .row_highlight_style(strong);
    frame.render_stateful_widget(table, rest, state);
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;

    fn picture(ranks: &[(u64, u64)], taken: Instant) -> Picture {
        let rank = |(rank, (cpu_ms, messages)): (u32, &(u64, u64))| RankView {
            rank,
            host: "n1".into(),
            pid: Some(100),
            state: RankState::Computing,
            cpu_ms: *cpu_ms,
            resident_kib: 1024,
            messages: *messages,
        };
        let view = JobView { job: "n1.2.3".into(), ranks: 2, started: 2, ..JobView::default() };
        Picture { view, ranks: (0..).zip(ranks).map(rank).collect(), silent: Vec::new(), taken }
    }

    #[test]
    fn ranks_are_drawn_in_the_order_that_was_asked_for() {
        let begin = Instant::now();
        let before = picture(&[(0, 0), (0, 0)], begin);
        let now = picture(&[(100, 50), (900, 10)], begin + Duration::from_secs(1));
        let first = |order| pairs(&before, &now, order)[0].now.rank;
        assert_eq!([Order::Rank, Order::Cpu, Order::Messages].map(first), [0, 1, 0]);
        let mut terminal = Terminal::new(TestBackend::new(90, 8)).unwrap();
        let rows = pairs(&before, &now, Order::Cpu);
        let mut state = TableState::default();
        terminal.draw(|frame| draw(frame, &now, &rows, &mut state)).unwrap();
        let text = terminal.backend().to_string();
        for part in ["job n1.2.3", "2 computing", "RANK", "CPU%"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let line = text.lines().find(|line| line.contains("computing ") && line.contains("n1 "));
        assert!(line.is_some_and(|line| line.contains(" 90 ")), "{text}");
    }

    #[test]
    fn keys_end_and_sort() {
        let (mut order, mut state) = (Order::default(), TableState::default());
        let press = |code| Event::Key(event::KeyEvent::new(code, KeyModifiers::NONE));
        assert!(matches!(key(&press(KeyCode::Char('q')), &mut order, &mut state), Asked::End));
        assert!(matches!(key(&press(KeyCode::Char('s')), &mut order, &mut state), Asked::Draw));
        assert_eq!(order, Order::Messages);
    }
}
