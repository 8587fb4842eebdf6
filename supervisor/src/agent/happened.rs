//! What the ranks of a host do, as it is told to whoever decides about the job: on this host, or up the tree.

use bootstrap::ExitPath;
use serde::{Deserialize, Serialize};

use super::machine::Event;
use crate::report::End;

/// Something that a rank did, or that was done to it. Ranks are numbers in the job; times are seconds since the epoch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Happened {
    /// Its process runs.
    Started { rank: u32, pid: i32, at: f64 },
    /// It could not be started, or none of this host could.
    StartFailed { rank: Option<u32>, code: i32, text: String },
    /// It opened the bootstrap.
    Hello { rank: u32 },
    /// It has begun to exit; `path` is the wire form of an [`ExitPath`].
    Exiting { rank: u32, code: i32, path: u32 },
    /// Its farewell.
    Fini { rank: u32, code: i32 },
    /// It wants the job ended.
    Abort { rank: u32, code: i32 },
    /// It broke the protocol.
    Protocol { rank: u32, text: String },
    /// Its process was reaped.
    Ended { rank: u32, end: End, at: f64 },
}

impl Happened {
    /// The same for the machine.
    pub(crate) const fn event(&self) -> Event {
        match *self {
            Self::Started { rank, .. } => Event::Started(rank),
            Self::StartFailed { rank, code, .. } => Event::StartFailed { rank, code },
            Self::Hello { rank } => Event::Hello(rank),
            Self::Exiting { rank, code, path } => {
                Event::Exiting { rank, code, path: ExitPath::from_wire(path) }
            }
            Self::Fini { rank, code } => Event::Fini { rank, code },
            Self::Abort { rank, code } => Event::Abort { rank, code },
            Self::Protocol { rank, .. } => Event::Protocol(rank),
            Self::Ended { rank, end, .. } => Event::Ended { rank, end },
        }
    }

    /// The rank that it is about.
    pub(crate) const fn rank(&self) -> Option<u32> {
        match *self {
            Self::StartFailed { rank, .. } => rank,
            Self::Started { rank, .. }
            | Self::Hello { rank }
            | Self::Exiting { rank, .. }
            | Self::Fini { rank, .. }
            | Self::Abort { rank, .. }
            | Self::Protocol { rank, .. }
            | Self::Ended { rank, .. } => Some(rank),
        }
    }
}
