//! Provider: the ranks of a job as threads of one process. For tests, and for programs that want to
//! try a job without a launcher.
//!
//! Hosts are real as far as one process can have them: each has a [`NodeShm`] and host memory of
//! its own.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::client::{Channel, Client, Reply, Request};
use crate::collective::{Action, ProtocolError, To, Tree};
use crate::memfd;
use crate::node_shm::{NodeShm, NodeShmSpec};
use crate::service::{Bootstrap, Error, ExitNotifier, HostId, Rank, Shared, call_name};
use crate::sys::Mapping;
use crate::wait::{Bounds, Wait};

/// Out-degree of the tree of agents, unless a test wants another.
const DEGREE: usize = 32;

/// A job of `size` ranks on one host; element `r` is rank `r`'s connection, to be moved to its
/// thread.
///
/// A connection that is dropped without [`Bootstrap::fini`] fails the calls of all others.
///
/// # Errors
/// No memory or descriptors for the node memory, or no ranks.
pub fn job(size: u32) -> Result<Vec<Box<dyn Bootstrap>>, Error> {
    job_on_hosts(&vec![HostId(0); size as usize])
}

/// As [`job`], with one rank per element of `host_of`; the element is its host. Hosts are numbered
/// without gaps from 0, in the order of their first rank.
///
/// # Errors
/// As [`job`]; also host numbers with gaps.
pub fn job_on_hosts(host_of: &[HostId]) -> Result<Vec<Box<dyn Bootstrap>>, Error> {
    job_with(host_of, Bounds::default())
}

/// As [`job_on_hosts`], with the agents of the hosts in a tree of another out-degree; 0 is a star.
///
/// # Errors
/// As [`job_on_hosts`].
pub fn job_on_tree(host_of: &[HostId], degree: usize) -> Result<Vec<Box<dyn Bootstrap>>, Error> {
    connect(host_of, degree, Bounds::default())
}

/// As [`job_on_hosts`], with other bounds on waits.
///
/// # Errors
/// As [`job_on_hosts`].
pub fn job_with(host_of: &[HostId], bounds: Bounds) -> Result<Vec<Box<dyn Bootstrap>>, Error> {
    connect(host_of, DEGREE, bounds)
}

fn connect(
    host_of: &[HostId],
    degree: usize,
    bounds: Bounds,
) -> Result<Vec<Box<dyn Bootstrap>>, Error> {
    let pages = pages(host_of)?;
    let during = "job";
    let tree = Tree::new(host_of, degree)
        .map_err(|error| Error::Argument { during, problem: error.to_string() })?;
    let ranks = || (0u32..).map(Rank).zip(host_of);
    let state = State { tree, inboxes: host_of.iter().map(|_| VecDeque::new()).collect() };
    let hub = Arc::new(Hub {
        host_of: host_of.to_vec(),
        bells: host_of.iter().map(|_| Condvar::new()).collect(),
        state: Mutex::new(state),
    });
    let mut clients: Vec<Box<dyn Bootstrap>> = Vec::with_capacity(host_of.len());
    for (rank, host) in ranks() {
        let page = Arc::clone(&pages[host.0 as usize]);
        let Some(place) = page.rank_info(rank) else { continue };
        page.slot(place.local).set_pid(std::process::id().cast_signed());
        let peer = Peer { hub: Arc::clone(&hub), rank, bounds, finished: false };
        clients.push(Box::new(Client::new(peer, place, page)));
    }
    Ok(clients)
}

fn pages(host_of: &[HostId]) -> Result<Vec<Arc<NodeShm>>, Error> {
    let problem = |problem: String| Error::Argument { during: "job", problem };
    let mut hosts = 0;
    for (rank, host) in host_of.iter().enumerate() {
        if host.0 > hosts {
            return Err(problem(format!(
                "rank {rank} is on host {}, the next new host is {hosts}",
                host.0
            )));
        }
        hosts += u32::from(host.0 == hosts);
    }
    if hosts == 0 {
        return Err(problem("a job has at least 1 rank".to_owned()));
    }
    let ranks = || (0u32..).map(Rank).zip(host_of);
    let page = |host: HostId| {
        let local_ranks: Vec<Rank> =
            ranks().filter(|(_, h)| **h == host).map(|(rank, _)| rank).collect();
        NodeShm::create(&NodeShmSpec { host, hosts, local_ranks: &local_ranks, host_of })
            .map(Arc::new)
    };
    (0..hosts).map(|host| Ok(page(HostId(host))?)).collect()
}

enum Item {
    Reply { seq: u32, reply: Reply },
    Refuse(Arc<str>),
}

struct State {
    tree: Tree,
    inboxes: Vec<VecDeque<Item>>,
}

struct Hub {
    host_of: Vec<HostId>,
    bells: Vec<Condvar>,
    state: Mutex<State>,
}

