//! All links of one agent: starts them a few at a time, tries again where that is worth it, keeps
//! them alive, and hands on what comes.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::hash::{BuildHasher, RandomState};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use bootstrap::collective::Bytes;

use settings::deadlines::tree::{CHILD_SILENT, CONNECT, HEARTBEAT, LAST_WORDS};
use spawner_ssh::auto::{self, Chooser};
use spawner_ssh::builtin;
use spawner_ssh::command::{self, has_short_way, remote_command, script_input, stage_input};
use spawner_ssh::{Ssh, StageMode};

use super::late::Late;
use super::process;
use super::state::{CpuQuestion, Link, Phase, TURN};
use crate::agent::sys::{self, Reaped};
use crate::event_loop::{Pipe, Poller, Ready, Token};
use crate::report::End;
use crate::stage::digest::Digest;
use crate::tree::frames::Lane;
use crate::tree::message::{Down, Loss, Member, Up, decode, encode};
use spawner_ssh::diagnosis::{Class, Failure, retry_after};
use spawner_ssh::marker::{self, First, Found};

/// Logins under way at the same time. An sshd with its usual limit (10 at once before it drops
/// some) may stand behind several names.
const LOGINS: usize = 9;

/// Something that the owner must know. The number is that of the link.
#[derive(Debug)]
pub(crate) enum LinkEvent {
    /// Its agent has answered; it was told its part.
    Open(usize),
    Up(usize, Up),
    /// It never came to that, and will not be tried again.
    Failed(usize, Failure),
    /// It was open and broke.
    Lost(usize, Loss),
}

#[derive(Debug)]
pub(crate) struct Links {
    pub(super) poller: Poller,
    pub(super) ssh: Ssh,
    chooser: Arc<Chooser>,
    /// An encoded [`Common`](crate::tree::message::Common), complete before anything is read.
    pub(crate) common: Bytes,
    /// Hash and size of our own program, once somebody wanted it.
    own: Option<(Digest, u64)>,
    pub(super) links: Vec<Link>,
    pub(crate) by_pid: HashMap<i32, usize>,
    buffer: Vec<u8>,
    /// What the owner has not taken yet.
    pub(crate) events: Vec<LinkEvent>,
    /// Set when the end has begun: ends of links are no losses any more.
    parting: bool,
    /// Hosts that were tried from here, so that none is adopted for ever.
    pub(super) tried: HashSet<u32>,
    /// Link of each branch of the collective machine.
    pub(super) branches: Vec<usize>,
    /// Processes left behind that were ended below.
    pub(crate) orphans: u32,
    pub(crate) cpu_question: Option<CpuQuestion>,
    /// Links that do not have the last piece of input yet, and whether anybody reads more.
    pub(crate) input: Option<(HashSet<usize>, bool)>,
    late: Late,
}

impl Links {
    pub(crate) fn new(poller: &Poller, ssh: Ssh, common: Bytes) -> Self {
        Self {
            poller: poller.clone(),
            chooser: Arc::new(Chooser::new(&ssh)),
            ssh,
            common,
            own: None,
            links: Vec::new(),
            by_pid: HashMap::new(),
            buffer: vec![0; 64 * 1024],
            events: Vec::new(),
            parting: false,
            tried: HashSet::new(),
            branches: Vec::new(),
            orphans: 0,
            cpu_question: None,
            input: None,
            late: Late::default(),
        }
    }

    /// A link to the first of `hosts`, which gets them all as its subtree; that host's number.
    pub(crate) fn add(&mut self, mut hosts: Vec<Member>) -> Option<u32> {
        // Lists of hosts are so from the beginning; `is_behind` relies on it.
        hosts.sort_by_key(|(host, _)| *host);
        let (number, now) = (self.links.len(), self.poller.now());
        let first = hosts.first().map(|(host, _)| *host);
        self.tried.extend(first);
        self.links.push(Link::new(number, hosts, now));
        first
    }

