//! All agents of a tree in one process: for the in-memory provider and for tests.

use std::collections::VecDeque;

use super::{Action, Branch, Collective, Node, ProtocolError, TreeMessage, groups, ranks_by_host};
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
        let count = hosts + usize::from(hosts != 1);
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let mut tree = Self {
            machines: Vec::with_capacity(count),
            above: vec![None; count],
            below: vec![Vec::new(); count],
            host_of: host_of.to_vec(),
        };
        let mut nodes: Vec<Option<Node>> = vec![None; count];
        // Each entry: a machine and the hosts below it. A single host has no root above it.
        let mut open = VecDeque::from([if hosts == 1 { (0, 1..1) } else { (hosts, 0..hosts) }]);
        while let Some((at, below)) = open.pop_front() {
            let mut branches = Vec::new();
            for (index, group) in groups(below, degree).enumerate() {
                let host = HostId(number(group.start));
                branches.push(Branch { host, ranks: ranks[group.clone()].concat() });
                tree.above[group.start] = Some((at, index));
                tree.below[at].push(group.start);
                open.push_back((group.start, group.start + 1..group.end));
            }
            nodes[at] = Some(Node {
                size: number(host_of.len()),
                host: HostId(number(at)),
                ranks: ranks.get(at).cloned().unwrap_or_default(),
                branches,
                parent: tree.above[at].is_some(),
            });
        }
        for node in nodes.into_iter().flatten() {
            tree.machines.push(Collective::node(node)?);
        }
        Ok(tree)
    }

    /// The machine of a rank's host.
    pub(crate) fn machine_of(&self, rank: Rank) -> Option<usize> {
        self.host_of.get(rank.0 as usize).map(|host| host.0 as usize)
    }

    /// Gives the machine of a rank's host something of that rank, over the whole tree.
    pub(crate) fn give(
        &mut self,
        from: Rank,
        what: impl FnOnce(&mut Collective) -> Result<Vec<Action>, ProtocolError>,
    ) -> Result<Vec<Action>, ProtocolError> {
        let size = u32::try_from(self.host_of.len()).unwrap_or(u32::MAX);
        let at = self.machine_of(from).ok_or(ProtocolError::Outside { from, size })?;
        let actions = what(&mut self.machines[at])?;
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
