//! Vector, indexed and strided transfers: `gasnet_vis.h`.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ptr::{null_mut, with_exposed_provenance_mut};
use std::sync::Arc;

use gasnet_ibv::inner::{
    self, Dim, Entries, Grid, List, MAX_PEER_COMPLETION, PeerCompletion, Pieces, Region, Row,
    Shape, VisOp, overlap,
};
use gasnet_ibv::{Extent, HandlerIndex, Rank};

use crate::M;
use crate::arguments::{array, no_flags};
use crate::checks;
use crate::fail::{Fail, ensure, must};
use crate::misuse;
use crate::rma::{self, Answer, Injection};
use crate::state::{self, State, Target};
use crate::transfer::{Access, Neighbour, locate, order};
use crate::types::{ENABLE_LEAF_LC, EventValue, Flags, Handle, IMMEDIATE, SEG_OFFSET};

/// How a transfer completes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Completion {
    Blocking,
    Implicit,
    Event,
}

/// A transfer as a program calls it.
#[derive(Clone, Copy)]
struct Call {
    call: &'static str,
    tm: Handle,
    rank: u32,
    flags: Flags,
    completion: Completion,
}

/// Which bytes, all in addresses: those of this rank and those of the other.
enum What<'a> {
    Nothing,
    Grid(Grid),
    Lists { local: List<'a>, remote: List<'a> },
}

