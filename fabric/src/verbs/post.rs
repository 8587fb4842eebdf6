//! From the traits' requests to those of verbs. Everything is on the stack.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::ptr;

use crate::{Data, Operation, PostError, QpState, QpType, RecvWr, SendWr, Sge};

use super::device::{MAX_SGE, failure};
use super::ffi;
use super::qp::{VerbsAh, VerbsQp};

/// Inline bytes that are asked of a device at most; more costs more than a registered buffer everywhere.
pub(super) const MAX_INLINE: u32 = 1024;

const PIECES: usize = MAX_SGE as usize;
const INLINE: usize = MAX_INLINE as usize;

#[inline]
pub(super) fn piece(sge: &Sge) -> ffi::Sge {
    ffi::Sge { addr: sge.addr, length: sge.len, lkey: sge.lkey }
}

#[inline]
pub(super) fn receive(id: u64, piece: &mut ffi::Sge) -> ffi::RecvWr {
    ffi::RecvWr { wr_id: id, next: ptr::null_mut(), sg_list: ptr::from_mut(piece), num_sge: 1 }
}

/// What a post function returned.
#[inline]
pub(super) fn outcome(result: c_int) -> Result<(), PostError> {
    if result == 0 { Ok(()) } else { Err(refused(result)) }
}

/// What became of a request of a queue pair.
#[inline]
fn taken(qp: &VerbsQp, result: c_int) -> Result<(), PostError> {
    if result == 0 && qp.known_state() == QpState::Error {
        qp.flush();
    }
    outcome(result)
}

#[cold]
fn refused(result: c_int) -> PostError {
    match failure(result).raw_os_error() {
        Some(libc::ENOMEM | libc::EAGAIN) => PostError::Full,
        number => PostError::Os(number.unwrap_or(libc::EIO)),
    }
}

/// Posts a receive request.
#[inline]
pub(super) fn post_receive(qp: &VerbsQp, request: &RecvWr) -> Result<(), PostError> {
    if matches!(qp.qp_type(), QpType::XrcSend | QpType::XrcRecv) {
        return Err(PostError::Invalid(
            "extended reliable connections receive into queues of a domain",
        ));
    }
    if qp.shares_receives() {
        return Err(PostError::Invalid("receives go to the shared receive queue"));
    }
    if qp.known_state() == QpState::Reset {
        return Err(PostError::State(QpState::Reset));
    }
    let mut piece = piece(&request.buffer);
    let mut wr = receive(request.id, &mut piece);
    let mut bad = ptr::null_mut();
    // SAFETY: a living queue pair, one request of one piece; the caller holds the region of its key.
    let result = unsafe { (qp.domain.post_recv)(qp.qp.as_ptr(), &raw mut wr, &raw mut bad) };
    taken(qp, result)
}

/// Posts a send request; `queue` is named by extended reliable connections, and only by them.
#[inline]
pub(super) fn post_send(
    qp: &VerbsQp,
    send: &SendWr<'_>,
    queue: Option<u32>,
) -> Result<(), PostError> {
    let state = qp.known_state();
    if !matches!(state, QpState::Rts | QpState::Error) {
        return Err(PostError::State(state));
    }
    let mut pieces = [const { MaybeUninit::<ffi::Sge>::uninit() }; PIECES];
    let (count, flags) = match send.data {
        Data::Gather(list) => {
            if list.len() > qp.send_sge() {
                return Err(PostError::Invalid("more pieces than the queue pair gathers"));
            }
            for (to, from) in pieces.iter_mut().zip(list) {
                to.write(piece(from));
            }
            (list.len(), 0)
        }
        Data::Inline(list) => {
            if matches!(send.operation, Operation::Read { .. } | Operation::FetchAdd { .. }) {
                return Err(PostError::Invalid("reads and atomics need registered memory"));
            }
            let total: usize = list.iter().map(|part| part.len()).sum();
            if total > qp.inline_limit() {
                return Err(PostError::Invalid("more inline bytes than the queue pair takes"));
            }
            if list.len() > qp.send_sge() {
                return join_and_submit(qp, send, queue, list);
            }
            for (to, from) in pieces.iter_mut().zip(list) {
                to.write(inline_piece(from));
            }
            (list.len(), ffi::SEND_INLINE)
        }
    };
    submit(qp, send, queue, &mut pieces, count, flags)
}

/// More parts than the queue pair gathers: copied together first. Their sum is below the inline limit.
#[inline(never)]
fn join_and_submit(
    qp: &VerbsQp,
    send: &SendWr<'_>,
    queue: Option<u32>,
    list: &[&[u8]],
) -> Result<(), PostError> {
    let mut bytes = [0_u8; INLINE];
    let mut used = 0;
    for part in list {
        let room = bytes.get_mut(used..used + part.len());
        room.ok_or(PostError::Invalid("more inline bytes than there is room for"))?
            .copy_from_slice(part);
        used += part.len();
    }
    let mut pieces = [const { MaybeUninit::<ffi::Sge>::uninit() }; PIECES];
    pieces[0].write(inline_piece(&bytes[..used]));
    submit(qp, send, queue, &mut pieces, 1, ffi::SEND_INLINE)
}

