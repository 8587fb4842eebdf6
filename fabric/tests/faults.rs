//! Fault scripts seen from outside: what a user of the software adapter gets.
#![expect(clippy::unwrap_used, reason = "a broken fixture is a failed test")]

use std::net::UdpSocket;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fabric::conformance::{Outcome, Side, Verdict, channel_links, run};
use fabric::soft::FaultScript;
use fabric::soft::{SoftConfig, open};
use fabric::{
    Access, Address, AsyncEvent, Completion, CompletionQueue, Data, Device, Fabric, Mtu, Operation,
    PortState, QpSpec, QpState, QpType, QueuePair, RcPeer, RecvWr, Retry, SendWr, Sge, Status,
};

/// Bound on everything that must happen here.
const SOON: Duration = Duration::from_secs(20);

fn fabric(script: &str) -> Arc<dyn Fabric> {
    let config = SoftConfig {
        devices: 1,
        ports: 1,
        bind: "127.0.0.1".parse().unwrap(),
        key: *b"key of the tests",
        secure: false,
        mtu: Mtu::B4096,
        faults: Some(FaultScript::parse(script).unwrap()),
    };
    open(&config).unwrap()
}

struct End {
    device: Arc<dyn Device>,
    qp: Arc<dyn QueuePair>,
    cq: Arc<dyn CompletionQueue>,
}

impl End {
    fn new(device: &Arc<dyn Device>) -> Self {
        let cq = device.completion_queue(64, None).unwrap();
        let spec = QpSpec {
            qp_type: QpType::Rc,
            send_cq: &cq,
            recv_cq: &cq,
            srq: None,
            max_send: 16,
            max_recv: 16,
            send_sge: 1,
            recv_sge: 1,
            inline: 64,
        };
        let qp = device.queue_pair(&spec).unwrap();
        Self { device: Arc::clone(device), qp, cq }
    }

    fn peer(&self) -> RcPeer {
        let port = self.device.port(1).unwrap();
        let gid = port.gids[0].gid;
        let address = Address { service: port.service, gid, global: true, ..Address::default() };
        RcPeer { address, qpn: self.qp.number(), psn: 1, mtu: Mtu::B4096, rd_atom: 1 }
    }

    fn join(&self, other: &Self, retry: &Retry) {
        self.qp.to_init(1, 0, 0, Access::NONE).unwrap();
        self.qp.to_rtr(Some(&other.peer()), retry).unwrap();
        self.qp.to_rts(1, 1, retry).unwrap();
    }

    fn receive(&self) {
        self.qp.post_receive(&RecvWr { id: 1, buffer: Sge::default() }).unwrap();
    }

    fn send(&self) {
        let data = Data::Inline(&[]);
        let operation = Operation::Send { imm: None };
        self.qp.post_send(&SendWr { id: 2, operation, data, signaled: true, to: None }).unwrap();
    }

    fn ended(&self) -> Status {
        self.ends_within(SOON).expect("no completion")
    }

    fn ends_within(&self, time: Duration) -> Option<Status> {
        let until = Instant::now() + time;
        let mut one = [Completion::EMPTY];
        while Instant::now() < until {
            if self.cq.poll(&mut one).unwrap() == 1 {
                return Some(one[0].status);
            }
            std::thread::yield_now();
        }
        None
    }

    /// A message to `other` comes through.
    fn reaches(&self, other: &Self) {
        other.receive();
        self.send();
        assert_eq!((self.ended(), other.ended()), (Status::Success, Status::Success));
    }
}

/// A retry time-out of about 70 ms.
const SHORT: Retry = Retry { timeout: 12, count: 3, rnr: 7, rnr_timer: 6 };

fn pair(first: &Arc<dyn Device>, second: &Arc<dyn Device>, retry: &Retry) -> (End, End) {
    let (one, two) = (End::new(first), End::new(second));
    one.join(&two, retry);
    two.join(&one, retry);
    (one, two)
}

