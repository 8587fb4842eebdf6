//! Connections at the start, and files of used ones, over the in-memory provider: a thread for each
//! rank.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;

use bootstrap::{Bootstrap, Rank};

use super::{Error, Failure, Numbers, Peers, file, fixed, used};

/// What each rank has done towards each peer.
type Steps = Arc<Mutex<BTreeMap<(u32, u32), Vec<String>>>>;

struct Fake {
    me: u32,
    steps: Steps,
    count: u32,
    /// Announces this number for every queue pair.
    wrong: Option<u32>,
}

impl Fake {
    fn number(from: u32, to: u32, index: u32) -> u32 {
        1 + from * 1_000 + to * 10 + index
    }

    fn step(&self, peer: Rank, what: impl Into<String>) {
        self.steps.lock().unwrap().entry((self.me, peer.0)).or_default().push(what.into());
    }
}

impl Peers for Fake {
    fn prepare(&self, rank: Rank) -> Result<Numbers, Failure> {
        self.step(rank, "prepare");
        let number = |index| self.wrong.unwrap_or(Self::number(self.me, rank.0, index));
        let numbers: Vec<u32> = (0..self.count).map(number).collect();
        Numbers::new(&numbers).ok_or_else(|| "too many".into())
    }

    fn receive_ready(&self, rank: Rank, numbers: &Numbers) -> Result<(), Failure> {
        self.step(rank, format!("receive {numbers:?}"));
        Ok(())
    }

    fn send_ready(&self, rank: Rank) -> Result<(), Failure> {
        let steps = self.steps.lock().unwrap();
        let other = steps.get(&(rank.0, self.me)).and_then(|steps| steps.get(1)).cloned();
        assert!(other.is_some_and(|step| step.starts_with("receive")), "{rank} cannot receive yet");
        drop(steps);
        self.step(rank, "send");
        Ok(())
    }

    fn open(&self, rank: Rank) {
        self.step(rank, "open");
    }

    fn is_open(&self, _: Rank) -> bool {
        false
    }

    fn address(&self, _: Rank) -> (fabric::Address, u32) {
        Default::default()
    }
}

