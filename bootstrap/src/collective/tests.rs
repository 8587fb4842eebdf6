mod simulation;
mod tree;

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};

use proptest::prelude::*;

use super::*;
use crate::frame::{Frame, Kind, MAX_PAYLOAD};

/// A call that all ranks make; lengths and roots are reduced to the job at hand.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Step {
    Barrier,
    Exchange(usize),
    Alltoall(usize),
    Broadcast(u32, usize),
    HostBroadcast(u32, usize),
    NbrhdBroadcast(u32, usize),
    HostMemory(u64),
}

impl Step {
    const fn stays_on_host(self) -> bool {
        matches!(self, Self::HostBroadcast(..) | Self::NbrhdBroadcast(..) | Self::HostMemory(_))
    }
}

fn byte(from: u32, at: usize, seq: u32) -> u8 {
    (from as usize * 31 + at * 7 + seq as usize).to_le_bytes()[0]
}

fn data(from: u32, seq: u32, len: usize) -> Vec<u8> {
    (0..len).map(|at| byte(from, at, seq)).collect()
}

struct Job {
    host_of: Vec<HostId>,
    /// Results of exchanges by number and length: long, and the same for all ranks.
    results: RefCell<HashMap<(u32, usize), Vec<u8>>>,
}

impl Job {
    fn new(host_of: Vec<HostId>) -> Self {
        Self { host_of, results: RefCell::default() }
    }

    fn size(&self) -> u32 {
        u32::try_from(self.host_of.len()).unwrap()
    }

    /// The root that `rank` names: on its own host where the call wants that.
    fn root(&self, rank: u32, salt: u32, grouped: bool) -> u32 {
        if !grouped {
            return salt % self.size();
        }
        let host = self.host_of[rank as usize];
        let locals: Vec<u32> =
            (0..self.size()).filter(|r| self.host_of[*r as usize] == host).collect();
        locals[salt as usize % locals.len()]
    }

    fn head(&self, rank: u32, seq: u32, step: Step) -> (Frame<'static>, Vec<u8>) {
        let frame = |kind, total: usize, arg| Frame {
            total: u32::try_from(total).unwrap(),
            ..Frame::bare(kind, seq, rank, arg)
        };
        let spread = |kind, salt, grouped, len| {
            let root = self.root(rank, salt, grouped);
            (frame(kind, len, root), if root == rank { data(rank, seq, len) } else { vec![] })
        };
        match step {
            Step::Barrier => (frame(Kind::Barrier, 0, 0), vec![]),
            Step::Exchange(len) => (frame(Kind::Exchange, len, 0), data(rank, seq, len)),
            Step::Alltoall(row) => {
                let whole = row * self.host_of.len();
                (frame(Kind::Alltoall, whole, 0), data(rank, seq, whole))
            }
            Step::Broadcast(salt, len) => spread(Kind::Broadcast, salt, false, len),
            Step::HostBroadcast(salt, len) => spread(Kind::HostBroadcast, salt, true, len),
            Step::NbrhdBroadcast(salt, len) => spread(Kind::NbrhdBroadcast, salt, true, len),
            Step::HostMemory(len) => {
                let (total, extra) = ((len & 0xffff_ffff) as u32, (len >> 32) as u32);
                (Frame { total, extra, ..Frame::bare(Kind::HostMemory, seq, rank, 0) }, vec![])
            }
        }
    }