fn event(device: &Arc<dyn Device>) -> AsyncEvent {
    let until = Instant::now() + SOON;
    loop {
        if let Some(event) = device.next_event().unwrap() {
            return event;
        }
        assert!(Instant::now() < until, "no event");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_port_that_goes_down_says_so_and_carries_on_when_it_is_back() {
    let far = fabric("").open(0).unwrap();
    let near = fabric("port-down=soft0:1@150ms+400ms").open(0).unwrap();
    let (one, two) = pair(&near, &far, &Retry::default());
    one.reaches(&two);
    assert_eq!(event(&near), AsyncEvent::PortDown { port: 1 });
    assert_eq!(near.port(1).unwrap().state, PortState::Down);
    two.receive();
    one.receive();
    one.send();
    two.send();
    assert_eq!(one.ends_within(Duration::from_millis(100)), None, "the port is down");
    assert_eq!(event(&near), AsyncEvent::PortActive { port: 1 });
    assert_eq!(near.port(1).unwrap().state, PortState::Active);
    for end in [&one, &two, &one, &two] {
        assert_eq!(end.ended(), Status::Success);
    }
    assert_eq!(far.next_event().unwrap(), None);
}

#[test]
fn a_partition_ends_requests_that_time_out() {
    let far = fabric("").open(0).unwrap();
    let near = fabric("partition=127.0.0.0/8@200ms").open(0).unwrap();
    let (one, two) = pair(&near, &far, &SHORT);
    one.reaches(&two);
    std::thread::sleep(Duration::from_millis(300));
    two.receive();
    one.send();
    assert_eq!(one.ended(), Status::RetryExceeded);
    assert_eq!(one.qp.state(), QpState::Error);
    assert_eq!(two.ends_within(Duration::from_millis(50)), None);
    assert_eq!(near.port(1).unwrap().state, PortState::Active, "the port knows nothing of it");
}

#[test]
fn a_partition_of_others_is_not_felt() {
    let far = fabric("").open(0).unwrap();
    let near = fabric("partition=10.0.0.0/8@0ms").open(0).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    let (one, two) = pair(&near, &far, &SHORT);
    for _ in 0..10 {
        one.reaches(&two);
        two.reaches(&one);
    }
}

#[test]
fn a_connection_begun_in_a_partition_comes_about_when_it_ends() {
    let far = fabric("").open(0).unwrap();
    let near = fabric("partition=all@0ms+300ms").open(0).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    let (one, two) = pair(&near, &far, &Retry::default());
    one.reaches(&two);
    two.reaches(&one);
}

#[test]
fn the_chosen_queue_pair_fails_and_no_other() {
    let far = fabric("").open(0).unwrap();
    let near = fabric("kill-qp=2nd@50ms").open(0).unwrap();
    let (well, well_too) = pair(&near, &far, &SHORT);
    let (doomed, other) = pair(&near, &far, &SHORT);
    doomed.receive();
    assert_eq!(doomed.ended(), Status::Flushed);
    assert_eq!(event(&near), AsyncEvent::QpFatal { qpn: doomed.qp.number() });
    assert_eq!(doomed.qp.state(), QpState::Error);
    other.send();
    assert_ne!(other.ended(), Status::Success, "its peer is gone");
    well.reaches(&well_too);
}

#[test]
fn a_dead_fabric_is_seen_on_both_sides() {
    let far = fabric("").open(0).unwrap();
    let near = fabric("death=200ms").open(0).unwrap();
    let (one, two) = pair(&near, &far, &SHORT);
    one.reaches(&two);
    one.receive();
    assert_eq!(one.ended(), Status::Flushed);
    let mut seen = vec![event(&near), event(&near), event(&near)];
    seen.retain(|event| matches!(event, AsyncEvent::DeviceFatal | AsyncEvent::PortDown { .. }));
    assert_eq!(seen.len(), 2, "{seen:?}");
    two.send();
    assert_eq!(two.ended(), Status::RetryExceeded);
}

/// The cases whose name contains `only`, each side on a fabric with this script.
fn suite(script: &str, only: &str) -> Vec<Outcome> {
    let (mut left, mut right) = channel_links();
    let side = |role, link| {
        let mut side = Side::new(role, fabric(script), 0, 1, link);
        run(&mut side, only, &mut |_| ()).unwrap()
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(|| side(1, &mut right));
        let outcomes = side(0, &mut left);
        other.join().unwrap();
        outcomes
    })
}

#[test]
fn chosen_registrations_are_refused_with_the_reason() {
    let [refused, well] = &suite("register-fail=3rd", "register")[..] else { panic!() };
    let Verdict::Fail(text) = &refused.verdict else { panic!("{refused}") };
    assert!(text.contains("cannot register 1 bytes: Cannot allocate memory"), "{text}");
    assert_eq!(well.verdict, Verdict::Pass, "all others are taken: {well}");
}

/// Datagrams that are tried again get through a network that loses, doubles and delays.
#[test]
fn datagrams_arrive_in_the_end_on_a_bad_network() {
    let script = "seed=11 drop-ud=25% dup-ud=15% delay-ud=3ms@30%";
    let outcomes = suite(script, "ud-no-buffer");
    assert!(outcomes.iter().all(|one| one.verdict == Verdict::Pass), "{outcomes:?}");
    // And what the suite sees without them is seen to fail.
    let outcomes = suite("drop-ud=100%", "ud-no-buffer");
    assert!(outcomes.iter().all(|one| matches!(one.verdict, Verdict::Fail(_))), "{outcomes:?}");
}

/// Noise on the datagram socket ends nothing.
#[test]
fn garbage_datagrams_are_dropped() {
    let fabric = fabric("");
    let device = fabric.open(0).unwrap();
    let port = device.port(1).unwrap();
    let noise = UdpSocket::bind("127.0.0.1:0").unwrap();
    for length in [0, 1, 35, 36, 100, 4132, 9000] {
        noise.send_to(&vec![0xa5; length], (port.gids[0].gid.ip(), port.service)).unwrap();
    }
    let (one, two) = pair(&device, &device, &SHORT);
    one.reaches(&two);
}
