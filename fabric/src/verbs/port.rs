//! A port with its tables.

use std::ffi::c_int;

use crate::{Error, Gid, GidEntry, GidKind, LinkLayer, Mtu, PortInfo, checks};

use super::context::{Opened, failure};
use super::{convert, ffi, sysfs};

/// The greatest table that is read at once; RoCE drivers have up to 1024 entries.
const GID_LIMIT: usize = 4096;

pub(super) fn query(opened: &Opened, number: u8) -> Result<PortInfo, Error> {
    checks::port(&opened.info, "query a port", number)?;
    let seen = attributes(opened, number)?;
    let link = convert::link(seen.link_layer)
        .ok_or_else(|| opened.unsupported("port of a known link layer"))?;
    Ok(PortInfo {
        number,
        state: convert::port_state(seen.state),
        link,
        lid: if link == LinkLayer::InfiniBand { seen.lid } else { 0 },
        // A port that is down may show none.
        active_mtu: Mtu::of_number(seen.active_mtu).unwrap_or(Mtu::B256),
        max_message: seen.max_msg_sz,
        gids: match whole_table(opened, number) {
            Some(table) => table,
            None => single_entries(opened, number, seen.gid_tbl_len)?,
        },
        pkeys: pkeys(opened, number, seen.pkey_tbl_len),
        service: 0,
    })
}

fn attributes(opened: &Opened, number: u8) -> Result<ffi::PortAttr, Error> {
    // The exported function fills only the fields that it knows: the rest stays zero, as the
    // header's own caller has it.
    let mut seen = ffi::PortAttr::ZERO;
    // SAFETY: an open context and room for the answer, of which the exported function knows at most
    // all.
    let result =
        unsafe { (opened.library.query_port)(opened.context.as_ptr(), number, &raw mut seen) };
    opened.check(result, &format!("query port {number}"))?;
    Ok(seen)
}

/// All used entries in one call, where the library has it.
fn whole_table(opened: &Opened, port: u8) -> Option<Vec<GidEntry>> {
    let query = opened.library.query_gid_table?;
    let mut room = 0;
    for each in 1..=opened.info.ports {
        room += usize::try_from(attributes(opened, each).ok()?.gid_tbl_len).unwrap_or(0);
    }
    let room = room.clamp(1, GID_LIMIT);
    let mut entries = vec![ffi::GidEntry::ZERO; room];
    // SAFETY: an open context and `room` entries of the size that is told.
    let count = unsafe {
        query(opened.context.as_ptr(), entries.as_mut_ptr(), room, 0, size_of::<ffi::GidEntry>())
    };
    let count = usize::try_from(count).ok()?;
    let mut table: Vec<GidEntry> = entries
        .iter()
        .take(count)
        .filter(|entry| entry.port_num == u32::from(port))
        .filter_map(|entry| {
            let kind = match entry.gid_type {
                ffi::GID_TYPE_ROCE_V2 => GidKind::RoceV2,
                _ => GidKind::IbOrRoceV1,
            };
            let gid = Gid(entry.gid.0);
            // An index that a packet's path cannot name is of no use.
            let index = u8::try_from(entry.gid_index).ok()?;
            (!gid.is_empty()).then_some(GidEntry { index, gid, kind })
        })
        .collect();
    table.sort_by_key(|entry| entry.index);
    Some(table)
}

/// Entry by entry, with the kinds from sysfs.
fn single_entries(opened: &Opened, port: u8, length: c_int) -> Result<Vec<GidEntry>, Error> {
    let mut table = Vec::new();
    for index in (0..=u8::MAX).take_while(|index| c_int::from(*index) < length) {
        let mut gid = ffi::Gid([0; 16]);
        // SAFETY: an open context and room for the answer.
        let result = unsafe {
            (opened.library.query_gid)(
                opened.context.as_ptr(),
                port,
                c_int::from(index),
                &raw mut gid,
            )
        };
        // Kernels say so of an unused entry.
        let gid = Gid(gid.0);
        if result != 0 || gid.is_empty() {
            let said = failure(result);
            if result != 0 && index == 0 && said.raw_os_error() == Some(libc::EACCES) {
                return Err(opened.os(format!("read the GID table of port {port}"), said));
            }
            continue;
        }
        table.push(GidEntry { index, gid, kind: sysfs::gid_kind(&opened.directory, port, index) });
    }
    Ok(table)
}

/// The table up to the last used entry. Keys that cannot be read count as unused (0).
fn pkeys(opened: &Opened, port: u8, length: u16) -> Vec<u16> {
    let mut table: Vec<u16> =
        (0..length).map(|index| pkey(opened, port, index).unwrap_or(0)).collect();
    table.truncate(table.iter().rposition(|key| *key != 0).map_or(0, |last| last + 1));
    table
}

pub(super) fn has_pkey(opened: &Opened, port: u8, index: u16) -> bool {
    pkey(opened, port, index).is_some_and(|key| key & 0x7fff != 0)
}

fn pkey(opened: &Opened, port: u8, index: u16) -> Option<u16> {
    let mut key = 0;
    // SAFETY: an open context and room for the answer.
    let result = unsafe {
        (opened.library.query_pkey)(opened.context.as_ptr(), port, c_int::from(index), &raw mut key)
    };
    (result == 0).then_some(u16::from_be(key))
}
