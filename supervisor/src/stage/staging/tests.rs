use std::os::unix::fs::PermissionsExt;

use proptest::prelude::*;

use super::*;

/// A program on the launching host.
fn program(directory: &Path, size: usize, same: bool) -> (Program, PathBuf) {
    let path = directory.join("program");
    let bytes: Vec<u8> = (0..size).map(|at| u8::try_from(at * 7 % 251).unwrap()).collect();
    std::fs::write(&path, bytes).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    let (digest, size) = Digest::of(&path).unwrap();
    let name = "program".into();
    let stamp = Stamp::of(&path.metadata().unwrap());
    (Program { offer: Offer { name, size, stamp, same }, digest }, path)
}

fn staging(program: &Program, own: &Path, mode: StageMode, here: bool) -> Staging {
    let job = crate::stage::job_directory_name();
    let host = Host { mode, keep: false, here, cache: 1 << 30, job, at: 0, several: false };
    let mut staging = Staging::new(Some(program.offer.clone()), own.to_owned(), host);
    staging.learn(Some(program.digest));
    staging
}

fn drain(staging: &mut Staging) -> Vec<Action> {
    std::iter::from_fn(|| staging.next()).collect()
}

#[test]
fn a_host_with_the_same_program_needs_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let (program, own) = program(directory.path(), 1000, true);
    for mode in [StageMode::Auto, StageMode::Never] {
        assert_eq!(staging(&program, &own, mode, false).begin(), Ok(None));
    }
    let mut here = staging(&program, &own, StageMode::Always, true);
    assert_eq!(here.begin(), Ok(None), "the launching host has what is meant");
    // Never says nothing about what is missing: the check of the program does.
    let nowhere = directory.path().join("nowhere");
    assert_eq!(staging(&program, &nowhere, StageMode::Never, false).begin(), Ok(None));
}

#[test]
fn the_hash_is_asked_for_only_where_the_launchers_file_is_not_seen() {
    let directory = tempfile::tempdir().unwrap();
    let (program, own) = program(directory.path(), 1000, true);
    let Program { offer, digest } = program.clone();
    let copy = directory.path().join("copy");
    std::fs::copy(&own, &copy).unwrap();
    let told = |own: &Path, mode, here| {
        let host = Host {
            mode,
            keep: false,
            here,
            cache: 1 << 30,
            job: "x".to_owned(),
            at: 0,
            several: false,
        };
        Staging::new(Some(offer.clone()), own.to_owned(), host)
    };
    assert!(!told(&own, StageMode::Auto, false).needs_hash(), "this is the file");
    assert!(!told(&copy, StageMode::Auto, true).needs_hash(), "the launching host");
    assert!(!told(&copy, StageMode::Never, false).needs_hash());
    assert!(told(&own, StageMode::Always, false).needs_hash());
    let mut other = told(&copy, StageMode::Auto, false);
    assert!(other.needs_hash());
    assert_eq!(other.hash(), None, "of another file it says nothing: the parent knows");
    other.learn(Some(digest));
    assert!(!other.needs_hash() && other.hash() == Some(digest));
    assert_eq!(other.begin(), Ok(None), "a copy with the same content");
    assert_eq!(
        told(&own, StageMode::Auto, false).hash(),
        Some(digest),
        "it is read for an agent below"
    );
    let mut none = told(&copy, StageMode::Auto, false);
    none.learn(None);
    assert_eq!(none.begin(), Ok(None), "what the parent does not send must be there");
    let tool = Staging::new(
        Some(Offer { same: false, ..offer.clone() }),
        copy,
        Host {
            mode: StageMode::Auto,
            keep: false,
            here: false,
            cache: 0,
            job: "x".into(),
            at: 0,
            several: false,
        },
    );
    assert!(!tool.needs_hash(), "a tool may differ");
}

#[test]
fn a_tool_may_differ_from_host_to_host_and_a_gasnet_program_may_not() {
    let directory = tempfile::tempdir().unwrap();
    let (mut program, own) = program(directory.path(), 1000, true);
    assert!(fits(&own, &program, true));
    std::fs::write(&own, "another").unwrap();
    assert!(!fits(&own, &program, program.offer.same));
    program.offer.same = false;
    assert!(fits(&own, &program, program.offer.same));
    std::fs::set_permissions(&own, std::fs::Permissions::from_mode(0o644)).unwrap();
    assert!(!fits(&own, &program, false), "it cannot be executed");
}

