//! The table that `GASNET_IBV_LIST_PORTS` prints: every device of the host and every port of it,
//! whether used or not, with how near the device is to this rank.

use std::fmt::Write as _;

use fabric::{GidEntry, GidKind, LinkLayer, PortInfo, PortState};

use super::{Found, Rail};

/// Places of distances: 1 for the least, the same for equals; `None` where it is not known.
pub(crate) fn places(distances: &[Option<u32>]) -> Vec<Option<usize>> {
    let mut sorted: Vec<u32> = distances.iter().flatten().copied().collect();
    sorted.sort_unstable();
    sorted.dedup();
    let place = |distance: &Option<u32>| Some(sorted.binary_search(&(*distance)?).ok()? + 1);
    distances.iter().map(place).collect()
}

/// A table of what was found. `distances` are those of the devices, in their order; `rails` are the
/// ports in use.
pub(crate) fn listing(
    title: &str,
    found: &[Found],
    distances: &[Option<u32>],
    rails: &[Rail],
) -> String {
    let mut out = format!("{title}:\n");
    if found.is_empty() {
        out.push_str("  no adapter\n");
    }
    let places = places(distances);
    for (index, one) in found.iter().enumerate() {
        let _ = write!(out, "  {}", one.info.name);
        if let Some(node) = one.info.numa {
            let _ = write!(out, ", memory node {node}");
        }
        match places.get(index).copied().flatten() {
            Some(place) => {
                let _ = write!(out, ", distance rank {place}");
            }
            None => out.push_str(", distance not known"),
        }
        if !one.info.ib_transport {
            out.push_str(", not the InfiniBand transport");
        }
        if let Err(problem) = &one.caps {
            let _ = write!(out, ", cannot be opened: {problem}");
        }
        out.push('\n');
        for (port, number) in one.ports.iter().zip(1u32..) {
            match port {
                Ok(port) => {
                    let used = rails
                        .iter()
                        .any(|rail| rail.device == index && rail.port.number == port.number);
                    let _ = writeln!(out, "{}", line(port, used));
                }
                Err(problem) => {
                    let _ = writeln!(out, "    port {number}: {problem}");
                }
            }
        }
    }
    out
}

fn line(port: &PortInfo, used: bool) -> String {
    let state = match port.state {
        PortState::Down => "down",
        PortState::Init => "not active",
        PortState::Active => "active",
    };
    let link = match port.link {
        LinkLayer::InfiniBand => "InfiniBand",
        LinkLayer::Ethernet => "Ethernet",
    };
    let mut line =
        format!("    port {}: {state}, {link}, MTU {}", port.number, port.active_mtu.bytes());
    if port.link == LinkLayer::InfiniBand && port.lid != 0 {
        let _ = write!(line, ", LID {}", port.lid);
    }
    for entry in &port.gids {
        let _ = write!(line, ", GID {} {}{}", entry.index, entry.gid.ip(), kind(entry));
    }
    if port.service != 0 {
        let _ = write!(line, ", service {}", port.service);
    }
    if used {
        line.push_str(" (used)");
    }
    line
}

const fn kind(entry: &GidEntry) -> &'static str {
    match entry.kind {
        GidKind::IbOrRoceV1 => "",
        GidKind::RoceV2 => " RoCE v2",
        GidKind::Soft => " software",
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{device, first, host, port, settings};
    use super::super::{Filter, select};
    use super::*;

    #[test]
    fn the_table_shows_every_port() {
        let mut found = host();
        found.push(device("rxe0", None, vec![port(1, LinkLayer::Ethernet, PortState::Active)]));
        found.push(device("odd0", Some(1), vec![port(1, LinkLayer::InfiniBand, PortState::Init)]));
        found[3].caps = Err("Permission denied".to_owned());
        found[3].info.ib_transport = false;
        found[3].ports.push(Err("cannot be read".to_owned()));
        let used = ["mlx5_0:2", "rxe0"].map(|filter| {
            let filter = Filter::parse("GASNET_IBV_PORTS", filter).unwrap();
            select(&found, Some(&filter), &settings(), first).unwrap().rails
        });
        let text = listing(
            "rank 3, host 1",
            &found,
            &[Some(10), Some(21), None, Some(21)],
            &used.concat(),
        );
        assert_eq!(text, include_str!("list_golden.txt"));
        assert_eq!(listing("rank 0", &[], &[], &[]), "rank 0:\n  no adapter\n");
    }

    #[test]
    fn equal_distances_have_equal_places() {
        let seen = places(&[Some(21), Some(10), None, Some(21), Some(31)]);
        assert_eq!(seen, [Some(2), Some(1), None, Some(2), Some(3)]);
        assert!(places(&[]).is_empty());
    }
}
