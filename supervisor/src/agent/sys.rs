//! The crate's only unsafe code: fork of the agent, start of ranks without a copy of memory, and a
//! few calls that nix lacks or cannot express without losing information.
#![allow(unsafe_code, reason = "the module that owns this crate's system calls")]

use std::ffi::{CString, c_int, c_void};
use std::io;
use std::os::fd::RawFd;
use std::str::SplitAsciiWhitespace;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use bootstrap::sys::futex_wait;
use nix::errno::Errno;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::resource::{Resource, rlim_t, setrlimit};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask};
use nix::unistd::{ForkResult, Pid, getpid, getppid};

/// Ends the process without running exit handlers: they belong to the process that was forked.
pub(crate) use bootstrap::sys::end_process as exit_now;

use settings::deadlines::agent::{EXEC, EXEC_LOOK, REAP};
use settings::log::LAUNCHER;
use settings::say;

use super::limits;
use super::machine::CODE_LAUNCH;
use crate::report::End;

/// Forks. The caller has made sure that the process has one thread, so the child may do anything.
pub(crate) fn fork() -> nix::Result<ForkResult> {
    // SAFETY: with one thread (the caller's promise, checked in `local`) no lock can be held across
    // the fork.
    unsafe { nix::unistd::fork() }
}

/// Marks every descriptor from `first` on close-on-exec, whoever opened it.
pub(crate) fn close_on_exec_from(first: u32) -> io::Result<()> {
    let flags = libc::CLOSE_RANGE_CLOEXEC.cast_signed();
    // SAFETY: only changes descriptor flags.
    Ok(Errno::result(unsafe { libc::close_range(first, u32::MAX, flags) }).map(drop)?)
}

/// Asks the scheduler to run this process soon and briefly when it wakes (from Linux 6.12 on,
/// without privilege), so that many computing ranks do not delay their agent. Children start as
/// usual. A wish: errors do not matter.
pub(crate) fn ask_for_short_slices() {
    const RESET_ON_FORK: u64 = 1;
    const SHORTEST_NS: u64 = 100_000;
    let Some(mut attr) = scheduling() else { return };
    // With a raised priority the reset on fork would take it from the ranks.
    if attr.sched_policy == libc::SCHED_OTHER.cast_unsigned() && attr.sched_nice >= 0 {
        attr.sched_runtime = SHORTEST_NS;
        attr.sched_flags |= RESET_ON_FORK;
        // SAFETY: a live struct that tells its size; only read.
        unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attr, 0) };
    }
}

/// How this process is scheduled; `None`: the system does not say.
fn scheduling() -> Option<libc::sched_attr> {
    const SIZE: u32 = 48;
    // SAFETY: integers only, for which zero is valid.
    let mut attr: libc::sched_attr = unsafe { std::mem::zeroed() };
    // SAFETY: a live struct of the size given; only filled in.
    let got = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attr, SIZE, 0) };
    (got == 0).then_some(attr)
}

/// The nice value of this process.
pub(crate) fn nice() -> Option<i32> {
    scheduling().map(|attr| attr.sched_nice)
}

/// The fields of a text of `/proc/PID/stat` behind the name, which may hold blanks and parentheses:
/// from the state on, which is the third (proc(5)).
pub(crate) fn stat_fields(stat: &str) -> Option<SplitAsciiWhitespace<'_>> {
    Some(stat.rsplit_once(')')?.1.split_ascii_whitespace())
}

/// What is done when `signal` comes. Async-signal-safe.
fn disposition(signal: c_int) -> Option<libc::sighandler_t> {
    let mut action = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: asks only; `action` is large enough and zero is a valid value of the struct.
    if unsafe { libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: initialised by zeroing and by the call.
    Some(unsafe { action.assume_init() }.sa_sigaction)
}

pub(crate) fn is_ignored(signal: c_int) -> bool {
    disposition(signal) == Some(libc::SIG_IGN)
}

/// One look for an ended child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reaped {
    Child(i32, End),
    Running,
    NoChildren,
}

