//! Reaches every host as a job would, and collects what its agent has found.

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bootstrap::collective::{Bytes, groups};
use nix::sys::prctl;
use nix::sys::signal::Signal;

use settings::deadlines::tree::{FAREWELL, START};
use spawner_ssh::Ssh;

use super::finding::{Finding, Health, clock};
use crate::agent::sys::{self, Reaped};
use crate::event_loop::{self, Poller, Ready, Role, Signals, Token};
use crate::link::{LinkEvent, Links};
use crate::plan::{HostEntry, Reach};
use crate::tree::hosts::HostStatus;
use crate::tree::message::{Common, Down, HostCommand, Member, Up, encode};
use spawner_ssh::diagnosis::{Class, Failure, Step};

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
    doctor.reach_all();
    event_loop::run(&mut doctor)?;
    doctor.links.cut_all();
    Ok(doctor.health)
}

struct Doctor<'a> {
    request: &'a Request,
    started: Instant,
    poller: Poller,
    signals: Signals,
    links: Links,
    health: Vec<Health>,
    /// Hosts about which all is known.
    settled: HashSet<u32>,
    /// Hosts that were tried from here, so that none is adopted for ever.
    tried: HashSet<u32>,
    /// When the agent of a link was told its part, seconds since the epoch.
    told: HashMap<usize, f64>,
    /// When it is over with waiting: for answers, then for the ends of agents.
    limit: u64,
    parting: bool,
}

fn epoch() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// What agents are told: a job of one rank on each host, none of which is started.
fn common(request: &Request) -> (Ssh, Bytes) {
    let reach = &request.reach;
    let ssh = Ssh {
        command: reach.command.clone(),
        options: reach.options.clone(),
        out_degree: reach.out_degree,
        agent: std::env::current_exe().unwrap_or_else(|_| PathBuf::from("gasnetrun_ibv")).into(),
        stage: reach.stage,
        keep: reach.keep,
        cache: reach.cache,
    };
    let hosts = u32::try_from(request.hosts.len()).unwrap_or(u32::MAX);
    let common = Common {
        job_id: "doctor".to_owned(),
        hosts,
        runs: (0..hosts).map(|host| (host, 1)).collect(),
        program: "/".into(),
        argv: vec!["doctor".into()],
        program_word: 0,
        staged: None,
        env: request.env.clone(),
        directory: reach.directory.as_ref().unwrap_or(&request.directory).into(),
        cpus_per_rank: 0,
        stdin: None,
        exit_bound_ms: 0,
        conduit_program: false,
        verbose: 0,
        doctor: true,
        ssh: ssh.clone(),
    };
    (ssh, Bytes::from(encode(&common).as_ref().clone()))
}

impl<'a> Doctor<'a> {
    fn new(request: &'a Request) -> std::io::Result<Self> {
        prctl::set_child_subreaper(true)?;
        let poller = Poller::new()?;
        let signals = Signals::take(&poller, &[Signal::SIGCHLD])?;
        let (ssh, common) = common(request);
        let unknown = |host: &HostEntry| Health {
            host: host.name.clone(),
            failure: None,
            findings: Vec::new(),
        };
        Ok(Self {
            request,
            started: Instant::now(),
            poller,
            signals,
            links: Links::new(ssh, common),
            health: request.hosts.iter().map(unknown).collect(),
            settled: HashSet::new(),
            tried: HashSet::new(),
            told: HashMap::new(),
            limit: ms(request.reach.start_timeout.unwrap_or(START.limit)),
            parting: false,
        })
    }

    fn reach_all(&mut self) {
        let members = (0..).zip(self.request.hosts.iter().cloned());
        let (here, others): (Vec<Member>, Vec<Member>) = members.partition(|(_, host)| host.here);
        for member in here {
            self.add(vec![member]);
        }
        self.add_groups(&others);
    }

    fn add_groups(&mut self, hosts: &[Member]) {
        for group in groups(0..hosts.len(), self.request.reach.out_degree as usize) {
            self.add(hosts[group].to_vec());
        }
    }

    fn add(&mut self, hosts: Vec<Member>) {
        self.tried.extend(hosts.first().map(|(host, _)| *host));
        let now = self.now();
        self.links.add(hosts, now);
    }

