//! From a setup to a working network: ranks are connected.

use std::sync::Arc;

use bootstrap::{Bootstrap, Rank};
use fabric::{AtomicCap, Channel};

use crate::transport::net::connect::driver::Socket;
use crate::transport::net::connect::wire::{Context, queue_key};
use crate::transport::net::connect::{self, file, fixed};
use crate::transport::net::error::Error;
use crate::transport::net::links::Links;
use crate::transport::net::plan::NetPlan;
use crate::transport::net::settings::ConnectSettings;
use crate::transport::net::threads::Threads;

/// The queue pair for datagrams, with the channel of its completion queue.
pub(crate) type Datagrams = (Socket, Arc<dyn Channel>);

/// Makes the queue pair for datagrams. `None` for a rank that is connected at the start to everybody
/// whom it needs: neighbours, too, where atomics are atomic only to those of an adapter.
pub(crate) fn datagrams(
    plan: &NetPlan,
    remotes: u32,
    settings: &ConnectSettings,
) -> Result<Option<Datagrams>, Error> {
    let others = settings.file_in.is_some() || plan.atomics() == AtomicCap::Device;
    let dynamic = !settings.at_start || settings.dynamic && others;
    let (true, Some(rail)) = (dynamic, plan.rails.first()) else { return Ok(None) };
    let channel = rail.device.channel()?;
    let (device, place) = (&rail.device, (rail.port, rail.pkey_index));
    Ok(Some((Socket::new(device, Some(&channel), place, settings, remotes)?, channel)))
}

/// Prepares connections to the ranks that are connected at the start, and starts the threads.
/// Collective. After a barrier [`fixed::open`] opens the connections to the ranks that it returns.
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
