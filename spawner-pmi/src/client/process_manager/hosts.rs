//! Which rank is on which host, when the job starts.

use super::identity::Identity;
use super::kvs::KeyValueSpace;
use super::manager::{ProcessManager, unwatched};
use super::mapping;
use bootstrap::service::{Error, HostId, Rank};

/// Host of every rank, numbered in rank order of the first rank on it. Collective.
///
/// Where the process manager does not know, every rank publishes the identity of its host, rank 0
/// reads all of them and publishes the table: as many keys as ranks, read by one of them, and two
/// fences.
pub(super) fn find(
    manager: &mut dyn ProcessManager,
    identity: &Identity,
) -> Result<Vec<HostId>, Error> {
    let size = manager.job_info().size;
    if size == 1 {
        return Ok(vec![HostId(0)]);
    }
    if let Some(map) = manager.host_map()?
        && map.len() == size as usize
    {
        return Ok(mapping::number(&map));
    }
    let mine = manager.job_info().rank;
    let space = KeyValueSpace::new(manager);
    space.publish(manager, "i", mine.0, identity.mark.as_bytes())?;
    manager.fence(&mut unwatched())?;
    let mut table = Vec::new();
    if mine.0 == 0 {
        let marks = (0..size).map(|rank| space.read(manager, "i", Rank(rank)));
        let marks = marks.collect::<Result<Vec<_>, _>>()?;
        table = mapping::number(&marks).iter().flat_map(|host| host.0.to_le_bytes()).collect();
        space.publish(manager, "m", 0, &table)?;
    }
    manager.fence(&mut unwatched())?;
    if mine.0 != 0 {
        table = space.read(manager, "m", Rank(0))?;
    }
    let map: Vec<HostId> =
        table.as_chunks::<4>().0.iter().map(|word| HostId(u32::from_le_bytes(*word))).collect();
    if table.len() != size as usize * 4 || mapping::number(&map) != map {
        let problem = format!("{} bytes are no table of the hosts of {size} ranks", table.len());
        return Err(space.broken("m", Rank(0), problem));
    }
    Ok(map)
}
