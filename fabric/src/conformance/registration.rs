//! Registered memory: keys, bounds, permissions, here and at the peer.

use super::Side;
use super::memory::Buffer;
use super::rig::{Done, End, Plan, Rig, ensure, good, pattern, silent};
use crate::{Access, Data, Operation, Status};

pub(super) fn register(side: &mut Side<'_>) -> Done {
    let rig = Rig::open(side)?;
    let sizes = [1, 7, 4096, 4097, 1 << 20];
    let access = [
        Access::NONE,
        Access::LOCAL_WRITE,
        Access::REMOTE_READ,
        Access::LOCAL_WRITE.and(Access::REMOTE_WRITE),
    ];
    let mut kept = Vec::new();
    for len in sizes {
        for access in access {
            kept.push(Buffer::new(&*rig.device, len, access)?);
        }
    }
    for (index, one) in kept.iter().enumerate() {
        let twins = kept.iter().filter(|other| other.lkey() == one.lkey()).count();
        ensure!(twins == 1, "key {:#x} of region {index} is given {twins} times", one.lkey());
    }
    // The same memory may be registered more than once.
    let base = kept.first().map(Buffer::len);
    ensure!(base.is_some(), "nothing kept");
    drop(kept);
    let broken = Buffer::new(&*rig.device, 64, Access::REMOTE_WRITE);
    ensure!(broken.is_err(), "remote write without local write is taken");
    for _ in 0..200 {
        rig.buffer(4096)?;
    }
    side.sync()
}

/// What role 0 does to memory of role 1 must end so.
struct Attack {
    name: &'static str,
    operation: Operation,
    len: usize,
    ends: &'static [Status],
}

const REFUSED: &[Status] = &[Status::RemoteAccess, Status::RemoteInvalid];

/// Each attack has fresh queue pairs: a refusal ends them.
fn attack(side: &mut Side<'_>, rig: &Rig, access: Access, attacks: &[Attack]) -> Done {
    for one in attacks {
        let plan = Plan { access, ..Plan::default() };
        let end = rig.connected(side, &plan)?;
        if side.role == 0 {
            let buffer = rig.buffer(8192)?;
            buffer.fill(0xee);
            let name = one.name;
            let data = [buffer.sge(0, one.len)];
            match end.try_post(99, one.operation, Data::Gather(&data)) {
                Ok(()) => {}
                // What can be seen to be wrong from here may be refused here.
                Err(crate::PostError::Invalid(_)) if one.ends == REFUSED => {
                    side.sync()?;
                    continue;
                }
                Err(error) => return Err(super::fail(format!("{name}: {error}"))),
            }
            let ended = super::rig::one(&end.sent)?;
            ensure!(one.ends.contains(&ended.status), "{name}: {:?}", ended.status);
            if ended.status == Status::Success {
                side.sync()?;
                continue;
            }
            if matches!(one.operation, Operation::Read { .. } | Operation::FetchAdd { .. }) {
                ensure!(buffer.get(0, 1) == [0xee], "{name}: refused, yet data came");
            }
            end.has_failed(&buffer)?;
        }
        side.sync()?;
    }
    Ok(())
}