    /// What `rank` must get.
    fn expected(&self, rank: u32, seq: u32, step: Step) -> Answer {
        let spread = |salt, grouped, len| {
            let root = self.root(rank, salt, grouped);
            if root == rank { Answer::Release } else { Answer::Data(data(root, seq, len)) }
        };
        match step {
            Step::Barrier => Answer::Release,
            Step::Exchange(len) => {
                let mut results = self.results.borrow_mut();
                let whole = || (0..self.size()).flat_map(|from| data(from, seq, len)).collect();
                Answer::Mapped(results.entry((seq, len)).or_insert_with(whole).clone())
            }
            Step::Alltoall(row) => {
                let start = rank as usize * row;
                let piece =
                    |from| data(from, seq, row * self.host_of.len())[start..start + row].to_vec();
                Answer::Data((0..self.size()).flat_map(piece).collect())
            }
            Step::Broadcast(salt, len) => spread(salt, false, len),
            Step::HostBroadcast(salt, len) | Step::NbrhdBroadcast(salt, len) => {
                spread(salt, true, len)
            }
            Step::HostMemory(len) => Answer::Memory(len),
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
enum Answer {
    Release,
    Mapped(Vec<u8>),
    Data(Vec<u8>),
    Memory(u64),
    Refuse,
}

/// Puts the answers into the ranks' inboxes, each with its number.
fn deliver(host_of: &[HostId], actions: Vec<Action>, inboxes: &mut [VecDeque<(u32, Answer)>]) {
    for action in actions {
        let (to, seq, answer) = match action {
            Action::Release { to, seq } => (to, seq, Answer::Release),
            Action::Mapped { host, seq, pieces } => {
                (To::Host(host), seq, Answer::Mapped(pieces.concat()))
            }
            Action::Data { to, seq, bytes } => (To::Rank(to), seq, Answer::Data(bytes.to_vec())),
            Action::HostMemory { host, seq, len } => (To::Host(host), seq, Answer::Memory(len)),
            Action::Refuse { to, seq, .. } => (To::Rank(to), seq, Answer::Refuse),
        };
        for (rank, inbox) in inboxes.iter_mut().enumerate() {
            if to == To::Rank(Rank(u32::try_from(rank).unwrap())) || to == To::Host(host_of[rank]) {
                inbox.push_back((seq, answer.clone()));
            }
        }
    }
}

/// Host of each rank, and out-degree of the tree.
fn hosts() -> impl Strategy<Value = (Vec<HostId>, usize)> {
    let fixed = |list: &[u32]| list.iter().copied().map(HostId).collect::<Vec<_>>();
    let lists = [&[0][..], &[0, 0], &[0, 1], &[0, 0, 1], &[0, 1, 0, 2, 2], &[0, 0, 0, 0, 0, 0, 0]];
    let any = (1u32..=16, 0usize..24, any::<u64>()).prop_map(|(hosts, more, seed)| {
        // Every host has a rank; the rest are anywhere.
        let place =
            |at: u64| HostId(u32::try_from((seed >> (at % 47)) % u64::from(hosts)).unwrap());
        let rest = (0u64..).take(more).map(place);
        let mut host_of: Vec<HostId> = (0..hosts).map(HostId).chain(rest).collect();
        let turn = usize::try_from(seed % 7).unwrap() % host_of.len();
        host_of.rotate_left(turn);
        host_of
    });
    let cyclic = (1u32..=16, 1u32..=3)
        .prop_map(|(hosts, each)| (0..hosts * each).map(|rank| HostId(rank % hosts)).collect());
    let block = (1u32..=16, 1u32..=3)
        .prop_map(|(hosts, each)| (0..hosts * each).map(|rank| HostId(rank / each)).collect());
    let maps = prop_oneof![
        1 => proptest::sample::select(lists.map(fixed).to_vec()),
        2 => any,
        1 => cyclic,
        1 => block,
    ];
    (maps, proptest::sample::select(vec![0, 1, 2, 3, 32]))
}

fn step() -> impl Strategy<Value = Step> {
    let len = prop_oneof![4 => 0usize..40, 1 => MAX_PAYLOAD - 2..2 * MAX_PAYLOAD + 2];
    prop_oneof![
        Just(Step::Barrier),
        len.clone().prop_map(Step::Exchange),
        (0usize..40).prop_map(Step::Alltoall),
        (any::<u32>(), len.clone()).prop_map(|(root, len)| Step::Broadcast(root, len)),
        (any::<u32>(), len.clone()).prop_map(|(root, len)| Step::HostBroadcast(root, len)),
        (any::<u32>(), len).prop_map(|(root, len)| Step::NbrhdBroadcast(root, len)),
        any::<u64>().prop_map(Step::HostMemory),
    ]
}

/// The tree with its links. Messages wait, encoded, until somebody delivers them.
struct Net {
    tree: Tree,
    /// To the machine above, from it; for each machine.
    links: Vec<[VecDeque<Vec<u8>>; 2]>,
    /// Messages that each machine sent up and got from above.
    count: Vec<[usize; 2]>,
}

impl Net {
    fn new(host_of: &[HostId], degree: usize) -> Self {
        let tree = Tree::new(host_of, degree).unwrap();
        let count = vec![[0, 0]; tree.machines.len()];
        let links = tree.machines.iter().map(|_| [VecDeque::new(), VecDeque::new()]).collect();
        Self { tree, links, count }
    }

    /// Results go down in pieces, some of them for a call with much to carry; how long they are.
    fn cut(&mut self, steps: &[Step]) -> usize {
        let long = |step: &Step| match *step {
            Step::Exchange(len) | Step::Broadcast(_, len) => len > 40,
            _ => false,
        };
        let piece = if steps.iter().any(long) { 50_000 } else { 50 };
        self.tree.machines.iter_mut().for_each(|machine| machine.cut(piece));
        piece
    }

    /// Puts the messages of machine `at` on the links.
    fn post(&mut self, at: usize) {
        while let Some(message) = self.tree.machines[at].poll_transmit() {
            match message {
                TreeMessage::Up(message) => {
                    self.links[at][0].push_back(postcard::to_stdvec(&message).unwrap());
                    self.count[at][0] += 1;
                }
                TreeMessage::Down { to, message } => {
                    assert!(!to.is_empty());
                    let packet = postcard::to_stdvec(&message).unwrap();
                    for below in to.into_iter().map(|index| self.tree.below[at][index]) {
                        self.links[below][1].push_back(packet.clone());
                        self.count[below][1] += 1;
                    }
                }
            }
        }
    }

    fn frame(&mut self, from: Rank, frame: &Frame<'_>) -> Vec<Action> {
        let at = self.tree.machine_of(from).unwrap();
        let actions = self.tree.machines[at].handle(from, frame).unwrap();
        self.post(at);
        actions
    }

    fn fini(&mut self, from: Rank) -> Vec<Action> {
        let at = self.tree.machine_of(from).unwrap();
        let actions = self.tree.machines[at].fini(from).unwrap();
        self.post(at);
        actions
    }

    /// Delivers the next message on the link of machine `at`, if there is one.
    fn deliver(&mut self, at: usize, down: bool) -> Option<Vec<Action>> {
        let packet = self.links[at][usize::from(down)].pop_front()?;
        let (actions, at) = if down {
            let message = postcard::from_bytes(&packet).unwrap();
            (self.tree.machines[at].from_parent(message), at)
        } else {
            let message = postcard::from_bytes(&packet).unwrap();
            let (above, index) = self.tree.above[at].unwrap();
            (self.tree.machines[above].from_child(index, message), above)
        };
        self.post(at);
        Some(actions.unwrap())
    }

    /// Delivers everything.
    fn settle(&mut self) -> Vec<Action> {
        let mut all = Vec::new();
        while self.links.iter().flatten().any(|queue| !queue.is_empty()) {
            for at in 0..self.links.len() {
                for down in [false, true] {
                    all.extend(self.deliver(at, down).unwrap_or_default());
                }
            }
        }
        all
    }
}

/// Plays `steps` on all ranks of a tree, the next to do something being chosen by `order`. A rank
/// whose step is `odd` makes that call instead. Returns all answers of each rank.
fn play(
    job: &Job,
    net: &mut Net,
    steps: &[Step],
    odd: Option<(u32, usize, Step)>,
    order: &[u32],
) -> Vec<Vec<(u32, Answer)>> {
    let size = job.host_of.len();
    let slots = size + 2 * net.links.len();
    let mut inboxes: Vec<VecDeque<(u32, Answer)>> = vec![VecDeque::new(); size];
    let mut got: Vec<Vec<(u32, Answer)>> = vec![vec![]; size];
    // Bytes of the frames that a rank has still to send for its current step.
    let mut pending: Vec<VecDeque<Vec<u8>>> = vec![VecDeque::new(); size];
    let mut at = vec![0usize; size];
    let mut waiting = vec![false; size];
    let mut turns = order.iter().copied().cycle();
    let mut idle = 0;
    while idle < 30 + 2 * slots {
        let turn = turns.next().unwrap_or(0) as usize;
        // When the chosen ones have nothing to do, everybody gets a turn.
        let index = if idle > 20 { idle } else { turn } % slots;
        idle += 1;
        if index >= size {
            let (machine, down) = ((index - size) / 2, index.is_multiple_of(2));
            if let Some(actions) = net.deliver(machine, down) {
                deliver(&job.host_of, actions, &mut inboxes);
                idle = 0;
            }
            continue;
        }
        let rank = u32::try_from(index).unwrap();
        if let Some(answer) = inboxes[index].pop_front() {
            at[index] = if answer.1 == Answer::Refuse { steps.len() } else { at[index] + 1 };
            (waiting[index], pending[index]) = (false, VecDeque::new());
            got[index].push(answer);
            idle = 0;
        } else if !waiting[index] && pending[index].is_empty() && at[index] < steps.len() {
            let seq = u32::try_from(at[index]).unwrap() + 1;
            let own = odd
                .filter(|(r, s, _)| (*r, *s) == (rank, at[index]))
                .map_or(steps[at[index]], |(_, _, step)| step);
            let (head, bytes) = job.head(rank, seq, own);
            let frames = Frame::pieces(head, &bytes).map(|frame| {
                let mut packet = Vec::new();
                Frame { total: head.total, ..frame }.encode(&mut packet);
                packet
            });
            pending[index] = frames.collect();
            idle = 0;
        } else if let Some(packet) = pending[index].pop_front() {
            let frame = Frame::from_packet(&packet, job.size()).unwrap();
            let actions = net.frame(Rank(rank), &frame);
            waiting[index] = pending[index].is_empty();
            deliver(&job.host_of, actions, &mut inboxes);
            idle = 0;
        }
    }
    got
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, max_global_rejects: 10_000, ..ProptestConfig::default() })]

