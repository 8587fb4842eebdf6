//! The machine in trees of agents of any shape, whose messages come in any order that connections allow.

use std::collections::{BTreeMap, HashMap, VecDeque};

use proptest::prelude::*;

use super::*;
use crate::server::Event;
use bootstrap::Rank;
use bootstrap::collective::Bytes;

/// Agents of a job: a root without ranks and one for each host.
struct Tree {
    machines: Vec<Machine>,
    parents: Vec<Option<usize>>,
    host_of: Vec<usize>,
    /// Messages under way, by sender and receiver.
    links: BTreeMap<(usize, usize), VecDeque<Message>>,
    helpers: HashMap<usize, Vec<ToHelper>>,
    told: Vec<(Rank, Event)>,
}

/// Agent `n` stands below one that is before it.
fn parents(choices: &[u8]) -> Vec<Option<usize>> {
    let above = choices.iter().enumerate().map(|(at, choice)| Some(*choice as usize % (at + 1)));
    std::iter::once(None).chain(above).collect()
}

impl Tree {
    /// Hosts of the agents 1, 2 … ; `host_of` counts them from 1.
    fn new(choices: &[u8], host_of: Vec<usize>) -> Self {
        let parents = parents(choices);
        let size = u32::try_from(host_of.len()).unwrap();
        let of = |agents: &[usize]| -> Vec<Rank> {
            let ranks = (0..).zip(&host_of).filter(|(_, host)| agents.contains(host));
            ranks.map(|(rank, _)| Rank(rank)).collect()
        };
        let machine = |agent: usize| {
            let below = children(&parents, agent);
            let branches = below.iter().map(|child| of(&subtree(&parents, *child))).collect();
            let parent = parents[agent].is_some();
            Machine::new(Place { ranks: of(&[agent]), size, branches, parent })
        };
        let machines = (0..parents.len()).map(machine).collect();
        let (links, helpers, told) = (BTreeMap::new(), HashMap::new(), Vec::new());
        Self { machines, parents, host_of, links, helpers, told }
    }

    fn says(&mut self, agent: usize, said: FromHelper) {
        self.machines[agent].hear_helper(said);
        self.act(agent);
    }

    fn act(&mut self, agent: usize) {
        while let Some(action) = self.machines[agent].poll_action() {
            match action {
                Action::Helper(frame) => self.helpers.entry(agent).or_default().push(frame),
                Action::Tell { rank, event } => self.told.push((rank, event)),
                Action::Up(message) => {
                    let above = self.parents[agent].expect("only those with a parent send up");
                    self.links.entry((agent, above)).or_default().push_back(message);
                }
                Action::Down { to, message } => {
                    let below = children(&self.parents, agent);
                    for branch in to {
                        let link = (agent, below[branch]);
                        self.links.entry(link).or_default().push_back(message.clone());
                    }
                }
            }
        }
    }

    /// Delivers one message, if any is under way.
    fn deliver(&mut self, choice: usize) -> bool {
        let open: Vec<(usize, usize)> =
            self.links.iter().filter(|(_, all)| !all.is_empty()).map(|(link, _)| *link).collect();
        let Some(link) = open.get(choice % open.len().max(1)).copied() else { return false };
        let message = self.links.get_mut(&link).and_then(VecDeque::pop_front).unwrap();
        let (from, to) = link;
        let heard = if self.parents[to] == Some(from) {
            self.machines[to].hear_parent(message)
        } else {
            let branch = children(&self.parents, to).iter().position(|child| *child == from);
            self.machines[to].hear_child(branch.unwrap(), message)
        };
        assert_eq!(heard, Ok(()));
        self.act(to);
        true
    }

    fn drain(&mut self, choices: &[usize]) {
        let mut at = 0;
        while self.deliver(choices.get(at % choices.len().max(1)).copied().unwrap_or(0)) {
            at += 1;
        }
    }
}

fn children(parents: &[Option<usize>], agent: usize) -> Vec<usize> {
    (0..parents.len()).filter(|child| parents[*child] == Some(agent)).collect()
}

fn subtree(parents: &[Option<usize>], agent: usize) -> Vec<usize> {
    let below = children(parents, agent).into_iter().flat_map(|child| subtree(parents, child));
    std::iter::once(agent).chain(below).collect()
}

