//! The seam between the core and `exit`: internal messages, and what each side calls in the other.
//!
//! `exit` uses of [`Core`]: `place`, `page`, `slot`, `exit_notifier`, `try_services`, and the functions of this module. The core calls
//! in `exit`: `install` at the end of init, `message` for every internal message, `on_notice` when a call of the client finds
//! that the end of the job is decided, `exit` for the client's exit.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bootstrap::node_shm::{NodeShm, Notice};
use bootstrap::{ExitNotifier, Rank, RankInfo};

use crate::core::Core;
use crate::error::Error;
use crate::exit::{self, Link};
use crate::transport::message::Block;
use crate::transport::message::MessageClass;
use crate::transport::shm::{Kind, Packet, Post};

/// Most arguments of an internal message.
pub(crate) const INTERNAL_ARGS: usize = 8;

impl Core {
    /// Sends an internal message (`id` 1..=7, at most [`INTERNAL_ARGS`] arguments) to any rank, this one
    /// included. It travels in a queue of its own, never behind messages of the client. Does not wait: `false` when the queue is
    /// full (try again later) or the rank cannot be reached. Async-signal-safe.
    pub(crate) fn send_internal(&self, rank: Rank, id: u8, args: &[i32]) -> bool {
        if args.len() > INTERNAL_ARGS {
            return false;
        }
        let Some(target) = self.local_of(rank) else {
            return self.send_remote_internal(rank, id, args);
        };
        let (source, kind) = (self.span().local, Kind::Internal);
        let post = Post { kind, handler: id, source, len: 0, place: 0, args, inline: &[] };
        let sent = self.internal_of(target).send(&post);
        if sent {
            self.wake(target);
        }
        sent
    }

    /// Delivers waiting internal messages to `exit`; returns how many. Once client handlers are disabled it also throws the client's
    /// messages away, so that no peer waits for room here. Async-signal-safe, also in a handler that interrupted any function of
    /// this crate, provided that the interrupted code never resumes.
    pub(crate) fn poll_internal(&self) -> usize {
        // A message is out of the queue before `exit` knows it; a handler in between that never returns would lose it.
        let ready = self.internal_of(self.local()).ready();
        let mut count = if ready { exit::undisturbed(|| self.deliver_internal()) } else { 0 };
        if self.networked() {
            count += self.poll_remote_internal();
        }
        if self.is_closed() {
            self.discard(MessageClass::Reply);
            self.discard(MessageClass::Request);
        }
        count
    }

    fn deliver_internal(&self) -> usize {
        let mut count = 0;
        let ring = self.internal_of(self.local());
        let mut packet = Packet::empty();
        while ring.ready() {
            let Some(turn) = self.consumers[MessageClass::Internal as usize].take_over() else {
                break;
            };
            if !ring.receive(&mut packet) {
                break;
            }
            drop(turn);
            count += 1;
            let (source, id) = (packet.source(), packet.handler());
            if packet.kind() != Some(Kind::Internal) || source >= self.span().locals {
                continue;
            }
            if let Some((args, _)) = packet.parts() {
                message(self, self.rank_of(source as usize), id, args);
            }
        }
        count
    }

    /// Takes the client's messages out of a queue without running handlers.
    fn discard(&self, class: MessageClass) {
        let ring = self.ring_of(self.local(), class);
        let mut packet = Packet::empty();
        while ring.ready() {
            let Some(turn) = self.consumers[class as usize].take_over() else { break };
            if !ring.receive(&mut packet) {
                break;
            }
            drop(turn);
            self.release_block(class, &packet);
        }
        self.discard_lanes(class);
    }

    pub(crate) fn release_block(&self, class: MessageClass, packet: &Packet) {
        let source = packet.source() as usize;
        if packet.kind() == Some(Kind::MediumBlock) && source < self.layout().locals {
            let block = Block::from_wire(packet.place());
            if let Some(word) = self.freed(source, class).get(block.index as usize) {
                word.store(block.generation, Ordering::Release);
            }
        }
    }

    /// From now on no handler of the client runs on this rank and every call of the client fails with
    /// [`Error::AfterExit`]. Async-signal-safe.
    pub(crate) fn disable_client_handlers(&self) {
        self.close();
        if let Some(remote) = self.remote() {
            remote.quiet();
        }
    }

    /// Sleeps on the doorbell until an internal message or the exit notice is there, a signal comes or `timeout` passes.
    /// Async-signal-safe.
    pub(crate) fn sleep_internal(&self, timeout: Duration) {
        // A ring between the poll and the sleep must not be lost.
        let rung = self.slot().rung();
        if self.networked() && self.arm_remote() && self.poll_remote_internal() > 0 {
            return;
        }
        self.slot().sleep(timeout, || {
            self.slot().rung() != rung
                || !self.barrier_for_senders()
                || self.internal_of(self.local()).ready()
                || self.node_shm().notice().is_some()
        });
    }

    /// Ends the process after a broken promise of the program that cannot be an error of a call. Without exit machinery
    /// (ranks that are threads) it panics.
    #[cold]
    pub(crate) fn fatal(&self, text: &str) -> ! {
        assert!(self.is_hooked(), "{text}");
        exit::fatal_error(text)
    }
}

impl Link for Core {
    fn rank_info(&self) -> RankInfo {
        self.rank_info()
    }

    fn node_shm(&self) -> &NodeShm {
        self.node_shm()
    }

    fn exit_notifier(&self) -> ExitNotifier {
        self.exit_notifier()
    }

    fn send(&self, to: Rank, id: u8, args: &[i32]) -> bool {
        self.send_internal(to, id, args)
    }

    fn poll(&self) -> usize {
        self.poll_internal()
    }

    fn sleep(&self, timeout: Duration) {
        self.sleep_internal(timeout);
    }

    fn disable_client_handlers(&self) {
        self.disable_client_handlers();
    }

    fn close(self: Arc<Self>, agreed: bool) {
        self.close_network(agreed);
    }
}

/// Refuses a second `init` of this process: it has one connection to its job.
pub(crate) fn first_init() -> Result<(), Error> {
    static BEGUN: AtomicBool = AtomicBool::new(false);
    if BEGUN.swap(true, Ordering::SeqCst) { Err(Error::InitTwice) } else { Ok(()) }
}

/// Installs the exit machinery of the process for this rank. Before the first barrier of init, so that no peer's message
/// comes earlier.
pub(crate) fn install(core: &Arc<Core>, table: &settings::Values) -> Result<(), Error> {
    let link: Arc<dyn Link> = Arc::<Core>::clone(core);
    exit::install(link, table)?;
    core.set_hooked();
    Ok(())
}

/// An internal message of the exit.
pub(crate) fn message(core: &Core, source: Rank, id: u8, args: &[i32]) {
    if core.is_hooked() {
        exit::message(core.rank_info().rank, source, id, args);
    }
}

/// The end of the job is decided and a call of the client found out.
pub(crate) fn on_notice(core: &Core, notice: Notice) {
    if core.is_hooked() {
        exit::on_notice(core.rank_info().rank, notice);
    }
}

/// A call of the client came after this process had begun to exit: only the thread that exits gets the error.
pub(crate) fn after_exit(core: &Core) {
    exit::after_exit(core.rank_info().rank);
}

/// The client's exit.
#[expect(clippy::disallowed_methods, reason = "the end of the process is what was asked for")]
pub(crate) fn exit(core: &Core, code: i32) -> ! {
    if core.is_hooked() {
        exit::exit(code);
    }
    if let Some(Err(error)) = core.try_services(|services| services.fini(code)) {
        crate::sys::say(&error.to_string());
    }
    std::process::exit(code)
}
