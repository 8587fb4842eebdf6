//! Brings together what the ranks of a subtree do, on the way up (pure).
//!
//! A job of very many ranks ends by events that each of them has. An agent tells its parent once
//! that all ranks below it have done the same. While some have not, it tells of those that have
//! after a window ([`BATCH`], [`HOLD`]), as runs of ranks. The first one that announces its exit is
//! told at once, for it opens the root's quiet window; and what is held goes up before the answer to
//! a question. An event that may be the first cause of the job's end is told by itself and at once,
//! behind all that was held.

use std::collections::HashSet;

use bootstrap::Rank;
use settings::deadlines::tree::{BATCH, HOLD};

use super::message::Up;
use super::told::{KINDS, Kind, News, Part, Refused, Told, merged};
use crate::agent::machine::RankEvent;
use crate::agent::machine::deed::{Deed, Run};
use crate::report::End;

/// Events of one message at most.
const MOST: usize = 1000;

/// Who did something that is held.
#[derive(Clone, Debug)]
enum Held {
    /// A rank or the host of our own.
    Own(u32),
    /// What a branch told of.
    Runs(usize, Vec<Run>),
    /// All of a branch that were not told of.
    Branch(usize),
}

impl Held {
    /// The branch that told it.
    const fn from(&self) -> Option<usize> {
        match self {
            Self::Own(_) => None,
            Self::Runs(from, _) | Self::Branch(from) => Some(*from),
        }
    }
}

/// What is told as one.
struct Alike {
    news: News,
    runs: Vec<Run>,
    /// The branches from which some of it came.
    from: HashSet<usize>,
}

/// News of one kind.
#[derive(Debug, Default)]
struct Gathered {
    /// How many of our own are told or held.
    own: u32,
    held: Vec<(News, Held)>,
    /// When what is held is told, whoever is missing.
    due: Option<u64>,
    /// When something was told last.
    last: Option<u64>,
    /// All of the subtree are told.
    closed: bool,
}

#[derive(Debug)]
struct Branch {
    part: Part,
    /// Its link broke: the root takes its ranks for ended.
    lost: bool,
    /// Its agent has said its last.
    done: bool,
}

/// When ranks ended that are told of together.
pub(crate) type Times = Vec<(u32, f64)>;

/// What an agent's subtree does, on its way up. Times are milliseconds on the owner's clock.
#[derive(Debug, Default)]
pub(crate) struct Aggregate {
    /// The subtree is known, and nobody wants to see every event.
    joined: bool,
    host: u32,
    own: Part,
    ranks: Vec<Rank>,
    /// By own rank: kinds of news that it had, and the code of its farewell.
    had: Vec<(u8, Option<i32>)>,
    branches: Vec<Branch>,
    kinds: [Gathered; KINDS.len()],
    /// Ranks were told to end: how they end says nothing more.
    killing: bool,
    /// The end of the job is decided.
    decided: bool,
    /// Some rank of the subtree has opened the bootstrap.
    hello: bool,
    out: Vec<Up>,
    pub(crate) times: Times,
}

/// Whether an event may be the cause of the job's end, so that nothing may be told after it that
/// happened before.
const fn fails(event: &RankEvent) -> bool {
    matches!(
        event,
        RankEvent::StartFailed { .. }
            | RankEvent::Abort { .. }
            | RankEvent::PmiBroken { .. }
            | RankEvent::Protocol { .. }
            | RankEvent::Ended { .. }
    )
}

impl Aggregate {
    /// Of a host whose subtree is not known yet: everything is told by itself and at once.
    pub(crate) fn new(host: u32) -> Self {
        Self { host, ..Self::default() }
    }

    /// The subtree is known: our own ranks (ascending), and what each branch speaks for.
    pub(crate) fn join(&mut self, ranks: &[Rank], branches: Vec<Part>) {
        self.own = Part::new(ranks, [self.host]);
        self.ranks = ranks.to_vec();
        self.had = vec![(0, None); ranks.len()];
        self.branches =
            branches.into_iter().map(|part| Branch { part, lost: false, done: false }).collect();
        self.joined = true;
    }

    /// Something that a rank of our own did.
    pub(crate) fn happened(&mut self, now: u64, event: RankEvent) {
        match self.alike(&event) {
            Some((rank, deed)) => {
                if let RankEvent::Ended { at, .. } = event {
                    self.times.push((rank, at));
                }
                self.hold(now, News::Did(deed), Held::Own(rank));
            }
            None => self.at_once(now, event),
        }
    }

    /// Events that an agent below told by themselves.
    pub(crate) fn heard(&mut self, now: u64, events: Vec<RankEvent>) {
        for event in events {
            self.at_once(now, event);
        }
    }

