//! The system calls of the exit: dispositions, masks, alarms, stacks, the exit hook, raw output.
//! All unsafe code of the exit is here; what is decided about signals is in the modules that call
//! it.
//!
//! Everything is async-signal-safe unless it says otherwise.
#![allow(unsafe_code, reason = "the module that owns the exit's system calls")]

use std::ffi::{CStr, c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::atomic::AtomicI32;

use nix::errno::Errno;
use nix::sys::signal::{SigSet, SigmaskHow, Signal};

/// A handler that is told where its signal came from.
pub(super) type Handler = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);

/// What is called at `exit(3)`, with the code.
type ExitHook = extern "C" fn(c_int, *mut c_void);

/// Set to 0 by a debugger to let a frozen process go on.
#[unsafe(no_mangle)]
pub(super) static gasnet_frozen: AtomicI32 = AtomicI32::new(0);

unsafe extern "C" {
    fn on_exit(hook: ExitHook, argument: *mut c_void) -> c_int;
    fn backtrace(buffer: *mut *mut c_void, size: c_int) -> c_int;
    fn backtrace_symbols_fd(buffer: *const *mut c_void, size: c_int, fd: c_int);
    static stdout: *mut libc::FILE;
    static stderr: *mut libc::FILE;
}

/// Address of a handler, to be compared with [`handler`].
pub(super) fn address(handler: Handler) -> usize {
    handler as usize
}

/// How a signal is dealt with now: the address of a handler, or one of libc's constants.
pub(super) fn handler(signal: c_int) -> usize {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: `action` has room for the answer; no new action is given.
    unsafe { libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) };
    // SAFETY: the structure is plain integers and was zeroed, so it is initialised whatever the
    // call did; zero is the default.
    unsafe { action.assume_init() }.sa_sigaction
}

