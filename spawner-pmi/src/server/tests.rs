//! The machine against recorded dialogues, what no client may send, and trees of agents with puts and
//! fences in any order.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;
use crate::wire::frame;

fn site(ranks: &[u32], size: u32) -> Site {
    Site {
        job: "n1.7.a".to_owned(),
        ranks: ranks.iter().copied().map(Rank).collect(),
        host_of: vec![HostId(0); size as usize],
        programs: vec![0; ranks.len()],
        branches: Vec::new(),
        parent: false,
    }
}

fn alone(size: u32) -> Server {
    Server::new(site(&(0..size).collect::<Vec<_>>(), size))
}

/// Everything that is to be done now.
fn actions(server: &mut Server) -> Vec<Action> {
    std::iter::from_fn(|| server.poll_action()).collect()
}

/// What is sent to a rank for what it says; other ranks get nothing.
fn said(server: &mut Server, local: u32, bytes: &str) -> String {
    server.receive(local, bytes.as_bytes());
    let mut text = String::new();
    for action in actions(server) {
        match action {
            Action::Send { local: to, bytes } if to == local => {
                text += std::str::from_utf8(&bytes).unwrap();
            }
            Action::Send { local: to, bytes } => panic!("to {to}: {bytes:?}"),
            Action::Tell { event: Event::Broken(problem), .. } => text += &problem,
            _ => {}
        }
    }
    text
}

const INIT_1: &str = "cmd=init pmi_version=1 pmi_subversion=1\n";
const INIT_2: &str = "cmd=init pmi_version=2 pmi_subversion=0\n";

/// The dialogue of an MPI program with PMI-1, as recorded with Hydra; fields are in our order.
#[test]
fn a_dialogue_in_pmi_1() {
    let mut server = alone(1);
    for (question, answer) in [
        (INIT_1, "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n"),
        ("cmd=get_maxes\n", "cmd=maxes rc=0 kvsname_max=256 keylen_max=64 vallen_max=1024\n"),
        ("cmd=get_my_kvsname\n", "cmd=my_kvsname rc=0 kvsname=n1.7.a\n"),
        ("cmd=get_appnum\n", "cmd=appnum rc=0 appnum=0\n"),
        ("cmd=get_universe_size\n", "cmd=universe_size rc=0 size=1\n"),
        (
            "cmd=get kvsname=n1.7.a key=PMI_process_mapping\n",
            "cmd=get_result rc=0 msg=success value=(vector,(0,1,1))\n",
        ),
        ("cmd=put kvsname=n1.7.a key=a value=x=1; y\n", "cmd=put_result rc=0 msg=success\n"),
        (
            "cmd=get kvsname=n1.7.a key=a\n",
            "cmd=get_result rc=-1 msg=key_a_not_found value=unknown\n",
        ),
        ("cmd=barrier_in\n", "cmd=barrier_out rc=0\n"),
        ("cmd=get kvsname=n1.7.a key=a\n", "cmd=get_result rc=0 msg=success value=x=1; y\n"),
        (
            "cmd=lookup_name service=a\n",
            "cmd=lookup_result rc=-1 msg=not_served_by_gasnetrun_ibv reason=not_served_by_gasnetrun_ibv\n",
        ),
        (
            "mcmd=spawn\nnprocs=1\nexecname=a\nendcmd\n",
            "cmd=spawn_result rc=-1 msg=not_served_by_gasnetrun_ibv reason=not_served_by_gasnetrun_ibv\n",
        ),
        ("cmd=finalize\n", "cmd=finalize_ack rc=0\n"),
        ("cmd=get_maxes\n", ""),
    ] {
        assert_eq!(said(&mut server, 0, question), answer, "{question}");
    }
}