    #[test]
    fn every_order_gives_the_same_results(
        (host_of, degree) in hosts(),
        steps in proptest::collection::vec(step(), 1..6),
        order in proptest::collection::vec(any::<u32>(), 1..40),
    ) {
        let mut net = Net::new(&host_of, degree);
        let cut = net.cut(&steps);
        let job = Job::new(host_of);
        for (rank, got) in (0u32..).zip(play(&job, &mut net, &steps, None, &order)) {
            let expected: Vec<_> =
                (1u32..).zip(&steps).map(|(seq, step)| (seq, job.expected(rank, seq, *step))).collect();
            prop_assert_eq!(got, expected);
        }
        // One message per link, direction and call, and more for a long result; none for calls that
        // stay on their host.
        let calls = steps.iter().filter(|step| !step.stays_on_host()).count();
        let pieces = |step: &Step| match *step {
            Step::Exchange(len) => (len * job.host_of.len()).div_ceil(cut).max(1) - 1,
            Step::Broadcast(_, len) => len.div_ceil(cut).max(1) - 1,
            _ => 0,
        };
        let most = calls + steps.iter().map(pieces).sum::<usize>();
        let apart = steps.iter().all(|step| !matches!(step, Step::Broadcast(..)));
        for (at, above) in net.tree.above.iter().enumerate() {
            let [up, down] = net.count[at];
            let linked = usize::from(above.is_some());
            prop_assert_eq!(up, linked * calls);
            prop_assert!((linked * calls..=linked * most).contains(&down));
            prop_assert!(!apart || down == linked * most, "{} messages, {} are due", down, most);
        }
    }

