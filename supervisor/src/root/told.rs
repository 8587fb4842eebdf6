//! What the agents tell of many ranks or hosts at once.

use super::driver::Root;
use crate::agent::control::Supervise;
use crate::agent::machine::deed::{Deed, Run, Who};
use crate::tree::hosts::HostStatus;
use crate::tree::told::{News, Refused, Told};
use spawner_ssh::diagnosis::Step;

impl Root<'_> {
    pub(super) fn told(&mut self, link: usize, told: Told) -> Result<(), Refused> {
        let branch = self.below.branch(link).unwrap_or(usize::MAX);
        let part = self.parts.get_mut(branch).ok_or(Refused::Unknown)?;
        part.take(&told)?;
        let (news, who, runs) = match told {
            Told::Some { news, runs } => (news, Who::Runs(runs.clone()), runs),
            Told::Rest { news, .. } => (news, Who::Rest(branch), part.units(news.kind()).to_vec()),
            Told::Complete { .. } => return Ok(()),
        };
        match news {
            News::Bare => self.orphan_status(&runs, false),
            News::Did(deed) => {
                if deed == Deed::Hello {
                    self.opened(&runs);
                }
                self.happened_alike(deed, who, runs);
            }
        }
        Ok(())
    }

    /// Ranks have opened the bootstrap, so their hosts have come so far.
    fn opened(&mut self, runs: &[Run]) {
        let mut last = None;
        for (first, count) in runs {
            let until = first.saturating_add(*count) as usize;
            for host in self.host_of.get(*first as usize..until).unwrap_or_default() {
                if last.replace(host.0) != Some(host.0) && !self.lost.contains(&host.0) {
                    self.hosts.update(host.0, HostStatus::Reached(Step::Bootstrap));
                }
            }
        }
    }

    /// When ranks ended of whom their agent told together with others.
    pub(super) fn ended_at(&mut self, link: usize, times: &[(u32, f64)]) {
        self.control.record.settle();
        for (rank, at) in times {
            let host = self.host_of.get(*rank as usize).map(|host| host.0);
            if host.is_some_and(|host| self.below.is_behind(link, host)) {
                self.control.record.time(*rank, *at);
            }
        }
    }
}
