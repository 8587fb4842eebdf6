//! Small requests that share a system call, and acknowledgements that travel with others.

use std::time::{Duration, Instant};

use super::{End, Memory, pair};
use crate::soft::limits::{ACK_COUNT, ACK_MOST, BURST_COUNT};
use crate::soft::wire::Request;
use crate::{Access, Completion, Data, Opcode, Operation, RecvWr, SendWr, Status};

const LIMIT: Duration = Duration::from_secs(60);
/// Receives that each side has.
const DEPTH: u32 = 64;
const ROOM: u32 = 256;

struct Player {
    end: End,
    memory: Memory,
    sent: u32,
    ended: u32,
    came: u32,
}

impl Player {
    fn new(end: End) -> Self {
        let memory = Memory::new(&end.device, (ROOM * DEPTH) as usize, Access::ALL);
        let player = Self { end, memory, sent: 0, ended: 0, came: 0 };
        (0..DEPTH).for_each(|id| player.post_receive(id.into()));
        player
    }

    fn post_receive(&self, id: u64) {
        let buffer = self.memory.sge(id * u64::from(ROOM), ROOM);
        self.end.qp.post_receive(&RecvWr { id, buffer }).unwrap();
    }

    fn send(&mut self) {
        let bytes = vec![self.sent.to_le_bytes()[0]; (self.sent * 37 % ROOM) as usize];
        let operation = Operation::Send { imm: Some(self.sent) };
        let data = Data::Inline(&[&bytes]);
        let send = SendWr { id: 0, operation, data, signaled: true, to: None };
        self.end.qp.post_send(&send).unwrap();
        self.sent += 1;
    }

    /// Requests that were posted and not written.
    fn waiting(&self) -> u64 {
        let qp = self.end.soft_device().qps.find(self.end.qp.number()).unwrap();
        qp.sq.lock().unwrap().unwritten()
    }

    /// Checks that messages come in their order, each as it was sent.
    fn poll(&mut self) {
        let mut some = [Completion::EMPTY; 16];
        let count = self.end.cq.poll(&mut some).unwrap();
        for one in &some[..count] {
            assert_eq!(one.status, Status::Success);
            if one.opcode != Opcode::Receive {
                self.ended += 1;
                continue;
            }
            assert_eq!((one.imm, one.len), (Some(self.came), self.came * 37 % ROOM));
            let first = usize::try_from(one.id).unwrap() * ROOM as usize / 8;
            let bytes: Vec<u8> = self.memory.words()[first..][..ROOM as usize / 8]
                .iter()
                .flat_map(|word| word.to_ne_bytes())
                .collect();
            assert!(
                bytes[..one.len as usize].iter().all(|byte| *byte == self.came.to_le_bytes()[0])
            );
            self.came += 1;
            self.post_receive(one.id);
        }
    }

    fn is_done(&self, peer: &Self) -> bool {
        self.came == peer.sent && self.ended == self.sent
    }
}

fn players() -> [Player; 2] {
    let (a, b) = pair();
    let mut players = [Player::new(a), Player::new(b)];
    players.iter_mut().for_each(Player::send);
    settle(&mut players);
    players
}

fn settle(players: &mut [Player; 2]) {
    let begin = Instant::now();
    let done = |[one, two]: &[Player; 2]| one.is_done(two) && two.is_done(one);
    while !done(players) {
        assert!(begin.elapsed() < LIMIT, "messages are missing");
        players.iter_mut().for_each(Player::poll);
    }
}

/// The first of several messages between two polls goes at once and the others wait for the poll;
/// a lone one never waits. (While the device's own thread is awake, nothing waits.)
#[test]
fn messages_between_two_polls_go_together_and_a_lone_one_goes_at_once() {
    let mut players = players();
    for side in 0..2 {
        let (begin, mut rounds, mut waited) = (Instant::now(), 0, 0);
        // Beside other load the thread may be awake for long.
        while rounds < 200 || waited < 3 {
            assert!(begin.elapsed() < LIMIT, "side {side}: {waited} waited in {rounds} rounds");
            rounds += 1;
            settle(&mut players);
            players[side].send();
            assert_eq!(players[side].waiting(), 0, "a lone message");
            for more in 1..4 {
                players[side].send();
                let waiting = players[side].waiting();
                assert!(waiting <= more, "the first is gone");
                waited = waited.max(waiting);
            }
        }
        assert_eq!(waited, 3, "side {side}");
    }
    settle(&mut players);
}

/// A burst does not grow without bound, and what is posted after the last full one is sent by polls.
#[test]
fn bursts_are_bounded_and_their_rest_goes_with_a_poll() {
    let mut players = players();
    for side in 0..2 {
        for _ in 0..50 {
            settle(&mut players);
            for _ in 0..DEPTH / 2 {
                players[side].send();
                assert!(players[side].waiting() < BURST_COUNT.into());
            }
        }
    }
    settle(&mut players);
}

/// What is deferred when its queue pair is dropped is sent before.
#[test]
fn a_burst_outlives_its_queue_pair() {
    for side in 0..2 {
        let mut players = players();
        let came = players[1 - side].came;
        (0..4).for_each(|_| players[side].send());
        let [a, b] = players;
        let (dropped, mut other) = if side == 0 { (a, b) } else { (b, a) };
        let Player { end: End { qp, .. }, .. } = &dropped;
        let device = dropped.end.soft_device();
        device.destroy_qp(&device.qps.find(qp.number()).unwrap());
        let begin = Instant::now();
        while other.came < came + 4 {
            assert!(begin.elapsed() < LIMIT, "messages are missing");
            other.poll();
        }
    }
}

/// Bursts of many lengths both ways, on own streams and reverse paths in turn.
#[test]
fn bursts_both_ways_arrive_in_their_order() {
    let mut players = players();
    for round in 0..3000_u32 {
        for (side, factor) in [(0, 7), (1, 5)] {
            let room = DEPTH - (players[side].sent - players[1 - side].came);
            let room = room.min(DEPTH - (players[side].sent - players[side].ended));
            for _ in 0..(round * factor % 21).min(room) {
                players[side].send();
            }
            for _ in 0..round % 3 {
                players[side].poll();
            }
        }
    }
    settle(&mut players);
}

/// Acknowledgements of many messages wait a turn, in which a request may carry them.
#[test]
fn acknowledgements_wait_a_turn_for_a_request() {
    let end = End::new();
    let qp = end.soft_device().qps.find(end.qp.number()).unwrap();
    let done = |count: u64| {
        let operation = Operation::Send { imm: None };
        let request =
            Request { operation, credit_limit: 0, len: 0, msn: 0, ack: None, want_ack: false };
        (0..count).for_each(|_| qp.request_done(&request));
    };
    done(ACK_COUNT - 1);
    assert!(!qp.is_ack_due() && !qp.is_ack_due());
    done(1);
    assert!(!qp.is_ack_due(), "a request may carry it");
    assert!(qp.is_ack_due(), "none did");
    assert_eq!(qp.ack_to_carry(true), Some(16));
    assert!(!qp.is_ack_due());
    done(ACK_MOST);
    assert!(qp.is_ack_due(), "too many");
}
