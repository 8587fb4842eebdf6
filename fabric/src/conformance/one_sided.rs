//! RDMA writes, reads and atomics that are allowed.

use super::Side;
use super::rig::{Done, Plan, Rig, ensure, fail, good, one, pattern, skip};
use crate::{Data, Opcode, Operation, PostError, RecvWr, SendWr, Status};

/// Tells the other side where `buffer` is; its buffer's address and key.
fn target(side: &mut Side<'_>, buffer: &super::memory::Buffer) -> Done<(u64, u32)> {
    let told = side.swap(&[buffer.addr(0), buffer.rkey().into()])?;
    match told.as_slice() {
        &[remote, rkey] => Ok((remote, u32::try_from(rkey)?)),
        _ => Err(fail("no address came")),
    }
}

pub(super) fn write(side: &mut Side<'_>) -> Done {
    let rig = Rig::open(side)?;
    let end = rig.connected(side, &Plan { inline: 64, gather: 2, ..Plan::default() })?;
    let mtu = rig.port.active_mtu.bytes() as usize;
    let (source, own) = (rig.buffer(1 << 20)?, rig.buffer((1 << 20) + 64)?);
    let (remote, rkey) = target(side, &own)?;
    for size in [0, 1, 8, mtu - 1, mtu, mtu + 1, 64 << 10, 1 << 20] {
        own.fill(0x55);
        let role = u64::from(side.role);
        source.put(0, &pattern(size as u64 + role, size));
        side.sync()?;
        let operation = Operation::Write { remote: remote + 13, rkey };
        let half = size / 2;
        let pieces = [source.sge(0, half), source.sge(half, size - half)];
        end.succeeds(operation, Data::Gather(if size == 0 { &[] } else { &pieces }))?;
        side.sync()?;
        ensure!(own.get(13, size) == pattern(size as u64 + 1 - role, size), "{size}: other bytes");
        let around = [own.get(0, 13), own.get(13 + size, 16)].concat();
        ensure!(around == [0x55; 29], "{size} bytes: more was written");
        side.sync()?;
    }
    let most = end.qp.max_inline() as usize;
    if most > 0 {
        own.fill(0);
        side.sync()?;
        let bytes = [6, 7].map(|seed| pattern(seed, most));
        end.succeeds(Operation::Write { remote, rkey }, Data::Inline(&[&bytes[0]]))?;
        let second = (remote + (1 << 19), rkey);
        ensure!(end.qp.post_write(8, second, &bytes[1], true), "{most} bytes at once: no");
        let sent = one(&end.sent)?;
        ensure!(sent.status == Status::Success && sent.id == 8, "at once: {sent:?}");
        let theirs = usize::try_from(side.swap(&[most as u64])?.first().copied().unwrap_or(0))?;
        ensure!(own.get(0, theirs) == pattern(6, theirs), "inline: other bytes");
        ensure!(own.get(1 << 19, theirs) == pattern(7, theirs), "at once: other bytes");
    }
    side.sync()?;
    // No write uses up a receive.
    super::rig::silent(&end.got)
}

pub(super) fn read(side: &mut Side<'_>) -> Done {
    let rig = Rig::open(side)?;
    let most = rig.device.caps().max_sge_rd.min(16);
    let end = rig.connected(side, &Plan { gather: most.max(2), ..Plan::default() })?;
    let mtu = rig.port.active_mtu.bytes() as usize;
    let (into, own) = (rig.buffer((1 << 20) + 64)?, rig.buffer(1 << 20)?);
    own.put(0, &pattern(3 + u64::from(side.role), 1 << 20));
    let expected = pattern(4 - u64::from(side.role), 1 << 20);
    let (remote, rkey) = target(side, &own)?;
    for size in [1, 8, mtu - 1, mtu, mtu + 1, 64 << 10, (1 << 20) - 5] {
        into.fill(0x66);
        let operation = Operation::Read { remote: remote + 5, rkey };
        let half = size / 2;
        let pieces = [into.sge(0, half), into.sge(half + 32, size - half)];
        let pieces = if half == 0 { &pieces[1..] } else { &pieces[..] };
        end.succeeds(operation, Data::Gather(pieces))?;
        let got = [into.get(0, half), into.get(half + 32, size - half)].concat();
        ensure!(expected.get(5..5 + size) == Some(&got[..]), "{size} bytes: others came");
        ensure!(into.get(half, 32) == [0x66; 32], "{size} bytes: more was written");
    }
    // Into as many pieces as there can be.
    for size in [3, 700, 9000] {
        let pieces: Vec<_> = (0..most as usize).map(|n| into.sge(n * (size + 7), size)).collect();
        end.succeeds(Operation::Read { remote: remote + 1, rkey }, Data::Gather(&pieces))?;
        for (n, piece) in expected[1..].chunks(size).take(pieces.len()).enumerate() {
            ensure!(into.get(n * (size + 7), size) == piece, "{size} bytes: piece {n} of {most}");
        }
    }
    // Several at once, answered in order.
    for n in 0..12_usize {
        let operation = Operation::Read { remote: remote + 999 * n as u64, rkey };
        end.post(n as u64, operation, Data::Gather(&[into.sge(n * 4096, 4000)]))?;
    }
    for (n, ended) in good(&end.sent, 12)?.iter().enumerate() {
        ensure!(ended.id == n as u64, "read {n} ended as {ended:?}");
        let expected = expected.get(999 * n..999 * n + 4000);
        ensure!(expected == Some(&into.get(n * 4096, 4000)[..]), "read {n}: other bytes");
    }
    side.sync()
}

