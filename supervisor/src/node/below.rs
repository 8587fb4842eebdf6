//! What comes from the agents below.

use std::collections::HashSet;

use super::driver::Driver;
use crate::event_loop::Role;
use crate::link::LinkEvent;
use crate::plan::StdinTo;
use crate::tree::hosts::HostStatus;
use crate::tree::message::{Loss, Up};
use spawner_ssh::diagnosis::Step;

impl Driver<'_> {
    pub(super) fn link_events(&mut self, events: Vec<LinkEvent>) {
        for event in events {
            match event {
                LinkEvent::Open(link) => {
                    let host = self.links.hosts(link).first().map_or(0, |host| host.0);
                    self.up(&Up::Host { host, status: HostStatus::Reached(Step::Version) });
                }
                LinkEvent::Up(link, up) => self.heard_below(link, up),
                LinkEvent::Failed(link, failure) => {
                    let hosts = self.links.hosts(link).to_vec();
                    if let Some((host, _)) = hosts.first() {
                        let status = HostStatus::Failed(failure);
                        self.up(&Up::Host { host: *host, status });
                    }
                    self.up(&Up::Unreached(hosts));
                    self.standing.insert(link);
                }
                LinkEvent::Lost(link, loss) => self.lost(link, loss),
            }
        }
    }

    pub(super) fn lost(&mut self, link: usize, loss: Loss) {
        self.standing.insert(link);
        self.staging.lost(link);
        // After its farewell the end of a link is no loss; ranks that have ended need no calls.
        let parted = self.done.contains(&link);
        let branch = self.branches.iter().position(|other| *other == link);
        if let Some(branch) = branch.filter(|_| !parted) {
            self.ranks.boot.lost(&self.poller, branch);
        }
        if let Some(question) = &mut self.cpu_question {
            question.waiting.remove(&link);
        }
        if let Some(input) = &mut self.input {
            input.waiting.remove(&link);
        }
        if !parted {
            let hosts = self.links.hosts(link).iter().map(|(host, _)| *host).collect();
            self.up(&Up::Lost { hosts, loss });
        }
        self.answer_cpu_sample();
    }

    pub(super) fn heard_below(&mut self, link: usize, up: Up) {
        match up {
            Up::Host { .. }
            | Up::Lost { .. }
            | Up::Orphans { .. }
            | Up::Findings { .. }
            | Up::Say(_) => self.up(&up),
            Up::Unreached(ref hosts) => {
                self.links.remove_hosts(link, hosts);
                self.up(&up);
            }
            Up::Standing => drop(self.standing.insert(link)),
            Up::Events(events) => self.events.extend(events),
            Up::CpuSampled { number, sample } => {
                if let Some(open) = self.cpu_question.as_mut().filter(|open| open.number == number)
                    && open.waiting.remove(&link)
                {
                    open.sample = open.sample.and(sample);
                }
                self.answer_cpu_sample();
            }
            Up::Output { ref bytes, .. } => {
                self.links.owe(link, bytes.len());
                self.relay.push(bytes.len(), up.encode());
            }
            Up::OutputEnd { .. } => self.relay.push(0, up.encode()),
            Up::Bootstrap(up) => {
                let branch = self.branches.iter().position(|other| *other == link);
                let Some(branch) = branch else { return };
                if let Err(error) = self.ranks.boot.message_from_child(&self.poller, branch, up) {
                    self.lost(link, Loss::at_once(error.to_string()));
                }
            }
            Up::InputTaken { more } => {
                if let Some(input) = &mut self.input
                    && input.waiting.remove(&link)
                {
                    input.more |= more;
                }
            }
            Up::Describe => self.describe(link),
            Up::Want => self.staging.want(link),
            Up::Took { bytes } => self.staging.took(link, bytes),
            Up::Ping => {}
            Up::Done { orphans } => {
                self.done.insert(link);
                self.orphans = self.orphans.saturating_add(orphans);
            }
        }
    }

    pub(super) fn answer_cpu_sample(&mut self) {
        // What was heard before goes up first: it may change what the answer means.
        if let Some(question) = self.cpu_question.take_if(|question| question.waiting.is_empty()) {
            self.flush();
            self.up(&Up::CpuSampled { number: question.number, sample: question.sample });
        }
    }

    /// Links behind which ranks read standard input.
    pub(super) fn readers_below(&self) -> HashSet<usize> {
        let open = self.links.open();
        match self.plan.stdin {
            StdinTo::None => HashSet::new(),
            StdinTo::All => open.collect(),
            StdinTo::Rank(rank) => {
                let host = self.ranks.share().host_of.get(rank.0 as usize).map(|host| host.0);
                let behind = |link: &usize| {
                    self.links.hosts(*link).iter().any(|(other, _)| Some(*other) == host)
                };
                open.filter(behind).collect()
            }
        }
    }

    pub(super) fn step_links(&mut self) {
        let (now, mut events) = (self.now(), Vec::new());
        self.links.step(&self.poller, now, &mut events);
        self.link_events(events);
    }
}
