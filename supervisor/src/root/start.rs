//! Brings the hosts up: links, adoption of hosts that their own parents cannot reach, and the
//! decision to start.

use std::fs::File;
use std::path::{Path, PathBuf};

use bootstrap::HostId;
use bootstrap::collective::{Bytes, Collective, Node};
use bootstrap::program_identity;
use settings::deadlines::tree::{GATHER, START, START_AGAIN};
use spawner_ssh::diagnosis::{Class, Failure, Step};

use super::driver::{Phase, Root};
use crate::agent::control::Supervise;
use crate::agent::limits::{self, Short};
use crate::agent::machine::{CODE_LAUNCH, RankEvent};
use crate::agent::pmi_server::{PmiServer, open_mpi_library};
use crate::event_loop::{Role, ms};
use crate::plan::{JobPlan, Pmi, Ssh, StageMode, StdinTo};
use crate::stage::{Action, Host, Offer, Programs, Stamp};
use crate::tree::hosts::HostStatus;
use crate::tree::message::{Common, Down, HostCommand, Member, encode};

pub(super) fn common(plan: &JobPlan) -> Common {
    Common {
        job_id: plan.job_id.clone(),
        program: plan.program.clone().into(),
        argv: plan.argv.clone(),
        program_word: u32::try_from(plan.program_word).unwrap_or(0),
        programs: plan.programs.clone(),
        container: plan.container,
        binding: plan.binding,
        stdin: match plan.stdin {
            StdinTo::None => None,
            StdinTo::All => Some(None),
            StdinTo::Rank(rank) => Some(Some(rank.0)),
        },
        exit_bound_ms: ms(plan.exit_bound),
        conduit_program: plan.conduit_program,
        verbose: plan.verbose,
        pmi: plan.pmi,
        pmi_library: pmi_library(plan).map(Into::into),
        host_names: match plan.pmi {
            Pmi::Pmix => plan.map.hosts.iter().map(|host| host.name.clone()).collect(),
            _ => Vec::new(),
        },
        trace: plan.trace.as_ref().map(|memory| memory.wanted),
        doctor: false,
        ..Common::new(
            &plan.reach,
            &plan.directory,
            &plan.env_for_hosts,
            plan.map.hosts.len(),
            &plan.map.host_of,
        )
    }
}

/// The root's part in sending the program: it has it.
pub(super) fn host_of_root(plan: &JobPlan) -> Host {
    let Ssh { stage: mode, keep, cache, .. } = plan.reach.ssh;
    Host { mode, keep, here: true, cache, job: plan.job_id.clone(), at: 0, several: false }
}

/// Where the library by which ranks of Open MPI speak PMI-1 is on this host, if they need it.
fn pmi_library(plan: &JobPlan) -> Option<PathBuf> {
    // A host that lacks it, this one too, says so itself.
    (plan.pmi == Pmi::OpenMpi).then(open_mpi_library)?.ok()
}

/// Where the job's programs are on this host, each once, and whether they are GASNet's.
fn files(plan: &JobPlan) -> Vec<(PathBuf, bool)> {
    let mut files: Vec<(PathBuf, bool)> = Vec::new();
    if plan.container.is_some() {
        return files;
    }
    for program in plan.all_programs() {
        let file = PathBuf::from(program.own_file());
        if !files.iter().any(|(known, _)| *known == file) {
            files.push((file, program.gasnet));
        }
    }
    files
}

/// What agents are told about the program; `None`: it is not sent.
fn offer(plan: &JobPlan, path: &Path, gasnet: bool) -> std::io::Result<Option<Offer>> {
    if plan.reach.ssh.stage == StageMode::Never {
        return Ok(None);
    }
    let data = File::open(path)?.metadata()?;
    Ok(Some(Offer {
        name: path.file_name().unwrap_or(path.as_os_str()).to_owned(),
        size: data.len(),
        stamp: Stamp::of(&data),
        same: gasnet,
    }))
}

/// What a program is, where every host must have the same one itself.
fn identity_of(plan: &JobPlan, path: &Path, gasnet: bool) -> Option<u64> {
    let told = gasnet && plan.reach.same_program && plan.reach.ssh.stage == StageMode::Never;
    let file = File::open(path).ok().filter(|_| told)?;
    program_identity::identity(&file).ok()
}

