//! The C programs of `tests/c` against the libraries: how they link, what they do, how they end.
//!
//! By default every program is linked with the shared library of every mode, every third one with the
//! static one of a mode, and runs with every number of ranks, the modes taking turns.
//! `scripts/test --all` links and runs the whole product, and under sanitizers and valgrind.

#![expect(clippy::unwrap_used, reason = "what is missing here fails the test")]

#[path = "c_suite/build.rs"]
mod build;
#[path = "c_suite/debug.rs"]
mod debug;
#[path = "c_suite/flow.rs"]
mod flow;
#[path = "c_suite/modes.rs"]
mod modes;
#[path = "c_suite/symbols.rs"]
mod symbols;
#[path = "c_suite/teams.rs"]
mod teams;
#[path = "c_suite/trace.rs"]
mod trace;

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use testkit::{Outcome, Table, all_requested, launcher};

use crate::build::{KINDS, Kind, MODES, built, compiles, installed, library, place, sources};

const RANKS: [u32; 5] = [1, 2, 3, 4, 7];
/// Far above what any program takes on a busy machine.
const BOUND: Duration = Duration::from_secs(120);
/// These have tests of their own, because they do not end with `PASS`.
const SPECIAL: [&str; 3] = ["exits", "wrong", "wrong_teams"];

/// Names of the programs that end with `PASS`.
fn programs() -> Vec<String> {
    let names: Vec<String> = sources()
        .iter()
        .map(|path| path.file_stem().unwrap().to_string_lossy().into_owned())
        .filter(|name| !SPECIAL.contains(&name.as_str()))
        .collect();
    assert!(names.len() >= 15, "{names:?}");
    names
}

fn run(program: &Path, ranks: u32, args: &[&str]) -> Outcome {
    launcher(["-n", &ranks.to_string()])
        .arg(program)
        .args(args)
        .env("GASNET_DUMMY", "GASNet dummy value")
        .env("T_EMPTY", "")
        .deadline("C program", BOUND)
        .run()
}

/// Arguments that a program wants; `environment` compares them on all ranks.
fn arguments(name: &str) -> &'static [&'static str] {
    match name {
        "environment" => {
            &["GASNet is \"Global Address Space Networking\"", "a b  c", "", "-n", "$HOME *"]
        }
        _ => &[],
    }
}

#[test]
fn every_program_links_in_every_mode() {
    if !build::ready() {
        return;
    }
    let mut table = Table::new(
        "link table: C and C++ programs, modes, static and shared library",
        &["program", "seq a", "seq so", "parsync a", "parsync so", "par a", "par so"],
    );
    for (turn, source) in sources().iter().enumerate() {
        let name = source.file_stem().unwrap().to_string_lossy().into_owned();
        let mut cells = vec![name.clone()];
        for (column, mode) in MODES.into_iter().enumerate() {
            for kind in KINDS {
                if kind == Kind::Static && !linked_with_archive(turn, column) {
                    cells.push("-".to_owned());
                    continue;
                }
                let program = built(&name, mode, kind);
                assert!(program.is_file(), "{}", program.display());
                cells.push("ok".to_owned());
            }
        }
        table.row(cells);
    }
    table.show();
}

/// Whether the program at place `turn` is linked with the archive of the mode in this column. That
/// takes long: by default it is done with every third program and one mode.
fn linked_with_archive(turn: usize, column: usize) -> bool {
    all_requested() || (turn.is_multiple_of(3) && column == turn / 3 % MODES.len())
}

/// How a program runs in a column of the table, modes and kinds taking turns. `turn` is the
/// program's place among all; it has the archive where the table above has.
fn way(turn: usize, column: usize) -> (&'static str, Kind) {
    let mode = (turn + column) % MODES.len();
    let kind = if linked_with_archive(turn, mode) { Kind::Static } else { Kind::Shared };
    (MODES[mode], kind)
}

