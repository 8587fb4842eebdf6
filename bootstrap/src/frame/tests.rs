use proptest::prelude::*;

use super::*;

fn any_frame() -> impl Strategy<Value = (Kind, [u32; 5], Vec<u8>, u32)> {
    let kind = proptest::sample::select(Kind::ALL.to_vec());
    let payload = proptest::collection::vec(any::<u8>(), 0..200);
    (kind, any::<[u32; 5]>(), payload, 0u32..1 << 20)
}

/// A legal frame out of anything.
fn legal<'a>(kind: Kind, words: [u32; 5], payload: &'a [u8], offset: u32) -> Frame<'a> {
    let [seq, rank, arg, extra, slack] = words;
    let (payload, offset) = if kind.carries_data() { (payload, offset) } else { (&[][..], 0) };
    let least = offset + u32::try_from(payload.len()).unwrap();
    let total = if kind.carries_data() { least + slack % (1 << 20) } else { slack % (1 << 30) };
    Frame { kind, seq, rank, arg, total, offset, extra, payload }
}

fn bytes_of(frame: &Frame<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame.encode(&mut bytes);
    bytes
}

proptest! {
    #[test]
    fn frames_come_back((kind, words, payload, offset) in any_frame(), tail in proptest::collection::vec(any::<u8>(), 0..40)) {
        let frame = legal(kind, words, &payload, offset);
        let mut bytes = bytes_of(&frame);
        let len = bytes.len();
        for short in 0..len {
            prop_assert_eq!(Frame::decode(&bytes[..short]), Ok(None));
            let truncated = matches!(Frame::from_packet(&bytes[..short], u32::MAX), Err(FrameError::Truncated { .. }));
            prop_assert!(truncated);
        }
        prop_assert_eq!(Frame::from_packet(&bytes, u32::MAX).ok(), (frame.rank < u32::MAX).then_some(frame));
        bytes.extend(&tail);
        prop_assert_eq!(Frame::decode(&bytes), Ok(Some((frame, len))));
        prop_assert_eq!(Frame::from_packet(&bytes, u32::MAX).is_ok(), tail.is_empty() && frame.rank < u32::MAX);
    }

    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300), size: u32) {
        let _ = (Frame::decode(&bytes), Frame::from_packet(&bytes, size));
    }

    /// Nothing in a header is overlooked: a changed header is refused or means exactly what it
    /// says.
    #[test]
    fn changed_headers_are_refused_or_taken_literally(
        (kind, words, payload, offset) in any_frame(), at in 0..HEADER_LEN, value: u8,
    ) {
        let mut bytes = bytes_of(&legal(kind, words, &payload, offset));
        bytes[at] = value;
        if let Ok(Some((frame, used))) = Frame::decode(&bytes) {
            prop_assert_eq!(bytes_of(&frame), &bytes[..used]);
            prop_assert!(frame.payload.len() <= MAX_PAYLOAD);
            prop_assert!(frame.kind == Kind::HostMemory || frame.total as usize <= MAX_TOTAL);
            if frame.kind.carries_data() {
                prop_assert!(frame.offset as usize + frame.payload.len() <= frame.total as usize);
            }
        }
    }

    #[test]
    fn pieces_join_to_the_whole(len in 0usize..4 * MAX_PAYLOAD) {
        let data: Vec<u8> = (0..len).map(|i| i.to_le_bytes()[0]).collect();
        let mut joined = Vec::new();
        for piece in Frame::pieces(Frame::bare(Kind::Data, 7, 3, 9), &data) {
            let bytes = bytes_of(&piece);
            let frame = Frame::from_packet(&bytes, 4).unwrap();
            prop_assert_eq!((frame.seq, frame.rank, frame.arg), (7, 3, 9));
            prop_assert_eq!((frame.offset as usize, frame.total as usize), (joined.len(), len));
            joined.extend_from_slice(frame.payload);
        }
        prop_assert_eq!(joined, data);
    }
}

#[test]
fn limits_hold_at_their_edges() {
    let payload = vec![0; MAX_PAYLOAD + 1];
    let with = |len: usize, total: usize| {
        let total = u32::try_from(total).unwrap();
        let bytes = bytes_of(&Frame {
            total,
            payload: &payload[..len],
            ..Frame::bare(Kind::Data, 1, 0, 0)
        });
        Frame::from_packet(&bytes, 1).map(|frame| frame.payload.len())
    };
    assert_eq!(with(MAX_PAYLOAD, MAX_TOTAL), Ok(MAX_PAYLOAD));
    assert!(matches!(with(MAX_PAYLOAD + 1, MAX_TOTAL), Err(FrameError::Length { .. })));
    assert!(matches!(with(1, MAX_TOTAL + 1), Err(FrameError::Length { .. })));
    assert!(matches!(with(2, 1), Err(FrameError::Length { .. })));
    let huge = Frame { total: u32::MAX, extra: u32::MAX, ..Frame::bare(Kind::HostMemory, 1, 0, 0) };
    assert_eq!(Frame::from_packet(&bytes_of(&huge), 1), Ok(huge));
}

#[test]
fn refusals_name_what_was_seen() {
    let good = bytes_of(&Frame::bare(Kind::Barrier, 1, 5, 0));
    let changed = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] = value;
        Frame::from_packet(&bytes, 6).unwrap_err().to_string()
    };
    assert!(changed(0, 0).contains("does not speak this protocol"));
    assert!(changed(2, 9).contains("version 9"));
    assert!(changed(3, 0).contains("kind 0"));
    assert!(changed(3, 18).contains("kind 18"));
    assert!(changed(24, 1).contains("out of bounds"));
    assert!(changed(8, 6).contains("rank 6"));
    assert!(Frame::from_packet(&good, 5).unwrap_err().to_string().contains("the job has 5 ranks"));
}
