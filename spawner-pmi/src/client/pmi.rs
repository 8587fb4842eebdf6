//! The services under a launcher that serves PMI-1 or PMI-2.
//!
//! PMI-1 is lines of `key=value` words, over an inherited descriptor or a port. PMI-2 is messages
//! with their length in front and fields between `;`; its first line is that of PMI-1, and the
//! server's answer to it says which version it goes on with. Two servers matter: Hydra and Slurm
//! (`srun --mpi=pmi2` speaks both versions). They differ in the order of fields, and agree in that
//! puts are seen after the next barrier only.

use std::io::{Cursor, Write};

use nix::sys::socket::{MsgFlags, SockType, recv};
use settings::Env;
use settings::deadlines::bootstrap::{ANNOUNCE, CALL, PM_ANSWER, PM_LEAVE};

use super::announced::{Inherited, Server, pmi_server};
use super::process_manager::{
    Finalization, FinalizeCalls, Identity, JobInfo, ProcessManager, ProcessManagerBounds,
    ProcessManagerError, join, mapping, unwatched, value,
};
use super::stream::{Stream, dial};
use crate::wire::{PROCESS_MAPPING, PmiVersion};
use bootstrap::service::{Bootstrap, Error, HostId, Rank, send_best_effort};
use bootstrap::sys::{self, ANNOUNCE_SLICE_MS, PeerSocket};
use bootstrap::wait::{Wait, Watch};
use bootstrap::{Announced, Provider};

/// PMI-1 and PMI-2.
pub const PMI: Provider = Provider {
    name: "PMI",
    find: |env, trace| {
        Ok(pmi_server(env, trace)?.map(|server| Box::new(server) as Box<dyn Announced>))
    },
};

impl Announced for Server {
    fn describe(&self) -> String {
        match self {
            Self::Descriptor(Inherited { fd, rank, size, version, .. }) => {
                format!("{} on descriptor {fd}: rank {rank} of {size}", version.name())
            }
            Self::Port { address, id } => format!("PMI-1 at {address}: process {id} there"),
        }
    }

    fn connect(&self, env: &Env) -> Result<Box<dyn Bootstrap>, Error> {
        match self {
            Self::Descriptor(server) => {
                let fd = server.fd;
                let socket = PeerSocket::adopt(fd, SockType::Stream, "PMI_FD");
                let socket = socket.map_err(|source| {
                    let (manager, operation) = ("PMI", format!("use PMI_FD={fd}"));
                    ProcessManagerError::Os { manager, operation, source }
                })?;
                let bounds = ProcessManagerBounds::of(env, server.size);
                over(socket, server, &Identity::here(), bounds)
            }
            Self::Port { address, id } => {
                let mut stream = Stream::new(dial("PMI-1", address, PM_ANSWER)?, PM_ANSWER);
                let (rank, size) = introduce(&mut stream, id)?;
                let manager = Pmi::one(stream, Rank(rank), size)?;
                let bounds = ProcessManagerBounds::of(env, size);
                join(Box::new(manager), &Identity::here(), bounds)
            }
        }
    }
}

/// Over a connection.
pub(super) fn over(
    socket: PeerSocket,
    server: &Inherited,
    identity: &Identity,
    bounds: ProcessManagerBounds,
) -> Result<Box<dyn Bootstrap>, Error> {
    let manager = Pmi::begin(Stream::new(socket, bounds.answer), server)?;
    join(Box::new(manager), identity, bounds)
}

/// Least length of a key that is of use here.
const LEAST_KEY: usize = 32;
/// Bytes of a PMI-1 request that every server takes: Slurm reads 1024 and takes the rest for
/// another request.
const LINE: usize = 1024;
/// Bytes of a PMI-2 value: the protocol has no question for it, the standard header says 1024.
const VALUE_LIMIT: usize = 1024;

/// The connection of one rank. [`JobInfo::job`] is the name of its space of keys.
pub(super) struct Pmi {
    stream: Stream,
    info: JobInfo,
    finalization: &'static Finalization,
}

