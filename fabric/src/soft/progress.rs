//! Drives the streams of a device, and its timers.
//!
//! One thread at a time is in here: one that polls, or the progress thread. Streams that had data
//! lately are *hot*: they are read without asking the system first. An edge-triggered epoll finds
//! the others.

mod connect;
mod queue_pairs;
mod sleep;
mod timers;

use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::epoll::{EpollEvent, EpollFlags, EpollTimeout};
use settings::deadlines::soft::{WATCH_BUSY, WATCH_IDLE};

use super::context::{Context, DATAGRAMS, LISTENER};
use super::handshake::{Accepting, Connecting, Parked};
use super::limits::{
    ASK_EVERY, BURST_PASSES, BURST_REST, COOL_EVERY, FLOOD_MISSES, FLOOD_REST, HOT, HOT_MISSES,
    SCRATCH, TICK_EVERY, UNWATCH,
};
use super::lock::{Wait, try_lock_for};
use super::qp::Qp;
use super::qp_shared::Turn;
use super::qp_table::QpTable;
use super::responder::Responder;
use super::stream::Stream;
use super::ud;

/// A stream and what it is used for.
#[derive(Debug)]
enum Conn {
    Accepting(Box<Accepting>),
    Parked(Box<Parked>),
    Connecting(Arc<Qp>, Box<Connecting>),
    /// Requests go out, answers come in.
    Requester(Arc<Qp>, Arc<Stream>),
    /// Requests come in, answers go out.
    Responder(Box<Responder>),
}

impl Conn {
    /// A fault script keeps this stream from going on.
    fn is_unreachable(&self, ctx: &Context) -> bool {
        match self {
            Self::Accepting(conn) => ctx.is_unreachable(conn.peer.ip()),
            Self::Parked(_) => false,
            Self::Connecting(qp, _) | Self::Requester(qp, _) => qp.is_unreachable(),
            Self::Responder(responder) => responder.qp.is_unreachable(),
        }
    }

    /// Whether the peer sent something on a stream of a queue pair that was not read, or not
    /// answered. It may not wait for an answer any more.
    fn is_awaited(&self) -> bool {
        match self {
            Self::Accepting(_) | Self::Parked(_) | Self::Connecting(..) => false,
            Self::Responder(responder) if responder.is_behind() => true,
            Self::Responder(_) | Self::Requester(..) => self.stream().peek(&mut [0]).is_ok(),
        }
    }

    fn stream(&self) -> &TcpStream {
        match self {
            Self::Accepting(conn) => &conn.stream,
            Self::Parked(parked) => parked.stream.tcp(),
            Self::Connecting(_, conn) => &conn.stream,
            Self::Requester(_, stream) => stream.tcp(),
            Self::Responder(responder) => responder.stream.tcp(),
        }
    }

    const fn qp(&self) -> Option<&Arc<Qp>> {
        match self {
            Self::Accepting(_) | Self::Parked(_) => None,
            Self::Connecting(qp, _) | Self::Requester(qp, _) => Some(qp),
            Self::Responder(responder) => Some(&responder.qp),
        }
    }
}

/// What becomes of a stream after a turn; `None`: it is gone.
type Fate = Option<(Conn, Turn)>;

#[derive(Debug, Default)]
struct Entry {
    /// Its name in the epoll: its place, and above that how often the place was used before.
    token: u64,
    conn: Option<Conn>,
    queued: bool,
    hot: bool,
    misses: u32,
    /// Turns with data since it is hot.
    hits: u32,
    /// Until when passes leave it alone while it is hot.
    rests: Option<Instant>,
    /// The epoll has it.
    watched: bool,
    /// Since when a fault script cuts it off while the peer waits.
    unreachable_since: Option<Instant>,
}

impl Entry {
    /// Adds the stream to the epoll, which announces it at once when it is ready. False: it is
    /// there, or cannot be.
    fn watch(&mut self, ctx: &Context) -> bool {
        let flags = EpollFlags::EPOLLIN
            | EpollFlags::EPOLLOUT
            | EpollFlags::EPOLLRDHUP
            | EpollFlags::EPOLLET;
        let stream = self.conn.as_ref().map(Conn::stream).filter(|_| !self.watched);
        let event = EpollEvent::new(flags, self.token);
        let begun = stream.is_some_and(|stream| ctx.epoll.add(stream, event).is_ok());
        self.watched |= begun;
        begun
    }

