//! Connections that the ranks of a neighbourhood share (XRC), where devices have them and receive
//! queues are shared.
//!
//! The ranks of a neighbourhood that use the same ports are a *group*. A rank has one *sender* for
//! each group and queue pair of a pair of ranks, whatever the number of ranks there. A group has
//! one *receiver* for each remote rank and queue pair: whoever of the group needs it first makes
//! it, the others open it by its number, which stands in memory of the host. Each rank has its own
//! receive queues, and each request names the queue that it is for. `docs/design/xrc.md` says more.

use std::collections::HashMap;
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use bootstrap::{Bootstrap, Rank};
use fabric::{Address, QueuePair, RcPeer, Retry, SharedReceiveQueue, XrcDomain};
use settings::deadlines::net as deadlines;
use settings::log::RANK;
use settings::say;

use super::connect::MAX_NUMBERS;
use super::connect::wire::fnv1a;
use super::error::Error;
use super::members::Members;
use super::peer_addresses::{PeerAddresses, Sharing};
use super::plan::{NetPlan, RailPlan};
use super::settings::NetSettings;
use crate::transport::shm::SharedWords;

/// Numbers that a rank tells a peer for each queue pair: receive queue, receiver, sender.
pub(super) const NUMBERS: usize = 3;

/// One line on rank 0 for a user who asked for what cannot be.
pub(super) fn refused(settings: &NetSettings, members: &Members, reason: &str) {
    if settings.xrc_is_set && settings.xrc && members.rank == Rank(0) {
        say!(WARN, RANK, "GASNET_USE_XRC=1 has no effect: {reason}");
    }
}

/// Which ranks share connections. What each said stays where the host has it once, and is read
/// again when it is asked for.
#[derive(Clone, Debug)]
struct Groups {
    said: PeerAddresses,
    size: u32,
}

impl Groups {
    /// What the ranks of a range say.
    fn said(&self, ranks: Range<u32>) -> impl Iterator<Item = (Rank, Sharing)> {
        ranks.map(|rank| (Rank(rank), self.said.sharing(Rank(rank))))
    }

    fn leader(&self, rank: Rank) -> Rank {
        let own = self.said.sharing(rank);
        let mut before = self.said(own.first..rank.0);
        before.find(|(_, other)| *other == own).map_or(rank, |(first, _)| first)
    }

    fn count(&self, rank: Rank) -> u32 {
        let own = self.said.sharing(rank);
        let count = self.said(0..self.size).filter(|(_, other)| *other == own).count();
        u32::try_from(count).unwrap_or(u32::MAX).max(1)
    }

    fn is_worth_it(&self) -> bool {
        (0..self.size).map(Rank).any(|rank| self.leader(rank) != rank)
    }
}

/// The ports of a rank as a number: equal for ranks that use the same.
fn ports(rails: &[RailPlan]) -> u64 {
    let mut bytes = Vec::new();
    for rail in rails {
        let Address { gid, lid, .. } = rail.address;
        bytes.extend(gid.0.into_iter().chain(lid.to_le_bytes()).chain([rail.port]));
        bytes.extend(rail.device.info().name.bytes());
    }
    fnv1a(bytes)
}

/// A word of the table of receivers: 0, or how far a receiver is in the upper byte, and below it
/// its number once it is made.
const NOTHING: u32 = 0;
/// Somebody makes it.
const CLAIMED: u32 = 1 << 24;
/// It exists, in INIT.
const MADE: u32 = 2 << 24;
/// Somebody takes it to RTR.
const CONNECTING: u32 = 3 << 24;
/// In RTR.
const READY: u32 = 4 << 24;
const NUMBER: u32 = (1 << 24) - 1;

fn number_in(word: u32) -> Option<u32> {
    (MADE..=READY | NUMBER).contains(&word).then_some(word & NUMBER)
}

fn swap(word: &AtomicU32, from: u32, to: u32) -> bool {
    word.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
}

/// Waits for another rank of the host to finish what it began with a receiver.
fn settled<T>(word: &AtomicU32, peer: Rank, done: impl Fn(u32) -> Option<T>) -> Result<T, Error> {
    let end = Instant::now() + deadlines::SHARED.limit;
    loop {
        if let Some(value) = done(word.load(Ordering::Acquire)) {
            return Ok(value);
        }
        if Instant::now() > end {
            let problem = format!(
                "shares its connections with other ranks of a host, and one of those did not finish its part within {} s; see what it printed, or set GASNET_USE_XRC=0",
                deadlines::SHARED.limit.as_secs()
            );
            return Err(Error::Mismatch { rank: peer, problem });
        }
        std::thread::sleep(deadlines::SHARED_POLL.limit);
    }
}

/// State of the sender for a group, with the remote receiver that it is connected to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SenderState {
    Init,
    Connected(u32),
    Sending(u32),
}

