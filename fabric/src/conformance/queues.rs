//! Completion queues: depth, overflow, events.

use std::time::{Duration, Instant};

use super::devices::readable;
use super::rig::{Done, End, Plan, Rig, ensure, fail, good, one};
use super::{COMPLETION, Side};
use crate::{AsyncEvent, Completion, Error, Status};

pub(super) fn depth(side: &mut Side<'_>) -> Done {
    let rig = Rig::open(side)?;
    let most = rig.device.caps().max_cqe;
    for wanted in [1, 2, 63, 1000] {
        let queue = rig.device.completion_queue(wanted.min(most), None)?;
        ensure!(queue.depth() >= wanted.min(most), "{} of {wanted} entries", queue.depth());
        ensure!(queue.poll(&mut [Completion::EMPTY; 4])? == 0, "a new queue has completions");
        ensure!(queue.poll(&mut [])? == 0, "completions without room for them");
        ensure!(queue.arm().is_err(), "armed without a channel");
    }
    let refused = most.checked_add(1).map(|depth| rig.device.completion_queue(depth, None));
    ensure!(!matches!(refused, Some(Ok(_))), "deeper than {most} is taken");
    // As many completions as it has entries wait in it.
    let depth = rig.device.completion_queue(16, None)?.depth();
    let plan = Plan { depth: 16, receives: depth, ..Plan::default() };
    let end = rig.connected(side, &plan)?;
    let buffer = rig.buffer(64)?;
    let count = u64::from(side.swap(&[depth.into()])?.first().copied().map_or(0, low));
    for round in 0..3 {
        if side.role == 1 {
            for n in 0..depth {
                end.receive(n.into(), &buffer, 0, 8)?;
            }
            side.sync()?;
            side.sync()?;
            let got = good(&end.got, usize::try_from(depth)?)?;
            let ordered = got.iter().enumerate().all(|(n, one)| one.id == n as u64);
            ensure!(ordered, "round {round}: {got:?}");
        } else {
            side.sync()?;
            for n in 0..count {
                end.send(n, &buffer, 0, 8)?;
                good(&end.sent, 1)?;
            }
            side.sync()?;
        }
        side.sync()?;
    }
    Ok(())
}

fn low(word: u64) -> u32 {
    u32::try_from(word).unwrap_or(u32::MAX)
}

pub(super) fn overflow(side: &mut Side<'_>) -> Done {
    let rig = Rig::open(side)?;
    let count = rig.device.completion_queue(4, None)?.depth() * 2 + 64;
    let theirs = low(side.swap(&[count.into()])?.first().copied().unwrap_or(0));
    // The receiving side's queue is too shallow; the sending side's is not.
    let depth = if side.role == 1 { 4 } else { 1024 };
    let plan = Plan { depth, receives: count, ..Plan::default() };
    let end = rig.connected(side, &plan)?;
    let buffer = rig.buffer(64)?;
    if side.role == 1 {
        for n in 0..count {
            end.receive(n.into(), &buffer, 0, 8)?;
        }
        side.sync()?;
        side.sync()?;
        overflowed(&rig, &end, count)?;
    } else {
        side.sync()?;
        for n in 0..theirs {
            // What becomes of the sends is not said anywhere; they end.
            if end.send(n.into(), &buffer, 0, 8).is_err() {
                break;
            }
            if one(&end.sent)?.status != Status::Success {
                break;
            }
        }
        side.sync()?;
    }
    side.sync()
}

/// The overflow is seen as an error of a poll or as an event, never as completions that are
/// silently missing.
fn overflowed(rig: &Rig, end: &End, count: u32) -> Done {
    let until = Instant::now() + COMPLETION;
    let mut some = [Completion::EMPTY; 16];
    let mut seen = 0;
    loop {
        match end.got.poll(&mut some) {
            Ok(got) => seen += got,
            Err(Error::Os { .. } | Error::Argument { .. }) => return Ok(()),
            Err(error) => return Err(fail(format!("another error: {error}"))),
        }
        if let Some(AsyncEvent::CqError) = rig.device.next_event()? {
            return Ok(());
        }
        ensure!(seen < count as usize, "{seen} completions from a queue of {}", end.got.depth());
        ensure!(Instant::now() < until, "{seen} of {count} completions and no error");
        std::thread::yield_now();
    }
}

