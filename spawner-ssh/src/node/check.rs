//! Whether the job can run on this host, before any rank is started.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use nix::unistd::{AccessFlags, eaccess};

use crate::tree::diagnosis::{Class, Failure};

/// Checks the program, which must be an absolute path.
pub(super) fn program(path: &Path) -> Result<(), Failure> {
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
    match machine(path) {
        Some(theirs) if Some(theirs) != machine(Path::new("/proc/self/exe")) => {
            failed(format!("it is built for another machine (ELF machine {theirs})"))
        }
        _ => Ok(()),
    }
}

/// The machine that an ELF file is built for; `None` for anything else, or when it cannot be read.
fn machine(path: &Path) -> Option<u16> {
    let mut head = [0; 20];
    File::open(path).ok()?.read_exact(&mut head).ok()?;
    let bytes = [head[18], head[19]];
    let number = if head[5] == 2 { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) };
    head.starts_with(b"\x7fELF").then_some(number)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn what_can_be_wrong_with_a_program() {
        assert!(program(Path::new("/bin/sh")).is_ok());
        let seen = |path: &Path| program(path).unwrap_err().seen;
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
        assert!(program(&path).is_ok(), "the kernel decides about what is no ELF file");
    }
}
