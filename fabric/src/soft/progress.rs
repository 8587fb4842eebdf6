//! Everything that arrives at a device: its streams, which of them are looked at, and the timers.
//!
//! One thread at a time is in here: a poller, or the engine. Streams that had data lately are *hot* and read without asking
//! the system first; the others are found by an edge-triggered epoll.

mod begin;
mod pairs;
mod timers;

use std::sync::Arc;
use std::time::Instant;

use nix::errno::Errno;
use nix::sys::epoll::{EpollEvent, EpollFlags, EpollTimeout};

use self::begin::turn_dial;
use self::pairs::{Heard, turn_answers, way_back_is_gone};
use super::briefly;
use super::device::Dev;
use super::limits::{ASK_EVERY, HOT, HOT_MISSES, SCRATCH, TICK_EVERY, UNWATCH};
use super::qp::Qp;
use super::rx::{Outcome, Responder};
use super::strangers::{Dial, Parked, Stranger};
use super::ud;

pub(super) const LISTENER: u64 = u64::MAX;
pub(super) const DATAGRAMS: u64 = u64::MAX - 1;

/// A stream and what it is at.
#[derive(Debug)]
enum Conn {
    Stranger(Stranger),
    Parked(Parked),
    Dial(Dial),
    /// Requests go out, answers come in.
    Answers(Arc<Qp>, Arc<std::net::TcpStream>),
    /// Requests come in, answers go out.
    Requests(Box<Responder>),
}

impl Conn {
    /// A fault script keeps this stream from going on.
    fn is_cut(&self, dev: &Dev) -> bool {
        match self {
            Self::Stranger(stranger) => dev.is_cut(stranger.peer.ip()),
            Self::Parked(_) => false,
            Self::Dial(Dial { qp, .. }) | Self::Answers(qp, _) => qp.is_cut(),
            Self::Requests(responder) => responder.qp.is_cut(),
        }
    }

    /// Whether the peer has said something on a stream of a queue pair that was not heard, or not answered. It does not say
    /// whether the peer still waits for it.
    fn is_awaited(&self) -> bool {
        match self {
            Self::Stranger(_) | Self::Parked(_) | Self::Dial(_) => false,
            Self::Requests(responder) if responder.is_behind() => true,
            Self::Requests(_) | Self::Answers(..) => self.stream().peek(&mut [0]).is_ok(),
        }
    }

    const fn stream(&self) -> &Arc<std::net::TcpStream> {
        match self {
            Self::Stranger(stranger) => &stranger.stream,
            Self::Parked(parked) => &parked.stream,
            Self::Dial(dial) => &dial.stream,
            Self::Answers(_, stream) => stream,
            Self::Requests(responder) => &responder.stream,
        }
    }

    const fn qp(&self) -> Option<&Arc<Qp>> {
        match self {
            Self::Stranger(_) | Self::Parked(_) => None,
            Self::Dial(dial) => Some(&dial.qp),
            Self::Answers(qp, _) => Some(qp),
            Self::Requests(responder) => Some(&responder.qp),
        }
    }
}

/// What a turn of a stream came to.
#[derive(Debug)]
enum Fate {
    Keep { conn: Conn, did: bool, again: bool },
    Gone,
}

impl Fate {
    const fn keep(conn: Conn) -> Self {
        Self::Keep { conn, did: false, again: false }
    }
}

#[derive(Debug, Default)]
struct Entry {
    generation: u32,
    conn: Option<Conn>,
    queued: bool,
    hot: bool,
    misses: u32,
    /// Turns with data since it is hot.
    hits: u32,
    /// The system tells of it.
    watched: bool,
    /// Since when a fault script lets the peer wait on it.
    unheard: Option<Instant>,
}

