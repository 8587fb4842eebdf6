//! What a probe of pinnable memory has found, kept for the next job: a small text file of the user,
//! which counts for one start of the host, one limit on locked memory, the same devices and the same
//! question.

use std::fmt::Write as _;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use nix::unistd::geteuid;

const FIRST: &str = "gasnet_ibv pinnable memory 1";
/// No such file is longer.
const MOST: u64 = 4096;

/// What it counts for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Circumstances {
    /// Of this start of the host.
    pub(super) boot: String,
    /// Soft limit on locked memory of this process; `None`: it has none.
    pub(super) locked: Option<u64>,
    pub(super) devices: Vec<String>,
    /// What was looked for at most.
    pub(super) most: u64,
}

impl Circumstances {
    fn lines(&self) -> String {
        let locked = self.locked.map_or_else(|| "none".to_owned(), |bytes| bytes.to_string());
        format!(
            "{FIRST}\nboot {}\nlocked {locked}\ndevices {}\nmost {}\n",
            self.boot,
            self.devices.join(" "),
            self.most
        )
    }

    /// The text of a file.
    fn text(&self, found: u64) -> String {
        let mut text = self.lines();
        let _infallible = writeln!(text, "found {found}\nend");
        text
    }
}

/// What a file says.
#[derive(Debug, PartialEq, Eq)]
enum Said {
    Found(u64),
    /// It is about something else.
    Other,
    Damaged,
}

fn read(text: &str, now: &Circumstances) -> Said {
    let lines: Vec<&str> = text.lines().collect();
    let names = ["boot ", "locked ", "devices ", "most ", "found "];
    let [first, facts @ .., "end"] = lines.as_slice() else { return Said::Damaged };
    let is_whole = facts.len() == names.len()
        && facts.iter().zip(names).all(|(line, name)| line.starts_with(name));
    let found = facts.last().and_then(|line| line.strip_prefix("found ")?.parse().ok());
    match found {
        Some(found) if *first == FIRST && is_whole && found <= now.most => {
            if text.starts_with(&now.lines()) { Said::Found(found) } else { Said::Other }
        }
        Some(found) if *first == FIRST && is_whole && found > 0 => Said::Other,
        _ => Said::Damaged,
    }
}

/// The file of this host below the first place where there can be one.
#[derive(Debug)]
pub(super) struct Kept(PathBuf);

impl Kept {
    pub(super) fn below(places: &[PathBuf], host: &str) -> Option<Self> {
        let name: String =
            host.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').collect();
        let place = places.iter().find(|place| is_usable(place))?;
        Some(Self(place.join(format!("pinnable.{name}"))))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// What was found before in the same circumstances.
    ///
    /// # Errors
    /// In words: why a file that is there does not count.
    pub(super) fn found(&self, now: &Circumstances) -> Result<Option<u64>, String> {
        let open = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC)
            .open(&self.0);
        let file = match open {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(format!("cannot be opened: {error}")),
        };
        let text = own_text(&file)?;
        match read(&text, now) {
            Said::Found(found) => Ok(Some(found)),
            Said::Other => Ok(None),
            Said::Damaged => Err("is damaged".to_owned()),
        }
    }

    /// Keeps what was found, in place of what was there.
    pub(super) fn keep(&self, now: &Circumstances, found: u64) -> io::Result<()> {
        let new = self.0.with_extension(format!("new{}", std::process::id()));
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        let done = file
            .write_all(now.text(found).as_bytes())
            .and_then(|()| std::fs::rename(&new, &self.0));
        if done.is_err() {
            let _ = std::fs::remove_file(&new);
        }
        done
    }
}

/// The text of a file that is the user's alone.
fn own_text(file: &File) -> Result<String, String> {
    let about = file.metadata().map_err(|error| format!("cannot be looked at: {error}"))?;
    if !about.is_file() {
        return Err("is no file".to_owned());
    }
    if about.uid() != geteuid().as_raw() {
        return Err(format!("belongs to user {}", about.uid()));
    }
    if about.mode() & 0o077 != 0 {
        return Err(format!("may be used by others (mode {:o})", about.mode() & 0o777));
    }
    let mut text = String::new();
    match file.take(MOST + 1).read_to_string(&mut text) {
        Ok(len) if len as u64 <= MOST => Ok(text),
        Ok(_) => Err("is damaged".to_owned()),
        Err(error) => Err(format!("cannot be read: {error}")),
    }
}

