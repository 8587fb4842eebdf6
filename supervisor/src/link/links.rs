//! All links of one agent: starts them a few at a time, tries again where that is worth it, keeps
//! them alive, and hands on what comes.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::rc::Rc;

use bootstrap::collective::Bytes;

use settings::deadlines::tree::{CHILD_SILENT, CONNECT, HEARTBEAT, LAST_WORDS};
use spawner_ssh::builtin;
use spawner_ssh::command::{self, has_short_way, remote_command, script_input, stage_input};
use spawner_ssh::{Ssh, StageMode};

use super::process;
use super::state::{Link, Phase, TURN};
use crate::event_loop::{Pipe, Poller, Ready, Token};
use crate::report::End;
use crate::stage::digest::Digest;
use crate::tree::frames::Lane;
use crate::tree::message::{Down, Loss, Member, Up};
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
    /// A message.
    Up(usize, Up),
    /// It never came to that, and will not be tried again.
    Failed(usize, Failure),
    /// It was open and broke.
    Lost(usize, Loss),
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Links {
    ssh: Ssh,
    /// An encoded [`Common`](crate::tree::message::Common).
    common: Bytes,
    /// Hash and size of our own program, once somebody wanted it.
    own: Option<(Digest, u64)>,
    links: Vec<Link>,
    by_pid: HashMap<i32, usize>,
    random: u64,
    buffer: Vec<u8>,
    /// Set when the end has begun: ends of links are no losses any more.
    parting: bool,
}

impl Links {
    pub(crate) fn new(ssh: Ssh, common: Bytes) -> Self {
        let time = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let random = u64::from(std::process::id()) << 32
            ^ time.map_or(1, |time| u64::from(time.subsec_nanos()))
            | 1;
        let buffer = vec![0; 64 * 1024];
        Self {
            ssh,
            common,
            own: None,
            links: Vec::new(),
            by_pid: HashMap::new(),
            random,
            buffer,
            parting: false,
        }
    }

    /// Completes what agents are told; nothing may have been read from a link before.
    pub(crate) fn set_common(&mut self, common: Bytes) {
        self.common = common;
    }

    /// A link to the first of `hosts`, which gets them all as its subtree. Its number.
    pub(crate) fn add(&mut self, hosts: Vec<Member>, now: u64) -> usize {
        self.links.push(Link::new(hosts, now));
        self.links.len() - 1
    }

    pub(crate) fn len(&self) -> usize {
        self.links.len()
    }

    /// Hosts behind a link, its own first.
    pub(crate) fn hosts(&self, link: usize) -> &[Member] {
        self.links.get(link).map_or(&[], |link| &link.hosts)
    }

    /// Takes the hosts behind a link other than its own away from it.
    pub(crate) fn take_rest(&mut self, link: usize) -> Vec<Member> {
        let hosts = self.links.get_mut(link).map(|link| &mut link.hosts);
        hosts.filter(|hosts| !hosts.is_empty()).map_or_else(Vec::new, |hosts| hosts.split_off(1))
    }

    /// Hosts that do not belong to a link any more.
    pub(crate) fn remove_hosts(&mut self, link: usize, gone: &[Member]) {
        if let Some(link) = self.links.get_mut(link) {
            link.hosts.retain(|(host, _)| !gone.iter().any(|(other, _)| other == host));
        }
    }

    /// Links whose agents answer.
    pub(crate) fn open(&self) -> impl Iterator<Item = usize> {
        let open = self.links.iter().enumerate().filter(|(_, link)| link.phase == Phase::Open);
        open.map(|(number, _)| number)
    }

    /// Whether a process of a link is still there, or a client of our own.
    pub(crate) fn is_any_left(&self) -> bool {
        !self.by_pid.is_empty() || self.links.iter().any(Link::has_session)
    }

    /// Whether this is the process of a link.
    pub(crate) fn is_ours(&self, pid: i32) -> bool {
        self.by_pid.contains_key(&pid)
    }

    /// Number of processes of links.
    pub(crate) fn processes(&self) -> usize {
        self.by_pid.len()
    }

    pub(crate) fn send(&mut self, poller: &Poller, link: usize, down: &Down, now: u64) {
        self.send_encoded(poller, link, down.lane(), &down.encode(), now);
    }

    pub(crate) fn send_encoded(
        &mut self,
        poller: &Poller,
        number: usize,
        lane: Lane,
        message: &Rc<Vec<u8>>,
        now: u64,
    ) {
        if let Some(link) = self.links.get_mut(number).filter(|link| link.phase == Phase::Open) {
            link.push(lane, Rc::clone(message));
            link.said = now;
            link.write(poller, token(number));
        }
    }

