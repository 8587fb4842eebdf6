//! What the front and the agent say to each other over their stream socket: length, kind, payload.

use crate::report::JobReport;

/// Longest message that is believed.
const MAX_MESSAGE: usize = 256 << 20;
const HEADER: usize = 8;

/// A message.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Message {
    /// Front to agent: a signal for the ranks.
    Signal(i32),
    /// Agent to front: ranks started, that opened the bootstrap, that ended.
    Progress([u32; 3]),
    /// Agent to front, last: the outcome.
    Report(Box<JobReport>),
}

/// Bytes that are no message.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WireError {
    /// Kind or length make no sense.
    #[error("message of kind {kind} with {len} bytes")]
    Header { kind: u32, len: usize },
    /// The report cannot be written or read.
    #[error("report: {0}")]
    Report(#[from] serde_json::Error),
}

impl Message {
    /// Appends the message to `out`.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) -> Result<(), WireError> {
        let (kind, payload): (u32, Vec<u8>) = match self {
            Self::Signal(signal) => (1, signal.to_le_bytes().to_vec()),
            Self::Progress(counts) => (2, counts.iter().flat_map(|n| n.to_le_bytes()).collect()),
            Self::Report(report) => (3, serde_json::to_vec(report)?),
        };
        let len = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        if payload.len() > MAX_MESSAGE {
            return Err(WireError::Header { kind, len: payload.len() });
        }
        out.extend_from_slice(&len.to_le_bytes());
        out.extend_from_slice(&kind.to_le_bytes());
        out.extend_from_slice(&payload);
        Ok(())
    }

    fn decode(kind: u32, payload: &[u8]) -> Result<Self, WireError> {
        let word = |at: usize| {
            u32::from_le_bytes([payload[at], payload[at + 1], payload[at + 2], payload[at + 3]])
        };
        match (kind, payload.len()) {
            (1, 4) => Ok(Self::Signal(word(0).cast_signed())),
            (2, 12) => Ok(Self::Progress([word(0), word(4), word(8)])),
            (3, _) => Ok(Self::Report(serde_json::from_slice(payload)?)),
            (_, len) => Err(WireError::Header { kind, len }),
        }
    }
}

/// Puts a stream back into messages.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    bytes: Vec<u8>,
}

impl Inbox {
    /// Bytes that came.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The next whole message.
    pub(crate) fn take(&mut self) -> Result<Option<Message>, WireError> {
        let Some(header) = self.bytes.first_chunk::<HEADER>() else { return Ok(None) };
        let [a, b, c, d, e, f, g, h] = *header;
        let (len, kind) =
            (u32::from_le_bytes([a, b, c, d]) as usize, u32::from_le_bytes([e, f, g, h]));
        if len > MAX_MESSAGE || (kind != 3 && len > 12) {
            return Err(WireError::Header { kind, len });
        }
        let Some(payload) = self.bytes.get(HEADER..HEADER + len) else { return Ok(None) };
        let message = Message::decode(kind, payload)?;
        self.bytes.drain(..HEADER + len);
        Ok(Some(message))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn take_all(inbox: &mut Inbox) -> Result<Vec<Message>, WireError> {
        let mut found = Vec::new();
        while let Some(message) = inbox.take()? {
            found.push(message);
        }
        Ok(found)
    }

    proptest! {
        #[test]
        fn any_cut_of_the_stream_gives_the_same_messages(
            signals in proptest::collection::vec(any::<i32>(), 1..20), cut in 1usize..9,
        ) {
            let sent: Vec<Message> = signals.iter()
                .flat_map(|s| [Message::Signal(*s), Message::Progress([s.unsigned_abs(), 1, 2])]).collect();
            let mut bytes = Vec::new();
            for message in &sent {
                message.encode(&mut bytes).unwrap();
            }
            let mut inbox = Inbox::default();
            let mut seen = Vec::new();
            for piece in bytes.chunks(cut) {
                inbox.push(piece);
                seen.extend(take_all(&mut inbox).unwrap());
            }
            prop_assert_eq!(seen, sent);
        }

        #[test]
        fn garbage_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut inbox = Inbox::default();
            inbox.push(&bytes);
            let _ = take_all(&mut inbox);
        }
    }
}
