//! What the configuration files of OpenSSH ask about a host's name: hosts that nothing in them
//! tells apart have the same configuration. Only that is read here; what the files say otherwise,
//! `ssh -G` answers.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::pattern::matches;

const SYSTEM: &str = "/etc/ssh";
/// As OpenSSH: includes within includes.
const DEPTH: u32 = 16;
/// Of a file that is read here; no configuration is longer.
const MAX_BYTES: u64 = 1 << 20;
/// Files that are read, includes counted.
const MAX_FILES: u32 = 256;

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Files {
    /// All names and patterns that hosts are compared with.
    patterns: Vec<String>,
    /// Those whose hosts have something of their own: another name.
    single: Vec<String>,
    /// Something depends on more than the name as it is written.
    alone: bool,
    /// A file with a command that is run to find out what counts.
    pub exec: Option<PathBuf>,
    /// A file that says anything.
    pub any: Option<PathBuf>,
    read: u32,
}

/// Where the directives of a file belong.
#[derive(Clone)]
enum Block {
    All,
    Hosts(Vec<String>),
    Other,
}

impl Files {
    /// Reads what `ssh` would with these options.
    #[must_use]
    pub fn read(options: &[OsString], home: &Path) -> Self {
        let mut files = Self::default();
        let name_asked =
            |word: &OsString| word.to_string_lossy().to_ascii_lowercase().contains("hostname");
        files.alone = options.iter().any(name_asked);
        match own_file(options) {
            Some(path) if path == Path::new("none") => {}
            Some(path) => files.file(&path, &home.join(".ssh"), home, &mut Block::All, 0),
            None => {
                let own = home.join(".ssh");
                files.file(&own.join("config"), &own, home, &mut Block::All, 0);
                let system = Path::new(SYSTEM);
                files.file(&system.join("ssh_config"), system, home, &mut Block::All, 0);
            }
        }
        files
    }

    /// What tells the host from others; `None` when it may have a configuration of its own.
    #[must_use]
    pub fn group(&self, name: &str) -> Option<Vec<bool>> {
        if self.alone || self.single.iter().any(|pattern| matches(name, pattern)) {
            return None;
        }
        Some(self.patterns.iter().map(|pattern| matches(name, pattern)).collect())
    }

    fn file(&mut self, path: &Path, base: &Path, home: &Path, block: &mut Block, depth: u32) {
        let size = match std::fs::metadata(path) {
            Ok(found) => found.len(),
            Err(_) => return,
        };
        let text = if size > MAX_BYTES { None } else { std::fs::read_to_string(path).ok() };
        self.read += 1;
        let Some(text) = text.filter(|_| depth <= DEPTH && self.read <= MAX_FILES) else {
            self.alone = true;
            return;
        };
        for line in text.lines() {
            let (keyword, words) = cut(line);
            if keyword.is_empty() {
                continue;
            }
            self.any.get_or_insert_with(|| path.to_owned());
            match keyword.as_str() {
                "host" => {
                    let names = words.iter().map(|word| word.trim_start_matches('!').to_owned());
                    *block = Block::Hosts(names.collect());
                    self.patterns
                        .extend(words.iter().map(|w| w.trim_start_matches('!').to_owned()));
                }
                "match" => *block = self.criteria(&words, path),
                "hostname" => match &*block {
                    Block::Hosts(names) => self.single.extend(names.iter().cloned()),
                    Block::All | Block::Other => self.alone = true,
                },
                "include" => {
                    for word in &words {
                        self.include(word, base, home, block, depth);
                    }
                }
                _ => {}
            }
        }
    }

    fn criteria(&mut self, words: &[String], path: &Path) -> Block {
        let mut words = words.iter().flat_map(|word| word.split('='));
        let mut block = Block::All;
        while let Some(word) = words.next() {
            block = Block::Other;
            match word.trim_start_matches('!').to_ascii_lowercase().as_str() {
                "all" => block = Block::All,
                "host" | "originalhost" => {
                    let names = words.next().unwrap_or_default().split(',');
                    self.patterns.extend(names.map(|name| name.trim_start_matches('!').to_owned()));
                }
                // The user is a part of what is asked about, and who we are does not change.
                "user" | "localuser" => drop(words.next()),
                "exec" => {
                    self.exec.get_or_insert_with(|| path.to_owned());
                    self.alone = true;
                    return block;
                }
                _ => {
                    self.alone = true;
                    return block;
                }
            }
        }
        block
    }

