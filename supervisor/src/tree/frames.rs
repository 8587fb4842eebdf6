//! Messages on a byte stream. Two lanes: a long message of the bulk lane travels in fragments, and
//! messages of the control lane overtake it between two of them. Inside a lane the order is kept.
//!
//! A fragment is a word (length, lane, whether it is the last of its message) and that many bytes.

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::rc::Rc;

use bootstrap::frame::MAX_TOTAL;
use bootstrap::rank::MAX_HOSTS;

/// Longest fragment, bytes.
const FRAGMENT: usize = 64 * 1024;
const LAST: u32 = 1 << 31;
const BULK: u32 = 1 << 30;
/// Longest messages that are believed: of the control lane, which may name every host, and of the
/// other. No more memory is taken than came.
pub(super) const MAX_CONTROL: usize = MAX_HOSTS as usize * 64;
pub(super) const MAX_BULK: usize = MAX_TOTAL + (4 << 20);

/// Which of two orders a message keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    /// Short, and never behind a slow reader.
    Control = 0,
    Bulk = 1,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FrameError {
    #[error("a fragment of {len} bytes (header {word:#010x})")]
    Length { word: u32, len: usize },
    #[error("a message longer than {limit} bytes")]
    Message { limit: usize },
}

#[derive(Debug, Default)]
pub(crate) struct Outbox {
    queues: [VecDeque<Rc<Vec<u8>>>; 2],
    /// How much of the first message of the bulk lane is on its way.
    cut: usize,
    current: Vec<u8>,
    written: usize,
}

impl Outbox {
    /// Appends a message, which must not be empty.
    pub(crate) fn push(&mut self, lane: Lane, message: Rc<Vec<u8>>) {
        debug_assert!(!message.is_empty(), "an empty message has no fragment");
        self.queues[lane as usize].push_back(message);
    }

    /// Appends bytes that are no message; no message may wait.
    pub(crate) fn push_raw(&mut self, bytes: &[u8]) {
        debug_assert!(self.queues.iter().all(VecDeque::is_empty), "messages come later");
        self.current.extend_from_slice(bytes);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.written == self.current.len() && self.queues.iter().all(VecDeque::is_empty)
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    fn fragment(&mut self, lane: Lane, message: &[u8], from: usize) -> bool {
        let piece = &message[from..message.len().min(from + FRAGMENT)];
        let last = from + piece.len() == message.len();
        let word = u32::try_from(piece.len()).unwrap_or(0)
            | if last { LAST } else { 0 }
            | if lane == Lane::Bulk { BULK } else { 0 };
        self.current.extend_from_slice(&word.to_le_bytes());
        self.current.extend_from_slice(piece);
        last
    }

    /// Puts the next fragments together, about one fragment's length of them.
    fn fill(&mut self) {
        self.current.clear();
        self.written = 0;
        while self.current.len() < FRAGMENT {
            if let Some(message) = self.queues[Lane::Control as usize].pop_front() {
                let mut from = 0;
                while !self.fragment(Lane::Control, &message, from) {
                    from += FRAGMENT;
                }
            } else if let Some(message) = self.queues[Lane::Bulk as usize].front().cloned() {
                if self.fragment(Lane::Bulk, &message, self.cut) {
                    self.queues[Lane::Bulk as usize].pop_front();
                    self.cut = 0;
                } else {
                    self.cut += FRAGMENT;
                }
            } else {
                return;
            }
        }
    }

    /// Writes as much as `fd`, which does not block, takes now.
    pub(crate) fn write(&mut self, fd: impl AsFd) -> nix::Result<()> {
        loop {
            if self.written == self.current.len() {
                self.fill();
                if self.current.is_empty() {
                    return Ok(());
                }
            }
            match nix::unistd::write(&fd, &self.current[self.written..]) {
                Ok(count) => self.written += count,
                Err(nix::Error::EINTR) => {}
                Err(nix::Error::EAGAIN) => return Ok(()),
                Err(errno) => return Err(errno),
            }
        }
    }
}

/// Puts a stream back into messages. Takes no more memory than bytes came.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    bytes: Vec<u8>,
    at: usize,
    parts: [Vec<u8>; 2],
}

