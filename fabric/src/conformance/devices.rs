//! Devices and ports as they describe themselves, several of them, and the life of their objects.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::rig::{Done, End, Plan, Rig, ensure, fail, good, pattern, skip};
use super::{COMPLETION, Side};
use crate::{AsyncEvent, Device, LinkLayer, PortState};

/// Whether something can be read from a descriptor within a time.
pub(super) fn readable(fd: BorrowedFd<'_>, within: Duration) -> Done<bool> {
    let until = Instant::now() + within;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        match poll(&mut [PollFd::new(fd, PollFlags::POLLIN)], timeout) {
            Ok(count) => return Ok(count > 0),
            Err(nix::errno::Errno::EINTR) => {}
            Err(errno) => return Err(fail(format!("poll: {errno}"))),
        }
    }
}

pub(super) fn devices(side: &mut Side<'_>) -> Done {
    let infos = side.fabric.devices().to_vec();
    ensure!(!infos.is_empty(), "no devices");
    for (index, info) in infos.iter().enumerate() {
        let device = side.fabric.open(index)?;
        ensure!(device.info() == info, "opened {:?}, listed {info:?}", device.info());
        let twins = infos.iter().filter(|other| other.name == info.name).count();
        ensure!(twins == 1 && !info.name.is_empty(), "name {:?} {twins} times", info.name);
        ensure!(info.ports > 0, "{} has no port", info.name);
        let caps = device.caps();
        let wanted = [caps.max_qp, caps.max_qp_wr, caps.max_sge, caps.max_cqe, caps.max_mr];
        ensure!(wanted.iter().all(|&limit| limit > 0), "a limit of 0 in {caps:?}");
        ensure!(
            (caps.max_srq_wr == 0) == (caps.max_srq_sge == 0),
            "half a receive queue: {caps:?}"
        );
        ensure!(caps.max_mr_size >= 1 << 20, "regions of at most {} bytes", caps.max_mr_size);
        let quiet = device.next_event()?;
        ensure!(quiet.is_none(), "a new device has the event {quiet:?}");
        ensure!(!readable(device.event_fd(), Duration::ZERO)?, "event without an event");
    }
    let beyond = side.fabric.open(infos.len());
    ensure!(beyond.is_err(), "device {} of {} opens", infos.len(), infos.len());
    Ok(())
}

pub(super) fn ports(side: &mut Side<'_>) -> Done {
    let rig = Rig::open(side)?;
    let last = rig.device.info().ports;
    for number in 1..=last {
        let port = rig.device.port(number)?;
        ensure!(port.number == number, "port {number} says {}", port.number);
        ensure!(!port.pkeys.is_empty(), "port {number} has no partition key");
        let ascending = port.gids.windows(2).all(|two| matches!(two, [a, b] if a.index < b.index));
        ensure!(ascending, "GIDs not in order: {:?}", port.gids);
        ensure!(port.gids.iter().all(|entry| !entry.gid.is_empty()), "empty GID: {:?}", port.gids);
        ensure!(port.max_message >= 1 << 20, "messages of at most {} bytes", port.max_message);
        let named = port.link == LinkLayer::InfiniBand && port.lid != 0 || !port.gids.is_empty();
        ensure!(named || port.state != PortState::Active, "active without an address: {port:?}");
    }
    for beyond in [0, last.saturating_add(1)] {
        ensure!(rig.device.port(beyond).is_err(), "port {beyond} of {last} exists");
    }
    let state = rig.port.state;
    ensure!(state == PortState::Active, "the port under test is {state:?}");
    Ok(())
}

pub(super) fn port_events(side: &mut Side<'_>) -> Done {
    let Some(set_port) = side.set_port else {
        return Err(skip("nothing here takes the port down"));
    };
    let rig = Rig::open(side)?;
    let port = rig.port.number;
    // One side after the other: both may use the same port.
    for turn in 0..2 {
        side.sync()?;
        if turn == side.role {
            for (up, state) in [(false, PortState::Down), (true, PortState::Active)] {
                set_port(up)?;
                let wanted = if up {
                    AsyncEvent::PortActive { port }
                } else {
                    AsyncEvent::PortDown { port }
                };
                until_event(&*rig.device, wanted)?;
                let until = Instant::now() + COMPLETION;
                while (rig.device.port(port)?.state == PortState::Active) != up {
                    ensure!(Instant::now() < until, "the port is not {state:?}");
                    std::thread::sleep(Duration::from_millis(10));
                }
            }
        }
        side.sync()?;
    }
    while rig.device.next_event()?.is_some() {}
    ensure!(!readable(rig.device.event_fd(), Duration::ZERO)?, "readable when all is taken");
    // A port that came back carries messages.
    let plan = Plan::default();
    let end = rig.connected(side, &plan)?;
    ping(side, &rig, &end, 1)
}

