//! Records of all ranks to one timeline: slices on the threads of ranks, and arrows between them.
//!
//! The k-th request that a rank sent to another belongs to the k-th that the other handled from it,
//! and so for replies; records say which they are, so that those that were overwritten are no gap.
//! Threads of a rank, and ways through shared memory that are mixed, may change the order: an arrow
//! is drawn only where the handler is the same and did not end before the message was sent.

use std::collections::{BTreeMap, HashMap};

use bootstrap::trace::{CATEGORIES, Cause, Kind, Mark, REPLY, Record, Slot, TEXT_BYTES};

use super::nest::nest;

/// Something on a thread of a rank, for some time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Slice {
    pub(super) rank: u32,
    pub(super) thread: u8,
    /// Nanoseconds since the first event.
    pub(super) at: u64,
    pub(super) span: u64,
    /// A moment, not a length of time.
    pub(super) instant: bool,
    pub(super) category: &'static str,
    pub(super) name: String,
    /// Names and values, for people who look closely.
    pub(super) about: Vec<(&'static str, String)>,
}

/// From a slice of one rank to a slice of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Arrow {
    /// Rank, thread and time of each end.
    pub(super) from: (u32, u8, u64),
    pub(super) to: (u32, u8, u64),
    pub(super) reply: bool,
}

/// All of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Timeline {
    pub(super) slices: Vec<Slice>,
    pub(super) arrows: Vec<Arrow>,
    /// Handled messages whose sending is not there, or does not fit.
    pub(super) loose: u64,
    /// Events that ranks have overwritten.
    pub(super) lost: u64,
    /// Ranks that have left nothing.
    pub(super) silent: u32,
    /// How far times of two hosts may be apart, nanoseconds.
    pub(super) clock_error: u64,
}

/// Sender, receiver, whether it is a reply.
type Way = (u32, u32, bool);

/// Makes the timeline of the slots of all ranks.
pub(super) fn timeline(slots: &[Option<Slot>]) -> Timeline {
    let ranks = || (0_u32..).zip(slots).filter_map(|(rank, slot)| Some((rank, slot.as_ref()?)));
    let begin = ranks().flat_map(|(_, slot)| &slot.records).filter(|r| r.kind != Kind::More);
    let begin = begin.map(|record| record.at).min().unwrap_or(0);
    let names: HashMap<u8, &str> = ranks()
        .flat_map(|(_, slot)| slot.names.iter().map(|(index, name)| (*index, name.as_str())))
        .collect();
    let silent = slots.iter().filter(|slot| slot.is_none()).count();
    let silent = u32::try_from(silent).unwrap_or(u32::MAX);
    let mut result = Timeline { silent, ..Timeline::default() };
    for (rank, slot) in ranks() {
        result.lost += slot.lost;
        for (at, record) in slot.records.iter().enumerate() {
            let text = || text_of(&slot.records[at..]);
            result.slices.extend(slice(rank, record, begin, &names, text));
        }
    }
    nest(&mut result.slices);
    arrows(ranks, begin, &mut result);
    result
}

/// The text whose first record is the first of these.
fn text_of(records: &[Record]) -> String {
    let Some((head, rest)) = records.split_first() else { return String::new() };
    let mut bytes = Vec::new();
    for record in rest.iter().take_while(|record| record.kind == Kind::More) {
        let runs = u64::from(record.ordinal) | u64::from(record.count) << 32;
        for word in [record.span, record.bytes, runs] {
            bytes.extend(word.to_ne_bytes());
        }
    }
    bytes.truncate(usize::try_from(head.bytes).unwrap_or(usize::MAX));
    String::from_utf8_lossy(&bytes).trim_end().to_owned()
}
const _: () = assert!(TEXT_BYTES == 24, "three words");

