//! Taking messages out of this rank's queues and lanes.

use std::sync::atomic::Ordering;

use super::endpoint::ShmTransport;
use super::packet::{Kind, Packet};
use super::spsc_ring::{BurstReader, lanes_of};
use crate::mode::Mode;
use crate::transport::message::{Arrived, ArrivedPayload, Block, MessageClass, Sink};

const BATCH: usize = 16;
const LANE_BATCH: usize = 64;

pub(crate) trait ShmSink: Sink {
    /// Whether messages of the client may be delivered.
    fn is_open(&self) -> bool;

    /// Delivers Shorts that are alike, at most `most`, to a handler that takes them in one go; how
    /// many. 0 when they need [`Sink::arrived`].
    fn arrived_burst(
        &self,
        source: usize,
        class: MessageClass,
        burst: BurstReader<'_>,
        most: usize,
    ) -> usize;

    fn malformed(&self, source: usize, part: &'static str) -> !;
}

impl ShmTransport {
    #[inline]
    pub(crate) fn is_ready(&self, class: MessageClass) -> bool {
        self.memory.ring(self.local(), class).ready()
    }

    #[inline(never)]
    pub(crate) fn drain<M: Mode>(&self, class: MessageClass, sink: &impl ShmSink) -> usize {
        let mut packet = Packet::empty();
        let mut count = 0;
        while count < BATCH && sink.is_open() && self.take::<M>(class, &mut packet) {
            self.deliver(class, &mut packet, sink);
            count += 1;
        }
        count
    }

    /// Takes a message out of a queue; in threaded modes under the consumer's try-lock, which ends
    /// before the handler runs.
    #[inline]
    fn take<M: Mode>(&self, class: MessageClass, packet: &mut Packet) -> bool {
        let ring = self.memory.ring(self.local(), class);
        if !M::THREADED {
            return ring.receive(packet);
        }
        if !ring.ready() {
            return false;
        }
        match self.consumers[class as usize].try_take() {
            Some(_turn) => ring.receive(packet),
            None => false,
        }
    }

    /// Gives a message to the sink; its block goes back when the sink is done with it.
    #[inline]
    fn deliver(&self, class: MessageClass, packet: &mut Packet, sink: &impl ShmSink) {
        let (source, handler, len, place) =
            (packet.0.source as usize, packet.0.handler, packet.0.len as usize, packet.0.place);
        let kind = packet.kind();
        let Some((args, inline)) = packet.parts() else { sink.malformed(source, "counts") };
        if source >= self.memory.layout.locals {
            sink.malformed(source, "source");
        }
        let arrived = |payload: ArrivedPayload<'_>| {
            sink.arrived(Arrived { source, class, handler, args, payload, reply: None });
        };
        match kind {
            Some(Kind::Short) => arrived(ArrivedPayload::None),
            Some(Kind::MediumInline) => arrived(ArrivedPayload::Medium(inline)),
            Some(Kind::MediumBlock) => {
                let block = Block::from_wire(place);
                let payload = self.memory.block_payload(source, class as usize, block, len);
                let Some(payload) = payload else { sink.malformed(source, "payload block") };
                arrived(ArrivedPayload::Medium(payload));
                self.memory.freed(source, class as usize)[block.index as usize]
                    .store(block.generation, Ordering::Release);
            }
            Some(Kind::Long) => {
                let offset = if self.c_face { place.wrapping_sub(self.own_base()) } else { place };
                arrived(ArrivedPayload::Long { offset, len });
            }
            Some(Kind::Internal) | None => sink.malformed(source, "kind"),
        }
    }

    /// Whether a message can be in the queues and lanes of this rank.
    #[inline(always)]
    pub(crate) fn receives(&self) -> bool {
        self.receives.load(Ordering::Acquire)
    }

    /// Address of this rank's segment; 0 before attach.
    #[inline]
    pub(crate) fn own_base(&self) -> u64 {
        self.memory.row(self.local()).base.load(Ordering::Relaxed)
    }

    #[inline(always)]
    fn lanes_in_use(&self, mask: u32) -> impl Iterator<Item = usize> {
        let mut left = self.memory.member(self.local()).lanes.used() & mask;
        std::iter::from_fn(move || {
            let lane = (left != 0).then(|| left.trailing_zeros() as usize)?;
            left &= left - 1;
            Some(lane)
        })
    }

    #[inline(always)]
    pub(crate) fn lane_ready(&self, class: MessageClass) -> bool {
        let mut lanes = self.lanes_in_use(lanes_of(class as usize));
        lanes.any(|lane| self.memory.own_lane(lane).ready())
    }

    /// Delivers messages of all lanes; returns how many. Replies first.
    #[inline(always)]
    pub(crate) fn drain_all_lanes<M: Mode>(&self, sink: &impl ShmSink) -> usize {
        self.drain_some::<M>(MessageClass::Reply, sink)
            + self.drain_some::<M>(MessageClass::Request, sink)
    }

