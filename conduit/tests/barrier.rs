//! The rules of the named split-phase barrier, on every member and for few and many ranks.

#[path = "shared/harness.rs"]
mod harness;

use gasnet_ibv::{BarrierFlags, Client, Error, Seq, Settings};
use harness::{Placement, everywhere, job, job_at};

const ID: i32 = 0xcafe_f00d_u32.cast_signed();
const NAMED: BarrierFlags = BarrierFlags::NAMED;
const ANON: BarrierFlags = BarrierFlags::ANONYMOUS;
const MISMATCH: BarrierFlags = BarrierFlags::MISMATCH;
const SIZES: [u32; 5] = [1, 2, 3, 8, 11];

/// How leaders tell each other: as the network likes it, by messages, by writes.
fn ways() -> [Settings; 3] {
    [None, Some(false), Some(true)]
        .map(|barrier_writes| Settings { barrier_writes, ..Settings::default() })
}

/// Sizes on one host, and a few in every placement and way.
fn sizes() -> Vec<(Placement, u32, Settings)> {
    let [preset, messages, writes] = ways();
    let apart = |size, settings: &Settings| {
        Placement::REMOTE.map(|placement| (placement, size, settings.clone()))
    };
    let together = SIZES.map(|size| (Placement::Together, size, preset.clone()));
    [&together[..], &apart(4, &writes)[..1], &apart(3, &writes)[1..], &apart(3, &messages)[..1]]
        .concat()
}

type Said = (i32, BarrierFlags);

/// Every way to run a barrier: blocking, split with wait, split with try.
fn run(client: &Client<Seq>, notify: Said, wait: Said, way: u32) -> Result<(), Error> {
    if way == 0 && notify == wait {
        return client.barrier(wait.0, wait.1);
    }
    client.barrier_notify(notify.0, notify.1)?;
    if way < 2 {
        return client.barrier_wait(wait.0, wait.1);
    }
    while !client.barrier_try(wait.0, wait.1)? {
        std::thread::yield_now();
    }
    Ok(())
}

fn assert_ok(client: &Client<Seq>, notify: Said, wait: Said, result: Option<i32>) {
    for way in 0..3 {
        run(client, notify, wait, way).expect("agreement");
        assert_eq!(client.barrier_result().expect("result"), result);
    }
}

fn assert_fails(client: &Client<Seq>, notify: Said, wait: Said) {
    for way in 0..3 {
        assert!(matches!(run(client, notify, wait, way), Err(Error::BarrierMismatch)), "way {way}");
    }
}

#[test]
fn names_that_agree() {
    for (placement, size, settings) in sizes() {
        job_at::<Seq>(placement, size, &settings, |client| {
            let me = client.rank().0;
            for id in [0, 1, -1, ID, i32::MIN] {
                assert_ok(client, (id, NAMED), (id, NAMED), Some(id));
            }
            assert_ok(client, (ID, ANON), (7, ANON), None);
            assert_ok(client, (0, BarrierFlags::UNNAMED), (0, BarrierFlags::UNNAMED), None);
            for member in 0..size {
                // One name among anonymous ones, and one anonymous among names.
                let lone = if me == member { (ID, NAMED) } else { (3, ANON) };
                assert_ok(client, lone, lone, Some(ID));
                let anonymous = if me == member { (3, ANON) } else { (ID, NAMED) };
                let result = if size == 1 { None } else { Some(ID) };
                assert_ok(client, anonymous, anonymous, result);
                // Anonymous notify, then a wait with the right name.
                if size > 1 {
                    let notify = if me == member { (3, ANON) } else { (ID, NAMED) };
                    assert_ok(client, notify, (ID, NAMED), Some(ID));
                }
            }
        });
    }
}

#[test]
fn names_that_do_not() {
    for (placement, size, settings) in sizes() {
        job_at::<Seq>(placement, size, &settings, |client| {
            let me = client.rank().0;
            for member in 0..size {
                let flagged = if me == member { (ID, MISMATCH) } else { (ID, NAMED) };
                assert_fails(client, flagged, flagged);
                assert_fails(client, flagged, (0, ANON));
                if size > 1 {
                    let other = if me == member { (ID ^ 0x4000_0000, NAMED) } else { (ID, NAMED) };
                    assert_fails(client, other, other);
                    assert_fails(client, other, (0, ANON));
                    assert_ok(client, (5, NAMED), (5, NAMED), Some(5));
                }
                // A wrong name at wait fails on that rank alone, whatever it said at notify.
                for notify in [(ID, NAMED), (0, ANON)] {
                    let notify = if me == member && size > 1 { notify } else { (ID, NAMED) };
                    if me == member {
                        assert_fails(client, notify, (ID + 1, NAMED));
                    } else {
                        assert_ok(client, notify, (ID, NAMED), Some(ID));
                    }
                }
            }
        });
    }
}

