//! Progress: taking messages out of the queues and running their handlers.

use std::cell::Cell;
use std::sync::atomic::Ordering;

use bootstrap::Rank;

use crate::core::Core;
use crate::error::Error;
use crate::foreign::{ANY_ARGS, Arrival, Foreign};
use crate::handler::{Function, Payload, Registered, Role};
use crate::mode::Mode;
use crate::segment::Landing;
use crate::token::RawToken;
use crate::transport::message::Block;
use crate::transport::message::MessageClass;
use crate::transport::message::{AmMessage, AmPayload};
use crate::transport::net::Poll;
use crate::transport::shm::{Kind, Packet};
use crate::wait::Waiter;

/// Most messages of each kind that one poll delivers.
const BATCH: usize = 16;

/// A reply that found no room while its handler ran; it goes out when the handler has returned.
pub(crate) struct Deferred {
    pub(crate) target: usize,
    pub(crate) handler: u8,
    pub(crate) args: Vec<i32>,
    pub(crate) payload: DeferredLoad,
}

/// What a deferred reply carries.
pub(crate) enum DeferredLoad {
    None,
    Medium(Vec<u8>),
    Block { block: Block, len: u32 },
    Placed { len: u32, dest: u64 },
}

impl Deferred {
    /// An owned copy of a reply.
    pub(crate) fn of(message: &AmMessage<'_>) -> Box<Self> {
        let payload = match message.payload {
            AmPayload::Medium(payload) => DeferredLoad::Medium(payload.to_vec()),
            AmPayload::Placed { len, dest } => DeferredLoad::Placed { len, dest },
            AmPayload::Block { block, len } => DeferredLoad::Block { block, len },
            // Not for neighbours, or without a payload.
            AmPayload::None
            | AmPayload::Long { .. }
            | AmPayload::SendBuffer { .. }
            | AmPayload::ZeroCopy(_) => DeferredLoad::None,
        };
        let (target, handler) = (message.target, message.handler);
        Box::new(Self { target, handler, args: message.args.to_vec(), payload })
    }

    fn message(&self) -> AmMessage<'_> {
        let payload = match &self.payload {
            DeferredLoad::None => AmPayload::None,
            DeferredLoad::Medium(payload) => AmPayload::Medium(payload),
            DeferredLoad::Block { block, len } => AmPayload::Block { block: *block, len: *len },
            DeferredLoad::Placed { len, dest } => AmPayload::Placed { len: *len, dest: *dest },
        };
        AmMessage {
            class: MessageClass::Reply,
            target: self.target,
            handler: self.handler,
            args: &self.args,
            payload,
        }
    }
}

impl Core {
    /// Whether a poll would find something. Loads only.
    #[inline]
    pub(crate) fn has_work(&self) -> bool {
        self.memory().arrived() || self.node_shm().notice().is_some() || self.remote_has_work()
    }

    /// Whether a poll would deliver something. Loads only. A rank without neighbours does not look for what it sent itself.
    #[inline]
    pub(crate) fn has_arrivals(&self) -> bool {
        let alone = self.networked() && self.span().locals == 1;
        !alone && self.memory().arrived() || self.remote_has_work()
    }

    /// Delivers some messages; returns how many.
    // Left to the compiler: forced into sends it made the Rust round trip of a Short longer, 133 ns instead of 112.
    #[inline]
    pub(crate) fn poll<M: Mode>(&self, call: &'static str) -> Result<usize, Error> {
        self.check_open(call)?;
        self.check_outside::<M>(call)?;
        self.end_row();
        let count = self.poll_memory::<M>();
        if self.networked() {
            return Ok(count + self.poll_remote::<M>(Poll::All)?);
        }
        Ok(count)
    }

    /// Delivers what is in the queues and lanes of this rank; returns how many.
    #[inline(always)]
    fn poll_memory<M: Mode>(&self) -> usize {
        let queued = if self.memory().queued() { self.poll_queues::<M>() } else { 0 };
        let count = queued + self.drain_all_lanes::<M>();
        if M::THREADED && count > 0 {
            // What the handlers did may be what another thread of this rank sleeps for.
            self.wake_own();
        }
        count
    }

