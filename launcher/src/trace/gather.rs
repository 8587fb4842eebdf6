//! Slots of ranks that another launcher starts (`bootstrap::trace::far`): those on this host write
//! into the memory, those on others leave theirs over a connection, to a thread of this process.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use bootstrap::trace::far::{Far, GO, GREETING, KEY, LOOK, greeted};
use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;
use nix::poll::{PollFd, PollFlags, PollTimeout};
use settings::deadlines::{bootstrap as deadlines, launcher::GATHER_SLICE};
use supervisor::trace::{ClockSample, Memory, monotonic};

/// Looks at the clock of a rank when it greets.
const LOOKS: u32 = 8;
/// Bytes that are taken at a time.
const PIECE: usize = 64 * 1024;

/// Who listens for the ranks.
#[derive(Debug)]
pub struct Gather {
    memory: Memory,
    far: Far,
    listener: TcpListener,
}

/// The thread that gathers.
#[derive(Debug)]
pub(super) struct Gathering {
    thread: JoinHandle<Vec<ClockSample>>,
    over: Arc<AtomicBool>,
}

/// Number of a rank's host, as far as its clock goes: 0 is this one.
pub(super) const fn clock_of(rank: u32) -> u32 {
    rank.saturating_add(1)
}

impl Gather {
    /// Listens on a port of this host. One thread still: it gathers from the start of the job on.
    ///
    /// # Errors
    /// No port, no random numbers, or the memory cannot be named.
    pub fn open(memory: Memory) -> io::Result<Self> {
        let listener =
            TcpListener::bind(("::", 0)).or_else(|_| TcpListener::bind(("0.0.0.0", 0)))?;
        listener.set_nonblocking(true)?;
        let (fd, file) = memory.place()?;
        let mut key = [0; KEY];
        File::open("/dev/urandom")?.read_exact(&mut key)?;
        let wanted = memory.wanted;
        let far = Far {
            memory: (std::process::id(), fd),
            file,
            capacity: wanted.capacity,
            wants: (wanted.events, wanted.counts),
            key,
            addresses: addresses(listener.local_addr()?.port()),
        };
        Ok(Self { memory, far, listener })
    }

    /// What ranks are told.
    #[must_use]
    pub fn text(&self) -> String {
        self.far.text()
    }

    /// The memory of all ranks.
    #[must_use]
    pub const fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Gathers from now on.
    pub(super) fn start(self) -> io::Result<Gathering> {
        let over = Arc::new(AtomicBool::new(false));
        let thread = {
            let over = Arc::clone(&over);
            let builder = std::thread::Builder::new().name("gather".to_owned());
            builder.spawn(move || self.gather(&over))?
        };
        Ok(Gathering { thread, over })
    }

    fn gather(&self, over: &AtomicBool) -> Vec<ClockSample> {
        let mut samples = Vec::new();
        let slice = PollTimeout::try_from(GATHER_SLICE.limit).unwrap_or(PollTimeout::ZERO);
        loop {
            match self.listener.accept() {
                // A rank that fails on the way has left nothing, and that is said for all of those.
                Ok((stream, _)) => {
                    let _ = self.serve(stream, &mut samples);
                }
                Err(_) if over.load(Ordering::SeqCst) => return samples,
                Err(_) => {
                    let mut list = [PollFd::new(self.listener.as_fd(), PollFlags::POLLIN)];
                    let _ = nix::poll::poll(&mut list, slice);
                }
            }
        }
    }

    fn serve(&self, mut stream: TcpStream, samples: &mut Vec<ClockSample>) -> io::Result<()> {
        stream.set_nonblocking(false)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(deadlines::TRACE_STEP.limit))?;
        stream.set_write_timeout(Some(deadlines::TRACE_STEP.limit))?;
        let mut greeting = [0; GREETING];
        stream.read_exact(&mut greeting)?;
        let stranger = || io::Error::from(io::ErrorKind::InvalidData);
        let (rank, slot) = greeted(&greeting, &self.far.key).ok_or_else(stranger)?;
        for _ in 0..LOOKS {
            let sent = monotonic();
            stream.write_all(&[LOOK])?;
            let there = number(&mut stream)?;
            let received = monotonic();
            samples.push(ClockSample { host: clock_of(rank), sent, there, received });
        }
        stream.write_all(&[GO])?;
        if slot {
            self.take(rank, &mut stream)?;
            stream.write_all(&[GO])?;
        }
        Ok(())
    }

    /// Takes the bytes of a slot. More than fit, or for no slot, are an error.
    fn take(&self, rank: u32, stream: &mut TcpStream) -> io::Result<()> {
        let len = number(stream)?;
        let mut piece = vec![0; PIECE];
        let mut at = 0;
        while at < len {
            let size = usize::try_from(len - at).unwrap_or(PIECE).min(PIECE);
            let piece = piece.get_mut(..size).unwrap_or_default();
            stream.read_exact(piece)?;
            if !self.memory.put(rank, at, piece) {
                return Err(io::ErrorKind::InvalidData.into());
            }
            at += size as u64;
        }
        Ok(())
    }
}