impl Entry {
    /// From now on the system tells of the stream, and at once when it is ready. False: it does already, or cannot.
    fn watch(&mut self, dev: &Dev, token: u64) -> bool {
        let flags = EpollFlags::EPOLLIN
            | EpollFlags::EPOLLOUT
            | EpollFlags::EPOLLRDHUP
            | EpollFlags::EPOLLET;
        let stream = self.conn.as_ref().map(Conn::stream).filter(|_| !self.watched);
        let event = EpollEvent::new(flags, token);
        let begun = stream.is_some_and(|stream| dev.epoll().add(&**stream, event).is_ok());
        self.watched |= begun;
        begun
    }

    /// From now on somebody looks at it in each turn. False: the system goes on to tell of it.
    fn unwatch(&mut self, dev: &Dev) -> bool {
        let stream = self.conn.as_ref().map(Conn::stream);
        let ended = stream.is_some_and(|stream| dev.epoll().delete(&**stream).is_ok());
        self.watched &= !ended;
        ended
    }
}

/// What a look at a device found.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Looked {
    /// Something must be looked at again soon, whatever the system says.
    pub(super) soon: bool,
    /// Requests or timers are out.
    pub(super) busy: bool,
    /// A thread that posts kept it from something.
    pub(super) hindered: bool,
}

/// The streams of a device.
#[derive(Debug)]
pub(super) struct Progress {
    entries: Vec<Entry>,
    free: Vec<u32>,
    hot: Vec<u64>,
    again: Vec<u64>,
    /// Hot streams that the system does not tell of.
    unwatched: u32,
    spare: Vec<u64>,
    /// Empty between timers; kept for its room.
    qps: Vec<Arc<Qp>>,
    scratch: Box<[u8]>,
    passes: u32,
    posts: u64,
    ticked: Instant,
    accept_again: bool,
    busy: bool,
    hindered: bool,
    strangers: usize,
}

const fn split(token: u64) -> (usize, u32) {
    let (low, high) = ((token & 0xffff_ffff) as usize, token >> 32);
    #[expect(clippy::cast_possible_truncation, reason = "the high half of the token")]
    (low, high as u32)
}

impl Progress {
    pub(super) fn new() -> Self {
        Self {
            entries: Vec::new(),
            free: Vec::new(),
            hot: Vec::with_capacity(HOT),
            again: Vec::new(),
            unwatched: 0,
            spare: Vec::new(),
            qps: Vec::new(),
            scratch: vec![0; SCRATCH].into_boxed_slice(),
            passes: 0,
            posts: 0,
            ticked: Instant::now(),
            accept_again: false,
            busy: false,
            hindered: false,
            strangers: 0,
        }
    }

    /// Moves what there is to move. `eager`: for the engine and for control calls, which look at everything.
    pub(super) fn pass(&mut self, dev: &Arc<Dev>, eager: bool) -> Looked {
        self.passes = self.passes.wrapping_add(1);
        if dev.take_attention() {
            self.attend(dev);
        }
        self.flush_deferred(dev, eager);
        if self.unwatched != 0 && (eager || dev.is_blocked()) {
            self.watch_all(dev);
        }
        self.turn_again(dev, eager);
        let mut did = false;
        for place in 0..self.hot.len() {
            if let Some(token) = self.hot.get(place).copied() {
                did |= self.turn(dev, token, false, eager);
            }
        }
        // The engine sleeps until the system tells it, unless it only naps.
        let polled = !eager && !dev.is_blocked() && dev.engine_naps();
        self.cool(dev, polled);
        let ask = eager || self.hot.is_empty() || dev.is_blocked();
        if ask || (!did && self.passes.is_multiple_of(ASK_EVERY)) {
            self.ask(dev, eager);
        }
        if dev.take_attention() {
            self.attend(dev);
        }
        // Pollers look at the timers too: the engine may never find the device free.
        if eager || self.passes.is_multiple_of(TICK_EVERY) {
            self.tick(dev);
        }
        let hindered = std::mem::take(&mut self.hindered);
        Looked { soon: !self.again.is_empty(), busy: self.busy, hindered }
    }

