//! Descriptors of connections. The usual soft limit is for programs that use `select`, and it is the
//! program's: connections get numbers above it, which only the hard limit bounds, so that they take
//! none of its own, and its children find the limit as it was.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

use nix::sys::resource::{Resource, getrlimit, rlim_t, setrlimit};

use super::limits::{MAX_ACCEPTING, MIN_ACCEPTING, MOVE_BELOW, UNPROVEN_SHARE};

/// Held while the limit of the process is another one.
static RAISED: Mutex<()> = Mutex::new(());

/// Makes a descriptor, above the soft limit if the system lets us. The limit is raised for this call:
/// a child that another thread starts in these microseconds has the hard one.
pub(super) fn make<T: From<OwnedFd> + AsFd>(make: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let alone = RAISED.lock().unwrap_or_else(PoisonError::into_inner);
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return make() };
    if soft >= hard || setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_err() {
        return make();
    }
    let made = make().map(|fd| moved(fd, soft));
    let _ = setrlimit(Resource::RLIMIT_NOFILE, soft, hard);
    drop(alone);
    made
}

/// The same with the number `from` or one above, if there is one that is free.
fn moved<T: From<OwnedFd> + AsFd>(fd: T, from: rlim_t) -> T {
    // The kernel's table is as long as the greatest number.
    let from = i32::try_from(from).ok().filter(|from| *from < MOVE_BELOW);
    match from.map(|from| rustix::io::fcntl_dupfd_cloexec(&fd, from)) {
        Some(Ok(above)) => T::from(above),
        _ => fd,
    }
}

/// Connections that one of `devices` keeps although they have not proved the job key.
pub(super) fn unproven(devices: u8) -> usize {
    let most = getrlimit(Resource::RLIMIT_NOFILE).map_or(rlim_t::MAX, |(_, hard)| hard);
    share(most, devices)
}

fn share(descriptors: rlim_t, devices: u8) -> usize {
    let share = descriptors / UNPROVEN_SHARE / rlim_t::from(devices.max(1));
    usize::try_from(share).unwrap_or(usize::MAX).clamp(MIN_ACCEPTING, MAX_ACCEPTING)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn strangers_get_a_share() {
        assert_eq!(
            [(1 << 20, 1), (1024, 1), (1024, 4), (64, 1), (0, 8)].map(|(d, n)| share(d, n)),
            [512, 128, 32, 8, 4]
        );
    }

    #[test]
    fn a_connection_takes_no_number_of_the_program() {
        let limit = || getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        let (soft, hard) = limit();
        let made = make(|| File::open("/dev/null")).unwrap();
        assert_eq!(limit(), (soft, hard), "the limit is as it was");
        if soft < hard && soft < rlim_t::try_from(MOVE_BELOW).unwrap() {
            assert!(rlim_t::try_from(made.as_raw_fd()).unwrap() >= soft);
        } else {
            eprintln!("SKIP numbers above the soft limit: it is {soft} of {hard}");
        }
    }
}
