//! Checks the messages of other agents. Nothing of a message is used before.

use super::{Child, Collective, MAX_REASON};
use crate::collective::message::{Contribution, Down, Gone, Service, Up};
use crate::collective::next_seq;
use crate::frame::Kind;
use crate::rank::Rank;

impl Collective {
    pub(super) fn check_child(&self, child: &Child, message: &Up) -> Result<(), String> {
        let out = |what: &str, state: &str| Err(format!("sent {what} while {state}"));
        let known = |gone: &Gone| match gone {
            Gone::Rank(seen) if !child.ranks.contains(*seen) => Err(stranger(*seen)),
            _ => Ok(()),
        };
        match message {
            Up::Refuse(reason) => check_reason(reason),
            Up::Gone(_) if child.gone || child.done => out("a farewell", "it had said one"),
            Up::Done(_) if child.done => out("the last farewell", "it had said it"),
            Up::Gone(gone) | Up::Done(gone) => known(gone),
            Up::Contribution(_) if child.done => out("a call", "it had said the last farewell"),
            Up::Contribution(_) if self.refused => Ok(()),
            Up::Contribution(part) => self.check_part(child, part),
        }
    }

    fn check_part(&self, child: &Child, part: &Contribution) -> Result<(), String> {
        let (expected, seen, size) = (next_seq(self.number), part.number, self.size);
        if seen != expected {
            return Err(another_call(expected, seen));
        }
        if child.part.is_some() {
            return Err(format!("gave its part of call {seen} twice"));
        }
        if !child.ranks.contains(part.first) {
            return Err(stranger(part.first));
        }
        let shape = part.service.shape();
        let uneven = shape.kind == Kind::Alltoall && !shape.total.is_multiple_of(size.into());
        if uneven || shape.check_alone(size, |_| true).is_err() {
            return Err(format!("passed on {shape}, which no job of {size} ranks can call"));
        }
        let below = child.ranks.order.len();
        let gives = |root| child.ranks.contains(root);
        check_length(
            part.service,
            length(part.service, size, below, below, gives),
            part.bytes.len(),
        )
    }

    pub(super) fn check_parent(&self, message: &Down) -> Result<(), String> {
        let out = |what: &str, state: &str| Err(format!("sent {what} while {state}"));
        match (message, &self.open) {
            _ if !self.parent => out("a message", "there was none above"),
            (Down::Refuse(reason), _) => check_reason(reason),
            (Down::Farewell, _) if !self.done => out("a farewell", "ranks had not said theirs"),
            (Down::Farewell, _) if self.parted => out("a farewell", "it had been said"),
            (Down::Farewell, _) => Ok(()),
            (Down::Result { .. } | Down::Piece { .. }, _) if self.refused => Ok(()),
            (Down::Result { number, bytes } | Down::Piece { number, bytes }, Some(open))
                if open.sent =>
            {
                let (expected, seen) = (next_seq(self.number), *number);
                if seen != expected {
                    return Err(another_call(expected, seen));
                }
                let (all, gives) = (self.size as usize, |_| self.given.is_none());
                let expected = length(open.service, self.size, self.below(), all, gives);
                let came = self.coming.len() * self.piece + bytes.len();
                match message {
                    Down::Piece { .. } => self.check_piece(open.service, (expected, came), bytes),
                    _ => check_length(open.service, expected, came),
                }
            }
            (Down::Result { .. } | Down::Piece { .. }, _) => {
                out("an answer", "no call was complete")
            }
        }
    }

    /// A piece has its length, and something is left for the message that ends the call.
    fn check_piece(
        &self,
        service: Service,
        (expected, came): (u64, usize),
        bytes: &[u8],
    ) -> Result<(), String> {
        let (shape, piece, seen) = (service.shape(), self.piece, bytes.len());
        if seen != piece || shape.kind == Kind::Alltoall {
            return Err(format!("sent a piece of {seen} bytes for {shape}, expected {piece}"));
        }
        match came as u64 {
            came if came < expected => Ok(()),
            came => Err(format!("sent {came} bytes and more for {shape}, expected {expected}")),
        }
    }
}

/// Bytes that travel between a subtree of `below` ranks and the job of `size`: of an exchange those
/// of `exchanged` ranks, of a broadcast the data when they come from where `gives` says.
fn length(
    service: Service,
    size: u32,
    below: usize,
    exchanged: usize,
    gives: impl FnOnce(Rank) -> bool,
) -> u64 {
    let (size, below) = (u64::from(size), below as u64);
    match service {
        Service::Exchange { len } => u64::from(len) * exchanged as u64,
        Service::Alltoall { total } => u64::from(total) / size * below * (size - below),
        Service::Broadcast { root, len } if gives(Rank(root)) => len.into(),
        Service::Barrier | Service::Broadcast { .. } => 0,
    }
}

fn stranger(seen: Rank) -> String {
    format!("spoke of rank {seen}, which is not below it")
}

fn another_call(expected: u32, seen: u32) -> String {
    format!("spoke of call {seen}, expected {expected}")
}

fn check_reason(reason: &str) -> Result<(), String> {
    match reason.len() {
        seen if seen > MAX_REASON => {
            Err(format!("gave a reason of {seen} bytes, at most {MAX_REASON} are meant"))
        }
        _ => Ok(()),
    }
}

fn check_length(service: Service, expected: u64, came: usize) -> Result<(), String> {
    match came {
        seen if seen as u64 == expected => Ok(()),
        seen => Err(format!("sent {seen} bytes for {}, expected {expected}", service.shape())),
    }
}
