//! Sends and receives on reliable connections that work.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use super::memory::Buffer;
use super::rig::{Done, End, Plan, Rig, ensure, fail, good, one, pattern, skip};
use super::{COMPLETION, Side};
use crate::{Completion, Data, Opcode, Operation, PostError, RecvWr, SendWr, Sge, Status};

const SEND: Operation = Operation::Send { imm: None };

pub(super) fn sizes(side: &mut Side<'_>) -> Done {
    let rig = Rig::open(side)?;
    let end = rig.connected(side, &Plan::default())?;
    let mtu = rig.port.active_mtu.bytes() as usize;
    let buffer = rig.buffer((1 << 20) + 16)?;
    for sender in [0, 1] {
        for size in [0, 1, 8, mtu - 1, mtu, mtu + 1, 64 << 10, 1 << 20] {
            let bytes = pattern(size as u64 + 5, size);
            if side.role == sender {
                buffer.put(3, &bytes);
                side.sync()?;
                let piece = [buffer.sge(3, size)];
                end.succeeds(SEND, Data::Gather(if size == 0 { &[] } else { &piece }))?;
            } else {
                buffer.fill(0x77);
                end.receive(4, &buffer, 3, size + 2)?;
                side.sync()?;
                let got = one(&end.got)?;
                let right = got.id == 4 && got.status == Status::Success && got.imm.is_none();
                ensure!(right && got.opcode == Opcode::Receive, "{size} bytes: {got:?}");
                ensure!(got.len as usize == size, "{size} bytes came as {}", got.len);
                ensure!(got.qpn == end.qp.number(), "{size} bytes came for {:#x}", got.qpn);
                ensure!(buffer.get(3, size) == bytes, "{size} bytes: others came");
                let around = [buffer.get(0, 3), buffer.get(size + 3, 10)].concat();
                ensure!(around == [0x77; 13], "{size} bytes: more was written: {around:x?}");
            }
            side.sync()?;
        }
    }
    Ok(())
}

pub(super) fn immediate(side: &mut Side<'_>) -> Done {
    let rig = Rig::open(side)?;
    let end = rig.connected(side, &Plan::default())?;
    let buffer = rig.buffer(64)?;
    let cases = [(Some(0), 0), (Some(u32::MAX), 1), (None, 8), (Some(0x0102_0304), 64)];
    for _ in cases {
        end.receive(1, &buffer, 0, 64)?;
    }
    side.sync()?;
    for (imm, size) in cases {
        end.succeeds(Operation::Send { imm }, Data::Gather(&[buffer.sge(0, size)]))?;
        let got = one(&end.got)?;
        ensure!(got.imm == imm && got.len as usize == size, "sent {imm:x?}, got {got:?}");
    }
    side.sync()
}

/// Sends `count` numbered messages of differing lengths from role 0 to role 1, which keeps `posted`
/// receives.
fn stream(side: &mut Side<'_>, end: &End, rig: &Rig, count: u64, posted: u64) -> Done {
    let length = |n: u64| 8 + usize::try_from(n * 37 % 3000).unwrap_or(0);
    let slot = 4096;
    let buffer = rig.buffer(slot * usize::try_from(posted)?)?;
    let place = |n: u64| slot * usize::try_from(n % posted).unwrap_or(0);
    if side.role == 1 {
        for n in 0..posted.min(count) {
            end.receive(n, &buffer, place(n), slot)?;
        }
        side.sync()?;
        for n in 0..count {
            let got = one(&end.got)?;
            let right = got.status == Status::Success && got.id == n;
            ensure!(right && got.len as usize == length(n), "message {n}: {got:?}");
            let bytes = buffer.get(place(n), length(n));
            ensure!(bytes == pattern(n, length(n)), "message {n}: other bytes");
            if n + posted < count {
                end.receive(n + posted, &buffer, place(n), slot)?;
            }
        }
        return side.sync();
    }
    side.sync()?;
    let mut done = 0;
    for n in 0..count {
        while n - done >= posted {
            done += reap(end, done)?;
        }
        buffer.put(place(n), &pattern(n, length(n)));
        while let Err(error) =
            end.try_post(n, SEND, Data::Gather(&[buffer.sge(place(n), length(n))]))
        {
            ensure!(error == PostError::Full, "message {n}: {error}");
            done += reap(end, done)?;
        }
    }
    while done < count {
        done += reap(end, done)?;
    }
    side.sync()
}

