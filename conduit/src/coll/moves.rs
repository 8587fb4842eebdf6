//! Collectives that move blocks, and prefixes of reductions, as they are called.

use std::sync::Arc;

use super::blocks::{self, Plan};
use super::group::Group;
use super::letter::{Kind, Signature};
use super::machine::{LONG, Layout, Machine};
use super::memory::{Buffers, Moves, Work};
use super::reduce::Combine;
use super::task::{Reduction, Task};
use crate::error::Error;
use crate::mode::Mode;
use crate::rank::RankContext;
use crate::rma::operations::Op;

/// When all members of a collective wait for each other, beside what its data needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fences {
    /// Nobody's memory is read or written before all have begun it.
    pub before: bool,
    /// It is complete when it is complete on all.
    pub after: bool,
}

/// Whether blocks of `len` bytes are little data together.
fn is_little(group: &Group, len: usize) -> bool {
    len.saturating_mul(group.size() as usize) <= LONG
}

impl Task {
    /// Blocks of `len` bytes of the source of the rank `root` of the team, one of it: a block for
    /// each rank, in their order, to its result.
    #[must_use]
    pub fn scatter(group: &Group, root: u32, len: usize, buffers: Buffers) -> Self {
        let little = is_little(group, len);
        let plan = blocks::scatter(group.rank(), group.size(), root, little);
        Self::moving(group, plan, (Kind::Scatter, root), (len, little), buffers)
    }

    /// `len` bytes of all to the result of the rank `root` of the team, one of it, in the order of
    /// their ranks.
    #[must_use]
    pub fn gather(group: &Group, root: u32, len: usize, buffers: Buffers) -> Self {
        let little = is_little(group, len);
        let plan = blocks::gather(group.rank(), group.size(), root, little);
        Self::moving(group, plan, (Kind::GatherToOne, root), (len, little), buffers)
    }

    /// `len` bytes of all to the results of all, in the order of their ranks.
    #[must_use]
    pub fn gather_to_all(group: &Group, len: usize, buffers: Buffers) -> Self {
        let little = is_little(group, len);
        let plan = blocks::gather_all(group.rank(), group.size(), little);
        Self::moving(group, plan, (Kind::GatherToAll, 0), (len, little), buffers)
    }

    /// Blocks of `len` bytes from all to all: block `j` of rank `i` becomes block `i` of rank `j`.
    /// Source and result do not overlap.
    #[must_use]
    pub fn exchange(group: &Group, len: usize, buffers: Buffers) -> Self {
        let plan = blocks::exchange(group.rank(), group.size());
        Self::moving(group, plan, (Kind::Exchange, 0), (len, false), buffers)
    }

    fn moving(
        group: &Group,
        plan: Plan,
        (kind, root): (Kind, u32),
        (len, little): (usize, bool),
        buffers: Buffers,
    ) -> Self {
        let total = len.saturating_mul(group.size() as usize);
        let layout = if little { Layout::block(len, total) } else { Layout::cut(len, 1, None) };
        let bytes = |blocks: u32| blocks as usize * len;
        let Plan { steps, reads, stores, keeps, own } = plan;
        let keeps = keeps.map(|(from, to)| (bytes(from), bytes(to)));
        let moves = Moves { reads, stores, keeps, block: len };
        Self {
            signature: Signature::new(kind, [u64::from(root), 0, 0, 0], len),
            machine: Machine::new(steps, layout),
            work: Work::moving(buffers, bytes(own), moves),
            calls_program: false,
        }
    }

    /// Elements of the ranks up to each one, combined in their order, to its result.
    #[must_use]
    pub fn scan(group: &Group, reduction: Reduction, buffers: Buffers) -> Self {
        let steps = blocks::scan(group.rank(), group.size());
        let layout = Layout::cut(reduction.len, reduction.element, None);
        let signature = reduction.signature(Kind::Scan, 0);
        let calls_program = matches!(reduction.combine, Combine::Function(_));
        let work = Work::new(buffers, 0, Some(reduction.combine));
        let machine = Machine::new(steps, layout);
        Self { signature, machine, work, calls_program }
    }
}

impl RankContext {
    /// As `start_collective` between barriers of the team.
    pub fn start_fenced<M: Mode>(
        &self,
        call: &'static str,
        group: &Arc<Group>,
        task: Task,
        fences: Fences,
    ) -> Result<Op, Error> {
        if fences == Fences::default() {
            return self.start_collective::<M>(call, group, task);
        }
        let barrier = |wanted: bool| wanted.then(|| Task::barrier(group));
        let tasks = [barrier(fences.before), Some(task), barrier(fences.after)];
        self.begin_chain::<M>(call, group, tasks.into_iter().flatten())
    }
}

#[cfg(test)]
mod tests;
