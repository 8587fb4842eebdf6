//! The software adapter: queue pairs over sockets, with the semantics of verbs.
//!
//! Reliable connections are TCP streams, one for the requests of each direction; datagrams are UDP
//! packets. Data moves in the threads that post and poll; one progress thread per opened fabric
//! moves what nobody polls for.

mod activity;
mod completion_ring;
mod config;
mod context;
mod cq;
#[allow(unreachable_pub, reason = "public with the feature `testing`")]
mod datagram;
mod deferred;
mod descriptors;
mod device;
mod device_handle;
mod events;
mod fault_injection;
#[allow(unreachable_pub, reason = "public with the feature `testing`")]
mod fault_script;
mod flood;
#[allow(unreachable_pub, reason = "public with the feature `testing`")]
mod handshake;
mod limits;
mod lock;
mod memory;
mod progress;
mod progress_thread;
mod qp;
mod qp_handle;
mod qp_shared;
mod qp_state;
mod qp_table;
mod queue_handles;
mod random;
#[allow(unreachable_pub, reason = "public with the feature `testing`")]
mod record;
mod requester;
mod responder;
mod reverse_path;
mod rq;
#[allow(unreachable_pub, reason = "public with the feature `testing`")]
mod sealed_datagram;
mod slots;
mod stream;
mod ud;
mod waker;
#[allow(unreachable_pub, reason = "public with the feature `testing`")]
mod wire;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use self::context::Context;
use self::device::SoftDevice;
use self::device_handle::DeviceHandle;
use self::fault_injection::FaultInjection;
use self::fault_script::FaultPlan;
use self::progress_thread::ProgressThread;
use crate::{Device, DeviceInfo, Error, Fabric};

pub use config::SoftConfig;
pub use fault_script::{FaultScript, ScriptError};
pub use handshake::messages::JobKey;

/// The protocols of the adapter, for fuzz targets and for tests that play a peer.
#[cfg(any(test, feature = "testing"))]
pub mod testing {
    /// Messages of the handshake.
    pub mod handshake {
        pub use super::super::handshake::messages::*;
    }
    /// Datagrams.
    pub mod datagram {
        pub use super::super::datagram::{GRH, HEADER, Header, MAX_PAYLOAD, PACKET};
    }
    /// Records of encrypted streams.
    pub mod record {
        pub use super::super::record::*;
    }
    /// Encrypted datagrams.
    pub mod sealed_datagram {
        pub use super::super::sealed_datagram::{DatagramCipher, SEALED};
    }
    /// Headers of streams.
    pub mod wire {
        pub use super::super::wire::*;
    }
    pub use super::fault_script::FaultPlan;
}

#[derive(Debug)]
struct Soft {
    config: SoftConfig,
    infos: Vec<DeviceInfo>,
    faults: Arc<FaultPlan>,
    thread: ProgressThread,
}

/// Opens the software adapter and starts its progress thread.
///
/// # Errors
/// A number out of range, an address that peers cannot use, or no thread or descriptor for the
/// progress thread.
pub fn open(config: &SoftConfig) -> Result<Arc<dyn Fabric>, Error> {
    let wrong = |problem: String| Err(Error::argument("soft", "open", problem));
    for (what, number, most) in [
        ("devices", config.devices, limits::MAX_DEVICES),
        ("ports", config.ports, limits::MAX_PORTS),
    ] {
        if number == 0 || number > most {
            return wrong(format!("{number} {what}, 1 to {most} are possible"));
        }
    }
    if config.bind.is_unspecified() || config.bind.is_multicast() {
        return wrong(format!(
            "address {}: give the one that peers use for this host",
            config.bind
        ));
    }
    let infos = (0..config.devices)
        .map(|number| DeviceInfo {
            name: format!("soft{number}"),
            ports: config.ports,
            ib_transport: true,
            numa: None,
        })
        .collect();
    let faults = Arc::new(FaultPlan::new(config.faults.clone().unwrap_or_default()));
    let thread = ProgressThread::start()?;
    Ok(Arc::new(Soft { config: config.clone(), infos, faults, thread }))
}

impl Fabric for Soft {
    fn name(&self) -> &'static str {
        "soft"
    }

    fn devices(&self) -> &[DeviceInfo] {
        &self.infos
    }

    fn open(&self, index: usize) -> Result<Arc<dyn Device>, Error> {
        let Some(info) = self.infos.get(index) else {
            let problem = format!("number {index}, there are {}", self.infos.len());
            return Err(Error::argument("soft", "open a device", problem));
        };
        let unproven = descriptors::unproven(self.config.devices);
        let faults = FaultInjection::new(&self.faults);
        let ctx = Context::open(info, &self.config, unproven, faults, &self.thread.waker)?;
        let device = Arc::new(SoftDevice::new(ctx));
        self.thread.add(&device);
        Ok(Arc::new(DeviceHandle(device)))
    }
}
