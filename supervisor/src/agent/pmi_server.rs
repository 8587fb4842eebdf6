//! Serves ranks that are MPI programs: one stream socket per rank, on which PMI-1 and PMI-2 are spoken
//! ([`spawner_pmi::server`] is the machine). A rank that never speaks costs a descriptor. Where PMIx is
//! served as well, `super::pmix` does it.
//!
//! Nothing that a rank sends can harm more than its own job. Sends never block, and nothing more is
//! read of a rank that does not read what it is told.

use std::ffi::{OsStr, OsString};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;

use bootstrap::collective::Branch;
use bootstrap::{HostId, Rank};
use nix::sys::socket::{MsgFlags, recv};
use spawner_pmi::server::{Action, Event, Message, Server, Site, StrayMessage, pmix};
use spawner_ssh::builtin::candidates;

use super::host_ranks::HostRanks;
use super::machine::RankEvent;
use super::outbox::Outbox;
use super::pmix::{Pmix, State, Variables};
use crate::event_loop::{Poller, Ready, Token};
use crate::plan::{JobPlan, Pmi, Program};

/// Pieces of one rank's bytes that are served in a row.
const BATCH: usize = 16;

#[derive(Debug, Default)]
struct Peer {
    socket: Option<OwnedFd>,
    /// What it has not taken yet; nothing is read meanwhile.
    out: Outbox,
    /// The connection ends once everything is written.
    closing: bool,
}

/// A message for other agents.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Relayed {
    /// To the one above.
    Up(Message),
    /// To all below.
    Down(Message),
    /// To these branches.
    To(Vec<usize>, Message),
}

/// The PMI server of one host. Ranks are addressed by their local numbers.
#[derive(Debug)]
pub(crate) struct PmiServer {
    poller: Poller,
    machine: Server,
    peers: Vec<Peer>,
    /// What ranks did, in order, until the owner takes it.
    pub(crate) events: Vec<RankEvent>,
    messages: Vec<Relayed>,
    buffer: Vec<u8>,
    /// PMIx, where it is served.
    pmix: Option<Pmix>,
}

/// Whether a variable tells of the process manager that has started the launcher itself: it is not that
/// of the launcher's ranks.
pub(super) fn is_of_another_server(name: &OsStr) -> bool {
    const NAMES: [&str; 14] = [
        "PMI_PORT",
        "PMI_JOBID",
        "PMI_SPAWNED",
        "PMI_APPNUM",
        "PMIX_RANK",
        "PMIX_NAMESPACE",
        "PMIX_ID",
        "HYDI_CONTROL_FD",
        "OMPI_UNIVERSE_SIZE",
        "OMPI_MCA_ess",
        "OMPI_MCA_pmix",
        "FLUX_JOB_ID",
        "FLUX_PMI_LIBRARY_PATH",
        DIRECT_LAUNCH,
    ];
    const BEGINNINGS: [&str; 3] = ["PMIX_SERVER_URI", "OMPI_COMM_WORLD_", "OMPI_MCA_orte_"];
    let Some(name) = name.to_str() else { return false };
    NAMES.contains(&name) || BEGINNINGS.iter().any(|begin| name.starts_with(begin))
}

/// A variable by which Open MPI 4 knows, whatever its value, that ranks were started by who serves PMIx
/// and not by its own mpirun: that of `jsrun`. Without it each rank would be a job of its own.
pub(super) const DIRECT_LAUNCH: &str = "JSM_JSRUN_PORT";

/// The library by which Open MPI speaks PMI-1, as `cargo build` names it.
const LIBRARY: &str = "libgasnetrun_ibv_pmi.so";

/// Bits of a number that Open MPI takes for a job: of its 32, it loses one on the way to other ranks.
const OPEN_MPI_NUMBERS: u64 = 0xffff_7fff;

