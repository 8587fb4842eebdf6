//! The search of all hosts for processes that ranks left behind (pure).

use std::collections::HashMap;

/// Hosts that were asked, and what they said last.
#[derive(Debug, Default)]
pub(super) struct Search {
    answers: HashMap<u32, Option<bool>>,
    /// Hosts that have not answered; hosts where something is left.
    open: usize,
    left: usize,
}

impl Search {
    /// `asked`: the hosts, each with its answer if that is known already.
    pub(super) fn new(asked: impl IntoIterator<Item = (u32, Option<bool>)>) -> Self {
        let answers: HashMap<u32, Option<bool>> = asked.into_iter().collect();
        let count = |said| answers.values().filter(|answer| **answer == said).count();
        Self { open: count(None), left: count(Some(true)), answers }
    }

    /// A host says whether something is left there; whether it was one of those asked.
    pub(super) fn answer(&mut self, host: u32, left: bool) -> bool {
        let Some(answer) = self.answers.get_mut(&host) else { return false };
        match answer.replace(left) {
            None => self.open -= 1,
            Some(before) => self.left -= usize::from(before),
        }
        self.left += usize::from(left);
        true
    }

    /// Whether anything is left anywhere, once all have answered.
    pub(super) fn outcome(&self) -> Option<bool> {
        (self.open == 0).then_some(self.left > 0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_outcome_is_that_of_all_answers(
            asked in proptest::collection::hash_map(0u32..6, any::<Option<bool>>(), 0..6),
            said in proptest::collection::vec((0u32..8, any::<bool>()), 0..30),
        ) {
            let (mut search, mut model) = (Search::new(asked.clone()), asked);
            for (host, left) in said {
                let known = model.get_mut(&host).map(|answer| *answer = Some(left)).is_some();
                prop_assert_eq!(search.answer(host, left), known);
                let all: Option<Vec<bool>> = model.values().copied().collect();
                prop_assert_eq!(search.outcome(), all.map(|all| all.contains(&true)));
            }
        }
    }
}
