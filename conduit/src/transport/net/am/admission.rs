//! What a message needs from its peer before anything of this rank: credits, and buffers for the
//! answer.

use bootstrap::Rank;

use super::send::Sender;
use crate::trace::{self, Cause, Counter};
use crate::transport::message::MessageClass;
use crate::transport::net::credits::Permits;
use crate::transport::net::flow::of_connection::Flow;
use crate::transport::net::peer::Connection;

impl Sender<'_> {
    /// Takes what a message of a class needs from its peer.
    #[inline]
    pub(super) fn take_credits(
        self,
        (rank, connection): (Rank, &Connection),
        class: MessageClass,
    ) -> bool {
        match class {
            MessageClass::Reply => true,
            MessageClass::Internal => connection.internal.take(0),
            MessageClass::Request => {
                let room = self.0.rails[connection.rail].reply_room();
                self.take_request_credits(rank, connection, room)
            }
        }
    }

    /// As [`Sender::take_credits`], of a request; `room`: what it takes where receive queues are
    /// shared.
    #[inline(always)]
    pub(super) fn take_request_credits(
        self,
        rank: Rank,
        connection: &Connection,
        room: Option<&Permits>,
    ) -> bool {
        if self.0.credits.as_ref().is_some_and(|all| !all.take(0)) {
            trace::lacks(Cause::Credit);
            return false;
        }
        // Whoever has the buffers for replies can have more of them.
        let more = || self.0.add_replies(rank, connection);
        if room.is_some_and(|room| !room.take(0) && !more()) {
            trace::lacks(Cause::ReplyRoom);
            self.0.give_credits(1);
            return false;
        }
        if connection.account.take() || room.is_none() && more() {
            trace::count(Counter::Credit, 0);
            return true;
        }
        trace::lacks(Cause::Credit);
        if let Flow::Moving(borrowed) = &connection.flow {
            borrowed.demand.stalled(&connection.account);
        }
        self.0.give_credits(1);
        if let Some(room) = room {
            room.give(1);
        }
        false
    }

    /// Of a message that was not sent.
    pub(crate) fn give_credits_back(self, connection: &Connection, class: MessageClass) {
        match class {
            MessageClass::Reply => {}
            MessageClass::Internal => connection.internal.give(1),
            MessageClass::Request => {
                self.0.untake(connection);
                self.0.give_credits(1);
                if let Some(room) = self.0.rails[connection.rail].reply_room() {
                    room.give(1);
                }
            }
        }
    }
}
