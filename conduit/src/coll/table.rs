//! The collectives that are under way on this rank, and messages of those that are not begun.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use super::group::{Group, TeamId, WHOLE};
use super::lend::Stage;
use super::letter::{Head, Signature};
use super::machine::{Machine, Mark, Others, Packet, State};
use super::mailboxes::{MOST, Mailboxes};
use super::meeting::Meetings;
use super::memory::Work;
use super::places::Places;
use super::quick_hash::QuickMap;
use super::schedule::ASK;
use super::task::Task;
use crate::rma::operations::OpCounters;

/// Team and number of a collective.
pub(crate) type Key = (TeamId, u32);

/// A message: job rank of its sender, words, data.
pub(super) type Letter = (u32, Head, Vec<u8>);

/// A collective under way.
pub(super) struct Running {
    pub(super) group: Arc<Group>,
    pub(super) signature: Signature,
    machine: Machine,
    work: Work,
    pub(super) calls_program: bool,
    counters: Arc<OpCounters>,
    /// It is in the list of those that may go on.
    stirring: bool,
    /// The next member was shown what was begun here.
    asked: bool,
    /// It begins when the one before it in its chain is complete.
    held: bool,
    /// The next one in the team waits for it.
    leads: bool,
}

impl Running {
    pub(super) fn new(group: &Arc<Group>, task: Task, counters: Arc<OpCounters>) -> Self {
        let Task { signature, machine, work, calls_program } = task;
        Self {
            group: Arc::clone(group),
            signature,
            machine,
            work,
            calls_program,
            counters,
            stirring: false,
            asked: false,
            held: false,
            leads: false,
        }
    }

    /// Makes it part of a chain: whether one goes before it, and whether one comes after.
    pub(super) const fn link(&mut self, held: bool, leads: bool) {
        (self.held, self.leads) = (held, leads);
    }

    /// Goes on as far as possible.
    pub(super) fn advance(&mut self, others: &mut impl Others) -> State {
        if self.held {
            return State::Waiting;
        }
        let state = self.machine.advance(&mut self.work, others);
        if state == State::Done {
            self.counters.gets.end(false);
        }
        state
    }

    /// Members wait for each other for ever when they differ so that nobody sends: each shows the
    /// next one once what it has begun.
    pub(super) fn ask(&mut self, others: &mut impl Others) {
        let (rank, size) = (self.group.rank(), self.group.size());
        if !self.asked && size > 1 {
            let place = Mark { tag: ASK, lane: 0, at: 0 };
            self.asked = others.send(Packet { to: (rank + 1) % size, place, bytes: &[] });
        }
    }

    fn take(&mut self, source: u32, head: &Head, bytes: &mut [u8]) -> Result<(), String> {
        if let Some(problem) = self.signature.problem(head.signature) {
            return Err(problem);
        }
        let from = self.group.rank_of(source).ok_or("is not in the team")?;
        if head.mark.tag == ASK {
            return Ok(());
        }
        Ok(self.machine.arrive(from, head.mark, bytes, &mut self.work)?)
    }
}

/// What is under way.
#[derive(Default)]
pub(super) struct Table {
    pub(super) running: QuickMap<Key, Box<Running>>,
    early: QuickMap<Key, Vec<Letter>>,
    /// Those that may go on.
    pub(super) stirring: Vec<Key>,
    pub(super) stage: Stage,
    /// Those through seats or mailboxes.
    pub(super) meetings: Meetings,
    /// Teams of this rank.
    groups: QuickMap<TeamId, Arc<Group>>,
}

impl Table {
    /// Takes or keeps a message; what is wrong with one that does not fit.
    pub(super) fn take(
        &mut self,
        source: u32,
        head: &Head,
        bytes: &mut [u8],
    ) -> Result<(), String> {
        let key = (head.team, head.number);
        if let Some(running) = self.running.get_mut(&key) {
            running.take(source, head, bytes)?;
            if !running.stirring {
                running.stirring = true;
                self.stirring.push(key);
            }
            return Ok(());
        }
        if head.team == WHOLE
            && let what = (head.number, head.signature)
            && let Some(taken) = self.meetings.arrive(what, (source, head.mark.tag), bytes)
        {
            return taken;
        }
        let group = self.groups.get(&head.team);
        let begun = group.map(|group| group.has_begun(head.number));
        if head.mark.tag == ASK && begun != Some(false) {
            return Ok(());
        }
        if begun == Some(true) {
            return Err("is in a collective that is complete on this rank".to_owned());
        }
        self.early.entry(key).or_default().push((source, *head, bytes.to_vec()));
        Ok(())
    }

    /// Adds a collective, with what came early for it.
    pub(super) fn begin(&mut self, key: Key, mut running: Box<Running>) -> Result<(), String> {
        running.stirring = true;
        self.stirring.push(key);
        self.running.insert(key, running);
        self.take_early(key)
    }