    /// Files of a directory whose names are like a pattern; anything else is not followed.
    fn include(&mut self, word: &str, base: &Path, home: &Path, block: &Block, depth: u32) {
        let path = match word.strip_prefix("~/") {
            Some(rest) => home.join(rest),
            None => base.join(word),
        };
        let directory = path.parent().unwrap_or(base);
        let (Some(name), Some(above)) =
            (path.file_name().and_then(|n| n.to_str()), directory.to_str())
        else {
            self.alone = true;
            return;
        };
        if above.contains(['*', '?', '['])
            || name.contains('[')
            || word.contains(['$', '~', '%']) && !word.starts_with("~/")
        {
            self.alone = true;
            return;
        }
        let mut found: Vec<PathBuf> = match std::fs::read_dir(directory) {
            Ok(entries) => {
                let like = |entry: &std::fs::DirEntry| {
                    let own = entry.file_name();
                    own.to_str().is_some_and(|own| {
                        matches(own, name) && (name.starts_with('.') || !own.starts_with('.'))
                    })
                };
                entries.flatten().filter(like).map(|entry| entry.path()).collect()
            }
            Err(_) => Vec::new(),
        };
        found.sort();
        for path in found {
            // A block that an included file opens ends with it.
            self.file(&path, base, home, &mut block.clone(), depth + 1);
        }
    }
}

/// The file that `-F` names.
fn own_file(options: &[OsString]) -> Option<PathBuf> {
    let mut words = options.iter();
    while let Some(word) = words.next() {
        match word.to_str() {
            Some("-F") => return words.next().map(PathBuf::from),
            Some(text) if text.starts_with("-F") => return Some(PathBuf::from(&text[2..])),
            _ => {}
        }
    }
    None
}

/// Keyword in small letters, and the words behind it without their quotes.
fn cut(line: &str) -> (String, Vec<String>) {
    let line = line.trim();
    if line.starts_with('#') {
        return (String::new(), Vec::new());
    }
    let end = line.find([' ', '\t', '=', '"']).unwrap_or(line.len());
    let (keyword, rest) = line.split_at(end);
    let rest = rest.trim_start_matches([' ', '\t']);
    let rest = rest.strip_prefix('=').unwrap_or(rest);
    let (mut words, mut word, mut quoted) = (Vec::new(), String::new(), false);
    for letter in rest.chars() {
        match letter {
            '"' => quoted = !quoted,
            ' ' | '\t' if !quoted => words.push(std::mem::take(&mut word)),
            _ => word.push(letter),
        }
    }
    words.push(word);
    words.retain(|word| !word.is_empty());
    (keyword.to_ascii_lowercase(), words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Files {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("config");
        std::fs::write(&path, text).unwrap();
        Files::read(&["-F".into(), path.into()], home.path())
    }

    #[test]
    fn hosts_that_no_pattern_tells_apart_are_one_group() {
        let files = read(
            "Compression no\nHost a* !ab\n Port 7\nhost=\"b c\" d\nMatch host x,!y user me\n Port 3\n",
        );
        assert_eq!(files.group("n1"), files.group("n2"));
        assert_ne!(files.group("n1"), files.group("a1"));
        assert_ne!(files.group("a1"), files.group("ab"));
        assert_ne!(files.group("n1"), files.group("d"));
        assert_ne!(files.group("n1"), files.group("x"));
        assert_ne!(files.group("n1"), files.group("y"));
        assert!(files.group("n1").is_some() && files.any.is_some() && files.exec.is_none());
    }

    #[test]
    fn what_depends_on_more_than_patterns_is_asked_for_each_host() {
        let named = read("Host a b\n HostName c\nHost *\n");
        assert!(named.group("a").is_none() && named.group("b").is_none());
        assert!(named.group("n1").is_some());
        for text in
            ["HostName x", "Match final\n", "Match localnetwork 10.0.0.0/8", "Include /a*/b"]
        {
            assert_eq!(read(text).group("n1"), None, "{text}");
        }
        assert!(read("Match all\nPort 7\n").group("n1").is_some());
        let exec = read("Match host x exec \"test -e /y\"\n");
        assert!(exec.exec.is_some() && exec.group("n1").is_none());
        let options = ["-o".into(), "HostName=x".into(), "-Fnone".into()];
        assert_eq!(Files::read(&options, Path::new("/nowhere")).group("n1"), None);
    }

    #[test]
    fn included_files_count() {
        let home = tempfile::tempdir().unwrap();
        let own = home.path().join(".ssh");
        std::fs::create_dir_all(own.join("d")).unwrap();
        std::fs::write(own.join("config"), "Include d/*.conf ~/.ssh/missing\nHost z\n").unwrap();
        std::fs::write(own.join("d/a.conf"), "Host q\n HostName r\n").unwrap();
        std::fs::write(own.join("d/a.txt"), "HostName r\n").unwrap();
        let files = Files::read(&[], home.path());
        assert!(files.group("q").is_none() && files.group("n1").is_some());
        assert_ne!(files.group("z"), files.group("n1"));
        std::fs::write(own.join("d/b.conf"), "Include d/*.conf d/b.conf\n").unwrap();
        let endless = Files::read(&[], home.path());
        assert_eq!(endless.group("n1"), None);
    }
}
