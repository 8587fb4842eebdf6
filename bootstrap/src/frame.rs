//! The frame codec: every message between a rank and its agent, and between agents.
//!
//! # Primer
//!
//! A frame is a fixed header of [`HEADER_LEN`] bytes, little endian, followed by at most
//! [`MAX_PAYLOAD`] bytes:
//!
//! | offset | size | field | meaning |
//! |---|---|---|---|
//! | 0 | 2 | magic | [`MAGIC`] |
//! | 2 | 1 | version | [`VERSION`] |
//! | 3 | 1 | kind | [`Kind`] |
//! | 4 | 4 | seq | number of the collective call on this rank, starts at 1; 0 where no call is meant |
//! | 8 | 4 | rank | the rank that the frame speaks of (sender for rank to agent) |
//! | 12 | 4 | arg | per kind: root of a broadcast, exit code, process id … |
//! | 16 | 4 | total | bytes of the whole datum that this frame carries a piece of |
//! | 20 | 4 | offset | where this piece starts inside the datum |
//! | 24 | 4 | len | bytes of payload that follow |
//! | 28 | 4 | extra | per kind |
//!
//! Data longer than [`MAX_PAYLOAD`] travels as several frames of the same kind and `seq`, in order.
//! On a packet socket one packet is one frame; on a byte stream frames follow each other. Nothing
//! read from a wire is trusted: [`Frame::decode`] checks magic, version, kind, `len`, and `offset +
//! len <= total <= MAX_TOTAL`.

/// First two bytes of every frame, little endian ("GB").
pub const MAGIC: u16 = 0x4247;
/// Version of the protocol; both ends must agree exactly, a mixed installation is refused by name.
pub const VERSION: u8 = 2;
/// Bytes of the fixed header.
pub const HEADER_LEN: usize = 32;
/// Most payload bytes in one frame. Below the default send buffer of a Unix packet socket (about
/// 208 KiB).
pub const MAX_PAYLOAD: usize = 60 * 1024;
/// Most bytes of one datum, over all its frames.
pub const MAX_TOTAL: usize = 1 << 30;

/// What a rank says in its `Hello`: release and protocol of the library in the program. The agent
/// compares it with its own, because a rank and an agent of different releases must not guess.
pub const BUILD_ID: &str = concat!("gasnetrun_ibv ", env!("CARGO_PKG_VERSION"));

/// What a frame says. Numbers are part of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::FromRepr, strum::VariantArray)]
#[repr(u8)]
pub enum Kind {
    /// Rank to agent, first frame: `arg` = process id; payload = build identification (UTF-8).
    Hello = 1,
    /// Agent to rank, answer to `Hello`: `arg` = job size; carries the descriptor of the
    /// [`NodeShm`](crate::node_shm::NodeShm).
    Welcome = 2,
    /// Rank to agent: arrived at barrier `seq`.
    Barrier = 3,
    /// Rank to agent: contribution (all ranks the same `total`) to exchange `seq`.
    Exchange = 4,
    /// Rank to agent: `total` = size * row length.
    Alltoall = 5,
    /// Rank to agent: `arg` = root; only the root carries data, all state `total`.
    Broadcast = 6,
    /// As `Broadcast`, root inside the caller's neighbourhood.
    NbrhdBroadcast = 7,
    /// As `Broadcast`, root on the caller's host.
    HostBroadcast = 8,
    /// Rank to agent: collective over the host; asks for memory of `total | extra << 32` bytes.
    /// Agent to rank: the answer, same `seq` and length; the descriptor of the memory comes along.
    HostMemory = 9,
    /// Rank to agent, any time after `Hello`: this rank has begun to exit with code `arg` by path
    /// `extra` ([`ExitPath`](crate::ExitPath)).
    Exiting = 10,
    /// Rank to agent: orderly end with (reduced) code `arg`; no further service call follows, the
    /// process ends soon.
    Fini = 11,
    /// Rank to agent: end the whole job with code `arg`.
    Abort = 12,
    /// Agent to rank: barrier `seq` is complete. Also the answer to the root of a broadcast, and,
    /// with seq 0, to `Fini`.
    Release = 13,
    /// Agent to rank: result of exchange `seq` (`total` bytes) is in the memory whose descriptor
    /// comes along.
    Mapped = 14,
    /// Agent to rank: result of a broadcast or all-to-all `seq`.
    Data = 15,
    /// Agent to rank: the call `seq` cannot be served; payload = reason (UTF-8).
    Refuse = 16,
    /// Rank to agent: what ranks have posted on the [collectives](crate::node_shm::ShmCollectives)
    /// of the node memory is to be served.
    Posted = 17,
}

