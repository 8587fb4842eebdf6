//! Barriers over several neighbourhoods: the ranks of each arrive in shared memory, its leader
//! tells the other leaders what they said together ([`super::dissemination`]), and releases the
//! neighbourhood when it knows what all have said.

use std::cell::Cell;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use bootstrap::Rank;

use super::dissemination::Word;
use crate::am::internal::BARRIER;
use crate::rank::RankContext;
use crate::transport::shm::Which;

thread_local! {
    static DRIVING: Cell<bool> = const { Cell::new(false) };
}

/// Marks that this thread may hold a machine: a signal handler that interrupts it must not take
/// words for it.
struct Driving;

impl Drop for Driving {
    fn drop(&mut self) {
        DRIVING.set(false);
    }
}

/// Whether this thread was interrupted while it moved a barrier on.
pub(crate) fn is_driving() -> bool {
    DRIVING.get()
}

impl RankContext {
    /// Whether the leader of this neighbourhood has something to begin. Changes nothing.
    pub(crate) fn may_disseminate(&self, which: Which) -> bool {
        let shm = self.shm();
        shm.networked
            && self.neighbours.leads()
            && shm.progress_of(which).under_way()
            && self.leaders[which as usize].begun.load(Ordering::Relaxed)
                != shm.progress_of(which).generation()
            && shm.gathered(which).is_some()
    }

    /// Moves the barriers of this neighbourhood's leader on; how many it released.
    pub(crate) fn drive_barriers(&self) -> usize {
        if !self.neighbours.leads() {
            return 0;
        }
        let (shm, mut count) = (self.shm(), 0);
        for which in [Which::Client, Which::Inner] {
            if shm.progress_of(which).under_way() && !shm.is_open(which) {
                count += usize::from(self.drive(which));
            }
        }
        count
    }

    fn drive(&self, which: Which) -> bool {
        let (shm, leader) = (self.shm(), &self.leaders[which as usize]);
        let generation = shm.progress_of(which).generation();
        let begun = leader.begun.load(Ordering::Relaxed) == generation;
        if begun && !leader.stirred.load(Ordering::Relaxed) {
            return false;
        }
        DRIVING.set(true);
        let _driving = Driving;
        // Another thread that moves it on does so for all.
        let Ok(mut machine) = leader.machine.try_lock() else { return false };
        // Before the look: a word that comes after it stirs again.
        leader.stirred.store(false, Ordering::Relaxed);
        if leader.begun.load(Ordering::Relaxed) != generation {
            let Some(name) = shm.gathered(which) else { return false };
            machine.begin(generation & 1 == 1, name);
            leader.begun.store(generation, Ordering::Relaxed);
        }
        let merged = machine.advance(|word| {
            let told = self.tell(which, word);
            if !told {
                leader.stirred.store(true, Ordering::Relaxed);
            }
            told
        });
        if let Some(name) = merged {
            shm.release(which, generation, name);
        }
        merged.is_some()
    }

    /// Another leader's word, at a leader; `false` for what is none, or comes from somebody else.
    pub(crate) fn barrier_word(&self, source: Rank, which: i32, words: [i32; 2]) -> bool {
        let leader = usize::try_from(which).ok().and_then(|which| self.leaders.get(which));
        let (Some(leader), Some(word)) = (leader, Word::decode(words)) else { return false };
        if !self.neighbours.leads() || self.neighbours.behind.get(word.round) != Some(&source.0) {
            return false;
        }
        let new = leader.machine.lock().unwrap_or_else(PoisonError::into_inner).receive(word);
        leader.stirred.store(true, Ordering::Release);
        new
    }

    fn tell(&self, which: Which, word: Word) -> bool {
        let Some(to) = self.neighbours.ahead.get(word.round) else { return false };
        let [head, low] = word.encode();
        self.send_internal(Rank(*to), BARRIER, &[which as i32, head, low])
    }
}
