//! A stream of a queue pair: plain, or in records that are encrypted.
//!
//! Both speak in bytes of text: who writes hears how many are on their way, who reads gets them in
//! order. A plain stream costs one branch more than the socket. Bytes of an encrypted stream count as
//! written when the socket has all of their records; until then the writer comes again with the same
//! bytes, as for a socket that took fewer than it was given.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Mutex;

use super::limits::{RAW_LARGE, RAW_SMALL, SEAL_AT_ONCE};
use super::lock::{Wait, try_lock_for};
use super::memory::{Gather, Scatter, receive_bytes, without_waiting};
use super::record::{HEAD, MAX_RECORD, MAX_TEXT, Opener, Sealer, Secret, TAG, Tampered};

// A record that is not all there leaves room for the rest of it.
const _: () = assert!(RAW_LARGE > MAX_RECORD);

/// What came from a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Received {
    /// Bytes that went into their place.
    pub(super) placed: usize,
    /// Bytes that went into the buffer.
    pub(super) buffered: usize,
    /// There was less than was asked for: nothing more is there.
    pub(super) dry: bool,
}

impl Received {
    const fn of(count: usize, direct: usize, dry: bool) -> Self {
        let placed = if count < direct { count } else { direct };
        Self { placed, buffered: count - placed, dry }
    }
}

/// A stream after its handshake.
#[derive(Debug)]
pub(super) struct Stream {
    tcp: TcpStream,
    secure: Option<Box<Secure>>,
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.tcp.as_fd()
    }
}

impl Stream {
    pub(super) const fn plain(tcp: TcpStream) -> Self {
        Self { tcp, secure: None }
    }

    /// Encrypted; `own`: what this side writes with, `theirs`: what the peer does.
    pub(super) fn encrypted(tcp: TcpStream, own: &Secret, theirs: &Secret) -> Self {
        let outgoing =
            Outgoing { sealer: Sealer::new(own), bytes: Vec::new(), written: 0, text: 0 };
        let incoming =
            Incoming { opener: Opener::new(theirs), raw: Vec::new(), filled: 0, at: 0, text: 0 };
        let secure = Secure { outgoing: Mutex::new(outgoing), incoming: Mutex::new(incoming) };
        Self { tcp, secure: Some(Box::new(secure)) }
    }

    /// For what concerns the socket, not its bytes.
    pub(super) const fn tcp(&self) -> &TcpStream {
        &self.tcp
    }

    pub(super) fn peer(&self) -> Option<SocketAddr> {
        self.tcp.peer_addr().ok()
    }

    /// Writes what the stream takes; `None`: nothing now.
    pub(super) fn send(&self, data: &mut Gather<'_>) -> io::Result<Option<usize>> {
        match &self.secure {
            None => data.send(self.tcp.as_fd()),
            Some(secure) => secure.send(&self.tcp, data),
        }
    }

    /// Whether bytes were taken that do not count as written: the writer has to come again with
    /// them.
    pub(super) fn is_committed(&self) -> bool {
        self.secure.as_ref().is_some_and(|secure| secure.is_committed())
    }

    /// Reads what is there: first into `place`, if there is one, then into the buffer. `None`:
    /// nothing now.
    pub(super) fn receive(
        &self,
        place: Option<Scatter<'_>>,
        buffer: &mut [u8],
    ) -> io::Result<Option<Received>> {
        if let Some(secure) = &self.secure {
            return secure.receive(&self.tcp, place, buffer);
        }
        let (direct, asked, count) = match place {
            None => (0, buffer.len(), receive_bytes(self.tcp.as_fd(), buffer)?),
            Some(mut into) => {
                let direct = into.total();
                into.buffer(buffer);
                (direct, into.total(), into.receive(self.tcp.as_fd())?)
            }
        };
        match count {
            None => Ok(None),
            Some(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Some(count) => Ok(Some(Received::of(count, direct, count < asked))),
        }
    }
}

/// Why an error of a stream is not the socket's: somebody changed what goes over it.
pub(super) fn tampering(error: &io::Error) -> Option<Tampered> {
    error.get_ref()?.downcast_ref::<Tampered>().copied()
}

/// Both directions of an encrypted stream. Each is used by one thread at a time (who holds the send
/// queue, or drives the device's streams), so no lock is ever waited for.
#[derive(Debug)]
struct Secure {
    outgoing: Mutex<Outgoing>,
    incoming: Mutex<Incoming>,
}

impl Secure {
    fn send(&self, tcp: &TcpStream, data: &Gather<'_>) -> io::Result<Option<usize>> {
        let Some(mut outgoing) = try_lock_for(&self.outgoing, Wait::No) else { return Ok(None) };
        outgoing.send(tcp, data)
    }

    fn is_committed(&self) -> bool {
        try_lock_for(&self.outgoing, Wait::No).is_none_or(|outgoing| !outgoing.bytes.is_empty())
    }

