//! Collectives that move blocks of one size, one for each pair of ranks at most: who sends which to
//! whom. Pure.
//!
//! Little data goes by trees and doubling, in few rounds; much of it straight from its source to its
//! place, so that no rank carries what is not its own.

use super::schedule::{Part, Step, Then, after, before, below, lowest, powers, receive, send};

/// Which memory a rank reads what it sends from, and which takes what comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Source,
    Result,
    /// Of the library.
    Own,
    /// The first block is the result, those behind it are the library's.
    Split,
}

/// What one member does.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) steps: Vec<Step>,
    pub(crate) reads: Side,
    pub(crate) stores: Side,
    /// Block of the source that stays here, and which it becomes where this rank stores.
    pub(crate) keeps: Option<(u32, u32)>,
    /// Blocks that the library has room for.
    pub(crate) own: u32,
}

/// Tags of messages, each the first of two: a run of blocks goes around the end of the ranks once at
/// most, and then travels in two pieces.
const FIRST: u8 = 0;
/// And so for each round.
const ROUND: u8 = 64;

/// Blocks of `count` ranks from `first` on, around the end.
fn run(first: u32, count: u32, size: u32) -> [Part; 2] {
    let straight = count.min(size - first);
    [Part { first, count: straight }, Part { first: 0, count: count - straight }]
}

/// The same run where it lies in one piece, from `first` on, cut as `run` is.
const fn cut(first: u32, [head, rest]: [Part; 2]) -> [Part; 2] {
    [Part { first, ..head }, Part { first: first + head.count, ..rest }]
}

fn sends(to: u32, tag: u8, parts: [Part; 2]) -> impl Iterator<Item = Step> {
    let tagged = [tag, tag + 1].into_iter().zip(parts).filter(|(_, part)| part.count > 0);
    tagged.map(move |(tag, part)| send(to, tag, part))
}

fn receives(from: u32, tag: u8, parts: [Part; 2]) -> impl Iterator<Item = Step> {
    let tagged = [tag, tag + 1].into_iter().zip(parts).filter(|(_, part)| part.count > 0);
    tagged.map(move |(tag, part)| receive(from, tag, part, Then::Store))
}

/// One block in one piece.
const fn block(first: u32) -> Part {
    Part { first, count: 1 }
}

/// A member's place in a binomial tree below the root: a run of places is below each.
struct Branch {
    rank: u32,
    size: u32,
    root: u32,
    place: u32,
}

impl Branch {
    const fn new(rank: u32, size: u32, root: u32) -> Self {
        Self { rank, size, root, place: before(rank, root, size) }
    }

    /// Places from this one on that are below it, with itself.
    fn count(&self, place: u32) -> u32 {
        if place == 0 { self.size } else { lowest(place).min(self.size - place) }
    }

    /// Places right below, the largest run first.
    fn children(&self) -> Vec<u32> {
        let mine =
            powers(self.size).filter(|(_, power)| self.place == 0 || *power < lowest(self.place));
        below(mine.rev().map(|(_, power)| u64::from(self.place) + u64::from(power)), self.size)
    }

    const fn rank_at(&self, place: u32) -> u32 {
        after(place, self.root, self.size)
    }

    const fn parent(&self) -> u32 {
        self.place & self.place.wrapping_sub(1)
    }

    /// The blocks of a place and those below it, as this rank has them.
    fn blocks(&self, place: u32) -> [Part; 2] {
        if self.rank == self.root {
            return run(self.rank_at(place), self.count(place), self.size);
        }
        cut(place - self.place, self.message(place))
    }

    /// The same as they travel: in two messages where the other end is the root and they go around.
    fn message(&self, place: u32) -> [Part; 2] {
        let count = self.count(place);
        let at_root = self.rank == self.root || place == self.place && self.parent() == 0;
        if at_root {
            run(self.rank_at(place), count, self.size)
        } else {
            [Part { first: 0, count }, Part { first: 0, count: 0 }]
        }
    }
}

/// Block `i` of the root's source to the result of rank `i`. `tree`: by a tree.
pub(crate) fn scatter(rank: u32, size: u32, root: u32, tree: bool) -> Plan {
    let branch = Branch::new(rank, size, root);
    let is_root = rank == root;
    let (mut steps, mut own) = (Vec::new(), 0);
    if tree {
        if !is_root {
            steps.extend(receives(
                branch.rank_at(branch.parent()),
                FIRST,
                branch.blocks(branch.place),
            ));
            own = branch.count(branch.place) - 1;
        }
        for child in branch.children() {
            steps.extend(sends(branch.rank_at(child), FIRST, branch.blocks(child)));
        }
    } else if is_root {
        steps.extend(others(rank, size).map(|to| send(to, FIRST, block(to))));
    } else {
        steps.push(receive(root, FIRST, block(0), Then::Store));
    }
    let (reads, stores) =
        if is_root { (Side::Source, Side::Result) } else { (Side::Split, Side::Split) };
    Plan { steps, reads, stores, keeps: is_root.then_some((root, 0)), own }
}

