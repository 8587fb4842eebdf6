//! What the cases are built from: an opened port, queue pairs with their queues, waits with a
//! deadline.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::memory::Buffer;
use super::{COMPLETION, SILENCE, Side};
use crate::{
    Access, Address, AddressHandle, Channel, Completion, CompletionQueue, Data, Device, Error, Gid,
    GidEntry, GidKind, LinkLayer, Mtu, Opcode, Operation, PortInfo, PostError, QpSpec, QpType,
    QueuePair, RcPeer, RecvWr, Retry, SendWr, SharedReceiveQueue, Status,
};

/// Why a case ended early.
#[derive(Debug)]
pub(super) enum Stop {
    Skip(String),
    Fail(String),
}

/// A failure with the place in the suite where it was seen.
#[track_caller]
pub(super) fn fail(text: impl Into<String>) -> Stop {
    let place = std::panic::Location::caller();
    let file = place.file().rsplit('/').next().unwrap_or_default();
    Stop::Fail(format!("{} ({file}:{})", text.into(), place.line()))
}

pub(super) fn skip(reason: impl Into<String>) -> Stop {
    Stop::Skip(reason.into())
}

impl From<String> for Stop {
    #[track_caller]
    fn from(text: String) -> Self {
        fail(text)
    }
}

impl From<Error> for Stop {
    #[track_caller]
    fn from(error: Error) -> Self {
        fail(error.to_string())
    }
}

impl From<PostError> for Stop {
    #[track_caller]
    fn from(error: PostError) -> Self {
        fail(format!("post: {error}"))
    }
}

impl From<std::num::TryFromIntError> for Stop {
    #[track_caller]
    fn from(error: std::num::TryFromIntError) -> Self {
        fail(error.to_string())
    }
}

macro_rules! ensure {
    ($condition:expr, $($text:tt)+) => {
        if !$condition {
            return Err($crate::conformance::rig::fail(format!($($text)+)));
        }
    };
}
pub(super) use ensure;

pub(super) type Done<T = ()> = Result<T, Stop>;

/// An opened device with the port that the side uses.
pub(super) struct Rig {
    pub(super) device: Arc<dyn Device>,
    pub(super) port: PortInfo,
    sgid: GidEntry,
}

/// How to make an [`End`].
#[derive(Clone)]
pub(super) struct Plan {
    pub(super) qp_type: QpType,
    pub(super) sends: u32,
    pub(super) receives: u32,
    pub(super) gather: u32,
    pub(super) inline: u32,
    pub(super) depth: u32,
    pub(super) channel: bool,
    pub(super) retry: Retry,
    pub(super) access: Access,
    pub(super) srq: Option<Arc<dyn SharedReceiveQueue>>,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            qp_type: QpType::Rc,
            sends: 32,
            receives: 32,
            gather: 1,
            inline: 0,
            depth: 128,
            channel: false,
            retry: Retry::default(),
            access: Access::ALL,
            srq: None,
        }
    }
}

/// A queue pair with its own queues.
pub(super) struct End {
    pub(super) qp: Arc<dyn QueuePair>,
    pub(super) sent: Arc<dyn CompletionQueue>,
    pub(super) got: Arc<dyn CompletionQueue>,
    pub(super) channel: Option<Arc<dyn Channel>>,
    retry: Retry,
    access: Access,
}

impl Rig {
    pub(super) fn open(side: &Side<'_>) -> Done<Self> {
        Self::open_device(side, side.device)
    }

    pub(super) fn open_device(side: &Side<'_>, index: usize) -> Done<Self> {
        let device = side.fabric.open(index)?;
        let port = device.port(side.port)?;
        let mapped = |entry: &&GidEntry| entry.gid.ip().is_ipv4();
        let modern = |entry: &&GidEntry| entry.kind != GidKind::IbOrRoceV1;
        let best = port.gids.iter().find(|entry| modern(entry) && mapped(entry));
        let best = best.or_else(|| port.gids.iter().find(modern)).or(port.gids.first());
        let none = || fail(format!("port {} has no GID", port.number));
        let sgid = *best.ok_or_else(none)?;
        Ok(Self { device, port, sgid })
    }

    /// Where this port is, for the other side.
    pub(super) fn address(&self) -> Address {
        Address {
            lid: self.port.lid,
            service: self.port.service,
            gid: self.sgid.gid,
            sgid_index: self.sgid.index,
            global: self.port.link == LinkLayer::Ethernet || self.port.lid == 0,
        }
    }

    pub(super) fn buffer(&self, len: usize) -> Done<Buffer> {
        Ok(Buffer::new(&*self.device, len, Access::ALL.known(&*self.device))?)
    }

