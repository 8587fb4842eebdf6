//! All agents of a tree in one process: for the in-memory provider and for tests.

use std::collections::VecDeque;
use std::ops::Range;

use super::{Action, Branch, Collective, Node, ProtocolError, TreeMessage, groups, ranks_by_host};
use crate::frame::Frame;
use crate::rank::{HostId, Rank};

/// The machines of a job and how they are linked. Machine `h` is that of host `h`; with more than
/// one host the last is the root, which has no ranks.
#[derive(Debug)]
pub(crate) struct Tree {
    pub(crate) machines: Vec<Collective>,
    /// Machine above, and the place among its branches.
    pub(crate) above: Vec<Option<(usize, usize)>>,
    /// Machines below, in the order of branches.
    pub(crate) below: Vec<Vec<usize>>,
    host_of: Vec<HostId>,
}

impl Tree {
    /// Machines for one rank per element of `host_of`; the element is its host. Hosts are numbered
    /// without gaps from 0, each has a rank. `degree` is the out-degree of the tree, 0 a star.
    pub(crate) fn new(host_of: &[HostId], degree: usize) -> Result<Self, ProtocolError> {
        let ranks = ranks_by_host(host_of);
        let hosts = ranks.len();
        let size = u32::try_from(host_of.len()).unwrap_or(u32::MAX);
        let below = |range: Range<usize>| -> Vec<Rank> { ranks[range].concat() };
        let split = |range: Range<usize>| groups(range, if hosts > 1 { degree } else { 1 });
        let branches = |range: Range<usize>| -> Vec<Branch> {
            let branch = |range: Range<usize>| Branch {
                host: HostId(u32::try_from(range.start).unwrap_or(u32::MAX)),
                ranks: below(range),
            };
            split(range).map(branch).collect()
        };
        let roots = usize::from(hosts != 1);
        let mut tree = Self {
            machines: Vec::with_capacity(hosts + roots),
            above: vec![None; hosts + roots],
            below: vec![Vec::new(); hosts + roots],
            host_of: host_of.to_vec(),
        };
        let mut specs: Vec<Option<Node>> = vec![None; hosts];
        // Each entry: a machine and the hosts below it.
        let mut open = VecDeque::from([(hosts, 0..hosts)]);
        while let Some((above, range)) = open.pop_front() {
            for (index, group) in split(range).enumerate() {
                let (own, rest) = (group.start, group.start + 1..group.end);
                let host = HostId(u32::try_from(own).unwrap_or(u32::MAX));
                let parent = roots > 0;
                specs[own] = Some(Node {
                    size,
                    host,
                    ranks: ranks[own].clone(),
                    branches: branches(rest.clone()),
                    parent,
                });
                if parent {
                    tree.above[own] = Some((above, index));
                    tree.below[above].push(own);
                }
                open.push_back((own, rest));
            }
        }
        let root = (roots > 0).then(|| Node {
            size,
            host: HostId(0),
            ranks: Vec::new(),
            branches: branches(0..hosts),
            parent: false,
        });
        for node in specs.into_iter().flatten().chain(root) {
            tree.machines.push(Collective::node(node)?);
        }
        Ok(tree)
    }

    /// The machine of a rank's host.
    pub(crate) fn machine_of(&self, rank: Rank) -> Option<usize> {
        self.host_of.get(rank.0 as usize).map(|host| host.0 as usize)
    }

    /// As [`Collective::handle`], over the whole tree.
    pub(crate) fn handle(
        &mut self,
        from: Rank,
        frame: &Frame<'_>,
    ) -> Result<Vec<Action>, ProtocolError> {
        let at = self.find(from)?;
        let actions = self.machines[at].handle(from, frame)?;
        self.settle(at, actions)
    }

    /// As [`Collective::fini`], over the whole tree.
    pub(crate) fn fini(&mut self, from: Rank) -> Result<Vec<Action>, ProtocolError> {
        let at = self.find(from)?;
        let actions = self.machines[at].fini(from)?;
        self.settle(at, actions)
    }

    /// As [`Collective::refuse_all`], over the whole tree.
    pub(crate) fn refuse_all(&mut self, reason: &str) -> Vec<Action> {
        // Every machine by itself: nothing can go wrong on a link.
        let refused = self.machines.iter_mut().flat_map(|machine| {
            let actions = machine.refuse_all(reason);
            while machine.poll_transmit().is_some() {}
            actions
        });
        refused.collect()
    }

    /// As [`Collective::stuck`], over the whole tree.
    pub(crate) fn stuck(&self) -> Option<String> {
        self.machines.iter().rev().find_map(Collective::stuck)
    }

    fn find(&self, from: Rank) -> Result<usize, ProtocolError> {
        let size = u32::try_from(self.host_of.len()).unwrap_or(u32::MAX);
        self.machine_of(from).ok_or(ProtocolError::Outside { from, size })
    }

    /// Carries messages until there are none.
    fn settle(&mut self, at: usize, actions: Vec<Action>) -> Result<Vec<Action>, ProtocolError> {
        let (mut all, mut busy) = (actions, VecDeque::from([at]));
        while let Some(at) = busy.pop_front() {
            while let Some(message) = self.machines[at].poll_transmit() {
                match message {
                    TreeMessage::Up(message) => {
                        let Some((above, index)) = self.above[at] else { continue };
                        all.extend(self.machines[above].from_child(index, message)?);
                        busy.push_back(above);
                    }
                    TreeMessage::Down { to, message } => {
                        for index in to {
                            let below = self.below[at][index];
                            all.extend(self.machines[below].from_parent(message.clone())?);
                            busy.push_back(below);
                        }
                    }
                }
            }
        }
        Ok(all)
    }
}
