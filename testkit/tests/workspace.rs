//! Rules of docs/ARCHITECTURE.md that the compiler does not check.

#![expect(clippy::unwrap_used, reason = "a broken checkout is a failed test")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    testkit::repository()
}

/// Every Rust source file of the workspace, relative to its root.
fn sources() -> Vec<PathBuf> {
    let root = root();
    let mut found = Vec::new();
    let mut directories: Vec<PathBuf> = fs::read_dir(&root)
        .unwrap()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.join("Cargo.toml").is_file() || path.ends_with("tests"))
        .collect();
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap().filter_map(Result::ok) {
            let path = entry.path();
            if path.is_dir() && entry.file_name() != "target" {
                directories.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path.strip_prefix(&root).unwrap().to_owned());
            }
        }
    }
    assert!(found.len() > 20, "only {found:?} found below {}", root.display());
    found.sort();
    found
}

/// Lines of a source file without comments and, roughly, without string literals.
fn code(path: &Path) -> Vec<(usize, String)> {
    let text = fs::read_to_string(root().join(path)).unwrap();
    let strip = |line: &str| {
        let line = line.split("//").next().unwrap_or_default();
        line.split('"').step_by(2).collect::<Vec<_>>().join("\"\"")
    };
    text.lines().enumerate().map(|(index, line)| (index + 1, strip(line))).collect()
}

