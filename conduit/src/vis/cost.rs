//! Which way the runs of a transfer take over the network. Pure.
//!
//! A run by itself costs a put or get. Packed runs share Mediums, which cost a message and its
//! answer, and each byte is copied twice more: into the packet, and out of it by the other rank's
//! processor. So a run is packed when these copies cost less than an operation
//! (`GASNET_VIS_MAXCHUNK`), and there are enough such runs for the packets.

/// Operations that cost as much as a packet with its answer, among many in flight: what `bench_vis`
/// measures over the software adapter, whose operation costs 1 to 2 µs.
const OPERATIONS_PER_PACKET: usize = 4;

/// What the `GASNET_VIS_*` variables say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rule {
    /// Longest run that is packed in a put; 0: none is.
    pub(crate) put_most: usize,
    /// The same in a get.
    pub(crate) get_most: usize,
    /// Runs of a put that are one range at the other rank are gathered and put as that.
    pub(crate) gathers: bool,
}

impl Rule {
    /// Folds the variables; no packet has more than `room` bytes.
    pub(crate) fn of(table: &settings::Values, room: usize) -> Self {
        let size = |name: &str| usize::try_from(table.size(name)).unwrap_or(0).min(room);
        let (packs, all) = (table.bool("GASNET_VIS_AMPIPE"), size("GASNET_VIS_MAXCHUNK"));
        let most = |name: &str| match (packs, table.is_set(name)) {
            (false, _) => 0,
            (true, true) => size(name),
            (true, false) => all,
        };
        Self {
            put_most: most("GASNET_VIS_PUT_MAXCHUNK"),
            get_most: most("GASNET_VIS_GET_MAXCHUNK"),
            gathers: table.bool("GASNET_VIS_REMOTECONTIG"),
        }
    }

    pub(crate) const fn most(&self, put: bool) -> usize {
        if put { self.put_most } else { self.get_most }
    }
}

/// Whether runs that are short enough to be packed should be: `runs` of them with `bytes` together,
/// in packets of `room` bytes.
pub(crate) const fn packs(runs: usize, bytes: usize, room: usize) -> bool {
    runs > bytes.div_ceil(room).saturating_mul(OPERATIONS_PER_PACKET)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: usize = 65_000;

    #[test]
    fn many_short_runs_are_packed_and_few_are_not() {
        assert!(packs(1024, 1024 * 64, ROOM));
        assert!(packs(1 << 20, 8 << 20, ROOM));
        assert!(packs(1000, 1000 * 3000, ROOM));
        assert!(!packs(1, 8, ROOM));
        assert!(!packs(4, 4 * 64, ROOM));
        assert!(!packs(16, 16 * 60_000, ROOM));
        assert!(!packs(0, 0, ROOM));
    }

    #[test]
    fn variables_are_limits() {
        let table = |pairs: &[(&str, &str)]| {
            let env = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            settings::Values::from_env(&env.collect()).expect("legal")
        };
        let rule = |pairs: &[(&str, &str)]| Rule::of(&table(pairs), ROOM);
        let preset = Rule { put_most: 3072, get_most: 3072, gathers: true };
        assert_eq!(rule(&[]), preset);
        let off = Rule { put_most: 0, get_most: 0, gathers: true };
        assert_eq!(rule(&[("GASNET_VIS_AMPIPE", "0"), ("GASNET_VIS_PUT_MAXCHUNK", "9")]), off);
        let both = [("GASNET_VIS_MAXCHUNK", "100K"), ("GASNET_VIS_GET_MAXCHUNK", "77")];
        let limits = Rule { put_most: ROOM, get_most: 77, gathers: true };
        assert_eq!(rule(&both), limits);
        assert!(!rule(&[("GASNET_VIS_REMOTECONTIG", "0")]).gathers);
    }
}
