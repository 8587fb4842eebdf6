//! A rank against a server that says whatever it is given: for fuzz targets and tests with recorded
//! dialogues.

use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use settings::deadlines::bootstrap::PM_ANSWER;

use super::announced::Inherited;
use super::pmi::Pmi;
use super::process_manager::{ProcessManager, unwatched};
use super::stream::Stream;
use crate::wire::PmiVersion;
use bootstrap::service::{Error, Rank};

/// Most bytes of a dialogue; what is beyond them is not said.
pub const MAX_SAID: usize = 32 * 1024;

/// Lets rank 0 of `size` begin with `version`, ask for the host map, put a key, enter a fence and
/// read a key, while the server says `said` and hangs up. Gives the value that was read.
///
/// # Errors
/// What the rank says when the server makes no sense.
pub fn converse(version: PmiVersion, size: u32, said: &[u8]) -> Result<String, Error> {
    let os = |source| Error::Os { operation: "make a pair of sockets", source };
    let (ours, mut theirs) = UnixStream::pair().map_err(os)?;
    theirs.set_nonblocking(true).map_err(os)?;
    theirs.write_all(&said[..said.len().min(MAX_SAID)]).map_err(os)?;
    theirs.shutdown(std::net::Shutdown::Write).map_err(os)?;
    let answer = PM_ANSWER.within(Duration::from_secs(1));
    let stream = Stream::new(OwnedFd::from(ours).into(), answer);
    let job = Some("job.0".to_owned());
    let mut manager = Pmi::begin(stream, &Inherited { fd: -1, rank: Rank(0), size, job, version })?;
    let map = manager.host_map()?;
    debug_assert!(map.is_none_or(|map| map.len() == size as usize));
    manager.put("GRIr1x0.0", "1.AAAA")?;
    manager.fence(&mut unwatched())?;
    manager.get(Rank(0), "GRIr1x0.0")
}
