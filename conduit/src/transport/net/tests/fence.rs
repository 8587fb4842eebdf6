//! Puts that are complete although their data is not in memory yet: devices that write later, as a
//! fault script says, and what comes through the other device of the target overtakes it.

use super::rma::finish;
use super::*;
use crate::transport::net::RawTarget;

const SEGMENT: usize = 1 << 20;
/// Puts of a test; about half of them are late.
const PUTS: usize = 24;
/// Late by far more than a message takes, on a machine that is busy too.
const LATE: &str = "seed=7 delay-write=1000ms@50%";

const TWO: Kind = Kind { rails: 2, connections: 2, faults: Some(LATE), ..PLAIN };

/// Puts a number behind a pattern, in so many bytes, in one piece or as several parts.
fn put(member: &Member<'_>, to: Rank, place: usize, bytes: &[u8], parts: usize) {
    let counter = Arc::new(OpCounter::default());
    let place = (to, place as u64);
    let mut source = RawSource::new(bytes);
    let each = bytes.len().div_ceil(parts);
    let pieces: Vec<&[u8]> = bytes.chunks(each).collect();
    finish((member.net, &member.met), &counter, || match parts {
        1 => member.net.put(place, &mut source, &counter).expect("put"),
        _ => member.net.put_parts(place, &pieces, &counter).expect("put"),
    });
}

/// Rank 0 puts, and when the put is complete tells rank 1 by a message on the other rail; what
/// rank 1 then has in memory. Returns how often that was not what was put.
fn overtaken(kind: &Kind, len: usize, parts: usize) -> u32 {
    let stale = AtomicU32::new(0);
    run(2, SEGMENT, kind, |member| {
        let seen = AtomicU32::new(0);
        let told = |message: Arrived<'_>| {
            let number =
                usize::try_from(message.args.first().copied().unwrap_or(-1)).expect("a number");
            let right = member.memory.read(number * len, len) == pattern(number, len);
            stale.fetch_add(u32::from(!right), Ordering::Relaxed);
            seen.fetch_add(1, Ordering::Relaxed);
        };
        for number in 0..PUTS {
            if member.rank == 0 {
                member.memory.write(0, &pattern(number, len));
                let bytes = member.memory.part(0, len);
                put(member, Rank(1), number * len, bytes, parts);
                let number = [i32::try_from(number).expect("few")];
                member.send(&request(Rank(1), &number, AmPayload::None), &|_| {});
            } else {
                member.poll_until(&told, || seen.load(Ordering::Relaxed) as usize > number);
            }
        }
        member.meet(&told);
    });
    stale.into_inner()
}

#[test]
fn a_message_on_the_other_rail_overtakes_a_put_without_a_fence() {
    let fenced = Kind { fenced: true, ..TWO };
    for (len, parts) in [(8, 1), (5000, 1), (48, 3)] {
        // Another message in between may turn the rails, so that puts and messages share one.
        let late = (0..5).any(|_| overtaken(&TWO, len, parts) > 0);
        assert!(late, "{len} bytes: nothing is late");
        assert_eq!(overtaken(&fenced, len, parts), 0, "{len} bytes in {parts} parts");
    }
}

/// The same rank gets on the other rail what it has put. Returns how often it got something else.
fn got_back(kind: &Kind, len: usize) -> u32 {
    let stale = AtomicU32::new(0);
    run(2, SEGMENT, kind, |member| {
        for number in 0..if member.rank == 0 { PUTS } else { 0 } {
            member.memory.write(0, &pattern(number, len));
            put(member, Rank(1), number * len, member.memory.part(0, len), 1);
            let counter = Arc::new(OpCounter::default());
            let mut into: RawTarget = member.memory.target(SEGMENT / 2, len);
            let place = (Rank(1), (number * len) as u64);
            finish((member.net, &member.met), &counter, || {
                member.net.get(place, &mut into, &counter).expect("get")
            });
            let right = member.memory.read(SEGMENT / 2, len) == pattern(number, len);
            stale.fetch_add(u32::from(!right), Ordering::Relaxed);
        }
        member.meet(&|_| {});
    });
    stale.into_inner()
}

#[test]
fn a_get_on_the_other_rail_overtakes_a_put_without_a_fence() {
    assert!((0..5).any(|_| got_back(&TWO, 64) > 0), "nothing is late");
    assert_eq!(got_back(&Kind { fenced: true, ..TWO }, 64), 0);
    // Where one device has it all, what comes later pushes what came before.
    let one = Kind { rails: 1, connections: 2, ..TWO };
    assert_eq!(got_back(&one, 64), 0);
}

#[test]
fn fences_need_atomics() {
    let services = bootstrap::memory::job_on_hosts(&[HostId(0)]).expect("job");
    let Some(mut services) = services.into_iter().next() else { return };
    let faults = soft::FaultScript::parse("atomics=none").expect("script");
    let (bind, mtu) = (Ipv4Addr::LOCALHOST.into(), Mtu::B4096);
    let (key, secure, faults) = ([7; 16], false, Some(faults));
    let config = SoftConfig { devices: 1, ports: 1, bind, key, secure, mtu, faults };
    let plan = plan(&*soft::open(&config).expect("fabric"), &PLAIN);
    let refused =
        super::super::fence::Fences::exchange(&plan, &mut *services).expect_err("no atomics");
    let text = refused.to_string();
    assert!(text.contains("GASNET_USE_FENCED_PUTS: soft0 has no atomics"), "{text}");
    services.fini(0).expect("farewell");
}
