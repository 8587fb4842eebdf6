//! From the traits' requests to those of verbs. Everything is on the stack.

use std::any::Any;
use std::ffi::c_int;
use std::mem::{self, MaybeUninit};
use std::ptr;

use crate::{Data, Operation, PostError, QpState, QpType, RecvWr, SendWr, Sge};

use super::address_handle::VerbsAh;
use super::convert::{TOGETHER, outcome, post_lists, receive, sge, taken_before};
use super::domain::MAX_SGE;
use super::ffi;
use super::qp::VerbsQp;

/// Inline bytes that are asked of a device at most; more costs more than a registered buffer
/// everywhere.
pub(super) const MAX_INLINE: u32 = 1024;

const FRAGMENTS: usize = MAX_SGE as usize;
const INLINE: usize = MAX_INLINE as usize;

/// Whether a queue pair has taken requests. One that has failed is to flush them.
#[inline(always)]
fn has_taken(qp: &VerbsQp, some: bool) -> bool {
    if some && qp.is_in(QpState::Error) {
        qp.flush();
    }
    some
}

/// What became of a request of a queue pair.
#[inline(always)]
fn taken(qp: &VerbsQp, result: c_int) -> Result<(), PostError> {
    let _ = has_taken(qp, result == 0);
    outcome(result)
}

/// Whether receives may be posted.
#[inline]
fn receives(qp: &VerbsQp) -> Result<(), PostError> {
    if matches!(qp.qp_type, QpType::XrcSend | QpType::XrcRecv) {
        return Err(PostError::Invalid(
            "extended reliable connections receive into queues of a domain",
        ));
    }
    if qp.srq.is_some() {
        return Err(PostError::Invalid("receives go to the shared receive queue"));
    }
    if qp.is_in(QpState::Reset) {
        return Err(PostError::State(QpState::Reset));
    }
    Ok(())
}

/// As [`post_receive`], in lists. Returns how many were posted.
pub(super) fn post_receives(qp: &VerbsQp, requests: &[RecvWr]) -> usize {
    if receives(qp).is_err() {
        return 0;
    }
    let post_recv = qp.domain().post_recv;
    // SAFETY: a living queue pair, requests of one entry each; the caller holds the regions of
    // their keys.
    let posted =
        post_lists(requests, |first, bad| unsafe { post_recv(qp.qp.as_ptr(), first, bad) });
    let _ = has_taken(qp, posted > 0);
    posted
}

#[inline]
pub(super) fn post_receive(qp: &VerbsQp, request: &RecvWr) -> Result<(), PostError> {
    receives(qp)?;
    let mut buffer = sge(&request.buffer);
    let mut wr = receive(request.id, &mut buffer);
    let mut bad = ptr::null_mut();
    // SAFETY: a living queue pair, one request of one entry; the caller holds the region of its
    // key.
    let result = unsafe { (qp.domain().post_recv)(qp.qp.as_ptr(), &raw mut wr, &raw mut bad) };
    taken(qp, result)
}

/// Posts a send request; `queue` is named by extended reliable connections, and only by them.
#[inline(always)]
pub(super) fn post_send(
    qp: &VerbsQp,
    send: &SendWr<'_>,
    queue: Option<u32>,
) -> Result<(), PostError> {
    if !qp.is_in(QpState::Rts) && !qp.is_in(QpState::Error) {
        return Err(PostError::State(qp.known_state()));
    }
    // Every queue pair that sends gathers one entry.
    let (mut part, flags) = match send.data {
        Data::Gather([part]) => (sge(part), 0),
        Data::Inline([part]) if part.len() <= qp.inline as usize => {
            (inline_sge(part), ffi::SEND_INLINE)
        }
        _ => return post_parts(qp, send, queue),
    };
    if flags != 0 && send.operation.awaits_data() {
        return Err(AWAITS_DATA);
    }
    submit(qp, send, queue, (&raw mut part, 1), flags)
}

/// Parts of registered memory that the requests of a list have at most.
const TOGETHER_PARTS: usize = 2 * TOGETHER;