/// The source of rank `i` to block `i` of the root's result. `tree`: by a tree.
pub(crate) fn gather(rank: u32, size: u32, root: u32, tree: bool) -> Plan {
    let branch = Branch::new(rank, size, root);
    let is_root = rank == root;
    let (mut steps, mut own) = (Vec::new(), 0);
    if tree {
        // Those with few blocks are the first to have them.
        for child in branch.children().into_iter().rev() {
            steps.extend(receives(branch.rank_at(child), FIRST, branch.blocks(child)));
        }
        if !is_root {
            steps.extend(sends(
                branch.rank_at(branch.parent()),
                FIRST,
                branch.blocks(branch.place),
            ));
            own = branch.count(branch.place);
        }
    } else if is_root {
        steps.extend(others(rank, size).map(|from| receive(from, FIRST, block(from), Then::Store)));
    } else {
        steps.push(send(root, FIRST, block(0)));
    }
    if is_root {
        return Plan {
            steps,
            reads: Side::Result,
            stores: Side::Result,
            keeps: Some((0, root)),
            own,
        };
    }
    // Who passes nothing on sends from its source.
    let carries = own > 1;
    let side = if carries { Side::Own } else { Side::Source };
    let own = if carries { own } else { 0 };
    Plan { steps, reads: side, stores: Side::Own, keeps: carries.then_some((0, 0)), own }
}

/// The source of rank `i` to block `i` of the result of all. `doubling`: in rounds of twice as much.
pub(crate) fn gather_all(rank: u32, size: u32, doubling: bool) -> Plan {
    let mut steps = Vec::new();
    if doubling {
        for (round, power) in powers(size) {
            let (tag, count) = (ROUND + 2 * round, power.min(size - power));
            let (to, from) = (before(rank, power, size), after(rank, power, size));
            steps.extend(sends(to, tag, run(rank, count, size)));
            steps.extend(receives(from, tag, run(from, count, size)));
        }
    } else {
        steps.extend(others(rank, size).map(|to| send(to, FIRST, block(rank))));
        let from = behind(rank, size);
        steps.extend(from.map(|from| receive(from, FIRST, block(from), Then::Store)));
    }
    Plan { steps, reads: Side::Result, stores: Side::Result, keeps: Some((0, rank)), own: 0 }
}

/// Block `j` of the source of rank `i` to block `i` of the result of rank `j`.
pub(crate) fn exchange(rank: u32, size: u32) -> Plan {
    let mut steps: Vec<_> = others(rank, size).map(|to| send(to, FIRST, block(to))).collect();
    let from = behind(rank, size);
    steps.extend(from.map(|from| receive(from, FIRST, block(from), Then::Store)));
    Plan { steps, reads: Side::Source, stores: Side::Result, keeps: Some((rank, rank)), own: 0 }
}

/// The others, from the next rank on, so that not all send to the same one at once.
fn others(rank: u32, size: u32) -> impl Iterator<Item = u32> {
    (1..size).map(move |step| after(rank, step, size))
}

/// The others, from the rank before on: the order in which their blocks come.
fn behind(rank: u32, size: u32) -> impl Iterator<Item = u32> {
    (1..size).map(move |step| before(rank, step, size))
}

/// Runs of ranks that end with each one, combined: a rank has what those up to it contribute.
pub(crate) fn scan(rank: u32, size: u32) -> Vec<Step> {
    let round = |(round, power): (u8, u32)| {
        let to = (size - rank > power).then(|| send(rank + power, ROUND + round, block(0)));
        let from = rank.checked_sub(power);
        [to, from.map(|from| receive(from, ROUND + round, block(0), Then::Left))]
    };
    powers(size).flat_map(round).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::super::schedule::tests::matched;
    use super::*;

    #[test]
    fn what_is_sent_is_received() {
        for size in 1..40 {
            let all = |plan: &dyn Fn(u32) -> Plan| {
                matched(&(0..size).map(|rank| plan(rank).steps).collect::<Vec<_>>());
            };
            all(&|rank| exchange(rank, size));
            matched(&(0..size).map(|rank| scan(rank, size)).collect::<Vec<_>>());
            for few in [false, true] {
                all(&|rank| gather_all(rank, size, few));
                for root in 0..size {
                    all(&|rank| scatter(rank, size, root, few));
                    all(&|rank| gather(rank, size, root, few));
                }
            }
        }
    }

    #[test]
    fn rounds_of_little_data_are_few() {
        let most = |plan: &dyn Fn(u32) -> Plan| {
            (0..64).map(|rank| plan(rank).steps.len()).max().expect("ranks")
        };
        // At the root, whose runs go around the end once.
        assert!(most(&|rank| scatter(rank, 64, 5, true)) <= 7);
        assert!(most(&|rank| gather(rank, 64, 5, true)) <= 7);
        assert!(most(&|rank| gather_all(rank, 64, true)) <= 18);
        assert_eq!((0..64).map(|rank| scan(rank, 64).len()).max(), Some(11));
    }
}
