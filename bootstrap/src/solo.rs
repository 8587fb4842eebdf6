//! Provider: a job of one rank, started without any launcher.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::foreign;
use crate::memfd;
use crate::node_shm::{ExitDecision, NodeShm, NodeShmSpec};
use crate::provider::{Announced, Provider};
use crate::self_start;
use crate::service::{Bootstrap, Error, ExitNotifier, HostId, Rank, RankInfo, Shared};
use settings::Env;

/// A job of one rank, unless another launcher announces more; or the launcher of itself, if it is
/// asked to.
pub const PROVIDER: Provider = Provider {
    name: "solo",
    find: |env, trace| {
        foreign::refuse_several(env, trace)?;
        Ok(Some(Box::new(Alone)))
    },
};

#[derive(Debug)]
struct Alone;

impl Announced for Alone {
    fn describe(&self) -> String {
        "solo: no launcher announces more than one rank".to_owned()
    }

    fn connect(&self, env: &Env) -> Result<Box<dyn Bootstrap>, Error> {
        self_start::exec_if_asked(env)?;
        job()
    }
}

/// A job of one rank.
///
/// # Errors
/// No memory or descriptors for the node memory.
pub fn job() -> Result<Box<dyn Bootstrap>, Error> {
    let spec =
        NodeShmSpec { host: HostId(0), hosts: 1, local_ranks: &[Rank(0)], host_of: &[HostId(0)] };
    let page = NodeShm::create(&spec)?;
    page.slot(0).set_pid(std::process::id().cast_signed());
    Ok(Box::new(Solo { page: Arc::new(page) }))
}

struct Solo {
    page: Arc<NodeShm>,
}

impl Solo {
    /// A decided exit ends calls here as in every other provider.
    fn check(&self, during: &'static str) -> Result<(), Error> {
        self.page.exit_decision().map_or(Ok(()), |decision| Err(Error::Ending { during, decision }))
    }

    fn only_root(&self, during: &'static str, root: Rank) -> Result<(), Error> {
        if root.0 == 0 {
            return self.check(during);
        }
        Err(Error::Argument {
            during,
            problem: format!("root {root} is outside the job of 1 ranks"),
        })
    }
}

impl Bootstrap for Solo {
    fn rank_info(&self) -> RankInfo {
        RankInfo { rank: Rank(0), size: 1, host: HostId(0), hosts: 1, local: 0, locals: 1 }
    }

    fn node_shm(&self) -> &Arc<NodeShm> {
        &self.page
    }

    fn exit_notifier(&self) -> ExitNotifier {
        ExitNotifier::NONE
    }

    fn barrier(&mut self) -> Result<(), Error> {
        self.check("barrier")
    }

    fn exchange(&mut self, mine: &[u8]) -> Result<Shared, Error> {
        self.check("exchange")?;
        Ok(Shared::Owned(mine.to_vec()))
    }

    fn alltoall(&mut self, rows: &[u8], len: usize) -> Result<Vec<u8>, Error> {
        if rows.len() != len {
            let problem = format!("{} bytes are not 1 rows of {len} bytes", rows.len());
            return Err(Error::Argument { during: "alltoall", problem });
        }
        self.check("alltoall")?;
        Ok(rows.to_vec())
    }

    fn broadcast(&mut self, root: Rank, _data: &mut [u8]) -> Result<(), Error> {
        self.only_root("broadcast", root)
    }

    fn neighbourhood_broadcast(&mut self, root: Rank, _data: &mut [u8]) -> Result<(), Error> {
        self.only_root("neighbourhood broadcast", root)
    }

    fn host_broadcast(&mut self, root: Rank, _data: &mut [u8]) -> Result<(), Error> {
        self.only_root("host broadcast", root)
    }

    fn host_memory(&mut self, len: usize) -> Result<OwnedFd, Error> {
        self.check("host memory")?;
        memfd::zeroed(len as u64)
            .map_err(|source| Error::Os { operation: "make host memory", source })
    }

    fn cleanup(&mut self) {}

    fn fini(&mut self, _code: i32) -> Result<(), Error> {
        // There is nobody to wait for, whether the end is decided or not.
        Ok(())
    }

    fn abort(&mut self, code: i32) -> ! {
        self.page.decide(ExitDecision { code, cause: Some(Rank(0)) });
        crate::sys::end_process(code)
    }
}
