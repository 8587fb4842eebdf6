//! Put and get beyond the inline part of the header: errors, ranges outside the attached segments,
//! other hosts, no bytes at all.

use std::ffi::{c_int, c_void};
use std::ptr::without_provenance_mut;
use std::sync::Arc;

use gasnet_ibv::inner::{Inner, OpCounters, Part, RemoteOp, TransferKind, transfer};
use gasnet_ibv::{Error, Outcome, Rank};

use crate::fail::{Fail, ensure, injected, must};
use crate::state::{self, State, Target};
use crate::transfer::{Access, locate};
use crate::types::{
    EVENT_DEFER, EVENT_GROUP, EVENT_NOW, EventValue, Flags, Handle, IMMEDIATE, SEG_OFFSET,
};
use crate::{M, events, misuse};

/// How an operation completes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Completion {
    Blocking,
    /// With an event, and that for the source of a put.
    Event(*mut EventValue),
    /// Without event; a put's source is the program's again on return.
    Implicit {
        now: bool,
    },
}

impl Completion {
    /// For what has no local completion of its own.
    const EVENT: Self = Self::Event(without_provenance_mut(EVENT_NOW));

    /// For a put whose local completion is asked for like this.
    fn of_put(lc_opt: *mut EventValue, implicit: bool) -> Result<Self, Fail> {
        Err(Fail::bad(match lc_opt.addr() {
            0 => "lc_opt is null",
            EVENT_GROUP if !implicit => "lc_opt is GEX_EVENT_GROUP, for implicit puts only",
            other if implicit && !matches!(other, EVENT_NOW | EVENT_DEFER | EVENT_GROUP) => {
                "lc_opt is an event, for puts with an event only"
            }
            other if implicit => return Ok(Self::Implicit { now: other == EVENT_NOW }),
            _ => return Ok(Self::Event(lc_opt)),
        }))
    }
}

/// What became of an operation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Injection {
    Complete,
    Event(EventValue),
    /// It was not to wait.
    NotInjected,
}

/// What a call returns about it.
pub trait Answer: Sized {
    fn of(call: &str, run: impl FnOnce() -> Result<Injection, Fail>) -> Self;
}

/// Without event; 1 when nothing was injected.
impl Answer for c_int {
    fn of(call: &str, run: impl FnOnce() -> Result<Injection, Fail>) -> Self {
        injected(call, || Ok(Self::from(run()? == Injection::NotInjected)))
    }
}

/// With an event; `GEX_EVENT_NO_OP` when nothing was injected.
impl Answer for EventValue {
    fn of(call: &str, run: impl FnOnce() -> Result<Injection, Fail>) -> Self {
        match must(call, run) {
            Injection::Complete => 0,
            Injection::Event(event) => event,
            Injection::NotInjected => 1,
        }
    }
}

/// Starts an operation that counts in a row: one with an event of its own, where there is a place for
/// that of its source (null: nobody asks for it), else the row of operations without event.
#[inline]
pub fn start(
    inner: Inner,
    call: &'static str,
    lc_opt: Option<*mut EventValue>,
    send: impl FnOnce(&Arc<OpCounters>) -> Result<Outcome, Error>,
) -> Result<Injection, Fail> {
    let Some(lc_opt) = lc_opt else {
        return Ok(match send(&events::group(inner, call)?)? {
            Outcome::Sent => Injection::Complete,
            Outcome::NotSent => Injection::NotInjected,
        });
    };
    let (op, row) = inner.begin(call)?;
    if send(&row)? == Outcome::NotSent {
        let _complete = inner.finish(op, Part::ALL);
        return Ok(Injection::NotInjected);
    }
    events::write(lc_opt, || events::of(inner, op, Part::LOCAL));
    Ok(Injection::Event(events::of(inner, op, Part::ALL)))
}

/// A put or get as a program asks for it. A put only reads `local`.
#[derive(Clone, Copy)]
struct Transfer {
    call: &'static str,
    tm: Handle,
    rank: u32,
    remote: usize,
    local: *mut u8,
    len: usize,
    flags: Flags,
}