#[test]
fn the_launchers_own_file_is_known_without_its_content_and_a_copy_by_it() {
    let directory = tempfile::tempdir().unwrap();
    let (mut wanted, own) = program(directory.path(), 1000, true);
    let copy = directory.path().join("copy");
    std::fs::copy(&own, &copy).unwrap();
    assert!(fits(&copy, &wanted, true), "another file with this content");
    // A file of this size that is not the launcher's is read.
    std::fs::write(&copy, vec![1; 1000]).unwrap();
    assert!(!fits(&copy, &wanted, true));
    // The launcher's own is not: nobody notices that the hash is of something else.
    wanted.digest = Digest::of(&copy).unwrap().0;
    assert!(fits(&own, &wanted, true));
    // Changed after the launcher looked: read, and not what is wanted.
    let later = SystemTime::now() + std::time::Duration::from_secs(1);
    File::options().write(true).open(&own).unwrap().set_modified(later).unwrap();
    assert!(!fits(&own, &wanted, true));
}

#[test]
fn never_more_than_the_window_is_under_way() {
    let directory = tempfile::tempdir().unwrap();
    let (program, own) = program(directory.path(), 5 * WINDOW as usize + 17, true);
    let mut root = staging(&program, &own, StageMode::Auto, true);
    root.want(3);
    let (mut sent, mut open) = (0, 0);
    let mut rounds = 0;
    loop {
        let actions = drain(&mut root);
        if actions.is_empty() && open == 0 {
            break;
        }
        for action in actions {
            let Action::Give(3, Down::Program { bytes, .. }) = action else { panic!("{action:?}") };
            open += bytes.len();
            sent += bytes.len() as u64;
        }
        assert!(open <= WINDOW as usize, "{open}");
        let back = open.min(50_000);
        open -= back;
        root.took(3, u32::try_from(back).unwrap());
        rounds += 1;
    }
    assert!(sent == program.offer.size && rounds > 5);
}

#[test]
fn a_host_without_a_place_for_it_says_so_to_those_below() {
    let directory = tempfile::tempdir().unwrap();
    let (program, own) = program(directory.path(), 10, true);
    let mut agent = staging(&program, &directory.path().join("nowhere"), StageMode::Auto, false);
    agent.place = Some(directory.path().join("job/program"));
    agent.flows.insert(1, Flow { at: 0, room: WINDOW });
    agent.fail("no space");
    let actions = drain(&mut agent);
    assert!(
        matches!(&actions[..], [Action::Give(1, Down::NoProgram { why, .. }), Action::Failed(own)]
        if why.contains("no space") && own == "no space"),
        "{actions:?}"
    );
    agent.want(2);
    assert!(matches!(&drain(&mut agent)[..], [Action::Give(2, Down::NoProgram { .. })]));
    let mut nothing = staging(&program, &own, StageMode::Auto, true);
    nothing.program = None;
    nothing.want(0);
    assert!(matches!(&drain(&mut nothing)[..], [Action::Give(0, Down::NoProgram { .. })]));
    nothing.piece(b"unasked");
    nothing.took(7, 5);
    nothing.lost(7);
    assert!(drain(&mut nothing).is_empty());
}

/// Hosts below each other, the first one with the program. Each of the others has asked and waits
/// for it.
struct Chain {
    hosts: Vec<Staging>,
    /// By host: pieces that came, and whether it can start.
    pieces: Vec<usize>,
    ends: Vec<Option<Action>>,
    rounds: usize,
}

impl Chain {
    fn new(directory: &Path, program: &Program, own: &Path, below: usize) -> Self {
        let mut hosts = vec![staging(program, own, StageMode::Auto, true)];
        for host in 1..=below {
            let nowhere = directory.join("nowhere");
            let mut agent = staging(program, &nowhere, StageMode::Auto, false);
            let value = directory.join(host.to_string()).into_os_string();
            std::fs::create_dir(&value).unwrap();
            let cache = Cache::open(|name| (name == "TMPDIR").then(|| value.clone())).unwrap();
            let job = cache.job_directory(&agent.host.job, false);
            let incoming = Incoming::new(&cache, &job, program).unwrap();
            agent.place = Some(job.join("program"));
            agent.state = State::Coming(cache, incoming);
            hosts.push(agent);
        }
        for host in &mut hosts[..below] {
            host.want(0);
        }
        let (pieces, ends) = (vec![0; below + 1], (0..=below).map(|_| None).collect());
        Self { hosts, pieces, ends, rounds: 0 }
    }

    /// What every host has to say goes one link further. `false`: nobody had anything.
    fn round(&mut self) -> bool {
        let said: Vec<Vec<Action>> = self.hosts.iter_mut().map(drain).collect();
        let any = said.iter().any(|actions| !actions.is_empty());
        for (host, actions) in said.into_iter().enumerate() {
            for action in actions {
                match action {
                    Action::Give(0, Down::Program { bytes, .. }) => {
                        self.pieces[host + 1] += 1;
                        self.hosts[host + 1].piece(&bytes);
                    }
                    Action::Give(0, Down::NoProgram { why, .. }) => {
                        self.hosts[host + 1].refused(&why)
                    }
                    Action::Took(bytes) => self.hosts[host - 1].took(0, bytes),
                    end @ (Action::Ready | Action::Failed(_)) => self.ends[host] = Some(end),
                    other => panic!("{other:?}"),
                }
            }
        }
        self.rounds += usize::from(any);
        any
    }
}