/// Collects one ended child without waiting. (nix loses the status of a death by a real-time
/// signal.)
pub(crate) fn reap() -> Reaped {
    loop {
        let mut status = 0;
        // SAFETY: `status` is a live int.
        let pid = unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) };
        match pid {
            0 => return Reaped::Running,
            -1 if io::Error::last_os_error().raw_os_error() == Some(libc::EINTR) => {}
            -1 => return Reaped::NoChildren,
            _ if libc::WIFSIGNALED(status) => {
                return Reaped::Child(pid, End::Signal(libc::WTERMSIG(status)));
            }
            _ if libc::WIFEXITED(status) => {
                return Reaped::Child(pid, End::Code(libc::WEXITSTATUS(status)));
            }
            _ => {}
        }
    }
}

/// Sends a signal to a process, or to a group when `to` is negative. Real-time numbers are allowed.
pub(crate) fn kill(to: i32, signal: c_int) -> io::Result<()> {
    debug_assert!(to != 0 && to != -1, "would signal our own group or everything");
    // SAFETY: no memory is involved.
    Ok(Errno::result(unsafe { libc::kill(to, signal) }).map(drop)?)
}

/// Makes a helper die with us, wherever we are killed, and keeps the terminal's signals from it: a
/// process group of its own.
pub(crate) fn die_with_us(command: &mut std::process::Command) {
    use std::os::unix::process::CommandExt;
    let parent = getpid();
    command.process_group(0);
    let prepare = move || {
        set_pdeathsig(Signal::SIGKILL)?;
        // We may have died before the signal was armed.
        if getppid() != parent {
            exit_now(127);
        }
        Ok(())
    };
    // SAFETY: only async-signal-safe calls, no allocation.
    unsafe { command.pre_exec(prepare) };
}

/// Hours, minutes and seconds of local time.
pub(crate) fn time_of_day(epoch_seconds: i64) -> (i32, i32, i32) {
    let mut parts = std::mem::MaybeUninit::<libc::tm>::zeroed();
    // SAFETY: both pointers are live for the call; zero is a valid `tm` should the call fail.
    unsafe { libc::localtime_r(&raw const epoch_seconds, parts.as_mut_ptr()) };
    // SAFETY: initialised by zeroing and by the call.
    let parts = unsafe { parts.assume_init() };
    (parts.tm_hour, parts.tm_min, parts.tm_sec)
}

/// A program with its words and environment, in the form that `execve` takes. Made once, used for
/// every rank.
pub(crate) struct Image {
    program: CString,
    words: Vec<CString>,
    env: Vec<CString>,
    word_pointers: Vec<*const libc::c_char>,
    places: Vec<Place>,
}

/// What a process that is being started needs of its own.
struct Place {
    env: Vec<*const libc::c_char>,
    stack: Vec<u128>,
}

fn pointers(strings: &[CString]) -> Vec<*const libc::c_char> {
    strings.iter().map(|s| s.as_ptr()).chain([std::ptr::null()]).collect()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::FromRepr)]
#[repr(i32)]
pub(crate) enum Step {
    Clone,
    Group,
    ParentDeath,
    Affinity,
    Limit,
    Streams,
    Socket,
    Signals,
    Exec,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Failure {
    pub(crate) step: Step,
    pub(crate) errno: i32,
}

/// What differs from rank to rank. Descriptors are borrowed for the call and must not be 0, 1 or 2.
pub(crate) struct Child<'a> {
    /// Strings in place of those of the image, with their positions.
    pub(crate) env: &'a [(usize, CString)],
    pub(crate) streams: [RawFd; 3],
    /// Its sockets, each with the number under which it sees that.
    pub(crate) sockets: &'a [(RawFd, RawFd)],
    pub(crate) cpus: Option<CpuSet>,
    /// Descriptor limits to restore, soft and hard.
    pub(crate) limit: Option<(rlim_t, rlim_t)>,
    pub(crate) mask: &'a SigSet,
}