/// Waits for the end of send `expected`.
fn reap(end: &End, expected: u64) -> Done<u64> {
    let sent = one(&end.sent)?;
    let right = sent.status == Status::Success && sent.id == expected;
    ensure!(right, "send {expected} ended as {sent:?}");
    Ok(1)
}

pub(super) fn order(side: &mut Side<'_>) -> Done {
    let rig = Rig::open(side)?;
    let end = rig.connected(side, &Plan { sends: 8, ..Plan::default() })?;
    stream(side, &end, &rig, 400, 24)
}

pub(super) fn full_and_drain(side: &mut Side<'_>) -> Done {
    let rig = Rig::open(side)?;
    let plan = Plan { sends: 16, depth: 4096, ..Plan::default() };
    let end = rig.connected(side, &plan)?;
    let buffer = rig.buffer(4096 * 8)?;
    for _ in 0..2 {
        let mut posted = 0_usize;
        if side.role == 0 {
            // Nobody has posted a receive: what is sent stays in flight.
            loop {
                ensure!(posted < 4096, "{posted} sends in a queue for 16");
                let at = posted * 8;
                buffer.put(at, &(posted as u64).to_le_bytes());
                match end.try_post(posted as u64, SEND, Data::Gather(&[buffer.sge(at, 8)])) {
                    Ok(()) => posted += 1,
                    Err(PostError::Full) => break,
                    Err(error) => return Err(error.into()),
                }
            }
            ensure!(posted >= 16, "full with {posted} sends of 16");
        }
        let told = side.swap(&[posted as u64])?;
        if side.role == 0 {
            for (n, sent) in good(&end.sent, posted)?.iter().enumerate() {
                ensure!(sent.id == n as u64, "send {n} ended as {sent:?}");
            }
        } else {
            let count = told.first().copied().unwrap_or(0);
            for n in 0..count {
                end.receive(n, &buffer, 0, 8)?;
                let got = one(&end.got)?;
                ensure!(got.id == n && got.status == Status::Success, "{got:?} of {n}");
                ensure!(buffer.word(0) == n.to_le(), "{} instead of {n}", buffer.word(0));
            }
        }
        side.sync()?;
    }
    Ok(())
}

pub(super) fn gather(side: &mut Side<'_>) -> Done {
    let rig = Rig::open(side)?;
    let most = rig.device.caps().max_sge.min(8);
    if most < 2 {
        return Err(skip("one gather entry only"));
    }
    let end = rig.connected(side, &Plan { gather: most, ..Plan::default() })?;
    let (source, target) = (rig.buffer(64 << 10)?, rig.buffer(64 << 10)?);
    source.put(0, &pattern(8, 64 << 10));
    for (first, step) in [(1, 3), (0, 1), (5000, 100)] {
        for count in 2..=most as usize {
            end.receive(1, &target, 0, 64 << 10)?;
            side.sync()?;
            let mut expected = Vec::new();
            let mut pieces = Vec::new();
            for piece in 0..count {
                let (at, len) = (piece * 7919, first + piece * step);
                pieces.push(source.sge(at, len));
                expected.extend_from_slice(&source.get(at, len));
            }
            end.succeeds(SEND, Data::Gather(&pieces))?;
            let got = one(&end.got)?;
            ensure!(got.len as usize == expected.len(), "{count} pieces came as {got:?}");
            ensure!(target.get(0, expected.len()) == expected, "{count} pieces: other bytes");
        }
    }
    let more: Vec<Sge> = (0..=most as usize + 32).map(|at| source.sge(at, 1)).collect();
    let refused = end.try_post(1, SEND, Data::Gather(&more));
    ensure!(
        matches!(refused, Err(ref error) if *error != PostError::Full),
        "{} pieces instead of {most}: {refused:?}",
        more.len()
    );
    side.sync()
}

