//! The ranks of a host meet at its lowest one.
//!
//! The leader listens on an abstract Unix packet socket whose name is random, so that nobody can take
//! it before; the process manager tells it to the others, who come to it and say `Hello` with the
//! identity of their host. Whoever is on the machine can see the name and come as well: both sides
//! look at the user at the other end, the leader before anything else, and whoever comes and says
//! nothing takes no more than a few descriptors.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use nix::poll::PollFlags;
use settings::deadlines::Deadline;
use settings::deadlines::bootstrap::{MEET_FIRST, MEET_MOST};

use super::identity::Identity;
use super::manager::{JobInfo, ProcessManager, ProcessManagerError};
use super::value::KeyValueSpace;
use bootstrap::BUILD_ID;
use bootstrap::frame::{Frame, HEADER_LEN, Kind, MAX_PAYLOAD};
use bootstrap::node_shm::NodeShm;
use bootstrap::service::{Error, Rank};
use bootstrap::sys::{self, PeerSocket};
use bootstrap::wait::Wait;

/// Connections that are taken before the leader looks again at those it has.
const ROUND: usize = 64;
/// Connections beyond those of the ranks that may say nothing yet; then the oldest goes.
const SILENT: usize = 16;

/// What nobody can guess in the name under which a leader listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Word([u8; Self::LEN]);

impl Word {
    const LEN: usize = 16;
    /// Purposes of the data in which it is told: behind the identity of a host, or alone.
    pub(super) const WITH_HOST: &str = "i";
    pub(super) const ALONE: &str = "w";

    pub(super) fn random() -> io::Result<Self> {
        let mut word = [0; Self::LEN];
        getrandom::fill(&mut word).map_err(io::Error::other)?;
        Ok(Self(word))
    }

    pub(super) const fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// The end of what was told.
    fn read(told: &[u8]) -> Option<Self> {
        told.last_chunk().copied().map(Self)
    }
}

/// Where the ranks of a host meet.
pub(super) struct Place<'a> {
    pub(super) info: &'a JobInfo,
    pub(super) identity: &'a Identity,
    /// Ranks of this host, ascending.
    pub(super) ranks: &'a [Rank],
    pub(super) meet: Deadline,
}