impl Pmi {
    /// Connects with the version that was announced, or with PMI-1 where the server knows no
    /// better.
    pub(super) fn begin(mut stream: Stream, server: &Inherited) -> Result<Self, Error> {
        if server.version == PmiVersion::Two {
            stream.manager = server.version.name();
            if agree(&mut stream, "2")? == "2" {
                stream.version = server.version;
                return Self::two(stream, server);
            }
        }
        Self::one(stream, server.rank, server.size)
    }

    /// With PMI-1.
    fn one(mut stream: Stream, rank: Rank, size: u32) -> Result<Self, Error> {
        let manager = PmiVersion::One.name();
        stream.manager = manager;
        agree(&mut stream, "1")?;
        let during = "get_maxes";
        let maxes = stream.ask(during, "cmd=get_maxes", "maxes")?;
        let limit = |name| {
            let limit = stream.integer(during, &maxes, name)?;
            let problem = || format!("{name} is negative");
            usize::try_from(limit)
                .map_err(|_| stream.nonsense(during, problem(), &limit.to_string()))
        };
        let (key, value_limit) = (limit("keylen_max")?, limit("vallen_max")?);
        let during = "get_my_kvsname";
        let names = stream.ask(during, "cmd=get_my_kvsname", "my_kvsname")?;
        let job = stream.need(during, &names, "kvsname")?;
        if job.is_empty() || rank.0 >= size {
            let seen = format!("rank {rank} of {size}, space {job:?}");
            return Err(stream.nonsense(during, "that cannot be".to_owned(), &seen));
        }
        // The server reads a request into so many bytes, whatever it says of values.
        let words = "cmd=put kvsname= key= value=\n".len() + job.len() + LEAST_KEY;
        let value_limit = value_limit.min(LINE.saturating_sub(words));
        if key < LEAST_KEY || value::usable(value_limit).is_none() {
            return Err(ProcessManagerError::Limits { manager, key, value: value_limit }.into());
        }
        Ok(Self::new(stream, JobInfo { manager, rank, size, job, value_limit }))
    }

    /// With PMI-2.
    fn two(mut stream: Stream, server: &Inherited) -> Result<Self, Error> {
        let Inherited { rank, size, ref job, .. } = *server;
        let during = "fullinit";
        let job = job.as_deref().unwrap_or_default();
        let body = format!("cmd=fullinit;pmijobid={job};pmirank={rank};threaded=FALSE;");
        let answer = stream.ask(during, &body, "fullinit-response")?;
        for (name, ours) in [("rank", rank.0), ("size", size)] {
            let theirs = stream.integer(during, &answer, name)?;
            if theirs != i64::from(ours) {
                let problem = format!("{name} {theirs}, the environment says {ours}");
                return Err(stream.nonsense(during, problem, ""));
            }
        }
        let during = "job-getid";
        let answer = stream.ask(during, "cmd=job-getid;", "job-getid-response")?;
        let job = stream.need(during, &answer, "jobid")?;
        let (manager, value_limit) = (stream.manager, VALUE_LIMIT);
        Ok(Self::new(stream, JobInfo { manager, rank, size, job, value_limit }))
    }

    fn new(stream: Stream, info: JobInfo) -> Self {
        let calls = PmiFinalize { fd: stream.number(), version: stream.version };
        Self { stream, info, finalization: Finalization::new(Box::new(calls)) }
    }

    /// The value of a key, `None` when there is no such key.
    pub(super) fn look_up(&mut self, key: &str) -> Result<Option<String>, Error> {
        let job = &self.info.job;
        match self.stream.version {
            PmiVersion::One => {
                let (during, body) = ("get", format!("cmd=get kvsname={job} key={key}"));
                let wait = self.stream.wait(during);
                let answer = self.stream.exchange(&wait, &body, "get_result", &mut unwatched())?;
                match self.stream.refusal(during, &answer)? {
                    Some(_) => Ok(None),
                    None => self.stream.need(during, &answer, "value").map(Some),
                }
            }
            PmiVersion::Two => {
                let body = format!("cmd=kvs-get;jobid={job};srcid=-1;key={key};");
                self.find("kvs-get", &body, "kvs-get-response")
            }
        }
    }

