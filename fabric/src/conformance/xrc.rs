//! Extended reliable connections: one connection for several receivers.

use std::os::fd::AsFd;
use std::sync::Arc;

use super::Side;
use super::memory::Buffer;
use super::rig::{Done, Rig, ensure, fail, good, one, pattern, silent, skip};
use crate::{
    Access, CompletionQueue, Data, Device, Error, Opcode, Operation, PostError, QpSpec, QpState,
    QpType, QueuePair, RcPeer, RecvWr, Retry, SendWr, SharedReceiveQueue, Status, XrcDomain,
};

const SEND: Operation = Operation::Send { imm: None };

/// The domain of a side, or what its device says that it lacks.
fn domain(rig: &Rig) -> Done<Arc<dyn XrcDomain>> {
    let domain = rig.device.xrc_domain(None);
    if rig.device.caps().xrc {
        return Ok(domain?);
    }
    match domain {
        Err(Error::Unsupported { device, what }) => Err(skip(format!("{device} has no {what}"))),
        other => Err(fail(format!("caps say that there is no XRC, a domain says {other:?}"))),
    }
}

/// Both halves of a side's connection, towards the other side.
struct Pair {
    sender: Arc<dyn QueuePair>,
    receiver: Arc<dyn QueuePair>,
    sent: Arc<dyn CompletionQueue>,
    retry: Retry,
}

/// A receive queue of a domain with the completion queue that it reports to.
struct Inbox {
    queue: Arc<dyn SharedReceiveQueue>,
    got: Arc<dyn CompletionQueue>,
    number: u32,
}

impl Inbox {
    fn new(device: &dyn Device, domain: &dyn XrcDomain, depth: u32) -> Done<Self> {
        let got = device.completion_queue(64, None)?;
        let queue = domain.receive_queue(depth, &got)?;
        let number = queue.number().ok_or_else(|| fail("a queue of a domain has no number"))?;
        ensure!(queue.depth() >= depth, "{} entries of {depth}", queue.depth());
        ensure!((1..1 << 24).contains(&number), "queue number {number:#x}");
        Ok(Self { queue, got, number })
    }

    fn receive(&self, id: u64, buffer: &Buffer, offset: usize, len: usize) -> Done {
        Ok(self.queue.post(&RecvWr { id, buffer: buffer.sge(offset, len) })?)
    }
}

impl Pair {
    /// Not connected yet.
    fn new(rig: &Rig, domain: &dyn XrcDomain, retry: Retry) -> Done<Self> {
        let sent = rig.device.completion_queue(64, None)?;
        let sender = rig.device.queue_pair(&QpSpec {
            qp_type: QpType::XrcSend,
            send_cq: &sent,
            recv_cq: &sent,
            srq: None,
            max_send: 16,
            max_recv: 0,
            send_sge: 2,
            recv_sge: 1,
            inline: 64,
        })?;
        Ok(Self { sender, receiver: domain.receiver(None)?, sent, retry })
    }

    /// Each half to the other side's other half.
    fn connect(&self, side: &mut Side<'_>, rig: &Rig) -> Done {
        let numbers = [self.sender.number(), self.receiver.number()].map(u64::from);
        let mut words = rig.words_of(&*self.sender);
        words.extend(numbers);
        let theirs = side.swap(&words)?;
        let (place, numbers) = theirs.split_at(theirs.len().min(7));
        let (sender, receiver) = (number(numbers, 0)?, number(numbers, 1)?);
        let peer = rig.peer(place)?;
        let port = rig.port.number;
        // What the receiver gets begins with the sequence number of the sender, which does not get
        // anything.
        self.receiver.to_init(port, 0, 0, Access::ALL.known(&*rig.device))?;
        self.receiver.to_rtr(Some(&RcPeer { qpn: sender, ..peer }), &self.retry)?;
        self.sender.to_init(port, 0, 0, Access::NONE)?;
        self.sender.to_rtr(Some(&RcPeer { qpn: receiver, psn: 0, ..peer }), &self.retry)?;
        let psn = super::rig::psn(self.sender.number());
        self.sender.to_rts(psn, rig.rd_atom(), &self.retry)?;
        ensure!(self.sender.state() == QpState::Rts, "{:?}", self.sender.state());
        ensure!(self.receiver.state() == QpState::Rtr, "{:?}", self.receiver.state());
        side.sync()
    }

