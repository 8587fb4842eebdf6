//! What is known of the hosts below an agent, the root or the doctor, and what is awaited of them.

use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, Instant};

use bootstrap::collective::{Branch, groups};
use bootstrap::{HostId, Rank};

use super::links::Links;
use super::state::{CpuQuestion, Phase};
use crate::agent::local_ranks::CpuSample;
use crate::event_loop::ms;
use crate::plan::{HostEntry, StdinTo};
use crate::tree::message::{Down, HostCommand, Member, Up, encode};
use crate::tree::told::Part;

impl Links {
    /// Links to the first hosts of groups; their numbers.
    pub(crate) fn add_groups(&mut self, hosts: &[Member]) -> Vec<u32> {
        let groups = groups(0..hosts.len(), self.ssh.out_degree as usize);
        groups.into_iter().filter_map(|group| self.add(hosts[group].to_vec())).collect()
    }

    /// Links to all hosts of a job: one for each time that this host is in the list, and the groups
    /// of the others.
    pub(crate) fn add_all(&mut self, hosts: &[HostEntry]) -> Vec<u32> {
        let members = (0..).zip(hosts.iter().cloned());
        let (here, others): (Vec<Member>, Vec<Member>) = members.partition(|(_, host)| host.here);
        let mut tried: Vec<u32> = here.into_iter().filter_map(|one| self.add(vec![one])).collect();
        tried.extend(self.add_groups(&others));
        tried
    }

    /// A link could not be made: the hosts behind it are tried without it.
    pub(crate) fn add_rest(&mut self, link: usize) -> Vec<u32> {
        let rest = self.hosts(link).get(1..).unwrap_or_default().to_vec();
        self.remove_hosts(link, &rest);
        self.add_groups(&rest)
    }

    /// Hosts that could not be reached from where they should have been. Only what was given to the
    /// link may come back. `None`: there are none, or they were tried from here before.
    pub(crate) fn take_back(
        &mut self,
        link: usize,
        mut orphans: Vec<Member>,
    ) -> Option<Vec<Member>> {
        orphans.retain(|(host, _)| self.is_behind(link, *host));
        self.remove_hosts(link, &orphans);
        let first = orphans.first()?.0;
        (!self.tried.contains(&first)).then_some(orphans)
    }

    /// Whether a link may speak about this host.
    pub(crate) fn is_behind(&self, link: usize, host: u32) -> bool {
        self.hosts(link).binary_search_by_key(&host, |(own, _)| *own).is_ok()
    }

    /// Numbers of the hosts behind a link.
    pub(crate) fn numbers(&self, link: usize) -> Vec<u32> {
        self.hosts(link).iter().map(|(host, _)| *host).collect()
    }

    /// The host at the other end of a link.
    pub(crate) fn host(&self, link: usize) -> Option<u32> {
        self.hosts(link).first().map(|(host, _)| *host)
    }

    /// Which ssh client logs in for a link, and why; none where the user has named it.
    pub(crate) fn client(&self, link: usize) -> Option<String> {
        let link = self.links.get(link).filter(|link| !link.is_here())?;
        (self.ssh.command == spawner_ssh::auto::NAME).then(|| match &link.program {
            None => "the built-in ssh client".to_owned(),
            Some(reason) => format!("the ssh program ({reason})"),
        })
    }

    /// Hosts by the client that logs in.
    pub(crate) fn clients(&self) -> BTreeMap<String, Vec<u32>> {
        let mut found: BTreeMap<String, Vec<u32>> = BTreeMap::new();
        for link in 0..self.links.len() {
            if let (Some(client), Some(host)) = (self.client(link), self.host(link)) {
                found.entry(client).or_default().push(host);
            }
        }
        found
    }

    /// Whether no login is under way any more, or waits for its turn.
    pub(crate) fn is_logged_in(&self) -> bool {
        self.links.iter().all(|link| matches!(link.phase, Phase::Open | Phase::Over))
    }

    /// Nothing more is to be said about the start of a link's subtree.
    pub(crate) fn stands(&mut self, link: usize) {
        self.links[link].standing = true;
    }

    /// Whether nothing below is open any more; without links that is so from the beginning.
    pub(crate) fn is_standing(&self) -> bool {
        self.links.iter().all(|link| link.standing)
    }

    /// Whether all that is open is drained.
    pub(crate) fn is_done(&self) -> bool {
        self.open().all(|link| self.links[link].done)
    }

    /// Every host is there: the branches of the tree of collective calls.
    pub(crate) fn make_branches(&mut self, host_of: &[HostId]) -> Vec<Branch> {
        self.branches = self.open().collect();
        let branch = |link: &usize| {
            let hosts = self.hosts(*link);
            let host = HostId(hosts.first().map_or(0, |(host, _)| *host));
            Branch { host, ranks: ranks_of(hosts, host_of) }
        };
        self.branches.iter().map(branch).collect()
    }

    /// What each of these branches speaks for.
    pub(crate) fn parts(&self, branches: &[Branch]) -> Vec<Part> {
        let part =
            |(link, branch): (&usize, &Branch)| Part::behind(&branch.ranks, self.hosts(*link));
        self.branches.iter().zip(branches).map(part).collect()
    }

