//! Whether the libraries of a program are known to be there, without asking the loader, which takes
//! a process of its own.
//!
//! What this process has loaded itself, the loader finds for the program, too: when both have the
//! same loader, the program needs nothing else, no version of it that is not there, and nothing
//! says where to look. Anything else is the loader's to say.

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use object::elf::{self, FileHeader64};
use object::read::elf::{Dyn, FileHeader, SectionHeader};
use object::read::{ReadCache, StringTable};
use object::{Endianness, ReadRef};

#[derive(Debug, Default)]
struct Dynamic {
    name: Vec<u8>,
    needed: Vec<Vec<u8>>,
    /// It says itself where to look, or wants more than libraries.
    has_paths: bool,
    /// Versions that it wants, with the name of the library.
    wanted: Vec<(Vec<u8>, Vec<u8>)>,
    offered: HashSet<Vec<u8>>,
}

impl Dynamic {
    /// `None` when it is no 64-bit object, has no table of sections, or cannot be read.
    fn read(path: &Path) -> Option<Self> {
        let data = ReadCache::new(File::open(path).ok()?);
        Self::parse(&data).ok().flatten()
    }

    fn parse<'a, R: ReadRef<'a>>(data: R) -> object::Result<Option<Self>> {
        let head = FileHeader64::<Endianness>::parse(data)?;
        let endian = head.endian()?;
        let sections = head.sections(endian, data)?;
        let Some((entries, link)) = sections.dynamic(endian, data)? else { return Ok(None) };
        // Read whole, once for each table: names are many and short.
        let strings = |link| {
            let bytes = sections.section(link)?.data(endian, data)?;
            object::Result::Ok(StringTable::new(bytes, 0, bytes.len() as u64))
        };
        let names = strings(link)?;
        let mut found = Self::default();
        for entry in entries {
            match entry.tag32(endian) {
                Some(elf::DT_NULL) => break,
                Some(elf::DT_NEEDED) => found.needed.push(entry.string(endian, names)?.to_vec()),
                Some(elf::DT_SONAME) => found.name = entry.string(endian, names)?.to_vec(),
                Some(
                    elf::DT_RPATH
                    | elf::DT_RUNPATH
                    | elf::DT_AUDIT
                    | elf::DT_DEPAUDIT
                    | elf::DT_AUXILIARY
                    | elf::DT_FILTER,
                ) => found.has_paths = true,
                _ => {}
            }
        }
        if let Some((mut libraries, link)) = sections.gnu_verneed(endian, data)? {
            let strings = strings(link)?;
            while let Some((library, mut versions)) = libraries.next()? {
                let name = library.file(endian, strings)?;
                while let Some(version) = versions.next()? {
                    found.wanted.push((name.to_vec(), version.name(endian, strings)?.to_vec()));
                }
            }
        }
        if let Some((mut versions, link)) = sections.gnu_verdef(endian, data)? {
            let strings = strings(link)?;
            while let Some((_, mut names)) = versions.next()? {
                // The first is its own, others are those that it grew from.
                if let Some(name) = names.next()? {
                    found.offered.insert(name.name(endian, strings)?.to_vec());
                }
            }
        }
        Ok(Some(found))
    }
}

/// Those of the libraries with these `names` that this process has loaded, with the versions that
/// they offer.
fn loaded(names: &[Vec<u8>]) -> HashMap<Vec<u8>, HashSet<Vec<u8>>> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    // Address, permissions, offset, device, file number, path.
    let code = maps.lines().filter(|line| line.split(' ').nth(1).is_some_and(|p| p.contains('x')));
    let paths: HashSet<&Path> =
        code.filter_map(|line| line.find('/').map(|at| Path::new(&line[at..]))).collect();
    let named = |path: &&Path| {
        path.file_name().is_some_and(|file| names.iter().any(|name| file.as_bytes() == name))
    };
    // A file that is called otherwise than its library is not worth a look at all of them.
    let objects = paths.into_iter().filter(named).filter_map(Dynamic::read);
    objects.map(|object| (object.name, object.offered)).collect()
}

