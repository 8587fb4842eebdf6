//! Barriers over several neighbourhoods, as the leader of one sees them: what it has heard of the
//! others.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use bootstrap::Rank;

use super::dissemination::{Dissemination, Word};
use crate::transport::neighbours::Neighbours;
use crate::transport::shm::Which;

/// One kind of barrier, as its leader sees it.
pub(super) struct Leader {
    pub(super) machine: Mutex<Dissemination>,
    /// Generation that the machine was begun for.
    pub(super) begun: AtomicU32,
    /// It may go further: a word has come, or one could not be sent.
    pub(super) stirred: AtomicBool,
}

/// Both kinds.
pub(crate) struct LeaderBarriers {
    kinds: [Leader; 2],
    /// Leaders that this one hears from, by round.
    behind: Box<[u32]>,
}

impl LeaderBarriers {
    pub(crate) fn new(neighbours: &Neighbours) -> Self {
        let leader = || Leader {
            machine: Mutex::new(Dissemination::new(neighbours.count())),
            begun: AtomicU32::new(0),
            stirred: AtomicBool::new(false),
        };
        Self { kinds: [leader(), leader()], behind: neighbours.behind().into() }
    }

    pub(super) const fn of(&self, which: Which) -> &Leader {
        &self.kinds[which as usize]
    }

    /// Another leader's word, at a leader; `false` for what is none, or comes from somebody else.
    pub(crate) fn receive(&self, source: Rank, which: i32, words: [i32; 2]) -> bool {
        let (Ok(which), Some(word)) = (usize::try_from(which), Word::decode(words)) else {
            return false;
        };
        let Some(leader) = self.kinds.get(which) else { return false };
        if self.behind.get(word.round) != Some(&source.0) {
            return false;
        }
        let new = leader.machine.lock().unwrap_or_else(PoisonError::into_inner).receive(word);
        leader.stirred.store(true, Ordering::Release);
        new
    }
}