/// Runs `body` on every rank of a job; results by rank.
fn job<T: Send>(size: u32, body: impl Fn(u32, &mut dyn Bootstrap) -> T + Sync) -> Vec<T> {
    let ranks = bootstrap::memory::job(size).unwrap();
    thread::scope(|scope| {
        let body = &body;
        let run = |(mut services, rank): (Box<dyn Bootstrap>, u32)| {
            scope.spawn(move || {
                let result = body(rank, &mut *services);
                // Waits for the others, so that none sees a lost peer.
                let _ = services.fini(0);
                result
            })
        };
        let threads: Vec<_> = ranks.into_iter().zip(0..).map(run).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// Both halves, with the barrier between them.
fn connect(
    me: u32,
    size: u32,
    chosen: Option<&[bool]>,
    remote: &dyn Fn(Rank) -> bool,
    count: usize,
    peers: &Fake,
    services: &mut dyn Bootstrap,
) -> Result<Vec<Rank>, Error> {
    let list = fixed::prepare((Rank(me), size), chosen, remote, count, peers, services)?;
    services.barrier()?;
    fixed::open(Rank(me), &list, peers)?;
    Ok(list)
}

#[test]
fn where_all_are_chosen_nobody_is_asked() {
    let steps = Steps::default();
    let lists = job(4, |me, services| {
        let peers = Fake { me, steps: Arc::clone(&steps), count: 1, wrong: None };
        // 0 and 1 share memory, and so do 2 and 3.
        let remote = |rank: Rank| rank.0 / 2 != me / 2;
        connect(me, 4, None, &remote, 1, &peers, services).unwrap()
    });
    assert_eq!(
        lists,
        [[Rank(2), Rank(3)], [Rank(2), Rank(3)], [Rank(0), Rank(1)], [Rank(0), Rank(1)]]
    );
    assert_eq!(steps.lock().unwrap().len(), 8);
}

#[test]
fn either_side_chooses_and_both_connect_in_the_right_order() {
    let steps = Steps::default();
    // 0 and 1 share memory; each pair is named once, some twice; 4 is named by nobody.
    let chosen: [&[u32]; 5] = [&[1, 2], &[3], &[0], &[2], &[]];
    let lists = job(5, |me, services| {
        let peers = Fake { me, steps: Arc::clone(&steps), count: 3, wrong: None };
        let remote = |rank: Rank| !(me < 2 && rank.0 < 2);
        let chosen: Vec<bool> = (0..5).map(|rank| chosen[me as usize].contains(&rank)).collect();
        connect(me, 5, Some(&chosen), &remote, 3, &peers, services).unwrap()
    });
    let expected: [&[u32]; 5] = [&[2], &[3], &[0, 3], &[1, 2], &[]];
    for (list, expected) in lists.iter().zip(expected) {
        assert_eq!(list.iter().map(|rank| rank.0).collect::<Vec<_>>(), expected);
    }
    let steps = steps.lock().unwrap();
    assert_eq!(steps.len(), 6);
    for ((me, peer), steps) in &*steps {
        let theirs = [0, 1, 2].map(|index| Fake::number(*peer, *me, index));
        assert_eq!(steps[..], ["prepare", &format!("receive {theirs:?}"), "send", "open"]);
    }
}

#[test]
fn numbers_that_cannot_be_are_named() {
    for wrong in [0, 1 << 24] {
        let results = job(2, |me, services| {
            let wrong = (me == 1).then_some(wrong);
            let peers = Fake { me, steps: Steps::default(), count: 2, wrong };
            connect(me, 2, None, &|_| true, 2, &peers, services)
        });
        // Before anybody else hears of it.
        assert!(matches!(&results[1], Err(Error::Numbers { peer: Rank(1), .. })), "{results:?}");
    }
    let results = job(1, |me, services| {
        let peers = Fake { me, steps: Steps::default(), count: 1, wrong: None };
        connect(0, 1, Some(&[false]), &|_| true, 99, &peers, services)
    });
    let text = results[0].as_ref().unwrap_err().to_string();
    assert_eq!(text, "network: 99 queue pairs per peer, at most 48 can be connected");
}

fn used_file(pattern: &Path, peers: &[&[u32]]) {
    let size = u32::try_from(peers.len()).unwrap();
    let results = job(size, |me, services| {
        let used: Vec<Rank> = peers[me as usize].iter().copied().map(Rank).collect();
        used::write(pattern, 36, Rank(me), size, &used, services)
    });
    results.into_iter().for_each(|result| result.unwrap());
}

#[test]
fn used_connections_are_written_in_rank_order_and_read_again() {
    let directory = std::env::temp_dir().join(format!("connect-used-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let peers: [&[u32]; 4] = [&[1, 2, 3], &[0], &[], &[0, 2]];
    let one = directory.join("one");
    std::fs::write(&one, "what was there before").unwrap();
    used_file(&one, &peers);
    let text = std::fs::read_to_string(&one).unwrap();
    assert_eq!(text, "size: 4\nbase: 36\n0:1-3\n1:0\n3:0 2\n");
    let many = directory.join("many-%");
    used_file(&many, &peers);
    for (me, peers) in (0..).zip(peers) {
        for pattern in [&one, &many] {
            let chosen = file::read(pattern, me, 4).unwrap();
            let expected: Vec<bool> = (0..4).map(|rank| peers.contains(&rank)).collect();
            assert_eq!(chosen, expected, "rank {me} of {}", pattern.display());
        }
    }
    used_file(&one, &[&[], &[]]);
    assert_eq!(std::fs::read_to_string(&one).unwrap(), "size: 2\nbase: 36\n");
    std::fs::remove_dir_all(&directory).unwrap();
}