/// Writes and reads that are posted together, more than adapters are given at once.
pub(super) fn lists(side: &mut Side<'_>) -> Done {
    const COUNT: usize = 40;
    const APART: usize = 1500;
    let rig = Rig::open(side)?;
    let end = rig.connected(side, &Plan { sends: 64, gather: 2, ..Plan::default() })?;
    let (local, own) = (rig.buffer(COUNT * APART)?, rig.buffer(COUNT * APART)?);
    let (remote, rkey) = target(side, &own)?;
    let role = u64::from(side.role);
    for (round, is_write) in [(10, true), (20, false), (30, true)] {
        let (from, into) = if is_write { (&local, &own) } else { (&own, &local) };
        into.fill(0);
        from.put(0, &pattern(round + role, COUNT * APART));
        side.sync()?;
        // One part, or two.
        let parts: Vec<_> = (0..COUNT)
            .map(|n| {
                let (at, first, len) = (n * APART, (n % 3) * 100, APART - n);
                [local.sge(at, first), local.sge(at + first, len - first)]
            })
            .collect();
        let mut sends = Vec::new();
        for (part, id) in parts.iter().zip(0_u64..) {
            let remote = remote + id * APART as u64;
            let operation = match is_write {
                true => Operation::Write { remote, rkey },
                false => Operation::Read { remote, rkey },
            };
            sends.push(SendWr {
                id,
                operation,
                data: Data::Gather(&part[usize::from(id % 3 == 0)..]),
                signaled: true,
                to: None,
            });
        }
        let mut posted = 0;
        super::rig::persist(|| {
            posted += end.qp.post_sends(&sends[posted..]);
            if posted == COUNT { Ok(()) } else { Err(PostError::Full) }
        })?;
        for (n, ended) in good(&end.sent, COUNT)?.iter().enumerate() {
            ensure!(ended.id == n as u64, "request {n} ended as {ended:?}");
        }
        side.sync()?;
        let expected = pattern(round + 1 - role, COUNT * APART);
        for n in 0..COUNT {
            let (at, len) = (n * APART, APART - n);
            let came = into.get(at, APART);
            ensure!(expected.get(at..at + len) == Some(&came[..len]), "request {n}: other bytes");
            ensure!(came[len..].iter().all(|byte| *byte == 0), "request {n}: more came");
        }
        side.sync()?;
    }
    Ok(())
}

pub(super) fn fetch_add(side: &mut Side<'_>) -> Done {
    let rig = Rig::open(side)?;
    if !rig.device.caps().has_atomics() {
        return Err(skip("no atomics"));
    }
    let end = rig.connected(side, &Plan::default())?;
    let own = rig.buffer(64)?;
    let into = rig.buffer(64)?;
    let start = 5_u64;
    own.put(8, &start.to_ne_bytes());
    let (remote, rkey) = target(side, &own)?;
    let mut expected = start;
    for add in [1, 0, u64::MAX, 1 << 40, 7] {
        let operation = Operation::FetchAdd { remote: remote + 8, rkey, add };
        end.succeeds(operation, Data::Gather(&[into.sge(16, 8)]))?;
        let old = into.word(16);
        ensure!(old == expected, "adding {add}: old value {old}, not {expected}");
        expected = expected.wrapping_add(add);
    }
    side.sync()?;
    ensure!(own.word(8) == expected, "{} instead of {expected}", own.word(8));
    ensure!(own.word(0) == 0 && own.word(16) == 0, "neighbours changed");
    side.sync()
}

