//! How messages and one-sided operations travel: shared memory inside a neighbourhood, the network
//! between them.
//!
//! [`Transport::route`] is the one place where the two part. What is above names a rank by a target
//! ([`neighbours`]) and does not ask where it is; what is below is one of the two and does not know
//! the other.
//!
//! A message takes these steps: `check` (limits), [`Transport::place`] (the payload of a Long, or
//! its destination), [`Transport::send`]. Arrived ones go to a [`message::Sink`].

pub(crate) mod limits;
pub(crate) mod message;
pub(crate) mod neighbour_ranks;
pub(crate) mod neighbours;
pub(crate) mod net;
pub(crate) mod op_counter;
pub(crate) mod place;
pub(crate) mod shm;

use std::sync::atomic::Ordering;

use bootstrap::{Bootstrap, Rank};
use settings::{Env, Values};

use self::message::{AmMessage, AmPayload, Block, MessageClass};
use self::neighbours::{Neighbours, remote_rank};
use self::net::{NetTransport, SendBuffer};
use self::place::Place;
use self::shm::ShmTransport;
use crate::error::Error;
use crate::mode::Mode;
use crate::settings::Settings;
use crate::sys;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// A neighbour, by its local index.
    Shm(usize),
    /// A rank that shares no memory with this one.
    Net(Rank),
}

/// A buffer of the library for a payload, where the receiver or the network takes it from.
pub(crate) enum Reserved {
    Block(Block),
    SendBuffer(SendBuffer),
}

/// The attached segment of some rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerSegment {
    /// First byte in the owner's process.
    pub owner_base: u64,
    /// Bytes; 0 before attach.
    pub len: u64,
    /// First byte in this process, for ranks that share memory with this one.
    pub here: Option<*mut u8>,
}

#[repr(C)]
pub(crate) struct Transport {
    pub(crate) shm: ShmTransport,
    /// There when some rank is outside the neighbourhood. Dropped before the segments that it was
    /// promised.
    net: Option<NetTransport>,
    /// Ranges are addresses of their owner's process, which no mapping of this one has.
    everything: bool,
}

impl Drop for Transport {
    fn drop(&mut self) {
        // The network was promised memory that the other half owns.
        drop(self.net.take());
    }
}

impl Transport {
    pub(crate) fn open(
        neighbours: &Neighbours,
        settings: &Settings,
        variables: (&Values, &Env),
        services: &mut dyn Bootstrap,
        c_face: bool,
    ) -> Result<Self, Error> {
        let shm = ShmTransport::open(neighbours, settings, services, c_face)?;
        // Before the network has threads: of a process with one thread the system needs no grace
        // period (some milliseconds).
        let fences = sys::join_barriers();
        let max_segment = settings.max_segment.for_each(services.rank_info().locals);
        let most = settings.neighbourhood_max;
        let single = settings.single_threaded;
        let limits = (max_segment, most);
        let mode = settings.segment_mode;
        let net = NetTransport::start(limits, mode, single, neighbours, variables, services)?;
        shm.join_fences(fences);
        Ok(Self { shm, net, everything: mode.is_everything() })
    }

    /// Where a target is: the only place that compares.
    #[inline(always)]
    pub(crate) fn route(&self, target: usize) -> Route {
        if target < self.shm.span.locals as usize {
            return Route::Shm(target);
        }
        Route::Net(remote_rank(target).unwrap_or(Rank(u32::MAX)))
    }

    /// Whether operations at a target take time: it is reached over the network.
    #[inline]
    pub(crate) fn is_remote(&self, target: usize) -> bool {
        matches!(self.route(target), Route::Net(_))
    }

    #[inline]
    pub(crate) const fn net(&self) -> Option<&NetTransport> {
        self.net.as_ref()
    }

    /// One attempt to send; `false` when there is no room. The message was checked and its payload
    /// is in place.
    #[inline(always)]
    pub(crate) fn send<M: Mode>(&self, message: &AmMessage<'_>) -> Result<bool, Box<net::Error>> {
        match self.route(message.target) {
            Route::Shm(local) => Ok(self.shm.send::<M>(local, message)),
            Route::Net(_) => match self.net() {
                Some(net) => Ok(net.send(message)?.is_yes()),
                None => Ok(false),
            },
        }
    }

    /// Sends a message of the library to any rank, this one included. `false`: not now, or the rank
    /// cannot be reached. Async-signal-safe.
    pub(crate) fn send_internal(&self, target: usize, id: u8, args: &[i32]) -> bool {
        let (handler, payload) = (id, AmPayload::None);
        let message = AmMessage { class: MessageClass::Internal, target, handler, args, payload };
        match self.route(target) {
            Route::Shm(local) => self.shm.send_internal(local, id, args),
            Route::Net(_) => {
                let send = |net: &NetTransport| net.send(&message);
                matches!(self.net().map(send), Some(Ok(net::Sent::Yes)))
            }
        }
    }

