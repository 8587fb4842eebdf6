//! What comes from the parent, and how it is carried out here.

use bootstrap::HostId;
use bootstrap::collective::Branch;
use nix::unistd::getpid;

use super::driver::{CpuQuestion, Driver, Piece};
use super::setup::ranks_of;
use crate::agent::bootstrap_server::BootstrapServer;
use crate::agent::capture::Draining;
use crate::agent::machine::{CODE_LAUNCH, Command, Event};
use crate::agent::{RankEvent, processes};
use crate::event_loop::Role;
use crate::tree::message::{Down, HostCommand, Up};

impl Driver<'_> {
    pub(super) fn down(&mut self, down: Down) {
        match down {
            Down::Setup { .. } => self.orphaned("it sent a second setup"),
            Down::HostCommand(command) => {
                let now = self.now();
                self.links.send_all(&self.poller, &Down::HostCommand(command), now);
                self.command(command);
            }
            Down::Bootstrap(down) => {
                if let Err(error) = self.ranks.boot.message_from_parent(&self.poller, down) {
                    self.orphaned(&error.to_string());
                }
            }
            Down::Input(bytes) => {
                let targets = self.readers_below();
                let now = self.now();
                let message = Down::Input(bytes.clone());
                for link in &targets {
                    self.links.send(&self.poller, *link, &message, now);
                }
                self.ranks.readers.load(bytes.to_vec());
                self.input = Some(Piece { own: false, waiting: targets, more: false });
            }
            Down::Credit(bytes) => self.relay.grant(bytes),
            Down::Described(digest) => self.described(digest),
            Down::Program(bytes) => self.staging.piece(&bytes),
            Down::NoProgram(why) => self.staging.refused(&why),
            Down::Ping => {}
        }
    }

    pub(super) fn command(&mut self, command: HostCommand) {
        match command {
            HostCommand::Start => self.start(),
            HostCommand::Ranks(command) => self.act(command),
            HostCommand::SampleCpu { number } => {
                let waiting = self.links.open().collect();
                self.cpu_question =
                    Some(CpuQuestion { number, sample: self.ranks.sample_cpu(), waiting });
                self.answer_cpu_sample();
            }
            HostCommand::OutputClosed(stream) => self.relay.deafen(stream),
            HostCommand::InputEnd => self.ranks.readers.close(),
            HostCommand::Finish => {
                self.ranks.stop();
                self.finishing = Some(Draining::new(self.now()));
            }
        }
    }

    /// Every host is there: our part of the tree of collective calls is known, and ranks may start.
    pub(super) fn start(&mut self) {
        if self.starting || self.own.is_some() {
            return;
        }
        self.starting = true;
        self.branches = self.links.open().collect();
        let share = self.ranks.share().clone();
        let branch = |link: &usize| {
            let hosts = self.links.hosts(*link);
            let Some((host, _)) = hosts.first() else {
                return Branch { host: HostId(0), ranks: Vec::new() };
            };
            Branch { host: HostId(*host), ranks: ranks_of(hosts, &share.host_of) }
        };
        let branches = self.branches.iter().map(branch).collect();
        match BootstrapServer::node(share, branches) {
            Ok(boot) => self.ranks.boot = boot,
            Err(error) => {
                let text = format!("the tree of hosts does not fit the map: {error}");
                self.ranks.stop();
                self.events.push(RankEvent::StartFailed { rank: None, code: CODE_LAUNCH, text });
            }
        }
    }

    /// Carries out what was decided, here or by the root.
    pub(super) fn act(&mut self, action: Command) {
        match action {
            Command::ExitDecision { code, cause } => {
                self.ranks.stop();
                self.ranks.readers.close();
                self.ranks.boot.publish_exit(code, cause);
            }
            // Only the root asks.
            Command::SampleCpu => self.decide(Event::CpuSampled { starved: false }),
            Command::QuitUnclaimed => self.ranks.quit_unclaimed(),
            Command::Forward(signal) => self.ranks.to_groups(signal),
            Command::End(signal) => {
                self.ranks.stop();
                self.ranks.readers.close();
                self.ranks.end(signal);
            }
            Command::FindOrphans => {
                self.ranks.stop();
                self.ranks.readers.close();
                self.cleaning_up = true;
                self.told_left = None;
                self.reap();
            }
            Command::EndOrphans(signal) => {
                let links = &self.links;
                self.ranks.end_orphans(signal, |pid| links.is_ours(pid));
            }
            Command::Finish => self.over = true,
        }
    }

    pub(super) fn reap(&mut self) {
        let mut events = Vec::new();
        let others = self.ranks.reap(&self.poller, &mut events);
        for (pid, end) in others.ended {
            self.links.child_ended(pid, end);
        }
        self.happened(events);
        if !self.cleaning_up && !self.is_through() {
            return;
        }
        let left = others.left && {
            let links = self.links.processes();
            links == 0
                || processes::children(getpid().as_raw())
                    .iter()
                    .any(|pid| !self.links.is_ours(*pid))
        };
        if self.own.is_some() {
            self.decide(Event::Orphans { left });
        } else if !self.cleaning_up {
            self.bare = !left;
        } else if self.told_left != Some(left) || left {
            self.told_left = Some(left);
            self.up(&Up::Orphans { host: self.index, left });
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
            self.queue(&Up::Orphans { host: self.index, left: false });
            self.finishing = Some(Draining::new(self.now()));
        }
    }
}