pub(super) fn remote_bounds(side: &mut Side<'_>) -> Done {
    use Operation::{FetchAdd, Read, Write};
    let rig = Rig::open(side)?;
    let len = 8192;
    let buffer = rig.buffer(len)?;
    let told = side.swap(&[buffer.addr(0), buffer.rkey().into()])?;
    let &[base, rkey] = told.as_slice() else {
        return Err(super::fail("no address came"));
    };
    let rkey = u32::try_from(rkey)?;
    let end = base.wrapping_add(len as u64);
    let write = |remote| Write { remote, rkey };
    let read = |remote| Read { remote, rkey };
    let good = &[Status::Success];
    let mut attacks = vec![
        Attack { name: "all of it", operation: write(base), len, ends: good },
        Attack { name: "last byte", operation: write(end - 1), len: 1, ends: good },
        Attack { name: "all read", operation: read(base), len, ends: good },
        Attack { name: "one byte after", operation: write(end), len: 1, ends: REFUSED },
        Attack { name: "one byte too long", operation: write(end - 7), len: 8, ends: REFUSED },
        Attack { name: "one byte before", operation: write(base - 1), len: 2, ends: REFUSED },
        Attack { name: "read after", operation: read(end), len: 1, ends: REFUSED },
        Attack { name: "read too long", operation: read(end - 7), len: 8, ends: REFUSED },
        Attack { name: "read before", operation: read(base - 1), len: 1, ends: REFUSED },
        Attack { name: "around the end", operation: write(u64::MAX - 1), len: 4, ends: REFUSED },
        Attack { name: "read around", operation: read(u64::MAX - 1), len: 4, ends: REFUSED },
        Attack {
            name: "wrong key",
            operation: Write { remote: base, rkey: rkey ^ 0x5a5a_5a00 },
            len: 8,
            ends: REFUSED,
        },
        Attack {
            name: "read by wrong key",
            operation: Read { remote: base, rkey: rkey ^ 0x5a5a_5a00 },
            len: 8,
            ends: REFUSED,
        },
    ];
    if rig.device.caps().has_atomics() {
        let add = |remote| FetchAdd { remote, rkey, add: 1 };
        attacks.push(Attack { name: "last word", operation: add(end - 8), len: 8, ends: good });
        attacks.push(Attack { name: "word after", operation: add(end), len: 8, ends: REFUSED });
        attacks.push(Attack {
            name: "crooked word",
            operation: add(base + 4),
            len: 8,
            ends: REFUSED,
        });
    }
    buffer.fill(0x11);
    attack(side, &rig, Access::ALL, &attacks)
}

pub(super) fn remote_permission(side: &mut Side<'_>) -> Done {
    use Operation::{FetchAdd, Read, Write};
    let rig = Rig::open(side)?;
    let atomics = rig.device.caps().has_atomics();
    let local = Access::LOCAL_WRITE;
    let cases = [
        // Region, queue pair, write, read, add allowed.
        (Access::NONE, Access::ALL, false, false, false),
        (local, Access::ALL, false, false, false),
        (Access::REMOTE_READ, Access::ALL, false, true, false),
        (local.and(Access::REMOTE_WRITE), Access::ALL, true, false, false),
        (Access::ALL, local, false, false, false),
        (Access::ALL, local.and(Access::REMOTE_READ), false, true, false),
        (Access::ALL, local.and(Access::REMOTE_WRITE), true, false, false),
    ];
    for (region, pair, write, read, add) in cases {
        let buffer = Buffer::new(&*rig.device, 64, region)?;
        buffer.fill(0x22);
        let told = side.swap(&[buffer.addr(0), buffer.rkey().into()])?;
        let &[remote, rkey] = told.as_slice() else {
            return Err(super::fail("no address came"));
        };
        let rkey = u32::try_from(rkey)?;
        let ends = |allowed: bool| if allowed { &[Status::Success][..] } else { REFUSED };
        let mut attacks = vec![
            Attack { name: "write", operation: Write { remote, rkey }, len: 8, ends: ends(write) },
            Attack { name: "read", operation: Read { remote, rkey }, len: 8, ends: ends(read) },
        ];
        if atomics {
            let operation = FetchAdd { remote, rkey, add: 1 };
            attacks.push(Attack { name: "add", operation, len: 8, ends: ends(add) });
        }
        attack(side, &rig, pair, &attacks)?;
        let seen = buffer.get(0, 8);
        let changed = seen != [0x22; 8];
        ensure!(
            changed == (write && side.role == 1),
            "region {region:?}, queue pair {pair:?}: memory holds {seen:?}"
        );
    }
    Ok(())
}

