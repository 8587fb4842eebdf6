//! Each counter and each time of the statistics moves: which job moves it, and by how much where that
//! is certain. A counter that is in no row here fails the last test.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bootstrap::trace::{Cause, Counter};
use testkit::apart::neighbourhoods;
use testkit::report::skip;
use testkit::{binary, launcher};

const BOUND: Duration = Duration::from_secs(60);

/// How far a counter moves.
#[derive(Clone, Copy, Debug)]
enum Moves {
    /// So far on each rank.
    Each(u64),
    /// So far on all ranks together.
    Sum(u64),
    /// At least by one, on some rank.
    Some,
}
use Moves::{Each, Sum};

/// A job of `tests/e2e/src/bin/counted.rs`, or of another program, and what it moves.
struct Case {
    name: &'static str,
    ranks: u32,
    /// Ranks share no memory.
    apart: bool,
    line: &'static [&'static str],
    set: &'static [(&'static str, &'static str)],
    moves: &'static [(&'static str, Moves)],
    /// Without a userfaultfd memory outside segments is copied.
    watches: bool,
}

const SHARED: Case =
    Case { name: "", ranks: 2, apart: false, line: &[], set: &[], moves: &[], watches: false };
const APART: Case = Case { apart: true, ..SHARED };

/// No resend, however busy the machine is: then all of a handshake is certain.
const PATIENT: (&str, &str) = ("GASNET_CONNECT_RETRANS_MIN", "5000000");
const ON_DEMAND: (&str, &str) = ("GASNET_CONNECT_STATIC", "0");
/// The software adapter takes any length in the request.
const NO_INLINE: (&str, &str) = ("GASNET_INLINESEND_LIMIT", "0");
const SHARED_QUEUES: (&str, &str) = ("GASNET_USE_SRQ", "1");
const FAULTS: &str = "GASNET_IBV_SOFT_FAULTS";

