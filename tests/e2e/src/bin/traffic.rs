//! Random traffic of all kinds of operations of the Rust interface, checked against a model that
//! knows what every byte must be: `traffic OPERATIONS SEED`, operations of each rank.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use gasnet_ibv::{
    AtomicDomain, AtomicOp, AtomicOps, BarrierFlags, Client, Entry, Error, Event, Extent, Flags,
    HandlerIndex, LocalCompletion, Operations, Outcome, Rank, ReduceOp, Role, Scope, SegmentOffset,
    Seq, Strided, Strides, Team, Vectors,
};

/// Operations that are under way at once; each has a place of its own.
const BURST: usize = 8;
/// Bytes of a place.
const PLACE: usize = 2048;
/// What a rank writes at each rank: places of transfers, then landings of messages.
const AREA: usize = 2 * BURST * PLACE;
/// Bursts between two meetings of all.
const PHASE: usize = 16;
const SHORT: HandlerIndex = HandlerIndex(200);
const MEDIUM: HandlerIndex = HandlerIndex(201);
const LONG: HandlerIndex = HandlerIndex(202);
const REPLY: HandlerIndex = HandlerIndex(203);

/// Numbers that follow from a seed.
struct Random(u64);

impl Random {
    fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let word = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ word >> 31
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.word() % end as u64).expect("below a usize")
    }
}

fn byte(key: u64, at: usize) -> u8 {
    (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40).to_le_bytes()[0] ^ at.to_le_bytes()[0]
}

fn filled(key: u64, len: usize) -> Vec<u8> {
    (0..len).map(|at| byte(key, at)).collect()
}

fn rank_of(number: usize) -> Rank {
    Rank(u32::try_from(number).expect("a rank"))
}

/// A transfer: its target, how it is begun, and which bytes of the place it moves: offset here,
/// offset there, length.
struct Step {
    to: usize,
    put: bool,
    way: usize,
    begin: usize,
    counts: [usize; 2],
    here: [isize; 2],
    there: [isize; 2],
    element: usize,
    pieces: Vec<(usize, usize, usize)>,
}

impl Step {
    fn random(random: &mut Random, ranks: usize) -> Self {
        let (to, way) = (random.below(ranks), random.below(3));
        let element = 1 + random.below(if way == 0 { PLACE } else { 32 });
        let stride = |random: &mut Random| (element + random.below(33)).cast_signed();
        let here = [stride(random), PLACE.cast_signed() / 2];
        let there = [stride(random), PLACE.cast_signed() / 2];
        let counts = [random.below(16), 1 + random.below(2)];
        let mut pieces: Vec<_> = match way {
            0 => {
                let from = random.below(PLACE + 1 - element);
                vec![(from, random.below(PLACE + 1 - element), element)]
            }
            _ => {
                let all = (0..counts[1]).flat_map(|row| (0..counts[0]).map(move |at| (row, at)));
                let offset = |(row, at): (usize, usize), stride: [isize; 2]| {
                    row * stride[1].unsigned_abs() + at * stride[0].unsigned_abs()
                };
                all.map(|at| (offset(at, here), offset(at, there), element)).collect()
            }
        };
        if way == 2 {
            // A list has pieces of any length.
            pieces.iter_mut().for_each(|piece| piece.2 = random.below(element + 1));
        }
        let (put, begin) = (random.below(2) == 0, random.below(3));
        Self { to, put, way, begin, counts, here, there, element, pieces }
    }
}

/// All may wait here.
fn sent(outcome: Outcome) {
    assert_eq!(outcome, Outcome::Sent);
}

/// What is begun and not waited for.
enum Begun<'scope> {
    Put(Event<'scope>),
    Get(Event<'scope, &'scope mut [u8]>),
}

