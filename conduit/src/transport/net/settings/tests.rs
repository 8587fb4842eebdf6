//! Values of variables, their caps and codes, and what is refused.

use proptest::prelude::*;

use fabric::Mtu;

use settings::{Env, Values};

use super::*;

impl Default for NetSettings {
    /// What an empty environment gives.
    fn default() -> Self {
        Self::of(&Values::default(), &Env::default()).unwrap()
    }
}

fn read(pairs: &[(&str, &str)]) -> Result<NetSettings, Error> {
    let env: Env = pairs.iter().copied().collect();
    NetSettings::of(&Values::from_env(&env).unwrap(), &env)
}

#[test]
fn defaults_are_those_of_the_documents() {
    let settings = NetSettings::default();
    assert_eq!(settings.fabric, FabricChoice::Auto);
    assert_eq!(
        settings.soft,
        SoftSettings { devices: 1, address: None, reached: None, secure: false, faults: None }
    );
    assert_eq!(settings.retry, Retry::default());
    assert_eq!((settings.inline, settings.packed_long), (Some(72), 4012));
    assert_eq!((settings.put_bounce, settings.gather_min), (65_536, Some(1500)));
    let connect = &settings.connect;
    assert!(connect.dynamic && connect.at_start);
    assert_eq!(connect.timing.min, Duration::from_millis(1));
    assert_eq!(connect.timing.max, Duration::from_micros(1 << 26));
    assert_eq!(
        [0, 1, 2, 3, 4, 5, 256, 257].map(|n| connect.receives(n)),
        [6, 6, 6, 8, 8, 10, 20, 22]
    );
    let depths = settings.depths;
    assert_eq!((depths.ops_per_peer, depths.ops), (24, Total::Is(255)));
    assert_eq!((depths.credits_per_peer, depths.credits, depths.slack), (12, Total::Default, None));
    assert_eq!((depths.receive_buffers, depths.bounce_buffers), (1024, 1024));
    assert_eq!((depths.spares, depths.srq), (None, SharedReceive::Automatic));
    assert_eq!((settings.ports.max_mtu, settings.ports.pkey), (None, None));
    assert_eq!((settings.stripes, settings.fenced_puts), (Stripes::default(), false));
    assert!(settings.warnings.is_empty());
}

#[test]
fn stripes_count_kilobytes() {
    let striped = read(&[("GASNET_PUT_STRIPE_SZ", "64"), ("GASNET_GET_STRIPE_SZ", "1M")]).unwrap();
    assert_eq!(striped.stripes, Stripes { put: 64 << 10, get: 1 << 20 });
    assert!(striped.warnings.is_empty(), "{:?}", striped.warnings);
    let least = read(&[("GASNET_PUT_STRIPE_SZ", "1"), ("GASNET_GET_STRIPE_SZ", "0")]).unwrap();
    assert_eq!(least.stripes, Stripes { put: 4096, get: 0 });
}

#[test]
fn old_names_of_the_resources_count() {
    let settings = read(&[
        ("GASNET_OP_OUST_PP", "64"),
        ("GASNET_OP_OUST_LIMIT", "1024"),
        ("GASNET_AM_OUST_PP", "32"),
        ("GASNET_AM_OUST_LIMIT", "0"),
        ("GASNET_AM_SPARES", "2"),
        ("GASNET_BBUF_LIMIT", "7"),
    ]);
    let depths = settings.unwrap().depths;
    assert_eq!((depths.ops_per_peer, depths.ops), (64, Total::Is(1024)));
    assert_eq!((depths.credits_per_peer, depths.credits), (32, Total::Most));
    assert_eq!((depths.spares, depths.bounce_buffers), (Some(2), 7));
}

