//! Reaches every host as a job would, and collects what its agent has found.

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Instant;

use bootstrap::collective::Bytes;
use nix::sys::prctl;
use nix::sys::signal::Signal;
use settings::deadlines::tree::{FAREWELL, START};
use spawner_ssh::diagnosis::{Class, Failure, Step};

use super::finding::{CLIENT, Finding, Health, clock};
use crate::agent::record::epoch_now;
use crate::event_loop::{self, Poller, Ready, Role, Signals, Token, ms};
use crate::link::{LinkEvent, Links};
use crate::plan::{HostEntry, Reach};
use crate::tree::hosts::HostStatus;
use crate::tree::message::{Common, Down, HostCommand, Up, encode};

/// What is to be examined.
#[derive(Clone, Debug)]
pub struct Request {
    /// The hosts; at least one.
    pub hosts: Vec<HostEntry>,
    /// How they are reached.
    pub reach: Reach,
    /// Working directory of jobs.
    pub directory: PathBuf,
    /// What ranks on other hosts would get on top of what a login there sets.
    pub env: Vec<(OsString, OsString)>,
}

/// Examines all hosts; one record for each, in their order. The process must have one thread;
/// afterwards it is a child sub-reaper. Ending the process ends everything that was started.
///
/// # Errors
/// The system refuses what is needed before the first host is reached.
pub fn examine(request: &Request) -> std::io::Result<Vec<Health>> {
    let mut doctor = Doctor::new(request)?;
    doctor.below.add_all(&request.hosts);
    event_loop::run(&mut doctor)?;
    doctor.below.cut_all();
    Ok(doctor.health)
}

struct Doctor<'a> {
    request: &'a Request,
    poller: Poller,
    signals: Signals,
    below: Links,
    health: Vec<Health>,
    /// Hosts about which all is known.
    settled: HashSet<u32>,
    /// When the agent of a link was told its part, seconds since the epoch.
    told: HashMap<usize, f64>,
    /// When it is over with waiting: for answers, then for the ends of agents.
    limit: u64,
    parting: bool,
}

impl<'a> Doctor<'a> {
    fn new(request: &'a Request) -> std::io::Result<Self> {
        prctl::set_child_subreaper(true)?;
        let poller = Poller::new(Instant::now())?;
        let signals = Signals::take(&poller, &[Signal::SIGCHLD])?;
        // A job of one rank on each host, none of which is started.
        let ranks: Vec<u32> = (0..).take(request.hosts.len()).collect();
        let common =
            Common::new(&request.reach, &request.directory, &request.env, ranks.len(), &ranks);
        let encoded = Bytes::from(encode(&common).as_ref().clone());
        let links = Links::new(&poller, common.ssh, encoded);
        let unknown = |host: &HostEntry| Health {
            host: host.name.clone(),
            failure: None,
            findings: Vec::new(),
        };
        Ok(Self {
            request,
            poller,
            signals,
            below: links,
            health: request.hosts.iter().map(unknown).collect(),
            settled: HashSet::new(),
            told: HashMap::new(),
            limit: ms(request.reach.start_timeout.unwrap_or(START.limit)),
            parting: false,
        })
    }

    fn give_up_hosts(&mut self) {
        let seen = format!("no answer within {} s (--start-timeout)", self.limit / 1000);
        for host in (0..).take(self.request.hosts.len()) {
            self.fail(host, Failure::new(Class::Timeout, seen.clone()));
        }
    }

    fn events(&mut self) {
        for event in std::mem::take(&mut self.below.events) {
            match event {
                LinkEvent::Open(link) => {
                    self.told.insert(link, epoch_now());
                    self.note_client(link);
                }
                LinkEvent::Up(link, up) => self.heard(link, up),
                LinkEvent::Failed(link, failure) => {
                    self.note_client(link);
                    if let Some(host) = self.below.host(link) {
                        self.fail(host, failure);
                    }
                    self.below.add_rest(link);
                }
                LinkEvent::Lost(link, loss) => {
                    for host in self.below.numbers(link) {
                        self.fail(host, Failure::new(Class::Lost, loss.seen.clone()));
                    }
                }
            }
        }
    }

    /// What ssh client logs in from here. Agents say it of the hosts that they start.
    fn note_client(&mut self, link: usize) {
        if let (Some(client), Some(host)) = (self.below.client(link), self.below.host(link)) {
            self.note(host, client);
        }
    }

    fn note(&mut self, host: u32, client: String) {
        if let Some(health) = self.health.get_mut(host as usize) {
            health.findings.retain(|finding| finding.check != CLIENT);
            health.findings.push(Finding::ok(CLIENT, client));
        }
    }

    /// Keeps the first reason for a host about which nothing was known.
    fn fail(&mut self, host: u32, failure: Failure) {
        if let Some(health) = self.health.get_mut(host as usize)
            && self.settled.insert(host)
        {
            health.failure = Some(failure);
        }
    }

    fn heard(&mut self, link: usize, up: Up) {
        let behind = |host: u32| self.below.is_behind(link, host);
        match up {
            Up::Host { host, status: HostStatus::Failed(failure) } if behind(host) => {
                self.fail(host, failure);
            }
            Up::Host { host, status: HostStatus::Reached(Step::Ready) } if behind(host) => {
                self.settled.insert(host);
            }
            Up::Findings { host, at, findings } if behind(host) => {
                let before = self.told.get(&link).copied().unwrap_or(at);
                let clock = clock(before, at, epoch_now());
                if let Some(health) = self.health.get_mut(host as usize) {
                    health.findings.push(clock);
                    health.findings.extend(findings);
                }
            }
            Up::Client { client, mut hosts } => {
                hosts.retain(|host| behind(*host));
                hosts.into_iter().for_each(|host| self.note(host, client.clone()));
            }
            // Hosts that could not be reached from where they should have been.
            Up::Unreached(orphans) => {
                let orphans = self.below.take_back(link, orphans);
                let Some(first) = orphans.and_then(|orphans| self.below.add(orphans)) else {
                    return;
                };
                self.settled.remove(&first);
                if let Some(health) = self.health.get_mut(first as usize) {
                    health.failure = None;
                }
            }
            Up::Lost { mut hosts, loss } => {
                hosts.retain(|host| behind(*host));
                for host in hosts {
                    self.fail(host, Failure::new(Class::Lost, loss.seen.clone()));
                }
            }
            _ => {}
        }
    }

    fn part(&mut self) {
        self.below.give_up_silent();
        self.below.send_all(&Down::HostCommand(HostCommand::Finish));
        self.parting = true;
        self.limit = self.now() + FAREWELL.ms();
    }
}

impl Role for Doctor<'_> {
    fn sources(&self) -> (&Poller, &Signals) {
        (&self.poller, &self.signals)
    }

    fn is_over(&self) -> bool {
        self.parting && (!self.below.is_any_left() || self.now() >= self.limit)
    }

    fn step(&mut self) -> bool {
        if !self.parting {
            if self.now() >= self.limit {
                self.give_up_hosts();
            }
            if self.settled.len() >= self.health.len() {
                self.part();
            }
        }
        self.below.step();
        self.events();
        false
    }

    fn deadline(&self) -> Option<u64> {
        Some(self.below.deadline().map_or(self.limit, |at| at.min(self.limit)))
    }

    fn serve(&mut self, ready: Ready) {
        if ready.token != Token::Signals {
            self.below.serve(ready);
            self.events();
        } else if !self.signals.pending().is_empty() {
            self.below.reap();
        }
    }
}