pub(super) fn compare_swap(side: &mut Side<'_>) -> Done {
    let rig = Rig::open(side)?;
    if !rig.device.caps().has_atomics() {
        return Err(skip("no atomics"));
    }
    let end = rig.connected(side, &Plan::default())?;
    let (own, into) = (rig.buffer(64)?, rig.buffer(64)?);
    let mut expected = 5_u64;
    own.put(8, &expected.to_ne_bytes());
    let (remote, rkey) = target(side, &own)?;
    // As expected, as it was before, only one half of it, and all bits.
    let turns = [(5, 1 << 40), (5, 7), (0, 8), (1 << 40, u64::MAX), (u64::MAX, 6), (6, 6)];
    for (compare, swap) in turns {
        let operation = Operation::CompareSwap { remote: remote + 8, rkey, compare, swap };
        end.succeeds(operation, Data::Gather(&[into.sge(16, 8)]))?;
        let old = into.word(16);
        ensure!(old == expected, "{compare:#x} to {swap:#x}: old value {old}, not {expected}");
        expected = if old == compare { swap } else { old };
        // The next operation of the connection is read behind both operands.
        end.succeeds(
            Operation::FetchAdd { remote: remote + 8, rkey, add: 0 },
            Data::Gather(&[into.sge(24, 8)]),
        )?;
        ensure!(into.word(24) == expected, "{} instead of {expected}", into.word(24));
    }
    side.sync()?;
    ensure!(own.word(8) == expected, "{} instead of {expected}", own.word(8));
    ensure!(own.word(0) == 0 && own.word(16) == 0, "neighbours changed");
    side.sync()
}

pub(super) fn concurrent_adds(side: &mut Side<'_>) -> Done {
    let rig = Rig::open(side)?;
    if !rig.device.caps().has_atomics() {
        return Err(skip("no atomics"));
    }
    let plan = Plan { sends: 4, ..Plan::default() };
    let far = rig.connected(side, &plan)?;
    // Side 0 adds to its own word through its own device, side 1 over the connection.
    let (near, other) = (rig.end(&plan)?, rig.end(&plan)?);
    rig.join(&near, &rig.peer(&rig.words(&other))?)?;
    rig.join(&other, &rig.peer(&rig.words(&near))?)?;
    let (own, into) = (rig.buffer(64)?, rig.buffer(64)?);
    let (remote, rkey) = target(side, &own)?;
    let (end, remote, rkey) =
        if side.role == 0 { (&near, own.addr(0), own.rkey()) } else { (&far, remote, rkey) };
    let each = 200;
    let mut old = Vec::new();
    side.sync()?;
    for _ in 0..each {
        let operation = Operation::FetchAdd { remote, rkey, add: 1 };
        end.succeeds(operation, Data::Gather(&[into.sge(0, 8)]))?;
        old.push(into.word(0));
    }
    let mut all = side.swap(&old)?;
    all.append(&mut old);
    all.sort_unstable();
    let expected: Vec<u64> = (0..2 * each).collect();
    ensure!(all == expected, "old values are not 0 to {}, each once", 2 * each - 1);
    let sum = own.word(0);
    ensure!(side.role == 1 || sum == 2 * each, "{sum} after {} adds", 2 * each);
    side.sync()
}

