//! The search of all hosts for processes that ranks left behind (pure).

/// Hosts that were asked, and what they said last.
#[derive(Debug, Default)]
pub(super) struct Search {
    /// By host; the outer `None`: it was not asked.
    answers: Vec<Option<Option<bool>>>,
    /// Hosts that have not answered; hosts where something is left.
    open: usize,
    left: usize,
}

impl Search {
    /// `asked`: the hosts, each with its answer if that is known already.
    pub(super) fn new(asked: impl IntoIterator<Item = (u32, Option<bool>)>) -> Self {
        let mut search = Self::default();
        for (host, answer) in asked {
            let at = host as usize;
            if at >= search.answers.len() {
                search.answers.resize(at + 1, None);
            }
            search.answers[at] = Some(answer);
        }
        let count = |said| search.answers.iter().filter(|answer| **answer == Some(said)).count();
        (search.open, search.left) = (count(None), count(Some(true)));
        search
    }

    /// A host says whether something is left there; whether it was one of those asked.
    pub(super) fn answer(&mut self, host: u32, left: bool) -> bool {
        let Some(Some(answer)) = self.answers.get_mut(host as usize) else { return false };
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