impl Kind {
    /// All kinds, in numeric order.
    pub const ALL: &[Self] = <Self as strum::VariantArray>::VARIANTS;

    /// Whether frames of this kind may carry payload bytes.
    #[must_use]
    pub const fn carries_data(self) -> bool {
        matches!(
            self,
            Self::Hello
                | Self::Exchange
                | Self::Alltoall
                | Self::Broadcast
                | Self::NbrhdBroadcast
                | Self::HostBroadcast
                | Self::Data
                | Self::Refuse
        )
    }
}

/// One frame; the payload is borrowed from the receive buffer or from the caller's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// What the frame says.
    pub kind: Kind,
    /// Number of the collective call, 0 if none.
    pub seq: u32,
    /// Rank that the frame speaks of.
    pub rank: u32,
    /// Per kind.
    pub arg: u32,
    /// Bytes of the whole datum.
    pub total: u32,
    /// Start of this piece.
    pub offset: u32,
    /// Per kind.
    pub extra: u32,
    /// This piece.
    pub payload: &'a [u8],
}

/// Why bytes are not a frame. Every message names what was seen and what was expected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "each message names its fields")]
pub enum FrameError {
    /// Not our protocol at all.
    #[error(
        "frame starts with {seen:#06x}, expected magic {MAGIC:#06x}: the peer does not speak this protocol"
    )]
    Magic { seen: u16 },
    /// Another release.
    #[error(
        "frame of protocol version {seen}, this build speaks {VERSION}: launcher and program come from different releases, rebuild or reinstall one of them"
    )]
    Version { seen: u8 },
    /// Unknown kind byte.
    #[error("frame kind {seen} is unknown")]
    Kind { seen: u8 },
    /// `len`, `offset` and `total` do not fit together or exceed a limit.
    #[error(
        "frame {kind:?}: payload of {len} bytes at offset {offset} in a datum of {total} bytes is out of bounds (at most {MAX_PAYLOAD} in a frame, {MAX_TOTAL} in all)"
    )]
    Length { kind: Kind, len: u32, offset: u32, total: u32 },
    /// A packet ended inside a frame, or had bytes after it.
    #[error("packet of {seen} bytes, its frame needs {need}")]
    Truncated { seen: usize, need: usize },
    /// `rank` is not a rank of the job.
    #[error("frame {kind:?} speaks of rank {seen}, the job has {size} ranks")]
    Rank { kind: Kind, seen: u32, size: u32 },
}

/// The words of a header: `seq`, `rank`, `arg`, `total`, `offset`, `len`, `extra`.
fn words(header: &[u8; HEADER_LEN]) -> [u32; 7] {
    let (words, _) = header[4..].as_chunks::<4>();
    std::array::from_fn(|at| u32::from_le_bytes(words[at]))
}

impl<'a> Frame<'a> {
    /// A frame without data.
    #[must_use]
    pub const fn bare(kind: Kind, seq: u32, rank: u32, arg: u32) -> Self {
        Self { kind, seq, rank, arg, total: 0, offset: 0, extra: 0, payload: &[] }
    }

    /// The same with `data` as the whole datum, as far as one frame holds it.
    #[must_use]
    pub fn with(self, data: &'a [u8]) -> Self {
        let payload = &data[..data.len().min(MAX_PAYLOAD)];
        Self { payload, ..self.with_len(payload.len() as u64) }
    }

    /// The same with a length of two words: `total`, and `extra` above it.
    #[must_use]
    pub const fn with_len(self, len: u64) -> Self {
        #[expect(clippy::cast_possible_truncation, reason = "the two halves of the length")]
        let (total, extra) = (len as u32, (len >> 32) as u32);
        Self { total, extra, ..self }
    }

