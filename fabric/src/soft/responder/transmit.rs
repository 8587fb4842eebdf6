//! Responses, and messages of the reverse path, on their way into the stream.

use super::{Parse, Responder};
use crate::Access;
use crate::soft::memory::{Gather, MAX_FRAGMENTS, Table};
use crate::soft::wire::RESPONSE;

/// A response, or a part of one, that is to be written.
#[derive(Debug)]
pub(super) enum Out {
    Bytes {
        bytes: [u8; RESPONSE + 8],
        len: usize,
    },
    Memory {
        remote: u64,
        rkey: u32,
        len: usize,
    },
    /// The end of a message of the reverse path.
    Rest(Vec<u8>),
}

impl Out {
    const fn len(&self) -> usize {
        match self {
            Self::Bytes { len, .. } | Self::Memory { len, .. } => *len,
            Self::Rest(bytes) => bytes.len(),
        }
    }
}

impl Responder {
    /// Writes answers until the stream takes no more. `None`: it is over.
    pub(super) fn write_out(&mut self, regions: &Table) -> Option<()> {
        while !self.out.is_empty() {
            let mut fragments = Gather::new();
            let mut skip = self.out_at;
            for item in self.out.iter().take(MAX_FRAGMENTS) {
                match item {
                    Out::Bytes { bytes, len } => {
                        fragments.bytes(bytes.get(skip..*len).unwrap_or_default());
                    }
                    Out::Memory { remote, rkey, len } => {
                        let from = remote.checked_add(skip as u64)?;
                        let span = regions.remote(*rkey, from, len - skip, Access::REMOTE_READ);
                        // The region ended while it was read: nothing can be said in the middle of
                        // an answer.
                        fragments.span(span?);
                    }
                    Out::Rest(bytes) => {
                        fragments.bytes(bytes.get(skip..).unwrap_or_default());
                    }
                }
                skip = 0;
            }
            let wanted = fragments.total();
            let sent = self.stream.send(&mut fragments).ok()?;
            drop(fragments);
            let Some(written) = sent else { return Some(()) };
            self.advance(written);
            if written < wanted {
                return Some(());
            }
        }
        Some(())
    }

    fn advance(&mut self, mut written: usize) {
        while let Some(item) = self.out.front() {
            let left = item.len() - self.out_at;
            if written < left {
                self.out_at += written;
                return;
            }
            written -= left;
            self.out_at = 0;
            self.out.pop_front();
        }
    }

    /// Writes a message of the reverse path; `rest` copies what is left of it after so many bytes.
    /// False: not now, and nothing was written.
    pub(in crate::soft) fn send_reverse(
        &mut self,
        message: &mut Gather<'_>,
        rest: &dyn Fn(usize) -> Vec<u8>,
    ) -> bool {
        if !self.out.is_empty() || matches!(self.parse, Parse::Discard { .. }) {
            return false;
        }
        let whole = message.total();
        let written = self.stream.send(message).ok().flatten().unwrap_or(0);
        let begun = written != 0 || self.stream.is_committed();
        if begun && written < whole {
            self.out.push_back(Out::Rest(rest(written)));
        }
        begun
    }
}