    /// As [`Core::poll`] where nothing but memory is to be looked at; `None` elsewhere, and where it would fail.
    #[inline(always)]
    pub(crate) fn poll_plainly<M: Mode>(&self) -> Option<usize> {
        if self.networked() || !self.is_running::<M>() {
            return None;
        }
        self.end_row();
        let count = self.poll_memory::<M>();
        if self.light() {
            // This was a look.
            self.pass_next::<M>();
        }
        Some(count)
    }

    #[inline(never)]
    fn poll_queues<M: Mode>(&self) -> usize {
        let me = self.local();
        let mut count = 0;
        if self.internal_of(me).ready() {
            count += self.poll_internal();
        }
        if self.ring_of(me, MessageClass::Reply).ready() {
            count += self.drain::<M>(MessageClass::Reply);
        }
        if self.ring_of(me, MessageClass::Request).ready() {
            count += self.drain::<M>(MessageClass::Request);
        }
        count
    }

    #[inline(never)]
    fn drain<M: Mode>(&self, class: MessageClass) -> usize {
        let mut packet = Packet::empty();
        let mut count = 0;
        while count < BATCH && !self.is_closed() && self.take::<M>(class, &mut packet) {
            self.deliver::<M>(class, &mut packet);
            count += 1;
        }
        count
    }

