//! The order of collective calls, for who compares it: the debug library. Members of a team tell each
//! other what they call, as text, before they begin it. In a large team all tell the first member
//! alone.

use bootstrap::Rank;

use super::group::{Group, TeamId};
use super::order::{WORDS, decode, encode};
use crate::error::Error;
use crate::handler::{Function, Registered, Role};
use crate::mode::Mode;
use crate::rank::RankContext;
use crate::transport::message::{AmMessage, AmPayload, Flags, MessageClass};

const HANDLER: u8 = 65;
/// Members that all tell each other.
const FEW: u32 = 32;

/// The handler of what members say.
pub(crate) fn order_handler() -> Registered {
    let hear: Function = Function::Medium(Box::new(|token, bytes, args| {
        let (context, rank) = (token.context, token.source());
        match decode(args) {
            Some((key, members)) => {
                context.hear(key, members, (rank.0, &String::from_utf8_lossy(bytes)));
            }
            None => context.fatal(&format!("rank {rank} sent words of a call that are none")),
        }
    }));
    Registered::new(HANDLER, "collective call".to_owned(), WORDS, Role::Request, hear)
}

impl RankContext {
    fn hear(&self, key: (TeamId, u32), members: u32, said: (u32, &str)) {
        if let Err(problem) = self.order.with(|calls| calls.hear(key, members, said)) {
            self.fatal(&format!(
                "{problem}; all members of a team must make the same collective calls in the same \
                 order"
            ));
        }
    }

    /// Says that this rank makes a collective call: its name with what all members must give alike.
    /// Ends the job when another member makes another one in its place. Does not wait for others,
    /// only for room for messages.
    ///
    /// # Errors
    /// A call inside a handler; the end of the job.
    pub fn compare_order<M: Mode>(
        &self,
        call: &'static str,
        group: &Group,
        text: &str,
    ) -> Result<(), Error> {
        let key = (group.id, self.order.with(|calls| calls.next(group.id)));
        let (all, few) = (group.size(), group.size() <= FEW);
        if few || group.rank() == 0 {
            self.hear(key, all, (self.rank_info.rank.0, text));
        }
        let others = (0..if few { all } else { 1 }).filter(|rank| *rank != group.rank());
        for rank in others.filter_map(|rank| group.job_rank(rank)) {
            let (class, target) = (MessageClass::Request, self.target(call, Rank(rank))?);
            let (args, payload) = (&encode(key, all), AmPayload::Medium(text.as_bytes()));
            let message = AmMessage { class, target, handler: HANDLER, args, payload };
            let _sent = self.request::<M>(call, &message, Flags::NONE)?;
        }
        Ok(())
    }
}
