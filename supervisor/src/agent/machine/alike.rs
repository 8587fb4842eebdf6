//! What many ranks did alike, as one event. The outcome is that of as many events of single ranks.

use bootstrap::ExitPath;

use super::deed::{Deed, Who};
use super::members::Change;
use super::{Cause, CauseKind, Machine};

impl Machine {
    /// Groups of ranks that may do something as one; ranks in none of them are told of one by one.
    pub(crate) fn group<'a>(&mut self, groups: impl IntoIterator<Item = &'a [bootstrap::Rank]>) {
        self.members.group(groups);
    }

    pub(super) fn alike(&mut self, deed: Deed, who: &Who) {
        match who {
            Who::Rest(group) => self.rest(*group, deed),
            Who::Runs(runs) => {
                for (first, count) in runs {
                    for rank in *first..first.saturating_add(*count) {
                        self.one(rank, deed);
                    }
                }
            }
        }
    }

    fn one(&mut self, rank: u32, deed: Deed) {
        if !self.is_running(rank) {
            return;
        }
        match deed {
            Deed::Hello => self.on_hello(rank),
            Deed::Exiting { code, path } => self.exiting(rank, code, ExitPath::from_wire(path)),
            Deed::Fini { code } => self.fini(rank, code),
            Deed::Ended { end, free, .. } => self.ended_alike(rank, end, free),
        }
    }

    /// The end of a rank that we told to end, but too late, is its own.
    fn ended_alike(&mut self, rank: u32, end: crate::report::End, free: bool) {
        self.members.change(rank, |member| member.killed &= !free);
        self.ended(rank, end);
    }

    fn rest(&mut self, group: usize, deed: Deed) {
        let Some(counts) = self.members.counts_of(group) else { return };
        match deed {
            Deed::Hello if counts.unopened > 0 => {
                self.members.change_group(group, Change::Hello);
                self.opened();
            }
            Deed::Exiting { code, path } if counts.mute > 0 => {
                let first = match self.first_exiting {
                    None => {
                        self.members.of_group(group, |m| m.running() && m.exiting.is_none()).next()
                    }
                    first => first,
                };
                let (code, path) = (code.cast_unsigned(), ExitPath::from_wire(path));
                self.members.change_group(group, Change::Exiting(code, path));
                if let Some(first) = first {
                    self.exit_announced(first);
                }
            }
            Deed::Fini { code } => {
                self.members.change_group(group, Change::Fini(code.cast_unsigned()));
            }
            // Once there is a cause, no end changes anything; before that, an orderly one does not.
            Deed::Ended { end, orderly, free } if orderly || self.cause.is_some() => {
                self.members.change_group(group, Change::Ended(end, free));
            }
            Deed::Ended { end, free, .. } => {
                let running: Vec<u32> =
                    self.members.of_group(group, super::members::Member::running).collect();
                running.into_iter().for_each(|rank| self.ended_alike(rank, end, free));
            }
            Deed::Hello | Deed::Exiting { .. } => {}
        }
    }

    /// Some rank has opened the bootstrap.
    pub(super) fn opened(&mut self) {
        if let Some(plain) = self.left_plain {
            self.fail(Cause::new(CauseKind::NoFini, Some(plain), 1));
        }
    }

    /// Ranks have announced their exit; the first one of them, if no other was first.
    pub(super) fn exit_announced(&mut self, rank: u32) {
        self.last_exiting = Some(self.now);
        self.sample_at = None;
        self.first_exiting.get_or_insert(rank);
        self.end_begins.get_or_insert(self.now);
    }
}