const CASES: &[Case] = &[
    Case {
        name: "what programs ask for",
        line: &["counted", "all"],
        moves: &[
            ("PUT", Each(10)),
            ("GET", Each(7)),
            ("ATOMIC", Each(5)),
            ("BARRIER", Each(2)),
            ("COLLECTIVE", Each(2)),
            ("WAIT_BARRIER", Moves::Some),
            ("WAIT_COLLECTIVE", Moves::Some),
            ("WAIT_CONDITION", Moves::Some),
        ],
        ..SHARED
    },
    Case {
        name: "messages to a rank that sleeps, in shared memory",
        line: &["counted", "flood", "20000"],
        set: &[("GASNET_PSHM_NETWORK_DEPTH", "4")],
        moves: &[
            ("SEND_AM", Sum(20_000)),
            ("RCV_AM", Sum(20_000)),
            ("SHM_ROOM_STALL", Moves::Some),
        ],
        ..SHARED
    },
    Case {
        name: "messages to a rank that sleeps",
        line: &["counted", "flood", "500"],
        moves: &[
            ("SEND_AM", Sum(500)),
            ("RCV_AM", Sum(500)),
            ("GET_AMREQ_CREDIT", Moves::Some),
            ("GET_AMREQ_CREDIT_STALL", Moves::Some),
        ],
        ..APART
    },
    Case {
        name: "puts and messages with shared receive queues, and few entries for both",
        ranks: 4,
        line: &["counted", "mixed"],
        set: &[SHARED_QUEUES, ("GASNET_NETWORKDEPTH_TOTAL", "8"), ("GASNET_AM_CREDITS_PP", "2")],
        moves: &[("POST_SR_STALL_SQ2", Moves::Some)],
        ..APART
    },
    // The least of the peer and the bank, four for messages of the library, two for replies.
    Case {
        name: "buffers of a rank that lends credits",
        line: &["counted", "flood", "0"],
        set: &[SHARED_QUEUES, ("GASNET_AM_FLOW_CONTROL", "dynamic")],
        moves: &[("RECV_BUFFER", Each(1 + 48 + 4 + 2))],
        ..APART
    },
    // The same for replies, and a ring.
    Case {
        name: "buffers of a rank with a ring",
        line: &["counted", "flood", "0"],
        set: &[SHARED_QUEUES, ("GASNET_AM_FLOW_CONTROL", "volume")],
        moves: &[("RECV_BUFFER", Each(4 + 2 + 1))],
        ..APART
    },
    Case {
        name: "transfers in their requests",
        line: &["counted", "sizes"],
        moves: &[
            ("RDMA_PUT_INLINE", Sum(27)),
            ("RDMA_GET_BOUNCE", Sum(12)),
            ("POST_INLINE_SR", Moves::Some),
            ("SND_REAP", Moves::Some),
            ("RCV_REAP", Moves::Some),
            ("REGISTER", Moves::Some),
            ("CONN_STATIC", Each(1)),
            ("WAIT_EVENT", Moves::Some),
        ],
        ..APART
    },
    Case {
        name: "the same, fenced, with a thread for the ends of sends",
        line: &["counted", "sizes"],
        set: &[("GASNET_USE_FENCED_PUTS", "1"), ("GASNET_SND_THREAD", "1")],
        moves: &[("POST_SR_SPLIT", Sum(27)), ("SND_REAP_THR", Moves::Some)],
        ..APART
    },
    Case {
        name: "the same, fenced, not in their requests",
        line: &["counted", "sizes"],
        set: &[("GASNET_USE_FENCED_PUTS", "1"), NO_INLINE],
        moves: &[("POST_SR_LIST", Sum(27)), ("POST_SR_SPLIT", Sum(0))],
        ..APART
    },
    Case {
        name: "rows of vector transfers",
        line: &["counted", "rows"],
        set: &[NO_INLINE],
        moves: &[("POST_SR_LIST", Sum(4))],
        ..APART
    },
    Case {
        name: "transfers through buffers and without",
        line: &["counted", "sizes"],
        set: &[NO_INLINE],
        moves: &[
            ("RDMA_PUT_BOUNCE", Sum(20)),
            ("RDMA_PUT_ZEROCP", Sum(7)),
            ("RDMA_GET_ZEROCP", Sum(6)),
            ("POST_SR", Moves::Some),
            ("GET_BBUF", Moves::Some),
            ("FIREHOSE_HIT", Moves::Some),
            ("FIREHOSE_COPY", Moves::Some),
        ],
        watches: true,
        ..APART
    },
    Case {
        name: "memory that comes and goes",
        line: &["remap", "1", "2"],
        set: &[("GASNET_FIREHOSE_MAXVICTIM_R", "4")],
        moves: &[
            ("FIREHOSE_PIN", Moves::Some),
            ("FIREHOSE_UNPIN", Moves::Some),
            ("FIREHOSE_EVICT", Moves::Some),
            ("FIREHOSE_UNMAP", Moves::Some),
            ("FIREHOSE_MOVE", Moves::Some),
        ],
        watches: true,
        ..APART
    },
    Case {
        // So many ranks that some answer late: one, or two, may answer each time before the next put.
        name: "puts with short send queues",
        ranks: 6,
        line: &["counted", "puts", "8"],
        set: &[("GASNET_NETWORKDEPTH_PP", "1")],
        moves: &[("POST_SR_STALL_SQ", Moves::Some)],
        ..APART
    },
    Case {
        name: "puts to five ranks with a short completion queue",
        ranks: 6,
        line: &["counted", "puts", "8"],
        set: &[("GASNET_NETWORKDEPTH_TOTAL", "2")],
        moves: &[("POST_SR_STALL_CQ", Moves::Some)],
        ..APART
    },
    Case {
        name: "puts with few buffers",
        ranks: 6,
        line: &["counted", "puts", "1000"],
        set: &[NO_INLINE, ("GASNET_BBUF_COUNT", "3")],
        moves: &[("RDMA_PUT_BOUNCE", Sum(2500)), ("GET_BBUF_STALL", Moves::Some)],
        ..APART
    },
    Case {
        name: "atomic operations with few buffers",
        ranks: 6,
        line: &["counted", "atomics"],
        set: &[("GASNET_BBUF_COUNT", "3")],
        moves: &[("GET_RATOMICBUF", Sum(2500)), ("GET_RATOMICBUF_STALL", Moves::Some)],
        ..APART
    },
    Case {
        name: "handlers of several threads at once",
        line: &["counted", "handlers"],
        set: &[("GASNET_RBUF_SPARES", "1")],
        moves: &[("RCV_AM", Sum(100)), ("ALLOC_AM_SPARE", Moves::Some)],
        ..APART
    },
    Case {
        name: "connections whose packets come twice",
        ranks: 3,
        line: &["counted", "ask"],
        set: &[ON_DEMAND, PATIENT, (FAULTS, "dup-ud=100%")],
        moves: &[
            ("CONN_DYNAMIC", Each(2)),
            ("CONN_REP", Each(1)),
            ("CONN_ACK", Each(1)),
            ("CONN_NOREP", Each(1)),
            ("CONN_NOACK", Each(1)),
            ("CONN_TIME_ACTV", Each(1)),
            ("CONN_TIME_PASV", Each(1)),
            ("CONN_REQ2REP", Each(1)),
            ("CONN_RTU2ACK", Moves::Some),
        ],
        ..APART
    },
    Case {
        name: "two that ask each other at once, packets late",
        line: &["counted", "ask"],
        set: &[ON_DEMAND, PATIENT, (FAULTS, "delay-ud=200ms")],
        moves: &[
            ("CONN_DYNAMIC", Each(1)),
            ("CONN_AAA", Sum(1)),
            ("CONN_AAP", Sum(1)),
            ("CONN_TIME_ACTV", Sum(1)),
            ("CONN_TIME_A2P", Sum(1)),
            // The ACK is late; the message that the other sends at once is not.
            ("CONN_IMPLIED_ACK", Sum(1)),
        ],
        ..APART
    },
    Case {
        name: "a crowd with one buffer for connecting",
        ranks: 6,
        line: &["counted", "crowd"],
        set: &[ON_DEMAND, PATIENT, ("GASNET_CONNECT_SNDS", "1")],
        moves: &[("CONN_STALL_CQ", Moves::Some), ("CONN_STALL_DESC", Sum(1))],
        ..APART
    },
    Case {
        name: "a crowd around a rank of which half the packets are lost",
        ranks: 6,
        line: &["counted", "crowd"],
        set: &[ON_DEMAND, (FAULTS, "0: seed=1 drop-ud=50%")],
        moves: &[("CONN_REQ", Moves::Some), ("CONN_RTU", Moves::Some)],
        ..APART
    },
];

