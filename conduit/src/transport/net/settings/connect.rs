//! How ranks are connected: `GASNET_CONNECT*`; what must be the same on all ranks.

use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bootstrap::Rank;
use serde::{Deserialize, Serialize};

use super::sizes::Sizes;
use crate::transport::net::am::header::BUFFER_LEN;
use crate::transport::net::flow::volume::Geometry;

/// `GASNET_CONNECT*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConnectSettings {
    /// Connect to a peer when it is needed first.
    pub dynamic: bool,
    /// Connect at the start, to all or those in `file_in`.
    pub at_start: bool,
    /// List of peers to connect to, `%` stands for the rank.
    pub file_in: Option<PathBuf>,
    /// Where to write which peers were used, `%` stands for the rank.
    pub file_out: Option<PathBuf>,
    /// Base of the numbers in `file_out`, 2 to 36.
    pub file_base: u32,
    pub sends: u32,
    /// Receive buffers; `None`: see [`ConnectSettings::receives`].
    pub receives: Option<u32>,
    /// `GASNET_CONNECT_RETRANS_MIN`, `_MAX`.
    pub timing: Timing,
    /// About one received packet in `drop + 1` is lost for tests; 0 loses none.
    pub drop: u32,
}

/// When packets are sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Timing {
    /// First interval, and how soon after an answer a repeated packet is not answered again. Above
    /// 0, below `max`.
    pub min: Duration,
    pub max: Duration,
}

impl ConnectSettings {
    /// What all ranks must have alike, because collective calls depend on it.
    pub(crate) fn ways(&self) -> ConnectWays {
        ConnectWays {
            at_start: self.at_start,
            dynamic: self.dynamic,
            one_list: self.lists_together(),
            listed: self.file_in.is_some(),
        }
    }

    /// Whether all ranks write one list at the end, which takes a collective call.
    pub(crate) fn lists_together(&self) -> bool {
        self.file_out.as_deref().is_some_and(|name| !is_per_rank(name))
    }

    /// Receive buffers of a rank with so many remote ones: as set, else 4 + 2 * log2 of them,
    /// rounded up, and at least 6.
    pub(crate) fn receives(&self, remotes: u32) -> u32 {
        let bits = u32::BITS - remotes.saturating_sub(1).leading_zeros();
        self.receives.unwrap_or((4 + 2 * bits).max(6))
    }
}

/// Which steps of connecting a rank takes part in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ConnectWays {
    /// `GASNET_CONNECT_STATIC`.
    pub at_start: bool,
    /// `GASNET_CONNECT_DYNAMIC`.
    pub dynamic: bool,
    /// `GASNET_CONNECTFILE_OUT` without `%`.
    pub one_list: bool,
    /// `GASNET_CONNECTFILE_IN`.
    pub listed: bool,
}

impl ConnectWays {
    /// In what another rank differs from this one, `me`, and what to set. `None`: they fit.
    pub(crate) fn differs(self, me: Rank, other: Self) -> Option<String> {
        let pairs = [
            (self.at_start, other.at_start, "GASNET_CONNECT_STATIC", "connections at the start"),
            (self.dynamic, other.dynamic, "GASNET_CONNECT_DYNAMIC", "connections on demand"),
            (
                self.one_list,
                other.one_list,
                "GASNET_CONNECTFILE_OUT (where a % means one file for each rank)",
                "one list of connections to write with all others",
            ),
            (self.listed, other.listed, "GASNET_CONNECTFILE_IN", "a list of whom to connect to"),
        ];
        let (_, theirs, name, what) =
            pairs.into_iter().find(|(mine, theirs, ..)| mine != theirs)?;
        let (they, mine) = if theirs { ("has", "has not") } else { ("has not", "has") };
        Some(format!("{they} {what}, rank {me} {mine}: set {name} to the same on all ranks"))
    }
}

/// Whether every rank has a connect file of its own.
pub(crate) fn is_per_rank(pattern: &Path) -> bool {
    pattern.as_os_str().as_bytes().contains(&b'%')
}

/// What must be the same on all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Agreement {
    pub rails: u16,
    /// [`super::sizes::Sizes::queue_pairs`].
    pub queue_pairs: u16,
    /// [`super::sizes::Sizes::credits_per_connection`].
    pub credits: u32,
    pub srq: bool,
    /// Credits that each peer keeps where they move; 0: they do not.
    pub moving: u32,
    /// Bytes of a connection's ring for requests; 0: there is none.
    pub volume: u32,
    /// `GASNET_USE_FENCED_PUTS`.
    pub fenced: bool,
    /// Bytes of a message buffer, as a power of two.
    pub buffer: u8,
    /// How ranks are connected; not of the sizes.
    pub ways: ConnectWays,
}

impl Agreement {
    pub(crate) fn of(sizes: &Sizes, rails: usize, fenced: bool, ways: ConnectWays) -> Self {
        Self {
            rails: u16::try_from(rails).unwrap_or(u16::MAX),
            queue_pairs: u16::try_from(sizes.queue_pairs()).unwrap_or(u16::MAX),
            credits: sizes.credits_per_connection,
            srq: sizes.srq.is_some(),
            moving: sizes.flow.map_or(0, |(limits, _)| limits.least),
            volume: sizes.volume.map_or(0, Geometry::bytes),
            fenced,
            buffer: u8::try_from(BUFFER_LEN.ilog2()).unwrap_or(u8::MAX),
            ways,
        }
    }

    /// In what another rank differs from this one, `me`, and what to set. `None`: they fit.
    pub(crate) fn differs(self, me: Rank, other: Self) -> Option<String> {
        let rows: [(_, u32, u32, _); 8] = [
            (
                "bytes in a message buffer",
                1_u32.checked_shl(other.buffer.into()).unwrap_or(0),
                1 << self.buffer,
                "link all ranks with libraries of one --max-medium of scripts/install",
            ),
            (
                "ports",
                other.rails.into(),
                self.rails.into(),
                "use the same number of ports on all hosts (GASNET_IBV_PORTS, GASNET_IBV_MAX_HCAS, GASNET_NUM_QPS; GASNET_IBV_LIST_PORTS=1 lists them)",
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
            (
                "credits that each peer keeps where they move",
                other.moving,
                self.moving,
                "set GASNET_AM_FLOW_CONTROL and GASNET_AM_CREDITS_MIN to the same on all ranks",
            ),
            (
                "bytes in a ring for requests of each queue pair",
                other.volume,
                self.volume,
                "set GASNET_AM_FLOW_CONTROL and GASNET_NETWORKDEPTH_SPACE to the same on all ranks",
            ),
            (
                "fences behind each put",
                other.fenced.into(),
                self.fenced.into(),
                "set GASNET_USE_FENCED_PUTS to the same on all ranks",
            ),
        ];
        let differs = rows.into_iter().find(|(_, theirs, mine, _)| theirs != mine);
        let text = |(what, theirs, mine, remedy)| {
            format!("has {theirs} {what}, rank {me} {mine}: {remedy}")
        };
        differs.map(text).or_else(|| self.ways.differs(me, other.ways))
    }
}
