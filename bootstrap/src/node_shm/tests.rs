use std::io::Write;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use proptest::prelude::*;

use super::*;

const HOST_OF: [HostId; 5] = [HostId(0), HostId(1), HostId(0), HostId(1), HostId(1)];

fn spec() -> NodeShmSpec<'static> {
    NodeShmSpec {
        host: HostId(1),
        hosts: 2,
        local_ranks: &[Rank(1), Rank(3), Rank(4)],
        host_of: &HOST_OF,
    }
}

fn copy(page: &NodeShm) -> OwnedFd {
    page.fd().try_clone_to_owned().unwrap()
}

/// Memory with these bytes.
fn memory(bytes: &[u8]) -> OwnedFd {
    let flags = nix::sys::memfd::MFdFlags::MFD_CLOEXEC;
    let mut file = std::fs::File::from(nix::sys::memfd::memfd_create(c"test", flags).unwrap());
    file.write_all(bytes).unwrap();
    file.into()
}

fn bytes_of(page: &NodeShm) -> Vec<u8> {
    Mapping::read_only(&copy(page), page.map.len()).unwrap().bytes().to_vec()
}

#[test]
fn both_sides_see_the_same_job() {
    let agent = NodeShm::create(&spec()).unwrap();
    let rank = NodeShm::open(copy(&agent)).unwrap();
    for page in [&agent, &rank] {
        assert_eq!((page.size(), page.locals()), (5, 3));
        assert_eq!([0, 1, 2].map(|local| page.local_rank(local).0), [1, 3, 4]);
        assert_eq!(
            [0, 1, 2, 3, 4, 5].map(|r| page.local_of(Rank(r))),
            [None, Some(0), None, Some(1), Some(2), None]
        );
        assert_eq!(page.host_of(Rank(2)), Some(HostId(0)));
        assert_eq!(page.host_of(Rank(5)), None);
        let place =
            RankInfo { rank: Rank(3), size: 5, host: HostId(1), hosts: 2, local: 1, locals: 3 };
        assert_eq!(page.rank_info(Rank(3)), Some(place));
        assert_eq!(page.rank_info(Rank(0)), None);
        assert_eq!(page.exit_decision(), None);
    }
    rank.slot(2).set_pid(77);
    assert_eq!(agent.slot(2).pid(), 77);
}

#[test]
fn the_first_decision_stays() {
    let agent = NodeShm::create(&spec()).unwrap();
    let rank = NodeShm::open(copy(&agent)).unwrap();
    let first = ExitDecision { code: -2, cause: Some(Rank(4)) };
    assert_eq!(agent.decide(first), first);
    assert_eq!(rank.decide(ExitDecision { code: 1, cause: None }), first);
    assert_eq!((agent.exit_decision(), rank.exit_decision()), (Some(first), Some(first)));
}

#[test]
fn the_task_of_the_quit_handler_is_taken_once() {
    let agent = NodeShm::create(&spec()).unwrap();
    let rank = NodeShm::open(copy(&agent)).unwrap();
    assert_eq!(agent.slot(1).ack(), Ack::None);
    assert!(rank.slot(1).claim_ack(Ack::Rank) && !agent.slot(1).claim_ack(Ack::Agent));
    assert_eq!((agent.slot(1).ack(), agent.slot(0).ack()), (Ack::Rank, Ack::None));
    assert!(agent.slot(0).claim_ack(Ack::Agent) && !rank.slot(0).claim_ack(Ack::Rank));
    assert_eq!(rank.slot(0).ack(), Ack::Agent);
}

/// A waiter sleeps far longer than the test may take, so only the doorbell can have ended its
/// sleeps.
#[test]
fn doorbells_and_decisions_wake_sleepers() {
    const LONG: Duration = Duration::from_secs(600);
    let agent = Arc::new(NodeShm::create(&spec()).unwrap());
    let work = Arc::new(AtomicBool::new(false));
    let sleeper = |until: Box<dyn Fn() -> bool + Send>, local| {
        let page = NodeShm::open(copy(&agent)).unwrap();
        std::thread::spawn(move || {
            while !until() {
                page.slot(local).sleep(LONG, &until);
            }
        })
    };
    let (seen, decided) = (Arc::clone(&work), Arc::clone(&agent));
    let worker = sleeper(Box::new(move || seen.load(Ordering::SeqCst)), 0);
    let waiter = sleeper(Box::new(move || decided.exit_decision().is_some()), 2);
    work.store(true, Ordering::SeqCst);
    agent.slot(0).ring_if_sleeping();
    worker.join().unwrap();
    agent.decide(ExitDecision { code: 0, cause: None });
    waiter.join().unwrap();
}