/// Any tree, and a job on its hosts.
fn world() -> impl Strategy<Value = (Vec<u8>, Vec<usize>)> {
    proptest::collection::vec(any::<u8>(), 1..6).prop_flat_map(|choices| {
        let hosts = choices.len();
        (Just(choices), proptest::collection::vec(1..=hosts, 1..10))
    })
}

proptest! {
    /// Several sets at the same time, each fence of which ends on every host that has members, with what
    /// all of them have put, and nowhere else.
    #[test]
    fn fences_of_any_sets_end_everywhere_with_all_data(
        (choices, host_of) in world(),
        sets in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..6), 1..4),
        order in proptest::collection::vec(any::<usize>(), 1..30),
    ) {
        let size = u32::try_from(host_of.len()).unwrap();
        let mut sets: Vec<Members> = sets
            .iter()
            .map(|set| Members::of(set.iter().map(|rank| u32::from(*rank) % size).collect()))
            .collect();
        sets.sort();
        sets.dedup();
        let mut tree = Tree::new(&choices, host_of);
        for round in 0..2u8 {
            tree.helpers.clear();
            let mut expected: HashMap<usize, usize> = HashMap::new();
            for (number, members) in (0u8..).zip(&sets) {
                for agent in 1..=choices.len() {
                    let mut here = (0..size).filter(|rank| members.has(Rank(*rank)) && tree.host_of[*rank as usize] == agent);
                    if here.next().is_none() {
                        continue;
                    }
                    *expected.entry(agent).or_default() += 1;
                    let data = Bytes::from(vec![round, number, u8::try_from(agent).unwrap()]);
                    tree.says(agent, FromHelper::Fence { number: number.into(), members: members.clone(), data, absent: Vec::new() });
                    // Some of it goes on before the next one enters.
                    for choice in order.iter().take(usize::from(number) + 1) {
                        tree.deliver(*choice);
                    }
                }
            }
            tree.drain(&order);
            for agent in 0..=choices.len() {
                let done = tree.helpers.remove(&agent).unwrap_or_default();
                prop_assert_eq!(done.len(), expected.get(&agent).copied().unwrap_or(0));
                for frame in done {
                    let ToHelper::FenceDone { number, status: 0, data } = frame else { panic!("{frame:?}") };
                    let members = &sets[number as usize];
                    let mut seen: Vec<u8> = data.chunks(3).map(|part| part[2]).collect();
                    prop_assert!(data.chunks(3).all(|part| part[0] == round && u32::from(part[1]) == number));
                    seen.sort_unstable();
                    let mut hosts: Vec<u8> = (0..size).filter(|rank| members.has(Rank(*rank)))
                        .map(|rank| u8::try_from(tree.host_of[rank as usize]).unwrap()).collect();
                    hosts.sort_unstable();
                    hosts.dedup();
                    prop_assert_eq!(seen, hosts);
                }
            }
        }
        prop_assert_eq!(&tree.told, &Vec::new());
    }

    /// What a rank has put is asked for and told from anywhere to anywhere.
    #[test]
    fn requests_find_their_rank_and_answers_who_has_asked(
        (choices, host_of) in world(), asker in any::<usize>(), about in any::<usize>(), order in proptest::collection::vec(any::<usize>(), 1..9),
    ) {
        let (asker, about) = (asker % host_of.len(), about % host_of.len());
        let mut tree = Tree::new(&choices, host_of.clone());
        let (from, to) = (host_of[asker], host_of[about]);
        tree.says(from, FromHelper::Want { number: 7, rank: u32::try_from(about).unwrap() });
        tree.drain(&order);
        let asked = tree.helpers.remove(&to).unwrap_or_default();
        let [ToHelper::Wanted { number, rank }] = asked[..] else { panic!("{asked:?}") };
        prop_assert_eq!(rank as usize, about);
        tree.says(to, FromHelper::Answer { number, status: 0, data: vec![1, 2].into() });
        tree.drain(&order);
        let found = ToHelper::Found { number: 7, status: 0, data: vec![1, 2].into() };
        prop_assert_eq!(tree.helpers.remove(&from).unwrap_or_default(), vec![found]);
    }

    /// One rank, alone on its host because libpmix does not tell of those that wait there, finalizes, and all
    /// others enter a fence of all: wherever it was, one of them is named with it.
    #[test]
    fn who_waits_for_one_that_is_gone_is_named(
        (mut choices, mut host_of) in world(), above in any::<u8>(), gone in any::<usize>(), first in any::<bool>(),
        order in proptest::collection::vec(any::<usize>(), 1..9),
    ) {
        choices.push(above);
        let gone = gone % (host_of.len() + 1);
        host_of.insert(gone, choices.len());
        let size = u32::try_from(host_of.len()).unwrap();
        let mut tree = Tree::new(&choices, host_of.clone());
        for rank in 0..size {
            tree.says(host_of[rank as usize], FromHelper::Init { rank });
        }
        let leave = |tree: &mut Tree| {
            tree.says(host_of[gone], FromHelper::Finalize { rank: u32::try_from(gone).unwrap(), open: false });
        };
        if first { leave(&mut tree) }
        for agent in 1..=choices.len() {
            if agent != host_of[gone] && host_of.contains(&agent) {
                let (members, data) = (Members::all(size), Bytes::default());
                tree.says(agent, FromHelper::Fence { number: 1, members, data, absent: Vec::new() });
            }
        }
        if !first { leave(&mut tree) }
        tree.drain(&order);
        let text = format!("but rank {gone} has ended or finalized");
        let named = tree.told.iter().any(|(rank, event)| {
            rank.0 as usize != gone && matches!(event, Event::Broken(seen) if seen.ends_with(&text))
        });
        prop_assert!(named, "{:?}", tree.told);
    }

    /// Nothing that an agent or a helper can send does harm.
    #[test]
    fn nonsense_is_survived(said in proptest::collection::vec((any::<u8>(), any::<u32>(), any::<u32>()), 0..40)) {
        let mut tree = Tree::new(&[0, 1, 1], vec![1, 2, 3, 3]);
        for (what, a, b) in said {
            let (members, data) = (Members::of(vec![a % 6, b % 6]), Bytes::from(vec![1; (b % 9) as usize]));
            let machine = &mut tree.machines[1];
            let message = match what % 5 {
                0 => Message::Gone(Rank(a % 6)),
                1 => Message::Fence { members: members.clone(), data: data.clone() },
                2 => Message::Want { asker: (Rank(a % 6), b), rank: Rank(b % 6) },
                3 => Message::Found { asker: (Rank(a % 6), b), status: 0, data: data.clone() },
                _ => Message::InUse,
            };
            let frame = match what % 6 {
                0 => FromHelper::Init { rank: a % 6 },
                1 => FromHelper::Finalize { rank: a % 6, open: b % 2 == 0 },
                2 => FromHelper::Want { number: a, rank: b },
                3 => FromHelper::Answer { number: a % 4, status: 0, data },
                4 => FromHelper::Abort { rank: a, status: 1 },
                _ => FromHelper::Fence { number: a, members, data, absent: vec![b % 6] },
            };
            match what / 64 {
                0 => drop(machine.hear_child(a as usize % 3, message)),
                1 => drop(machine.hear_parent(message)),
                2 => machine.ended(a % 3),
                _ => machine.hear_helper(frame),
            }
            while machine.poll_action().is_some() {}
        }
    }

    /// Frames in any pieces are the same frames; other bytes are refused or waited for.
    #[test]
    fn frames_survive_any_cut(sizes in proptest::collection::vec(0usize..5000, 1..6), cut in 1usize..3000, noise in proptest::collection::vec(any::<u8>(), 0..100)) {
        let sent: Vec<FromHelper> = (0u32..).zip(&sizes).map(|(number, size)| {
            FromHelper::Answer { number, status: 0, data: vec![7; *size].into() }
        }).collect();
        let stream: Vec<u8> = sent.iter().flat_map(encode).collect();
        let (mut frames, mut seen) = (Frames::default(), Vec::<FromHelper>::new());
        for piece in stream.chunks(cut) {
            frames.push(piece);
            while let Some(frame) = frames.take().unwrap() {
                seen.push(frame);
            }
        }
        prop_assert_eq!(seen, sent);
        let mut frames = Frames::<FromHelper>::default();
        frames.push(&noise);
        while let Ok(Some(_)) = frames.take() {}
    }
}

