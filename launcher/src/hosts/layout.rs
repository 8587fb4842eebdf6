//! The rules by which ranks are spread over hosts (pure).
//!
//! Blocked and balanced is the documented layout: consecutive ranks, shares that differ by at most
//! one, the first hosts take the remainder. Slots are limits: a host that is full takes no more,
//! and the others share what is left by the same rule. A cyclic layout gives each host the same
//! number of ranks as the blocked one, dealt out in rounds.

use supervisor::plan::{HostEntry, Map};

/// More ranks than slots.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{ranks} ranks need {ranks} slots, but the {hosts} {} of the job {} {slots}: {} too few",
    if *.hosts == 1 { "host" } else { "hosts" },
    if *.hosts == 1 { "has" } else { "have" },
    u64::from(*.ranks) - .slots
)]
pub struct TooFewSlots {
    /// Ranks.
    pub ranks: u32,
    /// Slots of all hosts together.
    pub slots: u64,
    /// Hosts.
    pub hosts: usize,
}

/// How ranks are spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Consecutive ranks share a host, shares are even.
    Block,
    /// Consecutive ranks are on consecutive hosts, shares are even.
    Cyclic,
    /// Consecutive ranks share a host, and one host after the other is filled.
    Fill,
}

/// Spreads `ranks` ranks over `hosts`, within their slots. Hosts that get none are left out.
///
/// # Errors
/// More ranks than slots.
pub fn spread(hosts: Vec<HostEntry>, ranks: u32, layout: Layout) -> Result<Map, TooFewSlots> {
    let slots: Vec<_> = hosts.iter().map(|host| host.slots).collect();
    let shares = match layout {
        Layout::Block | Layout::Cyclic => shares(ranks, &slots)?,
        Layout::Fill => filled(ranks, &slots)?,
    };
    let indices = 0..u32::try_from(hosts.len()).unwrap_or(u32::MAX);
    let host_of = if layout == Layout::Cyclic {
        let rounds = 0..shares.iter().copied().max().unwrap_or(0);
        let with = |round| indices.clone().zip(&shares).filter(move |(_, s)| **s > round);
        rounds.flat_map(|round| with(round).map(|(host, _)| host)).collect()
    } else {
        let ranks = |(host, share): (u32, &u32)| std::iter::repeat_n(host, *share as usize);
        indices.zip(&shares).flat_map(ranks).collect()
    };
    Ok(Map { hosts, host_of }.without_idle_hosts())
}

/// How many ranks each host gets when one after the other is filled up to its slots. Hosts without a
/// number of slots share evenly what is left then.
///
/// # Errors
/// More ranks than slots.
fn filled(ranks: u32, slots: &[Option<u32>]) -> Result<Vec<u32>, TooFewSlots> {
    let mut rest = ranks;
    let mut take = |slots: Option<u32>| {
        let taken = slots.map_or(0, |slots| slots.min(rest));
        rest -= taken;
        taken
    };
    let full: Vec<u32> = slots.iter().map(|slots| take(*slots)).collect();
    let open = slots.iter().map(|slots| if slots.is_some() { Some(0) } else { None });
    let even = shares(rest, &open.collect::<Vec<_>>());
    // The message tells of all slots.
    let even = even.or_else(|_| shares(ranks, slots))?;
    Ok(full.into_iter().zip(even).map(|(full, even)| full + even).collect())
}

