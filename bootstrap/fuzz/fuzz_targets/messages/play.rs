//! What the target does with its input. The normal tests do the same with seeds and with changed
//! seeds.

use bootstrap::collective::{Action, Branch, Bytes, Collective, Down, Node, TreeMessage, Up};
use bootstrap::frame::{Frame, Kind};
use bootstrap::{HostId, Rank};

/// Who speaks, as the first byte of each message says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Speaker {
    /// The agent of a branch; 2 is none.
    Child(usize),
    /// The agent above.
    Parent,
    /// A rank of this host.
    Rank(u32),
}

impl Speaker {
    /// All of them, by their byte.
    pub(crate) const ALL: [Self; 6] = [
        Self::Child(0),
        Self::Child(1),
        Self::Child(2),
        Self::Parent,
        Self::Rank(0),
        Self::Rank(3),
    ];
}

/// The node: ranks 0 and 3 on its host, 4 and 1 below its first branch, 2 below the second, 5
/// elsewhere when there is an agent above.
pub(crate) fn node(parent: bool) -> Option<Collective> {
    let branch = |host, ranks: &[u32]| Branch {
        host: HostId(host),
        ranks: ranks.iter().copied().map(Rank).collect(),
    };
    let branches = vec![branch(1, &[4, 1]), branch(2, &[2])];
    let ranks = vec![Rank(0), Rank(3)];
    let size = if parent { 6 } else { 5 };
    Collective::node(Node { size, host: HostId(0), ranks, branches, parent }).ok()
}

/// Bytes of the longest datum in an action or message.
fn longest(actions: &[Action], messages: &[TreeMessage]) -> usize {
    let action = |action: &Action| match action {
        Action::Mapped { pieces, .. } => pieces.iter().map(Bytes::len).sum(),
        Action::Data { bytes, .. } => bytes.len(),
        _ => 0,
    };
    let message = |message: &TreeMessage| match message {
        TreeMessage::Up(Up::Contribution(part)) => part.bytes.len(),
        TreeMessage::Down {
            message: Down::Result { bytes, .. } | Down::Piece { bytes, .. },
            ..
        } => bytes.len(),
        _ => 0,
    };
    let all = actions.iter().map(action).chain(messages.iter().map(message));
    all.max().unwrap_or(0)
}

/// Plays `bytes` to a node with an agent above and to one without: the machine never panics, and
/// nothing that it gives is longer than what came. Returns how many messages were taken.
pub(crate) fn play(bytes: &[u8]) -> usize {
    [true, false].into_iter().filter_map(node).map(|machine| play_to(machine, bytes)).sum()
}

fn play_to(mut machine: Collective, bytes: &[u8]) -> usize {
    let (mut rest, mut taken) = (bytes, 0);
    while let Some((who, tail)) = rest.split_first() {
        let outcome = match Speaker::ALL[usize::from(*who) % Speaker::ALL.len()] {
            Speaker::Child(index) => {
                let Ok((message, after)) = postcard::take_from_bytes::<Up>(tail) else { break };
                rest = after;
                machine.from_child(index, message)
            }
            Speaker::Parent => {
                let Ok((message, after)) = postcard::take_from_bytes::<Down>(tail) else { break };
                rest = after;
                machine.from_parent(message)
            }
            Speaker::Rank(rank) => {
                let Ok(Some((frame, used))) = Frame::decode(tail) else { break };
                rest = &tail[used..];
                match frame.kind {
                    Kind::Fini => machine.fini(Rank(rank)),
                    // A frame in the sender's own name goes deeper.
                    _ => machine.handle(Rank(rank), &Frame { rank, ..frame }),
                }
            }
        };
        if let Err(error) = &outcome {
            assert!(!error.to_string().is_empty());
        }
        taken += usize::from(outcome.is_ok());
        let actions = outcome.unwrap_or_default();
        let messages: Vec<TreeMessage> = std::iter::from_fn(|| machine.poll_transmit()).collect();
        assert!(longest(&actions, &messages) <= bytes.len());
        let _ = machine.stuck();
    }
    taken
}
