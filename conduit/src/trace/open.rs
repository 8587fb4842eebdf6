//! From the variables to an open recorder.

use std::sync::atomic::{AtomicU64, Ordering};

use bootstrap::RankInfo;
use bootstrap::trace::{Place, RING, VARIABLE, slot_len};
use settings::log::RANK;
use settings::{Values, say};

use super::hooks;
use super::lines::Lines;
use super::mask::{self, HALF, MASK};
use super::recorder::{RECORDER, Recorder};

/// Opens what the variables ask for, for this rank of the process. Without any of them nothing
/// happens.
pub(crate) fn open(values: &Values, rank: RankInfo) {
    let place = values.text(VARIABLE).and_then(|text| Place::read(&text));
    let number = rank.rank.0;
    let chosen = |nodes: &str| values.nodes(nodes).contains(number);
    let (traces, counts) = (chosen("GASNET_TRACENODES"), chosen("GASNET_STATSNODES"));
    let file = |name: &str, chosen: bool| values.text(name).filter(|_| chosen);
    let trace_file = file("GASNET_TRACEFILE", traces);
    let stats_file = file("GASNET_STATSFILE", counts);
    let wanted = place.map_or((false, false), |place| place.wants);
    let (records, sums) =
        (trace_file.is_some() || wanted.0 && traces, stats_file.is_some() || wanted.1 && counts);
    if !records && !sums {
        return;
    }
    let each = values.bool("GASNET_TRACEFLUSH");
    let lines = [("GASNET_TRACEFILE", trace_file), ("GASNET_STATSFILE", stats_file)]
        .map(|(variable, name)| name.map(|name| Lines::open(variable, &name, number, each)));
    let (words, capacity) = place.map_or_else(|| (alone(), 0), |place| slot(&place, rank));
    let trace_local = values.bool("GASNET_TRACELOCAL");
    let local = [trace_local, values.bool_opt("GASNET_STATSLOCAL").unwrap_or(trace_local)];
    let how = ([records, sums], local);
    let recorder = Recorder::new(words, capacity, (number, rank.size), lines, how);
    if RECORDER.set(recorder).is_err() {
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

/// The rank's slot in the memory that its starter made, and the records that fit.
fn slot(place: &Place, rank: RankInfo) -> (&'static [AtomicU64], u64) {
    let len = slot_len(place.capacity);
    match bootstrap::sys::words_of(place.fd, u64::from(rank.local) * len, len) {
        Ok(words) => (words, place.capacity),
        Err(error) => {
            let rank = rank.rank;
            say!(WARN, RANK, "rank {rank}: no memory for the trace: {error}; it is not in it");
            (alone(), 0)
        }
    }
}
