//! System calls of the core, and its atomics.

pub(crate) mod atomic;
pub(crate) mod own_memory;
mod ran;
pub(crate) mod spin_lock;
pub(crate) mod tally;

use nix::sched::CpuSet;

pub(crate) use self::ran::Ran;

pub(crate) const CPU_WORDS: usize = 16;

pub(crate) fn allowed_cpus() -> [u64; CPU_WORDS] {
    let mut words = [0; CPU_WORDS];
    if let Ok(set) = nix::sched::sched_getaffinity(nix::unistd::Pid::from_raw(0)) {
        for cpu in 0..CpuSet::count().min(CPU_WORDS * 64) {
            if set.is_set(cpu).unwrap_or(false) {
                words[cpu / 64] |= 1 << (cpu % 64);
            }
        }
    }
    words
}

pub(crate) fn page_size() -> u64 {
    sysconf(nix::unistd::SysconfVar::PAGE_SIZE).unwrap_or(4096)
}

/// Bytes of physical memory of this host, `None` when the system does not say.
pub(crate) fn physical_memory() -> Option<u64> {
    sysconf(nix::unistd::SysconfVar::_PHYS_PAGES)?.checked_mul(page_size())
}

/// Signals are for the client's threads.
pub(crate) fn block_signals() {
    use nix::sys::signal::Signal::{SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV};
    let mut set = nix::sys::signal::SigSet::all();
    // A fault of this thread must still be seen as one.
    for fault in [SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT] {
        set.remove(fault);
    }
    let _ = set.thread_block();
}

/// Asks the system to use huge pages for a mapping of this process.
#[allow(unsafe_code, reason = "a system call about memory")]
pub(crate) fn ask_for_huge_pages(at: std::ptr::NonNull<u8>, len: usize) -> nix::Result<()> {
    use nix::sys::mman::{MmapAdvise, madvise};
    // SAFETY: this advice changes what pages the memory has, never what is in it.
    unsafe { madvise(at.cast(), len, MmapAdvise::MADV_HUGEPAGE) }
}

/// What the system does about huge pages in a kind of memory: the word in brackets of
/// `/sys/kernel/mm/transparent_hugepage/KIND`. `None` when it has none.
pub(crate) fn huge_page_policy(kind: &str) -> Option<String> {
    let path = format!("/sys/kernel/mm/transparent_hugepage/{kind}");
    bracketed(&std::fs::read_to_string(path).ok()?)
}

/// Sets a variable of this process, for libraries that are opened later.
#[allow(unsafe_code, reason = "a call of the C library about the environment")]
pub(crate) fn set_variable(name: &std::ffi::CStr, value: &std::ffi::CStr) {
    // SAFETY: two strings. The caller has one thread, which is inside this call.
    unsafe { libc::setenv(name.as_ptr(), value.as_ptr(), 1) };
}

fn bracketed(text: &str) -> Option<String> {
    Some(text.split_once('[')?.1.split_once(']')?.0.to_owned())
}

fn sysconf(name: nix::unistd::SysconfVar) -> Option<u64> {
    nix::unistd::sysconf(name).ok().flatten().and_then(|value| u64::try_from(value).ok())
}

/// Lets other processes run.
///
/// Where ranks share a processor this is most of the cost of a barrier, and the address
/// translations that the process has to fetch again afterwards are the part of it that can be
/// saved. So the system call is made here instead of in the C library, whose code and jump table
/// are two more pages (with a third in the standard library).
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn give_way() {
    // SAFETY: `sched_yield` has no arguments and touches no memory; the kernel changes rax, rcx and
    // r11 only.
    #[allow(unsafe_code, reason = "one system call without the C library")]
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") libc::SYS_sched_yield => _,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
}

/// Lets other processes run.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn give_way() {
    std::thread::yield_now();
}

macro_rules! hints {
    ($($(#[$doc:meta])* $name:ident, $instruction:literal;)*) => {$(
        $(#[$doc])*
        #[inline(always)]
        pub(crate) fn $name<T>(address: *const T) {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: accesses no memory as far as the language is concerned.
            #[allow(unsafe_code, reason = "a hint of the processor that the standard library has not")]
            unsafe {
                std::arch::asm!($instruction, in(reg) address, options(nostack, preserves_flags));
            }
            #[cfg(not(target_arch = "x86_64"))]
            let _ = address;
        }
    )*};
}

hints! {
    /// Asks for the cache line at `address` to write it. A hint: the address need not be valid, and
    /// processors that do not know the instruction do nothing.
    ask_to_write, "prefetchw [{}]";
    /// Asks for the cache line at `address` to read it. A hint, as [`ask_to_write`].
    ask_to_read, "prefetcht0 [{}]";
}

/// A number that no other live thread has; never 0, below 2^56. One instruction: the address of a
/// thread-local variable is the result of a call for the compiler, which saves all that the caller
/// has in registers.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn thread() -> usize {
    let pointer: usize;
    // SAFETY: the first word of a thread's control block holds its own address (psABI, thread-local
    // storage, variant II).
    #[allow(unsafe_code, reason = "one load without the C library")]
    unsafe {
        std::arch::asm!("mov {}, fs:0", out(reg) pointer, options(pure, readonly, nostack, preserves_flags));
    }
    pointer
}

/// A number that no other live thread has; never 0, below 2^56.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
pub(crate) fn thread() -> usize {
    thread_local! {
        static ME: std::cell::Cell<u8> = const { std::cell::Cell::new(0) };
    }
    ME.with(|me| std::ptr::from_ref(me).addr())
}

/// The processor's counter of time.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn ticks() -> u64 {
    // SAFETY: the instruction reads a register of the processor.
    #[allow(unsafe_code, reason = "one instruction")]
    unsafe {
        std::arch::x86_64::_rdtsc()
    }
}

/// The processor's counter of time, which is not used here.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn ticks() -> u64 {
    0
}

/// Lets this process take part in [`barrier_everywhere`] of others. `false` when the system has no
/// such barriers.
pub(crate) fn join_barriers() -> bool {
    membarrier(libc::MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED) && barrier_everywhere()
}

/// A full memory barrier on every processor that runs a process which has joined.
/// Async-signal-safe. `false` when it failed.
pub(crate) fn barrier_everywhere() -> bool {
    membarrier(libc::MEMBARRIER_CMD_GLOBAL_EXPEDITED)
}

fn membarrier(command: libc::c_int) -> bool {
    // SAFETY: three numbers; the call touches no memory of the process.
    #[allow(unsafe_code, reason = "a system call without a wrapper")]
    unsafe {
        libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0
    }
}
