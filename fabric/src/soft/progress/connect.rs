//! Streams that begin: those that peers open, and those that this side opens.

use settings::deadlines::soft::RECONNECT_MOST;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use super::{Conn, Fate, Progress, place_of};
use crate::soft::context::Context;
use crate::soft::descriptors;
use crate::soft::handshake::messages::{Rejection, Target};
use crate::soft::handshake::{Accepting, Connecting, Parked, set_up};
use crate::soft::lock::{Wait, try_lock_for};
use crate::soft::qp::Qp;
use crate::soft::qp_shared::Turn;
use crate::soft::responder::Responder;
use crate::{QpState, QpType};

impl Progress {
    pub(super) fn turn_accepting(
        &mut self,
        ctx: &Context,
        token: u64,
        mut conn: Box<Accepting>,
    ) -> Fate {
        let target = match conn.turn(ctx.own()) {
            Ok(None) => return Some((Conn::Accepting(conn), Turn::default())),
            Ok(Some(target)) => Some(target),
            Err(why) => {
                ctx.warnings.connection_rejected(why, conn.peer);
                None
            }
        };
        self.accepting = self.accepting.saturating_sub(1);
        self.admit(token, Box::new(Parked::new(conn.proved(ctx.own()), target?)))
    }

    /// Gives the stream of a known requester to its queue pair, or keeps it until that is ready.
    pub(super) fn admit(&mut self, token: u64, parked: Box<Parked>) -> Fate {
        let Target { to, from, psn, rnr } = parked.target;
        let refuse = |parked: &Parked| {
            parked.answer(false);
            None
        };
        let Some(qp) = self.qps.find(to).filter(|qp| qp.qp_type == QpType::Rc) else {
            return refuse(&parked);
        };
        let state = qp.state();
        let attributes = qp.attributes().filter(|_| qp.answers());
        let Some(attributes) = attributes else {
            return match state {
                QpState::Error => refuse(&parked),
                _ => Some((Conn::Parked(parked), Turn::default())),
            };
        };
        let expected = |peer: &crate::RcPeer| peer.qpn == from && peer.psn == psn;
        if !attributes.peer.as_ref().is_some_and(expected) || !self.drop_unused_responder(&qp) {
            return refuse(&parked);
        }
        if !parked.answer(true) {
            return None;
        }
        qp.responder.store(token, Relaxed);
        let responder = Responder::new(qp, Arc::clone(&parked.stream), rnr, &attributes);
        Some((Conn::Responder(Box::new(responder)), Turn { progressed: false, again: true }))
    }

    /// A requester that did not hear the verdict comes again. False: the stream that is there is in
    /// use.
    fn drop_unused_responder(&mut self, qp: &Arc<Qp>) -> bool {
        let token = qp.responder.load(Relaxed);
        let unused = self.responder(qp).map(|one| one.is_unused());
        if unused == Some(true) {
            self.release(place_of(token));
        }
        unused != Some(false)
    }

    pub(super) fn accept(&mut self, ctx: &Context) {
        loop {
            let mut peer = None;
            let accepted = descriptors::make(|| {
                let (stream, from) = ctx.listener.accept()?;
                peer = Some(from);
                Ok(stream)
            });
            match accepted {
                Ok(stream) => {
                    if let Some(peer) = peer {
                        self.begin_handshake(ctx, stream, peer);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    ctx.warnings.operation_failed(format_args!("take a connection"), &error);
                    // No descriptors: those that wait are taken when there are some again.
                    self.accept_again = true;
                    return;
                }
            }
        }
    }

    fn begin_handshake(&mut self, ctx: &Context, stream: TcpStream, peer: SocketAddr) {
        if set_up(&stream, peer.ip() == ctx.ip).is_err() {
            return;
        }
        if self.accepting >= ctx.unproven {
            self.drop_oldest_accepting(ctx);
        }
        if let Some(token) = self.add(ctx, Conn::Accepting(Box::new(Accepting::new(stream, peer))))
        {
            self.accepting += 1;
            self.turn(ctx, token, false, true);
        }
    }

    fn drop_oldest_accepting(&mut self, ctx: &Context) {
        let accepting = self.entries.iter().enumerate().filter_map(|(index, entry)| {
            let Some(Conn::Accepting(one)) = &entry.conn else { return None };
            // Who has said nothing that makes sense goes first.
            Some((one.is_greeted(), one.until, index, one.peer))
        });
        if let Some((.., index, peer)) = accepting.min() {
            ctx.warnings.connection_rejected(Rejection::TooMany, peer);
            self.accepting = self.accepting.saturating_sub(1);
            self.release(index);
        }
    }

    pub(super) fn connect(&mut self, ctx: &Context, qp: &Arc<Qp>) {
        let attributes = qp.attributes().filter(|_| !qp.is_unreachable());
        let started = attributes.and_then(|attributes| {
            let peer = attributes.peer?;
            let to = SocketAddr::new(peer.address.gid.ip(), peer.address.service);
            let (psn, rnr) = (attributes.psn, attributes.rnr);
            let target = Target { to: peer.qpn, from: qp.number, psn, rnr };
            let started = Connecting::start(to, to.ip() == ctx.ip, target);
            let warn = |error: &io::Error| {
                ctx.warnings.operation_failed(format_args!("connect to {to}"), error);
            };
            started.inspect_err(warn).ok()
        });
        let token = started
            .and_then(|conn| self.add(ctx, Conn::Connecting(Arc::clone(qp), Box::new(conn))));
        match token {
            Some(token) => self.turn(ctx, token, true, true),
            None => connect_failed(qp),
        }
    }

    pub(super) fn turn_connecting(ctx: &Context, qp: Arc<Qp>, mut conn: Box<Connecting>) -> Fate {
        if qp.destroyed.is_set() || qp.state() != QpState::Rts {
            return None;
        }
        match conn.turn(ctx.own()) {
            Ok(None) => return Some((Conn::Connecting(qp, conn), Turn::default())),
            Ok(Some(true)) => {
                let stream = Arc::new(conn.proved(ctx.own()));
                let mut sq = try_lock_for(&qp.sq, Wait::Control)?;
                sq.connecting = false;
                sq.stream = Some(Arc::clone(&stream));
                sq.flush(&qp);
                drop(sq);
                return Some((Conn::Requester(qp, stream), Turn::default()));
            }
            Ok(Some(false)) | Err(Rejection::Closed) => {}
            Err(why) => {
                if let Ok(peer) = conn.stream.peer_addr() {
                    ctx.warnings.connection_rejected(why, peer);
                }
            }
        }
        connect_failed(&qp);
        None
    }
}

/// A connection could not be made; it is tried again later.
pub(super) fn connect_failed(qp: &Qp) {
    if let Some(mut sq) = try_lock_for(&qp.sq, Wait::Post) {
        sq.connecting = false;
        let pause = sq.reconnect.1;
        sq.reconnect = (Some(Instant::now() + pause), (pause * 2).min(RECONNECT_MOST.limit));
    } else {
        qp.request_attention();
    }
}