impl Transfer {
    /// What every one-sided call checks. `None`: no bytes, nothing to do.
    fn check(&self) -> Result<Option<(&'static State, Target)>, Fail> {
        let state = state::open()?;
        let target = state.target(self.tm, self.rank)?;
        state.inner.check_open(self.call)?;
        state.inner.check_outside::<M>(self.call)?;
        if self.len == 0 {
            return Ok(None);
        }
        ensure!(self.flags & SEG_OFFSET == 0, "offsets instead of addresses are not supported");
        ensure!(!self.local.is_null(), "the local address is null");
        misuse::transfer(state, target.rank, (self.local.addr(), self.len), self.flags)?;
        Ok(Some((state, target)))
    }

    fn inject<const PUT: bool>(&self, completion: Completion) -> Result<Injection, Fail> {
        let mut injection = Injection::Complete;
        if let Some((state, target)) = self.check()? {
            let kind = if PUT { TransferKind::Put } else { TransferKind::Get };
            let _span = transfer(kind, Rank(target.rank), self.len);
            match locate(state, (target.rank, target.endpoint), self.remote, self.len)? {
                Access::Network(offset) => {
                    injection = self.network::<PUT>(state, target.rank, offset, completion)?;
                }
                access => access.copy::<PUT>(self.local, self.len)?,
            }
        }
        if let (Injection::Complete, Completion::Event(lc_opt)) = (injection, completion) {
            events::write(lc_opt, || 0);
        }
        Ok(injection)
    }

    /// At a rank that shares no memory with this one.
    fn network<const PUT: bool>(
        &self,
        state: &State,
        rank: u32,
        offset: u64,
        completion: Completion,
    ) -> Result<Injection, Fail> {
        let (inner, call, flags) = (state.inner, self.call, self.flags);
        let target = inner.target(call, Rank(rank))?;
        let remote = RemoteOp { call, target, offset, immediate: flags & IMMEDIATE != 0 };
        // SAFETY: readable by the program's promise, and left alone until local completion.
        let source = || unsafe { std::slice::from_raw_parts(self.local, self.len) };
        // SAFETY: writable by the program's promise, and left alone until the operation is
        // complete.
        let into = || unsafe { std::slice::from_raw_parts_mut(self.local, self.len) };
        if completion == Completion::Blocking {
            if PUT {
                inner.put_remote::<M>(remote, source())?
            } else {
                inner.get_remote::<M>(remote, into())?
            }
            return Ok(Injection::Complete);
        }
        let (now, lc_opt) = match completion {
            Completion::Event(lc_opt) => (lc_opt.addr() == EVENT_NOW, Some(lc_opt)),
            Completion::Implicit { now } => (now, None),
            Completion::Blocking => (true, None),
        };
        start(inner, call, lc_opt, |row| match PUT {
            true => inner.put_counted::<M>(remote, (row, lc_opt.is_none()), source(), now),
            false => inner.get_counted::<M>(remote, row, into()),
        })
    }
}

macro_rules! puts {
    ($($name:ident, $call:literal, ($($lc_opt:ident)?) -> $type:ty, $completion:expr;)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            tm: Handle,
            rank: u32,
            dest: *mut c_void,
            src: *const c_void,
            len: usize,
            $($lc_opt: *mut EventValue,)?
            flags: Flags,
        ) -> $type {
            let (call, remote, local) = ($call, dest.addr(), src.cast_mut().cast());
            let put = Transfer { call, tm, rank, remote, local, len, flags };
            Answer::of(call, || $completion.and_then(|completion| put.inject::<true>(completion)))
        }
    )*};
}

puts! {
    gexi_RMA_PutBlocking, "gex_RMA_PutBlocking", () -> c_int, Ok(Completion::Blocking);
    gexi_RMA_PutNBI, "gex_RMA_PutNBI", (lc_opt) -> c_int, Completion::of_put(lc_opt, true);
    gexi_RMA_PutNB, "gex_RMA_PutNB", (lc_opt) -> EventValue, Completion::of_put(lc_opt, false);
}