fn set(signal: c_int, handler: usize, flags: c_int) {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: all-zero bits are a valid `sigaction`: an empty mask, no flags, the default action.
    let action = unsafe { action.assume_init_mut() };
    action.sa_sigaction = handler;
    action.sa_flags = flags;
    // SAFETY: `action` is a complete structure; the handler is one of libc's constants or the
    // address of an `extern "C"` function of the signature that `SA_SIGINFO` asks for, which
    // `install` alone passes.
    unsafe { libc::sigaction(signal, action, std::ptr::null_mut()) };
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stack {
    Own,
    /// On the alternate one, where the thread has one.
    Alternate,
}

pub(super) fn install(signal: c_int, handler: Handler, stack: Stack) {
    let stack = if stack == Stack::Alternate { libc::SA_ONSTACK } else { 0 };
    set(signal, address(handler), libc::SA_SIGINFO | libc::SA_RESTART | stack);
}

pub(super) fn set_default(signal: c_int) {
    set(signal, libc::SIG_DFL, 0);
}

pub(super) fn ignore(signal: c_int) {
    set(signal, libc::SIG_IGN, 0);
}

pub(super) fn raise(signal: c_int) {
    // SAFETY: has no memory arguments.
    unsafe { libc::raise(signal) };
}

#[derive(Clone, Copy)]
pub(super) struct Mask(SigSet);

/// Blocks every signal on this thread but those that its own faults and the watchdog raise.
pub(super) fn block() -> Mask {
    use Signal::{SIGABRT, SIGALRM, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGTRAP};
    let mut set = SigSet::all();
    for signal in [SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGALRM] {
        set.remove(signal);
    }
    change(SigmaskHow::SIG_BLOCK, set)
}

pub(super) fn unblock(signal: c_int) -> Mask {
    let mut set = SigSet::empty();
    if let Ok(signal) = Signal::try_from(signal) {
        set.add(signal);
    }
    change(SigmaskHow::SIG_UNBLOCK, set)
}

pub(super) fn restore(old: Mask) {
    change(SigmaskHow::SIG_SETMASK, old.0);
}

/// Runs `call` with signals blocked on this thread, but for those of its own faults.
pub(crate) fn undisturbed<T>(call: impl FnOnce() -> T) -> T {
    let mask = block();
    let result = call();
    restore(mask);
    result
}

/// Whether this thread blocks SIGQUIT, as inside a handler for it.
pub(super) fn is_quit_blocked() -> bool {
    SigSet::thread_get_mask().is_ok_and(|set| set.contains(Signal::SIGQUIT))
}

fn change(how: SigmaskHow, set: SigSet) -> Mask {
    // Only an unknown `how` is refused.
    Mask(set.thread_swap_mask(how).unwrap_or(SigSet::empty()))
}

pub(super) fn park() -> ! {
    loop {
        nap(60_000);
    }
}

/// SIGALRM in so many seconds; 0 cancels.
pub(super) fn alarm(seconds: u32) {
    // SAFETY: has no memory arguments.
    unsafe { libc::alarm(seconds) };
}

/// Writes to standard error, in one call where the system lets it. Gives up on an error.
pub(super) fn write_stderr(mut bytes: &[u8]) {
    while !bytes.is_empty() {
        // SAFETY: `bytes` is a live slice.
        let count = unsafe { libc::write(libc::STDERR_FILENO, bytes.as_ptr().cast(), bytes.len()) };
        match usize::try_from(count) {
            Ok(count) => bytes = &bytes[count.min(bytes.len())..],
            Err(_) => return,
        }
    }
}

/// Whether standard output or error takes nothing now: their reader is slow.
pub(super) fn is_output_full() -> bool {
    [libc::STDOUT_FILENO, libc::STDERR_FILENO].into_iter().any(|fd| {
        let mut entry = libc::pollfd { fd, events: libc::POLLOUT, revents: 0 };
        // SAFETY: one live entry; the call does not wait.
        unsafe { libc::poll(&raw mut entry, 1, 0) == 0 }
    })
}

/// Ends the process; nothing of libc's or the program's clean-up runs.
pub(super) fn end(code: i32) -> ! {
    // SAFETY: has no memory arguments.
    unsafe { libc::_exit(code) }
}

pub(super) fn thread() -> i32 {
    // SAFETY: has no memory arguments.
    unsafe { libc::gettid() }
}

/// Runs a closure and puts `errno` back: for handlers that return.
pub(super) fn keeping_errno(body: impl FnOnce()) {
    let old = Errno::last_raw();
    body();
    Errno::set_raw(old);
}

/// The process or timer that a signal came from is the program itself: a fault, not `kill`.
pub(super) fn is_fault(info: *const libc::siginfo_t) -> bool {
    // SAFETY: null, or the structure that the kernel gave to a handler which is still running.
    unsafe { info.as_ref() }.is_some_and(|info| info.si_code > 0)
}

/// Has `hook` called with the exit code at `exit(3)` and return from `main`. Not
/// async-signal-safe.
pub(super) fn set_exit_hook(hook: ExitHook) {
    // SAFETY: `hook` has the signature that `on_exit` wants and lives for ever; no argument is
    // passed.
    unsafe { on_exit(hook, std::ptr::null_mut()) };
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Streams {
    Standard,
    All,
}

/// Flushes C streams. Takes their locks: may wait for other threads.
pub(super) fn flush(streams: Streams) {
    match streams {
        Streams::Standard => {
            // SAFETY: libc sets the two variables before `main`; the program may have replaced them
            // by other streams.
            let streams = unsafe { [stdout, stderr] };
            for stream in streams.into_iter().filter(|stream| !stream.is_null()) {
                // SAFETY: an open stream, as above.
                unsafe { libc::fflush(stream) };
            }
        }
        // SAFETY: null stands for all streams.
        Streams::All => drop(unsafe { libc::fflush(std::ptr::null_mut()) }),
    }
}

pub(super) fn sync() {
    // SAFETY: has no arguments.
    unsafe { libc::sync() };
}

/// Bytes of an alternate stack that is large enough for our handlers.
pub(super) const STACK_BYTES: usize = 256 * 1024;

/// Gives this thread an alternate signal stack, never freed. Not async-signal-safe. A failure
/// leaves the thread as it was.
pub(super) fn give_stack() {
    let guard = 4096;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_STACK;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a fresh private mapping touches nothing that exists.
    let base =
        unsafe { libc::mmap(std::ptr::null_mut(), STACK_BYTES + guard, protection, flags, -1, 0) };
    if base == libc::MAP_FAILED {
        return;
    }
    // SAFETY: the first page of the mapping just made, which nobody uses.
    unsafe { libc::mprotect(base, guard, libc::PROT_NONE) };
    let stack =
        libc::stack_t { ss_sp: base.wrapping_byte_add(guard), ss_flags: 0, ss_size: STACK_BYTES };
    // SAFETY: `stack` describes mapped memory that stays mapped and is used by nobody else.
    unsafe { libc::sigaltstack(&raw const stack, std::ptr::null_mut()) };
}

/// Whether this handler runs on an alternate stack smaller than [`STACK_BYTES`].
pub(super) fn on_small_stack() -> bool {
    let mut stack = MaybeUninit::<libc::stack_t>::zeroed();
    // SAFETY: asks only; `stack` has room for the answer.
    unsafe { libc::sigaltstack(std::ptr::null(), stack.as_mut_ptr()) };
    // SAFETY: plain integers and a pointer, zeroed before the call.
    let stack = unsafe { stack.assume_init() };
    stack.ss_flags & libc::SS_ONSTACK != 0 && stack.ss_size < STACK_BYTES
}

const FRAMES: usize = 128;

/// Loads what [`print_frames`] needs, so that it allocates nothing later. Not async-signal-safe.
pub(super) fn prepare_frames() {
    let mut frames = [std::ptr::null_mut(); 1];
    // SAFETY: room for one frame is passed with its count.
    unsafe { backtrace(frames.as_mut_ptr(), 1) };
}

/// Writes this thread's frames to standard error: module, offset, address. False when there are
/// none.
pub(super) fn print_frames() -> bool {
    let mut frames = [std::ptr::null_mut(); FRAMES];
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        reason = "a small constant"
    )]
    let room = FRAMES as c_int;
    // SAFETY: the room is passed with its count.
    let count = unsafe { backtrace(frames.as_mut_ptr(), room) };
    // SAFETY: the first `count` entries were filled by the call above.
    unsafe { backtrace_symbols_fd(frames.as_ptr(), count, libc::STDERR_FILENO) };
    count > 0
}