pub(super) fn until_event(device: &dyn Device, wanted: AsyncEvent) -> Done {
    let until = Instant::now() + COMPLETION;
    let mut seen = Vec::new();
    loop {
        let left = until.saturating_duration_since(Instant::now());
        ensure!(readable(device.event_fd(), left)?, "no {wanted:?}, only {seen:?}");
        while let Some(event) = device.next_event()? {
            if event == wanted {
                return Ok(());
            }
            seen.push(event);
        }
    }
}

/// A message of each side to the other.
pub(super) fn ping(side: &mut Side<'_>, rig: &Rig, end: &End, seed: u64) -> Done {
    let buffer = rig.buffer(512)?;
    let role = u64::from(side.role);
    buffer.put(0, &pattern(seed * 2 + role, 256));
    end.receive(1, &buffer, 256, 256)?;
    side.sync()?;
    end.send(2, &buffer, 0, 256)?;
    good(&end.sent, 1)?;
    let got = good(&end.got, 1)?;
    ensure!(got.iter().all(|one| one.len == 256), "{got:?}");
    ensure!(buffer.get(256, 256) == pattern(seed * 2 + 1 - role, 256), "other bytes came");
    side.sync()
}

pub(super) fn drop_order(side: &mut Side<'_>) -> Done {
    let rig = Rig::open(side)?;
    for order in 0..6 {
        let other = Rig::open(side)?;
        let plan = Plan { channel: true, ..Plan::default() };
        let end = other.connected(side, &plan)?;
        ping(side, &other, &end, order)?;
        let buffer = other.buffer(64)?;
        end.receive(5, &buffer, 0, 64)?;
        end.sent.arm()?;
        let End { qp, sent, got, channel, .. } = end;
        let mut parts: Vec<Box<dyn Send>> = vec![
            Box::new(other),
            Box::new(qp),
            Box::new(sent),
            Box::new(got),
            Box::new(channel),
            Box::new(buffer),
        ];
        if order % 2 == 1 {
            parts.reverse();
        }
        parts.rotate_left(usize::try_from(order)?);
        // The two sides take different orders: one uses a connection whose other half is going
        // away.
        if side.role == 1 {
            parts.reverse();
        }
        for part in parts {
            drop(part);
        }
        side.sync()?;
    }
    let end = rig.connected(side, &Plan::default())?;
    ping(side, &rig, &end, 77)
}

pub(super) fn rails(side: &mut Side<'_>) -> Done {
    let count = side.fabric.devices().len();
    let theirs = side.swap(&[count as u64])?;
    let count = count.min(theirs.first().map_or(0, |&n| usize::try_from(n).unwrap_or(0)));
    if count < 2 {
        return Err(skip("only one device"));
    }
    let rigs: Vec<Rig> = (0..count).map(|i| Rig::open_device(side, i)).collect::<Done<_>>()?;
    let mut ends = Vec::new();
    for rig in &rigs {
        ends.push(rig.connected(side, &Plan::default())?);
    }
    let place = |rig: &Rig| (rig.address().gid, rig.port.service, rig.port.lid);
    for (index, rig) in rigs.iter().enumerate() {
        let twins = rigs.iter().filter(|other| place(other) == place(rig)).count();
        ensure!(twins == 1, "device {index} has the address of another one: {:?}", place(rig));
    }
    for round in 0..8 {
        for (rig, end) in rigs.iter().zip(&ends) {
            ping(side, rig, end, round)?;
        }
    }
    // The death of one rail's connection leaves the others.
    let dead = ends.remove(0);
    drop(dead);
    for (rig, end) in rigs.iter().skip(1).zip(&ends) {
        ping(side, rig, end, 9)?;
    }
    Ok(())
}
