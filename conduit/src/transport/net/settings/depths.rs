//! Depths of queues and numbers of buffers that the user set, and what stands for those that are not
//! set.

/// `GASNET_USE_SRQ`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SharedReceive {
    /// If it saves memory.
    Automatic,
    Never,
    From(u32),
}

/// A total that may be left to the formula.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Total {
    /// Not set: the documented default.
    Default,
    /// 0: as much as the queues allow.
    Most,
    Is(u32),
}

/// Depths of queues and numbers of buffers: what the user set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DepthSettings {
    /// `GASNET_NETWORKDEPTH_PP`.
    pub ops_per_peer: u32,
    /// `GASNET_NETWORKDEPTH_TOTAL`.
    pub ops: Total,
    /// `GASNET_AM_CREDITS_PP`.
    pub credits_per_peer: u32,
    /// `GASNET_AM_CREDITS_TOTAL`.
    pub credits: Total,
    /// `GASNET_AM_CREDITS_SLACK`; `None`: half of the credits of a connection less one.
    pub slack: Option<u32>,
    /// Neither the credits are set, nor what they depend on.
    pub usual_credits: bool,
    /// `GASNET_RBUF_COUNT`; 0 means what the device allows.
    pub receive_buffers: u32,
    /// `GASNET_BBUF_COUNT`; 0 means the limit of operations.
    pub bounce_buffers: u32,
    /// `GASNET_RBUF_SPARES`; `None` means one for each thread.
    pub spares: Option<u32>,
    /// `GASNET_USE_SRQ`.
    pub srq: SharedReceive,
    /// `GASNET_AM_FLOW_CONTROL`.
    pub flow: FlowControl,
}

impl DepthSettings {
    /// Those of a job of so many ranks: where they are few, more credits for each peer. A flood has an
    /// ack for each half of them, and over the software adapter requests that are under way together
    /// share system calls. Not so many that receive queues would have to be shared, and the same on
    /// hosts that differ.
    pub(crate) fn for_ranks(mut self, ranks: u32) -> Self {
        if self.usual_credits {
            let each = CREDITS_OF_RANK / (ranks.max(2) - 1);
            self.credits_per_peer = each.clamp(USUAL_CREDITS, MOST_CREDITS);
        }
        self
    }
}

/// Default of `GASNET_AM_CREDITS_PP`, and in jobs of few ranks.
pub(super) const USUAL_CREDITS: u32 = 12;
pub(super) const MOST_CREDITS: u32 = 32;
/// Of all peers of a rank in such jobs: half of what shared queues would have by default.
const CREDITS_OF_RANK: u32 = 256;

/// How requests are kept from overrunning a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FlowControl {
    /// Each peer has as many credits as any other.
    Static,
    /// Credits move to the peers that use them (`flow`).
    Dynamic {
        /// `GASNET_AM_CREDITS_MIN`.
        least: u32,
        /// `GASNET_AM_CREDITS_MAX`.
        most: u32,
        /// `GASNET_AM_CREDITS_BANK`.
        banked: u32,
        /// `GASNET_AM_CREDITS_EPOCH`.
        epoch: u32,
    },
    /// Requests are written into rings of so many bytes for each peer (`GASNET_NETWORKDEPTH_SPACE`).
    Volume { space: u64 },
}
