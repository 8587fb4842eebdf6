//! Barriers over several neighbourhoods: the ranks of each arrive in shared memory, its leader
//! tells the other leaders what they said together ([`super::dissemination`]), and releases the
//! neighbourhood when it knows what all have said. What they tell goes as a message, or is written
//! into the reader's memory ([`super::flags`]).

use std::cell::Cell;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use bootstrap::Rank;

use super::dissemination::Word;
use super::flags::{self, Flags};
use crate::am::internal::BARRIER;
use crate::error::Error;
use crate::rank::RankContext;
use crate::settings::Settings;
use crate::transport::Transport;
use crate::transport::net::RemoteInbox;
use crate::transport::shm::Which;

/// First word of a message that says where its sender's inbox is.
const INBOX: i32 = -1;
/// First word of a message that asks for a word as a message.
const WANT: i32 = -2;

thread_local! {
    static DRIVING: Cell<bool> = const { Cell::new(false) };
}

/// Marks that this thread may hold a machine: a signal handler that interrupts it must not take
/// words for it.
struct Driving;

impl Drop for Driving {
    fn drop(&mut self) {
        DRIVING.with(|driving| driving.set(false));
    }
}

/// Whether this thread was interrupted while it moved a barrier on.
pub(crate) fn is_driving() -> bool {
    DRIVING.get()
}

impl Flags {
    /// An inbox for a leader, where barriers write: as `GASNET_BARRIER` says, or where that is
    /// faster.
    pub(crate) fn open(transport: &Transport, settings: &Settings) -> Result<Option<Self>, Error> {
        let Some(net) = transport.net() else { return Ok(None) };
        match settings.barrier_writes {
            Some(false) => Ok(None),
            Some(true) => Ok(Some(Self::new(net.inbox(flags::WORDS)?))),
            // By messages it works without the memory, too.
            None if net.is_adapter() => Ok(net.inbox(flags::WORDS).ok().map(Self::new)),
            None => Ok(None),
        }
    }
}

impl RankContext {
    /// Whether the leader of this neighbourhood has something to begin. Changes nothing.
    pub(crate) fn may_disseminate(&self, which: Which) -> bool {
        self.leads_gathered(which)
            && self.leaders[which as usize].begun.load(Ordering::Relaxed)
                != self.shm().progress_of(which).generation()
    }

    /// Whether a barrier of this neighbourhood goes on by polls of this rank, its leader: it has
    /// begun to disseminate it, or is to. Changes nothing.
    #[inline]
    pub(super) fn disseminates(&self) -> bool {
        [Which::Client, Which::Inner].into_iter().any(|which| self.leads_gathered(which))
    }

    /// Whether this rank is the leader of a neighbourhood that has come to a barrier under way.
    #[inline]
    fn leads_gathered(&self, which: Which) -> bool {
        let shm = self.shm();
        shm.networked
            && self.neighbours.leads()
            && shm.progress_of(which).under_way()
            && shm.gathered(which).is_some()
    }

    /// Whether a barrier is under way in this neighbourhood.
    #[inline(always)]
    pub(crate) fn has_barriers(&self) -> bool {
        let under_way = |which| self.shm().progress_of(which).under_way();
        under_way(Which::Client) | under_way(Which::Inner)
    }

    /// Moves the barriers of this neighbourhood's leader on; how many it released.
    #[inline(always)]
    pub(crate) fn drive_barriers(&self) -> usize {
        let leads = self.has_barriers() && self.neighbours.leads();
        if leads { self.drive_those_under_way() } else { 0 }
    }

