//! What a message of a collective says beside its data. Pure.

use super::group::TeamId;
use super::machine::Mark;
use crate::transport::limits::MAX_ARGS;

/// Handler index of the messages; below the client's range.
pub(crate) const HANDLER: u8 = 64;
/// That of those whose data is among their arguments.
pub(crate) const BRIEF_HANDLER: u8 = 66;
/// Arguments of a message that say what it is.
pub(crate) const WORDS: usize = 9;
/// Words of data that find room behind them.
const DATA_WORDS: usize = MAX_ARGS - WORDS;

settings::named! {
    /// What members do together.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[repr(u8)]
    pub(crate) enum Kind {
        Barrier = "a barrier",
        Broadcast = "a broadcast",
        ReduceToOne = "a reduction to one",
        ReduceToAll = "a reduction to all",
        /// Of the library: making teams, publishing segments.
        Gather = "a call that makes teams or publishes segments",
        Scatter = "a scatter",
        GatherToOne = "a gather to one",
        GatherToAll = "a gather to all",
        Exchange = "an exchange",
        Scan = "a scan",
    }
}

/// What all members of a collective must agree on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Signature {
    pub(crate) kind: Kind,
    /// Of root, types and operation.
    pub(crate) check: u16,
    /// Payload bytes of a member.
    pub(crate) len: u64,
}

impl Signature {
    pub(crate) fn new(kind: Kind, arguments: [u64; 4], len: usize) -> Self {
        let mix =
            |seed: u64, word: u64| (seed ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ word >> 7;
        let [.., high, low] = arguments.into_iter().fold(7, mix).to_be_bytes();
        let [high_too, ..] = arguments.into_iter().fold(3, mix).to_be_bytes();
        let check = u16::from_be_bytes([high ^ high_too, low]);
        Self { kind, check, len: len as u64 }
    }

    /// Payload bytes of a member, of a small one.
    pub(super) fn bytes(self) -> usize {
        usize::try_from(self.len).unwrap_or(0)
    }

    /// One word of all of it, for payloads of less than 64 KiB.
    pub(super) const fn word(self) -> u64 {
        (self.kind as u64) << 32 | (self.check as u64) << 16 | self.len & 0xffff
    }

    /// What another member's word says; `None` for none.
    pub(super) fn of_word(word: u64) -> Option<Self> {
        let [len, len_high, check, check_high, kind, 0, 0, 0] = word.to_le_bytes() else {
            return None;
        };
        let kind = *Kind::ALL.get(usize::from(kind))?;
        let [check, len] = [[check, check_high], [len, len_high]].map(u16::from_le_bytes);
        Some(Self { kind, check, len: u64::from(len) })
    }

    /// What is wrong when another member's is not this.
    pub(super) fn problem(self, other: Self) -> Option<String> {
        let (here, there) = (self.kind.name(), other.kind.name());
        if self.kind != other.kind {
            return Some(format!("begins {there} where this rank begins {here}"));
        }
        if self.len != other.len {
            return Some(format!(
                "begins {there} of {} bytes, this rank one of {} bytes",
                other.len, self.len
            ));
        }
        (self.check != other.check).then(|| {
            format!("begins {there} with another root, type, size of elements or operation")
        })
    }
}

/// The words of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) team: TeamId,
    /// Number of the collective in its team.
    pub(crate) number: u32,
    pub(crate) signature: Signature,
    pub(crate) mark: Mark,
}

/// The data of a message that has it among its arguments.
pub(crate) struct Brief {
    words: [[u8; 4]; DATA_WORDS],
    count: usize,
}

impl Brief {
    /// The words that say what a message is, and its data, of what [`Head::encode_brief`] made.
    pub(crate) fn of(args: &[i32]) -> (&[i32], Self) {
        let (head, rest) = args.split_at(args.len().min(WORDS));
        let mut words = [[0; 4]; DATA_WORDS];
        for (to, word) in words.iter_mut().zip(rest) {
            *to = word.to_ne_bytes();
        }
        (head, Self { words, count: rest.len().min(DATA_WORDS) })
    }

    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        self.words[..self.count].as_flattened_mut()
    }
}

#[expect(clippy::cast_possible_truncation, reason = "halves of a word")]
pub(super) const fn halves(word: u64) -> [i32; 2] {
    [(word as u32).cast_signed(), ((word >> 32) as u32).cast_signed()]
}

