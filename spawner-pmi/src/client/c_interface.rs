//! What the C interface of PMI-1 (`spawner-pmi/plugin`) is made of: a rank's connection and its calls.

use bootstrap::provider::number;
use bootstrap::service::{Error, HostId, Rank};
use bootstrap::sys::PeerSocket;
use nix::sys::socket::SockType;
use settings::Env;
use settings::deadlines::bootstrap::PM_ANSWER;

use super::announced::Inherited;
use super::pmi::Pmi;
use super::process_manager::{ProcessManager, ProcessManagerError, unwatched};
use super::stream::Stream;
use crate::wire::PmiVersion;

/// Longest key, with the zero behind it.
pub const KEY_LIMIT: usize = 64;

/// Bytes of a value that its blanks may take in addition.
const ESCAPES: usize = 64;

/// A value without blanks, at which the wire cuts it. (Open MPI fills its values up with them.)
fn escaped(value: &str) -> String {
    value.replace('%', "%25").replace(' ', "%20")
}

/// What [`escaped`] was made of.
fn plain(value: &str) -> String {
    value.replace("%20", " ").replace("%25", "%")
}

/// A rank's connection to the PMI-1 server that its environment names, whatever the choice of
/// spawners of a GASNet program would be.
pub struct Connection(Pmi);

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Connection").field(self.0.job_info()).finish()
    }
}

impl Connection {
    /// Connects.
    ///
    /// # Errors
    /// No server is named, or it does not answer.
    pub fn open(env: &Env) -> Result<Self, Error> {
        let [fd, rank, size] =
            ["PMI_FD", "PMI_RANK", "PMI_SIZE"].map(|name| number(env, name, "PMI"));
        let fd = i32::try_from(fd?).unwrap_or(-1);
        let socket = PeerSocket::adopt(fd, SockType::Stream, "PMI_FD").map_err(|source| {
            let (manager, operation) = ("PMI", format!("use PMI_FD={fd}"));
            ProcessManagerError::Os { manager, operation, source }
        })?;
        let (rank, size, version) = (Rank(rank?), size?, PmiVersion::One);
        let server = Inherited { fd, rank, size, job: None, version };
        Pmi::begin(Stream::new(socket, PM_ANSWER), &server).map(Self)
    }

    /// This rank.
    #[must_use]
    pub fn rank(&self) -> u32 {
        self.0.job_info().rank.0
    }

    /// Ranks of the job.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.0.job_info().size
    }

    /// Name of the space of keys.
    #[must_use]
    pub fn space(&self) -> &str {
        &self.0.job_info().job
    }

    /// Longest value, with the zero behind it.
    #[must_use]
    pub fn value_limit(&self) -> usize {
        self.0.job_info().value_limit.saturating_sub(ESCAPES)
    }

    /// Number of this rank's program in the job.
    ///
    /// # Errors
    /// The server does not answer.
    pub fn program(&mut self) -> Result<i64, Error> {
        self.0.program()
    }

    /// Puts a value.
    ///
    /// # Errors
    /// The server refuses, or does not answer.
    pub fn put(&mut self, key: &str, value: &str) -> Result<(), Error> {
        self.0.put(key, &escaped(value))
    }

    /// The value of a key; `None`: there is none.
    ///
    /// # Errors
    /// The server does not answer.
    pub fn get(&mut self, key: &str) -> Result<Option<String>, Error> {
        Ok(self.0.look_up(key)?.map(|value| plain(&value)))
    }

    /// Waits for all ranks.
    ///
    /// # Errors
    /// The server does not answer.
    pub fn fence(&mut self) -> Result<(), Error> {
        self.0.fence(&mut unwatched())
    }

    /// Ranks of this rank's host.
    ///
    /// # Errors
    /// The server does not answer.
    pub fn neighbours(&mut self) -> Result<Vec<u32>, Error> {
        let own = self.rank();
        let Some(map) = self.0.host_map()? else { return Ok(vec![own]) };
        let here: Option<HostId> = map.get(own as usize).copied();
        Ok((0..).zip(map).filter(|(_, host)| Some(*host) == here).map(|(rank, _)| rank).collect())
    }

    /// Takes leave of the server.
    ///
    /// # Errors
    /// The server does not answer.
    pub fn finalize(&mut self) -> Result<(), Error> {
        self.0.finalize()
    }

    /// Asks the server to end the job.
    pub fn abort(&self, code: i32) {
        self.0.abort(code);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn values_survive_without_blanks(value in "[ %02A-Z-]{0,40}") {
            let sent = escaped(&value);
            prop_assert!(!sent.contains(' '));
            prop_assert_eq!(plain(&sent), value);
        }
    }
}
