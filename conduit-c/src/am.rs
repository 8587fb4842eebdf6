//! Requests, replies, limits, poll.

use std::ffi::{c_char, c_int, c_uint, c_void};

use gasnet_ibv::inner::{Destination, MAX_LONG, Outgoing, Payload, Target, max_medium};
use gasnet_ibv::{HandlerIndex, LUB_LONG, LUB_MEDIUM, Outcome};

use crate::arguments::{args, check_index, completion, long_limit, medium_limit, options, payload};
use crate::events::Leaf;
use crate::fail::{self, BAD_ARG, Fail, code, value};
use crate::state::{self, State};
use crate::transfer;
use crate::types::{EventValue, Flags, IMMEDIATE, RANK_INVALID};
use crate::{M, current, tools};

/// Returned by a message that was not sent because it was not to wait.
const NOT_SENT: c_int = 1;

#[inline]
const fn said(outcome: Outcome) -> c_int {
    match outcome {
        Outcome::Sent => fail::OK,
        Outcome::NotSent => NOT_SENT,
    }
}

#[inline]
fn result(call: &str, outcome: Result<c_int, Fail>) -> c_int {
    outcome.unwrap_or_else(|fail| fail.report(call))
}

/// Whether a Short is like most: for a handler of the program, allowed to wait.
#[inline(always)]
const fn is_plain(handler: u8, flags: Flags) -> bool {
    handler >= HandlerIndex::FIRST_CLIENT && flags & IMMEDIATE == 0
}

/// Sends a Short when there is nothing to refuse and nothing to wait for: one of a row, or after a
/// `look` for messages. `false` when it has to be looked at closely. Nothing in it calls a
/// function, so that a row saves no registers.
#[inline(always)]
fn send_plainly<const LOOK: bool>(
    tm: *const c_void,
    rank: u32,
    handler: u8,
    flags: Flags,
    args: &[i32],
) -> bool {
    let Some(state) = state::get() else { return false };
    if !is_plain(handler, flags) || !state::is_whole_team(tm) {
        return false;
    }
    state.inner.pass_short::<M, LOOK>(rank, handler, args)
}

/// As [`send_plainly`] for the reply of a handler.
#[inline(always)]
fn reply_plainly(token: *mut c_void, handler: u8, flags: Flags, args: &[i32]) -> bool {
    let (Some(state), Some(token)) = (state::get(), current::current(token)) else { return false };
    is_plain(handler, flags) && state.inner.pass_reply::<M>(token, handler, args)
}

#[inline(never)]
fn request_after_look<const N: usize>(
    tm: *const c_void,
    rank: u32,
    handler: u8,
    flags: Flags,
    args: [i32; N],
) -> c_int {
    if send_plainly::<true>(tm, rank, handler, flags, &args) {
        return fail::OK;
    }
    request_closely(tm, rank, handler, flags, &args)
}

/// As [`send_plainly`] with everything that may be in the way.
#[inline(never)]
fn request_closely(tm: *const c_void, rank: u32, handler: u8, flags: Flags, args: &[i32]) -> c_int {
    let call = "gex_AM_RequestShort";
    let send = || {
        check_index(handler)?;
        let state = state::open()?;
        let target = state.message_target(tm, rank)?;
        let outgoing = Outgoing { call, handler, args, payload: Payload::None };
        Ok(said(state.inner.request::<M>(target, &outgoing, options(flags), &())?))
    };
    result(call, send())
}

/// As [`reply_plainly`] with everything that may be in the way.
#[inline(never)]
fn reply_closely(token: *mut c_void, handler: u8, flags: Flags, args: &[i32]) -> c_int {
    let call = "gex_AM_ReplyShort";
    let send = || {
        check_index(handler)?;
        let (state, token) = (state::open()?, current::get(token)?);
        token.claim(call)?;
        let outgoing = Outgoing { call, handler, args, payload: Payload::None };
        Ok(said(state.inner.reply::<M>(token, &outgoing, options(flags), &())?))
    };
    result(call, send())
}