#[test]
fn a_dialogue_in_pmi_2() {
    let mut server = alone(2);
    let first = said(&mut server, 1, INIT_2);
    assert_eq!(first, "cmd=response_to_init pmi_version=2 pmi_subversion=0 rc=0\n");
    let mut ask = |body: &str| said(&mut server, 1, &frame(body));
    for (question, answer) in [
        (
            "cmd=fullinit;pmijobid=x;pmirank=1;threaded=TRUE;",
            "cmd=fullinit-response;rc=0;pmi-version=2;pmi-subversion=0;rank=1;size=2;appnum=0;debugged=FALSE;pmiverbose=FALSE;",
        ),
        ("cmd=job-getid;thrid=7;", "cmd=job-getid-response;thrid=7;rc=0;jobid=n1.7.a;"),
        (
            "cmd=info-getjobattr;key=PMI_process_mapping;",
            "cmd=info-getjobattr-response;rc=0;found=TRUE;value=(vector,(0,1,2));",
        ),
        (
            "cmd=info-getjobattr;key=universeSize;",
            "cmd=info-getjobattr-response;rc=0;found=TRUE;value=2;",
        ),
        ("cmd=info-getjobattr;key=x;", "cmd=info-getjobattr-response;rc=0;found=FALSE;"),
        ("cmd=kvs-put;key=a;value=b=c;", "cmd=kvs-put-response;rc=0;"),
        ("cmd=kvs-get;jobid=n1.7.a;srcid=-1;key=a;", "cmd=kvs-get-response;rc=0;found=FALSE;"),
        (
            "cmd=info-getnodeattr;key=s;wait=FALSE;",
            "cmd=info-getnodeattr-response;rc=0;found=FALSE;",
        ),
        ("cmd=spawn;ncmds=1;", "cmd=spawn-response;rc=1;errmsg=not served by gasnetrun_ibv;"),
    ] {
        assert_eq!(ask(question), frame(answer), "{question}");
    }
    // A rank waits for an attribute that another one, which speaks PMI-1, cannot set; a third does.
    assert_eq!(ask("cmd=info-getnodeattr;key=s;wait=TRUE;thrid=3;"), "");
    said(&mut server, 0, INIT_2);
    server.receive(0, frame("cmd=info-putnodeattr;key=s;value=/dev/shm/x;").as_bytes());
    let sent: Vec<_> = actions(&mut server)
        .into_iter()
        .map(|action| match action {
            Action::Send { local, bytes } => (local, String::from_utf8(bytes).unwrap()),
            other => panic!("{other:?}"),
        })
        .collect();
    let attribute =
        frame("cmd=info-getnodeattr-response;thrid=3;rc=0;found=TRUE;value=/dev/shm/x;");
    let set = frame("cmd=info-putnodeattr-response;rc=0;");
    assert_eq!(sent, [(1, attribute), (0, set)]);
    // Both wires share the keys and the fence.
    server.receive(1, frame("cmd=kvs-fence;").as_bytes());
    assert_eq!(actions(&mut server), []);
    server.receive(0, frame("cmd=kvs-fence;").as_bytes());
    assert_eq!(actions(&mut server).len(), 2);
    let got = said(&mut server, 0, &frame("cmd=kvs-get;jobid=;srcid=1;key=a;"));
    assert_eq!(got, frame("cmd=kvs-get-response;rc=0;found=TRUE;value=b=c;"));
}

/// A rank waits for an attribute in one thread and ends by another one; then the attribute comes.
#[test]
fn who_is_over_is_not_told_what_it_waited_for() {
    let finalize = frame("cmd=finalize;");
    let abort = frame("cmd=abort;isworld=TRUE;msg=a;exitcode=7;");
    for end in ["nonsense", &finalize, &abort] {
        let mut server = alone(2);
        said(&mut server, 0, INIT_2);
        said(&mut server, 1, INIT_2);
        assert_eq!(said(&mut server, 0, &frame("cmd=info-getnodeattr;key=s;wait=TRUE;")), "");
        said(&mut server, 0, end);
        let answer = said(&mut server, 1, &frame("cmd=info-putnodeattr;key=s;value=x;"));
        assert_eq!(answer, frame("cmd=info-putnodeattr-response;rc=0;"), "after {end}");
    }
}

