//! What goes wrong on a connection, and on which side it is seen how.

use std::time::Duration;

use super::Side;
use super::devices::ping;
use super::rig::{Done, Plan, Rig, ensure, good, one, silent, wait};
use crate::{Data, Operation, Retry, Status};

const SEND: Operation = Operation::Send { imm: None };

pub(super) fn rnr_give_up(side: &mut Side<'_>) -> Done {
    let rig = Rig::open(side)?;
    let buffer = rig.buffer(64)?;
    for rnr in [0, 2] {
        let retry = Retry { rnr, ..Retry::default() };
        let end = rig.connected(side, &Plan { retry, ..Plan::default() })?;
        if side.role == 0 {
            let ended = end.ends(SEND, Data::Gather(&[buffer.sge(0, 8)]))?.status;
            ensure!(ended == Status::RnrRetryExceeded, "{rnr} tries: {ended:?}");
            end.has_failed(&buffer)?;
        }
        side.sync()?;
        if side.role == 1 {
            silent(&end.got)?;
        }
        side.sync()?;
    }
    Ok(())
}

pub(super) fn rnr_for_ever(side: &mut Side<'_>) -> Done {
    let rig = Rig::open(side)?;
    let buffer = rig.buffer(64)?;
    let end = rig.connected(side, &Plan::default())?;
    if side.role == 0 {
        end.send(1, &buffer, 0, 8)?;
        side.sync()?;
        silent(&end.sent)?;
        silent(&end.sent)?;
        side.sync()?;
        good(&end.sent, 1)?;
    } else {
        side.sync()?;
        side.sync()?;
        std::thread::sleep(Duration::from_millis(50));
        end.receive(1, &buffer, 0, 8)?;
        good(&end.got, 1)?;
    }
    side.sync()?;
    // A side without a receive can still send.
    if side.role == 0 {
        end.send(1, &buffer, 0, 8)?;
        end.receive(2, &buffer, 32, 8)?;
        good(&end.got, 1)?;
        silent(&end.sent)?;
        side.sync()?;
        good(&end.sent, 1)?;
    } else {
        end.send(1, &buffer, 0, 8)?;
        good(&end.sent, 1)?;
        side.sync()?;
        end.receive(2, &buffer, 32, 8)?;
        good(&end.got, 1)?;
    }
    side.sync()
}

pub(super) fn short_receive(side: &mut Side<'_>) -> Done {
    let rig = Rig::open(side)?;
    let mtu = rig.port.active_mtu.bytes() as usize;
    let buffer = rig.buffer(64 << 10)?;
    for (room, size) in [(8, 9), (0, 1), (mtu, 3 * mtu), (100, 40_000)] {
        let end = rig.connected(side, &Plan::default())?;
        if side.role == 1 {
            buffer.fill(0x42);
            end.receive(1, &buffer, 0, room)?;
            end.receive(2, &buffer, 0, room)?;
            side.sync()?;
            let ended = wait(&end.got, 2)?;
            let first = ended.first().map(|one| (one.id, one.status));
            // A Soft-RoCE device reports the second, that of Linux 6.1 the third.
            let right = [Status::LocalLength, Status::RemoteInvalid, Status::LocalQp]
                .map(|status| Some((1, status)));
            ensure!(right.contains(&first), "{size} bytes in {room}: {ended:?}");
            let second = ended.get(1).map(|one| (one.id, one.status));
            ensure!(second == Some((2, Status::Flushed)), "{size} in {room}: {ended:?}");
            ensure!(buffer.get(room, 64) == [0x42; 64], "{size} in {room}: more was written");
            end.has_failed(&buffer)?;
        } else {
            side.sync()?;
            let ended = end.ends(SEND, Data::Gather(&[buffer.sge(0, size)]))?.status;
            // Soft-RoCE of Linux 6.1 reports the second.
            let right = [Status::RemoteInvalid, Status::RemoteOperation].contains(&ended);
            ensure!(right, "{size} bytes in {room}: {ended:?}");
            end.has_failed(&buffer)?;
        }
        side.sync()?;
    }
    Ok(())
}

pub(super) fn dead_peer(side: &mut Side<'_>) -> Done {
    let rig = Rig::open(side)?;
    let buffer = rig.buffer(64)?;
    let retry = Retry { timeout: 12, count: 2, ..Retry::default() };
    for write in [false, true] {
        let end = rig.connected(side, &Plan { retry, ..Plan::default() })?;
        let told = side.swap(&[buffer.addr(0), buffer.rkey().into()])?;
        if side.role == 1 {
            drop(end);
            side.sync()?;
        } else {
            side.sync()?;
            let (remote, rkey) = (told.first().copied(), told.get(1).copied());
            let (remote, rkey) = (remote.unwrap_or(0), u32::try_from(rkey.unwrap_or(0))?);
            let operation = if write { Operation::Write { remote, rkey } } else { SEND };
            let ended = end.ends(operation, Data::Gather(&[buffer.sge(0, 8)]))?.status;
            ensure!(ended == Status::RetryExceeded, "{operation:x?}: {ended:?}");
            end.has_failed(&buffer)?;
        }
        side.sync()?;
    }
    let end = rig.connected(side, &Plan::default())?;
    ping(side, &rig, &end, 1)
}

pub(super) fn flush(side: &mut Side<'_>) -> Done {
    let rig = Rig::open(side)?;
    let buffer = rig.buffer(64)?;
    let end = rig.connected(side, &Plan::default())?;
    if side.role == 0 {
        for id in 0..10 {
            end.receive(id, &buffer, 0, 8)?;
            // Nobody receives: these wait.
            end.send(100 + id, &buffer, 0, 8)?;
        }
        end.qp.to_error()?;
        for (queue, first) in [(&end.got, 0), (&end.sent, 100)] {
            for (n, ended) in wait(queue, 10)?.iter().enumerate() {
                let right = ended.id == first + n as u64 && ended.status == Status::Flushed;
                ensure!(right, "number {n}: {ended:?}");
                ensure!(ended.qpn == end.qp.number(), "number {n}: {ended:?}");
            }
        }
        end.send(5, &buffer, 0, 8)?;
        let late = one(&end.sent)?;
        ensure!(late.id == 5 && late.status == Status::Flushed, "posted later: {late:?}");
        end.has_failed(&buffer)?;
        silent(&end.sent)?;
    }
    side.sync()
}

pub(super) fn error_is_alone(side: &mut Side<'_>) -> Done {
    let rig = Rig::open(side)?;
    let buffer = rig.buffer(64)?;
    let plan = Plan::default();
    let (bad, well) = (rig.connected(side, &plan)?, rig.connected(side, &plan)?);
    ping(side, &rig, &well, 1)?;
    if side.role == 1 {
        // What is flushed tells a side that its queue pair failed. (Soft-RoCE flushes only what is
        // there at that time.)
        bad.receive(1, &buffer, 0, 8)?;
    }
    side.sync()?;
    if side.role == 0 {
        let wild = Operation::Write { remote: 4096, rkey: 0x1234_5678 };
        let ended = bad.ends(wild, Data::Gather(&[buffer.sge(0, 8)]))?.status;
        ensure!(ended == Status::RemoteAccess, "{ended:?}");
        bad.has_failed(&buffer)?;
    }
    side.sync()?;
    if side.role == 1 {
        // The refused request took this side's half with it.
        bad.has_failed(&buffer)?;
    }
    ping(side, &rig, &well, 2)?;
    let again = rig.connected(side, &plan)?;
    ping(side, &rig, &again, 3)
}
