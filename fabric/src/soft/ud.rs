//! Datagram queue pairs: UDP packets between the ports of the devices' listeners.
//!
//! A packet for a queue pair that is not there or has another `Q_Key`, or without a posted receive,
//! is dropped and counted. Nothing is ever answered.

use std::any::Any;
use std::io;
use std::net::SocketAddr;
use std::time::Instant;

use super::context::Context;
use super::datagram::{GRH, HEADER, Header, PACKET, route_header};
use super::fault_injection::DelayedDatagram;
use super::fault_script::DatagramFault;
use super::limits::DATAGRAMS_PER_TURN;
use super::qp::Qp;
use super::qp_table::QpTable;
use super::rq::Taken;
use super::sealed_datagram::{BEFORE, SEALED};
use super::slots::SlotRelease;
use super::wire::narrow;
use crate::{
    AddressHandle, Completion, Data, Opcode, Operation, PostError, QpState, QpType, RecvWr, SendWr,
    Status,
};

/// A port to send datagrams to.
#[derive(Debug)]
pub(super) struct SoftAddress {
    pub(super) to: SocketAddr,
}

impl AddressHandle for SoftAddress {}

/// Copies the data of a send behind the header; its length. `Err`: a key does not cover it.
fn collect(qp: &Qp, data: &Data<'_>, packet: &mut [u8; PACKET]) -> Result<usize, PostError> {
    let total = data.total();
    if total > u64::from(qp.ctx.mtu.bytes()) {
        return Err(PostError::Invalid("a datagram longer than the MTU"));
    }
    if matches!(data, Data::Inline(_)) && total > qp.inline as u64 {
        return Err(PostError::Invalid("more inline bytes than the limit"));
    }
    let copied = qp.ctx.regions.copy(data, packet.get_mut(HEADER..).unwrap_or_default());
    copied.ok_or(PostError::Invalid("a local key does not cover the data"))
}

pub(super) fn post(qp: &Qp, send: &SendWr<'_>) -> Result<(), PostError> {
    let Operation::Send { imm } = send.operation else {
        return Err(PostError::Invalid("a datagram queue pair only sends"));
    };
    let target = send.to.ok_or(PostError::Invalid("a datagram without a target"))?;
    let to = (target.handle as &dyn Any).downcast_ref::<SoftAddress>();
    let to = to.ok_or(PostError::Invalid("the target is of another fabric"))?.to;
    let mut packet = [0; PACKET];
    let len = collect(qp, &send.data, &mut packet)?;
    let number = qp.datagrams.take(qp.ctx.slots.sends(qp.number))?;
    let flushed = qp.state() != QpState::Rts;
    if !flushed {
        let header = Header { to: target.qpn, from: qp.number, qkey: target.qkey, imm };
        transmit(qp, to, &header, &mut packet, len);
    }
    if flushed || send.signaled {
        let status = if flushed { Status::Flushed } else { Status::Success };
        let release = SlotRelease::Sends(number + 1);
        qp.complete_send(send.id, status, Opcode::Send, narrow(len), release);
    }
    Ok(())
}

/// Losing a packet is no error.
fn transmit(qp: &Qp, to: SocketAddr, header: &Header, packet: &mut [u8; PACKET], len: usize) {
    let ctx = &qp.ctx;
    let Some(whole) = header.seal(&ctx.key, packet, len) else { return };
    match &ctx.datagrams {
        None => send(qp, to, whole),
        Some(cipher) => {
            let mut room = [0; SEALED];
            let sealed = cipher.seal(whole, &mut room);
            sealed.into_iter().for_each(|sealed| send(qp, to, sealed));
        }
    }
}

/// Sends the bytes of a packet, as often and as late as a fault script wants.
fn send(qp: &Qp, to: SocketAddr, whole: &[u8]) {
    let ctx = &qp.ctx;
    let up = qp.attributes().is_some_and(|attributes| ctx.is_up(attributes.port));
    if !up || ctx.is_unreachable(to.ip()) {
        return;
    }
    let DatagramFault { copies, delay } = ctx.faults.plan.datagram();
    for _ in 0..copies {
        if delay.is_zero() {
            let _ = ctx.udp.send_to(whole, to);
        } else {
            let when = Instant::now() + delay;
            ctx.faults.delayed.push(DelayedDatagram { when, to, bytes: whole.to_vec() });
            ctx.activity.wake();
        }
    }
}

/// Sends what a fault script held back until now; whether more waits.
pub(super) fn send_delayed(ctx: &Context, now: Instant) -> bool {
    ctx.faults.delayed.send_due(now, |to, bytes| {
        let _ = ctx.udp.send_to(bytes, to);
    })
}

/// Takes packets that wait on the device's socket, at most so many that other streams get their
/// turn; true: there were some.
pub(super) fn receive(ctx: &Context, qps: &QpTable, scratch: &mut [u8]) -> bool {
    // The route header of the receive takes the place of the packet's own, so that it is contiguous
    // with the payload.
    let shift = GRH - HEADER;
    let before = ctx.datagrams.as_ref().map_or(0, |_| BEFORE);
    for turn in 0..DATAGRAMS_PER_TURN {
        let Some(room) = scratch.get_mut(shift..=shift + SEALED) else { return false };
        let (len, from) = match ctx.udp.recv_from(room) {
            Ok(got) => got,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return turn > 0,
            // What a host answered to an earlier packet of ours; the next one may be fine.
            Err(_) => continue,
        };
        let packet = room.get_mut(..len).unwrap_or_default();
        let packet = match &ctx.datagrams {
            None => Some(&*packet),
            Some(cipher) => cipher.open(packet),
        };
        let Some(Ok((header, payload))) = packet.map(|packet| Header::open(&ctx.key, packet))
        else {
            ctx.warnings.datagram_dropped();
            continue;
        };
        let len = payload.len();
        let route = route_header(from.ip(), ctx.ip, len);
        if let Some(place) = scratch.get_mut(before..before + GRH) {
            place.copy_from_slice(&route);
        }
        let bytes = scratch.get(before..before + GRH + len).unwrap_or_default();
        if ctx.is_unreachable(from.ip()) || !deliver(ctx, qps, &header, bytes) {
            ctx.warnings.datagram_dropped();
        }
    }
    true
}

/// Puts a datagram into the receive that waits for it. False: there is none.
fn deliver(ctx: &Context, qps: &QpTable, header: &Header, bytes: &[u8]) -> bool {
    let Some(qp) = qps.find(header.to).filter(|qp| qp.qp_type == QpType::Ud && qp.answers()) else {
        return false;
    };
    if !qp
        .attributes()
        .is_some_and(|attributes| attributes.qkey == header.qkey && ctx.is_up(attributes.port))
    {
        return false;
    }
    let Taken::One(RecvWr { id, buffer }, number) = qp.receives().take() else { return false };
    let status = if (buffer.len as usize) < bytes.len() {
        Status::LocalLength
    } else {
        let span = ctx.regions.local(&buffer, true);
        span.map_or(Status::LocalProtection, |span| {
            span.fill(bytes);
            Status::Success
        })
    };
    let entry = Completion {
        id,
        status,
        opcode: Opcode::Receive,
        len: narrow(bytes.len()),
        imm: header.imm,
        source_qpn: header.from,
        ..Completion::EMPTY
    };
    qp.complete_receive(&entry, number);
    true
}
