//! Data of any length under names in the process manager's key-value space, in chunks.
//!
//! Keys are `GRI`, a message for the use, a number that is used once, a dot and the chunk: no other
//! library's keys look like that, and no key is put twice in a job.
//!
//! Values are base64 of the alphabet for file names without padding: servers cut values at blanks,
//! `;`, and one byte before their own limit. The first chunk starts with the number of chunks and a
//! dot, so a reader needs no length from elsewhere.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bootstrap::frame::MAX_TOTAL;
use bootstrap::service::{Error, Rank};

use super::manager::{JobInfo, ProcessManager, ProcessManagerError};

/// Bytes below a server's limit that are not used: one for the cut, the rest for those who count
/// quotes and ends.
const SLACK: usize = 8;
/// Least and most useful length of a value.
const LENGTHS: std::ops::RangeInclusive<usize> = 32..=32 * 1024;
/// Most chunks of one datum; more is nonsense (see [`bootstrap::frame::MAX_TOTAL`]).
const MAX_CHUNKS: usize = 1 << 26;

/// Characters of one value within the server's limit; `None` when that is too little.
#[must_use]
pub fn usable(limit: usize) -> Option<usize> {
    let usable = limit.checked_sub(SLACK)?.min(*LENGTHS.end());
    (usable >= *LENGTHS.start()).then_some(usable)
}

/// The values that carry `bytes`, each of at most `usable` characters; at least one.
#[must_use]
pub fn encode(bytes: &[u8], usable: usize) -> Vec<String> {
    let text = URL_SAFE_NO_PAD.encode(bytes);
    // The head takes at most 9 characters.
    let (first, rest) = text.split_at(text.len().min(usable.saturating_sub(9)));
    let rest: Vec<&str> = rest
        .as_bytes()
        .chunks(usable.max(1))
        .map(|chunk| std::str::from_utf8(chunk).unwrap_or_default())
        .collect();
    let head = format!("{}.{first}", rest.len() + 1);
    std::iter::once(head).chain(rest.into_iter().map(str::to_owned)).collect()
}

/// Splits the first value: how many values there are, and its share of the text.
///
/// # Errors
/// Not a first value.
pub fn head(value: &str) -> Result<(usize, &str), String> {
    let parsed = value.split_once('.').and_then(|(count, text)| Some((count.parse().ok()?, text)));
    match parsed {
        Some((count, text)) if (1..=MAX_CHUNKS).contains(&count) => Ok((count, text)),
        _ => Err("does not start with a number of chunks".to_owned()),
    }
}

/// The bytes of the whole text.
///
/// # Errors
/// A character that cannot be, or a length that cannot be.
pub fn decode(text: &str) -> Result<Vec<u8>, String> {
    URL_SAFE_NO_PAD.decode(text).map_err(|error| error.to_string())
}

/// Names of one job's data.
pub(super) struct KeyValueSpace {
    info: JobInfo,
    usable: usize,
}

impl KeyValueSpace {
    pub(super) fn new(manager: &dyn ProcessManager) -> Self {
        let info = manager.job_info().clone();
        // The process managers refuse limits that are of no use when they connect.
        let usable = usable(info.value_limit).unwrap_or(32);
        Self { info, usable }
    }

    fn key(stem: &str, chunk: usize) -> String {
        format!("GRI{stem}.{chunk}")
    }

    pub(super) fn broken(&self, stem: &str, from: Rank, problem: String) -> Error {
        let (manager, key) = (self.info.manager, Self::key(stem, 0));
        ProcessManagerError::Value { manager, key, from, problem }.into()
    }

    /// Puts `bytes` as the datum of `purpose` and `number`; it can be read after the next fence.
    pub(super) fn publish(
        &self,
        manager: &mut dyn ProcessManager,
        purpose: &str,
        number: u32,
        bytes: &[u8],
    ) -> Result<(), Error> {
        let stem = format!("{purpose}{number}");
        for (chunk, value) in encode(bytes, self.usable).iter().enumerate() {
            manager.put(&Self::key(&stem, chunk), value)?;
        }
        Ok(())
    }

    /// The datum that `from` published under its own number.
    pub(super) fn read(
        &self,
        manager: &mut dyn ProcessManager,
        purpose: &str,
        from: Rank,
    ) -> Result<Vec<u8>, Error> {
        let stem = format!("{purpose}{from}");
        let first = manager.get(from, &Self::key(&stem, 0))?;
        let broken = |problem| self.broken(&stem, from, problem);
        let (count, text) = head(&first).map_err(broken)?;
        let mut text = text.to_owned();
        for chunk in 1..count {
            text.push_str(&manager.get(from, &Self::key(&stem, chunk))?);
            if text.len() / 4 * 3 > 2 * MAX_TOTAL {
                return Err(broken(format!("more than {} bytes", 2 * MAX_TOTAL)));
            }
        }
        decode(&text).map_err(broken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn join(values: &[String]) -> Vec<u8> {
        let (count, first) = head(&values[0]).unwrap();
        assert_eq!(count, values.len());
        decode(
            &std::iter::once(first)
                .chain(values[1..].iter().map(String::as_str))
                .collect::<String>(),
        )
        .unwrap()
    }

    #[test]
    fn limits() {
        assert_eq!(usable(1024), Some(1016));
        assert_eq!(usable(1 << 20), Some(32 * 1024));
        assert_eq!((usable(20), usable(0), usable(39)), (None, None, None));
        assert_eq!(usable(40), Some(32));
    }

    #[test]
    fn bad_values() {
        for value in ["", "x", "0.", "-1.a", "99999999999999999999.a", ".a"] {
            assert!(head(value).is_err(), "{value}");
        }
        assert!(decode("a b").is_err() && decode("a").is_err());
    }

    proptest! {
        #[test]
        fn round_trip(bytes in prop::collection::vec(any::<u8>(), 0..5000), usable in 32usize..2000) {
            let values = encode(&bytes, usable);
            prop_assert!(values.iter().all(|v| !v.is_empty() && v.len() <= usable));
            let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
            prop_assert!(values.iter().all(|v| v.chars().all(plain)));
            prop_assert_eq!(join(&values), bytes);
        }
    }
}