/// Writes that use up a receive: data in its place, number and length in the completion, nothing in
/// the receive's own buffer. The receives of role 0 come from a shared queue, if there is one.
pub(super) fn write_imm(side: &mut Side<'_>) -> Done {
    let rig = Rig::open(side)?;
    let shares = side.role == 0 && rig.device.caps().max_srq_wr > 0;
    let srq = if shares { Some(rig.device.shared_receive_queue(40)?) } else { None };
    let plan = Plan { inline: 64, gather: 2, srq: srq.clone(), ..Plan::default() };
    let end = rig.connected(side, &plan)?;
    let mtu = rig.port.active_mtu.bytes() as usize;
    let (source, own) = (rig.buffer(1 << 20)?, rig.buffer((1 << 20) + 64)?);
    let (remote, rkey) = target(side, &own)?;
    let nothing = rig.buffer(64)?;
    let post = |id: u64, len: usize| match &srq {
        Some(srq) => Ok(srq.post(&RecvWr { id, buffer: nothing.sge(0, len) })?),
        None => end.receive(id, &nothing, 0, len),
    };
    let sizes = [0, 1, 8, mtu - 1, mtu, mtu + 1, 64 << 10, 1 << 20];
    for (n, size) in sizes.into_iter().enumerate() {
        own.fill(0x55);
        nothing.fill(0x66);
        // With memory or without: what comes is longer in any case.
        post(n as u64, if n % 2 == 0 { 0 } else { 8 })?;
        let role = u64::from(side.role);
        source.put(0, &pattern(size as u64 + role, size));
        side.sync()?;
        let imm = u32::MAX - u32::try_from(n)?;
        let operation = Operation::WriteImm { remote: remote + 13, rkey, imm };
        let half = size / 2;
        let pieces = [source.sge(0, half), source.sge(half, size - half)];
        end.succeeds(operation, Data::Gather(if size == 0 { &[] } else { &pieces }))?;
        let got = one(&end.got)?;
        let right = got.status == Status::Success && got.opcode == Opcode::ReceivedWrite;
        ensure!(right && got.imm == Some(imm) && got.id == n as u64, "{size} bytes: {got:?}");
        ensure!(got.len as usize == size, "{size} bytes came as {}", got.len);
        ensure!(got.qpn == end.qp.number(), "{size} bytes came for {:#x}", got.qpn);
        ensure!(own.get(13, size) == pattern(size as u64 + 1 - role, size), "{size}: other bytes");
        let around = [own.get(0, 13), own.get(13 + size, 16)].concat();
        ensure!(around == [0x55; 29], "{size} bytes: more was written");
        ensure!(nothing.get(0, 64) == [0x66; 64], "{size} bytes: the receive's buffer was written");
        side.sync()?;
    }
    // Inline, and in order with messages.
    let bytes = pattern(9, (end.qp.max_inline() as usize).min(64));
    for n in 0..30_u64 {
        post(n, 8)?;
    }
    side.sync()?;
    for n in 0..15_u32 {
        let operation = Operation::WriteImm { remote, rkey, imm: 2 * n };
        end.succeeds(operation, Data::Inline(&[&bytes]))?;
        let data = Data::Gather(&[source.sge(0, 8)]);
        end.succeeds(Operation::Send { imm: Some(2 * n + 1) }, data)?;
    }
    for (n, got) in (0..).zip(good(&end.got, 30)?) {
        let opcode = if n % 2 == 0 { Opcode::ReceivedWrite } else { Opcode::Receive };
        ensure!(got.imm == Some(n) && got.opcode == opcode, "number {n}: {got:?}");
    }
    side.sync()?;
    super::rig::silent(&end.got)
}

/// Without a receive it waits as a message does, and one that is refused leaves the receives alone.
pub(super) fn write_imm_waits(side: &mut Side<'_>) -> Done {
    let rig = Rig::open(side)?;
    let own = rig.buffer(4096)?;
    let (remote, rkey) = target(side, &own)?;
    let end = rig.connected(side, &Plan::default())?;
    if side.role == 0 {
        let operation = Operation::WriteImm { remote, rkey, imm: 3 };
        end.post(1, operation, Data::Gather(&[own.sge(64, 8)]))?;
        super::rig::silent(&end.sent)?;
        side.sync()?;
        good(&end.sent, 1)?;
    } else {
        super::rig::silent(&end.got)?;
        side.sync()?;
        end.receive(2, &own, 128, 0)?;
        let got = good(&end.got, 1)?;
        ensure!(got.first().is_some_and(|got| got.imm == Some(3) && got.len == 8), "{got:?}");
    }
    side.sync()?;
    for (at, key) in [(remote + 4090, rkey), (remote, rkey ^ 0x5a5a_5a00)] {
        let end = rig.connected(side, &Plan::default())?;
        if side.role == 1 {
            end.receive(1, &own, 0, 8)?;
        }
        side.sync()?;
        if side.role == 0 {
            let operation = Operation::WriteImm { remote: at, rkey: key, imm: 4 };
            let ended = end.ends(operation, Data::Gather(&[own.sge(0, 7)]))?.status;
            let refused = [Status::RemoteAccess, Status::RemoteInvalid];
            ensure!(refused.contains(&ended), "at {at:#x} with key {key:#x}: {ended:?}");
        } else {
            let got = one(&end.got)?;
            ensure!(got.status != Status::Success, "a refused write has told: {got:?}");
        }
        side.sync()?;
    }
    Ok(())
}

