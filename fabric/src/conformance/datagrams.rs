//! Datagrams. They may be lost, so each is tried a few times; whether it arrived the receiver says.

use std::time::{Duration, Instant};

use super::Side;
use super::memory::Buffer;
use super::rig::{Done, End, Plan, Rig, ensure, good, one, pattern, persist, silent, skip};
use crate::{
    Access, AddressHandle, Completion, Data, Opcode, Operation, PostError, QpType, RcPeer, Retry,
    SendWr, Status, UdTarget,
};

const QKEY: u32 = 0x0011_2233;
const GRH: usize = 40;
const TRIES: u32 = 5;

/// A datagram queue pair that knows its counterpart.
struct Post {
    rig: Rig,
    end: End,
    handle: std::sync::Arc<dyn AddressHandle>,
    peer: RcPeer,
    mtu: usize,
}

fn post(side: &mut Side<'_>, receives: u32) -> Done<Post> {
    let rig = Rig::open(side)?;
    let plan = Plan { qp_type: QpType::Ud, inline: 64, receives, depth: 512, ..Plan::default() };
    let end = rig.end(&plan)?;
    end.qp.to_init(rig.port.number, 0, QKEY, Access::LOCAL_WRITE)?;
    end.qp.to_rtr(None, &Retry::default())?;
    end.qp.to_rts(0, 0, &Retry::default())?;
    let theirs = side.swap(&rig.words(&end))?;
    let peer = rig.peer(&theirs)?;
    let handle = rig.handle(&peer)?;
    let mtu = peer.mtu.bytes() as usize;
    Ok(Post { rig, end, handle, peer, mtu })
}

impl Post {
    fn send(&self, qkey: u32, imm: Option<u32>, data: Data<'_>) -> Result<(), PostError> {
        let to = Some(UdTarget { handle: &*self.handle, qpn: self.peer.qpn, qkey });
        let operation = Operation::Send { imm };
        self.end.qp.post_send(&SendWr { id: 9, operation, data, signaled: true, to })
    }

    /// Sends and takes the completion, which does not depend on the receiver.
    fn sends(&self, qkey: u32, imm: Option<u32>, data: Data<'_>) -> Done {
        self.send(qkey, imm, data)?;
        let sent = one(&self.end.sent)?;
        let right = sent.id == 9 && sent.status == Status::Success && sent.opcode == Opcode::Send;
        ensure!(right, "{sent:?}");
        Ok(())
    }

    fn arrived(&self, within: Duration) -> Done<Option<Completion>> {
        let until = Instant::now() + within;
        let mut some = [Completion::EMPTY; 1];
        while Instant::now() < until {
            if self.end.got.poll(&mut some)? == 1 {
                return Ok(some.first().copied());
            }
            std::thread::yield_now();
        }
        Ok(None)
    }

    /// Role `from` sends until the other one has it; the receiver's completion.
    fn deliver(
        &self,
        side: &mut Side<'_>,
        from: u8,
        into: (&Buffer, usize),
        mut send: impl FnMut() -> Done,
    ) -> Done<Option<Completion>> {
        if side.role != from {
            self.end.receive(3, into.0, 0, into.1)?;
        }
        for _ in 0..TRIES {
            side.sync()?;
            let got = if side.role == from {
                send()?;
                None
            } else {
                self.arrived(Duration::from_secs(2))?
            };
            let theirs = side.swap(&[u64::from(got.is_some())])?;
            if got.is_some() || theirs == [1] {
                return Ok(got);
            }
        }
        Err(super::fail(format!("none of {TRIES} datagrams arrived")))
    }
}

pub(super) fn datagrams(side: &mut Side<'_>) -> Done {
    let post = post(side, 16)?;
    let (source, target) = (post.rig.buffer(4096)?, post.rig.buffer(8192)?);
    let mut sizes = vec![(0, None), (1, Some(7)), (40, None), (200, Some(u32::MAX))];
    sizes.extend([(post.mtu - 1, None), (post.mtu, Some(0))]);
    for from in [0, 1] {
        for &(size, imm) in &sizes {
            source.put(0, &pattern(size as u64, size));
            target.fill(0x11);
            let pieces = [source.sge(0, size)];
            let pieces = if size == 0 { &[][..] } else { &pieces };
            let room = (&target, GRH + size);
            let sent = || post.sends(QKEY, imm, Data::Gather(pieces));
            if let Some(got) = post.deliver(side, from, room, sent)? {
                check(&post, &got, size, imm)?;
                ensure!(target.get(GRH, size) == pattern(size as u64, size), "{size}: other bytes");
                ensure!(target.get(GRH + size, 64) == [0x11; 64], "{size}: more was written");
            }
        }
    }
    let most = post.end.qp.max_inline() as usize;
    let most = most.min(usize::try_from(side.swap(&[most as u64])?.first().map_or(0, |&n| n))?);
    if most > 0 {
        let size = most.min(post.mtu);
        let bytes = pattern(5, size);
        let sent = || post.sends(QKEY, None, Data::Inline(&[&bytes]));
        if let Some(got) = post.deliver(side, 0, (&target, 8192), sent)? {
            check(&post, &got, size, None)?;
            ensure!(target.get(GRH, size) == bytes, "inline: other bytes");
        }
    }
    let nowhere = Operation::Send { imm: None };
    let refused = post.end.try_post(1, nowhere, Data::Gather(&[source.sge(0, 8)]));
    ensure!(refused.is_err(), "a datagram to nobody is taken");
    side.sync()
}

