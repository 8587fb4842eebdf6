//! Ranks that have a processor each do not stay together on one. The system may put two that wait for
//! each other there and leave the others to foreign processes, because each of the two sleeps half of
//! the time: then an answer takes two changes of processes. Barriers of 2 ranks over shared memory,
//! beside 2 loops of another session, had 0.002 of their rate alone, and have 0.45.

use nix::sched::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use nix::unistd::Pid;

use crate::rank::RankContext;

/// Times that a rank gives its processor away between two looks at where the others are: some
/// milliseconds where it sleeps each time.
const EVERY: u32 = 256;

impl RankContext {
    /// Before this rank gives its processor away: goes to another one if a rank with a lower number
    /// has last waited here, too, and one is free of ranks.
    #[cold]
    pub(crate) fn keep_apart(&self) {
        if self.meets_another() {
            let own = self.rank_info.local;
            let others = (0..self.rank_info.locals).filter(|rank| *rank != own);
            // What the system refuses leaves this rank where it is.
            let _ = leave(others.filter_map(|rank| self.node_shm().slot(rank).processor()));
        }
    }

    /// Whether a rank with a lower number has last waited on this processor: asked each [`EVERY`]th
    /// time, where there is a processor for each rank.
    fn meets_another(&self) -> bool {
        // Threads of a rank may be anywhere.
        let one_each = self.settings.single_threaded && !self.waits.oversubscribed();
        if self.rank_info.locals == 1 || !one_each {
            return false;
        }
        let Some(here) = sched_getcpu().ok().and_then(|cpu| u32::try_from(cpu).ok()) else {
            return false;
        };
        let (node, own) = (self.node_shm(), self.rank_info.local);
        node.slot(own).show_processor(here);
        self.waits.counts_to(EVERY)
            && (0..own).any(|lower| node.slot(lower).processor() == Some(here))
    }
}

/// Lets the system choose another processor for this thread, none of those that are `taken`.
fn leave(taken: impl Iterator<Item = u32>) -> nix::Result<()> {
    let me = Pid::from_raw(0);
    let allowed = sched_getaffinity(me)?;
    let Some(free) = free(allowed, taken) else { return Ok(()) };
    sched_setaffinity(me, &free)?;
    sched_setaffinity(me, &allowed)
}

/// Those of the processors `allowed` that are not `taken`; `None`: there are none.
fn free(allowed: CpuSet, taken: impl Iterator<Item = u32>) -> Option<CpuSet> {
    let mut free = allowed;
    for cpu in taken {
        // One that no set can name is none of them.
        let _ = free.unset(cpu as usize);
    }
    (free != CpuSet::new()).then_some(free)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::Barrier;

    use proptest::collection::hash_set;
    use proptest::prelude::*;

    use super::*;
    use crate::{Client, Seq, Settings};

    fn set_of(cpus: impl IntoIterator<Item = u32>) -> CpuSet {
        let mut set = CpuSet::new();
        for cpu in cpus {
            set.set(cpu as usize).expect("a processor of the set");
        }
        set
    }

    proptest! {
        #[test]
        fn only_what_is_allowed_and_not_taken_is_free(
            allowed in hash_set(0_u32..64, 0..64),
            taken in hash_set(0_u32..2000, 0..64),
        ) {
            let found = free(set_of(allowed.iter().copied()), taken.iter().copied());
            let expected: Vec<u32> = allowed.difference(&taken).copied().collect();
            prop_assert_eq!(found, (!expected.is_empty()).then(|| set_of(expected)));
        }
    }

    /// From now on this thread, and what it starts, runs on the first processor that it may use: which
    /// that is. `None`: the system does not let it.
    pub(crate) fn stay_on_first() -> Option<u32> {
        let me = Pid::from_raw(0);
        let allowed = sched_getaffinity(me).ok()?;
        let first = (0..CpuSet::count()).find(|cpu| allowed.is_set(*cpu) == Ok(true))?;
        let first = u32::try_from(first).ok()?;
        sched_setaffinity(me, &set_of([first])).ok().map(|()| first)
    }

    #[test]
    fn a_thread_leaves_its_processor() {
        let me = Pid::from_raw(0);
        let allowed = sched_getaffinity(me).expect("affinity");
        let first = stay_on_first().expect("a processor");
        if free(allowed, std::iter::once(first)).is_none() {
            return println!("SKIP: one processor");
        }
        let leaves = || {
            sched_setaffinity(me, &set_of([first])).expect("one processor");
            sched_setaffinity(me, &allowed).expect("all processors");
            leave(std::iter::once(first)).expect("another processor");
            assert_eq!(sched_getaffinity(me), Ok(allowed));
            sched_getcpu() != Ok(first as usize)
        };
        // The system may move it back at once, but not each time.
        let left = (0..100).filter(|_| leaves()).count();
        assert!(left > 50, "{left} of 100 times");
    }

    /// Times in [`EVERY`] that each of two ranks on one processor is to go.
    fn goes(cpus: u32) -> Vec<usize> {
        let services = bootstrap::memory::job(2).expect("job");
        let together = Barrier::new(2);
        let rank = |services| {
            let settings =
                Settings { cpus: Some(cpus), single_threaded: true, ..Settings::default() };
            let client = Client::<Seq>::with_bootstrap("TEST", services, settings).expect("init");
            let context = &client.context;
            let here = stay_on_first().expect("a processor");
            context.node_shm().slot(context.rank_info.local).show_processor(here);
            together.wait();
            let goes = (0..EVERY).filter(|_| context.meets_another()).count();
            together.wait();
            goes
        };
        std::thread::scope(|scope| {
            let ranks = services.into_iter().map(|services| scope.spawn(|| rank(services)));
            let ranks: Vec<_> = ranks.collect();
            ranks.into_iter().map(|rank| rank.join().expect("rank")).collect()
        })
    }

    #[test]
    fn the_second_of_two_on_one_processor_is_to_go() {
        assert_eq!(goes(2), [0, 1]);
    }

    #[test]
    fn ranks_that_share_processors_stay() {
        assert_eq!(goes(1), [0, 0]);
    }
}
