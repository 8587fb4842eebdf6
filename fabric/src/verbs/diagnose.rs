//! Why a device refused a change of state: it says only EINVAL. Pure; what is known of the port is
//! passed in.

use std::ffi::c_int;
use std::io;

use crate::{Caps, LinkLayer, Mtu, PortInfo, PortState, QpState};

use super::ffi;

/// What is known about the device and the port.
#[derive(Clone, Copy)]
pub(super) struct Known<'a> {
    pub(super) caps: &'a Caps,
    /// None when the port could not be read.
    pub(super) port: Option<&'a PortInfo>,
    pub(super) ports: u8,
}

/// The text of a refusal: suspects first, then what was sent.
pub(super) fn explain(
    said: &io::Error,
    attr: &ffi::QpAttr,
    mask: c_int,
    known: Known<'_>,
) -> String {
    let suspects = suspects(said, attr, mask, known);
    let culprit = if suspects.is_empty() {
        "no attribute looks wrong from here".to_owned()
    } else {
        suspects.join("; ")
    };
    format!("{said}: {culprit} (sent: {})", sent(attr, mask))
}

/// Attributes that cannot be right, each with what was seen and the limit.
pub(super) fn suspects(
    said: &io::Error,
    attr: &ffi::QpAttr,
    mask: c_int,
    known: Known<'_>,
) -> Vec<String> {
    let mut found = Vec::new();
    let has = |bit| mask & bit != 0;
    if has(ffi::mask::PORT) && !(1..=known.ports).contains(&attr.port_num) {
        found.push(format!("port {} of a device with {}", attr.port_num, known.ports));
    }
    if let Some(port) = known.port {
        if port.state == PortState::Down {
            found.push(format!("port {} is down", port.number));
        }
        if has(ffi::mask::PKEY_INDEX) {
            pkey(attr, port, &mut found);
        }
        if has(ffi::mask::PATH_MTU) && attr.path_mtu > port.active_mtu as c_int {
            let active = port.active_mtu.bytes();
            let asked = Mtu::of_number(attr.path_mtu).map_or(0, Mtu::bytes);
            found.push(format!("path_mtu {asked} is above the port's active MTU {active}"));
        }
        if has(ffi::mask::AV) {
            path(&attr.ah_attr, port, &mut found);
        }
    }
    for (bit, _) in ffi::mask::NAMES.iter().filter(|(bit, _)| has(*bit)) {
        let (name, value, limit) = number(*bit, attr, known.caps);
        if value > limit {
            found.push(format!("{name} {value} is above {limit}"));
        }
    }
    if matches!(said.raw_os_error(), Some(libc::ETIMEDOUT | libc::EHOSTUNREACH | libc::ENETUNREACH))
    {
        let peer = crate::Gid(attr.ah_attr.grh.dgid.0).ip();
        found.push(format!("no answer to the lookup of {peer}: see the route and its neighbour"));
    }
    found
}

fn pkey(attr: &ffi::QpAttr, port: &PortInfo, found: &mut Vec<String>) {
    match port.pkeys.get(usize::from(attr.pkey_index)) {
        None => found.push(format!(
            "pkey_index {} is beyond the port's {} used keys",
            attr.pkey_index,
            port.pkeys.len()
        )),
        Some(0) => found.push(format!("pkey_index {} is unused on the port", attr.pkey_index)),
        Some(_) => {}
    }
}

pub(super) fn path(to: &ffi::AhAttr, port: &PortInfo, found: &mut Vec<String>) {
    let global = to.is_global != 0;
    match port.link {
        LinkLayer::InfiniBand if to.dlid == 0 && !global => {
            found.push("dlid 0 on an InfiniBand port".to_owned());
        }
        LinkLayer::InfiniBand if to.dlid == 0 => {
            found.push("dlid 0: a GRH does not replace it inside a subnet".to_owned());
        }
        LinkLayer::Ethernet if !global => {
            found.push("no global address (GRH) on an Ethernet port".to_owned());
        }
        _ => {}
    }
    if global {
        let index = to.grh.sgid_index;
        if !port.gids.iter().any(|entry| entry.index == index) {
            let used: Vec<String> = port.gids.iter().map(|entry| entry.index.to_string()).collect();
            let used = if used.is_empty() { "none".to_owned() } else { used.join(", ") };
            found.push(format!("sgid_index {index} is unused on the port (used: {used})"));
        }
        if to.grh.dgid.0 == [0; 16] {
            found.push("the peer's GID is all zero".to_owned());
        }
    }
}

/// The name of a numeric attribute, its value, and the most that it may be.
fn number(bit: c_int, attr: &ffi::QpAttr, caps: &Caps) -> (&'static str, u32, u32) {
    use ffi::mask;
    match bit {
        mask::ACCESS_FLAGS => ("qp_access_flags", attr.qp_access_flags, u32::MAX),
        mask::PKEY_INDEX => ("pkey_index", attr.pkey_index.into(), u32::MAX),
        mask::PORT => ("port_num", attr.port_num.into(), u32::MAX),
        mask::QKEY => ("qkey", attr.qkey, u32::MAX),
        mask::TIMEOUT => ("timeout", attr.timeout.into(), 31),
        mask::RETRY_CNT => ("retry_cnt", attr.retry_cnt.into(), 7),
        mask::RNR_RETRY => ("rnr_retry", attr.rnr_retry.into(), 7),
        mask::RQ_PSN => ("rq_psn", attr.rq_psn, 0xff_ffff),
        mask::MAX_QP_RD_ATOMIC => {
            ("max_rd_atomic", attr.max_rd_atomic.into(), caps.max_init_rd_atom.into())
        }
        mask::MIN_RNR_TIMER => ("min_rnr_timer", attr.min_rnr_timer.into(), 31),
        mask::SQ_PSN => ("sq_psn", attr.sq_psn, 0xff_ffff),
        mask::MAX_DEST_RD_ATOMIC => {
            ("max_dest_rd_atomic", attr.max_dest_rd_atomic.into(), caps.max_rd_atom.into())
        }
        mask::DEST_QPN => ("dest_qp_num", attr.dest_qp_num, 0xff_ffff),
        // STATE, AV and PATH_MTU are told in other ways.
        _ => ("", 0, 0),
    }
}