#[test]
fn a_rank_that_ends_without_pmix_is_named_once_others_speak_it() {
    let broken = |tree: &Tree| {
        let named = tree.told.iter().filter(|(_, event)| matches!(event, Event::Broken(_)));
        named.map(|(rank, _)| rank.0).collect::<Vec<_>>()
    };
    for ended_first in [true, false] {
        let mut tree = Tree::new(&[0, 0], vec![1, 2]);
        let end = |tree: &mut Tree| {
            tree.machines[2].ended(0);
            tree.act(2);
        };
        if ended_first {
            end(&mut tree);
        }
        assert_eq!(broken(&tree), []);
        tree.says(1, FromHelper::Init { rank: 0 });
        tree.drain(&[0]);
        if !ended_first {
            end(&mut tree);
        }
        assert_eq!(broken(&tree), [1], "{ended_first}");
    }
}

/// The helper tells of a fence without a rank of the host that has finalized: it never ends.
#[test]
fn a_fence_without_a_rank_of_the_host_names_it() {
    let mut tree = Tree::new(&[0], vec![1, 1, 1]);
    for rank in 0..3 {
        tree.says(1, FromHelper::Init { rank });
    }
    let fence = |number, members, absent| {
        let data = Bytes::default();
        FromHelper::Fence { number, members, data, absent }
    };
    tree.says(1, FromHelper::Finalize { rank: 1, open: false });
    tree.told.clear();
    // Rank 1 is none of it.
    tree.says(1, fence(1, Members::of(vec![0, 2]), vec![1]));
    assert_eq!(tree.helpers.remove(&1).map(|frames| frames.len()), Some(1));
    assert_eq!(tree.told, []);
    tree.says(1, fence(2, Members::all(3), vec![1]));
    tree.drain(&[0]);
    assert!(!tree.helpers.contains_key(&1), "the fence has ended");
    let [(Rank(0), Event::Broken(text))] = &tree.told[..] else { panic!("{:?}", tree.told) };
    assert!(text.ends_with("but rank 1 has ended or finalized"), "{text}");
}

