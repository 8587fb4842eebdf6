//! The service thread.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ::settings::deadlines::net as deadlines;
use bootstrap::Rank;
use fabric::Channel;
use nix::poll::PollTimeout;

use super::{Stop, readable, wait};
use crate::transport::net::am::acks::Acks;
use crate::transport::net::completions::Completions;
use crate::transport::net::connect::driver::Connector;
use crate::transport::net::context::NetContext;
use crate::transport::net::error::Error;
use crate::transport::net::links::Links;
use crate::transport::net::peer::Peer;
use crate::transport::net::rail::Rail;

pub(super) struct Service {
    pub(super) links: Links,
    pub(super) connector: Option<(Connector, Arc<dyn Channel>)>,
    pub(super) stop: Arc<Stop>,
}

impl Service {
    pub(super) fn run(self) {
        if let Err(error) = self.serve() {
            self.links.context.fail(error);
        }
    }

    fn serve(&self) -> Result<(), Error> {
        let context = &*self.links.context;
        while !self.stop.is_requested() {
            let timeout = [self.connect()?, self.flush_acks()].into_iter().flatten().min();
            let timeout = timeout.map_or(PollTimeout::NONE, |left| {
                PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
            });
            if !self.wait(timeout)? {
                continue;
            }
            let events = self.consume()?;
            context.read_device_events()?;
            if events > 0 {
                context.members.ring();
            }
        }
        Ok(())
    }

    /// Sleeps until something is readable; `false` when nothing is.
    fn wait(&self, timeout: PollTimeout) -> Result<bool, Error> {
        let context = &*self.links.context;
        let mut list =
            vec![readable(self.stop.event.as_fd()), readable(context.connect_queue.wake.as_fd())];
        list.extend(self.connector.iter().map(|(_, channel)| readable(channel.fd())));
        for rail in &context.rails {
            list.push(readable(rail.device.event_fd()));
            list.extend(own_channels(rail).map(|channel| readable(channel.fd())));
        }
        wait(&mut list, timeout)
    }

    /// Takes what woke the thread; how many events of completion queues there were.
    fn consume(&self) -> Result<u32, Error> {
        let context = &*self.links.context;
        let _ = context.connect_queue.wake.read();
        if let Some((_, channel)) = &self.connector {
            channel.consume()?;
        }
        let mut events = 0;
        for channel in context.rails.iter().flat_map(own_channels) {
            events += channel.consume()?;
        }
        Ok(events)
    }

    /// Acks that somebody could not send, where ranks may count on progress without polls; returns
    /// when to try again.
    fn flush_acks(&self) -> Option<Duration> {
        let context = &*self.links.context;
        let acks = Acks(context);
        if !acks.any_pending() || !context.has_receivers() {
            return None;
        }
        let flushed = Completions(context).reap().and_then(|count| {
            if count > 0 {
                // The rank may sleep until one of these is complete.
                context.members.ring();
            }
            acks.flush()
        });
        if let Err(error) = flushed {
            context.fail(error);
            return None;
        }
        acks.any_pending().then_some(deadlines::ACK_RETRY.limit)
    }

    /// Connections that are wanted or under way; returns how long the handshake can be left alone.
    fn connect(&self) -> Result<Option<Duration>, Error> {
        let context = &*self.links.context;
        let Some((connector, _)) = &self.connector else {
            while let Some((rank, heard)) = context.connect_queue.take() {
                cannot_connect(context, rank, heard)?;
            }
            return Ok(None);
        };
        connector.arm()?;
        let mut opened = 0;
        while let Some((rank, heard)) = context.connect_queue.take() {
            if heard {
                connector.heard(rank, &self.links)?;
            } else {
                connector.need(rank, &self.links)?;
            }
            opened += 1;
        }
        loop {
            let count = connector.poll(&self.links)?;
            if count == 0 {
                break;
            }
            opened += count;
        }
        if opened > 0 {
            // A connection may be open now that somebody waits for.
            context.members.ring();
        }
        Ok(connector.deadline().map(|left| left.saturating_add(Duration::from_millis(1))))
    }
}

/// Channels of a rail that no progress thread waits on.
fn own_channels(rail: &Rail) -> impl Iterator<Item = &Arc<dyn Channel>> {
    let receives = !rail.has_receiver.load(Ordering::Relaxed);
    let sends = !rail.has_reaper.load(Ordering::Relaxed);
    let receives = receives.then_some(&rail.recv_channel);
    receives.into_iter().chain(sends.then_some(&rail.send_channel))
}

/// Without dynamic connections: a rank that is wanted is missing.
fn cannot_connect(context: &NetContext, peer: Rank, heard: bool) -> Result<(), Error> {
    if heard || context.peers.get(peer).is_some_and(Peer::is_open) {
        return Ok(());
    }
    let problem = "it was not connected at the start, and GASNET_CONNECT_DYNAMIC=0; see GASNET_CONNECTFILE_IN".to_owned();
    Err(Error::NoConnection { rank: context.members.rank, peer, problem })
}
