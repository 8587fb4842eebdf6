//! Serves ranks that speak PMIx: a helper process runs libpmix's server half
//! ([`spawner_pmi::server::pmix`]), and dies with the agent. Its frames go to the machine and back;
//! neither side ever waits for the other.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use bootstrap::collective::Branch;
use nix::sys::socket::{
    AddressFamily, MsgFlags, Shutdown, SockFlag, SockType, recv, shutdown, socketpair,
};
use settings::deadlines::agent::{PMIX_ANSWER, PMIX_START};
use spawner_pmi::server::pmix::{
    Action, Frames, FromHelper, Machine, Place, Setup, ToHelper, encode, helper, session,
};

use super::answers::{Answers, Look};
use super::host_ranks::HostRanks;
use super::outbox::Outbox;
use super::pmi_server::is_of_another_server;
use super::sys;
use crate::event_loop::{Poller, Ready, Token};
use crate::plan::JobPlan;

/// Variables of each rank of this host.
pub(super) type Variables = Vec<Vec<(String, String)>>;

/// How far the start has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum State {
    /// There is no helper, or it serves.
    #[default]
    Ready,
    /// libpmix is being started.
    Starting,
    /// It could not be; why.
    Failed(String),
}

/// Our end of the helper.
#[derive(Debug)]
struct Helper {
    pid: i32,
    /// None: the helper has gone.
    socket: Option<OwnedFd>,
    frames: Frames<FromHelper>,
    out: Outbox,
    answers: Answers,
    /// It was told to go.
    closing: bool,
    /// Its directory, by name.
    session: String,
}

/// PMIx on one host. Ranks are addressed by their local numbers.
#[derive(Debug)]
pub(crate) struct Pmix {
    poller: Poller,
    host: String,
    machine: Machine,
    helper: Option<Helper>,
    pub(super) state: State,
    /// For the ranks, until somebody takes them.
    pub(super) variables: Option<Variables>,
    buffer: Vec<u8>,
    /// Why the helper is lost, until somebody takes that.
    pub(super) lost: Option<String>,
}

fn place(share: &HostRanks, branches: &[Branch], parent: bool) -> Place {
    Place {
        ranks: share.ranks.clone(),
        size: share.size(),
        branches: branches.iter().map(|branch| branch.ranks.clone()).collect(),
        parent,
    }
}

impl Pmix {
    /// PMIx for the ranks of this host, whose helper is not started.
    pub(super) fn of(
        plan: &JobPlan,
        poller: &Poller,
        share: &HostRanks,
        branches: &[Branch],
        parent: bool,
    ) -> Self {
        Self::new(plan, poller, place(share, branches, parent))
    }

    /// That of the root of a tree, which has no ranks and no helper.
    pub(super) fn of_root(plan: &JobPlan, poller: &Poller, branches: &[Branch]) -> Self {
        let branches = branches.iter().map(|branch| branch.ranks.clone()).collect();
        Self::new(plan, poller, Place { size: plan.size, branches, ..Place::default() })
    }

    fn new(plan: &JobPlan, poller: &Poller, place: Place) -> Self {
        Self {
            poller: poller.clone(),
            host: plan.host.clone(),
            machine: Machine::new(place),
            helper: None,
            state: State::Ready,
            variables: None,
            buffer: vec![0; 64 * 1024],
            lost: None,
        }
    }

    /// The tree of agents is known now. Nobody has spoken before.
    pub(super) fn join_tree(&mut self, share: &HostRanks, branches: &[Branch]) {
        self.machine = Machine::new(place(share, branches, true));
    }

    /// Starts the helper; whether it can serve is known later.
    pub(super) fn start(&mut self, plan: &JobPlan, share: &HostRanks) {
        if share.ranks.is_empty() || self.helper.is_some() {
            return;
        }
        self.state = match self.try_start(plan, share) {
            Ok(()) => State::Starting,
            Err(error) => State::Failed(error.to_string()),
        };
    }

    fn try_start(&mut self, plan: &JobPlan, share: &HostRanks) -> io::Result<()> {
        let name = if plan.session.is_empty() { &plan.job_id } else { &plan.session };
        let path = session::directory(name);
        let (ours, theirs) =
            socketpair(AddressFamily::Unix, SockType::Stream, None, SockFlag::SOCK_CLOEXEC)?;
        let empty = File::options().read(true).write(true).open("/dev/null")?;
        let text = |bytes: &[u8]| CString::new(bytes).map_err(io::Error::other);
        let kept = plan.env.iter().filter(|(name, _)| !is_of_another_server(name));
        let env =
            kept.map(|(name, value)| text(&[name.as_bytes(), b"=", value.as_bytes()].concat()));
        let env = env.collect::<io::Result<Vec<_>>>()?;
        let words = vec![text(b"gasnetrun_ibv")?, text(helper::WORD.as_bytes())?];
        let image = sys::Image::new(text(b"/proc/self/exe")?, words, env);
        let streams = [theirs.as_raw_fd(), empty.as_raw_fd(), 2];
        let started = sys::launch_helpers(&mut [(image, streams)]).into_iter().next();
        let started = started.ok_or_else(|| io::Error::other("it was not started"))?;
        let pid = started.map_err(|failure| io::Error::from_raw_os_error(failure.errno))?;
        self.poller.add_read(&ours, Token::Pmix)?;
        self.helper = Some(Helper {
            pid,
            socket: Some(ours),
            frames: Frames::default(),
            out: Outbox::default(),
            answers: Answers::new(self.poller.now()),
            closing: false,
            session: name.clone(),
        });
        let here = std::slice::from_ref(&plan.host);
        let hosts = if plan.host_names.is_empty() { here } else { &plan.host_names };
        self.send(&ToHelper::Setup(Setup {
            job: plan.job_id.clone(),
            hosts: hosts.to_vec(),
            host: share.host.0,
            host_of: share.host_of.iter().map(|host| host.0).collect(),
            programs: plan.programs.iter().map(|program| program.first).collect(),
            directory: path.display().to_string(),
        }));
        Ok(())
    }