/// Sleeps until a receive completes, as a rank does: poll, arm, poll, sleep.
fn sleep(end: &End, round: u32) -> Done<Completion> {
    let channel = end.channel.as_ref().ok_or_else(|| fail("no channel"))?;
    let until = Instant::now() + COMPLETION;
    let mut some = [Completion::EMPTY; 1];
    loop {
        if end.got.poll(&mut some)? == 0 {
            end.got.arm()?;
            if end.got.poll(&mut some)? == 0 {
                let woken = readable(channel.fd(), Duration::from_secs(10))?;
                if !woken {
                    let lost = end.got.poll(&mut some)? > 0;
                    let what = if lost { "a lost wake-up" } else { "nothing came" };
                    ensure!(!lost && Instant::now() < until, "round {round}: {what}");
                }
                channel.consume()?;
                continue;
            }
        }
        let [one] = some;
        ensure!(one.status == Status::Success, "round {round}: {one:?}");
        return Ok(one);
    }
}

pub(super) fn events(side: &mut Side<'_>) -> Done {
    let rig = Rig::open(side)?;
    let end = rig.connected(side, &Plan { channel: true, ..Plan::default() })?;
    let buffer = rig.buffer(64)?;
    for id in 0..4 {
        end.receive(id, &buffer, 0, 8)?;
    }
    side.sync()?;
    for round in 0..1000_u32 {
        if side.role == 0 {
            end.send(u64::from(round), &buffer, 8, 8)?;
        }
        // Now and then the answer comes before anybody sleeps, or long after.
        if round % 100 == 7 {
            std::thread::sleep(Duration::from_millis(2));
        }
        let got = sleep(&end, round)?;
        end.receive(got.id, &buffer, 0, 8)?;
        if side.role == 1 {
            end.send(u64::from(round), &buffer, 8, 8)?;
        }
        good(&end.sent, 1)?;
    }
    side.sync()
}

pub(super) fn events_many(side: &mut Side<'_>) -> Done {
    let rig = Rig::open(side)?;
    let end = rig.connected(side, &Plan { channel: true, depth: 256, ..Plan::default() })?;
    let channel = end.channel.clone().ok_or_else(|| fail("no channel"))?;
    let buffer = rig.buffer(64)?;
    for round in 0..20 {
        for id in 0..8 {
            end.receive(id, &buffer, 0, 8)?;
        }
        end.sent.arm()?;
        end.got.arm()?;
        side.sync()?;
        for id in 0..8 {
            end.send(id, &buffer, 8, 8)?;
        }
        ensure!(readable(channel.fd(), COMPLETION)?, "round {round}: no event");
        // Not polled: what was there before arming makes no event, so a poll must follow it.
        channel.consume()?;
        good(&end.sent, 8)?;
        good(&end.got, 8)?;
        side.sync()?;
    }
    // An armed queue whose completion came while nobody looked still has its event.
    end.receive(1, &buffer, 0, 8)?;
    while channel.consume()? > 0 {}
    end.got.arm()?;
    side.sync()?;
    end.send(2, &buffer, 8, 8)?;
    good(&end.sent, 1)?;
    std::thread::sleep(Duration::from_millis(20));
    side.sync()?;
    ensure!(readable(channel.fd(), COMPLETION)?, "no event for what came before the look");
    good(&end.got, 1)?;
    // Armed for a failure.
    end.receive(3, &buffer, 0, 8)?;
    while channel.consume()? > 0 {}
    end.got.arm()?;
    end.qp.to_error()?;
    ensure!(readable(channel.fd(), COMPLETION)?, "no event for a flush");
    let flushed = one(&end.got)?.status;
    ensure!(flushed == Status::Flushed, "{flushed:?}");
    side.sync()
}
