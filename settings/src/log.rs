//! What launcher, agents, ranks and fabric say to people: events of `tracing`, each written to
//! standard error in one piece, after the name of who speaks (the event's target).
//!
//! A rank is somebody else's process, so nothing here becomes the subscriber of the process: an
//! event goes to the subscriber that the program has installed, and only without one to `Lines`.
//! Not for signal handlers, nor for the paths of small messages.

use std::borrow::Cow;
use std::fmt::{Debug, Write as _};
use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use tracing::field::{Field, Visit};
use tracing::subscriber::{Interest, NoSubscriber};
use tracing::{Dispatch, Event, Level, Metadata, Subscriber, dispatcher, span};

/// The launcher and its agents, as lines begin.
pub const LAUNCHER: &str = "gasnetrun_ibv";
/// A rank.
pub const RANK: &str = "gasnet_ibv";
/// The adapters of a rank.
pub const FABRIC: &str = "fabric";
const WHO: [&str; 3] = [LAUNCHER, RANK, FABRIC];

/// Most detailed level that is written, as its index in [`LEVELS`].
static MOST: AtomicUsize = AtomicUsize::new(2);
const LEVELS: [Level; 5] = [Level::ERROR, Level::WARN, Level::INFO, Level::DEBUG, Level::TRACE];

/// Sets the most detailed level that is written: `INFO` without `-v` and `GASNET_VERBOSEENV`,
/// `DEBUG` with one, `TRACE` with `-vv` or `GASNET_SPAWN_VERBOSE`.
pub fn set_level(level: Level) {
    let index = LEVELS.iter().position(|one| *one == level);
    MOST.store(index.unwrap_or(0), Ordering::Relaxed);
}

/// The level of a number of `-v`.
#[must_use]
pub const fn level_of(verbose: u8) -> Level {
    match verbose {
        0 => Level::INFO,
        1 => Level::DEBUG,
        _ => Level::TRACE,
    }
}

/// Runs `emit` under the program's own subscriber, or `Lines` if it has none.
pub fn with_subscriber(emit: impl FnOnce()) {
    static OURS: OnceLock<Dispatch> = OnceLock::new();
    if dispatcher::get_default(|dispatch| dispatch.is::<NoSubscriber>()) {
        dispatcher::with_default(OURS.get_or_init(|| Dispatch::new(Lines)), emit);
    } else {
        emit();
    }
}

/// Says something: `say!(WARN, log::FABRIC, "{device} is gone")`.
#[macro_export]
macro_rules! say {
    ($level:ident, $who:expr, $($text:tt)+) => {
        $crate::log::with_subscriber(|| {
            $crate::tracing::event!(target: $who, $crate::tracing::Level::$level, $($text)+);
        })
    };
}

/// The same for a text of the launcher that has several lines, each of which is ours: a summary, a
/// table. Whatever of others is in it has gone through [`crate::log::line`] or has no end of line.
#[macro_export]
macro_rules! say_lines {
    ($level:ident, $who:expr, $($text:tt)+) => {
        $crate::log::with_subscriber(|| {
            $crate::tracing::event!(
                target: $who, $crate::tracing::Level::$level, lines = true, $($text)+
            );
        })
    };
}

/// A text of somebody else (a rank's lines, a path) as it may go to a terminal: control characters and
/// those that turn the direction of writing as escapes, so that none moves the cursor, hides what is
/// there or passes for a line of ours. Ends of lines and tabs stay.
#[must_use]
pub fn visible(text: &str) -> Cow<'_, str> {
    escaped(text, |c| matches!(c, '\n' | '\t'))
}

/// The same as one line: what came from outside (a path, an argument, a host's name) begins none of
/// its own. What the launcher says goes through here, unless it is [`say_lines`].
#[must_use]
pub fn line(text: &str) -> Cow<'_, str> {
    escaped(text, |c| c == '\t')
}

fn escaped(text: &str, stays: impl Fn(char) -> bool) -> Cow<'_, str> {
    let acts = |c: char| {
        let turns = matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        // The separators end a line for some.
        turns || matches!(c, '\u{2028}' | '\u{2029}') || (c.is_control() && !stays(c))
    };
    if !text.contains(acts) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if acts(c) { out.extend(c.escape_default()) } else { out.push(c) }
    }
    Cow::Owned(out)
}

/// Writes `WHO: TEXT` for each event, in one call, so that lines of several processes do not mix. A
/// closed standard error is the user's choice.
#[derive(Debug)]
struct Lines;

/// Milliseconds that a line waits for a reader; the largest number is for ever.
static READER: AtomicU64 = AtomicU64::new(u64::MAX);

