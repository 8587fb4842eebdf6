//! What devices report of themselves: ports that go up or down, queue pairs and devices that fail.

use std::sync::{Arc, PoisonError};

use fabric::AsyncEvent;
use settings::log::RANK;
use settings::say;

use super::context::NetContext;
use super::error::Error;
use super::rail::Rail;

impl NetContext {
    /// Reads what the devices report. When it returns, a device that failed is the failure that the
    /// next poll reports.
    pub(super) fn read_device_events(&self) -> Result<(), Error> {
        let _one_at_a_time = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        for rail in &self.rails {
            while let Some(event) = rail.device.next_event()? {
                if let Err(error) = self.device_event(rail, event) {
                    self.fail(error);
                }
            }
        }
        Ok(())
    }

    /// A device's own report. What ends connections is also seen by their requests, which name the
    /// peer.
    fn device_event(&self, rail: &Rail, event: AsyncEvent) -> Result<(), Error> {
        if self.failure.is_ignored() {
            return Ok(());
        }
        let (rank, name) = (self.members.rank, rail.name());
        let text = match event {
            AsyncEvent::PortActive { port } => format!("port {port} is up"),
            AsyncEvent::PortDown { port } => {
                format!("port {port} went down; messages wait until it is up again, or fail")
            }
            AsyncEvent::QpFatal { qpn } => {
                let is_rail = |at: usize| Arc::ptr_eq(&self.rails[at].device, &rail.device);
                let peers = self.peers.iter().filter(|peer| peer.has(qpn, is_rail));
                let peer = peers.map(|peer| peer.rank);
                let peer = peer.last().map_or("no rank".to_owned(), |rank| format!("rank {rank}"));
                format!("queue pair {qpn:#x} (connected to {peer}) failed")
            }
            AsyncEvent::CqError => return Err(self.broken(rail, "a completion queue overflowed")),
            AsyncEvent::DeviceFatal => return Err(self.broken(rail, "the device failed")),
            AsyncEvent::Other(number) => format!("event {number}"),
        };
        say!(WARN, RANK, "rank {rank}: {name}: {text}");
        Ok(())
    }

    fn broken(&self, rail: &Rail, problem: &'static str) -> Error {
        Error::Device { rank: self.members.rank, device: rail.name(), problem }
    }
}
