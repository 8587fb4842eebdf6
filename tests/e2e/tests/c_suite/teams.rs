//! Wrong uses of teams and collectives: `tests/c/wrong_teams.c`.

use crate::build::{self, KINDS, MODES, built};
use crate::run;

/// Cases that end the process, and what is said then.
const WRONG: [(&str, &str); 68] = [
    ("barrier after destroy", "gex_Coll_BarrierNB: GASNET_ERR_BAD_ARG"),
    ("put after destroy", "is a team that was destroyed"),
    ("put to no member", "rank 1 is not in the team of 1 ranks"),
    ("vector after destroy", "gex_VIS_VectorPutBlocking: GASNET_ERR_BAD_ARG"),
    ("vector from no member", "rank 1 is not in the team of 1 ranks"),
    ("barrier of nothing", "gex_Coll_BarrierNB: GASNET_ERR_BAD_ARG"),
    ("split after destroy", "is a team that was destroyed"),
    ("create of null", "the list of members is null"),
    ("create too large", "the list of members with 9223372036854775807 entries is beyond"),
    ("destroy twice", "gex_TM_Destroy: GASNET_ERR_BAD_ARG"),
    ("destroy all", "the team of all ranks cannot be destroyed"),
    ("barrier of a pair", "a pair names point-to-point traffic only"),
    ("split a pair", "a pair names point-to-point traffic only"),
    ("negative color", "gex_TM_Split: GASNET_ERR_BAD_ARG: color -1"),
    ("no scratch", "scratch space of 0 bytes"),
    ("scratch at null", "scratch space at a null pointer"),
    ("split with a flag of create", "0x8 are not flags of this call"),
    ("create outside", "rank 2 of the list is not in the team"),
    ("create twice", "a rank is in the list twice"),
    ("create without me", "gives a list that it is not in itself"),
    ("create of lists that differ", "give different lists"),
    ("create of endpoint 1", "only those of index 0 can be members"),
    ("create with two scratches", "one of GEX_FLAG_TM_GLOBAL_SCRATCH"),
    ("root outside", "root 2 is not in the team of 2 ranks"),
    ("root outside half", "root 1 is not in the team of 1 ranks"),
    ("broadcast to null", "gex_Coll_BroadcastNB: GASNET_ERR_BAD_ARG: dst is null"),
    ("broadcast from null", "gex_Coll_BroadcastNB: GASNET_ERR_BAD_ARG: src is null"),
    ("broadcast with flags", "flags 0x1 must be 0"),
    ("broadcast of all", "18446744073709551615 bytes are too much"),
    ("broadcast of no team", "gex_Coll_BroadcastNB: GASNET_ERR_BAD_ARG: team GEX_TM_INVALID"),
    ("reduce after destroy", "is a team that was destroyed"),
    ("reduce with flags", "flags 0x4 must be 0"),
    ("reduce to a root outside", "root 1 is not in the team of 1 ranks"),
    ("no type", "dt 0x0 is not one data type"),
    ("no operation", "dt 0x4 has no reduction with op 0x0"),
    ("elements of all", "elements of 4 bytes are too much"),
    ("size of elements", "dt_sz 4: elements of dt 0x20 have 8 bytes"),
    ("no elements", "dt_sz 8 and dt_cnt 0 must not be 0"),
    ("bits of floats", "dt 0x20 has no reduction with op 0x4"),
    ("operation of atomics", "dt 0x4 has no reduction with op 0x800"),
    ("two types", "dt 0xc is not one data type"),
    ("sum of user type", "dt 0x40 has no reduction with op 0x8"),
    ("user without function", "user_op is null"),
    ("too many elements", "are too much"),
    ("reduce to null", "gex_Coll_ReduceToAllNB: GASNET_ERR_BAD_ARG: dst is null"),
    ("reduce from null", "gex_Coll_ReduceToOneNB: GASNET_ERR_BAD_ARG: src is null"),
    ("calls in a function", "gex_Coll_BroadcastNB: GASNET_ERR_BAD_ARG"),
    ("sizes differ", "collectives differ: rank "),
    ("roots differ", "collectives differ: rank "),
    ("each waits", "another root, type, size of elements or operation"),
    ("kinds differ", "where this rank begins a"),
    ("operations differ", "another root, type, size of elements or operation"),
    ("image outside", "srcimage 2 is not in the team, which has 2 images"),
    ("image outside half", "dstimage 1 is not in the team, which has 1 images"),
    ("scatter from null", "gasnet_coll_scatter: GASNET_ERR_BAD_ARG: src is null"),
    ("gather to null", "gasnet_coll_gather: GASNET_ERR_BAD_ARG: dst is null"),
    ("gather all to null", "gasnet_coll_gather_all: GASNET_ERR_BAD_ARG: dst is null"),
    ("exchange from null", "gasnet_coll_exchange: GASNET_ERR_BAD_ARG: src is null"),
    ("exchange in place", "overlap, each of 16 bytes"),
    ("blocks too large", "2 blocks of 9223372036854775807 bytes are too much"),
    ("no sync flags", "flags 0x1: one of GASNET_COLL_IN_{NOSYNC,MYSYNC,ALLSYNC}"),
    ("two sync flags", "flags 0xd: one of GASNET_COLL_IN_{NOSYNC,MYSYNC,ALLSYNC}"),
    ("single and local", "GASNET_COLL_SINGLE and GASNET_COLL_LOCAL exclude each other"),
    ("unknown flags", "flags 0x100009: 0x100000 are not flags of collectives"),
    ("gather after destroy", "gasnet_coll_gather_all: GASNET_ERR_BAD_ARG"),
    ("notify twice", "a notify of this team was not waited for"),
    ("blocks differ", "collectives differ: rank "),
    ("images differ", "collectives differ: rank "),
];

#[test]
fn wrong_uses_of_teams_and_collectives_are_named() {
    if !build::ready() {
        return;
    }
    let outcome = run(&built("wrong_teams", "parsync", KINDS[0]), 2, &["answers"]);
    outcome.expect(0);
    assert!(outcome.out().contains("PASS wrong_teams"), "{}", outcome.err());
    for (turn, (name, words)) in WRONG.into_iter().enumerate() {
        let program = built("wrong_teams", MODES[turn % 3], KINDS[turn % 2]);
        let outcome = run(&program, 2, &[name]);
        outcome.expect(128 + 6);
        let err = outcome.err();
        assert!(err.contains(words) && !err.contains("TEST FAILED"), "{name}: {err}");
    }
}
