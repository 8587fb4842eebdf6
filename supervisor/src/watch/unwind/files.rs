//! What a process has mapped: tables to follow its stack by, and names of its functions.

use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::rc::Rc;

use framehop::{ExplicitModuleSectionInfo, Module};
use object::elf::PF_X;
use object::{Object, ObjectSection, ObjectSegment, ObjectSymbol, SegmentFlags, SymbolKind};

/// The file that a map of memory names: device and number, by which another look knows it again.
type Key = String;

/// Code that is mapped.
pub(super) struct Mapped {
    pub(super) range: Range<u64>,
    key: Key,
    /// What its addresses are more than those in the file.
    bias: u64,
    bytes: Rc<Vec<u8>>,
}

/// Files that were read, and names that were found.
#[derive(Default)]
pub(super) struct Files {
    read: HashMap<Key, Option<Rc<Vec<u8>>>>,
    names: HashMap<(Key, u64), Option<String>>,
}

impl Files {
    /// The code that a process has mapped, as far as its files can be read.
    pub(super) fn mapped(&mut self, pid: i32) -> io::Result<Vec<Mapped>> {
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps"))?;
        Ok(maps.lines().filter_map(|line| self.code(pid, &Line::parse(line)?)).collect())
    }

    fn code(&mut self, pid: i32, line: &Line<'_>) -> Option<Mapped> {
        let read = || {
            // As the process sees it, which may be in a container; its program also when removed.
            let seen = std::fs::read(format!("/proc/{pid}/root{}", line.path));
            let own = || std::fs::read_link(format!("/proc/{pid}/exe")).ok();
            let is_own = || own().is_some_and(|own| own.to_str() == Some(line.path));
            let bytes = match seen {
                Err(_) if is_own() => std::fs::read(format!("/proc/{pid}/exe")),
                seen => seen,
            };
            bytes.ok().map(Rc::new)
        };
        let bytes = self.read.entry(line.key.to_owned()).or_insert_with(read).clone()?;
        let bias = line.bias(&bytes)?;
        Some(Mapped { range: line.range.clone(), key: line.key.to_owned(), bias, bytes })
    }

    /// The function at an address of mapped code.
    pub(super) fn name(&mut self, mapped: &Mapped, address: u64) -> Option<String> {
        let own = address.wrapping_sub(mapped.bias);
        let find = || name_in(&mapped.bytes, own).map(|name| demangled(&name));
        self.names.entry((mapped.key.clone(), own)).or_insert_with(find).clone()
    }
}

impl Mapped {
    /// The same for who follows stacks.
    pub(super) fn module(&self) -> Module<Vec<u8>> {
        let file = object::File::parse(self.bytes.as_slice()).ok();
        let section = |name| file.as_ref()?.section_by_name(name);
        let data = |name| section(name)?.data().ok().map(<[u8]>::to_vec);
        let range = |name| {
            let section = section(name)?;
            Some(section.address()..section.address().checked_add(section.size())?)
        };
        let tables = ExplicitModuleSectionInfo {
            base_svma: 0,
            text_svma: range(".text"),
            got_svma: range(".got"),
            eh_frame_svma: range(".eh_frame"),
            eh_frame: data(".eh_frame"),
            eh_frame_hdr_svma: range(".eh_frame_hdr"),
            eh_frame_hdr: data(".eh_frame_hdr"),
            ..Default::default()
        };
        Module::new(self.key.clone(), self.range.clone(), self.bias, tables)
    }
}

/// The function at an address, as the file counts addresses.
fn name_in(bytes: &[u8], address: u64) -> Option<String> {
    let file = object::File::parse(bytes).ok()?;
    let best = |symbols: object::SymbolIterator<'_, '_>| {
        let code = symbols.filter(|one| one.kind() == SymbolKind::Text && one.is_definition());
        let covers = code.filter(|one| {
            let end = one.address().saturating_add(one.size().max(1));
            (one.address()..end).contains(&address) || (one.size() == 0 && one.address() <= address)
        });
        let nearest = covers.max_by_key(ObjectSymbol::address)?;
        nearest.name().ok().map(str::to_owned)
    };
    best(file.symbols()).or_else(|| best(file.dynamic_symbols()))
}

