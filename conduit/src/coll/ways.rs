//! How one member's machine reaches the other members: by messages, and by what neighbours lend.

use std::marker::PhantomData;

use bootstrap::Rank;

use super::group::Group;
use super::lend::{STAGED, Stage};
use super::letter::{BRIEF_HANDLER, HANDLER, Head, Signature};
use super::machine::{Lent, Others, Packet};
use crate::mode::Mode;
use crate::rank::RankContext;
use crate::transport::message::{AmMessage, AmPayload, MessageClass};

/// The other members of a collective, for the machine of this one.
pub(super) struct Ways<'a, M> {
    pub(super) context: &'a RankContext,
    pub(super) group: &'a Group,
    pub(super) number: u32,
    pub(super) signature: Signature,
    pub(super) stage: &'a mut Stage,
    pub(super) mode: PhantomData<M>,
}

impl<M: Mode> Others for Ways<'_, M> {
    fn send(&mut self, packet: Packet<'_>) -> bool {
        let (context, signature) = (self.context, self.signature);
        let Some(to) = self.group.job_rank(packet.to) else { return false };
        let Ok(target) = context.target("collective", Rank(to)) else { return false };
        let (team, number) = (self.group.id, self.number);
        let head = Head { team, number, signature, mark: packet.place };
        let class = MessageClass::Request;
        // Over the network a message without payload takes less of both processors.
        if context.transport.is_remote(target)
            && let Some((args, count)) = head.encode_brief(packet.bytes)
        {
            let (handler, args, payload) = (BRIEF_HANDLER, &args[..count], AmPayload::None);
            return context.try_send::<M>(&AmMessage { class, target, handler, args, payload });
        }
        let (args, payload) = (&head.encode(), AmPayload::Medium(packet.bytes));
        context.try_send::<M>(&AmMessage { class, target, handler: HANDLER, args, payload })
    }

    fn lend(&mut self, bytes: &[u8]) -> Option<Lent> {
        let shm = self.context.shm();
        if let Some(offset) = shm.offset_of(bytes) {
            return Some(Lent(offset));
        }
        let at = self.stage.reserve(bytes.len())?;
        shm.stage(at, bytes).then_some(Lent(STAGED | at as u64))
    }

    fn give_back(&mut self, Lent(word): Lent, len: usize) {
        if let (true, Ok(at)) = (word & STAGED != 0, usize::try_from(word & !STAGED)) {
            self.stage.give_back(at, len);
        }
    }

    fn take(&mut self, from: u32, Lent(word): Lent, into: &mut [u8]) -> bool {
        let (shm, job) = (self.context.shm(), self.group.job_rank(from));
        let Some(local) = job.and_then(|job| self.context.local_of(Rank(job))) else {
            return false;
        };
        if word & STAGED == 0 {
            return shm.read(local, word, into);
        }
        usize::try_from(word & !STAGED).is_ok_and(|at| shm.unstage(local, at, into))
    }
}
