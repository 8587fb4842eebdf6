//! What the lists of known hosts say about a host and its key, as OpenSSH reads them.

use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use spawner_ssh::auto::pattern::list_matches;
use ssh2::{CheckResult, KnownHostFileKind};

/// What is known of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is the host's.
    Known,
    /// The host has another key of this type.
    Changed,
    /// Nothing.
    New,
    /// It takes the ssh program to know: a line of an authority, or one that revokes keys.
    Marked(&'static str),
}

/// A line that means the host.
struct Entry<'a> {
    marker: Option<&'static str>,
    kind: &'a str,
    key: Vec<u8>,
}

/// All lines that can be understood: one that cannot spoils no other.
#[derive(Debug, Default)]
pub(crate) struct KnownHosts {
    lines: Vec<String>,
    files: Vec<PathBuf>,
}

/// Whether a hidden name is this one.
pub(crate) type Hidden<'a> = &'a dyn Fn(&str, &str) -> bool;

impl KnownHosts {
    pub(crate) fn read(files: Vec<PathBuf>) -> Self {
        let texts = files.iter().filter_map(|path| std::fs::read(path).ok());
        let lines = texts.flat_map(|text| {
            String::from_utf8_lossy(&text).lines().map(str::to_owned).collect::<Vec<_>>()
        });
        Self { lines: lines.collect(), files }
    }

    /// Names of the files, for people.
    pub(crate) fn files(&self) -> String {
        let files: Vec<String> = self.files.iter().map(|file| file.display().to_string()).collect();
        if files.is_empty() { "any file".to_owned() } else { files.join(" and ") }
    }

    fn entries<'a>(&'a self, name: &'a str, hidden: Hidden<'a>) -> impl Iterator<Item = Entry<'a>> {
        self.lines.iter().filter_map(move |line| entry(line, name, hidden))
    }

    /// Types of the keys that are those of a host.
    pub(crate) fn types(&self, name: &str, hidden: Hidden<'_>) -> Vec<String> {
        let mut types = Vec::new();
        for entry in self.entries(name, hidden).filter(|entry| entry.marker.is_none()) {
            if !types.iter().any(|known| known == entry.kind) {
                types.push(entry.kind.to_owned());
            }
        }
        types
    }

    /// What is known of the key of the host with this name.
    pub(crate) fn verdict(&self, name: &str, key: &[u8], hidden: Hidden<'_>) -> Verdict {
        let (kind, mut verdict) = (kind(key).unwrap_or_default(), Verdict::New);
        for entry in self.entries(name, hidden) {
            match entry.marker {
                Some(marker) => return Verdict::Marked(marker),
                None if entry.key == key => verdict = Verdict::Known,
                None if entry.kind == kind && verdict == Verdict::New => verdict = Verdict::Changed,
                None => {}
            }
        }
        verdict
    }
}

/// The line as one of this host; `None` when it is none, or damaged.
fn entry<'a>(line: &'a str, name: &str, hidden: Hidden<'_>) -> Option<Entry<'a>> {
    let line = line.trim();
    let (marker, line) = match line.split_once([' ', '\t']) {
        Some(("@cert-authority", rest)) => (Some("@cert-authority"), rest),
        Some(("@revoked", rest)) => (Some("@revoked"), rest),
        _ if line.starts_with(['#', '@']) => return None,
        _ => (None, line),
    };
    let mut words = line.split_ascii_whitespace();
    let (names, written, key) = (words.next()?, words.next()?, words.next()?);
    let key = STANDARD.decode(key).ok();
    let is_ours = match names.starts_with('|') {
        true => hidden(names, name),
        false => list_matches(name, &names.to_ascii_lowercase()),
    };
    // What a marked line says counts even where its key cannot be read here.
    let key = key.or_else(|| marker.map(|_| Vec::new()))?;
    if !is_ours || (marker.is_none() && kind(&key) != Some(written)) {
        return None;
    }
    Some(Entry { marker, kind: written, key })
}

/// The type that a key in its usual form names.
pub(crate) fn kind(key: &[u8]) -> Option<&str> {
    part(key).and_then(|(kind, _)| std::str::from_utf8(kind).ok())
}

/// The first field of a text of ssh, and what is behind it.
pub(crate) fn part(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    rest.split_at_checked(usize::try_from(u32::from_be_bytes(*length)).ok()?)
}

/// Bits of an RSA key; none of another.
pub(crate) fn rsa_bits(key: &[u8]) -> Option<usize> {
    let (kind, rest) = part(key)?;
    let (_, rest) = part(rest)?;
    let (modulus, _) = part(rest)?;
    let first = modulus.iter().position(|byte| *byte != 0)?;
    let modulus = &modulus[first..];
    let bits = modulus.len() * 8 - modulus.first().map_or(0, |byte| byte.leading_zeros() as usize);
    (kind == b"ssh-rsa").then_some(bits)
}

