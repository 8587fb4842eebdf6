//! Segment modes beside FAST: the programs of `tests/c` compiled for EVERYTHING, and run in LARGE with
//! segments that the adapter does not register, by shared memory, by the network, and by both.

use std::path::{Path, PathBuf};
use std::process::Command;

use testkit::{Outcome, Table, all_requested, launcher};

use crate::build::{self, KINDS, Kind, MODES, built, built_with, place};
use crate::{BOUND, arguments, programs};

const EVERYTHING: &[&str] = &["-DGASNET_SEGMENT_EVERYTHING"];

/// They look at attached segments themselves, or at segments that they bind to the first endpoint.
const WITH_SEGMENTS: [&str; 11] = [
    "created_segment",
    "destructors",
    "diagnostics",
    "flags",
    "hello",
    "legacy",
    "matrix",
    "objects",
    "published",
    "teams",
    "vis_segments",
];
/// `vis_legacy` asks for its segment by `gasnet_getSegmentInfo`.
const WITH_SEGMENT_INFO: [&str; 1] = ["vis_legacy"];
/// They bind segments of their own, which need an adapter that registers them.
const REGISTERING: [&str; 4] = ["created_segment", "objects", "published", "vis_segments"];

/// Names of placements, and the largest neighbourhood.
const PLACEMENTS: [(&str, &str); 3] = [("shm", "0"), ("soft", "1"), ("mixed", "2")];

fn run(program: &Path, ranks: &str, args: &[&str], variables: &[(&str, &str)]) -> Outcome {
    let mut tree = launcher(["-n", ranks])
        .arg(program)
        .args(args)
        .env("GASNET_IBV_FABRIC", "soft")
        .env("GASNET_DUMMY", "GASNet dummy value")
        .env("T_EMPTY", "");
    for (name, value) in variables {
        tree = tree.env(name, value);
    }
    tree.deadline("C program", BOUND).run()
}

/// Runs a program in a placement on 3 ranks; what is wrong with that.
pub(crate) fn fault(program: &Path, name: &str, variables: &[(&str, &str)]) -> Option<String> {
    let outcome = run(program, "3", arguments(name), variables);
    let said = outcome.out().matches(&format!("PASS {name}\n")).count();
    let fault = outcome.fault(0).or_else(|| (said != 1).then(|| format!("said PASS {said} times")));
    fault.map(|fault| format!("{name}, {variables:?}: {fault}\n{}", outcome.err()))
}