    /// From now on every pass reads it. False: the system goes on to announce it.
    fn unwatch(&mut self, ctx: &Context) -> bool {
        let stream = self.conn.as_ref().map(Conn::stream);
        let ended = stream.is_some_and(|stream| ctx.epoll.delete(stream).is_ok());
        self.watched &= !ended;
        ended
    }
}

/// What a pass found.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PassResult {
    /// A stream needs another turn soon, whatever the system announces.
    pub(super) soon: bool,
    /// A stream had something.
    pub(super) found: bool,
    /// A thread that posts held a lock.
    pub(super) contended: bool,
}

#[derive(Debug, Default)]
pub(super) struct Progress {
    entries: Vec<Entry>,
    free: Vec<usize>,
    hot: Vec<u64>,
    again: Vec<u64>,
    /// Hot streams that are not in the epoll.
    unwatched: u32,
    spare: Vec<u64>,
    qps: Arc<QpTable>,
    /// Empty between timers; kept for its capacity.
    list: Vec<Arc<Qp>>,
    scratch: Box<[u8]>,
    passes: u32,
    posts: u64,
    /// Passes since the last post.
    rest: u32,
    /// Passes that have left what is deferred.
    left_waiting: u32,
    ticked: Option<Instant>,
    accept_again: bool,
    /// Requests or timers run.
    busy: bool,
    /// A stream had something in this pass.
    found: bool,
    /// A thread that polls has slept since the last pass.
    slept: bool,
    contended: bool,
    accepting: usize,
}

const fn place_of(token: u64) -> usize {
    (token & 0xffff_ffff) as usize
}

/// The entry of that name, unless it is gone.
fn find(entries: &mut [Entry], token: u64) -> Option<&mut Entry> {
    entries.get_mut(place_of(token)).filter(|entry| entry.token == token)
}

impl Progress {
    pub(super) fn new(qps: Arc<QpTable>) -> Self {
        Self {
            hot: Vec::with_capacity(HOT),
            qps,
            scratch: vec![0; SCRATCH].into_boxed_slice(),
            ..Self::default()
        }
    }

    /// Moves what there is to move. `eager`: for the progress thread and for control calls, which
    /// check everything.
    pub(super) fn pass(&mut self, ctx: &Context, eager: bool) -> PassResult {
        self.passes = self.passes.wrapping_add(1);
        ctx.activity.passes.store(self.passes, Relaxed);
        if ctx.activity.attention.take() {
            self.handle_attention(ctx);
        }
        if !self.flush_deferred(ctx, eager) {
            return PassResult { soon: true, ..PassResult::default() };
        }
        if self.unwatched != 0 && (eager || ctx.activity.is_blocked()) {
            self.watch_all(ctx);
        }
        self.found = false;
        self.turn_again(ctx, eager);
        for place in 0..self.hot.len() {
            let token = self.hot.get(place).copied();
            if let Some(token) = token.filter(|token| eager || !self.rests(*token)) {
                self.turn(ctx, token, false, eager);
            }
        }
        // The progress thread sleeps until the system announces a stream, unless it only naps.
        let polled = !eager && !ctx.activity.is_blocked() && ctx.activity.waker.is_napping();
        if eager || self.passes.is_multiple_of(COOL_EVERY) {
            self.cool(ctx, polled);
        }
        let slept = std::mem::take(&mut self.slept) && !self.found;
        let ask = eager || slept || self.hot.is_empty() || ctx.activity.is_blocked();
        if ask || (!self.found && self.passes.is_multiple_of(ASK_EVERY)) {
            self.ask(ctx, eager);
        }
        if ctx.activity.attention.take() {
            self.handle_attention(ctx);
        }
        // Threads that poll run the timers too: the progress thread may never find the device free.
        if eager || self.passes.is_multiple_of(TICK_EVERY) {
            self.tick(ctx);
        }
        let contended = std::mem::take(&mut self.contended);
        let (soon, found) = (!self.again.is_empty(), self.found);
        if found {
            ctx.activity.arrivals.fetch_add(1, Relaxed);
        }
        PassResult { soon, found, contended }
    }

