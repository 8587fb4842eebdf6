//! Which MPI a program is made for, by the libraries that it names itself.

use std::fs::File;
use std::path::{Path, PathBuf};

use object::Endianness;
use object::elf::{DT_NEEDED, DT_NULL, DT_RPATH, DT_RUNPATH, FileHeader64, PT_DYNAMIC};
use object::read::elf::{Dyn as _, FileHeader as _, ProgramHeader as _};
use object::read::{ReadCache, ReadRef};

/// What such a program asks its launcher for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wire {
    /// PMI-1 or PMI-2: MPICH and those made from it.
    Pmi,
    /// PMI-1 through a library, or PMIx: Open MPI.
    OpenMpi,
    /// PMIx alone.
    Pmix,
}

/// An MPI, or a library by which programs speak to process managers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mpi {
    /// The library that the program names.
    pub library: String,
    /// What that asks for.
    pub wire: Wire,
}

/// The longest table of names that is read.
const NAMES_LIMIT: u64 = 1 << 20;

/// The MPI of a program; `None` when it names none, is no 64-bit ELF file, or cannot be read.
#[must_use]
pub fn of(path: &Path) -> Option<Mpi> {
    let data = ReadCache::new(File::open(path).ok()?);
    let named = needed(&data).ok()??;
    let (library, wire) =
        named.libraries.iter().find_map(|library| Some((library, wire(library)?)))?;
    // The name of Open MPI's library has not changed since version 2: what it needs itself tells.
    let wire = match wire {
        Wire::OpenMpi if is_pmix_alone(library, &named.folders, path) => Wire::Pmix,
        wire => wire,
    };
    Some(Mpi { library: library.clone(), wire })
}

/// Folders in which the loader of this kind of machine looks last.
const FOLDERS: [&str; 6] =
    ["/lib/ARCH-linux-gnu", "/usr/lib/ARCH-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib"];

/// Whether a library of Open MPI, where the loader finds it for this program, names libpmix: those of
/// version 5 do, while those before open it, or speak PMI-1, at run time.
fn is_pmix_alone(library: &str, folders: &[PathBuf], program: &Path) -> bool {
    let origin = program.canonicalize().unwrap_or_else(|_| program.to_owned());
    let origin = origin.parent().unwrap_or(Path::new("/"));
    let of_program = folders.iter().map(|folder| expanded(folder, origin));
    let told = settings::variable("LD_LIBRARY_PATH").unwrap_or_default();
    let told: Vec<PathBuf> = std::env::split_paths(&told).collect();
    let last = FOLDERS.iter().map(|name| name.replace("ARCH", std::env::consts::ARCH).into());
    let mut places = of_program.chain(told).chain(last).map(|folder: PathBuf| folder.join(library));
    let Some(found) = places.find(|place| place.is_file()) else { return false };
    let Ok(file) = File::open(found) else { return false };
    let named = needed(&ReadCache::new(file)).ok().flatten();
    named.is_some_and(|named| named.libraries.iter().any(|name| wire(name) == Some(Wire::Pmix)))
}

/// A folder that a program names, which may be told from its own.
fn expanded(folder: &Path, origin: &Path) -> PathBuf {
    let text = folder.to_string_lossy();
    let origin = origin.to_string_lossy();
    text.replace("${ORIGIN}", &origin).replace("$ORIGIN", &origin).into()
}

/// What an ELF file says about libraries.
#[derive(Debug, Default)]
struct Named {
    /// Those that it needs.
    libraries: Vec<String>,
    /// Where they are looked for first.
    folders: Vec<PathBuf>,
}