impl Inbox {
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        if self.at > 0 {
            self.bytes.drain(..self.at);
            self.at = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    pub(crate) fn take(&mut self) -> Result<Option<Vec<u8>>, FrameError> {
        loop {
            let rest = &self.bytes[self.at..];
            let Some(head) = rest.first_chunk::<4>() else { return Ok(None) };
            let word = u32::from_le_bytes(*head);
            let len = (word & !(LAST | BULK)) as usize;
            if len == 0 || len > FRAGMENT {
                return Err(FrameError::Length { word, len });
            }
            let Some(piece) = rest.get(4..4 + len) else { return Ok(None) };
            let bulk = word & BULK != 0;
            let limit = if bulk { MAX_BULK } else { MAX_CONTROL };
            let part = &mut self.parts[usize::from(bulk)];
            if part.len() + len > limit {
                return Err(FrameError::Message { limit });
            }
            part.extend_from_slice(piece);
            self.at += 4 + len;
            if word & LAST != 0 {
                return Ok(Some(std::mem::take(part)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use proptest::prelude::*;

    use super::*;

    /// Everything in `outbox` as it would be on the stream.
    fn stream(outbox: &mut Outbox) -> Vec<u8> {
        let mut bytes = Vec::new();
        loop {
            outbox.fill();
            if outbox.current.is_empty() {
                return bytes;
            }
            bytes.extend_from_slice(&outbox.current);
            outbox.written = outbox.current.len();
        }
    }

    proptest! {
        #[test]
        fn any_cut_of_the_stream_gives_the_same_messages_in_the_order_of_each_lane(
            sizes in proptest::collection::vec((any::<bool>(), 1usize..200_000), 1..12),
            cut in 1usize..100_000,
        ) {
            let mut outbox = Outbox::default();
            let mut sent = [Vec::new(), Vec::new()];
            for (number, (bulk, size)) in (0u8..).zip(&sizes) {
                let lane = if *bulk { Lane::Bulk } else { Lane::Control };
                let mut message = vec![number; *size];
                message[0] = u8::from(*bulk);
                sent[lane as usize].push(message.clone());
                outbox.push(lane, Rc::new(message));
            }
            let bytes = stream(&mut outbox);
            prop_assert!(outbox.is_empty());
            let mut inbox = Inbox::default();
            let mut seen = [Vec::new(), Vec::new()];
            for piece in bytes.chunks(cut) {
                inbox.push(piece);
                while let Some(message) = inbox.take().unwrap() {
                    seen[usize::from(message[0])].push(message);
                }
            }
            prop_assert_eq!(seen, sent);
        }

        #[test]
        fn garbage_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let mut inbox = Inbox::default();
            inbox.push(&bytes);
            while let Ok(Some(_)) = inbox.take() {}
        }
    }

    #[test]
    fn control_overtakes_bulk_that_is_under_way() {
        let mut outbox = Outbox::default();
        outbox.push(Lane::Bulk, Rc::new(vec![1; 10 * FRAGMENT]));
        outbox.fill();
        let mut bytes = outbox.current.clone();
        outbox.written = bytes.len();
        outbox.push(Lane::Control, Rc::new(vec![2]));
        bytes.extend(stream(&mut outbox));
        let mut inbox = Inbox::default();
        inbox.push(&bytes);
        assert_eq!(inbox.take().unwrap().unwrap(), [2]);
        assert_eq!(inbox.take().unwrap().unwrap().len(), 10 * FRAGMENT);
    }

    #[test]
    fn a_full_pipe_is_no_error_and_the_rest_follows() {
        let (reader, writer) = nix::unistd::pipe2(nix::fcntl::OFlag::O_NONBLOCK).unwrap();
        let mut outbox = Outbox::default();
        outbox.push(Lane::Bulk, Rc::new(vec![7; 300_000]));
        let mut file = std::fs::File::from(reader);
        let mut inbox = Inbox::default();
        let mut buffer = [0; 5000];
        let message = loop {
            outbox.write(&writer).unwrap();
            if let Ok(count) = file.read(&mut buffer) {
                inbox.push(&buffer[..count]);
            }
            if let Some(message) = inbox.take().unwrap() {
                break message;
            }
        };
        assert_eq!(message, vec![7; 300_000]);
    }
}
