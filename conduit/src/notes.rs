//! What a rank says about itself when asked to, on standard error.

use std::fmt::Write as _;
use std::io::Write as _;

use settings::Env;
use spawner_mpi::client::PROVIDERS;

use crate::rank::RankContext;

/// `GASNET_SPAWN_VERBOSE`: which provider of the bootstrap services was chosen, and why not the others.
pub(crate) fn provider(env: &Env, table: &settings::Values) {
    if !table.bool("GASNET_SPAWN_VERBOSE") {
        return;
    }
    let rank = env.text("GASNETRUN_RANK").unwrap_or_else(|| "?".into());
    let mut text = String::new();
    for line in bootstrap::provider_trace(env, &PROVIDERS) {
        let _ = writeln!(text, "gasnet_ibv: rank {rank}: bootstrap: {line}");
    }
    say(&text);
}

/// On rank 0: `GASNET_VERBOSEENV`, every setting; `GASNET_AMPSHM_MEMORY_REPORT`, what the queues take.
pub(crate) fn settings(context: &RankContext, env: &Env, table: &settings::Values) {
    if context.rank_info().rank.0 != 0 {
        return;
    }
    let mut text = String::new();
    if table.bool("GASNET_VERBOSEENV") {
        for line in settings::print_settings(env).lines() {
            let _ = writeln!(text, "gasnet_ibv: env: {line}");
        }
    }
    if context.settings().memory_report {
        let layout = context.shm().layout();
        let [queues, arenas] = layout.parts();
        let _ = writeln!(
            text,
            "gasnet_ibv: message queues of {} ranks on this host: {queues} bytes of queues, {arenas} bytes of payload \
             arenas, {} bytes reserved in all; only touched pages take memory",
            layout.locals, layout.len,
        );
    }
    say(&text);
}

/// One write, so that lines of several ranks do not mix. A closed standard error is the user's choice.
fn say(text: &str) {
    if !text.is_empty() {
        let _ = std::io::stderr().write_all(text.as_bytes());
    }
}