/// What a new process sees of us, and we of it, until it has become the program.
struct Shared<'a> {
    program: *const libc::c_char,
    words: *const *const libc::c_char,
    env: *const *const libc::c_char,
    child: &'a Child<'a>,
    parent: Pid,
    /// Number of the step that failed, and why; 0 when none has.
    step: AtomicI32,
    errno: AtomicI32,
    /// Not 0 while the process uses our memory; the kernel clears it.
    here: AtomicU32,
}

impl Image {
    pub(crate) fn new(program: CString, words: Vec<CString>, env: Vec<CString>) -> Self {
        let word_pointers = pointers(&words);
        Self { program, words, env, word_pointers, places: Vec::new() }
    }

    fn make_places(&mut self, count: usize) {
        let place = || Place { env: pointers(&self.env), stack: vec![0; STACK] };
        self.places.resize_with(self.places.len().max(count), place);
    }

    fn view<'a>(&self, place: &Place, child: &'a Child<'a>) -> Shared<'a> {
        Shared {
            program: self.program.as_ptr(),
            words: self.word_pointers.as_ptr(),
            env: place.env.as_ptr(),
            child,
            parent: getpid(),
            step: AtomicI32::new(0),
            errno: AtomicI32::new(0),
            here: AtomicU32::new(1),
        }
    }

