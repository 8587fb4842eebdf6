//! Which ports are used, and how.

use fabric::Mtu;
use settings::Nodes;

use super::port_family::Family;

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
    /// `GASNET_MAX_MTU`; `None` takes the port's.
    pub max_mtu: Option<Mtu>,
    /// `GASNET_QP_RD_ATOM`; 0 takes what the device can do.
    pub rd_atom: u32,
}
