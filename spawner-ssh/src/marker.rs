//! The first line of an agent, searched for behind whatever a login prints before it.
//!
//! A login shell may print banners, and in a pipe nobody can tell them from an agent's words: so
//! the agent begins with a line that starts with a word of its own. It counts at the start of a
//! line or anywhere in one, because noise need not end with a newline.

/// Version of the messages between agents; both sides must have the same.
pub const PROTOCOL: u32 = 13;
/// Most noise that is read before the line.
pub const MAX_NOISE: usize = 64 * 1024;

const AGENT: &[u8] = b"GASNETRUN-AGENT ";
const STAGE: &[u8] = b"GASNETRUN-STAGE ";
const SEND: &[u8] = b"GASNETRUN-SEND ";
const MISSING: &[u8] = b"GASNETRUN-MISSING ";
/// Longest line of ours, bytes.
const MAX_LINE: usize = 256;

/// What the other side said first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum First {
    /// An agent, ready for messages: version of its protocol and of its crate.
    Agent {
        /// Of its messages.
        protocol: u32,
        /// Of its crate.
        version: String,
    },
    /// The script over there wants to know the agent's program.
    Stage,
    /// It does not have it yet: it wants it.
    Send,
    /// There is no agent, and none may be sent.
    Missing,
}

/// The line that an agent writes.
#[must_use]
pub fn line() -> String {
    format!("GASNETRUN-AGENT {PROTOCOL} {}\n", env!("CARGO_PKG_VERSION"))
}

/// The search in one stream.
#[derive(Debug, Default)]
pub struct Search {
    seen: Vec<u8>,
}

/// What a search has come to.
#[derive(Debug, PartialEq, Eq)]
pub enum Found {
    /// More bytes are needed.
    Nothing,
    /// The line; the bytes behind it belong to the messages.
    Line(First, Vec<u8>),
    /// More noise than anybody should print.
    TooMuch,
}

impl Search {
    /// Bytes that came.
    pub fn push(&mut self, bytes: &[u8]) -> Found {
        self.seen.extend_from_slice(bytes);
        for (word, make) in [
            (AGENT, agent as fn(&str) -> Option<First>),
            (STAGE, |_| Some(First::Stage)),
            (SEND, |_| Some(First::Send)),
            (MISSING, |_| Some(First::Missing)),
        ] {
            for at in memchr::memmem::find_iter(&self.seen, word) {
                let rest = &self.seen[at + word.len()..];
                let Some(end) = memchr::memchr(b'\n', rest) else {
                    let over = rest.len() > MAX_LINE;
                    return if over { Found::TooMuch } else { Found::Nothing };
                };
                let text = String::from_utf8_lossy(&rest[..end]).into_owned();
                if let Some(first) = make(text.trim_end()) {
                    let behind = rest[end + 1..].to_vec();
                    self.seen.truncate(at);
                    return Found::Line(first, behind);
                }
            }
        }
        if self.seen.len() > MAX_NOISE { Found::TooMuch } else { Found::Nothing }
    }

    /// What came before the line, for a diagnosis: the last part of it.
    #[must_use]
    pub fn noise(&self) -> String {
        let from = self.seen.len().saturating_sub(2048);
        String::from_utf8_lossy(&self.seen[from..]).trim().to_owned()
    }
}

fn agent(text: &str) -> Option<First> {
    let (protocol, version) = text.split_once(' ')?;
    let protocol = protocol.parse().ok()?;
    let plain = |c: char| c.is_ascii_alphanumeric() || ".-+".contains(c);
    let version: String = version.chars().filter(|c| plain(*c)).take(64).collect();
    Some(First::Agent { protocol, version })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ours() -> First {
        First::Agent { protocol: PROTOCOL, version: env!("CARGO_PKG_VERSION").into() }
    }

    proptest! {
        #[test]
        fn found_in_any_noise_however_it_is_cut(
            noise in proptest::collection::vec(any::<u8>(), 0..5000),
            behind in proptest::collection::vec(any::<u8>(), 0..100),
            cut in 1usize..600,
        ) {
            let bytes = [&noise, line().as_bytes(), &behind].concat();
            let mut search = Search::default();
            let mut rest = Vec::new();
            let mut found = None;
            for piece in bytes.chunks(cut) {
                if found.is_some() {
                    rest.extend_from_slice(piece);
                    continue;
                }
                match search.push(piece) {
                    Found::Line(first, more) => {
                        found = Some(first);
                        rest = more;
                    }
                    other => prop_assert_eq!(other, Found::Nothing),
                }
            }
            prop_assert_eq!(found, Some(ours()));
            prop_assert_eq!(rest, behind);
        }

        #[test]
        fn garbage_never_panics_and_is_bounded(
            bytes in proptest::collection::vec(any::<u8>(), 0..2000), times in 1usize..60,
        ) {
            let mut search = Search::default();
            for _ in 0..times {
                if search.push(&bytes) != Found::Nothing {
                    break;
                }
                prop_assert!(search.seen.len() <= MAX_NOISE);
            }
        }
    }

    #[test]
    fn the_other_words() {
        let first = |text: &str| Search::default().push(text.as_bytes());
        assert_eq!(first("hi\nGASNETRUN-STAGE \n"), Found::Line(First::Stage, Vec::new()));
        assert_eq!(first("GASNETRUN-MISSING \n"), Found::Line(First::Missing, Vec::new()));
        assert_eq!(first("GASNETRUN-AGENT x\n"), Found::Nothing);
        let behind = format!("GASNETRUN-AGENT x\n{}", line());
        assert_eq!(first(&behind), Found::Line(ours(), Vec::new()), "a banner may mention us");
        let old = First::Agent { protocol: 99, version: "9.9".into() };
        assert_eq!(first("motd GASNETRUN-AGENT 99 9.9\r\n"), Found::Line(old, Vec::new()));
    }

    #[test]
    fn noise_is_kept_for_the_diagnosis() {
        let mut search = Search::default();
        assert_eq!(search.push(b"Welcome!\n"), Found::Nothing);
        assert_eq!(search.noise(), "Welcome!");
        assert_eq!(search.push(&vec![b'x'; MAX_NOISE]), Found::TooMuch);
    }
}