    /// How long whoever watches the streams may sleep, for timers that no stream announces.
    pub(super) fn rest(&self) -> Duration {
        if self.busy { WATCH_BUSY.limit } else { WATCH_IDLE.limit }
    }

    /// Deferred requests go out when no more are posted. Until then passes do nothing else, as they
    /// would find little for their system calls. False: they wait on.
    fn flush_deferred(&mut self, ctx: &Context, eager: bool) -> bool {
        let posts = ctx.activity.posts.load(Relaxed);
        let posted = posts != std::mem::replace(&mut self.posts, posts);
        self.rest = if posted { 0 } else { self.rest.saturating_add(1) };
        if !ctx.activity.deferred.is_any() {
            return true;
        }
        if !eager && self.rest < BURST_REST && self.left_waiting < BURST_PASSES {
            self.left_waiting += 1;
            return false;
        }
        self.left_waiting = 0;
        let marked = ctx.activity.deferred.take();
        let mut more = marked.more;
        for number in marked.numbers() {
            match self.qps.try_find(number) {
                Some(qp) => self.flush_deferred_of(&qp),
                None => more = true,
            }
        }
        if more {
            self.flush_all_deferred();
        }
        true
    }

    /// More queue pairs have deferred something than are noted, or their table is in use.
    #[cold]
    fn flush_all_deferred(&mut self) {
        for index in 0..self.entries.len() {
            let conn = self.entries.get(index).and_then(|entry| entry.conn.as_ref());
            if let Some(Conn::Requester(qp, _)) = conn {
                let qp = Arc::clone(qp);
                self.flush_deferred_of(&qp);
            }
        }
    }

    fn flush_deferred_of(&mut self, qp: &Qp) {
        if !qp.deferred.take() {
            return;
        }
        match try_lock_for(&qp.sq, Wait::Spin) {
            Some(mut sq) => {
                sq.flush_burst(qp, |message, rest| self.send_reverse(qp, message, rest));
            }
            None => {
                qp.mark_deferred();
                self.contended = true;
            }
        }
    }

    fn turn_again(&mut self, ctx: &Context, eager: bool) {
        if self.again.is_empty() {
            return;
        }
        let mut list = std::mem::replace(&mut self.again, std::mem::take(&mut self.spare));
        for token in list.drain(..) {
            if let Some(entry) = self.entry(token) {
                entry.queued = false;
                // The stream may have become writable while another thread was in its queue pair.
                self.turn(ctx, token, true, eager);
            }
        }
        self.spare = list;
    }

    fn entry(&mut self, token: u64) -> Option<&mut Entry> {
        find(&mut self.entries, token)
    }

    /// Streams without data for long are not hot any more. `polled`: those that are hot leave the
    /// epoll, in which the system would write, for each message, a cache line that both processors
    /// write.
    fn cool(&mut self, ctx: &Context, polled: bool) {
        let (entries, unwatched) = (&mut self.entries, &mut self.unwatched);
        self.hot.retain(|token| {
            let Some(entry) = find(entries, *token) else { return false };
            let lives = entry.conn.is_some();
            let stays = lives && entry.misses < HOT_MISSES;
            entry.hot &= stays;
            if lives && !stays && !entry.watched {
                *unwatched -= u32::from(entry.watch(ctx));
            } else if stays && entry.watched && entry.hits >= UNWATCH && polled {
                *unwatched += u32::from(entry.unwatch(ctx));
            }
            stays
        });
    }

    fn watch_all(&mut self, ctx: &Context) {
        for token in &self.hot {
            if let Some(entry) = find(&mut self.entries, *token) {
                entry.hits = 0;
                self.unwatched -= u32::from(entry.watch(ctx));
            }
        }
    }