/// The other rank, and what runs there when a put has come.
type Peer = (&'static State, Target, Option<Armed>);

impl Call {
    /// What every transfer checks, before it looks at what is moved.
    fn peer(&self, put: bool) -> Result<Peer, Fail> {
        let state = state::open()?;
        let target = state.target(self.tm, self.rank)?;
        state.inner.check_open(self.call)?;
        state.inner.check_outside::<M>(self.call)?;
        misuse::flags(self.flags, misuse::TRANSFER_FLAGS | ENABLE_LEAF_LC)?;
        ensure!(self.flags & SEG_OFFSET == 0, "offsets instead of addresses are not supported");
        let armed = if put { ARMED.take() } else { None };
        ensure!(
            armed.is_none() || self.flags & IMMEDIATE == 0,
            "a peer completion handler is set for this put: it must not have GEX_FLAG_IMMEDIATE"
        );
        Ok((state, target, armed))
    }

    fn run<const PUT: bool>(
        &self,
        what: impl FnOnce() -> Result<What<'static>, Fail>,
    ) -> Result<Injection, Fail> {
        let (state, target, armed) = self.peer(PUT)?;
        let peer = armed.as_ref().map(Armed::completion);
        let what = what()?;
        if checks::ON {
            what.check_disjoint::<PUT>()?;
        }
        if let Some(range) = what.remote()? {
            let access = what.locate(state, target, range)?;
            match access {
                Access::Network(offset) => {
                    return self.network::<PUT>((state, target), what, (range.at, offset), peer);
                }
                Access::Mapped(here) => {
                    // SAFETY: `locate` checked the range, whose mapping lasts as long as the
                    // process; that nobody else uses what is written is the program's promise.
                    let there =
                        unsafe { Region::new(range.at, here.expose_provenance(), range.len) };
                    what.each(|row| near::<PUT>(&there, row))?;
                    order();
                }
                Access::CrossMemory(peer, _) => {
                    what.each(|row| across::<PUT>(peer, row))?;
                }
            }
        }
        if let Some(peer) = peer {
            let to = state.inner.target(self.call, Rank(target.rank))?;
            state.inner.announce::<M>((self.call, to), peer, 0, 0)?;
        }
        Ok(Injection::Complete)
    }

    /// At a rank that shares no memory with this one, whose address `at` is that `offset` of its
    /// segment.
    fn network<const PUT: bool>(
        &self,
        (state, target): (&State, Target),
        what: What<'_>,
        (at, offset): (usize, u64),
        peer: Option<PeerCompletion<'_>>,
    ) -> Result<Injection, Fail> {
        let (inner, call) = (state.inner, self.call);
        let shift = state::word(offset).wrapping_sub(at);
        let grid;
        let shape = match what {
            What::Nothing => return Ok(Injection::Complete),
            What::Grid(all) => {
                grid = Arc::new(Grid { remote: all.remote.wrapping_add(shift), ..all });
                Shape::Grid(&grid)
            }
            What::Lists { local, remote } => {
                let base = remote.base.wrapping_add(shift);
                Shape::Lists { local, remote: List { base, ..remote } }
            }
        };
        let target = inner.target(call, Rank(target.rank))?;
        // SAFETY: the program promises what it names until the operation is complete.
        let local = unsafe { Region::all() };
        let immediate = self.flags & IMMEDIATE != 0;
        let op = VisOp { call, target, immediate, shape, local, peer };
        let event = match self.completion {
            Completion::Blocking => {
                inner.vis_blocking::<M>(&op, PUT)?;
                return Ok(Injection::Complete);
            }
            Completion::Implicit => None,
            Completion::Event => Some(null_mut()),
        };
        rma::start(inner, call, event, |row| inner.start_vis::<M>(&op, PUT, row))
    }
}

/// Copies a row from or to memory that is mapped here.
#[inline]
fn near<const PUT: bool>(there: &Region, row: &Row) -> Result<(), Fail> {
    // SAFETY: the program promises what it names.
    let local = unsafe { Region::all() };
    let copied = inner::copy(&local, there, row, PUT);
    copied.map_err(|_| Fail::bad("the transfer reaches beyond the address space"))
}

/// The same with memory of another process.
fn across<const PUT: bool>(peer: Neighbour, row: &Row) -> Result<(), Fail> {
    for at in 0..row.count {
        let step = |stride: isize| stride.cast_unsigned().wrapping_mul(at);
        let local = row.local.wrapping_add(step(row.local_stride));
        let remote = row.remote.wrapping_add(step(row.remote_stride));
        let local = with_exposed_provenance_mut(local);
        Access::CrossMemory(peer, remote).copy::<PUT>(local, row.size)?;
    }
    Ok(())
}

impl What<'_> {
    /// The smallest range of the other rank's addresses that has all bytes; `None` without bytes.
    fn remote(&self) -> Result<Option<Extent>, Fail> {
        match self {
            Self::Nothing => Ok(None),
            Self::Grid(grid) => {
                let range = grid.extent(true);
                range.map(Some).ok_or_else(|| Fail::bad("elements reach beyond the address space"))
            }
            Self::Lists { remote, .. } => {
                let (mut first, mut end) = (usize::MAX, 0);
                for run in remote.runs() {
                    first = first.min(run.at);
                    end = end.max(run.at.saturating_add(run.len));
                }
                Ok(end.checked_sub(first).map(|len| Extent { at: first, len }))
            }
        }
    }

    /// Checks that no byte of the destination is named twice, as far as that can be found out.
    fn check_disjoint<const PUT: bool>(&self) -> Result<(), Fail> {
        let overlap = match self {
            Self::Nothing => None,
            Self::Grid(grid) => overlap::of_grid(grid, PUT),
            Self::Lists { local, remote } => overlap::of_list(if PUT { remote } else { local }),
        };
        overlap.map_or(Ok(()), |Extent { at, len }| {
            let end = at.saturating_add(len);
            Err(Fail::bad(format!("bytes {at:#x}..{end:#x} are in the destination twice")))
        })
    }

    /// How the whole range is reached. The error is that of the first run that is outside.
    fn locate(&self, state: &State, target: Target, all: Extent) -> Result<Access, Fail> {
        let at = |range: Extent| locate(state, (target.rank, target.endpoint), range.at, range.len);
        let found = at(all);
        if let (Err(_), Self::Lists { remote, .. }) = (&found, self) {
            for run in remote.runs() {
                at(run)?;
            }
        }
        found
    }

    fn each(&self, mut copy: impl FnMut(&Row) -> Result<(), Fail>) -> Result<(), Fail> {
        match self {
            Self::Nothing => Ok(()),
            Self::Grid(grid) => grid.rows(0, usize::MAX).try_for_each(|row| copy(&row)),
            Self::Lists { local, remote } => Pieces::new(local, remote)
                .try_for_each(|piece| copy(&Row::contiguous(piece.local, piece.remote, piece.len))),
        }
    }
}

