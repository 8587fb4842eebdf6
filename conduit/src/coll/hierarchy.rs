//! Schedules of teams that have several members in some neighbourhood: these come together at one of
//! them, and the ones so chosen deal with each other. Pure.

use super::places::Places;
use super::schedule::{self, Step, ToAll, Tree};

/// A member of a team.
#[derive(Clone, Copy)]
pub(crate) struct Member<'a> {
    pub(crate) rank: u32,
    pub(crate) size: u32,
    pub(crate) places: &'a Places,
}

/// A schedule of ranks that have other names here.
fn named(mut steps: Vec<Step>, name: impl Fn(u32) -> u32) -> Vec<Step> {
    for step in &mut steps {
        match step {
            Step::Send { to: rank, .. }
            | Step::Lend { to: rank, .. }
            | Step::Receive { from: rank, .. } => *rank = name(*rank),
        }
    }
    steps
}

impl Member<'_> {
    fn alone(self) -> bool {
        self.places.near_count() < 2
    }

    /// Place of a rank among those of this neighbourhood, if it is one.
    fn near(self, rank: u32) -> Option<u32> {
        self.places.near_index(rank)
    }

    fn near_rank(self, at: u32) -> u32 {
        self.places.near_rank(at).unwrap_or(self.rank)
    }

    /// Who speaks for this neighbourhood when `root` does for its own.
    fn head(self, root: u32) -> u32 {
        if self.near(root).is_some() { root } else { self.places.leader(self.places.part()) }
    }

    /// A schedule among who speaks for the neighbourhoods; empty for others.
    fn heads(self, root: u32, steps: impl FnOnce(u32, u32, u32) -> Vec<Step>) -> Vec<Step> {
        let (places, count) = (self.places, self.places.count());
        if count < 2 || self.head(root) != self.rank {
            return Vec::new();
        }
        let at = places.part_of(root);
        let name = |part| if part == at { root } else { places.leader(part) };
        named(steps(places.part(), count, at), name)
    }

    /// What one of this neighbourhood has, to the others.
    fn fan_out(self, head: u32, lends: bool) -> Vec<Step> {
        if lends {
            let others = self.places.near().filter(|other| *other != head);
            return schedule::lend(self.rank, head, others);
        }
        let (me, head) = (self.near(self.rank).unwrap_or(0), self.near(head).unwrap_or(0));
        let steps = schedule::broadcast(me, self.places.near_count(), head, Tree::Binomial);
        named(steps, |at| self.near_rank(at))
    }

    fn fan_in(self, head: u32, ordered: bool) -> Vec<Step> {
        let (me, head) = (self.near(self.rank).unwrap_or(0), self.near(head).unwrap_or(0));
        let steps = schedule::reduce_to_one(me, self.places.near_count(), head, ordered);
        named(steps, |at| self.near_rank(at))
    }

    /// `lends`: neighbours copy from each other's memory.
    pub(crate) fn broadcast(self, root: u32, tree: Tree, lends: bool) -> Vec<Step> {
        let down = |part, count, at| schedule::broadcast(part, count, at, tree);
        let mut steps = self.heads(root, down);
        if !self.alone() {
            steps.extend(self.fan_out(self.head(root), lends));
        }
        steps
    }

    /// Whether neighbours may come together first: the order of operands may not change.
    fn may_gather(self, ordered: bool) -> bool {
        !ordered || self.places.are_runs()
    }

    pub(crate) fn reduce_to_one(self, root: u32, ordered: bool) -> Vec<Step> {
        if !self.may_gather(ordered) {
            return schedule::reduce_to_one(self.rank, self.size, root, ordered);
        }
        let mut steps = self.fan_in(self.head(root), ordered);
        let up = |part, count, at| schedule::reduce_to_one(part, count, at, ordered);
        steps.extend(self.heads(root, up));
        steps
    }

    /// `lends` as in a broadcast.
    pub(crate) fn reduce_to_all(self, how: ToAll, ordered: bool, lends: bool) -> Vec<Step> {
        let together = self.places.count() < 2;
        let apart = self.places.count() == self.size;
        if apart || !self.may_gather(ordered) || together && (how == ToAll::Doubling || !lends) {
            return schedule::reduce_to_all(self.rank, self.size, how);
        }
        // The tree of an ordered reduction ends at the last one.
        let head = if together { self.size - 1 } else { self.places.leader(self.places.part()) };
        let mut steps = self.fan_in(head, ordered);
        let across = |part, count, _| schedule::reduce_to_all(part, count, how);
        steps.extend(self.heads(head, across));
        if !self.alone() {
            steps.extend(self.fan_out(head, lends));
        }
        steps
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::coll::schedule::tests::matched;

    proptest! {
        #[test]
        fn what_is_sent_is_received(
            numbers in proptest::collection::vec(0_u32..5, 1..24), root: u32, lends: bool, ordered: bool,
        ) {
            let size = u32::try_from(numbers.len()).expect("few");
            let root = root % size;
            let places: Vec<_> =
                numbers.iter().map(|mine| Places::new(*mine, numbers.iter().copied())).collect();
            let all = |schedule: &dyn Fn(Member<'_>) -> Vec<Step>| {
                let member = |rank| Member { rank, size, places: &places[rank as usize] };
                (0..size).map(|rank| schedule(member(rank))).collect::<Vec<_>>()
            };
            for tree in [Tree::Binomial, Tree::Binary] {
                let steps = all(&|member| member.broadcast(root, tree, lends));
                matched(&steps);
                matched(&steps.iter().map(|steps| schedule::ready(steps)).collect::<Vec<_>>());
            }
            matched(&all(&|member| member.reduce_to_one(root, ordered)));
            for how in [ToAll::Doubling, ToAll::ThroughOne] {
                let steps = all(&|member| member.reduce_to_all(how, ordered, lends));
                matched(&steps);
                matched(&steps.iter().map(|steps| schedule::ready(steps)).collect::<Vec<_>>());
            }
        }
    }
}