/// Moved elsewhere: by which test, in which file.
const ELSEWHERE: &[(&str, &str, &str)] = &[
    ("GET_AMREQ_BUFFER_STALL", "requests_wait_for_room_for_their_replies", "counters.rs"),
    ("WAIT_LOCK", "texts_of_c_programs_are_traced_and_each_put_is_counted", "c_suite/trace.rs"),
];

/// What each rank has counted, by name.
type Counts = Vec<BTreeMap<String, u64>>;

/// Runs a job with these variables beside its own.
fn run(case: &Case, more: &[(&str, &str)]) -> Counts {
    let directory = tempfile::tempdir().expect("a directory");
    let [program, args @ ..] = case.line else { panic!("{}: no program", case.name) };
    let tree = launcher(["-n", &case.ranks.to_string()]).arg(binary(program)).args(args);
    let tree = if case.apart { neighbourhoods(tree, 1) } else { tree };
    let file = directory.path().join("stats-%").display().to_string();
    let always = [("GASNET_STATSFILE", &*file), ("GASNET_QUIET", "1")];
    let set = always.iter().chain(case.set).chain(more);
    let tree = set.fold(tree, |tree, (name, value)| tree.env(name, value));
    let outcome = tree.deadline("counted job", BOUND).run();
    outcome.expect(0);
    let of_rank = |rank| {
        let file = directory.path().join(format!("stats-{rank}"));
        counts(&std::fs::read_to_string(file).expect("statistics"))
    };
    (0..case.ranks).map(of_rank).collect()
}