/// One side of a vector transfer. The arrays are used during the call alone.
type Vector = (usize, *const Extent);
/// One side of an indexed transfer: number of entries, the entries, bytes of each.
type Indexed = (usize, *const usize, usize);

/// Both sides of a transfer, the destination first, as two sides by rank.
fn lists<const PUT: bool>(
    dest: Entries<'static>,
    source: Entries<'static>,
) -> Result<What<'static>, Fail> {
    let (dest, source) = (List { entries: dest, base: 0 }, List { entries: source, base: 0 });
    let (local, remote) = if PUT { (source, dest) } else { (dest, source) };
    match (local.total(), remote.total()) {
        (Some(0), Some(0)) => return Ok(What::Nothing),
        (Some(here), Some(there)) if here == there => {}
        (here, there) => return Err(Fail::bad(inner::unequal(here, there))),
    }
    for (side, list) in [("dstlist", dest), ("srclist", source)] {
        let mut runs = list.runs();
        ensure!(runs.all(|run| run.at != 0), "an address of {side} is null, and has bytes");
    }
    Ok(What::Lists { local, remote })
}

fn vector<const PUT: bool>(dest: Vector, source: Vector) -> Result<What<'static>, Fail> {
    let side = |what, (count, first): Vector| array(what, first, count).map(Entries::Vector);
    lists::<PUT>(side("dstlist", dest)?, side("srclist", source)?)
}

fn indexed<const PUT: bool>(dest: Indexed, source: Indexed) -> Result<What<'static>, Fail> {
    let side = |what, (count, first, len): Indexed| -> Result<Entries<'static>, Fail> {
        if len == 0 {
            return Ok(Entries::Indexed(&[], 0));
        }
        Ok(Entries::Indexed(array(what, first, count)?, len))
    };
    lists::<PUT>(side("dstlist", dest)?, side("srclist", source)?)
}

/// Address and strides of one side of a strided transfer.
type Strides = (*mut c_void, *const isize);

fn strided<const PUT: bool>(
    dest: Strides,
    source: Strides,
    element: usize,
    counts: *const usize,
    levels: usize,
) -> Result<What<'static>, Fail> {
    if element == 0 {
        return Ok(What::Nothing);
    }
    let counts = array("count", counts, levels)?;
    if counts.contains(&0) {
        return Ok(What::Nothing);
    }
    ensure!(!dest.0.is_null() && !source.0.is_null(), "an address is null");
    let (into, from) =
        (array("dststrides", dest.1, levels)?, array("srcstrides", source.1, levels)?);
    let addresses = (dest.0.expose_provenance(), source.0.expose_provenance());
    let (here, there) = if PUT { (from, into) } else { (into, from) };
    let (local, remote) = if PUT { (addresses.1, addresses.0) } else { addresses };
    let dims = counts.iter().zip(here).zip(there);
    let dims = dims.map(|((&count, &local), &remote)| Dim { count, local, remote });
    let grid = Grid::new((local, remote), element, dims, PUT);
    let grid = grid.map_err(|problem| Fail::bad(problem.to_string()))?;
    Ok(grid.map_or(What::Nothing, What::Grid))
}