/// What an ELF file says about libraries, read by its segments: programs may have no sections.
fn needed<'a, R: ReadRef<'a>>(data: R) -> object::Result<Option<Named>> {
    let head = FileHeader64::<Endianness>::parse(data)?;
    let endian = head.endian()?;
    let segments = head.program_headers(endian, data)?;
    let dynamic = segments.iter().find(|segment| segment.p_type(endian) == PT_DYNAMIC);
    let Some(entries) = dynamic.map(|segment| segment.dynamic(endian, data)).transpose()?.flatten()
    else {
        return Ok(None);
    };
    let entries = || entries.iter().take_while(|entry| entry.tag32(endian) != Some(DT_NULL));
    let number = |tag| {
        let entry = entries().find(|entry| entry.tag32(endian) == Some(tag));
        entry.map(|entry| entry.d_val(endian))
    };
    let Some(table) = number(object::elf::DT_STRTAB) else { return Ok(None) };
    let size = number(object::elf::DT_STRSZ).unwrap_or(0).min(NAMES_LIMIT);
    let holder = segments.iter().find_map(|segment| {
        let (from, length) = (segment.p_vaddr(endian), segment.p_filesz(endian));
        let inside = segment.p_type(endian) == object::elf::PT_LOAD && table >= from;
        let at = table.checked_sub(from).filter(|at| inside && *at < length)?;
        segment.p_offset(endian).checked_add(at)
    });
    let names = holder.and_then(|at| data.read_bytes_at(at, size).ok()).unwrap_or_default();
    let name = |at: u64| {
        let bytes = names.get(usize::try_from(at).ok()?..)?;
        let end = bytes.iter().position(|byte| *byte == 0)?;
        std::str::from_utf8(&bytes[..end]).ok().map(str::to_owned)
    };
    let all = |tags: &[u32]| -> Vec<String> {
        let has = |entry: &&_| {
            object::read::elf::Dyn::tag32(*entry, endian).is_some_and(|tag| tags.contains(&tag))
        };
        entries().filter(has).filter_map(|entry| name(entry.d_val(endian))).collect()
    };
    let folders = all(&[DT_RUNPATH, DT_RPATH]);
    let folders = folders.iter().flat_map(|paths| paths.split(':')).map(PathBuf::from).collect();
    Ok(Some(Named { libraries: all(&[DT_NEEDED]), folders }))
}

/// What a library of this name asks the launcher for.
fn wire(library: &str) -> Option<Wire> {
    let (name, version) = library.split_once(".so")?;
    match name {
        "libpmi" | "libpmi2" => Some(Wire::Pmi),
        "libpmix" => Some(Wire::Pmix),
        // All that is made from MPICH has the number 12.
        _ if name.starts_with("libmpich") || version == ".12" && name.starts_with("libmpi") => {
            Some(Wire::Pmi)
        }
        "libmpi" | "libopen-rte" | "liboshmem" => Some(Wire::OpenMpi),
        _ if name.starts_with("libmpi_") => Some(Wire::OpenMpi),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_of_mpi_are_known_by_name() {
        for (library, expected) in [
            ("libmpich.so.12", Some(Wire::Pmi)),
            ("libmpichfort.so.12", Some(Wire::Pmi)),
            ("libmpi.so.12", Some(Wire::Pmi)),
            ("libmpicxx.so.12", Some(Wire::Pmi)),
            ("libpmi.so.0", Some(Wire::Pmi)),
            ("libpmi2.so.0", Some(Wire::Pmi)),
            ("libmpi.so.40", Some(Wire::OpenMpi)),
            ("libmpi_mpifh.so.40", Some(Wire::OpenMpi)),
            ("libmpi_cxx.so.40", Some(Wire::OpenMpi)),
            ("libpmix.so.2", Some(Wire::Pmix)),
            ("libmpir.so.1", None),
            ("libmpiexec.so", None),
            ("libc.so.6", None),
            ("mpi", None),
        ] {
            assert_eq!(wire(library), expected, "{library}");
        }
    }

    #[test]
    fn this_program_is_none_of_mpi_and_needs_a_library() {
        let own = std::env::current_exe().expect("a path");
        assert_eq!(of(&own), None);
        let data = ReadCache::new(File::open(own).expect("it can be read"));
        let all = needed(&data).expect("an ELF file").expect("it has a dynamic segment");
        assert!(all.libraries.iter().any(|library| library.starts_with("libc.so")), "{all:?}");
        assert_eq!(of(Path::new("/etc/passwd")), None);
    }
}
