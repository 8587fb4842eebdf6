//! Queue sizing: examples by hand, and what must hold for any settings.

use proptest::prelude::*;

use bootstrap::Rank;

use super::*;
use crate::transport::net::records;
use crate::transport::net::settings::{Agreement, ConnectWays, NetSettings};

/// What rdma_rxe says of itself.
const RXE: DeviceLimits = DeviceLimits { max_cqe: 32_767, max_qp_wr: 1 << 20, max_srq_wr: 1 << 20 };
const BUFFER: u32 = 1 << 16;
const FIRST: u64 = FIRST_REPLIES as u64;

fn job(ranks: u32) -> Job {
    Job { ranks, rails: 1, queue_pairs: 1, reserve: 0, spares: 1 }
}

fn depths() -> DepthSettings {
    NetSettings::default().depths
}

fn sizes(ranks: u32) -> Sizes {
    Sizes::of(&depths(), &job(ranks), RXE).unwrap().0
}

#[test]
fn a_small_job_has_the_documented_sizes() {
    let sizes = sizes(4);
    assert_eq!((sizes.ops_per_connection, sizes.ops), (24, 96));
    assert_eq!((sizes.credits_per_connection, sizes.credits, sizes.slack), (12, 36, 5));
    assert!(!sizes.binds_all(4));
    assert_eq!((sizes.sends(), sizes.receives(), sizes.srq), (26, 25, None));
    assert_eq!((sizes.bounce, sizes.spares), (96, 1));
    assert_eq!((sizes.send_cq, sizes.receive_cq), (96, 75 + 1));
    let (_, warnings) = Sizes::of(&depths(), &job(4), RXE).unwrap();
    assert!(warnings.is_empty());
}

#[test]
fn queues_are_shared_from_where_it_saves_memory() {
    // 1023 buffers for requests and replies: 511 requests in flight, 12 for each peer.
    let first = (2..200).find(|ranks| sizes(*ranks).srq.is_some()).unwrap();
    assert_eq!(first, 44);
    let large = sizes(1000);
    assert_eq!(large.srq, Some(SrqSizes { requests: 511, replies: 511 }));
    assert_eq!((large.queue_pairs(), large.receives(), large.slack), (2, 0, 0));
    assert_eq!((large.credits, large.bounce), (255, 64 + 255 + 1));
    assert!(large.binds_all(1000));
    assert_eq!(large.waiting, 1);
    assert!(first <= 44 && sizes(43).srq.is_none() && sizes(44).queue_pairs() == 2);
}

#[test]
fn small_jobs_have_more_credits() {
    let of = |ranks| Sizes::of(&depths().for_ranks(ranks), &job(ranks), RXE).unwrap().0;
    let credits = [2, 9, 10, 16, 18, 22, 44, 1000].map(|ranks| of(ranks).credits_per_connection);
    assert_eq!(credits, [32, 32, 28, 17, 15, 12, 12, 12]);
    for ranks in 2..60 {
        assert_eq!(of(ranks).srq.is_some(), sizes(ranks).srq.is_some(), "{ranks}");
    }
    let set = DepthSettings { usual_credits: false, ..depths() };
    assert_eq!(set.for_ranks(2), set);
    // A slack that would do for fewer ranks.
    let slack = |ranks| {
        let depths = DepthSettings { slack: Some(20), ..depths() };
        let (sizes, warnings) = Sizes::of(&depths.for_ranks(ranks), &job(ranks), RXE).unwrap();
        (sizes.slack, warnings.len())
    };
    assert_eq!((slack(2), slack(9), slack(22)), ((20, 0), (20, 0), (11, 1)));
}

#[test]
fn memory_stops_growing_with_shared_queues() {
    let bytes = |ranks: u32| sizes(ranks).memory(&job(ranks), 0, BUFFER);
    let (small, large) = (bytes(1000), bytes(2000));
    assert!(large - small <= 16 * 1000, "{small} {large}");
    // Receives, and what may be sent at once.
    let connected = |peers| sizes(40).buffer_bytes(&job(40), peers, BUFFER);
    assert_eq!(connected(3) - connected(2), (12 + 1 + FIRST + 24 + 12) * u64::from(BUFFER));
}

/// Buffers for replies are not there before there are requests.
#[test]
fn an_idle_rank_has_half_of_the_receive_buffers_that_it_may_have() {
    let job = |ranks| Job { reserve: INTERNAL_RECEIVES, ..job(ranks) };
    let sizes = |ranks| Sizes::of(&depths(), &job(ranks), RXE).unwrap().0;
    let many = sizes(65);
    let queues = many.srq.unwrap();
    let all = u64::from(queues.requests + queues.replies + many.reserve);
    assert_eq!(all, 2 * 511 + 4);
    assert!(2 * many.receive_buffers(&job(65), 64) <= all);
    let few = sizes(9);
    let all = 8 * u64::from(few.receives()) + 1;
    assert_eq!((all, few.receive_buffers(&job(9), 8)), (8 * 29 + 1, 8 * (12 + 4 + FIRST + 1) + 1));
}