fn number(stream: &mut TcpStream) -> io::Result<u64> {
    let mut bytes = [0; 8];
    stream.read_exact(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

impl Gathering {
    /// All ranks are gone: what was learned of their clocks.
    pub(super) fn finish(self) -> Vec<ClockSample> {
        self.over.store(true, Ordering::SeqCst);
        self.thread.join().unwrap_or_default()
    }
}

/// Addresses of this host that others may reach, the loopback last: other hosts may be none.
fn addresses(port: u16) -> Vec<SocketAddr> {
    let of = |loopback: bool| {
        getifaddrs().into_iter().flatten().filter_map(move |one| {
            let flags = one.flags;
            if !flags.contains(InterfaceFlags::IFF_UP)
                || flags.contains(InterfaceFlags::IFF_LOOPBACK) != loopback
            {
                return None;
            }
            let address = one.address?;
            let v4 = address.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
            // Link-local addresses mean something only with an interface.
            let v6 = || address.as_sockaddr_in6().map(nix::sys::socket::SockaddrIn6::ip);
            let v6 = || v6().filter(|ip| !ip.is_unicast_link_local()).map(IpAddr::V6);
            v4.or_else(v6).map(|ip| SocketAddr::new(ip, port))
        })
    };
    of(false).chain(of(true)).take(8).collect()
}

#[cfg(test)]
mod tests {
    use bootstrap::trace::far::greeting;
    use bootstrap::trace::slot_len;
    use supervisor::trace::Wanted;

    use super::*;

    fn gather() -> (Gather, SocketAddr) {
        let wanted = Wanted { capacity: 0, events: false, counts: true };
        let gather = Gather::open(Memory::new(wanted, 3).unwrap()).unwrap();
        let port = gather.listener.local_addr().unwrap().port();
        (gather, SocketAddr::from(([127, 0, 0, 1], port)))
    }

    /// What a rank does; the launcher's last word.
    fn rank(at: SocketAddr, hello: &[u8], slot: &[u8]) -> io::Result<u8> {
        let mut stream = TcpStream::connect(at)?;
        stream.write_all(hello)?;
        let mut word = [0];
        loop {
            stream.read_exact(&mut word)?;
            match word[0] {
                LOOK => stream.write_all(&monotonic().to_le_bytes())?,
                _ => break,
            }
        }
        stream.write_all(&(slot.len() as u64).to_le_bytes())?;
        stream.write_all(slot)?;
        stream.read_exact(&mut word)?;
        Ok(word[0])
    }

    #[test]
    fn a_rank_leaves_its_slot_and_strangers_nothing() {
        let (gather, at) = gather();
        let (memory, key) = (gather.memory.clone(), gather.far.key);
        assert!(gather.far.addresses.iter().any(|one| one.ip() == at.ip()), "{:?}", gather.far);
        let gathering = gather.start().unwrap();
        let mut slot = vec![0; usize::try_from(slot_len(0)).unwrap()];
        slot[..8].copy_from_slice(&bootstrap::trace::MAGIC.to_ne_bytes());
        slot[100] = 7;
        assert_eq!(rank(at, &greeting(&key, 1, true), &slot).unwrap(), GO);
        assert!(rank(at, &greeting(&[3; KEY], 2, true), &slot).is_err(), "another job's key");
        assert!(rank(at, &greeting(&key, 7, true), &slot).is_err(), "no such rank");
        let long = vec![1; slot.len() + 1];
        assert!(rank(at, &greeting(&key, 0, true), &long).is_err(), "more than a slot");
        let samples = gathering.finish();
        assert_eq!(memory.read(1).unwrap(), slot);
        assert!(memory.read(2).unwrap().is_empty());
        let of_rank = samples.iter().filter(|sample| sample.host == clock_of(1));
        assert_eq!(of_rank.count(), LOOKS as usize);
    }
}