/// As [`post_send`], of several in their order. Returns how many were posted.
pub(super) fn post_sends(qp: &VerbsQp, sends: &[SendWr<'_>]) -> usize {
    let mut posted = 0;
    while let Some(list) = sends.get(posted..).and_then(first_list) {
        let now = post_list(qp, list);
        posted += now;
        if now < list.len() {
            break;
        }
    }
    posted
}

/// The first requests, as many as go together; `None`: there are none.
fn first_list<'a, 'd>(sends: &'a [SendWr<'d>]) -> Option<&'a [SendWr<'d>]> {
    let mut parts = 0;
    let together = sends.iter().take(TOGETHER).take_while(|send| {
        parts += send.data.parts();
        parts <= TOGETHER_PARTS
    });
    // One that has more parts goes by itself.
    sends.get(..together.count().max(1))
}

/// As [`post_sends`], of a [`first_list`]. A list that has not only registered memory is posted one
/// by one.
fn post_list(qp: &VerbsQp, list: &[SendWr<'_>]) -> usize {
    let mut parts = [sge(&Sge::default()); TOGETHER_PARTS];
    let Some(first) = list.first() else { return 0 };
    let mut requests = [request(first, (ptr::null_mut(), 0), 0); TOGETHER];
    let mut free = parts.as_mut_slice();
    let made = list.iter().zip(&mut requests).all(|(send, wr)| {
        let Data::Gather(from) = send.data else { return false };
        let Some((own, rest)) = mem::take(&mut free).split_at_mut_checked(from.len()) else {
            return false;
        };
        free = rest;
        own.iter_mut().zip(from).for_each(|(to, from)| *to = sge(from));
        *wr = request(send, (own.as_mut_ptr(), own.len()), 0);
        own.len() <= qp.send_sge as usize
            && set_target(wr, qp, send, None).is_ok()
            && set_operation(wr, qp, &send.operation).is_ok()
    });
    if !made || !qp.is_in(QpState::Rts) {
        return list.iter().take_while(|send| post_send(qp, send, None).is_ok()).count();
    }
    for at in (1..list.len()).rev() {
        let next = ptr::from_mut(&mut requests[at]);
        requests[at - 1].next = next;
    }
    let mut bad = ptr::null_mut();
    // SAFETY: a living queue pair, and as many requests as the list has, at least one, of written
    // entries, of which the last names no next; the caller holds the regions of their keys.
    let result = unsafe { (qp.post_send)(qp.qp.as_ptr(), requests.as_mut_ptr(), &raw mut bad) };
    let posted = match result {
        0 => list.len(),
        _ => taken_before(bad, &requests, list.len()),
    };
    let _ = has_taken(qp, posted > 0);
    posted
}

/// As [`post_send`], of a message with a number, which goes inline. Whether it was posted.
#[inline(always)]
pub(super) fn post_message(qp: &VerbsQp, id: u64, imm: u32, bytes: &[u8], signaled: bool) -> bool {
    if !is_straight(qp, bytes) {
        return post_otherwise(qp, id, Operation::Send { imm: Some(imm) }, bytes, signaled);
    }
    let atomic = ffi::WrAtomic::ZERO;
    let what = (ffi::WR_SEND_WITH_IMM, imm, ffi::WrTarget { atomic });
    post_inline(qp, id, what, bytes, signaled)
}

/// As [`post_message`], of a write to an address with its key.
#[inline(always)]
pub(super) fn post_write(
    qp: &VerbsQp,
    id: u64,
    (remote, rkey): (u64, u32),
    bytes: &[u8],
    signaled: bool,
) -> bool {
    if !is_straight(qp, bytes) {
        return post_otherwise(qp, id, Operation::Write { remote, rkey }, bytes, signaled);
    }
    let rdma = ffi::WrRdma { remote_addr: remote, rkey };
    post_inline(qp, id, (ffi::WR_RDMA_WRITE, 0, ffi::WrTarget { rdma }), bytes, signaled)
}

/// Whether bytes go inline over a reliable connection that is open.
#[inline(always)]
fn is_straight(qp: &VerbsQp, bytes: &[u8]) -> bool {
    qp.is_in(QpState::Rts) && qp.qp_type == QpType::Rc && bytes.len() <= qp.inline as usize
}

/// The general way, which says what is wrong.
#[cold]
#[inline(never)]
fn post_otherwise(
    qp: &VerbsQp,
    id: u64,
    operation: Operation,
    bytes: &[u8],
    signaled: bool,
) -> bool {
    let data = Data::Inline(&[bytes]);
    post_send(qp, &SendWr { id, operation, data, signaled, to: None }, None).is_ok()
}

#[inline(always)]
fn post_inline(
    qp: &VerbsQp,
    id: u64,
    (opcode, imm, target): (c_int, u32, ffi::WrTarget),
    bytes: &[u8],
    signaled: bool,
) -> bool {
    let mut part = inline_sge(bytes);
    let mut wr = ffi::SendWr {
        wr_id: id,
        next: ptr::null_mut(),
        sg_list: &raw mut part,
        num_sge: 1,
        opcode,
        send_flags: ffi::SEND_INLINE | if signaled { ffi::SEND_SIGNALED } else { 0 },
        imm_data: imm.to_be(),
        wr: target,
        remote_srqn: 0,
        rest: [0; 6],
    };
    let mut bad = ptr::null_mut();
    // SAFETY: a living queue pair and one request of one written entry, which is copied during the
    // call.
    let result = unsafe { (qp.post_send)(qp.qp.as_ptr(), &raw mut wr, &raw mut bad) };
    has_taken(qp, result == 0)
}

const AWAITS_DATA: PostError = PostError::Invalid("reads and atomics need registered memory");

/// As [`post_send`], of no part or several.
#[inline(never)]
fn post_parts(qp: &VerbsQp, send: &SendWr<'_>, queue: Option<u32>) -> Result<(), PostError> {
    let mut fragments = [const { MaybeUninit::<ffi::Sge>::uninit() }; FRAGMENTS];
    let (count, flags) = match send.data {
        Data::Gather(list) => {
            if list.len() > qp.send_sge as usize {
                return Err(PostError::Invalid("more fragments than the queue pair gathers"));
            }
            for (to, from) in fragments.iter_mut().zip(list) {
                to.write(sge(from));
            }
            (list.len(), 0)
        }
        Data::Inline(list) => {
            if send.operation.awaits_data() {
                return Err(AWAITS_DATA);
            }
            if send.data.total() > qp.inline.into() {
                return Err(PostError::Invalid("more inline bytes than the queue pair takes"));
            }
            if list.len() > qp.send_sge as usize {
                return join_and_submit(qp, send, queue, list);
            }
            for (to, from) in fragments.iter_mut().zip(list) {
                to.write(inline_sge(from));
            }
            (list.len(), ffi::SEND_INLINE)
        }
    };
    submit(qp, send, queue, (fragments.as_mut_ptr().cast(), count), flags)
}

/// More parts than the queue pair gathers: copied together first. Their sum is below the inline
/// limit.
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
    let mut all = inline_sge(&bytes[..used]);
    submit(qp, send, queue, (&raw mut all, 1), ffi::SEND_INLINE)
}