    /// The time for hosts to answer is over.
    fn give_up_hosts(&mut self) {
        let seen = format!("no answer within {} s (--start-timeout)", self.limit / 1000);
        for host in (0..).take(self.request.hosts.len()) {
            self.fail(host, Failure::new(Class::Timeout, seen.clone()));
        }
    }

    fn events(&mut self, events: Vec<LinkEvent>) {
        for event in events {
            match event {
                LinkEvent::Open(link) => drop(self.told.insert(link, epoch())),
                LinkEvent::Up(link, up) => self.heard(link, up),
                LinkEvent::Failed(link, failure) => {
                    if let Some((host, _)) = self.links.hosts(link).first().cloned() {
                        self.fail(host, failure);
                    }
                    // Those behind it are reached without it.
                    let rest = self.links.take_rest(link);
                    self.add_groups(&rest);
                }
                LinkEvent::Lost(link, loss) => {
                    let hosts: Vec<u32> =
                        self.links.hosts(link).iter().map(|(host, _)| *host).collect();
                    for host in hosts {
                        self.fail(host, Failure::new(Class::Lost, loss.seen.clone()));
                    }
                }
            }
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
        let behind = |host: u32| self.links.hosts(link).iter().any(|(own, _)| *own == host);
        match up {
            Up::Host { host, status: HostStatus::Failed(failure) } if behind(host) => {
                self.fail(host, failure);
            }
            Up::Host { host, status: HostStatus::Reached(Step::Ready) } if behind(host) => {
                self.settled.insert(host);
            }
            Up::Findings { host, at, findings } if behind(host) => {
                let before = self.told.get(&link).copied().unwrap_or(at);
                self.take(host, clock(before, at, epoch()), findings);
            }
            Up::Unreached(orphans) => self.adopt(link, orphans),
            Up::Lost { hosts, loss } => {
                let hosts: Vec<u32> = hosts.into_iter().filter(|host| behind(*host)).collect();
                for host in hosts {
                    self.fail(host, Failure::new(Class::Lost, loss.seen.clone()));
                }
            }
            _ => {}
        }
    }

    fn take(&mut self, host: u32, clock: Finding, findings: Vec<Finding>) {
        if let Some(health) = self.health.get_mut(host as usize) {
            health.findings = std::iter::once(clock).chain(findings).collect();
        }
    }

    /// Hosts that could not be reached from where they should have been are reached from here.
    fn adopt(&mut self, link: usize, mut orphans: Vec<Member>) {
        orphans.retain(|(host, _)| self.links.hosts(link).iter().any(|(own, _)| own == host));
        self.links.remove_hosts(link, &orphans);
        let Some((first, _)) = orphans.first().cloned() else { return };
        if self.tried.contains(&first) {
            return;
        }
        self.settled.remove(&first);
        if let Some(health) = self.health.get_mut(first as usize) {
            health.failure = None;
        }
        self.add(orphans);
    }

    /// Ends every agent.
    fn part(&mut self) {
        self.links.give_up_silent();
        let now = self.now();
        self.links.send_all(&self.poller, &Down::HostCommand(HostCommand::Finish), now);
        self.parting = true;
        self.limit = now + FAREWELL.ms();
    }
}

impl Role for Doctor<'_> {
    fn sources(&mut self) -> (&Poller, &Signals) {
        (&self.poller, &self.signals)
    }

    fn now(&self) -> u64 {
        ms(self.started.elapsed())
    }

    fn is_over(&self) -> bool {
        self.parting && (!self.links.is_any_left() || self.now() >= self.limit)
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
        let (now, mut events) = (self.now(), Vec::new());
        self.links.step(&self.poller, now, &mut events);
        self.events(events);
        false
    }

    fn deadline(&self) -> Option<u64> {
        Some(self.links.deadline().map_or(self.limit, |at| at.min(self.limit)))
    }

    fn serve(&mut self, ready: Ready) {
        if ready.token == Token::Signals {
            if !self.signals.pending().is_empty() {
                while let Reaped::Child(pid, end) = sys::reap() {
                    self.links.child_ended(pid, end);
                }
            }
            return;
        }
        let (now, mut events) = (self.now(), Vec::new());
        self.links.serve(&self.poller, ready, now, &mut events);
        self.events(events);
    }
}