    /// Takes a message out of a queue; in threaded modes under the consumer's try-lock, which ends before the handler runs.
    #[inline]
    fn take<M: Mode>(&self, class: MessageClass, packet: &mut Packet) -> bool {
        let ring = self.ring_of(self.local(), class);
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

    #[inline]
    pub(crate) fn deliver<M: Mode>(&self, class: MessageClass, packet: &mut Packet) {
        let (source, index, len, place) =
            (packet.source() as usize, packet.handler(), packet.len(), packet.place());
        let kind = packet.kind();
        let entry = self.handlers.get(index);
        let Some((args, inline)) = packet.parts() else { self.malformed(source, "counts") };
        if source >= self.layout().locals {
            self.malformed(source, "source");
        }
        let Some(entry) = entry else { self.no_handler(self.rank_of(source), index) };
        self.check_promise(entry, class, self.rank_of(source), args.len());
        let token = RawToken::new(self, source, class, kind == Some(Kind::Long), entry);
        match kind {
            Some(Kind::Short) => run::<M>(&token, args, Delivery::None),
            Some(Kind::MediumInline) => run::<M>(&token, args, Delivery::Medium(inline)),
            Some(Kind::MediumBlock) => {
                let block = Block::from_wire(place);
                let memory = self.memory();
                let payload = memory.block_payload(source, class as usize, block, len as usize);
                let Some(payload) = payload else { self.malformed(source, "payload block") };
                run::<M>(&token, args, Delivery::Medium(payload));
                self.freed(source, class)[block.index as usize]
                    .store(block.generation, Ordering::Release);
            }
            Some(Kind::Long) if matches!(entry.function, Function::Foreign(_)) => {
                run::<M>(&token, args, Delivery::Address(place, len as usize));
            }
            Some(Kind::Long) => {
                let landing = Landing::new(self, place, len as usize);
                let Some(landing) = landing else { self.malformed(source, "destination") };
                run::<M>(&token, args, Delivery::Long(landing));
            }
            Some(Kind::Internal) | None => self.malformed(source, "kind"),
        }
        if let Some(deferred) = token.take_deferred() {
            self.flush::<M>(&deferred);
        }
    }

    /// Sends a reply that found no room in its handler. Meanwhile only replies are delivered: they need no room.
    #[cold]
    pub(crate) fn flush<M: Mode>(&self, deferred: &Deferred) {
        let message = deferred.message();
        let mut waiter = Waiter::for_room();
        while !self.try_post::<M>(&message) {
            if self.is_closed() || self.node_shm().notice().is_some() {
                return;
            }
            let me = self.local();
            let count = self.poll_internal() + self.drain::<M>(MessageClass::Reply);
            if count + self.drain_lanes::<M>(MessageClass::Reply) > 0 {
                waiter.progressed();
            } else {
                waiter.idle(self, || {
                    self.ring_of(me, MessageClass::Reply).ready()
                        || self.lane_ready(MessageClass::Reply)
                        || self.internal_of(me).ready()
                });
            }
        }
    }

    /// A message must be what the handler was registered for.
    #[inline]
    pub(crate) fn check_promise(
        &self,
        entry: &Registered,
        class: MessageClass,
        source: Rank,
        nargs: usize,
    ) {
        if !keeps_promise(entry, class, nargs) {
            let role = role_of(class);
            self.fatal(&format!(
                "rank {} received a {role:?} with {nargs} arguments from rank {source} for handler {entry:?}",
                self.rank_info().rank,
            ))
        }
    }

    #[cold]
    pub(crate) fn no_handler(&self, source: Rank, index: u8) -> ! {
        self.fatal(&format!(
            "rank {} received a message from rank {source} for handler {index}, which is not registered here: \
             register handlers on every rank, then meet in a barrier before the first message",
            self.rank_info().rank,
        ))
    }

    #[cold]
    fn malformed(&self, source: usize, part: &str) -> ! {
        self.fatal(&format!(
            "rank {} found a malformed message in its queue (source {source}, bad {part}): shared memory was overwritten",
            self.rank_info().rank,
        ))
    }
}

const fn role_of(class: MessageClass) -> Role {
    match class {
        MessageClass::Reply => Role::Reply,
        // Internal messages have no registered handler.
        MessageClass::Request | MessageClass::Internal => Role::Request,
    }
}

/// Whether a message is what its handler was registered for.
#[inline(always)]
pub(crate) fn keeps_promise(entry: &Registered, class: MessageClass, nargs: usize) -> bool {
    (nargs == entry.nargs || entry.nargs == ANY_ARGS)
        && (entry.role == Role::ReqRep || entry.role == role_of(class))
}

/// The payload of a message, where it is.
pub(crate) enum Delivery<'a> {
    None,
    Medium(&'a mut [u8]),
    Long(Landing<'a>),
    /// A Long for a foreign function: its destination as an address of this process.
    Address(u64, usize),
}

#[inline]
pub(crate) fn run<M: Mode>(token: &RawToken<'_>, args: &[i32], arrived: Delivery<'_>) {
    token.core().run_handler::<M>(|| match (&token.entry().function, arrived) {
        (Function::Foreign(function), arrived) => run_foreign(function, token, arrived, args),
        (Function::Short(function), Delivery::None) => function(token, args),
        (Function::Medium(function), Delivery::Medium(payload)) => function(token, payload, args),
        (Function::Long(function), Delivery::Long(landing)) => function(token, landing, args),
        (Function::MedLong(function), Delivery::Medium(payload)) => {
            function(token, Payload::Medium(payload), args);
        }
        (Function::MedLong(function), Delivery::Long(landing)) => {
            function(token, Payload::Long(landing), args);
        }
        (_, arrived) => wrong_category(token, &arrived),
    });
}

#[inline]
fn run_foreign(function: &Foreign, token: &RawToken<'_>, mut arrived: Delivery<'_>, args: &[i32]) {
    let arrival = match &mut arrived {
        Delivery::None => Arrival::Short,
        Delivery::Medium(payload) => Arrival::Medium(payload),
        Delivery::Address(at, len) => Arrival::Long(*at, *len),
        Delivery::Long(_) => wrong_category(token, &arrived),
    };
    if !function.takes(&arrival) {
        wrong_category(token, &arrived);
    }
    function.run(token, arrival, args);
}

#[cold]
fn wrong_category(token: &RawToken<'_>, arrived: &Delivery<'_>) -> ! {
    let category = match arrived {
        Delivery::None => "Short",
        Delivery::Medium(_) => "Medium",
        Delivery::Long(_) => "Long",
        Delivery::Address(..) => "Long",
    };
    token.core().fatal(&format!(
        "rank {} received a {category} from rank {} for handler {:?}",
        token.core().rank_info().rank,
        token.source(),
        token.entry(),
    ))
}

/// The slot for a deferred reply, one per handler run.
pub(crate) type DeferredSlot = Cell<Option<Box<Deferred>>>;