#[inline]
fn inline_sge(part: &[u8]) -> ffi::Sge {
    let addr = part.as_ptr().expose_provenance() as u64;
    // At most the inline limit.
    let length = u32::try_from(part.len()).unwrap_or(u32::MAX);
    ffi::Sge { addr, length, lkey: 0 }
}

/// A request but for its target and what it does.
#[inline(always)]
fn request(send: &SendWr<'_>, (parts, count): (*mut ffi::Sge, usize), flags: u32) -> ffi::SendWr {
    ffi::SendWr {
        wr_id: send.id,
        next: ptr::null_mut(),
        sg_list: parts,
        num_sge: c_int::try_from(count).unwrap_or(0),
        opcode: ffi::WR_SEND,
        send_flags: flags | if send.signaled { ffi::SEND_SIGNALED } else { 0 },
        imm_data: 0,
        wr: ffi::WrTarget { atomic: ffi::WrAtomic::ZERO },
        remote_srqn: 0,
        rest: [0; 6],
    }
}

/// `count` entries from `parts` on are written, and stay until this returns.
#[inline(always)]
fn submit(
    qp: &VerbsQp,
    send: &SendWr<'_>,
    queue: Option<u32>,
    (parts, count): (*mut ffi::Sge, usize),
    flags: u32,
) -> Result<(), PostError> {
    let mut wr = request(send, (parts, count), flags);
    set_target(&mut wr, qp, send, queue)?;
    set_operation(&mut wr, qp, &send.operation)?;
    let mut bad = ptr::null_mut();
    // SAFETY: a living queue pair and one request with `count` written entries (of the callers
    // above); inline ones are copied during the call, and the caller holds the regions of the other
    // keys.
    let result = unsafe { (qp.post_send)(qp.qp.as_ptr(), &raw mut wr, &raw mut bad) };
    taken(qp, result)
}

