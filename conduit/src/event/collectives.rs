//! Collectives that complete with an event.

use super::{Event, Part, Scope};
use crate::coll::{Plain, ReduceOp, Task};
use crate::endpoint::Team;
use crate::error::Error;
use crate::mode::Mode;
use crate::rma::operations::Op;
use crate::team::Element;
use bootstrap::Rank;

impl<'scope, M: Mode> Scope<'scope, '_, M> {
    /// As [`Team::barrier`]; the event is complete when every member has begun it.
    ///
    /// # Errors
    /// As [`Team::barrier`].
    pub fn barrier_nb(&'scope self, team: &Team<'_, M>) -> Result<Event<'scope>, Error> {
        self.collective("barrier_nb", team, Task::barrier(team.group()), ())
    }

    /// As [`Team::broadcast`]; the event gives the data back.
    ///
    /// ```no_run
    /// # use gasnet_ibv::{Client, Error, Rank, ReduceOp, Seq};
    /// # fn f(client: &Client<Seq>) -> Result<(), Error> {
    /// let (all, mut names, mut sums) = (client.team(), [0_u8; 64], [1_u64, 2, 3]);
    /// client.scope(|scope| {
    ///     // Begun in the same order on all ranks, waited for in any.
    ///     let names = scope.broadcast_nb(&all, Rank(0), &mut names)?;
    ///     let sums = scope.reduce_to_all_nb(&all, &mut sums, ReduceOp::Add)?;
    ///     println!("{:?}", sums.wait()?);
    ///     names.wait().map(|names| println!("{names:?}"))
    /// })?
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Team::broadcast`].
    pub fn broadcast_nb<T: Plain>(
        &'scope self,
        team: &Team<'_, M>,
        root: Rank,
        data: &'scope mut [T],
    ) -> Result<Event<'scope, &'scope mut [T]>, Error> {
        let call = "broadcast_nb";
        let task = team.broadcast_task(call, root, data)?;
        self.collective(call, team, task, data)
    }

    /// As [`Team::reduce_to_one`]; the event gives the data back.
    ///
    /// # Errors
    /// As [`Team::reduce_to_one`].
    pub fn reduce_to_one_nb<T: Element>(
        &'scope self,
        team: &Team<'_, M>,
        root: Rank,
        data: &'scope mut [T],
        op: ReduceOp,
    ) -> Result<Event<'scope, &'scope mut [T]>, Error> {
        let call = "reduce_to_one_nb";
        let task = team.reduce_to_one_task(call, root, data, op)?;
        self.collective(call, team, task, data)
    }

    /// As [`Team::reduce_to_all`]; the event gives the data back.
    ///
    /// # Errors
    /// As [`Team::reduce_to_all`].
    pub fn reduce_to_all_nb<T: Element>(
        &'scope self,
        team: &Team<'_, M>,
        data: &'scope mut [T],
        op: ReduceOp,
    ) -> Result<Event<'scope, &'scope mut [T]>, Error> {
        let call = "reduce_to_all_nb";
        let op = team.start_reduce_to_all(call, data, op)?;
        Ok(self.begun(op, data))
    }

    fn collective<B>(
        &'scope self,
        call: &'static str,
        team: &Team<'_, M>,
        task: Task,
        borrowed: B,
    ) -> Result<Event<'scope, B>, Error> {
        let op = self.client.context.start_collective::<M>(call, team.group(), task)?;
        Ok(self.begun(op, borrowed))
    }

    fn begun<B>(&'scope self, op: Op, borrowed: B) -> Event<'scope, B> {
        self.keep(op);
        let pending = Some(self.pending(op, Part::ALL));
        Event { borrowed, pending, scope: std::marker::PhantomData }
    }
}