#[test]
fn what_is_above_a_cap_is_cut_with_a_warning() {
    for (name, value, used) in [
        ("GASNET_QP_TIMEOUT", "32", "31 is used"),
        ("GASNET_QP_RETRY_COUNT", "8", "7 is used"),
        ("GASNET_AM_CREDITS_SLACK", "32", "31 is used"),
        ("GASNET_PUT_STRIPE_SZ", "1", "4096 are used"),
        ("GASNET_GET_STRIPE_SZ", "1B", "4096 are used"),
        ("GASNET_CONNECT_RETRANS_MIN", "67108864", "1000 and 67108864 µs are used"),
    ] {
        let settings = read(&[(name, value)]).unwrap();
        let [line] = &settings.warnings[..] else { panic!("{:?}", settings.warnings) };
        assert!(line.contains(name) && line.contains(used), "{line}");
    }
    assert_eq!(read(&[("GASNET_QP_TIMEOUT", "99")]).unwrap().retry.timeout, 31);
    assert_eq!(read(&[("GASNET_QP_RETRY_COUNT", "99")]).unwrap().retry.count, 7);
    let one = read(&[("GASNET_AM_CREDITS_PP", "1")]).unwrap();
    assert_eq!((one.depths.slack, one.warnings.len()), (None, 0));
    let many = [("GASNET_AM_CREDITS_PP", "999"), ("GASNET_AM_CREDITS_SLACK", "300")];
    assert_eq!(read(&many).unwrap().depths.slack, Some(255));
    // Of the credits of a small job.
    let usual = |slack| read(&[("GASNET_AM_CREDITS_SLACK", slack)]).unwrap();
    assert_eq!((usual("20").depths.slack, usual("20").warnings.len()), (Some(20), 0));
    assert_eq!((usual("40").depths.slack, usual("40").warnings.len()), (Some(31), 1));
}

#[test]
fn both_ways_to_connect_off_means_dynamic() {
    let pairs = [("GASNET_CONNECT_STATIC", "n"), ("GASNET_CONNECT_DYNAMIC", "n")];
    let settings = read(&pairs).unwrap();
    assert!(settings.connect.dynamic && !settings.connect.at_start);
    assert_eq!(settings.warnings.len(), 1);
}

#[test]
fn codes_mean_what_the_documents_say() {
    for (mtu, used) in
        [("-1", None), ("0", None), ("2K", Some(Mtu::B2048)), ("256", Some(Mtu::B256))]
    {
        assert_eq!(read(&[("GASNET_MAX_MTU", mtu)]).unwrap().ports.max_mtu, used);
    }
    let settings = read(&[
        ("GASNET_INLINESEND_LIMIT", "-1"),
        ("GASNET_AM_GATHER_MIN", "-1"),
        ("GASNET_USE_SRQ", "64"),
        ("GASNET_IBV_PKEY", "0x8003"),
        ("GASNET_RCV_THREAD", "1"),
        ("GASNET_RCV_THREAD_POLL_MODE", "EXCLUSIVE"),
        ("GASNET_RCV_THREAD_IDLE", "500"),
    ]);
    let settings = settings.unwrap();
    let stack = |pairs: &[(&str, &str)]| read(pairs).unwrap().stack;
    let (least, pad) = ("GASNET_THREAD_STACK_MIN", "GASNET_THREAD_STACK_PAD");
    assert_eq!(stack(&[(least, "1M")]), 2 << 20);
    assert_eq!([stack(&[(least, "8M")]), stack(&[(pad, "1M"), (least, "2M")])], [8 << 20, 3 << 20]);
    assert_eq!((settings.inline, settings.gather_min), (None, None));
    assert_eq!(settings.depths.srq, SharedReceive::From(64));
    assert_eq!(settings.ports.pkey, Some(3));
    let idle = Duration::from_nanos(500);
    let thread = ThreadSettings { on: true, rate: 0, idle, mode: PollMode::Exclusive };
    assert_eq!(settings.receive_thread, thread);
    assert!(!settings.send_thread.on);
}

#[test]
fn what_cannot_be_is_refused_by_name() {
    for (name, value, problem) in [
        ("GASNET_IBV_PKEY", "0x8001", "membership bit"),
        ("GASNET_MAX_MTU", "3000", "3000 is no size of packets: use 256, 512, 1024, 2048 or 4096"),
        ("GASNET_MAX_MTU", "8K", "8192 is no size"),
        ("GASNET_IBV_SOFT_ADDRESS", "10.0.0.1/33", "\"33\""),
        ("GASNET_IBV_SOFT_ADDRESS", "somewhere", "such as 10.1.2.3"),
        ("GASNET_IBV_PORTS_TYPE", "Socket/0", "GASNET_IBV_PORTS_TYPE"),
    ] {
        let error = read(&[(name, value)]).unwrap_err().to_string();
        assert!(error.contains(name) && error.contains(problem), "{error}");
    }
}

