//! A rank that another launcher starts: how its slot gets to ours (`bootstrap::trace::far`).

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::IntoRawFd;
use std::sync::atomic::{AtomicU64, Ordering};

use bootstrap::memfd;
use bootstrap::trace::far::{Far, GO, LOOK, greeting};
use bootstrap::trace::slot_len;
use settings::deadlines::bootstrap as deadlines;

use super::recorder::monotonic;

/// Bytes that are sent at a time.
const PIECE: usize = 4096;

/// The way to the launcher, where its memory cannot be had.
#[derive(Debug)]
pub(super) struct Link {
    far: Far,
    rank: u32,
}

/// The slot of a rank: in the launcher's memory, or own memory and the way to the launcher, which
/// was tried.
pub(super) fn slot(far: Far, rank: u32) -> io::Result<(&'static [AtomicU64], Option<Link>)> {
    let len = slot_len(far.capacity);
    if let Ok(file) = memory(&far) {
        let words = bootstrap::sys::words_of(file.into_raw_fd(), u64::from(rank) * len, len)?;
        return Ok((words, None));
    }
    let words = bootstrap::sys::words_of(memfd::zeroed(len)?.into_raw_fd(), 0, len)?;
    let link = Link { far, rank };
    link.connect(false)?;
    Ok((words, Some(link)))
}

/// The launcher's memory, on its host.
fn memory(far: &Far) -> io::Result<File> {
    let (process, fd) = far.memory;
    let path = format!("/proc/{process}/fd/{fd}");
    let file = File::options().read(true).write(true).open(path)?;
    let status = nix::sys::stat::fstat(&file)?;
    // Process and descriptor may be others: on another host, or in another space of processes.
    let same = (status.st_dev, status.st_ino) == far.file;
    same.then_some(file).ok_or_else(|| io::Error::other("another file"))
}

impl Link {
    /// Connects, and answers to looks at the clock. Allocates nothing: a signal handler may call.
    fn connect(&self, slot: bool) -> io::Result<TcpStream> {
        let mut failed = io::Error::other("the launcher has no address");
        for address in &self.far.addresses {
            let stream = TcpStream::connect_timeout(address, deadlines::TRACE_CONNECT.limit);
            match stream.and_then(|stream| self.greet(stream, slot)) {
                Ok(stream) => return Ok(stream),
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }

    fn greet(&self, mut stream: TcpStream, slot: bool) -> io::Result<TcpStream> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(deadlines::TRACE_STEP.limit))?;
        stream.set_write_timeout(Some(deadlines::TRACE_STEP.limit))?;
        stream.write_all(&greeting(&self.far.key, self.rank, slot))?;
        loop {
            let mut word = [0];
            stream.read_exact(&mut word)?;
            match word[0] {
                LOOK => stream.write_all(&monotonic().to_le_bytes())?,
                GO => return Ok(stream),
                _ => return Err(io::ErrorKind::InvalidData.into()),
            }
        }
    }

    /// Leaves the first bytes of the slot at the launcher.
    pub(super) fn leave(&self, words: &[AtomicU64], used: u64) -> io::Result<()> {
        let mut stream = self.connect(true)?;
        let words = words.get(..usize::try_from(used / 8).unwrap_or(0)).unwrap_or(words);
        stream.write_all(&(words.len() as u64 * 8).to_le_bytes())?;
        for piece in words.chunks(PIECE / 8) {
            let mut bytes = [0; PIECE];
            for (to, from) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(piece) {
                *to = from.load(Ordering::Relaxed).to_ne_bytes();
            }
            stream.write_all(bytes.get(..piece.len() * 8).unwrap_or(&bytes))?;
        }
        let mut word = [0];
        stream.read_exact(&mut word)
    }

    /// For a message to people.
    pub(super) fn launcher(&self) -> String {
        let addresses = self.far.addresses.iter().map(ToString::to_string);
        addresses.collect::<Vec<_>>().join(", ")
    }
}
