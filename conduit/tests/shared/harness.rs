//! Runs a job whose ranks are threads of the test process.
#![allow(dead_code, unreachable_pub, reason = "every test program uses a part")]

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use bootstrap::HostId;
use bootstrap::node_shm::ExitDecision;
use gasnet_ibv::{Client, Mode, Settings};

/// Settings with the smallest queues that are legal, so that tests run into full ones.
pub fn tiny() -> Settings {
    Settings { depth: Settings::LEAST_DEPTH, ..Settings::default() }
}

/// Where the ranks of a job are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// All on one host, sharing memory.
    Together,
    /// Each on a host of its own.
    Apart,
    /// On hosts of two, one after the other.
    Pairs,
    /// All but the last on one host.
    AllButOne,
    /// Ranks take turns on two hosts.
    Alternating,
    /// On one host, cut into neighbourhoods of two.
    Cut,
}

impl Placement {
    /// All that need a network.
    pub const REMOTE: [Self; 5] =
        [Self::Apart, Self::Pairs, Self::AllButOne, Self::Alternating, Self::Cut];

    fn host(self, rank: u32, size: u32) -> HostId {
        HostId(match self {
            Self::Together | Self::Cut => 0,
            Self::Apart => rank,
            Self::Pairs => rank / 2,
            Self::AllButOne => u32::from(size > 1 && rank + 1 == size),
            Self::Alternating => rank % 2,
        })
    }

    /// Hosts of the ranks, and the settings.
    pub fn of(self, size: u32, settings: &Settings) -> (Vec<HostId>, Settings) {
        let hosts = (0..size).map(|rank| self.host(rank, size)).collect();
        let mut settings = settings.clone();
        if self == Self::Cut {
            settings.neighbourhood_max = 2;
        }
        settings.network.push(("GASNET_IBV_FABRIC".to_owned(), "soft".to_owned()));
        // `scripts/test --all` runs the tests of messages with each flow control.
        let flow = ::settings::variable("TESTKIT_FLOW_CONTROL");
        if let Some(flow) = flow.and_then(|flow| flow.into_string().ok()) {
            settings.network.push(("GASNET_AM_FLOW_CONTROL".to_owned(), flow));
        }
        (hosts, settings)
    }
}

/// Runs `rank` on `size` threads, each a rank of one job. A rank that panics ends the job for all
/// others, and the test.
pub fn job<M: Mode>(size: u32, settings: &Settings, rank: impl Fn(&Client<M>) + Sync) {
    job_at::<M>(Placement::Together, size, settings, rank);
}

/// Runs `rank` as [`job`] does, once for each placement that makes a difference for `size` ranks.
pub fn everywhere<M: Mode>(size: u32, settings: &Settings, rank: impl Fn(&Client<M>) + Sync) {
    job::<M>(size, settings, &rank);
    let mut seen = vec![];
    for placement in Placement::REMOTE {
        let (hosts, cut) = placement.of(size, settings);
        let row = (hosts, cut.neighbourhood_max);
        if size > 1 && !seen.contains(&row) {
            seen.push(row);
            job_at::<M>(placement, size, settings, &rank);
        }
    }
}

/// As [`job`], with ranks that are remote to each other.
pub fn job_at<M: Mode>(
    placement: Placement,
    size: u32,
    settings: &Settings,
    rank: impl Fn(&Client<M>) + Sync,
) {
    let (hosts, settings) = &placement.of(size, settings);
    let services = bootstrap::memory::job_on_hosts(hosts).expect("in-memory job");
    let pages: Vec<_> = services.iter().map(|services| Arc::clone(services.node_shm())).collect();
    let failed = std::sync::Mutex::new(None);
    std::thread::scope(|scope| {
        for services in services {
            let (pages, failed, rank) = (&pages, &failed, &rank);
            scope.spawn(move || {
                let run = AssertUnwindSafe(|| {
                    let client = Client::<M>::with_bootstrap("TEST", services, settings.clone());
                    rank(&client.unwrap_or_else(|error| panic!("init, {placement:?}: {error}")));
                });
                if let Err(panic) = catch_unwind(run) {
                    for page in pages {
                        page.decide(ExitDecision { code: 99, cause: None });
                    }
                    failed.lock().expect("lock").get_or_insert(panic);
                }
            });
        }
    });
    if let Some(panic) = failed.into_inner().expect("lock") {
        resume_unwind(panic);
    }
}
