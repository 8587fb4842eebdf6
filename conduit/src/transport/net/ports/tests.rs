//! Choice of ports over invented hosts.

use fabric::Gid;
use proptest::prelude::*;

use super::*;
use crate::transport::net::settings::NetSettings;

/// The documents' defaults, for a rank that may use all adapters.
pub(crate) fn settings() -> PortSettings {
    PortSettings { max_hcas: 99, ..NetSettings::default().ports }
}

/// Takes the first adapters, whatever their places are.
pub(crate) fn first(ports: &[Rail], most: usize) -> Vec<usize> {
    ports.iter().take(most).map(|port| port.device).collect()
}

fn gid(index: u8, ip: &str, kind: GidKind) -> GidEntry {
    GidEntry { index, gid: Gid::of(ip.parse().unwrap()), kind }
}

/// An InfiniBand port with a LID, or a RoCE port with the entries that rdma_rxe has.
pub(crate) fn port(number: u8, link: LinkLayer, state: PortState) -> PortInfo {
    let lid = if link == LinkLayer::InfiniBand { 16 + u16::from(number) } else { 0 };
    let gids = match link {
        LinkLayer::InfiniBand => vec![gid(0, "fe80::2", GidKind::IbOrRoceV1)],
        LinkLayer::Ethernet => vec![
            gid(0, "fe80::5054:ff:fe12:3456", GidKind::RoceV2),
            gid(1, "10.77.0.1", GidKind::RoceV2),
        ],
    };
    PortInfo {
        number,
        state,
        link,
        lid,
        active_mtu: Mtu::B1024,
        max_message: 1 << 30,
        gids,
        pkeys: vec![0xffff, 0x8003],
        service: 0,
    }
}

pub(crate) fn device(name: &str, numa: Option<u32>, ports: Vec<PortInfo>) -> Found {
    let count = u8::try_from(ports.len()).unwrap();
    let info = DeviceInfo { name: name.to_owned(), ports: count, ib_transport: true, numa };
    let caps = Caps { max_rd_atom: 16, max_init_rd_atom: 128, ..Caps::default() };
    Found { info, caps: Ok(caps), ports: ports.into_iter().map(Ok).collect() }
}

/// Two InfiniBand adapters with two ports each; the first port of the second is down.
pub(crate) fn host() -> Vec<Found> {
    use LinkLayer::InfiniBand;
    use PortState::{Active, Down};
    vec![
        device("mlx5_0", Some(0), vec![port(1, InfiniBand, Active), port(2, InfiniBand, Active)]),
        device("mlx5_1", Some(1), vec![port(1, InfiniBand, Down), port(2, InfiniBand, Active)]),
    ]
}

/// `HCA:port` of each rail.
fn names(selection: &Selection) -> Vec<String> {
    selection.rails.iter().map(|rail| format!("{}:{}", rail.hca, rail.port.number)).collect()
}

fn choose(found: &[Found], filter: &str, settings: &PortSettings) -> Result<Selection, Error> {
    let filter = (!filter.is_empty()).then(|| Filter::parse("GASNET_IBV_PORTS", filter).unwrap());
    select(found, filter.as_ref(), settings, first)
}

#[test]
fn filters_choose_ports_in_the_order_of_the_devices() {
    for (filter, wanted) in [
        ("", vec!["mlx5_0:1", "mlx5_1:2"]),
        ("mlx5_1+mlx5_0", vec!["mlx5_0:1", "mlx5_1:2"]),
        ("mlx5_0:2", vec!["mlx5_0:2"]),
        ("mlx5_0:2,1", vec!["mlx5_0:1", "mlx5_0:2"]),
        ("mlx5_0:1+mlx5_0:2+mlx5_0:1", vec!["mlx5_0:1", "mlx5_0:2"]),
        ("mlx5_0+mlx5_0:2", vec!["mlx5_0:2"]),
        (" mlx5_1 : 2 ", vec!["mlx5_1:2"]),
    ] {
        let selection = choose(&host(), filter, &settings()).unwrap();
        assert_eq!(names(&selection), wanted, "{filter}");
        assert!(selection.notes.is_empty(), "{filter}: {:?}", selection.notes);
        assert_eq!(selection.queue_pairs, (0..wanted.len()).collect::<Vec<_>>());
    }
}