    /// What branch `from` tells of many.
    pub(crate) fn told(&mut self, now: u64, from: usize, told: Told) -> Result<(), Refused> {
        let Some(branch) = self.branches.get_mut(from).filter(|_| self.joined) else {
            return Err(Refused::Unknown);
        };
        branch.part.take(&told)?;
        match told {
            Told::Some { news, runs } => self.hold(now, news, Held::Runs(from, runs)),
            Told::Rest { news, .. } => self.hold(now, news, Held::Branch(from)),
            Told::Complete { .. } => {}
        }
        Ok(())
    }

    /// What a branch told goes up, before it is said that hosts behind it are lost.
    pub(crate) fn flush_branch(&mut self, branch: usize) {
        for kind in KINDS {
            let gathered = &mut self.kinds[kind as usize];
            let (of, others) = std::mem::take(&mut gathered.held)
                .into_iter()
                .partition(|(_, held)| held.from() == Some(branch));
            gathered.held = others;
            if gathered.held.is_empty() {
                gathered.due = None;
            }
            self.push(kind, of);
        }
    }

    /// A branch is lost, and that was said: nobody is told of as the rest who is behind it.
    pub(crate) fn lost(&mut self, branch: usize) {
        if let Some(branch) = self.branches.get_mut(branch) {
            branch.lost = true;
        }
    }

    /// A branch has said its last: no process is left there.
    pub(crate) fn done(&mut self, branch: usize) {
        if let Some(branch) = self.branches.get_mut(branch) {
            branch.done = true;
        }
    }

    /// Whether processes are left on our host.
    pub(crate) fn own_left(&mut self, now: u64, left: bool) {
        let kind = &mut self.kinds[Kind::Bare as usize];
        kind.held.retain(|(_, held)| !matches!(held, Held::Own(_)));
        kind.own = u32::from(!left);
        if left || !self.joined {
            self.out.push(Up::Orphans { host: self.host, left });
        } else {
            self.hold(now, News::Bare, Held::Own(self.host));
        }
    }

    /// A host behind a branch says by itself whether processes are left there.
    pub(crate) fn left_below(&mut self, now: u64, from: usize, (host, left): (u32, bool)) {
        if left && let Some(branch) = self.branches.get_mut(from) {
            branch.part.reopen(Kind::Bare);
            self.tell(now, Kind::Bare);
        }
        self.out.push(Up::Orphans { host, left });
    }

    /// Hosts are asked anew whether processes are left.
    pub(crate) fn search(&mut self, now: u64) {
        self.tell(now, Kind::Bare);
        self.kinds[Kind::Bare as usize] = Gathered::default();
        self.branches.iter_mut().for_each(|branch| branch.part.reopen(Kind::Bare));
    }

    /// The end of the job is decided: no exit is waited for any more.
    pub(crate) const fn decided(&mut self) {
        self.decided = true;
    }

    /// Ranks are told to end.
    pub(crate) const fn kills(&mut self) {
        (self.decided, self.killing) = (true, true);
    }

    /// Everything that is held is to be told.
    pub(crate) fn flush(&mut self, now: u64) {
        self.tell_until(now, Kind::Bare);
    }

    /// When [`Aggregate::take`] has something to tell although nothing more happens.
    pub(crate) fn deadline(&self) -> Option<u64> {
        self.kinds.iter().filter_map(|kind| kind.due).min()
    }

    /// Whether something is to be told now.
    pub(crate) fn is_due(&self, now: u64) -> bool {
        !self.out.is_empty()
            || self.deadline().is_some_and(|at| now >= at)
            || KINDS.iter().any(|kind| self.is_complete(*kind))
    }

    /// What is to be told now, in order.
    pub(crate) fn take(&mut self, now: u64) -> Vec<Up> {
        let due = |kind: &Kind| self.kinds[*kind as usize].due.is_some_and(|at| now >= at);
        let last = KINDS.into_iter().rfind(|kind| due(kind) || self.is_complete(*kind));
        if let Some(last) = last {
            self.tell_until(now, last);
        }
        std::mem::take(&mut self.out)
    }

    /// Tells what is held of all kinds up to this one: what a rank did keeps its order.
    fn tell_until(&mut self, now: u64, last: Kind) {
        for kind in &KINDS[..=last as usize] {
            self.close(now, *kind);
            self.tell(now, *kind);
        }
    }

    /// The deed of a rank of our own, if it may wait for others that do the same.
    fn alike(&mut self, event: &RankEvent) -> Option<(u32, Deed)> {
        let (rank, mut deed) = Deed::of(event).filter(|_| self.joined)?;
        let at = self.ranks.binary_search(&Rank(rank)).ok()?;
        let (had, said) = self.had.get_mut(at)?;
        let bit = 1 << News::Did(deed).kind() as u8;
        if std::mem::replace(had, *had | bit) & bit != 0 {
            return None;
        }
        match &mut deed {
            Deed::Hello => self.hello = true,
            Deed::Fini { code } => *said = Some(*code),
            Deed::Ended { end, orderly, free } => {
                let codes = said.map(|said| [0, said & 0xff]);
                *orderly = matches!((*end, codes), (End::Code(code), Some(codes)) if codes.contains(&code));
                *free = !self.killing;
                // A plain program that ends with 0 is no failure, unless others are no plain ones.
                let plain = *end == End::Code(0) && !self.hello;
                if !(*orderly || self.killing || plain) {
                    self.kinds[Kind::Ended as usize].own += 1;
                    return None;
                }
            }
            Deed::Exiting { .. } => {}
        }
        self.kinds[News::Did(deed).kind() as usize].own += 1;
        Some((rank, deed))
    }