/// What was asked for, by the names of verbs.
fn sent(attr: &ffi::QpAttr, mask: c_int) -> String {
    let value = |bit: c_int| match bit {
        ffi::mask::STATE => format!("{:?}", QpState::of_number(attr.qp_state)),
        ffi::mask::AV => address(&attr.ah_attr),
        ffi::mask::PATH_MTU => Mtu::of_number(attr.path_mtu).map_or(0, Mtu::bytes).to_string(),
        ffi::mask::ACCESS_FLAGS | ffi::mask::QKEY | ffi::mask::DEST_QPN => {
            format!("{:#x}", number(bit, attr, &Caps::default()).1)
        }
        _ => number(bit, attr, &Caps::default()).1.to_string(),
    };
    let parts = ffi::mask::NAMES.iter().filter(|(bit, _)| mask & bit != 0);
    parts.map(|(bit, name)| format!("{name} {}", value(*bit))).collect::<Vec<_>>().join(", ")
}

fn address(to: &ffi::AhAttr) -> String {
    if to.is_global == 0 {
        format!("(dlid {}, port {})", to.dlid, to.port_num)
    } else {
        let peer = crate::Gid(to.grh.dgid.0).ip();
        format!(
            "(dlid {}, port {}, dgid {peer}, sgid_index {})",
            to.dlid, to.port_num, to.grh.sgid_index
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Gid, GidEntry, GidKind};

    fn port(link: LinkLayer) -> PortInfo {
        PortInfo {
            number: 1,
            state: PortState::Active,
            link,
            lid: 7,
            active_mtu: Mtu::B1024,
            max_message: 1 << 30,
            gids: vec![GidEntry { index: 1, gid: Gid([1; 16]), kind: GidKind::RoceV2 }],
            pkeys: vec![0xffff],
            service: 0,
        }
    }

    fn seen(change: impl FnOnce(&mut ffi::QpAttr), mask: c_int, link: LinkLayer) -> Vec<String> {
        let mut attr = ffi::QpAttr::ZERO;
        attr.ah_attr.dlid = 1;
        change(&mut attr);
        let caps = Caps { max_rd_atom: 16, max_init_rd_atom: 16, ..Caps::default() };
        let port = port(link);
        let said = io::Error::from_raw_os_error(libc::EINVAL);
        suspects(&said, &attr, mask, Known { caps: &caps, port: Some(&port), ports: 1 })
    }

    #[test]
    fn the_culprit_is_named_and_nothing_else() {
        use LinkLayer::{Ethernet, InfiniBand};
        let found = seen(|attr| attr.path_mtu = 5, ffi::mask::PATH_MTU, InfiniBand);
        assert_eq!(found, ["path_mtu 4096 is above the port's active MTU 1024"]);
        let found = seen(|attr| attr.ah_attr.dlid = 0, ffi::mask::AV, InfiniBand);
        assert_eq!(found, ["dlid 0 on an InfiniBand port"]);
        let found = seen(|_| (), ffi::mask::AV, Ethernet);
        assert_eq!(found, ["no global address (GRH) on an Ethernet port"]);
        let unused = |attr: &mut ffi::QpAttr| {
            attr.ah_attr.is_global = 1;
            attr.ah_attr.grh.sgid_index = 3;
            attr.ah_attr.grh.dgid = ffi::Gid([2; 16]);
        };
        let found = seen(unused, ffi::mask::AV, Ethernet);
        assert_eq!(found, ["sgid_index 3 is unused on the port (used: 1)"]);
        let found = seen(|attr| attr.pkey_index = 4, ffi::mask::PKEY_INDEX, Ethernet);
        assert_eq!(found, ["pkey_index 4 is beyond the port's 1 used keys"]);
        let found = seen(|attr| attr.max_rd_atomic = 17, ffi::mask::MAX_QP_RD_ATOMIC, Ethernet);
        assert_eq!(found, ["max_rd_atomic 17 is above 16"]);
        let found = seen(|attr| attr.retry_cnt = 8, ffi::mask::RETRY_CNT, Ethernet);
        assert_eq!(found, ["retry_cnt 8 is above 7"]);
        let found = seen(|attr| attr.port_num = 2, ffi::mask::PORT, Ethernet);
        assert_eq!(found, ["port 2 of a device with 1"]);
    }

    #[test]
    fn attributes_outside_the_mask_are_no_suspects() {
        assert_eq!(seen(|attr| attr.path_mtu = 5, ffi::mask::AV, LinkLayer::InfiniBand), [""; 0]);
    }

    #[test]
    fn the_text_names_everything_that_was_sent() {
        let mut attr = ffi::QpAttr::ZERO;
        attr.qp_state = QpState::Rts as c_int;
        attr.timeout = 18;
        attr.sq_psn = 77;
        let mask = ffi::mask::STATE | ffi::mask::TIMEOUT | ffi::mask::SQ_PSN;
        let said = io::Error::from_raw_os_error(libc::EINVAL);
        let known = Known { caps: &Caps::default(), port: None, ports: 1 };
        let text = explain(&said, &attr, mask, known);
        assert!(text.contains("(sent: STATE Rts, TIMEOUT 18, SQ_PSN 77)"), "{text}");
        assert!(text.contains("no attribute looks wrong"), "{text}");
    }
}
