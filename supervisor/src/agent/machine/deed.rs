//! What many ranks do alike: the events that a large job has of every rank.

use serde::{Deserialize, Serialize};

use super::RankEvent;
use crate::report::End;

/// Ranks that follow each other: the first one and how many.
pub(crate) type Run = (u32, u32);

/// What a rank did, without who it was and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Deed {
    /// [`RankEvent::Hello`]
    Hello,
    /// [`RankEvent::Exiting`]
    Exiting { code: i32, path: u32 },
    /// [`RankEvent::Fini`]
    Fini { code: i32 },
    /// [`RankEvent::Ended`]. It was orderly after a farewell, with its code or with 0; and free
    /// before its agent was told to end it.
    Ended { end: End, orderly: bool, free: bool },
}

impl Deed {
    /// What an event says, if ranks may do it alike, and who did it. That an end was orderly or free
    /// is for the caller to say, who knows the farewell.
    pub(crate) const fn of(event: &RankEvent) -> Option<(u32, Self)> {
        Some(match *event {
            RankEvent::Hello { rank } => (rank, Self::Hello),
            RankEvent::Exiting { rank, code, path } => (rank, Self::Exiting { code, path }),
            RankEvent::Fini { rank, code } => (rank, Self::Fini { code }),
            RankEvent::Ended { rank, end, .. } => {
                (rank, Self::Ended { end, orderly: false, free: false })
            }
            _ => return None,
        })
    }
}

/// Who did it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    /// Every running rank of a group ([`super::Machine::group`]) that has not done it yet.
    Rest(usize),
    /// These, as far as they run and have not done it yet.
    Runs(Vec<Run>),
}
