//! The process behind a link: started with pipes for its standard streams.

use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use nix::fcntl::OFlag;

use crate::agent::sys;

/// A process that was started, with our ends of its standard streams.
#[derive(Debug)]
pub(super) struct Started {
    pub(super) pid: i32,
    pub(super) streams: [OwnedFd; 3],
}

/// Our ends of the pipes of one process, and its own.
type Pipes = ([OwnedFd; 3], [OwnedFd; 3]);

fn pipes() -> io::Result<Pipes> {
    let pipe = || nix::unistd::pipe2(OFlag::O_CLOEXEC);
    let ((input, to), (from, output), (err, err_end)) = (pipe()?, pipe()?, pipe()?);
    Ok(([to, from, err], [input, output, err_end]))
}

/// Starts processes with these words, all at the same time: on a busy machine one after the other
/// would take long, because each gets the processors that we need for the next.
pub(super) fn start(all: &[Vec<OsString>]) -> Vec<io::Result<Started>> {
    let env: Vec<CString> =
        settings::Env::from_process().into_iter().filter_map(|(n, v)| assignment(&n, &v)).collect();
    let mut made = Vec::new();
    let mut pipes_of = Vec::new();
    for words in all {
        match image(words, &env).and_then(|image| Ok((image, pipes()?))) {
            Ok((image, pipes)) => {
                let streams = pipes.1.each_ref().map(AsRawFd::as_raw_fd);
                made.push((image, streams));
                pipes_of.push(Ok(pipes));
            }
            Err(error) => pipes_of.push(Err(error)),
        }
    }
    let mut pids = sys::launch_helpers(&mut made).into_iter();
    let outcome = |pipes: io::Result<Pipes>| {
        let (ours, theirs) = pipes?;
        drop(theirs);
        let none = || io::Error::other("it was not started");
        let pid = pids.next().ok_or_else(none)?;
        let pid = pid.map_err(|failure| io::Error::from_raw_os_error(failure.errno))?;
        Ok(Started { pid, streams: ours })
    };
    pipes_of.into_iter().map(outcome).collect()
}

fn assignment(name: &OsStr, value: &OsStr) -> Option<CString> {
    CString::new([name.as_bytes(), b"=", value.as_bytes()].concat()).ok()
}

/// A program and its words as the system takes them; a name without a slash is looked up in `PATH`.
fn image(words: &[OsString], env: &[CString]) -> io::Result<sys::Image> {
    let text = |word: &OsStr| CString::new(word.as_bytes()).map_err(io::Error::other);
    let name = words.first().map(OsString::as_os_str).unwrap_or_default();
    // A name with a slash is a path: starting it says what is wrong with it.
    let program = match name.as_bytes().contains(&b'/') {
        true => PathBuf::from(name),
        false => which::which(name).map_err(|_| io::Error::from_raw_os_error(libc::ENOENT))?,
    };
    let words = words.iter().map(|word| text(word)).collect::<io::Result<Vec<_>>>()?;
    Ok(sys::Image::new(text(program.as_os_str())?, words, env.to_vec()))
}
