//! The rows of an all-to-all on their way through one node: nothing is sent to a subtree but the
//! rows for its ranks.

use super::layout::Ranks;
use super::local::Member;
use crate::rank::Rank;

/// Where the rows of a rank are.
#[derive(Clone, Copy)]
enum Source {
    /// Ranks of this host: index.
    Local(usize),
    /// In the part of a branch: branch, index in its tree order.
    Branch(usize, usize),
    /// Came from above: index among the ranks outside the subtree.
    Outside(usize),
}

/// What has come of one call. `given[i]` are the bytes of branch `i`.
pub(super) struct Rows<'a> {
    /// Bytes of a row.
    row: usize,
    sources: Vec<Source>,
    locals: &'a [Rank],
    members: &'a [Member],
    branches: Vec<(&'a Ranks, &'a [u8])>,
    /// Ranks outside the subtree, in job order.
    outside: Vec<Rank>,
}

impl<'a> Rows<'a> {
    /// `total` are the bytes of all rows of one rank, at most a job's size times the length of a
    /// row.
    pub(super) fn new(
        (size, total): (u32, usize),
        (locals, members): (&'a [Rank], &'a [Member]),
        branches: Vec<(&'a Ranks, &'a [u8])>,
    ) -> Self {
        let row = total / (size.max(1) as usize);
        // Without bytes the order does not matter, and a job may be very large.
        let ranks = if row == 0 { 0 } else { size };
        let mut sources = vec![Source::Outside(0); ranks as usize];
        let mut put = |rank: Rank, source| {
            if let Some(slot) = sources.get_mut(rank.0 as usize) {
                *slot = source;
            }
        };
        locals.iter().enumerate().for_each(|(index, rank)| put(*rank, Source::Local(index)));
        for (branch, (ranks, _)) in branches.iter().enumerate() {
            let order = ranks.order.iter().enumerate();
            order.for_each(|(index, rank)| put(*rank, Source::Branch(branch, index)));
        }
        let mut outside = Vec::new();
        for (rank, source) in (0u32..).map(Rank).zip(&mut sources) {
            if let Source::Outside(index) = source {
                *index = outside.len();
                outside.push(rank);
            }
        }
        Self { row, sources, locals, members, branches, outside }
    }

    /// The row that `from`, a rank of the subtree, gave for `to`, a rank of another branch or of
    /// elsewhere.
    fn row(&self, from: Rank, to: Rank) -> &[u8] {
        let (data, at): (&[u8], usize) = match self.sources.get(from.0 as usize) {
            Some(Source::Local(index)) => (&self.members[*index].data, to.0 as usize),
            Some(Source::Branch(branch, index)) => {
                let (ranks, bytes) = self.branches[*branch];
                let outside = self.sources.len() - ranks.order.len();
                (bytes, index * outside + to.0 as usize - ranks.below(to))
            }
            Some(Source::Outside(_)) | None => (&[], 0),
        };
        data.get(at * self.row..(at + 1) * self.row).unwrap_or_default()
    }

    /// What goes up: for each rank of the subtree in tree order its rows for the ranks outside.
    pub(super) fn upwards(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let below = self.branches.iter().flat_map(|(ranks, _)| &ranks.order);
        for from in self.locals.iter().chain(below) {
            for to in &self.outside {
                bytes.extend_from_slice(self.row(*from, *to));
            }
        }
        bytes
    }

    /// What goes down to branch `index`, when `above` came from above.
    pub(super) fn downwards(&self, index: usize, above: &[u8]) -> Vec<u8> {
        if self.row == 0 {
            return Vec::new();
        }
        let before: usize = self.branches[..index].iter().map(|(ranks, _)| ranks.order.len()).sum();
        let (ranks, _) = self.branches[index];
        let mut bytes = Vec::new();
        for (at, to) in (self.locals.len() + before..).zip(&ranks.order) {
            let inside =
                |source: &Source| matches!(source, Source::Branch(branch, _) if *branch == index);
            self.column(*to, at, above, &mut bytes, inside);
        }
        bytes
    }

    /// What the rank at `index` of this host gets.
    pub(super) fn local(&self, index: usize, above: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.row * self.sources.len());
        self.column(self.locals[index], index, above, &mut bytes, |_| false);
        bytes
    }

    /// Appends the rows for `to`, the rank numbered `at` of the subtree, from all ranks but the
    /// ones that `skip` names.
    fn column(
        &self,
        to: Rank,
        at: usize,
        above: &[u8],
        bytes: &mut Vec<u8>,
        skip: impl Fn(&Source) -> bool,
    ) {
        let sources = (0u32..).map(Rank).zip(&self.sources);
        for (from, source) in sources.filter(|(_, source)| !skip(source)) {
            let row = if let Source::Outside(index) = source {
                let start = (at * self.outside.len() + index) * self.row;
                above.get(start..start + self.row).unwrap_or_default()
            } else {
                self.row(from, to)
            };
            bytes.extend_from_slice(row);
        }
    }
}
