//! The other end of the socket: asks a job.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};
use settings::deadlines::watch::{ANSWER, CONNECT};

use super::{Answer, Ask};

/// Most bytes of an answer.
const MOST_ANSWER: u64 = 64 << 20;

/// Why a job did not answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The job is over: its socket is there, and nobody behind it.
    #[error("the job is over; nobody is at its socket {}", .0.display())]
    Dead(PathBuf),
    /// The socket cannot be used.
    #[error("cannot {operation} {}: {source}", .path.display())]
    Socket {
        /// What was tried.
        operation: &'static str,
        /// The socket.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The job ended before it answered.
    #[error("the job ended before it answered")]
    Ended,
    /// It said something that is no answer.
    #[error("what the job answered cannot be read: {0}")]
    Answer(#[from] serde_json::Error),
    /// It cannot do what it was asked.
    #[error("the job refused: {0}")]
    Refused(String),
}

/// A connection to a job.
#[derive(Debug)]
pub struct Client {
    stream: BufReader<UnixStream>,
    path: PathBuf,
}

impl Client {
    /// Connects to the job behind a socket.
    ///
    /// # Errors
    /// [`ClientError::Dead`] when the job is over; [`ClientError::Socket`].
    pub fn connect(path: &Path) -> Result<Self, ClientError> {
        let failed = |operation| {
            move |source: io::Error| ClientError::Socket {
                operation,
                path: path.to_owned(),
                source,
            }
        };
        let begin = std::time::Instant::now();
        let stream = loop {
            // A full queue of a busy or stopped job must not hold us: tried again for a while.
            match try_connect(path) {
                Ok(stream) => break stream,
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    return Err(ClientError::Dead(path.to_owned()));
                }
                Err(error)
                    if error.kind() == io::ErrorKind::WouldBlock
                        && begin.elapsed() < CONNECT.limit =>
                {
                    std::thread::sleep(Duration::from_millis(20));
                }
                Err(error) => return Err(failed("connect to")(error)),
            }
        };
        stream.set_nonblocking(false).map_err(failed("use"))?;
        stream.set_read_timeout(Some(ANSWER.limit)).map_err(failed("use"))?;
        stream.set_write_timeout(Some(CONNECT.limit)).map_err(failed("use"))?;
        Ok(Self { stream: BufReader::new(stream), path: path.to_owned() })
    }

    /// Asks, and waits for the answer at most [`ANSWER`].
    ///
    /// # Errors
    /// The job ended meanwhile, did not answer in time, or refused.
    pub fn ask(&mut self, ask: &Ask) -> Result<Answer, ClientError> {
        let mut line = serde_json::to_vec(ask)?;
        line.push(b'\n');
        let path = self.path.clone();
        let failed = |operation| {
            move |source: io::Error| match source.kind() {
                io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => ClientError::Ended,
                _ => ClientError::Socket { operation, path, source },
            }
        };
        self.stream.get_mut().write_all(&line).map_err(failed.clone()("ask"))?;
        let mut answer = Vec::new();
        let read = (&mut self.stream).take(MOST_ANSWER).read_until(b'\n', &mut answer);
        read.map_err(failed("read the answer of"))?;
        if answer.last() != Some(&b'\n') {
            return Err(ClientError::Ended);
        }
        match serde_json::from_slice(&answer)? {
            Answer::Refused(text) => Err(ClientError::Refused(text)),
            answer => Ok(answer),
        }
    }
}

/// Connects without waiting.
fn try_connect(path: &Path) -> io::Result<UnixStream> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let fd = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    connect(std::os::fd::AsRawFd::as_raw_fd(&fd), &UnixAddr::new(path)?)?;
    Ok(fd.into())
}
