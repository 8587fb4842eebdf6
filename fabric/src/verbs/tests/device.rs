//! On the first real device with a usable port; skipped, with the reason, where there is none.

use super::*;
use crate::verbs::open;
use crate::{Data, Opcode, Operation, RecvWr, SendWr, Status};

/// Where a usable port is: device and port. `FABRIC_VERBS_REQUIRED` makes it a failure that there
/// is none.
pub(super) fn place() -> Option<(usize, u8)> {
    let found = open(None).map_err(|error| error.to_string()).and_then(|fabric| {
        let count = fabric.devices().len();
        for index in 0..count {
            let device = fabric.open(index).map_err(|error| error.to_string())?;
            if let Some(port) = active_port(&*device) {
                return Ok((index, port.number));
            }
        }
        Err(format!("{count} devices, none with an active port"))
    });
    match found {
        Ok(found) => Some(found),
        Err(reason) => {
            let required = settings::variable("FABRIC_VERBS_REQUIRED").is_some();
            assert!(!required, "no device: {reason}");
            println!("skipped: {reason}");
            None
        }
    }
}

/// The device there.
pub(super) fn device() -> Option<(Arc<dyn Device>, PortInfo)> {
    let (index, port) = place()?;
    let device = open(None).expect("library").open(index).expect("device");
    let port = device.port(port).expect("port");
    Some((device, port))
}

#[test]
fn a_device_shows_itself() {
    let Some((device, port)) = device() else { return };
    println!("{:?}\n{:?}\n{port:?}", device.info(), device.caps());
    let caps = device.caps();
    assert!(caps.max_qp > 0 && caps.max_sge > 0 && caps.max_cqe > 0, "{caps:?}");
    assert!(port.pkeys.contains(&0xffff), "{:?}", port.pkeys);
    assert!(!port.gids.is_empty());
}

#[test]
fn messages_writes_reads_and_atomics_go_through_a_reliable_connection() {
    let Some((device, port)) = device() else { return };
    let cq = device.completion_queue(64, None).expect("queue");
    let one = device.queue_pair(&spec(QpType::Rc, &cq)).expect("pair");
    let other = device.queue_pair(&spec(QpType::Rc, &cq)).expect("pair");
    connect(&port, &*one, &*other);
    let mut here = Memory::new(&*device, 4096);
    let there = Memory::new(&*device, 4096);

    here.fill(0, b"gathered");
    for id in 1..=2 {
        let buffer = there.sge(256 * id, 256);
        other.post_receive(&RecvWr { id, buffer }).expect("receive");
    }
    let send = |id, operation, data: Data<'_>| {
        one.post_send(&SendWr { id, operation, data, signaled: true, to: None }).expect("send");
    };
    let pieces = [here.sge(0, 4), here.sge(4, 4)];
    send(10, Operation::Send { imm: Some(0xabcd_0123) }, Data::Gather(&pieces));
    let parts: Vec<&[u8]> = vec![b"in", b"li", b"ne", b" of", b" five", b" pieces"];
    send(11, Operation::Send { imm: None }, Data::Inline(&parts));
    let ends = wait(&*cq, 4);
    assert!(ends.iter().all(|end| end.status == Status::Success), "{ends:?}");
    let first = ends.iter().find(|end| end.id == 1).expect("received");
    assert_eq!((first.opcode, first.len, first.imm), (Opcode::Receive, 8, Some(0xabcd_0123)));
    assert_eq!(first.qpn, other.number());
    let second = ends.iter().find(|end| end.id == 2).expect("received");
    assert_eq!((second.len, second.imm), (21, None));
    assert_eq!(there.read(256, 8), b"gathered");
    assert_eq!(there.read(512, 21), b"inline of five pieces");

    let rkey = there.region.rkey();
    let remote = there.addr();
    send(20, Operation::Write { remote: remote + 1024, rkey }, Data::Gather(&[here.sge(0, 8)]));
    send(21, Operation::Read { remote: remote + 1024, rkey }, Data::Gather(&[here.sge(64, 8)]));
    let add = Operation::FetchAdd { remote: remote + 2048, rkey, add: 5 };
    send(22, add, Data::Gather(&[here.sge(128, 8)]));
    send(23, add, Data::Gather(&[here.sge(136, 8)]));
    let ends = wait(&*cq, 4);
    assert!(ends.iter().all(|end| end.status == Status::Success), "{ends:?}");
    let kinds: Vec<Opcode> = ends.iter().map(|end| end.opcode).collect();
    assert_eq!(kinds, [Opcode::Write, Opcode::Read, Opcode::FetchAdd, Opcode::FetchAdd]);
    assert_eq!(here.read(64, 8), b"gathered");
    assert_eq!(here.read(136, 8), 5_u64.to_ne_bytes());
    assert_eq!(there.read(2048, 8), 10_u64.to_ne_bytes());
}
