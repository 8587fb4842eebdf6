//! Numbers of verbs to values of the traits.

use crate::{AsyncEvent, Completion, LinkLayer, Mtu, Opcode, PortState, QpState, Status};

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
            let port = unsafe { event.element.port_num };
            let port = u8::try_from(port).unwrap_or(0);
            if event.event_type == ffi::EVENT_PORT_ACTIVE {
                AsyncEvent::PortActive { port }
            } else {
                AsyncEvent::PortDown { port }
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
    match number {
        0 => Status::Success,
        other => failed(other),
    }
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
    match number {
        1 => Opcode::Write,
        2 => Opcode::Read,
        4 => Opcode::FetchAdd,
        // Receives have this bit, writes with immediate data too.
        number if number & 128 != 0 => Opcode::Receive,
        _ => Opcode::Send,
    }
}

pub(super) fn mtu(number: i32) -> Option<Mtu> {
    Some(match number {
        1 => Mtu::B256,
        2 => Mtu::B512,
        3 => Mtu::B1024,
        4 => Mtu::B2048,
        5 => Mtu::B4096,
        _ => return None,
    })
}

pub(super) fn mtu_number(mtu: Mtu) -> i32 {
    match mtu {
        Mtu::B256 => 1,
        Mtu::B512 => 2,
        Mtu::B1024 => 3,
        Mtu::B2048 => 4,
        Mtu::B4096 => 5,
    }
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

pub(super) fn qp_state(number: i32) -> QpState {
    match number {
        ffi::QPS_RESET => QpState::Reset,
        ffi::QPS_INIT => QpState::Init,
        ffi::QPS_RTR => QpState::Rtr,
        ffi::QPS_RTS => QpState::Rts,
        // Draining states are not asked for; an error of the send queue is an error.
        _ => QpState::Error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_and_opcodes_have_the_numbers_of_the_header() {
        assert_eq!(status(0), Status::Success);
        assert_eq!(status(5), Status::Flushed);
        assert_eq!(status(12), Status::RetryExceeded);
        assert_eq!(status(21), Status::Other(21));
        assert_eq!(opcode(0), Opcode::Send);
        assert_eq!(opcode(128), Opcode::Receive);
        assert_eq!(opcode(129), Opcode::Receive);
    }

    #[test]
    fn immediate_data_counts_only_with_its_flag_and_is_in_network_order() {
        let mut seen = ffi::Wc::EMPTY;
        seen.imm_data = 0x0102_0304_u32.to_be();
        assert_eq!(completion(&seen).imm, None);
        seen.wc_flags = ffi::WC_WITH_IMM;
        assert_eq!(completion(&seen).imm, Some(0x0102_0304));
    }

    #[test]
    fn mtu_numbers_go_both_ways() {
        for number in 1..=5 {
            assert_eq!(mtu(number).map(mtu_number), Some(number));
        }
        assert_eq!(mtu(0), None);
        assert_eq!(mtu(6), None);
    }
}
