//! The last words to a PMI server: made and sent where nothing may be allocated.

use bootstrap::service::send_best_effort;
use bootstrap::sys::{self, ANNOUNCE_SLICE_MS};
use nix::sys::socket::{MsgFlags, recv};
use settings::deadlines::bootstrap::PM_LEAVE;

/// A few words made without memory of the heap. What does not fit is cut.
pub(super) struct Text {
    bytes: [u8; 192],
    len: usize,
}

impl Text {
    pub(super) const fn new() -> Self {
        Self { bytes: [0; 192], len: 0 }
    }

    pub(super) fn put(&mut self, more: &[u8]) -> &mut Self {
        for byte in more {
            if let Some(slot) = self.bytes.get_mut(self.len) {
                *slot = *byte;
                self.len += 1;
            }
        }
        self
    }

    pub(super) fn number(&mut self, number: i32) -> &mut Self {
        let mut digits = [0; 10];
        let (mut rest, mut at) = (number.unsigned_abs(), digits.len());
        loop {
            at -= 1;
            digits[at] = b'0' + (rest % 10).to_le_bytes()[0];
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        if number < 0 {
            self.put(b"-");
        }
        self.put(&digits[at..])
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Sends the last words on a byte stream and waits, within [`PM_LEAVE`], until the answer has
/// `sign` in it or the stream ends. Async-signal-safe.
pub(super) fn farewell(socket: i32, words: &[u8], sign: &[u8]) {
    let bound = PM_LEAVE.limit;
    send_best_effort(socket, words, bound);
    let (mut seen, mut len) = ([0u8; 512], 0);
    for _ in 0..=bound.as_millis() / ANNOUNCE_SLICE_MS as u128 {
        if sys::poll_one(socket, libc::POLLIN, ANNOUNCE_SLICE_MS) == 0 {
            continue;
        }
        if len == seen.len() {
            // Late answers to something else: the end of what was seen may hold the start of the
            // sign.
            seen.copy_within(len - sign.len().min(len).., 0);
            len = sign.len().min(len);
        }
        let Ok(got) = recv(socket, &mut seen[len..], MsgFlags::MSG_DONTWAIT) else { continue };
        len += got;
        if got == 0 || seen[..len].windows(sign.len()).any(|part| part == sign) {
            return;
        }
    }
}
