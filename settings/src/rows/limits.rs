//! Where the network layer changes from one protocol to another, and how much of everything it
//! keeps.

use super::{BYTES, COUNT, POSITIVE, YES, computed, fixed, flag};
use crate::variable::{Kind, Variable};

/// A number that may be -1, which has a meaning of its own.
const OR_AUTOMATIC: Kind = Kind::Int { min: -1, max: i64::MAX };

pub(crate) const LIMITS: &[Variable] = &[
    fixed(
        "GASNET_INLINESEND_LIMIT",
        OR_AUTOMATIC,
        "72",
        "Greatest inline send; -1 takes what the adapter can do.",
    )
    .unit("bytes"),
    fixed(
        "GASNET_PACKEDLONG_LIMIT",
        BYTES,
        "4012",
        "Greatest payload of a Long that travels inside the message.",
    ),
    fixed(
        "GASNET_NONBULKPUT_BOUNCE_LIMIT",
        BYTES,
        "64K",
        "Greatest put that is copied so that its source is free at once.",
    ),
    fixed(
        "GASNET_AM_GATHER_MIN",
        Kind::Size { unit: 1, min: -1, max: i64::MAX },
        "1500",
        "Payload from which on header and payload are sent from two places; -1 means never.",
    ),
    fixed(
        "GASNET_USE_SRQ",
        OR_AUTOMATIC,
        "-1",
        "Ranks from which on receive queues are shared; 0 never, -1 if it saves memory.",
    ),
    flag(
        "GASNET_USE_XRC",
        YES,
        "Share connections between the ranks of a neighbourhood (XRC) where receive queues are shared and every adapter can.",
    ),
    computed(
        "GASNET_RBUF_SPARES",
        POSITIVE,
        "threads of the rank",
        "Receive buffers that handlers may hold.",
    )
    .aliases(&["GASNET_AM_SPARES"]),
    fixed("GASNET_NETWORKDEPTH_PP", POSITIVE, "24", "Operations in flight to each peer.")
        .aliases(&["GASNET_OP_OUST_PP"]),
    fixed(
        "GASNET_NETWORKDEPTH_TOTAL",
        COUNT,
        "255",
        "Operations in flight in all; 0 means as many as are possible.",
    )
    .aliases(&["GASNET_OP_OUST_LIMIT"]),
    fixed("GASNET_AM_CREDITS_PP", POSITIVE, "12", "Requests without a reply to each peer.")
        .aliases(&["GASNET_AM_OUST_PP"]),
    computed(
        "GASNET_AM_CREDITS_TOTAL",
        COUNT,
        "the least of 256 and (ranks - 1) * GASNET_AM_CREDITS_PP",
        "Requests without a reply in all; 0 means as many as are possible.",
    )
    .aliases(&["GASNET_AM_OUST_LIMIT"]),
    fixed(
        "GASNET_AM_CREDITS_SLACK",
        COUNT,
        "1",
        "Credits that a receiver may hold back; less than GASNET_AM_CREDITS_PP, at most 255.",
    ),
    fixed(
        "GASNET_RBUF_COUNT",
        COUNT,
        "1024",
        "Shared receive buffers; 0 means as many as the adapter allows.",
    ),
    fixed(
        "GASNET_BBUF_COUNT",
        COUNT,
        "1024",
        "Bounce buffers for sends; 0 means GASNET_NETWORKDEPTH_TOTAL.",
    )
    .aliases(&["GASNET_BBUF_LIMIT"]),
];
