//! What comes from the parent, and how it is carried out here.

use bootstrap::HostId;
use bootstrap::collective::Branch;
use nix::unistd::getpid;

use super::driver::{Driver, LookUp, Piece};
use super::setup::ranks_of;
use crate::agent::boot::Boot;
use crate::agent::capture::Draining;
use crate::agent::machine::{CODE_LAUNCH, Command, Event};
use crate::agent::{RankEvent, tree};
use crate::event_loop::Role;
use crate::tree::message::{Down, Order, Up};

impl Driver<'_> {
    pub(super) fn down(&mut self, down: Down) {
        match down {
            Down::Setup { .. } => self.orphaned("it sent a second setup"),
            Down::Order(order) => {
                let now = self.now();
                self.links.send_all(&self.poller, &Down::Order(order), now);
                self.order(order);
            }
            Down::Bootstrap(down) => {
                if let Err(error) = self.body.boot.letter_of_parent(&self.poller, down) {
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
                self.body.readers.load(bytes.to_vec());
                self.input = Some(Piece { own: false, waiting: targets, more: false });
            }
            Down::Credit(bytes) => self.relay.grant(bytes),
            Down::Described(digest) => self.described(digest),
            Down::Program(bytes) => self.staging.piece(&bytes),
            Down::NoProgram(why) => self.staging.refused(&why),
            Down::Ping => {}
        }
    }

    pub(super) fn order(&mut self, order: Order) {
        match order {
            Order::Start => self.start(),
            Order::Ranks(command) => self.act(command),
            Order::SampleCpu { number } => {
                let waiting = self.links.open().collect();
                self.look = Some(LookUp { number, look: self.body.look(), waiting });
                self.answer_look();
            }
            Order::Deaf(stream) => self.relay.deafen(stream),
            Order::InputEnd => self.body.readers.close(),
            Order::Finish => {
                self.body.stop();
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
        let share = self.body.share().clone();
        let branch = |link: &usize| {
            let hosts = self.links.hosts(*link);
            let Some((host, _)) = hosts.first() else {
                return Branch { host: HostId(0), ranks: Vec::new() };
            };
            Branch { host: HostId(*host), ranks: ranks_of(hosts, &share.host_of) }
        };
        let branches = self.branches.iter().map(branch).collect();
        match Boot::node(share, branches) {
            Ok(boot) => self.body.boot = boot,
            Err(error) => {
                let text = format!("the tree of hosts does not fit the map: {error}");
                self.body.stop();
                self.events.push(RankEvent::StartFailed { rank: None, code: CODE_LAUNCH, text });
            }
        }
    }

    /// Carries out what was decided, here or by the root.
    pub(super) fn act(&mut self, action: Command) {
        match action {
            Command::Notice { code, cause } => {
                self.body.stop();
                self.body.readers.close();
                self.body.boot.notice(code, cause);
            }
            // Only the root asks.
            Command::Look => self.decide(Event::Looked { starved: false }),
            Command::QuitUnclaimed => self.body.quit_unclaimed(),
            Command::Forward(signal) => self.body.to_groups(signal),
            Command::End(signal) => {
                self.body.stop();
                self.body.readers.close();
                self.body.end(signal);
            }
            Command::Sweep => {
                self.body.stop();
                self.body.readers.close();
                self.sweeping = true;
                self.told_left = None;
                self.reap();
            }
            Command::EndStrays(signal) => {
                let links = &self.links;
                self.body.end_strays(signal, |pid| links.is_ours(pid));
            }
            Command::Finish => self.over = true,
        }
    }

    pub(super) fn reap(&mut self) {
        let mut events = Vec::new();
        let others = self.body.reap(&self.poller, &mut events);
        for (pid, end) in others.ended {
            self.links.child_ended(pid, end);
        }
        self.happened(events);
        if !self.sweeping && !self.is_through() {
            return;
        }
        let left = others.left && {
            let links = self.links.processes();
            links == 0
                || tree::children(getpid().as_raw()).iter().any(|pid| !self.links.is_ours(*pid))
        };
        if self.own.is_some() {
            self.decide(Event::Strays { left });
        } else if !self.sweeping {
            self.bare = !left;
        } else if self.told_left != Some(left) || left {
            self.told_left = Some(left);
            self.up(&Up::Strays { host: self.index, left });
        }
    }

    /// Whether the ranks of this host have all run and ended, without an order to end them.
    fn is_through(&self) -> bool {
        self.starting && self.own.is_none() && self.body.is_through()
    }

    /// A host that has nothing more to do for the job, and has left nothing behind, says so and leaves without being told: the
    /// last ones of a job do not wait for a question and its answer.
    pub(super) fn step_leave(&mut self) {
        let through = self.bare && !self.sweeping && self.is_through();
        if through && self.finishing.is_none() && self.body.capture.is_over() {
            self.queue(&Up::Strays { host: self.index, left: false });
            self.finishing = Some(Draining::new(self.now()));
        }
    }
}