    /// Requests that were gathered go out when the poller posted nothing between two looks.
    fn flush_deferred(&mut self, dev: &Dev, eager: bool) {
        let posts = dev.posts();
        let idle = posts == self.posts;
        self.posts = posts;
        if !(idle || eager) || !dev.take_dirty() {
            return;
        }
        for entry in &self.entries {
            if let Some(Conn::Answers(qp, _)) = &entry.conn
                && qp.take_dirty()
            {
                match briefly(&qp.tx) {
                    Some(mut tx) => tx.flush(qp),
                    None => {
                        qp.mark_dirty();
                        self.hindered = true;
                    }
                }
            }
        }
    }

    fn turn_again(&mut self, dev: &Arc<Dev>, eager: bool) {
        if self.again.is_empty() {
            return;
        }
        let mut list = std::mem::replace(&mut self.again, std::mem::take(&mut self.spare));
        for token in list.drain(..) {
            if let Some(entry) = self.entry(token) {
                entry.queued = false;
                // The stream may have become writable while another thread was in its queue pair.
                self.turn(dev, token, true, eager);
            }
        }
        self.spare = list;
    }

    fn entry(&mut self, token: u64) -> Option<&mut Entry> {
        let (index, generation) = split(token);
        self.entries.get_mut(index).filter(|entry| entry.generation == generation)
    }

    /// Streams that had nothing for long are not hot any more. `polled`: the system need not tell of those that are; it would
    /// for each message, on a line that both processors write.
    fn cool(&mut self, dev: &Dev, polled: bool) {
        let (entries, unwatched) = (&mut self.entries, &mut self.unwatched);
        self.hot.retain(|token| {
            let (index, generation) = split(*token);
            let Some(entry) = entries.get_mut(index) else { return false };
            let lives = entry.generation == generation && entry.conn.is_some();
            let stays = lives && entry.misses < HOT_MISSES;
            if !stays && entry.generation == generation {
                entry.hot = false;
            }
            if lives && !stays && !entry.watched {
                *unwatched -= u32::from(entry.watch(dev, *token));
            } else if stays && entry.watched && entry.hits >= UNWATCH && polled {
                *unwatched += u32::from(entry.unwatch(dev));
            }
            stays
        });
    }

    /// The system tells of all streams again.
    fn watch_all(&mut self, dev: &Dev) {
        for token in &self.hot {
            let (index, generation) = split(*token);
            let entry = self.entries.get_mut(index);
            if let Some(entry) = entry.filter(|entry| entry.generation == generation) {
                entry.hits = 0;
                self.unwatched -= u32::from(entry.watch(dev, *token));
            }
        }
    }

    fn heat(&mut self, token: u64) {
        if self.hot.len() < HOT
            && let Some(entry) = self.entry(token)
        {
            entry.hot = true;
            entry.misses = 0;
            entry.hits = 0;
            self.hot.push(token);
        }
    }

    fn ask(&mut self, dev: &Arc<Dev>, eager: bool) {
        let mut events = [EpollEvent::empty(); 32];
        let count = match dev.epoll().wait(&mut events, EpollTimeout::ZERO) {
            Ok(count) => count,
            Err(Errno::EINTR) => 0,
            Err(_) => return,
        };
        for event in events.iter().take(count) {
            match event.data() {
                LISTENER => self.accept(dev),
                DATAGRAMS => drop(ud::receive(dev, &mut self.scratch)),
                token => {
                    let writable = event.events().contains(EpollFlags::EPOLLOUT);
                    self.turn(dev, token, writable, eager);
                }
            }
        }
    }

    /// Puts a new stream under watch.
    fn add(&mut self, dev: &Dev, conn: Conn) -> Option<u64> {
        let index = self.free.pop().unwrap_or_else(|| {
            self.entries.push(Entry::default());
            super::narrow(self.entries.len() - 1)
        });
        let entry = self.entries.get_mut(index as usize)?;
        let token = u64::from(index) | u64::from(entry.generation) << 32;
        let generation = entry.generation;
        *entry = Entry { generation, conn: Some(conn), ..Entry::default() };
        if !entry.watch(dev, token) {
            entry.conn = None;
            self.free.push(index);
            return None;
        }
        Some(token)
    }

