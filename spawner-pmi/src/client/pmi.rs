//! The services under a launcher that serves PMI-1 or PMI-2.

use nix::sys::socket::SockType;
use settings::Env;
use settings::deadlines::bootstrap::PM_ANSWER;

use super::announced::{Inherited, PmiVersion, Server, pmi_server};
use super::pmi1::{Pmi1, introduce};
use super::pmi2;
use super::process_manager::{
    Identity, ProcessManager, ProcessManagerBounds, ProcessManagerError, join,
};
use super::stream::{Stream, dial};
use bootstrap::service::{Bootstrap, Error};
use bootstrap::sys::PeerSocket;
use bootstrap::{Announced, Provider};

/// PMI-1 and PMI-2.
pub const PMI: Provider = Provider {
    name: "PMI",
    find: |env, trace| {
        Ok(pmi_server(env, trace)?.map(|server| Box::new(server) as Box<dyn Announced>))
    },
};

impl Announced for Server {
    fn describe(&self) -> String {
        match self {
            Self::Descriptor(Inherited { fd, rank, size, version, .. }) => {
                let number = if *version == PmiVersion::Two { 2 } else { 1 };
                format!("PMI-{number} on descriptor {fd}: rank {rank} of {size}")
            }
            Self::Port { address, id } => format!("PMI-1 at {address}: process {id} there"),
        }
    }

    fn connect(&self, env: &Env) -> Result<Box<dyn Bootstrap>, Error> {
        match self {
            Self::Descriptor(server) => {
                inherited(server, ProcessManagerBounds::of(env, server.size))
            }
            Self::Port { address, id } => {
                at_port(address, id, |size| ProcessManagerBounds::of(env, size))
            }
        }
    }
}

/// Connects over an inherited descriptor.
fn inherited(
    server: &Inherited,
    bounds: ProcessManagerBounds,
) -> Result<Box<dyn Bootstrap>, Error> {
    let fd = server.fd;
    let socket = PeerSocket::adopt(fd, SockType::Stream, "PMI_FD").map_err(|source| {
        ProcessManagerError::Os { manager: "PMI", operation: format!("use PMI_FD={fd}"), source }
    })?;
    over(socket, server, &Identity::here(), bounds)
}

/// Connects to a port; the server there says how many ranks the job has.
fn at_port(
    address: &str,
    id: &str,
    bounds: impl FnOnce(u32) -> ProcessManagerBounds,
) -> Result<Box<dyn Bootstrap>, Error> {
    let answer = PM_ANSWER;
    let mut stream = Stream::new("PMI-1", dial("PMI-1", address, answer)?, answer);
    let (rank, size) = introduce(&mut stream, id)?;
    join(Box::new(Pmi1::begin(stream, rank, size)?), &Identity::here(), bounds(size))
}

/// Over a connection.
pub(super) fn over(
    source: PeerSocket,
    server: &Inherited,
    identity: &Identity,
    bounds: ProcessManagerBounds,
) -> Result<Box<dyn Bootstrap>, Error> {
    let stream = Stream::new("PMI", source, bounds.answer);
    let (rank, size) = (server.rank.0, server.size);
    let manager: Box<dyn ProcessManager> = match server.version {
        PmiVersion::One => Box::new(Pmi1::begin(stream, rank, size)?),
        PmiVersion::Two => {
            pmi2::begin(stream, rank, size, server.job.as_deref().unwrap_or_default())?
        }
    };
    join(manager, identity, bounds)
}