pub(super) fn inline(side: &mut Side<'_>) -> Done {
    let rig = Rig::open(side)?;
    for wanted in [0, 1, 64, 256, 1024] {
        let plan = Plan { inline: wanted, ..Plan::default() };
        let end = rig.connected(side, &plan)?;
        let most = end.qp.max_inline() as usize;
        let theirs = side.swap(&[most as u64])?.first().copied().unwrap_or(0);
        let target = rig.buffer(most.max(usize::try_from(theirs)?) + 64)?;
        let at_once = Some(0x0102_0304);
        let parts = [most.min(1), most / 2, most].map(|size| (size, None));
        for (size, imm) in parts.into_iter().chain([(most / 2, at_once), (most, at_once)]) {
            end.receive(1, &target, 0, target.len())?;
            side.sync()?;
            let mut bytes = pattern(size as u64, size);
            let (head, tail) = bytes.split_at(size / 3);
            match imm {
                None => end.post(2, SEND, Data::Inline(&[head, tail]))?,
                Some(imm) => {
                    let posted = end.qp.post_message(2, imm, &bytes, true);
                    ensure!(posted, "{size} bytes at once: no");
                }
            }
            // Taken during the post: what happens to the bytes later is of no concern.
            bytes.fill(0);
            drop(bytes);
            let sent = one(&end.sent)?;
            ensure!(sent.status == Status::Success, "{size} bytes inline: {sent:?}");
            let got = one(&end.got)?;
            let right = got.status == Status::Success && got.imm == imm;
            ensure!(right, "{size} bytes inline: {got:?}");
            let got = target.get(0, got.len as usize);
            ensure!(got == pattern(got.len() as u64, got.len()), "other bytes came");
            side.sync()?;
        }
        let long = vec![1; most + 1];
        let refused = end.try_post(3, SEND, Data::Inline(&[&long]));
        ensure!(
            matches!(refused, Err(ref error) if *error != PostError::Full),
            "{} bytes of at most {most} inline: {refused:?}",
            most + 1
        );
        let at_once = end.qp.post_message(3, 0, &long, true)
            || end.qp.post_write(3, (target.addr(0), target.rkey()), &long, true);
        ensure!(!at_once, "{} bytes at once", most + 1);
        side.sync()?;
    }
    Ok(())
}

pub(super) fn unsignalled(side: &mut Side<'_>) -> Done {
    let rig = Rig::open(side)?;
    let end = rig.connected(side, &Plan { sends: 8, ..Plan::default() })?;
    let buffer = rig.buffer(4096)?;
    let count = 160_u64;
    if side.role == 1 {
        let receives: Vec<RecvWr> =
            (0..32).map(|id| RecvWr { id, buffer: buffer.sge(0, 16) }).collect();
        let posted = end.qp.post_receives(&receives);
        ensure!(posted == receives.len(), "{posted} of {} in lists", receives.len());
        side.sync()?;
        for n in 0..count {
            let got = one(&end.got)?;
            ensure!(got.id == n && got.status == Status::Success, "message {n}: {got:?}");
            if n + 32 < count {
                end.receive(n + 32, &buffer, 0, 16)?;
            }
        }
        return side.sync();
    }
    side.sync()?;
    let mut ends = Vec::new();
    let mut some = [Completion::EMPTY; 4];
    let until = Instant::now() + COMPLETION;
    for n in 0..count {
        let signaled = n % 4 == 3;
        let data = Data::Gather(&[buffer.sge(0, 8)]);
        let send = SendWr { id: n, operation: SEND, data, signaled, to: None };
        while let Err(error) = end.qp.post_send(&send) {
            ensure!(error == PostError::Full, "message {n}: {error}");
            ensure!(Instant::now() < until, "message {n}: full for ever");
            let got = end.sent.poll(&mut some)?;
            ends.extend_from_slice(some.get(..got).unwrap_or_default());
        }
    }
    let left = usize::try_from(count / 4)?.saturating_sub(ends.len());
    ends.extend(good(&end.sent, left)?);
    side.sync()?;
    super::rig::silent(&end.sent)?;
    let ids: Vec<u64> = ends.iter().map(|one| one.id).collect();
    let expected: Vec<u64> = (0..count).filter(|n| n % 4 == 3).collect();
    ensure!(ids == expected, "completions of {ids:?}");
    Ok(())
}

