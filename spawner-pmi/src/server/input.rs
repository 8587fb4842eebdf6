//! The bytes of one rank, cut into messages. Takes no more memory than bytes came, and no more than one
//! message may have.

use crate::wire::{MAX_MESSAGE, PmiVersion, frame_length};

/// What a rank has sent and nobody has read yet.
#[derive(Debug)]
pub(super) struct Input {
    pub(super) version: PmiVersion,
    bytes: Vec<u8>,
    /// Where the first message that was not taken begins.
    at: usize,
}

impl Default for Input {
    fn default() -> Self {
        Self { version: PmiVersion::One, bytes: Vec::new(), at: 0 }
    }
}

impl Input {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.at);
        self.at = 0;
        self.bytes.extend_from_slice(bytes);
    }

    pub(super) fn clear(&mut self) {
        self.bytes = Vec::new();
        self.at = 0;
    }

    /// The next message, without its frame.
    pub(super) fn take(&mut self) -> Result<Option<String>, String> {
        let rest = &self.bytes[self.at..];
        let (body, taken) = match self.version {
            PmiVersion::One => match end(rest) {
                Some(end) if end <= MAX_MESSAGE => (&rest[..end], end + 1),
                None if rest.len() <= MAX_MESSAGE => return Ok(None),
                _ => return Err(format!("a line of more than {MAX_MESSAGE} bytes")),
            },
            PmiVersion::Two => {
                let Some((columns, rest)) = rest.split_first_chunk::<6>() else { return Ok(None) };
                let length = frame_length(columns)
                    .map_err(|problem| format!("a message that makes no sense: {problem}"))?;
                let Some(body) = rest.get(..length) else { return Ok(None) };
                (body, 6 + length)
            }
        };
        let text = std::str::from_utf8(body).map(str::to_owned);
        self.at += taken;
        text.map(Some).map_err(|_| "a message that is no text".to_owned())
    }
}

/// Where a message of PMI-1 ends: with its line, or with the last one of several.
fn end(bytes: &[u8]) -> Option<usize> {
    const LAST: &[u8] = b"\nendcmd\n";
    if bytes.starts_with(b"mcmd=") {
        return bytes
            .windows(LAST.len())
            .position(|part| part == LAST)
            .map(|at| at + LAST.len() - 1);
    }
    bytes.iter().position(|byte| *byte == b'\n')
}
