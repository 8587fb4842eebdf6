//! Shared receive queues.

use super::Side;
use super::rig::{Done, End, Plan, Rig, ensure, fail, one, pattern, skip};
use crate::{PostError, RecvWr, Status};

fn has_srq(rig: &Rig) -> Done {
    if rig.device.caps().max_srq_wr == 0 {
        return Err(skip("no shared receive queues"));
    }
    Ok(())
}

pub(super) fn two_on_one(side: &mut Side<'_>) -> Done {
    let rig = Rig::open(side)?;
    has_srq(&rig)?;
    let srq = rig.device.shared_receive_queue(40)?;
    ensure!(srq.depth() >= 40, "{} entries of 40", srq.depth());
    let plan = Plan { srq: (side.role == 1).then(|| srq.clone()), ..Plan::default() };
    let buffer = rig.buffer(64 << 10)?;
    let ends = [rig.connected(side, &plan)?, rig.connected(side, &plan)?];
    let each = 20_u64;
    if side.role == 1 {
        let all: Vec<RecvWr> = (0..2 * each)
            .map(|id| Ok(RecvWr { id, buffer: buffer.sge(usize::try_from(id)? * 64, 64) }))
            .collect::<Done<_>>()?;
        let posted = srq.post_list(&all);
        ensure!(posted == all.len(), "{posted} of {} in lists", all.len());
        for end in &ends {
            let refused = end.qp.post_receive(&RecvWr { id: 0, buffer: buffer.sge(0, 8) });
            ensure!(refused.is_err(), "a receive beside the shared queue is taken");
        }
        side.sync()?;
        for end in &ends {
            for n in 0..each {
                let got = one(&end.got)?;
                let right = got.status == Status::Success && got.qpn == end.qp.number();
                ensure!(right && got.len == 64, "message {n}: {got:?}");
                let at = usize::try_from(got.id)? * 64;
                ensure!(buffer.get(at, 64) == pattern(n, 64), "message {n}: other bytes");
            }
        }
    } else {
        side.sync()?;
        for n in 0..each {
            let at = usize::try_from(n)? * 64;
            buffer.put(at, &pattern(n, 64));
            for end in &ends {
                end.send(n, &buffer, at, 64)?;
                let sent = one(&end.sent)?;
                ensure!(sent.status == Status::Success && sent.id == n, "{sent:?}");
            }
        }
    }
    side.sync()?;
    // Full at its depth, not before.
    let srq = rig.device.shared_receive_queue(8)?;
    let receive = RecvWr { id: 0, buffer: buffer.sge(0, 8) };
    for n in 0..srq.depth() {
        srq.post(&receive).map_err(|e| fail(format!("{n} of {}: {e}", srq.depth())))?;
    }
    let room = srq.depth() * 2 + 64;
    let more = srq.post_list(&vec![receive; room as usize]);
    ensure!(more < room as usize, "{room} more in a queue for {}", srq.depth());
    ensure!(srq.post(&receive) == Err(PostError::Full), "one more after {more} of {room}");
    let beyond = rig.device.caps().max_srq_wr.checked_add(1);
    let refused = beyond.map(|depth| rig.device.shared_receive_queue(depth));
    ensure!(!matches!(refused, Some(Ok(_))), "deeper than the limit is taken");
    side.sync()
}

pub(super) fn refill(side: &mut Side<'_>) -> Done {
    let rig = Rig::open(side)?;
    has_srq(&rig)?;
    let srq = rig.device.shared_receive_queue(4)?;
    let plan = Plan { srq: (side.role == 1).then(|| srq.clone()), sends: 8, ..Plan::default() };
    let ends: Vec<End> = (0..3).map(|_| rig.connected(side, &plan)).collect::<Done<_>>()?;
    let buffer = rig.buffer(4096)?;
    let each = 60_u64;
    if side.role == 1 {
        for id in 0..4_usize {
            srq.post(&RecvWr { id: id as u64, buffer: buffer.sge(id * 8, 8) })?;
        }
    }
    side.sync()?;
    if side.role == 0 {
        for n in 0..each {
            // All of them at once: together more than the receiver has buffers.
            for (index, end) in ends.iter().enumerate() {
                buffer.put(index * 8, &n.to_le_bytes());
                end.send(n, &buffer, index * 8, 8)?;
            }
            for end in &ends {
                let sent = one(&end.sent)?;
                ensure!(sent.status == Status::Success, "message {n}: {sent:?}");
            }
        }
        return side.sync();
    }
    let mut next = [0; 3];
    let mut some = [crate::Completion::EMPTY; 4];
    let until = std::time::Instant::now() + super::COMPLETION;
    while next != [each; 3] {
        ensure!(std::time::Instant::now() < until, "{next:?} of {each} came");
        for (end, next) in ends.iter().zip(&mut next) {
            for n in 0..end.got.poll(&mut some)? {
                let got = some.get(n).copied().unwrap_or(crate::Completion::EMPTY);
                ensure!(got.status == Status::Success, "{got:?}");
                let at = usize::try_from(got.id)? * 8;
                let seen = u64::from_le(buffer.word(at));
                ensure!(seen == *next, "message {seen} instead of {next}");
                *next += 1;
                srq.post(&RecvWr { id: got.id, buffer: buffer.sge(at, 8) })?;
            }
        }
        std::thread::yield_now();
    }
    side.sync()
}
