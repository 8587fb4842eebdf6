//! Where the network layer changes from one protocol to another, and how much of everything it
//! keeps.

use super::*;

/// A number that may be -1, which has a meaning of its own.
const OR_AUTOMATIC: Kind = Int { min: -1, max: i64::MAX };

/// How credits are shared out.
const FLOW: Kind = Enum(&["static", "dynamic", "volume"]);

/// Bytes; no letter means KB.
const KILOBYTES: Kind = Size { unit: 1 << 10, min: 0, max: i64::MAX };

group! { LIMITS "Protocol limits and resources" {
    GASNET_INLINESEND_LIMIT: OR_AUTOMATIC, Value("72"), unit("bytes") =>
        "Greatest inline send; 0 means none, -1 takes what the adapter can do.";
    GASNET_PACKEDLONG_LIMIT: BYTES, Value("4012") =>
        "Greatest payload of a Long that travels inside the message.";
    GASNET_NONBULKPUT_BOUNCE_LIMIT: BYTES, Value("64K") =>
        "Greatest put, or payload of a Long that does not travel inside the message, that is \
         copied so that its source is free at once; 0 copies none.";
    GASNET_AM_GATHER_MIN: Size { unit: 1, min: -1, max: i64::MAX }, Value("1500") =>
        "Payload from which on header and payload are sent from two places; -1 means never.";
    GASNET_PUT_STRIPE_SZ: KILOBYTES, Value("0") =>
        "Longest piece of a put where a rank uses several ports, which take pieces in turn; at \
         least 4 KB, 0 means the longest message of the port.";
    GASNET_GET_STRIPE_SZ: KILOBYTES, Value("0") => "As GASNET_PUT_STRIPE_SZ, for gets.";
    GASNET_USE_FENCED_PUTS: Bool, NO =>
        "Complete puts when an atomic of the adapter behind them is, so that their data is seen \
         through every adapter of the target; refused where adapters have no atomics.";
    GASNET_USE_SRQ: OR_AUTOMATIC, Value("-1") =>
        "Ranks from which on receive queues are shared; 0 never, -1 if it saves memory.";
    GASNET_USE_XRC: Bool, YES =>
        "Share connections between the ranks of a neighbourhood (XRC) where receive queues are \
         shared and every adapter can.";
    GASNET_RBUF_SPARES: POSITIVE, Computed("threads of the rank"), aliases(&["GASNET_AM_SPARES"]) =>
        "Receive buffers that handlers may hold.";
    GASNET_NETWORKDEPTH_PP: POSITIVE, Value("24"), aliases(&["GASNET_OP_OUST_PP"]) =>
        "Operations in flight to each peer.";
    GASNET_NETWORKDEPTH_TOTAL: COUNT, Value("255"), aliases(&["GASNET_OP_OUST_LIMIT"]) =>
        "Operations in flight in all; 0 means as many as are possible.";
    GASNET_AM_CREDITS_PP: POSITIVE,
        Computed("12; without GASNET_RBUF_COUNT 32 in jobs of up to 9 ranks, and 256 for all peers in those of up to 21; 64 with GASNET_AM_FLOW_CONTROL=volume"),
        aliases(&["GASNET_AM_OUST_PP", "GASNET_NETWORKDEPTH"]) =>
        "Requests without a reply to each peer.";
    GASNET_AM_CREDITS_TOTAL: COUNT,
        Computed("the least of 256 and (ranks - 1) * GASNET_AM_CREDITS_PP"),
        aliases(&["GASNET_AM_OUST_LIMIT"]) =>
        "Requests without a reply in all; 0 means as many as are possible.";
    GASNET_AM_CREDITS_SLACK: COUNT, Computed("half of GASNET_AM_CREDITS_PP less one") =>
        "Credits that a receiver may hold back; less than GASNET_AM_CREDITS_PP, at most 255.";
    GASNET_AM_FLOW_CONTROL: FLOW, Value("static") =>
        "How requests are kept from overrunning a rank: each peer has the same number of credits \
         (static), credits move to the peers that use them (dynamic), or each peer has a number of \
         bytes, which it writes requests into (volume). The last two need shared receive queues; \
         with volume connections are not shared (GASNET_USE_XRC).";
    GASNET_NETWORKDEPTH_SPACE: BYTES, Value("256K") =>
        "Bytes of requests to each peer with GASNET_AM_FLOW_CONTROL=volume: memory that each rank \
         has for each connected peer. From 2 to 64 of the longest requests (64 KB and 8 bytes, \
         less by scripts/install --max-medium); with fewer than 4 more acks are sent.";
    GASNET_AM_CREDITS_MIN: POSITIVE, Value("1"), aliases(&["GASNET_PORTAL_CRED_PER_NODE"]) =>
        "Credits that each peer keeps where they move.";
    GASNET_AM_CREDITS_MAX: POSITIVE, Value("400"), aliases(&["GASNET_PORTAL_MAX_CRED_PER_NODE"]) =>
        "Most credits that one peer holds where they move.";
    GASNET_AM_CREDITS_BANK: COUNT, Value("48"), aliases(&["GASNET_PORTAL_BANKED_CREDITS"]) =>
        "Credits of a port that go to the peers that want them, beyond the least of each.";
    GASNET_AM_CREDITS_EPOCH: POSITIVE, Value("1024"), aliases(&["GASNET_PORTAL_EPOCH_DURATION"]) =>
        "Requests received after which a rank forgets part of who wanted credits.";
    GASNET_RBUF_COUNT: COUNT, Value("1024") =>
        "Shared receive buffers; 0 means as many as the adapter allows.";
    GASNET_BBUF_COUNT: COUNT, Value("1024"), aliases(&["GASNET_BBUF_LIMIT"]) =>
        "Bounce buffers for sends; 0 means GASNET_NETWORKDEPTH_TOTAL.";
    GASNET_PUTINMOVE_LIMIT: Size { unit: 1, min: 0, max: 3072 }, Value("3072") =>
        "Bytes of a put that travel with the request to register the rest at the other rank, in the \
         segment modes LARGE and EVERYTHING; at most 3072.";
} without effect {
    Refused GASNET_RATOMICBUF_COUNT("0") => "Buffers for results of atomics.",
        "results of atomics come into the buffers for sends, which GASNET_BBUF_COUNT bounds";
}}