#[test]
fn shared_queues_are_as_deep_in_every_job() {
    let shared = |ranks| {
        let depths = DepthSettings { srq: SharedReceive::From(2), ..depths() };
        Sizes::of(&depths, &job(ranks), RXE).unwrap().0
    };
    let (few, many) = (shared(12), shared(20_000));
    assert_eq!((few.srq, few.send_cq), (many.srq, many.send_cq));
    assert_eq!((few.receive_cq, few.ops), (many.receive_cq, many.ops));
    let bytes = |sizes: &Sizes, connected| sizes.buffer_bytes(&job(12), connected, BUFFER);
    assert_eq!(bytes(&few, 0), bytes(&many, 0));
    assert_eq!(bytes(&few, 2) - bytes(&few, 1), (12 + 24 + 12) * u64::from(BUFFER));
    assert_eq!(bytes(&many, 5000), bytes(&many, 6000));
}

#[test]
fn the_setting_of_shared_queues_is_honoured() {
    let shared = |srq, ranks, limits| {
        Sizes::of(&DepthSettings { srq, ..depths() }, &job(ranks), limits)
            .map(|(sizes, _)| sizes.srq.is_some())
    };
    assert!(shared(SharedReceive::From(4), 4, RXE).unwrap());
    assert!(!shared(SharedReceive::From(5), 4, RXE).unwrap());
    assert!(!shared(SharedReceive::Never, 1000, RXE).unwrap());
    let none = DeviceLimits { max_srq_wr: 0, ..RXE };
    assert!(!shared(SharedReceive::Automatic, 1000, none).unwrap());
    let asked = DepthSettings { srq: SharedReceive::From(2), ..depths() };
    let (sizes, warnings) = Sizes::of(&asked, &job(4), none).unwrap();
    assert!(sizes.srq.is_none() && warnings[0].contains("GASNET_USE_SRQ=2"));
    // More peers than the completion queue holds: shared even where it was not decided by memory,
    // refused where it may not.
    assert!(shared(SharedReceive::Automatic, 5000, RXE).unwrap());
    let error = shared(SharedReceive::Never, 5000, RXE).unwrap_err().to_string();
    assert!(
        error.contains("GASNET_AM_CREDITS_PP") && error.contains("GASNET_USE_SRQ=-1"),
        "{error}"
    );
    let error = shared(SharedReceive::Automatic, 5000, none).unwrap_err().to_string();
    assert!(error.contains("at most 3"), "{error}");
}

#[test]
fn what_does_not_fit_is_refused_with_the_variable() {
    let refused = |depths: DepthSettings, limits| {
        Sizes::of(&depths, &job(4), limits).unwrap_err().to_string()
    };
    let few = DeviceLimits { max_qp_wr: 16, max_srq_wr: 0, ..RXE };
    let text = refused(DepthSettings { credits_per_peer: 8, ..depths() }, few);
    assert!(text.contains("GASNET_NETWORKDEPTH_PP") && text.contains("at most 16"), "{text}");
    let text = refused(depths(), few);
    assert!(text.contains("GASNET_AM_CREDITS_PP") && text.contains("at most 8"), "{text}");
    let small = DeviceLimits { max_cqe: 90, ..RXE };
    let text = refused(DepthSettings { ops: Total::Is(1000), ..depths() }, small);
    assert!(text.contains("GASNET_NETWORKDEPTH_TOTAL") && text.contains("at most 90"), "{text}");
    let starved = DepthSettings {
        srq: SharedReceive::From(2),
        receive_buffers: 9,
        credits: Total::Is(30),
        ..depths()
    };
    let text = refused(starved, RXE);
    assert!(text.contains("GASNET_AM_CREDITS_TOTAL") && text.contains("leaves 4"), "{text}");
}