    fn post(&self, id: u64, queue: u32, operation: Operation, data: Data<'_>) -> Done {
        let send = SendWr { id, operation, data, signaled: true, to: None };
        Ok(self.sender.post_send_to(&send, queue)?)
    }

    fn ends(&self, queue: u32, operation: Operation, data: Data<'_>) -> Done<Status> {
        self.post(9, queue, operation, data)?;
        Ok(one(&self.sent)?.status)
    }
}

fn number(words: &[u64], at: usize) -> Done<u32> {
    let word = words.get(at).ok_or_else(|| fail(format!("{} words came", words.len())))?;
    Ok(u32::try_from(*word)?)
}

/// Messages, writes, reads and atomics through one connection to two queues.
pub(super) fn two_queues(side: &mut Side<'_>) -> Done {
    let rig = Rig::open(side)?;
    let domain = domain(&rig)?;
    let pair = Pair::new(&rig, &*domain, Retry::default())?;
    let inboxes = [Inbox::new(&*rig.device, &*domain, 8)?, Inbox::new(&*rig.device, &*domain, 8)?];
    let buffer = rig.buffer(4096)?;
    pair.connect(side, &rig)?;
    let numbers = inboxes.each_ref().map(|inbox| u64::from(inbox.number));
    ensure!(numbers[0] != numbers[1], "two queues have the number {}", numbers[0]);
    let theirs = side.swap(&[numbers[0], numbers[1], buffer.addr(0), buffer.rkey().into()])?;
    let (remote, rkey) = (theirs.get(2).copied().unwrap_or(0), number(&theirs, 3)?);
    for round in 0..12_u64 {
        let which = usize::from(round % 3 == 0);
        let (other, queue) = (1 - which, number(&theirs, which)?);
        let seed = round * 2 + u64::from(side.role);
        buffer.put(0, &pattern(seed, 100));
        for inbox in &inboxes {
            if round == 0 {
                inbox.receive(100, &buffer, 1024, 256)?;
            }
        }
        inboxes[which].receive(round, &buffer, 512, 256)?;
        side.sync()?;
        let imm = Some(0x0a0b_0000 | u32::try_from(round)?);
        let data = [buffer.sge(0, 100)];
        let status = pair.ends(queue, Operation::Send { imm }, Data::Gather(&data))?;
        ensure!(status == Status::Success, "round {round}: {status:?}");
        let got = one(&inboxes[which].got)?;
        ensure!(got.imm == imm && got.len == 100 && got.opcode == Opcode::Receive, "{got:?}");
        ensure!(got.qpn == pair.receiver.number(), "came through {:#x}", got.qpn);
        let place = if got.id == 100 { 1024 } else { 512 };
        let expected = pattern(round * 2 + 1 - u64::from(side.role), 100);
        ensure!(buffer.get(place, 100) == expected, "round {round}: other bytes came");
        if round > 0 {
            silent(&inboxes[other].got)?;
        }
        side.sync()?;
    }
    // Memory is that of whoever owns the queue.
    let queue = number(&theirs, 0)?;
    buffer.put(0, &pattern(77, 64));
    side.sync()?;
    let write = Operation::Write { remote: remote + 2048, rkey };
    let status = pair.ends(queue, write, Data::Inline(&[&pattern(77, 64)]))?;
    ensure!(status == Status::Success, "write: {status:?}");
    let read = Operation::Read { remote: remote + 2048, rkey };
    let status = pair.ends(queue, read, Data::Gather(&[buffer.sge(3072, 64)]))?;
    ensure!(status == Status::Success, "read: {status:?}");
    ensure!(buffer.get(3072, 64) == pattern(77, 64), "other bytes were read");
    side.sync()?;
    ensure!(buffer.get(2048, 64) == pattern(77, 64), "other bytes were written");
    if rig.device.caps().has_atomics() {
        let add = Operation::FetchAdd { remote: remote + 2560, rkey, add: 5 };
        let status = pair.ends(queue, add, Data::Gather(&[buffer.sge(2816, 8)]))?;
        ensure!(status == Status::Success, "add: {status:?}");
        side.sync()?;
        ensure!(buffer.word(2560) == 5, "{} after adding 5", buffer.word(2560));
    }
    side.sync()
}