/// The get and the put of one kind, which differ in where the rank stands among the parameters:
/// those of the destination, of the source, and of what both have alike.
macro_rules! get_and_put {
    ($get:ident $put:ident, $completion:ident -> $type:ty, $what:ident,
        ($($dst:ident: $dst_type:ty),*), ($($src:ident: $src_type:ty),*),
        ($($shape:ident: $shape_type:ty),*)) => {
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $get(
            tm: Handle,
            $($dst: $dst_type,)*
            rank: u32,
            $($src: $src_type,)*
            $($shape: $shape_type,)*
            flags: Flags,
        ) -> $type {
            let (call, completion) = (stringify!($get), Completion::$completion);
            let get = Call { call, tm, rank, flags, completion };
            let what = || $what::<false>(($($dst),*), ($($src),*), $($shape),*);
            Answer::of(call, || get.run::<false>(what))
        }

        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $put(
            tm: Handle,
            rank: u32,
            $($dst: $dst_type,)*
            $($src: $src_type,)*
            $($shape: $shape_type,)*
            flags: Flags,
        ) -> $type {
            let (call, completion) = (stringify!($put), Completion::$completion);
            let put = Call { call, tm, rank, flags, completion };
            let what = || $what::<true>(($($dst),*), ($($src),*), $($shape),*);
            Answer::of(call, || put.run::<true>(what))
        }
    };
}

macro_rules! transfers {
    ($($completion:ident -> $type:ty: $vg:ident $vp:ident $ig:ident $ip:ident $sg:ident $sp:ident;)*) => {$(
        get_and_put! {
            $vg $vp, $completion -> $type, vector,
            (dstcount: usize, dstlist: *const Extent),
            (srccount: usize, srclist: *const Extent),
            ()
        }
        get_and_put! {
            $ig $ip, $completion -> $type, indexed,
            (dstcount: usize, dstlist: *const usize, dstlen: usize),
            (srccount: usize, srclist: *const usize, srclen: usize),
            ()
        }
        get_and_put! {
            $sg $sp, $completion -> $type, strided,
            (dstaddr: *mut c_void, dststrides: *const isize),
            (srcaddr: *mut c_void, srcstrides: *const isize),
            (elemsz: usize, count: *const usize, stridelevels: usize)
        }
    )*};
}

transfers! {
    Event -> EventValue:
        gex_VIS_VectorGetNB gex_VIS_VectorPutNB gex_VIS_IndexedGetNB gex_VIS_IndexedPutNB
        gex_VIS_StridedGetNB gex_VIS_StridedPutNB;
    Implicit -> c_int:
        gex_VIS_VectorGetNBI gex_VIS_VectorPutNBI gex_VIS_IndexedGetNBI gex_VIS_IndexedPutNBI
        gex_VIS_StridedGetNBI gex_VIS_StridedPutNBI;
    Blocking -> c_int:
        gex_VIS_VectorGetBlocking gex_VIS_VectorPutBlocking gex_VIS_IndexedGetBlocking
        gex_VIS_IndexedPutBlocking gex_VIS_StridedGetBlocking gex_VIS_StridedPutBlocking;
}

/// A handler that is to run at the target of this thread's next put.
#[derive(Clone, Copy)]
struct Armed {
    handler: u8,
    source: *const u8,
    len: usize,
}

impl Armed {
    fn completion(&self) -> PeerCompletion<'_> {
        let payload = match self.len {
            0 => &[],
            // SAFETY: checked not to be null; the program leaves the bytes alone until the put is
            // complete.
            len => unsafe { std::slice::from_raw_parts(self.source, len) },
        };
        PeerCompletion { handler: self.handler, payload }
    }
}

thread_local! {
    static ARMED: Cell<Option<Armed>> = const { Cell::new(None) };
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gex_VIS_SetPeerCompletionHandler(
    handler: u8,
    source_addr: *const c_void,
    nbytes: usize,
    flags: Flags,
) {
    must("gex_VIS_SetPeerCompletionHandler", || {
        state::open()?;
        no_flags(flags)?;
        if handler == 0 {
            ARMED.set(None);
            return Ok(());
        }
        let first = HandlerIndex::FIRST_CLIENT;
        ensure!(handler >= first, "handler index {handler} is outside {first}..=255");
        ensure!(
            nbytes <= MAX_PEER_COMPLETION,
            "{nbytes} bytes for the handler: at most {MAX_PEER_COMPLETION} are allowed"
        );
        ensure!(nbytes == 0 || !source_addr.is_null(), "source_addr is null");
        ARMED.set(Some(Armed { handler, source: source_addr.cast(), len: nbytes }));
        Ok(())
    });
}
