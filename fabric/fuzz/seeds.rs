//! Runs the body of a fuzz target on its seeds, and on many changes of each, as a plain test: no
//! fuzzer is needed.

use std::path::Path;

/// Changes of each seed.
const CHANGES: u32 = 3000;

/// A number from the last one.
const fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// A place below `len`, or 0.
fn place(state: &mut u64, len: usize) -> usize {
    usize::try_from(next(state) >> 33).unwrap_or(0) % len.max(1)
}

/// Changes some bytes, or cuts, repeats or joins parts.
fn change(bytes: &mut Vec<u8>, other: &[u8], state: &mut u64) {
    for _ in 0..=place(state, 3) {
        let (a, b) = (place(state, bytes.len()), place(state, bytes.len()));
        let part = bytes.get(a.min(b)..a.max(b)).unwrap_or_default().to_vec();
        let [value, ..] = next(state).to_le_bytes();
        match (place(state, 7), bytes.get_mut(a)) {
            (0, Some(byte)) => *byte = value,
            (1, Some(byte)) => *byte ^= 1 << (value % 8),
            (2, Some(byte)) => *byte = [0, 1, 0x7f, 0x80, 0xff][usize::from(value) % 5],
            (3, _) => bytes.truncate(a),
            (4, _) => bytes.extend_from_slice(&part),
            (5, _) => bytes.extend_from_slice(other),
            _ => bytes.insert(a.min(bytes.len()), value),
        }
    }
}

/// Calls `run` with every file of a folder and with changes of each, always the same ones.
pub(crate) fn each(folder: &Path, divide: u32, run: impl Fn(&[u8])) {
    let mut paths: Vec<_> = folder
        .read_dir()
        .expect("the folder of seeds")
        .map(|entry| entry.expect("a seed").path())
        .collect();
    paths.sort();
    assert!(paths.len() >= 4, "{}: {} seeds", folder.display(), paths.len());
    let seeds: Vec<Vec<u8>> =
        paths.iter().map(|path| std::fs::read(path).expect("a seed")).collect();
    let mut state = 0x9e37_79b9_7f4a_7c15;
    for seed in &seeds {
        run(seed);
        for _ in 0..CHANGES / divide {
            let mut bytes = seed.clone();
            let other = &seeds[place(&mut state, seeds.len())];
            change(&mut bytes, other, &mut state);
            run(&bytes);
        }
    }
}
