//! The services under a launcher that serves PMI-1 or PMI-2.

use super::identity::Identity;
use super::pmi1::{Pmi1, introduce};
use super::stream::{Source, Stream, dial};
use super::{EngineError, join, pmi2};
use crate::connect::PmiVersion;
use crate::deadlines::{self, EngineBounds};
use crate::service::{Bootstrap, Error, Rank};
use crate::sys;

/// What the environment says of the server.
pub(crate) struct Inherited {
    pub(crate) fd: i32,
    pub(crate) rank: Rank,
    pub(crate) size: u32,
    /// Name of the job; PMI-2 only.
    pub(crate) job: Option<String>,
    pub(crate) version: PmiVersion,
}

/// Connects over an inherited descriptor.
pub(crate) fn inherited(
    server: &Inherited,
    bounds: EngineBounds,
) -> Result<Box<dyn Bootstrap>, Error> {
    let fd = server.fd;
    let inherited = sys::Inherited::stream(fd).map_err(|source| EngineError::Os {
        engine: "PMI",
        operation: format!("use PMI_FD={fd}"),
        source,
    })?;
    over(Source::Inherited(inherited), server, &Identity::here(), bounds)
}

/// Connects to a port; the server there says how many ranks the job has.
pub(crate) fn at_port(
    address: &str,
    id: &str,
    bounds: impl FnOnce(u32) -> EngineBounds,
) -> Result<Box<dyn Bootstrap>, Error> {
    let answer = deadlines::ENGINE_ANSWER;
    let source = Source::Own(dial("PMI-1", address, answer)?);
    let mut stream = Stream::new("PMI-1", source, answer);
    let (rank, size) = introduce(&mut stream, id)?;
    join(Box::new(Pmi1::begin(stream, rank, size)?), &Identity::here(), bounds(size))
}

/// Over a connection.
pub(super) fn over(
    source: Source,
    server: &Inherited,
    identity: &Identity,
    bounds: EngineBounds,
) -> Result<Box<dyn Bootstrap>, Error> {
    let stream = Stream::new("PMI", source, bounds.answer);
    let (rank, size) = (server.rank.0, server.size);
    let engine: Box<dyn super::Engine> = match server.version {
        PmiVersion::One => Box::new(Pmi1::begin(stream, rank, size)?),
        PmiVersion::Two => {
            pmi2::begin(stream, rank, size, server.job.as_deref().unwrap_or_default())?
        }
    };
    join(engine, identity, bounds)
}
