//! What must be the same on all ranks.

use bootstrap::Rank;
use serde::{Deserialize, Serialize};

use super::ConnectWays;
use super::sizes::Sizes;

/// What must be the same on all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Agreement {
    pub rails: u16,
    /// [`super::sizes::Sizes::queue_pairs`].
    pub queue_pairs: u16,
    /// [`super::sizes::Sizes::credits_per_connection`].
    pub credits: u32,
    pub srq: bool,
    /// How ranks are connected; not of the sizes.
    pub ways: ConnectWays,
}

impl Agreement {
    pub(crate) fn of(sizes: &Sizes, rails: usize, ways: ConnectWays) -> Self {
        Self {
            rails: u16::try_from(rails).unwrap_or(u16::MAX),
            queue_pairs: u16::try_from(sizes.queue_pairs()).unwrap_or(u16::MAX),
            credits: sizes.credits_per_connection,
            srq: sizes.srq.is_some(),
            ways,
        }
    }

    /// In what another rank differs from this one, `me`, and what to set. `None`: they fit.
    pub(crate) fn differs(self, me: Rank, other: Self) -> Option<String> {
        let rows: [(_, u32, u32, _); 4] = [
            (
                "ports",
                other.rails.into(),
                self.rails.into(),
                "use the same number of ports on all hosts (GASNET_IBV_PORTS, GASNET_NUM_QPS; GASNET_IBV_LIST_PORTS=1 lists them)",
            ),
            (
                "shared receive queues",
                other.srq.into(),
                self.srq.into(),
                "set GASNET_USE_SRQ, GASNET_RBUF_COUNT and GASNET_RBUF_SPARES to the same on all ranks, or GASNET_USE_SRQ=0",
            ),
            (
                "queue pairs for each peer",
                other.queue_pairs.into(),
                self.queue_pairs.into(),
                "set GASNET_NUM_QPS to the same on all ranks",
            ),
            (
                "credits for each queue pair",
                other.credits,
                self.credits,
                "set GASNET_AM_CREDITS_PP to the same on all ranks",
            ),
        ];
        let differs = rows.into_iter().find(|(_, theirs, mine, _)| theirs != mine);
        let text = |(what, theirs, mine, remedy)| {
            format!("has {theirs} {what}, rank {me} {mine}: {remedy}")
        };
        differs.map(text).or_else(|| self.ways.differs(me, other.ways))
    }
}
