//! How a rank under a process manager leaves, and how its host notices one that left without a
//! word.
//!
//! No agent watches these ranks, so they watch each other: every rank holds a socket to the first
//! one of its host, and the end of the job is decided in the node memory by the rank that has a
//! reason. That rank sees the others of its host out.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use bootstrap::node_shm::{Ack, ExitDecision, NodeShm, RankSlot};
use bootstrap::service::{Finalizer, Rank};
use bootstrap::sys;
use settings::deadlines::Deadline;
use settings::deadlines::bootstrap::PM_OTHERS;

/// Exit code of a job in which a rank ended without farewell and nobody here knows how.
const DIED: i32 = 1;

/// How one kind of process manager hears that a rank leaves. Async-signal-safe where the process
/// manager allows it; bounded.
pub trait FinalizeCalls: std::fmt::Debug + Send + Sync {
    /// Orderly end.
    fn finalize(&self);
    /// End of the job. The process manager ends this process, too, sooner or later.
    fn abort(&self, code: i32);
    /// Whether the server is gone, as far as this can be seen without waiting.
    fn is_lost(&self) -> bool {
        false
    }
}

/// The way out of a rank under a process manager. Kept for the life of the process, because exit
/// paths use it at any time; the connection belongs to the
/// [`ProcessManager`](super::manager::ProcessManager), which marks it as gone when it is dropped.
#[derive(Debug)]
pub struct Finalization {
    leave: Box<dyn FinalizeCalls>,
    /// The rank has left, or nobody is left to tell.
    gone: AtomicBool,
    /// This rank has decided the end of the job because another one died.
    decided: AtomicBool,
    /// Milliseconds that the others have to follow a decided end.
    others_ms: AtomicU32,
    host: OnceLock<Host>,
}

/// What is known once the ranks of the host have met.
#[derive(Debug)]
struct Host {
    page: Weak<NodeShm>,
    local: u32,
    /// Sockets to ranks of this host, by their index on it. They belong to the provider.
    sockets: Vec<(RawFd, u32)>,
}

impl Finalization {
    /// Keeps `leave` for ever.
    pub fn new(leave: Box<dyn FinalizeCalls>) -> &'static Self {
        let (gone, decided) = (AtomicBool::new(false), AtomicBool::new(false));
        let (others_ms, host) = (AtomicU32::new(0), OnceLock::new());
        let finalization = Self { leave, gone, decided, others_ms, host };
        finalization.allow(PM_OTHERS);
        Box::leak(Box::new(finalization))
    }

    /// Sets how long the others have to follow a decided end.
    pub fn allow(&self, others: Deadline) {
        let bound = others.limit.as_millis();
        self.others_ms.store(u32::try_from(bound).unwrap_or(u32::MAX), Ordering::SeqCst);
    }

    /// The ranks of the host have met: `sockets` lead to the ranks with these indices on the host.
    pub fn attach(&self, page: &Arc<NodeShm>, local: u32, sockets: Vec<(RawFd, u32)>) {
        let page = Arc::downgrade(page);
        // Once: a rank meets the others of its host once.
        self.host.get_or_init(|| Host { page, local, sockets });
    }

    /// The connection is gone.
    pub fn close(&self) {
        self.gone.store(true, Ordering::SeqCst);
    }

    fn host(&self) -> Option<(&Host, Arc<NodeShm>)> {
        let host = self.host.get()?;
        Some((host, host.page.upgrade()?))
    }

    /// A rank of this host ended without farewell: that is the end of the job.
    pub fn died(&self, page: &NodeShm, rank: Rank) {
        self.decided.store(true, Ordering::SeqCst);
        let slot = page.local_of(rank).map(|local| page.slot(local));
        let code = slot.and_then(RankSlot::dying_with).unwrap_or(DIED);
        page.decide(ExitDecision { code, cause: Some(rank) });
    }

    /// The process manager's server is gone, and with it whoever would end this rank: the job ends,
    /// and this process within the time that others have to follow. Called on a thread of the
    /// process manager's library; does not return while the process lives.
    pub fn server_lost(&self) {
        if self.gone.swap(true, Ordering::SeqCst) {
            return;
        }
        if let Some((host, page)) = self.host() {
            page.decide(ExitDecision { code: DIED, cause: None });
            sys::nap(REMIND_MS.cast_signed());
            let slot = page.slot(host.local);
            if slot.claim_ack(Ack::Agent) {
                sys::remind(slot.pid());
            }
            let bound = self.others_ms.load(Ordering::SeqCst);
            sys::nap(i32::try_from(bound).unwrap_or(i32::MAX));
        }
        sys::end_process(DIED);
    }

    /// Waits until all other ranks of the host have left; whoever does not look at the page is
    /// reminded by a signal, as an agent would. False when some stay.
    fn see_out(&self, host: &Host, page: &NodeShm) -> bool {
        let bound = self.others_ms.load(Ordering::SeqCst);
        let others = || (0..page.locals()).filter(|local| *local != host.local);
        let stay = || {
            others().any(|local| {
                let slot = page.slot(local);
                !slot.has_left() && sys::is_alive(slot.pid())
            })
        };
        let wait = |limit: u32| {
            let mut waited = 0;
            while waited < limit && stay() {
                sys::nap(STEP_MS);
                waited += STEP_MS.unsigned_abs();
            }
        };
        wait(REMIND_MS.min(bound));
        for slot in others().map(|local| page.slot(local)) {
            if !slot.has_left() && slot.claim_ack(Ack::Agent) {
                sys::remind(slot.pid());
            }
        }
        wait(bound);
        !stay()
    }
}

