//! `gasnetrun_ibv`: launches the ranks of a job, supervises them and returns one exit code. From
//! the command line to the exit code.

#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;
use std::time::Instant;

use launcher::attempts::{Again, Input};
use launcher::command_line::{self, CommandLine, CommandLineError};
use launcher::failure::Failure;
use launcher::flags::Flags;
use launcher::job::{self, Job};
use launcher::progress::Display;
use launcher::reach::NAME;
use launcher::report_file::ReportFile;
use launcher::trace::Tracing;
use launcher::{doctor, documents, dry_run, summary, watch};
use nix::unistd::AccessFlags;
use settings::deadlines::agent::UNREAD;
use settings::deadlines::retry::PAUSE;
use settings::{log, say, say_lines};
use supervisor::report::JobReport;

fn main() -> ExitCode {
    let started = Instant::now();
    match supervisor::fit_limits() {
        Ok(()) => live(started),
        Err(low) => ExitCode::from(said(&low.into())),
    }
}

/// All that the launcher does; not part of `main`, whose stack may be small.
#[inline(never)]
fn live(started: Instant) -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().collect();
    let first = words.get(1).and_then(|word| word.to_str()).unwrap_or_default();
    // On another host we are its agent; this is nothing for users, so it is no option.
    if first == supervisor::node::AGENT_WORD {
        supervisor::node::main();
    }
    if first == supervisor::doctor::CHECKS_WORD {
        return ExitCode::from(doctor::check_this_host(&words[2..]));
    }
    if first == supervisor::watch::stacks::WORD {
        return ExitCode::from(supervisor::watch::stacks::main(&words[2..]));
    }
    if first == supervisor::pmix_helper::WORD {
        supervisor::pmix_helper::main();
    }
    let result = if first == doctor::WORD {
        doctor::main(&words[2..])
            .and_then(|(text, code)| print(&log::visible(&text)).map(|()| code))
    } else if watch::WORDS.contains(&first) {
        watch::main(&words[1..]).and_then(|(text, code)| print(&text).map(|()| code))
    } else {
        let line = command_line::parse(words.iter().skip(1).cloned());
        line.map_err(Failure::from).and_then(|line| act(&line, &words, started))
    };
    ExitCode::from(result.unwrap_or_else(|failure| match failure {
        Failure::CommandLine(CommandLineError::Information(text)) => {
            print(&text).map_or_else(|failure| said(&failure), |()| 0)
        }
        failure => said(&failure),
    }))
}

/// Says what failed, and gives its exit code.
fn said(failure: &Failure) -> u8 {
    if failure.has_lines() {
        say_lines!(ERROR, NAME, "{failure}");
    } else {
        say!(ERROR, NAME, "{failure}");
    }
    failure.code()
}

/// Writes to standard output; a reader that has gone away is satisfied.
fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(Failure::Output(error)),
        _ => Ok(()),
    }
}

fn act(line: &CommandLine, words: &[OsString], started: Instant) -> Result<u8, Failure> {
    let flags = &line.flags;
    log::set_level(log::level_of(flags.level()));
    if flags.man {
        return print(&documents::man_page().map_err(Failure::Output)?).map(|()| 0);
    }
    if let Some(shell) = flags.completions {
        return print(&documents::completions(shell)).map(|()| 0);
    }
    let environment = environment(flags)?;
    if flags.print_settings {
        return print(&settings::explain_settings(&environment)).map(|()| 0);
    }
    // A dry run changes nothing, so it does not touch the report file either.
    let report = flags.report.as_deref().filter(|_| !flags.dry_run);
    let report = report.map(|path| ReportFile::create(path, words)).transpose()?;
    let mut job = match job::prepare(line, &environment) {
        Ok(job) => job,
        Err(failure) => return Err(give_up(report, None, failure)),
    };
    if !flags.quiet {
        job.warnings.iter().for_each(|text| say!(WARN, NAME, "warning: {text}"));
    }
    explain(line, &job);
    if flags.dry_run {
        return print(&dry_run::text(&job)).map(|()| 0);
    }
    if flags.report_bindings {
        job.picture.iter().for_each(|line| say!(INFO, NAME, "host {}, {line}", job.plan.host));
    }
    let tracing = make_output_directory(&job).and_then(|()| Tracing::begin(flags, &mut job));
    let mut tracing = match tracing {
        Ok(tracing) => tracing,
        Err(failure) => return Err(give_up(report, Some(&job), failure)),
    };
    let input = Input::of(&job);
    loop {
        job.started += 1;
        let mut display = Display::new(flags.progress);
        let mut watching = tracing.watch(&mut display);
        // Whoever does not read our lines must not keep us from hearing signals.
        log::bound_reader(Some(UNREAD.limit));
        let outcome =
            supervisor::local::supervise(&job.plan, supervisor::run, started, &mut watching);
        display.clear();
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(error) => return Err(give_up(report, Some(&job), error.into())),
        };
        log::bound_reader((outcome.exit_code != 0).then_some(UNREAD.limit));
        let Some(again) = again(&mut job, &outcome, input, started) else {
            tracing.finish(&job, &outcome);
            return finish(&job, &outcome, report, flags.level());
        };
        if again.retry {
            std::thread::sleep(PAUSE.limit);
            if let Err(failure) = tracing.anew(flags, &mut job) {
                return Err(give_up(report, Some(&job), failure));
            }
        }
        job.take_map(again.map);
    }
}