#[test]
fn the_least_of_everything_still_moves() {
    let least = DepthSettings {
        flow: FlowControl::Static,
        ops_per_peer: 1,
        ops: Total::Is(1),
        credits_per_peer: 1,
        credits: Total::Is(1),
        slack: Some(1),
        usual_credits: false,
        receive_buffers: 1,
        bounce_buffers: 1,
        spares: Some(0),
        srq: SharedReceive::Never,
    };
    let (sizes, _) = Sizes::of(&least, &job(3), RXE).unwrap();
    assert_eq!((sizes.ops, sizes.credits, sizes.slack, sizes.receives()), (1, 1, 0, 3));
    assert_eq!((sizes.bounce, sizes.spares), (1, 1));
    let (sizes, warnings) =
        Sizes::of(&DepthSettings { srq: SharedReceive::From(2), ..least }, &job(3), RXE).unwrap();
    assert_eq!(sizes.srq, Some(SrqSizes { requests: 1, replies: 1 }));
    assert!(warnings[0].contains("GASNET_RBUF_COUNT=1"), "{warnings:?}");
}

#[test]
fn ranks_that_differ_are_told_what_to_set() {
    let ways = ConnectWays { at_start: true, ..ConnectWays::default() };
    let (srq, fenced, buffer) = (false, false, 8);
    let mine = Agreement {
        moving: 0,
        volume: 0,
        rails: 2,
        queue_pairs: 2,
        credits: 6,
        srq,
        fenced,
        buffer,
        ways,
    };
    assert_eq!(mine.differs(Rank(1), mine), None);
    for (other, name) in [
        (Agreement { rails: 1, queue_pairs: 1, ..mine }, "GASNET_IBV_PORTS"),
        (Agreement { queue_pairs: 4, ..mine }, "GASNET_NUM_QPS"),
        (Agreement { credits: 7, ..mine }, "GASNET_AM_CREDITS_PP"),
        (Agreement { buffer: 4, ..mine }, "--max-medium"),
        (Agreement { srq: true, queue_pairs: 4, ..mine }, "GASNET_USE_SRQ"),
        (Agreement { moving: 1, ..mine }, "GASNET_AM_FLOW_CONTROL"),
        (Agreement { volume: 1 << 18, ..mine }, "GASNET_NETWORKDEPTH_SPACE"),
        (Agreement { fenced: true, ..mine }, "GASNET_USE_FENCED_PUTS"),
        (Agreement { ways: ConnectWays::default(), ..mine }, "GASNET_CONNECT_STATIC"),
        (
            Agreement { ways: ConnectWays { dynamic: true, ..ways }, ..mine },
            "GASNET_CONNECT_DYNAMIC",
        ),
        (Agreement { ways: ConnectWays { listed: true, ..ways }, ..mine }, "GASNET_CONNECTFILE_IN"),
        (
            Agreement { ways: ConnectWays { one_list: true, ..ways }, ..mine },
            "GASNET_CONNECTFILE_OUT",
        ),
    ] {
        assert!(mine.differs(Rank(1), other).unwrap().contains(name));
    }
}

fn any_depths() -> impl Strategy<Value = DepthSettings> {
    let total = prop_oneof![
        Just(Total::Default),
        Just(Total::Most),
        (1u32..2000).prop_map(Total::Is),
        any::<u32>().prop_map(|n| Total::Is(n.max(1)))
    ];
    let srq = prop_oneof![
        Just(SharedReceive::Automatic),
        Just(SharedReceive::Never),
        (1u32..500).prop_map(SharedReceive::From)
    ];
    let per_peer = || prop_oneof![1u32..100, any::<u32>().prop_map(|n| n.max(1))];
    let count = || prop_oneof![0u32..3000, any::<u32>()];
    (
        per_peer(),
        total.clone(),
        per_peer(),
        total,
        proptest::option::of(0u32..300),
        (count(), count()),
        proptest::option::of(0u32..100),
        srq,
    )
        .prop_map(
            |(ops_per_peer, ops, credits_per_peer, credits, slack, (rbuf, bbuf), spares, srq)| {
                DepthSettings {
                    flow: FlowControl::Static,
                    ops_per_peer,
                    ops,
                    credits_per_peer,
                    credits,
                    slack: slack.map(|slack| slack.min(credits_per_peer - 1)),
                    usual_credits: false,
                    receive_buffers: rbuf,
                    bounce_buffers: bbuf,
                    spares,
                    srq,
                }
            },
        )
}

fn any_job() -> impl Strategy<Value = Job> {
    (2u32..20_000, 1u32..9, 0u32..17, 0u32..5, 1u32..65).prop_map(
        |(ranks, rails, extra, reserve, spares)| Job {
            ranks,
            rails,
            queue_pairs: rails + extra,
            reserve,
            spares,
        },
    )
}