fn table(title: &str, chosen: &[String], run: impl Fn(&str, usize, &str) -> Option<String>) {
    let mut table = Table::new(title, &["program", "shm", "soft", "mixed"]);
    let mut faults = Vec::new();
    for name in chosen {
        let mut cells = vec![name.clone()];
        for (column, (placement, most)) in PLACEMENTS.into_iter().enumerate() {
            // Each placement has each program in some mode; `--all` runs the whole product.
            if column != place(name) % 3 && !all_requested() && name != "everything" {
                cells.push("-".to_owned());
                continue;
            }
            let fault = run(name, column, most);
            cells.push(if fault.is_some() { "FAILED" } else { placement }.to_owned());
            faults.extend(fault);
        }
        table.row(cells);
    }
    table.show();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

fn without(left_out: &[&str]) -> Vec<String> {
    programs().into_iter().filter(|name| !left_out.contains(&name.as_str())).collect()
}

#[test]
fn programs_without_segments_pass() {
    if !build::ready() {
        return;
    }
    let chosen = without(&[&WITH_SEGMENTS[..], &WITH_SEGMENT_INFO].concat());
    assert!(chosen.len() >= 20, "{chosen:?}");
    table("mode EVERYTHING: programs on 3 ranks, placements", &chosen, |name, column, most| {
        let turn = place(name) + column;
        let kind = build::kind(turn, KINDS[usize::from(column > 0)]);
        let program = built_with(name, MODES[turn % 3], kind, EVERYTHING);
        fault(&program, name, &[("GASNET_SUPERNODE_MAXSIZE", most)])
    });
}

#[test]
fn programs_pass_with_segments_that_no_adapter_registers() {
    if !build::ready() {
        return;
    }
    let chosen = without(&REGISTERING);
    table("mode LARGE: programs on 3 ranks, placements", &chosen, |name, column, most| {
        let program = built(name, MODES[(place(name) + column) % 3], Kind::Shared);
        // What the network registers for itself depends on the number of its connections.
        let first = if most == "1" { "register-fail=6th+" } else { "register-fail=9th+" };
        let variables = [
            ("GASNET_SUPERNODE_MAXSIZE", most),
            ("GASNET_SEGMENT_MODE", "LARGE"),
            ("GASNET_IBV_SOFT_FAULTS", first),
        ];
        fault(&program, name, &variables)
    });
}

/// Every operation of every size, to segments that are registered for one transfer at a time.
#[test]
fn programs_pass_with_segments_that_are_lent() {
    if !build::ready() {
        return;
    }
    let variables = [
        ("GASNET_SUPERNODE_MAXSIZE", "1"),
        ("GASNET_SEGMENT_MODE", "LARGE"),
        ("GASNET_BBUF_COUNT", "16"),
        // Few receive buffers, which are registered together.
        ("GASNET_AM_CREDITS_PP", "12"),
        ("GASNET_IBV_SOFT_FAULTS", "register-max=2M"),
        ("GASNET_FIREHOSE_VERBOSE", "1"),
    ];
    let program = built("matrix", "par", Kind::Shared);
    let outcome = run(&program, "3", arguments("matrix"), &variables);
    assert_eq!(outcome.fault(0), None, "{}", outcome.err());
    let said = outcome.err();
    let lent = said.matches("memory registered for other ranks: ").count();
    let none = said.matches("memory registered for other ranks: 0 times found").count();
    assert_eq!((lent, none), (3, 0), "{said}");
}

#[test]
fn a_segment_above_the_limit_is_refused_in_fast_alone() {
    if !build::ready() {
        return;
    }
    let program = built("rma", "seq", Kind::Shared);
    let limit = ("GASNET_IBV_SOFT_FAULTS", "register-fail=6th+");
    let apart = ("GASNET_SUPERNODE_MAXSIZE", "1");
    let outcome = run(&program, "3", &[], &[apart, limit]);
    assert!(outcome.err().contains("cannot register 1572864 bytes"), "{}", outcome.err());
    let mode = ("GASNET_SEGMENT_MODE", "LARGE");
    assert_eq!(fault(&program, "rma", &[apart, limit, mode]), None);
    let compiled = built_with("rma", "seq", Kind::Shared, &["-DGASNET_SEGMENT_LARGE"]);
    assert_eq!(fault(&compiled, "rma", &[apart, limit]), None);
}

#[test]
fn memory_that_the_target_has_not_is_an_error_with_its_range() {
    if !build::ready() {
        return;
    }
    let program = built_with("everything", "par", Kind::Shared, EVERYTHING);
    for most in ["0", "1"] {
        for (what, call) in [
            ("put", "gex_RMA_PutBlocking"),
            ("get", "gex_RMA_GetBlocking"),
            ("read-only", "gex_RMA_PutBlocking"),
            ("memset", "gasnet_memset"),
            ("long", "Long"),
            ("atomic", "gex_AD_OpNB_U64"),
        ] {
            let outcome = run(&program, "2", &[what], &[("GASNET_SUPERNODE_MAXSIZE", most)]);
            let text = outcome.err();
            let range = matches!(what, "read-only" | "atomic") || text.contains("0x4000..0x4064");
            let cause = text.contains("not mapped");
            assert!(text.contains(call) && range && cause, "{what}, {most}: {text}");
            assert!(text.contains("rank 1") && !text.contains("SIGSEGV"), "{what}, {most}: {text}");
            let code = if what == "long" && most == "0" { 97 } else { 134 };
            assert_eq!(outcome.fault(code), None, "{what}, {most}: {text}");
        }
    }
}

#[test]
fn a_mode_is_chosen_once_for_a_whole_job() {
    if !build::ready() {
        return;
    }
    let fast = built("everything", "seq", Kind::Shared);
    let everything = built_with("everything", "seq", Kind::Static, EVERYTHING);
    for (program, value, text) in [
        (&fast, "EVERYTHING", "compile it with -DGASNET_SEGMENT_EVERYTHING"),
        (&everything, "FAST", "was compiled with GASNET_SEGMENT_EVERYTHING"),
        (&fast, "SLOW", "one of FAST, LARGE, EVERYTHING"),
    ] {
        let outcome = run(program, "1", &[], &[("GASNET_SEGMENT_MODE", value)]);
        let said = outcome.err();
        assert!(said.contains("GASNET_SEGMENT_MODE") && said.contains(text), "{value}: {said}");
        assert_ne!(outcome.fault(0), None, "{value}: {said}");
    }
    run(&everything, "2", &[], &[("GASNET_SEGMENT_MODE", "EVERYTHING")]).expect(0);
    // One rank of two has another mode.
    let script = "[ \"$GASNETRUN_RANK\" = 0 ] || export GASNET_SEGMENT_MODE=LARGE; exec \"$0\"";
    for most in ["0", "1"] {
        let outcome = launcher(["-n", "2", "sh", "-c", script])
            .arg(&fast)
            .env("GASNET_IBV_FABRIC", "soft")
            .env("GASNET_SUPERNODE_MAXSIZE", most)
            .deadline("C program", BOUND)
            .run();
        let said = outcome.err();
        let names = said.contains("FAST") && said.contains("LARGE");
        assert!(said.contains("GASNET_SEGMENT_MODE") && names, "{most}: {said}");
    }
}

#[test]
fn files_of_several_modes_do_not_start() {
    if !build::ready() {
        return;
    }
    let program = mixture();
    let outcome = run(&program, "1", &[], &[]);
    let said = outcome.err();
    let names = "GASNET_SEGMENT_FAST, GASNET_SEGMENT_EVERYTHING";
    assert!(said.contains("compiled for several segment modes") && said.contains(names), "{said}");
    assert_ne!(outcome.fault(0), None, "{said}");
}

/// A program with a file of each of two modes.
fn mixture() -> PathBuf {
    let folder = build::target().join("c-programs/mixture");
    std::fs::create_dir_all(&folder).unwrap();
    let source = folder.join("other.c");
    let text = "#include <gasnetex.h>\nint other(void);\nint other(void) { return 0; }\n";
    std::fs::write(&source, text).unwrap();
    let path = folder.join("program");
    let lib = build::library().join("lib");
    let include = build::library().join("include");
    let object = folder.join("main.o");
    let mut main = Command::new("gcc");
    main.args(["-DGASNET_SEQ", "-D_GNU_SOURCE", "-c", "-I"]).arg(&include);
    main.args(EVERYTHING).arg(build::root().join("tests/c/everything.c")).arg("-o").arg(&object);
    build::must(&mut main);
    let mut link = Command::new("gcc");
    link.args(["-DGASNET_SEQ", "-D_GNU_SOURCE", "-I"]).arg(&include).arg(&source).arg(&object);
    link.arg(format!("-L{}", lib.display())).arg("-lgasnet-ibv-seq");
    link.arg(format!("-Wl,-rpath,{}", lib.display())).args(["-lpthread", "-lm"]);
    build::must(link.arg("-o").arg(&path));
    path
}
