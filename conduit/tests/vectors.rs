//! Vector and strided transfers between all placements of ranks, against a model in plain memory.
#![expect(clippy::cast_possible_truncation, reason = "small numbers made by the test")]

#[path = "shared/harness.rs"]
mod harness;

use gasnet_ibv::{
    BarrierFlags, Client, Error, Extent, Flags, Mode, Operations, Outcome, Par, Rank, Seq,
    Settings, Strided, Strides, Vectors,
};
use harness::{everywhere, job};

const AREA: usize = 1 << 18;

fn meet<M: Mode>(client: &Client<M>) {
    client.barrier(0, BarrierFlags::ANONYMOUS).expect("barrier");
}

/// A number below `most`.
fn random(state: &mut u32, most: usize) -> usize {
    *state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
    (*state >> 8) as usize % most
}

/// Offsets of all elements of one side, first byte first.
fn places(side: &Strides<'_>, counts: &[usize]) -> Vec<usize> {
    let mut at = vec![side.first];
    for (count, stride) in counts.iter().zip(side.strides) {
        let step = |first: &usize| {
            let first = *first;
            (0..*count).map(move |k| first.wrapping_add_signed(stride * k.cast_signed()))
        };
        at = at.iter().flat_map(step).collect();
    }
    at
}

/// Strides of a box without overlap in an order of its own, and what it spans.
fn disjoint(state: &mut u32, element: usize, counts: &[usize]) -> (Vec<isize>, usize, usize) {
    let mut order: Vec<usize> = (0..counts.len()).collect();
    for at in (1..order.len()).rev() {
        order.swap(at, random(state, at + 1));
    }
    let (mut strides, mut reach, mut first) = (vec![0; counts.len()], element, 0);
    for dim in order {
        let stride = reach + if random(state, 3) == 0 { 0 } else { random(state, 9) };
        let backwards = random(state, 2) == 0 && counts[dim] > 0;
        first += if backwards { stride * (counts[dim] - 1) } else { 0 };
        strides[dim] = if backwards { -stride.cast_signed() } else { stride.cast_signed() };
        reach = stride * counts[dim].max(1);
    }
    (strides, first, reach)
}

fn random_strided<M: Mode>(client: &Client<M>, rounds: u32) {
    client.attach_segment((AREA * client.size() as usize) as u64).expect("attach");
    meet(client);
    let me = client.rank().0;
    let mut state = 99 + me;
    let own = AREA * me as usize;
    let mut local = vec![0_u8; AREA];
    for round in 0..rounds {
        let to = Rank(random(&mut state, client.size() as usize) as u32);
        let element = [0, 1, 3, 8, 64, 100, 4000][random(&mut state, 7)];
        let dims = random(&mut state, 5);
        let most = if element > 1000 { 3 } else { 8 };
        let counts: Vec<usize> = (0..dims).map(|_| random(&mut state, most)).collect();
        let (there, first, span) = disjoint(&mut state, element, &counts);
        let (mut here, start, room) = disjoint(&mut state, element, &counts);
        if span > AREA || room > AREA {
            continue;
        }
        let put = round % 2 == 0;
        if put && random(&mut state, 4) == 0 {
            // A source that repeats.
            here.iter_mut().for_each(|stride| *stride = 0);
        }
        let local_side = Strides { first: start, strides: &here };
        let remote_side = Strides { first: own + first, strides: &there };
        let what = Strided { element, counts: &counts, local: local_side, remote: remote_side };
        let pairs = places(&local_side, &counts).into_iter().zip(places(&remote_side, &counts));
        let pairs: Vec<_> =
            pairs.flat_map(|(l, r)| (0..element).map(move |k| (l + k, r + k - own))).collect();
        let fill = round as u8;
        let mut segment: Vec<u8> = (0..span).map(|at| (at as u8).wrapping_mul(31) ^ fill).collect();
        local.iter_mut().enumerate().for_each(|(at, byte)| *byte = (at >> 3) as u8 ^ fill);
        client.put(to, own as u64, &segment).expect("put");
        let mut expected = local.clone();
        for (l, r) in pairs {
            match put {
                true => segment[r] = local[l],
                false => expected[l] = segment[r],
            }
        }
        match (put, round % 3) {
            (true, 0) => client.put_strided(to, &local, &what).expect("put"),
            (false, 0) => client.get_strided(to, &mut local, &what).expect("get"),
            (true, _) => client
                .scope(|scope| {
                    let event = scope.put_strided_nb(to, &local, &what, Flags::NONE)?;
                    event.expect("started").wait()
                })
                .and_then(|done| done)
                .expect("put"),
            (false, 1) => client
                .scope(|scope| {
                    let event = scope.get_strided_nb(to, &mut local, &what, Flags::NONE)?;
                    event.expect("started").wait().map(|_| ())
                })
                .and_then(|done| done)
                .expect("get"),
            (false, _) => client
                .scope(|scope| {
                    let sent = scope.get_strided_nbi(to, &mut local, &what, Flags::NONE)?;
                    assert_eq!(sent, Outcome::Sent);
                    scope.nbi_wait(Operations::GET)
                })
                .and_then(|done| done)
                .expect("get"),
        }
        assert!(local == expected, "round {round}: local memory of {what:?}");
        let mut back = vec![0; span];
        client.get(to, own as u64, &mut back).expect("get");
        assert!(back == segment, "round {round}: remote memory of {what:?}");
    }
    meet(client);
}