pub(super) fn both_ways(side: &mut Side<'_>) -> Done {
    let rig = Rig::open(side)?;
    let end = rig.connected(side, &Plan::default())?;
    let (count, size, posted) = (300_usize, 2000, 16);
    let source = rig.buffer(size)?;
    let target = rig.buffer(size * posted)?;
    source.put(0, &pattern(u64::from(side.role), size));
    let expected = pattern(u64::from(1 - side.role), size);
    for n in 0..posted {
        end.receive(n as u64, &target, n * size, size)?;
    }
    side.sync()?;
    let (mut sent, mut in_flight, mut got) = (0, 0, 0);
    let mut some = [Completion::EMPTY; 8];
    let until = Instant::now() + COMPLETION;
    while got < count || sent < count || in_flight > 0 {
        ensure!(Instant::now() < until, "{sent} sent, {got} received of {count}");
        if sent < count && in_flight < 16 {
            match end.try_post(sent as u64, SEND, Data::Gather(&[source.sge(0, size)])) {
                Ok(()) => (sent, in_flight) = (sent + 1, in_flight + 1),
                Err(PostError::Full) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let ends = end.sent.poll(&mut some)?;
        let failed = some.iter().take(ends).find(|one| one.status != Status::Success);
        ensure!(failed.is_none(), "{failed:?}");
        in_flight -= ends;
        for n in 0..end.got.poll(&mut some)? {
            let one = some.get(n).copied().unwrap_or(Completion::EMPTY);
            ensure!(one.status == Status::Success && one.len as usize == size, "{one:?}");
            let at = usize::try_from(one.id)? * size;
            ensure!(target.get(at, size) == expected, "message {got}: other bytes");
            got += 1;
            if got + posted <= count {
                end.receive(one.id, &target, at, size)?;
            }
        }
    }
    side.sync()
}

pub(super) fn two_threads(side: &mut Side<'_>) -> Done {
    let rig = Rig::open(side)?;
    let end = rig.connected(side, &Plan { depth: 1024, ..Plan::default() })?;
    let each = 150_usize;
    let buffer = rig.buffer(256 + 16 * each)?;
    for n in 0..32_usize {
        end.receive(n as u64, &buffer, n * 8, 8)?;
    }
    side.sync()?;
    let (received, ended) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let thread = |number: usize| worker(&end, &buffer, number, each, &received, &ended);
    let thread = &thread;
    let (first, second) = std::thread::scope(|scope| {
        let second = scope.spawn(move || thread(1));
        (thread(0), second.join())
    });
    let second = second.map_err(|_| fail("a thread panicked"))?;
    let mut all = [first?, second?].concat();
    all.sort_unstable();
    let expected: Vec<u64> = (0..2 * each as u64).collect();
    ensure!(all == expected, "{} messages, not each once", all.len());
    side.sync()
}

/// Sends its half of the numbers and takes whatever arrives, until both threads have all.
fn worker(
    end: &End,
    buffer: &Buffer,
    number: usize,
    each: usize,
    received: &AtomicUsize,
    ended: &AtomicUsize,
) -> Done<Vec<u64>> {
    let until = Instant::now() + COMPLETION;
    let mut mine = Vec::new();
    let mut next = 0;
    let mut some = [Completion::EMPTY; 3];
    while received.load(Ordering::SeqCst) < 2 * each || ended.load(Ordering::SeqCst) < 2 * each {
        let seen = (next, received.load(Ordering::SeqCst), ended.load(Ordering::SeqCst));
        ensure!(Instant::now() < until, "thread {number}: {seen:?} of {each} posted, {}", 2 * each);
        if next < each {
            let value = number * each + next;
            let place = 256 + 8 * value;
            buffer.put(place, &(value as u64).to_le_bytes());
            let sent = end.try_post(0, SEND, Data::Gather(&[buffer.sge(place, 8)]));
            match sent {
                Ok(()) => next += 1,
                Err(PostError::Full) => {}
                Err(error) => return Err(error.into()),
            }
        }
        for n in 0..end.sent.poll(&mut some)? {
            let one = some.get(n).copied().unwrap_or(Completion::EMPTY);
            ensure!(one.status == Status::Success, "{one:?}");
            ended.fetch_add(1, Ordering::SeqCst);
        }
        for n in 0..end.got.poll(&mut some)? {
            let one = some.get(n).copied().unwrap_or(Completion::EMPTY);
            ensure!(one.status == Status::Success && one.len == 8, "{one:?}");
            let at = usize::try_from(one.id)? * 8;
            mine.push(u64::from_le(buffer.word(at)));
            end.receive(one.id, buffer, at, 8)?;
            received.fetch_add(1, Ordering::SeqCst);
        }
        std::thread::yield_now();
    }
    Ok(mine)
}