    /// Hosts behind a link, ascending, its own first.
    pub(crate) fn hosts(&self, link: usize) -> &[Member] {
        self.links.get(link).map_or(&[], |link| &link.hosts)
    }

    /// Hosts that do not belong to a link any more.
    pub(crate) fn remove_hosts(&mut self, link: usize, gone: &[Member]) {
        let gone: HashSet<u32> = gone.iter().map(|(host, _)| *host).collect();
        if let Some(link) = self.links.get_mut(link) {
            link.hosts.retain(|(host, _)| !gone.contains(host));
        }
    }

    pub(crate) fn open(&self) -> impl Iterator<Item = usize> {
        let open = self.links.iter().enumerate().filter(|(_, link)| link.phase == Phase::Open);
        open.map(|(number, _)| number)
    }

    /// Whether a process of a link is still there, or a client of our own.
    pub(crate) fn is_any_left(&self) -> bool {
        !self.by_pid.is_empty() || self.links.iter().any(Link::has_session)
    }

    pub(crate) fn is_ours(&self, pid: i32) -> bool {
        self.by_pid.contains_key(&pid)
    }

    pub(crate) fn send(&mut self, link: usize, down: &Down) {
        self.send_encoded(link, down.lane(), &encode(down));
    }

    pub(crate) fn send_encoded(&mut self, link: usize, lane: Lane, message: &Rc<Vec<u8>>) {
        let now = self.poller.now();
        if let Some(link) = self.links.get_mut(link).filter(|link| link.phase == Phase::Open) {
            link.outbox.push(lane, Rc::clone(message));
            link.said = now;
            link.write(&self.poller);
        }
    }

    pub(crate) fn send_all(&mut self, down: &Down) {
        let message = encode(down);
        for number in 0..self.links.len() {
            self.send_encoded(number, down.lane(), &message);
        }
    }

    /// Output of a link was passed on: lets it send as much again.
    pub(crate) fn settle_debts(&mut self) {
        for number in 0..self.links.len() {
            let owed = std::mem::take(&mut self.links[number].owed);
            if owed > 0 {
                self.send(number, &Down::Credit(owed));
            }
        }
    }

    pub(crate) fn owe(&mut self, link: usize, bytes: usize) {
        if let Some(link) = self.links.get_mut(link) {
            link.owed = link.owed.saturating_add(u32::try_from(bytes).unwrap_or(u32::MAX));
        }
    }

    /// From now on links end because they are meant to: what is not open is given up, the others
    /// are told by the end of their input.
    pub(crate) fn part(&mut self) {
        self.parting = true;
        for link in &mut self.links {
            match link.phase {
                Phase::Open => link.to = None,
                Phase::Queued { .. } | Phase::Silent { .. } => link.end(),
                Phase::Over => {}
            }
        }
    }

    pub(crate) fn give_up_silent(&mut self) {
        for link in &mut self.links {
            if !matches!(link.phase, Phase::Open | Phase::Over) {
                link.end();
            }
        }
    }

    pub(crate) fn cut_all(&mut self) {
        self.parting = true;
        self.links.iter_mut().for_each(Link::end);
    }

    /// A child ended, perhaps a link's process.
    pub(crate) fn child_ended(&mut self, pid: i32, end: End) {
        if let Some(link) = self.by_pid.remove(&pid).map(|number| &mut self.links[number])
            && link.pid == Some(pid)
        {
            link.ended = Some(end);
        }
    }

    pub(crate) fn reap(&mut self) {
        while let Reaped::Child(pid, end) = sys::reap() {
            self.child_ended(pid, end);
        }
    }

    pub(crate) fn serve(&mut self, ready: Ready) {
        let Token::Link(number, pipe) = ready.token else { return };
        let index = number as usize;
        let Some(link) = self.links.get_mut(index) else { return };
        match pipe {
            Pipe::To => link.write(&self.poller),
            Pipe::Err => link.read_stderr(),
            Pipe::From => drop(self.read(index)),
        }
    }

