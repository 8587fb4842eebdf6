//! The text of a dry run (`-t`): exactly what would be started, one fact per line.

use std::ffi::OsStr;
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;

use spawner_pmi::launch::Call;
use supervisor::plan::{Binding, HostEntry, Part, Pmi, Spread, StdinTo};

use crate::job::Job;
use supervisor::binding::ranges;

/// `word` as a shell would read it back; bytes that are not printable text become `$'\xNN'`.
#[must_use]
pub fn quoted(word: &OsStr) -> String {
    let bytes = word.as_bytes();
    let plain = |b: &u8| b.is_ascii_alphanumeric() || b"-_./=:,+@%^".contains(b);
    if !bytes.is_empty() && bytes.iter().all(plain) {
        return String::from_utf8_lossy(bytes).into_owned();
    }
    match word.to_str() {
        Some(text) if !text.chars().any(char::is_control) => {
            format!("'{}'", text.replace('\'', r"'\''"))
        }
        _ => format!("$'{}'", bytes.escape_ascii().to_string().replace("\\\"", "\"")),
    }
}

/// Words as a shell would read them back.
#[must_use]
pub fn words<'a>(words: impl IntoIterator<Item = &'a std::ffi::OsString>) -> String {
    words.into_iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
}

/// The text, each line ended.
#[must_use]
pub fn text(job: &Job) -> String {
    let plan = &job.plan;
    let mut facts: Vec<(&str, String)> = Vec::new();
    match job.command.program {
        _ if !job.parts.is_empty() => facts.extend(parts(job)),
        Some(index) => {
            facts.push(("program", words([&job.command.argv[index]])));
            if index > 0 {
                facts.push(("wrapper", words(&job.command.argv[..index])));
            }
            // The file was read only as far as needed, so other spawners that it may have are not
            // known.
            let kind = format!("GASNet program: ibv conduit, {} spawner", job.spawner.name());
            facts.push(("kind", kind));
        }
        None => {
            facts.push(("program", quoted(plan.program.as_os_str())));
            facts.push(("kind", "plain program".to_owned()));
        }
    }
    if job.parts.is_empty() || job.process_manager.is_some() {
        facts.push(("execute", quoted(plan.program.as_os_str())));
        facts.push(("arguments", words(plan.argv.get(1..).unwrap_or_default())));
    }
    if let Some(debugger) = &job.debugger {
        facts.push(("debugger", format!("{} ({})", words(&debugger.words), debugger.whose())));
    }
    if let Some(container) = &job.container {
        facts.push(("container", words(&container.words)));
    }
    facts.extend(mpi(job));
    facts.push(("directory", quoted(plan.directory.as_os_str())));
    match &job.process_manager {
        Some(call) => process_manager(job, call, &mut facts),
        None => hosts(job, &mut facts),
    }
    facts.push(("environment", environment(job)));
    facts.push(("stdin", stdin(plan.stdin)));
    facts.push(("output", output(job)));
    facts.push((
        "time limit",
        plan.timeout.map_or("none".to_owned(), |limit| format!("{} s", limit.as_secs_f64())),
    ));
    facts.push(("exit bound", format!("{} s", plan.exit_bound.as_secs_f64())));
    let mut text = String::new();
    for (name, value) in facts {
        let _ = writeln!(text, "{}", format!("{name:<12} {value}").trim_end());
    }
    if job.process_manager.is_some() {
        return text;
    }
    for line in &job.picture {
        let _ = writeln!(text, "{:<12} {line}", "binding");
    }
    for (rank, place) in plan.map.places().into_iter().enumerate() {
        let set = plan.cpus.get(rank).map(|cpus| ranges(cpus));
        let set = set.unwrap_or_else(|| binding_there(&plan.binding, place.local));
        let host = plan.map.hosts.get(place.host as usize).map(|host| host_name(job, host));
        let host = host.unwrap_or_default();
        let _ = writeln!(text, "{:<12} host {host}, cpus {set}", format!("rank {rank}"));
    }
    text
}

