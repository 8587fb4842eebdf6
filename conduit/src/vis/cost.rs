//! Which way the runs of a transfer take over the network. Pure.
//!
//! Runs cost requests, each a put or get, which several runs may share as entries ([`group`]).
//! Packed runs share Mediums, which cost a message and its answer, and each byte is copied twice
//! more: into the packet, and out of it by the other rank's processor. Runs of a put that are one
//! range at the target may also be gathered here and put as that, which costs the first copy alone.
//! No run above `GASNET_VIS_MAXCHUNK` is packed.
//!
//! [`group`]: super::group

/// What things cost among many in flight, in nanoseconds beyond one put of all bytes: `bench_vis`
/// over the software adapter between two processes of one host, on which alone they were measured.
/// A request with its completion: 1024 puts of 64 bytes take 1210 µs, 4096 of 256 take 4500 µs.
const REQUEST: usize = 1400;
/// A packet with its answer: what is left for it of 17 packets of 1 MiB is less than this, but one
/// packet alone is also waited for, so that few runs are not packed.
const PACKET: usize = 4 * REQUEST;
/// One more entry of a request: 1 MiB in 1024 entries of 64 requests takes 190 µs beyond the bytes,
/// in 512 entries of 32 requests 110 µs.
const ENTRY: usize = 100;
/// Bytes whose two copies take as long as a request: 1 MiB that is gathered in memory, one copy,
/// takes 90 µs beyond the bytes, packed, two copies, 180 µs, whatever the length of the runs.
const COPIED: usize = 8192;

/// Runs that are short enough to be packed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Short {
    pub(crate) runs: usize,
    /// Bytes together.
    pub(crate) bytes: usize,
    /// Requests that they would take.
    pub(crate) requests: usize,
}

impl Short {
    /// Cost of requests.
    const fn requested(self) -> usize {
        let more = self.runs.saturating_sub(self.requests);
        self.requests.saturating_mul(REQUEST).saturating_add(more.saturating_mul(ENTRY))
    }

    /// Cost of so many messages of so much each, and copies.
    const fn copied(self, room: usize, each: usize, copies: usize) -> usize {
        let messages = self.bytes.div_ceil(room).saturating_mul(each);
        let copying = self.bytes.saturating_mul(copies) / 2;
        messages.saturating_add(copying / COPIED * REQUEST)
    }

    /// Whether they should be packed, in packets of `room` bytes.
    pub(crate) const fn packs(self, room: usize) -> bool {
        self.requested() > self.copied(room, PACKET, 2)
    }

    /// Whether they, which are one range at the target, should be gathered in puts of `room` bytes.
    pub(crate) const fn gathers(self, room: usize) -> bool {
        self.requested() > self.copied(room, REQUEST, 1)
    }
}

/// Largest unit that adapters cut messages into (the MTU of InfiniBand).
const UNIT: usize = 4096;
/// What a packet carries beside the bytes of the transfer, at most: header and description.
const BESIDE: usize = 128;

/// Bytes of each packet but the last one, for a transfer in as few packets of `room` bytes as can
/// be. They are about equally long: the copies of one take place while another travels. On
/// Soft-RoCE 1024 runs of 64 bytes took 760 µs in packets of 65,000 and 536 bytes, 700 µs in two
/// halves. A last unit that is nearly empty costs as much as a full one, so each packet fills its
/// units, with whole elements.
pub(crate) const fn share(total: usize, room: usize, element: usize) -> usize {
    let count = if room == 0 { 1 } else { total.div_ceil(room) };
    let even = if count < 2 { total } else { total.div_ceil(count) };
    if even / UNIT < 2 || count < 2 || element == 0 || element > UNIT {
        return even;
    }
    let full = even / UNIT * UNIT - BESIDE;
    let whole = full - full % element;
    // The last one takes the rest.
    if total - whole * (count - 1) <= room { whole } else { even }
}

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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ROOM: usize = 65_000;

    #[test]
    fn many_short_runs_are_packed_and_few_are_not() {
        let packs = |runs, bytes| Short { runs, bytes, requests: runs }.packs(ROOM);
        assert!(packs(1024, 1024 * 64));
        assert!(packs(1 << 20, 8 << 20));
        assert!(packs(1000, 1000 * 3000));
        assert!(!packs(1, 8));
        assert!(!packs(4, 4 * 64));
        assert!(!packs(16, 16 * 60_000));
        assert!(!packs(0, 0));
    }

    #[test]
    fn runs_that_share_requests_are_packed_only_when_they_are_short() {
        let shared = |size: usize| Short { runs: 1024, bytes: 1024 * size, requests: 64 };
        assert!(shared(64).packs(ROOM) && shared(64).gathers(ROOM));
        assert!(!shared(2048).packs(ROOM) && !shared(2048).gathers(ROOM));
    }

    proptest! {
        #[test]
        fn sharing_requests_never_favours_copies(
            runs in 0_usize..1 << 40,
            size in 1_usize..1 << 20,
            share in 1_usize..40,
            room in 1_usize..100_000,
        ) {
            let bytes = runs.saturating_mul(size);
            let alone = Short { runs, bytes, requests: runs };
            let shared = Short { requests: runs.div_ceil(share), ..alone };
            prop_assert!(!shared.packs(room) || alone.packs(room));
            prop_assert!(!shared.gathers(room) || alone.gathers(room));
            // Gathered is packed without the second copy and the answers.
            prop_assert!(!shared.packs(room) || shared.gathers(room));
            let larger = Short { bytes: bytes.saturating_mul(2), ..shared };
            prop_assert!(!larger.packs(room) || shared.packs(room));
        }
    }

    proptest! {
        #[test]
        fn packets_are_few_and_full(
            total in 1_usize..1 << 24, room in 1000_usize..70_000, element in 1_usize..10_000,
        ) {
            let (each, count) = (share(total, room, element), total.div_ceil(room));
            prop_assert!(each > 0 && each <= room);
            let last = total - each * (count - 1);
            prop_assert!(last <= room, "{each} {last}");
            if each < total.div_ceil(count) {
                prop_assert_eq!(each % element, 0);
            }
        }
    }

    #[test]
    fn a_packet_fills_its_units() {
        let each = share(1 << 16, ROOM, 64);
        assert_eq!(each, 8 * UNIT - BESIDE);
        assert!((1 << 16) - each + BESIDE <= 9 * UNIT);
        assert_eq!(share(100, ROOM, 8), 100);
    }

    #[test]
    fn variables_are_limits() {
        let table = |pairs: &[(&str, &str)]| {
            let env = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            settings::Values::from_env(&env.collect()).expect("legal")
        };
        let rule = |pairs: &[(&str, &str)]| Rule::of(&table(pairs), ROOM);
        let preset = Rule { put_most: 4096, get_most: 4096, gathers: true };
        assert_eq!(rule(&[]), preset);
        let off = Rule { put_most: 0, get_most: 0, gathers: true };
        assert_eq!(rule(&[("GASNET_VIS_AMPIPE", "0"), ("GASNET_VIS_PUT_MAXCHUNK", "9")]), off);
        let both = [("GASNET_VIS_MAXCHUNK", "100K"), ("GASNET_VIS_GET_MAXCHUNK", "77")];
        let limits = Rule { put_most: ROOM, get_most: 77, gathers: true };
        assert_eq!(rule(&both), limits);
        assert!(!rule(&[("GASNET_VIS_REMOTECONTIG", "0")]).gathers);
    }
}
