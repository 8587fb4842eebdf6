//! Whether the job can run on this host, before any rank is started.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Instant;

use bootstrap::program_identity::identity;
use nix::unistd::{AccessFlags, eaccess};
use object::elf::{FileHeader32, FileHeader64};
use object::read::ReadCache;
use object::read::elf::{FileHeader, ProgramHeader};
use object::{Endianness, FileKind, ReadRef};
use settings::deadlines::tree::{LOADER, LOADER_POLL};

use super::libraries;
use crate::agent::processes::read_all;
use spawner_ssh::diagnosis::{Class, Failure};

/// Checks the program, which must be an absolute path; `env` is what its ranks will have.
pub(super) fn program(path: &Path, env: &[(OsString, OsString)]) -> Result<(), Failure> {
    let failed = |text: String| {
        Err(Failure::new(Class::Program, format!("cannot execute {}: {text}", path.display())))
    };
    match std::fs::metadata(path) {
        Err(error) => return failed(error.to_string()),
        Ok(data) if !data.is_file() => return failed("not a file".to_owned()),
        Ok(_) => {}
    }
    if let Err(errno) = eaccess(path, AccessFlags::X_OK) {
        return failed(errno.desc().to_owned());
    }
    let Some(elf) = Elf::read(path) else { return Ok(()) };
    let own = Elf::read(Path::new("/proc/self/exe"));
    if own.as_ref().is_some_and(|own| own.machine != elf.machine) {
        let theirs = elf.machine;
        return failed(format!("it is built for another machine (ELF machine {theirs})"));
    }
    let Some(loader) = elf.loader else { return Ok(()) };
    if !loader.exists() {
        return failed(format!("its loader {} is not there", loader.display()));
    }
    let same = own.and_then(|own| own.loader).as_ref() == Some(&loader);
    if same && libraries::are_known(path, env) { Ok(()) } else { ask_loader(&loader, path, env) }
}

/// Checks that a program is the one of the launching host, which has this number there.
pub(super) fn same(path: &Path, there: u64) -> Result<(), Failure> {
    // What cannot be read can be run all the same.
    let own = File::open(path).and_then(|file| identity(&file)).unwrap_or(there);
    if own == there {
        return Ok(());
    }
    let path = path.display();
    Err(Failure::new(
        Class::Program,
        format!(
            "{path} is another program than on the launching host (GASNET_IBV_SAME_PROGRAM=0 allows different builds)"
        ),
    ))
}

/// Asks the loader for the libraries of a program, which is not run by that.
fn ask_loader(loader: &Path, path: &Path, env: &[(OsString, OsString)]) -> Result<(), Failure> {
    let mut command = Command::new(loader);
    command.arg("--list").arg(path).env_clear().envs(env.iter().cloned());
    // It ends soon; when this agent is killed, the reaper ends it. So nothing needs to be prepared
    // in the child, and the system's quick way to start it can be taken.
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).process_group(0);
    // A loader that cannot be asked tells when the ranks start.
    let Some(text) = command.spawn().ok().and_then(complaint) else { return Ok(()) };
    let telling = ["shared librar", "not found"];
    let line = text.lines().find(|line| telling.iter().any(|words| line.contains(words)));
    line.map_or(Ok(()), |line| Err(Failure::new(Class::Library, line.trim())))
}

/// The first of the standard error of a process that fails in time.
fn complaint(mut child: Child) -> Option<String> {
    const MOST: usize = 16 * 1024;
    let until = Instant::now() + LOADER.limit;
    let text = child.stderr.take().and_then(|err| read_all(err, until, MOST).ok());
    let ended = text.and_then(|text| Some((text, end(&mut child, until)?)));
    let Some((text, status)) = ended else {
        let _ = child.kill();
        let _ = child.wait();
        return None;
    };
    (!status.success()).then(|| String::from_utf8_lossy(&text).into_owned())
}

/// How a process ends that has closed its standard error, which shows at once or very soon; `None`
/// when not in time.
fn end(child: &mut Child, until: Instant) -> Option<ExitStatus> {
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if Instant::now() < until => {
                std::thread::sleep(LOADER_POLL.limit);
            }
            _ => return None,
        }
    }
}

