//! The fuzz target for messages between agents, with its seeds: plays that are right, and the same
//! with bytes changed.
#![expect(clippy::unwrap_used, reason = "a failure here is a failure of the test")]

#[path = "../fuzz/fuzz_targets/messages/play.rs"]
mod play;

use std::path::Path;

use bootstrap::Rank;
use bootstrap::collective::{Contribution, Down, Gone, Service, Up};
use bootstrap::frame::{Frame, Kind};
use play::Speaker;
use proptest::prelude::*;

/// A play as the target reads it.
#[derive(Default)]
struct Play(Vec<u8>);

impl Play {
    fn who(&mut self, speaker: Speaker) {
        let at = Speaker::ALL.iter().position(|one| *one == speaker).unwrap();
        self.0.push(u8::try_from(at).unwrap());
    }

    fn up(mut self, index: usize, message: &Up) -> Self {
        self.who(Speaker::Child(index));
        self.0.extend(postcard::to_stdvec(message).unwrap());
        self
    }

    fn part(self, index: usize, number: u32, service: Service, len: usize) -> Self {
        self.part_after(0, index, number, service, len)
    }

    /// As `part`, when its ranks have made `on_host` broadcasts inside their hosts.
    fn part_after(
        self,
        on_host: u32,
        index: usize,
        number: u32,
        service: Service,
        len: usize,
    ) -> Self {
        let first = Rank([4, 2][index]);
        let bytes = (0u8..).take(len).collect::<Vec<u8>>().into();
        self.up(index, &Up::Contribution(Contribution { number, service, on_host, first, bytes }))
    }

    fn down(mut self, message: &Down) -> Self {
        self.who(Speaker::Parent);
        self.0.extend(postcard::to_stdvec(message).unwrap());
        self
    }

    fn answer(self, number: u32, len: usize) -> Self {
        self.down(&Down::Result { number, bytes: vec![5; len].into() })
    }

    /// Both ranks of the host.
    fn ranks(mut self, kind: Kind, seq: u32, arg: u32, len: usize) -> Self {
        for rank in [0, 3] {
            self.who(Speaker::Rank(rank));
            let gives = kind != Kind::Broadcast || arg == rank;
            let payload = vec![7; if gives { len } else { 0 }];
            let total = u32::try_from(len).unwrap();
            let head = Frame::bare(kind, seq, rank, arg);
            Frame { total, payload: &payload, ..head }.encode(&mut self.0);
        }
        self
    }
}

/// Plays, and how many of their messages are right for both nodes together.
fn seeds() -> Vec<(Vec<u8>, usize)> {
    let play = Play::default;
    let exchange = Service::Exchange { len: 3 };
    // Six ranks: with an agent above; five: without.
    let below = play()
        .part(0, 1, Service::Barrier, 0)
        .ranks(Kind::Barrier, 1, 0, 0)
        .part(1, 1, Service::Barrier, 0)
        .answer(1, 0);
    let exchanged = play()
        .ranks(Kind::Exchange, 1, 0, 3)
        .part(1, 1, exchange, 3)
        .part(0, 1, exchange, 6)
        .answer(1, 18);
    let rows = |size: u32| Service::Alltoall { total: 2 * size };
    let transposed = play()
        .part(0, 1, rows(6), 2 * 2 * 4)
        .part(1, 1, rows(6), 2 * 5)
        .ranks(Kind::Alltoall, 1, 0, 12)
        .answer(1, 2 * 5);
    let transposed_at_the_root = play()
        .part(0, 1, rows(5), 2 * 2 * 3)
        .part(1, 1, rows(5), 2 * 4)
        .ranks(Kind::Alltoall, 1, 0, 10);
    let from_below = Service::Broadcast { root: 2, len: 9 };
    let spread = play()
        .ranks(Kind::HostBroadcast, 1, 3, 0)
        .ranks(Kind::Broadcast, 2, 2, 9)
        .part_after(1, 0, 1, from_below, 0)
        .part_after(1, 1, 1, from_below, 9)
        .answer(1, 0);
    let other_broadcasts = play()
        .ranks(Kind::HostBroadcast, 1, 3, 0)
        .ranks(Kind::Barrier, 2, 0, 0)
        .part(0, 1, Service::Barrier, 0);
    let farewell = play()
        .up(0, &Up::Gone(Gone::Rank(Rank(1))))
        .ranks(Kind::Fini, 0, 0, 0)
        .up(1, &Up::Done(Gone::Rank(Rank(2))))
        .up(0, &Up::Done(Gone::Rank(Rank(1))))
        .down(&Down::Farewell);
    let refused = play()
        .ranks(Kind::Barrier, 1, 0, 0)
        .part(1, 1, exchange, 3)
        .up(0, &Up::Refuse("rank 1 left".to_owned()))
        .down(&Down::Refuse("rank 5 left".to_owned()));
    vec![
        (below.0, 5 + 4),
        (exchanged.0, 5 + 4),
        // Rows for one of the nodes do not fit the other.
        (transposed.0, 5),
        (transposed_at_the_root.0, 4),
        (spread.0, 7 + 6),
        // Refused, not nonsense.
        (other_broadcasts.0, 5 + 5),
        (farewell.0, 6 + 5),
        (refused.0, 5 + 4),
    ]
}

#[test]
fn seeds_go_as_deep_as_they_should() {
    for (at, (bytes, right)) in seeds().into_iter().enumerate() {
        assert_eq!(play::play(&bytes), right, "seed {at}");
    }
}

/// A fuzzer begins with the same plays. (`GASNETRUN_UPDATE_DOCUMENTS=1` writes them.)
#[test]
fn seeds_of_the_target_are_these() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds/messages");
    for (at, (bytes, _)) in seeds().into_iter().enumerate() {
        let path = folder.join(format!("play_{at}"));
        if settings::variable("GASNETRUN_UPDATE_DOCUMENTS").is_some() {
            std::fs::write(&path, &bytes).unwrap();
        }
        assert!(std::fs::read(&path).unwrap() == bytes, "{} is another play", path.display());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, ..ProptestConfig::default() })]

    #[test]
    fn changed_seeds_do_no_harm(
        which in any::<proptest::sample::Index>(),
        other in any::<proptest::sample::Index>(),
        changes in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 0..6),
        cut in any::<proptest::sample::Index>(),
    ) {
        let seeds = seeds();
        let mut bytes = which.get(&seeds).0.clone();
        bytes.truncate(cut.index(bytes.len() + 1));
        bytes.extend(&other.get(&seeds).0);
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        play::play(&bytes);
    }

    #[test]
    fn any_bytes_do_no_harm(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        play::play(&bytes);
    }
}
