//! Ends of in-memory jobs: nobody waits for a rank that is gone.

use std::time::Duration;

use bootstrap::node_shm::ExitDecision;
use bootstrap::wait::Bounds;
use bootstrap::{Bootstrap, Error, ExitNotifier, HostId, Rank, conformance, memory};

fn refused(outcome: Result<(), Error>, part: &str) -> Result<(), String> {
    match outcome {
        Err(Error::Refused { reason, .. }) if reason.contains(part) => Ok(()),
        other => Err(format!("{other:?} instead of a refusal about {part}")),
    }
}

#[test]
fn a_rank_that_vanishes_fails_the_calls_of_the_others() {
    let mut job = memory::job(3).unwrap();
    drop(job.pop());
    conformance::run(job, |b| refused(b.barrier(), "rank 2 left the job")).unwrap();
}

#[test]
fn a_rank_that_said_farewell_fails_the_calls_of_the_others() {
    let farewell = |b: &mut dyn Bootstrap| b.fini(0).map_err(|error| error.to_string());
    conformance::run(memory::job(3).unwrap(), |b| match b.rank_info().rank {
        Rank(0) => farewell(b),
        _ => refused(b.barrier(), "rank 0 has said its farewell").and_then(|()| farewell(b)),
    })
    .unwrap();
}

#[test]
fn a_decided_exit_ends_a_wait() {
    let mut job = memory::job(2).unwrap();
    let (mut second, mut first) = (job.pop().unwrap(), job.pop().unwrap());
    let decision = ExitDecision { code: 3, cause: Some(Rank(1)) };
    let waiter = std::thread::spawn(move || first.exchange(&[1]).map(drop));
    second.node_shm().decide(decision);
    let Err(Error::Ending { during: "exchange", decision: seen }) = waiter.join().unwrap() else {
        panic!("no decision")
    };
    assert_eq!(seen, decision);
    assert!(matches!(second.barrier(), Err(Error::Ending { .. } | Error::Refused { .. })));
}

#[test]
fn farewells_are_bounded() {
    let short = Bounds::default().fini.within(Duration::from_millis(80));
    let mut job = memory::job_with(
        &[HostId(0); 2],
        memory::DEGREE,
        Bounds { fini: short, ..Bounds::default() },
    )
    .unwrap();
    let outcome = job[0].fini(0);
    assert!(
        matches!(outcome, Err(Error::Deadline { deadline: "bootstrap.fini", .. })),
        "{outcome:?}"
    );
}

#[test]
fn impossible_jobs_are_refused() {
    for hosts in [&[][..], &[1], &[0, 2]] {
        let hosts: Vec<HostId> = hosts.iter().copied().map(HostId).collect();
        assert!(
            matches!(memory::job_on_hosts(&hosts).map(drop), Err(Error::Argument { .. })),
            "{hosts:?}"
        );
    }
}

#[test]
fn hosts_have_pages_and_memory_of_their_own() {
    let job = memory::job_on_hosts(&[0, 1, 0].map(HostId)).unwrap();
    assert_eq!(job.iter().map(|b| b.rank_info().local).collect::<Vec<_>>(), [0, 0, 1]);
    assert!(std::sync::Arc::ptr_eq(job[0].node_shm(), job[2].node_shm()));
    job[1].node_shm().decide(ExitDecision { code: 0, cause: None });
    assert_eq!(job[0].node_shm().exit_decision(), None);
    assert!(!job[0].exit_notifier().is_connected() && !ExitNotifier::NONE.is_connected());
}