#[test]
fn what_a_filter_names_in_vain_is_reported_when_asked_for() {
    for (filter, wanted, note) in [
        ("mlx5_0+mlx4_0", vec!["mlx5_0:1"], "there is no adapter mlx4_0 (there: mlx5_0, mlx5_1)"),
        ("mlx5_0:1,3", vec!["mlx5_0:1"], "mlx5_0 has no port 3 (it has 2)"),
        ("mlx5_0+mlx5_1:1", vec!["mlx5_0:1"], "mlx5_1:1 cannot be used: down"),
    ] {
        let asked = PortSettings { verbose: 2, ..settings() };
        let selection = choose(&host(), filter, &asked).unwrap();
        assert_eq!(names(&selection), wanted);
        let [_used, line] = &selection.notes[..] else { panic!("{:?}", selection.notes) };
        assert_eq!(line, &format!("GASNET_IBV_PORTS={filter}: {note}"));
        // One filter serves hosts of different kinds: it is no mistake.
        let silent = choose(&host(), filter, &settings()).unwrap();
        assert!(silent.notes.is_empty());
    }
    let mut found = host();
    found[1].ports.truncate(1);
    let asked = PortSettings { verbose: 2, ..settings() };
    let selection = choose(&found, "mlx5_0+mlx5_1", &asked).unwrap();
    assert!(
        selection.notes[1].contains("mlx5_1 has no usable port: port 1: down"),
        "{:?}",
        selection.notes
    );
}

#[test]
fn a_malformed_filter_is_refused_by_the_name_of_its_variable() {
    let error = Filter::parse("GASNET_IBV_PORTS_0", "mlx5_0:1,,2").unwrap_err().to_string();
    let begin = "environment variable GASNET_IBV_PORTS_0=\"mlx5_0:1,,2\": character 10: ";
    assert!(error.starts_with(begin) && error.contains("mlx5_0+mlx5_1:2"), "{error}");
}

#[test]
fn a_rank_uses_as_many_adapters_as_it_may() {
    let one = PortSettings { max_hcas: 1, ..settings() };
    let last = |ports: &[Rail], most: usize| {
        ports.iter().rev().take(most).map(|port| port.device).collect()
    };
    let selection = select(&host(), None, &one, last).unwrap();
    assert_eq!((names(&selection), selection.hcas()), (vec!["mlx5_1:2".to_owned()], 1));
    assert_eq!((selection.left_out, selection.notes), (vec!["mlx5_0".to_owned()], vec![]));
    // All ports of the one that is left, which the filter names.
    let filter = Filter::parse("GASNET_IBV_PORTS", "mlx5_0:1,2+mlx5_1").unwrap();
    let selection = select(&host(), Some(&filter), &one, first).unwrap();
    assert_eq!(names(&selection), ["mlx5_0:1", "mlx5_0:2"]);
    // The bound on queue pairs is applied to what is left.
    let both = PortSettings { num_qps: 1, ..one };
    assert_eq!(names(&select(&host(), None, &both, last).unwrap()), ["mlx5_1:2"]);
    assert_eq!(NetSettings::default().ports.max_hcas, 1, "the default");
    let enough = PortSettings { max_hcas: 2, ..settings() };
    let selection = select(&host(), None, &enough, |_, _| unreachable!("all fit")).unwrap();
    assert!(selection.left_out.is_empty() && selection.rails.len() == 2);
}

#[test]
fn ports_of_different_links_are_refused() {
    let mut found = host();
    found[1] = device("rxe0", None, vec![port(1, LinkLayer::Ethernet, PortState::Active)]);
    let error = choose(&found, "", &settings()).unwrap_err().to_string();
    assert_eq!(
        error,
        "mlx5_0:1 is an InfiniBand port and rxe0:1 is an Ethernet port (RoCE), and the ports of a rank must be of one kind: name those to use in GASNET_IBV_PORTS"
    );
    let one = choose(&found, "", &PortSettings { max_hcas: 1, ..settings() }).unwrap();
    assert_eq!(names(&one), ["mlx5_0:1"]);
    assert_eq!(names(&choose(&found, "rxe0", &settings()).unwrap()), ["rxe0:1"]);
}

#[test]
fn nothing_left_says_what_there_was() {
    let mut found = host();
    found[0].info.ib_transport = false;
    found[1].ports[1] = Err("port query failed".to_owned());
    let error = choose(&found, "", &settings()).unwrap_err().to_string();
    assert_eq!(
        error,
        "no usable port; on this host: mlx5_0 (port 1: the device does not speak the InfiniBand transport (iWARP or another); port 2: the device does not speak the InfiniBand transport (iWARP or another)), mlx5_1 (port 1: down; port 2: port query failed)"
    );
    let error = choose(&[], "", &settings()).unwrap_err().to_string();
    assert_eq!(error, "no usable port; on this host: no adapter at all");
    let error = choose(&host(), "mlx4_0", &settings()).unwrap_err().to_string();
    assert!(
        error.contains("GASNET_IBV_PORTS=mlx4_0 names; on this host: mlx5_0 (port 1: usable"),
        "{error}"
    );
    let mut closed = host();
    closed.truncate(1);
    closed[0].caps = Err("Permission denied".to_owned());
    let error = choose(&closed, "", &settings()).unwrap_err().to_string();
    assert!(error.contains("cannot be opened: Permission denied"), "{error}");
}

