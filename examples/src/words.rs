//! Words of text files and their division among ranks; no communication.
//!
//! A word is what `tr -cs '[:alpha:]' '\n' | tr A-Z a-z` prints in the C locale: a longest run of
//! ASCII letters, in lower case. A file's end ends its last word.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Bytes `start..end` of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Index into the list of files.
    pub file: usize,
    /// First byte.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
}

/// The pieces that rank `rank` of `size` counts when the files have these lengths: an equal share
/// of all bytes.
#[must_use]
pub fn share(lengths: &[u64], rank: u32, size: u32) -> Vec<Piece> {
    let total: u64 = lengths.iter().sum();
    // In 128 bits, because the product may exceed 64.
    let bound = |rank: u32| {
        u64::try_from(u128::from(total) * u128::from(rank) / u128::from(size)).unwrap_or(total)
    };
    let (from, to) = (bound(rank), bound(rank + 1));
    let mut pieces = Vec::new();
    let mut base = 0;
    for (file, &length) in lengths.iter().enumerate() {
        let (start, end) = (from.clamp(base, base + length), to.clamp(base, base + length));
        if start < end {
            pieces.push(Piece { file, start: start - base, end: end - base });
        }
        base += length;
    }
    pieces
}

/// Counts by word.
pub type Counts = HashMap<Vec<u8>, u64>;

/// Adds the words of `text` that start in it to `counts`.
pub fn count(text: &[u8], counts: &mut Counts) {
    let words = text.split(|byte| !byte.is_ascii_alphabetic()).filter(|word| !word.is_empty());
    let mut lower = Vec::new();
    for word in words {
        lower.clear();
        lower.extend(word.iter().map(u8::to_ascii_lowercase));
        // Most words are known already: look up without an allocation.
        if let Some(known) = counts.get_mut(lower.as_slice()) {
            *known += 1;
        } else {
            counts.insert(lower.clone(), 1);
        }
    }
}

/// Reads a piece so that every word belongs to the piece in which it starts: a word cut by the
/// start is left out, a word cut by the end is completed.
///
/// # Errors
/// The file cannot be read, or became shorter.
pub fn read_piece(path: &Path, piece: &Piece) -> io::Result<Vec<u8>> {
    const STEP: usize = 4096;
    let file = File::open(path)?;
    // One byte more in front tells whether the first word started before the piece.
    let lead = piece.start.min(1);
    let len = usize::try_from(piece.end - piece.start + lead).map_err(io::Error::other)?;
    let mut text = vec![0; len];
    file.read_exact_at(&mut text, piece.start - lead)?;
    let mut at = piece.end;
    while text.last().is_some_and(u8::is_ascii_alphabetic) {
        let mut more = vec![0; STEP];
        let got = file.read_at(&mut more, at)?;
        more.truncate(got);
        let word = more.iter().take_while(|byte| byte.is_ascii_alphabetic()).count();
        text.extend_from_slice(&more[..word]);
        if word < STEP {
            break;
        }
        at += STEP as u64;
    }
    if lead == 1 {
        let cut = text.iter().take_while(|byte| byte.is_ascii_alphabetic()).count();
        // When the whole piece lies inside one word, that word is not ours at all.
        text.drain(..cut.max(1).min(text.len()));
    }
    Ok(text)
}

/// Lengths of the files.
///
/// # Errors
/// A file that cannot be looked at or is not a regular file; the text names it.
pub fn lengths(files: &[PathBuf]) -> Result<Vec<u64>, String> {
    let length = |path: &PathBuf| {
        let data = std::fs::metadata(path)
            .map_err(|error| format!("cannot look at {}: {error}", path.display()))?;
        if data.is_file() {
            Ok(data.len())
        } else {
            Err(format!("{} is not a regular file", path.display()))
        }
    };
    files.iter().map(length).collect()
}

