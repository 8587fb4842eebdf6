//! What a rank says about itself when asked to, on standard error.

use settings::log::RANK;
use settings::{Env, log, say};
use spawner_mpi::client::PROVIDERS;

use crate::installed::is_checked;
use crate::rank::RankContext;

/// Between the lines of one message: each has the name of who speaks.
const NEXT: &str = "\ngasnet_ibv: ";

/// Which messages a rank writes: what variables ask for one by one, all of the job's settings
/// (`GASNET_VERBOSEENV`), the steps of its start (`GASNET_SPAWN_VERBOSE`).
pub(crate) fn level(table: &settings::Values) {
    let [steps, all] = ["GASNET_SPAWN_VERBOSE", "GASNET_VERBOSEENV"].map(|name| table.bool(name));
    log::set_level(log::level_of(if steps { 2 } else { u8::from(all) }));
}

/// `GASNET_SPAWN_VERBOSE`: which provider of the bootstrap services was chosen, and why not the
/// others.
pub(crate) fn provider(env: &Env, table: &settings::Values) {
    if !table.bool("GASNET_SPAWN_VERBOSE") {
        return;
    }
    let rank = env.text("GASNETRUN_RANK").unwrap_or_else(|| "?".into());
    let lines = bootstrap::provider_trace(env, &PROVIDERS).into_iter();
    let lines: Vec<String> = lines.map(|line| format!("rank {rank}: bootstrap: {line}")).collect();
    say!(TRACE, RANK, "{}", lines.join(NEXT));
}

/// On rank 0: warnings about names, where no launcher of ours has given them;
/// `GASNET_VERBOSEENV`, every setting; `GASNET_AMPSHM_MEMORY_REPORT`, what the queues
/// take.
pub(crate) fn settings(context: &RankContext, env: &Env, table: &settings::Values) {
    if context.rank_info.rank.0 != 0 {
        return;
    }
    if !is_checked(env) && !table.bool("GASNET_QUIET") {
        settings::warnings(env).iter().for_each(|text| say!(WARN, RANK, "warning: {text}"));
    }
    if table.bool("GASNET_VERBOSEENV") {
        let text = settings::print_settings(env);
        let lines: Vec<String> = text.lines().map(|line| format!("env: {line}")).collect();
        say!(DEBUG, RANK, "{}", lines.join(NEXT));
    }
    if context.settings.memory_report {
        let layout = &context.shm().memory.layout;
        let [queues, arenas] = layout.parts();
        say!(
            INFO,
            RANK,
            "message queues of {} ranks on this host: {queues} bytes of queues, {arenas} bytes of payload \
             arenas, {} bytes reserved in all; only touched pages take memory",
            layout.locals,
            layout.len,
        );
    }
}
