//! What a member of a team sends and receives in a collective, in which order. Pure.
//!
//! A schedule is for one *lane*, a piece of the payload; the pieces of a large one go through the
//! same schedule beside each other. The steps of a lane are done one after the other. Where data is
//! combined, what a rank holds is always the result of a run of neighbouring ranks, and what comes
//! is that of the run before or after it: so the order of the operands is that of the ranks, and
//! the result is the same in each run of a program.

/// Piece of the data that a step is about, in blocks of a lane: `count` of them from `first` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) first: u32,
    pub(crate) count: u32,
}

/// No data: a signal.
pub(crate) const NONE: Part = Part { first: 0, count: 0 };
/// The whole lane.
pub(crate) const ALL: Part = Part { first: 0, count: 1 };

/// What becomes of data that has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    /// There is none.
    Nothing,
    /// It takes its place.
    Store,
    /// It is the left operand, what is here the right one.
    Left,
    /// It is the right operand, what is here the left one.
    Right,
    /// It says where the data is in memory of a neighbour, which is copied when it is its turn.
    Take,
}

/// One step. Ranks are those of the team; tags tell the messages of a pair of ranks apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Send {
        to: u32,
        tag: u8,
        part: Part,
    },
    Receive {
        from: u32,
        tag: u8,
        part: Part,
        then: Then,
    },
    /// Tells a neighbour where the lane's data is; it stays there until the lane is done.
    Lend {
        to: u32,
        tag: u8,
    },
}

pub(super) use tag::{ASK, READY};

use crate::transport::neighbours::rounds;

/// Tags of messages.
mod tag {
    /// Towards the root of a reduction.
    pub(super) const UP: u8 = 0;
    /// Away from the root of a broadcast.
    pub(super) const DOWN: u8 = 1;
    /// From the last rank, where an ordered reduction ends, to the root.
    pub(super) const FORWARD: u8 = 2;
    /// Into the power of two, and out of it.
    pub(super) const FOLD: u8 = 3;
    pub(super) const UNFOLD: u8 = 4;
    /// The receiver is there.
    pub(in crate::coll) const READY: u8 = 5;
    /// Where data is in the memory of a neighbour, and that it was copied.
    pub(super) const LENT: u8 = 6;
    pub(super) const TAKEN: u8 = 7;
    /// No step: a member that has waited for long shows what it has begun.
    pub(in crate::coll) const ASK: u8 = 8;
    /// Rounds.
    pub(super) const ROUND: u8 = 64;
}

/// Tags of recursive doubling, counted from 0 on without gaps.
pub(super) fn tag_index(tag: u8) -> usize {
    match tag {
        tag::FOLD => 0,
        tag::UNFOLD => 1,
        _ => usize::from(tag.saturating_sub(tag::ROUND)) + 2,
    }
}

/// How many of them a team of so many ranks has.
pub(super) fn tag_indices(size: u32) -> usize {
    2 + rounds(size)
}

pub(super) const fn send(to: u32, tag: u8, part: Part) -> Step {
    Step::Send { to, tag, part }
}

pub(super) const fn receive(from: u32, tag: u8, part: Part, then: Then) -> Step {
    Step::Receive { from, tag, part, then }
}

/// Powers of two below `size`.
pub(super) fn powers(size: u32) -> impl DoubleEndedIterator<Item = (u8, u32)> {
    (0_u8..32).map(|round| (round, 1_u32 << round)).take(rounds(size))
}

/// `a + b` around a ring.
pub(super) const fn after(a: u32, b: u32, size: u32) -> u32 {
    let (a, b) = (a % size, b % size);
    if b < size - a { a + b } else { b - (size - a) }
}

/// `a - b` around a ring.
pub(super) const fn before(a: u32, b: u32, size: u32) -> u32 {
    after(a, size - b % size, size)
}

/// Dissemination: in round `i` to the rank `2^i` further on, from the one `2^i` before.
pub(crate) fn barrier(rank: u32, size: u32) -> Vec<Step> {
    let round = |(round, power)| {
        let tag = tag::ROUND + round;
        let (to, from) = (after(rank, power, size), before(rank, power, size));
        [send(to, tag, NONE), receive(from, tag, NONE, Then::Nothing)]
    };
    powers(size).flat_map(round).collect()
}

/// Shape of the tree of a broadcast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tree {
    /// Fewest rounds.
    Binomial,
    /// At most two sends per rank and piece: fastest for many pieces.
    Binary,
}

