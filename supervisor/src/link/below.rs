//! The hosts below an agent, the root or the doctor: links to their agents, and what is awaited of
//! them.

use std::collections::HashSet;

use bootstrap::collective::{self, Branch, groups};
use bootstrap::{HostId, Rank};

use super::links::Links;
use crate::agent::local_ranks::CpuSample;
use crate::plan::{HostEntry, StdinTo};
use crate::tree::message::{Down, Member, Up};

/// A question about CPU times, with the answers so far and the links that owe one.
#[derive(Debug)]
pub(crate) struct CpuQuestion {
    pub(crate) number: u32,
    pub(crate) sample: CpuSample,
    waiting: HashSet<usize>,
}

#[derive(Debug)]
pub(crate) struct Below {
    pub(crate) links: Links,
    /// Links whose subtrees have said all there is to say about their start.
    standing: HashSet<usize>,
    /// Hosts that were tried from here, so that none is adopted for ever.
    tried: HashSet<u32>,
    /// Link of each branch of the collective machine.
    branches: Vec<usize>,
    done: HashSet<usize>,
    /// Processes left behind that were ended there.
    pub(crate) orphans: u32,
    pub(crate) cpu_question: Option<CpuQuestion>,
    /// Links that do not have the last piece of input yet, and whether anybody reads more.
    pub(crate) input: Option<(HashSet<usize>, bool)>,
}

impl Below {
    pub(crate) fn new(links: Links) -> Self {
        Self {
            links,
            standing: HashSet::new(),
            tried: HashSet::new(),
            branches: Vec::new(),
            done: HashSet::new(),
            orphans: 0,
            cpu_question: None,
            input: None,
        }
    }

    /// A link to the first of these hosts, whose number is returned.
    pub(crate) fn add(&mut self, hosts: Vec<Member>) -> Option<u32> {
        let first = hosts.first().map(|(host, _)| *host);
        self.tried.extend(first);
        self.links.add(hosts);
        first
    }

    /// Links to the first hosts of groups; their numbers.
    pub(crate) fn add_groups(&mut self, hosts: &[Member], degree: u32) -> Vec<u32> {
        let groups = groups(0..hosts.len(), degree as usize);
        groups.into_iter().filter_map(|group| self.add(hosts[group].to_vec())).collect()
    }

    /// Links to all hosts of a job: one for each time that this host is in the list, and the groups
    /// of the others.
    pub(crate) fn add_all(&mut self, hosts: &[HostEntry], degree: u32) -> Vec<u32> {
        let members = (0..).zip(hosts.iter().cloned());
        let (here, others): (Vec<Member>, Vec<Member>) = members.partition(|(_, host)| host.here);
        let mut tried: Vec<u32> = here.into_iter().filter_map(|one| self.add(vec![one])).collect();
        tried.extend(self.add_groups(&others, degree));
        tried
    }

    /// A link could not be made: the hosts behind it are tried without it.
    pub(crate) fn add_rest(&mut self, link: usize, degree: u32) -> Vec<u32> {
        let rest = self.links.take_rest(link);
        self.add_groups(&rest, degree)
    }

    /// Hosts that could not be reached from where they should have been. Only what was given to the
    /// link may come back. `None`: there are none, or they were tried from here before.
    pub(crate) fn take_back(
        &mut self,
        link: usize,
        mut orphans: Vec<Member>,
    ) -> Option<Vec<Member>> {
        orphans.retain(|(host, _)| self.is_behind(link, *host));
        self.links.remove_hosts(link, &orphans);
        let first = orphans.first()?.0;
        (!self.tried.contains(&first)).then_some(orphans)
    }

    /// Whether a link may speak about this host.
    pub(crate) fn is_behind(&self, link: usize, host: u32) -> bool {
        self.links.hosts(link).iter().any(|(own, _)| *own == host)
    }

    /// Hosts behind a link, its own first.
    pub(crate) fn hosts(&self, link: usize) -> Vec<u32> {
        self.links.hosts(link).iter().map(|(host, _)| *host).collect()
    }

    /// The host at the other end of a link.
    pub(crate) fn host(&self, link: usize) -> Option<u32> {
        self.links.hosts(link).first().map(|(host, _)| *host)
    }

    /// Nothing more is to be said about the start of a link's subtree.
    pub(crate) fn stands(&mut self, link: usize) {
        self.standing.insert(link);
    }

    /// Whether nothing below is open any more; without links that is so from the beginning.
    pub(crate) fn is_standing(&self) -> bool {
        (0..self.links.len()).all(|link| self.standing.contains(&link))
    }

    /// Whether all that is open is drained.
    pub(crate) fn is_done(&self) -> bool {
        self.links.open().all(|link| self.done.contains(&link))
    }

    /// Every host is there: the branches of the tree of collective calls.
    pub(crate) fn make_branches(&mut self, host_of: &[HostId]) -> Vec<Branch> {
        self.branches = self.links.open().collect();
        let branch = |link: &usize| {
            let hosts = self.links.hosts(*link);
            let host = HostId(hosts.first().map_or(0, |(host, _)| *host));
            Branch { host, ranks: ranks_of(hosts, host_of) }
        };
        self.branches.iter().map(branch).collect()
    }

    pub(crate) fn branch(&self, link: usize) -> Option<usize> {
        self.branches.iter().position(|other| *other == link)
    }

    /// A message of the collective machine.
    pub(crate) fn send_to_branches(&mut self, to: &[usize], message: collective::Down) {
        let down = Down::Bootstrap(message);
        let (lane, message) = (down.lane(), down.encode());
        for link in to.iter().filter_map(|branch| self.branches.get(*branch)) {
            self.links.send_encoded(*link, lane, &message);
        }
    }

    /// Links behind which ranks read standard input.
    pub(crate) fn readers(&self, stdin: StdinTo, host_of: &[HostId]) -> HashSet<usize> {
        let open = self.links.open();
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
            self.links.send(*link, down);
        }
        self.input = Some((readers, false));
    }

    /// Waits for answers to a question about CPU times from every link.
    pub(crate) fn ask_cpu(&mut self, number: u32, sample: CpuSample) {
        let waiting = self.links.open().collect();
        self.cpu_question = Some(CpuQuestion { number, sample, waiting });
    }

    /// The question, once all have answered.
    pub(crate) fn cpu_answer(&mut self) -> Option<CpuQuestion> {
        self.cpu_question.take_if(|question| question.waiting.is_empty())
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
                if self.done.insert(link) {
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
        !self.done.contains(&link)
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
