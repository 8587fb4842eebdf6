//! [`Network`] from start-up to close. What it sends and takes stands in `transport.rs`.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use ::settings::deadlines::net as deadlines;
use bootstrap::{Bootstrap, Rank};
use settings::log::RANK;
use settings::say;

use super::completions::Completions;
use super::connect::{self, file};
use super::context::NetContext;
use super::error::Error;
use super::links::Links;
use super::members::{Common, Members};
use super::memory::pool::SegmentMemory;
use super::peer_addresses::{OwnAddress, PeerAddresses};
use super::plan::NetPlan;
use super::rail::Rail;
use super::recv_buffers::RecvBuffers;
use super::settings::{NetSettings, is_per_rank};
use super::setup::{open, start};
use super::threads::{SharedSink, Threads};
use super::xrc::{self, Xrc};

/// Polls for completions before closing sleeps between them.
const YIELDS: u32 = 20;

/// The network of one rank.
#[derive(Debug)]
pub(crate) struct Network {
    pub(super) context: Arc<NetContext>,
    pub(super) threads: Threads,
    /// Ranks that are connected at the start, until [`Network::begin`].
    prepared: Mutex<Vec<Rank>>,
}

impl Network {
    /// Collective. `None` when every rank is in this neighbourhood; otherwise the network, and the
    /// smallest of the largest segments of all ranks. After a barrier of all ranks
    /// [`Network::begin`] has to follow.
    ///
    /// # Errors
    /// No usable device, settings that cannot be met, ranks that do not fit together.
    pub(crate) fn start(
        settings: &NetSettings,
        members: &Members,
        common: Common,
        services: &mut dyn Bootstrap,
    ) -> Result<Option<(Self, u64)>, Error> {
        if members.neighbours.len() == members.size as usize {
            return Ok(None);
        }
        let (plan, max_segment) = open::plan(settings, members, common, services)?;
        let network = Self::with_plan(settings, plan, members, services)?;
        Ok(Some((network, max_segment)))
    }

    /// From opened ports on.
    pub(super) fn with_plan(
        settings: &NetSettings,
        plan: NetPlan,
        members: &Members,
        services: &mut dyn Bootstrap,
    ) -> Result<Self, Error> {
        let datagrams = start::datagrams(&plan, members.size, &settings.connect)?;
        let number = datagrams.as_ref().map_or(0, |(socket, _)| socket.number());
        let sharing = xrc::sharing(settings.xrc, &plan, members)?;
        let mine = OwnAddress::new(&plan, settings.connect.ways(), sharing, number)?;
        let others = PeerAddresses::exchange(members.rank, &mine, services)?;
        // All ranks share receive queues or none does.
        let xrc = match plan.sizes.srq {
            Some(_) => Xrc::open(settings.xrc, &plan, members, &others, services)?,
            None => {
                let reason = "receive queues are not shared (see GASNET_USE_SRQ)";
                xrc::refused(settings.xrc, members, reason);
                None
            }
        };
        let context = NetContext::new(settings.clone(), plan, members.clone(), xrc)?;
        RecvBuffers(&context).add_initial()?;
        let context = Arc::new(context);
        let links = Links { context: Arc::clone(&context), others };
        let (threads, prepared) = start::connect(links, datagrams, &settings.connect, services)?;
        let prepared = Mutex::new(prepared);
        Ok(Self { context, threads, prepared })
    }

    /// After a barrier of all ranks, before anything is sent: connections that are made at the
    /// start may be used.
    ///
    /// # Errors
    /// The device refuses.
    pub(crate) fn begin(&self) -> Result<(), Error> {
        let prepared =
            std::mem::take(&mut *self.prepared.lock().unwrap_or_else(PoisonError::into_inner));
        start::open(self.threads.links(), &prepared)
    }

    /// Address, in its owner, and length of a remote rank's segment; `None` before attach.
    pub(crate) fn segment(&self, rank: Rank) -> Option<(u64, u64)> {
        let segment = self.context.segments.get()?.remote(rank);
        Some((segment.base, segment.len))
    }