fn slice(
    rank: u32,
    record: &Record,
    begin: u64,
    names: &HashMap<u8, &str>,
    text: impl FnOnce() -> String,
) -> Option<Slice> {
    let Record { kind, detail, flavor, thread, peer, bytes, count, .. } = *record;
    let mut about: Vec<(&'static str, String)> = Vec::new();
    let handler =
        || names.get(&detail).map_or_else(|| detail.to_string(), |name| (*name).to_owned());
    let (category, name, instant) = match kind {
        Kind::Sent | Kind::Handled => {
            let class = if flavor & REPLY == 0 { "request" } else { "reply" };
            let category = CATEGORIES.get(usize::from(flavor >> 1)).unwrap_or(&"message");
            let way = if kind == Kind::Sent { "to" } else { "from" };
            about.push(("handler", format!("{detail} {}", handler())));
            about.push(("messages", count.to_string()));
            match kind {
                Kind::Sent => ("send", format!("{category} {class} {way} {peer}"), false),
                _ => ("handler", handler(), false),
            }
        }
        Kind::Put => ("rma", format!("put to {peer}"), false),
        Kind::Get => ("rma", format!("get from {peer}"), false),
        Kind::Atomic => ("rma", format!("atomic at {peer}"), false),
        Kind::Waited => {
            let cause = Cause::of(detail)?;
            let category = if cause.is_stall() { "stall" } else { "wait" };
            (category, cause.name().to_owned(), false)
        }
        Kind::Barrier if detail == 1 => ("barrier", "barrier notify".to_owned(), true),
        Kind::Barrier => ("barrier", "barrier".to_owned(), false),
        Kind::Collective => ("collective", "collective".to_owned(), true),
        Kind::Registered => ("memory", "register".to_owned(), false),
        Kind::Connected => ("connection", format!("connected to {peer}"), true),
        Kind::Exiting => ("exit", format!("exit, code {}", peer.cast_signed()), true),
        Kind::Marked => ("rank", Mark::of(detail)?.name().to_owned(), true),
        Kind::Text => ("program", text(), true),
        Kind::Nothing | Kind::More => return None,
    };
    if bytes > 0 && kind != Kind::Text {
        about.push(("bytes", bytes.to_string()));
    }
    if matches!(kind, Kind::Sent | Kind::Handled) {
        about.push(("peer", peer.to_string()));
    }
    let (at, span) = (record.at.saturating_sub(begin), record.span);
    Some(Slice { rank, thread, at, span, instant, category, name, about })
}

/// Joins what was sent with what was handled, in the slices that were drawn of both.
fn arrows<'a, I: Iterator<Item = (u32, &'a Slot)>>(
    ranks: impl Fn() -> I,
    begin: u64,
    result: &mut Timeline,
) {
    let drawn = Drawn::of(&result.slices, begin);
    let mut sent: HashMap<Way, BTreeMap<u32, Record>> = HashMap::new();
    for (rank, slot) in ranks() {
        for record in slot.records.iter().filter(|record| record.kind == Kind::Sent) {
            let way = (rank, record.peer, record.flavor & REPLY != 0);
            sent.entry(way).or_default().insert(record.ordinal, drawn.cut(rank, record, "send"));
        }
    }
    let mut found = Vec::new();
    for (rank, slot) in ranks() {
        for record in slot.records.iter().filter(|record| record.kind == Kind::Handled) {
            let record = drawn.cut(rank, record, "handler");
            let reply = record.flavor & REPLY != 0;
            let of_way = sent.get(&(record.peer, rank, reply));
            let before = of_way.and_then(|all| all.range(..=record.ordinal).next_back());
            let sender = before.map(|(_, sender)| sender).filter(|sender| fits(sender, &record));
            let Some(sender) = sender else {
                result.loose += 1;
                continue;
            };
            // Inside both slices, and forward.
            let start = record.at.clamp(sender.at, sender.at + sender.span);
            let end = start.clamp(record.at, record.at + record.span);
            found.push(Arrow {
                from: (record.peer, sender.thread, start.saturating_sub(begin)),
                to: (rank, record.thread, end.saturating_sub(begin)),
                reply,
            });
        }
    }
    result.arrows = found;
}

/// How long slices are drawn, by rank, thread, begin and category. What a thread does while it sends
/// ends the handler that it is in, so a slice may be drawn shorter than its record.
struct Drawn {
    begin: u64,
    spans: HashMap<(u32, u8, u64, &'static str), u64>,
}

impl Drawn {
    fn of(slices: &[Slice], begin: u64) -> Self {
        let mut spans = HashMap::new();
        for slice in slices.iter().filter(|slice| !slice.instant) {
            let span: &mut u64 = spans
                .entry((slice.rank, slice.thread, slice.at, slice.category))
                .or_insert(slice.span);
            *span = slice.span.max(*span);
        }
        Self { begin, spans }
    }

