//! Everything that arrives at a device: its streams, which of them are looked at, and the timers.
//!
//! One thread at a time is in here: a poller, or the engine. Streams that had data lately are *hot* and read without asking
//! the system first; the others are found by an edge-triggered epoll.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::Instant;

use nix::errno::Errno;
use nix::sys::epoll::{EpollEvent, EpollFlags, EpollTimeout};

use super::back::Way;
use super::device::Dev;
use super::hello::{Refused, Target, verdict};
use super::hold;
use super::limits::{
    ACK_COUNT, ACK_IDLE, ASK_EVERY, HOT, HOT_MISSES, MAX_STRANGERS, REDIAL_MOST, SCRATCH, TICK,
    TICK_EVERY,
};
use super::memory::{Gather, silence};
use super::qp::Qp;
use super::rx::{Outcome, Responder};
use super::strangers::{Dial, Parked, Step, Stranger, set_up};
use super::tx::Answers;
use super::ud;
use super::wire::Refusal;
use crate::{QpKind, QpState, Status};

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
}

/// What a look at a device found.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Looked {
    /// Something must be looked at again soon, whatever the system says.
    pub(super) soon: bool,
    /// Requests or timers are out.
    pub(super) busy: bool,
}

/// The streams of a device.
#[derive(Debug)]
pub(super) struct Progress {
    entries: Vec<Entry>,
    free: Vec<u32>,
    hot: Vec<u64>,
    again: Vec<u64>,
    spare: Vec<u64>,
    /// Empty between timers; kept for its room.
    qps: Vec<Arc<Qp>>,
    scratch: Box<[u8]>,
    passes: u32,
    posts: u64,
    ticked: Instant,
    accept_again: bool,
    busy: bool,
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
            spare: Vec::new(),
            qps: Vec::new(),
            scratch: vec![0; SCRATCH].into_boxed_slice(),
            passes: 0,
            posts: 0,
            ticked: Instant::now(),
            accept_again: false,
            busy: false,
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
        self.turn_again(dev, eager);
        let mut did = false;
        for place in 0..self.hot.len() {
            if let Some(token) = self.hot.get(place).copied() {
                did |= self.turn(dev, token, false, eager);
            }
        }
        self.cool();
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
        Looked { soon: !self.again.is_empty(), busy: self.busy }
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
                match hold(&qp.tx) {
                    Some(mut tx) => tx.flush(qp),
                    None => qp.mark_dirty(),
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

    /// Streams that had nothing for long are not hot any more.
    fn cool(&mut self) {
        let entries = &mut self.entries;
        self.hot.retain(|token| {
            let (index, generation) = split(*token);
            let Some(entry) = entries.get_mut(index) else { return false };
            let stays =
                entry.generation == generation && entry.conn.is_some() && entry.misses < HOT_MISSES;
            if !stays && entry.generation == generation {
                entry.hot = false;
            }
            stays
        });
    }

    fn heat(&mut self, token: u64) {
        if self.hot.len() < HOT
            && let Some(entry) = self.entry(token)
        {
            entry.hot = true;
            entry.misses = 0;
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
        let flags = EpollFlags::EPOLLIN
            | EpollFlags::EPOLLOUT
            | EpollFlags::EPOLLRDHUP
            | EpollFlags::EPOLLET;
        let stream = match &conn {
            Conn::Stranger(stranger) => &stranger.stream,
            Conn::Parked(parked) => &parked.stream,
            Conn::Dial(dial) => &dial.stream,
            Conn::Answers(_, stream) => stream,
            Conn::Requests(responder) => &responder.stream,
        };
        if dev.epoll().add(&**stream, EpollEvent::new(flags, token)).is_err() {
            self.free.push(index);
            return None;
        }
        entry.conn = Some(conn);
        entry.queued = false;
        entry.hot = false;
        entry.misses = 0;
        Some(token)
    }

    /// An entry is free again.
    fn release(&mut self, index: usize) {
        if let Some(entry) = self.entries.get_mut(index) {
            entry.generation = entry.generation.wrapping_add(1);
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
                match responder.turn(dev, &mut self.scratch, pay) {
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

    fn turn_stranger(&mut self, dev: &Arc<Dev>, token: u64, mut stranger: Stranger) -> Fate {
        match stranger.turn(dev) {
            Step::Wait => Fate::keep(Conn::Stranger(stranger)),
            Step::Known(target) => {
                self.strangers = self.strangers.saturating_sub(1);
                self.admit(dev, token, Parked::new(stranger.stream, target))
            }
            Step::Refused(why) => {
                self.strangers = self.strangers.saturating_sub(1);
                dev.refused(why, stranger.peer);
                Fate::Gone
            }
            Step::Go | Step::No => Fate::Gone,
        }
    }

    /// Gives a known requester to its queue pair, or lets it wait for it.
    fn admit(&mut self, dev: &Arc<Dev>, token: u64, parked: Parked) -> Fate {
        let Target { to, from, psn, rnr } = parked.target;
        let no = |parked: &Parked| {
            use std::io::Write as _;
            let _ = (&*parked.stream).write(&verdict(false));
            Fate::Gone
        };
        let Some(qp) = dev.qp(to) else { return no(&parked) };
        if qp.kind() != QpKind::Rc {
            return no(&parked);
        }
        let (state, setup) = (qp.state(), qp.setup());
        let (Some(setup), true) = (setup, qp.answers()) else {
            return match state {
                QpState::Error => no(&parked),
                _ => Fate::keep(Conn::Parked(parked)),
            };
        };
        let Some(peer) = setup.peer.filter(|peer| peer.qpn == from && peer.psn == psn) else {
            return no(&parked);
        };
        let _ = peer;
        let before = self.entries.iter().position(
            |entry| matches!(&entry.conn, Some(Conn::Requests(one)) if Arc::ptr_eq(&one.qp, &qp)),
        );
        if let Some(index) = before {
            // A requester that did not hear our verdict comes again; a stream in use stays.
            let untouched = self.entries.get(index).is_some_and(
                |entry| matches!(&entry.conn, Some(Conn::Requests(one)) if one.untouched()),
            );
            if !untouched {
                return no(&parked);
            }
            self.release(index);
        }
        let go = {
            use std::io::Write as _;
            (&*parked.stream).write(&verdict(true)).is_ok()
        };
        if !go {
            return Fate::Gone;
        }
        let stream = Arc::clone(&parked.stream);
        qp.responder_is(token);
        let responder = Responder::new(qp, stream, rnr, &setup);
        Fate::Keep { conn: Conn::Requests(Box::new(responder)), did: false, again: true }
    }

    fn accept(&mut self, dev: &Arc<Dev>) {
        loop {
            match dev.listener().accept() {
                Ok((stream, peer)) => self.greet(dev, stream, peer),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(_) => {
                    // No descriptors: those that wait are taken when there are some again.
                    self.accept_again = true;
                    return;
                }
            }
        }
    }

    fn greet(&mut self, dev: &Arc<Dev>, stream: std::net::TcpStream, peer: SocketAddr) {
        if set_up(&stream, peer.ip() == dev.ip()).is_err() {
            return;
        }
        if self.strangers >= MAX_STRANGERS {
            self.drop_oldest_stranger(dev);
        }
        if let Some(token) = self.add(dev, Conn::Stranger(Stranger::new(stream, peer))) {
            self.strangers += 1;
            self.turn(dev, token, false, true);
        }
    }

    fn drop_oldest_stranger(&mut self, dev: &Dev) {
        let oldest = self
            .entries
            .iter()
            .enumerate()
            .filter_map(|(index, entry)| match &entry.conn {
                Some(Conn::Stranger(one)) => Some((one.until, index, one.peer)),
                _ => None,
            })
            .min();
        if let Some((_, index, peer)) = oldest {
            dev.refused(Refused::Crowd, peer);
            self.strangers = self.strangers.saturating_sub(1);
            self.release(index);
        }
    }

    /// Looks after queue pairs whose state changed.
    fn attend(&mut self, dev: &Arc<Dev>) {
        let Some(qps) = dev.all_qps() else {
            dev.attend();
            return;
        };
        self.drop_where(|conn| conn.qp().is_some_and(|qp| qp.is_destroyed()));
        for qp in &qps {
            if qp.take_attention() && !self.attend_to(dev, qp) {
                qp.want_attention();
            }
        }
        for index in 0..self.entries.len() {
            let Some(entry) = self.entries.get_mut(index) else { break };
            if !matches!(entry.conn, Some(Conn::Parked(_))) {
                continue;
            }
            let token = index as u64 | u64::from(entry.generation) << 32;
            if let Some(Conn::Parked(parked)) = entry.conn.take() {
                let fate = self.admit(dev, token, parked);
                self.settle(dev, token, fate, true);
            }
        }
    }

    /// False: another thread is in the queue pair; once more later.
    fn attend_to(&mut self, dev: &Arc<Dev>, qp: &Arc<Qp>) -> bool {
        if qp.kind() != QpKind::Rc {
            return !qp.is_error() || qp.flush_receives();
        }
        let Some(mut tx) = hold(&qp.tx) else { return false };
        if !qp.take_late(&mut tx) {
            tx.fail(qp, Status::RemoteOperation);
        }
        tx.retire(qp);
        if qp.is_error() {
            tx.flush_all(qp);
            drop(tx);
            for entry in &mut self.entries {
                match &mut entry.conn {
                    Some(Conn::Requests(one)) if Arc::ptr_eq(&one.qp, qp) => one.abandon(),
                    _ => {}
                }
            }
            let done = qp.flush_receives();
            self.turn_all_of(dev, qp);
            return done;
        }
        if qp.state() == QpState::Rts
            && tx.stream.is_none()
            && !tx.lost
            && !tx.dialing
            && tx.redial.0.is_none_or(|at| Instant::now() >= at)
        {
            tx.dialing = true;
            drop(tx);
            self.dial(dev, qp);
        }
        true
    }

    /// Looks at every stream as if the system had told of it.
    pub(super) fn turn_all(&mut self, dev: &Arc<Dev>) {
        for index in 0..self.entries.len() {
            let Some(entry) = self.entries.get(index) else { break };
            let token = index as u64 | u64::from(entry.generation) << 32;
            self.turn(dev, token, true, true);
        }
    }

    fn turn_all_of(&mut self, dev: &Arc<Dev>, qp: &Arc<Qp>) {
        for index in 0..self.entries.len() {
            let Some(entry) = self.entries.get(index) else { break };
            if entry.conn.as_ref().and_then(Conn::qp).is_some_and(|one| Arc::ptr_eq(one, qp)) {
                let token = index as u64 | u64::from(entry.generation) << 32;
                self.turn(dev, token, false, true);
            }
        }
    }

    fn drop_where(&mut self, mut which: impl FnMut(&Conn) -> bool) {
        for index in 0..self.entries.len() {
            let Some(entry) = self.entries.get_mut(index) else { break };
            if entry.conn.as_ref().is_some_and(&mut which) {
                if let Some(Conn::Requests(responder)) = &mut entry.conn {
                    responder.abandon();
                }
                self.release(index);
            }
        }
    }

    /// Closes all streams of a queue pair; what had begun to arrive is given back.
    pub(super) fn drop_streams(&mut self, qp: &Qp) {
        self.drop_where(|conn| conn.qp().is_some_and(|one| std::ptr::eq(&raw const **one, qp)));
    }

    /// Writes the acknowledgements that a queue pair owes.
    pub(super) fn pay(&mut self, dev: &Dev, qp: &Qp) {
        for entry in &mut self.entries {
            match &mut entry.conn {
                Some(Conn::Requests(one)) if std::ptr::eq(&raw const *one.qp, qp) => {
                    one.settle(dev);
                }
                _ => {}
            }
        }
    }

    /// The stream of a queue pair's peer.
    fn responder(&mut self, qp: &Qp) -> Option<&mut Responder> {
        match &mut self.entry(qp.responder())?.conn {
            Some(Conn::Requests(one)) if std::ptr::eq(&raw const *one.qp, qp) => Some(one),
            _ => None,
        }
    }

    /// As [`Dev::send_back`].
    pub(super) fn send_back(
        &mut self,
        qp: &Qp,
        message: Gather<'_>,
        rest: impl FnOnce(usize) -> Vec<u8>,
    ) -> bool {
        self.responder(qp).is_some_and(|responder| responder.send_back(message, rest))
    }

    /// Says no to a message that came back.
    #[cold]
    fn refuse(&mut self, dev: &Dev, qp: &Qp, why: Refusal) {
        match self.responder(qp) {
            Some(responder) => {
                responder.refuse(why, true);
                responder.settle(dev);
            }
            None => qp.fail_here(),
        }
    }

    /// Acknowledges what came back, when no request is likely to do it soon. `misses`: looks without data.
    fn pay_for_back(&mut self, dev: &Dev, qp: &Qp, misses: u32, eager: bool) {
        let debt = qp.debt();
        if debt != 0
            && (eager || misses >= ACK_IDLE || debt >= ACK_COUNT)
            && let Some(responder) = self.responder(qp)
        {
            responder.settle(dev);
        }
    }

    fn dial(&mut self, dev: &Arc<Dev>, qp: &Arc<Qp>) {
        let setup = qp.setup().filter(|_| !qp.is_cut());
        let started = setup.and_then(|setup| {
            let peer = setup.peer?;
            let to = SocketAddr::new(peer.address.gid.ip(), peer.address.service);
            let target = Target { to: peer.qpn, from: qp.number(), psn: setup.psn, rnr: setup.rnr };
            Dial::start(qp, to, target).ok()
        });
        let token = started.and_then(|dial| self.add(dev, Conn::Dial(dial)));
        match token {
            Some(token) => drop(self.turn(dev, token, true, true)),
            None => dial_failed(qp),
        }
    }

    /// Timers.
    pub(super) fn tick(&mut self, dev: &Arc<Dev>) {
        let now = Instant::now();
        if now.duration_since(self.ticked) < TICK {
            return;
        }
        self.ticked = now;
        if std::mem::take(&mut self.accept_again) {
            self.accept(dev);
        }
        let mut busy = self.accept_again;
        busy |= self.suffer(dev, now);
        for index in 0..self.entries.len() {
            busy |= self.tick_stream(dev, index, now);
        }
        let mut qps = std::mem::take(&mut self.qps);
        if dev.list_qps(&mut qps) {
            let used = |qp: &&Arc<Qp>| qp.kind() == QpKind::Rc && qp.state() == QpState::Rts;
            for qp in qps.iter().filter(used) {
                busy |= tick_qp(qp, now);
            }
            self.busy = busy;
        }
        qps.clear();
        self.qps = qps;
    }

    fn tick_stream(&mut self, dev: &Arc<Dev>, index: usize, now: Instant) -> bool {
        let Some(entry) = self.entries.get(index) else { return false };
        let token = index as u64 | u64::from(entry.generation) << 32;
        match &entry.conn {
            Some(Conn::Stranger(one)) if now >= one.until => {
                dev.refused(Refused::Late, one.peer);
                self.strangers = self.strangers.saturating_sub(1);
                self.release(index);
                false
            }
            Some(Conn::Parked(one)) if now >= one.until => {
                self.release(index);
                false
            }
            Some(Conn::Dial(one)) if now >= one.until => {
                dial_failed(&one.qp);
                self.release(index);
                true
            }
            Some(Conn::Requests(one)) if one.has_timer() || one.owes() => {
                self.turn(dev, token, false, true);
                true
            }
            Some(Conn::Stranger(_) | Conn::Parked(_) | Conn::Dial(_)) => true,
            _ => false,
        }
    }
}

/// What was sent back and not acknowledged will never be; its patience runs.
fn way_back_is_gone(qp: &Qp) {
    if let Some(mut tx) = hold(&qp.tx) {
        tx.back.is_lost = true;
    }
}

fn dial_failed(qp: &Qp) {
    if let Some(mut tx) = hold(&qp.tx) {
        tx.dialing = false;
        let pause = tx.redial.1;
        tx.redial = (Some(Instant::now() + pause), (pause * 2).min(REDIAL_MOST));
    } else {
        qp.want_attention();
    }
}

fn turn_dial(dev: &Dev, mut dial: Dial) -> Fate {
    if dial.qp.is_destroyed() || dial.qp.state() != QpState::Rts {
        return Fate::Gone;
    }
    match dial.turn(dev) {
        Step::Wait => Fate::keep(Conn::Dial(dial)),
        Step::Go => {
            let Some(mut tx) = super::patiently(&dial.qp.tx) else { return Fate::Gone };
            tx.dialing = false;
            tx.stream = Some(Arc::clone(&dial.stream));
            tx.flush(&dial.qp);
            drop(tx);
            Fate::keep(Conn::Answers(dial.qp, dial.stream))
        }
        Step::Refused(why) => {
            if let Ok(peer) = dial.stream.peer_addr() {
                dev.refused(why, peer);
            }
            dial_failed(&dial.qp);
            Fate::Gone
        }
        Step::No | Step::Known(_) => {
            dial_failed(&dial.qp);
            Fate::Gone
        }
    }
}

/// What a turn of a stream of answers found.
struct Heard {
    /// There was something.
    did: bool,
    /// It needs another turn soon.
    again: bool,
    /// Messages of the peer come on it.
    takes: bool,
    /// One of them is to be refused.
    refused: Option<Refusal>,
}

/// A turn of a stream of answers. `None`: it is over.
fn turn_answers(
    qp: &Arc<Qp>,
    stream: &Arc<std::net::TcpStream>,
    scratch: &mut [u8],
    writable: bool,
) -> Option<Heard> {
    let Some(mut tx) = hold(&qp.tx) else {
        return Some(Heard { did: false, again: true, takes: false, refused: None });
    };
    if !tx.stream.as_ref().is_some_and(|own| Arc::ptr_eq(own, stream)) {
        return None;
    }
    if !qp.take_late(&mut tx) {
        tx.fail(qp, Status::RemoteOperation);
        return None;
    }
    let (did, again) = match tx.read_answers(qp, scratch) {
        Answers::Lost => {
            tx.lose(qp);
            return None;
        }
        Answers::Refused(why) => {
            drop(tx);
            return Some(Heard { did: true, again: false, takes: true, refused: Some(why) });
        }
        Answers::Dry { did } => (did, false),
        Answers::More => (true, true),
    };
    if did {
        tx.heard();
    }
    if writable {
        tx.unblock(qp);
        tx.flush(qp);
    }
    Some(Heard { did, again, takes: tx.back.way == Way::Takes, refused: None })
}

/// Timers of a requester; whether it has any running.
fn tick_qp(qp: &Arc<Qp>, now: Instant) -> bool {
    let Some(mut tx) = hold(&qp.tx) else { return true };
    if tx.overdue(now) {
        let patience = tx.patience.unwrap_or_default();
        // The peer's process may be slow; only its host must answer.
        let dead = match &tx.stream {
            Some(_) if qp.is_cut() || tx.lost_what_went_back() => true,
            Some(stream) => silence(stream.as_fd()).is_some_and(|quiet| quiet >= patience),
            None => true,
        };
        if dead {
            tx.fail(qp, Status::RetryExceeded);
        } else {
            tx.heard();
        }
    }
    if tx.stream.is_none() && !tx.lost && !tx.dialing {
        qp.want_attention();
    }
    tx.in_flight() != 0 || tx.dialing || (tx.stream.is_none() && !tx.lost)
}