#[test]
fn a_program_goes_down_a_deep_tree_piece_by_piece() {
    const BELOW: usize = 6;
    let directory = tempfile::tempdir().unwrap();
    let (program, own) = program(directory.path(), 20 * WINDOW as usize, true);
    let pieces = usize::try_from(program.offer.size).unwrap() / PIECE as usize;
    let mut chain = Chain::new(directory.path(), &program, &own, BELOW);
    while chain.pieces[BELOW] == 0 {
        assert!(chain.round(), "it stands still: {:?}", chain.pieces);
    }
    // What is at the end of the chain is not at its beginning yet, and nobody can run it.
    assert!(chain.pieces[1] < pieces / 2, "{:?} of {pieces}", chain.pieces);
    assert!(chain.ends.iter().all(Option::is_none));
    while chain.round() {}
    assert_eq!(chain.pieces[1..], [pieces; BELOW]);
    // As if there was one link, and for each other link a round more.
    let flat = {
        let directory = tempfile::tempdir().unwrap();
        let mut flat = Chain::new(directory.path(), &program, &own, 1);
        while flat.round() {}
        flat.rounds
    };
    assert!(chain.rounds <= flat + 2 * BELOW, "{} rounds, {flat} for one link", chain.rounds);
    for agent in &chain.hosts[1..] {
        assert!(matches!(agent.state, State::Here(_)));
    }
    assert!(chain.ends[1..].iter().all(|end| *end == Some(Action::Ready)), "{:?}", chain.ends);
}

#[test]
fn what_was_damaged_on_its_way_is_run_by_nobody() {
    let directory = tempfile::tempdir().unwrap();
    let (mut program, own) = program(directory.path(), 3 * WINDOW as usize + 5, true);
    // Somebody writes the file anew while it is sent.
    std::fs::write(&own, vec![1; usize::try_from(program.offer.size).unwrap()]).unwrap();
    let mut chain = Chain::new(directory.path(), &program, &own, 3);
    while chain.round() {}
    assert!(chain.ends[1..].iter().all(|end| matches!(end, Some(Action::Failed(_)))));
    // It became shorter: there is no rest.
    let other = tempfile::tempdir().unwrap();
    program.offer.size += 1;
    let mut chain = Chain::new(other.path(), &program, &own, 3);
    while chain.round() {}
    assert!(chain.ends[1..].iter().all(|end| matches!(end, Some(Action::Failed(_)))));
    for entry in ["1", "2", "3"] {
        let user = other.path().join(entry).join(format!("gasnetrun-{}", nix::unistd::geteuid()));
        let left: Vec<_> = std::fs::read_dir(user).unwrap().collect();
        assert!(left.iter().all(|entry| {
            let path = entry.as_ref().unwrap().path();
            path.is_dir() && std::fs::read_dir(path).unwrap().count() == 0
        }));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn what_arrives_is_what_was_sent_or_nothing(
        size in 1usize..300_000,
        cut in proptest::collection::vec(1usize..70_000, 1..20),
        broken in proptest::option::of(0usize..300_000),
    ) {
        let directory = tempfile::tempdir().unwrap();
        let (program, own) = program(directory.path(), size, true);
        let value = directory.path().as_os_str().to_owned();
        let cache = Cache::open(|name| (name == "TMPDIR").then(|| value.clone())).unwrap();
        let job = cache.job_directory("one", false);
        let mut incoming = Incoming::new(&cache, &job, &program).unwrap();
        let mut bytes = std::fs::read(&own).unwrap();
        let broken = broken.filter(|at| *at < bytes.len());
        if let Some(at) = broken {
            bytes[at] ^= 1;
        }
        let (mut rest, mut cut) = (&bytes[..], cut.iter().cycle());
        let mut done = false;
        while !rest.is_empty() {
            let count = (*cut.next().unwrap()).min(rest.len());
            done = incoming.take(&cache, &rest[..count]).unwrap();
            rest = &rest[count..];
        }
        prop_assert!(done);
        prop_assert!(incoming.take(&cache, b"x").is_err(), "more than was announced");
        let (mut incoming, _) = (Incoming::new(&cache, &cache.job_directory("two", false), &program).unwrap(), incoming);
        prop_assert!(incoming.take(&cache, &bytes).unwrap());
        match (incoming.finish(&cache, &program), broken) {
            (Ok(path), None) => {
                prop_assert_eq!(std::fs::read(&path).unwrap(), bytes);
                prop_assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o700);
            }
            (Err(CacheError::Differs), Some(_)) => {
                prop_assert!(cache.find(&program.digest, program.offer.size).is_none());
            }
            (other, _) => prop_assert!(false, "{other:?}"),
        }
        prop_assert!(!job.join(".part").exists());
    }
}