struct Traffic<'c> {
    client: &'c Client<Seq>,
    all: Team<'c, Seq>,
    /// Ranks with the same last bit, in descending order.
    half: Team<'c, Seq>,
    words: AtomicDomain<'c, u64, Seq>,
    half_words: AtomicDomain<'c, u64, Seq>,
    me: usize,
    ranks: usize,
    random: Random,
    /// The same on all ranks.
    common: Random,
    /// Bytes of this rank's places at each rank.
    model: Vec<Vec<u8>>,
    /// This rank's words at each rank: those of the team of all, and of the half.
    own: [Vec<u64>; 2],
    /// What this rank has added to the word of all at each rank, and how many messages it sent.
    added: Vec<u64>,
    sent: Vec<u64>,
    got: Arc<AtomicU64>,
    replies: Arc<AtomicU64>,
    asked: u64,
    done: usize,
}

impl Traffic<'_> {
    const fn place(&self, place: usize) -> usize {
        self.me * AREA + place * PLACE
    }

    /// The words of ranks at every rank: one for the team of all, one for the half; that of nobody
    /// is everybody's.
    const fn word(&self, rank: usize) -> u64 {
        (self.ranks * AREA + 16 * rank) as u64
    }

    fn transfers(&mut self) -> Result<(), Error> {
        let steps: Vec<Step> =
            (0..BURST).map(|_| Step::random(&mut self.random, self.ranks)).collect();
        let sources: Vec<_> = (0..BURST).map(|_| filled(self.random.word(), PLACE)).collect();
        let mut targets = vec![vec![0_u8; PLACE]; BURST];
        self.client.scope(|scope| -> Result<(), Error> {
            let mut begun = vec![];
            let buffers = sources.iter().zip(targets.iter_mut());
            for (place, (step, (from, to))) in steps.iter().zip(buffers).enumerate() {
                let buffers = (from.as_slice(), to.as_mut_slice());
                begun.extend(self.begin(scope, step, place, buffers)?);
            }
            scope.nbi_wait(Operations::ALL)?;
            for one in begun {
                match one {
                    Begun::Put(event) => event.wait()?,
                    Begun::Get(event) => {
                        let _bytes = event.wait()?;
                    }
                }
            }
            Ok(())
        })??;
        for (place, step) in steps.iter().enumerate() {
            let model = &mut self.model[step.to][place * PLACE..][..PLACE];
            let mut expected = vec![0; PLACE];
            for &(here, there, len) in &step.pieces {
                match step.put {
                    true => {
                        model[there..there + len].copy_from_slice(&sources[place][here..here + len])
                    }
                    false => expected[here..here + len].copy_from_slice(&model[there..there + len]),
                }
            }
            assert!(targets[place] == expected, "get {} of rank {}", step.way, step.to);
        }
        self.done += BURST;
        Ok(())
    }

    /// Begins a transfer; one that has no event is complete, or with the implicit ones.
    fn begin<'scope>(
        &self,
        scope: &'scope Scope<'scope, '_, Seq>,
        step: &Step,
        place: usize,
        (source, target): (&'scope [u8], &'scope mut [u8]),
    ) -> Result<Option<Begun<'scope>>, Error> {
        let (client, to, base) = (self.client, rank_of(step.to), self.place(place));
        let local: Vec<_> = step.pieces.iter().map(|p| Extent { at: p.0, len: p.2 }).collect();
        let remote = step.pieces.iter().map(|p| Extent { at: base + p.1, len: p.2 });
        let remote: Vec<_> = remote.collect();
        let vectors = Vectors { local: &local, remote: &remote };
        let strided = Strided {
            element: step.element,
            counts: &step.counts,
            local: Strides { first: 0, strides: &step.here },
            remote: Strides { first: base, strides: &step.there },
        };
        let (from, at, len) = step.pieces.first().copied().unwrap_or_default();
        let (at, from, none) = ((base + at) as u64, from..from + len, Flags::NONE);
        match (step.put, step.way, step.begin) {
            (true, 0, 0) => client.put(to, at, &source[from])?,
            (true, 0, 1) => {
                sent(scope.put_nbi(to, at, &source[from], LocalCompletion::Defer, none)?);
            }
            (true, 0, _) => {
                let event = scope.put_nb(to, at, &source[from], LocalCompletion::Defer, none)?;
                return Ok(event.map(Begun::Put));
            }
            (false, 0, 0) => client.get(to, at, &mut target[from])?,
            (false, 0, 1) => sent(scope.get_nbi(to, at, &mut target[from], none)?),
            (false, 0, _) => {
                return Ok(scope.get_nb(to, at, &mut target[from], none)?.map(Begun::Get));
            }
            (true, 1, 0) => client.put_strided(to, source, &strided)?,
            (true, 1, 1) => sent(scope.put_strided_nbi(to, source, &strided, none)?),
            (true, 1, _) => {
                return Ok(scope.put_strided_nb(to, source, &strided, none)?.map(Begun::Put));
            }
            (false, 1, 0) => client.get_strided(to, target, &strided)?,
            (false, 1, 1) => sent(scope.get_strided_nbi(to, target, &strided, none)?),
            (false, 1, _) => {
                return Ok(scope.get_strided_nb(to, target, &strided, none)?.map(Begun::Get));
            }
            (true, _, 0) => client.put_vector(to, source, &vectors)?,
            (true, _, 1) => sent(scope.put_vector_nbi(to, source, &vectors, none)?),
            (true, ..) => {
                return Ok(scope.put_vector_nb(to, source, &vectors, none)?.map(Begun::Put));
            }
            (false, _, 0) => client.get_vector(to, target, &vectors)?,
            (false, _, 1) => sent(scope.get_vector_nbi(to, target, &vectors, none)?),
            (false, ..) => {
                return Ok(scope.get_vector_nb(to, target, &vectors, none)?.map(Begun::Get));
            }
        }
        Ok(None)
    }

    /// Atomics on words of this rank, whose values it knows, and on words of all.
    fn atomics(&mut self) -> Result<(), Error> {
        for _ in 0..BURST {
            let (to, operand) = (self.random.below(self.ranks), self.random.word());
            let op = [AtomicOp::FAdd, AtomicOp::Swap, AtomicOp::FXor, AtomicOp::FCas];
            let op = op[self.random.below(op.len())];
            // By the team of all, or by that of the half, which has other ranks.
            let member = self.half.rank_of(rank_of(to)).filter(|_| operand & 2 == 0);
            let which = usize::from(member.is_some());
            let old = self.own[which][to];
            let expected = old ^ u64::from(operand & 1 == 0 && op == AtomicOp::FCas);
            let (operands, new) = match op {
                AtomicOp::FAdd => ([operand, 0], old.wrapping_add(operand)),
                AtomicOp::Swap => ([operand, 0], operand),
                AtomicOp::FXor => ([operand, 0], old ^ operand),
                _ => ([expected, operand], if expected == old { operand } else { old }),
            };
            let at = self.word(self.me);
            let got = match member {
                Some(rank) => self.half_words.apply(rank, at + 8, op, operands)?,
                None => self.words.apply(rank_of(to), at, op, operands)?,
            };
            assert_eq!(got, Some(old), "{op:?} on rank {to}");
            self.own[which][to] = new;
        }
        let adds: Vec<_> =
            (0..BURST).map(|_| (self.random.below(self.ranks), self.random.word())).collect();
        let at = self.word(self.ranks);
        self.client.scope(|scope| -> Result<(), Error> {
            for &(to, value) in &adds {
                let (place, operands) = ((rank_of(to), at), [value, 0]);
                let _sent =
                    scope.atomic_nbi(&self.words, place, AtomicOp::Add, operands, Flags::NONE)?;
            }
            scope.nbi_wait(Operations::RMW)
        })??;
        for (to, value) in adds {
            self.added[to] = self.added[to].wrapping_add(value);
        }
        self.done += 2 * BURST;
        Ok(())
    }

    /// A burst of messages; each is answered.
    fn messages(&mut self) -> Result<(), Error> {
        for place in 0..BURST {
            let (to, key) = (self.random.below(self.ranks), self.random.below(1 << 30));
            let len = self.random.below(PLACE + 1);
            let args = [key, len].map(|number| i32::try_from(number).expect("small"));
            let (rank, payload) = (rank_of(to), filled(key as u64, len));
            let none = Flags::NONE;
            let dest = SegmentOffset(self.place(BURST + place) as u64);
            let _sent = match self.random.below(3) {
                0 => self.all.request_short(rank, SHORT, &args, none)?,
                1 => self.all.request_medium(rank, MEDIUM, &payload, &args, none)?,
                _ => self.all.request_long(rank, LONG, &payload, dest, &args, none)?,
            };
            self.sent[to] += 1;
            self.asked += 1;
        }
        // A landing is used again by the next burst.
        self.client.block_until(|| self.replies.load(Ordering::Relaxed) == self.asked)?;
        self.done += BURST;
        Ok(())
    }

    /// Collectives of the team of all and of the half.
    fn together(&mut self) -> Result<(), Error> {
        let (len, key) = (1 + self.common.below(300), self.common.word());
        let root = self.common.below(self.ranks);
        for team in [&self.all, &self.half] {
            let size = team.size() as usize;
            let root = rank_of(root % size);
            let job = |rank: usize| u64::from(team.job_rank(rank_of(rank)).expect("a member").0);
            let value = |rank: usize, at: usize| (key ^ job(rank)).wrapping_mul(at as u64 + 1);
            let of = |rank| (0..len).map(|at| value(rank, at)).collect::<Vec<_>>();
            let me = team.rank().0 as usize;
            let sum = |end: usize| {
                let of_all = |at| (0..end).fold(0_u64, |sum, r| sum.wrapping_add(value(r, at)));
                (0..len).map(of_all).collect::<Vec<_>>()
            };
            let mut data = of(me);
            team.broadcast(root, &mut data)?;
            assert!(data == of(root.0 as usize), "broadcast");
            let mut data = of(me);
            team.reduce_to_all(&mut data, ReduceOp::Add)?;
            assert!(data == sum(size), "reduce to all");
            let mut data = of(me);
            team.scan(&mut data, ReduceOp::Add)?;
            assert!(data == sum(me + 1), "scan");
            let mut every = vec![0; len * size];
            team.gather_all(&of(me), &mut every)?;
            assert!(every == (0..size).flat_map(of).collect::<Vec<_>>(), "gather");
            let source: Vec<_> =
                (0..size).flat_map(|to| of(me).into_iter().map(move |v| v ^ to as u64)).collect();
            team.exchange(&source, &mut every)?;
            let mine = |from| of(from).into_iter().map(|v| v ^ me as u64);
            assert!(every == (0..size).flat_map(mine).collect::<Vec<_>>(), "exchange");
        }
        self.done += 10;
        Ok(())
    }

    /// All ranks meet, and look at all memory and words.
    fn settle(&mut self) -> Result<(), Error> {
        let mut sums = self.added.clone();
        sums.extend(&self.sent);
        self.all.reduce_to_all(&mut sums, ReduceOp::Add)?;
        let expected = sums[self.ranks + self.me];
        self.client.block_until(|| self.got.load(Ordering::Relaxed) == expected)?;
        let shared = self.words.get(rank_of(self.me), self.word(self.ranks))?;
        assert_eq!(shared, sums[self.me], "the word of all");
        let mut back = vec![0; BURST * PLACE];
        for to in 0..self.ranks {
            self.client.get(rank_of(to), self.place(0) as u64, &mut back)?;
            assert!(back == self.model[to], "places at rank {to}");
            assert_eq!(self.words.get(rank_of(to), self.word(self.me))?, self.own[0][to]);
            let own = self.words.get(rank_of(to), self.word(self.me) + 8)?;
            assert_eq!(own, self.own[1][to]);
        }
        self.client.barrier(0, BarrierFlags::ANONYMOUS)
    }
}