    /// Something happened at the socket of the helper.
    pub(super) fn serve(&mut self, ready: Ready) {
        if ready.writable {
            self.write();
        }
        if ready.readable {
            self.read();
        }
    }

    /// Reads all that the helper has said.
    pub(super) fn read(&mut self) {
        loop {
            let Some(helper) = &mut self.helper else { return };
            let Some(socket) = &helper.socket else { return };
            match recv(socket.as_raw_fd(), &mut self.buffer, MsgFlags::MSG_DONTWAIT) {
                Ok(count @ 1..) => {
                    helper.answers.heard();
                    helper.frames.push(&self.buffer[..count]);
                }
                Err(nix::Error::EINTR) => continue,
                Err(nix::Error::EAGAIN) => return,
                Ok(0) | Err(_) => return self.gone("it has closed its connection"),
            }
            loop {
                let Some(helper) = &mut self.helper else { return };
                match helper.frames.take() {
                    Ok(None) => break,
                    Ok(Some(said)) => self.hear(said),
                    Err(error) => return self.gone(&error.to_string()),
                }
            }
        }
    }

    fn hear(&mut self, said: FromHelper) {
        match said {
            FromHelper::Ready(variables) if self.state == State::Starting => {
                self.state = State::Ready;
                self.variables = Some(variables);
            }
            FromHelper::Failed(why) if self.state == State::Starting => {
                self.state = State::Failed(why);
            }
            said => self.machine.hear_helper(said),
        }
    }

    /// The helper has gone, or cannot be understood any more.
    fn gone(&mut self, how: &str) {
        let Some(helper) = &mut self.helper else { return };
        let (pid, wanted) = (helper.pid, helper.closing);
        // Told once: its end follows.
        let Some(socket) = helper.socket.take() else { return };
        self.poller.remove(&socket);
        if wanted {
            return;
        }
        match self.state {
            State::Starting => self.state = State::Failed(format!("its helper process: {how}")),
            State::Ready if self.lost.is_none() => {
                let host = &self.host;
                self.lost = Some(format!("the PMIx server of host {host} (process {pid}): {how}"));
            }
            _ => {}
        }
    }

    /// When the helper is to be looked at.
    pub(super) fn due(&self) -> Option<u64> {
        let helper = self.helper.as_ref().filter(|helper| !helper.closing);
        let helper = helper.filter(|helper| helper.socket.is_some());
        helper.map(|helper| helper.answers.due())
    }

    /// Asks the helper whether it is there, if that is due; one that says nothing for too long is lost.
    pub(super) fn look(&mut self) {
        if self.due().is_none() {
            return;
        }
        // It may have answered while we did something else.
        self.read();
        let starting = self.state == State::Starting;
        let start = if starting { PMIX_START.ms() } else { 0 };
        let limit = PMIX_ANSWER.ms().saturating_add(start);
        let Some(helper) = self.helper.as_mut().filter(|helper| helper.socket.is_some()) else {
            return;
        };
        match helper.answers.look(self.poller.now(), limit) {
            // While it starts libpmix it hears nothing.
            Look::Ask if !starting => self.send(&ToHelper::Ask),
            Look::Early | Look::Ask => {}
            Look::Silent => {
                let _ = sys::kill(helper.pid, libc::SIGKILL);
                let seconds = limit / 1000;
                self.gone(&format!("it has not answered for {seconds} s; was it stopped?"));
            }
        }
    }

    /// Whether the child that has ended was the helper.
    pub(super) fn child_ended(&mut self, pid: i32) -> bool {
        if !self.is_helper(pid) {
            return false;
        }
        self.read();
        self.gone("it has ended");
        if let Some(helper) = self.helper.take() {
            session::forget(&helper.session);
        }
        true
    }

    pub(super) fn is_helper(&self, pid: i32) -> bool {
        self.helper.as_ref().is_some_and(|helper| helper.pid == pid)
    }

    /// The ranks of this host need no server any more: the helper goes by itself.
    pub(super) fn close(&mut self) {
        if let Some(helper) = &mut self.helper
            && !std::mem::replace(&mut helper.closing, true)
            && let Some(socket) = &helper.socket
        {
            let _ = shutdown(socket.as_raw_fd(), Shutdown::Write);
        }
    }

    /// The helper has had its time.
    pub(super) fn kill(&mut self) {
        self.close();
        if let Some(helper) = &self.helper {
            let _ = sys::kill(helper.pid, libc::SIGKILL);
        }
    }

    pub(super) fn machine(&mut self) -> &mut Machine {
        &mut self.machine
    }

    /// What is to be done about ranks and other agents; what is for the helper is done here.
    pub(super) fn next(&mut self) -> Option<Action> {
        loop {
            match self.machine.poll_action()? {
                Action::Helper(frame) => self.send(&frame),
                action => return Some(action),
            }
        }
    }

    fn send(&mut self, frame: &ToHelper) {
        let Some(helper) = self.helper.as_mut().filter(|helper| !helper.closing) else { return };
        if helper.socket.is_some() && helper.out.push(&encode(frame)) {
            self.write();
        }
    }

    /// Writes what waits for the helper.
    fn write(&mut self) {
        let Some(helper) = &mut self.helper else { return };
        let Some(socket) = &helper.socket else { return };
        helper.out.write(socket);
        helper.out.watch(|want| self.poller.also_write(socket, Token::Pmix, want));
    }
}