fn any_limits() -> impl Strategy<Value = DeviceLimits> {
    (
        prop_oneof![8u32..500, 8u32..1 << 22],
        prop_oneof![4u32..64, 4u32..1 << 16],
        prop_oneof![Just(0u32), 4u32..64, 4u32..1 << 16],
    )
        .prop_map(|(max_cqe, max_qp_wr, max_srq_wr)| DeviceLimits {
            max_cqe,
            max_qp_wr,
            max_srq_wr,
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn what_is_granted_holds(depths in any_depths(), job in any_job(), limits in any_limits()) {
        let Ok((sizes, _)) = Sizes::of(&depths, &job, limits) else { return Ok(()) };
        let wide = u64::from;
        let per_rail = wide(job.queue_pairs.div_ceil(job.rails));
        let peers = wide(job.ranks - 1);
        // No queue is deeper than the devices allow.
        prop_assert!(sizes.send_cq <= limits.max_cqe && sizes.receive_cq <= limits.max_cqe);
        prop_assert!(sizes.ops_per_connection + job.reserve <= limits.max_qp_wr && sizes.receives() <= limits.max_qp_wr);
        // Completions of sends never overflow: each operation in flight on a rail has an entry.
        let requests = sizes.srq.map_or(0, |queues| wide(queues.replies));
        prop_assert!(per_rail * wide(sizes.ops / sizes.connections + job.reserve) + requests <= wide(sizes.send_cq));
        // Receives: each posted buffer of a rail has an entry, and credits never outrun posted
        // buffers.
        match sizes.srq {
            None => {
                prop_assert!(per_rail * wide(sizes.receives()) * peers <= wide(sizes.receive_cq));
                prop_assert!(wide(sizes.receives()) >= 2 * wide(sizes.credits_per_connection) + wide(job.reserve));
                prop_assert!(wide(sizes.credits_per_connection) * wide(job.queue_pairs) >= wide(depths.credits_per_peer));
            }
            Some(queues) => {
                prop_assert!(queues.replies + job.reserve <= limits.max_srq_wr && queues.requests >= 1 && queues.replies >= 1);
                prop_assert!(wide(queues.requests) + wide(queues.replies) + wide(job.reserve) <= wide(sizes.receive_cq));
                // Every request in flight has a buffer for its reply.
                prop_assert!(wide(sizes.credits) <= wide(queues.replies) * wide(job.rails));
                prop_assert_eq!(sizes.slack, 0);
                prop_assert!(wide(sizes.bounce) > wide(sizes.credits));
            }
        }
        prop_assert!(sizes.slack < sizes.credits_per_connection && depths.slack.is_none_or(|slack| sizes.slack <= slack));
        prop_assert!(sizes.credits >= 1 && sizes.credits <= sizes.ops && sizes.bounce >= 1 && sizes.spares >= 1);
        prop_assert!(sizes.ops_per_connection >= 1 && sizes.ops >= sizes.connections);
        if let Total::Is(total) = depths.credits {
            prop_assert!(sizes.credits <= total);
        }
        let ways = ConnectWays { at_start: job.ranks % 2 == 0, dynamic: job.rails % 2 == 0, one_list: job.spares % 2 == 0, listed: job.reserve % 2 == 0 };
        let record = Agreement::of(&sizes, job.rails as usize, job.ranks % 3 == 0, ways);
        prop_assert_eq!(records::read(&records::write(&record, 22).unwrap()), Some(record));
        prop_assert_eq!(limits.least(DeviceLimits::NONE), limits);
    }

    #[test]
    fn sharing_is_chosen_only_where_it_saves(depths in any_depths(), job in any_job()) {
        let depths = DepthSettings { srq: SharedReceive::Automatic, ..depths };
        let limits = DeviceLimits { max_cqe: u32::MAX, max_qp_wr: u32::MAX, max_srq_wr: u32::MAX };
        let (Ok((auto, _)), Ok((never, _))) = (
            Sizes::of(&depths, &job, limits),
            Sizes::of(&DepthSettings { srq: SharedReceive::Never, ..depths }, &job, limits),
        ) else { return Ok(()) };
        let buffers = |sizes: &Sizes| match sizes.srq {
            Some(queues) => u64::from(job.rails) * (u64::from(queues.requests) + u64::from(queues.replies)),
            None => u64::from(job.ranks - 1) * u64::from(sizes.queue_pairs()) * u64::from(sizes.receives()),
        };
        // Rails with one queue pair fewer than the fullest are given as much as it.
        let rounding = u64::from(job.queue_pairs.div_ceil(job.rails) * job.rails);
        prop_assert!(buffers(&auto) <= buffers(&never) * rounding.div_ceil(job.queue_pairs.into()) + u64::from(job.rails * job.reserve));
    }

    #[test]
    fn an_error_names_a_variable_that_helps(depths in any_depths(), job in any_job(), limits in any_limits()) {
        if let Err(error) = Sizes::of(&depths, &job, limits) {
            let text = error.to_string();
            prop_assert!(text.contains("environment variable GASNET_") && text.contains("; "), "{}", text);
        }
    }
}

/// Credits that move: the buffers of a rank are the least of each peer and the bank.
#[test]
fn a_rank_has_the_least_of_each_peer_and_a_bank() {
    let flow = FlowControl::Dynamic { least: 1, most: 400, banked: 48, epoch: 1024 };
    let depths = DepthSettings { flow, ..depths() };
    let moving = Sizes::of(&depths, &job(65), RXE).unwrap().0;
    let (limits, banked) = moving.flow.expect("moves");
    assert_eq!((limits.least, limits.most, banked, moving.slack), (1, 49, 48, 0));
    let buffers = |sizes: Sizes| sizes.receive_buffers(&job(65), 64);
    assert_eq!(buffers(moving), 64 + 48 + 2);
    let srq = SharedReceive::Never;
    let fixed = Sizes::of(&DepthSettings { srq, ..NetSettings::default().depths }, &job(65), RXE);
    assert!(buffers(fixed.unwrap().0) > 6 * buffers(moving));
    let refused = |depths: &DepthSettings, limits| {
        Sizes::of(depths, &job(3), limits).unwrap_err().to_string()
    };
    let text = refused(&DepthSettings { srq, ..depths }, RXE);
    assert!(text.contains("GASNET_AM_FLOW_CONTROL") && text.contains("GASNET_USE_SRQ=0"), "{text}");
    let flow = FlowControl::Dynamic { least: 4000, most: 4000, banked: 0, epoch: 1 };
    let text = refused(&DepthSettings { flow, ..depths }, RXE);
    assert!(text.contains("GASNET_AM_CREDITS_MIN"), "{text}");
}

/// Credits that move find room in the send queue: what a peer may come to hold.
#[test]
fn a_send_queue_has_room_for_credits_that_move() {
    let of = |flow| Sizes::of(&DepthSettings { flow, ..depths() }, &job(3), RXE).unwrap().0;
    let dynamic = |banked| FlowControl::Dynamic { least: 1, most: 400, banked, epoch: 1 };
    assert_eq!(of(FlowControl::Static).request_sends(), 12);
    assert_eq!(of(dynamic(4)).request_sends(), 12);
    assert_eq!(of(dynamic(16)).request_sends(), 17);
    // GASNET_NETWORKDEPTH_PP.
    assert_eq!(of(dynamic(300)).request_sends(), 24);
}

/// Bytes instead of counts: a peer takes its ring, whatever the number of requests.
#[test]
fn a_peer_takes_its_ring() {
    let flow = FlowControl::Volume { space: 1 << 18 };
    let depths = DepthSettings { flow, credits_per_peer: 64, ..depths() };
    let ringed = Sizes::of(&depths, &job(9), RXE).unwrap().0;
    let ring = ringed.volume.expect("a ring");
    assert_eq!((ring.unit, ring.units, ring.longest), (64, 4096, 1025));
    assert_eq!((ringed.slack, ringed.credits_per_connection), (0, 64));
    assert_eq!(ringed.receive_buffers(&job(9), 8), 2);
    let bytes = |sizes: Sizes| sizes.buffer_bytes(&job(9), 8, BUFFER);
    let fixed = Sizes::of(&NetSettings::default().depths, &job(9), RXE).unwrap().0;
    let receives = |sizes: Sizes| bytes(Sizes { bounce: 0, ..sizes });
    assert!(receives(fixed) > 3 * receives(ringed), "{} {}", receives(fixed), receives(ringed));
    let refused = |depths: &DepthSettings, job, limits| {
        Sizes::of(depths, &job, limits).unwrap_err().to_string()
    };
    let never = DepthSettings { srq: SharedReceive::Never, ..depths };
    let text = refused(&never, job(3), RXE);
    assert!(text.contains("GASNET_AM_FLOW_CONTROL") && text.contains("into rings"), "{text}");
    let none = DeviceLimits { max_srq_wr: 0, ..RXE };
    assert!(refused(&depths, job(3), none).contains("a device of this job has none"));
    let text = refused(&depths, Job { queue_pairs: 9, ..job(3) }, RXE);
    assert!(text.contains("GASNET_NUM_QPS") && text.contains("8 queue pairs"), "{text}");
    // The space is that of a peer.
    let two = Sizes::of(&depths, &Job { queue_pairs: 2, ..job(3) }, RXE).unwrap().0;
    assert!(two.volume.is_some_and(|ring| ring.bytes() < (1 << 17) + 2 * 1025 * 64));
}
