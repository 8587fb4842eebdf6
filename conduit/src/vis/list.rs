//! Lists of byte ranges, read as one stream of bytes: the description of vector and indexed
//! transfers. Pure: addresses are numbers.

/// A range of bytes. Where it counts from (an address, the start of a slice or of a segment) is
/// said by the call that takes it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// First byte.
    pub at: usize,
    /// Bytes; 0 is legal, and then `at` means nothing.
    pub len: usize,
}

/// The entries of a list as a program gives them.
#[derive(Clone, Copy, Debug)]
pub enum Entries<'a> {
    /// Each with a length of its own.
    Vector(&'a [Extent]),
    /// First bytes of ranges that all have the same length.
    Indexed(&'a [usize], usize),
}

/// One side of a transfer.
#[derive(Clone, Copy, Debug)]
pub struct List<'a> {
    /// Entries.
    pub entries: Entries<'a>,
    /// Added to each first byte, modulo 2^64.
    pub base: usize,
}

impl<'a> List<'a> {
    /// Bytes of all entries together; `None`: more than a number of the machine can say.
    #[must_use]
    pub fn total(&self) -> Option<usize> {
        match self.entries {
            Entries::Vector(all) => {
                all.iter().try_fold(0_usize, |sum, one| sum.checked_add(one.len))
            }
            Entries::Indexed(all, len) => all.len().checked_mul(len),
        }
    }

    /// Entries that have bytes, in order; those that follow each other in memory become one.
    #[must_use]
    pub const fn runs(&self) -> Runs<'a> {
        Runs { list: *self, next: 0, held: None }
    }

    fn entry(&self, index: usize) -> Option<Extent> {
        let Extent { at, len } = match self.entries {
            Entries::Vector(all) => *all.get(index)?,
            Entries::Indexed(all, len) => Extent { at: *all.get(index)?, len },
        };
        Some(Extent { at: at.wrapping_add(self.base), len })
    }
}

/// Iterator of [`List::runs`].
#[derive(Clone, Debug)]
pub struct Runs<'a> {
    list: List<'a>,
    next: usize,
    held: Option<Extent>,
}

impl Runs<'_> {
    fn entry(&mut self) -> Option<Extent> {
        loop {
            let entry = self.list.entry(self.next)?;
            self.next += 1;
            if entry.len > 0 {
                return Some(entry);
            }
        }
    }
}

impl Iterator for Runs<'_> {
    type Item = Extent;

    fn next(&mut self) -> Option<Extent> {
        let mut run = self.held.take().or_else(|| self.entry())?;
        while let Some(next) = self.entry() {
            match (run.at.checked_add(run.len), run.len.checked_add(next.len)) {
                (Some(end), Some(len)) if end == next.at => run.len = len,
                _ => {
                    self.held = Some(next);
                    break;
                }
            }
        }
        Some(run)
    }
}

/// Bytes that are contiguous on both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// First byte on this rank.
    pub local: usize,
    /// First byte on the other.
    pub remote: usize,
    /// Bytes.
    pub len: usize,
}

/// Both sides of a transfer, cut into the pieces that are contiguous on both. Ends with the shorter
/// one.
#[derive(Clone, Debug)]
pub struct Pieces<'a> {
    local: Runs<'a>,
    remote: Runs<'a>,
    /// What is left of the runs under way.
    here: Extent,
    there: Extent,
}

impl<'a> Pieces<'a> {
    /// The pieces of two lists.
    #[must_use]
    pub fn new(local: &List<'a>, remote: &List<'a>) -> Self {
        let (here, there) = (Extent::default(), Extent::default());
        Self { local: local.runs(), remote: remote.runs(), here, there }
    }
}

impl Iterator for Pieces<'_> {
    type Item = Piece;

    fn next(&mut self) -> Option<Piece> {
        if self.here.len == 0 {
            self.here = self.local.next()?;
        }
        if self.there.len == 0 {
            self.there = self.remote.next()?;
        }
        let len = self.here.len.min(self.there.len);
        let piece = Piece { local: self.here.at, remote: self.there.at, len };
        for side in [&mut self.here, &mut self.there] {
            // The end of the address space is the end of the range.
            *side = Extent { at: side.at.wrapping_add(len), len: side.len - len };
        }
        Some(piece)
    }
}

/// Appends a range; one that follows the last in memory makes that longer.
pub(crate) fn push(runs: &mut Vec<Extent>, run: Extent) {
    match runs.last_mut() {
        Some(last) if last.at.wrapping_add(last.len) == run.at => last.len += run.len,
        _ => runs.push(run),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Every byte of a list, one after the other.
    fn bytes(list: &List<'_>) -> Vec<usize> {
        let of = |Extent { at, len }: Extent| {
            (0..len).map(move |k| at.wrapping_add(list.base).wrapping_add(k))
        };
        match list.entries {
            Entries::Vector(all) => all.iter().copied().flat_map(of).collect(),
            Entries::Indexed(all, len) => {
                all.iter().flat_map(|at| of(Extent { at: *at, len })).collect()
            }
        }
    }

    fn entries() -> impl Strategy<Value = Vec<Extent>> {
        let one = (0_usize..60, 0_usize..9).prop_map(|(at, len)| Extent { at, len });
        proptest::collection::vec(one, 0..30)
    }

    #[test]
    fn totals_are_counted_without_overflow() {
        let half = Extent { at: 0, len: usize::MAX / 2 + 1 };
        let two = [half, half];
        assert_eq!(List { entries: Entries::Vector(&two), base: 0 }.total(), None);
        let many = [0; 3];
        assert_eq!(
            List { entries: Entries::Indexed(&many, usize::MAX / 2), base: 0 }.total(),
            None
        );
        let sum = List { entries: Entries::Indexed(&many, 1 << 40), base: 0 }.total();
        assert_eq!(sum, Some(3 << 40));
    }

    proptest! {
        #[test]
        fn pieces_are_the_bytes_of_both_sides(
            local in entries(),
            remote in proptest::collection::vec(0_usize..200, 0..40),
            len in 0_usize..7,
            base in 0_usize..3000,
        ) {
            let local = List { entries: Entries::Vector(&local), base };
            let remote = List { entries: Entries::Indexed(&remote, len), base: 0 };
            let expected: Vec<_> = bytes(&local).into_iter().zip(bytes(&remote)).collect();
            let mut got = Vec::new();
            let mut last: Option<Piece> = None;
            for piece in Pieces::new(&local, &remote) {
                prop_assert!(piece.len > 0);
                if let Some(last) = last {
                    let follows = last.local + last.len == piece.local
                        && last.remote + last.len == piece.remote;
                    prop_assert!(!follows, "two pieces that are one");
                }
                got.extend((0..piece.len).map(|k| (piece.local + k, piece.remote + k)));
                last = Some(piece);
            }
            prop_assert_eq!(got, expected);
        }

        #[test]
        fn runs_are_all_bytes_in_order(all in entries()) {
            let list = List { entries: Entries::Vector(&all), base: 5 };
            let mut pushed = Vec::new();
            list.runs().for_each(|run| push(&mut pushed, run));
            prop_assert_eq!(&pushed, &list.runs().collect::<Vec<_>>());
            let again = List { entries: Entries::Vector(&pushed), base: 0 };
            prop_assert_eq!(bytes(&again), bytes(&list));
            prop_assert_eq!(Some(bytes(&list).len()), list.total());
        }
    }
}
