//! Providers under an existing engine: Slurm, Hydra, Open MPI and what else starts ranks and serves them PMI, PMIx or MPI.
//!
//! # Primer
//!
//! A rank speaks to its engine in its own process; there is no helper process and no thread. The engine offers little: a space of
//! keys and values, and a fence after which what was put can be read (`Engine`). From that this module makes the services:
//!
//! * `hosts` finds out which ranks share a host: the engine's own map where it has one, else an identity of the host that is
//!   exchanged once.
//! * `rendezvous`: the ranks of a host meet at its lowest one, the *leader*, over Unix packet sockets. The leader does for them
//!   what a node agent does: it makes the host page and answers their calls (`leader`), from within its own calls.
//! * The leaders pass the letters of the tree of agents (`crate::collective`) to each other through the key-value space: one datum
//!   per host and call, then a fence of all ranks. Each leader runs the root of that tree for itself; as all of them read the same
//!   letters, all come to the same answers. Calls that stay on a host never reach the server.
//!
//! `docs/design/engines.md` has the wires, the keys, and what each engine does at the end of a rank.

mod departure;
pub(crate) mod error;
pub mod fields;
mod foreign;
mod hosts;
mod identity;
mod leader;
pub mod mapping;
pub(crate) mod mpi;
pub(crate) mod pmi;
mod pmi1;
mod pmi2;
pub(crate) mod pmix;
pub mod rehearsal;
mod rendezvous;
mod space;
mod stream;
pub mod value;

#[cfg(test)]
mod tests;

pub use error::EngineError;

pub(crate) use departure::{Departure, Leave};

use std::os::fd::AsRawFd;
use std::sync::Arc;

use crate::client::Client;
use crate::deadlines::EngineBounds;
use crate::page::{HostPage, PageSpec};
use crate::service::{Bootstrap, Error, HostId, Rank};

/// The services over an engine. Collective over the job.
pub(crate) fn join(
    mut engine: Box<dyn Engine>,
    identity: &identity::Identity,
    bounds: EngineBounds,
) -> Result<Box<dyn Bootstrap>, Error> {
    engine.departure().allow(bounds.others);
    let host_of = hosts::find(engine.as_mut(), identity)?;
    let about = engine.about().clone();
    let host = host_of.get(about.rank.0 as usize).copied().unwrap_or(HostId(0));
    let all = (0u32..).map(Rank).zip(&host_of);
    let ranks: Vec<Rank> = all.filter(|(_, h)| **h == host).map(|(rank, _)| rank).collect();
    let meeting = rendezvous::Place { about: &about, identity, ranks: &ranks, meet: bounds.meet };
    if ranks.first() != Some(&about.rank) {
        let socket = meeting.come()?;
        return crate::agent::join(socket, engine, &meeting.greeting(), bounds.services);
    }
    let listener = meeting.open()?;
    let hosts = host_of.iter().map(|host| host.0 + 1).max().unwrap_or(1);
    let spec = PageSpec { host, hosts, local_ranks: &ranks, host_of: &host_of };
    let page = Arc::new(HostPage::create(&spec).map_err(crate::solo::page_error)?);
    let members = meeting.gather(&listener, &page)?;
    let departure = engine.departure();
    let local = |rank| page.local_of(rank).unwrap_or_default();
    let sockets = members.iter().map(|(rank, fd)| (fd.as_raw_fd(), local(*rank))).collect();
    let leader = leader::Leader::new(engine, &host_of, identity.name.clone(), members, bounds)?;
    let Some(place) = page.place(about.rank) else {
        let seen = format!("a host page without rank {}", about.rank);
        return Err(Error::Protocol { during: "start", seen });
    };
    page.slot(place.local).set_pid(std::process::id().cast_signed());
    departure.attach(&page, place.local, sockets);
    Ok(Box::new(Client::new(leader, place, page)))
}

/// Called in every slice of a wait; fails when the wait has become pointless.
pub(crate) type Watch<'a> = dyn FnMut() -> Result<(), Error> + 'a;

/// Nothing to watch.
pub(crate) const fn unwatched() -> impl FnMut() -> Result<(), Error> {
    || Ok(())
}

/// Who a rank is, by its engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct About {
    /// Engine, as in messages.
    pub(crate) engine: &'static str,
    /// This rank.
    pub(crate) rank: Rank,
    /// Ranks of the job.
    pub(crate) size: u32,
    /// Text that no other job at the same time has.
    pub(crate) job: String,
    /// Bytes of a value that the server keeps.
    pub(crate) value_limit: usize,
}

/// One rank's connection to the engine that started it. After an error no further call is possible.
pub(crate) trait Engine: Send {
    /// Constant.
    fn about(&self) -> &About;

    /// Host of every rank, if the engine knows it.
    fn host_map(&mut self) -> Result<Option<Vec<HostId>>, Error>;

    /// Puts a value; others may read it after the next fence. A key is put once in a job.
    fn put(&mut self, key: &str, value: &str) -> Result<(), Error>;

    /// Collective over the job: what was put before can be read after it. `watch` is asked several times a second.
    fn fence(&mut self, watch: &mut Watch<'_>) -> Result<(), Error>;

    /// The value that `from` put before the last fence.
    fn get(&mut self, from: Rank, key: &str) -> Result<String, Error>;

    /// How this rank leaves.
    fn departure(&self) -> &'static Departure;
}