    /// Starts processes at the same time and returns when each of them runs its program or has
    /// failed to. They use our memory until then, so nothing is copied and failures come back
    /// directly. (As with `CLONE_VFORK`, but that would put us to sleep and wake us once per
    /// process, which takes longer than all the rest when the processors are busy.)
    pub(crate) fn launch(&mut self, children: &[Child<'_>]) -> Vec<Result<i32, Failure>> {
        debug_assert_eq!(self.word_pointers.len(), self.words.len() + 1);
        self.make_places(children.len());
        for (child, place) in children.iter().zip(&mut self.places) {
            for (at, value) in child.env {
                place.env[*at] = value.as_ptr();
            }
        }
        let views = children.iter().zip(&self.places);
        let views: Vec<_> = views.map(|(child, place)| self.view(place, child)).collect();
        start_all(&views, self.places.iter_mut())
    }
}

/// Starts a process for each view on the stack of its place. Returns only after the last one has
/// left our memory: before, neither the views nor the stacks may go.
fn start_all<'a>(
    views: &[Shared<'_>],
    places: impl Iterator<Item = &'a mut Place>,
) -> Vec<Result<i32, Failure>> {
    let started: Vec<_> =
        views.iter().zip(places).map(|(view, place)| clone_into(view, place)).collect();
    views.iter().zip(started).map(|(view, pid)| outcome(view, pid?)).collect()
}

/// Starts one process of each image at the same time, with these standard streams, in a group of
/// its own and bound to die with us. Returns as [`Image::launch`] does.
pub(crate) fn launch_helpers(helpers: &mut [(Image, [RawFd; 3])]) -> Vec<Result<i32, Failure>> {
    let mask = SigSet::empty();
    let streams: Vec<[RawFd; 3]> = helpers.iter().map(|(_, streams)| *streams).collect();
    let child = |streams: &[RawFd; 3]| Child {
        env: &[],
        streams: *streams,
        sockets: &[],
        cpus: None,
        limit: None,
        mask: &mask,
    };
    let children: Vec<Child<'_>> = streams.iter().map(child).collect();
    let mut views = Vec::with_capacity(children.len());
    for ((image, _), child) in helpers.iter_mut().zip(&children) {
        image.make_places(1);
        views.extend(image.places.first().map(|place| image.view(place, child)));
    }
    start_all(&views, helpers.iter_mut().filter_map(|(image, _)| image.places.first_mut()))
}

/// Words of a new process's stack, 64 KiB.
const STACK: usize = 4096;

fn clone_into(view: &Shared<'_>, place: &mut Place) -> Result<i32, Failure> {
    let flags = libc::CLONE_VM | libc::CLONE_CHILD_CLEARTID | libc::SIGCHLD;
    let none = std::ptr::null_mut::<c_void>();
    // SAFETY: one past the end of the stack's own allocation, 16-byte aligned because its elements
    // are.
    let top = unsafe { place.stack.as_mut_ptr().add(place.stack.len()) };
    let argument = (&raw const *view).cast_mut().cast();
    // SAFETY: the child shares our memory until exec or exit, which `outcome` waits for before
    // anything it uses goes; it runs on its own stack, changes only atomics of `view` (and, when it
    // fails, `errno`, which this module does not read while children run, except for a clone that
    // failed: then the job fails either way) and makes only async-signal-safe calls.
    let pid =
        unsafe { libc::clone(start, top.cast(), flags, argument, none, none, view.here.as_ptr()) };
    if pid < 0 {
        let errno = io::Error::last_os_error().raw_os_error().unwrap_or(libc::EAGAIN);
        view.here.store(0, Ordering::Relaxed);
        return Err(Failure { step: Step::Clone, errno });
    }
    Ok(pid)
}

/// Waits until the process has left our memory, and sees to it that it does: one that was stopped on
/// its way is continued, one that does not get on is killed.
fn outcome(view: &Shared<'_>, pid: i32) -> Result<i32, Failure> {
    let until = Instant::now() + EXEC.limit;
    while !has_left(view, EXEC_LOOK.limit) && Instant::now() < until {
        // Its group gets whatever stopped it once more, when it is a rank.
        if is_stopped(pid) {
            let _ = kill(pid, libc::SIGCONT);
        }
    }
    let late = !has_left(view, Duration::ZERO);
    if late {
        let _ = kill(pid, libc::SIGKILL);
        if !has_left(view, REAP.limit) {
            // It may still use memory of ours, which therefore must not go before it; with us goes
            // every process of the job.
            say!(ERROR, LAUNCHER, "process {pid} could not be started, nor be ended by SIGKILL");
            exit_now(CODE_LAUNCH);
        }
    }
    let errno = if late { libc::ETIMEDOUT } else { view.errno.load(Ordering::Relaxed) };
    if errno == 0 {
        return Ok(pid);
    }
    // SAFETY: collects exactly the child that has failed and exited, or has been killed.
    unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
    let step = Step::from_repr(view.step.load(Ordering::Relaxed)).filter(|_| !late);
    Err(Failure { step: step.unwrap_or(Step::Exec), errno })
}

/// Whether a process is stopped.
fn is_stopped(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat_fields(&stat).and_then(|mut fields| fields.next()) == Some("T")
}

/// Whether the process has left our memory, or does so within `limit`.
fn has_left(view: &Shared<'_>, limit: Duration) -> bool {
    let until = Instant::now() + limit;
    loop {
        let here = view.here.load(Ordering::Acquire);
        let left = until.saturating_duration_since(Instant::now());
        if here == 0 || left.is_zero() {
            return here == 0;
        }
        // Not a private futex, because the kernel wakes a shared one.
        futex_wait(&view.here, here, left);
    }
}

/// First and only function of a new process: prepares it and becomes the program.
extern "C" fn start(argument: *mut c_void) -> c_int {
    // SAFETY: `launch` passes a `Shared` that lives until we have left its memory; all that changes
    // in it is atomic.
    let view = unsafe { &*argument.cast::<Shared<'_>>() };
    let failure = prepare(view).err().unwrap_or_else(|| {
        // SAFETY: NUL-terminated strings and null-terminated arrays, kept in step by `Image`.
        unsafe { libc::execve(view.program, view.words, view.env) };
        at(Step::Exec)(nix::Error::last())
    });
    view.step.store(failure.step as i32, Ordering::Relaxed);
    view.errno.store(failure.errno.max(1), Ordering::Relaxed);
    exit_now(127)
}

fn at(step: Step) -> impl Fn(nix::Error) -> Failure {
    move |errno| Failure { step, errno: errno as i32 }
}

/// Everything between clone and exec. Async-signal-safe.
fn prepare(shared: &Shared<'_>) -> Result<(), Failure> {
    let child = shared.child;
    let us = Pid::from_raw(0);
    nix::unistd::setpgid(us, us).map_err(at(Step::Group))?;
    set_pdeathsig(Signal::SIGKILL).map_err(at(Step::ParentDeath))?;
    // The parent may have died before the signal was armed.
    if getppid() != shared.parent {
        exit_now(127);
    }
    if let Some(cpus) = &child.cpus {
        sched_setaffinity(us, cpus).map_err(at(Step::Affinity))?;
    }
    if let Some((soft, hard)) = child.limit {
        setrlimit(Resource::RLIMIT_NOFILE, soft, hard).map_err(at(Step::Limit))?;
    }
    if let Some((soft, hard)) = limits::stack_before() {
        setrlimit(Resource::RLIMIT_STACK, soft, hard).map_err(at(Step::Limit))?;
    }
    // Equal numbers: inherited as it is (never close-on-exec below 3).
    for (from, to) in child.streams.into_iter().zip(0..).filter(|(from, to)| from != to) {
        // SAFETY: descriptors only.
        Errno::result(unsafe { libc::dup2(from, to) }).map_err(at(Step::Streams))?;
    }
    for &(socket, target) in child.sockets {
        // SAFETY: descriptors only. Where the numbers differ the copy is not close-on-exec; another
        // launcher, which gets no socket, has equal ones, and they close.
        Errno::result(unsafe { libc::dup2(socket, target) }).map_err(at(Step::Socket))?;
    }
    reset_signals(child.mask).map_err(at(Step::Signals))?;
    #[cfg(test)]
    if tests::STOPS.get() {
        let _ = nix::sys::signal::raise(Signal::SIGSTOP);
    }
    Ok(())
}

/// Signals that the launcher forwards to the ranks.
pub(crate) const FORWARDED: [Signal; 8] = {
    use Signal::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2};
    [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT]
};

/// The Rust runtime ignores SIGPIPE, and the agent blocks the signals that it has handlers for:
/// programs expect neither, and no handler may run here, with memory that is not ours.
fn reset_signals(mask: &SigSet) -> nix::Result<()> {
    // We, or the process that forked us, may have handlers for these.
    for signal in FORWARDED.into_iter().chain([Signal::SIGCHLD]).map(|signal| signal as c_int) {
        if disposition(signal).is_some_and(|known| ![libc::SIG_DFL, libc::SIG_IGN].contains(&known))
        {
            // SAFETY: as below.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
    }
    // SAFETY: sets the default disposition; this process has its own table (no CLONE_SIGHAND).
    if unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) } == libc::SIG_ERR {
        return Err(Errno::last());
    }
    let mut mask = *mask;
    // Blocked by `limits::fit_limits`.
    mask.remove(Signal::SIGXFSZ);
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&mask), None)
}

/// Name of this host; empty when the kernel does not tell.
pub(crate) fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim_end().to_owned()
}

/// Name of a signal (`SIGTERM`), or its number for real-time signals.
pub(crate) fn signal_name(signal: i32) -> String {
    Signal::try_from(signal).map_or_else(|_| format!("signal {signal}"), |s| s.as_str().to_owned())
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    thread_local! {
        /// Whether processes that this thread starts stop themselves before they run their program.
        pub(super) static STOPS: Cell<bool> = const { Cell::new(false) };
    }

    #[test]
    fn a_process_that_is_stopped_before_it_runs_its_program_goes_on() {
        let words = ["sh", "-c", "exit 7"].map(|word| CString::new(word).unwrap()).to_vec();
        let image = Image::new(CString::new("/bin/sh").unwrap(), words, Vec::new());
        STOPS.set(true);
        let started = launch_helpers(&mut [(image, [0, 1, 2])]);
        STOPS.set(false);
        let pid = Pid::from_raw(*started[0].as_ref().unwrap());
        let ended = nix::sys::wait::waitpid(pid, None).unwrap();
        assert_eq!(ended, nix::sys::wait::WaitStatus::Exited(pid, 7));
    }
}
