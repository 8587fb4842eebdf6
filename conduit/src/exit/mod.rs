//! Exit: how a rank ends, alone or with the others, with one code, whatever happens.
//!
//! * [`machine`]: the protocol, pure. [`timeouts`]: its bounds. See `docs/design/exit.md`.
//! * `driver`: runs the machine in the process. `flush`: the streams. `outbox`, `wire`: messages on
//!   their way.
//! * `crash`: signals, backtraces, freezing. `signals`: the system calls, all unsafe code.
//!
//! Installed once per process, by `Client::init`. Ranks that are threads of one process (tests) do
//! without: their core is not the installed one and everything here ignores it.

mod crash;
mod driver;
mod flush;
pub(crate) mod inbox;
mod line;
mod link;
pub mod machine;
mod outbox;
mod protocol;
mod signals;
pub mod timeouts;
mod wire;

use std::sync::Arc;

use bootstrap::node_shm::ExitDecision;
use bootstrap::{ExitPath, Rank};

pub(crate) use link::Link;
pub(crate) use signals::undisturbed;

use crash::Diagnostics;
use driver::{Driver, Options, driver};
use machine::Millis;

/// Installs the exit of this process: handlers, hook, machine. First freezes if that was asked for.
/// Once per process, by `Client::init`, when the rank can send; a second call does nothing.
///
/// # Errors
/// An exit time-out below the floor.
pub(crate) fn install(
    link: Arc<dyn Link>,
    settings: &settings::Values,
) -> Result<(), settings::Error> {
    let place = link.rank_info();
    let bound = settings.exit_timeout(place.size)?;
    let timeout = Millis(u64::try_from(bound.as_millis()).unwrap_or(u64::MAX));
    let (sync, user_handles_quit) = (settings.bool("GASNET_FS_SYNC"), crash::user_handles_quit);
    let options = Options { timeout, sync, user_handles_quit };
    let rank = place.rank.0;
    if !Driver::new(link, options).install() {
        return Ok(());
    }
    crash::install(diagnostics(rank, settings));
    let hook = if settings.bool("GASNET_CATCH_EXIT") { hook } else { farewell };
    signals::set_exit_hook(hook);
    if settings.bool("GASNET_FREEZE") {
        crash::freeze();
    }
    Ok(())
}

fn diagnostics(rank: u32, settings: &settings::Values) -> Diagnostics {
    let here = settings.nodes("GASNET_BACKTRACE_NODES").contains(rank);
    let threads = settings.bool_opt("GASNET_BACKTRACE_MT").unwrap_or(true);
    Diagnostics {
        rank,
        freeze_on_error: settings.bool("GASNET_FREEZE_ON_ERROR"),
        freeze_signal: settings.signal("GASNET_FREEZE_SIGNAL"),
        backtrace: here && settings.bool("GASNET_BACKTRACE"),
        backtrace_signal: settings.signal("GASNET_BACKTRACE_SIGNAL").filter(|_| here),
        mechanisms: crash::mechanisms(&settings.words("GASNET_BACKTRACE_TYPE"), threads),
        uncaught: settings.signals("GASNET_NO_CATCH_SIGNAL"),
    }
}

/// Return from `main`, or `exit(3)`.
fn hook(code: i32) {
    if let Some(driver) = driver().filter(|driver| driver.is_ours()) {
        driver.local(code, ExitPath::Hook);
    }
}

/// As [`hook`] when the program's exits are its own affair: the rank leaves in good order and ends
/// nothing.
fn farewell(code: i32) {
    if let Some(driver) = driver().filter(|driver| driver.is_ours() && !driver.has_begun()) {
        driver.leave_quietly(code);
    }
}

/// Ends the job with `code`; see [`Client::exit`](crate::Client::exit). For places where the client
/// is out of reach, like signal handlers and message handlers. In a process without an installed
/// rank it ends that process.
pub fn exit(code: i32) -> ! {
    match driver() {
        Some(driver) if driver.is_ours() => driver.local(code, crash::path()),
        _ => {
            use std::io::Write;
            let _ = std::io::stdout().flush();
            signals::flush(signals::Streams::Standard);
        }
    }
    signals::end(code)
}

/// Prints a backtrace of this process to standard error, whatever GASNET_BACKTRACE says, by the
/// mechanisms of GASNET_BACKTRACE_TYPE. The program goes on.
pub fn print_backtrace() {
    crash::backtrace();
}

/// Ends this process by SIGABRT after saying why, with freeze and backtrace as the settings say;
/// the job ends with it.
pub fn fatal_error(message: &str) -> ! {
    crash::fatal_error(message)
}

/// A call of the client on this rank found that the end of the job is decided. Never returns,
/// except on the thread that exits already and for a rank that is not the installed one.
pub(crate) fn on_exit_decision(rank: Rank, decision: ExitDecision) {
    if let Some(driver) = driver().filter(|driver| driver.rank() == rank && driver.is_ours()) {
        driver.exit_decision(decision);
    }
}

/// A call of the client on this rank came after the exit had begun. Returns only on the thread that
/// exits: what other threads would do about an error is of no use any more.
pub(crate) fn after_exit(rank: Rank) {
    if let Some(driver) = driver().filter(|driver| driver.rank() == rank && driver.is_ours()) {
        driver.meet();
    }
}

/// An internal message for this rank. Does not return when it begins the exit.
pub(crate) fn message(rank: Rank, from: Rank, id: u8, args: &[i32]) {
    if let Some(driver) = driver().filter(|driver| driver.rank() == rank && driver.is_ours()) {
        driver.message(from, id, args);
    }
}
