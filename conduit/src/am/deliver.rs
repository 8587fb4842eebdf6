//! From an arrived message to its handler: what both transports find goes through here, and is
//! checked here.

use std::cell::Cell;
use std::marker::PhantomData;

use bootstrap::Rank;

use super::deferred::Deferred;
use super::traced;
use crate::foreign::{ANY_ARGS, Arrival, Foreign, ShortBurst};
use crate::handler::{Function, Payload, Registered, Role};
use crate::long_payload::LongPayload;
use crate::mode::Mode;
use crate::rank::RankContext;
use crate::token::RawToken;
use crate::trace::{self, Category};
use crate::transport::message::{Arrived, ArrivedPayload, MessageClass, Sink};
use crate::transport::net::Mark;
use crate::transport::shm::{BurstReader, ShmSink};
use crate::wait::Waiter;

pub(crate) struct ShmReceiver<'a, M: Mode> {
    context: &'a RankContext,
    mode: PhantomData<M>,
}

impl<'a, M: Mode> ShmReceiver<'a, M> {
    #[inline(always)]
    pub(crate) const fn new(context: &'a RankContext) -> Self {
        Self { context, mode: PhantomData }
    }
}

impl<M: Mode> Sink for ShmReceiver<'_, M> {
    #[inline]
    fn arrived(&self, message: Arrived<'_>) {
        self.context.deliver::<M>(message);
    }
}

impl<M: Mode> ShmSink for ShmReceiver<'_, M> {
    #[inline(always)]
    fn is_open(&self) -> bool {
        !self.context.is_closed()
    }

    #[inline]
    fn arrived_burst(
        &self,
        source: usize,
        class: MessageClass,
        burst: BurstReader<'_>,
        most: usize,
    ) -> usize {
        self.context.deliver_burst::<M>(source, class, burst, most)
    }

    #[cold]
    fn malformed(&self, source: usize, part: &'static str) -> ! {
        self.context.fatal(&format!(
            "rank {} found a malformed message in its queue (source {source}, bad {part}): shared memory was overwritten",
            self.context.rank_info.rank,
        ))
    }
}

pub(crate) struct NetReceiver<'a, M: Mode> {
    context: &'a RankContext,
    /// Why a message of the library could not be taken.
    refused: Cell<Option<Box<str>>>,
    /// A message of the library has come.
    internal: Cell<bool>,
    mode: PhantomData<M>,
}

impl<M: Mode> Sink for NetReceiver<'_, M> {
    #[inline(always)]
    fn arrived(&self, message: Arrived<'_>) {
        // A handler may use the network.
        let _outside = Mark::outside();
        if message.class == MessageClass::Internal {
            self.on_internal_am(&message);
        } else if !self.context.is_closed() {
            self.context.deliver_here::<M>(message);
        }
    }
}

impl<'a, M: Mode> NetReceiver<'a, M> {
    pub(crate) fn new(context: &'a RankContext) -> Self {
        let (refused, internal) = (Cell::new(None), Cell::new(false));
        Self { context, refused, internal, mode: PhantomData }
    }

    pub(crate) const fn has_internal(&self) -> bool {
        self.internal.get()
    }

    /// Ends the job when a message of the library was none.
    pub(crate) fn check(&self) {
        if let Some(text) = self.refused.take() {
            let rank = self.context.rank_info.rank;
            self.context.fatal(&format!("rank {rank} received a malformed {text}"));
        }
    }

    #[inline(never)]
    fn on_internal_am(&self, message: &Arrived<'_>) {
        self.internal.set(true);
        if !self.context.take_internal_am(message) {
            let Arrived { source, handler, args, .. } = message;
            let source = self.context.rank_of(*source);
            let text = format!("internal message {handler} from rank {source} with words {args:?}");
            self.refused.set(Some(text.into()));
        }
    }
}

impl RankContext {
    #[inline]
    fn deliver<M: Mode>(&self, message: Arrived<'_>) {
        self.deliver_here::<M>(message);
    }