/// Whether a directory is the user's, who alone may write there; it is made if it is missing.
fn is_usable(place: &Path) -> bool {
    let _there_or_not = DirBuilder::new().mode(0o700).create(place);
    let mine = |about: std::fs::Metadata| {
        about.is_dir() && about.uid() == geteuid().as_raw() && about.mode() & 0o022 == 0
    };
    place.symlink_metadata().is_ok_and(mine)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use proptest::prelude::*;

    use super::*;

    fn now() -> Circumstances {
        let (boot, devices) = ("b-1".to_owned(), vec!["mlx5_0".to_owned(), "mlx5_1".to_owned()]);
        Circumstances { boot, locked: Some(65_536), devices, most: 1 << 30 }
    }

    fn place(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("pinnable-{name}-{}", std::process::id()))
    }

    #[test]
    fn what_is_kept_counts_in_the_same_circumstances_alone() {
        let place = place("kept");
        let kept = Kept::below(std::slice::from_ref(&place), "host.example").unwrap();
        assert!(kept.path().ends_with("pinnable.hostexample"));
        assert_eq!(kept.found(&now()), Ok(None));
        kept.keep(&now(), 12_345).unwrap();
        assert_eq!(kept.found(&now()), Ok(Some(12_345)));
        assert_eq!(kept.path().metadata().unwrap().mode() & 0o777, 0o600);
        for other in [
            Circumstances { boot: "b-2".to_owned(), ..now() },
            Circumstances { locked: None, ..now() },
            Circumstances { devices: vec!["mlx5_0".to_owned()], ..now() },
            Circumstances { most: 12_344, ..now() },
        ] {
            assert_eq!(kept.found(&other), Ok(None), "{other:?}");
        }
        kept.keep(&now(), 99).unwrap();
        assert_eq!(kept.found(&now()), Ok(Some(99)));
        std::fs::remove_dir_all(place).unwrap();
    }

    #[test]
    fn a_file_that_is_not_the_users_own_or_is_damaged_is_refused_with_the_reason() {
        let place = place("refused");
        let kept = Kept::below(std::slice::from_ref(&place), "h").unwrap();
        kept.keep(&now(), 5).unwrap();
        let mode = |mode| std::fs::set_permissions(kept.path(), PermissionsExt::from_mode(mode));
        mode(0o644).unwrap();
        assert!(kept.found(&now()).unwrap_err().contains("mode 644"));
        mode(0o600).unwrap();
        if geteuid().is_root() {
            std::os::unix::fs::chown(kept.path(), Some(65_534), None).unwrap();
            assert!(kept.found(&now()).unwrap_err().contains("belongs to user 65534"));
            std::os::unix::fs::chown(kept.path(), Some(0), None).unwrap();
        } else {
            println!("SKIP: only root can give a file away");
        }
        for text in ["", "x", "gasnet_ibv pinnable memory 1\nend\n"] {
            std::fs::write(kept.path(), text).unwrap();
            assert_eq!(kept.found(&now()), Err("is damaged".to_owned()));
        }
        std::fs::write(kept.path(), vec![b'a'; 5000]).unwrap();
        assert_eq!(kept.found(&now()), Err("is damaged".to_owned()));
        std::fs::remove_file(kept.path()).unwrap();
        std::os::unix::fs::symlink("/dev/zero", kept.path()).unwrap();
        assert!(kept.found(&now()).unwrap_err().contains("cannot be opened"));
        std::fs::set_permissions(&place, PermissionsExt::from_mode(0o777)).unwrap();
        assert!(Kept::below(std::slice::from_ref(&place), "h").is_none());
        std::fs::remove_dir_all(place).unwrap();
    }

    proptest! {
        /// A text that was cut or changed is never taken for another number.
        #[test]
        fn a_damaged_text_is_seen(cut in 0_usize..120, at in 0_usize..120, byte in any::<u8>()) {
            let whole = now().text(54_321);
            prop_assert_eq!(read(&whole, &now()), Said::Found(54_321));
            let cut = whole.get(..cut).filter(|text| text.len() + 1 < whole.len());
            prop_assert!(cut.is_none_or(|cut| read(cut, &now()) == Said::Damaged));
            let mut bytes = whole.clone().into_bytes();
            let found = whole.find("found").unwrap();
            if at < found && bytes[at] != byte {
                bytes[at] = byte;
                let text = String::from_utf8_lossy(&bytes).into_owned();
                prop_assert!(!matches!(read(&text, &now()), Said::Found(_)));
            }
        }
    }
}