    #[test]
    fn a_tree_answers_as_one_machine_does(
        (host_of, degree) in hosts(),
        steps in proptest::collection::vec(step(), 1..6),
        order in proptest::collection::vec(any::<u32>(), 1..40),
    ) {
        let steps: Vec<Step> = steps.into_iter().filter(|step| !step.stays_on_host()).collect();
        let flat = vec![HostId(0); host_of.len()];
        let (mut tree, mut one) = (Net::new(&host_of, degree), Net::new(&flat, 0));
        let (job, flat) = (Job::new(host_of), Job::new(flat));
        let got = play(&job, &mut tree, &steps, None, &order);
        prop_assert_eq!(got, play(&flat, &mut one, &steps, None, &order));
    }

    #[test]
    fn a_call_that_does_not_fit_is_refused_on_all_ranks(
        (host_of, degree) in hosts(),
        steps in proptest::collection::vec(step(), 1..5),
        order in proptest::collection::vec(any::<u32>(), 1..40),
        (who, which, other) in (any::<u32>(), any::<usize>(), step()),
    ) {
        let mut net = Net::new(&host_of, degree);
        let job = Job::new(host_of);
        let (who, which) = (who % job.size(), which % steps.len());
        let heads = |step| job.head(who, 1, step).0;
        let (own, other_head) = (heads(steps[which]), heads(other));
        // Ranks that are alone in a call cannot differ from anybody.
        let alone = |step: Step| step.stays_on_host()
            && job.host_of.iter().filter(|h| **h == job.host_of[who as usize]).count() == 1;
        prop_assume!(job.size() > 1 && own != other_head && !alone(steps[which]) && !alone(other));
        // A rank that names itself as root is a neighbourhood of its own.
        let nbrhd = own.kind == Kind::NbrhdBroadcast && other_head.kind == own.kind;
        prop_assume!(!(nbrhd && other_head.arg == who && own.arg != who));
        for (rank, got) in (0u32..).zip(play(&job, &mut net, &steps, Some((who, which, other)), &order)) {
            let (last, before) = got.split_last().unwrap();
            prop_assert_eq!(&last.1, &Answer::Refuse, "rank {} of {:?}", rank, got);
            prop_assert!(before.iter().all(|(_, answer)| *answer != Answer::Refuse));
            prop_assert!(before.len() <= steps.len());
        }
    }

