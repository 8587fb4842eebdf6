//! The straight way of most messages that somebody waits for: Shorts that carry nothing beside their
//! arguments, over connections with receive queues of their own. All others, and whatever is wrong,
//! go the general way (`receive.rs`).

use std::cell::Cell;

use bootstrap::Rank;
use fabric::{Completion, Opcode, Status};

use super::acks::AcksOfBatch;
use super::header::{self, FIRST_CLIENT_HANDLER};
use super::polls::Poll;
use super::receive::Receiver;
use super::send::Sender;
use crate::transport::message::{
    Arrived, ArrivedPayload, MAX_ARGS, MessageClass, ReplyToken, Sink,
};
use crate::transport::neighbours;
use crate::transport::net::error::Error;
use crate::transport::net::post::{Slots, Via};

impl<'a> Sender<'a> {
    /// One attempt to send a request over the only connection with a peer; `false`: it goes the
    /// general way.
    #[inline(always)]
    pub(super) fn short_request(self, via: Via<'a>, handler: u8, args: &[i32]) -> bool {
        if !via.connection.is_plain
            || !self.take_request_credits(via.peer.rank, via.connection, None)
        {
            return false;
        }
        let sent = self.plain_short(via, MessageClass::Request, handler, args);
        if !sent {
            self.give_credits_back(via.connection, MessageClass::Request);
        }
        sent
    }

    /// One attempt to send a Short that has its credits over a connection that is plain; `false`: it
    /// goes the general way, which also says what is wrong.
    #[inline(always)]
    pub(super) fn plain_short(
        self,
        via: Via<'a>,
        class: MessageClass,
        handler: u8,
        args: &[i32],
    ) -> bool {
        let (connection, nargs) = (via.connection, args.len());
        let send_qp = &connection.main;
        let fits = nargs <= MAX_ARGS && 4 * nargs.max(1) <= send_qp.inline;
        if !fits || !connection.account.carries_nothing() {
            return false;
        }
        let rail = &self.0.rails[connection.rail];
        let Some(slots) = Slots::take_for_message(rail, send_qp, Self::reserve(class, false))
        else {
            return false;
        };
        let reply = matches!(class, MessageClass::Reply);
        let imm = header::plain_imm(self.0.source(), handler, reply, nargs);
        let mut room = [0; 4 * MAX_ARGS];
        let bytes = header::write_args(&mut room, args);
        self.0.post_short(slots, (via.peer.rank, via.index), imm, bytes)
    }
}

impl<'a> Receiver<'a> {
    /// Takes a Short of the client that carries nothing, over a connection that is open and has a
    /// receive queue of its own: most messages that somebody waits for. `false`: it is another
    /// message.
    #[inline(always)]
    pub(super) fn took_short<S: Sink + ?Sized>(
        self,
        rail: usize,
        completion: &Completion,
        sink: &S,
        what: Poll,
        acks: &mut AcksOfBatch<'a>,
    ) -> Result<bool, Error> {
        let is_receive =
            completion.status == Status::Success && completion.opcode == Opcode::Receive;
        let (true, Poll::All, Some(imm)) = (is_receive, what, completion.imm) else {
            return Ok(false);
        };
        let handler = header::handler_of(imm);
        let Some(nargs) = header::plain_short(imm, completion.len) else { return Ok(false) };
        let source = Rank(header::source_of(imm).into());
        let Some(peer) = self.0.peers.get(source) else { return Ok(false) };
        let Some(index) = peer.connection_of(rail, completion.qpn) else { return Ok(false) };
        let connection = &peer.connections[index];
        let is_plain = handler >= FIRST_CLIENT_HANDLER && peer.is_open() && connection.is_plain;
        if !is_plain {
            return Ok(false);
        }
        let Some(mut buffer) = self.used_up(completion) else { return Ok(false) };
        peer.use_it();
        let mut words;
        let args = match nargs {
            0 => &[][..],
            _ => {
                words = [0; MAX_ARGS];
                header::read_args(self.0.buffers.pool.bytes(&mut buffer), &mut words[..nargs]);
                &words[..nargs]
            }
        };
        let reply = header::is_reply(imm);
        if reply {
            self.returned_credits(peer.rank, connection, 1)?;
        }
        // Nothing of it is left in its buffer.
        self.0.post_later((peer.rank, index, rail), buffer)?;
        let (request, replied) = (!reply, Cell::new(false));
        let token = ReplyToken { from: Via { peer, index, connection }, request, replied };
        let class = if reply { MessageClass::Reply } else { MessageClass::Request };
        let (source, payload) = (neighbours::remote(peer.rank), ArrivedPayload::None);
        sink.arrived(Arrived { source, class, handler, args, payload, reply: Some(&token) });
        if request && !token.replied.get() && connection.account.bank() {
            acks.note(self.0, token.from)?;
        }
        Ok(true)
    }
}