    pub(super) fn end(&self, plan: &Plan) -> Done<End> {
        let channel = if plan.channel { Some(self.device.channel()?) } else { None };
        let sent = self.device.completion_queue(plan.depth, channel.as_ref())?;
        let got = self.device.completion_queue(plan.depth, channel.as_ref())?;
        let qp = self.device.queue_pair(&QpSpec {
            qp_type: plan.qp_type,
            send_cq: &sent,
            recv_cq: &got,
            srq: plan.srq.as_ref(),
            max_send: plan.sends,
            max_recv: if plan.srq.is_some() { 0 } else { plan.receives },
            send_sge: plan.gather,
            recv_sge: 1,
            inline: plan.inline,
        })?;
        let access = plan.access.known(&*self.device);
        Ok(End { qp, sent, got, channel, retry: plan.retry, access })
    }

    /// Fresh queue pairs on both sides, connected, ready to send.
    pub(super) fn connected(&self, side: &mut Side<'_>, plan: &Plan) -> Done<End> {
        let end = self.end(plan)?;
        self.connect(side, &end)?;
        Ok(end)
    }

    /// Takes both sides' queue pairs from RESET to RTS.
    pub(super) fn connect(&self, side: &mut Side<'_>, end: &End) -> Done {
        let theirs = side.swap(&self.words(end))?;
        let peer = self.peer(&theirs)?;
        self.join(end, &peer)?;
        side.sync()
    }

    /// Takes one queue pair from RESET to RTS towards `peer`.
    pub(super) fn join(&self, end: &End, peer: &RcPeer) -> Done {
        end.qp.to_init(self.port.number, 0, 0, end.access)?;
        end.qp.to_rtr(Some(peer), &end.retry)?;
        end.qp.to_rts(psn(end.qp.number()), self.rd_atom(), &end.retry)?;
        Ok(())
    }

    pub(super) fn rd_atom(&self) -> u8 {
        let caps = self.device.caps();
        caps.max_rd_atom.min(caps.max_init_rd_atom).min(4)
    }

    /// What the other side needs to connect to `end`.
    pub(super) fn words(&self, end: &End) -> Vec<u64> {
        self.words_of(&*end.qp)
    }

    pub(super) fn words_of(&self, qp: &dyn QueuePair) -> Vec<u64> {
        let Address { lid, service, gid, .. } = self.address();
        let (high, low) = gid.0.split_at(8);
        let half = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_be_bytes);
        let mtu = u64::from(self.port.active_mtu.bytes());
        let qpn = qp.number();
        let psn = u64::from(psn(qpn));
        vec![lid.into(), service.into(), half(high), half(low), qpn.into(), psn, mtu]
    }

    /// The queue pair that [`Self::words`] of the other side describe.
    pub(super) fn peer(&self, words: &[u64]) -> Done<RcPeer> {
        let &[lid, service, high, low, qpn, psn, mtu] = words else {
            return Err(fail(format!("{} words of an address", words.len())));
        };
        let gid: Vec<u8> = [high.to_be_bytes(), low.to_be_bytes()].concat();
        let mtu = Mtu::of_bytes(u32::try_from(mtu)?).ok_or_else(|| fail("no such MTU"))?;
        Ok(RcPeer {
            address: Address {
                lid: u16::try_from(lid)?,
                service: u16::try_from(service)?,
                gid: Gid(gid.try_into().unwrap_or_default()),
                ..self.address()
            },
            qpn: u32::try_from(qpn)?,
            psn: u32::try_from(psn)?,
            mtu: mtu.min(self.port.active_mtu),
            rd_atom: self.rd_atom(),
        })
    }

    pub(super) fn handle(&self, to: &RcPeer) -> Done<Arc<dyn AddressHandle>> {
        Ok(self.device.address_handle(self.port.number, &to.address)?)
    }
}

pub(super) fn psn(qpn: u32) -> u32 {
    qpn.wrapping_mul(977) & 0xff_ffff
}

impl Access {
    /// Without what the device cannot do.
    pub(super) fn known(self, device: &dyn Device) -> Self {
        if device.caps().has_atomics() { self } else { Self(self.0 & !Self::REMOTE_ATOMIC.0) }
    }
}

impl End {
    pub(super) fn receive(&self, id: u64, buffer: &Buffer, offset: usize, len: usize) -> Done {
        let buffer = buffer.sge(offset, len);
        persist(|| self.qp.post_receive(&RecvWr { id, buffer }))
    }

    pub(super) fn post(&self, id: u64, operation: Operation, data: Data<'_>) -> Done {
        persist(|| self.try_post(id, operation, data))
    }

    pub(super) fn try_post(
        &self,
        id: u64,
        operation: Operation,
        data: Data<'_>,
    ) -> Result<(), PostError> {
        self.qp.post_send(&SendWr { id, operation, data, signaled: true, to: None })
    }

    pub(super) fn send(&self, id: u64, buffer: &Buffer, offset: usize, len: usize) -> Done {
        self.post(id, Operation::Send { imm: None }, Data::Gather(&[buffer.sge(offset, len)]))
    }

