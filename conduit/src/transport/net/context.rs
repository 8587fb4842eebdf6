//! The network of one rank, as its paths share it: ports, peers, buffers, operations in flight,
//! credits. Each part is a type of its own; the paths (`post`, `am`, `rma`, `completions`) borrow
//! all of it.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use bootstrap::Rank;

use super::am::header;
use super::connect_queue::ConnectQueue;
use super::credits::Permits;
use super::error::{Error, table_of_ranks};
use super::failure::FailureState;
use super::fence::Fences;
use super::members::Members;
use super::memory::buffers::MessageBuffers;
use super::memory::cache::Cache;
use super::memory::lists::DeferredMessages;
use super::memory::registrar::Devices;
use super::peer::{Peer, PeerTable, Phase};
use super::pending_ops::{Lone, PendingOps};
use super::plan::NetPlan;
use super::rail::Rail;
use super::segments::Segments;
use super::settings::NetSettings;
use super::silent::SilentPuts;
use super::xrc::Xrc;
use crate::sys::tally::Sharing;
use crate::trace::{self, Cause};

/// What only the receive side changes.
#[derive(Debug, Default)]
pub(super) struct ReceiveState {
    /// Arrived messages of the client that a poll for something else took.
    pub(super) deferred: DeferredMessages,
    /// The rail that the next poll begins with.
    pub(super) next_rail: AtomicU32,
}

#[derive(Debug)]
pub(super) struct NetContext {
    pub(super) members: Members,
    pub(super) settings: NetSettings,
    pub(super) plan: NetPlan,
    pub(super) rails: Vec<Rail>,
    pub(super) peers: PeerTable,
    pub(super) buffers: Arc<MessageBuffers>,
    /// Registered memory of the program outside segments.
    pub(super) memory: Cache,
    pub(super) pending: PendingOps,
    pub(super) lone: Lone,
    /// Requests of this rank that may still be sent; `None` where those to each peer are bound, and
    /// no more together.
    pub(super) credits: Option<Permits>,
    pub(super) receive: ReceiveState,
    /// Connections on which an ack is due.
    pub(super) acks_pending: AtomicU32,
    pub(super) segments: Segments,
    /// What the service thread is asked for.
    pub(super) connect_queue: ConnectQueue,
    pub(super) failure: FailureState,
    /// Held while events of the devices are read.
    pub(super) events: Mutex<()>,
    /// The warning about a device's inline limit was printed.
    pub(super) warned_inline: AtomicBool,
    /// Where connections are shared by the ranks of a neighbourhood.
    pub(super) xrc: Option<Xrc>,
    /// Where puts are fenced.
    pub(super) fences: Option<Fences>,
    /// Who uses counts of the network.
    pub(super) sharing: Sharing,
    /// Where that is one thread.
    pub(super) silent: Option<SilentPuts>,
}

impl NetContext {
    /// Opens the rails and makes the buffers that all peers share.
    pub(super) fn new(
        settings: NetSettings,
        plan: NetPlan,
        members: Members,
        (xrc, fences): (Option<Xrc>, Option<Fences>),
    ) -> Result<Self, Error> {
        // The software adapter, which has a thread, says that inline data is cheap.
        let adapters = plan.rails.iter().all(|rail| rail.device.caps().cheap_inline == 0);
        let single = settings.single && adapters;
        let sharing = if single { Sharing::OneThread } else { Sharing::Threads };
        let open = |(at, rail)| {
            let domain = xrc.as_ref().and_then(|xrc| xrc.domain(at));
            Rail::open(rail, &plan.sizes, domain, sharing)
        };
        let rails: Vec<Rail> = plan.rails.iter().enumerate().map(open).collect::<Result<_, _>>()?;
        let devices: Vec<_> = rails.iter().map(|rail| Arc::clone(&rail.device)).collect();
        let limits = settings.registration.limits(devices.iter().map(|device| device.caps()))?;
        // The documents ask for it of reliable connections; shared ones are others.
        let pages = settings.odp.on && xrc.is_none() && devices.iter().all(|one| one.caps().odp);
        let registrar = Box::new(Devices(devices));
        let mut memory = Cache::new(registrar, limits, settings.registration.verbose);
        if pages {
            memory.use_paging()?;
        }
        Ok(Self {
            peers: PeerTable::new(members.size).map_err(table_of_ranks)?,
            buffers: Arc::new(MessageBuffers::new(settings.huge_pages)),
            memory,
            pending: PendingOps::new(rails.iter().map(|rail| rail.send_depth).sum()),
            lone: Lone::default(),
            credits: plan
                .sizes
                .binds_all(members.size)
                .then(|| Permits::used_by(sharing, plan.sizes.credits)),
            receive: ReceiveState::default(),
            acks_pending: AtomicU32::new(0),
            segments: Segments::new(rails.len()),
            connect_queue: ConnectQueue::new(members.size)?,
            failure: FailureState::default(),
            events: Mutex::new(()),
            warned_inline: AtomicBool::new(false),
            members,
            settings,
            plan,
            rails,
            xrc,
            fences,
            sharing,
            silent: single.then(SilentPuts::default),
        })
    }

    /// A peer that may be sent to; one that is not connected is asked for.
    #[inline(always)]
    pub(super) fn connected(&self, rank: Rank) -> Option<&Peer> {
        let peer = self.peers.get(rank).filter(|peer| peer.is_open());
        match peer {
            Some(peer) => peer.use_it(),
            None => self.ask_for(rank),
        }
        peer
    }

    /// So many requests more may be sent to all peers together.
    #[inline(always)]
    pub(super) fn give_credits(&self, count: u32) {
        if let Some(all) = &self.credits {
            all.give(count);
        }
    }

    #[cold]
    fn ask_for(&self, rank: Rank) {
        trace::lacks(Cause::Connection);
        self.connect_queue.need(rank);
    }

    /// A message of a peer came before the last packet of the handshake: it is connected.
    #[cold]
    pub(super) fn heard(&self, peer: &Peer) {
        if peer.phase() == Phase::Sending {
            peer.set_phase(Phase::Open);
        }
        self.connect_queue.heard(peer.rank);
    }

    /// A thread of the network cannot go on: the next poll of the program says why.
    #[cold]
    pub(super) fn fail(&self, error: Error) {
        if self.failure.set(error) {
            self.members.ring();
        }
    }

    /// Whether the network has no thread: nothing needs one, and its adapters have none either.
    pub(super) fn is_single(&self) -> bool {
        self.sharing == Sharing::OneThread
    }

    /// Whether a thread takes messages although the client does not poll.
    pub(super) fn has_receivers(&self) -> bool {
        self.rails.iter().any(|rail| rail.has_receiver.load(Ordering::Relaxed))
    }

    /// What messages name this rank by.
    #[inline]
    pub(super) fn source(&self) -> u16 {
        const _: () = assert!(header::SOURCES <= 1 << 16);
        u16::try_from(self.members.rank.0 % header::SOURCES).unwrap_or(u16::MAX)
    }
}
