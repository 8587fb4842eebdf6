//! What an agent and its helper process say to each other: a length and that many bytes.

use std::marker::PhantomData;

use bootstrap::collective::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::members::Members;

/// Longest frame that is believed.
pub const FRAME_LIMIT: usize = bootstrap::frame::MAX_TOTAL;

/// What libpmix is told of the job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setup {
    /// Unique text of the job: its name space.
    pub job: String,
    /// Name of every host, by number.
    pub hosts: Vec<String>,
    /// Number of this host.
    pub host: u32,
    /// Host of every rank of the job.
    pub host_of: Vec<u32>,
    /// First rank of each program of the job.
    pub programs: Vec<u32>,
    /// A directory for this job on this host, which the helper makes, and removes when its agent was
    /// killed.
    pub directory: String,
}

impl Setup {
    /// The ranks of a host, ascending.
    pub(super) fn ranks_of(&self, host: u32) -> Vec<u32> {
        (0..).zip(&self.host_of).filter(|(_, at)| **at == host).map(|(rank, _)| rank).collect()
    }

    /// Number of the program of a rank.
    pub(super) fn program_of(&self, rank: u32) -> u32 {
        let after = self.programs.partition_point(|first| *first <= rank);
        u32::try_from(after.saturating_sub(1)).unwrap_or(0)
    }
}

/// From the agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToHelper {
    /// The first frame.
    Setup(Setup),
    /// The fence of that number is over: a status of PMIx, and what ranks of all hosts have put.
    FenceDone {
        /// Number of the fence.
        number: u32,
        /// 0, or why it failed.
        status: i32,
        /// What was collected.
        data: Bytes,
    },
    /// What a rank of another host has put, or why that cannot be told.
    Found {
        /// Number of the request.
        number: u32,
        /// 0, or why there is nothing.
        status: i32,
        /// What it has put.
        data: Bytes,
    },
    /// Another host wants to know what a rank of this host has put, once it has.
    Wanted {
        /// The agent's number for the request.
        number: u32,
        /// The rank.
        rank: u32,
    },
    /// The process of a rank has ended.
    Ended {
        /// The rank.
        rank: u32,
    },
    /// Is it still there? Answered by [`FromHelper::Here`].
    Ask,
}

/// From the helper.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromHelper {
    /// The first frame: variables of each rank of this host, ascending.
    Ready(Vec<Vec<(String, String)>>),
    /// The first frame instead: why there is no server.
    Failed(String),
    /// A rank has begun to speak PMIx.
    Init {
        /// The rank.
        rank: u32,
    },
    /// It has finalized.
    Finalize {
        /// The rank.
        rank: u32,
        /// Another client speaks for it: it takes part in further fences.
        open: bool,
    },
    /// It wants the job to end.
    Abort {
        /// The rank.
        rank: u32,
        /// With this code.
        status: i32,
    },
    /// All ranks of this host that belong to these are inside a fence, but for those that have gone.
    Fence {
        /// The helper's number for it.
        number: u32,
        /// Who takes part.
        members: Members,
        /// What those of this host have put.
        data: Bytes,
        /// Ranks of this host that are in no fence: they have finalized or ended.
        absent: Vec<u32>,
    },
    /// What has a rank of another host put?
    Want {
        /// The helper's number for the request.
        number: u32,
        /// The rank.
        rank: u32,
    },
    /// Answer to [`ToHelper::Wanted`].
    Answer {
        /// The agent's number for the request.
        number: u32,
        /// 0, or why there is nothing.
        status: i32,
        /// What the rank has put.
        data: Bytes,
    },
    /// Answer to [`ToHelper::Ask`].
    Here,
}

/// What is no frame of ours.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// A length that is not believed.
    #[error("a frame of {0} bytes, {FRAME_LIMIT} are the most")]
    Length(usize),
    /// Bytes that are no message.
    #[error("a frame that cannot be read: {0}")]
    Content(#[from] postcard::Error),
}

/// A frame as it is sent.
#[must_use]
pub fn encode(message: &impl Serialize) -> Vec<u8> {
    // Into memory that grows it cannot fail for these types.
    let body = postcard::to_stdvec(message).unwrap_or_default();
    let length = u32::try_from(body.len()).unwrap_or(u32::MAX);
    [&length.to_le_bytes()[..], &body].concat()
}

/// Puts a stream back into messages. Takes no more memory than bytes came.
#[derive(Debug)]
pub struct Frames<T> {
    bytes: Vec<u8>,
    at: usize,
    kind: PhantomData<T>,
}

impl<T> Default for Frames<T> {
    fn default() -> Self {
        Self { bytes: Vec::new(), at: 0, kind: PhantomData }
    }
}

impl<T: DeserializeOwned> Frames<T> {
    /// Takes bytes that came.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..std::mem::take(&mut self.at));
        self.bytes.extend_from_slice(bytes);
    }

    /// The next message, if all of it is there.
    ///
    /// # Errors
    /// What came is no frame; nothing that follows can be read.
    pub fn take(&mut self) -> Result<Option<T>, FrameError> {
        let rest = &self.bytes[self.at..];
        let Some((head, rest)) = rest.split_first_chunk::<4>() else { return Ok(None) };
        let length = u32::from_le_bytes(*head) as usize;
        if length > FRAME_LIMIT {
            return Err(FrameError::Length(length));
        }
        let Some(body) = rest.get(..length) else { return Ok(None) };
        let message = postcard::from_bytes(body)?;
        self.at += 4 + length;
        Ok(Some(message))
    }
}