#[test]
fn crates_import_only_what_the_architecture_allows() {
    let cargo = settings::variable("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let names: BTreeSet<&str> = packages.iter().filter_map(|one| one["name"].as_str()).collect();
    let allowed = |from: &str| -> &[&str] {
        match from {
            "gasnetrun-ibv" => {
                &["supervisor", "spawner-ssh", "spawner-mpi", "spawner-pmi", "bootstrap", "fabric"]
            }
            "supervisor" => &["spawner-ssh", "spawner-pmi", "bootstrap"],
            "gasnetrun-ibv-ssh" => &["spawner-ssh"],
            "gasnet-ibv" => &["bootstrap", "fabric", "spawner-mpi"],
            "gasnet-ibv-c" => &["gasnet-ibv"],
            "spawner-mpi" => &["bootstrap", "spawner-pmi"],
            "spawner-pmi" => &["bootstrap"],
            "gasnetrun-ibv-pmi" => &["spawner-pmi", "bootstrap"],
            _ => &[],
        }
    };
    for package in packages {
        let from = package["name"].as_str().unwrap();
        if matches!(from, "bench" | "e2e" | "gasnet-ibv-examples" | "testkit") {
            continue;
        }
        for dependency in package["dependencies"].as_array().unwrap() {
            let to = dependency["name"].as_str().unwrap();
            let for_tests = dependency["kind"] == "dev";
            let legal =
                !names.contains(to) || for_tests || to == "settings" || allowed(from).contains(&to);
            assert!(legal, "{from} imports {to}, see docs/ARCHITECTURE.md section 1");
        }
    }
}

#[test]
fn unsafe_code_is_only_where_the_architecture_says() {
    let page = fs::read_to_string(root().join("docs/ARCHITECTURE.md")).unwrap();
    let list = page.split("Unsafe code lives only in:").nth(1).expect("the page has the list");
    let list = list.split("Everything else").next().unwrap_or_default();
    let places: Vec<&str> = list.split('`').skip(1).step_by(2).collect();
    assert!(places.len() > 3, "list not understood: {places:?}");
    let named = |path: &Path| {
        let path = path.to_str().unwrap();
        let covers =
            |place: &&str| path == *place || place.ends_with('/') && path.starts_with(place);
        // `a/src/sys/` also means the module's own file `a/src/sys.rs`.
        let file = |place: &&str| path == format!("{}.rs", place.trim_end_matches('/'));
        places.iter().any(|place| covers(place) || file(place))
    };
    let mut wrong = Vec::new();
    for path in sources().into_iter().filter(|path| !named(path)) {
        for (number, line) in code(&path) {
            let words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
            if words.into_iter().any(|word| word == "unsafe") {
                wrong.push(format!("{}:{number}:{line}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "unsafe outside the named modules:\n{}", wrong.join("\n"));
}

#[test]
fn source_files_keep_to_the_budget_and_have_no_unfinished_marks() {
    let marks = [concat!("to", "do!("), concat!("unimple", "mented!("), concat!("FIX", "ME")];
    let mut wrong = Vec::new();
    for path in sources() {
        let text = fs::read_to_string(root().join(&path)).unwrap();
        let lines = text.lines().count();
        if lines > 800 {
            wrong.push(format!("{}: {lines} lines, at most 800", path.display()));
        }
        for mark in marks.iter().filter(|mark| text.contains(**mark)) {
            wrong.push(format!("{}: {mark}", path.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn scripts_are_executable_and_correct_shell() {
    use std::os::unix::fs::PermissionsExt;
    let scripts = fs::read_dir(root().join("scripts")).unwrap();
    let paths = scripts.map(|entry| entry.unwrap().path()).chain([root().join(".ci/run")]);
    // Directories hold examples, such as those for a batch system.
    for path in paths.filter(|path| path.is_file()) {
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert!(mode & 0o111 == 0o111, "{} is not executable", path.display());
        let output = Command::new("bash").arg("-n").arg(&path).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

/// A new example, or one that was renamed, makes `scripts/slurm-transcripts` due.
#[test]
fn every_example_for_slurm_has_its_transcript() {
    let page = fs::read_to_string(root().join("docs/slurm-examples.md")).unwrap();
    let sections: BTreeSet<&str> =
        page.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    let examples = fs::read_dir(root().join("scripts/slurm")).unwrap();
    let names: Vec<_> =
        examples.map(|entry| entry.unwrap().path().file_stem().unwrap().to_owned()).collect();
    let names: BTreeSet<&str> = names.iter().filter_map(|name| name.to_str()).collect();
    assert_eq!(sections, names, "run scripts/slurm-transcripts");
    for name in names {
        let typed = format!("$ sbatch --wait scripts/slurm/{name}.sbatch; echo $?\n");
        let said = page.split(&typed).nth(1).expect(name);
        let mut lines = said.lines();
        assert!(
            lines.next().is_some_and(|line| line.starts_with("Submitted batch job ")),
            "{name}"
        );
        assert_eq!(lines.next(), Some("0"), "{name}");
    }
}

#[test]
fn the_program_in_the_readme_is_the_example_that_is_built_and_run() {
    let program = fs::read_to_string(root().join("examples/src/bin/greet.rs")).unwrap();
    let body = program.find("use gasnet_ibv").map(|at| &program[at..]).unwrap();
    let page = fs::read_to_string(root().join("README.md")).unwrap();
    assert!(page.contains(&format!("```rust\n{body}```")), "README.md and greet.rs differ");
}

#[test]
fn every_fuzz_target_is_built_explained_and_has_seeds() {
    let mut count = 0;
    for file in sources().iter().filter(|file| file.parent().unwrap().ends_with("fuzz_targets")) {
        let folder = root().join(file).parent().unwrap().parent().unwrap().to_owned();
        let name = file.file_stem().unwrap().to_str().unwrap();
        let text = |file: &str| fs::read_to_string(folder.join(file)).unwrap();
        let bin = format!("name = \"{name}\"\npath = \"fuzz_targets/{name}.rs\"");
        assert!(text("Cargo.toml").contains(&bin), "{}: no [[bin]]", file.display());
        let explained = text("README.md")
            .lines()
            .any(|line| line.starts_with('|') && line.contains(&format!("`{name}`")));
        assert!(explained, "{}: no row in the table of README.md", file.display());
        let seeds = fs::read_dir(folder.join("seeds").join(name)).map_or(0, Iterator::count);
        assert!(seeds >= 3, "{}: {seeds} seeds", file.display());
        count += 1;
    }
    assert!(count >= 20, "only {count} targets found");
}
