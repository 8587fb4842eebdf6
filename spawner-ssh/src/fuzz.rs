//! What is promised about any bytes that a login prints, for the fuzz target and for the test with
//! its seeds.

use crate::marker::{Found, MAX_NOISE, Search};

/// Bytes as the output of a login, cut into pieces by the first byte: no panic, and no more is kept
/// than is allowed.
///
/// # Panics
/// When that is not so.
pub fn marker(bytes: &[u8]) {
    let Some((cut, bytes)) = bytes.split_first() else { return };
    let mut search = Search::default();
    let mut came = 0;
    for piece in bytes.chunks(usize::from(*cut) + 1) {
        came += piece.len();
        let found = search.push(piece);
        assert!(search.noise().len() <= 3 * 2048, "a diagnosis is short");
        match found {
            Found::Nothing => assert!(came <= MAX_NOISE, "{came} bytes and no end"),
            Found::Line(_, behind) => {
                assert!(bytes[..came].ends_with(&behind), "bytes were lost behind the line");
                return;
            }
            Found::TooMuch => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn play(target: &str, body: fn(&[u8])) {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds").join(target);
        testkit::seeds::each_changed(&folder, body);
    }

    #[test]
    fn seeds_of_the_target_marker() {
        play("marker", marker);
    }
}
