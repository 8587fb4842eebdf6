//! Numbers of verbs to values of the traits, and parts of work requests.

use std::ffi::c_int;
use std::ptr;

use crate::{AsyncEvent, Completion, LinkLayer, Opcode, PortState, PostError, RecvWr, Sge, Status};

use super::context::failure;
use super::ffi;

/// What happened.
///
/// # Safety
/// The event came from `ibv_get_async_event` and is not acknowledged yet.
pub(super) unsafe fn event(event: &ffi::AsyncEvent) -> AsyncEvent {
    match event.event_type {
        ffi::EVENT_CQ_ERR => AsyncEvent::CqError,
        ffi::EVENT_QP_FATAL | ffi::EVENT_QP_REQ_ERR | ffi::EVENT_QP_ACCESS_ERR => {
            // SAFETY: events of these kinds name a queue pair.
            let qp = unsafe { event.element.qp };
            // SAFETY: the library keeps it until the event is acknowledged.
            AsyncEvent::QpFatal { qpn: unsafe { (*qp).qp_num } }
        }
        ffi::EVENT_DEVICE_FATAL => AsyncEvent::DeviceFatal,
        ffi::EVENT_PORT_ACTIVE | ffi::EVENT_PORT_ERR => {
            // SAFETY: events of these kinds name a port.
            let port = u8::try_from(unsafe { event.element.port_num }).unwrap_or(0);
            match event.event_type {
                ffi::EVENT_PORT_ACTIVE => AsyncEvent::PortActive { port },
                _ => AsyncEvent::PortDown { port },
            }
        }
        other => AsyncEvent::Other(other.unsigned_abs()),
    }
}

/// A completion. Inlined: it stands in the poll loop.
#[inline]
pub(super) fn completion(seen: &ffi::Wc) -> Completion {
    Completion {
        id: seen.wr_id,
        status: status(seen.status),
        opcode: opcode(seen.opcode),
        len: seen.byte_len,
        imm: (seen.wc_flags & ffi::WC_WITH_IMM != 0).then(|| u32::from_be(seen.imm_data)),
        qpn: seen.qp_num,
        source_qpn: seen.src_qp,
        vendor: seen.vendor_err,
    }
}

#[inline]
fn status(number: i32) -> Status {
    if number == 0 { Status::Success } else { failed(number) }
}

#[cold]
fn failed(number: i32) -> Status {
    match number {
        1 => Status::LocalLength,
        2 => Status::LocalQp,
        4 => Status::LocalProtection,
        5 => Status::Flushed,
        9 => Status::RemoteInvalid,
        10 => Status::RemoteAccess,
        11 => Status::RemoteOperation,
        12 => Status::RetryExceeded,
        13 => Status::RnrRetryExceeded,
        other => Status::Other(other.unsigned_abs()),
    }
}

#[inline]
fn opcode(number: i32) -> Opcode {
    /// Those of requests, from 0 on.
    const REQUESTS: [Opcode; 5] =
        [Opcode::Send, Opcode::Write, Opcode::Read, Opcode::CompareSwap, Opcode::FetchAdd];
    // Receives have this bit.
    if number & 128 != 0 {
        return if number == 129 { Opcode::ReceivedWrite } else { Opcode::Receive };
    }
    let request = usize::try_from(number).ok().and_then(|number| REQUESTS.get(number));
    request.copied().unwrap_or(Opcode::Send)
}

pub(super) fn port_state(number: i32) -> PortState {
    match number {
        ffi::PORT_NOP | ffi::PORT_DOWN => PortState::Down,
        ffi::PORT_ACTIVE => PortState::Active,
        _ => PortState::Init,
    }
}

/// Older drivers leave it open and mean InfiniBand.
pub(super) fn link(number: u8) -> Option<LinkLayer> {
    match number {
        ffi::LINK_LAYER_ETHERNET => Some(LinkLayer::Ethernet),
        ffi::LINK_LAYER_INFINIBAND | ffi::LINK_LAYER_UNSPECIFIED => Some(LinkLayer::InfiniBand),
        _ => None,
    }
}