#[test]
fn every_program_passes_with_every_number_of_ranks() {
    if !build::ready() {
        return;
    }
    let names = programs();
    let mut table = Table::new(
        "run table: C and C++ programs, ranks; mode and library (a static, so shared), milliseconds",
        &["program", "1 rank", "2", "3", "4", "7"],
    );
    let mut faults = Vec::new();
    for name in &names {
        let turn = place(name);
        let mut cells = vec![name.clone()];
        for (column, ranks) in RANKS.into_iter().enumerate() {
            let ways: Vec<(&str, Kind)> = if all_requested() {
                MODES.iter().flat_map(|mode| KINDS.iter().map(move |kind| (*mode, *kind))).collect()
            } else {
                vec![way(turn, column)]
            };
            let programs: Vec<_> =
                ways.iter().map(|&(mode, kind)| (built(name, mode, kind), mode, kind)).collect();
            let begin = Instant::now();
            let mut label = String::new();
            for (program, mode, kind) in programs {
                let outcome = run(&program, ranks, arguments(name));
                let text = format!("PASS {name}\n");
                let said = outcome.out().matches(&text).count();
                label = format!("{mode} {}", kind.ending());
                if let Some(fault) = outcome
                    .fault(0)
                    .or_else(|| (said != 1).then(|| format!("said PASS {said} times")))
                {
                    faults.push(format!(
                        "{name} {label} on {ranks} ranks: {fault}\n{}",
                        outcome.err()
                    ));
                    label = format!("FAILED {label}");
                }
            }
            if all_requested() {
                label = "6 ways".to_owned();
            }
            cells.push(format!("{label} {}", begin.elapsed().as_millis()));
        }
        table.row(cells);
    }
    table.show();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn c_programs_are_valid_cxx_too_and_clang_takes_them() {
    if !build::ready() {
        return;
    }
    let clang = installed("clang") && installed("clang++");
    // By default the compilers take turns.
    let due = |turn: usize, way: usize| all_requested() || turn % 3 == way;
    for (turn, source) in sources().into_iter().enumerate() {
        for (column, mode) in MODES.into_iter().enumerate() {
            if all_requested() || (due(turn, 0) && column == turn / 3 % MODES.len()) {
                compiles("g++", &source, mode);
            }
        }
        for (way, compiler) in [(1, "clang"), (2, "clang++")] {
            if clang && due(turn, way) {
                compiles(compiler, &source, "par");
            }
        }
    }
    if !clang {
        testkit::skip("C programs with clang", "clang and clang++ are not both installed");
    }
}

#[test]
fn c_programs_run_the_same_when_compiled_as_cxx() {
    if !build::ready() {
        return;
    }
    let names = ["am_arguments", "am_negotiated", "atomics", "legacy", "rma"];
    for (turn, name) in names.into_iter().enumerate() {
        let program = build::built_as_cxx(name, MODES[turn % 3], KINDS[turn % 2]);
        let outcome = run(&program, 3, &[]);
        outcome.expect(0);
        assert!(outcome.out().contains(&format!("PASS {name}\n")), "{}", outcome.err());
    }
}

#[test]
fn static_destructors_run_at_the_end_of_main_and_not_in_gasnet_exit() {
    if !build::ready() {
        return;
    }
    for kind in KINDS {
        let program = built("destructors", "par", kind);
        let outcome = run(&program, 3, &[]);
        outcome.expect(0);
        assert_eq!(outcome.out().matches("DESTROYED object\n").count(), 3, "{}", outcome.out());
        let outcome = run(&program, 3, &["exit"]);
        outcome.expect(0);
        assert!(!outcome.out().contains("DESTROYED"), "{}", outcome.out());
    }
}

#[test]
fn smoke_programs_run() {
    if !build::ready() {
        return;
    }
    let names = ["hello", "traffic", "legacy", "threads"];
    for (turn, name) in names.into_iter().enumerate() {
        let mode = if name == "threads" { "par" } else { MODES[turn % 3] };
        let program = build::smoke(name, mode, KINDS[turn % 2]);
        for ranks in [1, 3] {
            run(&program, ranks, &[]).expect(0);
        }
    }
    let program = build::smoke("exits", "parsync", Kind::Static);
    for way in ["handler", "reply", "prepared", "signal", "atexit", "spin", "barrier"] {
        let outcome = run(&program, 3, &[way, "42"]);
        assert_eq!(outcome.fault(42), None, "{way}: {}", outcome.err());
    }
}

/// The bounds of the exit are for ranks that hang, not for a reader that pauses.
#[test]
fn what_ranks_flush_at_their_exit_waits_for_a_slow_reader() {
    if !build::ready() {
        return;
    }
    // Over the network a rank has threads, so a helper flushes.
    let outcome = testkit::Tree::new("sh")
        .args(["-c", "\"$@\" | (sleep 9; cat)", "sh"])
        .arg(testkit::binary("gasnetrun_ibv"))
        .args(["-n", "2"])
        .arg(build::smoke("buffered", "seq", Kind::Static))
        .env("GASNET_QUIET", "1")
        .env("GASNET_SUPERNODE_MAXSIZE", "1")
        .env("GASNET_EXITTIMEOUT", "2")
        .deadline("a rank that flushes", Duration::from_secs(60))
        .run();
    let lines = outcome.out().matches("last words").count();
    assert_eq!(lines, 60_000, "code {}:\n{}", outcome.code(), outcome.err());
}

#[test]
fn names_that_programs_of_others_use_resolve_in_every_mode() {
    if !build::ready() {
        return;
    }
    for (turn, mode) in MODES.into_iter().enumerate() {
        let text = build::must(&mut Command::new(build::smoke("names", mode, KINDS[turn % 2])));
        assert_eq!(text, "520 calls\n", "{mode}");
    }
}

/// Exit code that the launcher reports for a case of `tests/c/exits.c`.
fn exit_code(case: u32) -> i32 {
    match case {
        // The code of main was there first.
        21 | 100 | 101 => 0,
        1..=58 => case.cast_signed(),
        _ => {
            128 + match case % 100 {
                2 | 3 | 7 => 6,
                5 => 7,
                6 => 8,
                _ => 11,
            }
        }
    }
}

/// Crashes of the last rank, of all ranks, of a thread of the last rank, of a thread of each rank.
const CRASHES: [u32; 17] =
    [102, 103, 104, 105, 106, 107, 108, 203, 204, 207, 302, 303, 304, 305, 306, 308, 404];

#[test]
fn every_way_to_end_a_job_has_its_code_and_leaves_nobody() {
    if !build::ready() {
        return;
    }
    let all = all_requested();
    let ranks: &[u32] = if all { &RANKS } else { &[1, 2, 4] };
    let mut header = vec!["case".to_owned()];
    header.extend(ranks.iter().map(|count| format!("{count} ranks")));
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    let mut table = Table::new("ends of C programs: code and milliseconds", &header);
    let mut faults = Vec::new();
    for case in (1..=24).chain(51..=58).chain(CRASHES) {
        let mut cells = vec![case.to_string()];
        for (column, &count) in ranks.iter().enumerate() {
            let turn = usize::try_from(case).unwrap() + column;
            // Threads are cases from 51 on.
            let mode =
                if (51..=58).contains(&case) || case > 300 { "par" } else { MODES[turn % 3] };
            let program = built("exits", mode, KINDS[turn % 2]);
            let outcome = run(&program, count, &[&case.to_string(), "80"]);
            let failed = outcome.err().contains("TEST FAILED");
            if let Some(fault) =
                outcome.fault(exit_code(case)).or(failed.then(|| "a call returned".into()))
            {
                faults.push(format!(
                    "case {case} {mode} on {count} ranks: {fault}\n{}",
                    outcome.err()
                ));
            }
            if case == 21 {
                // It must have come to the call that is tried.
                assert_eq!(outcome.out().matches("UNLOADED\n").count(), count as usize);
            }
            cells.push(format!("{} {}", outcome.code(), outcome.ms()));
        }
        table.row(cells);
    }
    table.show();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn crashes_of_c_programs_show_where_when_asked_to() {
    if !build::ready() {
        return;
    }
    for (turn, case) in [100, 101, 102, 103, 104, 107, 108, 304].into_iter().enumerate() {
        for asked in [true, false] {
            let mode = if case > 300 { "par" } else { MODES[turn % 3] };
            let mut tree = launcher(["-n", "2"])
                .arg(built("exits", mode, KINDS[turn % 2]))
                .arg(case.to_string());
            tree = tree.arg("80").deadline("C program", BOUND);
            tree = tree.env("GASNET_BACKTRACE_TYPE", "EXECINFO");
            if asked {
                tree = tree.env("GASNET_BACKTRACE", "1");
            } else if case == 101 {
                // It insists on what was asked for.
                continue;
            }
            let outcome = tree.run();
            assert_eq!(outcome.fault(exit_code(case)), None, "{case}: {}", outcome.err());
            let err = outcome.err();
            // What the program prints itself has addresses in files; the library's has functions
            // and lines.
            let own = err.lines().any(|line| line.contains("/exits-") && line.contains("[0x"));
            let place = err.contains("exits.c:") && err.contains("   7: ") || own;
            assert_eq!(place, asked || case == 100, "{case}, asked {asked}: {err}");
            assert_eq!(err.contains("case 102"), case == 102, "{err}");
            assert_eq!(err.contains("Assertion `zero' failed"), case == 107, "{err}");
        }
    }
}

#[test]
fn the_limit_of_threads_is_what_the_environment_says_and_test_variables_are_known() {
    if !build::ready() {
        return;
    }
    for (turn, most) in ["1", "37", "256", "1024"].into_iter().enumerate() {
        for mode in MODES {
            let outcome = launcher(["-n", "2"])
                .arg(built("environment", mode, KINDS[turn % 2]))
                .env("GASNET_MAX_THREADS", most)
                .env("GASNET_DUMMY", "GASNet dummy value")
                .deadline("C program", BOUND)
                .run();
            outcome.expect(0);
            assert!(!outcome.err().contains("environment variable"), "{}", outcome.err());
        }
    }
    let outcome = launcher(["-n", "2"])
        .arg(built("environment", "par", Kind::Static))
        .env("GASNET_MAX_THREADS", "0")
        .deadline("C program", BOUND)
        .run();
    outcome.expect(125);
    assert!(outcome.err().contains("GASNET_MAX_THREADS"), "{}", outcome.err());
}

/// Cases of `tests/c/wrong.c` that end the process, and what is said then.
const WRONG: [(&str, &str); 33] = [
    ("put outside", "gex_RMA_PutBlocking: GASNET_ERR_BAD_ARG: bytes"),
    ("put of all", "gex_RMA_PutBlocking: GASNET_ERR_BAD_ARG: bytes"),
    (
        "put to nobody",
        "gex_RMA_PutBlocking: GASNET_ERR_BAD_ARG: rank 2 is not in the team of 2 ranks",
    ),
    ("put without team", "gex_RMA_PutBlocking: GASNET_ERR_BAD_ARG: team GEX_TM_INVALID"),
    ("put from null", "gex_RMA_PutBlocking: GASNET_ERR_BAD_ARG: the local address is null"),
    ("put to null", "gex_RMA_PutBlocking: GASNET_ERR_BAD_ARG: bytes 0x0..0x8"),
    ("put by offset", "gex_RMA_PutBlocking: GASNET_ERR_BAD_ARG: offsets"),
    ("put in a handler", "gex_RMA_PutBlocking: GASNET_ERR_BAD_ARG"),
    ("get outside", "gex_RMA_GetBlocking: GASNET_ERR_BAD_ARG: bytes"),
    ("get to null", "gex_RMA_GetBlocking: GASNET_ERR_BAD_ARG: the local address is null"),
    ("get from nobody", "gex_RMA_GetBlocking: GASNET_ERR_BAD_ARG: rank 2"),
    ("put nbi outside", "gex_RMA_PutNBI: GASNET_ERR_BAD_ARG: bytes"),
    ("put nbi without completion", "gex_RMA_PutNBI: GASNET_ERR_BAD_ARG: lc_opt is null"),
    ("get nbi outside", "gex_RMA_GetNBI: GASNET_ERR_BAD_ARG: bytes"),
    ("put nb outside", "gex_RMA_PutNB: GASNET_ERR_BAD_ARG: bytes"),
    ("put nb grouped", "gex_RMA_PutNB: GASNET_ERR_BAD_ARG: lc_opt is GEX_EVENT_GROUP"),
    ("get nb outside", "gex_RMA_GetNB: GASNET_ERR_BAD_ARG: bytes"),
    ("value of 9 bytes", "gex_RMA_PutBlockingVal: GASNET_ERR_BAD_ARG: a value has"),
    ("value nbi outside", "gex_RMA_PutNBIVal: GASNET_ERR_BAD_ARG: bytes"),
    ("value nb to nobody", "gex_RMA_PutNBVal: GASNET_ERR_BAD_ARG: rank 2"),
    ("get value outside", "gex_RMA_GetBlockingVal: GASNET_ERR_BAD_ARG: bytes"),
    ("commit of nothing", "gex_AM_CommitRequestMedium: GASNET_ERR_BAD_ARG: not the descriptor"),
    ("commit of too much", "gex_AM_CommitRequestMedium: GASNET_ERR_BAD_ARG"),
    ("commit of another kind", "gex_AM_CommitRequestLong: GASNET_ERR_BAD_ARG: not the descriptor"),
    ("commit with other count", "gex_AM_CommitRequestMedium: GASNET_ERR_BAD_ARG"),
    ("commit of a reply twice", "gex_AM_CommitReplyLong: GASNET_ERR_BAD_ARG: not the descriptor"),
    ("no handler", "handler 222, which is not registered"),
    ("other count", "Request with 2 arguments"),
    ("other category", "received a Medium"),
    ("prepare twice", "gex_AM_PrepareRequestMedium: GASNET_ERR_BAD_ARG"),
    ("end without region", "gex_NBI_EndAccessRegion: GASNET_ERR_BAD_ARG"),
    ("wait for no event", "gex_Event_Wait: GASNET_ERR_BAD_ARG"),
    ("barrier of no team", "gex_Coll_BarrierNB: GASNET_ERR_BAD_ARG"),
];

#[test]
fn wrong_uses_return_their_code_or_end_with_a_name() {
    if !build::ready() {
        return;
    }
    for (turn, ranks) in [1, 2, 4].into_iter().enumerate() {
        let outcome = run(&built("wrong", MODES[turn], KINDS[turn % 2]), ranks, &["codes"]);
        outcome.expect(0);
        assert!(outcome.out().contains("PASS wrong"), "{}", outcome.err());
        // Each is said by name.
        let said = outcome.err().matches("returning an error code: GASNET_ERR_").count();
        assert!(said >= 50 * ranks as usize, "{said} on {ranks} ranks: {}", outcome.err());
    }
    for (turn, (name, words)) in WRONG.into_iter().enumerate() {
        let outcome = run(&built("wrong", MODES[turn % 3], KINDS[turn % 2]), 2, &[name]);
        outcome.expect(128 + 6);
        let err = outcome.err();
        assert!(err.contains(words) && !err.contains("TEST FAILED"), "{name}: {err}");
    }
    run(&built("wrong", "seq", Kind::Static), 2, &["exit before init"]).expect(11);
    let outcome = run(&built("wrong", "par", Kind::Shared), 3, &["after exit"]);
    outcome.expect(0);
    let named = outcome.err().matches("GASNET_ERR_NOT_INIT").count();
    assert!(named == 12 && !outcome.err().contains("TEST FAILED"), "{}", outcome.err());
}

/// Cases of `tests/c/vis.c` that end the process, and what is said then.
const WRONG_VECTORS: [(&str, &str); 23] = [
    ("unequal totals", "local side has 4 bytes and the remote side 8"),
    ("unequal lengths", "local side has 10 bytes and the remote side 8"),
    ("null list", "gex_VIS_VectorPutNBI: GASNET_ERR_BAD_ARG: srclist is null"),
    ("null index", "dstlist is null"),
    ("null address", "an address of srclist is null"),
    ("null strides", "dststrides is null"),
    ("null count", "count is null"),
    ("null place", "an address is null"),
    ("vector outside", "gex_VIS_VectorGetBlocking: GASNET_ERR_BAD_ARG: bytes"),
    ("strided outside", "gex_VIS_StridedPutBlocking: GASNET_ERR_BAD_ARG: bytes"),
    ("overlap", "2 elements of 8 bytes overlap in the destination: they are 7 bytes apart"),
    ("address space", "elements reach beyond the address space"),
    ("lengths of all", "the local side has more than 2^64 bytes"),
    ("entries of all", "dstlist with 9223372036854775807 entries is beyond the address space"),
    ("index of all", "srclist with 9223372036854775807 entries is beyond the address space"),
    ("indexed lengths of all", "the remote side more than 2^64"),
    ("elements of all", "elements and counts make more than 2^64 bytes"),
    ("dimensions of all", "count with 9223372036854775807 entries is beyond the address space"),
    ("not a team", "gex_VIS_IndexedGetBlocking: GASNET_ERR_BAD_ARG"),
    ("nobody", "rank 2 is not in the team of 2 ranks"),
    ("no team", "team GEX_TM_INVALID"),
    ("long completion", "128 bytes for the handler: at most 127"),
    ("immediate completion", "must not have GEX_FLAG_IMMEDIATE"),
];

#[test]
fn wrong_vectors_end_with_a_name() {
    if !build::ready() {
        return;
    }
    for (turn, (name, words)) in WRONG_VECTORS.into_iter().enumerate() {
        let program = built("vis", MODES[turn % 3], KINDS[turn % 2]);
        let tree = launcher(["-n", "2"]).arg(program).arg(name);
        let tree = testkit::apart::neighbourhoods(tree, 1 + u32::try_from(turn % 2).unwrap());
        let outcome = tree.deadline("C program", BOUND).run();
        outcome.expect(128 + 6);
        let err = outcome.err();
        assert!(err.contains(words) && !err.contains("TEST FAILED"), "{name}: {err}");
    }
}

/// Wrong uses of `tests/c/atomics.c`, and what is said then.
const WRONG_ATOMICS: [(&str, &str); 27] = [
    (
        "another operation",
        "gex_AD_OpNB_U64: GASNET_ERR_BAD_ARG: atomic domain: the domain was created for SET, FADD",
    ),
    ("two operations", "gex_AD_OpNB_U64: GASNET_ERR_BAD_ARG: 0x40400 is not one operation"),
    ("two constants", "gex_AD_OpNB_U64: GASNET_ERR_BAD_ARG: 0x40400 is not one operation"),
    (
        "another type",
        "gex_AD_OpNB_I32: GASNET_ERR_BAD_ARG: the domain has type U64, the call is for I32",
    ),
    ("unknown type", "gex_AD_Create: GASNET_ERR_BAD_ARG: type 0x40 is none of"),
    (
        "bits of a float",
        "gex_AD_Create: GASNET_ERR_BAD_ARG: atomic domain: operation XOR does not exist for type FLT",
    ),
    (
        "unknown operation",
        "gex_AD_Create: GASNET_ERR_BAD_ARG: operations 0x40000008: bits 0x40000000",
    ),
    ("unknown flags", "gex_AD_Create: GASNET_ERR_BAD_ARG: flags 0x8"),
    ("no team", "gex_AD_Create: GASNET_ERR_BAD_ARG: team GEX_TM_INVALID"),
    ("no type", "gex_AD_Create: GASNET_ERR_BAD_ARG: type 0x0 is none of"),
    ("two types", "gex_AD_Create: GASNET_ERR_BAD_ARG: type 0x3 is none of"),
    ("no place", "gex_AD_Create: GASNET_ERR_BAD_ARG: the pointer for the answer is null"),
    ("no operation", "gex_AD_OpNB_U64: GASNET_ERR_BAD_ARG: 0x0 is not one operation"),
    ("flags of nothing", "bits 0x100000 are none that atomics have"),
    ("destroyed team", "is a team that was destroyed"),
    ("misaligned", "gex_AD_OpNB_U64: GASNET_ERR_BAD_ARG: address 0x"),
    ("outside", "gex_AD_OpNB_U64: GASNET_ERR_BAD_ARG: bytes 0x"),
    ("at the end", "gex_AD_OpNBI_U64: GASNET_ERR_BAD_ARG: bytes 0x"),
    ("nobody", "gex_AD_OpNB_U64: GASNET_ERR_BAD_ARG: rank 2 is not in the team of 2 ranks"),
    ("no result", "gex_AD_OpNB_U64: GASNET_ERR_BAD_ARG: result_p is null"),
    ("no domain", "gex_AD_OpNB_U64: GASNET_ERR_BAD_ARG: the atomic domain is GEX_AD_INVALID"),
    ("not a domain", "is not an atomic domain of this process"),
    ("not a member", "of the job is not in the team of 1 ranks"),
    ("not mine", "gex_AD_OpNB_U64: GASNET_ERR_BAD_ARG: GEX_FLAG_AD_MY_RANK for rank"),
    ("by offset", "gex_AD_OpNB_U64: GASNET_ERR_BAD_ARG: flags 0x400"),
    ("after destroy", "gex_AD_OpNB_U64: GASNET_ERR_BAD_ARG: the atomic domain was destroyed"),
    ("destroy twice", "gex_AD_Destroy: GASNET_ERR_BAD_ARG: the atomic domain was destroyed"),
];

#[test]
fn wrong_uses_of_atomics_end_with_a_name() {
    if !build::ready() {
        return;
    }
    for (turn, (name, words)) in WRONG_ATOMICS.into_iter().enumerate() {
        let outcome = run(&built("atomics", MODES[turn % 3], KINDS[turn % 2]), 2, &[name]);
        outcome.expect(128 + 6);
        let err = outcome.err();
        assert!(err.contains(words) && !err.contains("TEST FAILED"), "{name}: {err}");
    }
}

#[test]
fn no_atomic_is_lost_between_8_ranks_of_2_threads() {
    if !build::ready() {
        return;
    }
    let turns = if all_requested() { "20001" } else { "301" };
    let outcome = run(&built("atomics", "par", Kind::Static), 8, &["contend", turns]);
    outcome.expect(0);
    assert!(outcome.out().contains("PASS atomics\n"), "{}", outcome.err());
}

/// Programs of the short versions of the tests under checkers. There is none for data races
/// (ThreadSanitizer wants every instruction instrumented, those of the library too, and knows
/// nothing of memory that processes share).
const CHECKED: [&str; 10] = [
    "am_arguments",
    "am_threads",
    "am_negotiated",
    "atomics",
    "destructors",
    "events",
    "handlers",
    "objects",
    "threads",
    "rma",
];

/// These have several threads where the mode allows it.
const THREADED: [&str; 4] = ["am_threads", "atomics", "locks", "threads"];

/// When asked to, every program with each of these numbers of ranks, the modes taking turns (and
/// those with threads in mode PAR); else some programs.
fn checked(ranks: &[u32]) -> Vec<(String, &'static str, u32)> {
    let mode = |turn: usize, name: &str| {
        if THREADED.contains(&name) { "par" } else { MODES[turn % MODES.len()] }
    };
    if !all_requested() {
        let turns = CHECKED.iter().enumerate();
        return turns.map(|(turn, name)| ((*name).to_owned(), mode(turn, name), 3)).collect();
    }
    let mut found = Vec::new();
    for (turn, name) in programs().into_iter().enumerate() {
        for (column, &count) in ranks.iter().enumerate() {
            found.push((name.clone(), mode(turn + column, &name), count));
        }
    }
    found
}

#[test]
fn programs_are_clean_under_address_and_undefined_behaviour_sanitizers() {
    if !build::ready() {
        return;
    }
    const OPTIONS: &[&str] = &["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"];
    if !build::links_with(OPTIONS) {
        testkit::skip("C programs under sanitizers", "gcc has no address and undefined sanitizers");
        return;
    }
    for (name, mode, ranks) in checked(&RANKS) {
        let program = build::built_with(&name, mode, Kind::Shared, OPTIONS);
        let outcome = run(&program, ranks, arguments(&name));
        let err = outcome.err();
        assert!(
            !err.contains("Sanitizer") && !err.contains("runtime error"),
            "{name} {mode}: {err}"
        );
        outcome.expect(0);
    }
}

#[test]
fn programs_are_clean_under_valgrind() {
    if !build::ready() {
        return;
    }
    if !installed("valgrind") {
        testkit::skip("C programs under valgrind", "valgrind is not installed");
        return;
    }
    // It is slow: by default for every second of them.
    let step = if all_requested() { 1 } else { 2 };
    for (turn, (name, mode, ranks)) in checked(&[3]).into_iter().step_by(step).enumerate() {
        let outcome = launcher(["-n", &ranks.to_string(), "valgrind", "--error-exitcode=9"])
            .arg(built(&name, mode, build::kind(turn, Kind::Static)))
            .args(arguments(&name))
            .env("GASNET_DUMMY", "GASNet dummy value")
            .env("T_EMPTY", "")
            .deadline("C program under valgrind", BOUND)
            .run();
        // The launcher's report may repeat last lines, indented.
        let summary =
            |line: &&str| line.starts_with("==") && line.contains("ERROR SUMMARY: 0 errors");
        let clean = outcome.err().lines().filter(summary).count();
        assert_eq!(clean, ranks as usize, "{name} {mode}: {}", outcome.err());
        outcome.expect(0);
    }
}

#[test]
fn header_and_exported_symbols_agree() {
    if !build::ready() {
        return;
    }
    for mode in MODES {
        symbols::compare(mode, &library().join("lib"));
    }
}

#[test]
fn every_public_function_is_called_by_a_program() {
    if !build::ready() {
        return;
    }
    // Every program runs in shared memory here, and over the software adapter in `network_c`.
    let never = symbols::never_called();
    assert!(never.is_empty(), "no program of tests/c calls {never:?}");
}

#[test]
fn a_program_of_another_mode_does_not_link() {
    if !build::ready() {
        return;
    }
    for header in MODES {
        for mode in MODES {
            for kind in KINDS {
                let said = build::link_across("hello", header, mode, kind);
                assert_eq!(said.is_none(), header == mode, "{header} on {mode}: {said:?}");
                if let Some(said) = said {
                    assert!(said.contains(&format!("ibv_{header}_abi")), "{said}");
                }
            }
        }
    }
}
