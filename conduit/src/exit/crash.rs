//! What a process does about signals while it runs: messages, freezing, backtraces, the way to exit
//! or to death.

use std::ffi::{CString, c_void};
use std::os::unix::ffi::OsStrExt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};

use bootstrap::ExitPath;
use nix::sys::signal::Signal;
use settings::Signals;
use settings::deadlines::exit::{BACKTRACE, CRASH_FLUSH};

use super::driver::{Driver, driver, is_decided};
use super::line::print_line;
use super::signals::{self, Command, Stack, Streams};
use crate::trace;

const FATAL: [i32; 5] = [libc::SIGABRT, libc::SIGFPE, libc::SIGILL, libc::SIGSEGV, libc::SIGBUS];
const ASKING: [i32; 4] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGPIPE];

/// One way to print a backtrace.
#[derive(Debug)]
pub(super) enum Mechanism {
    /// A debugger in a process of its own; its name and how to start it.
    Debugger(&'static str, Command),
    /// The library's own unwinder.
    Inside,
}

#[derive(Debug)]
pub(super) struct Diagnostics {
    pub(super) rank: u32,
    pub(super) freeze_on_error: bool,
    pub(super) freeze_signal: Option<i32>,
    /// Backtraces of errors, on this rank.
    pub(super) backtrace: bool,
    pub(super) backtrace_signal: Option<i32>,
    pub(super) mechanisms: Mechanisms,
    pub(super) uncaught: Signals,
}

/// How backtraces are printed. Debuggers are looked for in PATH, which is no work for a signal
/// handler, nor for each start of a rank.
#[derive(Debug)]
pub(super) struct Mechanisms {
    /// Words of GASNET_BACKTRACE_TYPE.
    pub(super) words: Vec<String>,
    /// Backtraces have all threads.
    pub(super) threads: bool,
    /// Those that exist here.
    pub(super) found: OnceLock<Vec<Mechanism>>,
}

static DIAGNOSTICS: OnceLock<Diagnostics> = OnceLock::new();
static DYING: AtomicI32 = AtomicI32::new(0);
static ASKED: AtomicU32 = AtomicU32::new(0);
static ASKING_NOW: AtomicBool = AtomicBool::new(false);

pub(super) fn install(diagnostics: Diagnostics) {
    let Ok(()) = DIAGNOSTICS.set(diagnostics) else { return };
    let Some(diagnostics) = DIAGNOSTICS.get() else { return };
    if diagnostics.backtrace || diagnostics.backtrace_signal.is_some() {
        // Handlers will print them.
        let _ready = diagnostics.mechanisms.found();
    }
    signals::prepare_frames();
    signals::give_stack();
    let caught = |signal: &i32| !diagnostics.uncaught.contains(*signal);
    for signal in FATAL.into_iter().filter(caught) {
        // Only these two can come of a stack that is full.
        let full = matches!(signal, libc::SIGSEGV | libc::SIGBUS);
        signals::install(signal, on_fatal, if full { Stack::Alternate } else { Stack::Own });
    }
    for signal in ASKING.into_iter().filter(caught) {
        signals::install(signal, on_asking, Stack::Own);
    }
    if caught(&libc::SIGQUIT) {
        signals::install(libc::SIGQUIT, on_quit, Stack::Own);
    }
    if let Some(signal) = diagnostics.freeze_signal {
        signals::install(signal, on_freeze, Stack::Own);
    }
    if let Some(signal) = diagnostics.backtrace_signal {
        signals::install(signal, on_backtrace, Stack::Own);
    }
}

/// Whether SIGQUIT goes to a handler of the program: not ours, not the default, not ignored.
pub(super) fn user_handles_quit() -> bool {
    let others = [signals::address(on_quit), libc::SIG_DFL, libc::SIG_IGN];
    !others.contains(&signals::handler(libc::SIGQUIT))
}

fn rank() -> u32 {
    DIAGNOSTICS.get().map_or(0, |diagnostics| diagnostics.rank)
}

fn caught(what: &str, signal: i32) {
    let (rank, name) = (rank(), Signal::try_from(signal).map_or("signal ", Signal::as_str));
    print_line(format_args!("*** Caught a {what} (proc {rank}): {name}({signal})"));
}

extern "C" fn on_fatal(signal: i32, info: *mut libc::siginfo_t, _: *mut c_void) {
    let me = signals::thread();
    let first = DYING.compare_exchange(0, me, Ordering::SeqCst, Ordering::SeqCst);
    match first {
        Ok(_) => caught("fatal signal", signal),
        Err(other) if other != me => signals::park(),
        // Again on this thread: a fault of our own, or the second time round (below).
        Err(_) if MOVED.swap(false, Ordering::SeqCst) => {}
        Err(_) => die(signal),
    }
    if first.is_ok() && signals::is_fault(info) && signals::on_small_stack() {
        // Too small for a backtrace. The instruction is run again and faults again, this time on
        // the thread's own stack; if it is the stack that is full, the kernel ends the process.
        MOVED.store(true, Ordering::SeqCst);
        return signals::install(signal, on_fatal, Stack::Own);
    }
    explain();
    flush_bounded(signal);
    die(signal);
}

static MOVED: AtomicBool = AtomicBool::new(false);

fn die(signal: i32) -> ! {
    if let Some(driver) = driver() {
        driver.dying(signal);
    }
    signals::set_default(signal);
    signals::unblock(signal);
    signals::raise(signal);
    signals::end(128 + signal)
}

fn explain() {
    let Some(diagnostics) = DIAGNOSTICS.get() else { return };
    if diagnostics.freeze_on_error {
        freeze();
    }
    if diagnostics.backtrace {
        backtrace();
    }
}

static FLUSHING_FOR: AtomicI32 = AtomicI32::new(0);

extern "C" fn on_flush_alarm(_: i32, _: *mut libc::siginfo_t, _: *mut c_void) {
    signals::end(128 + FLUSHING_FOR.load(Ordering::SeqCst))
}

fn flush_bounded(signal: i32) {
    FLUSHING_FOR.store(signal, Ordering::SeqCst);
    signals::install(libc::SIGALRM, on_flush_alarm, Stack::Own);
    signals::unblock(libc::SIGALRM);
    signals::alarm(u32::try_from(CRASH_FLUSH.limit.as_secs()).unwrap_or(1));
    signals::flush(Streams::Standard);
    trace::finish(false);
    trace::leave();
    signals::alarm(0);
}

/// Ends this process by SIGABRT after saying why, with freeze and backtrace as the settings say;
/// the job ends with it.
pub fn fatal_error(message: &str) -> ! {
    let line = format!("*** FATAL ERROR (proc {}): {message}\n", rank());
    signals::write_stderr(line.as_bytes());
    explain();
    flush_bounded(libc::SIGABRT);
    die(libc::SIGABRT)
}

extern "C" fn on_asking(signal: i32, _: *mut libc::siginfo_t, _: *mut c_void) {
    signals::keeping_errno(|| {
        if driver().is_some_and(Driver::has_begun) {
            return;
        }
        if ASKED.fetch_add(1, Ordering::SeqCst) > 0 {
            signals::end(1);
        }
        // After a decided end the signal is part of the clean-up, not news.
        if !is_decided() {
            caught("signal", signal);
        }
        ASKING_NOW.store(true, Ordering::SeqCst);
        signals::raise(libc::SIGQUIT);
        // The program's own handler let it go on.
        ASKING_NOW.store(false, Ordering::SeqCst);
    });
}

extern "C" fn on_quit(_: i32, _: *mut libc::siginfo_t, _: *mut c_void) {
    signals::keeping_errno(|| match driver() {
        None => signals::end(1),
        Some(driver) if driver.has_begun() => {}
        Some(driver) => driver.local(1, ExitPath::Signal),
    });
}

/// Where an exit call of the program comes from: inside a signal that asks the process to end, or
/// not.
pub(super) fn path() -> ExitPath {
    if ASKING_NOW.load(Ordering::SeqCst) { ExitPath::Signal } else { ExitPath::Explicit }
}

// ---- freezing ----

extern "C" fn on_continue(_: i32, _: *mut libc::siginfo_t, _: *mut c_void) {
    signals::gasnet_frozen.store(0, Ordering::SeqCst);
}

extern "C" fn on_freeze(_: i32, _: *mut libc::siginfo_t, _: *mut c_void) {
    signals::keeping_errno(freeze);
}

/// Waits for a debugger to clear `gasnet_frozen`, or for SIGCONT.
pub(super) fn freeze() {
    signals::gasnet_frozen.store(1, Ordering::SeqCst);
    signals::install(libc::SIGCONT, on_continue, Stack::Own);
    signals::unblock(libc::SIGCONT);
    let mut host = [0; 256];
    let host = std::str::from_utf8(signals::host_name(&mut host)).unwrap_or("?");
    let (rank, process) = (rank(), std::process::id());
    print_line(format_args!(
        "gasnet_ibv: rank {rank} is frozen: host {host}, process {process}. To go on: kill -CONT {process}, \
         or set gasnet_frozen = 0 in a debugger"
    ));
    while signals::gasnet_frozen.load(Ordering::SeqCst) != 0 {
        signals::nap(1_000);
    }
    signals::set_default(libc::SIGCONT);
}

// ---- backtraces ----

extern "C" fn on_backtrace(_: i32, _: *mut libc::siginfo_t, _: *mut c_void) {
    signals::keeping_errno(backtrace);
}

/// Prints a backtrace of this process to standard error, whatever GASNET_BACKTRACE says, by the
/// first of the mechanisms of GASNET_BACKTRACE_TYPE that works. The program goes on.
pub fn backtrace() {
    let given = DIAGNOSTICS.get().map_or(&[] as &[_], |diagnostics| diagnostics.mechanisms.found());
    let _printed = match given {
        [] => Mechanism::Inside.print(),
        given => given.iter().any(Mechanism::print),
    };
}

impl Mechanism {
    fn print(&self) -> bool {
        let name = if let Self::Debugger(name, _) = self { name } else { "EXECINFO" };
        let (rank, process) = (rank(), std::process::id());
        print_line(format_args!(
            "gasnet_ibv: rank {rank}: backtrace of process {process} by {name}"
        ));
        match self {
            Self::Debugger(_, command) => in_child(|| command.execute()),
            Self::Inside => print_inside(),
        }
    }
}

/// With names when a copy of this process can find them out; it may hang in a lock that was held
/// when the signal came, then it is ended. Without names otherwise.
fn print_inside() -> bool {
    in_child(|| {
        let text = std::backtrace::Backtrace::force_capture().to_string();
        signals::write_stderr(text.as_bytes());
        signals::end(0);
    }) || signals::print_frames()
}

/// Runs `body` in a copy of this process; whether it ended with 0 in time.
fn in_child(body: impl FnOnce()) -> bool {
    match signals::fork() {
        None => false,
        Some(0) => {
            body();
            signals::end(127)
        }
        Some(child) => {
            signals::allow_debugger(child);
            for _ in 0..BACKTRACE.ms() / 10 {
                if let Some(status) = signals::try_wait(child) {
                    return status == 0;
                }
                signals::nap(10);
            }
            signals::kill_child(child);
            false
        }
    }
}

impl Mechanisms {
    /// The mechanisms for the words of GASNET_BACKTRACE_TYPE that exist here, in that order.
    fn found(&self) -> &[Mechanism] {
        let all = if self.threads {
            ["GDB", "GSTACK", "EXECINFO"]
        } else {
            ["EXECINFO", "GDB", "GSTACK"]
        };
        let given = self.words.iter().map(String::as_str);
        let words = || if self.words.is_empty() { all.to_vec() } else { given.collect() };
        let find = |word: &&str| mechanism(word, self.threads);
        self.found.get_or_init(|| words().iter().filter_map(find).collect())
    }
}

fn mechanism(word: &str, threads: bool) -> Option<Mechanism> {
    let process = CString::new(std::process::id().to_string()).ok()?;
    let arguments = |words: &[&str]| {
        let words = words.iter().map(|word| CString::new(*word).ok());
        words.chain([Some(process.clone())]).collect::<Option<Vec<_>>>()
    };
    let debugger = |name, program, words: &[&str]| {
        let path = settings::Env::from_process().get("PATH")?.to_owned();
        let found = which::which_in_global(program, Some(path)).ok()?.next()?;
        let path = CString::new(found.as_os_str().as_bytes()).ok()?;
        Some(Mechanism::Debugger(name, Command { path, arguments: arguments(words)? }))
    };
    match word {
        "EXECINFO" => Some(Mechanism::Inside),
        "GDB" => {
            let print = if threads { "thread apply all backtrace" } else { "backtrace" };
            debugger("GDB", "gdb", &["gdb", "-nx", "-q", "-batch", "-ex", print, "-p"])
        }
        "GSTACK" => debugger("GSTACK", "gstack", &["gstack"]),
        "PSTACK" => debugger("PSTACK", "pstack", &["pstack"]),
        _ => None,
    }
}
