//! The job's end of the socket: who asks, what was asked, what is answered.

use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::unistd::geteuid;
use settings::deadlines::watch::{CLIENT, LOOK, STACKS};

use super::look::{RankLook, Run};
use super::place;
use super::questions::{Complete, Questions, Seen, Subject};
use super::stacks::{grouped, lines};
use super::stall::Stall;
use super::{Answer, Ask, JobView, MOST_RANKS, RankState, RankView};
use crate::agent::machine::Machine;
use crate::agent::record::Record;
use crate::event_loop::{Poller, Token};
use crate::plan::HostEntry;

/// Programs that may ask at the same time.
const MOST_CLIENTS: usize = 16;
/// Bytes of a question.
const MOST_QUESTION: usize = 4096;
/// Who asks for the job itself.
pub(crate) const OURSELVES: u32 = 0;
/// Frames of a thread that are shown of a job that makes no progress.
const SHOWN_FRAMES: usize = 12;
/// Most hosts that an answer names.
const MOST_HOSTS: usize = 1 << 12;

struct Client {
    id: u32,
    stream: UnixStream,
    pid: i32,
    got: Vec<u8>,
    to_send: Vec<u8>,
    watched: bool,
    /// When it is given up; none while it waits for us.
    until: Option<u64>,
    /// It has asked nothing yet, or has its answer: it may ask.
    may_ask: bool,
}

/// What the owner of the job must do about a question.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// Send the ranks a signal; who wants it.
    Signal { number: i32, from: i32 },
    /// Ask the hosts of the job, under a number that [`Watch::ask`] gives.
    Hosts { client: u32, subject: Subject },
    /// Tell what the job is.
    Job { client: u32 },
}

/// The socket of a job. Without one (no directory, no descriptors) the job runs all the same.
pub(crate) struct Watch {
    poller: Poller,
    path: Option<PathBuf>,
    listener: Option<UnixListener>,
    clients: Vec<Client>,
    last: u32,
    pub(crate) questions: Questions<u32>,
    stall: Option<Stall>,
    /// Why there is no socket.
    pub(crate) problem: Option<String>,
}

