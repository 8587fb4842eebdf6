//! A program that is being received. Until it is complete and its hash is right it has no name that
//! anybody runs.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use super::cache::{Cache, CacheError, file};
use super::digest::Digest;
use super::offer::Program;

/// See the module. Dropped before it is finished, it leaves nothing.
#[derive(Debug)]
pub(crate) struct Incoming {
    part: PathBuf,
    /// What came so far, which nobody has checked.
    pub(super) file: File,
    hash: Sha256,
    pub(super) left: u64,
    finished: bool,
}

impl Incoming {
    /// A file in the directory of the job, which is made.
    pub(crate) fn new(
        cache: &Cache,
        directory: &Path,
        program: &Program,
    ) -> Result<Self, CacheError> {
        cache.make_job_directory(directory)?;
        let part = directory.join(".part");
        let made =
            OpenOptions::new().read(true).write(true).create_new(true).mode(0o700).open(&part);
        let made = made.map_err(file("make a file in", &cache.root))?;
        let (hash, left) = (Sha256::new(), program.offer.size);
        Ok(Self { part, file: made, hash, left, finished: false })
    }

    /// The next piece; whether it was the last.
    pub(crate) fn take(&mut self, cache: &Cache, bytes: &[u8]) -> Result<bool, CacheError> {
        // More than was announced is something else.
        self.left = self.left.checked_sub(bytes.len() as u64).ok_or(CacheError::Differs)?;
        self.file.write_all(bytes).map_err(file("write the program into", &cache.root))?;
        self.hash.update(bytes);
        Ok(self.left == 0)
    }

    /// Checks what came and gives it its place in the cache.
    pub(crate) fn finish(
        mut self,
        cache: &Cache,
        program: &Program,
    ) -> Result<PathBuf, CacheError> {
        if Digest::from(std::mem::take(&mut self.hash)) != program.digest {
            return Err(CacheError::Differs);
        }
        let to = cache.path(&program.digest);
        let mode = std::fs::Permissions::from_mode(0o700);
        self.file.set_permissions(mode).map_err(file("make a file executable in", &cache.root))?;
        std::fs::rename(&self.part, &to).map_err(file("rename a file in", &cache.root))?;
        self.finished = true;
        Ok(to)
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        if !self.finished {
            let _ = std::fs::remove_file(&self.part);
        }
    }
}
