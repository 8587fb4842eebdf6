//! The services over servers in this process, good and bad.

mod server;

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use server::{Fault, Flavour, Habits, Server};

use super::announced::Inherited;
use super::pmi::over;
use super::process_manager::{Identity, ProcessManagerBounds};
use crate::wire::PmiVersion;
use bootstrap::conformance;
use bootstrap::service::{Bootstrap, Error, Rank};

fn habits(flavour: Flavour, version: PmiVersion) -> Habits {
    Habits { flavour, version, mapping: None, value_limit: 1024, fault: None }
}

fn short(milliseconds: u64) -> ProcessManagerBounds {
    let mut bounds = ProcessManagerBounds::default();
    let bound = Duration::from_millis(milliseconds);
    (bounds.answer.limit, bounds.meet.limit, bounds.refusal.limit) = (bound, bound, bound);
    (bounds.services.hello.limit, bounds.services.fini.limit) = (bound, bound);
    bounds
}

/// Rank `r` on the host named by element `r`.
fn members(
    ends: Vec<OwnedFd>,
    hosts: &[u32],
    version: PmiVersion,
    bounds: ProcessManagerBounds,
) -> Vec<Result<Box<dyn Bootstrap>, Error>> {
    let size = u32::try_from(hosts.len()).unwrap();
    std::thread::scope(|scope| {
        let start = |(rank, (fd, host)): (u32, (OwnedFd, &u32))| {
            let identity = Identity::named(&format!("n{host}"));
            scope.spawn(move || {
                let job = Some("job.0".to_owned());
                let server = Inherited { fd: -1, rank: Rank(rank), size, job, version };
                over(fd.into(), &server, &identity, bounds)
            })
        };
        let threads: Vec<_> = (0..).zip(ends.into_iter().zip(hosts)).map(start).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

fn job(
    hosts: &[u32],
    habits: Habits,
    version: PmiVersion,
) -> (Arc<Server>, Vec<Box<dyn Bootstrap>>) {
    let (server, ends) = Server::start(u32::try_from(hosts.len()).unwrap(), habits);
    let members = members(ends, hosts, version, ProcessManagerBounds::default());
    (server, members.into_iter().map(Result::unwrap).collect())
}

const KINDS: [(Flavour, PmiVersion); 4] = [
    (Flavour::Hydra, PmiVersion::One),
    (Flavour::Hydra, PmiVersion::Two),
    (Flavour::Slurm, PmiVersion::One),
    (Flavour::Slurm, PmiVersion::Two),
];

fn conforms(hosts: &[u32], mapping: Option<&str>) {
    for (flavour, version) in KINDS {
        let habits = Habits { mapping: mapping.map(str::to_owned), ..habits(flavour, version) };
        let mut last = None;
        conformance::check(|| {
            let (server, members) = job(hosts, habits.clone(), version);
            if let Some(server) = last.replace(server) {
                assert_eq!(server.counts().again, 0, "a key was put twice");
            }
            members
        })
        .map_err(|failure| format!("{flavour:?} {version:?} {hosts:?}: {failure}"))
        .unwrap();
    }
}

#[test]
fn conforms_on_one_host() {
    conforms(&[0], None);
    conforms(&[0, 0, 0], Some("(vector,(0,1,1))"));
}

#[test]
fn conforms_on_hosts_of_one_rank() {
    conforms(&[0, 1], None);
}

#[test]
fn conforms_on_two_hosts() {
    conforms(&[0, 0, 1, 1], Some("(vector,(0,2,2))"));
}

#[test]
fn conforms_on_three_hosts_in_turn() {
    conforms(&[0, 1, 2, 0, 1], None);
}

#[test]
fn the_server_hears_nothing_of_calls_on_one_host() {
    let habits = Habits {
        mapping: Some("(vector,(0,1,1))".to_owned()),
        ..habits(Flavour::Hydra, PmiVersion::One)
    };
    let (server, members) = job(&[0; 4], habits, PmiVersion::One);
    conformance::run(members, |b| conformance::services(b)).unwrap();
    // The meeting: one name, heard of by three.
    let counts = server.counts();
    assert_eq!((counts.puts, counts.gets, counts.fences), (1, 3, 4));
    assert_eq!(counts.finalized, 4);
}

/// 64 bytes of 64 ranks on 4 hosts: hosts + ranks key operations at most.
#[test]
fn keys_of_an_exchange_grow_with_hosts() {
    for (flavour, version) in KINDS {
        let map = Some("(vector,(0,4,16))".to_owned());
        let habits = Habits { mapping: map, ..habits(flavour, version) };
        let hosts: Vec<u32> = (0..64).map(|rank| rank / 16).collect();
        let (server, members) = job(&hosts, habits, version);
        let before = server.counts();
        assert_eq!((before.puts, before.gets, before.fences), (4, 60, 64));
        conformance::run(members, |b| {
            let mine = [b.rank_info().rank.0.to_le_bytes()[0]; 64];
            let all = b.exchange(&mine).map_err(|error| error.to_string())?;
            let right = (0..64u8).flat_map(|rank| [rank; 64]).eq(all.iter().copied());
            b.fini(0).map_err(|error| error.to_string())?;
            if right { Ok(()) } else { Err("another result".to_owned()) }
        })
        .unwrap();
        let counts = server.counts();
        let (puts, gets) = (counts.puts - before.puts, counts.gets - before.gets);
        assert!(puts + gets <= 4 + 64, "{counts:?}");
        assert_eq!((puts, gets), (8, 24), "{counts:?}");
        assert_eq!(counts.fences - before.fences, 64);
        assert!(counts.longest < 1024);
    }
}

#[test]
fn an_older_server_gets_pmi_1() {
    let (server, ends) = Server::start(2, habits(Flavour::Hydra, PmiVersion::One));
    let members = members(ends, &[0, 0], PmiVersion::Two, ProcessManagerBounds::default());
    let members = members.into_iter().map(Result::unwrap).collect();
    conformance::run(members, |b| conformance::services(b)).unwrap();
    assert_eq!(server.counts().finalized, 2);
}

#[test]
fn small_values_do() {
    for limit in [40, 100] {
        let habits = Habits { value_limit: limit, ..habits(Flavour::Hydra, PmiVersion::One) };
        let (_server, members) = job(&[0, 1], habits, PmiVersion::One);
        conformance::run(members, |b| {
            let all = b.exchange(&[7; 3000]).map_err(|error| error.to_string())?;
            if *all == [7; 6000] { Ok(()) } else { Err("another result".to_owned()) }
        })
        .unwrap();
    }
}

#[test]
fn an_abort_reaches_the_server() {
    for (flavour, version) in KINDS {
        let (server, members) = job(&[0, 0], habits(flavour, version), version);
        members[1].exit_notifier().abort(77);
        // The page tells the other rank of the host.
        assert_eq!(members[0].node_shm().exit_decision().map(|decision| decision.code), Some(77));
        let since = Instant::now();
        while server.counts().aborted.is_none() && since.elapsed() < Duration::from_secs(10) {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(server.counts().aborted, Some(77), "{flavour:?} {version:?}");
    }
}

#[test]
fn a_farewell_is_said_once() {
    for (flavour, version) in KINDS {
        let (server, members) = job(&[0, 0], habits(flavour, version), version);
        for member in &members {
            member.exit_notifier().fini(3);
            member.exit_notifier().fini(3);
            member.exit_notifier().abort(4);
        }
        let counts = server.counts();
        assert_eq!((counts.finalized, counts.aborted), (2, None));
    }
}

#[test]
fn a_rank_that_ends_without_farewell_is_noticed() {
    for dead in [0, 1] {
        let (_server, mut members) =
            job(&[0, 0, 0], habits(Flavour::Slurm, PmiVersion::Two), PmiVersion::Two);
        drop(members.remove(dead));
        let errors: Vec<String> = std::thread::scope(|scope| {
            let barrier = |mut member: Box<dyn Bootstrap>| {
                scope.spawn(move || member.barrier().unwrap_err().to_string())
            };
            let threads: Vec<_> = members.into_iter().map(barrier).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        if dead == 1 {
            assert!(errors[0].contains("rank 1 of host n0 ended without farewell"), "{errors:?}");
            assert!(errors[1].contains("ending with code 1"), "{errors:?}");
        } else {
            assert!(
                errors.iter().all(|error| error.contains("closed the connection")),
                "{errors:?}"
            );
        }
    }
}

/// What a server may do wrong, and what the rank says.
#[test]
fn bad_servers_are_named() {
    let long = format!("cmd=response_to_init {}", "x".repeat(70_000));
    let say = |text: &str| Fault::Say(text.as_bytes().to_vec());
    let one = |sign, fault, words| (PmiVersion::One, sign, fault, words);
    let two = |sign, fault, words| (PmiVersion::Two, sign, fault, words);
    for (version, sign, fault, words) in [
        one("cmd=init", say("hello\n"), "no command"),
        one("cmd=init", say("cmd=response_to_init pmi_version=7 rc=0\n"), "version 7"),
        one("cmd=init", say("cmd=response_to_init pmi_vers"), "bootstrap.process-manager.answer"),
        one("cmd=init", say(&long), "a line of more than"),
        one("cmd=init", Fault::Say(vec![0xff, 0xfe, b'\n']), "it is no text"),
        one("cmd=init", Fault::Hangup, "closed the connection during init"),
        one("get_maxes", say("cmd=maxes keylen_max=64 vallen_max=-1\n"), "vallen_max is negative"),
        one("get_maxes", say("cmd=maxes keylen_max=64 vallen_max=12\n"), "too little"),
        one("get_maxes", say("cmd=maxes keylen_max=64\n"), "no vallen_max"),
        one("get_maxes", say("cmd=maxes keylen_max=1 keylen_max=2\n"), "there twice"),
        one("get_maxes", Fault::Silence, "bootstrap.process-manager.answer"),
        one("get_my_kvsname", say("cmd=maxes kvsname=a\n"), "instead of"),
        one("cmd=put", say("cmd=put_result rc=-1 msg=no_room\n"), "no_room (rc=-1)"),
        one("barrier_in", say("cmd=barrier_out rc=5\n"), "refused barrier"),
        one("barrier_in", say("cmd=get_result rc=0 value=x\n"), "instead of"),
        one("key=GRIi", say("cmd=get_result rc=-1 msg=key_not_found\n"), "not_found"),
        two("cmd=init", say("cmd=response_to_init pmi_version=3 rc=0\n"), "version 3"),
        two("fullinit", say("999999cmd="), "999999 bytes announced"),
        two("fullinit", say("  -1  x"), "its length is"),
        two("fullinit", say("      "), "its length is"),
        two("fullinit", say("    10cmd=f"), "bootstrap.process-manager.answer"),
        two(
            "fullinit",
            say("    54cmd=fullinit-response;rc=0;rank=0;size=9;appnum=0;xxxx=;"),
            "size 9",
        ),
        two("job-getid", say("    29cmd=job-getid-response;rc=14;"), "refused job-getid"),
        two("kvs-put", say("    28cmd=kvs-fence-response;rc=0;"), "instead of"),
        two("kvs-fence", Fault::Hangup, "closed the connection during kvs-fence"),
    ] {
        let habits = Habits { fault: Some((sign, fault)), ..habits(Flavour::Slurm, version) };
        let (_server, ends) = Server::start(if version == PmiVersion::Two { 2 } else { 1 }, habits);
        let since = Instant::now();
        let identity = Identity::named("n0");
        // A job of two ranks, of which one comes: the first fault is this rank's.
        let job = Some("j".to_owned());
        let server = Inherited { fd: -1, rank: Rank(0), size: 2, job, version };
        let fd = ends.into_iter().next().unwrap();
        let mut bounds = short(300);
        bounds.meet.limit = Duration::from_millis(50);
        let outcome = over(fd.into(), &server, &identity, bounds);
        let error = outcome.err().unwrap().to_string();
        assert!(error.contains(words), "{sign}: {error}");
        assert!(error.starts_with("bootstrap: "), "{error}");
        assert!(since.elapsed() < Duration::from_secs(20));
    }
}

#[test]
fn bad_values_of_other_hosts_are_named() {
    for (fault, words) in
        [(Fault::Cut(0), "does not start with a number of chunks"), (Fault::Cut(9), "key GRIr1x")]
    {
        let habits =
            Habits { fault: Some(("GRIr1x", fault)), ..habits(Flavour::Hydra, PmiVersion::One) };
        let (_server, members) = job(&[0, 1], habits, PmiVersion::One);
        let outcome = conformance::run(members, |b| {
            let error = b.exchange(&[1; 100]).err().ok_or("no error")?.to_string();
            if error.contains(words) || error.contains("Hit the end") { Ok(()) } else { Err(error) }
        });
        outcome.unwrap();
    }
}

#[test]
fn a_wrong_map_of_hosts_names_them() {
    // The server says one host; rank 1 is elsewhere (here: another identity on the same machine).
    let map = Some("(vector,(0,1,1))".to_owned());
    let habits = Habits { mapping: map, ..habits(Flavour::Hydra, PmiVersion::One) };
    let (_server, ends) = Server::start(2, habits);
    let outcomes = members(ends, &[0, 1], PmiVersion::One, short(2000));
    for outcome in outcomes {
        let error = outcome.err().unwrap().to_string();
        assert!(error.contains("host n1") && error.contains("host n0"), "{error}");
    }
}

#[test]
fn a_rank_that_does_not_come_is_named() {
    let map = Some("(vector,(0,1,1))".to_owned());
    let habits = Habits { mapping: map, ..habits(Flavour::Hydra, PmiVersion::One) };
    let (_server, mut ends) = Server::start(3, habits);
    let alone = |rank, fd: OwnedFd| {
        let server =
            Inherited { fd: -1, rank: Rank(rank), size: 3, job: None, version: PmiVersion::One };
        let identity = Identity::named("n0");
        over(fd.into(), &server, &identity, short(200)).err().unwrap().to_string()
    };
    for rank in [1, 0] {
        let error = alone(rank, ends.remove(rank as usize));
        assert!(error.contains("a rank did not meet rank 0 on host n0"), "{error}");
    }
}

/// The end of the names under which the first rank of a host listens, should it be rank `leader`.
fn words_of(leader: u32) -> Vec<String> {
    let listed = std::fs::read_to_string("/proc/net/unix").unwrap();
    let start = format!("@gasnetrun-{}-{leader}-", nix::unistd::getuid());
    let names = listed.lines().filter_map(|line| line.split_once(&start));
    let mut found: Vec<String> = names.map(|(_, word)| word.to_owned()).collect();
    found.sort();
    found.dedup();
    found
}

const STRANGER: &str = "STRANGER_AT";

fn connections(name: &str, count: usize) -> Vec<OwnedFd> {
    let one = |_| bootstrap::sys::connect_abstract(name.as_bytes()).ok();
    (0..count).filter_map(one).collect()
}

/// As a process of another user: comes again and again, and talks nonsense. As a test: nothing.
#[test]
fn stranger() {
    let environment = settings::Env::from_process();
    let Some(name) = environment.get(STRANGER).and_then(|name| name.to_str()) else { return };
    let until = Instant::now() + Duration::from_secs(20);
    let mut held = Vec::new();
    while Instant::now() < until && std::os::unix::process::parent_id() > 1 {
        for socket in connections(name, 50) {
            let _ = bootstrap::sys::send_packet(socket.as_fd(), b"nonsense", &[], None);
            held.push(socket);
        }
        held.drain(..held.len().saturating_sub(300));
    }
}

/// The name under which ranks meet is not to be guessed, and whoever finds it cannot be in the way.
#[test]
fn strangers_do_not_keep_ranks_from_meeting() {
    let map = Some("(vector,(0,1,5),(1,1,3))".to_owned());
    let habits = Habits { mapping: map, ..habits(Flavour::Hydra, PmiVersion::One) };
    let (_server, ends) = Server::start(8, habits);
    let identity = |rank| Identity::named(if rank < 5 { "n0" } else { "n1" });
    let exe = tempfile::tempdir().unwrap();
    std::thread::scope(|scope| {
        let mut late = Vec::new();
        let mut threads = Vec::new();
        let mut start = |rank: u32, fd: OwnedFd| {
            threads.push(scope.spawn(move || {
                let (job, version) = (Some("job.0".to_owned()), PmiVersion::One);
                let server = Inherited { fd: -1, rank: Rank(rank), size: 8, job, version };
                over(fd.into(), &server, &identity(rank), short(15_000))
            }));
        };
        for (rank, fd) in (0..).zip(ends) {
            if rank > 5 { late.push((rank, fd)) } else { start(rank, fd) }
        }
        let limit = Instant::now() + Duration::from_secs(10);
        while words_of(5).is_empty() {
            assert!(Instant::now() < limit, "rank 5 does not listen");
            std::thread::sleep(Duration::from_millis(2));
        }
        let words = words_of(5);
        assert!(words.iter().all(|word| word.len() == 32), "{words:?}");
        let name = format!("gasnetrun-{}-5-{}", nix::unistd::getuid(), words[0]);
        // Of our own user, silent, and there before the ranks.
        let silent = connections(&name, 40);
        assert_eq!(silent.len(), 40);
        let other = exe.path().join("stranger");
        std::fs::copy(std::env::current_exe().unwrap(), &other).unwrap();
        let open = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(exe.path(), open.clone()).unwrap();
        std::fs::set_permissions(&other, open).unwrap();
        let mut flood = nix::unistd::geteuid().is_root().then(|| {
            let mut command = std::process::Command::new(&other);
            command.args(["--exact", "client::tests::stranger"]).env(STRANGER, &name);
            command.uid(65_534).gid(65_534).stdout(std::process::Stdio::null()).spawn().unwrap()
        });
        if flood.is_none() {
            eprintln!("SKIP strangers of another user: only root can be another user");
        }
        std::thread::sleep(Duration::from_millis(300));
        for (rank, fd) in late {
            start(rank, fd);
        }
        let members = threads.into_iter().map(|thread| thread.join().unwrap().unwrap()).collect();
        conformance::run(members, |b| conformance::services(b)).unwrap();
        if let Some(flood) = &mut flood {
            flood.kill().unwrap();
            flood.wait().unwrap();
        }
    });
}
