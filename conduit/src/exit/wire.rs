//! Messages of the machine as internal active messages: an id and words.

use super::machine::{Code, MAX_ROUNDS, Message};

const REDUCE: u8 = 1;
const ROLE_REQUEST: u8 = 2;
const ROLE_REPLY: u8 = 3;
const EXIT_REQUEST: u8 = 4;
const EXIT_REPLY: u8 = 5;

/// A message's id and words; the second number says how many words count.
pub(super) fn encode(message: Message) -> (u8, [i32; 2], usize) {
    match message {
        Message::Reduce { round, code } => (REDUCE, [i32::from(round), code.get()], 2),
        Message::RoleRequest => (ROLE_REQUEST, [0; 2], 0),
        Message::RoleReply { leader } => (ROLE_REPLY, [i32::from(leader), 0], 1),
        Message::ExitRequest { code } => (EXIT_REQUEST, [code.get(), 0], 1),
        Message::ExitReply => (EXIT_REPLY, [0; 2], 0),
    }
}

/// The message, `None` when the words are none.
pub(super) fn decode(id: u8, args: &[i32]) -> Option<Message> {
    Some(match (id, args) {
        (REDUCE, &[round, code]) => {
            let round = u8::try_from(round).ok().filter(|round| *round < MAX_ROUNDS)?;
            Message::Reduce { round, code: Code::new(code) }
        }
        (ROLE_REQUEST, []) => Message::RoleRequest,
        (ROLE_REPLY, &[leader @ (0 | 1)]) => Message::RoleReply { leader: leader == 1 },
        (EXIT_REQUEST, &[code]) => Message::ExitRequest { code: Code::new(code) },
        (EXIT_REPLY, []) => Message::ExitReply,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_survives_the_wire() {
        let messages = [
            Message::Reduce { round: 0, code: Code::new(-1) },
            Message::Reduce { round: 31, code: Code(255) },
            Message::RoleRequest,
            Message::RoleReply { leader: true },
            Message::RoleReply { leader: false },
            Message::ExitRequest { code: Code(7) },
            Message::ExitReply,
        ];
        for message in messages {
            let (id, words, count) = encode(message);
            assert_eq!(decode(id, &words[..count]), Some(message));
            assert_eq!(decode(id, &[0; 3]), None, "{message:?} with too many words");
        }
    }

    #[test]
    fn bad_words_are_no_message() {
        for (id, words) in [
            (0, &[][..]),
            (1, &[-1, 0]),
            (1, &[32, 0]),
            (1, &[256, 0]),
            (3, &[2]),
            (6, &[]),
            (255, &[]),
        ] {
            assert_eq!(decode(id, words), None, "{id} {words:?}");
        }
    }
}