#[test]
fn sleeps_end_with_their_time() {
    let page = NodeShm::create(&spec()).unwrap();
    let start = Instant::now();
    page.slot(0).sleep(Duration::from_millis(30), || false);
    assert!(start.elapsed() >= Duration::from_millis(25));
    page.slot(0).sleep(Duration::from_secs(600), || true);
}

#[test]
fn impossible_jobs_are_refused() {
    let refused =
        |spec: NodeShmSpec<'_>| matches!(NodeShm::create(&spec), Err(NodeShmError::Layout { .. }));
    assert!(refused(NodeShmSpec { local_ranks: &[], ..spec() }));
    assert!(refused(NodeShmSpec { local_ranks: &[Rank(3), Rank(1)], ..spec() }));
    assert!(refused(NodeShmSpec { local_ranks: &[Rank(0)], ..spec() }));
    assert!(refused(NodeShmSpec { local_ranks: &[Rank(5)], ..spec() }));
    assert!(refused(NodeShmSpec { host: HostId(2), ..spec() }));
    assert!(refused(NodeShmSpec { host_of: &[], ..spec() }));
}

#[test]
fn memory_that_is_no_page_is_refused() {
    let good = bytes_of(&NodeShm::create(&spec()).unwrap());
    let text = |bytes: &[u8]| NodeShm::open(memory(bytes)).map(drop).unwrap_err().to_string();
    assert!(NodeShm::open(memory(&good)).is_ok());
    for len in [0, 1, 127, 128, good.len() - 1] {
        assert!(text(&good[..len]).contains("bytes"), "{len}: {}", text(&good[..len]));
    }
    let changed = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] = value;
        text(&bytes)
    };
    assert!(changed(0, 0).contains("magic"));
    assert!(changed(8, 2).contains("version 2"));
    assert!(changed(12, 0).contains("of 0 ranks"));
    assert!(changed(15, 0x7f).contains("bytes for"));
    assert!(changed(20, 2).contains("on host 2"));
    assert!(changed(28, 1).contains("bytes for"), "there is no collectives");
    assert!(changed(locals_at(3), 9).contains("local rank 9"));
}

proptest! {
    #[test]
    fn decisions_come_back(code: i32, cause in proptest::option::of(0u32..0x7fff_ffff)) {
        let decision = ExitDecision { code, cause: cause.map(Rank) };
        prop_assert_eq!(ExitDecision::decode(decision.encode()), Some(decision));
    }

    /// Whatever the memory holds, opening it answers; and what opens can be used.
    #[test]
    fn damaged_pages_never_panic(changes in proptest::collection::vec((0usize..600, any::<u8>()), 0..6)) {
        let mut bytes = bytes_of(&NodeShm::create(&spec()).unwrap());
        for (at, value) in changes {
            let at = at % bytes.len();
            bytes[at] = value;
        }
        if let Ok(page) = NodeShm::open(memory(&bytes)) {
            for rank in (0..page.size().min(100)).map(Rank) {
                let _ = (page.rank_info(rank), page.host_of(rank));
            }
            for local in 0..page.locals() {
                prop_assert!(page.rank_info(page.local_rank(local)).is_some());
                let _ = (page.slot(local).pid(), page.slot(local).ack());
            }
            let _ = page.exit_decision();
        }
    }
}

#[test]
fn a_rank_says_how_it_leaves() {
    let page = NodeShm::create(&spec()).unwrap();
    let slot = page.slot(0);
    assert!(!slot.has_left() && slot.dying_with().is_none());
    slot.set_dying(139);
    assert!(!slot.has_left() && slot.dying_with() == Some(139));
    slot.set_left();
    assert!(slot.has_left() && slot.dying_with().is_none());
}
