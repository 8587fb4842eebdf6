//! SHA-256, because the script that receives an agent checks it with `sha256sum`.

use std::fmt::Write;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Digest([u8; 32]);

impl Digest {
    /// Hash and length of a file.
    pub(crate) fn of(path: &Path) -> std::io::Result<(Self, u64)> {
        let mut file = File::open(path)?;
        let (mut hash, mut size, mut buffer) = (Sha256::new(), 0, vec![0; 32 * 1024]);
        loop {
            match file.read(&mut buffer) {
                Ok(0) => return Ok((hash.into(), size)),
                Ok(count) => {
                    hash.update(&buffer[..count]);
                    size += count as u64;
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// As `sha256sum` writes it.
    pub(crate) fn hex(&self) -> String {
        self.0.iter().fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
    }
}

impl From<Sha256> for Digest {
    fn from(hash: Sha256) -> Self {
        Self(hash.finalize().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_that_everybody_knows() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("abc");
        std::fs::write(&path, "abc").unwrap();
        let (digest, size) = Digest::of(&path).unwrap();
        let known = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!((digest.hex().as_str(), size), (known, 3));
        assert!(Digest::of(directory.path()).is_err(), "a directory has no content");
    }
}
