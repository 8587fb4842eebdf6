//! Requests, replies, limits, poll.

use std::ffi::{c_char, c_int, c_uint, c_void};

use bootstrap::Rank;

use super::fail::{self, BAD_ARG, Fail, code, value};
use super::types::{EVENT_DEFER, EVENT_GROUP, EventValue, Flags, IMMEDIATE, RANK_INVALID};
use super::{M, coll, far, rma, state, token, tools};
use crate::error::Error;
use crate::handler::HandlerIndex;
use crate::transport::message::MessageClass;
use crate::transport::message::{self, MAX_ARGS, MAX_LONG, Outcome};
use crate::transport::message::{AmMessage, AmPayload};

/// Returned by a message that was not sent because it was not to wait.
const NOT_SENT: c_int = 1;

/// Largest payloads.
pub mod limits {
    use super::super::types::{LEAST_ALLOC, LEAST_CLIENT};
    use super::{Fail, Flags, MAX_ARGS, MAX_LONG, c_uint, message};

    fn count(flags: Flags, nargs: c_uint) -> Result<usize, Fail> {
        let both = LEAST_CLIENT | LEAST_ALLOC;
        if flags & both == both {
            return Err(Fail::bad("the two AM_PREPARE_LEAST flags exclude each other"));
        }
        match nargs as usize {
            count if count > MAX_ARGS => {
                Err(Fail::bad(format!("{count} arguments, a message carries at most {MAX_ARGS}")))
            }
            count => Ok(count),
        }
    }

    pub fn medium(flags: Flags, nargs: c_uint) -> Result<usize, Fail> {
        count(flags, nargs).map(message::max_medium)
    }

    pub fn long(flags: Flags, nargs: c_uint) -> Result<usize, Fail> {
        let count = count(flags, nargs)?;
        Ok(if flags & LEAST_ALLOC != 0 { message::max_long_alloc(count) } else { MAX_LONG })
    }
}

/// The core's options for the flags of a call.
#[inline]
pub const fn options(flags: Flags) -> message::Flags {
    if flags & IMMEDIATE != 0 { message::Flags::IMMEDIATE } else { message::Flags::NONE }
}

/// Checks that an index is one that programs may use: lower ones are the library's own.
#[inline]
pub fn check_index(handler: u8) -> Result<(), Fail> {
    if handler >= HandlerIndex::FIRST_CLIENT {
        return Ok(());
    }
    Err(Fail::bad(format!("handler index {handler} is outside 128..=255")))
}

/// Arguments of a message.
#[inline]
pub fn args<'a>(nargs: c_uint, args: *const i32) -> Result<&'a [i32], Fail> {
    let count = nargs as usize;
    if count > MAX_ARGS {
        return Err(Error::TooManyArgs { call: "message", count }.into());
    }
    if count == 0 {
        return Ok(&[]);
    }
    if args.is_null() {
        return Err(Fail::bad("the array of arguments is null"));
    }
    // SAFETY: `nargs` arguments, alive during the call.
    Ok(unsafe { std::slice::from_raw_parts(args, count) })
}

/// Payload of a message.
#[inline]
pub fn payload<'a>(source: *const c_void, len: usize, max: usize) -> Result<&'a [u8], Fail> {
    if len == 0 {
        return Ok(&[]);
    }
    if len > max {
        return Err(Error::PayloadSize { call: "message", len, max }.into());
    }
    if source.is_null() {
        return Err(Fail::bad("the payload is null"));
    }
    // SAFETY: `len` readable bytes that nobody changes until local completion.
    Ok(unsafe { std::slice::from_raw_parts(source.cast(), len) })
}

/// Checks how local completion is asked for.
#[inline]
pub fn completion(lc_opt: *mut EventValue, group: bool) -> Result<(), Fail> {
    match lc_opt.addr() {
        0 => Err(Fail::bad("lc_opt is null")),
        EVENT_DEFER => Err(Fail::bad("lc_opt is GEX_EVENT_DEFER, which messages do not have")),
        EVENT_GROUP if !group => Err(Fail::bad("lc_opt is GEX_EVENT_GROUP, not for replies")),
        _ => Ok(()),
    }
}

/// Local completion has happened.
#[inline]
pub fn complete(lc_opt: *mut EventValue) {
    if lc_opt.addr() > EVENT_GROUP {
        // SAFETY: room for an event, checked not to be null or a special value.
        unsafe { lc_opt.write(0) };
    }
}

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

/// Sends a Short when there is nothing to refuse and nothing to wait for: one of a row, or after a `look` for messages. `false` when it
/// has to be looked at closely. Nothing in it calls a function, so that a row saves no registers.
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
    // For a remote rank this is no neighbour's index, and is found out.
    let (core, target) = (&state.core, state.core.span().offset(rank));
    if LOOK {
        core.look_and_pass::<M>(target, handler, args)
    } else {
        core.pass_short::<M>(target, handler, args)
    }
}

/// As [`send_plainly`] for the reply of a handler.
#[inline(always)]
fn reply_plainly(token: *mut c_void, handler: u8, flags: Flags, args: &[i32]) -> bool {
    let (Some(state), Some(token)) = (state::get(), token::current(token)) else { return false };
    if !is_plain(handler, flags) || !token.may_reply() {
        return false;
    }
    let sent = state.core.pass_reply::<M>(token.source_target(), handler, args);
    if sent {
        token.count_reply();
    }
    sent
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
        let message = AmMessage {
            class: MessageClass::Request,
            target,
            handler,
            args,
            payload: AmPayload::None,
        };
        Ok(said(state.core.request::<M>(call, &message, options(flags))?))
    };
    result(call, send())
}

