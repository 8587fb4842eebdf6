//! Brings the hosts up: links, adoption of hosts that their own parents cannot reach, and the
//! decision to start.

use std::fs::File;
use std::path::{Path, PathBuf};

use bootstrap::HostId;
use bootstrap::collective::{Branch, Bytes, Collective, Node, groups};
use settings::deadlines::tree::{GATHER, START};

use super::driver::{Phase, Root};
use crate::agent::control::Supervise;
use crate::agent::machine::CODE_LAUNCH;
use crate::event_loop::Role;
use crate::node::ranks_of;
use crate::plan::{JobPlan, Reach, StageMode, StdinTo};
use crate::stage::{Action, Host, Offer, Staging, Stamp};
use crate::tree::hosts::HostStatus;
use crate::tree::message::{Common, Down, HostCommand, Member, encode};
use spawner_ssh::Ssh;
use spawner_ssh::diagnosis::{Class, Failure, Step};

/// What every agent is told, and how the first are started.
pub(super) fn common(plan: &JobPlan) -> (Ssh, Common) {
    let agent = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("gasnetrun_ibv"));
    let reach = &plan.reach;
    let ssh = Ssh {
        command: reach.command.clone(),
        options: reach.options.clone(),
        out_degree: reach.out_degree,
        agent: agent.into(),
        stage: reach.stage,
        keep: reach.keep,
        cache: reach.cache,
    };
    let common = Common {
        job_id: plan.job_id.clone(),
        hosts: u32::try_from(plan.map.hosts.len()).unwrap_or(u32::MAX),
        runs: Common::runs(&plan.map.host_of),
        program: plan.program.clone().into(),
        argv: plan.argv.clone(),
        program_word: u32::try_from(plan.program_word).unwrap_or(0),
        staged: None,
        env: plan.env_for_hosts.clone(),
        directory: reach.directory.as_ref().unwrap_or(&plan.directory).into(),
        cpus_per_rank: plan.cpus_per_rank,
        stdin: match plan.stdin {
            StdinTo::None => None,
            StdinTo::All => Some(None),
            StdinTo::Rank(rank) => Some(Some(rank.0)),
        },
        exit_bound_ms: u64::try_from(plan.exit_bound.as_millis()).unwrap_or(u64::MAX),
        conduit_program: plan.conduit_program,
        verbose: plan.verbose,
        doctor: false,
        ssh: ssh.clone(),
    };
    (ssh, common)
}

/// The root's part in sending the program: it has it.
pub(super) fn host_of_root(plan: &JobPlan) -> Host {
    let Reach { stage: mode, keep, cache, .. } = plan.reach;
    Host { mode, keep, here: true, cache, job: plan.job_id.clone() }
}

/// Where the job's program is on this host.
fn program(plan: &JobPlan) -> PathBuf {
    let behind = plan.argv.get(plan.program_word).filter(|_| plan.program_word > 0);
    behind.map_or_else(|| plan.program.clone(), PathBuf::from)
}

/// What agents are told about the program; `None`: it is not sent.
fn offer(plan: &JobPlan, path: &Path) -> std::io::Result<Option<Offer>> {
    if plan.reach.stage == StageMode::Never {
        return Ok(None);
    }
    let data = File::open(path)?.metadata()?;
    Ok(Some(Offer {
        name: path.file_name().unwrap_or(path.as_os_str()).to_owned(),
        size: data.len(),
        stamp: Stamp::of(&data),
        same: plan.conduit_program,
    }))
}

