//! Teams: making and destroying them, their ranks.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::Arc;

use gasnet_ibv::inner::{Group, Task};

use crate::M;
use crate::arguments::{answer, array, check_place};
use crate::fail::{Fail, ensure, must, value};
use crate::state::{self, Object, State, TeamRef};
use crate::team_barrier::TeamBarrier;
use crate::teams::Team;
use crate::types::{Flags, Handle, Location, MemVec, RANK_INVALID};

const SIZE_MIN: Flags = 1;
const SIZE_RECOMMENDED: Flags = 1 << 1;
const SIZES: Flags = SIZE_MIN | SIZE_RECOMMENDED;
const GLOBAL: Flags = 1 << 2;
const LOCAL: Flags = 1 << 3;
const SYMMETRIC: Flags = 1 << 4;
const NO_SCRATCH: Flags = 1 << 5;
const SCRATCH: Flags = GLOBAL | LOCAL | SYMMETRIC | NO_SCRATCH;
const OFFSET: Flags = 1 << 6;
const QUIET: Flags = 1 << 13;
const JOB_RANKS: Flags = 1 << 13;

/// What is asked for where a program wants to know how much scratch space a team needs: collectives
/// need none, but programs take 0 for "no team".
const SCRATCH_SIZE: usize = 64;

fn check_flags(flags: Flags, known: Flags) -> Result<(), Fail> {
    let unknown = flags & !known;
    ensure!(unknown == 0, "flags {flags:#x}: {unknown:#x} are not flags of this call");
    Ok(())
}