/// How many ranks each host gets when `ranks` are spread evenly: consecutive ranks, the first hosts
/// take the remainder. A host takes at most its slots; what it cannot take is spread over the
/// others.
///
/// # Errors
/// More ranks than slots.
pub fn shares(ranks: u32, slots: &[Option<u32>]) -> Result<Vec<u32>, TooFewSlots> {
    let limit = |slots: &Option<u32>| slots.unwrap_or(u32::MAX);
    let sum = |level: u32| slots.iter().map(|s| u64::from(limit(s).min(level))).sum::<u64>();
    if sum(u32::MAX) < u64::from(ranks) {
        return Err(TooFewSlots { ranks, slots: sum(u32::MAX), hosts: slots.len() });
    }
    // The highest level to which every host can be filled; the first that are not full take one
    // more.
    let (mut level, mut above) = (0, ranks.saturating_add(1));
    while level + 1 < above {
        let middle = level + (above - level) / 2;
        if sum(middle) <= u64::from(ranks) { level = middle } else { above = middle }
    }
    let mut rest = u64::from(ranks) - sum(level);
    let share = |slots: &Option<u32>| {
        let more = rest > 0 && limit(slots) > level;
        rest -= u64::from(more);
        limit(slots).min(level) + u32::from(more)
    };
    Ok(slots.iter().map(share).collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use supervisor::plan::{MapError, Place};

    use super::*;

    fn hosts(slots: &[Option<u32>]) -> Vec<HostEntry> {
        let host = |(i, slots): (usize, &Option<u32>)| HostEntry {
            slots: *slots,
            ..HostEntry::new(format!("n{i}"))
        };
        slots.iter().enumerate().map(host).collect()
    }

    /// The even layout by another rule.
    fn layout(ranks: u32, hosts: u32) -> Vec<u32> {
        let Some(each) = ranks.checked_div(hosts) else { return Vec::new() };
        let rest = ranks % hosts;
        (0..hosts).map(|host| each + u32::from(host < rest)).collect()
    }

    #[test]
    fn ten_ranks_on_four_hosts() {
        assert_eq!(layout(10, 4), [3, 3, 2, 2]);
        assert_eq!(layout(3, 5), [1, 1, 1, 0, 0]);
        assert_eq!(layout(5, 0), [0; 0]);
        let map = spread(hosts(&[None; 4]), 10, Layout::Block).expect("fits");
        assert_eq!(map.host_of, [0, 0, 0, 1, 1, 1, 2, 2, 3, 3]);
        let map = spread(hosts(&[None; 4]), 10, Layout::Cyclic).expect("fits");
        assert_eq!(map.host_of, [0, 1, 2, 3, 0, 1, 2, 3, 0, 1]);
        assert_eq!(map.ranks_of(1), [1, 5, 9]);
        assert_eq!(map.places()[9], Place { host: 1, local: 2 });
    }

    #[test]
    fn slots_are_limits() {
        assert_eq!(shares(8, &[Some(4), Some(2), Some(2)]), Ok(vec![4, 2, 2]));
        assert_eq!(shares(7, &[Some(1), None, None]), Ok(vec![1, 3, 3]));
        assert_eq!(shares(6, &[Some(9), Some(1), None]), Ok(vec![3, 1, 2]));
        let error = shares(9, &[Some(4), Some(2)]).expect_err("too many").to_string();
        assert_eq!(error, "9 ranks need 9 slots, but the 2 hosts of the job have 6: 3 too few");
        assert_eq!(shares(1, &[]), Err(TooFewSlots { ranks: 1, slots: 0, hosts: 0 }));
        let map = spread(hosts(&[Some(1), Some(3), None]), 7, Layout::Cyclic).expect("fits");
        assert_eq!(map.host_of, [0, 1, 2, 1, 2, 1, 2]);
    }

    #[test]
    fn hosts_are_filled_in_order() {
        assert_eq!(filled(5, &[Some(4), Some(2), Some(2)]), Ok(vec![4, 1, 0]));
        assert_eq!(filled(9, &[None, Some(4), None]), Ok(vec![3, 4, 2]));
        assert_eq!(filled(2, &[None, Some(4)]), Ok(vec![0, 2]));
        assert_eq!(
            filled(5, &[Some(3), Some(1)]),
            Err(TooFewSlots { ranks: 5, slots: 4, hosts: 2 })
        );
        let map = spread(hosts(&[Some(3), Some(3), Some(3)]), 4, Layout::Fill).expect("fits");
        assert_eq!((map.host_of.as_slice(), map.hosts.len()), (&[0, 0, 0, 1][..], 2));
    }

    #[test]
    fn hosts_without_ranks_are_left_out() {
        let map = Map { hosts: hosts(&[None; 4]), host_of: vec![3, 1, 3] }.without_idle_hosts();
        assert_eq!(map.hosts.iter().map(|h| h.name.as_str()).collect::<Vec<_>>(), ["n1", "n3"]);
        assert_eq!(map.host_of, [1, 0, 1]);
        assert_eq!(map.check(), Ok(()));
        let wrong = Map { hosts: hosts(&[None; 2]), host_of: vec![0, 2] };
        assert_eq!(wrong.check(), Err(MapError::Host { rank: 1, host: 2, hosts: 2 }));
        let idle = Map { hosts: hosts(&[None; 2]), host_of: vec![0, 0] };
        assert_eq!(idle.check(), Err(MapError::Idle { host: 1 }));
    }

    proptest! {
        #[test]
        fn every_rank_has_a_place_and_shares_differ_by_one(ranks in 0u32..5000, hosts in 1u32..300) {
            let even = layout(ranks, hosts);
            prop_assert_eq!(even.len(), hosts as usize);
            prop_assert_eq!(even.iter().sum::<u32>(), ranks);
            prop_assert!(even.windows(2).all(|pair| pair[0] >= pair[1]));
            prop_assert!(even[0] - even[even.len() - 1] <= 1);
            prop_assert_eq!(shares(ranks, &vec![None; hosts as usize]), Ok(even));
        }

        #[test]
        fn maps_keep_their_promises(
            ranks in 1u32..500,
            slots in proptest::collection::vec(proptest::option::of(1u32..20), 1..40),
            cyclic: bool,
        ) {
            let total: u64 = slots.iter().map(|s| s.map_or(u64::MAX / 64, u64::from)).sum();
            let layout = if cyclic { Layout::Cyclic } else { Layout::Block };
            let map = spread(hosts(&slots), ranks, layout);
            prop_assert_eq!(map.is_ok(), total >= u64::from(ranks));
            let Ok(map) = map else { return Ok(()) };
            prop_assert_eq!(map.check(), Ok(()));
            prop_assert_eq!(map.size(), ranks);
            let counts = map.shares();
            for (host, count) in map.hosts.iter().zip(&counts) {
                prop_assert!(host.slots.is_none_or(|slots| *count <= slots));
                // Nobody has two more than a host that has room.
                for (other, less) in map.hosts.iter().zip(&counts) {
                    prop_assert!(*count <= less + 1 || other.slots == Some(*less));
                }
            }
            if !cyclic {
                prop_assert!(map.host_of.is_sorted());
            }
            for (rank, place) in (0..).zip(map.places()) {
                prop_assert_eq!(map.ranks_of(place.host)[place.local as usize], rank);
            }
        }
    }
}
