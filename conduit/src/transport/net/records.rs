//! Records of exchanges between ranks: all of an exchange are of one length.

use bootstrap::Rank;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::error::Error;

/// A record of `len` bytes, padded with zeros.
pub(super) fn write(record: &impl Serialize, len: usize) -> Result<Vec<u8>, Error> {
    let mut bytes = vec![0; len];
    match postcard::to_slice(record, &mut bytes) {
        Ok(_) => Ok(bytes),
        Err(error) => Err(Error::Os {
            operation: "write what this rank tells all others",
            source: std::io::Error::other(error),
        }),
    }
}

/// What [`write()`] wrote; `None` for most other bytes.
pub(super) fn read<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    postcard::take_from_bytes(bytes).ok().map(|(record, _)| record)
}

/// A rank whose record cannot be read.
pub(super) fn unknown(rank: Rank) -> Error {
    let problem =
        "greets in words that this rank does not know; use one build of the library on all hosts";
    Error::Mismatch { rank, problem: problem.to_owned() }
}
