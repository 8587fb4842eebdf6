//! Where ranks that another launcher starts leave their slots: on the launcher's host in its memory,
//! from other hosts over a connection to it.
//!
//! A rank greets ([`greeting`]); the launcher looks at its clock a few times ([`LOOK`], answered by
//! 8 bytes), then says [`GO`]. That was all of the first connection, which a rank makes when it
//! begins. On the second, when it ends, follow the length of what is used of its slot (8 bytes) and
//! that, and the launcher's [`GO`] again. Numbers are little-endian.

use std::fmt::Write as _;
use std::net::SocketAddr;

/// Bytes of the key of a job.
pub const KEY: usize = 16;
/// The launcher asks for the time.
pub const LOOK: u8 = b'?';
/// The launcher is done.
pub const GO: u8 = b'.';
/// Bytes of a greeting.
pub const GREETING: usize = MAGIC.len() + KEY + 5;

const MAGIC: [u8; 4] = *b"gxt1";
/// Addresses of the launcher at most.
const MOST_ADDRESSES: usize = 16;

/// All that a rank needs to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Far {
    /// The launcher's process and its descriptor of the memory, which has a slot for every rank.
    pub memory: (u32, i32),
    /// Device and inode of that, so that nothing else is taken for it.
    pub file: (u64, u64),
    /// Records per slot.
    pub capacity: u64,
    /// Whether events are recorded, whether things are counted.
    pub wants: (bool, bool),
    /// Proves that a rank is of the job.
    pub key: [u8; KEY],
    /// Where the launcher listens.
    pub addresses: Vec<SocketAddr>,
}

impl Far {
    /// As text, for the environment: words between slashes, which no launcher gives a meaning.
    #[must_use]
    pub fn text(&self) -> String {
        let Self { memory: (process, fd), file: (device, inode), capacity, .. } = self;
        let [trace, stats] = [self.wants.0, self.wants.1].map(u8::from);
        let mut text = format!("far/{process}/{fd}/{device}/{inode}/{capacity}/{trace}/{stats}/");
        for byte in self.key {
            let _ = write!(text, "{byte:02x}");
        }
        for address in &self.addresses {
            let _ = write!(text, "/{address}");
        }
        text
    }

    /// Reads [`Far::text`].
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let mut words = text.split('/');
        if words.next()? != "far" {
            return None;
        }
        let mut number = || words.next()?.parse::<u64>().ok();
        let (process, fd, device, inode) = (number()?, number()?, number()?, number()?);
        let (capacity, trace, stats) = (number()?, number()?, number()?);
        let key = key_of(words.next()?)?;
        let addresses = words.map(|word| word.parse().ok()).take(MOST_ADDRESSES);
        Some(Self {
            memory: (process.try_into().ok()?, fd.try_into().ok()?),
            file: (device, inode),
            capacity: super::fits(capacity).then_some(capacity)?,
            wants: (trace != 0, stats != 0),
            key,
            addresses: addresses.collect::<Option<_>>()?,
        })
    }
}

fn key_of(text: &str) -> Option<[u8; KEY]> {
    let mut key = [0; KEY];
    if text.len() != 2 * KEY || !text.is_ascii() {
        return None;
    }
    for (at, byte) in key.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(key)
}

/// The first bytes of a rank. `slot`: its slot follows.
#[must_use]
pub fn greeting(key: &[u8; KEY], rank: u32, slot: bool) -> [u8; GREETING] {
    let mut bytes = [0; GREETING];
    let parts = MAGIC.iter().chain(key).copied();
    let parts = parts.chain(rank.to_le_bytes()).chain([u8::from(slot)]);
    bytes.iter_mut().zip(parts).for_each(|(to, from)| *to = from);
    bytes
}

/// The rank of a greeting, and whether its slot follows; `None` for one that is of no rank of the
/// job.
#[must_use]
pub fn greeted(bytes: &[u8; GREETING], key: &[u8; KEY]) -> Option<(u32, bool)> {
    let rank = u32::from_le_bytes(bytes[GREETING - 5..GREETING - 1].try_into().ok()?);
    let slot = bytes[GREETING - 1] == 1;
    let expected = greeting(key, rank, slot);
    // All bytes are looked at, wherever the first wrong one is.
    let wrong = expected.iter().zip(bytes).fold(0, |wrong, (one, other)| wrong | (one ^ other));
    (wrong == 0).then_some((rank, slot))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn far() -> Far {
        Far {
            memory: (4711, 9),
            file: (1, u64::MAX),
            capacity: 64,
            wants: (true, false),
            key: std::array::from_fn(|at| u8::try_from(17 * at % 256).expect("a byte")),
            addresses: vec!["10.0.0.1:99".parse().unwrap(), "[fe80::1]:7".parse().unwrap()],
        }
    }

    #[test]
    fn what_a_rank_is_told_survives_the_environment() {
        let text = far().text();
        assert_eq!(Far::read(&text), Some(far()), "{text}");
        assert!(super::super::Place::read(&text).is_none());
        for bad in ["", "far", "3 64 1 0", "far/1/2/3/4/63/1/1/00", &text[..text.len() - 1]] {
            assert_eq!(Far::read(bad), None, "{bad}");
        }
        assert_eq!(Far::read(&text.replace("4711", "-1")), None);
    }

    #[test]
    fn greetings_of_others_are_refused() {
        let key = far().key;
        for slot in [false, true] {
            let hello = greeting(&key, 70_000, slot);
            assert_eq!(greeted(&hello, &key), Some((70_000, slot)));
            for at in 0..GREETING {
                let mut changed = hello;
                changed[at] ^= 4;
                let of_rank = (MAGIC.len() + KEY..GREETING - 1).contains(&at);
                assert_eq!(greeted(&changed, &key).is_some(), of_rank, "byte {at}");
            }
        }
    }
}