#[derive(Debug)]
struct Sender {
    qp: Arc<dyn QueuePair>,
    state: Mutex<SenderState>,
}

impl Sender {
    fn state(&self) -> MutexGuard<'_, SenderState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a [`SendQp`](super::peer::SendQp) has beyond its queue pair, where connections are shared.
#[derive(Debug)]
pub(super) struct Link {
    sender: Arc<Sender>,
    receiver: Arc<dyn QueuePair>,
    inbox: u32,
    at: usize,
}

impl Link {
    /// In the order of [`NUMBERS`].
    pub(super) fn numbers(&self) -> [u32; NUMBERS] {
        [self.inbox, self.receiver.number(), self.sender.qp.number()]
    }

    /// What messages leave on, and the number of what they come in through.
    pub(super) fn ends(&self) -> (Arc<dyn QueuePair>, u32) {
        (Arc::clone(&self.sender.qp), self.receiver.number())
    }
}

#[derive(Debug)]
pub(super) struct Xrc {
    groups: Groups,
    domains: Vec<Arc<dyn XrcDomain>>,
    /// Of this rank's group: a word for each rank of the job and queue pair of a pair of ranks.
    receivers: SharedWords,
    send_qps: usize,
    senders: Mutex<HashMap<(Rank, usize), Arc<Sender>>>,
}

/// Queue pairs of a pair of ranks.
const fn send_qps(plan: &NetPlan) -> usize {
    plan.connections.len() * 2
}

/// A port of this rank whose device has no shared connections, and whether this rank can have them.
fn ability(plan: &NetPlan) -> (Option<&RailPlan>, bool) {
    let lacking = plan.rails.iter().find(|rail| !rail.device.caps().xrc);
    (lacking, lacking.is_none() && send_qps(plan) * NUMBERS <= MAX_NUMBERS)
}

pub(super) fn sharing(wanted: bool, plan: &NetPlan, members: &Members) -> Sharing {
    if plan.sizes.srq.is_none() {
        return Sharing::default();
    }
    let first = members.neighbours.get(0).unwrap_or(members.rank.0);
    Sharing { can: wanted && ability(plan).1, first, ports: ports(&plan.rails) }
}

impl Xrc {
    /// Collective over all ranks that share receive queues, with what all said: whether all of them
    /// can and will share connections, and what for.
    pub(super) fn open(
        settings: &NetSettings,
        plan: &NetPlan,
        members: &Members,
        said: &PeerAddresses,
        services: &mut dyn Bootstrap,
    ) -> Result<Option<Self>, Error> {
        let send_qps = send_qps(plan);
        let (lacking, can) = ability(plan);
        let groups = Groups { said: said.clone(), size: members.size };
        let without = groups.said(0..members.size).find(|(_, said)| !said.can);
        let without = without.map(|(rank, _)| rank);
        if without.is_some() || !groups.is_worth_it() {
            refused(settings, members, &refusal(lacking, can, without));
            return Ok(None);
        }
        let count = members.size as usize * send_qps;
        let room = SharedWords::room(count);
        let locals = services.rank_info().locals as usize;
        let memory = services.host_memory(room.saturating_mul(locals))?;
        // The ranks of a neighbourhood follow each other on their host.
        let index = |rank: Rank| members.neighbours.index_of(rank.0).unwrap_or(0) as usize;
        let behind = index(members.rank) - index(groups.leader(members.rank));
        let slot = (members.slot as usize).saturating_sub(behind);
        let os = |source| Error::Os { operation: "map the table of shared connections", source };
        let receivers = SharedWords::map(&memory, slot * room, count).map_err(os)?;
        // The memory is also the file that the processes of the host meet at: nothing is left of
        // it.
        let open = |rail: &RailPlan| rail.device.xrc_domain(Some(memory.as_fd()));
        let domains = plan.rails.iter().map(open).collect::<Result<_, _>>()?;
        Ok(Some(Self { groups, domains, receivers, send_qps, senders: Mutex::default() }))
    }

    /// Where the receive queues of a rail are made.
    pub(super) fn domain(&self, rail: usize) -> Option<&Arc<dyn XrcDomain>> {
        self.domains.get(rail)
    }

    fn word(&self, at: usize) -> Result<&AtomicU32, Error> {
        self.receivers.word(at).ok_or_else(|| {
            let source = std::io::Error::other(format!("there is no word {at}"));
            Error::Os { operation: "look into the table of shared connections", source }
        })
    }

    /// The receiver for a remote rank, made if nobody of the group did; `init` takes a new one to
    /// INIT.
    fn receiver(
        &self,
        domain: &dyn XrcDomain,
        peer: Rank,
        at: usize,
        init: impl FnOnce(&dyn QueuePair) -> Result<(), fabric::Error>,
    ) -> Result<Arc<dyn QueuePair>, Error> {
        let word = self.word(at)?;
        if swap(word, NOTHING, CLAIMED) {
            let made = domain.receiver(None).and_then(|qp| init(&*qp).map(|()| qp));
            let now = made.as_ref().map_or(NOTHING, |qp| MADE | qp.number());
            word.store(now, Ordering::Release);
            return Ok(made?);
        }
        let number = settled(word, peer, number_in)?;
        Ok(domain.receiver(Some(number))?)
    }

