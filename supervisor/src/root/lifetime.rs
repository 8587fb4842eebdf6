//! What happens once hosts answer: events of ranks, output, input, collective calls, losses.

use std::collections::HashSet;

use super::driver::{Phase, Root};
use crate::agent::RankEvent;
use crate::agent::capture::Outlet;
use crate::agent::control::Supervise;
use crate::agent::input::Feed;
use crate::agent::machine::{Command, Event};
use crate::agent::record::epoch_now;
use crate::event_loop::Role;
use crate::event_loop::Which;
use crate::link::LinkEvent;
use crate::plan::StdinTo;
use crate::report::End;
use crate::tree::hosts::HostStatus;
use crate::tree::message::{Down, HostCommand, Loss, Up};
use spawner_ssh::diagnosis::{Class, Failure, Step};

impl Root<'_> {
    pub(super) fn link_events(&mut self, events: Vec<LinkEvent>) {
        for event in events {
            match event {
                LinkEvent::Open(link) => {
                    if let Some((host, _)) = self.links.hosts(link).first().cloned() {
                        self.host_status(host, HostStatus::Reached(Step::Version));
                    }
                }
                LinkEvent::Up(link, up) => self.heard_below(link, up),
                LinkEvent::Failed(link, failure) => self.link_failed(link, failure),
                LinkEvent::Lost(link, loss) => self.link_lost(link, &loss),
            }
        }
    }

    /// Whether a link may speak about this host.
    fn is_behind(&self, link: usize, host: u32) -> bool {
        self.links.hosts(link).iter().any(|(own, _)| *own == host)
    }

    fn heard_below(&mut self, link: usize, up: Up) {
        match up {
            Up::Host { host, status } if self.is_behind(link, host) => {
                self.host_status(host, status)
            }
            Up::Unreached(orphans) => self.adopt(link, orphans),
            Up::Lost { hosts, loss } => {
                let hosts: Vec<u32> =
                    hosts.into_iter().filter(|host| self.is_behind(link, *host)).collect();
                self.hosts_lost(&hosts, &loss);
            }
            Up::Standing => drop(self.standing.insert(link)),
            Up::Events(events) => {
                for happened in events {
                    self.rank_news(link, &happened);
                }
            }
            Up::CpuSampled { number, sample } => {
                if let Some(open) = self.cpu_question.as_mut().filter(|open| open.number == number)
                    && open.waiting.remove(&link)
                {
                    open.sample = open.sample.and(sample);
                }
                self.answer_cpu_sample();
            }
            Up::Orphans { host, left } if self.is_behind(link, host) => {
                self.orphan_status(host, left)
            }
            Up::Output { rank, stream, bytes } => {
                self.links.owe(link, bytes.len());
                if let Some(which) = which(stream) {
                    self.control.output.take(rank, which, &bytes);
                }
            }
            Up::OutputEnd { rank, stream } => {
                if let Some(which) = which(stream) {
                    self.control.output.end(rank, which);
                }
            }
            Up::Bootstrap(up) => {
                let branch = self.branches.iter().position(|other| *other == link);
                let answer = match (branch, &mut self.calls) {
                    (Some(branch), Some(calls)) => calls.from_child(branch, up).map(drop),
                    _ => Ok(()),
                };
                if let Err(error) = answer {
                    self.link_lost(link, &Loss::at_once(error.to_string()));
                }
                self.messages();
            }
            Up::InputTaken { more } => {
                if let Some((waiting, any)) = &mut self.piece
                    && waiting.remove(&link)
                {
                    *any |= more;
                }
            }
            Up::Describe => self.describing.push(link),
            Up::Want => self.staging.want(link),
            Up::Took { bytes } => self.staging.took(link, bytes),
            Up::Say(text) => self.control.output.message(&self.control.poller, &text),
            Up::Done { orphans } => {
                if self.done.insert(link) {
                    self.orphans_killed = self.orphans_killed.saturating_add(orphans);
                }
            }
            // A sign of life, or the status of a host that is none of this link's.
            Up::Ping | Up::Host { .. } | Up::Orphans { .. } | Up::Findings { .. } => {}
        }
    }

    fn rank_news(&mut self, link: usize, happened: &RankEvent) {
        if let Some(rank) = happened.rank() {
            let Some(host) = self.host_of.get(rank as usize).map(|host| host.0) else { return };
            if !self.is_behind(link, host) || self.lost.contains(&host) {
                return;
            }
            match happened {
                RankEvent::Started { .. } => {
                    self.hosts.update(host, HostStatus::Reached(Step::Ranks));
                }
                RankEvent::Hello { .. } => {
                    self.hosts.update(host, HostStatus::Reached(Step::Bootstrap))
                }
                _ => {}
            }
        }
        self.happened(happened);
    }

    pub(super) fn answer_cpu_sample(&mut self) {
        if let Some(question) = self.cpu_question.take_if(|question| question.waiting.is_empty()) {
            self.event(Event::CpuSampled { starved: question.sample.is_starved() });
        }
    }

    fn link_lost(&mut self, link: usize, loss: &Loss) {
        self.standing.insert(link);
        self.staging.lost(link);
        // After its farewell the end of a link is no loss; ranks that have ended need no calls.
        let parted = self.done.contains(&link);
        if let Some(branch) = self.branches.iter().position(|other| *other == link)
            && !parted
            && let Some(calls) = &mut self.calls
        {
            // The root has no ranks, so nothing follows here; messages may.
            let _ = calls.lost(branch);
        }
        if let Some(question) = &mut self.cpu_question {
            question.waiting.remove(&link);
        }
        if let Some((waiting, _)) = &mut self.piece {
            waiting.remove(&link);
        }
        if !parted {
            let hosts: Vec<u32> = self.links.hosts(link).iter().map(|(host, _)| *host).collect();
            self.hosts_lost(&hosts, loss);
        }
        self.answer_cpu_sample();
    }

    /// Hosts that cannot be reached any more: their agents end their ranks by themselves.
    fn hosts_lost(&mut self, hosts: &[u32], loss: &Loss) {
        let Some(first) = hosts.first() else { return };
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
        if self.phase == Phase::Starting {
            return;
        }
        self.control.job.lose(&name, format!("{seen}{more}"));
        self.event(Event::HostLost { silent: loss.silent });
        let lost: HashSet<u32> = hosts.iter().copied().collect();
        let gone: Vec<u32> = (0..self.control.plan.size)
            .filter(|rank| {
                let host = self.host_of.get(*rank as usize);
                host.is_some_and(|host| lost.contains(&host.0))
                    && self.control.job.is_running(*rank)
            })
            .collect();
        for rank in gone {
            let end = End::Signal(libc::SIGKILL);
            self.happened(&RankEvent::Ended { rank, end, at: epoch_now() });
        }
        for host in hosts {
            self.orphan_status(*host, false);
        }
    }

    /// Asks every host whether processes are left; the machine is told when all have answered.
    pub(super) fn find_orphans(&mut self) {
        let mut asked = std::collections::HashMap::new();
        for link in self.links.open() {
            for (host, _) in self.links.hosts(link) {
                if !self.lost.contains(host) && self.phase != Phase::Starting {
                    asked.insert(*host, self.bare.contains(host).then_some(false));
                }
            }
        }
        let answered = asked.values().all(Option::is_some);
        self.orphans = Some(asked);
        if !answered {
            self.command(HostCommand::Ranks(Command::FindOrphans));
        }
        self.answer_orphans();
    }

    fn orphan_status(&mut self, host: u32, left: bool) {
        if !left {
            self.bare.insert(host);
        }
        if let Some(answer) = self.orphans.as_mut().and_then(|orphans| orphans.get_mut(&host)) {
            *answer = Some(left);
            self.answer_orphans();
        }
    }

    fn answer_orphans(&mut self) {
        let Some(orphans) = &self.orphans else { return };
        if orphans.values().all(Option::is_some) && self.control.job.machine.is_cleaning_up() {
            let left = orphans.values().any(|left| *left == Some(true));
            self.event(Event::Orphans { left });
        }
    }

    /// Links behind which ranks read standard input.
    fn readers(&self) -> HashSet<usize> {
        let open = self.links.open();
        match self.control.plan.stdin {
            StdinTo::None => HashSet::new(),
            StdinTo::All => open.collect(),
            StdinTo::Rank(rank) => {
                let host = self.host_of.get(rank.0 as usize).map_or(0, |host| host.0);
                open.filter(|link| self.is_behind(*link, host)).collect()
            }
        }
    }

    /// Moves standard input: one piece at a time, the slowest reader sets the pace.
    pub(super) fn step_input(&mut self) {
        // Every reader must be there before the first byte moves.
        if self.input_over
            || self.phase != Phase::Running
            || self.control.job.count < self.control.plan.size
        {
            return;
        }
        match self.piece.take() {
            Some((waiting, more)) if !waiting.is_empty() => {
                self.piece = Some((waiting, more));
                return;
            }
            Some((_, false)) => return self.end_input(),
            _ => {}
        }
        let readers = self.readers();
        if readers.is_empty() {
            return self.end_input();
        }
        let now = self.now();
        let feed = self.control.feed.get_or_insert_with(Feed::new);
        if let Some(bytes) = feed.piece(&self.control.poller, now) {
            feed.rest(&self.control.poller);
            let down = Down::Input(bytes.into());
            for link in &readers {
                self.links.send(&self.control.poller, *link, &down, now);
            }
            self.piece = Some((readers, false));
        } else if feed.is_ended() {
            self.end_input();
        }
    }

    fn end_input(&mut self) {
        self.close_input();
        self.command(HostCommand::InputEnd);
    }
}

/// A stream by its number on the wire.
const fn which(stream: u8) -> Option<Which> {
    match stream {
        1 => Some(Which::Out),
        2 => Some(Which::Err),
        _ => None,
    }
}
