//! The teams of this process by handle.
//!
//! A handle of a team beside the first is no address: it says the place in the table, and how often
//! that place has been used, so that the handle of a destroyed team is found out. Its low byte tells
//! it from pairs, and from the first team, whose handle is an address.

use std::sync::PoisonError;
use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};

use gasnet_ibv::inner::Group;

use crate::fail::Fail;
use crate::state::Object;
use crate::team_barrier::TeamBarrier;
use crate::types::Handle;

/// Low byte of a handle.
const TAG: usize = 4;
/// Uses of a place have so many bits.
const USES: u32 = 24;

/// A team that the program made.
pub struct Team {
    pub object: Object,
    pub group: Arc<Group>,
    /// First address and bytes of what the program lent, none when there are no bytes.
    pub scratch: (usize, usize),
    pub barrier: TeamBarrier,
}

#[derive(Default)]
struct Place {
    uses: u32,
    team: Option<Arc<Team>>,
}

/// All of them.
#[derive(Default)]
pub struct Teams {
    places: RwLock<Vec<Place>>,
}

fn handle(place: usize, uses: u32) -> *mut std::ffi::c_void {
    std::ptr::without_provenance_mut((place + 1) << (USES + 8) | (uses as usize) << 8 | TAG)
}

/// Place and use; `None` for what is no handle of these.
fn parts(handle: Handle) -> Option<(usize, u32)> {
    let bits = handle.addr();
    let place = (bits >> (USES + 8)).checked_sub(1)?;
    let uses = u32::try_from(bits >> 8 & ((1 << USES) - 1)).ok()?;
    (bits & 0xff == TAG).then_some((place, uses))
}

impl Teams {
    fn read(&self) -> RwLockReadGuard<'_, Vec<Place>> {
        self.places.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Vec<Place>> {
        self.places.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a team: its handle.
    pub fn add(&self, team: Team) -> *mut std::ffi::c_void {
        let mut places = self.write();
        // A place that was used too often is left alone.
        let free = |place: &Place| place.team.is_none() && place.uses < (1 << USES) - 1;
        let at = places.iter().position(free).unwrap_or(places.len());
        if at == places.len() {
            places.push(Place::default());
        }
        let Some(place) = places.get_mut(at) else { return std::ptr::null_mut() };
        place.team = Some(Arc::new(team));
        handle(at, place.uses)
    }

    /// The team of a handle takes part in `use_it`; the lock is held meanwhile.
    #[inline]
    pub fn with<T>(&self, tm: Handle, use_it: impl FnOnce(&Arc<Team>) -> T) -> Result<T, Fail> {
        let places = self.read();
        let found = parts(tm).and_then(|(at, uses)| Some((places.get(at)?, uses)));
        match found {
            Some((Place { uses, team: Some(team) }, asked)) if *uses == asked => Ok(use_it(team)),
            found => Err(wrong(tm, found.map(|(place, asked)| asked < place.uses))),
        }
    }

    /// Takes a team out of the table.
    pub fn remove(&self, tm: Handle) {
        let mut places = self.write();
        let found = parts(tm).and_then(|(at, uses)| Some((places.get_mut(at)?, uses)));
        if let Some((place, _)) = found.filter(|(place, uses)| place.uses == *uses) {
            place.team = None;
            place.uses += 1;
        }
    }
}

#[cold]
fn wrong(tm: Handle, destroyed: Option<bool>) -> Fail {
    match destroyed {
        _ if tm.is_null() => Fail::bad("team GEX_TM_INVALID"),
        Some(true) => Fail::bad(format!("{tm:p} is a team that was destroyed")),
        _ => Fail::bad(format!("{tm:p} is not a team of this process")),
    }
}
