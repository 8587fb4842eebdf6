//! Who registers pages of the program: the devices of all rails, or a test.

use std::fmt;
use std::sync::Arc;

use fabric::{Device, Region};

use super::pool::{register_all_for_transfers, register_for_peers, register_for_transfers};
use super::regions::Span;
use crate::trace::{self, Counter};

/// Who may do what with registered pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rights {
    pub(crate) write: bool,
    /// Other ranks too; else this rank's own requests alone.
    pub(crate) peers: bool,
}

/// A region with the devices of all rails.
#[derive(Debug)]
pub(crate) struct Registered {
    /// By rail: for own requests, or for those of other ranks.
    pub(super) keys: Box<[u32]>,
    _regions: Vec<Arc<dyn Region>>,
    /// For the statistics; 0 for all memory.
    bytes: u64,
}

impl Registered {
    pub(super) fn new(keys: Box<[u32]>, regions: Vec<Arc<dyn Region>>, bytes: u64) -> Self {
        if bytes > 0 {
            trace::count(Counter::Pin, as_len(bytes));
        }
        Self { keys, _regions: regions, bytes }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        if self.bytes > 0 {
            trace::count(Counter::Unpin, as_len(self.bytes));
        }
    }
}

pub(super) fn as_len(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// Who registers: the devices, or a test.
pub(crate) trait Registrar: fmt::Debug + Send + Sync {
    /// All memory of the process, to be read or also written, if every device can.
    fn register_all(&self, write: bool) -> Result<Registered, fabric::Error>;

    /// Registers pages.
    fn register(&self, span: Span, rights: Rights) -> Result<Registered, fabric::Error>;
}

/// Devices by rail.
#[derive(Debug)]
pub(crate) struct Devices(pub(crate) Vec<Arc<dyn Device>>);

impl Devices {
    fn on_each(
        &self,
        bytes: u64,
        register: impl Fn(&dyn Device) -> Result<Arc<dyn Region>, fabric::Error>,
        key: impl Fn(&dyn Region) -> u32,
    ) -> Result<Registered, fabric::Error> {
        let mut regions: Vec<Arc<dyn Region>> = Vec::with_capacity(self.0.len());
        for (rail, device) in self.0.iter().enumerate() {
            // Ports of one device share its regions.
            let same = self.0.iter().take(rail).position(|other| Arc::ptr_eq(other, device));
            let region = match same.and_then(|rail| regions.get(rail)) {
                Some(region) => Arc::clone(region),
                None => register(&**device)?,
            };
            regions.push(region);
        }
        let keys = regions.iter().map(|region| key(&**region)).collect();
        Ok(Registered::new(keys, regions, bytes))
    }
}

impl Registrar for Devices {
    fn register(&self, span: Span, rights: Rights) -> Result<Registered, fabric::Error> {
        let Rights { write, peers } = rights;
        if peers {
            let register = |device: &dyn Device| register_for_peers(device, span, write);
            return self.on_each(span.len(), register, |region| region.rkey());
        }
        let register = |device: &dyn Device| register_for_transfers(device, span, write);
        self.on_each(span.len(), register, |region| region.lkey())
    }

    fn register_all(&self, write: bool) -> Result<Registered, fabric::Error> {
        let register = |device: &dyn Device| register_all_for_transfers(device, write);
        self.on_each(0, register, |region| region.lkey())
    }
}
