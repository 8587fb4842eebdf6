//! The helper process of an agent, which runs libpmix's server half. It ends with the agent, and then
//! removes what libpmix has put into the directory of the job: nobody else may be left.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use settings::deadlines::agent::{CLEANUP_SLICE, PMIX_LEAVE, PMIX_START};

use super::frames::{Frames, FromHelper, Setup, ToHelper, encode};
use super::infos::{Infos, kind};
use super::library::Server;
use super::session;

/// First word of the command line by which the launcher's program becomes the helper.
pub const WORD: &str = "--pmix-helper";

/// Life of the helper, whose standard input is the socket to the agent.
pub fn main() -> ! {
    // As lists of processes show it; what is executed has no name of its own.
    let _ = nix::sys::prctl::set_name(c"gasnetrun_pmix");
    // Until now the agent's death has killed us; from now on it wakes us, even if we are stopped, and
    // the socket tells.
    let _ = nix::sys::prctl::set_pdeathsig(Signal::SIGCONT);
    let directory = Directory::default();
    let code = match work(&directory) {
        Ok(()) => 0,
        Err(error) => {
            settings::say!(ERROR, settings::log::LAUNCHER, "PMIx server: {error}");
            1
        }
    };
    // The agent removes it, too, but it may be killed before it does.
    directory.leave(code)
}

/// The socket, for all threads.
#[derive(Clone)]
struct Agent(Arc<Mutex<UnixStream>>);

impl Agent {
    /// An agent that is gone takes us with it, so errors do not matter.
    fn send(&self, said: &FromHelper) {
        let mut socket = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = socket.write_all(&encode(said));
    }
}

/// The directory of the job, once it is made.
#[derive(Clone, Default)]
struct Directory(Arc<Mutex<Option<Made>>>);

struct Made {
    path: PathBuf,
    /// Shows others that it is used.
    _owner: Option<File>,
}

impl Directory {
    fn make(&self, path: &str) -> Result<(), String> {
        let mut place = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let owner = session::make(path.as_ref()).map_err(|error| format!("{path}: {error}"))?;
        *place = Some(Made { path: path.into(), _owner: owner });
        Ok(())
    }

    /// Ends this process with `code`; before, it removes the directory, in which libpmix may still make
    /// files. Whoever comes second waits for the first.
    fn leave(&self, code: u8) -> ! {
        let seconds = u32::try_from(PMIX_LEAVE.limit.as_secs()).unwrap_or(u32::MAX);
        // Its signal ends us, whatever we do.
        nix::unistd::alarm::set(seconds);
        // Held until the end: none is made any more.
        let place = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(Made { path, .. }) = place.as_ref() {
            while session::remove(path).is_err() && path.symlink_metadata().is_ok() {
                std::thread::sleep(CLEANUP_SLICE.limit);
            }
        }
        bootstrap::sys::end_process(code.into())
    }
}

/// Waits until the agent has gone. One that has nothing more to say is still there.
fn mourn(socket: &UnixStream, directory: &Directory) {
    loop {
        let mut agent = [PollFd::new(socket.as_fd(), PollFlags::empty())];
        match poll(&mut agent, PollTimeout::NONE) {
            Ok(_) => directory.leave(1),
            Err(nix::Error::EINTR) => {}
            Err(_) => return,
        }
    }
}

fn work(directory: &Directory) -> std::io::Result<()> {
    let mut socket = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    let (watched, removed) = (socket.try_clone()?, directory.clone());
    std::thread::spawn(move || mourn(&watched, &removed));
    let agent = Agent(Arc::new(Mutex::new(socket.try_clone()?)));
    let (mut frames, mut buffer) = (Frames::default(), vec![0; 64 * 1024]);
    let mut server = None;
    loop {
        while let Some(frame) = frames.take().map_err(std::io::Error::other)? {
            match (frame, &server) {
                (ToHelper::Setup(setup), None) => server = begin(&setup, &agent, directory),
                (frame, Some(server)) => act(server, &agent, frame),
                (_, None) => {}
            }
        }
        match socket.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => frames.push(&buffer[..count]),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            // The agent was killed before it had read all that we said.
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => directory.leave(1),
            Err(error) => return Err(error),
        }
    }
    if let Some(server) = server {
        // What libpmix has to say of clients that were killed helps nobody.
        let empty = File::options().write(true).open("/dev/null")?;
        nix::unistd::dup2_stderr(&empty)?;
        server.finish();
    }
    Ok(())
}