    /// To every agent that answers.
    pub(crate) fn send_all(&mut self, poller: &Poller, down: &Down, now: u64) {
        let message = down.encode();
        for number in 0..self.links.len() {
            self.send_encoded(poller, number, down.lane(), &message, now);
        }
    }

    /// Output of a link was passed on: lets it send as much again.
    pub(crate) fn settle_debts(&mut self, poller: &Poller, now: u64) {
        for number in 0..self.links.len() {
            let owed = std::mem::take(&mut self.links[number].owed);
            if owed > 0 {
                self.send(poller, number, &Down::Credit(owed), now);
            }
        }
    }

    /// Counts output that came over a link.
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
                Phase::Queued { .. } | Phase::Silent { .. } => {
                    link.cut();
                    link.phase = Phase::Over;
                }
                Phase::Over => {}
            }
        }
    }

    /// Gives up what has not answered.
    pub(crate) fn give_up_silent(&mut self) {
        for link in &mut self.links {
            if !matches!(link.phase, Phase::Open | Phase::Over) {
                link.cut();
                link.phase = Phase::Over;
            }
        }
    }

    /// Kills every process that is left.
    pub(crate) fn cut_all(&mut self) {
        self.parting = true;
        for link in &mut self.links {
            link.cut();
            link.phase = Phase::Over;
        }
    }

    /// Whether a child that ended was a link's process.
    pub(crate) fn child_ended(&mut self, pid: i32, end: End) -> bool {
        let Some(number) = self.by_pid.remove(&pid) else { return false };
        let link = &mut self.links[number];
        if link.pid == Some(pid) {
            link.ended = Some(end);
        }
        true
    }

    /// Serves a pipe that is ready.
    pub(crate) fn serve(
        &mut self,
        poller: &Poller,
        ready: Ready,
        now: u64,
        out: &mut Vec<LinkEvent>,
    ) {
        let Token::Link(number, pipe) = ready.token else { return };
        let index = number as usize;
        let Some(link) = self.links.get_mut(index) else { return };
        match pipe {
            Pipe::To => link.write(poller, number),
            Pipe::Err => link.read_stderr(),
            Pipe::From => drop(self.read(poller, index, now, out)),
        }
    }

    /// Reads what is there; whether more may be waiting.
    fn read(&mut self, poller: &Poller, index: usize, now: u64, out: &mut Vec<LinkEvent>) -> bool {
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut taken = 0;
        while taken < TURN {
            let Some(count) = self.links[index].read(&mut buffer, now) else { break };
            taken += count;
            self.bytes(poller, index, &buffer[..count], now, out);
            if self.links[index].phase == Phase::Over {
                break;
            }
        }
        self.buffer = buffer;
        taken >= TURN
    }

    fn bytes(
        &mut self,
        poller: &Poller,
        index: usize,
        bytes: &[u8],
        now: u64,
        out: &mut Vec<LinkEvent>,
    ) {
        let link = &mut self.links[index];
        if link.phase == Phase::Open {
            link.inbox.push(bytes);
        } else {
            match link.search.push(bytes) {
                Found::Nothing => return,
                Found::TooMuch => {
                    let seen = format!("{} bytes of output and no agent", marker::MAX_NOISE);
                    return self.failed(index, Failure::new(Class::Noise, seen), now, out);
                }
                Found::Line(first, behind) => {
                    if !self.first(poller, index, &first, now, out) {
                        return;
                    }
                    let link = &mut self.links[index];
                    if link.phase != Phase::Open {
                        link.search = marker::Search::default();
                        return self.bytes(poller, index, &behind, now, out);
                    }
                    link.inbox.push(&behind);
                }
            }
        }
        self.messages(index, now, out);
    }

    /// The other side's first word; whether to go on with the link.
    fn first(
        &mut self,
        poller: &Poller,
        index: usize,
        first: &First,
        now: u64,
        out: &mut Vec<LinkEvent>,
    ) -> bool {
        match first {
            First::Missing => {
                let seen = format!("no agent at {}", self.ssh.agent.display());
                self.failed(index, Failure::new(Class::AgentMissing, seen), now, out);
                false
            }
            First::Stage | First::Send => match self.for_script(*first == First::Send) {
                Ok(bytes) => {
                    let link = &mut self.links[index];
                    link.phase = Phase::Silent { since: now };
                    link.raw.extend_from_slice(&bytes);
                    link.write(poller, token(index));
                    true
                }
                Err(error) => {
                    let seen = format!("cannot read our own program: {error}");
                    self.failed(index, Failure::new(Class::AgentMissing, seen), now, out);
                    false
                }
            },
            First::Agent { protocol, version } => {
                let ours = (marker::PROTOCOL, env!("CARGO_PKG_VERSION"));
                if (*protocol, version.as_str()) == ours {
                    let link = &mut self.links[index];
                    link.phase = Phase::Open;
                    let setup =
                        Down::Setup { common: self.common.clone(), subtree: link.hosts.clone() };
                    self.send(poller, index, &setup, now);
                    out.push(LinkEvent::Open(index));
                    return true;
                }
                let seen = format!(
                    "agent version {version} (protocol {protocol}), here {} (protocol {})",
                    ours.1, ours.0
                );
                self.failed(index, Failure::new(Class::Version, seen), now, out);
                false
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

    fn messages(&mut self, index: usize, now: u64, out: &mut Vec<LinkEvent>) {
        loop {
            let problem = match self.links[index].inbox.take() {
                Ok(None) => return,
                Ok(Some(message)) => match Up::decode(&message) {
                    Ok(Up::Ping) => continue,
                    Ok(up) => {
                        out.push(LinkEvent::Up(index, up));
                        continue;
                    }
                    Err(error) => error.to_string(),
                },
                Err(error) => error.to_string(),
            };
            return self.broke(index, format!("its agent sent {problem}"), now, out);
        }
    }

    /// A link that was not open failed: again, or never.
    fn failed(&mut self, index: usize, failure: Failure, now: u64, out: &mut Vec<LinkEvent>) {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let random = self.random;
        let stages = self.ssh.stage == StageMode::Auto;
        let link = &mut self.links[index];
        link.cut();
        link.attempts += 1;
        // What is there does not fit: send ours.
        let misfit = matches!(failure.class, Class::Version | Class::AgentBroken);
        if misfit && stages && !link.send_agent && !link.hosts.first().is_some_and(|h| h.1.here) {
            (link.send_agent, link.whole_script) = (true, true);
            link.phase = Phase::Queued { at: now };
            return;
        }
        // Perhaps the login shell did not understand the short way to the agent.
        let shell = matches!(failure.class, Class::Shell | Class::Other) && link.ended.is_some();
        let there = link.hosts.first().is_some_and(|host| !host.1.here);
        if shell && there && !link.whole_script && has_short_way(&self.ssh) && !self.parting {
            link.whole_script = true;
            link.phase = Phase::Queued { at: now };
            return;
        }
        match retry_after(failure.class, link.attempts, random).filter(|_| !self.parting) {
            Some(pause) => link.phase = Phase::Queued { at: now.saturating_add(pause) },
            None => {
                link.phase = Phase::Over;
                out.push(LinkEvent::Failed(index, failure));
            }
        }
    }

    /// A link that was open broke.
    fn broke(&mut self, index: usize, seen: String, now: u64, out: &mut Vec<LinkEvent>) {
        let link = &mut self.links[index];
        if link.phase != Phase::Open {
            return self.failed(index, Failure::new(Class::AgentSilent, seen), now, out);
        }
        link.cut();
        link.phase = Phase::Over;
        let silent = now.saturating_sub(link.heard);
        out.push(LinkEvent::Lost(index, Loss { seen, silent }));
    }

    /// Everything that is due. To be called after what was ready has been served.
    pub(crate) fn step(&mut self, poller: &Poller, now: u64, out: &mut Vec<LinkEvent>) {
        let mut logins =
            self.links.iter().filter(|link| matches!(link.phase, Phase::Silent { .. })).count();
        let mut due = Vec::new();
        for index in 0..self.links.len() {
            match self.links[index].phase {
                Phase::Queued { at } if now >= at && logins < LOGINS => {
                    logins += 1;
                    due.push(index);
                }
                Phase::Silent { since } => self.step_silent(poller, index, since, now, out),
                Phase::Open => self.step_open(poller, index, now, out),
                Phase::Queued { .. } | Phase::Over => {}
            }
        }
        if !due.is_empty() {
            self.start(poller, &due, now, out);
        }
    }

    /// Starts the processes of links, or clients of our own.
    fn start(&mut self, poller: &Poller, due: &[usize], now: u64, out: &mut Vec<LinkEvent>) {
        let (mut indices, mut all) = (Vec::new(), Vec::new());
        for &index in due {
            let link = &mut self.links[index];
            let Some((_, host)) = link.hosts.first() else {
                link.phase = Phase::Over;
                continue;
            };
            let told = remote_command(&self.ssh, link.whole_script);
            if self.ssh.command == builtin::NAME && !host.here {
                let session = builtin::start(&self.ssh, host, &told);
                let attached = session
                    .and_then(|session| link.attach_session(poller, token(index), session, now));
                self.started(poller, index, attached, now, out);
            } else {
                indices.push(index);
                all.push(command::process(&self.ssh, host, &told));
            }
        }
        for (index, started) in indices.into_iter().zip(process::start(&all)) {
            let attached = started.and_then(|started| {
                self.by_pid.insert(started.pid, index);
                self.links[index].attach(poller, token(index), started, now)
            });
            self.started(poller, index, attached, now, out);
        }
    }

    fn started(
        &mut self,
        poller: &Poller,
        index: usize,
        attached: std::io::Result<()>,
        now: u64,
        out: &mut Vec<LinkEvent>,
    ) {
        let link = &mut self.links[index];
        let here = link.hosts.first().is_some_and(|(_, host)| host.here);
        if let Err(error) = attached {
            let program = if here { OsStr::new("/proc/self/exe") } else { &self.ssh.command };
            let seen = format!("cannot start {}: {error}", program.display());
            return self.failed(index, Failure::new(Class::Command, seen), now, out);
        }
        if !here {
            link.raw = script_input(&self.ssh, link.send_agent);
            link.write(poller, token(index));
        }
    }

    fn step_silent(
        &mut self,
        poller: &Poller,
        index: usize,
        since: u64,
        now: u64,
        out: &mut Vec<LinkEvent>,
    ) {
        if self.is_at_its_end(index, now) {
            let more = self.read(poller, index, now, out);
            let link = &mut self.links[index];
            if matches!(link.phase, Phase::Silent { .. }) && !more {
                link.read_stderr();
                let failure =
                    Failure::of_shell(&link.complaint(), &link.search.noise(), link.ended);
                self.failed(index, failure, now, out);
            }
        } else if now >= since.saturating_add(CONNECT.ms()) {
            let seen = format!("no answer within {} s", CONNECT.limit.as_secs());
            self.failed(index, Failure::new(Class::Timeout, seen), now, out);
        }
    }

    fn is_at_its_end(&self, index: usize, now: u64) -> bool {
        let link = &self.links[index];
        link.ended.is_some() || link.eof.is_some_and(|at| now >= at.saturating_add(LAST_WORDS.ms()))
    }

    fn step_open(&mut self, poller: &Poller, index: usize, now: u64, out: &mut Vec<LinkEvent>) {
        if self.is_at_its_end(index, now) {
            // Its process is gone. Somebody else may hold its output open for ever, so its end is
            // not waited for.
            let more = self.read(poller, index, now, out);
            let link = &mut self.links[index];
            if more || link.phase != Phase::Open {
                return;
            }
            link.read_stderr();
            let said = link.complaint();
            let said = said.lines().map(str::trim).rfind(|line| !line.is_empty());
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
            return self.broke(index, seen, now, out);
        }
        let link = &self.links[index];
        if now >= link.heard.saturating_add(CHILD_SILENT.ms()) {
            let seen = format!("nothing was heard from it for {} s", CHILD_SILENT.limit.as_secs());
            return self.broke(index, seen, now, out);
        }
        if now >= link.said.saturating_add(HEARTBEAT.ms()) && link.to.is_some() {
            self.send(poller, index, &Down::Ping, now);
        }
    }

    /// When [`Links::step`] is due although nothing is ready.
    pub(crate) fn deadline(&self) -> Option<u64> {
        let busy = self.links.iter().filter(|l| matches!(l.phase, Phase::Silent { .. })).count();
        let each = self.links.iter().filter_map(|link| match link.phase {
            Phase::Queued { at } => (busy < LOGINS).then_some(at),
            Phase::Over => None,
            _ if link.ended.is_some() => Some(0),
            _ if link.eof.is_some() => link.eof.map(|at| at.saturating_add(LAST_WORDS.ms())),
            Phase::Silent { since } => Some(since.saturating_add(CONNECT.ms())),
            Phase::Open => {
                let lost = link.heard.saturating_add(CHILD_SILENT.ms());
                let ping = link.said.saturating_add(HEARTBEAT.ms());
                Some(if link.to.is_some() { lost.min(ping) } else { lost })
            }
        });
        each.min()
    }
}

/// Links are counted in 32 bits in the epoll set; there are as many as hosts at most.
fn token(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}