fn roce(gids: Vec<GidEntry>) -> Vec<Found> {
    let mut one = port(1, LinkLayer::Ethernet, PortState::Active);
    one.gids = gids;
    vec![device("rxe0", None, vec![one])]
}

#[test]
fn ethernet_is_addressed_by_the_best_gid() {
    use GidKind::{IbOrRoceV1, RoceV2};
    let (v1, local) = (gid(0, "10.0.0.1", IbOrRoceV1), gid(1, "fe80::1", RoceV2));
    let (global, v4) = (gid(2, "2001:db8::1", RoceV2), gid(3, "10.0.0.1", RoceV2));
    for (gids, wanted) in [
        (vec![v1, local, global, v4], 3),
        (vec![v1, local, global], 2),
        (vec![v1, local], 1),
        (vec![v4, GidEntry { index: 7, ..v4 }], 3),
    ] {
        let selection = choose(&roce(gids), "", &settings()).unwrap();
        let address = selection.rails[0].address;
        assert_eq!((address.sgid_index, address.global, address.lid), (wanted, true, 0));
    }
    let error = choose(&roce(vec![v1]), "", &settings()).unwrap_err().to_string();
    assert!(
        error.contains("no RoCE v2 entry") && error.contains("GASNET_IBV_GID_INDEX"),
        "{error}"
    );
    let fixed = PortSettings { gid_index: Some(0), ..settings() };
    let address = choose(&roce(vec![v1, v4]), "", &fixed).unwrap().rails[0].address;
    assert_eq!((address.gid, address.sgid_index), (v1.gid, v1.index));
    let error = choose(&roce(vec![local, v4]), "", &fixed).unwrap_err().to_string();
    assert!(error.contains("GID entry 0") && error.contains("in use: 1, 3"), "{error}");
}

#[test]
fn infiniband_is_addressed_by_lid() {
    let selection = choose(&host(), "", &settings()).unwrap();
    let address = selection.rails[0].address;
    assert_eq!((address.lid, address.global), (17, false));
    let fixed = PortSettings { gid_index: Some(0), ..settings() };
    assert!(choose(&host(), "", &fixed).unwrap().rails[0].address.global);
    let mut found = host();
    found.truncate(1);
    found[0].ports.truncate(1);
    if let Ok(port) = &mut found[0].ports[0] {
        port.lid = 0;
    }
    let error = choose(&found, "", &settings()).unwrap_err().to_string();
    assert!(error.contains("subnet manager"), "{error}");
}

#[test]
fn partitions_are_looked_up_without_the_membership_bit() {
    let with = |pkey| PortSettings { pkey, ..settings() };
    assert_eq!(choose(&host(), "", &with(None)).unwrap().rails[0].pkey_index, 0);
    assert_eq!(choose(&host(), "", &with(Some(3))).unwrap().rails[0].pkey_index, 1);
    let error = choose(&host(), "", &with(Some(4))).unwrap_err().to_string();
    assert!(error.contains("mlx5_0:1") && error.contains("0xffff, 0x8003"), "{error}");
}

#[test]
fn mtu_and_reads_in_flight_are_the_least_of_wish_and_device() {
    let rail = |settings| choose(&host(), "mlx5_0:1", &settings).unwrap();
    let one = rail(settings());
    assert_eq!((one.rails[0].mtu, one.rails[0].rd_atom), (Mtu::B1024, 16));
    let one = rail(PortSettings { max_mtu: Some(Mtu::B512), rd_atom: 4, ..settings() });
    assert_eq!((one.rails[0].mtu, one.rails[0].rd_atom), (Mtu::B512, 4));
    let one = rail(PortSettings { max_mtu: Some(Mtu::B4096), rd_atom: 99, ..settings() });
    assert_eq!((one.rails[0].mtu, one.rails[0].rd_atom), (Mtu::B1024, 16));
    assert_eq!(one.notes, ["GASNET_QP_RD_ATOM=99 is above what mlx5_0 can do: 16 is used"]);
}