    fn receive(
        &self,
        tcp: &TcpStream,
        place: Option<Scatter<'_>>,
        buffer: &mut [u8],
    ) -> io::Result<Option<Received>> {
        let Some(mut incoming) = try_lock_for(&self.incoming, Wait::No) else { return Ok(None) };
        let direct = place.as_ref().map_or(0, Scatter::total);
        let target = Target { place, direct, buffer, got: 0 };
        incoming.receive(tcp, target)
    }
}

#[derive(Debug)]
struct Outgoing {
    sealer: Sealer,
    /// Records that the socket has not taken whole, how much of them it has, and how many bytes of
    /// text they are.
    bytes: Vec<u8>,
    written: usize,
    text: usize,
}

impl Outgoing {
    fn send(&mut self, mut tcp: &TcpStream, data: &Gather<'_>) -> io::Result<Option<usize>> {
        let total = data.total();
        let mut done = 0;
        loop {
            while let Some(rest) = self.bytes.get(self.written..).filter(|rest| !rest.is_empty()) {
                match without_waiting(|| tcp.write(rest))? {
                    Some(count) => self.written += count,
                    None => return Ok((done != 0).then_some(done)),
                }
            }
            done += self.text;
            (self.written, self.text) = (0, 0);
            self.bytes.clear();
            self.bytes.shrink_to(RAW_SMALL);
            if done == total {
                return Ok((done != 0).then_some(done));
            }
            self.seal(data, done)?;
        }
    }

    /// Makes the next records.
    fn seal(&mut self, data: &Gather<'_>, mut from: usize) -> io::Result<()> {
        let total = data.total();
        // Records under way are of bytes that the writer has withdrawn.
        let withdrawn = || io::Error::other("fewer bytes than were begun");
        while from < total && self.text < SEAL_AT_ONCE {
            let len = (total - from).min(MAX_TEXT);
            let fill = |place: &mut [u8]| data.copy(from, place) == len;
            self.sealer.seal(len, &mut self.bytes, fill).ok_or_else(withdrawn)?;
            self.text += len;
            from += len;
        }
        if from > total { Err(withdrawn()) } else { Ok(()) }
    }
}

/// Where text goes.
struct Target<'a, 'b> {
    place: Option<Scatter<'a>>,
    direct: usize,
    buffer: &'b mut [u8],
    got: usize,
}

impl Target<'_, '_> {
    const fn asked(&self) -> usize {
        self.direct + self.buffer.len()
    }

    /// Takes text; how much of it.
    fn take(&mut self, text: &[u8]) -> usize {
        let placed = match &self.place {
            Some(place) if self.got < self.direct => place.fill(self.got, text),
            _ => 0,
        };
        let rest = text.get(placed..).unwrap_or_default();
        let from = (self.got + placed).saturating_sub(self.direct);
        let room = self.buffer.get_mut(from..).unwrap_or_default();
        let count = room.len().min(rest.len());
        if let (Some(into), Some(rest)) = (room.get_mut(..count), rest.get(..count)) {
            into.copy_from_slice(rest);
        }
        self.got += placed + count;
        placed + count
    }
}

#[derive(Debug)]
struct Incoming {
    opener: Opener,
    /// Bytes of the socket, as many as were read, and the first that was not used.
    raw: Vec<u8>,
    filled: usize,
    at: usize,
    /// Bytes of the open record's text that were not taken yet; they begin at `at`.
    text: usize,
}

impl Incoming {
    fn receive(
        &mut self,
        mut tcp: &TcpStream,
        mut target: Target<'_, '_>,
    ) -> io::Result<Option<Received>> {
        let mut dry = false;
        loop {
            self.give(&mut target)?;
            let Target { got, direct, .. } = target;
            if got == target.asked() {
                return Ok(Some(Received::of(got, direct, false)));
            }
            self.make_room();
            if dry {
                return Ok((got != 0).then_some(Received::of(got, direct, true)));
            }
            let room = self.raw.get_mut(self.filled..).unwrap_or_default();
            let wanted = room.len();
            match without_waiting(|| tcp.read(room))? {
                None => dry = true,
                // What came before the end is read first.
                Some(0) if got != 0 => return Ok(Some(Received::of(got, direct, false))),
                Some(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Some(count) => {
                    self.filled += count;
                    dry = count < wanted;
                }
            }
        }
    }

    /// Gives the text that is there, record after record.
    fn give(&mut self, target: &mut Target<'_, '_>) -> io::Result<()> {
        loop {
            if self.text != 0 {
                let text = self.raw.get(self.at..self.at + self.text).unwrap_or_default();
                let count = target.take(text);
                self.at += count;
                self.text -= count;
                if self.text != 0 {
                    return Ok(());
                }
                self.at += TAG;
            }
            let record = self.raw.get_mut(self.at..self.filled).unwrap_or_default();
            let opened = self.opener.open(record);
            match opened.map_err(|why| io::Error::new(io::ErrorKind::InvalidData, why))? {
                None => return Ok(()),
                Some(len) => {
                    self.at += HEAD;
                    self.text = len;
                }
            }
        }
    }

    /// Room for more bytes of the socket: little until it was filled once, and little again when all
    /// is used.
    fn make_room(&mut self) {
        let left = self.filled - self.at;
        let was_filled = self.filled == self.raw.len();
        self.raw.copy_within(self.at..self.filled, 0);
        (self.at, self.filled) = (0, left);
        if self.raw.is_empty() || left == 0 && !was_filled {
            self.raw.resize(RAW_SMALL, 0);
            self.raw.shrink_to(RAW_SMALL);
        } else if was_filled && self.raw.len() < RAW_LARGE {
            self.raw.resize(RAW_LARGE, 0);
        }
    }
}
