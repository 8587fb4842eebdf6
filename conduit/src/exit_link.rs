//! The seam between the rank and `exit`: what each side calls in the other.
//!
//! `exit` uses of a rank what [`Link`] has. The rank calls in `exit`: `install` at the end of init,
//! and the driver of its exit for every message of the exit, and when a call of the client finds
//! the end of the job decided or under way.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use bootstrap::node_shm::NodeShm;
use bootstrap::{Bootstrap, ExitNotifier, Rank, RankInfo};
use settings::deadlines::{net as net_deadlines, wait as deadlines};
use settings::log::RANK;
use settings::say;

use crate::barrier::drive::is_driving;
use crate::error::Error;
use crate::exit::machine::Tree;
use crate::exit::{self, Link};
use crate::rank::RankContext;
use crate::transport::message::MessageClass;
use crate::transport::neighbours::Neighbours;
use crate::transport::net::NetTransport;

impl Link for RankContext {
    fn rank_info(&self) -> RankInfo {
        self.rank_info
    }

    fn tree(&self) -> Tree {
        let Neighbours { span, ranks, ahead, behind, .. } = &self.neighbours;
        Tree::new(|local| ranks.get(local), span.local, ahead, behind)
    }

    fn node_shm(&self) -> &NodeShm {
        self.node_shm()
    }

    fn exit_notifier(&self) -> ExitNotifier {
        self.exit_notifier
    }

    fn send(&self, to: Rank, id: u8, args: &[i32]) -> bool {
        self.send_internal(to, id, args)
    }

    fn poll(&self) -> usize {
        self.poll_internal()
    }

    fn sleep(&self, timeout: Duration) {
        let shm = self.shm();
        // A ring between the poll and the sleep must not be lost.
        let rung = shm.slot().rung();
        if self.networked() && self.arm_net() && self.poll_net_internal() > 0 {
            return;
        }
        // Nobody rings for what comes from adapters.
        let single = self.transport.net().is_some_and(NetTransport::is_single);
        let timeout = if single { timeout.min(net_deadlines::NAP.limit) } else { timeout };
        shm.slot().sleep(timeout, || {
            shm.slot().rung() != rung
                || !shm.fence_for_senders()
                || shm.is_ready(MessageClass::Internal)
                || self.node_shm().exit_decision().is_some()
        });
    }

    fn disable_client_handlers(&self) {
        self.close();
        if let Some(net) = self.transport.net() {
            net.quiet();
        }
    }

    fn close(self: Arc<Self>, agreed: bool) {
        if NetTransport::is_interrupted() || is_driving() {
            return;
        }
        if agreed {
            Arc::clone(&self).write_list();
        }
        if let Some(net) = self.transport.net() {
            net.close();
        }
    }
}

impl RankContext {
    /// Delivers waiting messages of the library to `exit`; returns how many. Once client handlers
    /// are disabled it also throws the client's messages away, so that no peer waits for room here.
    /// Async-signal-safe, also in a handler that interrupted any function of this crate, provided
    /// that the interrupted code never resumes.
    pub(crate) fn poll_internal(&self) -> usize {
        let shm = self.shm();
        let each = |source, id, args: &[i32]| self.exit_message(self.rank_of(source), id, args);
        let take = || shm.take_internal(each);
        // A message is out of the queue before `exit` knows it; a handler in between that never
        // returns would lose it.
        let ready = shm.is_ready(MessageClass::Internal);
        let mut count = if ready { exit::undisturbed(take) } else { 0 };
        if self.networked() {
            count += self.poll_net_internal();
        }
        if self.is_closed() {
            shm.discard();
        }
        count
    }

    /// Delivers messages of the exit that came over the network.
    #[inline(never)]
    pub(crate) fn deliver_exit_inbox(&self) -> usize {
        self.exit_inbox.deliver(|source, id, args| self.exit_message(source, id, args))
    }

    /// One list of the used connections of all ranks. On a thread of its own, because a rank that
    /// hangs must not hold up the end of the others.
    fn write_list(self: Arc<Self>) {
        if !self.transport.net().is_some_and(NetTransport::lists_together) {
            return;
        }
        let rank = self.rank_info.rank;
        let (done, written) = mpsc::channel();
        let its = Arc::clone(&self);
        let write = move || {
            let call = |services: &mut dyn Bootstrap| {
                its.transport.net().map_or(Ok(()), |net| net.write_connections(services))
            };
            let result = match its.try_services(call) {
                Some(result) => result.map_err(|error| error.to_string()),
                None => Err("another thread is in a collective call".to_owned()),
            };
            // Nobody listens any more when it has taken too long.
            let _ = done.send(result);
        };
        let problem = match thread::Builder::new().name("gasnet-list".into()).spawn(write) {
            Err(error) => Some(format!("cannot start a thread: {error}")),
            Ok(_) => match written.recv_timeout(deadlines::CONNECTION_LIST.limit) {
                Ok(result) => result.err(),
                Err(_) => Some(format!(
                    "other ranks gave no list within {} s",
                    deadlines::CONNECTION_LIST.limit.as_secs()
                )),
            },
        };
        // Where a failure ends the job meanwhile, others have said why.
        let failed = || self.node_shm().exit_decision().is_some_and(|decision| decision.code != 0);
        if let Some(problem) = problem.filter(|_| !failed()) {
            say!(WARN, RANK, "rank {rank}: GASNET_CONNECTFILE_OUT is not written: {problem}");
        }
    }

    /// The exit of this process, if it is this rank's.
    pub(crate) fn exit_driver(&self) -> Option<&'static exit::Driver> {
        if self.is_hooked() { exit::of(self.rank_info.rank) } else { None }
    }

    fn exit_message(&self, source: Rank, id: u8, args: &[i32]) {
        if let Some(driver) = self.exit_driver() {
            driver.message(source, id, args);
        }
    }
}

/// Refuses a second `init` of this process: it has one connection to its job.
pub(crate) fn first_init() -> Result<(), Error> {
    static BEGUN: AtomicBool = AtomicBool::new(false);
    if BEGUN.swap(true, Ordering::SeqCst) { Err(Error::InitTwice) } else { Ok(()) }
}

/// Installs the exit machinery of the process for this rank. Before the first barrier of init, so
/// that no peer's message comes earlier.
pub(crate) fn install(context: &Arc<RankContext>, table: &settings::Values) -> Result<(), Error> {
    let link: Arc<dyn Link> = Arc::<RankContext>::clone(context);
    exit::install(link, table)?;
    context.hooked.store(true, Ordering::SeqCst);
    Ok(())
}
