//! Provider: the ranks of a job as threads of one process. For a job of one rank, for tests, and
//! for programs that want to try a job without a launcher.
//!
//! Hosts are real as far as one process can have them: each has a [`NodeShm`] and host memory of
//! its own.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::client::{Answer, Channel, Client, Reply, Request};
use crate::collective::{Action, Collective, ProtocolError, To, Tree, ranks_by_host};
use crate::memfd;
use crate::node_shm::{NodeShm, NodeShmSpec};
use crate::service::{Bootstrap, Error, ExitNotifier, HostId, Rank, Shared, call_name};
use crate::sys::Mapping;
use crate::wait::{Bounds, Wait};

/// Out-degree of the tree of agents, unless a test wants another.
pub const DEGREE: usize = 32;

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
    job_with(host_of, DEGREE, Bounds::default())
}

/// As [`job_on_hosts`], with the agents of the hosts in a tree of this out-degree, where 0 is a
/// star, and with these bounds on waits.
///
/// # Errors
/// As [`job_on_hosts`].
pub fn job_with(
    host_of: &[HostId],
    degree: usize,
    bounds: Bounds,
) -> Result<Vec<Box<dyn Bootstrap>>, Error> {
    let problem = |problem: String| Error::Argument { during: "job", problem };
    let mut hosts = 0;
    for (rank, host) in host_of.iter().map(|host| host.0).enumerate() {
        if host > hosts {
            let text = format!("rank {rank} is on host {host}, the next new host is {hosts}");
            return Err(problem(text));
        }
        hosts += u32::from(host == hosts);
    }
    if hosts == 0 {
        return Err(problem("a job has at least 1 rank".to_owned()));
    }
    let tree = Tree::new(host_of, degree).map_err(|error| problem(error.to_string()))?;
    let ranks = ranks_by_host(host_of);
    let pages = (0u32..).map(HostId).zip(&ranks).map(|(host, local_ranks)| {
        Ok(Arc::new(NodeShm::create(&NodeShmSpec { host, hosts, local_ranks, host_of })?))
    });
    let pages = pages.collect::<Result<Vec<_>, Error>>()?;
    let state = State { tree, inboxes: host_of.iter().map(|_| VecDeque::new()).collect() };
    let bells = host_of.iter().map(|_| Condvar::new()).collect();
    let hub = Arc::new(Hub { ranks, bells, state: Mutex::new(state) });
    let mut clients: Vec<Box<dyn Bootstrap>> = Vec::with_capacity(host_of.len());
    for (rank, host) in (0u32..).map(Rank).zip(host_of) {
        let page = Arc::clone(&pages[host.0 as usize]);
        let Some(place) = page.rank_info(rank) else { continue };
        page.slot(place.local).set_pid(std::process::id().cast_signed());
        let peer = Peer { hub: Arc::clone(&hub), rank, bounds, finished: false };
        clients.push(Box::new(Client::new(peer, place, page)));
    }
    Ok(clients)
}

struct State {
    tree: Tree,
    inboxes: Vec<VecDeque<Answer>>,
}

struct Hub {
    /// By host.
    ranks: Vec<Vec<Rank>>,
    bells: Vec<Condvar>,
    state: Mutex<State>,
}

impl Hub {
    /// The state stays consistent when a rank's thread panics: no code of a user runs under the
    /// lock.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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
        let (to, seq, reply) = match action {
            Action::Release { to, seq } => (to, seq, Ok(Reply::Release)),
            Action::Mapped { host, seq, pieces } => {
                let (fd, len) = memfd::result_in_pieces(&pieces)?;
                let map = Mapping::read_only(&fd, len)?;
                (To::Host(host), seq, Ok(Reply::Mapped(Shared::Mapped(Arc::new(map)))))
            }
            Action::Data { to, seq, bytes } => (To::Rank(to), seq, Ok(Reply::Data(bytes.to_vec()))),
            Action::HostMemory { host, seq, len } => {
                (To::Host(host), seq, Ok(Reply::Memory(memfd::zeroed(len)?)))
            }
            Action::Refuse { to, seq, reason } => (To::Rank(to), seq, Err(reason)),
        };
        let ranks = match &to {
            To::Host(host) => &self.ranks[host.0 as usize][..],
            To::Rank(rank) => std::slice::from_ref(rank),
        };
        let copy = |_| match &reply {
            Ok(reply) => reply.try_clone().map(Ok),
            Err(reason) => Ok(Err(Arc::clone(reason))),
        };
        let copies = ranks.iter().map(copy).collect::<std::io::Result<Vec<_>>>()?;
        for (to, reply) in ranks.iter().zip(copies) {
            state.inboxes[to.0 as usize].push_back(Answer { seq, reply });
            self.bells[to.0 as usize].notify_all();
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
    fn next(&self, wait: &Wait<'_>) -> Result<Answer, Error> {
        let index = self.rank.0 as usize;
        let mut state = self.hub.lock();
        loop {
            if let Some(answer) = state.inboxes[index].pop_front() {
                return Ok(answer);
            }
            let slice = wait.slice()?;
            let woken = self.hub.bells[index].wait_timeout(state, slice);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Gives something to the tree and carries out what follows.
    fn tell(
        &self,
        during: &'static str,
        what: impl FnOnce(&mut Collective) -> Result<Vec<Action>, ProtocolError>,
    ) -> Result<(), Error> {
        let mut state = self.hub.lock();
        let protocol = |error: ProtocolError| Error::Protocol { during, seen: error.to_string() };
        let actions = state.tree.give(self.rank, what).map_err(protocol)?;
        self.hub.carry_out(&mut state, actions);
        self.hub.refuse_if_stuck(&mut state);
        Ok(())
    }
}

impl Channel for Peer {
    fn call(&mut self, request: &Request<'_>, page: &Arc<NodeShm>) -> Result<Reply, Error> {
        let during = call_name(request.head.kind);
        let wait = Wait::new(during, self.bounds.call).with(page);
        // Also a call that needs nobody else ends with the job.
        wait.check()?;
        for frame in request.frames() {
            self.tell(during, |machine| machine.handle(self.rank, &frame))?;
        }
        self.next(&wait)?.to_call(request.head.seq, during)
    }

    fn fini(&mut self, _code: i32, page: &NodeShm) -> Result<(), Error> {
        let during = "fini";
        self.tell(during, |machine| machine.fini(self.rank))?;
        self.finished = true;
        let wait = Wait::new(during, self.bounds.fini).with(page);
        loop {
            // A refusal of a call that this rank will not make any more is nothing to it.
            match self.next(&wait)? {
                Answer { reply: Err(_), .. } => {}
                answer => return answer.to_call(0, during).map(drop),
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