    #[test]
    fn garbage_never_panics_and_is_never_hoarded(
        (host_of, degree) in hosts(),
        frames in proptest::collection::vec(
            (0u32..9, 0u8..17, 0u32..4, (0u32..9, 0u32..9), any::<[u8; 3]>(), 0usize..50), 0..60),
    ) {
        let mut machine = Tree::new(&host_of, degree).unwrap();
        let payload = [7; 50];
        let mut arrived = 0;
        for (from, kind, seq, (arg, own), lengths, len) in frames {
            let Some(kind) = Kind::ALL.get(usize::from(kind)).copied() else { continue };
            let from = Rank(from);
            // Mostly in its own name, lengths from tiny to a gigabyte.
            let rank = if own < 8 { from.0 } else { arg };
            let [total, offset, shift] = lengths.map(u32::from);
            let total = (total << (shift % 22)).max(1);
            let frame = Frame { kind, seq, rank, arg, total, offset: offset % 4 * 25, extra: 0, payload: &payload[..len] };
            arrived += len;
            let done = match machine.give(from, |one| one.handle(from, &frame)) {
                Ok(actions) => !actions.is_empty(),
                Err(error) => { prop_assert!(!error.to_string().is_empty()); false }
            };
            let kept: usize = machine.machines.iter().map(Collective::kept).sum();
            prop_assert!(kept <= 4 * arrived + 8 * host_of.len(), "{} bytes kept of {}", kept, arrived);
            if done && kind == Kind::Barrier { let _ = machine.give(from, |one| one.fini(from)); }
            let _ = machine.stuck();
        }
    }
}