impl Finalizer for Finalization {
    fn page_reaches_all(&self) -> bool {
        self.host().is_some_and(|(_, page)| page.locals() == page.size())
    }

    fn look(&self) {
        let Some((host, page)) = self.host() else { return };
        if self.gone.load(Ordering::SeqCst) || page.exit_decision().is_some() {
            return;
        }
        if self.leave.is_lost() {
            self.gone.store(true, Ordering::SeqCst);
            page.decide(ExitDecision { code: DIED, cause: None });
            return;
        }
        for (socket, local) in &host.sockets {
            if sys::has_hung_up(*socket) && !page.slot(*local).has_left() {
                self.died(&page, page.local_rank(*local));
            }
        }
    }

    fn dying(&self, code: i32) {
        if let Some((host, page)) = self.host() {
            page.slot(host.local).set_dying(code);
        }
    }

    /// Orderly end of this rank with `code`; the process manager is told once.
    ///
    /// The rank that decided the end of the job sees the others of its host out first. What then
    /// still stays, here or on hosts that know nothing of the decision, the process manager ends.
    fn fini(&self, code: i32) {
        let host = self.host();
        if let Some((host, page)) = &host {
            page.slot(host.local).set_left();
        }
        if self.gone.swap(true, Ordering::SeqCst) {
            return;
        }
        let mut alone = false;
        if let Some((host, page)) = &host
            && let Some(decision) = page.exit_decision()
            && (decision.cause == Some(page.local_rank(host.local))
                || self.decided.load(Ordering::SeqCst))
        {
            alone = !self.see_out(host, page) || page.locals() < page.size();
        }
        if alone { self.leave.abort(code) } else { self.leave.finalize() }
    }

    fn abort(&self, code: i32) {
        if let Some((host, page)) = self.host() {
            let cause = Some(page.local_rank(host.local));
            page.decide(ExitDecision { code, cause });
        }
        if !self.gone.swap(true, Ordering::SeqCst) {
            self.leave.abort(code);
        }
    }
}

/// Time that ranks have to see a decided end by themselves; as with an agent.
const REMIND_MS: u32 = 20;
/// Between two looks at who has left.
const STEP_MS: i32 = 2;