#[test]
fn order_of_calls_is_checked() {
    everywhere::<Seq>(3, &Settings::default(), |client| {
        let order = |result: Result<(), Error>| {
            assert!(matches!(result, Err(Error::BarrierOrder { .. })));
        };
        order(client.barrier_result().map(|_| ()));
        order(client.barrier_wait(0, ANON));
        order(client.barrier_try(0, ANON).map(|_| ()));
        client.barrier_notify(1, NAMED).expect("notify");
        order(client.barrier_notify(1, NAMED));
        order(client.barrier_result().map(|_| ()));
        client.barrier_wait(1, NAMED).expect("wait");
        order(client.barrier_wait(1, NAMED));
    });
}

#[test]
fn nobody_leaves_before_everybody_came() {
    use std::sync::atomic::{AtomicU32, Ordering};
    let here = [2, 5, 13].map(|size| (Placement::Together, size, 300, Settings::default()));
    let there = |settings: Settings| {
        Placement::REMOTE.map(|placement| (placement, 5, 20, settings.clone()))
    };
    let [_, messages, writes] = ways();
    let there = there(messages).into_iter().chain(there(writes));
    for (placement, size, rounds, settings) in here.into_iter().chain(there) {
        let arrived = AtomicU32::new(0);
        job_at::<Seq>(placement, size, &settings, |client| {
            for round in 1..=rounds {
                arrived.fetch_add(1, Ordering::SeqCst);
                client.barrier_notify(round, NAMED).expect("notify");
                client.barrier_wait(round, NAMED).expect("wait");
                assert!(arrived.load(Ordering::SeqCst) >= round.cast_unsigned() * size);
            }
        });
    }
}

#[test]
fn a_late_rank_finds_the_others_asleep() {
    for size in [2, 5, 12] {
        everywhere::<Seq>(size, &Settings::default(), |client| {
            for round in 0..3 {
                if client.rank().0 == round % size {
                    // Long enough that everybody else sleeps; nothing is asserted about it.
                    std::thread::sleep(std::time::Duration::from_millis(30));
                }
                client.barrier(0, ANON).expect("barrier");
            }
        });
    }
}

#[test]
fn every_way_to_wait() {
    use gasnet_ibv::WaitMode::{Block, Spin, SpinBlock};
    for cpus in [1, 64] {
        for size in [2, 9] {
            job::<Seq>(size, &Settings { cpus: Some(cpus), ..Settings::default() }, |client| {
                for mode in [Spin, Block, SpinBlock] {
                    client.set_wait_mode(mode);
                    for _ in 0..5 {
                        client.barrier(0, ANON).expect("barrier");
                    }
                }
            });
        }
    }
}

#[test]
fn the_central_algorithm_keeps_the_rules() {
    let central = Settings { central_barrier: true, ..Settings::default() };
    for size in SIZES {
        job::<Seq>(size, &central, |client| {
            for round in 0..50 {
                assert_ok(client, (round, NAMED), (round, NAMED), Some(round));
                if size > 1 {
                    let mine = if client.rank().0 == 0 { 1 } else { 2 };
                    assert_fails(client, (mine, NAMED), (mine, NAMED));
                }
            }
        });
    }
}

/// A write ends no sleep: whoever goes to sleep asks for a message.
#[test]
fn ranks_that_sleep_in_a_barrier_are_woken() {
    use std::time::{Duration, Instant};
    for settings in &ways()[1..] {
        for placement in Placement::REMOTE {
            job_at::<Seq>(placement, 3, settings, |client| {
                for round in 0..3 {
                    if client.rank().0 == round {
                        std::thread::sleep(Duration::from_millis(60));
                    }
                    client.barrier_notify(7, NAMED).expect("notify");
                    let begin = Instant::now();
                    client.barrier_wait(7, NAMED).expect("wait");
                    assert!(begin.elapsed() < Duration::from_secs(20), "it slept through");
                }
            });
        }
    }
}
