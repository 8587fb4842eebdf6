//! What happens once hosts answer: events of ranks, output, input, collective calls, losses.

use std::collections::BTreeMap;

use bootstrap::collective::ranks_by_host;
use settings::deadlines::tree::FINISH;
use spawner_ssh::diagnosis::{Class, Failure, Step};

use super::driver::{Phase, Root};
use super::search::Search;
use crate::agent::capture::Outlet;
use crate::agent::control::Supervise;
use crate::agent::input::Feed;
use crate::agent::machine::deed::{Deed, Run, Who};
use crate::agent::machine::{Command, Event, RankEvent};
use crate::agent::record::epoch_now;
use crate::event_loop::Role;
use crate::link::LinkEvent;
use crate::report::End;
use crate::trace::{ClockSample, monotonic};
use crate::tree::hosts::HostStatus;
use crate::tree::message::{Down, HostCommand, Loss, Up};
use crate::tree::told::runs;

/// Hosts that a line names.
const SHOWN: usize = 8;

impl Root<'_> {
    pub(super) fn link_events(&mut self) {
        for event in std::mem::take(&mut self.below.events) {
            match event {
                LinkEvent::Open(link) => {
                    if let Some(host) = self.below.host(link) {
                        self.host_status(host, HostStatus::Reached(Step::Version));
                    }
                }
                LinkEvent::Up(link, up) => self.heard_below(link, up),
                LinkEvent::Failed(link, failure) => self.link_failed(link, failure),
                LinkEvent::Lost(link, loss) => self.link_lost(link, &loss),
            }
        }
        if !self.clients_told && self.below.is_logged_in() {
            self.clients_told = true;
            self.tell_clients(&self.below.clients(), "");
        }
    }

    /// Which ssh client logs in to hosts that others start: told once, when all is known.
    pub(super) fn tell_clients_below(&mut self) {
        let clients = std::mem::take(&mut self.clients_below);
        self.tell_clients(&clients, ", from other hosts");
    }

    /// Which ssh client has logged in where, and why; one line for hosts of which the same is true.
    fn tell_clients(&mut self, clients: &BTreeMap<String, Vec<u32>>, from: &str) {
        for (client, hosts) in clients {
            let more = hosts.len().saturating_sub(SHOWN);
            let names = hosts.iter().take(SHOWN).map(|host| self.hosts.name(*host).to_owned());
            let names = names.collect::<Vec<_>>().join(" ");
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            self.control.say(1, || format!("login by {client}{from}: {names}{more}"));
        }
    }

    fn heard_below(&mut self, link: usize, up: Up) {
        if matches!(up, Up::Done { .. })
            && let (Some(branch), Some(pmi)) = (self.below.branch(link), &mut self.pmi)
        {
            pmi.left(branch);
            self.messages();
        }
        let Some(up) = self.below.heard(link, up) else { return self.answer_cpu_sample() };
        if self.phase == Phase::Draining && matches!(up, Up::Output { .. } | Up::Trace { .. }) {
            self.give_up = self.now() + FINISH.ms();
        }
        match up {
            Up::Host { host, status } if self.below.is_behind(link, host) => {
                self.host_status(host, status);
            }
            Up::Unreached(orphans) => self.adopt(link, orphans),
            Up::Lost { mut hosts, loss } => {
                hosts.retain(|host| self.below.is_behind(link, *host));
                self.hosts_lost(&hosts, &loss);
            }
            Up::Events(events) => {
                for happened in events {
                    self.rank_news(link, &happened);
                }
            }
            Up::Orphans { host, left } if self.below.is_behind(link, host) => {
                self.orphan_status(&[(host, 1)], left);
            }
            Up::Told(told) => {
                if let Err(error) = self.told(link, told) {
                    self.link_lost(link, &Loss::at_once(error.to_string()));
                }
            }
            Up::Times(times) => self.ended_at(link, &times),
            Up::Output { rank, which, bytes } => {
                self.below.owe(link, bytes.len());
                self.control.output.take(rank, which, &bytes);
            }
            Up::Trace { rank, at, bytes } => {
                self.below.owe(link, bytes.len());
                // What does not fit is nobody's.
                let _fits = self
                    .control
                    .plan
                    .trace
                    .as_ref()
                    .is_some_and(|memory| memory.put(rank, at, &bytes));
            }
            Up::Clock { host, sent, there } if self.below.is_behind(link, host) => {
                self.clocks.answered(ClockSample { host, sent, there, received: monotonic() });
            }
            Up::Seen { host, number, seen } if self.below.is_behind(link, host) => {
                self.control.watch.heard(number, host, seen);
            }
            Up::OutputEnd { rank, which } => self.control.output.end(rank, which),
            Up::Bootstrap(up) => {
                let answer = match (self.below.branch(link), &mut self.calls) {
                    (Some(branch), Some(calls)) => calls.from_child(branch, up).map(drop),
                    _ => Ok(()),
                };
                if let Err(error) = answer {
                    self.link_lost(link, &Loss::at_once(error.to_string()));
                }
                self.messages();
            }
            Up::Pmi(message) => {
                let branch = self.below.branch(link);
                let heard = match (branch, &mut self.pmi) {
                    (Some(branch), Some(pmi)) => pmi.hear_child(branch, message),
                    _ => Ok(()),
                };
                if let Err(error) = heard {
                    self.link_lost(link, &Loss::at_once(error.to_string()));
                }
                self.messages();
            }
            Up::Describe => self.describing.push(link),
            Up::Want { at } => self.staging.want(at, link),
            Up::Took { at, bytes } => self.staging.took(at, link, bytes),
            Up::Client { client, mut hosts } => {
                hosts.retain(|host| self.below.is_behind(link, *host));
                self.clients_below.entry(client).or_default().extend(hosts);
            }
            Up::Say(text) => self.control.output.message(&text),
            // The status of a host that is none of this link's.
            _ => {}
        }
    }

    fn rank_news(&mut self, link: usize, happened: &RankEvent) {
        if let Some(rank) = happened.rank() {
            let Some(host) = self.host_of.get(rank as usize).map(|host| host.0) else { return };
            if !self.below.is_behind(link, host) || self.lost.contains(&host) {
                return;
            }
            match happened {
                RankEvent::Started { .. } => {
                    self.hosts.update(host, HostStatus::Reached(Step::Ranks));
                }
                RankEvent::Hello { .. } => {
                    self.hosts.update(host, HostStatus::Reached(Step::Bootstrap));
                }
                _ => {}
            }
        }
        self.happened(happened);
    }

    pub(super) fn answer_cpu_sample(&mut self) {
        if let Some(question) = self.below.cpu_answer() {
            self.event(Event::CpuSampled { starved: question.sample.is_starved() });
        }
    }

    fn link_lost(&mut self, link: usize, loss: &Loss) {
        self.staging.lost(link);
        if self.below.lost(link) {
            // Ranks that have ended need no calls.
            if let (Some(branch), Some(calls)) = (self.below.branch(link), &mut self.calls) {
                // The root has no ranks, so nothing follows here; messages may.
                let _ = calls.lost(branch);
            }
            self.hosts_lost(&self.below.numbers(link), loss);
        }
        self.answer_cpu_sample();
    }

    /// Hosts that cannot be reached any more: their agents end their ranks by themselves.
    fn hosts_lost(&mut self, hosts: &[u32], loss: &Loss) {
        let Some(first) = hosts.first() else { return };
        self.control.watch.questions.lost(hosts);
        let seen = loss.seen.as_str();
        let name = self.hosts.name(*first).to_owned();
        let more = match hosts.len() {
            1 => String::new(),
            count => format!(" (and with it {} below it)", count - 1),
        };
        self.control.say(1, || format!("host {name}{more} was lost: {seen}"));
        for host in hosts {
            self.lost.insert(*host);
            // Whoever broke off before the start is no loss of a running job.
            let class =
                if self.phase == Phase::Starting { Class::AgentSilent } else { Class::Lost };
            let failure = Failure::new(class, seen);
            self.hosts.update(*host, HostStatus::Failed(failure));
        }
        match self.phase {
            Phase::Starting => return,
            Phase::Draining => self.lost_output(&format!("host {name}{more} was lost: {seen}")),
            _ => {}
        }
        let told = (name, format!("{seen}{more}"));
        self.control.record.host_lost.get_or_insert(told);
        self.event(Event::HostLost { silent: loss.silent });
        let ranks_on = self.ranks_on.get_or_init(|| ranks_by_host(&self.host_of));
        let ranks = hosts.iter().filter_map(|host| ranks_on.get(*host as usize)).flatten();
        let running = ranks.map(|rank| rank.0).filter(|r| self.control.machine.is_running(*r));
        let mut gone: Vec<u32> = running.collect();
        gone.sort_unstable();
        self.ended_with_host(&gone);
        self.orphan_status(&runs(hosts.iter().copied()), false);
    }

    /// Ranks that are not heard of any more. Each is a line for whom wants to know so much.
    fn ended_with_host(&mut self, ranks: &[u32]) {
        let end = End::Signal(libc::SIGKILL);
        if self.control.plan.verbose > 0 {
            for rank in ranks {
                self.happened(&RankEvent::Ended { rank: *rank, end, at: epoch_now() });
            }
        } else if !ranks.is_empty() {
            let (deed, runs) =
                (Deed::Ended { end, orderly: false, free: false }, runs(ranks.iter().copied()));
            self.happened_alike(deed, Who::Runs(runs.clone()), runs);
        }
    }

    /// Asks every host whether processes are left; the machine is told when all have answered.
    pub(super) fn find_orphans(&mut self) {
        let mut asked = Vec::new();
        for link in self.below.open() {
            for host in self.below.numbers(link) {
                if !self.lost.contains(&host) && self.phase != Phase::Starting {
                    asked.push((host, self.is_bare(host).then_some(false)));
                }
            }
        }
        let search = Search::new(asked);
        if search.outcome().is_none() {
            self.command(HostCommand::Ranks(Command::FindOrphans));
        }
        self.search = Some(search);
        self.answer_orphans();
    }

    /// What these hosts say of processes that are left.
    pub(super) fn orphan_status(&mut self, hosts: &[Run], left: bool) {
        let mut asked = false;
        for host in hosts.iter().flat_map(|(first, count)| *first..first.saturating_add(*count)) {
            if let Some(bare) = self.bare.get_mut(host as usize).filter(|_| !left) {
                *bare = true;
            }
            asked |= self.search.as_mut().is_some_and(|search| search.answer(host, left));
        }
        if asked {
            self.answer_orphans();
        }
    }

    fn answer_orphans(&mut self) {
        if let Some(left) = self.search.as_ref().and_then(Search::outcome)
            && self.control.machine.is_cleaning_up()
        {
            self.event(Event::Orphans { left });
        }
    }

    /// Moves standard input: one piece at a time, the slowest reader sets the pace.
    pub(super) fn step_input(&mut self) {
        // Every reader must be there before the first byte moves.
        if self.input_over
            || self.phase != Phase::Running
            || self.control.record.counts[0] < self.control.plan.size
        {
            return;
        }
        match &self.below.input {
            Some((waiting, _)) if !waiting.is_empty() => return,
            Some((_, false)) => return self.end_input(),
            _ => self.below.input = None,
        }
        let readers = self.below.readers(self.control.plan.stdin, &self.host_of);
        if readers.is_empty() {
            return self.end_input();
        }
        let now = self.now();
        let feed = self.control.feed.get_or_insert_with(|| Feed::new(&self.control.poller));
        if let Some(bytes) = feed.piece(now) {
            feed.watch(false);
            self.below.send_input(readers, &Down::Input(bytes.into()));
        } else if feed.ended {
            self.end_input();
        }
    }

    fn end_input(&mut self) {
        self.close_input();
        self.command(HostCommand::InputEnd);
    }
}