/// Whether and how the job is started again; says so.
fn again(job: &mut Job, outcome: &JobReport, input: Input, started: Instant) -> Option<Again> {
    let again = job.attempts.next(&job.plan.map, outcome)?;
    if again.retry && !input.rewind() {
        say!(
            WARN,
            NAME,
            "the job is not started again: what it has read of its standard input is gone; use --stdin none, or a file"
        );
        return None;
    }
    if job.plan.timeout.is_some_and(|limit| started.elapsed() >= limit) {
        return None;
    }
    again.said.iter().for_each(|text| say!(WARN, NAME, "{text}"));
    Some(again)
}

/// The environment, with what `-E`, `--env` and `-q` set and the defaults of the installation that this launcher
/// belongs to.
fn environment(flags: &Flags) -> Result<settings::Env, Failure> {
    let program = std::env::current_exe().unwrap_or_default();
    let mut own = settings::Env::from_process();
    launcher::environment::assign(flags.asked(), &mut own)?;
    if flags.quiet && own.get("GASNET_QUIET").is_none() {
        own.set("GASNET_QUIET".as_ref(), "1".as_ref());
    }
    launcher::debugger::give_time(flags, &mut own);
    Ok(own.with_defaults(settings::Defaults::around(&[&program])?))
}

/// Makes the directory of `--output-dir`, so that a job is never run for output that cannot be
/// kept.
fn make_output_directory(job: &Job) -> Result<(), Failure> {
    let Some(path) = &job.plan.output.directory else { return Ok(()) };
    let writable = AccessFlags::W_OK | AccessFlags::X_OK;
    std::fs::create_dir_all(path)
        .and_then(|()| nix::unistd::eaccess(path, writable).map_err(Into::into))
        .map_err(|source| Failure::OutputDirectory(path.clone(), source))
}

/// Puts a failure into the report, if one is wanted; that the report fails too is said, but does
/// not hide the failure.
fn give_up(report: Option<ReportFile>, job: Option<&Job>, failure: Failure) -> Failure {
    if let Some(Err(second)) = report.map(|report| report.write(job, Err(&failure), failure.code()))
    {
        say!(ERROR, NAME, "{second}");
    }
    failure
}

fn finish(
    job: &Job,
    outcome: &JobReport,
    report: Option<ReportFile>,
    level: u8,
) -> Result<u8, Failure> {
    let text = match &job.process_manager {
        Some(call) => summary::of_engine(outcome, call),
        None => summary::text(outcome, level, job.plan.conduit_program, &job.parts),
    };
    if let Some(text) = text {
        say_lines!(INFO, NAME, "{text}");
    }
    if outcome.checkpointed {
        let code = outcome.exit_code;
        say!(INFO, NAME, "all ranks have left in good order; the job ends with code {code}");
    }
    // As exit(3) does it, only the low 8 bits reach the caller.
    let code = outcome.exit_code.to_le_bytes()[0];
    let phases = &outcome.phases;
    say!(
        DEBUG,
        NAME,
        "job {} ended with code {code} after {:.3} s (prepared {:.3}, started {:.3})",
        outcome.job,
        phases.done,
        phases.prepare,
        phases.spawn
    );
    match report.map(|report| report.write(Some(job), Ok(outcome), code)) {
        // The job's own failure matters more than that of its report.
        Some(Err(failure)) if code != 0 => {
            say!(ERROR, NAME, "{failure}");
            Ok(code)
        }
        Some(Err(failure)) => Err(failure),
        _ => Ok(code),
    }
}

/// Where the ranks are.
fn places(job: &Job) -> String {
    let plan = &job.plan;
    if let Some(call) = &job.process_manager {
        return format!("the hosts of {}", call.dialect.title);
    }
    match plan.map.hosts.as_slice() {
        _ if plan.map.is_here_only() => format!("host {}", plan.host),
        [host] => format!("host {host}"),
        [first, .., last] => format!("{} hosts ({first} to {last})", plan.map.hosts.len()),
        [] => "no host".to_owned(),
    }
}

/// The lines of `-v`.
fn explain(line: &CommandLine, job: &Job) {
    let plan = &job.plan;
    say!(
        DEBUG,
        NAME,
        "{} {} of {} on {}, spawner {}, job {}",
        job.ranks,
        if job.ranks == 1 { "rank" } else { "ranks" },
        match job.parts.as_slice() {
            [] => dry_run::quoted(job.command.executable.as_os_str()),
            parts => {
                let names = parts.iter().map(|part| dry_run::quoted(part.name()));
                names.collect::<Vec<_>>().join(", ")
            }
        },
        places(job),
        job.spawner.name(),
        plan.job_id
    );
    if let Some(index) = job.command.program.filter(|index| *index > 0) {
        say!(
            DEBUG,
            NAME,
            "the program is {}, behind a wrapper",
            dry_run::quoted(&job.command.argv[index])
        );
    }
    if let Some(call) = &job.process_manager {
        say!(DEBUG, NAME, "{} is called as: {}", call.dialect.title, dry_run::words(&call.argv));
    }
    say!(DEBUG, NAME, "environment: {}", dry_run::environment(job));
    if line.flags.keep && plan.map.is_here_only() {
        say!(DEBUG, NAME, "-k: there are no temporary files to keep");
    }
}