/// Makes a copy of this process without telling libc, so that it works inside handlers. `Some(0)`
/// in the copy, which must end with [`end`] or [`Command::execute`].
pub(super) fn fork() -> Option<i32> {
    // SAFETY: without a stack and without sharing memory `clone` is `fork`.
    let pid = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) };
    i32::try_from(pid).ok().filter(|pid| *pid >= 0)
}

/// Allows process `pid` to attach to this one as a debugger.
pub(super) fn allow_debugger(pid: i32) {
    // SAFETY: has no memory arguments; refused by kernels without the feature.
    unsafe { libc::prctl(libc::PR_SET_PTRACER, libc::c_long::from(pid)) };
}

/// A program with its arguments, made before anything went wrong.
#[derive(Debug)]
pub(super) struct Command {
    pub(super) path: std::ffi::CString,
    pub(super) arguments: Vec<std::ffi::CString>,
}

impl Command {
    /// Replaces this process by the program, standard output going to standard error. Returns only
    /// when that fails.
    pub(super) fn execute(&self) {
        const MOST: usize = 16;
        let mut argv = [std::ptr::null::<libc::c_char>(); MOST];
        // The last entry stays null.
        for (place, argument) in argv[..MOST - 1].iter_mut().zip(&self.arguments) {
            *place = argument.as_ptr();
        }
        // SAFETY: has no memory arguments.
        unsafe { libc::dup2(libc::STDERR_FILENO, libc::STDOUT_FILENO) };
        // SAFETY: the path and all arguments are live C strings and the list ends with null.
        unsafe { libc::execv(self.path.as_ptr(), argv.as_ptr()) };
    }
}

/// Asks whether a child has ended: its raw status, or `None` while it runs.
pub(super) fn try_wait(pid: i32) -> Option<i32> {
    let mut status = 0;
    // SAFETY: `status` has room for the answer.
    let ended = unsafe { libc::waitpid(pid, &raw mut status, libc::WNOHANG | libc::__WALL) };
    (ended != 0).then_some(if ended == pid { status } else { -1 })
}

pub(super) fn kill_child(pid: i32) {
    // SAFETY: has no memory arguments; the child is not collected yet, so the number is its.
    unsafe { libc::kill(pid, libc::SIGKILL) };
    // SAFETY: no status is asked for.
    unsafe { libc::waitpid(pid, std::ptr::null_mut(), libc::__WALL) };
}

/// Sleeps, or until a signal.
pub(super) fn nap(millis: u32) {
    let time = libc::timespec {
        tv_sec: libc::time_t::from(millis / 1000),
        tv_nsec: libc::c_long::from(millis % 1000) * 1_000_000,
    };
    // SAFETY: `time` is live; the rest is not asked for.
    unsafe { libc::nanosleep(&raw const time, std::ptr::null_mut()) };
}

pub(super) fn host_name(buffer: &mut [u8; 256]) -> &[u8] {
    // SAFETY: the room is passed with its length, less one that stays 0.
    unsafe { libc::gethostname(buffer.as_mut_ptr().cast(), buffer.len() - 1) };
    CStr::from_bytes_until_nul(buffer).map_or(&[], CStr::to_bytes)
}
