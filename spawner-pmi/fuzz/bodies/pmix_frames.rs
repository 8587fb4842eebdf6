//! Any bytes as what an agent and its helper process for PMIx say to each other: each frame is understood
//! or ends the connection, without panic; what is understood is the same when it is sent again and in
//! any pieces, and the agent's machine takes it.

use std::fmt::Debug;

use bootstrap::Rank;
use serde::Serialize;
use serde::de::DeserializeOwned;
use spawner_pmi::server::Event;
use spawner_pmi::server::pmix::{
    Action, Frames, FromHelper, Machine, Members, Place, ToHelper, encode,
};

/// Ranks of the job; the first two are on this host, the others below and above.
const SIZE: u32 = 6;

pub(crate) fn run(said: &[u8]) {
    hear(&same::<FromHelper>(said));
    same::<ToHelper>(said);
}

/// The frames up to the first that is none. They are the same in pieces, and when they are sent again.
fn same<T: Serialize + DeserializeOwned + PartialEq + Debug>(said: &[u8]) -> Vec<T> {
    let read = |piece: usize| {
        let (mut frames, mut found) = (Frames::<T>::default(), Vec::new());
        for piece in said.chunks(piece.max(1)) {
            frames.push(piece);
            loop {
                match frames.take() {
                    Ok(Some(frame)) => found.push(frame),
                    Ok(None) => break,
                    Err(_) => return found,
                }
            }
        }
        found
    };
    let found = read(said.len());
    assert_eq!(read(3), found);
    let mut again = Frames::<T>::default();
    for frame in &found {
        again.push(&encode(frame));
        let taken = again.take();
        assert!(taken.as_ref().is_ok_and(|taken| taken.as_ref() == Some(frame)), "{taken:?}");
    }
    found
}

/// The agent does what follows, and names no rank that is not there.
fn hear(said: &[FromHelper]) {
    let mut machine = Machine::new(Place {
        ranks: vec![Rank(0), Rank(1)],
        size: SIZE,
        branches: vec![vec![Rank(2), Rank(3)], vec![Rank(4)]],
        parent: true,
    });
    for frame in said {
        machine.hear_helper(frame.clone());
        while let Some(action) = machine.poll_action() {
            match action {
                Action::Tell { rank, event } => {
                    assert!(rank.0 < 2, "{rank:?} is on another host");
                    if let Event::Broken(text) = event {
                        assert!(text.starts_with("PMIx: "), "{text}");
                    }
                }
                Action::Down { to, .. } => assert!(!to.is_empty() && to.iter().all(|at| *at < 2)),
                Action::Up(_) | Action::Helper(_) => {}
            }
        }
    }
}

/// Talks of each kind, by name: what a fuzzer begins with.
pub(crate) fn talks() -> Vec<(&'static str, Vec<u8>)> {
    use FromHelper::{Abort, Answer, Failed, Fence, Finalize, Here, Init, Ready, Want};
    let data = |byte: u8, len: usize| vec![byte; len].into();
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let variables = vec![vec![pair("PMIX_RANK", "0"), pair("PMIX_NAMESPACE", "job.1")], Vec::new()];
    let (all, some) = (Members::all(SIZE), Members::of(vec![1, 3, 4]));
    let fence = |number, members, data, absent: &[u32]| {
        let absent = absent.to_vec();
        Fence { number, members, data, absent }
    };
    let job = [
        Ready(variables),
        Init { rank: 0 },
        Init { rank: 1 },
        fence(1, all.clone(), data(1, 40), &[]),
        Here,
        Want { number: 2, rank: 4 },
        Answer { number: 1, status: 0, data: data(2, 9) },
        fence(3, some, data(3, 0), &[]),
        Finalize { rank: 0, open: true },
        Finalize { rank: 0, open: false },
        Finalize { rank: 1, open: false },
    ];
    let vain = [
        Init { rank: 0 },
        Init { rank: 1 },
        Finalize { rank: 1, open: false },
        fence(1, all, data(0, 0), &[1]),
    ];
    let ends = [Init { rank: 0 }, Abort { rank: 0, status: -6 }, Abort { rank: 9, status: 1 }];
    let failed = [Failed("libpmix cannot start: no memory (status -32)".to_owned())];
    let asked = [
        ToHelper::Wanted { number: 1, rank: 1 },
        ToHelper::FenceDone { number: 1, status: 0, data: data(4, 30) },
        ToHelper::Found { number: 2, status: -46, data: data(0, 0) },
        ToHelper::Ask,
        ToHelper::Ended { rank: 1 },
    ];
    vec![
        ("job", job.iter().flat_map(encode).collect()),
        ("vain", vain.iter().flat_map(encode).collect()),
        ("ends", ends.iter().flat_map(encode).collect()),
        ("failed", failed.iter().flat_map(encode).collect()),
        ("asked", asked.iter().flat_map(encode).collect()),
    ]
}