fn check(post: &Post, got: &Completion, size: usize, imm: Option<u32>) -> Done {
    let right = got.id == 3 && got.status == Status::Success && got.opcode == Opcode::Receive;
    ensure!(right && got.imm == imm, "{size} bytes: {got:?}");
    ensure!(got.len as usize == GRH + size, "{size} bytes came as {}", got.len);
    ensure!(got.source_qpn == post.peer.qpn, "{size} bytes from {:#x}", got.source_qpn);
    ensure!(got.qpn == post.end.qp.number(), "{size} bytes for {:#x}", got.qpn);
    Ok(())
}

/// Role 0 sends something that must not arrive, then something that must be the first to arrive.
fn dropped(side: &mut Side<'_>, post: &Post, bad: impl FnOnce() -> Done) -> Done {
    let (source, target) = (post.rig.buffer(64)?, post.rig.buffer(8192)?);
    if side.role == 1 {
        post.end.receive(3, &target, 0, 8192)?;
    }
    side.sync()?;
    if side.role == 0 {
        bad()?;
    }
    side.sync()?;
    if side.role == 1 {
        silent(&post.end.got)?;
        // Takes the receive back; it could not be told from the next one.
        post.end.qp.to_error()?;
        let status = one(&post.end.got)?.status;
        ensure!(status == Status::Flushed, "{status:?}");
        post.end.qp.to_reset()?;
        post.end.qp.to_init(post.rig.port.number, 0, QKEY, Access::LOCAL_WRITE)?;
        post.end.qp.to_rtr(None, &Retry::default())?;
        post.end.qp.to_rts(0, 0, &Retry::default())?;
    }
    source.put(0, &pattern(1, 64));
    let sent = || post.sends(QKEY, None, Data::Gather(&[source.sge(0, 64)]));
    if let Some(got) = post.deliver(side, 0, (&target, 8192), sent)? {
        check(post, &got, 64, None)?;
    }
    side.sync()
}

pub(super) fn wrong_key(side: &mut Side<'_>) -> Done {
    let post = post(side, 16)?;
    let source = post.rig.buffer(64)?;
    let bad = || post.sends(QKEY + 1, None, Data::Gather(&[source.sge(0, 64)]));
    dropped(side, &post, bad)?;
    let other = Plan { qp_type: QpType::Ud, ..Plan::default() };
    drop(post.rig.end(&other)?);
    Ok(())
}

pub(super) fn limit(side: &mut Side<'_>) -> Done {
    let post = post(side, 16)?;
    let source = post.rig.buffer(8192)?;
    if post.mtu >= 8192 {
        return Err(skip("no limit"));
    }
    dropped(side, &post, || {
        let long = source.sge(0, post.mtu + 1);
        match post.send(QKEY, None, Data::Gather(&[long])) {
            Err(error) => {
                ensure!(error != PostError::Full, "full with nothing posted");
                Ok(())
            }
            // Soft-RoCE sends nothing and says that it did.
            Ok(()) => {
                let status = one(&post.end.sent)?.status;
                let usual = matches!(status, Status::Success | Status::LocalLength);
                ensure!(usual, "{} bytes: {status:?}", post.mtu + 1);
                Ok(())
            }
        }
    })
}

pub(super) fn no_buffer(side: &mut Side<'_>) -> Done {
    let post = post(side, 16)?;
    let (source, target) = (post.rig.buffer(64)?, post.rig.buffer(8192)?);
    if side.role == 0 {
        for _ in 0..3 {
            post.sends(QKEY, Some(1), Data::Gather(&[source.sge(0, 64)]))?;
        }
    }
    side.sync()?;
    std::thread::sleep(super::SILENCE);
    if side.role == 1 {
        // The software adapter takes them from its socket during this poll.
        silent(&post.end.got)?;
    }
    let sent = || post.sends(QKEY, Some(2), Data::Gather(&[source.sge(0, 64)]));
    if let Some(got) = post.deliver(side, 0, (&target, 8192), sent)? {
        check(&post, &got, 64, Some(2))?;
    }
    side.sync()
}

pub(super) fn many(side: &mut Side<'_>) -> Done {
    let (rounds, burst) = (8_u32, 24_u32);
    let post = post(side, burst)?;
    let size = post.mtu.min(1000);
    let room = GRH + size;
    let (source, target) = (post.rig.buffer(4096)?, post.rig.buffer(room * burst as usize)?);
    source.put(0, &pattern(4, size));
    let mut free: Vec<u64> = (0..burst.into()).collect();
    let mut seen = Vec::new();
    for round in 0..rounds {
        if side.role == 1 {
            for id in free.drain(..) {
                post.end.receive(id, &target, usize::try_from(id)? * room, room)?;
            }
        }
        side.sync()?;
        if side.role == 0 {
            for n in 0..burst {
                let data = [source.sge(0, size)];
                persist(|| post.send(QKEY, Some(round * burst + n), Data::Gather(&data)))?;
                good(&post.end.sent, 1)?;
            }
        }
        side.sync()?;
        while side.role == 1 && free.len() < burst as usize {
            let Some(got) = post.arrived(Duration::from_millis(300))? else { break };
            ensure!(got.status == Status::Success && got.len as usize == room, "{got:?}");
            let at = usize::try_from(got.id)? * room + GRH;
            ensure!(target.get(at, size) == pattern(4, size), "{got:?}: other bytes");
            free.push(got.id);
            seen.push(got.imm);
        }
    }
    let count = (rounds * burst) as usize;
    let came = seen.len();
    seen.sort_unstable();
    seen.dedup();
    ensure!(seen.len() == came, "{} of {came} datagrams came twice", came - seen.len());
    ensure!(side.role == 0 || came * 2 >= count, "{came} of {count} datagrams came");
    side.sync()
}