/// Two holders of one domain: what one made is found by the other, and outlives the one who made
/// it.
pub(super) fn two_holders(side: &mut Side<'_>) -> Done {
    let rig = Rig::open(side)?;
    drop(domain(&rig)?);
    let file = file()?;
    let mate = Rig::open(side)?;
    let first = rig.device.xrc_domain(Some(file.as_fd()))?;
    let second = mate.device.xrc_domain(Some(file.as_fd()))?;
    drop(file);
    let pair = Pair::new(&rig, &*first, Retry::default())?;
    // The second holder finds the receiver before and after its changes of state.
    let early = second.receiver(Some(pair.receiver.number()))?;
    ensure!(early.state() == QpState::Reset, "found in {:?}", early.state());
    pair.connect(side, &rig)?;
    let late = second.receiver(Some(pair.receiver.number()))?;
    for found in [&early, &late] {
        ensure!(found.number() == pair.receiver.number(), "{:#x}", found.number());
        ensure!(found.state() == QpState::Rtr, "found in {:?}", found.state());
        let again = found.to_init(rig.port.number, 0, 0, Access::NONE);
        ensure!(again.is_err(), "a receiver in RTR goes to INIT");
    }
    let other_domain = rig.device.xrc_domain(None)?;
    let found = other_domain.receiver(Some(pair.receiver.number()));
    ensure!(found.is_err(), "a receiver of another domain is found");
    let inboxes = [Inbox::new(&*rig.device, &*first, 8)?, Inbox::new(&*mate.device, &*second, 8)?];
    let buffers = [rig.buffer(1024)?, mate.buffer(1024)?];
    let numbers = inboxes.each_ref().map(|inbox| u64::from(inbox.number));
    let theirs = side.swap(&numbers)?;
    let Pair { sender, receiver, sent, retry } = pair;
    let mut others = vec![receiver, early];
    for round in 0..4_u64 {
        if round == 2 {
            // Now the second holder keeps it alone.
            others.clear();
        }
        for (which, (inbox, buffer)) in inboxes.iter().zip(&buffers).enumerate() {
            inbox.receive(round, buffer, 512, 256)?;
            side.sync()?;
            buffers[0].put(0, &pattern(round + which as u64, 32));
            let data = Data::Gather(&[buffers[0].sge(0, 32)]);
            let send = SendWr { id: 1, operation: SEND, data, signaled: true, to: None };
            sender.post_send_to(&send, number(&theirs, which)?)?;
            let ended = one(&sent)?.status;
            ensure!(ended == Status::Success, "round {round}, queue {which}: {ended:?}");
            let got = one(&inbox.got)?;
            ensure!(got.status == Status::Success && got.qpn == late.number(), "{got:?}");
            ensure!(buffer.get(512, 32) == pattern(round + which as u64, 32), "other bytes came");
            side.sync()?;
        }
    }
    drop(late);
    side.sync()?;
    // The last holder is gone, and with it the connection.
    let data = Data::Gather(&[buffers[0].sge(0, 32)]);
    let pair = Pair { sender, receiver: second.receiver(None)?, sent, retry };
    let ended = pair.ends(number(&theirs, 0)?, SEND, data)?;
    ensure!(ended == Status::RetryExceeded, "to nobody: {ended:?}");
    side.sync()
}

/// A file that has no name any more.
fn file() -> Done<std::fs::File> {
    let fd = nix::sys::memfd::memfd_create(c"xrc", nix::sys::memfd::MFdFlags::MFD_CLOEXEC);
    Ok(fd.map_err(|errno| fail(format!("memory with a descriptor: {errno}")))?.into())
}