    fn at_once(&mut self, now: u64, event: RankEvent) {
        self.hello |= matches!(event, RankEvent::Hello { .. });
        if fails(&event) {
            // Nobody is told of as the rest before this one is told.
            KINDS.into_iter().for_each(|kind| self.tell(now, kind));
        }
        match self.out.last_mut() {
            Some(Up::Events(events)) if events.len() < MOST => events.push(event),
            _ => self.out.push(Up::Events(vec![event])),
        }
    }

    fn hold(&mut self, now: u64, news: News, held: Held) {
        self.hello |= news.kind() == Kind::Hello;
        let gathered = &mut self.kinds[news.kind() as usize];
        gathered.held.push((news, held));
        gathered.due.get_or_insert_with(|| match (news.kind(), gathered.last) {
            // The root counts the time since it heard of the first one.
            (Kind::Exiting, None) if !self.decided => now,
            (Kind::Exiting, Some(last)) if !self.decided => {
                last.saturating_add(BATCH.ms()).max(now)
            }
            _ => now.saturating_add(HOLD.ms()),
        });
    }

    /// How many are in the subtree.
    fn count(&self, kind: Kind) -> u32 {
        let below = self.branches.iter().map(|branch| branch.part.count(kind));
        below.fold(self.own.count(kind), u32::saturating_add)
    }

    /// Whether all of the subtree are told or held, and that is news.
    fn is_complete(&self, kind: Kind) -> bool {
        let gathered = &self.kinds[kind as usize];
        let bare = |branch: &Branch| branch.done && kind == Kind::Bare;
        let below = |branch: &Branch| branch.lost || bare(branch) || branch.part.is_complete(kind);
        self.joined
            && !gathered.closed
            && gathered.own >= self.own.count(kind)
            && self.branches.iter().all(below)
            && self.count(kind) > 0
    }

    /// Tells what is held as one, when all are there.
    fn close(&mut self, now: u64, kind: Kind) {
        if !self.is_complete(kind) {
            return;
        }
        let count = self.count(kind);
        let gathered = &mut self.kinds[kind as usize];
        gathered.closed = true;
        let news = gathered.held.first().map(|(news, _)| *news);
        let told = match news.filter(|news| gathered.held.iter().all(|(other, _)| other == news)) {
            Some(news) => {
                (gathered.due, gathered.last) = (None, Some(now));
                gathered.held.clear();
                Told::Rest { news, count }
            }
            None => {
                self.tell(now, kind);
                Told::Complete { kind, count }
            }
        };
        self.out.push(Up::Told(told));
    }

    /// Tells what is held of those who are there, in order.
    fn tell(&mut self, now: u64, kind: Kind) {
        let gathered = &mut self.kinds[kind as usize];
        if gathered.held.is_empty() {
            return;
        }
        (gathered.due, gathered.last) = (None, Some(now));
        let held = std::mem::take(&mut gathered.held);
        self.push(kind, held);
    }

    fn push(&mut self, kind: Kind, held: Vec<(News, Held)>) {
        for Alike { news, mut runs, .. } in self.sorted(kind, held) {
            runs.sort_unstable();
            self.out.push(Up::Told(Told::Some { news, runs: merged(runs) }));
        }
    }

    /// What is held, with one entry for what is the same. Of each rank the root keeps what it hears
    /// first, and what a branch told may name a rank again: the order of one branch stays.
    fn sorted(&self, kind: Kind, held: Vec<(News, Held)>) -> Vec<Alike> {
        let mut all: Vec<Alike> = Vec::new();
        for (news, held) in held {
            let from = held.from();
            let runs = self.units(kind, held);
            let same = all.iter().rposition(|other| other.news == news);
            let free = |at: &usize| {
                from.is_none_or(|from| {
                    !all[at + 1..].iter().any(|other| other.from.contains(&from))
                })
            };
            match same.filter(free).and_then(|at| all.get_mut(at)) {
                Some(alike) => {
                    alike.runs.extend(runs);
                    alike.from.extend(from);
                }
                None => all.push(Alike { news, runs, from: from.into_iter().collect() }),
            }
        }
        all
    }

    fn units(&self, kind: Kind, held: Held) -> Vec<Run> {
        match held {
            Held::Own(one) => vec![(one, 1)],
            Held::Runs(_, runs) => runs,
            Held::Branch(at) => {
                self.branches.get(at).map(|b| b.part.units(kind).to_vec()).unwrap_or_default()
            }
        }
    }
}

#[cfg(test)]
mod tests;
