//! Starts ranks: makes the pipes and the socket of each and launches the program.

use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use bootstrap::Rank;
use nix::fcntl::OFlag;
use nix::sched::CpuSet;
use nix::sys::resource::rlim_t;
use nix::sys::signal::SigSet;
use nix::sys::socket::sockopt::PassCred;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, setsockopt, socketpair};
use settings::deadlines::agent::EXEC;

use super::host_ranks::HostRanks;
use super::input;
use super::limits::{self, Short};
use super::machine::CODE_LAUNCH;
use super::pmi_server;
use super::pmix::Variables;
use super::sys::{self, Child, Failure, Image, Step};
use crate::plan::{JobPlan, Pmi, Program};

/// Ranks started at the same time, between two rounds of the event loop.
pub(super) const SPAWN_BATCH: u32 = 16;

/// Where a rank's standard input comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Input {
    Empty,
    Inherited,
    Pipe,
}

/// A rank that runs, with the agent's ends of its channels.
#[derive(Debug)]
pub(super) struct Started {
    pub(super) pid: i32,
    pub(super) stdin: Option<OwnedFd>,
    pub(super) stdout: OwnedFd,
    pub(super) stderr: OwnedFd,
    pub(super) socket: OwnedFd,
    /// Its connection to the PMI server, where there is one.
    pub(super) pmi: Option<OwnedFd>,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum SpawnError {
    #[error("cannot {operation} for rank {rank}: {source}{}", hint(.source))]
    Channel { rank: u32, operation: &'static str, source: io::Error },
    #[error("{text}")]
    Launch { text: String, code: i32 },
    #[error("{what} contains a NUL byte, which no program can receive")]
    Nul { what: String },
    #[error("cannot bind rank {rank} to CPU {cpu}: the system's CPU sets end before it")]
    Cpu { rank: u32, cpu: usize },
    #[error(transparent)]
    Limit(Short),
    #[error(
        "cannot serve ranks of Open MPI: {0}; install gasnetrun_ibv on every host (scripts/install), or on the launching one without --stage never, start the job with -spawner=mpi, or say --pmi=off if ranks are no MPI job together"
    )]
    OpenMpi(String),
}

fn hint(source: &io::Error) -> &'static str {
    match source.raw_os_error() {
        Some(libc::EMFILE) => "; the job needs more descriptors than it seemed: raise `ulimit -n`",
        Some(libc::ENFILE) => "; the whole system is out of descriptors (fs.file-max)",
        _ => "",
    }
}

impl SpawnError {
    pub(super) const fn code(&self) -> i32 {
        match self {
            Self::Launch { code, .. } => *code,
            _ => CODE_LAUNCH,
        }
    }
}

pub(super) struct Spawner<'a> {
    plan: &'a JobPlan,
    share: HostRanks,
    /// One for each program of the job.
    images: Vec<ProgramImage>,
    /// By local rank: what it finds PMIx by, the names being the same for all.
    given: Variables,
    /// An empty file.
    empty: File,
    /// Number of the agent's socket in every rank: that of the file, which nobody else has, unless a
    /// container asks for another.
    socket: RawFd,
    /// An empty file, whose number is that of the connection to the PMI server; none: there is none.
    pmi: Option<File>,
    mask: SigSet,
    limit: Option<(rlim_t, rlim_t)>,
}

/// What the ranks of one program have in common.
struct ProgramImage {
    image: Image,
    file: PathBuf,
    /// Where they start.
    directory: PathBuf,
    own_at: OwnAt,
}

impl ProgramImage {
    fn new(
        plan: &JobPlan,
        program: Program,
        share: &HostRanks,
        numbers: [Option<RawFd>; 2],
        given: &[(String, String)],
    ) -> Result<Self, SpawnError> {
        let env = program.environment(&plan.env);
        let file = text(|| "the program's path".into(), program.file.as_bytes().to_vec())?;
        let words = program.argv.iter().enumerate();
        let words =
            words.map(|(i, word)| text(|| format!("argument {i}"), word.as_bytes().to_vec()));
        let words = words.collect::<Result<Vec<_>, _>>()?;
        let (env, own_at) = environment(plan, &env, share, numbers, given)?;
        let directory = program.directory.map_or_else(|| plan.directory.clone(), PathBuf::from);
        Ok(Self {
            image: Image::new(file, words, env),
            file: program.file.into(),
            directory,
            own_at,
        })
    }
}

