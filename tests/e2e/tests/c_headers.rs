//! The C headers, with compilers only: no library is linked. Programs are in `tests/c/headers/`.

#![expect(clippy::unwrap_used, reason = "what is missing here fails the test")]

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

const MODES: [&str; 3] = ["SEQ", "PARSYNC", "PAR"];

/// Headers that clients include.
const PUBLIC: [&str; 8] = [
    "gasnetex.h",
    "gasnet.h",
    "gasnet_fwd.h",
    "gasnet_coll.h",
    "gasnet_vis.h",
    "gasnet_ratomic.h",
    "gasnet_mk.h",
    "gasnet_tools.h",
];

/// One way to compile.
#[derive(Clone, Copy)]
struct Way {
    program: &'static str,
    language: &'static str,
    standard: &'static str,
}

const GCC: Way = Way { program: "gcc", language: "c", standard: "c11" };
const GXX: Way = Way { program: "g++", language: "c++", standard: "c++17" };
const OTHER_STANDARDS: [Way; 6] = [
    Way { program: "gcc", language: "c", standard: "gnu99" },
    Way { program: "gcc", language: "c", standard: "c99" },
    Way { program: "gcc", language: "c", standard: "gnu17" },
    Way { program: "g++", language: "c++", standard: "c++11" },
    Way { program: "g++", language: "c++", standard: "gnu++14" },
    Way { program: "g++", language: "c++", standard: "c++20" },
];
const CLANG: [Way; 3] = [
    Way { program: "clang", language: "c", standard: "c11" },
    Way { program: "clang", language: "c", standard: "gnu99" },
    Way { program: "clang++", language: "c++", standard: "c++17" },
];

fn root() -> PathBuf {
    testkit::repository()
}

fn installed(program: &str) -> bool {
    let probe =
        Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    probe.is_ok_and(|status| status.success())
}

/// Both GNU compilers and, when it is there, clang. What is missing is said once.
fn ways() -> &'static [Way] {
    static WAYS: OnceLock<Vec<Way>> = OnceLock::new();
    WAYS.get_or_init(|| {
        let mut ways = Vec::new();
        if installed("gcc") && installed("g++") {
            ways.extend([GCC, GXX]);
        } else {
            testkit::skip("C headers with gcc", "gcc and g++ are not both installed");
        }
        if installed("clang") && installed("clang++") {
            ways.extend(CLANG);
        } else {
            testkit::skip("C headers with clang", "clang and clang++ are not both installed");
        }
        ways
    })
}

fn compiler(way: Way, modes: &[&str]) -> Command {
    let mut command = Command::new(way.program);
    command
        .args(["-x", way.language, &format!("-std={}", way.standard)])
        .args(["-Wall", "-Wextra", "-Werror", "-I"])
        .arg(root().join("include"))
        .args(modes.iter().map(|mode| format!("-DGASNET_{mode}")))
        .env("LC_ALL", "C");
    command
}

/// Compiles `text` without making anything.
fn check(way: Way, modes: &[&str], text: &str) -> Output {
    check_with(way, modes, &[], text)
}