/// Down a tree from the root.
pub(crate) fn broadcast(rank: u32, size: u32, root: u32, tree: Tree) -> Vec<Step> {
    let place = before(rank, root, size);
    let (parent, children): (u32, Vec<u32>) = match tree {
        Tree::Binomial => {
            let mine = powers(size).filter(|(_, power)| place == 0 || *power < lowest(place));
            let largest_first = mine.rev().map(|(_, power)| u64::from(place) + u64::from(power));
            (place & place.wrapping_sub(1), below(largest_first, size))
        }
        Tree::Binary => {
            let first = 2 * u64::from(place) + 1;
            (place.wrapping_sub(1) / 2, below([first, first + 1].into_iter(), size))
        }
    };
    let rank_at = |place| after(place, root, size);
    let from = receive(rank_at(parent), tag::DOWN, ALL, Then::Store);
    let sends = children.into_iter().map(|child| send(rank_at(child), tag::DOWN, ALL));
    (place != 0).then_some(from).into_iter().chain(sends).collect()
}

/// The lowest bit that is set.
pub(super) const fn lowest(number: u32) -> u32 {
    number & number.wrapping_neg()
}

/// Those of the places that there are.
pub(super) fn below(places: impl Iterator<Item = u64>, size: u32) -> Vec<u32> {
    places.filter_map(|place| u32::try_from(place).ok()).filter(|place| *place < size).collect()
}

/// Up a binomial tree. `ordered`: the operands stay in the order of the ranks, so that the tree
/// ends at the last rank, which sends the result on to the root. Else the order begins behind the
/// root.
pub(crate) fn reduce_to_one(rank: u32, size: u32, root: u32, ordered: bool) -> Vec<Step> {
    let end = if ordered { size - 1 } else { root };
    // The ranks below a place in the tree are those before its rank.
    let place = before(end, rank, size);
    let rank_at = |place| before(end, place, size);
    let mine = powers(size).filter(|(_, power)| place == 0 || *power < lowest(place));
    let children = below(mine.map(|(_, power)| u64::from(place) + u64::from(power)), size);
    let receive_from = |child| receive(rank_at(child), tag::UP, ALL, Then::Left);
    let mut steps: Vec<_> = children.into_iter().map(receive_from).collect();
    if place != 0 {
        steps.push(send(rank_at(place & (place - 1)), tag::UP, ALL));
    }
    if end != root && rank == end {
        steps.push(send(root, tag::FORWARD, ALL));
    }
    if end != root && rank == root {
        steps.push(receive(end, tag::FORWARD, ALL, Then::Store));
    }
    steps
}

/// How a reduction reaches all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ToAll {
    /// Recursive doubling: fewest rounds.
    Doubling,
    /// To the last rank and from there to all: least data for many pieces.
    ThroughOne,
}

pub(crate) fn reduce_to_all(rank: u32, size: u32, how: ToAll) -> Vec<Step> {
    match how {
        ToAll::Doubling => doubling(rank, size),
        ToAll::ThroughOne => {
            let mut steps = reduce_to_one(rank, size, size - 1, true);
            steps.extend(broadcast(rank, size, size - 1, Tree::Binary));
            steps
        }
    }
}

/// Recursive doubling among the largest power of two; pairs of the first ranks count as one rank.
fn doubling(rank: u32, size: u32) -> Vec<Step> {
    let most = 1 << size.ilog2();
    let pairs = size - most;
    let paired = rank < 2 * pairs;
    if paired && rank.is_multiple_of(2) {
        let to_other = send(rank + 1, tag::FOLD, ALL);
        return vec![to_other, receive(rank + 1, tag::UNFOLD, ALL, Then::Store)];
    }
    let mut steps = Vec::new();
    let place = if paired { rank / 2 } else { rank - pairs };
    let rank_at = |place: u32| if place < pairs { 2 * place + 1 } else { place + pairs };
    if paired {
        steps.push(receive(rank - 1, tag::FOLD, ALL, Then::Left));
    }
    for (round, power) in powers(most) {
        let (other, tag) = (place ^ power, tag::ROUND + round);
        let then = if other < place { Then::Left } else { Then::Right };
        steps.extend([send(rank_at(other), tag, ALL), receive(rank_at(other), tag, ALL, then)]);
    }
    if paired {
        steps.push(send(rank - 1, tag::UNFOLD, ALL));
    }
    steps
}