    /// The frames that carry `data` in order: one empty frame when there is none. `head` gives
    /// everything but `total`, `offset` and `payload`. `data` is at most [`MAX_TOTAL`] bytes; what
    /// is beyond that is not carried.
    pub fn pieces(head: Frame<'_>, data: &'a [u8]) -> impl Iterator<Item = Self> {
        let data = &data[..data.len().min(MAX_TOTAL)];
        let word = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let Frame { kind, seq, rank, arg, extra, .. } = head;
        (0..data.len().div_ceil(MAX_PAYLOAD).max(1)).map(move |piece| {
            let start = piece * MAX_PAYLOAD;
            let payload = &data[start..data.len().min(start + MAX_PAYLOAD)];
            let (total, offset) = (word(data.len()), word(start));
            Self { kind, seq, rank, arg, total, offset, extra, payload }
        })
    }

    /// The header of this frame as bytes. Async-signal-safe: no allocation.
    #[must_use]
    pub fn header(&self) -> [u8; HEADER_LEN] {
        let mut out = [0; HEADER_LEN];
        let len = u32::try_from(self.payload.len()).unwrap_or(u32::MAX);
        out[0..2].copy_from_slice(&MAGIC.to_le_bytes());
        out[2] = VERSION;
        out[3] = self.kind as u8;
        let words = [self.seq, self.rank, self.arg, self.total, self.offset, len, self.extra];
        for (slot, value) in out[4..].chunks_exact_mut(4).zip(words) {
            slot.copy_from_slice(&value.to_le_bytes());
        }
        out
    }

    /// Appends the whole frame to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.header());
        out.extend_from_slice(self.payload);
    }

    /// Decodes the frame at the start of a byte stream.
    ///
    /// Returns the frame and how many bytes it took, or `None` when `bytes` ends inside the frame
    /// (read more, then call again).
    ///
    /// # Errors
    /// Anything wrong with the header; the stream cannot be resynchronised after that.
    pub fn decode(bytes: &'a [u8]) -> Result<Option<(Self, usize)>, FrameError> {
        let Some((header, rest)) = bytes.split_first_chunk::<HEADER_LEN>() else {
            return Ok(None);
        };
        let seen = u16::from_le_bytes([header[0], header[1]]);
        if seen != MAGIC {
            return Err(FrameError::Magic { seen });
        }
        if header[2] != VERSION {
            return Err(FrameError::Version { seen: header[2] });
        }
        let kind = Kind::from_repr(header[3]).ok_or(FrameError::Kind { seen: header[3] })?;
        let [seq, rank, arg, total, offset, len, extra] = words(header);
        let length = FrameError::Length { kind, len, offset, total };
        let end = u64::from(offset) + u64::from(len);
        let sound = len as usize <= MAX_PAYLOAD
            && (kind == Kind::HostMemory || total as usize <= MAX_TOTAL)
            && end <= u64::from(total).max(if kind.carries_data() { 0 } else { u64::MAX })
            && (kind.carries_data() || (len == 0 && offset == 0));
        if !sound {
            return Err(length);
        }
        let Some(payload) = rest.get(..len as usize) else {
            return Ok(None);
        };
        let frame = Self { kind, seq, rank, arg, total, offset, extra, payload };
        Ok(Some((frame, HEADER_LEN + payload.len())))
    }

    /// Decodes a packet that must be exactly one frame and checks `rank` against the size of the
    /// job.
    ///
    /// # Errors
    /// As [`Frame::decode`]; also a packet that is too short or too long, or a rank outside the
    /// job.
    pub fn from_packet(packet: &'a [u8], job_size: u32) -> Result<Self, FrameError> {
        let seen = packet.len();
        match Self::decode(packet)? {
            None => {
                let header = packet.first_chunk::<HEADER_LEN>();
                let need = HEADER_LEN + header.map_or(0, |header| words(header)[5] as usize);
                Err(FrameError::Truncated { seen, need })
            }
            Some((_, used)) if used != seen => Err(FrameError::Truncated { seen, need: used }),
            Some((frame, _)) if frame.rank >= job_size => {
                Err(FrameError::Rank { kind: frame.kind, seen: frame.rank, size: job_size })
            }
            Some((frame, _)) => Ok(frame),
        }
    }
}

#[cfg(test)]
mod tests;