macro_rules! gets {
    ($($name:ident, $call:literal -> $type:ty, $completion:expr;)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            tm: Handle,
            dest: *mut c_void,
            rank: u32,
            src: *const c_void,
            len: usize,
            flags: Flags,
        ) -> $type {
            let (call, remote, local) = ($call, src.addr(), dest.cast());
            let get = Transfer { call, tm, rank, remote, local, len, flags };
            Answer::of(call, || get.inject::<false>($completion))
        }
    )*};
}

gets! {
    gexi_RMA_GetBlocking, "gex_RMA_GetBlocking" -> c_int, Completion::Blocking;
    gexi_RMA_GetNBI, "gex_RMA_GetNBI" -> c_int, Completion::Implicit { now: false };
    gexi_RMA_GetNB, "gex_RMA_GetNB" -> EventValue, Completion::EVENT;
}

fn check_value(len: usize) -> Result<(), Fail> {
    ensure!((1..=8).contains(&len), "a value has 1 to 8 bytes, {len} were asked for");
    Ok(())
}

macro_rules! value_puts {
    ($($name:ident, $call:literal -> $type:ty, $completion:expr;)*) => {$(
        #[unsafe(no_mangle)]
        pub extern "C" fn $name(
            tm: Handle,
            rank: u32,
            dest: *mut c_void,
            value: u64,
            len: usize,
            flags: Flags,
        ) -> $type {
            let (call, remote, bytes) = ($call, dest.addr(), value.to_le_bytes());
            let local = bytes.as_ptr().cast_mut();
            let put = Transfer { call, tm, rank, remote, local, len, flags };
            Answer::of(call, || check_value(len).and_then(|()| put.inject::<true>($completion)))
        }
    )*};
}

value_puts! {
    gexi_RMA_PutBlockingVal, "gex_RMA_PutBlockingVal" -> c_int, Completion::Blocking;
    gexi_RMA_PutNBIVal, "gex_RMA_PutNBIVal" -> c_int, Completion::Implicit { now: true };
    gexi_RMA_PutNBVal, "gex_RMA_PutNBVal" -> EventValue, Completion::EVENT;
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gexi_RMA_GetBlockingVal(
    tm: Handle,
    rank: u32,
    src: *const c_void,
    len: usize,
    flags: Flags,
) -> u64 {
    let (call, remote, mut bytes) = ("gex_RMA_GetBlockingVal", src.addr(), [0_u8; 8]);
    let local = bytes.as_mut_ptr();
    let get = Transfer { call, tm, rank, remote, local, len, flags };
    must(call, || check_value(len).and_then(|()| get.inject::<false>(Completion::Blocking)));
    u64::from_le_bytes(bytes)
}

/// Bytes of a memset that go out at a time to a neighbour whose memory is not mapped here.
const PATTERN: usize = 4096;

#[unsafe(no_mangle)]
pub extern "C" fn gexi_RMA_Memset(
    tm: Handle,
    rank: u32,
    dest: *mut c_void,
    value: c_int,
    nbytes: usize,
) {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "as memset does")]
    let pattern = [value as u8; PATTERN];
    let (call, remote, local) = ("gasnet_memset", dest.addr(), pattern.as_ptr().cast_mut());
    let all = Transfer { call, tm, rank, remote, local, len: nbytes, flags: 0 };
    must(call, || {
        let Some((state, target)) = all.check()? else { return Ok(()) };
        if let Access::Network(place) =
            locate(state, (target.rank, target.endpoint), remote, nbytes)?
        {
            let (inner, range) = (state.inner, (place, nbytes));
            let to = inner.target(call, Rank(target.rank))?;
            return Ok(inner.fill_remote::<M>(call, to, range, pattern[0])?);
        }
        for done in (0..nbytes).step_by(PATTERN) {
            let len = PATTERN.min(nbytes - done);
            Transfer { remote: remote + done, len, ..all }.inject::<true>(Completion::Blocking)?;
        }
        Ok(())
    });
}