    /// Reads what is there; whether more may be waiting.
    fn read(&mut self, index: usize) -> bool {
        let mut buffer = std::mem::take(&mut self.buffer);
        let (mut taken, now) = (0, self.poller.now());
        while taken < TURN {
            let Some(count) = self.links[index].read(&mut buffer, now) else { break };
            taken += count;
            self.bytes(index, &buffer[..count]);
            if self.links[index].phase == Phase::Over {
                break;
            }
        }
        self.buffer = buffer;
        taken >= TURN
    }

    fn bytes(&mut self, index: usize, bytes: &[u8]) {
        let link = &mut self.links[index];
        if link.phase == Phase::Open {
            link.inbox.push(bytes);
            return self.messages(index);
        }
        match link.search.push(bytes) {
            Found::Nothing => {}
            Found::TooMuch => {
                let seen = format!("{} bytes of output and no agent", marker::MAX_NOISE);
                self.failed(index, Failure::new(Class::Noise, seen));
            }
            Found::Line(first, behind) => match self.first(index, &first) {
                Ok(()) => {
                    self.links[index].search = marker::Search::default();
                    self.bytes(index, &behind);
                }
                Err(failure) => self.failed(index, failure),
            },
        }
    }

    /// The other side's first word: an agent's, or that of a script which wants something.
    fn first(&mut self, index: usize, first: &First) -> Result<(), Failure> {
        match first {
            First::Missing => {
                let seen = format!("no agent at {}", self.ssh.agent.display());
                Err(Failure::new(Class::AgentMissing, seen))
            }
            First::Stage | First::Send => {
                let bytes = self.for_script(*first == First::Send).map_err(|error| {
                    let seen = format!("cannot read our own program: {error}");
                    Failure::new(Class::AgentMissing, seen)
                })?;
                let since = self.poller.now();
                let link = &mut self.links[index];
                link.phase = Phase::Silent { since };
                link.outbox.push_raw(&bytes);
                link.write(&self.poller);
                Ok(())
            }
            First::Agent { protocol, version } => {
                let ours = (marker::PROTOCOL, env!("CARGO_PKG_VERSION"));
                if (*protocol, version.as_str()) != ours {
                    let seen = format!(
                        "agent version {version} (protocol {protocol}), here {} (protocol {})",
                        ours.1, ours.0
                    );
                    return Err(Failure::new(Class::Version, seen));
                }
                let link = &mut self.links[index];
                link.phase = Phase::Open;
                let (common, subtree) = (self.common.clone(), link.hosts.clone());
                self.send(index, &Down::Setup { common, subtree });
                self.events.push(LinkEvent::Open(index));
                Ok(())
            }
        }
    }

    /// What the script wants: our program, or its hash.
    fn for_script(&mut self, program: bool) -> std::io::Result<Vec<u8>> {
        const OWN: &str = "/proc/self/exe";
        if program {
            return std::fs::read(OWN);
        }
        let (digest, size) = match self.own {
            Some(own) => own,
            None => *self.own.insert(Digest::of(OWN.as_ref())?),
        };
        Ok(stage_input(&self.ssh, &digest.hex(), size))
    }

    fn messages(&mut self, index: usize) {
        loop {
            let problem = match self.links[index].inbox.take() {
                Ok(None) => return,
                Ok(Some(message)) => match decode(&message) {
                    Ok(Up::Ping) => continue,
                    Ok(up) => {
                        self.events.push(LinkEvent::Up(index, up));
                        continue;
                    }
                    Err(error) => error.to_string(),
                },
                Err(error) => error.to_string(),
            };
            return self.broke(index, format!("its agent sent {problem}"));
        }
    }

