//! The software adapter: queue pairs over sockets, with the semantics of verbs.
//!
//! Reliable connections are TCP streams, one for the requests of each direction; datagrams are UDP packets. Data moves in
//! the threads that post and poll; one engine thread per opened fabric moves what nobody polls for.

mod back;
mod cq;
mod device;
mod engine;
#[allow(unreachable_pub, reason = "public with the feature `testing`")]
mod fault_script;
#[allow(unreachable_pub, reason = "public with the feature `testing`")]
mod hello;
mod limits;
mod memory;
mod mishaps;
mod progress;
mod qp;
mod queue;
mod rx;
mod state;
mod strangers;
mod tx;
#[allow(unreachable_pub, reason = "public with the feature `testing`")]
mod ud;
#[allow(unreachable_pub, reason = "public with the feature `testing`")]
mod wire;

#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::Instant;

use settings::deadlines::soft::{CONTROL, HOLD};

use crate::{Device, DeviceInfo, Error, Fabric, Mtu};

pub use device::Counters;
pub use fault_script::{FaultScript, ScriptError};
pub use hello::JobKey;

/// The protocols of the adapter, for fuzz targets and for tests that play a peer.
#[cfg(any(test, feature = "testing"))]
pub mod testing {
    /// Messages of the handshake.
    pub mod handshake {
        pub use super::super::hello::*;
    }
    /// Datagrams.
    pub mod datagram {
        pub use super::super::ud::{GRH, HEADER, Header, MAX_PAYLOAD, PACKET};
    }
    /// Headers of streams.
    pub mod wire {
        pub use super::super::wire::*;
    }
    pub use super::fault_script::FaultPlan;
}

/// How to open the software adapter.
#[derive(Clone, Debug)]
pub struct SoftConfig {
    /// Devices, 1 to 8.
    pub devices: u8,
    /// Ports of each device, 1 to 8.
    pub ports: u8,
    /// Address of this host that peers reach.
    pub bind: IpAddr,
    /// Key of the job: only who has it is listened to.
    pub key: JobKey,
    /// MTU of the ports.
    pub mtu: Mtu,
    /// What goes wrong on purpose.
    pub faults: Option<FaultScript>,
}

#[derive(Debug)]
struct Soft {
    config: SoftConfig,
    infos: Vec<DeviceInfo>,
    faults: Arc<fault_script::FaultPlan>,
    engine: Arc<engine::Engine>,
}

/// Opens the software adapter and starts its engine thread.
///
/// # Errors
/// A number out of range, an address that peers cannot use, or no thread or descriptor for the engine.
pub fn open(config: &SoftConfig) -> Result<Arc<dyn Fabric>, Error> {
    let wrong = |problem: String| {
        Err(Error::Argument { device: "soft".to_owned(), operation: "open", problem })
    };
    if config.devices == 0 || config.devices > limits::MAX_DEVICES {
        return wrong(format!(
            "{} devices, 1 to {} are possible",
            config.devices,
            limits::MAX_DEVICES
        ));
    }
    if config.ports == 0 || config.ports > limits::MAX_PORTS {
        return wrong(format!("{} ports, 1 to {} are possible", config.ports, limits::MAX_PORTS));
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
    raise_descriptors();
    let faults = Arc::new(fault_script::FaultPlan::new(config.faults.clone().unwrap_or_default()));
    let engine = engine::Engine::start()?;
    Ok(Arc::new(Soft { config: config.clone(), infos, faults, engine }))
}

/// Each connection takes two descriptors, and the usual soft limit is for programs that use `select`.
fn raise_descriptors() {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < hard
    {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
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
            return Err(Error::Argument {
                device: "soft".to_owned(),
                operation: "open a device",
                problem: format!("number {index}, there are {}", self.infos.len()),
            });
        };
        let dev = device::open(info, &self.config, &self.faults, &self.engine)?;
        Ok(Arc::new(device::Opened(dev)))
    }
}

/// A lock for posts and polls: they run in signal handlers too, above code that may hold it and never goes on.
fn hold<T>(lock: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    if let Some(guard) = briefly(lock) {
        return Some(guard);
    }
    // Its holder may wait for a processor.
    let end = Instant::now() + HOLD.limit;
    while Instant::now() < end {
        std::thread::yield_now();
        if let Some(guard) = try_once(lock) {
            return Some(guard);
        }
    }
    None
}

/// A lock for those who look after the streams of a device: where they gave up their processor, nobody could look until they
/// have it back. What they cannot do now they do in a later look.
fn briefly<T>(lock: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    for _ in 0..limits::TRIES {
        if let Some(guard) = try_once(lock) {
            return Some(guard);
        }
        std::hint::spin_loop();
    }
    None
}

/// A lock that is worth one try.
fn try_once<T>(lock: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match lock.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// A lock for control calls.
fn patiently<T>(lock: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    let end = Instant::now() + CONTROL.limit;
    loop {
        if let Some(guard) = hold(lock) {
            return Some(guard);
        }
        if Instant::now() >= end {
            return None;
        }
        std::thread::yield_now();
    }
}

/// The low half, as the wire carries sequence numbers.
#[expect(clippy::cast_possible_truncation, reason = "the low half is wanted")]
const fn low(number: u64) -> u32 {
    number as u32
}

/// A length that is known to fit.
fn narrow(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

/// A number that others do not guess.
fn random<const N: usize>() -> [u8; N] {
    let mut out = [0; N];
    if getrandom::fill(&mut out).is_err() {
        // No source in this system: keys of the standard library's hasher come from the best there is.
        for chunk in out.chunks_mut(8) {
            use std::hash::{BuildHasher as _, Hasher as _};
            let word = std::hash::RandomState::new().build_hasher().finish().to_ne_bytes();
            for (to, from) in chunk.iter_mut().zip(word) {
                *to = from;
            }
        }
    }
    out
}
