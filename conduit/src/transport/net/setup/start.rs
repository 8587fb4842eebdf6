//! From a setup to a working network: addresses are exchanged, ranks are connected, segments are
//! made known.

use std::sync::Arc;

use bootstrap::{Bootstrap, Rank};
use fabric::Channel;

use crate::transport::net::connect::driver::Socket;
use crate::transport::net::connect::wire::{Context, queue_key};
use crate::transport::net::connect::{self, file, fixed};
use crate::transport::net::context::NetContext;
use crate::transport::net::error::Error;
use crate::transport::net::links::Links;
use crate::transport::net::memory::pool::SegmentMemory;
use crate::transport::net::plan::NetPlan;
use crate::transport::net::segments::SegmentTable;
use crate::transport::net::settings::ConnectSettings;
use crate::transport::net::threads::Threads;

/// Registers the own segment with every rail and exchanges where the segments are. Collective.
pub(crate) fn attach(
    context: &NetContext,
    memory: SegmentMemory,
    services: &mut dyn Bootstrap,
) -> Result<(), Error> {
    let mut mine = [0; 8];
    if memory.len > 0 {
        mine.copy_from_slice(&memory.address().to_ne_bytes());
    }
    let mut mine = mine.to_vec();
    mine.extend((memory.len as u64).to_ne_bytes());
    for rail in &context.rails {
        let mut key = 0;
        if memory.len > 0 {
            let region = memory.register(&*rail.device)?;
            key = region.rkey();
            let _ = rail.segment.set(region);
        }
        mine.extend(key.to_ne_bytes());
    }
    debug_assert_eq!(mine.len(), SegmentTable::record_len(context.rails.len()));
    let table = services.exchange(&mine)?;
    let _ = context.segments.set(SegmentTable::new(memory, table, context.rails.len()));
    Ok(())
}

/// The queue pair for datagrams, with the channel of its completion queue.
pub(crate) type Datagrams = (Socket, Arc<dyn Channel>);

/// Makes the queue pair for datagrams. `None` for a rank that is connected to everybody at the
/// start: it needs none.
pub(crate) fn datagrams(
    plan: &NetPlan,
    size: u32,
    settings: &ConnectSettings,
) -> Result<Option<Datagrams>, Error> {
    let dynamic = !settings.at_start || settings.dynamic && settings.file_in.is_some();
    let (true, Some(rail)) = (dynamic, plan.rails.first()) else { return Ok(None) };
    let channel = rail.device.channel()?;
    let (device, place) = (&rail.device, (rail.port, rail.pkey_index));
    Ok(Some((Socket::new(device, Some(&channel), place, settings, size)?, channel)))
}

/// Prepares connections to the ranks that are connected at the start, and starts the threads.
/// Collective. After a barrier [`open`] opens the connections to the ranks that it returns.
pub(crate) fn connect(
    links: Links,
    datagrams: Option<Datagrams>,
    settings: &ConnectSettings,
    services: &mut dyn Bootstrap,
) -> Result<(Threads, Vec<Rank>), Error> {
    let members = &links.context.members;
    let (me, size) = (members.rank, members.size);
    let mut prepared = Vec::new();
    // All ranks have the same settings here, so either all take part or none does.
    if settings.at_start {
        let listed = match &settings.file_in {
            Some(name) => Some(file::read(name, me.0, size).map_err(connect::Error::from)?),
            None => None,
        };
        let remote = |rank| members.is_remote(rank);
        prepared = fixed::prepare(
            (me, size),
            listed.as_deref(),
            &remote,
            links.count(),
            &links,
            services,
        )?;
    }
    let connector = match datagrams {
        None => None,
        Some((socket, channel)) => {
            let key = queue_key((0..size).map(|rank| links.others.datagrams(Rank(rank))));
            let context =
                Context { me: me.0, size, job: key.rotate_left(13), count: links.count() };
            Some((socket.start(context, key)?, channel))
        }
    };
    Ok((Threads::start(links, connector)?, prepared))
}

/// Opens connections that [`connect()`] prepared. After a barrier: everybody can receive.
pub(crate) fn open(links: &Links, prepared: &[Rank]) -> Result<(), Error> {
    Ok(fixed::open(links.context.members.rank, prepared, links)?)
}