#[inline]
fn inline_piece(part: &[u8]) -> ffi::Sge {
    let addr = part.as_ptr().expose_provenance() as u64;
    // At most the inline limit.
    let length = u32::try_from(part.len()).unwrap_or(u32::MAX);
    ffi::Sge { addr, length, lkey: 0 }
}

/// The first `count` pieces are written.
#[inline(always)]
fn submit(
    qp: &VerbsQp,
    send: &SendWr<'_>,
    queue: Option<u32>,
    pieces: &mut [MaybeUninit<ffi::Sge>; PIECES],
    count: usize,
    flags: u32,
) -> Result<(), PostError> {
    let mut wr = ffi::SendWr {
        wr_id: send.id,
        next: ptr::null_mut(),
        sg_list: pieces.as_mut_ptr().cast(),
        num_sge: c_int::try_from(count).unwrap_or(0),
        opcode: ffi::WR_SEND,
        send_flags: flags | if send.signaled { ffi::SEND_SIGNALED } else { 0 },
        imm_data: 0,
        wr: ffi::WrTarget { atomic: ffi::WrAtomic::NONE },
        remote_srqn: 0,
        rest: [0; 6],
    };
    match (qp.qp_type(), &send.to, queue) {
        (QpType::Rc, None, None) => {}
        (QpType::XrcSend, None, Some(queue)) => wr.remote_srqn = queue,
        (QpType::Ud, Some(to), None) => {
            let handle = to.handle.as_any().downcast_ref::<VerbsAh>();
            let handle = handle.filter(|handle| handle.is_of(&qp.domain));
            let ah = handle.ok_or(PostError::Invalid("an address of another device"))?.ah.as_ptr();
            wr.wr.ud = ffi::WrUd { ah, remote_qpn: to.qpn, remote_qkey: to.qkey };
        }
        (QpType::XrcRecv, ..) => {
            return Err(PostError::Invalid("a receiver of a domain sends nothing"));
        }
        (QpType::XrcSend, _, None) => {
            return Err(PostError::Invalid("the receive queue at the peer is not named"));
        }
        (_, _, Some(_)) if qp.qp_type() != QpType::XrcSend => {
            return Err(PostError::Invalid(
                "only extended reliable connections name a receive queue",
            ));
        }
        (_, Some(_), _) => return Err(PostError::Invalid("a reliable connection has one peer")),
        (_, None, _) => return Err(PostError::Invalid("a datagram needs an address")),
    }
    match send.operation {
        Operation::Send { imm: None } => {}
        Operation::Send { imm: Some(imm) } => {
            wr.opcode = ffi::WR_SEND_WITH_IMM;
            wr.imm_data = imm.to_be();
        }
        _ if qp.qp_type() == QpType::Ud => {
            return Err(PostError::Invalid("datagrams are only sent"));
        }
        Operation::Write { remote, rkey } => {
            wr.opcode = ffi::WR_RDMA_WRITE;
            wr.wr.rdma = ffi::WrRdma { remote_addr: remote, rkey };
        }
        Operation::Read { remote, rkey } => {
            wr.opcode = ffi::WR_RDMA_READ;
            wr.wr.rdma = ffi::WrRdma { remote_addr: remote, rkey };
        }
        Operation::FetchAdd { remote, rkey, add } => {
            if !qp.domain.caps.atomics {
                return Err(PostError::Invalid("the device has no atomics"));
            }
            // Providers differ in who refuses this.
            if !remote.is_multiple_of(8) {
                return Err(PostError::Invalid(
                    "an atomic needs an address that is a multiple of 8",
                ));
            }
            wr.opcode = ffi::WR_ATOMIC_FETCH_AND_ADD;
            wr.wr.atomic = ffi::WrAtomic { remote_addr: remote, compare_add: add, swap: 0, rkey };
        }
    }
    let mut bad = ptr::null_mut();
    // SAFETY: a living queue pair and one request with `count` written pieces; inline ones are copied during the call, and
    // the caller holds the regions of the other keys.
    let result = unsafe { (qp.domain.post_send)(qp.qp.as_ptr(), &raw mut wr, &raw mut bad) };
    taken(qp, result)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_is_told_by_number_whatever_its_sign() {
        assert_eq!(outcome(0), Ok(()));
        assert_eq!(outcome(libc::ENOMEM), Err(PostError::Full));
        assert_eq!(outcome(-libc::ENOMEM), Err(PostError::Full));
        assert_eq!(outcome(libc::EINVAL), Err(PostError::Os(libc::EINVAL)));
    }
}