impl Watch {
    /// Opens the socket of a job.
    pub(crate) fn open(poller: &Poller, job: &str, stall: Option<u64>) -> Self {
        let directory = place::directory(settings::variable);
        let path = place::socket_of(&directory, job);
        let bind = || -> io::Result<UnixListener> {
            place::prepare(&directory)?;
            let listener = UnixListener::bind(&path)?;
            std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600))?;
            listener.set_nonblocking(true)?;
            poller.add_read(&listener, Token::Watch)?;
            Ok(listener)
        };
        let (listener, problem) = match bind() {
            Ok(listener) => (Some(listener), None),
            Err(error) => (None, Some(format!("{}: {error}", path.display()))),
        };
        Self {
            poller: poller.clone(),
            path: listener.is_some().then_some(path),
            listener,
            clients: Vec::new(),
            last: 0,
            questions: Questions::default(),
            stall: stall.map(Stall::new),
            problem,
        }
    }

    /// Somebody knocks.
    pub(crate) fn accept(&mut self) {
        let Some(listener) = &self.listener else { return };
        let Ok((stream, _)) = listener.accept() else { return };
        let Ok(peer) = getsockopt(&stream, PeerCredentials) else { return };
        let ours = peer.uid() == 0 || peer.uid() == geteuid().as_raw();
        if !ours || self.clients.len() >= MOST_CLIENTS || stream.set_nonblocking(true).is_err() {
            return;
        }
        self.last = self.last.wrapping_add(1).max(1);
        if self.poller.add_read(&stream, Token::Watcher(self.last)).is_ok() {
            let until = Some(self.poller.now() + CLIENT.ms());
            let (got, to_send, watched) = (Vec::new(), Vec::new(), false);
            let (id, pid, may_ask) = (self.last, peer.pid(), true);
            self.clients.push(Client { id, stream, pid, got, to_send, watched, until, may_ask });
        }
    }

    /// Something can be read from who asks, or written to him. What he wants, if he asks.
    pub(crate) fn serve(&mut self, id: u32, readable: bool) -> Option<Wanted> {
        if readable && let Err(()) = self.read(id) {
            self.forget(id);
            return None;
        }
        self.flush(id);
        self.next_question(id)
    }

    /// Whether he is still there.
    fn read(&mut self, id: u32) -> Result<(), ()> {
        let client = self.clients.iter_mut().find(|client| client.id == id).ok_or(())?;
        let mut bytes = [0; MOST_QUESTION];
        match (&client.stream).read(&mut bytes) {
            Ok(0) => Err(()),
            Ok(count) if client.got.len() + count > MOST_QUESTION => Err(()),
            Ok(count) => {
                client.got.extend_from_slice(&bytes[..count]);
                Ok(())
            }
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
            {
                Ok(())
            }
            Err(_) => Err(()),
        }
    }

    fn next_question(&mut self, id: u32) -> Option<Wanted> {
        let client = self.clients.iter_mut().find(|client| client.id == id)?;
        if !client.may_ask {
            return None;
        }
        let end = memchr::memchr(b'\n', &client.got)?;
        let line: Vec<u8> = client.got.drain(..=end).collect();
        let from = client.pid;
        (client.may_ask, client.until) = (false, None);
        let client = id;
        match serde_json::from_slice(&line) {
            Ok(Ask::Job) => Some(Wanted::Job { client }),
            Ok(Ask::Ranks) => Some(Wanted::Hosts { client, subject: Subject::Ranks }),
            Ok(Ask::Stacks) => Some(Wanted::Hosts { client, subject: Subject::Stacks }),
            Ok(Ask::Signal { number }) if (1..=libc::SIGRTMAX()).contains(&number) => {
                self.answer(client, &Answer::Sent);
                Some(Wanted::Signal { number, from })
            }
            Ok(Ask::Signal { number }) => {
                let text = format!("{number} is no signal");
                self.answer(client, &Answer::Refused(text));
                None
            }
            Err(error) => {
                let text = format!("a question that cannot be read: {error}");
                self.answer(client, &Answer::Refused(text));
                None
            }
        }
    }

    pub(crate) fn answer(&mut self, id: u32, answer: &Answer) {
        if let Some(client) = self.clients.iter_mut().find(|client| client.id == id) {
            client.to_send = serde_json::to_vec(answer).unwrap_or_default();
            client.to_send.push(b'\n');
            client.may_ask = true;
            client.until = Some(self.poller.now() + CLIENT.ms());
            self.flush(id);
        }
    }

    fn flush(&mut self, id: u32) {
        let Some(client) = self.clients.iter_mut().find(|client| client.id == id) else { return };
        while !client.to_send.is_empty() {
            match (&client.stream).write(&client.to_send) {
                Ok(count) => drop(client.to_send.drain(..count)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => return self.forget(id),
            }
        }
        let (token, write) = (Token::Watcher(id), !client.to_send.is_empty());
        if client.watched != write && self.poller.also_write(&client.stream, token, write).is_ok() {
            client.watched = write;
        }
    }

    fn forget(&mut self, id: u32) {
        let poller = &self.poller;
        self.clients.retain(|client| {
            if client.id == id {
                poller.remove(&client.stream);
            }
            client.id != id
        });
    }

    /// Begins a question to hosts; its number.
    pub(crate) fn ask(
        &mut self,
        client: u32,
        subject: Subject,
        hosts: impl IntoIterator<Item = u32>,
    ) -> u32 {
        let bound = match subject {
            Subject::Ranks => LOOK,
            Subject::Stacks => STACKS,
        };
        let until = self.poller.now() + bound.ms();
        self.questions.ask(client, subject, hosts, until)
    }

    pub(crate) fn heard(&mut self, number: u32, host: u32, seen: Seen) {
        self.questions.answer(number, host, seen);
    }

    /// What the job itself wants to know of its ranks now, to see that they make progress.
    pub(crate) fn own_question(&mut self) -> Option<Subject> {
        let now = self.poller.now();
        self.stall.as_mut()?.is_due(now).then_some(Subject::Ranks)
    }

    /// Answers what can be answered, and gives up those that do not take it. What is to be said of
    /// a job that makes no progress, and what its owner must ask then.
    pub(crate) fn step(
        &mut self,
        machine: &Machine,
        record: &Record<'_>,
        hosts: &[String],
    ) -> (Vec<String>, Option<Subject>) {
        let (now, mut said, mut more) = (self.poller.now(), Vec::new(), None);
        while let Some(complete) = self.questions.next_complete(now) {
            let client = complete.who;
            if client != OURSELVES {
                self.answer(client, &answer_of(complete, machine, record, hosts));
            } else if complete.subject == Subject::Stacks {
                said.extend(lines(&grouped(&complete.stacks), SHOWN_FRAMES));
            } else if let Some(stall) = &mut self.stall {
                let [started, _, ended] = record.counts;
                let running = started.saturating_sub(ended);
                if let Some(ms) = stall.looked(now, &complete.looks, running) {
                    said.push(stall_text(ms, &complete.looks));
                    more = Some(Subject::Stacks);
                }
            }
        }
        let late = |client: &Client| client.until.is_some_and(|until| now >= until);
        let late: Vec<u32> =
            self.clients.iter().filter(|client| late(client)).map(|client| client.id).collect();
        late.into_iter().for_each(|id| self.forget(id));
        (said, more)
    }

    /// Whether [`Watch::step`] may have something to do.
    pub(crate) fn is_due(&self) -> bool {
        let now = self.poller.now();
        self.questions.has_complete(now) || self.deadline().is_some_and(|at| now >= at)
    }

    pub(crate) fn deadline(&self) -> Option<u64> {
        let clients = self.clients.iter().filter_map(|client| client.until);
        let stall = self.stall.as_ref().and_then(Stall::deadline);
        clients.chain(self.questions.deadline()).chain(stall).min()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            // Gone already, or not ours to remove any more.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// That a job makes no progress, and what its ranks wait for.
fn stall_text(ms: u64, looks: &[RankLook]) -> String {
    let mut waits = std::collections::BTreeMap::<_, u32>::new();
    for cause in looks.iter().filter_map(|look| look.waits_for) {
        *waits.entry(RankState::Waiting(cause).to_string()).or_default() += 1;
    }
    let waits: Vec<String> = waits.iter().map(|(what, count)| format!("{count} {what}")).collect();
    format!(
        "no progress: for {} s every rank has waited ({}) and no message has come; where they are:",
        ms / 1000,
        waits.join(", ")
    )
}

/// What a job says of itself.
pub(crate) fn job_view(
    launcher: i32,
    seconds: f64,
    (machine, record): (&Machine, &Record<'_>),
    hosts: &[String],
) -> JobView {
    let plan = record.plan;
    let logins: &[HostEntry] = if plan.map.is_here_only() { &[] } else { &plan.map.hosts };
    let [started, hello, ended] = record.counts;
    JobView {
        job: plan.job_id.clone(),
        launcher,
        command: plan.argv.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
        ranks: u32::try_from(record.ranks.len()).unwrap_or(u32::MAX),
        hosts: hosts.iter().take(MOST_HOSTS).cloned().collect(),
        logins: logins.iter().take(MOST_HOSTS).cloned().collect(),
        seconds,
        started,
        hello,
        ended,
        ending: machine.is_ending(),
    }
}

fn answer_of(
    complete: Complete<u32>,
    machine: &Machine,
    record: &Record<'_>,
    hosts: &[String],
) -> Answer {
    let name = |host: &u32| hosts.get(*host as usize).cloned().unwrap_or_default();
    let silent = complete.silent.iter().map(name).collect();
    match complete.subject {
        Subject::Stacks => Answer::Stacks { stacks: complete.stacks, silent },
        Subject::Ranks => {
            let gasnet = record.is_gasnet();
            let mut looks = complete.looks.into_iter().peekable();
            let view = |(number, rank): (u32, &crate::report::RankRecord)| {
                while looks.next_if(|look| look.rank < number).is_some() {}
                let look = looks.next_if(|look| look.rank == number);
                RankView {
                    rank: number,
                    host: rank.host.clone(),
                    // Behind a wrapper the program is another process than the one that was started.
                    pid: look.as_ref().map(|look| look.pid).or(rank.pid),
                    state: state_of(machine, rank, look.as_ref(), gasnet),
                    cpu_ms: look.map_or(0, |look| look.cpu_ms),
                    resident_kib: look.map_or(0, |look| look.resident_kib),
                    messages: look.map_or(0, |look| look.messages),
                }
            };
            let ranks = (0..).zip(&record.ranks).take(MOST_RANKS).map(view).collect();
            Answer::Ranks { ranks, silent }
        }
    }
}

fn state_of(
    machine: &Machine,
    rank: &crate::report::RankRecord,
    look: Option<&RankLook>,
    gasnet: bool,
) -> RankState {
    if let Some(end) = rank.end {
        return RankState::Ended(end);
    }
    if rank.pid.is_none() {
        return RankState::Pending;
    }
    let Some(look) = look else { return RankState::Unknown };
    match (look.run, look.waits_for) {
        (Run::Stopped, _) => RankState::Stopped,
        _ if machine.is_exiting(rank.rank) => RankState::Exiting,
        _ if !rank.hello && gasnet => RankState::Starting,
        (_, Some(cause)) if look.sleeps => RankState::Waiting(cause),
        (Run::Ready, _) => RankState::Computing,
        (Run::Asleep, _) => RankState::Sleeping,
    }
}
