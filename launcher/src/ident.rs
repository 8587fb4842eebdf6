//! Reads GASNet's identification strings out of executables.
//!
//! Every program that links a GASNet conduit carries `$GASNet` + `ConduitName: IBV $` and, for each
//! spawner it can be started with, `$GASNet` + `SSHSpawner: 1 $` or the like. (They are written
//! apart here, so that the launcher itself does not look like such a program.)
//!
//! A file is read once, from front to back, in pieces; of an ELF file only what is loaded at run
//! time, which leaves out debug information. Reading stops as soon as the question is answered.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::ops::Range;
use std::path::Path;

use memchr::memmem::Finder;
use object::NativeEndian;
use object::elf::{self, FileHeader64};
use object::read::ReadCache;
use object::read::elf::{FileHeader as _, ProgramHeader as _};

use crate::spawner::Spawner;

const TAG: &[u8] = b"$GASNet";
const NAME: &[u8] = b"ConduitName: ";
const SPAWNER: &[u8] = b"Spawner: 1 $";
/// Longest string looked for, and so the overlap of two pieces.
const LONGEST: usize = 64;
const PIECE: u64 = 256 * 1024;

/// What an executable says about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// Names of conduits, in order of appearance, each once.
    pub conduits: Vec<String>,
    /// Spawners.
    pub spawners: Vec<Spawner>,
}

impl Marks {
    /// Whether the program was made with this project's conduit, or GASNet's of the same name.
    #[must_use]
    pub fn is_ibv(&self) -> bool {
        self.conduits.iter().any(|name| name == "IBV")
    }

    fn answers(&self, wanted: Spawner) -> bool {
        self.is_ibv() && self.spawners.contains(&wanted)
    }

    fn add(&mut self, after_tag: &[u8]) {
        if let Some(rest) = after_tag.strip_prefix(NAME) {
            let name: Vec<u8> = rest
                .iter()
                .copied()
                .take_while(|b| b.is_ascii_alphanumeric() || *b == b'_')
                .collect();
            let closed = rest.get(name.len()..).is_some_and(|end| end.starts_with(b" $"));
            if let (true, false, Ok(name)) = (closed, name.is_empty(), String::from_utf8(name))
                && !self.conduits.contains(&name)
            {
                self.conduits.push(name);
            }
        } else if let Some(spawner) =
            after_tag.get(..3).filter(|_| after_tag[3..].starts_with(SPAWNER)).and_then(|name| {
                Spawner::ALL.iter().find(|s| s.name().as_bytes().eq_ignore_ascii_case(name))
            })
            && !self.spawners.contains(spawner)
        {
            self.spawners.push(*spawner);
        }
    }
}

/// Reads `path` until the conduit's name and the `wanted` spawner have been seen, or to its end.
///
/// # Errors
/// The file cannot be read.
pub fn scan(path: &Path, wanted: Spawner) -> io::Result<Marks> {
    let file = File::open(path)?;
    let length = file.metadata()?.len();
    let mut marks = Marks::default();
    let finder = Finder::new(TAG);
    let mut buffer = Vec::new();
    for range in loaded_parts(&file, length).unwrap_or_else(|| std::iter::once(0..length).collect())
    {
        scan_range(&file, range, &finder, &mut buffer, wanted, &mut marks)?;
        if marks.answers(wanted) {
            break;
        }
    }
    Ok(marks)
}

fn scan_range(
    mut file: &File,
    range: Range<u64>,
    finder: &Finder<'_>,
    buffer: &mut Vec<u8>,
    wanted: Spawner,
    marks: &mut Marks,
) -> io::Result<()> {
    let mut at = range.start;
    while at < range.end {
        buffer.clear();
        file.seek(SeekFrom::Start(at))?;
        let got = file.take(PIECE.min(range.end - at)).read_to_end(buffer)?;
        for start in finder.find_iter(buffer) {
            marks.add(&buffer[start + TAG.len()..]);
        }
        let over = (got as u64) < PIECE || at + got as u64 >= range.end;
        if over || marks.answers(wanted) {
            break;
        }
        // A string cut by the end of this piece is seen whole in the next one.
        at += (got - LONGEST) as u64;
    }
    Ok(())
}