impl Root<'_> {
    pub(super) fn start_links(&mut self) {
        let tried = self.below.add_all(&self.control.plan.map.hosts);
        self.reaching(tried);
    }

    fn reaching(&mut self, tried: impl IntoIterator<Item = u32>) {
        for host in tried {
            self.hosts.update(host, HostStatus::Reached(Step::Resolve));
        }
    }

    /// Looks for the programs while logins are under way, and completes what agents are told.
    pub(super) fn stage_program(&mut self) {
        self.below.step();
        let plan = self.control.plan;
        let mut found = Vec::new();
        let library = pmi_library(plan).map(|path| (path, true));
        let own = library.as_ref().map(|(path, _)| path.clone());
        for (path, gasnet) in files(plan).into_iter().chain(library) {
            let offer = offer(plan, &path, gasnet).unwrap_or_else(|error| {
                self.control
                    .say(1, || format!("{} is not sent to any host: {error}", path.display()));
                None
            });
            if own.as_ref() == Some(&path) {
                found.push((path, offer));
                continue;
            }
            if let Some(identity) = identity_of(plan, &path, gasnet) {
                self.common.identities.push((path.clone().into(), identity));
            }
            found.push((path, offer));
        }
        let told = found.iter().map(|(path, offer)| (path.clone().into(), offer.clone()));
        self.common.staged = told.collect();
        self.staging = Programs::new(found, &host_of_root(plan));
        self.below.common = Bytes::from(encode(&self.common).as_ref().clone());
        self.link_events();
    }

    pub(super) fn step_staging(&mut self) {
        for link in std::mem::take(&mut self.describing) {
            // Reading the program takes its time: what agents say meanwhile is heard before their
            // silence counts.
            let described = Down::Described(self.staging.hashes());
            self.below.send(link, &described);
        }
        while let Some(action) = self.staging.next() {
            // The root has no parent and no ranks.
            if let (_, Action::Give(link, down)) = action {
                self.below.send(link, &down);
            }
        }
    }

    pub(super) fn link_failed(&mut self, link: usize, failure: Failure) {
        self.below.stands(link);
        let Some(host) = self.below.host(link) else { return };
        if matches!(self.phase, Phase::Starting | Phase::Running) {
            self.host_status(host, HostStatus::Failed(failure));
            // So that the table of failures is complete.
            let tried = self.below.add_rest(link);
            self.reaching(tried);
        }
    }

    pub(super) fn adopt(&mut self, link: usize, orphans: Vec<Member>) {
        let Some(orphans) = self.below.take_back(link, orphans) else { return };
        if self.phase == Phase::Starting
            && let Some(first) = self.below.add(orphans)
        {
            self.control.say(1, || {
                format!("host {first} is not reached from its parent: started from here")
            });
            self.hosts.again(first);
            self.reaching([first]);
        }
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

    pub(super) fn start_deadline(&self) -> Option<u64> {
        if self.phase != Phase::Starting || self.control.machine.is_ending() {
            return None;
        }
        let limit = self.start_limit();
        let end = self.failing.map_or(limit, |at| limit.min(at.saturating_add(GATHER.ms())));
        Some(end.min(self.tell_at))
    }

    /// Tells the launcher which hosts are waited for, now and then.
    pub(super) fn tell_start(&mut self) {
        const SHOWN: usize = 3;
        let now = self.now();
        if self.phase == Phase::Starting && now >= self.tell_at {
            self.tell_at = now + START_AGAIN.ms();
            self.control.tell_start(self.hosts.start(SHOWN));
        }
    }

    fn start_limit(&self) -> u64 {
        ms(self.control.plan.reach.start_timeout.unwrap_or(START.limit))
    }

    /// Starts the ranks when every host is there, or gives up.
    pub(super) fn step_start(&mut self) {
        if self.phase != Phase::Starting || self.control.machine.is_ending() {
            return;
        }
        let now = self.now();
        let standing = self.below.is_standing();
        if self.hosts.failed > 0 {
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
        if self.hosts.failed > 0 && (late || gathered || (standing && self.hosts.is_settled())) {
            self.tell_clients_below();
            let table = self.hosts.table();
            let text = format!("not every host can take part\n  {table}");
            // A table, whose lines are ours.
            self.happened(&RankEvent::StartFailed { rank: None, code: CODE_LAUNCH, text });
        } else if standing && self.hosts.is_settled() {
            self.start_ranks();
        }
    }

    /// Makes room for the files of output, all of which are open here.
    fn make_room(&self) -> Result<(), Short> {
        let plan = self.control.plan;
        let files = if plan.output.directory.is_some() { 2 * u64::from(plan.size) } else { 0 };
        limits::make_room(plan.size, files).map(drop)
    }

    fn start_ranks(&mut self) {
        if let Err(short) = self.make_room() {
            return self.fail_start(None, CODE_LAUNCH, &short.to_string());
        }
        let branches = self.below.make_branches(&self.host_of);
        self.parts = self.below.parts(&branches);
        self.control.machine.group(branches.iter().map(|branch| branch.ranks.as_slice()));
        let plan = self.control.plan;
        self.pmi = PmiServer::of_root(plan, &self.control.poller, &self.host_of, &branches);
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
                return self.fail_start(None, CODE_LAUNCH, &text);
            }
        }
        self.phase = Phase::Running;
        self.tell_clients_below();
        self.control.say(1, || "every host is ready: starting the ranks".to_owned());
        self.command(HostCommand::Start);
    }
}