pub(super) fn write_then_send(side: &mut Side<'_>) -> Done {
    let rig = Rig::open(side)?;
    let end = rig.connected(side, &Plan::default())?;
    let size = 10_000;
    let (source, own) = (rig.buffer(size)?, rig.buffer(size)?);
    let (remote, rkey) = target(side, &own)?;
    for round in 0..60 {
        if side.role == round % 2 {
            source.put(0, &pattern(round.into(), size));
            side.sync()?;
            end.post(1, Operation::Write { remote, rkey }, Data::Gather(&[source.sge(0, size)]))?;
            end.send(2, &source, 0, 4)?;
            let ids: Vec<u64> = good(&end.sent, 2)?.iter().map(|one| one.id).collect();
            ensure!(ids == [1, 2], "ends of {ids:?}");
        } else {
            end.receive(3, &source, 0, 4)?;
            side.sync()?;
            good(&end.got, 1)?;
            let seen = own.get(0, size);
            ensure!(seen == pattern(round.into(), size), "round {round}: message before the write");
        }
        side.sync()?;
    }
    Ok(())
}

pub(super) fn idle_target(side: &mut Side<'_>) -> Done {
    let rig = Rig::open(side)?;
    let end = rig.connected(side, &Plan::default())?;
    let buffer = rig.buffer(64 << 10)?;
    let (remote, rkey) = target(side, &buffer)?;
    for n in 0..8 {
        end.receive(n, &buffer, 0, 4096)?;
    }
    side.sync()?;
    if side.role == 0 {
        for n in 0..8 {
            end.send(n, &buffer, 8192, 4096)?;
        }
        good(&end.sent, 8)?;
        let write = Operation::Write { remote: remote + 4096, rkey };
        end.succeeds(write, Data::Gather(&[buffer.sge(8192, 4096)]))?;
        let read = Operation::Read { remote: remote + 4096, rkey };
        end.succeeds(read, Data::Gather(&[buffer.sge(16384, 4096)]))?;
        if rig.device.caps().has_atomics() {
            let add = Operation::FetchAdd { remote, rkey, add: 1 };
            end.succeeds(add, Data::Gather(&[buffer.sge(0, 8)]))?;
        }
    }
    // Role 1 waits here and polls nothing until role 0 is done.
    side.sync()?;
    if side.role == 1 {
        let got = good(&end.got, 8)?;
        ensure!(got.iter().all(|one| one.len == 4096), "{got:?}");
    }
    side.sync()
}

pub(super) fn loop_back(side: &mut Side<'_>) -> Done {
    let rig = Rig::open(side)?;
    let plan = Plan::default();
    let (left, right) = (rig.end(&plan)?, rig.end(&plan)?);
    rig.join(&left, &rig.peer(&rig.words(&right))?)?;
    rig.join(&right, &rig.peer(&rig.words(&left))?)?;
    let buffer = rig.buffer(64 << 10)?;
    buffer.put(0, &pattern(2, 20_000));
    for (from, to) in [(&left, &right), (&right, &left)] {
        to.receive(1, &buffer, 30_000, 20_000)?;
        from.send(2, &buffer, 0, 20_000)?;
        good(&from.sent, 1)?;
        good(&to.got, 1)?;
        ensure!(buffer.get(30_000, 20_000) == pattern(2, 20_000), "other bytes came");
    }
    let refused = right.try_post(1, Operation::Send { imm: None }, Data::Gather(&[]));
    ensure!(matches!(refused, Ok(()) | Err(PostError::Full)), "empty message: {refused:?}");
    left.receive(4, &buffer, 0, 1)?;
    let got = one(&left.got)?;
    ensure!(got.status == Status::Success && got.len == 0, "{got:?}");
    // A queue pair may be connected to itself.
    let own = rig.end(&plan)?;
    rig.join(&own, &rig.peer(&rig.words(&own))?)?;
    own.receive(5, &buffer, 50_000, 100)?;
    own.send(6, &buffer, 0, 100)?;
    good(&own.sent, 1)?;
    good(&own.got, 1)?;
    ensure!(buffer.get(50_000, 100) == buffer.get(0, 100), "other bytes came");
    side.sync()
}
