//! The queue pairs of a peer: how they are made, and taken from state to state.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bootstrap::Rank;
use fabric::{Access, Address, Mtu, QpSpec, QpType, QueuePair, RcPeer, SharedReceiveQueue};
use settings::log::RANK;
use settings::say;

use super::am::header::PREFIX;
use super::context::NetContext;
use super::credits::{Account, Permits};
use super::error::Error;
use super::flow::of_connection::Flow;
use super::flow::ring::Rings;
use super::flow::volume::NUMBERS as RING_NUMBERS;
use super::peer::{Connection, Peer, Phase, SendQp};
use super::rail::Rail;
use super::xrc::{NUMBERS, Xrc};

/// Inline bytes that are tried when the user wants all.
const MOST_INLINE: u32 = 1024;

impl NetContext {
    /// Makes the queue pairs for a rank and posts their receives. Nothing happens when they are
    /// there.
    pub(super) fn prepare(&self, rank: Rank) -> Result<&Peer, Error> {
        self.peers.get_or_make(rank, || {
            let connections = self.plan.connections.iter().enumerate();
            let connections = connections.map(|(at, rail)| self.make_connection(rank, at, *rail));
            Ok(Peer::new(rank, connections.collect::<Result<_, _>>()?))
        })
    }

    fn make_connection(&self, rank: Rank, index: usize, at: usize) -> Result<Connection, Error> {
        let (rail, sizes) = (&self.rails[at], &self.plan.sizes);
        let shared = rail.shared.as_ref();
        let send_qp =
            |upper: usize, srq: Option<&Arc<dyn SharedReceiveQueue>>, sends| match (&self.xrc, srq)
            {
                (Some(xrc), Some(srq)) => {
                    self.shared_send_qp(xrc, (rank, 2 * index + upper), rail, srq, sends)
                }
                _ => self.own_send_qp(rail, srq, sends),
            };
        let main = send_qp(0, shared.map(|shared| &shared.replies), sizes.sends())?;
        let mut requests = shared
            .map(|shared| send_qp(1, Some(&shared.requests), sizes.request_sends()))
            .transpose()?;
        let rings = sizes.volume.map(|ring| {
            Rings::new(&*rail.device, ring, sizes.credits_per_connection).map(Box::new)
        });
        let flow = match (rings.transpose()?, sizes.flow) {
            (Some(rings), _) => {
                self.buffers.made_receives(1, sizes.volume.map_or(0, |ring| ring.bytes() as usize));
                Flow::Rings(rings)
            }
            (None, Some(_)) => Flow::Moving(Box::default()),
            (None, None) => Flow::Fixed,
        };
        let mut account = Account::growing(sizes.first_credits(), sizes.slack, self.sharing);
        if flow.rings().is_some() {
            account = account.with_ring();
            if let Some(requests) = &mut requests {
                requests.inline = requests.inline.saturating_sub(PREFIX);
            }
        }
        self.add_buffers(rank, at, &main)?;
        let own_queue = requests.is_none() && sizes.waiting > 0;
        Ok(Connection {
            is_plain: own_queue && matches!(flow, Flow::Fixed),
            rail: at,
            main,
            requests,
            account,
            internal: Permits::new(sizes.reserve),
            ack_pending: AtomicBool::new(false),
            flow,
        })
    }

    fn own_send_qp(
        &self,
        rail: &Rail,
        srq: Option<&Arc<dyn SharedReceiveQueue>>,
        sends: u32,
    ) -> Result<SendQp, Error> {
        let (receives, room) = (self.plan.sizes.receives(), rail.room_for_unsignaled(sends));
        let qp = self.make_qp(rail, QpType::Rc, srq, (sends + room, receives))?;
        let (inline, number) = (self.inline_limit(rail, &*qp), qp.number());
        Ok(SendQp::new((qp, number), ((sends, room), self.sharing), inline, None))
    }

    /// One over connections that the ranks of a neighbourhood share. `at` counts a peer's queue
    /// pairs; messages of the peer arrive in `srq`.
    fn shared_send_qp(
        &self,
        xrc: &Xrc,
        (peer, at): (Rank, usize),
        rail: &Rail,
        srq: &Arc<dyn SharedReceiveQueue>,
        sends: u32,
    ) -> Result<SendQp, Error> {
        let rail_at = self.plan.connections.get(at / 2).copied().unwrap_or(0);
        let room = rail.room_for_unsignaled(sends);
        let make = |ranks: u32| {
            // Beyond the completion queue's depth nothing can be in flight.
            let most = rail.send_cq.depth().min(rail.device.caps().max_qp_wr);
            let depth = (sends + room).saturating_mul(ranks).min(most).max(1);
            self.make_qp(rail, QpType::XrcSend, None, (depth, 0))
        };
        let link = xrc.link((peer, at), rail_at, srq, |qp| to_init(rail, qp), make)?;
        let link = link.ok_or_else(|| Error::Mismatch {
            rank: self.members.rank,
            problem: "has no domain for shared connections on one of its ports".to_owned(),
        })?;
        let ends = link.ends();
        let inline = self.inline_limit(rail, &*ends.0);
        Ok(SendQp::new(ends, ((sends, room), self.sharing), inline, Some(Box::new(link))))
    }

