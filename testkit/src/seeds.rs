//! Seeds of fuzz targets as plain tests: every cut and every changed byte, no fuzzer.

use std::fs;
use std::path::Path;

/// Bytes of a seed that are changed, from its beginning.
const MOST: usize = 2000;

/// Calls `body` with each seed of a folder, each of its beginnings, and each with a byte that differs.
///
/// # Panics
/// When the folder has fewer than three seeds, or cannot be read.
pub fn each_changed(folder: &Path, body: fn(&[u8])) {
    let files = fs::read_dir(folder).expect("the folder of seeds");
    let seeds: Vec<_> =
        files.map(|file| fs::read(file.expect("a seed").path()).expect("a seed")).collect();
    assert!(seeds.len() >= 3, "{} has {} seeds", folder.display(), seeds.len());
    for seed in seeds {
        body(&seed);
        for at in 0..seed.len().min(MOST) {
            body(&seed[..at]);
            let mut other = seed.clone();
            for flip in [1, 0x80, 0xff] {
                other[at] = seed[at] ^ flip;
                body(&other);
            }
        }
    }
}
