//! What comes from the parent and from the agents below, and how it is carried out here.

use std::time::Duration;

use bootstrap::collective::TreeMessage;
use nix::unistd::getpid;
use settings::deadlines::agent::QUIET_WINDOW;
use spawner_ssh::diagnosis::{Class, Failure, Step};

use super::driver::Driver;
use crate::agent::bootstrap_server::BootstrapServer;
use crate::agent::capture::Draining;
use crate::agent::machine::{CODE_LAUNCH, Command, Event, RankEvent};
use crate::agent::pmi_server::{PmiServer, Relayed};
use crate::agent::processes;
use crate::event_loop::Role;
use crate::link::LinkEvent;
use crate::stage::{Action, Digest};
use crate::trace;
use crate::tree::hosts::HostStatus;
use crate::tree::message::{Down, HostCommand, Loss, Up, encode};

impl Driver<'_> {
    pub(super) fn down(&mut self, down: Down) {
        match down {
            Down::Setup { .. } => self.orphaned("it sent a second setup"),
            Down::HostCommand(command) => {
                // A question is passed on with the time that is left of it.
                if !matches!(command, HostCommand::SampleCpu { .. }) {
                    self.below.send_all(&Down::HostCommand(command));
                }
                self.command(command);
            }
            Down::Bootstrap(down) => {
                if let Err(error) = self.ranks.boot.message_from_parent(down) {
                    self.orphaned(&error.to_string());
                }
            }
            Down::Pmi(message) => {
                if let Some(pmi) = &mut self.ranks.pmi
                    && let Err(error) = pmi.hear_parent(message)
                {
                    self.orphaned(&error.to_string());
                }
                self.ranks.take_pmi_events();
            }
            Down::Input(ref bytes) => {
                self.ranks.readers.load(bytes.to_vec());
                let readers = self.below.readers(self.plan.stdin, &self.ranks.boot.share.host_of);
                self.below.send_input(readers, &down);
                self.given = false;
            }
            Down::Credit(bytes) => self.relay.grant(bytes),
            Down::Described(digests) => self.described(&digests),
            Down::Program { at, bytes } => {
                if let Some(staging) = self.staging.get(at) {
                    staging.piece(&bytes);
                }
            }
            Down::NoProgram { at, why } => {
                if let Some(staging) = self.staging.get(at) {
                    staging.refused(&why);
                }
            }
            Down::Ping => {}
        }
    }

    fn command(&mut self, command: HostCommand) {
        match command {
            HostCommand::Start => self.start(),
            HostCommand::Ranks(command) => self.act(command),
            HostCommand::SampleCpu { number, rest } => {
                let sample = self.ranks.sample_cpu();
                let rest = Duration::from_micros(rest).min(QUIET_WINDOW.limit);
                self.below.ask_cpu(number, rest);
                if rest.is_zero() {
                    self.below.own_sample(sample);
                }
                self.answer_cpu_sample();
            }
            HostCommand::Clock { sent } => {
                self.parent.send(&Up::Clock { host: self.index, sent, there: trace::monotonic() });
            }
            HostCommand::Look { number, subject } => {
                let seen = self.ranks.look(&self.poller, &mut self.looks, number, subject);
                if let Some(seen) = seen {
                    self.parent.send(&Up::Seen { host: self.index, number, seen });
                }
            }
            HostCommand::OutputClosed(which) => self.relay.deafen(which),
            HostCommand::InputEnd => self.ranks.readers.close(),
            HostCommand::Finish => {
                self.ranks.stop();
                self.ranks.close_pmix();
                self.finishing = Some(Draining::new(self.now()));
            }
        }
    }

    /// Every host is there: our part of the tree of collective calls is known, and ranks may start.
    fn start(&mut self) {
        if self.starting || self.own.is_some() {
            return;
        }
        self.starting = true;
        let share = self.ranks.boot.share.clone();
        let branches = self.below.make_branches(&share.host_of);
        if let Some(pmi) = &mut self.ranks.pmi {
            pmi.join_tree(self.plan, &share, &branches);
        }
        // Who wants to see every event gets every event.
        if self.plan.verbose == 0 {
            self.aggregate.join(&share.ranks, self.below.parts(&branches));
        }
        match BootstrapServer::node(&self.poller, share, branches) {
            Ok(boot) => self.ranks.boot = boot,
            Err(error) => {
                let text = format!("the tree of hosts does not fit the map: {error}");
                self.ranks.stop();
                let failed = RankEvent::StartFailed { rank: None, code: CODE_LAUNCH, text };
                self.aggregate.happened(self.poller.now(), failed);
            }
        }
    }

    /// Carries out what was decided, here or by the root.
    pub(super) fn act(&mut self, command: Command) {
        let links = &self.below;
        self.ranks.act(command, |pid| links.is_ours(pid));
        match command {
            // Only the root asks.
            Command::SampleCpu { .. } => self.decide(Event::CpuSampled { starved: false }),
            Command::ExitDecision { .. } => self.aggregate.decided(),
            Command::End(_) => self.aggregate.kills(),
            Command::FindOrphans => {
                self.looks.stop(&self.poller);
                self.aggregate.search(self.poller.now());
                self.cleaning_up = true;
                self.told_left = None;
                self.reap();
            }
            Command::Finish => self.over = true,
            _ => {}
        }
    }

    pub(super) fn reap(&mut self) {
        let (others, left) = self.ranks.reap();
        for (pid, end) in others {
            self.below.child_ended(pid, end);
        }
        self.happened();
        if !self.cleaning_up && !self.is_through() {
            return;
        }
        let links = &self.below;
        let left = left
            && (links.by_pid.is_empty()
                || processes::children(getpid().as_raw()).iter().any(|pid| !links.is_ours(*pid)));
        if self.own.is_some() {
            self.decide(Event::Orphans { left });
        } else if !self.cleaning_up {
            self.bare = !left;
        } else if self.told_left != Some(left) || left {
            self.told_left = Some(left);
            self.aggregate.own_left(self.poller.now(), left);
        }
    }

    /// Whether the ranks of this host have all run and ended, without a command to end them.
    fn is_through(&self) -> bool {
        self.starting && self.own.is_none() && self.ranks.is_through()
    }

    /// A host that has nothing more to do for the job, and has left nothing behind, says so and
    /// leaves without being told: the last ones of a job do not wait for a question and its answer.
    pub(super) fn step_leave(&mut self) {
        let through = self.bare && !self.cleaning_up && self.is_through();
        if through && self.finishing.is_none() && self.ranks.capture.is_over() {
            self.aggregate.own_left(self.poller.now(), false);
            self.finishing = Some(Draining::new(self.now()));
        }
    }

    pub(super) fn link_events(&mut self) {
        for event in std::mem::take(&mut self.below.events) {
            match event {
                LinkEvent::Open(link) => {
                    let host = self.below.host(link).unwrap_or(0);
                    let status = HostStatus::Reached(Step::Version);
                    self.parent.send(&Up::Host { host, status });
                    self.tell_clients();
                }
                LinkEvent::Up(link, up) => self.heard_below(link, up),
                LinkEvent::Failed(link, failure) => {
                    if let Some(host) = self.below.host(link) {
                        let status = HostStatus::Failed(failure);
                        self.parent.send(&Up::Host { host, status });
                    }
                    self.parent.send(&Up::Unreached(self.below.hosts(link).to_vec()));
                    self.below.stands(link);
                    self.tell_clients();
                }
                LinkEvent::Lost(link, loss) => self.lost(link, loss),
            }
        }
    }

    /// Says once who has logged in from here, if anybody wants to know it: before the hosts are ready.
    fn tell_clients(&mut self) {
        let wanted = self.plan.verbose >= 1 || self.examines;
        if wanted && self.below.is_logged_in() && !std::mem::replace(&mut self.clients_told, true) {
            for (client, hosts) in self.below.clients() {
                self.parent.send(&Up::Client { client, hosts });
            }
        }
    }

    fn lost(&mut self, link: usize, loss: Loss) {
        self.staging.lost(link);
        if self.below.lost(link) {
            // Ranks that have ended need no calls.
            if let Some(branch) = self.below.branch(link) {
                self.ranks.boot.lost(branch);
                self.aggregate.flush_branch(branch);
            }
            self.gather();
            self.parent.send(&Up::Lost { hosts: self.below.numbers(link), loss });
            if let Some(branch) = self.below.branch(link) {
                self.aggregate.lost(branch);
            }
        }
        self.answer_cpu_sample();
    }

    fn heard_below(&mut self, link: usize, up: Up) {
        if matches!(up, Up::Done { .. })
            && let Some(branch) = self.below.branch(link)
        {
            self.aggregate.done(branch);
            if let Some(pmi) = &mut self.ranks.pmi {
                pmi.left(branch);
                self.ranks.take_pmi_events();
            }
        }
        let Some(up) = self.below.heard(link, up) else { return self.answer_cpu_sample() };
        match up {
            Up::Unreached(ref hosts) => {
                self.below.remove_hosts(link, hosts);
                self.parent.send(&up);
            }
            Up::Events(events) => self.aggregate.heard(self.poller.now(), events),
            Up::Told(told) => {
                let branch = self.below.branch(link).unwrap_or(usize::MAX);
                if let Err(error) = self.aggregate.told(self.poller.now(), branch, told) {
                    self.lost(link, Loss::at_once(error.to_string()));
                }
            }
            Up::Orphans { host, left } => {
                let branch = self.below.branch(link).unwrap_or(usize::MAX);
                self.aggregate.left_below(self.poller.now(), branch, (host, left));
            }
            Up::Times(times) => self.times.extend(times),
            Up::Lost { .. } => {
                self.aggregate.flush_branch(self.below.branch(link).unwrap_or(usize::MAX));
                self.gather();
                self.parent.send(&up);
            }
            Up::Output { ref bytes, .. } | Up::Trace { ref bytes, .. } => {
                self.below.owe(link, bytes.len());
                self.relay.push(bytes.len(), encode(&up));
            }
            Up::OutputEnd { .. } => self.relay.push(0, encode(&up)),
            Up::Bootstrap(up) => {
                let Some(branch) = self.below.branch(link) else { return };
                if let Err(error) = self.ranks.boot.message_from_child(branch, up) {
                    self.lost(link, Loss::at_once(error.to_string()));
                }
            }
            Up::Pmi(message) => {
                let branch = self.below.branch(link);
                if let (Some(branch), Some(pmi)) = (branch, &mut self.ranks.pmi)
                    && let Err(error) = pmi.hear_child(branch, message)
                {
                    self.lost(link, Loss::at_once(error.to_string()));
                }
                self.ranks.take_pmi_events();
            }
            Up::Describe => self.describe(link),
            Up::Want { at } => self.staging.want(at, link),
            Up::Took { at, bytes } => self.staging.took(at, link, bytes),
            up => self.parent.send(&up),
        }
    }

    /// The time that a question left for the ranks is over.
    pub(super) fn sample_cpu_again(&mut self) {
        if self.below.cpu_look_due().is_some_and(|due| self.now() >= due) {
            let sample = self.ranks.sample_cpu();
            self.below.own_sample(sample);
            self.answer_cpu_sample();
        }
    }

    fn answer_cpu_sample(&mut self) {
        // What was heard before goes up first: it may change what the answer means.
        if let Some(question) = self.below.cpu_answer() {
            self.gather_all();
            let (number, sample) = (question.number, question.sample);
            self.parent.send(&Up::CpuSampled { number, sample });
        }
    }

    pub(super) fn messages(&mut self) {
        while let Some(message) = self.ranks.boot.calls.poll_transmit() {
            match message {
                TreeMessage::Up(up) => self.parent.send(&Up::Bootstrap(up)),
                TreeMessage::Down { to, message } => {
                    self.below.send_to_branches(&to, Down::Bootstrap(message));
                }
            }
        }
        for message in self.ranks.pmi.as_mut().map(PmiServer::messages).unwrap_or_default() {
            match message {
                Relayed::Up(message) => self.parent.send(&Up::Pmi(message)),
                Relayed::Down(message) => self.below.send_to_all_branches(Down::Pmi(message)),
                Relayed::To(to, message) => self.below.send_to_branches(&to, Down::Pmi(message)),
            }
        }
    }

    /// Carries out what is due about the job's programs.
    pub(super) fn step_staging(&mut self) {
        while let Some((at, action)) = self.staging.next() {
            match action {
                Action::Ask => self.parent.send(&Up::Want { at }),
                Action::Took(bytes) => self.parent.send(&Up::Took { at, bytes }),
                Action::Give(link, down) => self.below.send(link, &down),
                // The last one decides.
                Action::Ready => self.settle_start(),
                Action::Failed(why) => {
                    let seen = format!("cannot be sent the program: {why}");
                    self.staging.give_up();
                    self.settled(Err(Failure::new(Class::Staging, seen)));
                }
                Action::Say(text) => {
                    self.parent.send(&Up::Say(format!("{}: {text}", self.plan.host)));
                }
            }
        }
    }

    fn describe(&mut self, link: usize) {
        if let Some(digests) = self.staging.all_hashes() {
            return self.below.send(link, &Down::Described(digests));
        }
        if self.describing.is_empty() {
            self.parent.send(&Up::Describe);
        }
        self.describing.push(link);
    }

    fn described(&mut self, digests: &[Option<Digest>]) {
        self.staging.learn(digests);
        for link in std::mem::take(&mut self.describing) {
            self.below.send(link, &Down::Described(digests.to_vec()));
        }
    }
}