/// The MPI that ranks need, and what it finds; nothing for jobs without one.
fn mpi(job: &Job) -> Vec<(&'static str, String)> {
    let mut facts: Vec<(&'static str, String)> = Vec::new();
    let commands = std::iter::once(&job.command).chain(job.parts.iter().map(|part| &part.command));
    for library in commands.filter_map(|command| command.mpi.as_ref()).map(|mpi| &mpi.library) {
        let served = match job.plan.pmi {
            _ if job.process_manager.is_some() => "whatever the other launcher serves",
            Pmi::On => "PMI-1 and PMI-2 from the agent of each host",
            Pmi::OpenMpi => {
                "PMI-1 and PMI-2 from the agent of each host, and a library for Open MPI"
            }
            Pmi::Pmix => {
                "PMI-1 and PMI-2 from the agent of each host, and PMIx through its libpmix"
            }
            Pmi::Off => "no PMI: each rank is a job of its own",
        };
        let fact = ("mpi", format!("{library}, with {served}"));
        if !facts.contains(&fact) {
            facts.push(fact);
        }
    }
    facts
}

/// Several programs: the ranks, files and words of each.
fn parts(job: &Job) -> Vec<(&'static str, String)> {
    let mut facts = Vec::new();
    for part in &job.parts {
        let command = &part.command;
        facts.push(("program", format!("{} ({})", words([part.name()]), part.span())));
        match command.program {
            Some(index) if index > 0 => facts.push(("  wrapper", words(&command.argv[..index]))),
            Some(_) => {}
            None => facts.push(("  kind", "plain program".to_owned())),
        }
        facts.push(("  execute", quoted(command.executable.as_os_str())));
        facts.push(("  arguments", words(command.argv.get(1..).unwrap_or_default())));
        if let Some(directory) = &part.directory {
            facts.push(("  directory", quoted(directory.as_os_str())));
        }
        if !part.env.is_empty() {
            let set =
                part.env.iter().map(|(name, value)| format!("{}={}", quoted(name), quoted(value)));
            facts.push(("  variables", set.collect::<Vec<_>>().join(" ")));
        }
    }
    facts
}

/// What a rank is bound to on a host whose agent is not asked yet.
fn binding_there(binding: &Binding, local: u32) -> String {
    match (binding.each, binding.part, binding.spread) {
        (0, ..) => "not bound".to_owned(),
        (each, Part::Cpu, None) => nth(local, each),
        (each, part, None) => format!("of {} there", part.names(u64::from(each))),
        (each, part, Some(Spread { over, each: count })) => {
            let dealt = count.map_or("one by one".to_owned(), |count| format!("{count} to each"));
            let over = over.name();
            format!("of {} there, {dealt} over every {over}", part.names(u64::from(each)))
        }
    }
}

/// The cpus of a rank: which of those that its host may use, counted from 0.
fn nth(local: u32, each: u32) -> String {
    let first = u64::from(local) * u64::from(each);
    match each {
        1 => format!("allowed[{first}]"),
        _ => format!("allowed[{first}-{}]", first + u64::from(each) - 1),
    }
}

fn host_name(job: &Job, host: &HostEntry) -> String {
    if job.plan.map.is_here_only() { job.plan.host.clone() } else { host.to_string() }
}

/// What is known of a job whose ranks another launcher starts.
fn process_manager(job: &Job, call: &Call, facts: &mut Vec<(&'static str, String)>) {
    let title = call.dialect.title;
    facts.push((
        "spawner",
        format!("{}, through {title} (dialect {})", job.spawner.name(), call.dialect.name),
    ));
    facts.push(("template", format!("{} (from {})", call.template.to_string_lossy(), call.from)));
    facts.push(("hosts", format!("those of {title}; it decides which rank runs where")));
}

fn hosts(job: &Job, facts: &mut Vec<(&'static str, String)>) {
    let (plan, name) = (&job.plan, job.spawner.name());
    let from = job.host_source.as_ref().map(|source| format!(" (from {source})"));
    let from = from.unwrap_or_default();
    if plan.map.is_here_only() {
        facts.push(("spawner", format!("{name} (on this host only)")));
        facts.push(("hosts", format!("{}{from}", plan.host)));
        return;
    }
    let names: Vec<_> = plan.map.hosts.iter().map(ToString::to_string).collect();
    facts.push(("spawner", name.to_owned()));
    facts.push(("hosts", format!("{}: {}{from}", names.len(), names.join(" "))));
    let reach = &plan.reach;
    let mut text = words(std::iter::once(&reach.ssh.command).chain(&reach.ssh.options));
    let _ = match reach.ssh.out_degree {
        0 => write!(text, ", every host from here"),
        degree => write!(text, ", at most {degree} hosts from each"),
    };
    if let Some(directory) = &reach.directory {
        let _ = write!(text, ", directory {}", quoted(directory.as_os_str()));
    }
    facts.push(("reached by", text));
}

/// One line on the environment of the ranks.
#[must_use]
pub fn environment(job: &Job) -> String {
    let plan = &job.plan;
    let own = format!("the launcher's own, {} variables", plan.env.len());
    let mut text = if plan.map.is_here_only() { own } else { on_hosts(job) };
    if job.env_listed {
        let _ = write!(
            text,
            "; -E names {} that are set: {}",
            job.forwarded.set.len(),
            words(&job.forwarded.set)
        );
        if !job.forwarded.unset.is_empty() {
            let _ = write!(text, "; skipped, not set: {}", words(&job.forwarded.unset));
        }
        if !job.forwarded.left_out.is_empty() {
            let left_out = words(&job.forwarded.left_out);
            let _ = write!(text, "; left out on other hosts, as bash cannot read them: {left_out}");
        }
    }
    text
}

/// What the ranks of a job with other hosts get: every agent starts from its own login, on this
/// host from the launcher.
fn on_hosts(job: &Job) -> String {
    let names: Vec<_> = job.plan.env_for_hosts.iter().map(|(name, _)| name.clone()).collect();
    let count = names.len();
    let login = format!("that of a login on each host, with {count} variables from here: ");
    let text = login + &words(&names);
    if job.plan.map.hosts.iter().any(|host| host.here) {
        format!("{text}; on this host the launcher's own")
    } else {
        text
    }
}

fn stdin(receiver: StdinTo) -> String {
    match receiver {
        StdinTo::None => "nobody".to_owned(),
        StdinTo::All => "every rank".to_owned(),
        StdinTo::Rank(rank) => format!("rank {rank}"),
    }
}

fn output(job: &Job) -> String {
    let output = &job.plan.output;
    let mut text = "merged by lines".to_owned();
    for (on, what) in [(output.tag, "tagged with the rank"), (output.timestamp, "with the time")] {
        if on {
            let _ = write!(text, ", {what}");
        }
    }
    if let Some(directory) = &output.directory {
        let _ = write!(text, ", copied to {}", quoted(directory.as_os_str()));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_can_be_read_back() {
        for (word, text) in [
            (&b"plain-1.0/x=y"[..], "plain-1.0/x=y"),
            (b"", "''"),
            (b"a b", "'a b'"),
            (b"it's", r"'it'\''s'"),
            (b"a\nb", r"$'a\nb'"),
            (b"\xff\"", r#"$'\xff"'"#),
            ("gr\u{fc}n".as_bytes(), "'gr\u{fc}n'"),
        ] {
            assert_eq!(quoted(OsStr::from_bytes(word)), text);
        }
    }
}