    /// A link that was not open failed: again, or never.
    fn failed(&mut self, index: usize, failure: Failure) {
        let (now, auto) = (self.poller.now(), self.ssh.stage == StageMode::Auto);
        let link = &mut self.links[index];
        link.cut();
        link.attempts += 1;
        // What is there does not fit: send ours.
        let misfit = matches!(failure.class, Class::Version | Class::AgentBroken);
        let send = misfit && auto && !link.send_agent && !link.is_here();
        // Perhaps the login shell did not understand the short way to the agent.
        let shell = matches!(failure.class, Class::Shell | Class::Other) && link.ended.is_some();
        let whole = shell && !link.hosts.is_empty() && !link.is_here() && !link.whole_script;
        if send || (whole && has_short_way(&self.ssh) && !self.parting) {
            link.send_agent |= send;
            link.whole_script = true;
            link.phase = Phase::Queued { at: now };
            return;
        }
        let random = RandomState::new().hash_one(index);
        match retry_after(failure.class, link.attempts, random).filter(|_| !self.parting) {
            Some(pause) => link.phase = Phase::Queued { at: now.saturating_add(pause) },
            None => {
                link.phase = Phase::Over;
                let failure = if link.is_here() { failure } else { with_agent(failure) };
                self.events.push(LinkEvent::Failed(index, failure));
            }
        }
    }

    /// The client of our own does not make this login: the ssh program does, at once.
    fn hand_over(&mut self, index: usize) {
        let now = self.poller.now();
        let link = &mut self.links[index];
        let reason = link.last_line().unwrap_or_default();
        link.program = Some(reason.strip_prefix("ssh: ").unwrap_or(&reason).to_owned());
        link.cut();
        link.phase = if self.parting { Phase::Over } else { Phase::Queued { at: now } };
    }

    fn broke(&mut self, index: usize, seen: String) {
        let now = self.poller.now();
        let link = &mut self.links[index];
        if link.phase != Phase::Open {
            return self.failed(index, Failure::new(Class::AgentSilent, seen));
        }
        link.end();
        let silent = now.saturating_sub(link.heard);
        self.events.push(LinkEvent::Lost(index, Loss { seen, silent }));
    }

    /// Everything that is due. To be called after what was ready has been served.
    pub(crate) fn step(&mut self) {
        let now = self.poller.now();
        for link in &mut self.links {
            link.heard = self.late.forgive(link.heard, now);
        }
        let mut logins =
            self.links.iter().filter(|link| matches!(link.phase, Phase::Silent { .. })).count();
        let mut due = Vec::new();
        for index in 0..self.links.len() {
            match self.links[index].phase {
                Phase::Queued { at } if now >= at && logins < LOGINS => {
                    logins += 1;
                    due.push(index);
                }
                Phase::Silent { since } => self.step_silent(index, since),
                Phase::Open => self.step_open(index),
                Phase::Queued { .. } | Phase::Over => {}
            }
        }
        if !due.is_empty() {
            self.start(&due);
        }
        let open = self.links.iter().filter(|link| link.phase == Phase::Open);
        self.late.plan(open.map(Link::next_look).min(), self.poller.now());
    }

    /// Starts the processes of links, or clients of our own.
    fn start(&mut self, due: &[usize]) {
        let (mut indices, mut all, now) = (Vec::new(), Vec::new(), self.poller.now());
        for &index in due {
            let link = &mut self.links[index];
            let Some((_, host)) = link.hosts.first() else {
                link.phase = Phase::Over;
                continue;
            };
            let told = remote_command(&self.ssh, link.whole_script);
            let session = match self.ssh.command.to_str() {
                _ if host.here => None,
                Some(auto::NAME) if link.program.is_none() => {
                    Some(auto::start(&self.chooser, host, &told))
                }
                Some(builtin::NAME) => Some(builtin::start(&self.ssh, host, &told)),
                _ => None,
            };
            if let Some(session) = session {
                let attached =
                    session.and_then(|session| link.attach_session(&self.poller, session, now));
                self.started(index, attached);
            } else {
                indices.push(index);
                all.push(command::process(&self.ssh, host, &told));
            }
        }
        for (index, started) in indices.into_iter().zip(process::start(&all)) {
            let attached = started.and_then(|started| {
                self.by_pid.insert(started.pid, index);
                self.links[index].attach(&self.poller, started, now)
            });
            self.started(index, attached);
        }
    }