#[test]
fn a_message_may_come_in_any_pieces() {
    let mut server = alone(1);
    let all = format!("{INIT_2}{}{}", frame("cmd=kvs-put;key=a;value=b;"), frame("cmd=kvs-fence;"));
    let mut text = String::new();
    for byte in all.chars() {
        text += &said(&mut server, 0, &byte.to_string());
    }
    assert!(text.ends_with("cmd=kvs-fence-response;rc=0;"), "{text}");
}

#[test]
fn what_no_client_sends_ends_the_job_and_says_why() {
    let long = format!("cmd=put kvsname=n1.7.a key=a value={}\n", "x".repeat(1024));
    let key = format!("cmd=put kvsname=n1.7.a key={} value=a\n", "x".repeat(64));
    let line = "x".repeat(70_000);
    for (said_after_init, why) in [
        ("cmd=nonsense\n", "a command that is not known here, in \"cmd=nonsense\""),
        ("text\n", "no command"),
        ("cmd=get key=a\n", "no kvsname"),
        ("cmd=get kvsname=other key=a\n", "the space of keys \"other\" instead of \"n1.7.a\""),
        ("cmd=put kvsname=n1.7.a key= value=a\n", "an empty key"),
        ("cmd=put kvsname=n1.7.a key=a key=b value=a\n", "key is there twice"),
        (INIT_1, "a second init"),
        ("cmd=abort exitcode=x\n", "is no number"),
        ("cmd=abort exitcode=99999999999\n", "is out of range"),
        ("mcmd=other\na=b\nendcmd\n", "no command"),
        (&long, "a value of 1024 bytes, 1023 are the most"),
        (&key, "a key of 64 bytes, 63 are the most"),
        (&line, "a line of more than"),
    ] {
        let mut server = alone(2);
        said(&mut server, 0, INIT_1);
        let text = said(&mut server, 0, said_after_init);
        assert!(text.starts_with("PMI-1: ") && text.contains(why), "{text}");
        assert_eq!(said(&mut server, 0, "cmd=get_maxes\n"), "", "nothing more is served");
    }
    for (bytes, why) in [
        ("cmd=get_maxes\n", "a request before init"),
        ("cmd=barrier_in\n", "a request before init"),
        ("cmd=init pmi_version=x pmi_subversion=1\n", "is no number"),
    ] {
        let text = said(&mut alone(2), 0, bytes);
        assert!(text.contains(why), "{text}");
    }
    let mut server = alone(2);
    said(&mut server, 0, INIT_2);
    for (bytes, why) in [("abcdefgh", "its length is"), ("999999cmd", "bytes announced")] {
        let mut server = alone(2);
        said(&mut server, 0, INIT_2);
        assert!(said(&mut server, 0, bytes).contains(why));
    }
    said(&mut server, 0, &frame("cmd=kvs-fence;"));
    let text = said(&mut server, 0, &frame("cmd=kvs-fence;"));
    assert!(text.contains("inside a fence"), "{text}");
}

#[test]
fn a_version_that_is_not_spoken_is_refused_and_another_one_may_be_asked_for() {
    let mut server = alone(1);
    let text = said(&mut server, 0, "cmd=init pmi_version=3 pmi_subversion=0\n");
    assert_eq!(text, "cmd=response_to_init pmi_version=2 pmi_subversion=0 rc=-1\n");
    assert!(said(&mut server, 0, INIT_1).ends_with("rc=0\n"));
}

#[test]
fn an_abort_is_told_even_from_inside_a_fence() {
    for (wire, fence, abort) in [
        (INIT_1, "cmd=barrier_in\n".to_owned(), "cmd=abort exitcode=7\n".to_owned()),
        (INIT_2, frame("cmd=kvs-fence;"), frame("cmd=abort;isworld=TRUE;msg=a;exitcode=7;")),
    ] {
        let mut server = alone(2);
        said(&mut server, 1, wire);
        said(&mut server, 1, &fence);
        server.receive(1, abort.as_bytes());
        let told = Action::Tell { rank: Rank(1), event: Event::Abort(7) };
        assert!(actions(&mut server).contains(&told));
    }
}