/// Where the request goes.
#[inline(always)]
fn set_target(
    wr: &mut ffi::SendWr,
    qp: &VerbsQp,
    send: &SendWr<'_>,
    queue: Option<u32>,
) -> Result<(), PostError> {
    if qp.qp_type == QpType::Rc && send.to.is_none() && queue.is_none() {
        return Ok(());
    }
    set_other_target(wr, qp, send, queue)
}

/// As [`set_target`], of all but what a reliable connection is asked for.
#[inline(never)]
fn set_other_target(
    wr: &mut ffi::SendWr,
    qp: &VerbsQp,
    send: &SendWr<'_>,
    queue: Option<u32>,
) -> Result<(), PostError> {
    match (qp.qp_type, &send.to, queue) {
        (QpType::XrcSend, None, Some(queue)) => wr.remote_srqn = queue,
        (QpType::Ud, Some(to), None) => {
            let handle = (to.handle as &dyn Any).downcast_ref::<VerbsAh>();
            let handle = handle.filter(|handle| handle.0.is_of(qp.domain()));
            let ah = handle.ok_or(PostError::Invalid("an address of another device"))?.0.as_ptr();
            wr.wr.ud = ffi::WrUd { ah, remote_qpn: to.qpn, remote_qkey: to.qkey };
        }
        (QpType::XrcRecv, ..) => {
            return Err(PostError::Invalid("a receiver of a domain sends nothing"));
        }
        (QpType::XrcSend, _, None) => {
            return Err(PostError::Invalid("the receive queue at the peer is not named"));
        }
        (_, _, Some(_)) if qp.qp_type != QpType::XrcSend => {
            return Err(PostError::Invalid(
                "only extended reliable connections name a receive queue",
            ));
        }
        (_, Some(_), _) => return Err(PostError::Invalid("a reliable connection has one peer")),
        (QpType::Rc, None, None) => {}
        (_, None, _) => return Err(PostError::Invalid("a datagram needs an address")),
    }
    Ok(())
}

/// What the request does.
#[inline(always)]
fn set_operation(
    wr: &mut ffi::SendWr,
    qp: &VerbsQp,
    operation: &Operation,
) -> Result<(), PostError> {
    match *operation {
        Operation::Send { imm: None } => {}
        Operation::Send { imm: Some(imm) } => {
            wr.opcode = ffi::WR_SEND_WITH_IMM;
            wr.imm_data = imm.to_be();
        }
        _ if qp.qp_type == QpType::Ud => {
            return Err(PostError::Invalid("datagrams are only sent"));
        }
        Operation::Write { remote, rkey } => {
            wr.opcode = ffi::WR_RDMA_WRITE;
            wr.wr.rdma = ffi::WrRdma { remote_addr: remote, rkey };
        }
        Operation::WriteImm { remote, rkey, imm } => {
            wr.opcode = ffi::WR_RDMA_WRITE_WITH_IMM;
            wr.imm_data = imm.to_be();
            wr.wr.rdma = ffi::WrRdma { remote_addr: remote, rkey };
        }
        Operation::Read { remote, rkey } => {
            wr.opcode = ffi::WR_RDMA_READ;
            wr.wr.rdma = ffi::WrRdma { remote_addr: remote, rkey };
        }
        Operation::FetchAdd { remote, rkey, add } => {
            check_atomic(qp, remote)?;
            wr.opcode = ffi::WR_ATOMIC_FETCH_AND_ADD;
            wr.wr.atomic = ffi::WrAtomic { remote_addr: remote, compare_add: add, swap: 0, rkey };
        }
        Operation::CompareSwap { remote, rkey, compare, swap } => {
            check_atomic(qp, remote)?;
            wr.opcode = ffi::WR_ATOMIC_CMP_AND_SWP;
            wr.wr.atomic = ffi::WrAtomic { remote_addr: remote, compare_add: compare, swap, rkey };
        }
    }
    Ok(())
}

fn check_atomic(qp: &VerbsQp, remote: u64) -> Result<(), PostError> {
    if !qp.domain().caps.has_atomics() {
        return Err(PostError::Invalid("the device has no atomics"));
    }
    // Providers differ in who refuses this.
    if !remote.is_multiple_of(8) {
        return Err(PostError::Invalid("an atomic needs an address that is a multiple of 8"));
    }
    Ok(())
}
