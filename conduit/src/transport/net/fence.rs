//! Fenced puts (`GASNET_USE_FENCED_PUTS`). That a put is complete on one adapter does not say that
//! its data is seen through another one of the target's host. Behind each put goes a fetch-and-add
//! of 0 to a word of the target, on the same queue pair: when its result is back, the data before it
//! is in memory, and only then the put counts as complete. Payloads of Longs need none: their
//! headers follow on the same adapter.

use bootstrap::{Bootstrap, Rank, Shared};
use fabric::{Data, Operation};

use super::error::Error;
use super::memory::pool::Inbox;
use super::pending_ops::{End, OpKind, PendingOp};
use super::plan::NetPlan;
use super::post::{Reserve, Sent, Slots, Via};
use super::rma::{OneSided, Piece, RESERVE, Spot};
use crate::trace::{self, Counter};

/// Words of the memory of a rail that fences use: the first is added to, the other, in a cache line
/// of its own, takes results that nobody reads.
const WORDS: usize = 16;
const SINK: usize = 8;
/// What a rank says of a rail: address and key of its word.
const RECORD: usize = 12;

/// The words of all ranks that fences add nothing to.
#[derive(Debug)]
pub(super) struct Fences {
    /// By rail.
    own: Box<[Inbox]>,
    table: Shared,
}

impl Fences {
    /// Collective: every rank has fences, with the same number of rails.
    pub(super) fn exchange(plan: &NetPlan, services: &mut dyn Bootstrap) -> Result<Self, Error> {
        let lacking = plan.rails.iter().find(|rail| !rail.device.caps().has_atomics());
        if let Some(rail) = lacking {
            let name = &rail.device.info().name;
            let problem =
                format!("{name} has no atomics, which fences are made of; unset it or set it to 0");
            return Err(Error::Setting { name: "GASNET_USE_FENCED_PUTS", problem });
        }
        let own = plan.rails.iter().map(|rail| Inbox::new(&*rail.device, WORDS));
        let own: Box<[Inbox]> = own.collect::<Result<_, _>>()?;
        let record = own.iter().flat_map(|inbox| {
            let word = inbox.remote();
            let mut record = [0; RECORD];
            record[..8].copy_from_slice(&word.base.to_ne_bytes());
            record[8..].copy_from_slice(&word.rkey.to_ne_bytes());
            record
        });
        let record: Vec<u8> = record.collect();
        Ok(Self { own, table: services.exchange(&record)? })
    }

    /// Address and key of a rank's word on a rail.
    fn word(&self, rank: Rank, rail: usize) -> Option<(u64, u32)> {
        let at = (rank.0 as usize * self.own.len() + rail) * RECORD;
        let (base, key) = self.table.get(at..at + RECORD)?.split_first_chunk()?;
        Some((u64::from_ne_bytes(*base), u32::from_ne_bytes(key.try_into().ok()?)))
    }
}

impl<'a> OneSided<'a> {
    const fn is_fenced(self, kind: OpKind) -> bool {
        self.0.fences.is_some() && matches!(kind, OpKind::Put)
    }

    /// What requests leave to others. One that goes before a fence may use the place that the fence
    /// left more: each alone leaves what all leave, so where nothing is in flight there is room.
    pub(super) const fn reserve(self, kind: OpKind) -> Reserve {
        let fence = if self.is_fenced(kind) { 1 } else { 0 };
        Reserve {
            queue_pair: RESERVE.queue_pair - fence,
            completion_queue: RESERVE.completion_queue - fence,
        }
    }

    fn fence_slots(self, via: Via<'a>) -> Option<Slots<'a>> {
        Slots::take(&self.0.rails[via.connection.rail], &via.connection.main, RESERVE)
    }

    /// Posts a piece of a put by `put`, which returns its bytes (0: no room), and where puts are
    /// fenced the fence behind it: both or none.
    #[inline]
    pub(super) fn before_fence<S: Spot>(
        self,
        piece: Piece<'a, '_, S>,
        put: impl FnOnce() -> Result<usize, Error>,
    ) -> Result<usize, Error> {
        if !self.is_fenced(piece.kind) {
            return put();
        }
        let Some(slots) = self.fence_slots(piece.via) else { return Ok(0) };
        // Counted before the put may be complete.
        piece.counter.begin(false);
        let put = put();
        if matches!(put, Ok(1..)) {
            self.post_fence(piece, slots)?;
        } else {
            slots.give_back();
            piece.counter.end(false);
        }
        put
    }

    /// The put is posted, so its fence has to be: waits for completions of sends if the device has
    /// no room although a slot was free.
    fn post_fence<S: Spot>(self, piece: Piece<'a, '_, S>, slots: Slots<'a>) -> Result<(), Error> {
        let (rail, peer) = (piece.via.connection.rail, piece.via.peer.rank);
        let fences = self.0.fences.as_ref();
        let aim = fences.and_then(|all| Some((all.word(peer, rail)?, all.own.get(rail)?)));
        let Some(((remote, rkey), own)) = aim else {
            let problem = "has said nothing of the words that fences use".to_owned();
            return Err(Error::Mismatch { rank: peer, problem });
        };
        let op = PendingOp::plain(OpKind::Fence, peer, piece.via.index, true);
        let is_alone = piece.list.is_none_or(|list| list.connection().is_none());
        let mut slots = Some(slots);
        loop {
            if let Some(slots) = slots.take() {
                let end = End::Counts { counter: piece.counter, local: false };
                let operation = Operation::FetchAdd { remote, rkey, add: 0 };
                let sink = [own.own(SINK, 8)];
                let data = Data::Gather(&sink);
                match self.post_with(piece.list, (&slots, operation, data), &op, end) {
                    Ok(Sent::Yes) => {
                        if is_alone {
                            trace::count(Counter::PostedSplit, 0);
                        }
                        return Ok(());
                    }
                    Ok(Sent::Full) => {}
                    Err(error) => {
                        piece.counter.end(false);
                        return Err(error);
                    }
                }
            }
            // The put that it follows may be held.
            piece.list.map_or(Ok(()), |list| list.post(self.0))?;
            if !self.0.await_sends()? {
                // The network is closing: nobody waits for the put.
                return Ok(());
            }
            slots = self.fence_slots(piece.via);
        }
    }
}
