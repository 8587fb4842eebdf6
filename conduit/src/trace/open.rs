//! From the variables to an open recorder.

use std::sync::atomic::{AtomicU64, Ordering};

use bootstrap::RankInfo;
use bootstrap::trace::far::Far;
use bootstrap::trace::{Place, RING, VARIABLE, slot_len};
use settings::log::RANK;
use settings::{Values, say};

use super::far::{self, Link};
use super::hooks;
use super::lines::Lines;
use super::mask::{self, HALF, MASK};
use super::recorder::{RECORDER, Recorder};

/// Opens what the variables ask for, for this rank of the process. Without any of them nothing
/// happens.
pub(crate) fn open(values: &Values, rank: RankInfo) {
    let starter = values.text(VARIABLE).and_then(|text| Starter::read(&text));
    let number = rank.rank.0;
    let chosen = |nodes: &str| values.nodes(nodes).contains(number);
    let (traces, counts) = (chosen("GASNET_TRACENODES"), chosen("GASNET_STATSNODES"));
    let file = |name: &str, chosen: bool| values.text(name).filter(|_| chosen);
    let trace_file = file("GASNET_TRACEFILE", traces);
    let stats_file = file("GASNET_STATSFILE", counts);
    let wanted = starter.as_ref().map_or((false, false), Starter::wants);
    let (records, sums) =
        (trace_file.is_some() || wanted.0 && traces, stats_file.is_some() || wanted.1 && counts);
    if !records && !sums {
        return;
    }
    let each = values.bool("GASNET_TRACEFLUSH");
    let lines = [("GASNET_TRACEFILE", trace_file), ("GASNET_STATSFILE", stats_file)]
        .map(|(variable, name)| name.map(|name| Lines::open(variable, &name, number, each)));
    let (words, capacity, link) =
        starter.and_then(|starter| starter.slot(rank)).unwrap_or_else(|| (alone(), 0, None));
    let trace_local = values.bool("GASNET_TRACELOCAL");
    let local = [trace_local, values.bool_opt("GASNET_STATSLOCAL").unwrap_or(trace_local)];
    let how = ([records, sums], local);
    let recorder = Recorder::new(words, capacity, (number, rank.size), lines, how);
    if RECORDER.set(recorder.with_link(link)).is_err() {
        return;
    }
    let bits = |on: bool, name: &str| {
        let letters = || values.text(name).unwrap_or_default();
        if on { mask::parse(&letters()) } else { 0 }
    };
    let mask = bits(records, "GASNET_TRACEMASK") | bits(sums, "GASNET_STATSMASK") << HALF;
    MASK.0.store(mask, Ordering::Release);
    hooks::begun();
}

/// Counters of a rank that nobody reads but itself.
fn alone() -> &'static [AtomicU64] {
    Box::leak((0..RING).map(|_| AtomicU64::new(0)).collect())
}

/// Who started the rank, and where it leaves what it records.
enum Starter {
    /// An agent of ours.
    Agent(Place),
    /// Another launcher, for ours.
    Other(Far),
}

/// Words of a slot, the records that fit, and where it has to go.
type Slot = (&'static [AtomicU64], u64, Option<Link>);

impl Starter {
    fn read(text: &str) -> Option<Self> {
        Place::read(text).map(Self::Agent).or_else(|| Far::read(text).map(Self::Other))
    }

    const fn wants(&self) -> (bool, bool) {
        match self {
            Self::Agent(place) => place.wants,
            Self::Other(far) => far.wants,
        }
    }

    /// The rank's slot in the memory that its starter made, or its own; `None` when nobody would
    /// read it.
    fn slot(self, rank: RankInfo) -> Option<Slot> {
        let slot = match self {
            Self::Agent(place) => {
                let len = slot_len(place.capacity);
                let words = bootstrap::sys::words_of(place.fd, u64::from(rank.local) * len, len);
                words.map(|words| (words, place.capacity, None))
            }
            Self::Other(far) => {
                let capacity = far.capacity;
                far::slot(far, rank.rank.0).map(|(words, link)| (words, capacity, link))
            }
        };
        let rank = rank.rank;
        slot.inspect_err(|error| {
            say!(WARN, RANK, "rank {rank}: no memory for the trace: {error}; it is not in it");
        })
        .ok()
    }
}
