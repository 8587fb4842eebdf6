//! What a user says of the software adapter.

use std::net::IpAddr;

use super::fault_script::FaultScript;
use super::handshake::messages::JobKey;
use crate::Mtu;

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
    /// Whether all that leaves the host is encrypted. The same for all of the job.
    pub secure: bool,
    /// MTU of the ports.
    pub mtu: Mtu,
    /// What goes wrong on purpose.
    pub faults: Option<FaultScript>,
}
