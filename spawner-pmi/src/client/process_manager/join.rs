//! A rank joins its job: finds its host, meets the ranks there, leads them or follows.

use std::collections::HashSet;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

use bootstrap::agent::{self, Fence};
use bootstrap::client::Client;
use bootstrap::node_shm::{NodeShm, NodeShmSpec};
use bootstrap::service::{Bootstrap, Error, Finalizer, HostId, Rank};
use bootstrap::wait::{Bounds, Watch};
use settings::deadlines::Deadline;
use settings::deadlines::bootstrap as deadlines;
use settings::{Env, Values};

use super::identity::Identity;
use super::manager::ProcessManager;
use super::rendezvous::Word;
use super::{leader, mapping, rendezvous};

/// The bounds of the providers under a process manager; tests shorten them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessManagerBounds {
    /// [`deadlines::PM_ANSWER`].
    pub answer: Deadline,
    /// [`deadlines::PM_MEET`].
    pub meet: Deadline,
    /// [`deadlines::PM_REFUSAL`].
    pub refusal: Deadline,
    /// [`deadlines::PM_OTHERS`].
    pub others: Deadline,
    /// Of the services.
    pub services: Bounds,
}

impl ProcessManagerBounds {
    /// With the time that the user gives a decided job to end.
    #[must_use]
    pub fn of(env: &Env, size: u32) -> Self {
        let mut bounds = Self::default();
        // Whoever reads the variables afterwards says what is wrong with them.
        if let Ok(time) = Values::from_env(env).and_then(|settings| settings.exit_timeout(size)) {
            bounds.others.limit = time;
        }
        bounds
    }
}

impl Default for ProcessManagerBounds {
    fn default() -> Self {
        Self {
            answer: deadlines::PM_ANSWER,
            meet: deadlines::PM_MEET,
            refusal: deadlines::PM_REFUSAL,
            others: deadlines::PM_OTHERS,
            services: Bounds::default(),
        }
    }
}

/// The services over a process manager. Collective over the job.
///
/// # Errors
/// The process manager fails, its map of hosts is wrong, or a rank of this host does not come.
pub fn join(
    mut manager: Box<dyn ProcessManager>,
    identity: &Identity,
    bounds: ProcessManagerBounds,
) -> Result<Box<dyn Bootstrap>, Error> {
    manager.finalization().allow(bounds.others);
    let word = Word::random().map_err(Error::os("get random bytes"))?;
    let known = mapping::known(manager.as_mut())?;
    let told = if known.is_some() { Word::ALONE } else { Word::WITH_HOST };
    let host_of = known.map_or_else(|| mapping::exchange(manager.as_mut(), identity, &word), Ok)?;
    let info = manager.job_info().clone();
    let host = host_of.get(info.rank.0 as usize).copied().unwrap_or(HostId(0));
    let all = (0u32..).map(Rank).zip(&host_of);
    let ranks: Vec<Rank> = all.filter(|(_, h)| **h == host).map(|(rank, _)| rank).collect();
    let meeting = rendezvous::Place { info: &info, identity, ranks: &ranks, meet: bounds.meet };
    let leads = ranks.first() == Some(&info.rank);
    let listener = if leads { meeting.open(&word)? } else { None };
    let all = host_of.iter().collect::<HashSet<_>>();
    if told == Word::ALONE && all.len() < host_of.len() {
        meeting.tell(manager.as_mut(), &word, listener.is_some())?;
    }
    if !leads {
        let word = meeting.hear(manager.as_mut(), told)?;
        return follow(manager, &meeting, &word, bounds);
    }
    let hosts = host_of.iter().map(|host| host.0 + 1).max().unwrap_or(1);
    let spec = NodeShmSpec { host, hosts, local_ranks: &ranks, host_of: &host_of };
    let page = Arc::new(NodeShm::create(&spec).map_err(Error::from)?);
    let members = listener.map_or_else(|| Ok(Vec::new()), |at| meeting.gather(&at, &page))?;
    let finalization = manager.finalization();
    let local = |rank| page.local_of(rank).unwrap_or_default();
    let sockets = members.iter().map(|(rank, fd)| (fd.as_raw_fd(), local(*rank))).collect();
    let leader = leader::Leader::new(
        manager,
        &host_of,
        identity.name.clone(),
        Arc::clone(&page),
        members,
        bounds,
    )?;
    let Some(place) = page.rank_info(info.rank) else {
        let seen = format!("a node's shared memory without rank {}", info.rank);
        return Err(Error::Protocol { during: "start", seen });
    };
    page.slot(place.local).set_pid(std::process::id().cast_signed());
    finalization.attach(&page, place.local, sockets);
    Ok(Box::new(Client::new(leader, place, page)))
}

/// A rank that is not the first of its host: the first one does for it what an agent does.
fn follow(
    manager: Box<dyn ProcessManager>,
    meeting: &rendezvous::Place<'_>,
    word: &Word,
    bounds: ProcessManagerBounds,
) -> Result<Box<dyn Bootstrap>, Error> {
    let socket = meeting.come(word)?;
    let leader = socket.as_fd().as_raw_fd();
    let finalization = manager.finalization();
    let (rank, size) = (manager.job_info().rank, manager.job_info().size);
    let fence: Box<dyn Fence> = Box::new(Follower(manager));
    let greeting = meeting.greeting();
    let job = agent::join(socket, (rank, size), Some(fence), &greeting, bounds.services)?;
    finalization.attach(job.node_shm(), job.rank_info().local, vec![(leader, 0)]);
    Ok(job)
}

/// The process manager as the provider of a follower needs it.
struct Follower(Box<dyn ProcessManager>);

impl Fence for Follower {
    fn fence(&mut self, watch: &mut Watch<'_>) -> Result<(), Error> {
        self.0.fence(watch)
    }

    fn finalizer(&self) -> &'static dyn Finalizer {
        self.0.finalization()
    }
}
