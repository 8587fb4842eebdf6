//! Which rank is on which host, when the job starts.
//!
//! The host map in `PMI_process_mapping` is `(vector,(first,nodes,per),…)`.
//! Each block puts `per` ranks on each of `nodes` hosts, the first of which has the number `first`.
//! Ranks are dealt in order over all blocks, and over again until all have a host.

use bootstrap::service::{Error, HostId, Rank};

use super::identity::Identity;
use super::manager::{ProcessManager, unwatched};
use super::rendezvous::Word;
use super::value::KeyValueSpace;

/// Host of each of `size` ranks, numbered in rank order of the first rank on it; `None` when the
/// text is no such map.
#[must_use]
pub fn hosts(text: &str, size: u32) -> Option<Vec<HostId>> {
    let compact: String = text.chars().filter(|c| !c.is_whitespace()).collect();
    let inner = compact.strip_prefix("(vector,")?.strip_suffix(')')?;
    let blocks = inner
        .strip_prefix('(')?
        .strip_suffix(')')?
        .split("),(")
        .map(block)
        .collect::<Option<Vec<_>>>()?;
    let deal = |(first, count, per): &(u32, u32, u32)| {
        let (first, per) = (u64::from(*first), *per as usize);
        (0..u64::from(*count)).flat_map(move |node| std::iter::repeat_n(first + node, per))
    };
    let nodes: Vec<u64> = blocks.iter().flat_map(deal).cycle().take(size as usize).collect();
    Some(number(&nodes))
}

fn block(text: &str) -> Option<(u32, u32, u32)> {
    let mut numbers = text.split(',').map(|word| word.parse().ok());
    let block = (numbers.next()??, numbers.next()??, numbers.next()??);
    // A block of no ranks would make the dealing go on without progress.
    (numbers.next().is_none() && block.1 > 0 && block.2 > 0).then_some(block)
}

/// Numbers hosts in the order in which they occur.
#[must_use]
pub fn number<T: std::hash::Hash + Eq>(keys: &[T]) -> Vec<HostId> {
    let mut seen = std::collections::HashMap::new();
    let mut next = 0;
    let mut one = |key| {
        *seen.entry(key).or_insert_with(|| {
            next += 1;
            HostId(next - 1)
        })
    };
    keys.iter().map(&mut one).collect()
}

/// Host of every rank, numbered in rank order of the first rank on it, by the process manager's own
/// map.
pub(super) fn known(manager: &mut dyn ProcessManager) -> Result<Option<Vec<HostId>>, Error> {
    let size = manager.job_info().size;
    if size == 1 {
        return Ok(Some(vec![HostId(0)]));
    }
    let map = manager.host_map()?.filter(|map| map.len() == size as usize);
    Ok(map.map(|map| number(&map)))
}

/// The same where the process manager does not know. Collective: every rank publishes the identity
/// of its host, with its `word` for those who meet there, rank 0 reads all of them and publishes the
/// table: as many keys as ranks, read by one of them, and two fences.
pub(super) fn exchange(
    manager: &mut dyn ProcessManager,
    identity: &Identity,
    word: &Word,
) -> Result<Vec<HostId>, Error> {
    let size = manager.job_info().size;
    let mine = manager.job_info().rank;
    let space = KeyValueSpace::new(manager);
    let own = [identity.mark.as_bytes(), word.bytes()].concat();
    space.publish(manager, Word::WITH_HOST, mine.0, &own)?;
    manager.fence(&mut unwatched())?;
    let mut table = Vec::new();
    if mine.0 == 0 {
        let mark = |rank| {
            let mut told = space.read(manager, Word::WITH_HOST, Rank(rank))?;
            told.truncate(identity.mark.len());
            Ok(told)
        };
        let marks = (0..size).map(mark).collect::<Result<Vec<_>, Error>>()?;
        table = number(&marks).iter().flat_map(|host| host.0.to_le_bytes()).collect();
        space.publish(manager, "m", 0, &table)?;
    }
    manager.fence(&mut unwatched())?;
    if mine.0 != 0 {
        table = space.read(manager, "m", Rank(0))?;
    }
    let map: Vec<HostId> =
        table.as_chunks::<4>().0.iter().map(|word| HostId(u32::from_le_bytes(*word))).collect();
    if table.len() != size as usize * 4 || number(&map) != map {
        let problem = format!("{} bytes are no table of the hosts of {size} ranks", table.len());
        return Err(space.broken("m", Rank(0), problem));
    }
    Ok(map)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn map(text: &str, size: u32) -> Vec<u32> {
        hosts(text, size).unwrap().iter().map(|host| host.0).collect()
    }

    #[test]
    fn all_shapes() {
        assert_eq!(map("(vector,(0,1,1))", 4), [0, 0, 0, 0]);
        assert_eq!(map("(vector,(0,2,2))", 4), [0, 0, 1, 1]);
        assert_eq!(map("(vector,(0,1,1),(1,1,3))", 4), [0, 1, 1, 1]);
        assert_eq!(map("(vector,(0,2,1))", 5), [0, 1, 0, 1, 0]);
        // Out of order, as with an arbitrary distribution.
        assert_eq!(map("(vector,(2,1,1),(0,1,1),(2,1,1))", 3), [0, 1, 0]);
        assert_eq!(map(" (vector, (5,1,2) ) ", 2), [0, 0]);
        assert_eq!(map("(vector,(4294967295,4294967295,4294967295))", 3), [0, 0, 0]);
    }

    #[test]
    fn what_is_no_map() {
        for text in [
            "",
            "(vector)",
            "(vector,)",
            "(vector,())",
            "(vector,(0,1))",
            "(vector,(0,1,1,1))",
            "(vector,(0,0,1))",
            "(vector,(0,1,0))",
            "(vector,(0,1,1)",
            "(n1,(eth0,IP_V4,127.0.0.1))",
            "(vector,(-1,1,1))",
            "(vector,(0,1,1)x)",
        ] {
            assert_eq!(hosts(text, 4), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn never_panics_and_every_rank_has_a_host(text in "\\(?(vector)?[(),0-9 ]{0,40}", size in 0u32..200) {
            if let Some(map) = hosts(&text, size) {
                prop_assert_eq!(map.len(), size as usize);
                let mut next = 0;
                for host in map {
                    prop_assert!(host.0 <= next);
                    next += u32::from(host.0 == next);
                }
            }
        }
    }
}
