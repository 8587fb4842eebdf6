//! Exit: how a rank ends, alone or with the others, with one code, whatever happens.
//!
//! * [`machine`]: the protocol, pure. [`timeouts`]: its bounds. `tree`: who talks with whom. See `docs/design/exit.md`.
//! * `driver`: runs the machine in the process. `protocol`: what goes in and out of it. `inbox`:
//!   its messages from the network. `flush`: the streams.
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
mod protocol;
mod signals;
pub mod timeouts;
mod tree;

use std::sync::{Arc, OnceLock};

pub use crash::{backtrace as print_backtrace, fatal_error};
pub use driver::exit;
pub(crate) use driver::{Driver, of};
pub(crate) use link::Link;
pub(crate) use signals::undisturbed;

use crash::{Diagnostics, Mechanisms};
use driver::{Options, hook, hook_quietly};
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
    let sync = settings.bool("GASNET_FS_SYNC");
    let (user_handles_quit, path) = (crash::user_handles_quit, crash::path);
    if !Driver::install(link, Options { timeout, sync, user_handles_quit, path }) {
        return Ok(());
    }
    crash::install(diagnostics(place.rank.0, settings));
    signals::set_exit_hook(if settings.bool("GASNET_CATCH_EXIT") { hook } else { hook_quietly });
    if settings.bool("GASNET_FREEZE") {
        crash::freeze();
    }
    Ok(())
}

fn diagnostics(rank: u32, settings: &settings::Values) -> Diagnostics {
    let here = settings.nodes("GASNET_BACKTRACE_NODES").contains(rank);
    let threads = settings.bool_opt("GASNET_BACKTRACE_MT").unwrap_or(true);
    let words = settings.words("GASNET_BACKTRACE_TYPE").iter().map(|word| (*word).into()).collect();
    Diagnostics {
        rank,
        freeze_on_error: settings.bool("GASNET_FREEZE_ON_ERROR"),
        freeze_signal: settings.signal("GASNET_FREEZE_SIGNAL"),
        backtrace: here && settings.bool("GASNET_BACKTRACE"),
        backtrace_signal: settings.signal("GASNET_BACKTRACE_SIGNAL").filter(|_| here),
        mechanisms: Mechanisms { words, threads, found: OnceLock::new() },
        uncaught: settings.signals("GASNET_NO_CATCH_SIGNAL"),
    }
}