/// Shorts with few arguments, which come in registers. The rest of the work is in other functions,
/// so that these save nothing.
macro_rules! shorts {
    ($($request:ident, $reply:ident, [$($arg:ident),*];)*) => {$(
        #[unsafe(no_mangle)]
        pub extern "C" fn $request(
            tm: *const c_void,
            rank: u32,
            handler: u8,
            flags: Flags,
            $($arg: i32,)*
        ) -> c_int {
            if send_plainly::<false>(tm, rank, handler, flags, &[$($arg),*]) {
                return fail::OK;
            }
            request_after_look(tm, rank, handler, flags, [$($arg),*])
        }

        #[unsafe(no_mangle)]
        pub extern "C" fn $reply(
            token: *mut c_void,
            handler: u8,
            flags: Flags,
            $($arg: i32,)*
        ) -> c_int {
            if reply_plainly(token, handler, flags, &[$($arg),*]) {
                return fail::OK;
            }
            reply_closely(token, handler, flags, &[$($arg),*])
        }
    )*};
}

shorts! {
    gexi_AM_RequestShort0, gexi_AM_ReplyShort0, [];
    gexi_AM_RequestShort1, gexi_AM_ReplyShort1, [a];
    gexi_AM_RequestShort2, gexi_AM_ReplyShort2, [a, b];
    gexi_AM_RequestShort3, gexi_AM_ReplyShort3, [a, b, c];
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gexi_AM_RequestShort(
    tm: *const c_void,
    rank: u32,
    handler: u8,
    flags: Flags,
    nargs: c_uint,
    argv: *const i32,
) -> c_int {
    match args(nargs, argv) {
        Ok(args) => request_closely(tm, rank, handler, flags, args),
        Err(fail) => fail.report("gex_AM_RequestShort"),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gexi_AM_RequestMedium(
    tm: *const c_void,
    rank: u32,
    handler: u8,
    source: *const c_void,
    nbytes: usize,
    lc_opt: *mut EventValue,
    flags: Flags,
    nargs: c_uint,
    argv: *const i32,
) -> c_int {
    let call = "gex_AM_RequestMedium";
    let send = || {
        check_index(handler)?;
        let state = state::open()?;
        let (target, args) = (state.message_target(tm, rank)?, args(nargs, argv)?);
        let payload = Payload::Medium(payload(source, nbytes, max_medium(args.len()))?);
        completion(lc_opt, true)?;
        let outgoing = Outgoing { call, handler, args, payload };
        let leaf = Leaf::new(state.inner, call, lc_opt);
        let sent = state.inner.request::<M>(target, &outgoing, options(flags), &leaf);
        Ok(said(leaf.settle(sent)?))
    };
    result(call, send())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gexi_AM_RequestLong(
    tm: *const c_void,
    rank: u32,
    handler: u8,
    source: *const c_void,
    nbytes: usize,
    dest: *mut c_void,
    lc_opt: *mut EventValue,
    flags: Flags,
    nargs: c_uint,
    argv: *const i32,
) -> c_int {
    let call = "gex_AM_RequestLong";
    let send = || {
        check_index(handler)?;
        let state = state::open()?;
        let (target, args) = (state.message_target(tm, rank)?, args(nargs, argv)?);
        payload(source, nbytes, MAX_LONG)?;
        completion(lc_opt, true)?;
        let inner = state.inner;
        inner.check_outside::<M>(call)?;
        inner.check_open(call)?;
        if flags & IMMEDIATE != 0 && !inner.has_room::<M>(target, false, args.len()) {
            return Ok(NOT_SENT);
        }
        let payload = long_payload(state, (target, rank), source, nbytes, dest)?;
        let outgoing = Outgoing { call, handler, args, payload };
        let leaf = Leaf::new(inner, call, lc_opt);
        let sent = inner.request::<M>(target, &outgoing, options(flags), &leaf);
        Ok(said(leaf.settle(sent)?))
    };
    result(call, send())
}

/// Copies the payload of a Long to its destination; for a remote rank it stays for the network to
/// take.
#[inline]
fn long_payload<'a>(
    state: &State,
    (target, rank): (Target, u32),
    source: *const c_void,
    nbytes: usize,
    dest: *const c_void,
) -> Result<Payload<'a>, Fail> {
    let bytes = payload(source, nbytes, MAX_LONG)?;
    match transfer::place_long(state, (target, rank), bytes, dest)? {
        Destination::Offset(offset) => Ok(Payload::Long(bytes, offset)),
        _ => Ok(Payload::Placed(nbytes, dest.addr() as u64)),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gexi_AM_ReplyShort(
    token: *mut c_void,
    handler: u8,
    flags: Flags,
    nargs: c_uint,
    argv: *const i32,
) -> c_int {
    match args(nargs, argv) {
        Ok(args) => reply_closely(token, handler, flags, args),
        Err(fail) => fail.report("gex_AM_ReplyShort"),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gexi_AM_ReplyMedium(
    token: *mut c_void,
    handler: u8,
    source: *const c_void,
    nbytes: usize,
    lc_opt: *mut EventValue,
    flags: Flags,
    nargs: c_uint,
    argv: *const i32,
) -> c_int {
    let call = "gex_AM_ReplyMedium";
    let send = || {
        let state = state::open()?;
        check_index(handler)?;
        let (token, args) = (current::get(token)?, args(nargs, argv)?);
        let payload = Payload::Medium(payload(source, nbytes, max_medium(args.len()))?);
        completion(lc_opt, false)?;
        token.claim(call)?;
        let outgoing = Outgoing { call, handler, args, payload };
        let leaf = Leaf::new(state.inner, call, lc_opt);
        let sent = state.inner.reply::<M>(token, &outgoing, options(flags), &leaf);
        Ok(said(leaf.settle(sent)?))
    };
    result(call, send())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gexi_AM_ReplyLong(
    token: *mut c_void,
    handler: u8,
    source: *const c_void,
    nbytes: usize,
    dest: *mut c_void,
    lc_opt: *mut EventValue,
    flags: Flags,
    nargs: c_uint,
    argv: *const i32,
) -> c_int {
    let call = "gex_AM_ReplyLong";
    let send = || {
        check_index(handler)?;
        let state = state::open()?;
        let (token, args) = (current::get(token)?, args(nargs, argv)?);
        payload(source, nbytes, MAX_LONG)?;
        completion(lc_opt, false)?;
        token.claim(call)?;
        let (inner, target) = (state.inner, state.inner.reply_target(token));
        if flags & IMMEDIATE != 0 && !inner.has_room::<M>(target, true, args.len()) {
            token.unclaim();
            return Ok(NOT_SENT);
        }
        let payload = long_payload(state, (target, token.source().0), source, nbytes, dest)
            .inspect_err(|_| token.unclaim())?;
        let outgoing = Outgoing { call, handler, args, payload };
        let leaf = Leaf::new(inner, call, lc_opt);
        let sent = inner.reply::<M>(token, &outgoing, options(flags), &leaf);
        Ok(said(leaf.settle(sent)?))
    };
    result(call, send())
}

macro_rules! max {
    ($($name:ident, $limit:ident;)*) => {$(
        #[unsafe(no_mangle)]
        pub extern "C" fn $name(
            tm: *const c_void,
            rank: u32,
            _lc_opt: *const EventValue,
            flags: Flags,
            nargs: c_uint,
        ) -> usize {
            let limit = || {
                let state = state::open()?;
                let rank = if rank == RANK_INVALID { 0 } else { rank };
                state.message_target(tm, rank)?;
                $limit(flags, nargs)
            };
            value(stringify!($name), 0, limit())
        }
    )*};
}

max! {
    gex_AM_MaxRequestMedium, medium_limit;
    gex_AM_MaxReplyMedium, medium_limit;
    gex_AM_MaxRequestLong, long_limit;
    gex_AM_MaxReplyLong, long_limit;
}

macro_rules! least_upper_bound {
    ($($name:ident = $value:expr;)*) => {$(
        #[unsafe(no_mangle)]
        pub extern "C" fn $name() -> usize {
            $value
        }
    )*};
}

least_upper_bound! {
    gex_AM_LUBRequestMedium = LUB_MEDIUM;
    gex_AM_LUBReplyMedium = LUB_MEDIUM;
    gex_AM_LUBRequestLong = LUB_LONG;
    gex_AM_LUBReplyLong = LUB_LONG;
}

#[unsafe(no_mangle)]
pub extern "C" fn gasnet_AMPoll() -> c_int {
    let Some(state) = state::get() else { return poll_closely() };
    let Some(count) = state.inner.poll_plainly::<M>() else { return poll_closely() };
    if count > 0 {
        tools::progressed();
    }
    state.collectives.advance();
    fail::OK
}

#[inline(never)]
fn poll_closely() -> c_int {
    let call = "gasnet_AMPoll";
    let poll = || {
        let state = state::open()?;
        if state.inner.poll::<M>(call)? > 0 {
            tools::progressed();
        }
        state.collectives.advance();
        Ok(())
    };
    code(call, poll())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gexi1_wrong_count(
    call: *const c_char,
    stated: c_int,
    given: c_int,
) -> c_int {
    if call.is_null() {
        return BAD_ARG;
    }
    // SAFETY: a string constant of the header.
    let call = unsafe { std::ffi::CStr::from_ptr(call) }.to_string_lossy();
    Fail::bad(format!("{stated} arguments stated, {given} given")).report(&call)
}
