//! Runs a job whose ranks are threads of the test process.
#![allow(dead_code, unreachable_pub, reason = "every test program uses a part")]

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use bootstrap::page::Notice;
use gasnet_ibv::{Client, Mode, Settings};

/// Settings with the smallest queues that are legal, so that tests run into full ones.
pub fn tiny() -> Settings {
    Settings { depth: Settings::LEAST_DEPTH, ..Settings::default() }
}

/// Runs `rank` on `size` threads, each a rank of one job. A rank that panics ends the job for all others, and the test.
pub fn job<M: Mode>(size: u32, settings: &Settings, rank: impl Fn(&Client<M>) + Sync) {
    let services = bootstrap::memory::job(size).expect("in-memory job");
    let page = Arc::clone(services[0].page());
    let failed = std::sync::Mutex::new(None);
    std::thread::scope(|scope| {
        for services in services {
            let (page, failed, rank) = (&page, &failed, &rank);
            scope.spawn(move || {
                let run = AssertUnwindSafe(|| {
                    let client = Client::<M>::with_bootstrap("TEST", services, settings.clone());
                    rank(&client.expect("init"));
                });
                if let Err(panic) = catch_unwind(run) {
                    page.decide(Notice { code: 99, cause: None });
                    failed.lock().expect("lock").get_or_insert(panic);
                }
            });
        }
    });
    if let Some(panic) = failed.into_inner().expect("lock") {
        resume_unwind(panic);
    }
}
