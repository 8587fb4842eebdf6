//! Making teams of teams, their collectives and domains of atomics.

mod atomics;
mod blocks;
mod collectives;
mod make;

pub use atomics::{AtomicDomain, Fetched};
pub use collectives::Element;

use std::sync::Arc;

use bootstrap::Rank;

use crate::coll::Group;
use crate::endpoint::Team;
use crate::error::Error;
use crate::mode::Mode;

impl<'c, M: Mode> Team<'c, M> {
    fn of(&self, group: Arc<Group>) -> Self {
        Self { client: self.client, group: Some(group) }
    }

    /// Splits this team: members with the same `color` form a team, in the order of their `key`s,
    /// those with the same key in the order of their ranks here. Collective over this team; waits
    /// for all. `None` of a color: takes part and gets no team.
    ///
    /// ```no_run
    /// # use gasnet_ibv::{Client, Error, Seq};
    /// # fn f(client: &Client<Seq>) -> Result<(), Error> {
    /// let all = client.team();
    /// let rank = all.rank().0;
    /// // Even and odd ranks, in descending order.
    /// let half = all.split(Some(rank % 2), -i32::try_from(rank).unwrap_or(0))?;
    /// if let Some(half) = half {
    ///     println!("rank {rank} is rank {} of {}", half.rank(), half.size());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// A call inside a handler; the end of the job.
    pub fn split(&self, color: Option<u32>, key: i32) -> Result<Option<Self>, Error> {
        let choice = color.map(|color| (color, key));
        let made = self.context().split::<M>("split", self.group(), choice)?;
        Ok(made.map(|group| self.of(group)))
    }

    /// Makes a team of these ranks of this team, in this order; all of them give the same list.
    /// Collective over this team: who joins no team gives an empty list. Waits for all.
    ///
    /// # Errors
    /// A rank that this team does not have, or twice; a list without this rank; lists that differ;
    /// a call inside a handler; the end of the job.
    pub fn create(&self, ranks: &[Rank]) -> Result<Option<Self>, Error> {
        let ranks: Vec<u32> = ranks.iter().map(|rank| rank.0).collect();
        let made = self.context().create::<M>("create", self.group(), &ranks)?;
        Ok(made.map(|group| self.of(group)))
    }
}

impl<M: Mode> Drop for Team<'_, M> {
    fn drop(&mut self) {
        if let Some(group) = &self.group {
            self.client.context.collectives.forget(group);
        }
    }
}