/// As [`reply_plainly`] with everything that may be in the way.
#[inline(never)]
fn reply_closely(token: *mut c_void, handler: u8, flags: Flags, args: &[i32]) -> c_int {
    let call = "gex_AM_ReplyShort";
    let send = || {
        check_index(handler)?;
        let token = token::get(token)?;
        token.claim(call)?;
        let target = token.source_target();
        let message = AmMessage {
            class: MessageClass::Reply,
            target,
            handler,
            args,
            payload: AmPayload::None,
        };
        Ok(said(token.send::<M>(&message, options(flags))))
    };
    result(call, send())
}

/// Shorts with few arguments, which come in registers. The rest of the work is in other functions, so that these save nothing.
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
        let bytes = payload(source, nbytes, message::max_medium(args.len()))?;
        completion(lc_opt, true)?;
        let payload = AmPayload::Medium(bytes);
        let message = AmMessage { class: MessageClass::Request, target, handler, args, payload };
        let options = options(flags);
        let send = |message: &AmMessage<'_>| Ok(state.core.request::<M>(call, message, options)?);
        Ok(said(far::send(state, call, &message, lc_opt, options, send)?))
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
        let core = state.core;
        core.check_outside::<M>(call)?;
        core.check_open(call)?;
        if flags & IMMEDIATE != 0 && !core.has_room::<M>(target, MessageClass::Request, args.len())
        {
            return Ok(NOT_SENT);
        }
        let payload = landed(state, rank, source, nbytes, dest)?;
        let message = AmMessage { class: MessageClass::Request, target, handler, args, payload };
        let options = options(flags);
        let send = |message: &AmMessage<'_>| Ok(core.request::<M>(call, message, options)?);
        Ok(said(far::send(state, call, &message, lc_opt, options, send)?))
    };
    result(call, send())
}

/// Offset of a checked destination in the segment of a remote rank. Without bytes any place will do.
pub fn far_offset(
    state: &state::State,
    rank: u32,
    dest: *const c_void,
    nbytes: usize,
) -> Result<u64, Fail> {
    if nbytes > 0 {
        return rma::place(state, rank, 0, dest.addr(), nbytes)?.far();
    }
    let target = state.core.target("message", Rank(rank))?;
    let base = state.core.far_segment(target).map_or(0, |segment| segment.base);
    Ok((dest.addr() as u64).wrapping_sub(base))
}

/// Copies the payload of a Long to its destination; for a remote rank it stays for the network to take.
#[inline]
pub fn landed(
    state: &state::State,
    rank: u32,
    source: *const c_void,
    nbytes: usize,
    dest: *const c_void,
) -> Result<AmPayload<'static>, Fail> {
    let target = state.core.target("message", Rank(rank))?;
    if !state.core.is_near(target) {
        let dest = far_offset(state, rank, dest, nbytes)?;
        return Ok(AmPayload::Long { payload: payload(source, nbytes, MAX_LONG)?, dest });
    }
    if nbytes > 0 {
        rma::place(state, rank, 0, dest.addr(), nbytes)?.write(source.cast(), nbytes)?;
    }
    let len = u32::try_from(nbytes).unwrap_or(u32::MAX);
    Ok(AmPayload::Placed { len, dest: dest.addr() as u64 })
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
        let (token, args) = (token::get(token)?, args(nargs, argv)?);
        let bytes = payload(source, nbytes, message::max_medium(args.len()))?;
        completion(lc_opt, false)?;
        token.claim(call)?;
        let (target, payload) = (token.source_target(), AmPayload::Medium(bytes));
        let message = AmMessage { class: MessageClass::Reply, target, handler, args, payload };
        let options = options(flags);
        let send = |message: &AmMessage<'_>| Ok(token.send::<M>(message, options));
        Ok(said(far::send(state, call, &message, lc_opt, options, send)?))
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
        let (token, args) = (token::get(token)?, args(nargs, argv)?);
        payload(source, nbytes, MAX_LONG)?;
        completion(lc_opt, false)?;
        token.claim(call)?;
        let target = token.source_target();
        if flags & IMMEDIATE != 0
            && !state.core.has_room::<M>(target, MessageClass::Reply, args.len())
        {
            token.unclaim();
            return Ok(NOT_SENT);
        }
        let payload = landed(state, token.source().0, source, nbytes, dest)
            .inspect_err(|_| token.unclaim())?;
        let message = AmMessage { class: MessageClass::Reply, target, handler, args, payload };
        let options = options(flags);
        let send = |message: &AmMessage<'_>| Ok(token.send::<M>(message, options));
        Ok(said(far::send(state, call, &message, lc_opt, options, send)?))
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
                limits::$limit(flags, nargs)
            };
            value(stringify!($name), 0, limit())
        }
    )*};
}

max! {
    gex_AM_MaxRequestMedium, medium;
    gex_AM_MaxReplyMedium, medium;
    gex_AM_MaxRequestLong, long;
    gex_AM_MaxReplyLong, long;
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
    gex_AM_LUBRequestMedium = message::LUB_MEDIUM;
    gex_AM_LUBReplyMedium = message::LUB_MEDIUM;
    gex_AM_LUBRequestLong = message::LUB_LONG;
    gex_AM_LUBReplyLong = message::LUB_LONG;
}

#[unsafe(no_mangle)]
pub extern "C" fn gasnet_AMPoll() -> c_int {
    let Some(state) = state::get() else { return poll_closely() };
    let Some(count) = state.core.poll_plainly::<M>() else { return poll_closely() };
    if count > 0 {
        tools::progressed();
    }
    coll::advance(state);
    fail::OK
}

#[inline(never)]
fn poll_closely() -> c_int {
    let call = "gasnet_AMPoll";
    let poll = || {
        let state = state::open()?;
        if state.core.poll::<M>(call)? > 0 {
            tools::progressed();
        }
        coll::advance(state);
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
