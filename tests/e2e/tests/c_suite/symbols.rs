//! Prototypes of the headers against the names that the libraries export, in both directions.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use crate::build::{defines, must, root, sources};

const HEADERS: [&str; 7] = [
    "gasnetex.h",
    "gasnet.h",
    "gasnet_coll.h",
    "gasnet_vis.h",
    "gasnet_ratomic.h",
    "gasnet_mk.h",
    "gasnet_tools.h",
];

/// A frozen process waits until a debugger changes this variable; programs have no business with
/// it.
const FOR_DEBUGGERS: &str = "gasnet_frozen";

/// The declared name: what stands before the first parenthesis, or in it after a star, or last.
fn declared(text: &str) -> String {
    let text = text.split("__attribute__").next().unwrap();
    let before = match text.split_once("(*") {
        Some((_, pointer)) => pointer.split(')').next().unwrap(),
        None => text.split('(').next().unwrap(),
    };
    before
        .split(|letter: char| !(letter.is_alphanumeric() || letter == '_'))
        .rfind(|word| !word.is_empty())
        .unwrap()
        .to_owned()
}

fn marked(text: &str, mark: &str) -> BTreeSet<String> {
    text.split(mark).skip(1).map(|rest| declared(rest.split(';').next().unwrap())).collect()
}

fn exported(file: &Path, options: &[&str]) -> BTreeSet<String> {
    let text = must(Command::new("nm").args(options).arg(file));
    text.lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace().rev();
            let (name, _, address) = (words.next()?, words.next()?, words.next()?);
            (address.len() == 16).then(|| name.split('@').next().unwrap().to_owned())
        })
        .collect()
}

/// Fails unless both libraries of `mode` below `folder` export exactly what the headers promise.
pub(crate) fn compare(mode: &str, folder: &Path) {
    // A copy of the headers in which the marks survive the preprocessor.
    let copy = tempfile::tempdir().unwrap();
    must(Command::new("cp").arg("-R").arg(root().join("include/.")).arg(copy.path()));
    let base = copy.path().join("gasnet_ibv/base.h");
    let text = std::fs::read_to_string(&base).unwrap();
    let text = text.replace("#define GEXI_API extern", "#define GEXI_API gexi_mark_api extern");
    assert_eq!(text.matches("gexi_mark_").count(), 1, "marks of base.h");
    std::fs::write(&base, text).unwrap();
    let program: String = HEADERS.iter().map(|name| format!("#include <{name}>\n")).collect();
    let source = copy.path().join("all.c");
    std::fs::write(&source, program).unwrap();
    let text = must(
        Command::new("gcc")
            .args(["-std=c11", "-E", "-P"])
            .args(defines(mode))
            .arg("-I")
            .arg(copy.path())
            .arg(&source),
    );
    let promised = marked(&text, "gexi_mark_api");
    assert!(promised.len() > 100, "{promised:?}");
    for (file, options) in [
        (format!("libgasnet-ibv-{mode}.so"), &["-D", "--defined-only"][..]),
        (format!("libgasnet-ibv-{mode}.a"), &["-g", "--defined-only"][..]),
    ] {
        let mut there = exported(&folder.join(&file), options);
        there.remove(FOR_DEBUGGERS);
        let missing: Vec<_> = promised.difference(&there).collect();
        let extra: Vec<_> = there.difference(&promised).collect();
        assert!(
            missing.is_empty() && extra.is_empty(),
            "{file}: declared and not exported {missing:?}; exported and not declared {extra:?}"
        );
    }
}

/// Public functions of the communication interface that no program of `tests/c` calls.
pub(crate) fn never_called() -> BTreeSet<String> {
    let all = callers().into_iter();
    let never = all.filter(|(_, programs)| programs.is_empty()).map(|(call, _)| call);
    // A constant expression by a macro.
    never.filter(|call| call != "gex_AM_MaxArgs").collect()
}

/// Public functions of the communication interface, each with the programs of `tests/c` that call
/// it. An object made without optimization names each function that it calls, also those of the
/// headers. Of those that differ in the number of arguments, which are generated, one is enough.
pub(crate) fn callers() -> BTreeMap<String, BTreeSet<String>> {
    let folder = tempfile::tempdir().unwrap();
    let include = root().join("include");
    let gcc = || {
        let mut gcc = Command::new("gcc");
        gcc.args(["-D_GNU_SOURCE", "-O0", "-DGASNET_PAR", "-I"]).arg(&include);
        gcc
    };
    let all = folder.path().join("all.c");
    let program: String = HEADERS.iter().map(|name| format!("#include <{name}>\n")).collect();
    std::fs::write(&all, program).unwrap();
    let text = must(gcc().args(["-E", "-P"]).arg(&all));
    let family = |name: &str| {
        let name = name.strip_suffix("_v2").unwrap_or(name);
        name.trim_end_matches(|c: char| c.is_ascii_digit()).to_owned()
    };
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let declared = text.split('(').filter_map(|before| {
        let name = before.trim_end().rsplit(|c| !is_name(c)).next()?;
        let public = ["gex_", "gasnet_"].iter().any(|begin| name.starts_with(begin));
        public.then(|| family(name))
    });
    let mut declared: BTreeMap<String, BTreeSet<String>> =
        declared.map(|name| (name, BTreeSet::new())).collect();
    assert!(declared.len() > 200, "{declared:?}");
    for source in sources() {
        let object = folder.path().join("object.o");
        let program = source.file_stem().unwrap().to_string_lossy();
        must(gcc().arg("-c").arg(&source).arg("-o").arg(&object));
        for line in must(Command::new("nm").arg(&object)).lines() {
            let name = family(line.split_whitespace().next_back().unwrap_or_default());
            if let Some(programs) = declared.get_mut(&name) {
                programs.insert(program.clone().into_owned());
            }
        }
    }
    declared
}