impl Hub {
    /// The state stays consistent when a rank's thread panics: no code of a user runs under the
    /// lock.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ranks_on(&self, host: HostId) -> impl Iterator<Item = Rank> {
        (0u32..)
            .map(Rank)
            .zip(&self.host_of)
            .filter(move |(_, h)| **h == host)
            .map(|(rank, _)| rank)
    }

    fn give(&self, state: &mut State, to: Rank, item: Item) {
        state.inboxes[to.0 as usize].push_back(item);
        self.bells[to.0 as usize].notify_all();
    }

    fn carry_out(&self, state: &mut State, actions: Vec<Action>) {
        for action in actions {
            if let Err(error) = self.carry_out_one(state, action) {
                let refusals = state.tree.refuse_all(&format!("no memory for the result: {error}"));
                return self.carry_out(state, refusals);
            }
        }
    }

    /// Nobody else ends a job in which ranks wait for one that is gone.
    fn refuse_if_stuck(&self, state: &mut State) {
        if let Some(reason) = state.tree.stuck() {
            let refusals = state.tree.refuse_all(&reason);
            self.carry_out(state, refusals);
        }
    }

    fn carry_out_one(&self, state: &mut State, action: Action) -> std::io::Result<()> {
        match action {
            Action::Release { to: To::Rank(to), seq } => {
                self.give(state, to, Item::Reply { seq, reply: Reply::Release })
            }
            Action::Release { to: To::Host(host), seq } => {
                for to in self.ranks_on(host) {
                    self.give(state, to, Item::Reply { seq, reply: Reply::Release });
                }
            }
            Action::Mapped { host, seq, bytes } => {
                let map = Arc::new(Mapping::read_only(&memfd::result(&bytes)?, bytes.len())?);
                for to in self.ranks_on(host) {
                    let reply = Reply::Mapped(Shared::Mapped(Arc::clone(&map)));
                    self.give(state, to, Item::Reply { seq, reply });
                }
            }
            Action::Data { to, seq, bytes } => {
                self.give(state, to, Item::Reply { seq, reply: Reply::Data(bytes.to_vec()) });
            }
            Action::HostMemory { host, seq, len } => {
                let memory = memfd::zeroed(len)?;
                let copies = self.ranks_on(host).map(|to| Ok((to, memory.try_clone()?)));
                for (to, fd) in copies.collect::<std::io::Result<Vec<(Rank, OwnedFd)>>>()? {
                    self.give(state, to, Item::Reply { seq, reply: Reply::Memory(fd) });
                }
            }
            Action::Refuse { to, reason, .. } => self.give(state, to, Item::Refuse(reason)),
        }
        Ok(())
    }
}

struct Peer {
    hub: Arc<Hub>,
    rank: Rank,
    bounds: Bounds,
    finished: bool,
}

impl Peer {
    fn next(&self, wait: &Wait, page: &NodeShm) -> Result<Item, Error> {
        let index = self.rank.0 as usize;
        let mut state = self.hub.lock();
        loop {
            if let Some(item) = state.inboxes[index].pop_front() {
                return Ok(item);
            }
            let slice = wait.slice(Some(page))?;
            state = self.hub.bells[index]
                .wait_timeout(state, slice)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }
}

fn protocol(during: &'static str) -> impl Fn(ProtocolError) -> Error {
    move |error| Error::Protocol { during, seen: error.to_string() }
}

impl Channel for Peer {
    fn call(&mut self, request: &Request<'_>, page: &Arc<NodeShm>) -> Result<Reply, Error> {
        let during = call_name(request.head.kind);
        for frame in request.frames() {
            let mut state = self.hub.lock();
            let actions = state.tree.handle(self.rank, &frame).map_err(protocol(during))?;
            self.hub.carry_out(&mut state, actions);
            self.hub.refuse_if_stuck(&mut state);
        }
        match self.next(&Wait::new(during, self.bounds.call), page)? {
            Item::Refuse(reason) => Err(Error::Refused { during, reason: reason.to_string() }),
            Item::Reply { seq, reply } if seq == request.head.seq => Ok(reply),
            Item::Reply { seq, .. } => {
                Err(Error::Protocol { during, seen: format!("an answer to call {seq}") })
            }
        }
    }

    fn fini(&mut self, _code: i32, page: &NodeShm) -> Result<(), Error> {
        let during = "fini";
        {
            let mut state = self.hub.lock();
            let actions = state.tree.fini(self.rank).map_err(protocol(during))?;
            self.finished = true;
            self.hub.carry_out(&mut state, actions);
            self.hub.refuse_if_stuck(&mut state);
        }
        let wait = Wait::new(during, self.bounds.fini);
        loop {
            match self.next(&wait, page)? {
                Item::Reply { seq: 0, reply: Reply::Release } => return Ok(()),
                Item::Refuse(_) => {}
                Item::Reply { seq, .. } => {
                    return Err(Error::Protocol {
                        during,
                        seen: format!("an answer to call {seq}"),
                    });
                }
            }
        }
    }

    fn exit_notifier(&self) -> ExitNotifier {
        ExitNotifier::NONE
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        if !self.finished {
            let mut state = self.hub.lock();
            let refusals =
                state.tree.refuse_all(&format!("rank {} left the job without farewell", self.rank));
            self.hub.carry_out(&mut state, refusals);
        }
    }
}
