//! What was refused a short time ago, so that it is not asked for again at once. Pure.

/// Attempts that are left out after a refusal.
pub(crate) const LEFT_OUT: u32 = 64;

/// The last refusals, by a number of what was refused.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    blocks: [(u64, u32); 8],
    next: usize,
}

impl Refusals {
    /// Whether an attempt is to be left out, which counts it.
    pub(crate) fn leaves_out(&mut self, block: u64) -> bool {
        let found = self.blocks.iter_mut().find(|(one, left)| *one == block && *left > 0);
        found.map(|(_, left)| *left -= 1).is_some()
    }

    /// It was refused.
    pub(crate) fn add(&mut self, block: u64) {
        if let Some(place) = self.blocks.get_mut(self.next) {
            *place = (block, LEFT_OUT);
        }
        self.next = (self.next + 1) % self.blocks.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_counts_for_a_while() {
        let mut refusals = Refusals::default();
        refusals.add(7);
        assert!(!refusals.leaves_out(8));
        assert!((0..LEFT_OUT).all(|_| refusals.leaves_out(7)));
        assert!(!refusals.leaves_out(7));
        (0..9).for_each(|block| refusals.add(block));
        assert!(!refusals.leaves_out(0) && refusals.leaves_out(8), "the first gave way");
    }
}
