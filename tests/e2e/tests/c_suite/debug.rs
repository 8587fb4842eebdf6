//! The debug library: what it exports, that programs which keep the rules pass, and that each broken
//! rule has its message.

use testkit::apart::neighbourhoods;
use testkit::{all_requested, launcher};

use crate::build::{self, DEBUG_MODES, KINDS, MODES, built, library};
use crate::{BOUND, arguments, programs, symbols};

/// The modes of the debug library: one, or all when asked to.
fn debug_modes() -> &'static [&'static str] {
    let modes = if all_requested() { &DEBUG_MODES[..] } else { &DEBUG_MODES[..1] };
    modes.iter().for_each(|mode| build::debug_library(mode));
    modes
}

#[test]
fn programs_with_checks_and_the_library_without_do_not_link_nor_the_other_way() {
    if !build::ready() {
        return;
    }
    for &checked in debug_modes() {
        symbols::compare(checked, &library().join("lib"));
        let plain = checked.trim_end_matches("-debug");
        let plain = MODES.into_iter().find(|mode| *mode == plain).unwrap();
        for (header, mode, names) in [
            (checked, checked, None),
            (checked, plain, Some(format!("ibv_{plain}_debug_abi"))),
            (plain, checked, Some(format!("ibv_{plain}_abi"))),
        ] {
            for kind in KINDS {
                let said = build::link_across("hello", header, mode, kind);
                let fits = match (&said, &names) {
                    (Some(said), Some(name)) => said.contains(name),
                    (said, name) => said.is_none() && name.is_none(),
                };
                assert!(fits, "{header} on {mode}: {said:?}");
            }
        }
    }
}

/// It breaks rules.
const UNRULY: [&str; 1] = ["am_negotiated"];

/// Its random descriptions are checked for overlap, so it has most to say.
const ALWAYS: [&str; 1] = ["vis"];

#[test]
fn programs_that_keep_the_rules_pass_with_the_debug_library() {
    if !build::ready() {
        return;
    }
    for &mode in debug_modes() {
        for (turn, name) in programs().iter().enumerate() {
            let due = turn % 3 == 0 || ALWAYS.contains(&name.as_str()) || all_requested();
            if UNRULY.contains(&name.as_str()) || !due {
                continue;
            }
            let tree = launcher(["-n", "2"])
                .arg(built(name, mode, build::kind(turn / 3, KINDS[turn % 2])))
                .args(arguments(name))
                .env("GASNET_DUMMY", "GASNet dummy value")
                .env("T_EMPTY", "");
            let most = 1 + u32::try_from(turn / 3 % 2).unwrap();
            let outcome = neighbourhoods(tree, most).deadline("C program", BOUND).run();
            outcome.expect(0);
            assert!(outcome.out().contains(&format!("PASS {name}\n")), "{}", outcome.err());
        }
    }
}