/// A child that speaks for a rank finalizes: the rank takes part in further fences.
#[test]
fn a_rank_with_another_client_is_not_gone() {
    let mut tree = Tree::new(&[0, 0], vec![1, 2]);
    for (agent, rank) in [(1, 0), (2, 1), (2, 1)] {
        tree.says(agent, FromHelper::Init { rank });
    }
    tree.drain(&[0]);
    tree.told.clear();
    tree.says(2, FromHelper::Finalize { rank: 1, open: true });
    let fence = || {
        let (members, data) = (Members::all(2), Bytes::default());
        FromHelper::Fence { number: 1, members, data, absent: Vec::new() }
    };
    tree.says(1, fence());
    tree.drain(&[0]);
    assert_eq!(tree.told, [(Rank(1), Event::Finalize)]);
    tree.says(2, fence());
    tree.drain(&[0]);
    assert_eq!(tree.helpers.len(), 2);
}

#[test]
fn nobody_waits_for_what_a_rank_that_has_ended_has_put() {
    let mut tree = Tree::new(&[0, 0], vec![1, 2, 2]);
    let missing = |number| ToHelper::Found { number, status: -46, data: Bytes::default() };
    tree.says(1, FromHelper::Want { number: 1, rank: 1 });
    tree.drain(&[0]);
    // It ends before the helper has an answer; a second one asks later, a third for no rank.
    tree.machines[2].ended(0);
    tree.act(2);
    tree.says(1, FromHelper::Want { number: 2, rank: 1 });
    tree.says(1, FromHelper::Want { number: 3, rank: 99 });
    tree.drain(&[0]);
    let mut seen = tree.helpers.remove(&1).unwrap();
    seen.sort_by_key(|frame| matches!(frame, ToHelper::Found { number, .. } if *number < 3));
    assert_eq!(seen.len(), 3);
    assert!((1..4).all(|number| seen.contains(&missing(number))), "{seen:?}");
}
