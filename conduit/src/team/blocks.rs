//! Collectives of a team that move blocks, and prefixes, for programs in Rust.

use bootstrap::Rank;

use super::collectives::{Element, builtin, own, reduction};
use crate::coll::{Buffers, Combine, Plain, ReduceOp, Task, refused};
use crate::endpoint::Team;
use crate::error::Error;
use crate::mode::Mode;

impl<M: Mode> Team<'_, M> {
    /// Checks that `elements` are `wanted`.
    fn check_count(
        &self,
        call: &'static str,
        what: &str,
        elements: usize,
        wanted: usize,
    ) -> Result<(), Error> {
        if elements == wanted {
            return Ok(());
        }
        let size = self.size();
        Err(refused(
            call,
            format!("{what} has {elements} elements, not {wanted} in a team of {size} ranks"),
        ))
    }

    /// Elements of as many blocks as there are ranks.
    fn of_all(&self, call: &'static str, block: usize) -> Result<usize, Error> {
        let all = block.checked_mul(self.size() as usize);
        all.ok_or_else(|| refused(call, format!("{block} elements of each rank are too many")))
    }

    /// Gives every rank its block of `source` of the rank `root`: there it has the blocks of all
    /// ranks in their order, elsewhere it is not looked at. The length of `result` is that of a
    /// block. Collective over the team, with the same root and length of a block on all; no
    /// barrier.
    ///
    /// # Errors
    /// A root outside the team; a source on the root that is not a block for each rank; a call
    /// inside a handler; the end of the job.
    pub fn scatter<T: Plain>(
        &self,
        root: Rank,
        source: &[T],
        result: &mut [T],
    ) -> Result<(), Error> {
        let call = "scatter";
        self.check_root(call, root)?;
        let is_root = root == self.rank();
        if is_root {
            self.check_count(call, "the source", source.len(), self.of_all(call, result.len())?)?;
        }
        let len = size_of_val(result);
        let buffers = Buffers::of(is_root.then_some(source), Some(result));
        self.run(call, Task::scatter(self.group(), root.0, len, buffers))
    }

    /// Brings `source` of every rank to `result` of the rank `root`, in the order of the ranks;
    /// elsewhere it stays as it is. Collective over the team, with the same root and length of
    /// `source` on all; no barrier.
    ///
    /// # Errors
    /// A root outside the team; a result on the root that is not a block for each rank; a call
    /// inside a handler; the end of the job.
    pub fn gather<T: Plain>(
        &self,
        root: Rank,
        source: &[T],
        result: &mut [T],
    ) -> Result<(), Error> {
        let call = "gather";
        self.check_root(call, root)?;
        let is_root = root == self.rank();
        if is_root {
            self.check_count(call, "the result", result.len(), self.of_all(call, source.len())?)?;
        }
        let len = size_of_val(source);
        let buffers = Buffers::of(Some(source), is_root.then_some(result));
        self.run(call, Task::gather(self.group(), root.0, len, buffers))
    }

    /// Brings `source` of every rank to `result` of all, in the order of the ranks. Collective over
    /// the team, with the same length of `source` on all; no barrier.
    ///
    /// # Errors
    /// A result that is not a block for each rank; a call inside a handler; the end of the job.
    pub fn gather_all<T: Plain>(&self, source: &[T], result: &mut [T]) -> Result<(), Error> {
        let call = "gather_all";
        self.check_count(call, "the result", result.len(), self.of_all(call, source.len())?)?;
        let len = size_of_val(source);
        let buffers = Buffers::of(Some(source), Some(result));
        self.run(call, Task::gather_to_all(self.group(), len, buffers))
    }

    /// Gives block `j` of `source` of each rank `i` to rank `j`, as block `i` of its `result`: both
    /// have a block for each rank. Collective over the team, with the same lengths on all; no
    /// barrier.
    ///
    /// ```no_run
    /// # use gasnet_ibv::{Client, Error, Seq};
    /// # fn f(client: &Client<Seq>, for_all: &[u64]) -> Result<(), Error> {
    /// // How many numbers each rank will send to each.
    /// let mut from_all = vec![0; for_all.len()];
    /// client.team().exchange(for_all, &mut from_all)?;
    /// println!("{} numbers will come", from_all.iter().sum::<u64>());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Lengths that differ or are not a block for each rank; a call inside a handler; the end of
    /// the job.
    pub fn exchange<T: Plain>(&self, source: &[T], result: &mut [T]) -> Result<(), Error> {
        let call = "exchange";
        let block = source.len() / self.size() as usize;
        self.check_count(call, "the source", source.len(), self.of_all(call, block)?)?;
        self.check_count(call, "the result", result.len(), source.len())?;
        let len = block * size_of::<T>();
        let buffers = Buffers::of(Some(source), Some(result));
        self.run(call, Task::exchange(self.group(), len, buffers))
    }

    /// Combines `data` of the ranks up to this one, with its own, element by element. Collective
    /// over the team, with the same operation and length on all; no barrier.
    ///
    /// # Errors
    /// An operation that the type does not have; a call inside a handler; the end of the job.
    pub fn scan<T: Element>(&self, data: &mut [T], op: ReduceOp) -> Result<(), Error> {
        let call = "scan";
        self.run_scan(call, data, builtin::<T>(call, op)?)
    }

    /// As [`Team::scan`] with a function as in [`Team::reduce_to_one_with`].
    ///
    /// # Errors
    /// A call inside a handler; the end of the job.
    pub fn scan_with<T: Plain>(
        &self,
        data: &mut [T],
        combine: impl Fn(T, T) -> T + Send + Sync + 'static,
    ) -> Result<(), Error> {
        self.run_scan("scan_with", data, own(combine))
    }

    fn run_scan<T: Plain>(
        &self,
        call: &'static str,
        data: &mut [T],
        (combine, check): (Combine, u64),
    ) -> Result<(), Error> {
        let reduction = reduction(data, combine, check);
        self.run(call, Task::scan(self.group(), reduction, Buffers::of(None, Some(data))))
    }
}
