//! The host map in `PMI_process_mapping`: `(vector,(first,nodes,per),…)`. Pure.
//!
//! Each block puts `per` ranks on each of `nodes` hosts, the first of which has the number `first`.
//! Ranks are dealt in order over all blocks, and over again until all have a host.

use bootstrap::service::HostId;

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
    if blocks.iter().all(|(_, nodes, per)| *nodes == 0 || *per == 0) {
        return None;
    }
    let mut nodes = Vec::new();
    while nodes.len() < size as usize {
        for (first, count, per) in &blocks {
            for node in 0..u64::from(*count) {
                for _ in 0..*per {
                    if nodes.len() == size as usize {
                        break;
                    }
                    nodes.push(u64::from(*first) + node);
                }
                if nodes.len() == size as usize {
                    break;
                }
            }
        }
    }
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
