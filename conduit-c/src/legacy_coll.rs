//! Collectives of GASNet-1: `gasnet_coll_*`. A rank has one image, so that an image is a rank of the
//! team.

use std::ffi::{c_int, c_void};
use std::ptr::{null, null_mut};

use gasnet_ibv::inner::{Buffers, Fences, Part, Task};

use crate::coll::open_team;
use crate::fail::{Fail, ensure, must};
use crate::state::TeamRef;
use crate::types::{EventValue, Handle};
use crate::{M, events, order};

/// `GASNET_COLL_IN_*` and `GASNET_COLL_OUT_*`: of each three exactly one.
const IN: c_int = 0x07;
const IN_ALLSYNC: c_int = 1 << 2;
const OUT: c_int = 0x38;
const OUT_ALLSYNC: c_int = 1 << 5;
const SINGLE: c_int = 1 << 6;
const LOCAL: c_int = 1 << 7;
/// Of threads per rank, segments and tuning: they change nothing here.
const HINTS: c_int = 1 << 9 | 1 << 10 | 1 << 11 | 1 << 18 | 1 << 19;

fn fences(flags: c_int) -> Result<Fences, Fail> {
    let unknown = flags & !(IN | OUT | SINGLE | LOCAL | HINTS);
    ensure!(unknown == 0, "flags {flags:#x}: {unknown:#x} are not flags of collectives");
    ensure!(
        (flags & IN).count_ones() == 1 && (flags & OUT).count_ones() == 1,
        "flags {flags:#x}: one of GASNET_COLL_IN_{{NOSYNC,MYSYNC,ALLSYNC}} and one of \
         GASNET_COLL_OUT_{{NOSYNC,MYSYNC,ALLSYNC}} must be set"
    );
    let both = SINGLE | LOCAL;
    ensure!(
        flags & both != both,
        "flags {flags:#x}: GASNET_COLL_SINGLE and GASNET_COLL_LOCAL exclude each other"
    );
    Ok(Fences { before: flags & IN_ALLSYNC != 0, after: flags & OUT_ALLSYNC != 0 })
}

/// What a call moves: destination, source, bytes of a block.
type Data = (*mut c_void, *const c_void, usize);

/// Buffers of `blocks` blocks of a source and of a destination; none where there are no blocks.
fn buffers((dst, src, nbytes): Data, from: u32, to: u32) -> Result<Buffers, Fail> {
    let bytes =
        |blocks: u32| nbytes.checked_mul(blocks as usize).filter(|all| *all <= isize::MAX as usize);
    let (Some(contributes), Some(len)) = (bytes(from), bytes(to)) else {
        return Err(Fail::bad(format!("{} blocks of {nbytes} bytes are too much", from.max(to))));
    };
    ensure!(!dst.is_null() || len == 0, "dst is null");
    ensure!(!src.is_null() || contributes == 0, "src is null");
    let source = if contributes > 0 { src.cast() } else { null() };
    let result = if len > 0 { dst.cast() } else { null_mut() };
    Ok(Buffers { source, result, contributes, len })
}

/// Begins one: its event. All members give the root and the bytes of a block alike.
fn begin(
    call: &'static str,
    team: Handle,
    flags: c_int,
    (root, nbytes): (Option<u32>, usize),
    task: impl FnOnce(&TeamRef) -> Result<Task, Fail>,
) -> EventValue {
    must(call, || {
        let team = open_team(call, team)?;
        let fences = fences(flags)?;
        let task = task(&team)?;
        order::compare(call, team.state.inner, team.group(), || {
            let root = root.map_or_else(String::new, |root| format!("image {root}, "));
            format!("{root}{nbytes} bytes, {fences:?}")
        })?;
        let inner = team.state.inner;
        let op = inner.start_fenced::<M>(call, team.group(), task, fences)?;
        Ok(events::of(inner, op, Part::ALL))
    })
}

/// Whether this rank has the image, which is one of the team.
fn check_image(team: &TeamRef, what: &str, image: u32) -> Result<bool, Fail> {
    let size = team.size();
    ensure!(
        image < size,
        "{what} {image} is not in the team, which has {size} images, one for each rank"
    );
    Ok(image == team.rank())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gasnet_coll_broadcast_nb(
    team: Handle,
    dst: *mut c_void,
    srcimage: u32,
    src: *const c_void,
    nbytes: usize,
    flags: c_int,
) -> EventValue {
    begin("gasnet_coll_broadcast", team, flags, (Some(srcimage), nbytes), |team| {
        let is_root = check_image(team, "srcimage", srcimage)?;
        let buffers = buffers((dst, src, nbytes), is_root.into(), 1)?;
        Ok(Task::broadcast(team.group(), srcimage, nbytes, buffers))
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gasnet_coll_scatter_nb(
    team: Handle,
    dst: *mut c_void,
    srcimage: u32,
    src: *const c_void,
    nbytes: usize,
    flags: c_int,
) -> EventValue {
    begin("gasnet_coll_scatter", team, flags, (Some(srcimage), nbytes), |team| {
        let is_root = check_image(team, "srcimage", srcimage)?;
        let blocks = if is_root { team.size() } else { 0 };
        let buffers = buffers((dst, src, nbytes), blocks, 1)?;
        Ok(Task::scatter(team.group(), srcimage, nbytes, buffers))
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gasnet_coll_gather_nb(
    team: Handle,
    dstimage: u32,
    dst: *mut c_void,
    src: *const c_void,
    nbytes: usize,
    flags: c_int,
) -> EventValue {
    begin("gasnet_coll_gather", team, flags, (Some(dstimage), nbytes), |team| {
        let is_root = check_image(team, "dstimage", dstimage)?;
        let blocks = if is_root { team.size() } else { 0 };
        let buffers = buffers((dst, src, nbytes), 1, blocks)?;
        Ok(Task::gather(team.group(), dstimage, nbytes, buffers))
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gasnet_coll_gather_all_nb(
    team: Handle,
    dst: *mut c_void,
    src: *const c_void,
    nbytes: usize,
    flags: c_int,
) -> EventValue {
    begin("gasnet_coll_gather_all", team, flags, (None, nbytes), |team| {
        let buffers = buffers((dst, src, nbytes), 1, team.size())?;
        Ok(Task::gather_to_all(team.group(), nbytes, buffers))
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gasnet_coll_exchange_nb(
    team: Handle,
    dst: *mut c_void,
    src: *const c_void,
    nbytes: usize,
    flags: c_int,
) -> EventValue {
    begin("gasnet_coll_exchange", team, flags, (None, nbytes), |team| {
        let buffers = buffers((dst, src, nbytes), team.size(), team.size())?;
        let (from, to, len) = (buffers.source.addr(), buffers.result.addr(), buffers.len);
        ensure!(
            len == 0 || from.abs_diff(to) >= len,
            "dst {dst:p} and src {src:p} overlap, each of {len} bytes"
        );
        Ok(Task::exchange(team.group(), nbytes, buffers))
    })
}