/// A rank that is about to be made: its environment, its CPUs, and its channels.
struct Prepared {
    local: u32,
    /// Index of its program.
    program: usize,
    /// Without its process yet.
    started: Started,
    env: Vec<(usize, CString)>,
    cpus: Option<CpuSet>,
    streams: [RawFd; 3],
    /// Its sockets, each with the number under which it sees that.
    sockets: Vec<(RawFd, RawFd)>,
    /// The rank's ends, held until it has them.
    theirs: Vec<OwnedFd>,
}

fn text(what: impl FnOnce() -> String, bytes: Vec<u8>) -> Result<CString, SpawnError> {
    CString::new(bytes).map_err(|_| SpawnError::Nul { what: what() })
}

fn assignment(name: &OsStr, value: &OsStr) -> Result<CString, SpawnError> {
    let bytes = [name.as_bytes(), b"=", value.as_bytes()].concat();
    text(|| format!("environment variable {}", name.to_string_lossy()), bytes)
}

/// What differs between the ranks of a host.
#[derive(Clone, Copy, Debug)]
enum Own {
    Rank(&'static str),
    Local(&'static str),
    /// Of PMIx, by number.
    Given(usize),
}

/// Where variables that differ from rank to rank stand in the environment.
type OwnAt = Vec<(usize, Own)>;

/// The environment of the ranks, where the agent's socket and the connection to its PMI server have
/// these numbers and `given` has the names of PMIx's variables, and where the variables that differ between them stand. Another launcher gets none of
/// them.
fn environment(
    plan: &JobPlan,
    variables: &[(OsString, OsString)],
    share: &HostRanks,
    [socket, pmi]: [Option<RawFd>; 2],
    given: &[(String, String)],
) -> Result<(Vec<CString>, OwnAt), SpawnError> {
    let [size, local_size, host] =
        [share.size(), share.count(), share.host.0].map(|n| n.to_string());
    let number = |fd: Option<RawFd>| fd.map(|fd| fd.to_string());
    let [socket, pmi] = [number(socket), number(pmi)];
    let mut own: Vec<(&str, &str)> = vec![
        ("GASNETRUN_SIZE", &size),
        ("GASNETRUN_LOCAL_SIZE", &local_size),
        ("GASNETRUN_HOST", &host),
        ("GASNETRUN_JOB", &plan.job_id),
    ];
    own.extend(socket.as_deref().map(|socket| ("GASNETRUN_AGENT_FD", socket)));
    if !given.is_empty() {
        own.push((pmi_server::DIRECT_LAUNCH, "0"));
    }
    let mut each = vec![Own::Rank("GASNETRUN_RANK"), Own::Local("GASNETRUN_LOCAL_RANK")];
    if let Some(pmi) = &pmi {
        own.extend([
            ("PMI_FD", pmi.as_str()),
            ("PMI_SIZE", &size),
            ("MPI_LOCALNRANKS", &local_size),
        ]);
        each.extend([Own::Rank("PMI_RANK"), Own::Rank("PMI_ID"), Own::Local("MPI_LOCALRANKID")]);
    }
    each.extend((0..given.len()).map(Own::Given));
    let name_of = |own: &Own| match *own {
        Own::Rank(name) | Own::Local(name) => name,
        Own::Given(at) => given.get(at).map_or("", |(name, _)| name),
    };
    let is_own = |name: &OsStr| {
        let each = each.iter().any(|ours| name == name_of(ours));
        each || own.iter().any(|(ours, _)| name == *ours)
    };
    let is_stale = |name: &OsStr| pmi.is_some() && pmi_server::is_of_another_server(name);
    let mut env = Vec::with_capacity(variables.len() + own.len() + each.len());
    let kept = |(name, _): &&(OsString, OsString)| !is_own(name) && !is_stale(name);
    for (name, value) in variables.iter().filter(kept) {
        env.push(assignment(name, value)?);
    }
    if plan.foreign {
        return Ok((env, Vec::new()));
    }
    if let Some(trace) = &plan.trace {
        let refused = |source| SpawnError::Channel { rank: 0, operation: "share memory", source };
        let place = trace.hand_on().map_err(refused)?;
        env.push(assignment(OsStr::new(bootstrap::trace::VARIABLE), OsStr::new(&place))?);
    }
    if plan.pmi == Pmi::OpenMpi && pmi.is_some() {
        for (name, value) in pmi_server::for_open_mpi(plan).map_err(SpawnError::OpenMpi)? {
            env.push(assignment(OsStr::new(name), &value)?);
        }
    }
    for (name, value) in &own {
        env.push(assignment(OsStr::new(name), OsStr::new(value))?);
    }
    let at = each.iter().enumerate().map(|(index, own)| (env.len() + index, *own)).collect();
    for own in &each {
        env.push(assignment(OsStr::new(name_of(own)), OsStr::new("0"))?);
    }
    Ok((env, at))
}

/// Descriptors that the agent needs for `ranks`, of which it starts [`SPAWN_BATCH`] at a time:
/// its ends of two pipes and a socket, or two, theirs as well until they run, both ends of the pipes of
/// those whose input is one, and the files of `output`.
fn descriptors(plan: &JobPlan, share: &HostRanks, own_input: bool) -> u64 {
    let ranks = u64::from(share.count());
    let starting = u64::from(share.count().min(SPAWN_BATCH));
    let pipe = |rank: &Rank| input::for_rank(plan, rank.0, own_input) == Input::Pipe;
    let fed = share.ranks.iter().filter(|rank| pipe(rank)).count() as u64;
    let files = if plan.output.directory.is_some() { 2 * ranks } else { 0 };
    (3 + u64::from(plan.offers_pmi())) * (ranks + starting) + fed + fed.min(starting) + files
}

/// One image for each program of the job.
fn images(
    plan: &JobPlan,
    share: &HostRanks,
    numbers: [Option<RawFd>; 2],
    given: &[(String, String)],
) -> Result<Vec<ProgramImage>, SpawnError> {
    let programs = plan.all_programs().into_iter();
    programs.map(|program| ProgramImage::new(plan, program, share, numbers, given)).collect()
}

impl<'a> Spawner<'a> {
    /// Prepares the start of the ranks of `share`, which will have `mask` as their signal mask and
    /// may inherit our standard input if that is `own_input`.
    pub(super) fn new(
        plan: &'a JobPlan,
        share: &HostRanks,
        mask: SigSet,
        own_input: bool,
    ) -> Result<Self, SpawnError> {
        let refused = |operation| move |source| SpawnError::Channel { rank: 0, operation, source };
        let empty = File::open("/dev/null").map_err(refused("open /dev/null"))?;
        sys::close_on_exec_from(3).map_err(refused("mark descriptors close-on-exec"))?;
        let count = share.count();
        limits::processes(count).map_err(SpawnError::Limit)?;
        let limit = limits::make_room(count, descriptors(plan, share, own_input))
            .map_err(SpawnError::Limit)?;
        let pmi = plan
            .offers_pmi()
            .then(|| empty.try_clone().map_err(refused("open /dev/null")))
            .transpose()?;
        let wanted = plan.container.and_then(|container| container.socket);
        let socket = wanted.unwrap_or_else(|| empty.as_raw_fd());
        let numbers = [Some(socket), pmi.as_ref().map(AsRawFd::as_raw_fd)];
        let images = images(plan, share, numbers, &[])?;
        let (share, given) = (share.clone(), Vec::new());
        Ok(Self { plan, share, images, given, empty, socket, pmi, mask, limit })
    }

    /// Gives each rank the variables by which it finds PMIx.
    pub(super) fn give(&mut self, variables: Variables) -> Result<(), SpawnError> {
        let numbers = [Some(self.socket), self.pmi.as_ref().map(AsRawFd::as_raw_fd)];
        let names = variables.first().map(Vec::as_slice).unwrap_or_default();
        self.images = images(self.plan, &self.share, numbers, names)?;
        self.given = variables;
        Ok(())
    }

    /// Starts the local ranks from `first` on at the same time, one per input. One result each, up
    /// to and including the first whose channels could not be made.
    pub(super) fn start(
        &mut self,
        first: u32,
        inputs: impl Iterator<Item = Input>,
    ) -> Vec<Result<Started, SpawnError>> {
        let (mut made, mut failed) = (Vec::new(), None);
        for (local, input) in (first..).zip(inputs) {
            match self.prepare(local, input) {
                Ok(prepared) => made.push(prepared),
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
        }
        let mut results = Vec::with_capacity(made.len() + 1);
        while let Some(program) = made.first().map(|prepared| prepared.program) {
            let count = made.iter().take_while(|prepared| prepared.program == program).count();
            let rest = made.split_off(count);
            results.extend(self.launch(program, std::mem::replace(&mut made, rest)));
        }
        results.into_iter().chain(failed.map(Err)).collect()
    }

    /// Starts ranks of one program.
    fn launch(&mut self, program: usize, made: Vec<Prepared>) -> Vec<Result<Started, SpawnError>> {
        let several = self.images.len() > 1;
        let Some(own) = self.images.get_mut(program) else { return Vec::new() };
        // New processes begin where we are.
        if several && let Err(error) = std::env::set_current_dir(&own.directory) {
            let operation = "change to its program's directory";
            let rank = made.first().map_or(0, |prepared| self.share.rank(prepared.local));
            return vec![Err(SpawnError::Channel { rank, operation, source: error })];
        }
        let children = made.iter().map(|prepared| Child {
            env: &prepared.env,
            streams: prepared.streams,
            sockets: &prepared.sockets,
            cpus: prepared.cpus,
            limit: self.limit,
            mask: &self.mask,
        });
        let children: Vec<Child<'_>> = children.collect();
        let pids = own.image.launch(&children);
        let ranks = made.into_iter().zip(pids);
        let results = ranks.map(|(prepared, pid)| {
            drop(prepared.theirs);
            let pid = pid.map_err(|failure| self.explain(prepared.local, failure))?;
            Ok(Started { pid, ..prepared.started })
        });
        results.collect()
    }

    fn prepare(&self, local: u32, input: Input) -> Result<Prepared, SpawnError> {
        let rank = self.share.rank(local);
        let refused = |operation| {
            move |errno: nix::Error| SpawnError::Channel { rank, operation, source: errno.into() }
        };
        let pipe = || nix::unistd::pipe2(OFlag::O_CLOEXEC).map_err(refused("make a pipe"));
        let (stdout, out) = pipe()?;
        let (stderr, err) = pipe()?;
        let (socket, rank_socket) =
            socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)
                .map_err(refused("make a socket"))?;
        // A rank in a container does not know its own number here.
        setsockopt(&socket, PassCred, &true).map_err(refused("prepare a socket"))?;
        let (source, stdin) = match input {
            Input::Pipe => pipe().map(|(read, write)| (Some(read), Some(write)))?,
            Input::Empty | Input::Inherited => (None, None),
        };
        if let Some(stdin) = &stdin {
            let flags = nix::fcntl::FcntlArg::F_SETFL(OFlag::O_NONBLOCK);
            nix::fcntl::fcntl(stdin, flags).map_err(refused("prepare a pipe"))?;
        }
        let cpus = self.share.cpus.get(local as usize).filter(|cpus| !cpus.is_empty());
        let set_of = |cpus: &Vec<usize>| {
            let mut set = CpuSet::new();
            for &cpu in cpus {
                set.set(cpu).map_err(|_| SpawnError::Cpu { rank, cpu })?;
            }
            Ok(set)
        };
        let cpus = cpus.map(set_of).transpose()?;
        let input = match (&source, input) {
            (Some(source), _) => source.as_raw_fd(),
            (None, Input::Inherited) => 0,
            (None, _) => self.empty.as_raw_fd(),
        };
        let streams = [input, out.as_raw_fd(), err.as_raw_fd()];
        let own = |(at, own): &(usize, Own)| {
            let given = |at: usize| self.given.get(local as usize).and_then(|all| all.get(at));
            let (name, value) = match *own {
                Own::Rank(name) => (name, rank.to_string()),
                Own::Local(name) => (name, local.to_string()),
                Own::Given(at) => {
                    given(at).map_or(("", String::new()), |(name, value)| (name, value.clone()))
                }
            };
            Ok((*at, assignment(OsStr::new(name), OsStr::new(&value))?))
        };
        let program = Program::index_of(&self.plan.programs, rank);
        let own_at = self.images.get(program).map(|own| own.own_at.as_slice()).unwrap_or_default();
        let env = own_at.iter().map(own).collect::<Result<Vec<_>, SpawnError>>()?;
        // In place of a socket another launcher gets a descriptor that closes when it is executed.
        let socket_end = match self.plan.foreign {
            true => self.empty.as_raw_fd(),
            false => rank_socket.as_raw_fd(),
        };
        let mut sockets = vec![(socket_end, self.socket)];
        let (pmi, pmi_socket) = match &self.pmi {
            Some(number) => {
                let (ours, theirs) =
                    socketpair(AddressFamily::Unix, SockType::Stream, None, SockFlag::SOCK_CLOEXEC)
                        .map_err(refused("make a socket"))?;
                sockets.push((theirs.as_raw_fd(), number.as_raw_fd()));
                (Some(ours), Some(theirs))
            }
            None => (None, None),
        };
        let theirs = [Some(out), Some(err), Some(rank_socket), pmi_socket, source];
        let theirs = theirs.into_iter().flatten().collect();
        let started = Started { pid: 0, stdin, stdout, stderr, socket, pmi };
        Ok(Prepared { local, program, started, env, cpus, streams, sockets, theirs })
    }

    /// The failure in words: what failed, what was seen, what to try.
    fn explain(&self, local: u32, failure: Failure) -> SpawnError {
        let rank = self.share.rank(local);
        let at = Program::index_of(&self.plan.programs, rank);
        let file = self.images.get(at).map_or(self.plan.program.as_path(), |own| &own.file);
        let program = file.display();
        let what = match failure.step {
            Step::Clone => "make a process".to_owned(),
            Step::Group => "make a process group".to_owned(),
            Step::ParentDeath => "arm the parent-death signal".to_owned(),
            Step::Affinity => {
                let cpus =
                    self.share.cpus.get(local as usize).map(Vec::as_slice).unwrap_or_default();
                format!("bind to CPUs {cpus:?}")
            }
            Step::Limit => "restore the limits on descriptors and stack".to_owned(),
            Step::Streams => "connect the standard streams".to_owned(),
            Step::Socket => "connect the agent's socket".to_owned(),
            Step::Signals => "restore the signal mask".to_owned(),
            Step::Exec => format!("execute {program}"),
        };
        let (code, hint) = match (failure.step, failure.errno) {
            (Step::Exec, libc::ENOENT) if file.exists() => {
                (126, ": the file is there, its interpreter (#! line or dynamic loader) is not")
            }
            (Step::Exec, libc::ENOENT | libc::ENOTDIR) => (127, ""),
            (Step::Exec, libc::ENOEXEC) => {
                (126, ": built for another machine, or a script without a #! line")
            }
            (Step::Exec, libc::E2BIG) => {
                (CODE_LAUNCH, ": arguments and environment together are too long")
            }
            (Step::Exec, libc::EMFILE | libc::ENFILE | libc::ENOMEM | libc::EAGAIN) => {
                (CODE_LAUNCH, "")
            }
            (Step::Exec, _) => (126, ""),
            (Step::Clone, libc::EAGAIN) => (
                CODE_LAUNCH,
                ": a limit of processes is reached (ulimit -u, or that of a control group)",
            ),
            _ => (CODE_LAUNCH, ""),
        };
        if failure.errno == libc::ETIMEDOUT {
            let text = format!(
                "rank {rank}: cannot {what}: it had not begun after {} s; does its file system answer?",
                EXEC.limit.as_secs()
            );
            return SpawnError::Launch { text, code };
        }
        let seen = io::Error::from_raw_os_error(failure.errno).to_string();
        let seen = seen.split(" (os error").next().unwrap_or_default();
        SpawnError::Launch { text: format!("rank {rank}: cannot {what}: {seen}{hint}"), code }
    }
}