/// Whether a hidden name (`|1|salt|hash`) is this one; libssh2 knows how.
pub(crate) fn is_hidden(session: &ssh2::Session, names: &str, name: &str) -> bool {
    // A key that stands for any.
    const KEY: &str = "AAAAC3NzaC1lZDI1NTE5AAAAIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
    let Ok(mut known) = session.known_hosts() else { return false };
    let line = format!("{names} ssh-ed25519 {KEY}");
    if known.read_str(&line, KnownHostFileKind::OpenSSH).is_err() {
        return false;
    }
    let found = known.check(name, &STANDARD.decode(KEY).unwrap_or_default());
    matches!(found, CheckResult::Match | CheckResult::Mismatch)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A key of this type, as text and bytes.
    fn key(kind: &str, content: u8) -> (String, Vec<u8>) {
        let length = u32::try_from(kind.len()).unwrap().to_be_bytes();
        let bytes = [&length[..], kind.as_bytes(), &[0, 0, 0, 1, content]].concat();
        (format!("{kind} {}", STANDARD.encode(&bytes)), bytes)
    }

    #[test]
    fn the_table_of_lines() {
        let ((a, bytes), (b, _)) = (key("ssh-ed25519", 1), key("ssh-ed25519", 2));
        let (rsa, _) = key("ssh-rsa", 1);
        let hidden = |names: &str, name: &str| names == "|1|of|n1" && name == "n1";
        let verdict = |text: &str, name: &str| {
            let lines = text.lines().map(str::to_owned).collect();
            KnownHosts { lines, files: Vec::new() }.verdict(name, &bytes, &hidden)
        };
        use Verdict::{Changed, Known, Marked, New};
        for (text, name, expected) in [
            (format!("n1 {a}"), "n1", Known),
            (format!("n1,1.2.3.4\t{a} comment"), "1.2.3.4", Known),
            (format!("N1 {a}"), "n1", Known),
            (format!("n1 {a}"), "n2", New),
            (format!("n1 {b}"), "n1", Changed),
            (format!("n1 {b}\nn1 {a}"), "n1", Known),
            (format!("n1 {a}\nn1 {b}"), "n1", Known),
            (format!("n1 {rsa}"), "n1", New),
            (format!("n? {a}"), "n1", Known),
            (format!("n*,!n1 {a}"), "n1", New),
            (format!("[n1]:2222 {a}"), "[n1]:2222", Known),
            (format!("[n1]:2222 {a}"), "n1", New),
            (format!("|1|of|n1 {a}"), "n1", Known),
            (format!("|1|of|n1 {b}"), "n1", Changed),
            (format!("|1|of|other {a}"), "n1", New),
            (format!("@revoked n1 {a}\nn1 {a}"), "n1", Marked("@revoked")),
            (format!("n1 {a}\n@revoked * {b}"), "n1", Marked("@revoked")),
            (format!("n1 {a}\n@cert-authority n* {rsa}"), "n1", Marked("@cert-authority")),
            (format!("@cert-authority n2 {rsa}\nn1 {a}"), "n1", Known),
            (format!("@cert-authority n1 ssh-new AA=A\nn1 {a}"), "n1", Marked("@cert-authority")),
            (format!("# n1 {a}"), "n1", New),
            (format!("@what n1 {a}"), "n1", New),
            ("n1 ssh-ed25519 not/base64!".to_owned(), "n1", New),
            ("n1 ssh-ed25519".to_owned(), "n1", New),
            ("n1".to_owned(), "n1", New),
            (format!("n1 ssh-rsa {}", a.split(' ').nth(1).unwrap()), "n1", New),
            (format!("\u{0}\nn1 x y z\n\nn1 {a}"), "n1", Known),
        ] {
            assert_eq!(verdict(&text, name), expected, "{text} for {name}");
        }
    }

    #[test]
    fn hidden_names_are_those_of_ssh_keygen() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("known");
        let (text, bytes) = key("ssh-ed25519", 1);
        // ssh-keygen knows the length of such a key.
        let whole = [&bytes[..15], &[0, 0, 0, 32], &[7; 32]].concat();
        let _ = text;
        let line = format!("n1,[n2]:2222 ssh-ed25519 {}\n", STANDARD.encode(&whole));
        std::fs::write(&path, line).unwrap();
        let mut hide = std::process::Command::new("ssh-keygen");
        match hide.arg("-H").arg("-f").arg(&path).output() {
            Ok(output) if output.status.success() => {}
            other => return testkit::skip("hidden names", &format!("no ssh-keygen: {other:?}")),
        }
        let session = ssh2::Session::new().unwrap();
        let hidden = |names: &str, name: &str| is_hidden(&session, names, name);
        let known = KnownHosts::read(vec![path]);
        assert!(known.lines.iter().all(|line| line.starts_with('|')), "{:?}", known.lines);
        for (name, verdict) in [
            ("n1", Verdict::Known),
            ("[n2]:2222", Verdict::Known),
            ("n2", Verdict::New),
            ("n3", Verdict::New),
        ] {
            assert_eq!(known.verdict(name, &whole, &hidden), verdict, "{name}");
        }
        assert_eq!(known.types("n1", &hidden), ["ssh-ed25519"]);
    }

    #[test]
    fn lengths_of_keys() {
        let field =
            |bytes: &[u8]| [&u32::try_from(bytes.len()).unwrap().to_be_bytes()[..], bytes].concat();
        let modulus = [&[0, 0x80][..], &[0; 127]].concat();
        let key = [field(b"ssh-rsa"), field(&[1, 0, 1]), field(&modulus)].concat();
        assert_eq!(rsa_bits(&key), Some(1024));
        assert_eq!(rsa_bits(&field(b"ssh-rsa")), None);
        assert_eq!(part(&[0, 0, 0, 9, 1]), None);
        assert_eq!(part(&[0xff; 5]), None);
    }
}