/// Lines are `RANK> (LETTER) NAME NUMBER times, …`.
fn counts(stats: &str) -> BTreeMap<String, u64> {
    let of_line = |line: &str| {
        let mut words = line.split_whitespace().skip_while(|word| !word.starts_with('(')).skip(1);
        Some((words.next()?.to_owned(), words.next()?.parse().ok()?))
    };
    stats.lines().filter_map(of_line).collect()
}

fn of(ranks: &Counts, name: &str) -> Vec<u64> {
    ranks.iter().map(|counts| counts.get(name).copied().unwrap_or(0)).collect()
}

/// What did not move as it had to.
fn wrong(case: &Case, ranks: &Counts) -> Vec<String> {
    let fits = |name: &str, moves: Moves| {
        let seen = of(ranks, name);
        let sum: u64 = seen.iter().sum();
        let right = match moves {
            Each(count) => seen.iter().all(|one| *one == count),
            Sum(count) => sum == count,
            Moves::Some => sum > 0,
        };
        (!right).then(|| format!("{}: {name} is {seen:?}, not {moves:?}", case.name))
    };
    case.moves.iter().filter_map(|(name, moves)| fits(name, *moves)).collect()
}

#[test]
fn each_counter_moves_as_far_as_it_has_to() {
    let mut all = Vec::new();
    for case in CASES {
        let ranks = run(case, &[]);
        if case.watches && of(&ranks, "FIREHOSE_PIN").iter().sum::<u64>() == 0 {
            skip(&format!("counters: {}", case.name), "no userfaultfd here");
            continue;
        }
        all.extend(wrong(case, &ranks));
    }
    assert!(all.is_empty(), "{}", all.join("\n"));
}

/// Where no more memory can be registered, requests have the few buffers for replies that there
/// were before the first one.
#[test]
fn requests_wait_for_room_for_their_replies() {
    let quiet = Case {
        name: "shared receive queues",
        line: &["counted", "flood", "0"],
        set: &[SHARED_QUEUES],
        ..APART
    };
    let before = of(&run(&quiet, &[]), "REGISTER")[0];
    let next = format!("0: register-fail={}th+", before + 1);
    let flood = Case { line: &["counted", "flood", "500"], ..quiet };
    let stalls = of(&run(&flood, &[(FAULTS, &next)]), "GET_AMREQ_BUFFER_STALL");
    assert!(stalls[0] > 0, "{stalls:?} with {next}");
}

#[test]
fn no_counter_is_without_a_test() {
    let counters = Counter::ALL.iter().map(|counter| counter.name());
    let all: BTreeSet<&str> = counters.chain(Cause::ALL.iter().map(|cause| cause.name())).collect();
    let rows = CASES.iter().flat_map(|case| case.moves).map(|(name, _)| *name);
    let here: BTreeSet<&str> = rows.chain(ELSEWHERE.iter().map(|(name, ..)| *name)).collect();
    assert_eq!(
        all.difference(&here).collect::<Vec<_>>(),
        Vec::<&&str>::new(),
        "no test moves them"
    );
    assert_eq!(here.difference(&all).collect::<Vec<_>>(), Vec::<&&str>::new(), "no such counters");
    for (name, test, file) in ELSEWHERE {
        let path = testkit::repository().join("tests/e2e/tests").join(file);
        let text = std::fs::read_to_string(&path).expect("the test's file");
        assert!(text.contains(&format!("fn {test}(")) && text.contains(name), "{name}: {file}");
    }
}
