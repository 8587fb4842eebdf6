//! Connections at the start, over the bootstrap services.

use bootstrap::{Bootstrap, Rank};

use super::{Error, MAX_NUMBERS, Numbers, Peers};

/// Connects this rank with those that it or they choose. Collective over the job, also for ranks that choose nobody.
///
/// * `me`: this rank.
/// * `chosen`: an entry for each rank of the job, true only for ranks reached over the network.
/// * `remote`: whether a rank is reached over the network; others are not connected, whatever they say.
/// * `count`: queue pairs per peer, the same on all ranks.
///
/// Returns the connected peers, ascending; all of them are open, and every one of them can receive.
///
/// # Errors
/// A service or a device fails, or a rank announces wrong numbers.
pub(crate) fn connect(
    me: Rank,
    chosen: &[bool],
    remote: &dyn Fn(Rank) -> bool,
    count: usize,
    peers: &dyn Peers,
    services: &mut dyn Bootstrap,
) -> Result<Vec<Rank>, Error> {
    if count > MAX_NUMBERS || count == 0 {
        return Err(Error::Count { count, most: MAX_NUMBERS });
    }
    let ranks = || (0_u32..).map(Rank);
    let wishes: Vec<u8> = chosen.iter().copied().map(u8::from).collect();
    let theirs = services.alltoall(&wishes, 1)?;
    let both = wishes.iter().zip(&theirs).zip(ranks());
    let list: Vec<Rank> = both
        .filter(|((mine, their), rank)| (**mine | **their) != 0 && *rank != me && remote(*rank))
        .map(|(_, rank)| rank)
        .collect();

    let row = 4 * count;
    let mut rows = vec![0; row * chosen.len()];
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
    // Nobody sends before everybody can receive.
    services.barrier()?;
    for rank in &list {
        let ready = peers.send_ready(*rank);
        ready.map_err(failure(me, *rank, "make its queue pairs ready to send"))?;
        peers.open(*rank);
    }
    Ok(list)
}

/// Checks what `peer` said to `me`. Number 0 is of no queue pair that a program makes: a rank that sends it did not make any.
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