    /// As [`RankContext::deliver`], where what is known of the message is to be used.
    #[inline(always)]
    fn deliver_here<M: Mode>(&self, message: Arrived<'_>) {
        let Arrived { source, class, handler, args, payload, reply } = message;
        let Some(entry) = self.handlers.get(handler) else {
            self.no_handler(self.rank_of(source), handler)
        };
        self.check_promise(entry, class, source, args.len());
        let is_long = matches!(payload, ArrivedPayload::Long { .. });
        let token = RawToken::new(self, (source, class), is_long, entry, reply);
        // One call of the handler, whether it is traced or not, so that it is inlined.
        let running = if trace::on(Category::Messages) {
            let (way, name) = ((source, class), (handler, entry.name.as_str()));
            self.trace_handler(way, name, traced::of_arrived(&payload))
        } else {
            None
        };
        run::<M>(&token, args, payload);
        if let Some(running) = running {
            trace::handler_ends(&running);
        }
        if let Some(deferred) = token.deferred.take() {
            self.flush::<M>(&deferred);
        }
    }

    /// Runs a reply handler of the client without arguments for the payload of a Medium, inside a
    /// handler of the library.
    pub(crate) fn deliver_inside(&self, source: usize, handler: u8, payload: &mut [u8]) {
        let class = MessageClass::Reply;
        let Some(entry) = self.handlers.get(handler) else {
            self.no_handler(self.rank_of(source), handler)
        };
        self.check_promise(entry, class, source, 0);
        let token = RawToken::new(self, (source, class), false, entry, None);
        call(&token, &[], ArrivedPayload::Medium(payload));
    }

    /// Runs the client's handler of a Long whose message `token` is for, inside its handler.
    pub(super) fn deliver_carried(
        &self,
        token: &RawToken<'_>,
        handler: u8,
        args: &[i32],
        (offset, len): (u64, usize),
    ) {
        let Some(entry) = self.handlers.get(handler) else {
            self.no_handler(token.source(), handler)
        };
        self.check_promise(entry, token.class(), token.source, args.len());
        let long = token.of_carried(entry);
        call(&long, args, ArrivedPayload::Long { offset, len });
        token.deferred.set(long.deferred.take());
    }

    /// Runs a foreign function for Shorts that are alike. What was checked for the first holds for
    /// all.
    #[inline]
    fn deliver_burst<M: Mode>(
        &self,
        source: usize,
        class: MessageClass,
        burst: BurstReader<'_>,
        most: usize,
    ) -> usize {
        let handler = burst.handler();
        let Some(entry) = self.handlers.get(handler) else { return 0 };
        let Function::Foreign(function) = &entry.function else { return 0 };
        if !function.takes_shorts() {
            return 0;
        }
        self.check_promise(entry, class, source, burst.nargs());
        let token = RawToken::new(self, (source, class), false, entry, None);
        let mut row = ShortBurst::new(self, &token, burst, most);
        self.calls.run_handler::<M>(|| function.run_burst(&mut row));
        let (count, answered) = row.taken();
        drop(row);
        if trace::on(Category::Messages) {
            self.trace_burst((source, class), (handler, entry.name.as_str()), count);
        }
        if !answered {
            self.shm().budget.count_taken(count);
        }
        if let Some(deferred) = token.deferred.take() {
            self.flush::<M>(&deferred);
        }
        count
    }

    /// Sends a reply that found no room in its handler. Meanwhile only replies are delivered: they
    /// need no room.
    #[cold]
    fn flush<M: Mode>(&self, deferred: &Deferred) {
        let message = deferred.message();
        let receiver = ShmReceiver::<M>::new(self);
        let reply = MessageClass::Reply;
        let mut waiter = Waiter::for_room();
        while !self.try_send::<M>(&message) {
            if self.is_closed() || self.node_shm().exit_decision().is_some() {
                return;
            }
            let shm = self.shm();
            let count = self.poll_internal() + shm.drain::<M>(reply, &receiver);
            if count + shm.drain_some::<M>(reply, &receiver) > 0 {
                waiter.progressed();
            } else {
                waiter.idle(self, || {
                    shm.is_ready(reply)
                        || shm.lane_ready(reply)
                        || shm.is_ready(MessageClass::Internal)
                });
            }
        }
    }