/// Starts libpmix and tells the agent how that went.
fn begin(setup: &Setup, agent: &Agent, directory: &Directory) -> Option<Server> {
    let (guard, late) = (agent.clone(), Arc::new(Mutex::new(true)));
    let waits = Arc::clone(&late);
    std::thread::spawn(move || {
        std::thread::sleep(PMIX_START.limit);
        if *waits.lock().unwrap_or_else(PoisonError::into_inner) {
            let seconds = PMIX_START.limit.as_secs();
            guard.send(&FromHelper::Failed(format!("libpmix had not started after {seconds} s")));
        }
    });
    let started = directory.make(&setup.directory).and_then(|()| start(setup, agent.clone()));
    *late.lock().unwrap_or_else(PoisonError::into_inner) = false;
    match started {
        Ok((server, variables)) => {
            agent.send(&FromHelper::Ready(variables));
            let own = PathBuf::from(&setup.directory);
            // It may take a while where a directory has many entries.
            std::thread::spawn(move || session::tidy(&own));
            Some(server)
        }
        Err(problem) => {
            agent.send(&FromHelper::Failed(problem));
            None
        }
    }
}

type Variables = Vec<Vec<(String, String)>>;

fn start(setup: &Setup, agent: Agent) -> Result<(Server, Variables), String> {
    let names = unique(&setup.hosts);
    let own = names.get(setup.host as usize).map_or("", String::as_str);
    let size = u32::try_from(setup.host_of.len()).unwrap_or(u32::MAX);
    let mut infos = Infos::default();
    infos
        .text("pmix.srv.nspace", &format!("{}.server", setup.job))
        .number("pmix.srv.rank", kind::RANK, setup.host)
        .text("pmix.srvr.tmpdir", &setup.directory)
        .text("pmix.sys.tmpdir", &setup.directory)
        .text("pmix.hname", own)
        .number("pmix.srvr.tool", kind::BOOL, 0);
    let send = Box::new(move |said: &FromHelper| agent.send(said));
    let server = Server::start(&setup.job, size, infos, send)?;
    let ranks = setup.ranks_of(setup.host);
    server.register_job(&ranks, job(setup, &names, &server)?)?;
    let variables = ranks.iter().map(|rank| server.register_rank(*rank));
    let variables = variables.collect::<Result<Vec<_>, _>>()?;
    Ok((server, variables))
}

/// Names of hosts, each once: libpmix knows hosts by their names alone.
fn unique(hosts: &[String]) -> Vec<String> {
    let mut seen = std::collections::HashSet::new();
    let mut name = |(at, host): (usize, &String)| {
        if seen.insert(host.clone()) { host.clone() } else { format!("{host}.{at}") }
    };
    hosts.iter().enumerate().map(&mut name).collect()
}