    /// Delivers messages of the lanes of one class; returns how many.
    #[inline(always)]
    pub(crate) fn drain_some<M: Mode>(&self, class: MessageClass, sink: &impl ShmSink) -> usize {
        let ready = |lane: &usize| self.memory.own_lane(*lane).ready();
        let lanes = self.lanes_in_use(lanes_of(class as usize)).filter(ready);
        lanes.map(|lane| self.drain_lane::<M>(class, lane, sink)).sum()
    }

    /// In threaded modes this thread keeps the lane while it runs the handlers of a batch: other
    /// threads serve other lanes.
    #[inline(never)]
    fn drain_lane<M: Mode>(
        &self,
        class: MessageClass,
        number: usize,
        sink: &impl ShmSink,
    ) -> usize {
        let turn = if M::THREADED { self.lane_consumers[number].try_take() } else { None };
        if M::THREADED && turn.is_none() {
            return 0;
        }
        let (mut count, bursts) = (0, self.c_face);
        loop {
            let most = LANE_BATCH - count;
            let served = if bursts { self.serve_burst(class, number, most, sink) } else { 0 };
            if served == 0 && !self.deliver_next(class, number, sink) {
                return count;
            }
            count += served.max(1);
            if count >= LANE_BATCH || !sink.is_open() || !self.memory.own_lane(number).ready() {
                return count;
            }
        }
    }

    /// Takes the next message out of a lane and delivers it, whatever it is.
    #[inline(never)]
    fn deliver_next(&self, class: MessageClass, number: usize, sink: &impl ShmSink) -> bool {
        let (lane, source) = (self.memory.own_lane(number), self.memory.lane_source(number));
        let mut packet = Packet::empty();
        let received = lane.receive(source, &mut packet);
        if received {
            self.deliver(class, &mut packet, sink);
        }
        received
    }

    /// Delivers the Short that is next in a lane and those after it that are alike. Returns how
    /// many.
    #[inline]
    fn serve_burst(
        &self,
        class: MessageClass,
        number: usize,
        most: usize,
        sink: &impl ShmSink,
    ) -> usize {
        let Some(burst) = BurstReader::begin(self.memory.own_lane(number)) else { return 0 };
        let source = self.memory.lane_source(number) as usize;
        if source >= self.memory.layout.locals {
            return 0;
        }
        sink.arrived_burst(source, class, burst, most)
    }

    /// Takes messages of the library and gives them away: sender, number, arguments. A message is
    /// out of the queue before `each` knows it. Returns how many. Async-signal-safe, also in a
    /// handler that interrupted any function of this crate, provided that the interrupted code
    /// never resumes.
    pub(crate) fn take_internal(&self, mut each: impl FnMut(usize, u8, &[i32])) -> usize {
        let mut count = 0;
        let ring = self.memory.ring(self.local(), MessageClass::Internal);
        let mut packet = Packet::empty();
        while ring.ready() {
            let consumer = &self.consumers[MessageClass::Internal as usize];
            let Some(turn) = consumer.take_over() else { break };
            if !ring.receive(&mut packet) {
                break;
            }
            drop(turn);
            count += 1;
            let (source, id) = (packet.0.source, packet.0.handler);
            if packet.kind() != Some(Kind::Internal) || source >= self.span.locals {
                continue;
            }
            if let Some((args, _)) = packet.parts() {
                each(source as usize, id, args);
            }
        }
        count
    }

    /// Takes the client's messages out of queues and lanes without running handlers, so that no
    /// peer waits for room here. Async-signal-safe as [`ShmTransport::take_internal`].
    pub(crate) fn discard(&self) {
        for class in [MessageClass::Reply, MessageClass::Request] {
            self.discard_queue(class);
            self.discard_lanes(class);
        }
    }

    fn discard_queue(&self, class: MessageClass) {
        let ring = self.memory.ring(self.local(), class);
        let mut packet = Packet::empty();
        while ring.ready() {
            let Some(turn) = self.consumers[class as usize].take_over() else { break };
            if !ring.receive(&mut packet) {
                break;
            }
            drop(turn);
            self.release_block(class, &packet);
        }
    }

    fn discard_lanes(&self, class: MessageClass) {
        let mut packet = Packet::empty();
        for number in self.lanes_in_use(lanes_of(class as usize)) {
            let (lane, source) = (self.memory.own_lane(number), self.memory.lane_source(number));
            while lane.ready() {
                let Some(turn) = self.lane_consumers[number].take_over() else { break };
                if !lane.receive(source, &mut packet) {
                    break;
                }
                drop(turn);
                self.release_block(class, &packet);
            }
        }
    }

    fn release_block(&self, class: MessageClass, packet: &Packet) {
        let source = packet.0.source as usize;
        if packet.kind() == Some(Kind::MediumBlock) && source < self.memory.layout.locals {
            let block = Block::from_wire(packet.0.place);
            if let Some(word) = self.memory.freed(source, class as usize).get(block.index as usize)
            {
                word.store(block.generation, Ordering::Release);
            }
        }
    }
}