    /// Number of this rank's program in the job (PMI-1).
    pub(super) fn program(&mut self) -> Result<i64, Error> {
        let during = "get_appnum";
        let answer = self.stream.ask(during, "cmd=get_appnum", "appnum")?;
        self.stream.integer(during, &answer, "appnum")
    }

    /// Takes leave at once (PMI-1).
    pub(super) fn finalize(&mut self) -> Result<(), Error> {
        self.stream.ask("finalize", "cmd=finalize", "finalize_ack").map(drop)
    }

    /// Asks the server to end the job.
    pub(super) fn abort(&self, code: i32) {
        PmiFinalize { fd: self.stream.number(), version: self.stream.version }.abort(code);
    }

    /// The `value` of an answer in PMI-2, `None` when nothing was found.
    fn find(
        &mut self,
        during: &'static str,
        body: &str,
        expected: &str,
    ) -> Result<Option<String>, Error> {
        let answer = self.stream.ask(during, body, expected)?;
        if self.stream.need(during, &answer, "found")? != "TRUE" {
            return Ok(None);
        }
        self.stream.need(during, &answer, "value").map(Some)
    }
}

/// Which version to go on with, when ours is asked for. The first words of both are a line.
fn agree(stream: &mut Stream, ours: &'static str) -> Result<&'static str, Error> {
    let wait = stream.wait("init");
    let subversion = if ours == "1" { 1 } else { 0 };
    let words = format!("cmd=init pmi_version={ours} pmi_subversion={subversion}");
    let answer = stream.exchange(&wait, &words, "response_to_init", &mut unwatched())?;
    let refused = stream.refusal("init", &answer)?.is_some();
    match answer.get("pmi_version") {
        Some(seen) if seen == ours && !refused => Ok(ours),
        // To be asked for again in the version that the server named.
        Some("1") if ours != "1" => Ok("1"),
        seen => Err(stream.wrong_version(seen.unwrap_or("none").to_owned(), ours)),
    }
}

/// The first words on a port: the server says which rank this is.
fn introduce(stream: &mut Stream, id: &str) -> Result<(u32, u32), Error> {
    let wait = stream.wait("initack");
    let during = wait.during();
    stream.exchange(&wait, &format!("cmd=initack pmiid={id}"), "initack", &mut unwatched())?;
    let (mut rank, mut size, mut debug) = (None, None, false);
    while rank.is_none() || size.is_none() || !debug {
        let answer = stream.receive(&wait, "set", &mut unwatched())?;
        let read = |name| match answer.get(name) {
            Some(_) => stream.integer(during, &answer, name).map(|n| u32::try_from(n).ok()),
            None => Ok(None),
        };
        (rank, size) = (read("rank")?.or(rank), read("size")?.or(size));
        debug |= answer.get("debug").is_some();
    }
    rank.zip(size).ok_or_else(|| stream.nonsense(during, "no rank or size".to_owned(), ""))
}

impl ProcessManager for Pmi {
    fn job_info(&self) -> &JobInfo {
        &self.info
    }

    fn host_map(&mut self) -> Result<Option<Vec<HostId>>, Error> {
        let key = PROCESS_MAPPING;
        let text = match self.stream.version {
            PmiVersion::One => self.look_up(key)?,
            // A server that does not know the attribute may answer with another one's value.
            PmiVersion::Two => {
                let body = format!("cmd=info-getjobattr;key={key};");
                self.find("info-getjobattr", &body, "info-getjobattr-response")?
            }
        };
        Ok(text.and_then(|text| mapping::hosts(&text, self.info.size)))
    }

    fn put(&mut self, key: &str, value: &str) -> Result<(), Error> {
        let job = &self.info.job;
        let (during, body, expected) = match self.stream.version {
            PmiVersion::One => {
                ("put", format!("cmd=put kvsname={job} key={key} value={value}"), "put_result")
            }
            PmiVersion::Two => {
                ("kvs-put", format!("cmd=kvs-put;key={key};value={value};"), "kvs-put-response")
            }
        };
        self.stream.ask(during, &body, expected).map(drop)
    }

    fn fence(&mut self, watch: &mut Watch<'_>) -> Result<(), Error> {
        let (during, body, expected) = match self.stream.version {
            PmiVersion::One => ("barrier", "cmd=barrier_in", "barrier_out"),
            PmiVersion::Two => ("kvs-fence", "cmd=kvs-fence;", "kvs-fence-response"),
        };
        let answer = self.stream.exchange(&Wait::new(during, CALL), body, expected, watch)?;
        self.stream.accepted(during, &answer)
    }

    fn get(&mut self, from: Rank, key: &str) -> Result<String, Error> {
        self.look_up(key)?.ok_or_else(|| {
            let problem = "is not there after the fence".to_owned();
            let manager = self.info.manager;
            ProcessManagerError::Value { manager, key: key.to_owned(), from, problem }.into()
        })
    }

    fn finalization(&self) -> &'static Finalization {
        self.finalization
    }
}