/// A name as its language writes it. Old names of Rust are like those of C++, but end with a number.
fn demangled(name: &str) -> String {
    let rust = rustc_demangle::try_demangle(name).map(|rust| rust.to_string()).ok();
    let numbered = |text: &String| text.rsplit_once("::h").is_some_and(|(_, end)| end.len() == 16);
    if let Some(rust) = rust.filter(|text| name.starts_with("_R") || numbered(text)) {
        return rust;
    }
    let cpp = cpp_demangle::Symbol::new(name).ok().and_then(|symbol| symbol.demangle().ok());
    cpp.unwrap_or_else(|| name.to_owned())
}

/// A line of `/proc/PID/maps` (proc(5)) about code of a file.
struct Line<'a> {
    range: Range<u64>,
    offset: u64,
    key: &'a str,
    path: &'a str,
}

impl<'a> Line<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let number = |text| u64::from_str_radix(text, 16).ok();
        let (range, rest) = line.split_once(' ')?;
        let (begin, end) = range.split_once('-')?;
        let (mode, rest) = rest.split_once(' ')?;
        let (offset, rest) = rest.split_once(' ')?;
        let at = rest.find('/')?;
        let (key, path) = (rest.get(..at)?.trim_end(), rest.get(at..)?);
        let path = path.strip_suffix(" (deleted)").unwrap_or(path);
        let range = number(begin)?..number(end)?.max(number(begin)?);
        mode.contains('x').then_some(Self { range, offset: number(offset)?, key, path })
    }

    /// What addresses are more than in the file, which is an ELF file.
    fn bias(&self, bytes: &[u8]) -> Option<u64> {
        let file = object::File::parse(bytes).ok()?;
        let mapped = self.offset..self.offset.checked_add(self.range.end - self.range.start)?;
        let mut segments = file.segments();
        // Pages may also hold the end of the segment before, which is not for code.
        let of = segments.find(|segment| {
            let (offset, size) = segment.file_range();
            let code =
                matches!(segment.flags(), SegmentFlags::Elf { p_flags } if p_flags & PF_X != 0);
            code && offset < mapped.end && offset.saturating_add(size) > mapped.start
        })?;
        // Where the first byte of the file would be, less where the segment wants it.
        let first = self.range.start.wrapping_sub(self.offset);
        Some(first.wrapping_add(of.file_range().0).wrapping_sub(of.address()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_about_code_of_files_are_read() {
        let line = Line::parse("1000-3000 r-xp 00002000 fe:00 12   /opt/a b (deleted)").unwrap();
        assert_eq!((line.range, line.offset), (0x1000..0x3000, 0x2000));
        assert_eq!((line.key, line.path), ("fe:00 12", "/opt/a b"));
        for other in ["1000-3000 r--p 0 fe:00 12 /a", "1000-2000 r-xp 0 00:00 0 [vdso]", "x", ""] {
            assert!(Line::parse(other).is_none(), "{other}");
        }
    }

    #[test]
    fn names_are_those_of_people() {
        let rust = demangled("_ZN4core3fmt5write17h0123456789abcdefE");
        assert_eq!(rust, "core::fmt::write::h0123456789abcdef");
        assert!(demangled("_RNvCs1234_7mycrate3foo").ends_with("]::foo"));
        assert_eq!(demangled("_ZN5upcxx7barrierEv"), "upcxx::barrier()");
        assert_eq!(demangled("main"), "main");
    }

    #[test]
    fn what_is_no_program_has_no_names() {
        let line = Line { range: 0..9, offset: 0, key: "", path: "" };
        for bytes in [&b""[..], b"text", b"\x7fELF\x02\x01\x01"] {
            assert!(line.bias(bytes).is_none() && name_in(bytes, 1).is_none());
        }
    }
}