fn joined<T: ToString>(all: impl IntoIterator<Item = T>, with: &str) -> String {
    all.into_iter().map(|one| one.to_string()).collect::<Vec<_>>().join(with)
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// All that ranks may ask about the job without having put it.
fn job(setup: &Setup, names: &[String], server: &Server) -> Result<Infos, String> {
    let hosts: Vec<u32> = (0..count(names.len())).collect();
    let of_host: Vec<Vec<u32>> = hosts.iter().map(|host| setup.ranks_of(*host)).collect();
    // Hosts without ranks are none of the job.
    let with_ranks = || names.iter().zip(&of_host).filter(|(_, ranks)| !ranks.is_empty());
    let node_map = server.regex(&joined(with_ranks().map(|(name, _)| name), ","))?;
    let proc_map = server.ppn(&joined(with_ranks().map(|(_, ranks)| joined(ranks, ",")), ";"))?;
    let size = count(setup.host_of.len());
    let locals = of_host.get(setup.host as usize).map(Vec::as_slice).unwrap_or_default();
    let mut infos = Infos::default();
    infos
        .text("pmix.jobid", &setup.job)
        .text("pmix.nmap", &node_map)
        .text("pmix.pmap", &proc_map)
        .text("pmix.lpeers", &joined(locals, ","))
        .text("pmix.tmpdir", &setup.directory)
        .text("pmix.nsdir", &setup.directory)
        .number("pmix.tdir.rmclean", kind::BOOL, 1)
        .number("pmix.offset", kind::RANK, 0)
        .number("pmix.lldr", kind::RANK, locals.first().copied().unwrap_or(0))
        .number("pmix.num.nodes", kind::UINT32, count(with_ranks().count()))
        .number("pmix.job.napps", kind::UINT32, count(setup.programs.len().max(1)))
        .number("pmix.local.size", kind::UINT32, count(locals.len()))
        .number("pmix.node.size", kind::UINT32, count(locals.len()));
    for key in ["pmix.univ.size", "pmix.job.size", "pmix.max.size"] {
        infos.number(key, kind::UINT32, size);
    }
    let firsts = if setup.programs.is_empty() { &[0][..] } else { &setup.programs };
    for (number, first) in (0..).zip(firsts) {
        let end = firsts.get(number as usize + 1).copied().unwrap_or(size);
        let mut app = Infos::default();
        app.number("pmix.appnum", kind::UINT32, number)
            .number("pmix.app.size", kind::UINT32, end.saturating_sub(*first))
            .number("pmix.aldr", kind::RANK, *first);
        infos.array("pmix.app.arr", app);
    }
    for (host, ranks) in (0..).zip(&of_host).filter(|(_, ranks)| !ranks.is_empty()) {
        let name = names.get(host as usize).map_or("", String::as_str);
        let mut node = Infos::default();
        node.text("pmix.hname", name)
            .number("pmix.nodeid", kind::UINT32, host)
            .text("pmix.lpeers", &joined(ranks, ","))
            .number("pmix.lldr", kind::RANK, ranks.first().copied().unwrap_or(0))
            .number("pmix.local.size", kind::UINT32, count(ranks.len()))
            .number("pmix.node.size", kind::UINT32, count(ranks.len()));
        infos.array("pmix.node.arr", node);
        for (local, rank) in (0..).zip(ranks) {
            infos.array("pmix.pdata", rank_infos(setup, names, (host, local, *rank)));
        }
    }
    Ok(infos)
}

/// What is known of a rank.
fn rank_infos(setup: &Setup, names: &[String], (host, local, rank): (u32, u32, u32)) -> Infos {
    let program = setup.program_of(rank);
    let first = setup.programs.get(program as usize).copied().unwrap_or(0);
    let mut infos = Infos::default();
    infos
        .number("pmix.rank", kind::RANK, rank)
        .number("pmix.grank", kind::RANK, rank)
        .number("pmix.apprank", kind::RANK, rank.saturating_sub(first))
        .number("pmix.appnum", kind::UINT32, program)
        .number("pmix.lrank", kind::UINT16, local)
        .number("pmix.nrank", kind::UINT16, local)
        .number("pmix.nodeid", kind::UINT32, host)
        .text("pmix.hname", names.get(host as usize).map_or("", String::as_str));
    infos
}

fn act(server: &Server, agent: &Agent, frame: ToHelper) {
    match frame {
        ToHelper::Setup(_) => {}
        ToHelper::FenceDone { number, status, data } | ToHelper::Found { number, status, data } => {
            Server::answer(number, status, data);
        }
        ToHelper::Wanted { number, rank } => {
            if let Err(status) = server.ask(number, rank) {
                let data = Vec::new().into();
                agent.send(&FromHelper::Answer { number, status, data });
            }
        }
        ToHelper::Ended { rank } => server.forget_rank(rank),
        ToHelper::Ask => agent.send(&FromHelper::Here),
    }
}
