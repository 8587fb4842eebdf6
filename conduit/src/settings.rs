//! Settings that the core reads, folded out of the table of variables.

use settings::{Amount, Per};

use crate::error::Error;
use crate::segment_mode::SegmentMode;
use crate::sys;

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

impl SegmentLimit {
    pub(crate) fn of(spec: settings::MemSpec) -> Self {
        match (spec.amount, spec.per) {
            (Amount::Bytes(bytes), Per::Process) => Self::PerRank(bytes),
            (Amount::Bytes(bytes), Per::Host) => Self::PerHost(bytes),
            (Amount::Fraction(share), Per::Process) => Self::FractionPerRank(share),
            (Amount::Fraction(share), Per::Host) => Self::FractionPerHost(share),
        }
    }

    /// Largest segment that it leaves to each of `locals` ranks of a host, a multiple of the page
    /// size.
    pub(crate) fn for_each(self, locals: u32) -> u64 {
        let ranks = u64::from(locals);
        let memory = sys::physical_memory().unwrap_or(1 << 30);
        let bytes = match self {
            Self::PerRank(bytes) => bytes,
            Self::PerHost(bytes) => bytes / ranks,
            Self::FractionPerRank(share) => fraction(memory, share),
            Self::FractionPerHost(share) => fraction(memory, share) / ranks,
        };
        let page = sys::page_size();
        (bytes / page * page).max(page)
    }
}

/// Whether the system is asked for huge pages.
pub(crate) fn huge_pages(table: &settings::Values) -> bool {
    let asked = table.bool_opt("GASNET_USE_HUGEPAGES");
    asked.unwrap_or_else(|| table.bool("HUGETLB_DEFAULT_PAGE_SIZE"))
}

#[expect(clippy::cast_possible_truncation, reason = "saturates")]
#[expect(clippy::cast_sign_loss, reason = "shares are not negative")]
fn fraction(memory: u64, share: f64) -> u64 {
    (memory as f64 * share) as u64
}

/// What of the environment the core looks at. [`Settings::default`] is what an empty environment
/// gives.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// `GASNET_PSHM_NETWORK_DEPTH`: depth of the queues between ranks of a host, in payload buffers
    /// of 64 KiB. At least [`Settings::LEAST_DEPTH`].
    pub depth: u32,
    /// `GASNET_MAX_SEGSIZE`.
    pub max_segment: SegmentLimit,
    /// `GASNET_SEGMENT_MODE`: which memory other ranks reach.
    pub segment_mode: SegmentMode,
    /// `GASNET_SUPERNODE_MAXSIZE`: most ranks in a neighbourhood, 0 for no limit.
    pub neighbourhood_max: u32,
    /// `GASNET_BARRIER=AMCENTRAL`: barriers always count in one place. Otherwise few ranks look at
    /// each other's flags.
    pub central_barrier: bool,
    /// How leaders of neighbourhoods tell each other that theirs has come: by writes into
    /// registered memory (`GASNET_BARRIER=RDMADISSEM`) or by messages (`AMDISSEM`). `None`
    /// (`DISSEM`): by writes on adapters.
    pub barrier_writes: Option<bool>,
    /// `GASNET_AMPSHM_MEMORY_REPORT`: rank 0 says how much memory the queues take.
    pub memory_report: bool,
    /// `GASNET_QUIET`: no advisory warnings.
    pub quiet: bool,
    /// `GASNET_USE_HUGEPAGES`: the system is asked for huge pages for the segment.
    pub huge_pages: bool,
    /// One thread at a time is inside the library, and this process is a rank: where nothing else
    /// needs a thread, the network starts none.
    pub single_threaded: bool,
    /// The program runs the progress threads of the network itself (`GEX_FLAG_DEFER_THREADS`).
    pub defer_threads: bool,
    /// Processors that this rank may run on; `None` asks the system.
    pub cpus: Option<u32>,
    /// Variables of the network, for [`Client::with_bootstrap`](crate::Client::with_bootstrap)
    /// alone: it looks at no environment.
    pub network: Vec<(String, String)>,
}

impl Settings {
    /// Least queue depth.
    pub const LEAST_DEPTH: u32 = 4;
    /// Greatest queue depth; larger settings are cut to it.
    pub const MOST_DEPTH: u32 = 4096;

    /// Folds the table's values.
    #[must_use]
    pub fn of(table: &settings::Values) -> Self {
        let number = |name| u32::try_from(table.int(name)).unwrap_or(0);
        let max_segment = table.memory("GASNET_MAX_SEGSIZE").map(SegmentLimit::of);
        let depth = number("GASNET_PSHM_NETWORK_DEPTH");
        let preset = Self::default();
        Self {
            depth: depth.clamp(Self::LEAST_DEPTH, Self::MOST_DEPTH),
            max_segment: max_segment.unwrap_or(preset.max_segment),
            segment_mode: SegmentMode::named(table.word("GASNET_SEGMENT_MODE")).unwrap_or_default(),
            neighbourhood_max: number("GASNET_SUPERNODE_MAXSIZE"),
            central_barrier: table.word("GASNET_BARRIER") == "AMCENTRAL",
            barrier_writes: match table.word("GASNET_BARRIER") {
                "RDMADISSEM" | "IBDISSEM" | "GNIDISSEM" => Some(true),
                "AMDISSEM" | "AMCENTRAL" => Some(false),
                _ => None,
            },
            memory_report: table.bool("GASNET_AMPSHM_MEMORY_REPORT"),
            quiet: table.bool("GASNET_QUIET"),
            huge_pages: huge_pages(table),
            single_threaded: false,
            defer_threads: false,
            cpus: None,
            network: Vec::new(),
        }
    }

    /// Refuses a variable that names a mode which this program has not chosen.
    pub(crate) fn check_mode(&self, table: &settings::Values) -> Result<(), Error> {
        if self.segment_mode.is_everything() {
            return Ok(());
        }
        SegmentMode::chosen(table).map(|_| ())
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        if !(Self::LEAST_DEPTH..=Self::MOST_DEPTH).contains(&self.depth) {
            let (least, most) = (Self::LEAST_DEPTH, Self::MOST_DEPTH);
            let problem = format!("depth {} is outside {least}..={most}", self.depth);
            return Err(Error::Setting { name: "GASNET_PSHM_NETWORK_DEPTH", problem });
        }
        Ok(())
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            depth: 32,
            max_segment: SegmentLimit::FractionPerHost(0.85),
            segment_mode: SegmentMode::FAST,
            neighbourhood_max: 0,
            central_barrier: false,
            barrier_writes: None,
            memory_report: false,
            quiet: false,
            huge_pages: false,
            single_threaded: false,
            defer_threads: false,
            cpus: None,
            network: Vec::new(),
        }
    }
}
