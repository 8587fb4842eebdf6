//! Ranks that agree on a fabric, and what they say when there is none.

use std::thread;

use bootstrap::HostId;
use bootstrap::env::Env;
use bootstrap::vars;
use fabric::{Device, DeviceInfo};

use super::*;

const NEEDS: Needs = Needs { nbrhd: 0, reserve: 4, spares: 1, connect_receives: 6 };

/// A fabric with a device that cannot be opened.
#[derive(Debug)]
struct Broken(&'static str, Vec<DeviceInfo>);

impl Broken {
    fn new(name: &'static str) -> Arc<dyn Fabric> {
        let device =
            DeviceInfo { name: "mlx5_0".to_owned(), ports: 1, ib_transport: true, numa: None };
        Arc::new(Self(name, vec![device]))
    }
}

impl Fabric for Broken {
    fn name(&self) -> &'static str {
        self.0
    }

    fn devices(&self) -> &[DeviceInfo] {
        &self.1
    }

    fn open(&self, _: usize) -> Result<Arc<dyn Device>, fabric::Error> {
        Err(fabric::Error::Unsupported { device: "mlx5_0".to_owned(), what: "permission for us" })
    }
}

/// Opens broken fabrics; verbs only where `library` is.
struct Paper {
    library: bool,
}

impl Opener for Paper {
    fn verbs(&self) -> Result<Arc<dyn Fabric>, fabric::Error> {
        if self.library {
            return Ok(Broken::new("verbs"));
        }
        let (library, problem) = ("libibverbs.so.1".to_owned(), "not found".to_owned());
        Err(fabric::Error::Library { library, problem })
    }

    fn soft(
        &self,
        bind: IpAddr,
        _: [u8; KEY],
        _: &SoftSettings,
    ) -> Result<Arc<dyn Fabric>, fabric::Error> {
        assert!(bind.is_loopback());
        Ok(Broken::new("soft"))
    }
}

fn settings(pairs: &[(&str, &str)]) -> NetSettings {
    let env: Env = pairs.iter().copied().collect();
    NetSettings::of(&vars::Settings::from_env(&env).unwrap(), &env).unwrap()
}

/// What each rank of a job of three on one host gets; only rank 1 has the library.
fn run(pairs: &[(&str, &str)]) -> Vec<Result<Equipment, Error>> {
    let settings = settings(pairs);
    let job = bootstrap::memory::job_on_hosts(&[HostId(0); 3]).unwrap();
    let rank = |mut services: Box<dyn Bootstrap>| {
        let settings = settings.clone();
        thread::spawn(move || {
            let library = services.place().rank.0 == 1;
            let end = equip(&settings, &Paper { library }, &NEEDS, &mut *services);
            // The others may still be in their last exchange.
            let _ = services.fini(0);
            end
        })
    };
    let ranks: Vec<_> = job.into_iter().map(rank).collect();
    ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
}

#[test]
fn without_adapters_verbs_is_refused_with_each_ranks_reason() {
    for kind in ["Socket", "Auto"] {
        let ends = run(&[("GASNET_IBV_FABRIC", "verbs"), ("GASNET_IBV_PORTS_TYPE", kind)]);
        let texts: Vec<_> = ends.into_iter().map(|end| end.unwrap_err().to_string()).collect();
        assert!(
            texts[0].contains("libibverbs.so.1") && texts[2].contains("libibverbs.so.1"),
            "{texts:?}"
        );
        assert!(texts[1].contains("verbs: no usable port; on this host: mlx5_0"), "{texts:?}");
        assert!(texts[1].contains("permission for us"), "{texts:?}");
    }
}

#[test]
fn auto_goes_on_to_the_software_adapter() {
    for end in run(&[]) {
        let text = end.unwrap_err().to_string();
        assert!(text.contains("network: soft: no usable port"), "{text}");
    }
}

#[test]
fn addresses_of_the_kernels_lists() {
    let trie = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 10.77.0.1\n        /32 host LOCAL\n     |-- 10.77.0.255\n        /32 link BROADCAST\n     |-- 127.0.0.0\n        /8 host LOCAL\n     |-- 127.0.0.1\n        /32 host LOCAL\nLocal:\n     |-- 10.77.0.1\n        /32 host LOCAL\n";
    assert_eq!(ipv4_of(trie), ["10.77.0.1", "127.0.0.1"].map(|ip| ip.parse::<IpAddr>().unwrap()));
    assert!(ipv4_of("/32 host LOCAL\n|-- x\n/32 host LOCAL").is_empty());
    let list = "fe80000000000000505400fffe123456 02 40 20 80     eth0\n00000000000000000000000000000001 01 80 10 80       lo\nrubbish\n";
    assert_eq!(
        ipv6_of(list),
        ["fe80::5054:ff:fe12:3456", "::1"].map(|ip| ip.parse::<IpAddr>().unwrap())
    );
}

#[test]
fn the_software_adapter_finds_its_address() {
    let parse = |text| Some(SoftAddress::parse(text).unwrap());
    let localhost: IpAddr = Ipv4Addr::LOCALHOST.into();
    assert_eq!(address(None, 1).unwrap(), localhost);
    assert_eq!(address(parse("192.0.2.7"), 2).unwrap().to_string(), "192.0.2.7");
    assert_eq!(address(parse("127.0.0.0/8"), 2).unwrap(), localhost);
    let error = address(parse("240.1.2.0/24"), 2).unwrap_err().to_string();
    assert!(error.contains("240.1.2.0/24 covers none") && error.contains("127.0.0.1"), "{error}");
}

#[test]
fn keys_differ() {
    assert_ne!(random().unwrap(), random().unwrap());
}