impl Drop for Pmi {
    fn drop(&mut self) {
        self.finalization.close();
    }
}

/// The last words: made and sent where nothing may be allocated.
#[derive(Debug)]
struct PmiFinalize {
    fd: i32,
    version: PmiVersion,
}

impl FinalizeCalls for PmiFinalize {
    fn finalize(&self) {
        let words: &[u8] = match self.version {
            PmiVersion::One => b"cmd=finalize\n",
            PmiVersion::Two => b"    13cmd=finalize;",
        };
        farewell(self.fd, words, b"finalize");
    }

    fn is_lost(&self) -> bool {
        sys::has_hung_up(self.fd)
    }

    fn abort(&self, code: i32) {
        // Numbers are formatted without memory of the heap.
        let mut words = Cursor::new([0; 192]);
        let _ = match self.version {
            PmiVersion::One => writeln!(words, "cmd=abort exitcode={code}"),
            PmiVersion::Two => {
                let body = format_args!(
                    "cmd=abort;isworld=TRUE;msg=gasnet exit with code {code};exitcode={code};"
                );
                // The length of the body in six columns goes in front of it.
                words.set_position(6);
                let _ = words.write_fmt(body);
                let length = words.position() - 6;
                words.set_position(0);
                let written = write!(words, "{length:6}");
                words.set_position(6 + length);
                written
            }
        };
        let (bytes, len) = (words.get_ref(), usize::try_from(words.position()).unwrap_or(0));
        send_best_effort(self.fd, &bytes[..len], ANNOUNCE.limit);
    }
}

/// Sends the last words on a byte stream and waits, within [`PM_LEAVE`], until the answer has
/// `sign` in it or the stream ends. Async-signal-safe.
fn farewell(socket: i32, words: &[u8], sign: &[u8]) {
    let bound = PM_LEAVE.limit;
    send_best_effort(socket, words, bound);
    let (mut seen, mut len) = ([0u8; 512], 0);
    for _ in 0..=bound.as_millis() / ANNOUNCE_SLICE_MS as u128 {
        if sys::poll_one(socket, libc::POLLIN, ANNOUNCE_SLICE_MS) == 0 {
            continue;
        }
        if len == seen.len() {
            // Late answers to something else: the end of what was seen may hold the start of the
            // sign.
            seen.copy_within(len - sign.len().min(len).., 0);
            len = sign.len().min(len);
        }
        let Ok(got) = recv(socket, &mut seen[len..], MsgFlags::MSG_DONTWAIT) else { continue };
        len += got;
        if got == 0 || seen[..len].windows(sign.len()).any(|part| part == sign) {
            return;
        }
    }
}