/// The first rank that waits for one that is gone is named, whichever comes first.
#[test]
fn who_waits_for_a_rank_that_is_gone_is_told_so() {
    let broken = |server: &mut Server| {
        actions(server).into_iter().find_map(|action| match action {
            Action::Tell { rank, event: Event::Broken(text) } => Some((rank, text)),
            _ => None,
        })
    };
    let mut server = alone(3);
    said(&mut server, 1, INIT_1);
    said(&mut server, 1, "cmd=barrier_in\n");
    server.ended(2);
    let (rank, text) = broken(&mut server).unwrap();
    assert_eq!(rank, Rank(1));
    assert!(text.contains("rank 2 has ended or finalized"), "{text}");

    let mut server = alone(3);
    server.ended(0);
    assert_eq!(actions(&mut server), []);
    said(&mut server, 1, INIT_1);
    server.receive(1, b"cmd=barrier_in\n");
    assert!(broken(&mut server).unwrap().1.contains("rank 0 has ended"));
}

#[test]
fn maps_of_hosts_are_read_as_they_were_written() {
    let text = |hosts: &[u32]| {
        mapping::text(&hosts.iter().copied().map(HostId).collect::<Vec<_>>()).unwrap()
    };
    assert_eq!(text(&[0, 0, 0, 0]), "(vector,(0,1,4))");
    assert_eq!(text(&[0, 0, 1, 1]), "(vector,(0,2,2))");
    assert_eq!(text(&[0, 1, 1, 1]), "(vector,(0,1,1),(1,1,3))");
    assert_eq!(text(&[0, 1, 2, 0, 1, 2]), "(vector,(0,3,1))");
    assert_eq!(mapping::text(&[]), None);
}

/// Agents in a tree, each with some ranks, the root with none; messages are delivered in any order
/// that keeps each link's.
struct Tree {
    servers: Vec<Server>,
    parents: Vec<Option<usize>>,
    /// Messages under way: to whom, from whom.
    links: HashMap<(usize, usize), VecDeque<Message>>,
    /// Host and local number of each rank.
    places: Vec<(usize, u32)>,
    heard: Vec<String>,
    broken: Vec<(Rank, String)>,
}

impl Tree {
    fn new(hosts: &[usize], degree: usize) -> Self {
        let size: usize = hosts.iter().sum();
        let host_of: Vec<HostId> = (0u32..)
            .zip(hosts)
            .flat_map(|(host, count)| std::iter::repeat_n(HostId(host), *count))
            .collect();
        // Server 0 is the root; host h is server h + 1, below server h / degree.
        let parents: Vec<Option<usize>> = std::iter::once(None)
            .chain((0..hosts.len()).map(|host| Some(host.div_ceil(degree).min(host))))
            .collect();
        let mut places = Vec::new();
        let mut servers = Vec::new();
        for at in 0..parents.len() {
            let first: usize = hosts[..at.saturating_sub(1)].iter().sum();
            let count = if at == 0 { 0 } else { hosts[at - 1] };
            for local in 0..count {
                places.push((at, u32::try_from(local).unwrap()));
            }
            let ranks: Vec<u32> =
                (first..first + count).map(|rank| u32::try_from(rank).unwrap()).collect();
            servers.push(Server::new(Site {
                host_of: host_of.clone(),
                branches: (1..parents.len())
                    .filter(|child| parents[*child] == Some(at))
                    .map(|child| {
                        Rank(u32::try_from(hosts[..child - 1].iter().sum::<usize>()).unwrap())
                    })
                    .collect(),
                parent: at > 0,
                ..site(&ranks, u32::try_from(size).unwrap())
            }));
        }
        let heard = vec![String::new(); size];
        Self { servers, parents, links: HashMap::new(), places, heard, broken: Vec::new() }
    }

    fn children(&self, of: usize) -> Vec<usize> {
        (0..self.parents.len()).filter(|at| self.parents[*at] == Some(of)).collect()
    }

