//! System calls of the core that need no unsafe code of their own.

use nix::sched::CpuSet;

use crate::shm::CPU_WORDS;

/// Processors that this process may run on, as bit masks.
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

/// Bytes of a memory page.
pub(crate) fn page_size() -> u64 {
    sysconf(nix::unistd::SysconfVar::PAGE_SIZE).unwrap_or(4096)
}

/// Bytes of physical memory of this host, `None` when the system does not say.
pub(crate) fn physical_memory() -> Option<u64> {
    sysconf(nix::unistd::SysconfVar::_PHYS_PAGES)?.checked_mul(page_size())
}

fn sysconf(name: nix::unistd::SysconfVar) -> Option<u64> {
    nix::unistd::sysconf(name).ok().flatten().and_then(|value| u64::try_from(value).ok())
}

/// Lets other processes run.
pub(crate) fn give_way() {
    std::thread::yield_now();
}

/// Writes one line to the error stream, in one piece.
pub(crate) fn say(text: &str) {
    use std::io::Write as _;
    let line = format!("gasnet_ibv: {text}\n");
    // Nothing can be done about a closed error stream.
    let _ = std::io::stderr().write_all(line.as_bytes());
}