    /// A message must be what the handler was registered for.
    #[inline(always)]
    fn check_promise(&self, entry: &Registered, class: MessageClass, source: usize, nargs: usize) {
        let fits = nargs == entry.nargs || entry.nargs == ANY_ARGS;
        if !fits || entry.role != Role::ReqRep && entry.role != role_of(class) {
            self.broken_promise(entry, class, source, nargs);
        }
    }

    #[cold]
    fn broken_promise(
        &self,
        entry: &Registered,
        class: MessageClass,
        source: usize,
        nargs: usize,
    ) -> ! {
        let (role, source) = (role_of(class), self.rank_of(source));
        self.fatal(&format!(
            "rank {} received a {role:?} with {nargs} arguments from rank {source} for handler {entry:?}",
            self.rank_info.rank,
        ))
    }

    #[cold]
    fn no_handler(&self, source: Rank, index: u8) -> ! {
        self.fatal(&format!(
            "rank {} received a message from rank {source} for handler {index}, which is not registered here: \
             register handlers on every rank, then meet in a barrier before the first message",
            self.rank_info.rank,
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

#[inline(always)]
fn run<M: Mode>(token: &RawToken<'_>, args: &[i32], payload: ArrivedPayload<'_>) {
    // No closure: one that modes share is not inlined.
    let _inside = token.context.calls.enter_handler::<M>();
    call(token, args, payload);
}

#[inline(always)]
fn call(token: &RawToken<'_>, args: &[i32], payload: ArrivedPayload<'_>) {
    match (&token.entry.function, payload) {
        (Function::Foreign(function), payload) => run_foreign(function, token, payload, args),
        (Function::Short(function), ArrivedPayload::None) => function(token, args),
        (Function::Medium(function), ArrivedPayload::Medium(payload)) => {
            function(token, payload, args);
        }
        (Function::Long(function), ArrivedPayload::Long { offset, len }) => {
            function(token, landing(token, offset, len), args);
        }
        (Function::MedLong(function), ArrivedPayload::Medium(payload)) => {
            function(token, Payload::Medium(payload), args);
        }
        (Function::MedLong(function), ArrivedPayload::Long { offset, len }) => {
            function(token, Payload::Long(landing(token, offset, len)), args);
        }
        (_, payload) => wrong_category(token, &payload),
    }
}

fn landing<'a>(token: &RawToken<'a>, offset: u64, len: usize) -> LongPayload<'a> {
    let of = (token.context.shm(), token.context.settings.segment_mode);
    LongPayload::new(of, offset, len).unwrap_or_else(|| outside(token))
}

#[cold]
fn outside(token: &RawToken<'_>) -> ! {
    token.context.fatal(&format!(
        "rank {} received a Long from rank {} for bytes that are not in its segment",
        token.context.rank_info.rank,
        token.source(),
    ))
}

#[inline]
fn run_foreign(
    function: &Foreign,
    token: &RawToken<'_>,
    mut payload: ArrivedPayload<'_>,
    args: &[i32],
) {
    let arrival = match &mut payload {
        ArrivedPayload::None => Arrival::Short,
        ArrivedPayload::Medium(payload) => Arrival::Medium(payload),
        ArrivedPayload::Long { offset, len } => {
            Arrival::Long(token.context.shm().own_base().wrapping_add(*offset), *len)
        }
    };
    if !function.takes(&arrival) {
        wrong_category(token, &payload);
    }
    function.run(token, arrival, args);
}

#[cold]
fn wrong_category(token: &RawToken<'_>, payload: &ArrivedPayload<'_>) -> ! {
    let category = match payload {
        ArrivedPayload::None => "Short",
        ArrivedPayload::Medium(_) => "Medium",
        ArrivedPayload::Long { .. } => "Long",
    };
    token.context.fatal(&format!(
        "rank {} received a {category} from rank {} for handler {:?}",
        token.context.rank_info.rank,
        token.source(),
        token.entry,
    ))
}