    /// The sender for the group of a remote rank; `make` makes one for so many ranks, in INIT.
    fn sender(
        &self,
        peer: Rank,
        send_qp: usize,
        make: impl FnOnce(u32) -> Result<Arc<dyn QueuePair>, Error>,
    ) -> Result<Arc<Sender>, Error> {
        let leader = self.groups.leader(peer);
        let mut senders = self.senders.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sender) = senders.get(&(leader, send_qp)) {
            return Ok(Arc::clone(sender));
        }
        let qp = make(self.groups.count(peer))?;
        let sender = Arc::new(Sender { qp, state: Mutex::new(SenderState::Init) });
        senders.insert((leader, send_qp), Arc::clone(&sender));
        Ok(sender)
    }

    /// What a queue pair towards `peer` has beyond itself; `at` counts the peer's queue pairs,
    /// messages arrive in `srq`. `init` takes a new receiver to INIT, `make` makes a sender for so
    /// many ranks, in INIT. `None`: a port has no domain.
    pub(super) fn link(
        &self,
        (peer, at): (Rank, usize),
        rail: usize,
        srq: &Arc<dyn SharedReceiveQueue>,
        init: impl FnOnce(&dyn QueuePair) -> Result<(), fabric::Error>,
        make: impl FnOnce(u32) -> Result<Arc<dyn QueuePair>, Error>,
    ) -> Result<Option<Link>, Error> {
        let (Some(domain), Some(inbox)) = (self.domain(rail), srq.number()) else {
            return Ok(None);
        };
        let place = peer.0 as usize * self.send_qps + at;
        let receiver = self.receiver(&**domain, peer, place, init)?;
        let sender = self.sender(peer, at, make)?;
        Ok(Some(Link { sender, receiver, inbox, at: place }))
    }

    /// Messages can come from the peer, and the own sender knows where to send. `numbers` are the
    /// peer's; `remote` is its place with the first sequence number of its sender. Returns the
    /// receive queue that requests to it name.
    pub(super) fn receive_ready(
        &self,
        link: &Link,
        peer: Rank,
        numbers: &[u32],
        remote: &RcPeer,
        retry: &Retry,
    ) -> Result<u32, Error> {
        let &[queue, receiver, sender] = numbers else {
            let problem = format!("offers {numbers:?} where {NUMBERS} numbers are expected");
            return Err(Error::Mismatch { rank: peer, problem });
        };
        let word = self.word(link.at)?;
        let own = link.receiver.number();
        if swap(word, MADE | own, CONNECTING | own) {
            let done = link.receiver.to_rtr(Some(&RcPeer { qpn: sender, ..*remote }), retry);
            let now = if done.is_ok() { READY } else { MADE };
            word.store(now | own, Ordering::Release);
            done?;
        }
        settled(word, peer, |seen| (seen == READY | own).then_some(()))?;
        let mut state = link.sender.state();
        match *state {
            SenderState::Init => {
                link.sender.qp.to_rtr(Some(&RcPeer { qpn: receiver, ..*remote }), retry)?;
                *state = SenderState::Connected(receiver);
            }
            SenderState::Connected(known) | SenderState::Sending(known) if known == receiver => {}
            SenderState::Connected(known) | SenderState::Sending(known) => {
                let problem = format!(
                    "receives through queue pair {receiver:#x}, another rank of its host through {known:#x}: they do not share connections"
                );
                return Err(Error::Mismatch { rank: peer, problem });
            }
        }
        Ok(queue)
    }
}

/// Why connections are not shared although the user asked for it.
fn refusal(lacking: Option<&RailPlan>, can: bool, without: Option<Rank>) -> String {
    match (lacking, without) {
        (Some(rail), _) => match rail.device.xrc_domain(None) {
            Err(error) => error.to_string(),
            Ok(_) => format!("{} cannot share connections", rail.device.info().name),
        },
        (None, _) if !can => "there are too many connections per peer (GASNET_NUM_QPS)".to_owned(),
        (None, Some(rank)) => {
            format!("rank {rank} cannot share connections, or was told not to")
        }
        (None, None) => "no two ranks share memory and ports".to_owned(),
    }
}

impl Link {
    /// The sender may send. Nothing happens when it may already.
    pub(super) fn send_ready(&self, psn: u32, rd_atom: u8, retry: &Retry) -> Result<(), Error> {
        let mut state = self.sender.state();
        if let SenderState::Connected(known) = *state {
            self.sender.qp.to_rts(psn, rd_atom, retry)?;
            *state = SenderState::Sending(known);
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "xrc_tests.rs"]
mod tests;
