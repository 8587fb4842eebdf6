//! Memory of another rank that is set to one byte: one request, however long the range is.

use std::sync::Arc;

use super::flights::{Flight, Landing};
use super::list::Extent;
use super::state::{FILL, FILL_ARGS};
use crate::error::Error;
use crate::mode::Mode;
use crate::rank::RankContext;
use crate::transport::message::{AmMessage, AmPayload, Flags, MessageClass};
use crate::transport::place::Place;

/// Words of a fill in its message, behind its number.
const WORDS: usize = FILL_ARGS - 2;

/// What a fill asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fill {
    /// Of the target's endpoints the one whose segment it is.
    pub(super) endpoint: u16,
    /// Offset in the segment, and bytes.
    pub(super) range: Extent,
    pub(super) value: u8,
}

#[expect(clippy::cast_possible_truncation, reason = "halves of a word")]
pub(super) const fn halves(word: usize) -> [i32; 2] {
    let word = word as u64;
    [(word as u32).cast_signed(), ((word >> 32) as u32).cast_signed()]
}

pub(super) fn whole([low, high]: [i32; 2]) -> Option<usize> {
    let word = u64::from(low.cast_unsigned()) | u64::from(high.cast_unsigned()) << 32;
    usize::try_from(word).ok()
}

impl Fill {
    fn to_wire(self) -> [i32; WORDS] {
        let ([at, high], [len, more]) = (halves(self.range.at), halves(self.range.len));
        [self.endpoint.into(), at, high, len, more, self.value.into()]
    }

    /// `None` for what is none.
    pub(super) fn of_wire(words: &[i32]) -> Option<Self> {
        let &[endpoint, at, high, len, more, value] = words else { return None };
        Some(Self {
            endpoint: u16::try_from(endpoint).ok()?,
            range: Extent { at: whole([at, high])?, len: whole([len, more])? },
            value: u8::try_from(value).ok()?,
        })
    }
}

impl RankContext {
    /// Sets `len` bytes of the segment of a rank that shares no memory with this one, from a place
    /// on (its word, whose range was checked); complete on return.
    ///
    /// # Errors
    /// A range outside the segment, the end of the job.
    pub fn fill_remote<M: Mode>(
        &self,
        call: &'static str,
        target: usize,
        (place, len): (u64, usize),
        value: u8,
    ) -> Result<(), Error> {
        let checked = self.transport.check_remote(self.rank_of(target), place, len);
        checked.map_err(|outside| self.outside(call, outside))?;
        let Place { endpoint, offset } = Place::of(place);
        let at = usize::try_from(offset).unwrap_or(usize::MAX);
        let words = Fill { endpoint, range: Extent { at, len }, value }.to_wire();
        let (number, row) = self.begin(call)?;
        let counter = Arc::clone(&row.puts);
        let landing = Landing::Nowhere;
        let ticket = self.vis.flights.launch(Flight { call, target, counter, landing });
        let done = ticket.ok_or(Error::TooManyOperations { call }).and_then(|ticket| {
            let mut args = [0; FILL_ARGS];
            let (head, tail) = args.split_at_mut(FILL_ARGS - WORDS);
            head.copy_from_slice(&ticket.to_wire());
            tail.copy_from_slice(&words);
            let (class, handler, payload) = (MessageClass::Request, FILL, AmPayload::None);
            let message = AmMessage { class, target, handler, args: &args, payload };
            let sent = self.request::<M>(call, &message, Flags::NONE);
            if sent.is_err() {
                let _not_sent = self.vis.flights.end(ticket, target, |_| ());
            }
            let _sent = sent?;
            self.wait_remote::<M>(call, &row.puts)
        });
        self.operations.forget(number);
        done
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_fill_is_read_as_it_was_written(
            (endpoint, at, len, value) in any::<(u16, usize, usize, u8)>(),
        ) {
            let fill = Fill { endpoint, range: Extent { at, len }, value };
            prop_assert_eq!(Fill::of_wire(&fill.to_wire()), Some(fill));
        }

        #[test]
        fn any_words_are_read_or_refused(words in proptest::collection::vec(any::<i32>(), 0..9)) {
            if let Some(fill) = Fill::of_wire(&words) {
                let again = fill.to_wire();
                prop_assert_eq!(again.as_slice(), words.as_slice());
            }
        }
    }
}