/// A block of every rank to all: block `i` of a rank's lane is that of the rank `i` further on.
pub(crate) fn gather_all(rank: u32, size: u32) -> Vec<Step> {
    let round = |(round, power): (u8, u32)| {
        let (tag, count) = (tag::ROUND + round, power.min(size - power));
        let (to, from) = (before(rank, power, size), after(rank, power, size));
        let new = Part { first: power, count };
        [send(to, tag, Part { first: 0, count }), receive(from, tag, new, Then::Store)]
    };
    powers(size).flat_map(round).collect()
}

/// One that has the data lends it to the others, which copy it and say so.
pub(crate) fn lend(rank: u32, head: u32, others: impl Iterator<Item = u32> + Clone) -> Vec<Step> {
    if rank != head {
        let take = receive(head, tag::LENT, ALL, Then::Take);
        return vec![take, send(head, tag::TAKEN, NONE)];
    }
    let lends = others.clone().map(|to| Step::Lend { to, tag: tag::LENT });
    lends.chain(others.map(|from| receive(from, tag::TAKEN, NONE, Then::Nothing))).collect()
}

/// What goes before a schedule whose data is too much to be kept by a rank that is not there yet:
/// every receiver tells its senders that it is. What is lent waits for nobody.
pub(crate) fn ready(steps: &[Step]) -> Vec<Step> {
    let (mut tells, mut hears) = (Vec::new(), Vec::new());
    for step in steps {
        match *step {
            Step::Receive { then: Then::Take, .. } => {}
            Step::Receive { part: NONE, .. } | Step::Send { part: NONE, .. } => {}
            Step::Receive { from, .. } if !tells.contains(&from) => tells.push(from),
            Step::Send { to, .. } if !hears.contains(&to) => hears.push(to),
            _ => {}
        }
    }
    let tells = tells.into_iter().map(|to| send(to, READY, NONE));
    let hears = hears.into_iter().map(|from| receive(from, READY, NONE, Then::Nothing));
    tells.chain(hears).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Every step that sends has the one that receives it, and the other way round, once.
    pub(in crate::coll) fn matched(all: &[Vec<Step>]) {
        let mut sent = Vec::new();
        let mut received = Vec::new();
        for (rank, steps) in (0..).zip(all) {
            for step in steps {
                match *step {
                    Step::Send { to, tag, part } => sent.push((rank, to, tag, part.count)),
                    Step::Lend { to, tag } => sent.push((rank, to, tag, 1)),
                    Step::Receive { from, tag, part, .. } => {
                        received.push((from, rank, tag, part.count));
                    }
                }
            }
        }
        sent.sort_unstable();
        received.sort_unstable();
        assert_eq!(sent, received);
        assert!(sent.windows(2).all(|pair| pair[0] != pair[1]), "a message twice");
        assert!(sent.iter().all(|(from, to, ..)| from != to), "a message to oneself");
    }

    fn all(size: u32, schedule: impl Fn(u32) -> Vec<Step>) -> Vec<Vec<Step>> {
        (0..size).map(schedule).collect()
    }

    #[test]
    fn what_is_sent_is_received() {
        for size in 1..70 {
            matched(&all(size, |rank| barrier(rank, size)));
            matched(&all(size, |rank| gather_all(rank, size)));
            for how in [ToAll::Doubling, ToAll::ThroughOne] {
                matched(&all(size, |rank| reduce_to_all(rank, size, how)));
            }
            for root in 0..size {
                for tree in [Tree::Binomial, Tree::Binary] {
                    let steps = all(size, |rank| broadcast(rank, size, root, tree));
                    matched(&steps);
                    matched(&steps.iter().map(|steps| ready(steps)).collect::<Vec<_>>());
                }
                for ordered in [false, true] {
                    matched(&all(size, |rank| reduce_to_one(rank, size, root, ordered)));
                }
            }
        }
    }

    #[test]
    fn rounds_are_few() {
        let most = |schedule: &dyn Fn(u32) -> Vec<Step>| {
            (0..64).map(|rank| schedule(rank).len()).max().expect("ranks")
        };
        assert_eq!(most(&|rank| barrier(rank, 64)), 12);
        assert_eq!(most(&|rank| gather_all(rank, 64)), 12);
        assert_eq!(most(&|rank| reduce_to_all(rank, 64, ToAll::Doubling)), 12);
        assert_eq!(most(&|rank| broadcast(rank, 64, 5, Tree::Binomial)), 6);
        assert_eq!(most(&|rank| broadcast(rank, 64, 5, Tree::Binary)), 3);
    }
}
