//! Barriers over several neighbourhoods: the ranks of each arrive in shared memory, its leader tells the other leaders what
//! they said together ([`crate::dissemination`]), and releases the neighbourhood when it knows what all have said.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use bootstrap::Rank;

use super::BARRIER;
use crate::core::Core;
use crate::dissemination::{Dissemination, Word};
use crate::gate::Which;
use crate::transport::neighbours::Neighbours;

thread_local! {
    static DRIVING: Cell<bool> = const { Cell::new(false) };
}

/// Marks that this thread may hold a machine: a signal handler that interrupts it must not take words for it.
struct Driving;

impl Driving {
    fn begin() -> Self {
        DRIVING.set(true);
        Self
    }
}

impl Drop for Driving {
    fn drop(&mut self) {
        DRIVING.set(false);
    }
}

/// Whether this thread was interrupted while it moved a barrier on.
pub(super) fn is_driving() -> bool {
    DRIVING.get()
}

/// One kind of barrier, as its leader sees it.
struct Stage {
    machine: Mutex<Dissemination>,
    /// Generation that the machine was begun for.
    begun: AtomicU32,
    /// It may go further: a word has come, or one could not be sent.
    stirred: AtomicBool,
}

/// Both kinds.
pub(super) struct Barriers {
    stages: [Stage; 2],
    /// Leaders that this one hears from, by round.
    behind: Box<[u32]>,
}

impl Barriers {
    pub(super) fn new(neighbours: &Neighbours) -> Self {
        let stage = || Stage {
            machine: Mutex::new(Dissemination::new(neighbours.count())),
            begun: AtomicU32::new(0),
            stirred: AtomicBool::new(false),
        };
        Self { stages: [stage(), stage()], behind: neighbours.behind().into() }
    }

    const fn stage(&self, which: Which) -> &Stage {
        &self.stages[which as usize]
    }

    /// A leader's word; `false` for what is none, or comes from somebody else.
    pub(super) fn receive(&self, core: &Core, source: Rank, which: i32, words: [i32; 2]) -> bool {
        let (Ok(which), Some(word)) = (usize::try_from(which), Word::decode(words)) else {
            return false;
        };
        let Some(stage) = self.stages.get(which) else { return false };
        if !core.neighbours().leads() || self.behind.get(word.round) != Some(&source.0) {
            return false;
        }
        let new = stage.machine.lock().unwrap_or_else(PoisonError::into_inner).receive(word);
        stage.stirred.store(true, Ordering::Release);
        new
    }
}

impl Core {
    /// Whether the leader of this neighbourhood has something to begin. Changes nothing.
    pub(crate) fn may_disseminate(&self, which: Which) -> bool {
        let Some(remote) = self.remote() else { return false };
        self.neighbours().leads()
            && self.progress_of(which).under_way()
            && remote.barriers.stage(which).begun.load(Ordering::Relaxed)
                != self.progress_of(which).generation()
            && self.gathered(which).is_some()
    }

    /// Moves the barriers of this neighbourhood's leader on; how many it released.
    pub(super) fn drive_barriers(&self) -> usize {
        if !self.neighbours().leads() {
            return 0;
        }
        let mut count = 0;
        for which in [Which::Client, Which::Inner] {
            if self.progress_of(which).under_way() && !self.is_open(which) {
                count += usize::from(self.drive(which));
            }
        }
        count
    }

    fn drive(&self, which: Which) -> bool {
        let Some(remote) = self.remote() else { return false };
        let stage = remote.barriers.stage(which);
        let generation = self.progress_of(which).generation();
        let begun = stage.begun.load(Ordering::Relaxed) == generation;
        if begun && !stage.stirred.load(Ordering::Relaxed) {
            return false;
        }
        let _driving = Driving::begin();
        // Another thread that moves it on does so for all.
        let Ok(mut machine) = stage.machine.try_lock() else { return false };
        // Before the look: a word that comes after it stirs again.
        stage.stirred.store(false, Ordering::Relaxed);
        if stage.begun.load(Ordering::Relaxed) != generation {
            let Some(name) = self.gathered(which) else { return false };
            machine.begin(generation & 1 == 1, name);
            stage.begun.store(generation, Ordering::Relaxed);
        }
        let merged = machine.advance(|word| {
            let told = self.tell(which, word);
            if !told {
                stage.stirred.store(true, Ordering::Relaxed);
            }
            told
        });
        if let Some(name) = merged {
            self.release(which, generation, name);
        }
        merged.is_some()
    }

    /// Sends a word to the leader of its round.
    fn tell(&self, which: Which, word: Word) -> bool {
        let Some(to) = self.neighbours().ahead().get(word.round) else { return false };
        let [head, low] = word.encode();
        self.send_remote_internal(Rank(*to), BARRIER, &[which as i32, head, low])
    }
}