pub(super) fn deregistered(side: &mut Side<'_>) -> Done {
    let rig = Rig::open(side)?;
    let mut buffer = rig.buffer(4096)?;
    buffer.fill(0x33);
    let told = side.swap(&[buffer.addr(0), buffer.rkey().into()])?;
    let &[remote, rkey] = told.as_slice() else {
        return Err(super::fail("no address came"));
    };
    let rkey = u32::try_from(rkey)?;
    let write = Operation::Write { remote, rkey };
    let read = Operation::Read { remote, rkey };
    let good: &[Status] = &[Status::Success];
    attack(
        side,
        &rig,
        Access::ALL,
        &[Attack { name: "before", operation: write, len: 4, ends: good }],
    )?;
    buffer.deregister();
    buffer.fill(0x44);
    side.sync()?;
    let after = [
        Attack { name: "write after", operation: write, len: 4, ends: REFUSED },
        Attack { name: "read after", operation: read, len: 4, ends: REFUSED },
    ];
    attack(side, &rig, Access::ALL, &after)?;
    ensure!(buffer.get(0, 4) == [0x44; 4], "memory changed after its registration ended");
    Ok(())
}

pub(super) fn local_key(side: &mut Side<'_>) -> Done {
    let rig = Rig::open(side)?;
    let buffer = rig.buffer(4096)?;
    let bare = Buffer::unregistered(4096);
    let constant = Buffer::new(&*rig.device, 4096, Access::REMOTE_READ)?;
    let told = side.swap(&[constant.addr(0), constant.rkey().into()])?;
    let &[remote, rkey] = told.as_slice() else {
        return Err(super::fail("no address came"));
    };
    let read = Operation::Read { remote, rkey: u32::try_from(rkey)? };
    let send = Operation::Send { imm: None };
    let past = buffer.sge(4090, 7);
    let wrong = crate::Sge { lkey: buffer.lkey() ^ 0x5a5a_5a00, ..buffer.sge(0, 8) };
    let unknown = crate::Sge { lkey: buffer.lkey(), ..bare.sge(0, 8) };
    let cases = [
        ("past the end", send, past),
        ("wrong key", send, wrong),
        ("memory of nobody", send, unknown),
        ("read into constant memory", read, constant.sge(0, 8)),
    ];
    for (name, operation, sge) in cases {
        let end = rig.connected(side, &Plan::default())?;
        if side.role == 1 {
            end.receive(1, &buffer, 0, 64)?;
        }
        side.sync()?;
        if side.role == 0 {
            refused_here(&end, name, operation, sge)?;
        }
        side.sync()?;
        if side.role == 1 {
            silent(&end.got)?;
        }
        side.sync()?;
    }
    // Constant memory may be sent from.
    constant.put(0, &pattern(3, 64));
    let end = rig.connected(side, &Plan::default())?;
    end.receive(1, &buffer, 0, 64)?;
    side.sync()?;
    end.send(2, &constant, 0, 64)?;
    good(&end.sent, 1)?;
    good(&end.got, 1)?;
    ensure!(buffer.get(0, 64) == pattern(3, 64), "other bytes came");
    side.sync()
}

fn refused_here(end: &End, name: &str, operation: Operation, sge: crate::Sge) -> Done {
    match end.try_post(1, operation, Data::Gather(&[sge])) {
        // A device may look at the keys while it takes the request.
        Err(crate::PostError::Invalid(_)) => Ok(()),
        Err(error) => Err(super::fail(format!("{name}: {error}"))),
        Ok(()) => {
            let ended = super::rig::one(&end.sent)?;
            let status = ended.status;
            // Soft-RoCE of Linux 6.1 reports an unknown key as the second.
            let right = [Status::LocalProtection, Status::LocalQp].contains(&status);
            ensure!(right, "{name}: {status:?}");
            Ok(())
        }
    }
}
