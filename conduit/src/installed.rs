//! The environment of a rank, with the defaults of the installation that it belongs to.

use std::path::{Path, PathBuf};

use settings::{Defaults, Env};

use crate::error::Error;

/// The environment of this process. Where no launcher of ours has done so, the defaults of the
/// installation that holds the program, or the library, are added.
pub(crate) fn environment() -> Result<Env, Error> {
    let env = Env::from_process();
    if is_checked(&env) {
        return Ok(env);
    }
    let files = [std::env::current_exe().ok(), library()];
    let files: Vec<&Path> = files.iter().flatten().map(PathBuf::as_path).collect();
    let defaults = Defaults::around(&files).map_err(|error| Error::Defaults(error.to_string()))?;
    Ok(env.with_defaults(defaults))
}

/// Whether a launcher of ours has looked at the settings.
pub(crate) fn is_checked(env: &Env) -> bool {
    env.get("GASNETRUN_CHECKED").is_some()
}

/// The file that this code was loaded from.
fn library() -> Option<PathBuf> {
    let here = library as fn() -> Option<PathBuf> as usize;
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    maps.lines().find_map(|line| file_at(line, here))
}

/// The file of a line of `/proc/self/maps`, if it covers an address.
fn file_at(line: &str, address: usize) -> Option<PathBuf> {
    let mut words = line.splitn(6, ' ');
    let (from, to) = words.next()?.split_once('-')?;
    let bound = |text| usize::from_str_radix(text, 16).ok();
    let path = words.nth(4)?.trim_start();
    (bound(from)? <= address && address < bound(to)? && path.starts_with('/'))
        .then(|| PathBuf::from(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_of_this_code_is_found() {
        let found = library().unwrap().canonicalize().unwrap();
        assert_eq!(found, std::env::current_exe().unwrap().canonicalize().unwrap());
        let line = "7f00-8000 r-xp 00000000 fd:01 123        /opt/a tree/lib/x.so";
        assert_eq!(file_at(line, 0x7fff), Some("/opt/a tree/lib/x.so".into()));
        assert_eq!(file_at(line, 0x8000), None);
        assert_eq!(file_at("7f00-8000 rw-p 00000000 00:00 0 ", 0x7fff), None);
        assert_eq!(file_at("", 0), None);
    }
}