/// The rank that owns a word (FNV-1a, so that all ranks agree).
#[must_use]
pub fn owner(word: &[u8], size: u32) -> u32 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in word {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    }
    // The upper half is the better mixed one.
    u32::try_from((hash >> 32) % u64::from(size)).unwrap_or(0)
}

/// The `most` most frequent words, ties by word.
#[must_use]
pub fn top(counts: impl IntoIterator<Item = (Vec<u8>, u64)>, most: usize) -> Vec<(Vec<u8>, u64)> {
    let mut all: Vec<_> = counts.into_iter().collect();
    let order = |a: &(Vec<u8>, u64), b: &(Vec<u8>, u64)| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0));
    if most < all.len() && most > 0 {
        all.select_nth_unstable_by(most - 1, order);
    }
    all.truncate(most);
    all.sort_unstable_by(order);
    all
}

/// Appends one record: count, length of the word, word.
pub fn encode(out: &mut Vec<u8>, word: &[u8], count: u64) {
    out.extend_from_slice(&count.to_le_bytes());
    out.extend_from_slice(&(u32::try_from(word.len()).unwrap_or(u32::MAX)).to_le_bytes());
    out.extend_from_slice(word);
}

/// Bytes of [`encode`]'s record for a word.
#[must_use]
pub const fn encoded_len(word: &[u8]) -> usize {
    12 + word.len()
}

/// Takes the first record off `bytes`; `None` when they hold no whole record.
#[must_use]
pub fn decode<'a>(bytes: &mut &'a [u8]) -> Option<(&'a [u8], u64)> {
    let (count, rest) = bytes.split_first_chunk::<8>()?;
    let (len, rest) = rest.split_first_chunk::<4>()?;
    let len = usize::try_from(u32::from_le_bytes(*len)).ok()?;
    let (word, rest) = rest.split_at_checked(len)?;
    *bytes = rest;
    Some((word, u64::from_le_bytes(*count)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(texts: &[&[u8]]) -> Counts {
        let mut counts = Counts::new();
        texts.iter().for_each(|text| count(text, &mut counts));
        counts
    }

    #[test]
    fn every_division_counts_every_word_once() {
        let directory = std::env::temp_dir().join(format!("words-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let mut long = vec![b'q'; 9000];
        long.extend_from_slice(b" end");
        let texts: [&[u8]; 5] =
            [b"Ab c-ab\xc3\xa4x", b"", b"ab", b" The THE the; x1y\nzz", long.as_slice()];
        let files: Vec<_> =
            (0..texts.len()).map(|number| directory.join(number.to_string())).collect();
        for (path, text) in files.iter().zip(texts) {
            std::fs::write(path, text).unwrap();
        }
        let lengths = lengths(&files).unwrap();
        let expected = counted(&texts);
        assert_eq!(expected[b"the".as_slice()], 3);
        for size in (1..40).chain([8000]) {
            let mut counts = Counts::new();
            for rank in 0..size {
                for piece in share(&lengths, rank, size) {
                    count(&read_piece(&files[piece.file], &piece).unwrap(), &mut counts);
                }
            }
            assert_eq!(counts, expected, "{size} ranks");
        }
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn top_orders_by_count_then_word() {
        let counts = counted(&[b"b b a a c d d d"]);
        let words: Vec<_> = top(counts, 3).into_iter().map(|(word, _)| word).collect();
        assert_eq!(words, [b"d", b"a", b"b"]);
    }

    #[test]
    fn records_round_trip_and_cut_ones_are_refused() {
        let mut bytes = Vec::new();
        encode(&mut bytes, b"word", 7);
        assert_eq!(bytes.len(), encoded_len(b"word"));
        let mut rest = bytes.as_slice();
        assert_eq!(decode(&mut rest), Some((b"word".as_slice(), 7)));
        assert!(rest.is_empty());
        assert_eq!(decode(&mut &bytes[..bytes.len() - 1]), None);
    }
}
