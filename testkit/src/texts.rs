//! Text that every Debian machine carries.

use std::path::PathBuf;

const ROOTS: [&str; 6] = [
    "/usr/share/common-licenses",
    "/usr/share/doc",
    "/usr/share/perl",
    "/usr/share/perl5",
    "/usr/lib/python3",
    "/usr/share/i18n/locales",
];

fn is_text(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    let ending = [".txt", ".pod", ".pm", ".pl", ".py", ".md"].iter().any(|end| name.ends_with(end));
    let place = path.contains("/common-licenses/") || path.contains("/locales/");
    !name.ends_with(".gz") && (ending || place || name == "copyright" || name.starts_with("README"))
}

/// At most `most` regular, non-empty text files, sorted by path.
#[must_use]
pub fn files(most: usize) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut directories: Vec<PathBuf> = ROOTS.iter().map(PathBuf::from).collect();
    while let Some(directory) = directories.pop() {
        let Ok(entries) = std::fs::read_dir(directory) else { continue };
        for entry in entries.filter_map(Result::ok) {
            let (Ok(data), path) = (entry.metadata(), entry.path()) else { continue };
            if data.is_dir() {
                directories.push(path);
            } else if data.is_file() && data.len() > 0 && path.to_str().is_some_and(is_text) {
                found.push(path);
            }
        }
    }
    found.sort();
    // Evenly over all of them, so that every kind of text is there.
    let step = found.len().div_ceil(most.max(1)).max(1);
    found.into_iter().step_by(step).collect()
}