#[test]
fn a_refusal_names_both_sides() {
    let mut machine = Collective::new(2);
    let exchange = Frame { total: 8, payload: &[0; 8], ..Frame::bare(Kind::Exchange, 1, 1, 0) };
    assert_eq!(machine.handle(Rank(1), &exchange), Ok(vec![]));
    let refusals = machine.handle(Rank(0), &Frame::bare(Kind::Barrier, 1, 0, 0)).unwrap();
    assert_eq!(refusals.len(), 2);
    let Action::Refuse { to: Rank(0), seq: 1, reason } = &refusals[0] else {
        panic!("{refusals:?}")
    };
    assert_eq!(&**reason, "rank 0 calls barrier, rank 1 called exchange of 8 bytes");
    assert!(machine.is_refused());
    assert_eq!(machine.handle(Rank(0), &Frame::bare(Kind::Barrier, 2, 0, 0)), Ok(vec![]));
    assert!(machine.refuse_all("again").is_empty());
}

#[test]
fn illegal_frames_are_errors_and_change_nothing() {
    let mut machine = Collective::new(2);
    let barrier = |seq, rank| Frame::bare(Kind::Barrier, seq, rank, 0);
    let piece = |offset, total, payload| Frame {
        offset,
        total,
        payload,
        ..Frame::bare(Kind::Exchange, 1, 0, 0)
    };
    for (from, frame) in [
        (2, barrier(1, 2)),
        (0, barrier(1, 1)),
        (0, barrier(0, 0)),
        (0, barrier(2, 0)),
        (0, Frame::bare(Kind::Release, 1, 0, 0)),
        (0, Frame::bare(Kind::Fini, 1, 0, 0)),
        (0, piece(1, 3, &[1])),
        (0, piece(0, 3, &[])),
        (0, Frame { total: 3, payload: &[1, 2, 3], ..Frame::bare(Kind::Alltoall, 1, 0, 0) }),
        (0, Frame { total: 2, payload: &[1, 2], ..Frame::bare(Kind::Broadcast, 1, 0, 1) }),
    ] {
        assert!(machine.handle(Rank(from), &frame).is_err(), "{frame:?}");
    }
    assert_eq!(machine.handle(Rank(0), &piece(0, 3, &[1])), Ok(vec![]));
    for frame in [
        piece(0, 3, &[1]),
        piece(1, 4, &[1]),
        piece(1, 3, &[1, 2, 3]),
        piece(1, 3, &[]),
        barrier(1, 0),
    ] {
        assert!(machine.handle(Rank(0), &frame).is_err(), "{frame:?}");
    }
    assert_eq!(machine.handle(Rank(0), &piece(1, 3, &[2, 3])), Ok(vec![]));
    assert!(
        machine.handle(Rank(0), &barrier(2, 0)).is_err(),
        "a second call while the first waits"
    );
    let last = Frame { rank: 1, ..piece(0, 3, &[4, 5, 6]) };
    let pieces = vec![Bytes::from(vec![1, 2, 3, 4, 5, 6])];
    assert_eq!(
        machine.handle(Rank(1), &last),
        Ok(vec![Action::Mapped { host: HostId(0), seq: 1, pieces }])
    );
}

#[test]
fn farewells_are_counted_and_named_when_they_block() {
    let mut machine = Collective::new(2);
    assert_eq!(machine.fini(Rank(0)), Ok(vec![]));
    assert_eq!(machine.stuck(), None);
    assert_eq!(machine.handle(Rank(1), &Frame::bare(Kind::Barrier, 1, 1, 0)), Ok(vec![]));
    assert_eq!(
        machine.stuck().as_deref(),
        Some("rank 1 calls barrier, rank 0 has said its farewell")
    );
    assert!(machine.fini(Rank(0)).is_err() && machine.fini(Rank(2)).is_err());
    let refusals = machine.refuse_all("enough");
    assert_eq!(refusals.len(), 1, "a rank that left needs no refusal: {refusals:?}");
    assert_eq!(
        machine.fini(Rank(1)),
        Ok(vec![Action::Release { to: To::Host(HostId(0)), seq: 0 }])
    );
}

#[test]
fn numbers_never_become_zero() {
    assert_eq!(next_seq(0), 1);
    assert_eq!(next_seq(u32::MAX), 1);
}