/// From now on a line that nobody reads is dropped after `limit`, and those after it at once, until
/// somebody reads again; `None`: it waits for ever.
pub fn bound_reader(limit: Option<Duration>) {
    let ms = limit.map_or(u64::MAX, |limit| u64::try_from(limit.as_millis()).unwrap_or(u64::MAX));
    READER.store(ms, Ordering::Relaxed);
}

fn write_bounded(bytes: &[u8]) {
    let mut err = std::io::stderr();
    if READER.load(Ordering::Relaxed) == u64::MAX {
        let _ = err.write_all(bytes);
        return;
    }
    // What reports "writable" takes so much without waiting.
    for piece in bytes.chunks(libc::PIPE_BUF) {
        if !has_reader(&err) {
            READER.store(0, Ordering::Relaxed);
            return;
        }
        if err.write_all(piece).is_err() {
            return;
        }
    }
}

fn has_reader(err: &std::io::Stderr) -> bool {
    let limit = Duration::from_millis(READER.load(Ordering::Relaxed));
    let until = Instant::now().checked_add(limit);
    loop {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let left = left.and_then(|left| PollTimeout::try_from(left).ok());
        let mut entry = [PollFd::new(err.as_fd(), PollFlags::POLLOUT)];
        match poll(&mut entry, left.unwrap_or(PollTimeout::MAX)) {
            Err(nix::Error::EINTR) => {}
            ready => return ready != Ok(0),
        }
    }
}

/// The text of an event, and whether its ends of lines are ours.
#[derive(Default)]
struct Text(String, bool);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            let _ = write!(self.0, "{value:?}");
        }
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.1 |= field.name() == "lines" && value;
    }
}

impl Subscriber for Lines {
    fn register_callsite(&self, about: &'static Metadata<'static>) -> Interest {
        // The level may change. The program's own events never come here.
        if WHO.contains(&about.target()) { Interest::sometimes() } else { Interest::never() }
    }

    fn enabled(&self, about: &Metadata<'_>) -> bool {
        LEVELS.get(MOST.load(Ordering::Relaxed)).is_some_and(|most| about.level() <= most)
    }

    fn event(&self, event: &Event<'_>) {
        let who = event.metadata().target();
        let mut said = Text::default();
        event.record(&mut said);
        // A rank's messages are its own affair.
        let whole = who != LAUNCHER || said.1;
        let text = if whole { visible(&said.0) } else { line(&said.0) };
        write_bounded(format!("{who}: {text}\n").as_bytes());
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// Keeps what it is told.
    struct Kept(Arc<Mutex<Vec<String>>>);

    impl Subscriber for Kept {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }

        fn event(&self, event: &Event<'_>) {
            let mut text = Text::default();
            event.record(&mut text);
            let about = event.metadata();
            let text = format!("{} {}: {}", about.level(), about.target(), text.0);
            self.0.lock().expect("not poisoned").push(text);
        }

        fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
            span::Id::from_u64(1)
        }

        fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

        fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

        fn enter(&self, _: &span::Id) {}

        fn exit(&self, _: &span::Id) {}
    }

    #[test]
    fn the_programs_own_subscriber_comes_first() {
        say!(INFO, RANK, "this line is for standard error");
        let said = Arc::new(Mutex::new(Vec::new()));
        let device = "soft_0";
        tracing::subscriber::with_default(Kept(Arc::clone(&said)), || {
            say!(WARN, FABRIC, "{device}: cannot {}", "listen");
        });
        assert_eq!(*said.lock().unwrap(), ["WARN fabric: soft_0: cannot listen"]);
        assert!(dispatcher::get_default(|one| one.is::<NoSubscriber>()), "nothing is installed");
    }

    #[test]
    fn what_acts_on_a_terminal_is_shown() {
        assert_eq!(visible("plain: \tµ → ok\n"), "plain: \tµ → ok\n");
        let forged = "\u{1b}[2J\rgasnetrun_ibv: all is well\u{9b}0m\u{7f}\u{202e}";
        let seen = "\\u{1b}[2J\\rgasnetrun_ibv: all is well\\u{9b}0m\\u{7f}\\u{202e}";
        assert_eq!(visible(forged), seen);
        assert_eq!(line("a/b\ngasnetrun_ibv: all is well"), "a/b\\ngasnetrun_ibv: all is well");
        assert_eq!(line("one\u{2028}two\tthree"), "one\\u{2028}two\tthree");
    }

    #[test]
    fn levels_follow_the_number_of_v() {
        assert_eq!(
            [0, 1, 2, 3].map(level_of),
            [Level::INFO, Level::DEBUG, Level::TRACE, Level::TRACE]
        );
    }
}