struct Elf {
    machine: u16,
    /// Who loads its libraries.
    loader: Option<PathBuf>,
}

impl Elf {
    /// `None` for anything else, or when it cannot be read.
    fn read(path: &Path) -> Option<Self> {
        let data = ReadCache::new(File::open(path).ok()?);
        match FileKind::parse(&data).ok()? {
            FileKind::Elf32 => Self::parse::<FileHeader32<Endianness>, _>(&data),
            FileKind::Elf64 => Self::parse::<FileHeader64<Endianness>, _>(&data),
            _ => None,
        }
    }

    fn parse<'a, H: FileHeader<Endian = Endianness>, R: ReadRef<'a>>(data: R) -> Option<Self> {
        let head = H::parse(data).ok()?;
        let endian = head.endian().ok()?;
        let entries = head.program_headers(endian, data).unwrap_or_default();
        let name = entries.iter().find_map(|entry| entry.interpreter(endian, data).ok().flatten());
        let loader = name.filter(|name| !name.is_empty()).map(OsStr::from_bytes).map(PathBuf::from);
        Some(Self { machine: head.e_machine(endian), loader })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn what_can_be_wrong_with_a_program() {
        assert!(program(Path::new("/bin/sh"), &[]).is_ok());
        let seen = |path: &Path| program(path, &[]).unwrap_err().seen;
        assert!(seen(Path::new("/nonexistent/x")).contains("No such file"));
        assert!(seen(Path::new("/")).contains("not a file"));
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("program");
        let mut elf = std::fs::read("/bin/sh").unwrap();
        elf[18] ^= 0x55;
        std::fs::write(&path, elf).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert!(seen(&path).contains("another machine"));
        std::fs::write(&path, "echo").unwrap();
        assert!(program(&path, &[]).is_ok(), "the kernel decides about what is no ELF file");
    }

    #[test]
    fn another_program_at_the_same_place_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("program");
        std::fs::write(&path, "one").unwrap();
        let there = identity(&File::open(&path).unwrap()).unwrap();
        assert_eq!(same(&path, there), Ok(()));
        std::fs::write(&path, "two").unwrap();
        let seen = same(&path, there).unwrap_err().seen;
        assert!(seen.contains("another program than on the launching host"), "{seen}");
        assert_eq!(same(Path::new("/nowhere"), there), Ok(()), "that is told elsewhere");
    }

    #[test]
    fn a_head_that_lies_is_read_without_harm() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("program");
        let whole = std::fs::read("/bin/sh").unwrap();
        assert!(Elf::read(Path::new("/bin/sh")).unwrap().loader.is_some(), "a dynamic program");
        for at in 0..64 {
            for value in [0, 1, 0x7f, 0xff] {
                let mut elf = whole[..4096.min(whole.len())].to_vec();
                elf[at] = value;
                std::fs::write(&path, &elf).unwrap();
                let _ = Elf::read(&path);
                std::fs::write(&path, &elf[..at]).unwrap();
                assert!(at >= 52 || Elf::read(&path).is_none());
            }
        }
    }

    #[test]
    fn a_missing_library_is_told_in_the_words_of_the_loader() {
        let directory = tempfile::tempdir().unwrap();
        let loader = directory.path().join("loader");
        let said = "p: error while loading shared libraries: libx.so: cannot open";
        std::fs::write(&loader, format!("#!/bin/sh\necho \"{said}$LATER\" >&2; exit 127\n"))
            .unwrap();
        std::fs::set_permissions(&loader, std::fs::Permissions::from_mode(0o755)).unwrap();
        let env = [("LATER".into(), "!".into()), ("PATH".into(), "/bin".into())];
        let failure = ask_loader(&loader, Path::new("/p"), &env).unwrap_err();
        assert_eq!(failure, Failure::new(Class::Library, format!("{said}!")));
        std::fs::write(&loader, "#!/bin/sh\necho unknown option --list >&2; exit 1\n").unwrap();
        assert!(ask_loader(&loader, Path::new("/p"), &[]).is_ok(), "it cannot be asked");
        assert!(ask_loader(Path::new("/nowhere"), Path::new("/p"), &[]).is_ok());
    }
}