fn check_with(way: Way, modes: &[&str], options: &[&str], text: &str) -> Output {
    let mut child = compiler(way, modes)
        .args(options)
        .args(["-fsyntax-only", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

fn assert_compiles(way: Way, mode: &str, text: &str) {
    let output = check(way, &[mode], text);
    assert!(
        output.status.success(),
        "{} -std={} -DGASNET_{mode} refuses\n{text}\n{}",
        way.program,
        way.standard,
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Paths of all headers below `include/`, as a client would write them.
fn headers() -> Vec<String> {
    fn walk(directory: &Path, prefix: &str, found: &mut Vec<String>) {
        for entry in std::fs::read_dir(directory).unwrap() {
            let entry = entry.unwrap();
            let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
            if entry.path().is_dir() {
                walk(&entry.path(), &format!("{name}/"), found);
            } else if name.ends_with(".h") {
                found.push(name);
            }
        }
    }
    let mut found = Vec::new();
    walk(&root().join("include"), "", &mut found);
    found.sort();
    assert!(PUBLIC.iter().all(|name| found.iter().any(|header| header == name)), "{found:?}");
    found
}

/// Whether the case of these numbers (compiler, mode, header, …) is taken: one of `of`, which are
/// spread evenly, all with `--all`.
fn taken(numbers: &[usize], of: usize) -> bool {
    testkit::all_requested() || numbers.iter().sum::<usize>().is_multiple_of(of)
}

fn including(names: &[&str]) -> String {
    names.iter().fold(String::new(), |mut text, name| {
        writeln!(text, "#include <{name}>").unwrap();
        text
    })
}

#[test]
fn each_header_compiles_alone() {
    let all = headers();
    for (turn, &way) in ways().iter().enumerate() {
        for (line, header) in all.iter().enumerate() {
            for (column, mode) in MODES.into_iter().enumerate() {
                // Parts do not differ between the two modes with threads.
                let differs = mode != "PARSYNC" || PUBLIC.contains(&header.as_str());
                if differs && taken(&[turn, line, column], 4) {
                    assert_compiles(way, mode, &including(&[header]));
                }
            }
        }
    }
}

#[test]
fn headers_compile_in_any_order_and_twice() {
    for (turn, &way) in ways().iter().enumerate() {
        for (line, first) in PUBLIC.into_iter().enumerate() {
            for (column, second) in PUBLIC.into_iter().enumerate() {
                if taken(&[turn, line, column], 4) {
                    assert_compiles(way, "PAR", &including(&[first, second]));
                }
            }
        }
        let mut reversed = PUBLIC;
        reversed.reverse();
        for mode in MODES {
            assert_compiles(way, mode, &including(&PUBLIC));
            assert_compiles(way, mode, &including(&reversed));
        }
    }
}

#[test]
fn other_standards_compile_too() {
    if !ways().iter().any(|way| way.program == "gcc") {
        return;
    }
    for way in OTHER_STANDARDS {
        for mode in MODES {
            assert_compiles(way, mode, &including(&PUBLIC));
        }
    }
}

#[test]
fn no_mode_and_several_modes_are_refused_by_name() {
    for &way in ways() {
        for (modes, words) in [
            (&[][..], "no thread mode"),
            (&["SEQ", "PAR"][..], "several thread modes"),
            (&["PARSYNC", "PAR"][..], "several thread modes"),
            (&MODES[..], "several thread modes"),
        ] {
            let output = check(way, modes, &including(&["gasnetex.h"]));
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(!output.status.success() && text.contains(words), "{modes:?}: {text}");
        }
        // These need no mode.
        for free in
            ["gasnet_fwd.h", "gasnet_config.h", "gasnet_portable_platform.h", "gasnet_tools.h"]
        {
            let output = check(way, &[], &including(&[free]));
            assert!(output.status.success(), "{free}: {}", String::from_utf8_lossy(&output.stderr));
        }
    }
}

#[test]
fn generated_wrappers_are_current() {
    let output = Command::new(root().join("scripts/generate-am")).arg("--check").output().unwrap();
    assert!(
        output.status.success(),
        "run scripts/generate-am: {}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    let functions: usize = ["am_requests_generated.h", "am_replies_generated.h"]
        .map(|name| std::fs::read_to_string(root().join("include/gasnet_ibv").join(name)).unwrap())
        .iter()
        .map(|text| text.matches("\nGEXI_INLINE ").count())
        .sum();
    assert_eq!(functions, 238);
}

#[test]
fn values_types_layouts_and_conditions_hold() {
    let source = std::fs::read_to_string(root().join("tests/c/headers/layout.c")).unwrap();
    for &way in ways() {
        for mode in MODES {
            assert_compiles(way, mode, &source);
            for segment in ["LARGE", "EVERYTHING"] {
                let chosen = format!("#define GASNET_SEGMENT_{segment}\n#define WANT_{segment}\n");
                let config = "#include <gasnet_config.h>\n";
                assert_compiles(way, mode, &format!("{chosen}{config}{source}"));
            }
        }
    }
}

#[test]
fn clients_get_the_headers_they_rely_on() {
    // What a program may use after gasnetex.h alone.
    let text = "#include <gasnetex.h>\nint main(void) { uintptr_t n = (uintptr_t)malloc(strlen(\"x\")); \
                printf(\"%\" PRIuPTR \" %d %d\\n\", n, atoi(\"1\"), MIN(1, INT_MAX)); return errno; }\n";
    for &way in ways() {
        for mode in MODES {
            assert_compiles(way, mode, text);
        }
    }
}

#[test]
fn build_systems_find_what_they_look_for() {
    // Lines that configuration scripts cut the versions out of, without a compiler.
    let text = std::fs::read_to_string(root().join("include/gasnet_config.h")).unwrap();
    for (name, value) in [
        ("GASNET_RELEASE_VERSION_MAJOR", "2025"),
        ("GASNET_RELEASE_VERSION_MINOR", "8"),
        ("GASNET_RELEASE_VERSION_PATCH", "0"),
        ("GEX_SPEC_VERSION_MAJOR", "0"),
        ("GEX_SPEC_VERSION_MINOR", "19"),
    ] {
        assert!(text.contains(&format!("\n#define {name} {value}\n")), "{name}");
    }
    // A question about the compiler, asked of the preprocessor and before anything else is included.
    let text = "#include <gasnet_portable_platform.h>\n#if PLATFORM_COMPILER_GNU + PLATFORM_COMPILER_CLANG != 1 || \\\n\
        !PLATFORM_COMPILER_VERSION_GE(4, 0, 0) || PLATFORM_COMPILER_VERSION_LT(4, 0, 0) || !PLATFORM_OS_LINUX\n\
        #error \"compiler\"\n#endif\nextern const char id[]; const char id[] = PLATFORM_COMPILER_IDSTR;\n";
    let core = including(&["gasnet_core.h"]) + "extern gex_TM_t team; gex_TM_t team;\n";
    let beside = root().join("include/ibv-conduit");
    let options = ["-I", beside.to_str().unwrap()];
    for &way in ways() {
        for (modes, text) in [(&[][..], text), (&["PAR"][..], &core)] {
            let output = check_with(way, modes, &options, text);
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success(), "{} refuses\n{text}\n{said}", way.program);
        }
    }
}

#[test]
fn the_originals_tools_may_stand_behind() {
    // What its tools headers ask of the header before them, and define again in the same words.
    let text = "#include <gasnetex.h>\n\
        #if !defined(_INCLUDED_GASNETEX_H) || defined(GASNET_DEBUG) || defined(GASNET_TRACE) || \\\n\
            defined(GASNET_STATS) || defined(GASNET_SRCLINES) || defined(GASNET_DEBUGMALLOC)\n\
        #error \"not fit for the tools\"\n#endif\n\
        #define GASNET_RELEASE_VERSION_MAJOR 2025\n#define GASNET_RELEASE_VERSION_MINOR 8\n\
        #define GASNET_RELEASE_VERSION_PATCH 0\n#define GASNET_SEGMENT_FAST 1\n#define GASNET_NDEBUG 1\n\
        static char each[GASNETI_MAX_THREADS];\n\
        size_t use(void);\nsize_t use(void) { return sizeof(each) + gasneti_format_op(each, GEX_OP_ADD) + \
        gasneti_format_dt(each, GEX_DT_I32) + gasneti_format_ti(each, GEX_TI_EP) + (gasneti_mmap(1) != 0) + \
        gasneti_format_memveclist_bufsz(1) + gasneti_format_addrlist_bufsz(1) + gasneti_format_putsgets_bufsz(1); }\n";
    for &way in ways() {
        for mode in MODES {
            assert_compiles(way, mode, text);
            assert_compiles(way, mode, &format!("#define GASNET_NDEBUG 1\n{text}"));
        }
    }
}

#[test]
fn too_many_arguments_are_refused_by_name() {
    let text = "#include <gasnetex.h>\nint f(gex_Token_t t); int f(gex_Token_t t) { return gex_AM_ReplyShort(t, 200, 0, \
                1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17); }\n";
    for &way in ways() {
        let output = check(way, &["PAR"], text);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains("with_more_than_16_arguments"), "{said}");
    }
}

/// Compilers for 64-bit ARM; each finds the headers of its C library itself.
const ARM: [(Way, &[&str]); 3] = [
    (Way { program: "aarch64-linux-gnu-gcc", language: "c", standard: "c11" }, &[]),
    (Way { program: "aarch64-linux-gnu-g++", language: "c++", standard: "c++17" }, &[]),
    (CLANG[0], &["--target=aarch64-linux-gnu"]),
];

/// Whether this compiler is there, and a C library for it.
fn compiles_for_arm(way: Way, options: &[&str]) -> bool {
    installed(way.program) && check_with(way, &[], options, "#include <stdio.h>\n").status.success()
}

#[test]
fn headers_compile_for_64_bit_arm() {
    let sources = ["layout", "reach", "once"].map(|name| {
        std::fs::read_to_string(root().join(format!("tests/c/headers/{name}.c"))).unwrap()
    });
    for (way, options) in ARM {
        if !compiles_for_arm(way, options) {
            let reason = format!(
                "{} cannot compile for it (Debian: gcc-aarch64-linux-gnu g++-aarch64-linux-gnu \
                 libc6-dev-arm64-cross, 56 MB)",
                way.program
            );
            testkit::skip("C headers for 64-bit ARM", &reason);
            continue;
        }
        let alone = headers().into_iter().map(|header| including(&[&header]));
        for (line, text) in alone.chain(sources.clone()).enumerate() {
            for (column, mode) in ["SEQ", "PAR"].into_iter().enumerate() {
                if !taken(&[line, column], 2) {
                    continue;
                }
                let output = check_with(way, &[mode], options, &text);
                let said = String::from_utf8_lossy(&output.stderr).into_owned();
                assert!(output.status.success(), "{} -DGASNET_{mode} refuses\n{said}", way.program);
            }
        }
    }
}

/// Without and with optimization.
const LEVELS: [&[&str]; 2] = [&["-O0"], &["-O2"]];

/// Builds `tests/c/headers/<name>.c` in every way, in these modes, with these options, and runs it.
fn run(name: &str, modes: &[&str], levels: &[&[&str]]) {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join(name);
    for (turn, &way) in ways().iter().enumerate() {
        for (line, &mode) in modes.iter().enumerate() {
            for (column, &level) in levels.iter().enumerate() {
                if !taken(&[turn, line, column], 2) {
                    continue;
                }
                let built = compiler(way, &[mode])
                    .args(level)
                    .arg(root().join(format!("tests/c/headers/{name}.c")))
                    .arg("-o")
                    .arg(&program)
                    .args(["-x", "none", "-lpthread"])
                    .output()
                    .unwrap();
                let said = String::from_utf8_lossy(&built.stderr).into_owned();
                assert!(built.status.success(), "{name} {} {mode} {level:?}: {said}", way.program);
                let ran = Command::new(&program).output().unwrap();
                let out = String::from_utf8_lossy(&ran.stdout).into_owned();
                assert!(
                    ran.status.success() && out.contains("all hold"),
                    "{name} {} {mode} {level:?}: {}\n{out}{}",
                    way.program,
                    ran.status,
                    String::from_utf8_lossy(&ran.stderr)
                );
            }
        }
    }
}

#[test]
fn each_macro_evaluates_each_argument_once() {
    run("once", &["SEQ", "PAR"], &LEVELS);
}

#[test]
fn inline_access_serves_its_ranges_and_hands_on_the_rest() {
    run("reach", &["SEQ", "PAR"], &LEVELS);
    run("reach", &["PAR"], &[&["-O2", "-DGEXI_PLAIN"], &["-O3"], &["-O2", "-fPIC"]]);
}

#[test]
fn handler_safe_locks_exclude() {
    run("locks", &MODES, &LEVELS);
}

#[test]
fn tools_work_without_a_library() {
    run("tools", &["SEQ", "PAR"], &LEVELS);
}

/// Names of the public macros that take arguments.
fn macros_with_arguments() -> Vec<String> {
    let prefixes = ["gex_", "gasnet_", "gasnett_", "GEX_", "GASNET_", "GASNETT_"];
    let mut names = Vec::new();
    for header in headers() {
        let text = std::fs::read_to_string(root().join("include").join(&header)).unwrap();
        for line in text.lines() {
            let Some((name, parameters)) =
                line.trim_start().strip_prefix("#define ").and_then(|rest| rest.split_once('('))
            else {
                continue;
            };
            let named = name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_');
            if named
                && !parameters.starts_with(')')
                && prefixes.iter().any(|prefix| name.starts_with(prefix))
            {
                names.push(name.to_owned());
            }
        }
    }
    names.sort();
    names.dedup();
    assert!(names.len() > 80, "{names:?}");
    names
}

#[test]
fn no_macro_is_missing_from_the_evaluation_test() {
    // These are part of a declaration, or ask the compiler, or name a variable.
    let not_expressions = [
        "GASNETT_FORMAT_PRINTF",
        "GASNETT_IDENT",
        "GASNETT_INLINE",
        "GASNETT_NEVER_INLINE",
        "GASNETT_NORETURNP",
        "GASNETT_THREADKEY_DECLARE",
        "GASNETT_THREADKEY_DEFINE",
        "GASNETT_VALUE_RETURN",
        "gasnett_constant_p",
        "gasnett_threadkey_get",
        "gasnett_threadkey_get_noinit",
        "gasnett_threadkey_init",
    ];
    let source = std::fs::read_to_string(root().join("tests/c/headers/once.c")).unwrap();
    let compact: String = source.split_whitespace().collect();
    let tested = |name: &str| {
        let pasted = |prefix: &str, call: &str| {
            name.strip_prefix(prefix).is_some_and(|kind| {
                let (kind, suffix) =
                    kind.strip_suffix("_v2").map_or((kind, ""), |kind| (kind, "_v2"));
                compact.contains(&format!("{call}({kind},{suffix}"))
            })
        };
        compact.contains(&format!("{name}("))
            || pasted("gex_AM_", "EACH")
            || pasted("gasnet_AM", "FORMERS")
    };
    let missing: Vec<String> = macros_with_arguments()
        .into_iter()
        .filter(|name| !not_expressions.contains(&name.as_str()) && !tested(name))
        .collect();
    assert!(missing.is_empty(), "tests/c/headers/once.c does not try {missing:?}");
}