    /// Starts the progress threads that the settings ask for. Those for receives call `sink`, also
    /// while the program is inside the library or a handler; the rank's doorbell rings when they
    /// have done something.
    ///
    /// # Errors
    /// No threads.
    pub(crate) fn start_threads(&self, sink: &SharedSink) -> Result<(), Error> {
        let settings = &self.context.settings;
        self.threads.progress(&settings.receive_thread, &settings.send_thread, sink)
    }

    /// Before a sleep: completions from now on ring the rank's doorbell. Poll once more after it.
    ///
    /// # Errors
    /// The device refuses.
    pub(crate) fn arm(&self) -> Result<(), Error> {
        for rail in &self.context.rails {
            if !rail.has_receiver.load(Ordering::Relaxed) {
                rail.recv_cq.arm()?;
            }
            if rail.is_sending() && !rail.has_reaper.load(Ordering::Relaxed) {
                rail.send_cq.arm()?;
            }
        }
        Ok(())
    }

    /// Collective, once, after each rank has its segment (which may be empty): registers it and
    /// exchanges addresses and keys.
    ///
    /// # Errors
    /// The device cannot register the memory; the exchange fails.
    pub(crate) fn attach(
        &self,
        memory: SegmentMemory,
        services: &mut dyn Bootstrap,
    ) -> Result<(), Error> {
        start::attach(&self.context, memory, services)
    }

    /// Peers that something was sent to or came from, ascending.
    fn used(&self) -> Vec<Rank> {
        let peers = self.context.peers.iter().filter(|peer| peer.was_used());
        let mut used: Vec<Rank> = peers.map(|peer| peer.rank).collect();
        used.sort_unstable();
        used
    }

    /// A file of used connections that each rank has for itself needs nobody else.
    fn write_own_connections(&self) {
        let members = &self.context.members;
        let settings = &self.context.settings.connect;
        let pattern = settings.file_out.as_deref().filter(|name| is_per_rank(name));
        let Some(pattern) = pattern else { return };
        let (base, rank) = (settings.file_base, members.rank.0);
        let used = self.used().into_iter().map(|peer| peer.0);
        let text = file::header(members.size, base) + &file::lines(rank, used, base);
        if let Err(error) = file::write(&file::expand(pattern, rank), &text) {
            say!(WARN, RANK, "rank {rank}: {error}");
        }
    }

    /// Whether [`Network::write_connections`] has something to do: one list of all ranks.
    pub(crate) fn lists_together(&self) -> bool {
        self.context.settings.connect.lists_together()
    }

    /// Writes the list of used connections that `GASNET_CONNECTFILE_OUT` asks for. Collective.
    /// (Files with a `%` in their name are written by [`Network::close`].)
    ///
    /// # Errors
    /// The file cannot be written; a service fails.
    pub(crate) fn write_connections(&self, services: &mut dyn Bootstrap) -> Result<(), Error> {
        let settings = &self.context.settings.connect;
        let Some(pattern) = settings.file_out.as_deref().filter(|_| self.lists_together()) else {
            return Ok(());
        };
        let members = &self.context.members;
        let (base, used) = (settings.file_base, self.used());
        Ok(connect::used::write(pattern, base, members.rank, members.size, &used, services)?)
    }

    /// Takes what is still complete and stops the network's threads, bounded by named deadlines.
    /// Failures do not count any more. Not for signal handlers.
    pub(crate) fn close(&self) {
        self.quiet();
        self.write_own_connections();
        let end = Instant::now() + deadlines::DRAIN.limit;
        let mut idle = 0_u32;
        while self.context.rails.iter().any(Rail::is_sending) && Instant::now() < end {
            if matches!(Completions(&self.context).reap(), Ok(count) if count > 0) {
                idle = 0;
            } else if idle < YIELDS {
                idle += 1;
                std::thread::yield_now();
            } else {
                std::thread::sleep(deadlines::CLOSE_SLICE.limit);
            }
        }
        self.threads.stop();
    }

    /// Bytes of a rank's attached segment; 0 before attach.
    #[cfg(test)]
    pub(crate) fn segment_len(&self, rank: Rank) -> u64 {
        self.context.segments.get().map_or(0, |segments| segments.remote(rank).len)
    }

    /// From now on failed completions are ignored: the job is ending. Safe in signal handlers.
    pub(crate) fn quiet(&self) {
        self.context.failure.ignore();
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.quiet();
        self.threads.stop();
    }
}