    /// Takes what came before the collective was begun.
    pub(super) fn take_early(&mut self, key: Key) -> Result<(), String> {
        if self.early.is_empty() {
            return Ok(());
        }
        let early = self.early.remove(&key).unwrap_or_default();
        early.into_iter().try_for_each(|(source, head, mut bytes)| {
            self.take(source, &head, &mut bytes)
                .map_err(|problem| format!("rank {source} {problem}"))
        })
    }

    /// The next one that may go on; it is no more in the list.
    pub(super) fn next_stirring(&mut self) -> Option<Key> {
        let key = self.stirring.pop()?;
        if let Some(running) = self.running.get_mut(&key) {
            running.stirring = false;
        }
        Some(key)
    }

    /// One is complete; what waits for it may go on.
    pub(super) fn end(&mut self, (team, number): Key) {
        let ended = self.running.remove(&(team, number));
        let next = (team, number.wrapping_add(1));
        if ended.is_some_and(|ended| ended.leads)
            && let Some(running) = self.running.get_mut(&next)
        {
            running.held = false;
            self.again(next);
        }
    }

    /// One could not go on for want of room.
    pub(super) fn again(&mut self, key: Key) {
        if let Some(running) = self.running.get_mut(&key)
            && !running.stirring
        {
            running.stirring = true;
            self.stirring.push(key);
        }
    }
}

/// The collectives of a rank.
pub(crate) struct Collectives {
    table: Mutex<Table>,
    /// What came while another thread had the table.
    inbox: Mutex<Vec<Letter>>,
    posted: AtomicBool,
    /// Somebody has waited for long.
    doubts: AtomicBool,
    /// The team of all ranks.
    pub(crate) whole: Arc<Group>,
    /// Where it makes small reductions to all over the network so.
    pub(super) mailboxes: Option<Arc<Mailboxes>>,
    /// Number of the next team that this rank is the first member of.
    teams: AtomicU32,
}

impl Collectives {
    /// `mailboxes`: of this rank; all ranks have some, or none has.
    pub(crate) fn new(
        (rank, size): (u32, u32),
        places: Places,
        mailboxes: Option<Mailboxes>,
    ) -> Self {
        let mailboxes = mailboxes.map(Arc::new);
        let mailbox = mailboxes.as_ref().map_or(0, |_| MOST);
        let whole = Arc::new(Group::whole(rank, size, places, mailbox));
        let meetings = Meetings::new(mailboxes.clone());
        let made = Self {
            table: Mutex::new(Table { meetings, ..Table::default() }),
            inbox: Mutex::default(),
            posted: AtomicBool::new(false),
            doubts: AtomicBool::new(false),
            whole: Arc::clone(&whole),
            mailboxes,
            teams: AtomicU32::new(1),
        };
        made.know(&whole);
        made
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn try_lock(&self) -> Option<MutexGuard<'_, Table>> {
        match self.table.try_lock() {
            Ok(table) => Some(table),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    fn inbox(&self) -> MutexGuard<'_, Vec<Letter>> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a message for who has the table.
    pub(super) fn post(&self, letter: Letter) {
        let mut inbox = self.inbox();
        inbox.push(letter);
        self.posted.store(true, Ordering::Release);
    }

    /// A wait has taken long: members that differ may wait for each other.
    pub(crate) fn doubt(&self) {
        self.doubts.store(true, Ordering::Relaxed);
    }

    /// Whether one has since this was asked.
    pub(super) fn doubts(&self) -> bool {
        self.doubts.load(Ordering::Relaxed) && self.doubts.swap(false, Ordering::Relaxed)
    }

    /// What was posted.
    pub(super) fn letters(&self) -> Vec<Letter> {
        if !self.posted.load(Ordering::Acquire) {
            return Vec::new();
        }
        let mut inbox = self.inbox();
        self.posted.store(false, Ordering::Relaxed);
        std::mem::take(&mut *inbox)
    }

    /// A number for a team that begins with this rank.
    pub(crate) fn new_team(&self) -> u32 {
        self.teams.fetch_add(1, Ordering::Relaxed)
    }

    /// Messages of this team are for collectives of this rank.
    pub(crate) fn know(&self, group: &Arc<Group>) {
        self.lock().groups.insert(group.id, Arc::clone(group));
    }

    /// The team is no more.
    pub(crate) fn forget(&self, group: &Group) {
        self.lock().groups.remove(&group.id);
    }

    /// The memory of a collective is its owner's again, whatever has become of it.
    pub(crate) fn give_up(&self, key: Key) {
        let (team, number) = key;
        let mut table = self.lock();
        table.running.remove(&key);
        if team == WHOLE {
            table.meetings.give_up(number);
        }
    }

    /// As [`Collectives::give_up`] for all.
    pub(crate) fn give_up_all(&self) {
        let mut table = self.lock();
        table.running.clear();
        table.meetings.give_up_all();
    }
}