    fn collect(&mut self, at: usize) {
        for action in actions(&mut self.servers[at]) {
            match action {
                Action::Up(message) => {
                    let parent = self.parents[at].expect("the root has none");
                    self.links.entry((parent, at)).or_default().push_back(message);
                }
                Action::Down(message) => {
                    for child in self.children(at) {
                        self.links.entry((child, at)).or_default().push_back(message.clone());
                    }
                }
                Action::Send { local, bytes } => {
                    let rank = self.places.iter().position(|place| *place == (at, local)).unwrap();
                    self.heard[rank] += std::str::from_utf8(&bytes).unwrap();
                }
                Action::Tell { rank, event: Event::Broken(text) } => self.broken.push((rank, text)),
                Action::Tell { .. } | Action::Close { .. } => {}
            }
        }
    }

    fn say(&mut self, rank: usize, text: &str) {
        let (at, local) = self.places[rank];
        self.servers[at].receive(local, text.as_bytes());
        self.collect(at);
    }

    /// Delivers one message, the `pick`th of those that may come next; whether there was one.
    fn deliver(&mut self, pick: usize) -> bool {
        let mut ready: Vec<(usize, usize)> = self
            .links
            .iter()
            .filter(|(_, queue)| !queue.is_empty())
            .map(|(link, _)| *link)
            .collect();
        ready.sort_unstable();
        if ready.is_empty() {
            return false;
        }
        let (to, from) = ready[pick % ready.len()];
        let message = self.links.get_mut(&(to, from)).unwrap().pop_front().unwrap();
        if self.parents[to] == Some(from) {
            self.servers[to].hear_parent(message).unwrap();
        } else {
            let index = self.children(to).iter().position(|child| *child == from).unwrap();
            self.servers[to].hear_child(index, message).unwrap();
        }
        self.collect(to);
        true
    }
}