#[test]
fn networks_cover_their_addresses() {
    let covers = |net: &str, ip: &str| SoftAddress::parse(net).unwrap().covers(ip.parse().unwrap());
    assert!(covers("10.1.2.0/24", "10.1.2.255") && !covers("10.1.2.0/24", "10.1.3.0"));
    assert!(covers("10.1.2.3", "10.1.2.3") && !covers("10.1.2.3", "10.1.2.2"));
    assert!(covers("0.0.0.0/0", "10.1.2.3") && !covers("::/0", "10.1.2.3"));
    assert!(covers("fd00::/8", "fd12::1") && !covers("fd00::/8", "fe80::1"));
}

#[test]
fn a_thread_is_needed_where_something_happens_without_the_program() {
    let needs = |pairs: &[(&str, &str)]| !read(pairs).unwrap().needs_no_thread();
    assert!(!needs(&[]) && !needs(&[("GASNET_CONNECT_DYNAMIC", "0")]));
    for pair in [
        ("GASNET_RCV_THREAD", "1"),
        ("GASNET_SND_THREAD", "1"),
        ("GASNET_CONNECT_STATIC", "0"),
        ("GASNET_CONNECTFILE_IN", "list"),
    ] {
        assert!(needs(&[pair]), "{pair:?}");
    }
}

proptest! {
    #[test]
    fn any_numbers_give_settings_within_their_caps(values in proptest::collection::vec(1i64..=i64::MAX, 8)) {
        let names = ["GASNET_QP_TIMEOUT", "GASNET_QP_RETRY_COUNT", "GASNET_AM_CREDITS_PP", "GASNET_AM_CREDITS_SLACK",
            "GASNET_NUM_QPS", "GASNET_NETWORKDEPTH_PP", "GASNET_CONNECT_RETRANS_MIN", "GASNET_CONNECT_RETRANS_MAX"];
        let env: Env = names.iter().zip(&values).map(|(name, value)| ((*name).to_owned(), value.to_string())).collect();
        let settings = NetSettings::of(&Values::from_env(&env).unwrap(), &env).unwrap();
        prop_assert!(settings.retry.timeout <= 31 && (1..=7).contains(&settings.retry.count));
        let slack = settings.depths.slack.expect("it is set");
        prop_assert!(slack < settings.depths.credits_per_peer && slack <= 255);
        prop_assert!(settings.connect.timing.min <= settings.connect.timing.max);
    }
}

#[test]
fn bytes_of_requests_are_clamped_to_what_makes_sense() {
    use crate::transport::net::settings::sizes::LONGEST;
    let volume = |pairs: &[(&str, &str)]| {
        read(&[&[("GASNET_AM_FLOW_CONTROL", "volume")], pairs].concat()).unwrap()
    };
    let usual = volume(&[]);
    assert_eq!(usual.depths.flow, FlowControl::Volume { space: 1 << 18 });
    assert_eq!((usual.depths.credits_per_peer, usual.warnings.len()), (64, 0));
    let space = |text| volume(&[("GASNET_NETWORKDEPTH_SPACE", text)]);
    for (text, used) in [("12K", 2 * LONGEST), ("1G", 64 * LONGEST)] {
        let settings = space(text);
        assert_eq!(settings.depths.flow, FlowControl::Volume { space: used });
        let [line] = &settings.warnings[..] else { panic!("{:?}", settings.warnings) };
        assert!(line.contains("GASNET_NETWORKDEPTH_SPACE") && line.contains(&used.to_string()));
    }
    let counted = volume(&[("GASNET_NETWORKDEPTH", "5")]);
    assert_eq!((counted.depths.credits_per_peer, counted.depths.slack), (5, None));
    assert_eq!(volume(&[("GASNET_AM_CREDITS_PP", "9999")]).depths.credits_per_peer, 1024);
    assert_eq!(read(&[("GASNET_NETWORKDEPTH", "5")]).unwrap().depths.credits_per_peer, 5);
}