#[test]
fn queue_pairs_are_dealt_and_bound_the_ports() {
    let with = |num_qps| choose(&host(), "", &PortSettings { num_qps, ..settings() }).unwrap();
    assert_eq!(with(0).queue_pairs, [0, 1]);
    assert_eq!(with(5).queue_pairs, [0, 1, 0, 1, 0]);
    let one = with(1);
    assert_eq!((names(&one), one.queue_pairs), (vec!["mlx5_0:1".to_owned()], vec![0]));
    assert_eq!(one.notes.len(), 1);
    assert!(one.notes[0].contains("GASNET_NUM_QPS=1 leaves out mlx5_1:2"), "{:?}", one.notes);
}

#[test]
fn more_words_are_said_when_asked_for() {
    let said = |verbose, filter| {
        choose(&host(), filter, &PortSettings { verbose, ..settings() }).unwrap().notes
    };
    assert_eq!(
        said(2, "mlx5_1"),
        ["uses mlx5_1:2, MTU 1024, LID 18, partition entry 0, 16 reads in flight"]
    );
    assert_eq!(said(3, "mlx5_1")[1..], ["mlx5_0: not named by the filter", "mlx5_1:1: down"]);
    let roce = vec![device("rxe0", None, vec![port(1, LinkLayer::Ethernet, PortState::Active)])];
    let notes = choose(&roce, "", &PortSettings { verbose: 2, ..settings() }).unwrap().notes;
    assert!(notes[0].contains("GID 10.77.0.1 (1)"), "{notes:?}");
    let mut old = host();
    old[0].info.name = "qib0".to_owned();
    let warned = choose(&old, "", &settings()).unwrap().notes;
    assert!(warned[0].contains("InfiniPath") && warned.len() == 1, "{warned:?}");
    let quiet = PortSettings { model_warn: false, ..settings() };
    assert!(choose(&old, "", &quiet).unwrap().notes.is_empty());
}

fn any_port(number: u8) -> impl Strategy<Value = PortInfo> {
    let state = prop_oneof![Just(PortState::Active), Just(PortState::Down), Just(PortState::Init)];
    let link = prop_oneof![Just(LinkLayer::InfiniBand), Just(LinkLayer::Ethernet)];
    (state, link, any::<bool>()).prop_map(move |(state, link, bare)| {
        let mut port = port(number, link, state);
        if bare {
            (port.lid, port.gids) = (0, Vec::new());
        }
        port
    })
}

fn any_host() -> impl Strategy<Value = Vec<Found>> {
    let ports = (any_port(1), any_port(2), 0usize..3).prop_map(|(a, b, n)| {
        let mut ports = vec![a, b];
        ports.truncate(n);
        ports
    });
    proptest::collection::vec((ports, any::<bool>()), 0..5).prop_map(|all| {
        let device = |(index, (ports, speaks)): (usize, (Vec<PortInfo>, bool))| {
            let mut device = device(&format!("d{index}"), None, ports);
            device.info.ib_transport = speaks;
            device
        };
        all.into_iter().enumerate().map(device).collect()
    })
}

proptest! {
    #[test]
    fn rails_are_usable_and_within_filter_and_bound(
        found in any_host(),
        filter in "(d[0-5](:[12](,[12])?)?(\\+d[0-5](:[12])?){0,2})?",
        num_qps in 0u32..6,
    ) {
        let settings = PortSettings { num_qps, ..settings() };
        let Ok(selection) = choose(&found, &filter, &settings) else { return Ok(()) };
        prop_assert!(!selection.rails.is_empty());
        prop_assert!(num_qps == 0 || selection.rails.len() <= num_qps as usize);
        prop_assert_eq!(selection.queue_pairs.len(), selection.rails.len().max(num_qps as usize));
        for rail in 0..selection.rails.len() {
            prop_assert!(selection.queue_pairs.contains(&rail));
        }
        for rail in &selection.rails {
            prop_assert_eq!(rail.port.state, PortState::Active);
            prop_assert!(found[rail.device].info.ib_transport && found[rail.device].info.name == rail.hca);
            prop_assert!(rail.address.global || rail.address.lid != 0);
            let entries: Vec<_> = filter.split('+').map(|one| one.split(':').collect::<Vec<_>>()).collect();
            let number = rail.port.number.to_string();
            let allowed = |entry: &Vec<&str>| entry[0] == rail.hca
                && entry.get(1).is_none_or(|ports| ports.split(',').any(|port| port == number));
            prop_assert!(filter.is_empty() || entries.iter().any(allowed));
        }
        let mut places: Vec<_> = selection.rails.iter().map(|rail| (rail.device, rail.port.number)).collect();
        places.dedup();
        prop_assert!(places.len() == selection.rails.len() && places.is_sorted());
    }
}