impl Root<'_> {
    /// The first links: one for each time that this host is in the list, and the groups of the
    /// others.
    pub(super) fn start_links(&mut self) {
        let members = (0..).zip(self.control.plan.map.hosts.iter().cloned());
        let (here, others): (Vec<Member>, Vec<Member>) = members.partition(|(_, host)| host.here);
        for member in here {
            self.add_link(vec![member]);
        }
        let degree = self.control.plan.reach.out_degree as usize;
        for group in groups(0..others.len(), degree) {
            self.add_link(others[group].to_vec());
        }
    }

    /// Looks for the program while logins are under way, and completes what agents are told.
    pub(super) fn stage_program(&mut self) {
        let (now, mut events) = (self.now(), Vec::new());
        self.links.step(&self.control.poller, now, &mut events);
        let path = program(self.control.plan);
        let found = offer(self.control.plan, &path).unwrap_or_else(|error| {
            self.control.say(1, || format!("{} is not sent to any host: {error}", path.display()));
            None
        });
        self.common.staged = found.clone();
        self.staging = Staging::new(None, path, host_of_root(self.control.plan)).offering(found);
        self.links.set_common(Bytes::from(encode(&self.common).as_ref().clone()));
        self.link_events(events);
    }

    /// Sends what agents asked for.
    pub(super) fn step_staging(&mut self) {
        for link in std::mem::take(&mut self.describing) {
            // Reading the program takes its time: what agents say meanwhile is heard before their
            // silence counts.
            let described = Down::Described(self.staging.hash());
            let now = self.now();
            self.links.send(&self.control.poller, link, &described, now);
        }
        while let Some(action) = self.staging.next() {
            // The root has no parent and no ranks.
            if let Action::Give(link, down) = action {
                let now = self.now();
                self.links.send(&self.control.poller, link, &down, now);
            }
        }
    }

    fn add_link(&mut self, hosts: Vec<Member>) {
        let now = self.now();
        if let Some((host, _)) = hosts.first() {
            self.tried.insert(*host);
            self.hosts.update(*host, HostStatus::Reached(Step::Resolve));
        }
        self.links.add(hosts, now);
    }

    /// A link could not be made.
    pub(super) fn link_failed(&mut self, link: usize, failure: Failure) {
        self.standing.insert(link);
        if !matches!(self.phase, Phase::Starting | Phase::Running) {
            return;
        }
        let Some((host, _)) = self.links.hosts(link).first().cloned() else { return };
        self.host_status(host, HostStatus::Failed(failure));
        // The hosts behind it are tried without it, so that the table of failures is complete.
        let rest = self.links.take_rest(link);
        let degree = self.control.plan.reach.out_degree as usize;
        for group in groups(0..rest.len(), degree) {
            self.add_link(rest[group].to_vec());
        }
    }

    /// Hosts that could not be reached from where they should have been.
    pub(super) fn adopt(&mut self, link: usize, orphans: Vec<Member>) {
        // Only what was given to that link may come back.
        let mut orphans = orphans;
        orphans.retain(|(host, _)| self.links.hosts(link).iter().any(|(own, _)| own == host));
        self.links.remove_hosts(link, &orphans);
        let Some((first, _)) = orphans.first().cloned() else { return };
        if self.phase != Phase::Starting || self.tried.contains(&first) {
            return;
        }
        self.control
            .say(1, || format!("host {first} is not reached from its parent: started from here"));
        self.hosts.again(first);
        self.add_link(orphans);
    }

    pub(super) fn host_status(&mut self, host: u32, status: HostStatus) {
        if let HostStatus::Failed(failure) = &status {
            let (name, seen) = (self.hosts.name(host).to_owned(), failure.seen.clone());
            self.control.say(1, || format!("host {name}: {seen}"));
        } else if self.control.plan.verbose >= 2 {
            let (name, text) = (self.hosts.name(host).to_owned(), format!("{status:?}"));
            self.control.say(2, || format!("host {name}: {text}"));
        }
        self.hosts.update(host, status);
    }

    /// When the start must be looked at again.
    pub(super) fn start_deadline(&self) -> Option<u64> {
        if self.phase != Phase::Starting || self.control.job.machine.is_ending() {
            return None;
        }
        let limit = self.start_limit();
        Some(self.failing.map_or(limit, |at| limit.min(at.saturating_add(GATHER.ms()))))
    }

    fn start_limit(&self) -> u64 {
        let limit = self.control.plan.reach.start_timeout.unwrap_or(START.limit);
        u64::try_from(limit.as_millis()).unwrap_or(u64::MAX)
    }

    /// Starts the ranks when every host is there, or gives up.
    pub(super) fn step_start(&mut self) {
        if self.phase != Phase::Starting || self.control.job.machine.is_ending() {
            return;
        }
        let now = self.now();
        let standing = (0..self.links.len()).all(|link| self.standing.contains(&link));
        if self.hosts.failed() > 0 {
            self.failing.get_or_insert(now);
        }
        let late = now >= self.start_limit();
        let gathered = self.failing.is_some_and(|at| now >= at.saturating_add(GATHER.ms()));
        if late {
            let seconds = self.start_limit() / 1000;
            for host in self.hosts.unsettled() {
                let seen = format!("not ready within {seconds} s (--start-timeout)");
                self.hosts.update(host, HostStatus::Failed(Failure::new(Class::Timeout, seen)));
            }
        }
        if self.hosts.failed() > 0 && (late || gathered || (standing && self.hosts.is_settled())) {
            let table = self.hosts.table();
            let text = format!("not every host can take part\n  {table}");
            self.fail_start(None, CODE_LAUNCH, text);
        } else if standing && self.hosts.is_settled() {
            self.start_ranks();
        }
    }

    fn start_ranks(&mut self) {
        self.branches = self.links.open().collect();
        let branch = |link: &usize| {
            let hosts = self.links.hosts(*link);
            let host = HostId(hosts.first().map_or(0, |(host, _)| *host));
            Branch { host, ranks: ranks_of(hosts, &self.host_of) }
        };
        let branches = self.branches.iter().map(branch).collect();
        let node = Node {
            size: self.control.plan.size,
            host: HostId(0),
            ranks: Vec::new(),
            branches,
            parent: false,
        };
        match Collective::node(node) {
            Ok(calls) => self.calls = Some(calls),
            Err(error) => {
                let text = format!("the tree of hosts does not fit the map: {error}");
                return self.fail_start(None, CODE_LAUNCH, text);
            }
        }
        self.phase = Phase::Running;
        self.control.say(1, || "every host is ready: starting the ranks".to_owned());
        self.command(HostCommand::Start);
    }
}
