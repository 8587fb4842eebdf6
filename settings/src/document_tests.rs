//! Every variable of the documents of the InfiniBand conduit, and what becomes of it here.

use std::path::{Path, PathBuf};

use super::*;

/// Every name in the documents, and why it is no variable if it is none.
const DOCUMENTED: &str = include_str!("../tests/documented.txt");

/// What others are at work on.
const TO_COME: &[&str] = &[];

fn documented() -> impl Iterator<Item = (&'static str, &'static str)> {
    let lines = DOCUMENTED.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.split_once(": ").unwrap_or((line, "")))
}

/// What is wrong with a documented variable, empty when nothing is: it is a row that works, or one
/// that says why it does nothing.
fn wrong(name: &str) -> Vec<String> {
    let known = |row: &Variable| row.name == name || row.aliases.contains(&name);
    let with = |value: &str| warnings(&[(name, value)].into_iter().collect());
    let Some((idle, list)) = table::idle().find(|(idle, _)| idle.name == name) else {
        let works =
            rows().any(known) || unknown_names(&[(name, "1")].into_iter().collect()).is_empty();
        return if works { Vec::new() } else { vec![format!("{name} is unknown")] };
    };
    let mut wrong = Vec::new();
    if list.status == Status::Later && !TO_COME.iter().any(|begin| name.starts_with(begin)) {
        wrong.push(format!("{name} does nothing and gives no reason"));
    }
    if matches!(list.status, Status::Refused | Status::Obsolete) {
        let said = with("77");
        if said.len() != 1 || !said[0].contains(name) || !said[0].ends_with(list.advice) {
            wrong.push(format!("{name}=77 gives the warnings {said:?}"));
        }
    }
    if list.status == Status::Refused && !with(idle.usual).is_empty() {
        wrong.push(format!("{name}={:?}, its default, gives a warning", idle.usual));
    }
    if list.status == Status::Ignored && !with("77").is_empty() {
        wrong.push(format!("{name} gives a warning although it is set unasked"));
    }
    wrong
}

#[test]
fn each_documented_variable_works_or_is_refused_with_the_reason() {
    let names: Vec<_> = documented().collect();
    assert!(names.len() > 250, "{} names", names.len());
    let variables = names.iter().filter(|(_, none)| none.is_empty());
    let wrong: Vec<String> = variables.flat_map(|(name, _)| wrong(name)).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    for (name, _) in names.iter().filter(|(_, none)| !none.is_empty()) {
        assert!(find(name).is_none(), "{name} is a row");
    }
}

#[test]
fn the_full_listing_has_every_documented_variable_with_default_and_meaning() {
    let text = explain_settings(&Env::default());
    let lines: Vec<&str> = text.lines().collect();
    for (name, none) in documented() {
        let aliased = rows().find(|row| row.aliases.contains(&name));
        let family = name.starts_with("GASNET_IBV_PORTS_") && find(name).is_none();
        if !none.is_empty() || family {
            continue;
        }
        let shown = aliased.map_or(name, |row| row.name);
        let at = lines.iter().position(|line| line.split(' ').next() == Some(shown));
        let at = at.unwrap_or_else(|| panic!("{name} is not listed"));
        let meaning = lines[at + 1];
        assert!(meaning.starts_with("    ") && meaning.len() > 14, "{name}: {meaning:?}");
        assert!(aliased.is_none() || meaning.contains(name), "{name}: {meaning:?}");
        if let Some(Preset::Value(default)) = find(shown).map(|row| row.preset) {
            assert!(lines[at].contains(default), "{}", lines[at]);
        }
        let idle = table::idle().find(|(idle, _)| idle.name == shown);
        if let Some((_, list)) = idle.filter(|(_, list)| list.status == Status::Refused) {
            assert!(lines[at].contains("(refused") && meaning.ends_with(list.advice), "{meaning}");
        }
    }
}

/// Sources outside the table.
fn sources() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut text = String::new();
    let crates = std::fs::read_dir(&root).into_iter().flatten().filter_map(Result::ok);
    let mut directories: Vec<PathBuf> = crates
        .filter(|entry| entry.path().join("Cargo.toml").is_file())
        .map(|entry| entry.path().join("src"))
        .collect();
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).into_iter().flatten().filter_map(Result::ok) {
            let path = entry.path();
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
            match name.as_deref() {
                Some("rows" | "document_tests.rs" | "tests.rs") => {}
                _ if path.is_dir() => directories.push(path),
                _ => text.push_str(&std::fs::read_to_string(path).unwrap_or_default()),
            }
        }
    }
    text
}

/// Read under a name that is put together, by a library below, or true whatever the value is.
const READ_OTHERWISE: &[(&str, &str)] = &[
    ("HUGETLB_DEFAULT_PAGE_SIZE", "it counts through GASNET_USE_HUGEPAGES"),
    ("GASNET_RCV_THREAD_", "settings.rs joins GASNET_RCV_THREAD and a part"),
    ("GASNET_SND_THREAD_", "settings.rs joins GASNET_SND_THREAD and a part"),
    ("MLX4_SINGLE_THREADED", "the driver reads it"),
    ("MLX5_SINGLE_THREADED", "the driver reads it"),
    ("GASNET_DISABLE_ENVDECODE", "what it asks for is always so"),
    ("GASNET_DISABLE_ARGDECODE", "what it asks for is always so"),
];

#[test]
fn each_active_variable_has_a_reader() {
    let text = sources();
    assert!(text.len() > 100_000, "only {} bytes of sources found", text.len());
    let unread: Vec<&str> = rows()
        .map(|row| row.name)
        .filter(|name| !READ_OTHERWISE.iter().any(|(known, _)| name.starts_with(known)))
        .filter(|name| !text.contains(&format!("\"{name}\"")))
        .collect();
    assert!(unread.is_empty(), "accepted and read by nobody: {unread:?}");
}