    pub(crate) fn branch(&self, link: usize) -> Option<usize> {
        self.branches.iter().position(|other| *other == link)
    }

    /// A message to every branch.
    pub(crate) fn send_to_all_branches(&mut self, down: Down) {
        let all: Vec<usize> = (0..self.branches.len()).collect();
        self.send_to_branches(&all, down);
    }

    /// A message to these branches.
    pub(crate) fn send_to_branches(&mut self, to: &[usize], down: Down) {
        let (lane, message) = (down.lane(), encode(&down));
        for link in
            to.iter().filter_map(|branch| self.branches.get(*branch)).copied().collect::<Vec<_>>()
        {
            self.send_encoded(link, lane, &message);
        }
    }

    /// Links behind which ranks read standard input.
    pub(crate) fn readers(&self, stdin: StdinTo, host_of: &[HostId]) -> HashSet<usize> {
        let open = self.open();
        match stdin {
            StdinTo::None => HashSet::new(),
            StdinTo::All => open.collect(),
            StdinTo::Rank(rank) => {
                let Some(host) = host_of.get(rank.0 as usize) else { return HashSet::new() };
                open.filter(|link| self.is_behind(*link, host.0)).collect()
            }
        }
    }

    /// Sends a piece of standard input to those.
    pub(crate) fn send_input(&mut self, readers: HashSet<usize>, down: &Down) {
        for link in &readers {
            self.send(*link, down);
        }
        self.input = Some((readers, false));
    }

    /// Asks every link what CPU time the ranks will have had after `rest`, and waits for their
    /// answers and that of this host. A question that is open is given up.
    pub(crate) fn ask_cpu(&mut self, number: u32, rest: Duration) {
        let until = Instant::now() + rest;
        let waiting: HashSet<usize> = self.open().collect();
        for link in &waiting {
            // Sending takes its time; all ranks are to have the same.
            let rest = until.saturating_duration_since(Instant::now()).as_micros();
            let rest = u64::try_from(rest).unwrap_or(u64::MAX);
            self.send(*link, &Down::HostCommand(HostCommand::SampleCpu { number, rest }));
        }
        // Whole milliseconds alone, so that the answer is not late for the rest of one. The question
        // was under way for some of it.
        let own =
            self.poller.now().saturating_add(ms(rest.saturating_sub(Duration::from_micros(1))));
        let sample = CpuSample::default();
        self.cpu_question = Some(CpuQuestion { number, sample, own: Some(own), waiting });
    }

    /// When this host is to be looked at for an open question.
    pub(crate) fn cpu_look_due(&self) -> Option<u64> {
        self.cpu_question.as_ref().and_then(|question| question.own)
    }

    /// What the ranks of this host have had.
    pub(crate) fn own_sample(&mut self, sample: CpuSample) {
        if let Some(open) = &mut self.cpu_question {
            open.own = None;
            open.sample = open.sample.and(sample);
        }
    }

    /// The question, once all have answered.
    pub(crate) fn cpu_answer(&mut self) -> Option<CpuQuestion> {
        let all =
            |question: &mut CpuQuestion| question.own.is_none() && question.waiting.is_empty();
        self.cpu_question.take_if(all)
    }

    /// Books what a link has said, or hands it back.
    pub(crate) fn heard(&mut self, link: usize, up: Up) -> Option<Up> {
        match up {
            Up::Standing => self.stands(link),
            Up::CpuSampled { number, sample } => {
                if let Some(open) = self.cpu_question.as_mut().filter(|open| open.number == number)
                    && open.waiting.remove(&link)
                {
                    open.sample = open.sample.and(sample);
                }
            }
            Up::InputTaken { more } => {
                if let Some((waiting, any)) = &mut self.input
                    && waiting.remove(&link)
                {
                    *any |= more;
                }
            }
            Up::Done { orphans } => {
                if !std::mem::replace(&mut self.links[link].done, true) {
                    self.orphans = self.orphans.saturating_add(orphans);
                }
            }
            Up::Ping => {}
            up => return Some(up),
        }
        None
    }

    /// A link broke: nothing more is awaited of it. After its farewell that is no loss.
    pub(crate) fn lost(&mut self, link: usize) -> bool {
        self.stands(link);
        if let Some(question) = &mut self.cpu_question {
            question.waiting.remove(&link);
        }
        if let Some((waiting, _)) = &mut self.input {
            waiting.remove(&link);
        }
        !self.links[link].done
    }
}

/// Ranks of all `hosts`, in the order of the hosts, each host's ascending.
fn ranks_of(hosts: &[Member], host_of: &[HostId]) -> Vec<Rank> {
    let wanted: std::collections::HashMap<u32, usize> =
        hosts.iter().enumerate().map(|(at, (host, _))| (*host, at)).collect();
    let mut each = vec![Vec::new(); hosts.len()];
    for (rank, host) in (0..).zip(host_of) {
        if let Some(at) = wanted.get(&host.0) {
            each[*at].push(Rank(rank));
        }
    }
    each.concat()
}