    /// A record as it is drawn.
    fn cut(&self, rank: u32, record: &Record, category: &'static str) -> Record {
        let key = (rank, record.thread, record.at.saturating_sub(self.begin), category);
        let span = self.spans.get(&key).copied().unwrap_or(record.span);
        Record { span, ..*record }
    }
}

/// Whether a message that was sent can be one that was handled.
fn fits(sent: &Record, handled: &Record) -> bool {
    handled.ordinal.wrapping_sub(sent.ordinal) < sent.count.max(1)
        && sent.detail == handled.detail
        && sent.flavor == handled.flavor
        && sent.at <= handled.at.saturating_add(handled.span)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn message(kind: Kind, at: u64, peer: u32, ordinal: u32, count: u32) -> Record {
        Record { detail: 200, peer, ordinal, count, span: 5, ..Record::new(kind, at) }
    }

    fn slot(records: Vec<Record>) -> Option<Slot> {
        let names = vec![(200, "ping".to_owned())];
        Some(Slot { records, names, lost: 1, ..Slot::default() })
    }

    #[test]
    fn messages_are_arrows_from_sender_to_handler() {
        let sender =
            slot(vec![message(Kind::Sent, 1_000, 1, 0, 3), message(Kind::Sent, 1_100, 1, 3, 1)]);
        let receiver = slot(vec![
            message(Kind::Handled, 1_050, 0, 0, 1),
            message(Kind::Handled, 1_060, 0, 1, 2),
            message(Kind::Handled, 1_200, 0, 3, 1),
        ]);
        let merged = timeline(&[sender, receiver, None]);
        assert_eq!((merged.arrows.len(), merged.loose), (3, 0));
        assert_eq!((merged.lost, merged.silent), (2, 1));
        assert_eq!(merged.arrows[0].from, (0, 0, 5), "the end of the slice is the last moment");
        assert_eq!(merged.arrows[2].to, (1, 0, 200));
        let names: Vec<&str> = merged.slices.iter().map(|slice| slice.name.as_str()).collect();
        assert_eq!(names, ["Short request to 1", "ping", "ping", "Short request to 1", "ping"]);
    }

    #[test]
    fn what_does_not_fit_is_no_arrow() {
        let sent = message(Kind::Sent, 1_000, 1, 4, 2);
        for other in [
            message(Kind::Handled, 1_050, 0, 6, 1),
            message(Kind::Handled, 1_050, 0, 3, 1),
            Record { detail: 201, ..message(Kind::Handled, 1_050, 0, 4, 1) },
            Record { flavor: REPLY, ..message(Kind::Handled, 1_050, 0, 4, 1) },
            message(Kind::Handled, 900, 0, 4, 1),
        ] {
            let merged = timeline(&[slot(vec![sent]), slot(vec![other])]);
            assert_eq!((merged.arrows.len(), merged.loose), (0, 1), "{other:?}");
        }
    }

    #[test]
    fn an_arrow_begins_in_what_is_drawn_of_its_message() {
        // The handler in which the message is sent ends while it is sent.
        let handler = Record { span: 50, ..message(Kind::Handled, 1_000, 1, 0, 1) };
        let sent = Record { span: 400, ..message(Kind::Sent, 1_020, 1, 0, 1) };
        let there = Record { span: 100, ..message(Kind::Handled, 1_300, 0, 0, 1) };
        let merged = timeline(&[slot(vec![handler, sent]), slot(vec![there])]);
        assert_eq!((merged.slices[1].at, merged.slices[1].span), (20, 30), "cut");
        let arrow = merged.arrows[0];
        assert_eq!((arrow.from, arrow.to), ((0, 0, 50), (1, 0, 300)));
    }

    #[test]
    fn texts_and_moments() {
        let bytes = b"a text of 31 bytes, as it comes";
        let word = |at: usize| {
            let mut word = [0; 8];
            let part = &bytes[at.min(bytes.len())..bytes.len().min(at + 8)];
            word[..part.len()].copy_from_slice(part);
            u64::from_ne_bytes(word)
        };
        let more = |at| {
            let runs = word(at + 16);
            #[expect(clippy::cast_possible_truncation, reason = "halves")]
            let (ordinal, count) = (runs as u32, (runs >> 32) as u32);
            let new = Record::new(Kind::More, 3);
            Record { span: word(at), bytes: word(at + 8), ordinal, count, ..new }
        };
        let head = Record { bytes: 31, ..Record::new(Kind::Text, 7) };
        let exit = Record { peer: 3, ..Record::new(Kind::Exiting, 9) };
        let merged = timeline(&[slot(vec![head, more(0), more(24), exit])]);
        assert_eq!(merged.slices.len(), 2);
        assert_eq!(merged.slices[0].name, "a text of 31 bytes, as it comes");
        assert_eq!((merged.slices[1].name.as_str(), merged.slices[1].at), ("exit, code 3", 2));
        assert!(merged.slices.iter().all(|slice| slice.instant));
    }

    proptest! {
        #[test]
        fn every_arrow_joins_slices_and_points_forward(
            runs in proptest::collection::vec((1_u32..5, 0_u64..50), 1..30),
            delay in 0_u64..200, keep in 0_usize..30,
        ) {
            let (mut at, mut ordinal) = (1_000, 0);
            let (mut sent, mut handled) = (Vec::new(), Vec::new());
            for (count, pause) in &runs {
                at += pause;
                sent.push(message(Kind::Sent, at, 1, ordinal, *count));
                for one in 0..*count {
                    handled.push(message(Kind::Handled, at + delay, 0, ordinal + one, 1));
                }
                ordinal += count;
                at += 5;
            }
            let total = handled.len() as u64;
            // The oldest of the sender's are gone.
            let gone = keep.min(sent.len());
            let sent = sent.split_off(gone);
            let left: u32 = sent.iter().map(|record| record.count).sum();
            let merged = timeline(&[slot(sent), slot(handled)]);
            prop_assert_eq!(merged.arrows.len() as u64, u64::from(left));
            prop_assert_eq!(merged.loose, total - u64::from(left));
            for arrow in &merged.arrows {
                prop_assert!(arrow.from.2 <= arrow.to.2);
                for (rank, thread, at) in [arrow.from, arrow.to] {
                    let around = merged.slices.iter().any(|slice| {
                        (slice.rank, slice.thread) == (rank, thread)
                            && (slice.at..=slice.at + slice.span).contains(&at)
                    });
                    prop_assert!(around);
                }
            }
        }
    }
}