#[inline]
pub(super) fn sge(from: &Sge) -> ffi::Sge {
    ffi::Sge { addr: from.addr, length: from.len, lkey: from.lkey }
}

#[inline]
pub(super) fn receive(id: u64, sge: &mut ffi::Sge) -> ffi::RecvWr {
    // Some providers read a length of 0 as 2^31.
    let num_sge = c_int::from(sge.length != 0);
    ffi::RecvWr { wr_id: id, next: ptr::null_mut(), sg_list: ptr::from_mut(sge), num_sge }
}

/// Requests that a driver is given together.
pub(super) const TOGETHER: usize = 16;

/// Posts receive requests in lists; `post` gives a list to the driver, and says with which it ends
/// before all are posted. Returns how many were.
pub(super) fn post_lists(
    receives: &[RecvWr],
    post: impl Fn(*mut ffi::RecvWr, *mut *mut ffi::RecvWr) -> c_int,
) -> usize {
    let mut posted = 0;
    for list in receives.chunks(TOGETHER) {
        let mut buffers = [sge(&Sge::default()); TOGETHER];
        let mut requests = [receive(0, &mut buffers[0]); TOGETHER];
        let places = buffers.iter_mut().zip(&mut requests);
        for (from, (buffer, request)) in list.iter().zip(places) {
            *buffer = sge(&from.buffer);
            *request = receive(from.id, buffer);
        }
        for at in (1..list.len()).rev() {
            let next = ptr::from_mut(&mut requests[at]);
            requests[at - 1].next = next;
        }
        let (first, mut bad) = (requests.as_mut_ptr(), ptr::null_mut());
        if post(first, &raw mut bad) == 0 {
            posted += list.len();
            continue;
        }
        return posted + taken_before(bad, &requests, list.len());
    }
    posted
}

/// How many of the first `count` requests of a list were posted, where a driver ended with `bad`. Who
/// says nothing has posted none.
pub(super) fn taken_before<T>(bad: *const T, requests: &[T], count: usize) -> usize {
    requests.iter().position(|request| ptr::eq(request, bad)).unwrap_or(0).min(count)
}

#[inline]
pub(super) fn outcome(result: c_int) -> Result<(), PostError> {
    if result == 0 { Ok(()) } else { Err(refused(result)) }
}

#[cold]
fn refused(result: c_int) -> PostError {
    match failure(result).raw_os_error() {
        Some(libc::ENOMEM | libc::EAGAIN) => PostError::Full,
        number => PostError::Os(number.unwrap_or(libc::EIO)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Mtu;

    #[test]
    fn statuses_and_opcodes_have_the_numbers_of_the_header() {
        assert_eq!(status(0), Status::Success);
        assert_eq!(status(5), Status::Flushed);
        assert_eq!(status(12), Status::RetryExceeded);
        assert_eq!(status(21), Status::Other(21));
        assert_eq!(opcode(0), Opcode::Send);
        assert_eq!(opcode(128), Opcode::Receive);
        assert_eq!(opcode(129), Opcode::ReceivedWrite);
    }

    #[test]
    fn immediate_data_counts_only_with_its_flag_and_is_in_network_order() {
        let mut seen = ffi::Wc::ZERO;
        seen.imm_data = 0x0102_0304_u32.to_be();
        assert_eq!(completion(&seen).imm, None);
        seen.wc_flags = ffi::WC_WITH_IMM;
        assert_eq!(completion(&seen).imm, Some(0x0102_0304));
    }

    #[test]
    fn mtu_numbers_go_both_ways() {
        for number in 1..=5 {
            assert_eq!(Mtu::of_number(number).map(|mtu| mtu as i32), Some(number));
        }
        assert_eq!(Mtu::of_number(0), None);
        assert_eq!(Mtu::of_number(6), None);
    }

    #[test]
    fn a_full_queue_is_told_by_number_whatever_its_sign() {
        assert_eq!(outcome(0), Ok(()));
        assert_eq!(outcome(libc::ENOMEM), Err(PostError::Full));
        assert_eq!(outcome(-libc::ENOMEM), Err(PostError::Full));
        assert_eq!(outcome(libc::EINVAL), Err(PostError::Os(libc::EINVAL)));
    }
}
