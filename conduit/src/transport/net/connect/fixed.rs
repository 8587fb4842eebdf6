//! Connections at the start, over the bootstrap services.

use bootstrap::{Bootstrap, Rank};

use super::{Error, MAX_NUMBERS, Numbers, Peers};
use crate::trace::{self, Counter};

/// First half: this rank can receive from those that it or they choose. Collective over the job,
/// also for ranks that choose nobody.
///
/// * `me`, `size`: this rank, ranks of the job.
/// * `chosen`: an entry for each rank of the job; `None`: everybody, and then all ranks want that.
/// * `remote`: whether a rank is reached over the network; others are not connected, whatever they
///   say.
/// * `count`: queue pairs per peer, the same on all ranks.
///
/// Returns the peers, ascending. Nobody sends before everybody can receive: after a barrier
/// [`open`] does the rest.
pub(crate) fn prepare(
    (me, size): (Rank, u32),
    chosen: Option<&[bool]>,
    remote: &dyn Fn(Rank) -> bool,
    count: usize,
    peers: &dyn Peers,
    services: &mut dyn Bootstrap,
) -> Result<Vec<Rank>, Error> {
    check_count(count)?;
    let others = (0..size).map(Rank).filter(|rank| *rank != me && remote(*rank));
    let list: Vec<Rank> = match chosen {
        None => others.collect(),
        Some(wishes) => {
            let mine: Vec<u8> = wishes.iter().copied().map(u8::from).collect();
            let theirs = services.alltoall(&mine, 1)?;
            let wished = |row: &[u8], rank: Rank| row.get(rank.0 as usize).is_some_and(|b| *b != 0);
            others.filter(|rank| wished(&mine, *rank) || wished(&theirs, *rank)).collect()
        }
    };

    let row = 4 * count;
    let mut rows = vec![0; row * size as usize];
    for rank in &list {
        let numbers = peers.prepare(*rank).map_err(failure(me, *rank, "make queue pairs"))?;
        check(*rank, me, &numbers, count)?;
        let words = rows[rank.0 as usize * row..].chunks_exact_mut(4);
        for (word, number) in words.zip(numbers.as_slice()) {
            word.copy_from_slice(&number.to_le_bytes());
        }
    }
    let theirs = services.alltoall(&rows, row)?;
    for rank in &list {
        let place = theirs.chunks_exact(row).nth(rank.0 as usize);
        let words = place.unwrap_or_default().chunks_exact(4);
        let words: Vec<u32> =
            words.filter_map(|word| Some(u32::from_le_bytes(word.try_into().ok()?))).collect();
        let numbers = Numbers::new(&words).unwrap_or(Numbers::EMPTY);
        check(me, *rank, &numbers, count)?;
        let ready = peers.receive_ready(*rank, &numbers);
        ready.map_err(failure(me, *rank, "make its queue pairs ready to receive"))?;
    }
    Ok(list)
}

/// Second half, after a barrier of all ranks: the peers of `list` are open, and every one of them
/// can receive.
pub(crate) fn open(me: Rank, list: &[Rank], peers: &dyn Peers) -> Result<(), Error> {
    for rank in list {
        let ready = peers.send_ready(*rank);
        ready.map_err(failure(me, *rank, "make its queue pairs ready to send"))?;
        peers.open(*rank);
        trace::connected(*rank, Counter::ConnectedStatic);
    }
    Ok(())
}

/// A packet can name so many queue pairs.
pub(super) fn check_count(count: usize) -> Result<(), Error> {
    let fits = (1..=MAX_NUMBERS).contains(&count);
    fits.then_some(()).ok_or(Error::Count { count, most: MAX_NUMBERS })
}

/// Checks what `peer` said to `me`. Number 0 is of no queue pair that a program makes: a rank that
/// sends it did not make any.
pub(super) fn check(me: Rank, peer: Rank, numbers: &Numbers, count: usize) -> Result<(), Error> {
    let words = numbers.as_slice();
    if words.len() == count && words.iter().all(|number| (1..1 << 24).contains(number)) {
        return Ok(());
    }
    Err(Error::Numbers { rank: me, peer, numbers: words.to_vec(), count })
}

/// Adds both ends to what a device said.
pub(super) fn failure(
    rank: Rank,
    peer: Rank,
    what: &'static str,
) -> impl FnOnce(super::Failure) -> Error {
    move |problem| Error::Peer { rank, peer, what, problem }
}
