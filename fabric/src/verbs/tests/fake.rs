//! Against the fake library of `testkit/fake-verbs`, which does what no device of the tests can.

use std::ffi::{CString, c_char, c_int, c_longlong, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::*;
use crate::verbs::open;
use crate::{
    AsyncEvent, AtomicCap, Caps, Data, Error, Fabric, Gid, Mtu, Operation, PostError, QpState,
    RecvWr, SendWr, Status, UdTarget,
};

/// One instance of the library: tests do not see each other's knobs.
pub(super) struct Fake {
    path: PathBuf,
    set: unsafe extern "C" fn(*const c_char, c_longlong),
    get: unsafe extern "C" fn(*const c_char) -> c_longlong,
    event: unsafe extern "C" fn(c_int, c_int),
    _room: Room,
}

impl Fake {
    /// Builds it, or says why that is not possible here.
    fn build(test: &str, flags: &[&str]) -> Option<(PathBuf, Room)> {
        if !Path::new("/usr/include/infiniband/verbs.h").is_file() {
            println!("skipped: infiniband/verbs.h is not here (package libibverbs-dev)");
            return None;
        }
        let room = Room::new(test);
        let path = room.0.join("libfake.so");
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../testkit/fake-verbs");
        let built = Command::new(sources.join("build")).arg(&path).args(flags).output();
        let built = match built {
            Ok(built) => built,
            Err(error) => {
                println!("skipped: no C compiler: {error}");
                return None;
            }
        };
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        Some((path, room))
    }

    pub(super) fn new(test: &str) -> Option<Self> {
        Self::with(test, &[])
    }

    /// Its requests reach the queue pairs that they are connected to.
    pub(super) fn that_moves(test: &str) -> Option<Self> {
        Self::with(test, &["-DFAKE_MOVES"])
    }

    fn with(test: &str, flags: &[&str]) -> Option<Self> {
        let (path, room) = Self::build(test, flags)?;
        let file = CString::new(path.to_str().expect("text")).expect("text");
        // SAFETY: a file that was just built.
        let handle = unsafe { libc::dlopen(file.as_ptr(), libc::RTLD_NOW) };
        assert!(!handle.is_null(), "{}", path.display());
        let symbol = |name: &std::ffi::CStr| -> *mut c_void {
            // SAFETY: an open handle.
            let found = unsafe { libc::dlsym(handle, name.as_ptr()) };
            assert!(!found.is_null(), "{name:?}");
            found
        };
        type Set = unsafe extern "C" fn(*const c_char, c_longlong);
        type Get = unsafe extern "C" fn(*const c_char) -> c_longlong;
        type Event = unsafe extern "C" fn(c_int, c_int);
        Some(Self {
            // SAFETY: the function's type in fake_verbs.c.
            set: unsafe { std::mem::transmute::<*mut c_void, Set>(symbol(c"fake_set")) },
            // SAFETY: as above.
            get: unsafe { std::mem::transmute::<*mut c_void, Get>(symbol(c"fake_get")) },
            // SAFETY: as above.
            event: unsafe { std::mem::transmute::<*mut c_void, Event>(symbol(c"fake_event")) },
            path,
            _room: room,
        })
    }

    fn set(&self, knob: &str, value: i64) {
        let knob = CString::new(knob).expect("text");
        // SAFETY: a text with its end.
        unsafe { (self.set)(knob.as_ptr(), value) };
    }

    fn get(&self, knob: &str) -> i64 {
        let knob = CString::new(knob).expect("text");
        // SAFETY: a text with its end.
        unsafe { (self.get)(knob.as_ptr()) }
    }

    fn event(&self, kind: c_int, port: c_int) {
        // SAFETY: a device is open, and a queue pair for events of those.
        unsafe { (self.event)(kind, port) };
    }

    pub(super) fn fabric(&self) -> Arc<dyn Fabric> {
        open(Some(&self.path)).expect("library")
    }

    pub(super) fn device(&self) -> Arc<dyn Device> {
        self.fabric().open(0).expect("device")
    }

    fn caps(&self) -> Caps {
        self.device().caps().clone()
    }

    /// Everything was ended, and in the right order.
    pub(super) fn is_clean(&self) {
        assert_eq!(self.get("violations"), 0);
        assert_eq!(self.get("live"), 0);
    }
}

/// A reliable connection to nobody in particular.
pub(super) fn connected(device: &dyn Device, cq: &Arc<dyn CompletionQueue>) -> Arc<dyn QueuePair> {
    let pair = device.queue_pair(&spec(QpType::Rc, cq)).expect("pair");
    pair.to_init(1, 0, 0, Access::ALL).expect("INIT");
    pair.to_rtr(Some(&peer(1)), &Retry::default()).expect("RTR");
    pair.to_rts(0, 1, &Retry::default()).expect("RTS");
    pair
}

fn peer(lid: u16) -> RcPeer {
    let address = Address { lid, ..Address::default() };
    RcPeer { address, qpn: 9, psn: 1, mtu: Mtu::B2048, rd_atom: 4 }
}

#[test]
fn a_missing_library_or_function_is_named_with_what_to_install() {
    let error = open(Some(Path::new("/nonexistent/libibverbs.so.1"))).expect_err("there is none");
    let text = error.to_string();
    assert!(text.contains("/nonexistent/libibverbs.so.1"), "{text}");
    assert!(text.contains("No such file") && text.contains("libibverbs1"), "{text}");
    let Some((path, _room)) = Fake::build("missing", &["-DWITHOUT_REG_MR"]) else { return };
    let text = open(Some(&path)).expect_err("it lacks a function").to_string();
    assert!(text.contains("lacks the function ibv_reg_mr@IBVERBS_1.1"), "{text}");
    assert!(text.contains("rdma-core"), "{text}");
}

#[test]
fn devices_are_listed_with_their_transport_or_the_kernel_is_blamed() {
    let Some(fake) = Fake::new("list") else { return };
    let fabric = fake.fabric();
    let names: Vec<_> = fabric
        .devices()
        .iter()
        .map(|one| (one.name.as_str(), one.ports, one.ib_transport))
        .collect();
    assert_eq!(names, [("fake_ib0", 2, true), ("fake_iw0", 1, false)]);
    assert_eq!(fake.get("forks"), 1);
    // The kernel gives children copies of pinned pages.
    fake.set("fork_status", 2);
    assert_eq!((fake.fabric().devices().len(), fake.get("forks")), (2, 1));
    let text = fabric.open(7).expect_err("there is none").to_string();
    assert!(text.contains("no device 7"), "{text}");
    fake.set("open_errno", libc::EACCES.into());
    let text = fabric.open(0).expect_err("refused").to_string();
    assert!(text.contains("fake_ib0") && text.contains("/dev/infiniband/uverbs"), "{text}");
    drop(fabric);
    fake.set("node_count", 0);
    assert!(fake.fabric().devices().is_empty());
    fake.set("node_count", -1);
    let text = open(Some(&fake.path)).expect_err("no list").to_string();
    assert!(text.contains("ib_uverbs"), "{text}");
    fake.is_clean();
}

#[test]
fn capabilities_are_what_the_device_says_and_can() {
    let Some(fake) = Fake::new("caps") else { return };
    let caps = fake.caps();
    assert!(caps.xrc && caps.odp && caps.has_atomics(), "{caps:?}");
    assert_eq!((caps.max_sge, caps.max_init_rd_atom, caps.max_srq_wr), (32, 255, 64));
    assert_eq!(caps.max_sge_rd, 32);
    // The bit alone is not enough.
    fake.set("xrc_works", 0);
    assert!(!fake.caps().xrc);
    let text = fake.device().xrc_domain(None).expect_err("the driver refuses").to_string();
    assert!(text.contains("cannot open an XRC domain"), "{text}");
    fake.set("xrc_works", 1);
    let functions = ["create_srq_ex", "get_srq_num", "create_qp_ex", "open_qp"];
    for (knob, function) in (1..).zip(functions) {
        fake.set("xrc_lacks", knob);
        assert!(!fake.caps().xrc, "{function}");
        let text = fake.device().xrc_domain(None).expect_err("it is missing").to_string();
        assert!(text.contains("fake_ib0 has no function") && text.contains(function), "{text}");
    }
    fake.set("xrc_lacks", 0);
    fake.set("xrc_bit", 0);
    assert!(!fake.caps().xrc && fake.device().xrc_domain(None).is_err());
    fake.set("xrc_bit", 1);
    assert_eq!(fake.caps().atomics, AtomicCap::Device);
    fake.set("atomics", 2);
    assert_eq!(fake.caps().atomics, AtomicCap::Global);
    fake.set("odp_rc", 7);
    assert!(!fake.caps().odp, "no read");
    for (knob, value) in
        [("xrc_works", 1), ("odp_rc", 15), ("legacy", 1), ("atomics", 0), ("srq", 0)]
    {
        fake.set(knob, value);
    }
    let caps = fake.caps();
    assert!(!caps.xrc && !caps.odp && !caps.has_atomics(), "{caps:?}");
    assert_eq!((caps.max_srq_wr, caps.max_srq_sge), (0, 0));
    let error = fake.device().shared_receive_queue(4).expect_err("there is none");
    assert!(matches!(error, Error::Unsupported { .. }), "{error}");
    fake.is_clean();
}

#[test]
fn an_infiniband_port_has_a_lid_and_is_addressed_by_it() {
    let Some(fake) = Fake::new("lid") else { return };
    let device = fake.device();
    let port = device.port(1).expect("port");
    assert_eq!((port.link, port.lid, port.state), (LinkLayer::InfiniBand, 0x11, PortState::Active));
    assert_eq!(port.active_mtu, Mtu::B2048);
    assert_eq!(port.pkeys, [0xffff, 0, 0x8005]);
    let gids: Vec<u8> = port.gids.iter().map(|entry| entry.index).collect();
    assert_eq!(gids, [0], "unused and unreadable entries are left out");
    assert_eq!(device.port(2).expect("port").state, PortState::Down);
    for wrong in [0, 3] {
        let text = device.port(wrong).expect_err("no such port").to_string();
        assert!(text.contains("only 1 to 2"), "{text}");
    }
    let cq = device.completion_queue(8, None).expect("queue");
    let pair = device.queue_pair(&spec(QpType::Rc, &cq)).expect("pair");
    pair.to_init(1, 2, 0, Access::ALL).expect("a used partition key");
    pair.to_rtr(Some(&peer(0x22)), &Retry::default()).expect("RTR");
    assert_eq!((fake.get("dlid"), fake.get("global")), (0x22, 0));
    pair.to_rts(0, 1, &Retry::default()).expect("RTS");
    assert_eq!(fake.get("retry_cnt"), 7);
    let across = Address { gid: Gid([3; 16]), sgid_index: 0, global: true, lid: 5, service: 0 };
    let other = device.queue_pair(&spec(QpType::Rc, &cq)).expect("pair");
    other.to_init(1, 0, 0, Access::ALL).expect("INIT");
    other.to_rtr(Some(&RcPeer { address: across, ..peer(5) }), &Retry::default()).expect("RTR");
    assert_eq!((fake.get("dlid"), fake.get("global"), fake.get("hop_limit")), (5, 1, 64));
    drop((pair, other, cq, device));
    fake.is_clean();
}

#[test]
fn a_refused_change_of_state_names_the_attribute() {
    let Some(fake) = Fake::new("refused") else { return };
    let device = fake.device();
    let cq = device.completion_queue(8, None).expect("queue");
    let pair = || device.queue_pair(&spec(QpType::Rc, &cq)).expect("pair");
    let retry = Retry::default();

    let one = pair();
    let text = one.to_init(1, 1, 0, Access::ALL).expect_err("unused key").to_string();
    assert!(text.contains("pkey_index 1 is unused on port 1"), "{text}");
    let text = one.to_rtr(Some(&peer(1)), &retry).expect_err("skips INIT").to_string();
    assert!(text.contains("from Reset to Rtr: that is allowed from Init only"), "{text}");
    one.to_init(1, 0, 0, Access::ALL).expect("INIT");
    let text = one.to_rtr(None, &retry).expect_err("no peer").to_string();
    assert!(text.contains("needs its peer"), "{text}");
    let wide = RcPeer { mtu: Mtu::B4096, ..peer(1) };
    let text = one.to_rtr(Some(&wide), &retry).expect_err("above the MTU").to_string();
    assert!(text.contains("path_mtu 4096 is above the port's active MTU 2048"), "{text}");
    assert!(text.contains("PATH_MTU 4096") && text.contains("dlid 1"), "{text}");
    let text = one.to_rtr(Some(&peer(0)), &retry).expect_err("no LID").to_string();
    assert!(text.contains("dlid 0 on an InfiniBand port"), "{text}");
    assert_eq!(one.state(), QpState::Init);
    one.to_rtr(Some(&peer(1)), &retry).expect("it was not changed by refusals");

    // A refusal for no visible reason still says what was sent.
    fake.set("refuse_state", 3);
    let text = one.to_rts(7, 2, &retry).expect_err("refused").to_string();
    assert!(text.contains("no attribute looks wrong"), "{text}");
    assert!(text.contains("SQ_PSN 7") && text.contains("TIMEOUT 18"), "{text}");
    let text = one.to_rts(7, 40, &Retry { timeout: 40, ..retry }).expect_err("refused").to_string();
    assert!(text.contains("timeout 40 is above 31"), "{text}");
    fake.set("refuse_state", 1);
    fake.set("port_state", 1);
    let text = pair().to_init(1, 0, 0, Access::ALL).expect_err("refused").to_string();
    assert!(text.contains("port 1 is down"), "{text}");
    fake.set("refuse_errno", libc::ETIMEDOUT.into());
    fake.set("refuse_state", 2);
    drop(one);
    let one = pair();
    one.to_init(1, 0, 0, Access::ALL).expect("INIT");
    let text = one.to_rtr(Some(&peer(1)), &retry).expect_err("refused").to_string();
    assert!(text.contains("no answer to the lookup"), "{text}");
    drop((one, cq, device));
    fake.is_clean();
}

#[test]
fn registration_is_tried_again_and_its_refusal_explained() {
    let Some(fake) = Fake::new("register") else { return };
    let device = fake.device();
    fake.set("register_errno", libc::EAGAIN.into());
    fake.set("register_failures", 3);
    drop(Memory::new(&*device, 64));
    assert_eq!((fake.get("registrations"), fake.get("access")), (4, 15));

    // SAFETY: nothing reads or writes through the fake.
    let all = |write| unsafe { device.register_all_memory(write) };
    drop(all(false).expect("to read"));
    assert_eq!(fake.get("access"), 64);
    drop(all(true).expect("to write"));
    assert_eq!((fake.get("registrations"), fake.get("access")), (6, 65));
    fake.set("registrations", 4);
    fake.set("odp", 0);
    // SAFETY: as above.
    let without = unsafe { fake.device().register_all_memory(true) }.expect_err("it cannot");
    assert!(matches!(without, Error::Unsupported { .. }), "{without}");
    fake.set("odp", 1);

    let mut word = [0_u64; 8];
    let base = NonNull::from(&mut word).cast::<u8>();
    // SAFETY: nothing reads or writes through the fake, and every one is refused.
    let refused = |len| unsafe { device.register(base, len, Access::ALL) }.expect_err("refused");
    fake.set("register_failures", 1000);
    let text = refused(64).to_string();
    assert!(text.contains("after 8 tries") && text.contains("register 64 bytes"), "{text}");
    assert_eq!(fake.get("registrations"), 12);
    fake.set("register_errno", libc::ENOMEM.into());
    let text = refused(64).to_string();
    assert!(text.contains("the limit on locked memory is") && text.contains("ulimit -l"), "{text}");
    assert_eq!(fake.get("registrations"), 13, "that is not tried again");
    assert!(matches!(refused(0), Error::Argument { .. }));
    let text = refused((1 << 20) + 1).to_string();
    assert!(text.contains("at most 1048576"), "{text}");
    assert_eq!(fake.get("registrations"), 13);
    drop(device);
    fake.is_clean();
}

#[test]
fn the_inline_limit_is_found_once_for_a_kind() {
    let Some(fake) = Fake::new("inline") else { return };
    fake.set("max_inline", 77);
    let device = fake.device();
    let cq = device.completion_queue(8, None).expect("queue");
    let wish = QpSpec { inline: 500, ..spec(QpType::Rc, &cq) };
    let first = device.queue_pair(&wish).expect("pair");
    assert_eq!(first.max_inline(), 77);
    let tries = fake.get("created_qps");
    assert!(tries <= 12, "{tries} tries");
    let second = device.queue_pair(&wish).expect("pair");
    assert_eq!((second.max_inline(), fake.get("created_qps")), (77, tries + 1));
    let small = device.queue_pair(&QpSpec { inline: 16, ..wish.clone() }).expect("pair");
    assert_eq!(small.max_inline(), 16);
    let error = device.queue_pair(&QpSpec { max_send: 65, ..wish.clone() }).expect_err("too deep");
    assert!(error.to_string().contains("65 send requests, the device has 64"), "{error}");
    drop((first, second, small, cq, device));
    fake.is_clean();
}

#[test]
fn a_list_of_requests_is_one_call() {
    let Some(fake) = Fake::new("together") else { return };
    let device = fake.device();
    let cq = device.completion_queue(64, None).expect("queue");
    let pair = device.queue_pair(&spec(QpType::Rc, &cq)).expect("pair");
    let part = [Sge { addr: 4096, len: 10, lkey: 1 }];
    let request = |id: u64| {
        let operation = Operation::Write { remote: 64, rkey: 1 };
        SendWr { id, operation, data: Data::Gather(&part), signaled: true, to: None }
    };
    let ten: Vec<_> = (0..10).map(request).collect();
    assert_eq!(pair.post_sends(&ten), 0, "in RESET");
    pair.to_init(1, 0, 0, Access::ALL).expect("INIT");
    pair.to_rtr(Some(&peer(1)), &Retry::default()).expect("RTR");
    pair.to_rts(0, 1, &Retry::default()).expect("RTS");
    let calls = |sends: &[SendWr<'_>]| {
        let before = fake.get("send_posts");
        let posted = pair.post_sends(sends);
        (posted, fake.get("send_posts") - before)
    };
    let ended = |count: usize| wait(&*cq, count).iter().map(|ended| ended.id).collect::<Vec<_>>();
    assert_eq!(calls(&[]), (0, 0));
    assert_eq!(calls(&ten), (10, 1));
    assert_eq!(ended(10), (0..10).collect::<Vec<_>>());
    let many: Vec<_> = (0..35).map(request).collect();
    assert_eq!(calls(&many), (35, 3));
    assert_eq!(ended(35), (0..35).collect::<Vec<_>>());
    // Several parts each, and 32 of a list at most.
    let parts = [part[0]; 4];
    let mixed: Vec<_> = (0..20)
        .zip((1..=4).cycle())
        .map(|(id, count)| SendWr { data: Data::Gather(&parts[..count]), ..request(id) })
        .collect();
    assert_eq!(calls(&mixed), (20, 2));
    assert_eq!(ended(20), (0..20).collect::<Vec<_>>());
    // What the device has no room for, and what is behind it, is not posted.
    fake.set("list_room", 3);
    assert_eq!(calls(&many), (3, 1));
    fake.set("list_room", 0);
    assert_eq!(ended(3), [0, 1, 2]);
    // One that is wrong, and others than parts of registered memory, go one by one.
    let mut mixed = ten.clone();
    mixed[3].data = Data::Inline(&[b"inline"]);
    assert_eq!(calls(&mixed), (10, 10));
    mixed[7].operation = Operation::FetchAdd { remote: 4, rkey: 1, add: 1 };
    assert_eq!(calls(&mixed).0, 7);
    assert_eq!(ended(17).len(), 17);
    drop((pair, cq, device));
    fake.is_clean();
}

#[test]
fn requests_reach_the_device_as_they_were_meant() {
    let Some(fake) = Fake::new("requests") else { return };
    let device = fake.device();
    let cq = device.completion_queue(64, None).expect("queue");
    let pair = device.queue_pair(&spec(QpType::Rc, &cq)).expect("pair");
    let piece = Sge { addr: 4096, len: 10, lkey: 1 };
    fn request(operation: Operation, data: Data<'_>) -> SendWr<'_> {
        SendWr { id: 5, operation, data, signaled: true, to: None }
    }
    let plain = Operation::Send { imm: None };
    let early = pair.post_send(&request(plain, Data::Gather(&[])));
    assert_eq!(early, Err(PostError::State(QpState::Reset)));
    pair.to_init(1, 0, 0, Access::ALL).expect("INIT");
    pair.to_rtr(Some(&peer(1)), &Retry::default()).expect("RTR");
    pair.to_rts(0, 1, &Retry::default()).expect("RTS");

    let with = Operation::Send { imm: Some(0x0102_0304) };
    pair.post_send(&request(with, Data::Gather(&[piece, piece]))).expect("send");
    assert_eq!((fake.get("sent_opcode"), fake.get("sent_flags")), (3, 2));
    assert_eq!((fake.get("sent_imm"), fake.get("sent_bytes")), (0x0102_0304, 20));
    // More parts than the device gathers become one.
    let parts: [&[u8]; 6] = [b"a", b"bc", b"", b"def", b"g", b"h"];
    pair.post_send(&request(plain, Data::Inline(&parts))).expect("send");
    assert_eq!((fake.get("sent_flags"), fake.get("sent_pieces")), (2 | 8, 1));
    assert_eq!(fake.get("sent_bytes"), 8);
    let invalid = |request: &SendWr<'_>| match pair.post_send(request) {
        Err(PostError::Invalid(text)) => text,
        other => panic!("{other:?}"),
    };
    let long = [0_u8; 65];
    assert!(invalid(&request(plain, Data::Inline(&[&long]))).contains("inline"));
    assert!(invalid(&request(plain, Data::Gather(&[piece; 5]))).contains("gathers"));
    let read = Operation::Read { remote: 0, rkey: 1 };
    assert!(invalid(&request(read, Data::Inline(&[b"x"]))).contains("registered"));
    let crooked = Operation::FetchAdd { remote: 4, rkey: 1, add: 1 };
    assert!(invalid(&request(crooked, Data::Gather(&[piece]))).contains("multiple of 8"));
    fake.set("post_errno", libc::ENOMEM.into());
    let full = pair.post_send(&request(plain, Data::Gather(&[piece])));
    assert_eq!(full, Err(PostError::Full));
    let receive = RecvWr { id: 1, buffer: Sge { addr: 4096, len: 8, lkey: 1 } };
    assert_eq!(pair.post_receives(&[receive; 20]), 0);
    fake.set("post_errno", 0);
    assert_eq!(pair.post_receives(&[receive; 20]), 20);
    assert_eq!(wait(&*cq, 2).len(), 2);

    let datagrams = device.queue_pair(&spec(QpType::Ud, &cq)).expect("pair");
    datagrams.to_init(1, 0, 0x77, Access::NONE).expect("INIT");
    datagrams.to_rtr(None, &Retry::default()).expect("RTR");
    datagrams.to_rts(0, 0, &Retry::default()).expect("RTS");
    let handle = device.address_handle(1, &Address { lid: 0x33, ..Address::default() });
    let handle = handle.expect("handle");
    let to = Some(UdTarget { handle: &*handle, qpn: 12, qkey: 0x88 });
    datagrams.post_send(&SendWr { to, ..request(plain, Data::Gather(&[piece])) }).expect("send");
    assert_eq!(
        (fake.get("sent_qpn"), fake.get("sent_qkey"), fake.get("ah_dlid")),
        (12, 0x88, 0x33)
    );
    assert!(invalid(&SendWr { to, ..request(plain, Data::Gather(&[])) }).contains("one peer"));
    let nowhere = datagrams.post_send(&request(plain, Data::Gather(&[])));
    assert_eq!(nowhere, Err(PostError::Invalid("a datagram needs an address")));
    fake.set("link", 2);
    let text = device.address_handle(1, &Address::default()).expect_err("no GID").to_string();
    assert!(text.contains("no global address (GRH) on an Ethernet port"), "{text}");
    drop((pair, datagrams, handle, cq, device));
    fake.is_clean();
}

#[test]
fn a_failed_request_takes_its_queue_pair_along() {
    let Some(fake) = Fake::new("failed") else { return };
    let device = fake.device();
    let cq = device.completion_queue(64, None).expect("queue");
    let pair = connected(&*device, &cq);
    fake.set("status", 12);
    let operation = Operation::Send { imm: None };
    let send = SendWr { id: 1, operation, data: Data::Gather(&[]), signaled: false, to: None };
    pair.post_send(&send).expect("taken");
    assert_eq!(wait(&*cq, 1)[0].status, Status::RetryExceeded);
    assert_eq!(pair.state(), QpState::Error);
    let buffer = Sge { addr: 4096, len: 8, lkey: 1 };
    pair.post_receive(&RecvWr { id: 2, buffer }).expect("it is flushed");
    let end = wait(&*cq, 1)[0];
    assert_eq!((end.id, end.status), (2, Status::Flushed));
    fake.set("poll_result", -1);
    let text = cq.poll(&mut [Completion::EMPTY]).expect_err("broken").to_string();
    assert!(text.contains("overflowed or the device is gone"), "{text}");
    drop((pair, cq, device));
    fake.is_clean();
}

#[test]
fn events_of_the_device_are_read_without_waiting_and_acknowledged() {
    let Some(fake) = Fake::new("events") else { return };
    let device = fake.device();
    assert_eq!(device.next_event().expect("none"), None);
    let readable = |device: &dyn Device| {
        let mut fds = [nix::poll::PollFd::new(device.event_fd(), nix::poll::PollFlags::POLLIN)];
        nix::poll::poll(&mut fds, 0_u8).expect("poll") == 1
    };
    assert!(!readable(&*device));
    let cq = device.completion_queue(8, None).expect("queue");
    let pair = device.queue_pair(&spec(QpType::Rc, &cq)).expect("pair");
    pair.to_init(1, 0, 0, Access::ALL).expect("INIT");
    fake.event(10, 2);
    fake.event(9, 1);
    fake.event(1, 0);
    fake.event(13, 1);
    assert!(readable(&*device));
    let expected = [
        AsyncEvent::PortDown { port: 2 },
        AsyncEvent::PortActive { port: 1 },
        AsyncEvent::QpFatal { qpn: pair.number() },
        AsyncEvent::Other(13),
    ];
    for one in expected {
        assert_eq!(device.next_event().expect("event"), Some(one));
    }
    assert_eq!(device.next_event().expect("none"), None);
    assert_eq!(fake.get("acked"), 4);
    drop((pair, cq, device));
    fake.is_clean();
}

#[test]
fn completion_events_are_taken_all_at_once() {
    let Some(fake) = Fake::new("channel") else { return };
    let device = fake.device();
    let channel = device.channel().expect("channel");
    let silent = device.completion_queue(8, None).expect("queue");
    assert!(silent.arm().is_err(), "there is no channel");
    let cq = device.completion_queue(8, Some(&channel)).expect("queue");
    assert_eq!(cq.depth(), 11, "what the device gave");
    let pair = device.queue_pair(&spec(QpType::Rc, &cq)).expect("pair");
    pair.to_error().expect("from RESET, by way of INIT");
    assert_eq!(channel.consume().expect("none"), 0);
    cq.arm().expect("arm");
    let buffer = Sge { addr: 4096, len: 8, lkey: 1 };
    for id in 0..3 {
        pair.post_receive(&RecvWr { id, buffer }).expect("flushed");
    }
    assert_eq!(channel.consume().expect("one"), 1);
    assert_eq!(channel.consume().expect("none"), 0);
    assert_eq!(wait(&*cq, 3).len(), 3);
    drop((pair, cq, silent, channel, device));
    fake.is_clean();
}

#[test]
fn things_go_in_the_right_order_whatever_is_dropped_first() {
    let Some(fake) = Fake::new("order") else { return };
    // Each number picks an order of the seven.
    for order in 0..200_usize {
        let fabric = fake.fabric();
        let device = fabric.open(0).expect("device");
        let channel = device.channel().expect("channel");
        let cq = device.completion_queue(8, Some(&channel)).expect("queue");
        let srq = device.shared_receive_queue(4).expect("queue");
        let shared = QpSpec { srq: Some(&srq), max_recv: 0, ..spec(QpType::Rc, &cq) };
        let pair = device.queue_pair(&shared).expect("pair");
        let handle = device.address_handle(1, &Address { lid: 1, ..Address::default() });
        let memory = Memory::new(&*device, 64);
        let mut things: Vec<Box<dyn std::any::Any>> = vec![
            Box::new(fabric),
            Box::new(device),
            Box::new(channel),
            Box::new(cq),
            Box::new(srq),
            Box::new(pair),
            Box::new(handle.expect("handle")),
            Box::new(memory),
        ];
        let mut left = order;
        while !things.is_empty() {
            let next = left % things.len();
            left = left / things.len() + order;
            drop(things.swap_remove(next));
        }
        fake.is_clean();
    }
}
