//! How often start-up asks the bootstrap services, and that what must be alike is checked before
//! anything depends on it.

#[path = "shared/harness.rs"]
mod harness;

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

use bootstrap::node_shm::NodeShm;
use bootstrap::{Bootstrap, Error, ExitNotifier, Rank, RankInfo, Shared};
use gasnet_ibv::{Client, Seq, Settings};
use harness::Placement;

/// Services that write down what they are asked for over the whole job.
struct Noting {
    inner: Box<dyn Bootstrap>,
    calls: Arc<Mutex<Vec<&'static str>>>,
}

impl Noting {
    fn note(&self, call: &'static str) {
        self.calls.lock().expect("lock").push(call);
    }
}

impl Bootstrap for Noting {
    fn rank_info(&self) -> RankInfo {
        self.inner.rank_info()
    }

    fn node_shm(&self) -> &Arc<NodeShm> {
        self.inner.node_shm()
    }

    fn exit_notifier(&self) -> ExitNotifier {
        self.inner.exit_notifier()
    }

    fn barrier(&mut self) -> Result<(), Error> {
        self.note("barrier");
        self.inner.barrier()
    }

    fn exchange(&mut self, mine: &[u8]) -> Result<Shared, Error> {
        self.note("exchange");
        self.inner.exchange(mine)
    }

    fn alltoall(&mut self, rows: &[u8], len: usize) -> Result<Vec<u8>, Error> {
        self.note("alltoall");
        self.inner.alltoall(rows, len)
    }

    fn broadcast(&mut self, root: Rank, data: &mut [u8]) -> Result<(), Error> {
        self.note("broadcast");
        self.inner.broadcast(root, data)
    }

    fn neighbourhood_broadcast(&mut self, root: Rank, data: &mut [u8]) -> Result<(), Error> {
        self.note("neighbourhood_broadcast");
        self.inner.neighbourhood_broadcast(root, data)
    }

    fn host_broadcast(&mut self, root: Rank, data: &mut [u8]) -> Result<(), Error> {
        self.note("host_broadcast");
        self.inner.host_broadcast(root, data)
    }

    fn host_memory(&mut self, len: usize) -> Result<OwnedFd, Error> {
        // Does not leave the host.
        self.inner.host_memory(len)
    }

    fn cleanup(&mut self) {
        self.inner.cleanup();
    }

    fn fini(&mut self, code: i32) -> Result<(), Error> {
        self.inner.fini(code)
    }

    fn abort(&mut self, code: i32) -> ! {
        self.inner.abort(code)
    }
}

/// What four ranks on two hosts ask the services for in init, and in attach.
fn asked(variables: &[(&str, &str)]) -> (Vec<&'static str>, Vec<&'static str>) {
    let (hosts, mut settings) = Placement::Pairs.of(4, &Settings::default());
    settings.network.extend(variables.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())));
    let seen: Mutex<Vec<_>> = Mutex::default();
    std::thread::scope(|scope| {
        for inner in bootstrap::memory::job_on_hosts(&hosts).expect("in-memory job") {
            let (settings, seen) = (settings.clone(), &seen);
            scope.spawn(move || {
                let calls = Arc::default();
                let services = Box::new(Noting { inner, calls: Arc::clone(&calls) });
                let client =
                    Client::<Seq>::with_bootstrap("TEST", services, settings).expect("init");
                let init = std::mem::take(&mut *calls.lock().expect("lock"));
                client.attach_segment(1 << 16).expect("attach");
                let attach = std::mem::take(&mut *calls.lock().expect("lock"));
                seen.lock().expect("lock").push((init, attach));
            });
        }
    });
    let mut seen = seen.into_inner().expect("lock");
    assert_eq!(seen.len(), 4);
    seen.dedup();
    assert_eq!(seen.len(), 1, "all ranks ask for the same: {seen:?}");
    seen.remove(0)
}

#[test]
fn start_up_asks_the_services_five_times() {
    let (init, attach) = asked(&[]);
    assert_eq!(init, ["exchange", "exchange", "alltoall", "barrier"]);
    assert_eq!(attach, ["exchange"]);
    let (init, _) = asked(&[("GASNET_CONNECT_STATIC", "0")]);
    assert_eq!(init, ["exchange", "exchange", "barrier"]);
    // A second adapter is used where that is asked for.
    let (init, _) = asked(&[("GASNET_IBV_SOFT_DEVICES", "2")]);
    assert_eq!(init, ["exchange", "exchange", "alltoall", "barrier"]);
    let (init, _) = asked(&[("GASNET_IBV_SOFT_DEVICES", "2"), ("GASNET_IBV_MAX_HCAS", "2")]);
    assert_eq!(init, ["exchange", "exchange", "exchange", "alltoall", "barrier"]);
}

/// What a rank of two says when they have different settings.
fn refusal(other: impl Fn(&mut Settings) + Sync) -> [String; 2] {
    let (hosts, settings) = Placement::Apart.of(2, &Settings::default());
    let services = bootstrap::memory::job_on_hosts(&hosts).expect("in-memory job");
    std::thread::scope(|scope| {
        let start = |(rank, services): (u32, Box<dyn Bootstrap>)| {
            let (mut settings, other) = (settings.clone(), &other);
            scope.spawn(move || {
                if rank == 1 {
                    other(&mut settings);
                }
                let client = Client::<Seq>::with_bootstrap("TEST", services, settings);
                client.err().map(|error| error.to_string()).unwrap_or_default()
            })
        };
        let threads: Vec<_> = (0..).zip(services).map(start).collect();
        let said: Vec<_> = threads.into_iter().map(|thread| thread.join().expect("rank")).collect();
        said.try_into().expect("two ranks")
    })
}

#[test]
fn ranks_that_do_not_fit_hear_in_what() {
    let said = refusal(|settings| settings.neighbourhood_max = 3);
    assert!(said[0].contains("GASNET_SUPERNODE_MAXSIZE: 3 on rank 1, 0 on rank 0"), "{said:?}");
    assert!(said[1].contains("GASNET_SUPERNODE_MAXSIZE: 0 on rank 0, 3 on rank 1"), "{said:?}");
    let set = |name: &'static str, value: &'static str| {
        move |settings: &mut Settings| {
            settings.network.retain(|(other, _)| other != name);
            settings.network.push((name.to_owned(), value.to_owned()));
        }
    };
    let said = refusal(set("GASNET_IBV_FABRIC", "auto"));
    assert!(said[0].contains("GASNET_IBV_FABRIC: auto on rank 1, soft on rank 0"), "{said:?}");
    let said = refusal(|settings| {
        set("GASNET_IBV_SOFT_DEVICES", "2")(settings);
        set("GASNET_IBV_MAX_HCAS", "2")(settings);
    });
    assert!(said[0].contains("rank 1 has 2 ports, rank 0 1"), "{said:?}");
    let said = refusal(set("GASNET_CONNECT_STATIC", "0"));
    assert!(said.iter().all(|said| said.contains("GASNET_CONNECT_STATIC")), "{said:?}");
}
