//! Connections at the start, over the bootstrap services.

use bootstrap::{Bootstrap, Rank};

use super::{Error, MAX_NUMBERS, Numbers, Peers};

/// Whom a rank wants to be connected to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Chosen<'a> {
    /// Everybody. Then all ranks want that.
    All,
    /// An entry for each rank of the job.
    Listed(&'a [bool]),
}

/// First half: this rank can receive from those that it or they choose. Collective over the job,
/// also for ranks that choose nobody, and for all with the same kind of choice.
///
/// * `me`, `size`: this rank, ranks of the job.
/// * `remote`: whether a rank is reached over the network; others are not connected, whatever they
///   say.
/// * `count`: queue pairs per peer, the same on all ranks.
///
/// Returns the peers, ascending. Nobody sends before everybody can receive: after a barrier
/// [`open`] does the rest.
pub(crate) fn prepare(
    (me, size): (Rank, u32),
    chosen: Chosen<'_>,
    remote: &dyn Fn(Rank) -> bool,
    count: usize,
    peers: &dyn Peers,
    services: &mut dyn Bootstrap,
) -> Result<Vec<Rank>, Error> {
    if count > MAX_NUMBERS || count == 0 {
        return Err(Error::Count { count, most: MAX_NUMBERS });
    }
    let others = (0..size).map(Rank).filter(|rank| *rank != me && remote(*rank));
    let list: Vec<Rank> = match chosen {
        Chosen::All => others.collect(),
        Chosen::Listed(wishes) => {
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
        let place = rows.chunks_exact_mut(row).nth(usize::try_from(rank.0).unwrap_or(usize::MAX));
        let words = place.into_iter().flat_map(|row| row.chunks_exact_mut(4));
        for (word, number) in words.zip(numbers.as_slice()) {
            word.copy_from_slice(&number.to_le_bytes());
        }
    }
    let theirs = services.alltoall(&rows, row)?;
    for rank in &list {
        let place = theirs.chunks_exact(row).nth(usize::try_from(rank.0).unwrap_or(usize::MAX));
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
    }
    Ok(())
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
