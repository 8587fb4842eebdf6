//! Settings that the core reads, folded out of the table of variables.

/// How large segments may be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SegmentLimit {
    /// Bytes for each rank.
    PerRank(u64),
    /// Bytes for all ranks of a host together, shared equally.
    PerHost(u64),
    /// Share of the host's physical memory for each rank.
    FractionPerRank(f64),
    /// Share of the host's physical memory for all ranks of the host together.
    FractionPerHost(f64),
}

/// What of the environment the core looks at. [`Settings::default`] is what an empty environment gives.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// `GASNET_PSHM_NETWORK_DEPTH`: depth of the queues between ranks of a host, in payload buffers of 64 KiB. At least
    /// [`Settings::LEAST_DEPTH`].
    pub depth: u32,
    /// `GASNET_MAX_SEGSIZE`.
    pub max_segment: SegmentLimit,
    /// `GASNET_SUPERNODE_MAXSIZE`: most ranks in a neighbourhood, 0 for no limit.
    pub neighbourhood_max: u32,
    /// Processors that this rank may run on; `None` asks the system.
    pub cpus: Option<u32>,
}

impl Settings {
    /// Least queue depth.
    pub const LEAST_DEPTH: u32 = 4;
    /// Greatest queue depth.
    pub const MOST_DEPTH: u32 = 4096;
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            depth: 32,
            max_segment: SegmentLimit::FractionPerHost(0.85),
            neighbourhood_max: 0,
            cpus: None,
        }
    }
}
