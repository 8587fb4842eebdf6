//! A collective as it is called: what its members agree on, its schedule, its memory.

use super::group::Group;
use super::letter::{Kind, Signature};
use super::machine::{Layout, Machine};
use super::memory::{Buffers, Work};
use super::reduce::Combine;
use super::schedule::{self, Step, ToAll, Tree};

/// One collective on one team, ready to begin.
pub struct Task {
    pub(super) signature: Signature,
    pub(super) machine: Machine,
    pub(super) work: Work,
    /// It runs a function of the program.
    pub(super) calls_program: bool,
}

/// What a reduction combines, beside the elements.
#[derive(Debug)]
pub struct Reduction {
    /// How.
    pub combine: Combine,
    /// Operands may not change places.
    pub ordered: bool,
    /// Bytes of an element.
    pub element: usize,
    /// Bytes of all elements of a rank.
    pub len: usize,
    /// What members compare: type and operation.
    pub check: u64,
}

impl Task {
    /// A barrier.
    #[must_use]
    pub fn barrier(group: &Group) -> Self {
        let steps = schedule::barrier(group.rank(), group.size());
        let signature = Signature::new(Kind::Barrier, [0; 4], 0);
        Self::new(signature, steps, Layout::whole(0), Buffers::NONE, None)
    }

    /// `len` bytes of the rank `root` of the team, one of it, to the results of all.
    #[must_use]
    pub fn broadcast(group: &Group, root: u32, len: usize, buffers: Buffers) -> Self {
        let layout = Layout::cut(len, 1, group.is_together().then(|| group.size()));
        let tree = if layout.is_long() { Tree::Binary } else { Tree::Binomial };
        let steps = group.member().broadcast(root, tree, layout.lends());
        let signature = Signature::new(Kind::Broadcast, [u64::from(root), 0, 0, 0], len);
        let source = if root == group.rank() { buffers.source } else { std::ptr::null() };
        Self::new(signature, steps, layout, Buffers { source, ..buffers }, None)
    }

    /// Elements of all, combined, to the result of the rank `root` of the team, one of it.
    #[must_use]
    pub fn reduce_to_one(group: &Group, root: u32, reduction: Reduction, buffers: Buffers) -> Self {
        let layout = Layout::cut(reduction.len, reduction.element, None);
        let rank = group.rank();
        let steps = group.member().reduce_to_one(root, reduction.ordered);
        let signature = reduction.signature(Kind::ReduceToOne, root);
        let result = if root == rank { buffers.result } else { std::ptr::null_mut() };
        Self::new(signature, steps, layout, Buffers { result, ..buffers }, Some(reduction.combine))
    }

    /// Elements of all, combined, to the results of all, by messages. Those of a team that
    /// has turns of so many bytes ([`Group::has_turns`]) are no task.
    #[must_use]
    pub fn reduce_to_all(group: &Group, reduction: Reduction, buffers: Buffers) -> Self {
        let signature = reduction.signature(Kind::ReduceToAll, 0);
        let layout = Layout::cut(reduction.len, reduction.element, None);
        let how = if layout.is_long() { ToAll::ThroughOne } else { ToAll::Doubling };
        let steps = group.member().reduce_to_all(how, reduction.ordered, layout.lends());
        Self::new(signature, steps, layout, buffers, Some(reduction.combine))
    }

    /// A block of `len` bytes from each, to all: the result begins with this rank's own block, and
    /// then has those of the ranks after it, around the team.
    pub(super) fn gather_all(group: &Group, len: usize, buffers: Buffers) -> Self {
        let steps = schedule::gather_all(group.rank(), group.size());
        let signature = Signature::new(Kind::Gather, [0; 4], len);
        Self::new(signature, steps, Layout::whole(len), buffers, None)
    }

    fn new(
        signature: Signature,
        steps: Vec<Step>,
        layout: Layout,
        buffers: Buffers,
        combine: Option<Combine>,
    ) -> Self {
        let gets = |step: &Step| matches!(step, Step::Receive { part, .. } if part.count > 0);
        let own = buffers.result.is_null() && steps.iter().any(gets);
        let calls_program = matches!(combine, Some(Combine::Function(_)));
        let len = if own { buffers.contributes } else { 0 };
        let work = Work::new(buffers, len, combine);
        let machine = Machine::new(steps, layout);
        Self { signature, machine, work, calls_program }
    }
}

impl std::fmt::Debug for Task {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Task({:?})", self.signature)
    }
}

impl Reduction {
    pub(super) fn signature(&self, kind: Kind, root: u32) -> Signature {
        let arguments = [u64::from(root), self.element as u64, self.check, self.ordered.into()];
        Signature::new(kind, arguments, self.len)
    }
}