    /// Posts and waits for the end of it, whatever it is.
    pub(super) fn ends(&self, operation: Operation, data: Data<'_>) -> Done<Completion> {
        self.post(99, operation, data)?;
        let end = one(&self.sent)?;
        ensure!(end.id == 99, "completion of {} instead of 99", end.id);
        Ok(end)
    }

    /// Posts and waits for success.
    pub(super) fn succeeds(&self, operation: Operation, data: Data<'_>) -> Done {
        let end = self.ends(operation, data)?;
        ensure!(end.status == Status::Success, "{operation:x?} ended with {:?}", end.status);
        let opcode = match operation {
            Operation::Send { .. } => Opcode::Send,
            Operation::Write { .. } | Operation::WriteImm { .. } => Opcode::Write,
            Operation::Read { .. } => Opcode::Read,
            Operation::FetchAdd { .. } => Opcode::FetchAdd,
            Operation::CompareSwap { .. } => Opcode::CompareSwap,
        };
        ensure!(end.opcode == opcode, "{operation:x?} completes as {:?}", end.opcode);
        ensure!(end.qpn == self.qp.number(), "completion of queue pair {:#x}", end.qpn);
        Ok(())
    }

    /// Everything that is posted from now on is flushed: the queue pair has failed.
    pub(super) fn has_failed(&self, buffer: &Buffer) -> Done {
        let until = Instant::now() + COMPLETION;
        loop {
            // An error that the responder's side saw may take a moment to reach the queue pair.
            match self.qp.post_receive(&RecvWr { id: 7777, buffer: buffer.sge(0, 1) }) {
                Ok(()) => break,
                Err(PostError::Full) if Instant::now() < until => {
                    let mut some = [Completion::EMPTY; 16];
                    self.got.poll(&mut some)?;
                }
                Err(error) => return Err(error.into()),
            }
        }
        loop {
            let end = one(&self.got)?;
            ensure!(end.status != Status::Success, "a receive of a failed queue pair succeeded");
            if end.id == 7777 {
                ensure!(end.status == Status::Flushed, "{:?} instead of a flush", end.status);
                return Ok(());
            }
        }
    }
}

/// Tries again while the queue is full: it may be so for a moment because another thread is in it.
#[track_caller]
pub(super) fn persist(mut post: impl FnMut() -> Result<(), PostError>) -> Done {
    let until = Instant::now() + SILENCE;
    loop {
        match post() {
            Err(PostError::Full) if Instant::now() < until => std::thread::yield_now(),
            other => return Ok(other?),
        }
    }
}

/// Waits for exactly `count` completions.
#[track_caller]
pub(super) fn wait(queue: &Arc<dyn CompletionQueue>, count: usize) -> Done<Vec<Completion>> {
    let caller = std::panic::Location::caller().line();
    let until = Instant::now() + COMPLETION;
    let mut all = Vec::with_capacity(count);
    let mut some = [Completion::EMPTY; 16];
    while all.len() < count {
        let room = some.len().min(count - all.len());
        let got = queue.poll(some.get_mut(..room).unwrap_or_default())?;
        ensure!(got <= room, "{got} completions in room for {room}");
        all.extend_from_slice(some.get(..got).unwrap_or_default());
        if got == 0 {
            let seen = all.len();
            ensure!(Instant::now() < until, "line {caller}: {seen} of {count} completions came");
            std::thread::yield_now();
        }
    }
    Ok(all)
}

/// Waits for `count` successes.
#[track_caller]
pub(super) fn good(queue: &Arc<dyn CompletionQueue>, count: usize) -> Done<Vec<Completion>> {
    let caller = std::panic::Location::caller().line();
    let all = wait(queue, count)?;
    for one in &all {
        ensure!(one.status == Status::Success, "line {caller}: {one:?}");
    }
    Ok(all)
}

/// Waits for one completion.
#[track_caller]
pub(super) fn one(queue: &Arc<dyn CompletionQueue>) -> Done<Completion> {
    let caller = std::panic::Location::caller().line();
    wait(queue, 1)?.pop().ok_or_else(|| fail(format!("line {caller}: nothing came")))
}

/// Nothing may come for a while.
#[track_caller]
pub(super) fn silent(queue: &Arc<dyn CompletionQueue>) -> Done {
    let caller = std::panic::Location::caller().line();
    let until = Instant::now() + SILENCE;
    let mut some = [Completion::EMPTY; 1];
    while Instant::now() < until {
        let got = queue.poll(&mut some)?;
        ensure!(got == 0, "line {caller}: {some:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// Bytes that depend on a seed.
pub(super) fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut out = Vec::with_capacity(len + 8);
    while out.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        out.extend_from_slice(&state.to_le_bytes());
    }
    out.truncate(len);
    out
}