impl Place<'_> {
    fn leader(&self) -> Rank {
        self.ranks.first().copied().unwrap_or(self.info.rank)
    }

    fn name(&self, word: &Word) -> Vec<u8> {
        let user = nix::unistd::getuid();
        let word: String = word.0.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("gasnetrun-{user}-{}-{word}", self.leader()).into_bytes()
    }

    /// The leaders tell their words. Collective over the job, and bounded as the meeting is.
    pub(super) fn tell(
        &self,
        manager: &mut dyn ProcessManager,
        word: &Word,
        leads: bool,
    ) -> Result<(), Error> {
        if leads {
            let space = KeyValueSpace::new(manager);
            space.publish(manager, Word::ALONE, self.info.rank.0, word.bytes())?;
        }
        let wait = Wait::new("meeting of the host's ranks", self.meet);
        match manager.fence(&mut || wait.slice().map(drop)) {
            Err(Error::Deadline { waited_ms, .. }) => Err(self.missing("a rank".into(), waited_ms)),
            other => other,
        }
    }

    /// The leader's word.
    pub(super) fn hear(
        &self,
        manager: &mut dyn ProcessManager,
        purpose: &str,
    ) -> Result<Word, Error> {
        let (space, leader) = (KeyValueSpace::new(manager), self.leader());
        let told = space.read(manager, purpose, leader)?;
        let short = || space.broken(purpose, leader, format!("{} bytes are too few", told.len()));
        Word::read(&told).ok_or_else(short)
    }

    fn os(&self, operation: &str) -> impl Fn(io::Error) -> Error + use<> {
        let (manager, operation) = (self.info.manager, operation.to_owned());
        move |source| {
            ProcessManagerError::Os { manager, operation: operation.clone(), source }.into()
        }
    }

    /// What a rank says of itself in its `Hello`.
    pub(super) fn greeting(&self) -> String {
        format!("{BUILD_ID}\n{}", self.identity.word())
    }

    fn foreign(&self, socket: &OwnedFd) -> Result<Option<u32>, Error> {
        let user = sys::peer_user(socket.as_fd()).map_err(self.os("look at who is there"))?;
        Ok((user != nix::unistd::getuid().as_raw()).then_some(user))
    }

    /// A rank that is not the leader: comes to it.
    pub(super) fn come(&self, word: &Word) -> Result<PeerSocket, Error> {
        let name = self.name(word);
        let wait = Wait::new("meeting of the host's ranks", self.meet);
        let mut nap = MEET_FIRST.limit;
        loop {
            match sys::connect_abstract(&name) {
                Ok(socket) => {
                    if let Some(user) = self.foreign(&socket)? {
                        return Err(self.wrong(format!("user {user} listens there instead")));
                    }
                    return Ok(socket.into());
                }
                // Not there yet, or very busy.
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::ConnectionRefused
                            | io::ErrorKind::WouldBlock
                            | io::ErrorKind::Interrupted
                    ) => {}
                Err(error) => return Err(self.os("reach the first rank of this host")(error)),
            }
            match wait.slice() {
                Ok(slice) => std::thread::sleep(nap.min(slice)),
                Err(Error::Deadline { waited_ms, .. }) => {
                    return Err(self.wrong(format!(
                        "on host {} nobody of that name listened for {waited_ms} ms (deadline {})",
                        self.identity.name, self.meet.name
                    )));
                }
                Err(error) => return Err(error),
            }
            nap = (nap * 2).min(MEET_MOST.limit);
        }
    }

    fn wrong(&self, problem: String) -> Error {
        let (manager, rank, other) = (self.info.manager, self.info.rank, self.leader());
        ProcessManagerError::Map { manager, rank, other, problem }.into()
    }

    /// The leader: begins to listen, if there is another rank on this host.
    pub(super) fn open(&self, word: &Word) -> Result<Option<OwnedFd>, Error> {
        if self.ranks.len() < 2 {
            return Ok(None);
        }
        let listener = sys::listen_abstract(&self.name(word));
        listener.map(Some).map_err(self.os("listen for the ranks of this host"))
    }

    /// The leader: receives the others and gives each the node memory. The sockets are in the order
    /// of the ranks.
    pub(super) fn gather(
        &self,
        listener: &OwnedFd,
        page: &Arc<NodeShm>,
    ) -> Result<Vec<(Rank, OwnedFd)>, Error> {
        let others = self.ranks.get(1..).unwrap_or_default();
        let mut here: Vec<(Rank, OwnedFd)> = Vec::with_capacity(others.len());
        let mut strangers: Vec<OwnedFd> = Vec::new();
        let wait = Wait::new("meeting of the host's ranks", self.meet).with(page);
        while here.len() < others.len() {
            let slice = match wait.slice() {
                Err(Error::Deadline { waited_ms, .. }) => return Err(self.absent(&here, waited_ms)),
                other => other?,
            };
            // The listener is 0, the strangers follow.
            let sockets: Vec<_> =
                std::iter::once(listener).chain(&strangers).map(AsFd::as_fd).collect();
            let ready = sys::ready(&sockets, PollFlags::POLLIN, slice)
                .map_err(self.os("wait for the ranks of this host"))?;
            // From the back, so that the places before stay true.
            for at in ready.iter().rev().filter_map(|at| at.checked_sub(1)) {
                let socket = strangers.remove(at);
                if let Some(rank) = self.receive(&socket, page)? {
                    if here.iter().any(|(known, _)| *known == rank) {
                        return Err(self.wrong(format!("rank {rank} came twice")));
                    }
                    here.push((rank, socket));
                }
            }
            for _ in 0..ROUND {
                let Ok(socket) = sys::accept_packet(listener.as_fd()) else { break };
                if self.foreign(&socket)?.is_none() {
                    strangers.push(socket);
                }
            }
            let most = others.len() - here.len() + SILENT;
            strangers.drain(..strangers.len().saturating_sub(most));
        }
        here.sort_unstable_by_key(|(rank, _)| *rank);
        Ok(here)
    }

    /// The `Hello` of whoever came. `None`: nobody of this job, left alone.
    fn receive(&self, socket: &OwnedFd, page: &NodeShm) -> Result<Option<Rank>, Error> {
        let mut buffer = vec![0; HEADER_LEN + MAX_PAYLOAD + 1];
        let Ok((len, None)) = sys::receive_packet(socket.as_fd(), &mut buffer) else {
            return Ok(None);
        };
        if len == 0 {
            return Ok(None);
        }
        let frame = Frame::from_packet(&buffer[..len], self.info.size)
            .map_err(|source| Error::Frame { during: "hello", source })?;
        let rank = Rank(frame.rank);
        let said = String::from_utf8_lossy(frame.payload).into_owned();
        let (build, word) = said.split_once('\n').unwrap_or((&said, ""));
        let problem = if frame.kind != Kind::Hello {
            Some(format!("rank {rank} began with a {:?} frame", frame.kind))
        } else if build != BUILD_ID {
            Some(format!("rank {rank} runs {build:?}, rank {} {BUILD_ID:?}", self.leader()))
        } else {
            match Identity::read(word) {
                Some(other) if other.mark == self.identity.mark => None,
                other => {
                    let name = other.map_or_else(|| "?".to_owned(), |other| other.name);
                    Some(format!(
                        "rank {rank} runs on host {name} and rank {} on host {}, in other namespaces",
                        self.leader(),
                        self.identity.name
                    ))
                }
            }
        };
        if let Some(problem) = problem {
            self.refuse(socket, rank, &problem);
            let (manager, other) = (self.info.manager, self.leader());
            return Err(ProcessManagerError::Map { manager, rank, other, problem }.into());
        }
        if !self.ranks.contains(&rank) {
            let problem = format!("rank {rank} is not of this host");
            self.refuse(socket, rank, &problem);
            return Err(self.wrong(problem));
        }
        let welcome = Frame::bare(Kind::Welcome, 0, rank.0, self.info.size);
        sys::send_packet(socket.as_fd(), &welcome.header(), &[], Some(page.fd()))
            .map_err(self.os("give the node's shared memory to a rank"))?;
        Ok(Some(rank))
    }

    fn refuse(&self, socket: &OwnedFd, rank: Rank, reason: &str) {
        let frame = Frame::bare(Kind::Refuse, 0, rank.0, 0).with(reason.as_bytes());
        // Best effort: this rank fails with the same words.
        let _ = sys::send_packet(socket.as_fd(), &frame.header(), frame.payload, None);
    }

    fn absent(&self, here: &[(Rank, OwnedFd)], waited_ms: u64) -> Error {
        let others = self.ranks.get(1..).unwrap_or_default();
        let missing: Vec<String> = others
            .iter()
            .filter(|rank| here.iter().all(|(known, _)| known != *rank))
            .map(|rank| rank.to_string())
            .collect();
        let some = missing.iter().take(16).cloned().collect::<Vec<_>>().join(", ");
        let more = if missing.len() > 16 { " and more" } else { "" };
        self.missing(format!("rank {some}{more}"), waited_ms)
    }

    fn missing(&self, missing: String, waited_ms: u64) -> Error {
        ProcessManagerError::Absent {
            manager: self.info.manager,
            missing,
            leader: self.leader(),
            host: self.identity.name.clone(),
            waited_ms,
            deadline: self.meet.name,
        }
        .into()
    }
}
