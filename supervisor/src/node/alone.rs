//! An agent that has lost its parent decides for its own ranks; those below do so for theirs.

use settings::say;

use super::driver::{Driver, ms};
use crate::agent::RankEvent;
use crate::agent::machine::{Event, Machine, Rules};
use crate::event_loop::Role;

impl Driver<'_> {
    /// The parent is lost: from now on we decide for our own ranks, and those below for theirs.
    pub(super) fn orphaned(&mut self, why: &str) {
        if self.parent.gone || self.over {
            return;
        }
        let host = &self.plan.host;
        say!(
            ERROR,
            "gasnetrun_ibv",
            "node agent: {host}: lost its parent: {why}; its ranks are ended"
        );
        self.parent.close(&self.poller);
        self.relay.close();
        self.links.part();
        self.ranks.stop();
        self.cleaning_up = false;
        let rules = Rules { exit_bound: ms(self.plan.exit_bound), timeout_at: None };
        let share = self.ranks.share();
        let mut machine = Machine::new(share.count(), rules);
        let now = ms(self.started.elapsed());
        let running: Vec<u32> =
            self.ranks.running().filter_map(|rank| self.ranks.share().local(rank)).collect();
        for rank in running {
            let started = RankEvent::Started { rank, pid: 0, at: 0.0 };
            machine.handle(now, Event::Rank(started), &mut Vec::new());
        }
        self.own = Some(machine);
        self.decide(Event::LauncherLost);
    }

    /// Our own machine, once the parent is lost.
    pub(super) fn decide(&mut self, event: Event) {
        let now = self.now();
        let mut actions = Vec::new();
        let Some(machine) = &mut self.own else { return };
        machine.handle(now, event, &mut actions);
        for action in actions {
            self.act(action);
        }
    }
}