    /// Whether this pass leaves a hot stream alone.
    #[inline(always)]
    fn rests(&mut self, token: u64) -> bool {
        let until = self.entry(token).and_then(|entry| entry.rests);
        until.is_some_and(|until| Instant::now() < until)
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

    fn ask(&mut self, ctx: &Context, eager: bool) {
        let mut events = [EpollEvent::empty(); 32];
        let count = match ctx.epoll.wait(&mut events, EpollTimeout::ZERO) {
            Ok(count) => count,
            Err(Errno::EINTR) => 0,
            Err(_) => return,
        };
        for event in events.iter().take(count) {
            match event.data() {
                LISTENER => self.accept(ctx),
                DATAGRAMS => drop(ud::receive(ctx, &self.qps, &mut self.scratch)),
                token => {
                    let writable = event.events().contains(EpollFlags::EPOLLOUT);
                    self.turn(ctx, token, writable, eager);
                }
            }
        }
    }

    fn add(&mut self, ctx: &Context, conn: Conn) -> Option<u64> {
        let index = self.free.pop().unwrap_or_else(|| {
            let token = self.entries.len() as u64;
            self.entries.push(Entry { token, ..Entry::default() });
            self.entries.len() - 1
        });
        let entry = self.entries.get_mut(index)?;
        *entry = Entry { token: entry.token, conn: Some(conn), ..Entry::default() };
        if !entry.watch(ctx) {
            entry.conn = None;
            self.free.push(index);
            return None;
        }
        Some(entry.token)
    }

    fn release(&mut self, index: usize) {
        if let Some(entry) = self.entries.get_mut(index) {
            // One that never had a stream is watched by nobody.
            self.unwatched -= u32::from(entry.hot && !entry.watched);
            *entry = Entry { token: entry.token.wrapping_add(1 << 32), ..Entry::default() };
            self.free.push(index);
        }
    }

    /// One turn of a stream: reads and writes what it can.
    fn turn(&mut self, ctx: &Context, token: u64, writable: bool, eager: bool) {
        let Some(entry) = self.entry(token) else { return };
        let (hot, misses) = (entry.hot, entry.misses);
        let Some(conn) = entry.conn.take() else { return };
        if ctx.faults.is_active() && conn.is_unreachable(ctx) {
            entry.conn = Some(conn);
            return;
        }
        let fate = match conn {
            Conn::Accepting(conn) => self.turn_accepting(ctx, token, conn),
            Conn::Parked(parked) if parked.is_closed() => None,
            Conn::Parked(_) => Some((conn, Turn::default())),
            Conn::Connecting(qp, conn) => Self::turn_connecting(ctx, qp, conn),
            Conn::Requester(qp, stream) => {
                self.turn_requester(ctx, (qp, stream), misses, (writable, eager))
            }
            Conn::Responder(responder) => {
                // A stream that nobody reads soon acknowledges at once.
                let ack_now = eager || !hot && self.hot.len() == HOT;
                self.turn_responder(ctx, responder, ack_now)
            }
        };
        self.finish_turn(ctx, token, fate, eager);
    }

    fn turn_responder(
        &mut self,
        ctx: &Context,
        mut responder: Box<Responder>,
        ack_now: bool,
    ) -> Fate {
        let turn = responder.turn(&ctx.regions, &mut self.scratch, ack_now);
        if responder.ack_pending() {
            // The progress thread acknowledges when polls stop.
            ctx.activity.wake();
        }
        if turn.is_none() {
            responder.qp.reverse_path_broken();
        }
        Some((Conn::Responder(responder), turn?))
    }

    fn finish_turn(&mut self, ctx: &Context, token: u64, fate: Fate, eager: bool) {
        let Some((conn, Turn { progressed, again })) = fate else {
            self.found = true;
            return self.release(place_of(token));
        };
        self.found |= progressed;
        let flows = matches!(conn, Conn::Responder(_) | Conn::Requester(..));
        let Some(entry) = self.entries.get_mut(place_of(token)) else { return };
        let floods = matches!(&conn, Conn::Responder(responder) if responder.flood.goes_on());
        let rests = floods && !again && entry.misses < FLOOD_MISSES;
        entry.rests = rests.then(|| Instant::now() + FLOOD_REST);
        entry.conn = Some(conn);
        entry.misses = if progressed { 0 } else { entry.misses.saturating_add(1) };
        entry.hits = entry.hits.saturating_add(u32::from(progressed));
        let heat = progressed && flows && !entry.hot;
        if again && !entry.queued {
            entry.queued = true;
            self.again.push(token);
        }
        if heat {
            self.heat(token);
        } else if entry.hot && entry.misses >= HOT_MISSES {
            // It leaves the list of hot streams: no acknowledgement may be pending.
            if let Some(Conn::Responder(responder)) = &mut entry.conn
                && responder.ack_pending()
                && !eager
            {
                responder.flush_acks(&ctx.regions);
            }
        }
    }
}
