//! What one TCP connection of two processes reaches without a library: the reference of the software
//! adapter. Both sides call the same function; `first` sends first and gets the figure, the other
//! one gets 0.

use std::hint::black_box;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use crate::arena::Result;
use crate::timing::{megabytes_per_second, thousands_per_second, typical};

/// Bytes of a message of a ping-pong or of a flood of small ones: about what a Short without
/// arguments takes on the wire of the software adapter.
pub const SMALL: usize = 32;

/// Bytes that a reader of small messages takes at once, at most.
const BATCH: usize = 64 << 10;

/// How a side waits for bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// In a read that sleeps in the system.
    Asleep,
    /// By reads that ask again and again.
    Awake,
}

impl Wait {
    fn read(self, stream: &mut TcpStream, into: &mut [u8]) -> std::io::Result<()> {
        if self == Self::Asleep {
            return stream.read_exact(into);
        }
        let mut filled = 0;
        while filled < into.len() {
            match stream.read(&mut into[filled..]) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(got) => filled += got,
                Err(error) if error.kind() == ErrorKind::WouldBlock => std::hint::spin_loop(),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Microseconds of a round trip of [`SMALL`] bytes, the median of `count`.
///
/// # Errors
/// Those of the connection.
pub fn trips(stream: &mut TcpStream, first: bool, count: usize, wait: Wait) -> Result<f64> {
    let mut message = [1_u8; SMALL];
    stream.set_nonblocking(wait == Wait::Awake)?;
    let value = if first {
        typical(count, || {
            stream.write_all(black_box(&message))?;
            Ok(wait.read(stream, &mut message)?)
        })?
    } else {
        for _ in 0..count {
            wait.read(stream, &mut message)?;
            stream.write_all(&message)?;
        }
        0.0
    };
    stream.set_nonblocking(false)?;
    Ok(value)
}

/// Thousands of sends of [`SMALL`] bytes in a second; the other side reads what is there.
///
/// # Errors
/// Those of the connection.
pub fn sends(stream: &mut TcpStream, first: bool, count: usize) -> Result<f64> {
    if first {
        let begin = Instant::now();
        for _ in 0..count {
            stream.write_all(black_box(&[1_u8; SMALL]))?;
        }
        stream.read_exact(&mut [0])?;
        return Ok(thousands_per_second(begin, count));
    }
    let (mut into, mut left) = (vec![0; BATCH], count * SMALL);
    while left > 0 {
        let most = into.len().min(left);
        match stream.read(&mut into[..most])? {
            0 => return Err("the sender has gone".into()),
            got => left -= got,
        }
    }
    stream.write_all(&[1])?;
    Ok(0.0)
}

/// Million bytes per second of `count` writes of `block`, each read as a whole. The reader fills
/// `places` buffers in turn and hands each to `take`.
///
/// # Errors
/// Those of the connection.
pub fn flood(
    stream: &mut TcpStream,
    first: bool,
    (block, count): (&[u8], usize),
    (places, take): (usize, fn(&[u8]) -> u64),
) -> Result<f64> {
    if first {
        let begin = Instant::now();
        for _ in 0..count {
            stream.write_all(black_box(block))?;
        }
        stream.read_exact(&mut [0])?;
        return Ok(megabytes_per_second(begin, block.len() * count));
    }
    let mut into = vec![0; block.len() * places];
    for number in 0..count {
        let place = &mut into[number % places * block.len()..][..block.len()];
        stream.read_exact(place)?;
        black_box(take(black_box(place)));
    }
    stream.write_all(&[1])?;
    Ok(0.0)
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};
    use std::thread;

    use super::*;

    /// Both sides of one measure, each in a thread; the figure.
    fn both(measure: fn(&mut TcpStream, bool) -> Result<f64>) -> f64 {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let other = thread::spawn(move || {
            let mut stream = TcpStream::connect(address).unwrap();
            measure(&mut stream, false).unwrap()
        });
        let value = measure(&mut listener.accept().unwrap().0, true).unwrap();
        assert!(other.join().unwrap().abs() < f64::EPSILON, "the side that answers has no figure");
        value
    }

    #[test]
    fn every_measure_ends_and_has_a_figure() {
        assert!(both(|stream, first| trips(stream, first, 20, Wait::Asleep)) > 0.0);
        assert!(both(|stream, first| trips(stream, first, 20, Wait::Awake)) > 0.0);
        assert!(both(|stream, first| sends(stream, first, 1000)) > 0.0);
    }

    #[test]
    fn each_block_of_a_flood_is_handed_over_as_a_whole() {
        // Checked by the reader: a sum that is wrong ends its thread.
        fn sum(bytes: &[u8]) -> u64 {
            let sum = bytes.iter().map(|byte| u64::from(*byte)).sum();
            assert_eq!(sum, 300_000, "of {} bytes", bytes.len());
            sum
        }
        let value = both(|stream, first| flood(stream, first, (&vec![3; 100_000], 5), (2, sum)));
        assert!(value > 0.0, "{value}");
    }

    #[test]
    fn a_sender_that_has_gone_is_an_error() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        drop(TcpStream::connect(listener.local_addr().unwrap()).unwrap());
        let mut stream = listener.accept().unwrap().0;
        let error = sends(&mut stream, false, 1).unwrap_err();
        assert_eq!(error.to_string(), "the sender has gone");
    }
}