/// Handlers that check what comes, count it and reply.
fn register(
    client: &Client<Seq>,
    got: &Arc<AtomicU64>,
    replies: &Arc<AtomicU64>,
) -> Result<(), Error> {
    let [shorts, mediums, longs] = [(); 3].map(|()| Arc::clone(got));
    let replies = Arc::clone(replies);
    let count = |counter: &AtomicU64| counter.fetch_add(1, Ordering::Relaxed);
    let right = |data: &[u8], args: &[i32]| {
        assert!(
            data == filled(u64::from(args[0].cast_unsigned()), args[1].unsigned_abs() as usize)
        );
    };
    let mut table = [
        Entry::short("short", 2, move |token, args| {
            count(&shorts);
            token.reply_short(REPLY, args, Flags::NONE).map(drop).expect("reply");
        })
        .at(SHORT.0)
        .role(Role::Request),
        Entry::medium("medium", 2, move |token, data: &mut [u8], args| {
            right(data, args);
            count(&mediums);
            token.reply_short(REPLY, args, Flags::NONE).map(drop).expect("reply");
        })
        .at(MEDIUM.0)
        .role(Role::Request),
        Entry::long("long", 2, move |token, landed, args| {
            right(&landed.to_vec(), args);
            count(&longs);
            token.reply_short(REPLY, args, Flags::NONE).map(drop).expect("reply");
        })
        .at(LONG.0)
        .role(Role::Request),
        Entry::short("reply", 2, move |_, _| {
            count(&replies);
        })
        .at(REPLY.0)
        .role(Role::Reply),
    ];
    client.endpoint().register(&mut table)
}