    fn make_qp(
        &self,
        rail: &Rail,
        qp_type: QpType,
        srq: Option<&Arc<dyn SharedReceiveQueue>>,
        (max_send, max_recv): (u32, u32),
    ) -> Result<Arc<dyn QueuePair>, Error> {
        let qp = rail.device.queue_pair(&QpSpec {
            qp_type,
            send_cq: &rail.send_cq,
            recv_cq: &rail.recv_cq,
            srq,
            max_send,
            max_recv,
            // Messages have two.
            send_sge: rail.entries().max(2),
            recv_sge: 1,
            inline: self.inline_wanted(rail),
        })?;
        to_init(rail, &*qp)?;
        Ok(qp)
    }

    /// Inline bytes that queue pairs of a rail are asked for: none where the user switched them
    /// off, else at least what costs the device nothing.
    fn inline_wanted(&self, rail: &Rail) -> u32 {
        match self.settings.inline {
            Some(0) => 0,
            wanted => wanted.unwrap_or(MOST_INLINE).max(rail.device.caps().cheap_inline),
        }
    }

    /// Inline bytes of a queue pair. Rank 0 tells the user once of a device that can do less than
    /// was set.
    fn inline_limit(&self, rail: &Rail, qp: &dyn QueuePair) -> usize {
        let (settings, most) = (&self.settings, qp.max_inline());
        if settings.inline_is_set
            && most < settings.inline.unwrap_or(0)
            && self.members.rank == Rank(0)
            && !self.warned_inline.swap(true, Ordering::Relaxed)
        {
            say!(
                WARN,
                RANK,
                "GASNET_INLINESEND_LIMIT is above what {} can do: {most} bytes are used",
                rail.name()
            );
        }
        most.min(self.inline_wanted(rail)) as usize
    }

    /// First packet sequence number of a rank's queue pair.
    fn first_psn(&self, rank: Rank, qpi: usize) -> u32 {
        let number = rank.0 as usize * self.plan.queue_pairs() + qpi;
        u32::try_from(number & 0xff_ffff).unwrap_or(0)
    }

    /// Queue pairs can receive from the peer's, whose numbers are given in the order of
    /// [`Peer::numbers`].
    pub(super) fn receive_ready(
        &self,
        peer: &Peer,
        numbers: &[u32],
        address: impl Fn(usize) -> (Address, Mtu, u8),
    ) -> Result<(), Error> {
        if peer.phase() != Phase::Prepared {
            return Ok(());
        }
        for (qpi, (connection, send_qp)) in peer.send_qps().enumerate() {
            let rail = &self.rails[connection.rail];
            let (address, mtu, rd_atom) = address(connection.rail);
            let each = if send_qp.link.is_some() { NUMBERS } else { 1 };
            let theirs = numbers.get(qpi * each..(qpi + 1) * each).unwrap_or_default();
            let Some(qpn) = theirs.first().copied() else {
                let problem = format!("offers {} queue pairs, this rank has more", numbers.len());
                return Err(Error::Mismatch { rank: peer.rank, problem });
            };
            let remote = RcPeer {
                address: Address { sgid_index: rail.address.sgid_index, ..address },
                qpn,
                psn: self.first_psn(peer.rank, qpi),
                mtu: rail.mtu.min(mtu),
                rd_atom: rail.rd_atom.min(rd_atom).max(1),
            };
            let retry = &self.settings.retry;
            match (&self.xrc, &send_qp.link) {
                (Some(xrc), Some(link)) => {
                    let queue = xrc.receive_ready(link, peer.rank, theirs, &remote, retry)?;
                    send_qp.send_to(queue);
                }
                _ => send_qp.qp.to_rtr(Some(&remote), retry)?,
            }
        }
        self.learn_rings(peer, numbers)?;
        peer.set_phase(Phase::Receiving);
        Ok(())
    }

    /// What the peer tells of its rings, behind the numbers of queue pairs.
    fn learn_rings(&self, peer: &Peer, numbers: &[u32]) -> Result<(), Error> {
        let from = peer.send_qps().count();
        for (at, connection) in peer.connections.iter().enumerate() {
            let Some(rings) = connection.flow.rings() else { continue };
            let place = from + at * RING_NUMBERS;
            let theirs = numbers.get(place..place + RING_NUMBERS).unwrap_or_default();
            if !rings.learn(theirs) {
                let problem = format!("announces a ring for requests by the numbers {theirs:x?}");
                return Err(Error::Mismatch { rank: peer.rank, problem });
            }
        }
        Ok(())
    }

    /// Queue pairs could send.
    pub(super) fn send_ready(&self, peer: &Peer) -> Result<(), Error> {
        if peer.phase() >= Phase::Sending {
            return Ok(());
        }
        for (qpi, (connection, send_qp)) in peer.send_qps().enumerate() {
            let psn = self.first_psn(self.members.rank, qpi);
            let rd_atom = self.rails[connection.rail].rd_atom.max(1);
            let retry = &self.settings.retry;
            match &send_qp.link {
                Some(link) => link.send_ready(psn, rd_atom, retry)?,
                None => send_qp.qp.to_rts(psn, rd_atom, retry)?,
            }
        }
        peer.set_phase(Phase::Sending);
        Ok(())
    }
}

/// From RESET to INIT, with what peers may do through it.
fn to_init(rail: &Rail, qp: &dyn QueuePair) -> Result<(), fabric::Error> {
    let access = Access::REMOTE_WRITE.and(Access::REMOTE_READ).and(Access::REMOTE_ATOMIC);
    qp.to_init(rail.port, rail.pkey_index, 0, access.and(Access::LOCAL_WRITE))
}
