//! Collectives of GASNet-1: `gasnet_coll_*`. A rank has one image, so that an image is a rank of the
//! team.

use std::ffi::{c_int, c_void};
use std::ptr::{null, null_mut};

use gasnet_ibv::inner::{Buffers, Fences, Part, Task};

use crate::coll::open_team;
use crate::fail::{Fail, ensure, must};
use crate::state::TeamRef;
use crate::types::{EventValue, Handle};
use crate::{M, events};

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

/// The image that a collective has as its root, and whether that is this rank; without meaning for one
/// that has none.
type Root = (u32, bool);

/// Begins one: its event. All members give the root and the bytes of a block alike.
fn begin(
    call: &'static str,
    team: Handle,
    flags: c_int,
    named: Option<(&str, u32)>,
    data: Data,
    task: impl FnOnce(&TeamRef, Root, Data) -> Result<Task, Fail>,
) -> EventValue {
    must(call, || {
        let team = open_team(call, team)?;
        let fences = fences(flags)?;
        let root = match named {
            Some((what, image)) => (image, check_image(&team, what, image)?),
            None => (0, false),
        };
        let task = task(&team, root, data)?;
        team.begins(call, || {
            let root = named.map_or_else(String::new, |(_, image)| format!("image {image}, "));
            format!("{root}{} bytes, {fences:?}", data.2)
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

fn broadcast(team: &TeamRef, (root, is_root): Root, data: Data) -> Result<Task, Fail> {
    let buffers = buffers(data, is_root.into(), 1)?;
    Ok(Task::broadcast(team.group(), root, data.2, buffers))
}

fn scatter(team: &TeamRef, (root, is_root): Root, data: Data) -> Result<Task, Fail> {
    let buffers = buffers(data, if is_root { team.size() } else { 0 }, 1)?;
    Ok(Task::scatter(team.group(), root, data.2, buffers))
}

fn gather(team: &TeamRef, (root, is_root): Root, data: Data) -> Result<Task, Fail> {
    let buffers = buffers(data, 1, if is_root { team.size() } else { 0 })?;
    Ok(Task::gather(team.group(), root, data.2, buffers))
}

fn gather_all(team: &TeamRef, _: Root, data: Data) -> Result<Task, Fail> {
    let buffers = buffers(data, 1, team.size())?;
    Ok(Task::gather_to_all(team.group(), data.2, buffers))
}

fn exchange(team: &TeamRef, _: Root, data: Data) -> Result<Task, Fail> {
    let buffers = buffers(data, team.size(), team.size())?;
    let (from, to, len) = (buffers.source.addr(), buffers.result.addr(), buffers.len);
    let (dst, src, nbytes) = data;
    ensure!(
        len == 0 || from.abs_diff(to) >= len,
        "dst {dst:p} and src {src:p} overlap, each of {len} bytes"
    );
    Ok(Task::exchange(team.group(), nbytes, buffers))
}

/// The image that all data goes to or comes from, if there is one, stands before that side's address.
macro_rules! collectives {
    ($($name:ident, $call:literal, $task:ident $(to $to:ident)? $(from $from:ident)?;)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            team: Handle,
            $($to: u32,)?
            dst: *mut c_void,
            $($from: u32,)?
            src: *const c_void,
            nbytes: usize,
            flags: c_int,
        ) -> EventValue {
            let root = [$(Some((stringify!($to), $to)),)? $(Some((stringify!($from), $from)),)? None];
            begin($call, team, flags, root[0], (dst, src, nbytes), $task)
        }
    )*};
}

collectives! {
    gasnet_coll_broadcast_nb, "gasnet_coll_broadcast", broadcast from srcimage;
    gasnet_coll_scatter_nb, "gasnet_coll_scatter", scatter from srcimage;
    gasnet_coll_gather_nb, "gasnet_coll_gather", gather to dstimage;
    gasnet_coll_gather_all_nb, "gasnet_coll_gather_all", gather_all;
    gasnet_coll_exchange_nb, "gasnet_coll_exchange", exchange;
}
