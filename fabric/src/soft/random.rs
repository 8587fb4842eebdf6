//! Numbers that others cannot guess.

pub(super) fn random<const N: usize>() -> [u8; N] {
    let mut out = [0; N];
    if getrandom::fill(&mut out).is_err() {
        // This system has no source: keys of the standard library's hasher come from the best there
        // is.
        for chunk in out.chunks_mut(8) {
            use std::hash::{BuildHasher as _, Hasher as _};
            let word = std::hash::RandomState::new().build_hasher().finish().to_ne_bytes();
            for (to, from) in chunk.iter_mut().zip(word) {
                *to = from;
            }
        }
    }
    out
}

pub(super) fn random_u32() -> u32 {
    u32::from_le_bytes(random())
}