    /// The message to send when its Long payload was taken care of: written to its destination at a
    /// neighbour, only its destination checked for remote ranks.
    #[inline]
    pub(crate) fn place<'m>(
        &self,
        message: AmMessage<'m>,
    ) -> Result<AmMessage<'m>, OutsideSegment> {
        let (len, dest) = match message.payload {
            // The message takes it along.
            AmPayload::Long { dest, .. } if self.is_any_memory(dest) => return Ok(message),
            AmPayload::SendBuffer { len, dest: Some(dest), .. } => (len as usize, dest),
            AmPayload::Long { payload, dest } => (payload.len(), dest),
            _ => return Ok(message),
        };
        let inside = match (self.route(message.target), message.payload) {
            (Route::Shm(local), AmPayload::Long { payload, .. }) => {
                self.shm.write(local, dest, payload)
            }
            (Route::Shm(_), _) => true,
            (Route::Net(rank), _) => self.is_inside(rank, dest, len),
        };
        if !inside {
            return Err(OutsideSegment { target: message.target, offset: dest, len });
        }
        let payload = match self.route(message.target) {
            Route::Shm(_) => {
                AmPayload::Placed { len: u32::try_from(len).unwrap_or(u32::MAX), dest }
            }
            Route::Net(_) => message.payload,
        };
        Ok(AmMessage { payload, ..message })
    }

    /// Whether a range from a place on lies in a segment of a remote rank. Without bytes any place will do.
    fn is_inside(&self, rank: Rank, place: u64, len: usize) -> bool {
        len == 0
            || self.is_any_memory(place)
            || self.net().is_some_and(|net| net.reaches(rank, place, len))
    }

    /// Whether a place is an address of its owner, in whatever memory.
    #[inline]
    pub(crate) fn is_any_memory(&self, place: u64) -> bool {
        self.everything && Place::of(place).endpoint == 0
    }

    /// Whether only messages reach a place of a target.
    #[cold]
    pub(crate) fn needs_messages(&self, target: usize, place: u64) -> bool {
        self.is_any_memory(place)
            || match self.route(target) {
                Route::Shm(_) => false,
                Route::Net(rank) => self.net().is_some_and(|net| net.lacks_key(rank, place)),
            }
    }

    pub(crate) fn check_remote(
        &self,
        rank: Rank,
        offset: u64,
        len: usize,
    ) -> Result<(), OutsideSegment> {
        let outside = || OutsideSegment { target: neighbours::remote(rank), offset, len };
        self.is_inside(rank, offset, len).then_some(()).ok_or_else(outside)
    }

    /// Whether a message with `nargs` arguments, its payload elsewhere, would find room now. A
    /// hint.
    #[inline]
    pub(crate) fn has_room<M: Mode>(
        &self,
        target: usize,
        class: MessageClass,
        nargs: usize,
    ) -> bool {
        match self.route(target) {
            Route::Shm(local) => self.shm.has_room::<M>(local, class, nargs),
            // The network says so when it is tried.
            Route::Net(_) => true,
        }
    }

    /// Whether the payload of a message would be read where it is, after the call too, if the
    /// sender can wait for it.
    pub(crate) fn is_zero_copy(&self, message: &AmMessage<'_>, waits: bool) -> bool {
        match self.route(message.target) {
            Route::Shm(_) => false,
            Route::Net(_) => self.net().is_some_and(|net| net.is_zero_copy(message, waits)),
        }
    }

    /// A buffer for a payload of `len` bytes; `None`: not now, or (for a `long` to a neighbour) it
    /// is copied where it goes.
    pub(crate) fn reserve<M: Mode>(
        &self,
        target: usize,
        class: MessageClass,
        len: usize,
        long: bool,
    ) -> Option<Reserved> {
        match self.route(target) {
            Route::Shm(_) if long => None,
            Route::Shm(_) => self.shm.allocate::<M>(class, len).map(Reserved::Block),
            Route::Net(_) => self.net()?.buffer(class).map(Reserved::SendBuffer),
        }
    }

    /// Attached segment of a target; `None` before attach.
    pub(crate) fn segment(&self, target: usize) -> Option<PeerSegment> {
        match self.route(target) {
            Route::Shm(local) => {
                let (here, row) = (Some(self.shm.segment_base(local)?), self.shm.memory.row(local));
                let (base, len) = (&row.base, &row.len);
                let [owner_base, len] = [base, len].map(|word| word.load(Ordering::Acquire));
                Some(PeerSegment { owner_base, len, here })
            }
            Route::Net(rank) => {
                let found = self.net()?.segment(rank)?;
                Some(PeerSegment { owner_base: found.base, len: found.len, here: None })
            }
        }
    }

    /// Copies into a segment that shares memory with this rank; `false` when the network has to
    /// reach it instead.
    #[inline]
    pub(crate) fn put(
        &self,
        target: usize,
        offset: u64,
        source: &[u8],
    ) -> Result<bool, OutsideSegment> {
        match self.route(target) {
            Route::Shm(local) if self.shm.write(local, offset, source) => Ok(true),
            Route::Shm(_) if self.is_any_memory(offset) => Ok(source.is_empty()),
            Route::Shm(_) => Err(OutsideSegment { target, offset, len: source.len() }),
            Route::Net(_) => Ok(source.is_empty()),
        }
    }

    #[inline]
    pub(crate) fn get(
        &self,
        target: usize,
        offset: u64,
        into: &mut [u8],
    ) -> Result<bool, OutsideSegment> {
        match self.route(target) {
            Route::Shm(local) if self.shm.read(local, offset, into) => Ok(true),
            Route::Shm(_) if self.is_any_memory(offset) => Ok(into.is_empty()),
            Route::Shm(_) => Err(OutsideSegment { target, offset, len: into.len() }),
            Route::Net(_) => Ok(into.is_empty()),
        }
    }

    /// Where a message of a target goes back to over the network.
    #[inline(always)]
    pub(crate) fn reply(
        &self,
        token: &message::ReplyToken<'_>,
        message: &AmMessage<'_>,
    ) -> Result<bool, Box<net::Error>> {
        match self.net() {
            Some(net) => Ok(net.reply(token, message)?.is_yes()),
            None => Ok(false),
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct OutsideSegment {
    pub(crate) target: usize,
    pub(crate) offset: u64,
    pub(crate) len: usize,
}