proptest! {
    /// Every rank puts a key of its own and one of all, and then reads those of another one.
    #[test]
    fn every_rank_reads_what_was_put_before_the_fence(
        hosts in proptest::collection::vec(1usize..4, 1..6),
        degree in 1usize..4,
        picks in proptest::collection::vec(any::<usize>(), 1..40),
        order in any::<u64>(),
    ) {
        let mut tree = Tree::new(&hosts, degree);
        let size: usize = hosts.iter().sum();
        let mut picks = picks.into_iter().cycle();
        for rank in 0..size {
            tree.say(rank, INIT_1);
        }
        for epoch in 0..3u32 {
            let begin = usize::try_from(order % 97).unwrap();
            for at in 0..size {
                let rank = (at + begin) % size;
                tree.heard[rank].clear();
                tree.say(rank, &format!("cmd=put kvsname=n1.7.a key=k{rank} value=v{rank}.{epoch}\n"));
                prop_assert_eq!(&tree.heard[rank], "cmd=put_result rc=0 msg=success\n");
                tree.heard[rank].clear();
                if at + 1 == size {
                    // The last one is missing: nobody goes on.
                    while tree.deliver(picks.next().unwrap()) {}
                    prop_assert!(tree.heard.iter().all(String::is_empty));
                }
                tree.say(rank, "cmd=barrier_in\n");
            }
            while tree.deliver(picks.next().unwrap()) {}
            for rank in 0..size {
                prop_assert_eq!(&tree.heard[rank], "cmd=barrier_out rc=0\n");
                tree.heard[rank].clear();
                let other = (rank + 1) % size;
                tree.say(rank, &format!("cmd=get kvsname=n1.7.a key=k{other}\n"));
                let expected = format!("cmd=get_result rc=0 msg=success value=v{other}.{epoch}\n");
                prop_assert_eq!(&tree.heard[rank], &expected);
            }
        }
        // Orderly ends blame nobody, in whatever order they are heard of.
        for rank in 0..size {
            tree.say(rank, "cmd=finalize\n");
            tree.deliver(picks.next().unwrap());
            let (at, local) = tree.places[rank];
            tree.servers[at].ended(local);
            tree.collect(at);
        }
        while tree.deliver(picks.next().unwrap()) {}
        prop_assert_eq!(&tree.broken, &[]);
    }

    /// Where one rank of the job never joins, somebody who waits says so, whatever comes first.
    #[test]
    fn a_rank_that_never_joins_is_named(
        hosts in proptest::collection::vec(1usize..4, 2..6),
        degree in 1usize..4,
        picks in proptest::collection::vec(any::<usize>(), 1..40),
        early in any::<bool>(),
        plain in any::<usize>(),
    ) {
        let mut tree = Tree::new(&hosts, degree);
        let size: usize = hosts.iter().sum();
        let plain = plain % size;
        let mut picks = picks.into_iter().cycle();
        let end = |tree: &mut Tree| {
            let (at, local) = tree.places[plain];
            tree.servers[at].ended(local);
            tree.collect(at);
        };
        if early {
            end(&mut tree);
        }
        for rank in (0..size).filter(|rank| *rank != plain) {
            tree.say(rank, INIT_1);
            tree.say(rank, "cmd=barrier_in\n");
            tree.deliver(picks.next().unwrap());
        }
        if !early {
            end(&mut tree);
        }
        while tree.deliver(picks.next().unwrap()) {}
        prop_assert!(!tree.broken.is_empty());
        let name = format!("rank {plain} has ended");
        prop_assert!(tree.broken.iter().all(|(_, text)| text.contains(&name)), "{:?}", tree.broken);
    }

    #[test]
    fn garbage_never_panics(
        first in proptest::bool::ANY,
        pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..200), 0..8),
    ) {
        let mut server = alone(2);
        if first {
            server.receive(0, INIT_2.as_bytes());
        }
        for piece in pieces {
            server.receive(0, &piece);
            actions(&mut server);
        }
    }

    /// Words of the wire in any order.
    #[test]
    fn any_commands_never_panic(
        words in proptest::collection::vec(
            prop_oneof![
                Just(INIT_1), Just(INIT_2), Just("cmd=barrier_in\n"), Just("cmd=finalize\n"),
                Just("cmd=put kvsname=n1.7.a key=a value=b\n"), Just("cmd=abort exitcode=-1\n"),
                Just("    14cmd=kvs-fence;"), Just("    13cmd=finalize;"), Just("cmd=get_maxes\n"),
            ],
            0..20,
        ),
        ends in any::<bool>(),
    ) {
        let mut server = alone(2);
        for (at, word) in words.into_iter().enumerate() {
            server.receive(u32::from(at % 3 == 0), word.as_bytes());
            if ends && at == 10 {
                server.ended(1);
            }
            actions(&mut server);
        }
    }
}

#[test]
fn messages_of_no_agent_are_refused() {
    let mut server =
        Server::new(Site { branches: vec![Rank(1), Rank(2)], parent: true, ..site(&[0], 3) });
    let part = || Message::Fence(Vec::new());
    assert_eq!(server.hear_parent(part()), Err(StrayMessage::NotBegun));
    assert_eq!(server.hear_child(2, part()), Err(StrayMessage::Branch(2, 2)));
    assert_eq!(server.hear_child(1, part()), Ok(()));
    assert_eq!(server.hear_child(1, part()), Err(StrayMessage::Twice(1)));
}

/// An agent that has left cannot say any more whose ranks it had; the one above knows it.
#[test]
fn who_waits_for_a_rank_of_an_agent_that_has_left_is_told_so() {
    let node = |branches| Server::new(Site { branches, parent: true, ..site(&[0], 3) });
    let mut server = node(vec![Rank(1), Rank(2)]);
    server.left(1);
    assert_eq!(actions(&mut server), [], "nobody speaks PMI");
    server.hear_parent(Message::InUse).unwrap();
    let told = [
        Action::Down(Message::InUse),
        Action::Up(Message::Gone(Rank(2))),
        Action::Down(Message::Gone(Rank(2))),
    ];
    let seen = actions(&mut server);
    assert!(told.iter().all(|one| seen.contains(one)), "{seen:?}");
    said(&mut server, 0, INIT_1);
    let text = said(&mut server, 0, "cmd=barrier_in\n");
    assert!(text.contains("rank 2 has ended"), "{text}");
}