#[test]
fn strided_transfers_move_what_the_model_moves() {
    everywhere::<Seq>(3, &Settings::default(), |client| random_strided(client, 60));
}

#[test]
fn strided_transfers_of_threads() {
    job::<Par>(2, &Settings::default(), |client| random_strided(client, 30));
    everywhere::<Par>(2, &Settings::default(), |client| random_strided(client, 30));
}

/// Cuts `total` bytes of an area into ranges, in any order, with gaps.
fn ranges(state: &mut u32, total: usize, base: usize) -> Vec<Extent> {
    let (mut left, mut at, mut all) = (total, base, Vec::new());
    while left > 0 {
        let most = [9, 9, 100, 5000][random(state, 4)];
        let len = random(state, most).min(left);
        at += [0, 0, 1, 17][random(state, 4)];
        all.push(Extent { at, len });
        at += len;
        left -= len;
    }
    for at in (1..all.len()).rev() {
        all.swap(at, random(state, at + 1));
    }
    all
}

fn bytes_of(list: &[Extent]) -> impl Iterator<Item = usize> + '_ {
    list.iter().flat_map(|one| one.at..one.at + one.len)
}

#[test]
fn vectors_move_what_the_model_moves() {
    everywhere::<Seq>(3, &Settings::default(), |client| {
        client.attach_segment((AREA * 3) as u64).expect("attach");
        meet(client);
        let me = client.rank().0;
        let (mut state, own) = (7 + me, AREA * me as usize);
        let mut local = vec![0_u8; AREA];
        for round in 0..40 {
            let to = Rank(random(&mut state, 3) as u32);
            let total = random(&mut state, [50, 5000, 60_000][round % 3]);
            let (here, there) = (ranges(&mut state, total, 0), ranges(&mut state, total, own));
            let what = Vectors { local: &here, remote: &there };
            let mut segment = vec![round as u8; AREA];
            client.put(to, own as u64, &segment).expect("put");
            local.iter_mut().enumerate().for_each(|(at, byte)| *byte = at as u8 ^ round as u8);
            let source = local.clone();
            for (l, r) in bytes_of(&here).zip(bytes_of(&there)) {
                segment[r - own] = source[l];
            }
            match round % 2 {
                0 => client.put_vector(to, &source, &what).expect("put"),
                _ => client
                    .scope(|scope| {
                        let sent = scope.put_vector_nbi(to, &source, &what, Flags::NONE)?;
                        assert_eq!(sent, Outcome::Sent);
                        scope.nbi_wait(Operations::PUT)
                    })
                    .and_then(|done| done)
                    .expect("put"),
            }
            let mut back = vec![0; AREA];
            client.get(to, own as u64, &mut back).expect("get");
            assert!(back == segment, "round {round}");
            local.fill(0xee);
            let mut expected = local.clone();
            bytes_of(&here).for_each(|at| expected[at] = source[at]);
            client.get_vector(to, &mut local, &what).expect("get");
            assert!(local == expected, "round {round}");
        }
        meet(client);
    });
}