/// Keeps a team that was made: its handle.
fn keep(state: &State, group: Arc<Group>, scratch: (usize, usize)) -> *mut c_void {
    state.teams.add(Team { object: Object::new(), group, scratch, barrier: TeamBarrier::default() })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gex_TM_Split(
    new_tm_p: *mut *mut c_void,
    parent: Handle,
    color: c_int,
    key: c_int,
    scratch_addr: *mut c_void,
    scratch_size: usize,
    flags: Flags,
) -> usize {
    let call = "gex_TM_Split";
    must(call, || {
        let parent = state::team(parent)?;
        check_flags(flags, SIZES | NO_SCRATCH)?;
        let joins = !new_tm_p.is_null();
        if flags & SIZES != 0 {
            return Ok(if joins { SCRATCH_SIZE } else { 0 });
        }
        let color = match u32::try_from(color) {
            Ok(color) => joins.then_some((color, key)),
            Err(_) if !joins => None,
            Err(_) => return Err(Fail::bad(format!("color {color}: it must not be negative"))),
        };
        let scratch = if flags & NO_SCRATCH != 0 || !joins {
            (0, 0)
        } else {
            lent(scratch_addr, scratch_size)?
        };
        parent.begins(call, String::new)?;
        let made = parent.state.inner.split::<M>(call, parent.group(), color)?;
        let Some(group) = made else { return Ok(0) };
        answer(new_tm_p, keep(parent.state, group, scratch));
        Ok(1)
    })
}

/// Scratch space as a program lends it.
fn lent(address: *mut c_void, size: usize) -> Result<(usize, usize), Fail> {
    let help =
        "lend what GEX_FLAG_TM_SCRATCH_SIZE_RECOMMENDED asks for, or pass GEX_FLAG_TM_NO_SCRATCH";
    ensure!(size != 0, "scratch space of 0 bytes: {help}");
    ensure!(!address.is_null(), "scratch space at a null pointer: {help}");
    Ok((address.addr(), size))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gex_TM_Create(
    new_tms: *mut *mut c_void,
    num_new_tms: usize,
    parent: Handle,
    args: *mut Location,
    numargs: usize,
    scratch_addrs: *mut *mut c_void,
    scratch_size: usize,
    flags: Flags,
) -> usize {
    let call = "gex_TM_Create";
    must(call, || {
        let parent = state::team(parent)?;
        check_flags(flags, SIZES | SCRATCH | OFFSET | JOB_RANKS)?;
        let args = array("the list of members", args, numargs)?;
        if flags & SIZES != 0 {
            return Ok(if args.is_empty() { 0 } else { SCRATCH_SIZE });
        }
        let ranks = members(&parent, args, flags)?;
        let mine = ranks.iter().position(|rank| *rank == parent.rank());
        let scratch = match mine {
            Some(mine) => {
                ensure!(
                    num_new_tms == 1,
                    "{num_new_tms} new teams: this process has 1 member in the list"
                );
                check_place(new_tms)?;
                scratch_of(parent.state, (scratch_addrs, scratch_size), (mine, numargs), flags)?
            }
            None => (0, 0),
        };
        parent.begins(call, String::new)?;
        let made = parent.state.inner.create::<M>(call, parent.group(), &ranks)?;
        let Some(group) = made else { return Ok(0) };
        answer(new_tms, keep(parent.state, group, scratch));
        Ok(1)
    })
}

/// Members of a list as ranks of the parent.
fn members(parent: &TeamRef, args: &[Location], flags: Flags) -> Result<Vec<u32>, Fail> {
    let member = |at: &Location| {
        let Location { rank, index } = *at;
        ensure!(
            index == 0,
            "endpoint {index} of rank {rank}: only those of index 0 can be members"
        );
        if flags & JOB_RANKS == 0 {
            return Ok(rank);
        }
        let found = parent.group().rank_of(rank);
        found.ok_or_else(|| Fail::bad(format!("job rank {rank} is not in the parent team")))
    };
    args.iter().map(member).collect()
}

/// The scratch space of the member at a place of its list.
fn scratch_of(
    state: &State,
    (addresses, size): (*mut *mut c_void, usize),
    (mine, members): (usize, usize),
    flags: Flags,
) -> Result<(usize, usize), Fail> {
    let (at, count) = match flags & SCRATCH {
        NO_SCRATCH => return Ok((0, 0)),
        SYMMETRIC | LOCAL => (0, 1),
        GLOBAL => (mine, members),
        other => {
            return Err(Fail::bad(format!(
                "flags {other:#x}: one of GEX_FLAG_TM_GLOBAL_SCRATCH, LOCAL, SYMMETRIC and NO_SCRATCH"
            )));
        }
    };
    let addresses = array("the list of scratch addresses", addresses, count)?;
    let address = addresses.get(at).copied().unwrap_or(null_mut());
    if flags & OFFSET == 0 {
        return lent(address, size);
    }
    let segment = state.ep0.segment();
    let base =
        segment.ok_or_else(|| Fail::bad("scratch space by offset, and no segment is bound"))?;
    ensure!(size != 0, "scratch space of 0 bytes");
    Ok((base.address.wrapping_add(address.addr()), size))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gex_TM_Destroy(tm: Handle, scratch_p: *mut MemVec, flags: Flags) -> c_int {
    let call = "gex_TM_Destroy";
    must(call, || {
        let team = state::team(tm)?;
        check_flags(flags, QUIET)?;
        let Some(object) = &team.object else {
            return Err(Fail::bad("the team of all ranks cannot be destroyed"));
        };
        let (inner, group) = (team.state.inner, team.group());
        team.begins(call, String::new)?;
        if flags & QUIET == 0 {
            inner.run_collective::<M>(call, group, Task::barrier(group))?;
        }
        team.state.teams.remove(tm);
        inner.forget_team(group);
        let (address, size) = object.scratch;
        if size == 0 || scratch_p.is_null() {
            return Ok(0);
        }
        let address = std::ptr::with_exposed_provenance_mut(address);
        answer(scratch_p, MemVec { address, len: size });
        Ok(1)
    })
}

fn translate(tm: Handle, rank: u32) -> Result<u32, Fail> {
    let team = state::team(tm)?;
    team.job_rank(rank)
}

#[unsafe(no_mangle)]
pub extern "C" fn gex_TM_TranslateRankToJobrank(tm: Handle, rank: u32) -> u32 {
    value("gex_TM_TranslateRankToJobrank", RANK_INVALID, || translate(tm, rank))
}

#[unsafe(no_mangle)]
pub extern "C" fn gex_TM_TranslateJobrankToRank(tm: Handle, jobrank: u32) -> u32 {
    value("gex_TM_TranslateJobrankToRank", RANK_INVALID, || {
        Ok(state::team(tm)?.group().rank_of(jobrank).unwrap_or(RANK_INVALID))
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn gex_TM_TranslateRankToEP(tm: Handle, rank: u32, flags: Flags) -> Location {
    let rank = value("gex_TM_TranslateRankToEP", RANK_INVALID, || {
        check_flags(flags, 0)?;
        translate(tm, rank)
    });
    Location { rank, index: 0 }
}