/// File ranges of the loaded segments of a 64-bit ELF file in this machine's byte order; `None` for
/// anything else.
fn loaded_parts(file: &File, length: u64) -> Option<Vec<Range<u64>>> {
    let data = ReadCache::new(file);
    let header = FileHeader64::<NativeEndian>::parse(&data).ok()?;
    let segments = header.program_headers(NativeEndian, &data).ok()?;
    let loaded = segments.iter().filter(|segment| segment.p_type(NativeEndian) == elf::PT_LOAD);
    let mut parts: Vec<Range<u64>> = loaded
        .map(|segment| segment.file_range(NativeEndian))
        .map(|(start, size)| start.min(length)..start.saturating_add(size).min(length))
        .collect();
    // Overlapping segments must not make a file be read more than once.
    parts.sort_by_key(|part| part.start);
    let mut seen = 0;
    for part in &mut parts {
        part.start = part.start.max(seen);
        seen = seen.max(part.end);
    }
    (!parts.is_empty()).then_some(parts)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn file(parts: &[&[u8]]) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().expect("temporary file");
        for part in parts {
            file.write_all(part).expect("write");
        }
        file
    }

    #[test]
    fn finds_strings_across_pieces() {
        let piece = usize::try_from(PIECE).expect("short");
        for gap in [0, 1, piece - 70, piece - 20, piece - 1, piece, 2 * piece - 100] {
            let filler = vec![b'$'; gap];
            let file =
                file(&[&filler, b"$GASNetConduitName: IBV $", &filler, b"$GASNetMPISpawner: 1 $"]);
            let marks = scan(file.path(), Spawner::Ssh).expect("read");
            assert_eq!(
                marks,
                Marks { conduits: vec!["IBV".into()], spawners: vec![Spawner::Mpi] },
                "{gap}"
            );
        }
    }

    #[test]
    fn ignores_what_only_looks_alike() {
        for text in [
            &b"$GASNet"[..],
            b"$GASNetConduitName: IBV",
            b"$GASNetConduitName:  $",
            b"$GASNetConduitName: I-V $",
            b"$GASNetSSHSpawner: 0 $",
            b"$GASNetSS",
            b"GASNetSSHSpawner: 1 $",
        ] {
            assert_eq!(
                scan(file(&[text]).path(), Spawner::Ssh).expect("read"),
                Marks::default(),
                "{text:?}"
            );
        }
    }

    #[test]
    fn broken_elf_headers_are_read_as_plain_files() {
        let mut header = [0xffu8; 128];
        header[..6].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1]);
        let marks = scan(file(&[&header, b"$GASNetConduitName: UDP $"]).path(), Spawner::Ssh)
            .expect("read");
        assert_eq!(marks.conduits, ["UDP"]);
        header[54..58].copy_from_slice(&[56, 0, 2, 0]);
        scan(file(&[&header]).path(), Spawner::Ssh).expect("offsets beyond the end do no harm");
    }

    #[test]
    fn overlapping_segments_are_read_once() {
        let mut bytes = vec![0; 64 + 3 * 56];
        bytes[..7].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1, 1]);
        bytes[32..40].copy_from_slice(&64u64.to_ne_bytes());
        bytes[54..58].copy_from_slice(&[56, 0, 3, 0]);
        for (index, (start, size)) in
            [(100u64, 1000u64), (0, 150), (120, u64::MAX)].into_iter().enumerate()
        {
            let at = 64 + index * 56;
            bytes[at..at + 4].copy_from_slice(&1u32.to_ne_bytes());
            bytes[at + 8..at + 16].copy_from_slice(&start.to_ne_bytes());
            bytes[at + 32..at + 40].copy_from_slice(&size.to_ne_bytes());
        }
        let file = file(&[&bytes]);
        let parts = loaded_parts(file.as_file(), 200).expect("an ELF file");
        assert_eq!(parts, [0..150, 150..200, 200..200]);
    }

    proptest::proptest! {
        #[test]
        fn any_header_is_survived(header in proptest::collection::vec(proptest::num::u8::ANY, 0..300)) {
            let mut bytes = vec![0x7f, b'E', b'L', b'F', 2, 1];
            bytes.extend(header);
            let _ = scan(file(&[&bytes]).path(), Spawner::Ssh);
        }
    }

    #[test]
    fn this_binary_is_an_elf_file_with_strings() {
        // The test binary holds the strings above, in loaded read-only data.
        let marks = scan(&std::env::current_exe().expect("own path"), Spawner::Mpi).expect("read");
        assert!(marks.is_ibv() && marks.spawners.contains(&Spawner::Mpi), "{marks:?}");
    }
}