    #[inline(never)]
    fn drive_those_under_way(&self) -> usize {
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
        if begun && !leader.stirred.load(Ordering::Relaxed) && !self.is_written(which) {
            return false;
        }
        DRIVING.with(|driving| driving.set(true));
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
        let flags = self.barrier_flags.as_deref();
        let merged = machine.advance(
            |word| {
                let told = self.tell(which, generation, word);
                if !told {
                    leader.stirred.store(true, Ordering::Relaxed);
                }
                told
            },
            |round| flags?.heard(which, generation, round),
        );
        leader.wait_for(machine.awaited());
        if flags.is_some_and(|flags| !self.announce_inbox(flags)) {
            leader.stirred.store(true, Ordering::Relaxed);
        }
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

    fn tell(&self, which: Which, generation: u32, word: Word) -> bool {
        let Some(to) = self.neighbours.ahead.get(word.round) else { return false };
        let aim = |flags: &Flags| flags.aim(which, generation, word.round);
        if let (Some(inbox), Some(net)) =
            (self.barrier_flags.as_deref().and_then(aim), self.transport.net())
        {
            let (at, words) =
                (flags::place(which, generation, word.round), flags::encode(generation, word.name));
            if let Some(sent) = net.write_inbox(Rank(*to), inbox, at, &words) {
                return sent;
            }
        }
        let [head, low] = word.encode();
        self.send_internal(Rank(*to), BARRIER, &[which as i32, head, low])
    }

    /// Tells the leaders behind where they may write; whether all know it.
    fn announce_inbox(&self, flags: &Flags) -> bool {
        let mut told = flags.told.load(Ordering::Relaxed);
        for (round, to) in self.neighbours.behind.iter().enumerate() {
            let (bit, RemoteInbox { base, rkey }) = (1 << round, flags.own());
            let [low, high] = halves(base);
            let words = [INBOX, low, high, rkey.cast_signed()];
            if told & bit == 0 && self.send_internal(Rank(*to), BARRIER, &words) {
                told |= bit;
            }
        }
        flags.told.store(told, Ordering::Relaxed);
        told.count_ones() as usize == self.neighbours.behind.len()
    }

    /// A leader's message about inboxes; `false` for what is none, or comes from somebody else.
    pub(crate) fn barrier_inbox(&self, source: Rank, words: [i32; 4]) -> bool {
        let ahead = self.neighbours.ahead.iter().position(|leader| *leader == source.0);
        let Some(round) = ahead.filter(|_| self.neighbours.leads()) else { return false };
        // A rank that does not write need not know.
        let Some(flags) = self.barrier_flags.as_deref() else { return true };
        let [_, first, second, third] = words.map(i32::cast_unsigned);
        match words[0] {
            INBOX => {
                let base = u64::from(second) << 32 | u64::from(first);
                flags.learn(round, RemoteInbox { base, rkey: third })
            }
            WANT => {
                let kinds = [Which::Client, Which::Inner];
                let which = kinds.into_iter().find(|which| *which as u32 == first);
                let is_right = third as usize == round;
                which.is_some_and(|which| is_right && flags.want(which, second, round))
            }
            _ => false,
        }
    }

    /// Whether what a barrier waits for was written. Loads only.
    #[inline]
    fn is_written(&self, which: Which) -> bool {
        self.barrier_flags.as_deref().is_some_and(|flags| self.is_written_to(flags, which))
    }

    #[inline]
    fn is_written_to(&self, flags: &Flags, which: Which) -> bool {
        let Some(round) = self.leaders[which as usize].awaited() else { return false };
        flags.heard(which, self.shm().progress_of(which).generation(), round).is_some()
    }

    /// Whether a barrier could go on with what was written. Loads only.
    #[inline]
    pub(crate) fn any_written(&self) -> bool {
        self.barrier_flags.as_deref().is_some_and(|flags| {
            self.is_written_to(flags, Which::Client) || self.is_written_to(flags, Which::Inner)
        })
    }

    /// Before a sleep, which no write ends: asks for the words that barriers wait for as messages.
    /// One that is under way as a write is found after a short sleep.
    #[cold]
    pub(crate) fn want_messages(&self) {
        if self.barrier_flags.is_none() {
            return;
        }
        for which in [Which::Client, Which::Inner] {
            let leader = &self.leaders[which as usize];
            let Some(round) = leader.awaited() else { continue };
            let Some(to) = self.neighbours.behind.get(round) else { continue };
            let generation = self.shm().progress_of(which).generation().cast_signed();
            let words = [WANT, which as i32, generation, i32::try_from(round).unwrap_or_default()];
            if !leader.asked.load(Ordering::Relaxed)
                && self.send_internal(Rank(*to), BARRIER, &words)
            {
                leader.asked.store(true, Ordering::Relaxed);
            }
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "halves of a word")]
fn halves(word: u64) -> [i32; 2] {
    [word as u32, (word >> 32) as u32].map(u32::cast_signed)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::Duration;

    use super::*;
    use crate::{BarrierFlags, Client, Seq};

    /// Runs ranks that share no memory, each on a thread, over the software adapter.
    fn ranks<T: Send>(
        size: u32,
        barrier_writes: Option<bool>,
        rank: impl Fn(&Client<Seq>) -> T + Sync,
    ) -> Vec<T> {
        let services = bootstrap::memory::job(size).expect("a job");
        let network = vec![("GASNET_IBV_FABRIC".to_owned(), "soft".to_owned())];
        let settings =
            Settings { neighbourhood_max: 1, barrier_writes, network, ..Settings::default() };
        let rank = &rank;
        std::thread::scope(|scope| {
            let ranks = services.into_iter().map(|services| {
                let settings = settings.clone();
                scope.spawn(move || {
                    let client = Client::<Seq>::with_bootstrap("TEST", services, settings);
                    rank(&client.expect("init"))
                })
            });
            let ranks: Vec<_> = ranks.collect();
            ranks.into_iter().map(|rank| rank.join().expect("a rank")).collect()
        })
    }

    /// Runs barriers of three ranks; whether the last words were written.
    fn are_written(barrier_writes: Option<bool>) -> Vec<bool> {
        ranks(3, barrier_writes, |client| {
            for _ in 0..20 {
                client.barrier(3, BarrierFlags::NAMED).expect("a barrier");
            }
            let context = &client.context;
            let generation = context.shm().progress_of(Which::Client).generation();
            let flags = context.barrier_flags.as_deref();
            let heard = |round| flags?.heard(Which::Client, generation, round);
            let written = [0, 1].map(heard).iter().all(Option::is_some);
            client.barrier(4, BarrierFlags::NAMED).expect("a barrier");
            written
        })
    }

    #[test]
    fn a_notify_tells_others_at_once() {
        let (passed, passes) = std::sync::mpsc::channel();
        let (passed, passes) = (Mutex::new(passed), Mutex::new(passes));
        ranks(2, None, |client| {
            // Connects them.
            client.barrier(0, BarrierFlags::ANONYMOUS).expect("a barrier");
            client.barrier_notify(1, BarrierFlags::NAMED).expect("notify");
            if client.rank() == Rank(0) {
                // Does not poll, nor wait, until the other has passed.
                let passes = passes.lock().expect("one thread");
                passes.recv_timeout(Duration::from_secs(60)).expect("the other waits for a poll");
            }
            client.barrier_wait(1, BarrierFlags::NAMED).expect("a barrier");
            if client.rank() == Rank(1) {
                passed.lock().expect("one thread").send(()).expect("rank 0 listens");
            }
        });
    }

    #[test]
    fn words_are_written_where_that_is_asked_for() {
        // A word that a rank wanted as a message, because it slept, may be missing.
        assert!(are_written(Some(true)).contains(&true));
        assert_eq!(are_written(Some(false)), [false; 3]);
        assert_eq!(are_written(None), [false; 3], "the software adapter prefers messages");
    }
}
