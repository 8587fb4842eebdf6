//! A stream of frames from any senders into the machine that matches collective calls.

use bootstrap::Rank;
use bootstrap::collective::{Action, Bytes, Collective};
use bootstrap::frame::{Frame, Kind};

/// One input.
pub(crate) fn run(bytes: &[u8]) {
    let mut machine = Collective::new(4);
    let mut rest = bytes;
    while let Some((from, tail)) = rest.split_first() {
        let Ok(Some((frame, used))) = Frame::decode(tail) else { return };
        rest = &tail[used..];
        let from = Rank(u32::from(*from % 5));
        // A frame in the sender's own name goes deeper.
        let own = Frame { rank: from.0, ..frame };
        let actions = match frame.kind {
            Kind::Fini => machine.fini(from),
            _ => machine.handle(from, &own),
        };
        let size = |action: &Action| match action {
            Action::Mapped { pieces, .. } => pieces.iter().map(Bytes::len).sum(),
            Action::Data { bytes, .. } => bytes.len(),
            _ => 0,
        };
        let given: usize = actions.iter().flatten().map(size).sum();
        assert!(given <= 4 * bytes.len());
        let _ = machine.stuck();
    }
}
