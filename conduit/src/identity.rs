//! Identification strings. The launcher looks for them in an executable before it starts anything.

use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::hint::black_box;
use std::path::PathBuf;

use bootstrap::program_identity::identity;
use serde::{Deserialize, Serialize};

/// Names the conduit that the program links.
#[used]
static CONDUIT: [u8; 29] = *b"$GASNetConduitName: IBV $\0\0\0\0";
/// Says that the program can be started through ssh (and on one host without it).
#[used]
static SSH_SPAWNER: [u8; 24] = *b"$GASNetSSHSpawner: 1 $\0\0";

/// Says that a launcher that speaks PMI can start it.
#[used]
static PMI_SPAWNER: [u8; 24] = *b"$GASNetPMISpawner: 1 $\0\0";
/// Says that an MPI's launcher can start it.
#[used]
static MPI_SPAWNER: [u8; 24] = *b"$GASNetMPISpawner: 1 $\0\0";

/// Keeps the strings in every program that calls it: a linker that drops unused sections, or an
/// optimiser that sees the whole program, cannot know that they are not needed.
pub(crate) fn keep() {
    black_box(&raw const CONDUIT);
    black_box(&raw const SSH_SPAWNER);
    black_box(&raw const PMI_SPAWNER);
    black_box(&raw const MPI_SPAWNER);
}

/// Which file a rank runs, and what it is; nothing is known where both are 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Program {
    /// Hash of its path.
    pub(crate) place: u64,
    /// See [`identity`].
    pub(crate) identity: u64,
}

impl Program {
    /// The file that this code is in: the program, or the library that an interpreter has loaded,
    /// which may differ from host to host itself.
    pub(crate) fn own() -> Self {
        let of = |path: PathBuf| {
            let is_program = std::fs::read_link("/proc/self/exe").is_ok_and(|own| own == path);
            // Also when it has been removed.
            let file = if is_program { File::open("/proc/self/exe") } else { File::open(&path) };
            let mut hasher = DefaultHasher::new();
            path.hash(&mut hasher);
            let identity = file.and_then(|file| identity(&file)).ok()?;
            Some(Self { place: hasher.finish(), identity })
        };
        own_path().and_then(of).unwrap_or_default()
    }

    /// Whether another rank has something else at the same place.
    pub(crate) const fn differs(self, other: Self) -> bool {
        self.place == other.place && self.identity != other.identity
    }
}

/// Path of the file that this code is in.
pub(crate) fn own_path() -> Option<PathBuf> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    mapped_at(&maps, (&raw const CONDUIT).addr()).map(PathBuf::from)
}

/// The file that is mapped at an address, of the text of `/proc/PID/maps` (proc(5)).
fn mapped_at(maps: &str, address: usize) -> Option<&str> {
    maps.lines().find_map(|line| {
        let (range, rest) = line.split_once(' ')?;
        let (begin, end) = range.split_once('-')?;
        let bound = |text| usize::from_str_radix(text, 16).ok();
        if !(bound(begin)?..bound(end)?).contains(&address) {
            return None;
        }
        // Behind permissions, offset, device and number.
        let path = rest.get(rest.find('/')?..)?;
        Some(path.strip_suffix(" (deleted)").unwrap_or(path))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_of_this_code_is_found() {
        assert_eq!(own_path(), std::env::current_exe().ok());
        let own = Program::own();
        assert!(own.identity != 0 && !own.differs(own));
        let other = Program { identity: own.identity ^ 1, ..own };
        assert!(own.differs(other));
        assert!(!own.differs(Program { place: own.place ^ 1, ..other }), "another place");
    }

    #[test]
    fn a_map_of_memory_is_read() {
        let maps = "1000-2000 r--p 00000000 fe:00 12 /opt/a b\n\
                    2000-3000 rw-p 00000000 00:00 0 \n\
                    3000-4000 r-xp 00001000 fe:00 13 /opt/c (deleted)\n";
        let at = |address| mapped_at(maps, address);
        assert_eq!([at(0x1fff), at(0x2000), at(0x3000)], [Some("/opt/a b"), None, Some("/opt/c")]);
        assert_eq!((at(0x4000), mapped_at("x-y z\nnonsense", 1)), (None, None));
    }
}