/// Broken rules by the names of `tests/c/checks.c`, and what the debug library says.
const BROKEN: [(&str, &str); 37] = [
    ("poll in a handler", "gasnet_AMPoll: GASNET_ERR_BAD_ARG: not legal here: inside a handler"),
    ("request in a handler", "gex_AM_RequestShort: GASNET_ERR_BAD_ARG: not legal here: inside a"),
    ("put in a handler", "gex_RMA_PutBlocking: GASNET_ERR_BAD_ARG: not legal here: inside a"),
    ("lock kept by a handler", "return of a handler: GASNET_ERR_BAD_ARG: it still holds the lock"),
    (
        "reply with a lock",
        "gex_AM_ReplyShort: GASNET_ERR_BAD_ARG: not legal here: this thread holds",
    ),
    ("reply kept by a handler", "return of a handler: GASNET_ERR_BAD_ARG: it prepared a reply"),
    ("lock twice", "gex_HSL_Lock: GASNET_ERR_BAD_ARG: hsl"),
    ("unlock of nothing", "is not held by this thread"),
    ("unlock in another order", "is not the one that was locked last"),
    ("destroy of a held lock", "gex_HSL_Destroy: GASNET_ERR_BAD_ARG: hsl"),
    ("lock after destroy", "was destroyed"),
    ("poll with a lock", "gasnet_AMPoll: GASNET_ERR_BAD_ARG: not legal here: this thread holds"),
    ("request with a lock", "gex_AM_RequestShort: GASNET_ERR_BAD_ARG: not legal here: this thread"),
    (
        "put with a lock",
        "gex_RMA_PutBlocking: GASNET_ERR_BAD_ARG: not legal here: this thread holds",
    ),
    ("barrier with a lock", "gex_Coll_BarrierNB: GASNET_ERR_BAD_ARG: not legal here: this thread"),
    ("put after a prepare", "this thread has prepared a message: commit or cancel it first"),
    ("unknown flags of a put", "flags 0x100000: bits 0x100000 mean nothing here"),
    ("never self", "have GEX_FLAG_PEER_NEVER_SELF, and rank"),
    ("never near", "have GEX_FLAG_PEER_NEVER_NBRHD, and rank"),
    ("local outside", "say that the local address is in a bound segment of the caller: 8 bytes"),
    ("few bytes outside", "gex_RMA_PutBlocking: GASNET_ERR_BAD_ARG: bytes"),
    ("value outside", "gex_RMA_GetBlockingVal: GASNET_ERR_BAD_ARG: bytes"),
    (
        "region in a region",
        "gex_NBI_BeginAccessRegion: GASNET_ERR_BAD_ARG: inside an access region",
    ),
    (
        "region ended twice",
        "gex_NBI_EndAccessRegion: GASNET_ERR_BAD_ARG: no access region was begun",
    ),
    ("wait in a region", "gex_NBI_Wait: GASNET_ERR_BAD_ARG: inside an access region"),
    ("no-op waited for", "gex_Event_WaitAll: GASNET_ERR_BAD_ARG: event 0 is GEX_EVENT_NO_OP"),
    ("event twice in an array", "is in the array twice"),
    ("event waited for twice", "it was consumed by a wait or test before"),
    (
        "unknown flags of a message",
        "gex_AM_RequestShort returning an error code: GASNET_ERR_BAD_ARG",
    ),
    ("order of collectives", "rank 1 calls gex_Coll_BarrierNB()"),
    ("sizes of broadcasts", "rank 1 calls gex_Coll_BroadcastNB(root 0, 8 bytes)"),
    (
        "types of reductions",
        "rank 0 calls gex_Coll_ReduceToOneNB(root 1, dt 0x8, 1 elements of 8 bytes, op 0x8)",
    ),
    ("a team or a barrier", "rank 1 calls gex_TM_Split()"),
    ("order in a team", "rank 0 calls gex_Coll_BroadcastNB(root 0, 8 bytes)"),
    ("domains that differ", "rank 1 calls gex_AD_Create(dt 0x"),
    ("second thread", "gasnet_AMPoll: GASNET_ERR_BAD_ARG: this is not the thread"),
    ("two threads inside", "mode PARSYNC allows one at a time"),
];

#[test]
fn the_debug_library_names_call_and_argument_of_broken_rules() {
    if !build::ready() {
        return;
    }
    for &mode in debug_modes() {
        for (turn, (name, words)) in BROKEN.into_iter().enumerate() {
            let only = match name {
                "second thread" => "seq-debug",
                "two threads inside" => "parsync-debug",
                _ => mode,
            };
            if only != mode {
                continue;
            }
            // Ranks by themselves: only there an operation takes time.
            let tree = launcher(["-n", "2"]).arg(built("checks", mode, KINDS[turn % 2])).arg(name);
            let outcome = neighbourhoods(tree, 1).deadline("C program", BOUND).run();
            let code = if name == "unknown flags of a message" { 97 } else { 128 + 6 };
            outcome.expect(code);
            let err = outcome.err();
            assert!(err.contains(words) && !err.contains("TEST FAILED"), "{mode} {name}: {err}");
        }
    }
}

/// Cases of `tests/c/vis.c` that only the debug library finds.
const BROKEN_VECTORS: [(&str, &str); 3] = [
    ("lists overlap", "gex_VIS_VectorPutBlocking: GASNET_ERR_BAD_ARG: bytes"),
    ("dimensions overlap", "are in the destination twice"),
    ("unknown flags", "flags 0x100000: bits 0x100000 mean nothing here"),
];

#[test]
fn the_debug_library_finds_destinations_that_overlap() {
    if !build::ready() {
        return;
    }
    for &mode in debug_modes() {
        for (turn, (name, words)) in BROKEN_VECTORS.into_iter().enumerate() {
            let tree = launcher(["-n", "2"]).arg(built("vis", mode, KINDS[turn % 2])).arg(name);
            let outcome = neighbourhoods(tree, 1).deadline("C program", BOUND).run();
            outcome.expect(128 + 6);
            let err = outcome.err();
            assert!(err.contains(words) && !err.contains("TEST FAILED"), "{mode} {name}: {err}");
        }
    }
}