#[test]
fn many_transfers_of_threads_at_once() {
    everywhere::<Par>(2, &Settings::default(), |client| {
        client.attach_segment(8 << 16).expect("attach");
        meet(client);
        let peer = Rank(1 - client.rank().0);
        std::thread::scope(|threads| {
            for number in 0..3_usize {
                threads.spawn(move || {
                    let area = number << 16;
                    let mut state = number as u32;
                    for round in 0..20 {
                        let byte = random(&mut state, 256) as u8;
                        let source = vec![byte; 1 << 14];
                        // Every other 8 bytes.
                        let remote = Strides { first: area, strides: &[16] };
                        let local = Strides { first: 0, strides: &[8] };
                        let what = Strided { element: 8, counts: &[2048], local, remote };
                        let mut back = vec![0; 1 << 14];
                        client.put_strided(peer, &source, &what).expect("put");
                        client.get_strided(peer, &mut back, &what).expect("get");
                        assert!(back == source, "thread {number}, round {round}");
                    }
                });
            }
        });
        meet(client);
    });
}

#[test]
fn what_cannot_be_is_refused() {
    everywhere::<Seq>(2, &Settings::default(), |client| {
        client.attach_segment(4096).expect("attach");
        meet(client);
        let (peer, buffer) = (Rank(1 - client.rank().0), [0_u8; 256]);
        let side = |first, strides| Strides { first, strides };
        let says = |result: Result<(), Error>, words: &str| {
            let text = result.expect_err("refused").to_string();
            assert!(text.contains(words), "{text}");
        };
        let put = |counts, local, remote| {
            client.put_strided(peer, &buffer, &Strided { element: 8, counts, local, remote })
        };
        says(put(&[2], side(0, &[8]), side(0, &[7])), "overlap in the destination");
        says(put(&[2], side(0, &[8]), side(4080, &[16])), "outside the segment of rank");
        says(put(&[2], side(0, &[-8]), side(0, &[16])), "beyond the address space");
        says(put(&[33], side(0, &[8]), side(0, &[16])), "outside the local buffer");
        says(put(&[2, 2], side(0, &[8]), side(0, &[16])), "1 local and 1 remote strides for 2");
        let huge = [usize::MAX, 3];
        says(put(&huge, side(0, &[8, 8]), side(0, &[16, 16])), "more than 2^64 bytes");
        // Nothing to move: nothing is looked at.
        put(&[usize::MAX, 0], side(7, &[isize::MIN, 1]), side(9, &[0, 0])).expect("nothing");
        let ranges = |lens: &[usize]| -> Vec<Extent> {
            lens.iter().map(|len| Extent { at: 0, len: *len }).collect()
        };
        let (eight, nine) = (ranges(&[4, 4]), ranges(&[9]));
        let vector = |local: &[Extent], remote: &[Extent]| {
            client.put_vector(peer, &buffer, &Vectors { local, remote })
        };
        says(vector(&eight, &nine), "local side has 8 bytes and the remote side 9");
        let far = [Extent { at: 4090, len: 9 }];
        says(vector(&nine, &far), "outside the segment of rank");
        says(vector(&far, &nine), "outside the local buffer");
        vector(&ranges(&[0]), &[]).expect("nothing");
        meet(client);
    });
}
