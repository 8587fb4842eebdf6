//! The services under a launcher with a PMIx server (Open MPI's mpirun, `srun --mpi=pmix`), through
//! libpmix opened at run time.
//!
//! The `pmix-sys` crate does not serve: it needs the library's headers and two variables to build
//! and links it hard, so that a program would not start where it is missing.

mod library;

use settings::Env;
use settings::deadlines::bootstrap::{CALL, PM_ANSWER};

use super::announced::{Announcement, announced_is, pmix_server};
use super::process_manager::{
    Finalization, FinalizeCalls, Identity, JobInfo, ProcessManager, ProcessManagerBounds,
    ProcessManagerError, join, mapping,
};
use bootstrap::service::{Bootstrap, Error, HostId, Rank};
use bootstrap::wait::{Wait, Watch};
use bootstrap::{Announced, Provider};
use library::{Client, Found, Status};

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
        connect(
            |size| announced_is(self.announced, size),
            |size| ProcessManagerBounds::of(env, size),
        )
    }
}

/// The connection of one rank.
struct Pmix {
    client: Client,
    info: JobInfo,
    finalization: &'static Finalization,
}

/// Connects to the server that the environment names. `size` tells what the launcher says of the
/// size, `bounds` the bounds for a job of so many ranks.
fn connect(
    agrees: impl FnOnce(u32) -> Result<(), Error>,
    bounds: impl FnOnce(u32) -> ProcessManagerBounds,
) -> Result<Box<dyn Bootstrap>, Error> {
    let library = Client::open().map_err(|problem| ProcessManagerError::Library {
        manager: NAME,
        problem,
        advice: INSTALL,
    })?;
    let client = library.init().map_err(|status| refused("init", &status))?;
    let found = client
        .get(None, "pmix.job.size", false, seconds())
        .map_err(|status| refused("job size", &status))?;
    let Found::Number(size) = found else {
        return Err(nonsense("job size", format!("{found:?} is no number")));
    };
    let rank = client.rank();
    if rank >= size {
        return Err(nonsense("init", format!("rank {rank} of {size}")));
    }
    agrees(size)?;
    let finalization = Finalization::new(Box::new(PmixFinalize(client.clone())));
    client.on_lost_server(finalization).map_err(|status| refused("register", &status))?;
    let (rank, job) = (Rank(rank), client.space());
    let info = JobInfo { manager: NAME, rank, size, job, value_limit: VALUE_LIMIT };
    join(Box::new(Pmix { client, info, finalization }), &Identity::here(), bounds(size))
}

fn seconds() -> i32 {
    let bound = PM_ANSWER.limit.as_secs();
    i32::try_from(bound).unwrap_or(i32::MAX)
}

fn refused(during: &'static str, status: &Status) -> Error {
    ProcessManagerError::Refused { manager: NAME, during, reason: status.to_string() }.into()
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
        self.client.put(key, value).map_err(|status| refused("put", &status))
    }

    fn fence(&mut self, watch: &mut Watch<'_>) -> Result<(), Error> {
        let during = "fence";
        self.client.commit().map_err(|status| refused("commit", &status))?;
        let fence = self.client.fence().map_err(|status| refused(during, &status))?;
        let wait = Wait::new(during, CALL);
        loop {
            match fence.wait(wait.slice(None)?) {
                Some(outcome) => return outcome.map_err(|status| refused(during, &status)),
                None => watch()?,
            }
        }
    }

    fn get(&mut self, from: Rank, key: &str) -> Result<String, Error> {
        let problem = match self.client.get(Some(from.0), key, false, seconds()) {
            Ok(Found::Text(text)) => return Ok(text),
            Ok(other) => format!("{other:?} is no text"),
            Err(status) => status.to_string(),
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