/// Where the library by which Open MPI speaks PMI-1 is on this host.
///
/// # Errors
/// Where it is not.
pub fn open_mpi_library() -> Result<PathBuf, String> {
    let program = std::env::current_exe().map_err(|error| format!("/proc/self/exe: {error}"))?;
    let places = candidates(&program, LIBRARY);
    let found = places.iter().find(|place| place.is_file()).cloned();
    found.ok_or_else(|| {
        let looked: Vec<_> = places.iter().map(|place| place.display().to_string()).collect();
        format!("none of {} is there", looked.join(", "))
    })
}

/// Variables that make Open MPI speak PMI-1: its component for Flux opens the library that they name, the
/// one that was sent to this host if there is. The number tells its files of this job from those of others.
///
/// # Errors
/// The library is not there.
pub(super) fn for_open_mpi(plan: &JobPlan) -> Result<[(&'static str, OsString); 2], String> {
    let found = plan.pmi_library.clone().map_or_else(open_mpi_library, Ok)?;
    let mut hasher = DefaultHasher::new();
    plan.job_id.hash(&mut hasher);
    let number = OsString::from((hasher.finish() & OPEN_MPI_NUMBERS | 1).to_string());
    Ok([("FLUX_PMI_LIBRARY_PATH", found.into()), ("FLUX_JOB_ID", number)])
}

fn rank_event(Rank(rank): Rank, event: Event) -> RankEvent {
    match event {
        Event::Init => RankEvent::PmiInit { rank },
        Event::Finalize => RankEvent::PmiFinalize { rank },
        Event::Abort(code) => RankEvent::Abort { rank, code },
        Event::Broken(text) => RankEvent::PmiBroken { rank: Some(rank), text },
    }
}

fn first_ranks(branches: &[Branch]) -> Vec<Rank> {
    let first = |branch: &Branch| branch.ranks.iter().min().copied().unwrap_or(Rank(u32::MAX));
    branches.iter().map(first).collect()
}

impl PmiServer {
    /// The server of this host's ranks, if there is to be one, with these agents below, and one above.
    pub(crate) fn of(
        plan: &JobPlan,
        poller: &Poller,
        share: &HostRanks,
        branches: &[Branch],
        parent: bool,
    ) -> Option<Self> {
        let program = |rank: &Rank| Program::index_of(&plan.programs, rank.0);
        let number = |rank| u32::try_from(program(rank)).unwrap_or(0);
        let site = Site {
            job: plan.job_id.clone(),
            ranks: share.ranks.clone(),
            host_of: share.host_of.clone(),
            programs: share.ranks.iter().map(number).collect(),
            branches: first_ranks(branches),
            parent,
        };
        let pmix = || Pmix::of(plan, poller, share, branches, parent);
        Self::new(plan, poller, site, pmix)
    }

    /// The tree of agents is known: the server of this host, to which nobody has spoken, is part of it.
    pub(crate) fn join_tree(&mut self, plan: &JobPlan, share: &HostRanks, branches: &[Branch]) {
        let pmix = self.pmix.take();
        let Some(server) = Self::of(plan, &self.poller, share, branches, true) else { return };
        *self = server;
        if let Some(mut pmix) = pmix {
            pmix.join_tree(share, branches);
            self.pmix = Some(pmix);
        }
    }

    /// That of the root of a tree, which has no ranks.
    pub(crate) fn of_root(
        plan: &JobPlan,
        poller: &Poller,
        host_of: &[HostId],
        branches: &[Branch],
    ) -> Option<Self> {
        let first = first_ranks(branches);
        let site = Site { host_of: host_of.to_vec(), branches: first, ..Site::default() };
        Self::new(plan, poller, site, || Pmix::of_root(plan, poller, branches))
    }

    fn new(
        plan: &JobPlan,
        poller: &Poller,
        site: Site,
        pmix: impl FnOnce() -> Pmix,
    ) -> Option<Self> {
        plan.offers_pmi().then(|| {
            let mut peers = Vec::new();
            peers.resize_with(site.ranks.len(), Peer::default);
            Self {
                poller: poller.clone(),
                machine: Server::new(site),
                peers,
                events: Vec::new(),
                messages: Vec::new(),
                buffer: vec![0; 16 * 1024],
                pmix: (plan.pmi == Pmi::Pmix).then(pmix),
            }
        })
    }

    /// Takes over the connection of a rank that was started.
    pub(crate) fn adopt(&mut self, local: u32, socket: OwnedFd) -> io::Result<()> {
        self.poller.add_read(&socket, Token::Pmi(local))?;
        if let Some(peer) = self.peers.get_mut(local as usize) {
            peer.socket = Some(socket);
        }
        Ok(())
    }

    /// Something happened at the connection of a rank.
    pub(crate) fn serve(&mut self, local: u32, ready: Ready) {
        if ready.writable {
            self.write(local);
        }
        if ready.readable {
            self.read(local);
        }
    }

    /// Reads what a rank has sent; whether there may be more.
    fn read(&mut self, local: u32) -> bool {
        for _ in 0..BATCH {
            let Some(peer) = self.peers.get_mut(local as usize) else { return false };
            let Some(socket) = peer.socket.as_ref().filter(|_| peer.out.is_empty()) else {
                return false;
            };
            match recv(socket.as_raw_fd(), &mut self.buffer, MsgFlags::MSG_DONTWAIT) {
                Ok(0) => {
                    self.hang_up(local);
                    return false;
                }
                Ok(count) => {
                    self.machine.receive(local, &self.buffer[..count]);
                    self.act();
                }
                Err(nix::Error::EINTR) => {}
                Err(nix::Error::EAGAIN) => return false,
                Err(_) => {
                    self.hang_up(local);
                    return false;
                }
            }
        }
        true
    }

    /// Starts the helper process of PMIx, if it is to be served.
    pub(super) fn start_pmix(&mut self, plan: &JobPlan, share: &HostRanks) {
        if let Some(pmix) = &mut self.pmix {
            pmix.start(plan, share);
        }
    }

    /// Whether PMIx can be served, if it is to be.
    pub(crate) fn pmix_state(&self) -> State {
        self.pmix.as_ref().map(|pmix| pmix.state.clone()).unwrap_or_default()
    }

    /// What ranks find PMIx by, once.
    pub(super) fn take_variables(&mut self) -> Option<Variables> {
        self.pmix.as_mut()?.variables.take()
    }

    /// When the helper process is to be looked at.
    pub(super) fn pmix_due(&self) -> Option<u64> {
        self.pmix.as_ref()?.due()
    }

    /// Looks whether the helper process answers, if that is due.
    pub(super) fn look_at_pmix(&mut self) {
        if let Some(pmix) = &mut self.pmix {
            pmix.look();
        }
        self.act_pmix();
    }

    /// Something happened at the socket of the helper process.
    pub(super) fn serve_pmix(&mut self, ready: Ready) {
        if let Some(pmix) = &mut self.pmix {
            pmix.serve(ready);
        }
        self.act_pmix();
    }

    /// Whether the child that has ended was the helper process.
    pub(super) fn child_ended(&mut self, pid: i32) -> bool {
        let was = self.pmix.as_mut().is_some_and(|pmix| pmix.child_ended(pid));
        self.act_pmix();
        was
    }

    pub(super) fn is_helper(&self, pid: i32) -> bool {
        self.pmix.as_ref().is_some_and(|pmix| pmix.is_helper(pid))
    }

    /// No rank of this host needs PMIx any more: the helper process goes; at once: it is killed.
    pub(super) fn close_pmix(&mut self, at_once: bool) {
        match &mut self.pmix {
            Some(pmix) if at_once => pmix.kill(),
            Some(pmix) => pmix.close(),
            None => {}
        }
    }

    /// Reads everything that a rank has sent before it ended.
    pub(crate) fn drain(&mut self, local: u32) {
        if let Some(pmix) = &mut self.pmix {
            pmix.read();
        }
        self.act_pmix();
        // A socket holds some hundred kilobytes; the bound is for a surviving child that keeps
        // sending.
        for _ in 0..64 {
            if !self.read(local) {
                break;
            }
        }
        self.hang_up(local);
    }

    /// A rank has ended.
    pub(crate) fn ended(&mut self, local: u32) {
        self.machine.ended(local);
        self.act();
        if let Some(pmix) = &mut self.pmix {
            pmix.machine().ended(local);
        }
        self.act_pmix();
    }

    /// Closes a rank's connection, which takes it out of the epoll set, too: nobody else has this end.
    fn hang_up(&mut self, local: u32) {
        if let Some(peer) = self.peers.get_mut(local as usize) {
            *peer = Peer::default();
        }
    }

    pub(crate) fn hear_parent(&mut self, message: Message) -> Result<(), StrayMessage> {
        let heard = match (message, &mut self.pmix) {
            (Message::Pmix(message), Some(pmix)) => {
                pmix.machine().hear_parent(message).map_err(Into::into)
            }
            (message, _) => self.machine.hear_parent(message),
        };
        self.act();
        self.act_pmix();
        heard
    }

    /// A message of an agent below, by its index among the branches.
    pub(crate) fn hear_child(
        &mut self,
        index: usize,
        message: Message,
    ) -> Result<(), StrayMessage> {
        let heard = match (message, &mut self.pmix) {
            (Message::Pmix(message), Some(pmix)) => {
                pmix.machine().hear_child(index, message).map_err(Into::into)
            }
            (message, _) => self.machine.hear_child(index, message),
        };
        self.act();
        self.act_pmix();
        heard
    }

    /// An agent below has left, by its index among the branches.
    pub(crate) fn left(&mut self, index: usize) {
        self.machine.left(index);
        self.act();
        if let Some(pmix) = &mut self.pmix {
            pmix.machine().left(index);
        }
        self.act_pmix();
    }

    /// Messages for other agents that wait.
    pub(crate) fn messages(&mut self) -> Vec<Relayed> {
        std::mem::take(&mut self.messages)
    }

    /// Carries out what the machine wants.
    fn act(&mut self) {
        while let Some(action) = self.machine.poll_action() {
            match action {
                Action::Send { local, bytes } => self.send(local, &bytes),
                Action::Close { local } => {
                    if let Some(peer) = self.peers.get_mut(local as usize) {
                        peer.closing = true;
                        self.write(local);
                    }
                }
                Action::Up(message) => self.messages.push(Relayed::Up(message)),
                Action::Down(message) => self.messages.push(Relayed::Down(message)),
                Action::Tell { rank, event } => self.events.push(rank_event(rank, event)),
            }
        }
    }

    /// Carries out what the machine of PMIx wants.
    fn act_pmix(&mut self) {
        let Some(pmix) = &mut self.pmix else { return };
        while let Some(action) = pmix.next() {
            match action {
                pmix::Action::Tell { rank, event } => self.events.push(rank_event(rank, event)),
                pmix::Action::Up(message) => {
                    self.messages.push(Relayed::Up(Message::Pmix(message)));
                }
                pmix::Action::Down { to, message } => {
                    self.messages.push(Relayed::To(to, Message::Pmix(message)));
                }
                // Done by then.
                pmix::Action::Helper(_) => {}
            }
        }
        if let Some(text) = pmix.lost.take() {
            self.events.push(RankEvent::PmiBroken { rank: None, text });
        }
    }

    fn send(&mut self, local: u32, bytes: &[u8]) {
        if let Some(peer) = self.peers.get_mut(local as usize)
            && peer.socket.is_some()
            && peer.out.push(bytes)
        {
            self.write(local);
        }
    }

    /// Writes what waits for a rank.
    fn write(&mut self, local: u32) {
        let Some(peer) = self.peers.get_mut(local as usize) else { return };
        let Some(socket) = &peer.socket else { return };
        peer.out.write(socket);
        if peer.closing && peer.out.is_empty() {
            return self.hang_up(local);
        }
        peer.out.watch(|want| self.poller.turn(socket, Token::Pmi(local), want));
    }
}
