//! A message as it lies in a slot, before and after.

use crate::transport::message::MAX_ARGS;

/// Bytes of a slot after its fixed part: arguments, then payload at the next multiple of 8.
pub(crate) const BODY: usize = 104;
/// Bytes of a line of the cache.
pub(super) const LINE: usize = 64;
/// Fixed part, with the state word.
pub(super) const FIXED: usize = 128 - BODY;

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    Short = 0,
    /// Payload in the slot.
    MediumInline = 1,
    /// Payload in a block of the sender's arena.
    MediumBlock = 2,
    Long = 3,
    /// Of the library itself.
    Internal = 4,
}

impl Kind {
    const fn from_wire(byte: u8) -> Option<Self> {
        Some(match byte {
            0 => Self::Short,
            1 => Self::MediumInline,
            2 => Self::MediumBlock,
            3 => Self::Long,
            4 => Self::Internal,
            _ => return None,
        })
    }
}

/// A message as it lies in a slot.
#[repr(C, align(128))]
#[derive(Clone, Copy)]
pub(super) struct Raw {
    /// State of the slot; not part of the message.
    pub(super) _state: u32,
    pub(super) kind: u8,
    pub(super) handler: u8,
    pub(super) nargs: u8,
    pub(super) _pad: u8,
    pub(super) source: u32,
    pub(super) len: u32,
    pub(super) place: u64,
    pub(super) body: [u8; BODY],
}

/// What a producer puts into a slot.
#[derive(Clone, Copy)]
pub(crate) struct Post<'a> {
    pub(crate) kind: Kind,
    pub(crate) handler: u8,
    /// Sender, as index among the ranks of the host.
    pub(crate) source: u32,
    /// Bytes of payload, wherever they are.
    pub(crate) len: u32,
    /// Block or destination.
    pub(crate) place: u64,
    pub(crate) args: &'a [i32],
    /// Payload that travels in the slot.
    pub(crate) inline: &'a [u8],
}

impl Post<'_> {
    /// Writes the message, without its state word, to a slot.
    ///
    /// # Safety
    /// `to` is a slot of which nobody else accesses what follows the first word. At most 16
    /// arguments, and the payload fits beside them.
    #[inline(always)]
    #[expect(clippy::multiple_unsafe_ops_per_block, reason = "one message, one reason")]
    #[expect(clippy::cast_possible_truncation, reason = "at most 16")]
    pub(super) unsafe fn write(&self, to: *mut Raw) {
        let nargs = self.args.len();
        // SAFETY: as the caller promises.
        unsafe {
            let word = u32::from_le_bytes([self.kind as u8, self.handler, nargs as u8, 0]);
            to.cast::<u32>().add(1).write(word.to_le());
            (&raw mut (*to).source).write(self.source);
            if self.kind as u8 != Kind::Short as u8 {
                (&raw mut (*to).len).write(self.len);
                (&raw mut (*to).place).write(self.place);
            }
            let body = (&raw mut (*to).body).cast::<u8>();
            match self.args {
                // A call of memcpy would cost more than a few words.
                [] => {}
                [a] => body.cast::<i32>().write(*a),
                [a, b] => body.cast::<[i32; 2]>().write([*a, *b]),
                [a, b, c] => body.cast::<[i32; 3]>().write([*a, *b, *c]),
                [a, b, c, d] => body.cast::<[i32; 4]>().write([*a, *b, *c, *d]),
                args => body.copy_from_nonoverlapping(args.as_ptr().cast(), nargs * 4),
            }
            if !self.inline.is_empty() {
                let at = body.add(inline_at(nargs));
                at.copy_from_nonoverlapping(self.inline.as_ptr(), self.inline.len());
            }
        }
    }
}

/// A message copied out of its slot, checked against the limits of a slot.
#[repr(transparent)]
pub(crate) struct Packet(pub(super) Raw);

pub(super) const fn inline_at(nargs: usize) -> usize {
    (nargs * 4).next_multiple_of(8)
}

impl Packet {
    /// Room to receive into.
    pub(crate) const fn empty() -> Self {
        Self(Raw {
            _state: 0,
            kind: 0,
            handler: 0,
            nargs: 0,
            _pad: 0,
            source: 0,
            len: 0,
            place: 0,
            body: [0; BODY],
        })
    }

    /// Most payload bytes that travel in a slot with `nargs` arguments.
    pub(crate) const fn inline_room(nargs: usize) -> usize {
        BODY - inline_at(nargs)
    }

    pub(crate) const fn kind(&self) -> Option<Kind> {
        Kind::from_wire(self.0.kind)
    }

    /// Arguments and payload in the slot; `None` when the counts exceed the slot.
    #[inline]
    pub(crate) fn parts(&mut self) -> Option<(&[i32], &mut [u8])> {
        let nargs = usize::from(self.0.nargs);
        let inline = if self.0.kind == Kind::MediumInline as u8 { self.0.len as usize } else { 0 };
        if nargs > MAX_ARGS || inline > Self::inline_room(nargs) {
            return None;
        }
        let (args, rest) = self.0.body.split_at_mut(inline_at(nargs));
        // SAFETY: `args` starts at an offset that is a multiple of 8 in an aligned struct and holds
        // at least `nargs` words; any bits are an i32.
        let args = unsafe { std::slice::from_raw_parts(args.as_ptr().cast::<i32>(), nargs) };
        Some((args, &mut rest[..inline]))
    }

    /// Makes this a message of a lane, without payload: kind and handler, number of arguments,
    /// sender.
    #[inline(always)]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a count that fits, or one that is refused"
    )]
    pub(super) const fn begin(&mut self, kind: [u8; 2], nargs: usize, source: u32) {
        [self.0.kind, self.0.handler] = kind;
        self.0.nargs = nargs as u8;
        self.0.source = source;
        self.0.len = 0;
        self.0.place = 0;
    }

    /// Length and place of the payload.
    #[inline(always)]
    pub(super) const fn set_payload(&mut self, len: u32, place: u64) {
        self.0.len = len;
        self.0.place = place;
    }

    /// Writes words of arguments and payload, from word `at` on; what is behind the end is left
    /// out.
    #[inline(always)]
    pub(super) fn set_words(&mut self, at: usize, words: [u32; 3]) {
        let to = self.0.body.get_mut(at * 4..).unwrap_or_default();
        for (to, word) in to.as_chunks_mut().0.iter_mut().zip(words) {
            *to = word.to_ne_bytes();
        }
    }

    /// Bytes of the slot that the message takes, by its own counts; more than a slot when they are
    /// wrong.
    #[inline]
    pub(super) const fn extent(&self) -> usize {
        let inline = if self.0.kind == Kind::MediumInline as u8 { self.0.len as usize } else { 0 };
        FIXED + inline_at(self.0.nargs as usize) + inline
    }
}
