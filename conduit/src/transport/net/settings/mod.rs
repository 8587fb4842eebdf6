//! Settings of the network. [`NetSettings`] is what the user set, read from the table of variables;
//! [`sizes::Sizes`] is what follows from it for a job and its devices. Every quantity has one name
//! in both, and in the code that uses it.

mod builder;
mod connect;
mod depths;
mod pinned;
pub(crate) mod port_family;
mod registration;
pub(crate) mod sizes;
mod soft;
#[cfg(test)]
mod tests;

use std::time::Duration;

use fabric::{Mtu, Retry};
use serde::{Deserialize, Serialize};
use settings::Nodes;

pub(crate) use self::connect::{Agreement, ConnectSettings, ConnectWays, Timing, is_per_rank};
pub(crate) use self::depths::{DepthSettings, FlowControl, SharedReceive, Total};
pub(crate) use self::pinned::PinnedMemory;
use self::port_family::Family;
pub(crate) use self::registration::{Paging, Registration};
pub(crate) use self::soft::{SOFT_SECURE, SoftAddress, SoftSettings};

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("environment variable {name}: {problem}")]
    Variable { name: &'static str, problem: String },
    #[error(transparent)]
    Family(#[from] port_family::Error),
}

/// `GASNET_IBV_FABRIC`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum FabricChoice {
    /// Adapters if every rank has a usable port, else software.
    Auto,
    Verbs,
    Soft,
}

impl FabricChoice {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Verbs => "verbs",
            Self::Soft => "soft",
        }
    }
}

/// How a progress thread shares a completion queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PollMode {
    /// Under the lock that all pollers take.
    Serialized,
    /// Without it.
    Unserialized,
    /// Nobody else polls.
    Exclusive,
}

/// `GASNET_RCV_THREAD*` or `GASNET_SND_THREAD*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ThreadSettings {
    /// Whether there is one for each device.
    pub on: bool,
    /// Most wake-ups per second; 0 means any number.
    pub rate: u32,
    /// How long it polls without an event before it sleeps.
    pub idle: Duration,
    pub mode: PollMode,
}

/// Which ports are used and how: inputs of `net::ports`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PortSettings {
    /// `GASNET_IBV_PORTS` and its family.
    pub family: Family,
    /// `GASNET_HWLOC_QUERY=process`: the binding of all threads counts, not that of the one that
    /// starts the network.
    pub whole_process: bool,
    /// `GASNET_MAXIMIZE_MEMLOCK`: the limit on locked memory is raised before devices are used.
    pub raise_locked_memory: bool,
    /// `GASNET_IBV_PORTS_VERBOSE`: 0 is silent, 1 warns, 2 says what is used, 3 says why.
    pub verbose: u32,
    /// `GASNET_IBV_LIST_PORTS`.
    pub list: bool,
    /// `GASNET_IBV_LIST_PORTS_NODES`.
    pub list_ranks: Nodes,
    /// `GASNET_IBV_PKEY` without the membership bit; `None` takes the first of the table.
    pub pkey: Option<u16>,
    /// `GASNET_IBV_GID_INDEX`; `None` chooses.
    pub gid_index: Option<u8>,
    /// `GASNET_IBV_MODEL_WARN`.
    pub model_warn: bool,
    /// `GASNET_NUM_QPS`: queue pairs for each peer, and most ports; 0 means one on each port.
    pub num_qps: u32,
    /// `GASNET_IBV_MAX_HCAS`: most adapters.
    pub max_hcas: u32,
    /// `GASNET_MAX_MTU`; `None` takes the port's.
    pub max_mtu: Option<Mtu>,
    /// `GASNET_QP_RD_ATOM`; 0 takes what the device can do.
    pub rd_atom: u32,
}

/// Longest pieces where several ports share a transfer, in bytes; 0: the longest message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stripes {
    pub put: u64,
    pub get: u64,
}

impl NetSettings {
    /// Whether the network of a program with one thread can do without threads: all connections are
    /// made at the start, and no progress thread is asked for.
    pub(crate) const fn needs_no_thread(&self) -> bool {
        let connected = self.connect.at_start && self.connect.file_in.is_none();
        connected && !self.receive_thread.on && !self.send_thread.on
    }
}

/// What the user set.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NetSettings {
    /// `GASNET_IBV_FABRIC`.
    pub fabric: FabricChoice,
    pub soft: SoftSettings,
    pub ports: PortSettings,
    /// `GASNET_QP_TIMEOUT`, `GASNET_QP_RETRY_COUNT`; receivers that are not ready are tried for
    /// ever.
    pub retry: Retry,
    pub connect: ConnectSettings,
    /// Threads for receives.
    pub receive_thread: ThreadSettings,
    /// Threads for completions of sends.
    pub send_thread: ThreadSettings,
    /// No thread is needed: [`NetSettings::needs_no_thread`] of a program with one. Counts for
    /// adapters only; the software adapter has a thread of its own anyhow.
    pub single: bool,
    /// `GASNET_THREAD_STACK_*`: bytes of stack of the library's threads.
    pub stack: usize,
    /// `GASNET_INLINESEND_LIMIT` in bytes; `None` takes what the device can do.
    pub inline: Option<u32>,
    /// Whether the user set the limit, so that a device's lower one is worth a warning.
    pub inline_is_set: bool,
    /// `GASNET_PACKEDLONG_LIMIT`: the greatest Long that travels with its header, in bytes.
    pub packed_long: u32,
    /// `GASNET_NONBULKPUT_BOUNCE_LIMIT`: the greatest put, or payload of a Long, that is copied when
    /// its source shall be free at once, in bytes.
    pub put_bounce: u64,
    /// `GASNET_AM_GATHER_MIN`: the least payload that is gathered, in bytes; `None` never gathers.
    pub gather_min: Option<u32>,
    /// `GASNET_PUT_STRIPE_SZ`, `GASNET_GET_STRIPE_SZ`.
    pub stripes: Stripes,
    /// `GASNET_USE_FENCED_PUTS`.
    pub fenced_puts: bool,
    pub depths: DepthSettings,
    pub registration: Registration,
    pub odp: Paging,
    pub pinned: PinnedMemory,
    /// `GASNET_USE_XRC`: connections are shared where that is possible.
    pub xrc: bool,
    /// Whether the user set it, so that a refusal is worth a line.
    pub xrc_is_set: bool,
    /// `GASNET_USE_HUGEPAGES`.
    pub huge_pages: bool,
    /// `GASNET_QUIET`: warnings are not printed.
    pub quiet: bool,
    /// What was cut, for rank 0 to print.
    pub warnings: Vec<String>,
}