    fn started(&mut self, index: usize, attached: std::io::Result<()>) {
        let link = &mut self.links[index];
        let here = link.is_here();
        if let Err(error) = attached {
            let program =
                if here { OsStr::new("/proc/self/exe") } else { command::program(&self.ssh) };
            let seen = format!("cannot start {}: {error}", program.display());
            self.failed(index, Failure::new(Class::Command, seen));
        } else if !here {
            link.outbox.push_raw(&script_input(&self.ssh, link.send_agent));
            link.write(&self.poller);
        }
    }

    fn step_silent(&mut self, index: usize, since: u64) {
        if self.is_at_its_end(index) {
            let more = self.read(index);
            let link = &mut self.links[index];
            if matches!(link.phase, Phase::Silent { .. }) && !more {
                link.read_stderr();
                if link.is_handed_over() {
                    return self.hand_over(index);
                }
                let failure =
                    Failure::of_shell(&link.complaint(), &link.search.noise(), link.ended);
                self.failed(index, failure);
            }
        } else if self.poller.now() >= since.saturating_add(CONNECT.ms()) {
            let seen = format!("no answer within {} s", CONNECT.limit.as_secs());
            self.failed(index, Failure::new(Class::Timeout, seen));
        }
    }

    fn is_at_its_end(&self, index: usize) -> bool {
        let (link, now) = (&self.links[index], self.poller.now());
        link.ended.is_some() || link.eof.is_some_and(|at| now >= at.saturating_add(LAST_WORDS.ms()))
    }

    fn step_open(&mut self, index: usize) {
        if self.is_at_its_end(index) {
            // Its process is gone. Somebody else may hold its output open for ever, so its end is
            // not waited for.
            let more = self.read(index);
            let link = &mut self.links[index];
            if more || link.phase != Phase::Open {
                return;
            }
            link.read_stderr();
            let said = link.last_line();
            let how = match link.ended {
                Some(End::Signal(signal)) => {
                    format!("the process of its connection was killed by signal {signal}")
                }
                Some(End::Code(code)) => {
                    format!("its connection ended (code {code} of the remote shell)")
                }
                None => "its agent closed the connection".to_owned(),
            };
            let seen = said.map_or(how.clone(), |said| format!("{how}: {said}"));
            return self.broke(index, seen);
        }
        let (link, now) = (&self.links[index], self.poller.now());
        if now >= link.heard.saturating_add(CHILD_SILENT.ms()) {
            let seen = format!("nothing was heard from it for {} s", CHILD_SILENT.limit.as_secs());
            return self.broke(index, seen);
        }
        if now >= link.said.saturating_add(HEARTBEAT.ms()) && link.to.is_some() {
            self.send(index, &Down::Ping);
        }
    }

    pub(crate) fn deadline(&self) -> Option<u64> {
        let busy = self.links.iter().filter(|l| matches!(l.phase, Phase::Silent { .. })).count();
        let each = self.links.iter().filter_map(|link| match link.phase {
            Phase::Queued { at } => (busy < LOGINS).then_some(at),
            Phase::Over => None,
            _ if link.ended.is_some() => Some(0),
            _ if link.eof.is_some() => link.eof.map(|at| at.saturating_add(LAST_WORDS.ms())),
            Phase::Silent { since } => Some(since.saturating_add(CONNECT.ms())),
            Phase::Open => Some(link.next_look()),
        });
        each.min()
    }
}

/// A refused login with what is wrong with the user's ssh agent, of which ssh says nothing.
fn with_agent(mut failure: Failure) -> Failure {
    let socket = settings::variable("SSH_AUTH_SOCK").filter(|path| !path.is_empty());
    if failure.class == Class::Authentication
        && !failure.seen.contains("ssh agent")
        && let Some(socket) = socket
        && let Some(problem) = spawner_ssh::agent::problem(Path::new(&socket))
    {
        failure.seen += &format!("; the ssh agent at {}: {problem}", socket.display());
    }
    failure
}
