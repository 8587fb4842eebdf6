//! What the launcher's process and the job's supervisor say to each other over their stream socket.

use serde::{Deserialize, Serialize};

use crate::event_loop::Sender;
use crate::report::JobReport;
use crate::tree::frames::{self, FrameError, Lane};

/// A message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Message {
    /// From the launcher: a signal for the ranks, and who sent it.
    Signal(i32, Option<Sender>),
    /// To the launcher: ranks started, that opened the bootstrap, that ended.
    Progress([u32; 3]),
    /// To the launcher, last: the outcome.
    Report(Box<JobReport>),
}

/// Bytes that are no message.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WireError {
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error("a message that cannot be read: {0}")]
    Message(#[from] postcard::Error),
}

impl Message {
    /// Its bytes on the stream.
    pub(crate) fn encode(&self) -> Result<Vec<u8>, WireError> {
        Ok(frames::framed(Lane::Bulk, &postcard::to_stdvec(self)?))
    }
}

/// Puts a stream back into messages.
#[derive(Debug, Default)]
pub(crate) struct Inbox(frames::Inbox);

impl Inbox {
    /// Bytes that came.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.0.push(bytes);
    }

    /// The next whole message.
    pub(crate) fn take(&mut self) -> Result<Option<Message>, WireError> {
        let message = self.0.take()?;
        Ok(message.map(|bytes| postcard::from_bytes(&bytes)).transpose()?)
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
                .flat_map(|s| [Message::Signal(*s, None), Message::Progress([s.unsigned_abs(), 1, 2])]).collect();
            let mut bytes = Vec::new();
            for message in &sent {
                bytes.extend(message.encode().unwrap());
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
