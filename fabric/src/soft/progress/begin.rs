//! Streams that begin: those of strangers, and those that this side opens.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use settings::deadlines::soft::REDIAL_MOST;

use super::{Conn, Fate, Progress};
use crate::soft::device::Dev;
use crate::soft::hello::{Refused, Target, verdict};
use crate::soft::limits::MAX_STRANGERS;
use crate::soft::qp::Qp;
use crate::soft::rx::Responder;
use crate::soft::strangers::{Dial, Parked, Step, Stranger, set_up};
use crate::soft::{hold, patiently};
use crate::{QpState, QpType};

impl Progress {
    pub(super) fn turn_stranger(
        &mut self,
        dev: &Arc<Dev>,
        token: u64,
        mut stranger: Stranger,
    ) -> Fate {
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
    pub(super) fn admit(&mut self, dev: &Arc<Dev>, token: u64, parked: Parked) -> Fate {
        let Target { to, from, psn, rnr } = parked.target;
        let no = |parked: &Parked| {
            use std::io::Write as _;
            let _ = (&*parked.stream).write(&verdict(false));
            Fate::Gone
        };
        let Some(qp) = dev.qp(to) else { return no(&parked) };
        if qp.qp_type() != QpType::Rc {
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

    pub(super) fn accept(&mut self, dev: &Arc<Dev>) {
        loop {
            match dev.listener().accept() {
                Ok((stream, peer)) => self.greet(dev, stream, peer),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    dev.lacks(format_args!("take a connection"), &error);
                    // No descriptors: those that wait are taken when there are some again.
                    self.accept_again = true;
                    return;
                }
            }
        }
    }

    pub(super) fn greet(&mut self, dev: &Arc<Dev>, stream: std::net::TcpStream, peer: SocketAddr) {
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

    pub(super) fn drop_oldest_stranger(&mut self, dev: &Dev) {
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

    pub(super) fn dial(&mut self, dev: &Arc<Dev>, qp: &Arc<Qp>) {
        let setup = qp.setup().filter(|_| !qp.is_cut());
        let started = setup.and_then(|setup| {
            let peer = setup.peer?;
            let to = SocketAddr::new(peer.address.gid.ip(), peer.address.service);
            let target = Target { to: peer.qpn, from: qp.number(), psn: setup.psn, rnr: setup.rnr };
            let started = Dial::start(qp, to, target);
            started.inspect_err(|error| dev.lacks(format_args!("connect to {to}"), error)).ok()
        });
        let token = started.and_then(|dial| self.add(dev, Conn::Dial(dial)));
        match token {
            Some(token) => drop(self.turn(dev, token, true, true)),
            None => dial_failed(qp),
        }
    }
}

pub(super) fn dial_failed(qp: &Qp) {
    if let Some(mut tx) = hold(&qp.tx) {
        tx.dialing = false;
        let pause = tx.redial.1;
        tx.redial = (Some(Instant::now() + pause), (pause * 2).min(REDIAL_MOST.limit));
    } else {
        qp.want_attention();
    }
}

pub(super) fn turn_dial(dev: &Dev, mut dial: Dial) -> Fate {
    if dial.qp.is_destroyed() || dial.qp.state() != QpState::Rts {
        return Fate::Gone;
    }
    match dial.turn(dev) {
        Step::Wait => Fate::keep(Conn::Dial(dial)),
        Step::Go => {
            let Some(mut tx) = patiently(&dial.qp.tx) else { return Fate::Gone };
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
