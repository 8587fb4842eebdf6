//! The services under a launcher with a PMIx server (Open MPI's mpirun, `srun --mpi=pmix`), through
//! libpmix opened at run time.
//!
//! The `pmix-sys` crate does not serve: it needs the library's headers and two variables to build
//! and links it hard, so that a program would not start where it is missing.

mod library;

use settings::Env;
use settings::deadlines::bootstrap::{CALL, PM_ANSWER, PM_WATCH};

use super::announced::{Announcement, announced_is, pmix_server};
use super::process_manager::{
    Finalization, FinalizeCalls, Identity, JobInfo, ProcessManager, ProcessManagerBounds,
    ProcessManagerError, join, mapping,
};
use bootstrap::service::{Bootstrap, Error, HostId, Rank};
use bootstrap::wait::{Wait, Watch};
use bootstrap::{Announced, Provider};
use library::{Calls, Client, Found};

const NAME: &str = "PMIx";
/// Bytes of a value. PMIx has no limit of its own; messages between servers should stay moderate.
const VALUE_LIMIT: usize = 32 * 1024;
const INSTALL: &str = "install libpmix (package libpmix2), or start the program with srun --mpi=pmi2, mpiexec.hydra or \
                       gasnetrun_ibv -n RANKS PROGRAM";

/// PMIx.
pub const PMIX: Provider = Provider {
    name: "PMIx",
    find: |env, trace| {
        Ok(pmix_server(env, trace)?.map(|found| Box::new(found) as Box<dyn Announced>))
    },
};

impl Announced for Announcement {
    fn describe(&self) -> String {
        format!("PMIx through libpmix: rank {}", self.rank)
    }

    fn connect(&self, env: &Env) -> Result<Box<dyn Bootstrap>, Error> {
        connect(env, self)
    }
}

/// The connection of one rank.
struct Pmix {
    client: Client,
    info: JobInfo,
    finalization: &'static Finalization,
}

/// Connects to the server that the environment names.
fn connect(env: &Env, announcement: &Announcement) -> Result<Box<dyn Bootstrap>, Error> {
    let library = Calls::load().map_err(|problem| ProcessManagerError::Library {
        manager: NAME,
        problem,
        advice: INSTALL,
    })?;
    let client = library.init().map_err(refused("init"))?;
    let found = client.get(None, "pmix.job.size", false, seconds()).map_err(refused("job size"))?;
    let Found::Number(size) = found else {
        return Err(nonsense("job size", format!("{found:?} is no number")));
    };
    let rank = client.rank;
    if rank >= size {
        return Err(nonsense("init", format!("rank {rank} of {size}")));
    }
    announced_is(announcement.announced, size)?;
    let finalization = Finalization::new(Box::new(PmixFinalize(client.clone())));
    client.on_lost_server(finalization).map_err(refused("register"))?;
    let (rank, job) = (Rank(rank), client.space());
    let info = JobInfo { manager: NAME, rank, size, job, value_limit: VALUE_LIMIT };
    let bounds = ProcessManagerBounds::of(env, size);
    join(Box::new(Pmix { client, info, finalization }), &Identity::here(), bounds)
}

fn seconds() -> i32 {
    let bound = PM_ANSWER.limit.as_secs();
    i32::try_from(bound).unwrap_or(i32::MAX)
}

fn refused(during: &'static str) -> impl Fn(String) -> Error {
    move |reason| ProcessManagerError::Refused { manager: NAME, during, reason }.into()
}

fn nonsense(during: &'static str, problem: String) -> Error {
    ProcessManagerError::Nonsense { manager: NAME, during, problem, seen: String::new() }.into()
}

impl ProcessManager for Pmix {
    fn job_info(&self) -> &JobInfo {
        &self.info
    }

    /// By the number or the name of each rank's node, where the server has told them beforehand.
    fn host_map(&mut self) -> Result<Option<Vec<HostId>>, Error> {
        for key in ["pmix.nodeid", "pmix.hname"] {
            let mut nodes = Vec::new();
            for rank in 0..self.info.size {
                match self.client.get(Some(rank), key, true, seconds()) {
                    Ok(Found::Number(node)) => nodes.push(node.to_string()),
                    Ok(Found::Text(name)) => nodes.push(name),
                    Ok(Found::Other(_)) | Err(_) => break,
                }
            }
            if nodes.len() == self.info.size as usize {
                return Ok(Some(mapping::number(&nodes)));
            }
        }
        Ok(None)
    }

    fn put(&mut self, key: &str, value: &str) -> Result<(), Error> {
        self.client.put(key, value).map_err(refused("put"))
    }

    fn fence(&mut self, watch: &mut Watch<'_>) -> Result<(), Error> {
        let during = "fence";
        self.client.commit().map_err(refused("commit"))?;
        let fence = self.client.fence().map_err(refused(during))?;
        let wait = Wait::new(during, CALL);
        loop {
            match fence.wait(wait.slice()?.min(PM_WATCH.limit)) {
                Some(outcome) => return outcome.map_err(refused(during)),
                None => watch()?,
            }
        }
    }

    fn get(&mut self, from: Rank, key: &str) -> Result<String, Error> {
        let problem = match self.client.get(Some(from.0), key, false, seconds()) {
            Ok(Found::Text(text)) => return Ok(text),
            Ok(other) => format!("{other:?} is no text"),
            Err(status) => status,
        };
        Err(ProcessManagerError::Value { manager: NAME, key: key.to_owned(), from, problem }.into())
    }

    fn finalization(&self) -> &'static Finalization {
        self.finalization
    }
}

impl Drop for Pmix {
    fn drop(&mut self) {
        self.finalization.close();
    }
}

/// The last calls. They are not safe in signal handlers, but PMIx has no others; the alarm of the
/// exit bounds them.
#[derive(Debug)]
struct PmixFinalize(Client);

impl FinalizeCalls for PmixFinalize {
    fn finalize(&self) {
        self.0.finalize();
    }

    fn abort(&self, code: i32) {
        self.0.abort(code);
    }
}
