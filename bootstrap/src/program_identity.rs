//! A number for what a program's file is: hosts whose files have different numbers have different
//! programs at that place.
//!
//! It is made of the build ID that linkers write (`NT_GNU_BUILD_ID`), so a copy without symbols is the
//! same program. A file without one is told by its size and by samples of what is in it. Either way
//! only a few pages are read, whatever the size. It is compared within one job and never kept.

use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::unix::fs::FileExt;

use object::read::ReadCache;
use object::{FileKind, Object};

/// Bytes of a sample.
const SAMPLE: usize = 4096;
/// Samples of a file, its first and last bytes among them.
const SAMPLES: u64 = 64;

/// The number of a program; never 0.
///
/// # Errors
/// The file cannot be read.
pub fn identity(file: &File) -> io::Result<u64> {
    let mut hasher = DefaultHasher::new();
    match build_id(file) {
        Some(id) => id.hash(&mut hasher),
        None => sample(file, &mut hasher)?,
    }
    Ok(hasher.finish().max(1))
}

fn build_id(file: &File) -> Option<Vec<u8>> {
    let data = ReadCache::new(file);
    // What is no ELF file, an archive for one, has none.
    if !matches!(FileKind::parse(&data).ok()?, FileKind::Elf32 | FileKind::Elf64) {
        return None;
    }
    let file = object::File::parse(&data).ok()?;
    file.build_id().ok()?.filter(|id| !id.is_empty()).map(<[u8]>::to_vec)
}

/// Samples at equal distances; a file that has no more is read as a whole.
fn sample(file: &File, hasher: &mut DefaultHasher) -> io::Result<()> {
    let size = file.metadata()?.len();
    size.hash(hasher);
    let last = size.saturating_sub(SAMPLE as u64);
    let distance = last.div_ceil(SAMPLES - 1).max(SAMPLE as u64);
    let mut bytes = [0; SAMPLE];
    for at in (0..SAMPLES).map(|index| index.saturating_mul(distance).min(last)) {
        let mut got = 0;
        while got < SAMPLE {
            match file.read_at(&mut bytes[got..], at + got as u64) {
                Ok(0) => break,
                Ok(count) => got += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        bytes[..got].hash(hasher);
        if at == last {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn of(bytes: &[u8]) -> u64 {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        identity(&file).unwrap()
    }

    #[test]
    fn a_file_without_a_build_id_is_told_by_its_content() {
        let large = vec![7; 1 << 20];
        assert_eq!(of(&large), of(&large));
        assert_ne!(of(&large), of(&large[1..]));
        for at in [0, SAMPLE - 1, large.len() - 1] {
            let mut other = large.clone();
            other[at] ^= 1;
            assert_ne!(of(&large), of(&other), "{at}");
        }
        // All of a file that samples cover.
        let small = vec![7; SAMPLE * 60 + 3];
        for at in (0..small.len()).step_by(997) {
            let mut other = small.clone();
            other[at] ^= 1;
            assert_ne!(of(&small), of(&other), "{at}");
        }
        assert_ne!(of(b""), 0);
        assert_ne!(of(b""), of(b"#!/bin/sh\n"));
    }

    #[test]
    fn the_build_id_of_a_program_counts_alone() {
        let own = File::open("/proc/self/exe").unwrap();
        let Some(id) = build_id(&own) else {
            eprintln!("SKIP the build ID of a program: the linker writes none");
            return;
        };
        let mut bytes = std::fs::read("/proc/self/exe").unwrap();
        bytes.push(0);
        assert_eq!(of(&bytes), identity(&own).unwrap(), "something behind it");
        let at = bytes.windows(id.len()).position(|part| part == id).unwrap();
        bytes[at] ^= 1;
        assert_ne!(of(&bytes), identity(&own).unwrap(), "another build");
    }

    #[test]
    fn heads_that_lie_are_read_without_harm() {
        let mut bytes = std::fs::read("/proc/self/exe").unwrap();
        bytes.truncate(8192);
        for at in 0..64 {
            let mut broken = bytes.clone();
            broken[at] ^= 0xff;
            assert_ne!(of(&broken), 0);
            assert_ne!(of(&bytes[..at]), 0);
        }
    }
}