fn run(client: &Client<Seq>, operations: usize, seed: u64) -> Result<usize, Error> {
    let (got, replies) = (Arc::default(), Arc::default());
    register(client, &got, &replies)?;
    let (me, ranks) = (client.rank().0 as usize, client.size() as usize);
    client.attach_segment((ranks * AREA + 16 * (ranks + 1)).next_multiple_of(4096) as u64)?;
    let all = client.team();
    let key = -i32::try_from(me).expect("small");
    let half = all.split(Some(client.rank().0 % 2), key)?.expect("a color was given");
    let ops = AtomicOps::FADD | AtomicOps::SWAP | AtomicOps::FXOR | AtomicOps::FCAS;
    let ops = ops | AtomicOps::GET | AtomicOps::ADD;
    let (words, half_words) = (all.atomic_domain(ops)?, half.atomic_domain(ops)?);
    let random = Random(seed ^ (me as u64 + 1) << 40);
    let mut traffic = Traffic {
        client,
        all,
        half,
        words,
        half_words,
        me,
        ranks,
        random,
        common: Random(seed),
        model: vec![vec![0; BURST * PLACE]; ranks],
        own: [vec![0; ranks], vec![0; ranks]],
        added: vec![0; ranks],
        sent: vec![0; ranks],
        got,
        replies,
        asked: 0,
        done: 0,
    };
    client.barrier(0, BarrierFlags::ANONYMOUS)?;
    // Bursts have different numbers of operations: phases are counted, which all ranks have alike.
    for _ in 0..operations.div_ceil(PHASE * BURST) {
        for _ in 0..PHASE {
            match traffic.random.below(4) {
                0 | 1 => traffic.transfers()?,
                2 => traffic.atomics()?,
                _ => traffic.messages()?,
            }
        }
        traffic.together()?;
        traffic.settle()?;
    }
    Ok(traffic.done)
}

#[expect(clippy::print_stdout, reason = "the test reads it")]
fn main() -> Result<(), Error> {
    let mut numbers = std::env::args().skip(1).map(|text| text.parse().expect("a number"));
    let (operations, seed) = (numbers.next().unwrap_or(1000), numbers.next().unwrap_or(1));
    let client = Client::<Seq>::init("traffic")?;
    let operations = usize::try_from(operations).expect("few");
    let done = run(&client, operations, seed)?;
    println!("rank {}: {done} operations as the model says", client.rank());
    client.exit(0)
}
