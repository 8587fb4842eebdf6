//! The built-in client (`GASNET_SSH_CMD=auto` and `builtin`), on libssh2 and OpenSSL, behind a C interface.
//! `spawner_ssh::builtin` finds and opens it at run time, so that the launcher starts without what
//! libssh2 needs, and runs where that is missing.
//!
//! The two exported functions have the types [`Version`] and [`Run`]. No memory and no descriptor
//! is given away, and no panic crosses.
#![allow(unsafe_code, reason = "the border to a caller whose memory and descriptors are borrowed")]

mod connect;
mod keys;
mod known_hosts;
mod pump;
mod session;

use std::ffi::c_int;
use std::os::fd::BorrowedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};

use spawner_ssh::builtin::{CODE_FAILED, Run, VERSION, Version};

use session::Ends;

const _: (Version, Run) = (gasnetrun_ibv_ssh_version, gasnetrun_ibv_ssh_run);

/// Version of the interface.
#[unsafe(no_mangle)]
pub extern "C" fn gasnetrun_ibv_ssh_version() -> u32 {
    VERSION
}

/// Logs in, runs the command there, and returns its exit code once its output has ended; 255 when
/// that fails, after a line on `err`.
///
/// # Safety
/// Until it returns, `request` has `length` readable bytes and the descriptors stay open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gasnetrun_ibv_ssh_run(
    request: *const u8,
    length: usize,
    input: c_int,
    output: c_int,
    err: c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    let request = unsafe { std::slice::from_raw_parts(request, length) };
    // SAFETY: the caller's promise.
    let end = |fd: c_int| unsafe { BorrowedFd::borrow_raw(fd) };
    let ends = Ends { input: end(input), output: end(output), err: end(err) };
    catch_unwind(AssertUnwindSafe(|| session::run(request, ends))).unwrap_or(CODE_FAILED)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read as _;
    use std::net::TcpListener;
    use std::os::fd::AsRawFd as _;

    use nix::unistd::pipe;
    use spawner_ssh::HostEntry;
    use spawner_ssh::builtin::{Request, Settings};

    use super::*;

    /// Its code and what it says.
    fn run(request: &[u8]) -> (c_int, String) {
        let ((input, _to), (_from, output), (said, err)) =
            (pipe().unwrap(), pipe().unwrap(), pipe().unwrap());
        let [input, output, end] = [&input, &output, &err].map(|fd| fd.as_raw_fd());
        let (bytes, length) = (request.as_ptr(), request.len());
        // SAFETY: a live slice, and descriptors that stay open until the end of this function.
        let code = unsafe { gasnetrun_ibv_ssh_run(bytes, length, input, output, end) };
        drop(err);
        let mut text = String::new();
        File::from(said).read_to_string(&mut text).unwrap();
        (code, text)
    }

    #[test]
    fn what_fails_is_said_as_openssh_says_it() {
        // A port that nobody listens at.
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let host = HostEntry { port: Some(free.port()), ..HostEntry::new("127.0.0.1") };
        let request = Request { host, settings: Settings::default(), command: String::new() };
        let (code, text) = run(&postcard::to_stdvec(&request).unwrap());
        assert_eq!(code, CODE_FAILED);
        assert!(text.starts_with("ssh: connect to host 127.0.0.1 port "), "{text}");
        assert!(text.contains("Connection refused"), "{text}");
    }

    #[test]
    fn a_request_of_somebody_else_is_refused() {
        for bytes in [&[][..], &[0xff; 3], &[0x80; 40]] {
            let (code, text) = run(bytes);
            assert!(code == CODE_FAILED && text.contains("not understood"), "{code}: {text}");
        }
    }
}