/// Whether a variable tells the loader to do something out of the ordinary.
fn steers_loader(name: &OsString) -> bool {
    name.as_bytes().starts_with(b"LD_") || name == "GLIBC_TUNABLES"
}

/// Whether the program at `path`, which `env` will be given and which has the same loader as this
/// process, is certain to find its libraries. `false`: ask the loader.
pub(super) fn are_known(path: &Path, env: &[(OsString, OsString)]) -> bool {
    let own = settings::Env::from_process().into_iter().map(|(name, _)| name);
    let mut names = env.iter().map(|(name, _)| name.clone()).chain(own);
    !names.any(|name| steers_loader(&name)) && are_loaded(path)
}

/// Whether this process has loaded itself all that the program at `path` needs.
fn are_loaded(path: &Path) -> bool {
    let Some(program) = Dynamic::read(path).filter(|program| !program.has_paths) else {
        return false;
    };
    let loaded = loaded(&program.needed);
    let has = |(library, version): &(Vec<u8>, Vec<u8>)| {
        loaded.get(library).is_some_and(|offered| offered.contains(version))
    };
    program.needed.iter().all(|name| loaded.contains_key(name)) && program.wanted.iter().all(has)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// This program with some of its bytes replaced.
    fn changed(from: &[u8], to: &[u8]) -> tempfile::NamedTempFile {
        let mut bytes = std::fs::read("/proc/self/exe").unwrap();
        let at: Vec<usize> = memchr::memmem::find_iter(&bytes, from).collect();
        assert!(!at.is_empty() && from.len() == to.len());
        for at in at {
            bytes[at..at + to.len()].copy_from_slice(to);
        }
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        file
    }

    #[test]
    fn only_what_is_loaded_here_is_known() {
        assert!(are_loaded(Path::new("/proc/self/exe")));
        let changes: [(&[u8], &[u8]); 2] =
            [(b"\0libc.so.6\0", b"\0libq.so.6\0"), (b"\0GLIBC_2.34\0", b"\0GLIBC_9.34\0")];
        for (from, to) in changes {
            assert!(!are_loaded(changed(from, to).path()), "{}", to.escape_ascii());
        }
        let script = tempfile::NamedTempFile::new().unwrap();
        assert!(!are_loaded(script.path()) && !are_loaded(Path::new("/nowhere")));
        let path = ("LD_LIBRARY_PATH".into(), "/nowhere".into());
        assert!(
            !are_known(Path::new("/proc/self/exe"), &[path]),
            "the loader is told where to look"
        );
    }

    #[test]
    fn an_object_that_lies_is_read_without_harm() {
        let whole = std::fs::read("/proc/self/exe").unwrap();
        let head = FileHeader64::<Endianness>::parse(&whole[..]).unwrap();
        let endian = head.endian().unwrap();
        let sections = head.sections(endian, &whole[..]).unwrap();
        // What is read of it: its head, its sections, and these four.
        let table = usize::try_from(head.e_shoff(endian)).unwrap();
        let mut places = vec![0..64, table..whole.len().min(table + 64 * sections.len())];
        for section in sections.iter() {
            if [elf::SHT_DYNAMIC, elf::SHT_GNU_VERNEED].contains(&section.sh_type(endian)) {
                let (at, len) = section.file_range(endian).unwrap();
                places.push(usize::try_from(at).unwrap()..usize::try_from(at + len).unwrap());
            }
        }
        assert!(places.len() > 3, "{places:?}");
        let mut bytes = whole;
        for place in places {
            for at in place.step_by(3) {
                for value in [0, 1, 0x7f, 0xff] {
                    let before = std::mem::replace(&mut bytes[at], value);
                    let _ = Dynamic::parse(&bytes[..]);
                    bytes[at] = before;
                }
            }
        }
    }
}