    /// An entry is free again.
    fn release(&mut self, index: usize) {
        if let Some(entry) = self.entries.get_mut(index) {
            entry.generation = entry.generation.wrapping_add(1);
            // One that never had a stream is watched by nobody.
            self.unwatched -= u32::from(entry.hot && !entry.watched);
            entry.conn = None;
            entry.queued = false;
            entry.hot = false;
            self.free.push(super::narrow(index));
        }
    }

    /// One turn of a stream; whether it had something.
    fn turn(&mut self, dev: &Arc<Dev>, token: u64, writable: bool, eager: bool) -> bool {
        let (index, generation) = split(token);
        let Some(entry) = self.entries.get_mut(index) else { return false };
        if entry.generation != generation {
            return false;
        }
        let (hot, misses) = (entry.hot, entry.misses);
        let Some(conn) = entry.conn.take() else { return false };
        if dev.mishaps().is_active() && conn.is_cut(dev) {
            entry.conn = Some(conn);
            return false;
        }
        let fate = match conn {
            Conn::Stranger(stranger) => self.turn_stranger(dev, token, stranger),
            Conn::Parked(parked) if parked.is_closed() => Fate::Gone,
            Conn::Parked(parked) => Fate::keep(Conn::Parked(parked)),
            Conn::Dial(dial) => turn_dial(dev, dial),
            Conn::Answers(qp, stream) => {
                match turn_answers(&qp, &stream, &mut self.scratch, writable) {
                    None => Fate::Gone,
                    Some(Heard { did, again, takes, refused }) => {
                        if let Some(why) = refused {
                            self.refuse(dev, &qp, why);
                        }
                        if takes {
                            let misses = if did { 0 } else { misses };
                            self.pay_for_back(dev, &qp, misses, eager);
                        }
                        Fate::Keep { conn: Conn::Answers(qp, stream), did, again }
                    }
                }
            }
            Conn::Requests(mut responder) => {
                let pay = eager || !hot && self.hot.len() == HOT;
                let outcome = responder.turn(dev, &mut self.scratch, pay);
                if responder.owes() {
                    // The engine pays when polls stop.
                    dev.wake();
                }
                match outcome {
                    Outcome::Gone => {
                        way_back_is_gone(&responder.qp);
                        Fate::Gone
                    }
                    Outcome::Wait { did } => {
                        Fate::Keep { conn: Conn::Requests(responder), did, again: false }
                    }
                    Outcome::Again { did } => {
                        Fate::Keep { conn: Conn::Requests(responder), did, again: true }
                    }
                }
            }
        };
        self.settle(dev, token, fate, eager)
    }

    fn settle(&mut self, dev: &Dev, token: u64, fate: Fate, eager: bool) -> bool {
        let (index, _) = split(token);
        let Fate::Keep { conn, did, again } = fate else {
            self.release(index);
            return true;
        };
        let flows = matches!(conn, Conn::Requests(_) | Conn::Answers(..));
        let Some(entry) = self.entries.get_mut(index) else { return did };
        entry.conn = Some(conn);
        entry.misses = if did { 0 } else { entry.misses.saturating_add(1) };
        entry.hits = entry.hits.saturating_add(u32::from(did));
        let heat = did && flows && !entry.hot;
        if again && !entry.queued {
            entry.queued = true;
            self.again.push(token);
        }
        if heat {
            self.heat(token);
        } else if entry.hot && entry.misses >= HOT_MISSES {
            // It leaves the list of those that are looked at: nothing may be owed.
            if let Some(Conn::Requests(responder)) = &mut entry.conn
                && responder.owes()
                && !eager
            {
                responder.settle(dev);
            }
        }
        did
    }
}