pub(super) fn joined(low: i32, high: i32) -> u64 {
    u64::from(high.cast_unsigned()) << 32 | u64::from(low.cast_unsigned())
}

impl Head {
    pub(crate) fn encode(self) -> [i32; WORDS] {
        let Signature { kind, check, len } = self.signature;
        let what = u32::from(kind as u8) | u32::from(self.mark.tag) << 8 | u32::from(check) << 16;
        let ([team, team_high], [len, len_high]) = (halves(self.team), halves(len));
        let [at, at_high] = halves(self.mark.at);
        let [number, lane] = [self.number, self.mark.lane].map(u32::cast_signed);
        [team, team_high, number, what.cast_signed(), lane, at, at_high, len, len_high]
    }

    /// The arguments of a message that has `data` among them, and how many they are; `None` for
    /// what is no few whole words.
    pub(crate) fn encode_brief(self, data: &[u8]) -> Option<([i32; MAX_ARGS], usize)> {
        let (words, rest) = data.as_chunks();
        if !rest.is_empty() || words.len() > DATA_WORDS {
            return None;
        }
        let mut args = [0; MAX_ARGS];
        let (head, room) = args.split_at_mut(WORDS);
        head.copy_from_slice(&self.encode());
        for (to, word) in room.iter_mut().zip(words) {
            *to = i32::from_ne_bytes(*word);
        }
        Some((args, WORDS + words.len()))
    }

    pub(crate) fn decode(words: &[i32]) -> Option<Self> {
        let &[team, team_high, number, what, lane, at, at_high, len, len_high] = words else {
            return None;
        };
        let [kind, tag, check @ ..] = what.cast_unsigned().to_le_bytes();
        let kind = *Kind::ALL.get(usize::from(kind))?;
        let check = u16::from_le_bytes(check);
        Some(Self {
            team: joined(team, team_high),
            number: number.cast_unsigned(),
            signature: Signature { kind, check, len: joined(len, len_high) },
            mark: Mark { tag, lane: lane.cast_unsigned(), at: joined(at, at_high) },
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn words_survive_the_wire(
            team: u64, number: u32, kind in 0_usize..10, check: u16, len: u64, tag: u8, lane: u32, at: u64,
        ) {
            let signature = Signature { kind: Kind::ALL[kind], check, len };
            let head = Head { team, number, signature, mark: Mark { tag, lane, at } };
            prop_assert_eq!(Head::decode(&head.encode()), Some(head));
            let short = Signature { len: len & 0xffff, ..signature };
            prop_assert_eq!(Signature::of_word(short.word()), Some(short));
        }

        #[test]
        fn few_words_travel_among_the_arguments(
            number: u32, data in proptest::collection::vec(any::<u8>(), 0..40),
        ) {
            let signature = Signature { kind: Kind::ReduceToAll, check: 7, len: data.len() as u64 };
            let mark = Mark { tag: 64, lane: 0, at: 0 };
            let head = Head { team: 1 << 40, number, signature, mark };
            let brief = head.encode_brief(&data);
            prop_assert_eq!(brief.is_some(), data.len() % 4 == 0 && data.len() <= 28);
            if let Some((args, count)) = brief {
                let (words, mut brief) = Brief::of(&args[..count]);
                prop_assert_eq!(Head::decode(words), Some(head));
                prop_assert_eq!(brief.bytes(), &data[..]);
            }
        }

        #[test]
        fn whatever_arrives_is_looked_at(words in proptest::collection::vec(any::<i32>(), 0..12)) {
            let (head, mut data) = Brief::of(&words);
            prop_assert_eq!(head.len() + data.bytes().len() / 4, words.len());
            if let Some(head) = Head::decode(&words) {
                prop_assert_eq!(head.encode().to_vec(), words);
            }
        }
    }

    #[test]
    fn members_that_differ_are_told_how() {
        let sum = Signature::new(Kind::ReduceToAll, [0, 4, 1, 0], 80);
        let product = Signature::new(Kind::ReduceToAll, [0, 4, 2, 0], 80);
        assert_eq!(sum.problem(sum), None);
        assert!(sum.problem(product).expect("a problem").contains("another root"));
        let longer = Signature { len: 88, ..sum };
        assert!(sum.problem(longer).expect("a problem").contains("of 88 bytes"));
        let barrier = Signature::new(Kind::Barrier, [0; 4], 0);
        assert_eq!(
            sum.problem(barrier).as_deref(),
            Some("begins a barrier where this rank begins a reduction to all")
        );
    }
}
