//! A peer process that dies by SIGKILL.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::{End, Memory};
use crate::{Access, Address, Completion, Data, Gid, Operation, RecvWr, Retry, SendWr, Status};

const RETRY: Retry = Retry { timeout: 12, count: 3, rnr: 7, rnr_timer: 6 };
const ROLE: &str = "SOFT_TEST_CHILD";

fn describe(end: &End) -> String {
    format!("end {} {}", end.address().service, end.qp.number())
}

fn parse(line: &str) -> Option<(Address, u32)> {
    // Beside the test harness's own words on that line.
    let mut words = line.split_once("end ")?.1.split_whitespace();
    let service = words.next()?.parse().ok()?;
    let qpn = words.next()?.parse().ok()?;
    let gid = Gid::of("127.0.0.1".parse().ok()?);
    Some((Address { service, gid, global: true, ..Address::default() }, qpn))
}

/// The peer: takes messages until it is killed. Only does something when the other test starts it.
#[test]
fn child() {
    if settings::variable(ROLE).is_none() {
        return;
    }
    let end = End::new();
    println!("{}", describe(&end));
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    let (address, qpn) = parse(&line).unwrap();
    end.connect(address, qpn, &RETRY);
    let memory = Memory::new(&end.device, 64, Access::ALL);
    let stop = Instant::now() + Duration::from_secs(60);
    end.qp.post_receive(&RecvWr { id: 1, buffer: memory.sge(0, 64) }).unwrap();
    while Instant::now() < stop {
        let mut one = [Completion::EMPTY];
        if end.cq.poll(&mut one).unwrap() == 1 {
            end.qp.post_receive(&RecvWr { id: 1, buffer: memory.sge(0, 64) }).unwrap();
        }
    }
}

#[test]
fn a_killed_process_is_reported_to_its_peer() {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "soft::tests::kill::child", "--nocapture"])
        .env(ROLE, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let end = End::new();
    writeln!(child.stdin.take().unwrap(), "{}", describe(&end)).unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let (address, qpn) = lines.find_map(|line| parse(&line.unwrap())).unwrap();
    end.connect(address, qpn, &RETRY);
    let bytes: [&[u8]; 1] = [b"hello"];
    let send = SendWr {
        id: 1,
        operation: Operation::Send { imm: None },
        data: Data::Inline(&bytes),
        signaled: true,
        to: None,
    };
    for _ in 0..100 {
        end.qp.post_send(&send).unwrap();
        assert_eq!(end.wait().status, Status::Success);
    }
    child.kill().unwrap();
    child.wait().unwrap();
    end.qp.post_send(&send).unwrap();
    end.qp.post_send(&SendWr { id: 2, ..send }).unwrap();
    let first = end.wait();
    assert_eq!((first.id, first.status), (1, Status::RetryExceeded));
    let second = end.wait();
    assert_eq!((second.id, second.status), (2, Status::Flushed));
}