/// A queue without buffers holds its senders up; what it gets then is complete and in order.
pub(super) fn not_ready(side: &mut Side<'_>) -> Done {
    let rig = Rig::open(side)?;
    let domain = domain(&rig)?;
    let pair = Pair::new(&rig, &*domain, Retry::default())?;
    let inbox = Inbox::new(&*rig.device, &*domain, 4)?;
    let buffer = rig.buffer(4096)?;
    pair.connect(side, &rig)?;
    let theirs = side.swap(&[inbox.number.into()])?;
    let queue = number(&theirs, 0)?;
    for n in 0..6_usize {
        buffer.put(n * 8, &(n as u64).to_le_bytes());
        pair.post(n as u64, queue, SEND, Data::Gather(&[buffer.sge(n * 8, 8)]))?;
    }
    silent(&pair.sent)?;
    side.sync()?;
    for n in 0..6_u64 {
        inbox.receive(n, &buffer, 1024, 8)?;
        let got = one(&inbox.got)?;
        ensure!(got.id == n && got.status == Status::Success, "{got:?}");
        ensure!(u64::from_le(buffer.word(1024)) == n, "{} instead of {n}", buffer.word(1024));
    }
    for (n, ended) in good(&pair.sent, 6)?.iter().enumerate() {
        ensure!(ended.id == n as u64, "send {n} ended as {ended:?}");
    }
    side.sync()?;
    let patient = Retry { rnr: 1, ..Retry::default() };
    let pair = Pair::new(&rig, &*domain, patient)?;
    pair.connect(side, &rig)?;
    let ended = pair.ends(queue, SEND, Data::Gather(&[buffer.sge(0, 8)]))?;
    ensure!(ended == Status::RnrRetryExceeded, "{ended:?}");
    side.sync()
}

/// Wrong numbers and wrong uses.
pub(super) fn refused(side: &mut Side<'_>) -> Done {
    let rig = Rig::open(side)?;
    let domain = domain(&rig)?;
    let buffer = rig.buffer(64)?;
    let inbox = Inbox::new(&*rig.device, &*domain, 4)?;
    let foreign = rig.device.xrc_domain(None)?;
    let foreign_inbox = Inbox::new(&*rig.device, &*foreign, 4)?;
    foreign_inbox.receive(1, &buffer, 0, 8)?;
    let bogus = inbox.number.max(foreign_inbox.number) + 0x1234;
    for (name, queue) in [("of another domain", foreign_inbox.number), ("of nobody", bogus)] {
        let pair = Pair::new(&rig, &*domain, Retry::default())?;
        pair.connect(side, &rig)?;
        let queue = number(&side.swap(&[queue.into()])?, 0)?;
        if side.role == 0 {
            let ended = pair.ends(queue, SEND, Data::Gather(&[buffer.sge(0, 8)]))?;
            let right = [Status::RemoteInvalid, Status::RemoteOperation].contains(&ended);
            ensure!(right, "to a queue {name}: {ended:?}");
        }
        side.sync()?;
        silent(&foreign_inbox.got)?;
    }
    let pair = Pair::new(&rig, &*domain, Retry::default())?;
    pair.connect(side, &rig)?;
    let invalid = |what: &str, posted: Result<(), PostError>| {
        ensure!(matches!(posted, Err(PostError::Invalid(_))), "{what}: {posted:?}");
        Ok(())
    };
    let data = Data::Gather(&[]);
    let send = SendWr { id: 1, operation: SEND, data, signaled: true, to: None };
    let receive = RecvWr { id: 1, buffer: buffer.sge(0, 8) };
    invalid("a send that names no queue", pair.sender.post_send(&send))?;
    invalid("a receive of a sender", pair.sender.post_receive(&receive))?;
    invalid("a receive of a receiver", pair.receiver.post_receive(&receive))?;
    let sends = pair.receiver.post_send(&send);
    ensure!(sends.is_err(), "a receiver sends");
    let plain = rig.end(&super::rig::Plan::default())?;
    let named = plain.qp.post_send_to(&send, inbox.number);
    ensure!(named.is_err(), "a plain connection names a queue");
    let found = domain.receiver(Some(bogus));
    ensure!(found.is_err(), "receiver {bogus:#x} is found");
    let beyond = rig.device.caps().max_srq_wr.checked_add(1);
    let cq = rig.device.completion_queue(8, None)?;
    let deep = beyond.map(|depth| domain.receive_queue(depth, &cq));
    ensure!(!matches!(deep, Some(Ok(_))), "deeper than the limit is taken");
    side.sync()
}
