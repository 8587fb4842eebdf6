//! Requests, replies, their limits, what a handler asks about its message, poll.

use std::ffi::{c_char, c_int, c_uint, c_void};

use gasnet_ibv::inner::{
    AmMessage, AmPayload, Destination, MAX_CARRIED, MAX_LONG, MessageClass, Target, max_medium,
    traces_messages,
};
use gasnet_ibv::{HandlerIndex, LUB_LONG, LUB_MEDIUM, Outcome};

use crate::arguments::{
    answer, args, check_index, check_place, completion, long_limit, medium_limit, options, payload,
    string,
};
use crate::call::CHandler;
use crate::current::{self, Sender};
use crate::events::Leaf;
use crate::fail::{self, BAD_ARG, Fail, code, status, value};
use crate::state::{self, State};
use crate::transfer::place_long;
use crate::types::{EventValue, Flags, Handle, IMMEDIATE, RANK_INVALID, TI_ALL, Token, TokenInfo};
use crate::{M, checks, misuse, tools};

/// The code of a message; 1 when it was not sent because it was not to wait.
#[inline(always)]
pub fn sent(outcome: Outcome) -> c_int {
    match outcome {
        Outcome::Sent => fail::OK,
        Outcome::NotSent => 1,
    }
}

/// Whom a message goes to: a rank, or with a token the rank whose request is being handled. Each
/// entry point knows which: inlined, this costs no branch.
#[derive(Clone, Copy)]
pub struct Peer {
    pub target: Target,
    pub token: Option<Sender>,
    /// In the job, whatever team the caller named.
    rank: u32,
}

#[inline(always)]
pub fn receiver(tm: Handle, rank: u32) -> Result<Peer, Fail> {
    let (target, rank) = state::open()?.message_target(tm, rank)?;
    Ok(Peer { target, token: None, rank })
}

#[inline(always)]
pub fn sender(token: Token) -> Result<Peer, Fail> {
    let token = current::get(token)?;
    let target = state::open()?.inner.reply_target(token);
    Ok(Peer { target, token: Some(token), rank: RANK_INVALID })
}

impl Peer {
    /// Its rank in the job.
    pub fn rank(self) -> u32 {
        self.token.map_or(self.rank, |token| token.source().0)
    }

    /// Checks what requests need that do more than to send.
    #[inline(always)]
    pub fn check(self, state: &State, call: &'static str) -> Result<(), Fail> {
        if self.token.is_none() {
            state.inner.check_outside::<M>(call)?;
            state.inner.check_open(call)?;
        }
        Ok(())
    }

    #[inline(always)]
    const fn message<'a>(
        self,
        handler: u8,
        args: &'a [i32],
        payload: AmPayload<'a>,
    ) -> AmMessage<'a> {
        let reply = self.token.is_some();
        let class = if reply { MessageClass::Reply } else { MessageClass::Request };
        AmMessage { class, target: self.target, handler, args, payload }
    }

    /// Takes the right to send; a request has only one reply.
    #[inline(always)]
    fn claim(self, call: &'static str) -> Result<(), Fail> {
        self.token.map_or(Ok(()), |token| Ok(token.claim(call)?))
    }

    fn unclaim(self) {
        self.token.inspect(|token| token.unclaim());
    }
}

/// Whether a Short is like most: for a handler of the program, allowed to wait.
#[inline(always)]
const fn is_usual(handler: u8, flags: Flags) -> bool {
    handler >= HandlerIndex::FIRST_CLIENT && flags & IMMEDIATE == 0
}

/// Sends a Short to a neighbour when there is nothing to refuse and nothing to wait for: one of a
/// burst, or after a `CHECK` for arrivals; `TRACED`: while messages are traced. `false` when it needs
/// [`request_short`]. Nothing in it calls a function, so that a burst saves no registers.
#[inline(always)]
fn try_request_short<const CHECK: bool, const TRACED: bool>(
    tm: Handle,
    rank: u32,
    handler: u8,
    flags: Flags,
    args: &[i32],
) -> bool {
    let Some(state) = state::get() else { return false };
    if checks::ON || !is_usual(handler, flags) || !state::is_whole_team(tm) {
        return false;
    }
    state.inner.try_request_short::<M, CHECK, TRACED>(rank, handler, args)
}

/// As [`try_request_short`] for the reply of a handler.
#[inline(always)]
fn try_reply_short(token: Token, handler: u8, flags: Flags, args: &[i32]) -> bool {
    let (Some(state), Some(token)) = (state::get(), current::current(token)) else { return false };
    !checks::ON
        && is_usual(handler, flags)
        && state.inner.try_reply_short::<M>(token, handler, args)
}

#[inline(never)]
fn request_after_check<const N: usize, const TRACED: bool>(
    tm: Handle,
    rank: u32,
    handler: u8,
    flags: Flags,
    args: [i32; N],
) -> c_int {
    if try_request_short::<true, TRACED>(tm, rank, handler, flags, &args) {
        return fail::OK;
    }
    request_short(tm, rank, handler, flags, &args)
}

/// The first attempt while messages are traced: each step is a function of its own, so that this one
/// saves no registers. Entry points ask which it is, because [`request_after_check`] saves six:
/// beside them a message of a flood waited for its stores.
#[inline(never)]
fn request_traced<const N: usize>(
    tm: Handle,
    rank: u32,
    handler: u8,
    flags: Flags,
    args: [i32; N],
) -> c_int {
    if try_request_short::<false, true>(tm, rank, handler, flags, &args) {
        return fail::OK;
    }
    request_after_check::<N, true>(tm, rank, handler, flags, args)
}

/// A Short with everything that may be in the way.
#[inline(never)]
fn request_short(tm: Handle, rank: u32, handler: u8, flags: Flags, args: &[i32]) -> c_int {
    short("gex_AM_RequestShort", || receiver(tm, rank), handler, flags, || Ok(args))
}

#[inline(never)]
fn reply_short(token: Token, handler: u8, flags: Flags, args: &[i32]) -> c_int {
    short("gex_AM_ReplyShort", || sender(token), handler, flags, || Ok(args))
}

#[inline(always)]
fn short<'a>(
    call: &'static str,
    peer: impl FnOnce() -> Result<Peer, Fail>,
    handler: u8,
    flags: Flags,
    args: impl FnOnce() -> Result<&'a [i32], Fail>,
) -> c_int {
    status(call, || {
        let args = args()?;
        check_index(handler)?;
        misuse::flags(flags, misuse::MESSAGE_FLAGS)?;
        let (state, peer) = (state::open()?, peer()?);
        peer.claim(call)?;
        let message = peer.message(handler, args, AmPayload::None);
        Ok(sent(state.inner.send::<M>(call, peer.token, &message, options(flags), &())?))
    })
}

/// Shorts with few arguments, which come in registers. The rest of the work is in other functions,
/// so that these save nothing.
macro_rules! shorts {
    ($($request:ident, $reply:ident, [$($arg:ident),*];)*) => {$(
        #[unsafe(no_mangle)]
        pub extern "C" fn $request(
            tm: Handle,
            rank: u32,
            handler: u8,
            flags: Flags,
            $($arg: i32,)*
        ) -> c_int {
            if try_request_short::<false, false>(tm, rank, handler, flags, &[$($arg),*]) {
                return fail::OK;
            }
            if traces_messages() {
                return request_traced(tm, rank, handler, flags, [$($arg),*]);
            }
            request_after_check::<_, false>(tm, rank, handler, flags, [$($arg),*])
        }

        #[unsafe(no_mangle)]
        pub extern "C" fn $reply(token: Token, handler: u8, flags: Flags, $($arg: i32,)*) -> c_int {
            if try_reply_short(token, handler, flags, &[$($arg),*]) {
                return fail::OK;
            }
            reply_short(token, handler, flags, &[$($arg),*])
        }
    )*};
}

shorts! {
    gexi_AM_RequestShort0, gexi_AM_ReplyShort0, [];
    gexi_AM_RequestShort1, gexi_AM_ReplyShort1, [a];
    gexi_AM_RequestShort2, gexi_AM_ReplyShort2, [a, b];
    gexi_AM_RequestShort3, gexi_AM_ReplyShort3, [a, b, c];
}

/// A message with payload, as a program gives it.
struct Message {
    handler: u8,
    source: *const c_void,
    nbytes: usize,
    lc_opt: *mut EventValue,
    flags: Flags,
    nargs: c_uint,
    argv: *const i32,
}

impl Message {
    #[inline(always)]
    fn send_medium(
        &self,
        call: &'static str,
        peer: impl FnOnce() -> Result<Peer, Fail>,
    ) -> Result<Outcome, Fail> {
        check_index(self.handler)?;
        misuse::flags(self.flags, misuse::MESSAGE_FLAGS)?;
        let (state, peer) = (state::open()?, peer()?);
        let args = args(self.nargs, self.argv)?;
        let bytes = payload(self.source, self.nbytes, max_medium(args.len()))?;
        completion(self.lc_opt, peer.token.is_none())?;
        peer.claim(call)?;
        self.send(call, (state, peer), args, AmPayload::Medium(bytes))
    }

    #[inline(always)]
    fn send_long(
        &self,
        call: &'static str,
        peer: impl FnOnce() -> Result<Peer, Fail>,
        dest: *const c_void,
    ) -> Result<Outcome, Fail> {
        check_index(self.handler)?;
        misuse::flags(self.flags, misuse::MESSAGE_FLAGS)?;
        let (state, peer) = (state::open()?, peer()?);
        let args = args(self.nargs, self.argv)?;
        let most = if peer.token.is_some() { max_reply_long() } else { MAX_LONG };
        let bytes = payload(self.source, self.nbytes, most)?;
        completion(self.lc_opt, peer.token.is_none())?;
        peer.check(state, call)?;
        peer.claim(call)?;
        let AmMessage { class, target, .. } = peer.message(self.handler, args, AmPayload::None);
        if self.flags & IMMEDIATE != 0 && !state.inner.has_room::<M>(target, class, args.len()) {
            peer.unclaim();
            return Ok(Outcome::NotSent);
        }
        let placed = place_long(state, (target, peer.rank()), bytes, dest.addr());
        let payload = match placed.inspect_err(|_| peer.unclaim())? {
            Destination::Offset(dest) => AmPayload::Long { payload: bytes, dest },
            _ => AmPayload::Placed {
                len: u32::try_from(bytes.len()).unwrap_or(u32::MAX),
                dest: dest.addr() as u64,
            },
        };
        self.send(call, (state, peer), args, payload)
    }

    #[inline(always)]
    fn send(
        &self,
        call: &'static str,
        (state, peer): (&State, Peer),
        args: &[i32],
        payload: AmPayload<'_>,
    ) -> Result<Outcome, Fail> {
        let message = peer.message(self.handler, args, payload);
        let leaf = Leaf::new(state.inner, call, self.lc_opt);
        let (token, options) = (peer.token, options(self.flags));
        leaf.settle(state.inner.send::<M>(call, token, &message, options, &leaf))
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gexi_AM_RequestShort(
    tm: Handle,
    rank: u32,
    handler: u8,
    flags: Flags,
    nargs: c_uint,
    argv: *const i32,
) -> c_int {
    short("gex_AM_RequestShort", || receiver(tm, rank), handler, flags, || args(nargs, argv))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gexi_AM_ReplyShort(
    token: Token,
    handler: u8,
    flags: Flags,
    nargs: c_uint,
    argv: *const i32,
) -> c_int {
    short("gex_AM_ReplyShort", || sender(token), handler, flags, || args(nargs, argv))
}

/// Messages with payload: whom they go to, and how they are sent.
macro_rules! messages {
    ($($name:ident, $call:literal, $peer:ident($($who:ident: $type:ty),*),
        $send:ident $(, $dest:ident)?;)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            $($who: $type,)*
            handler: u8,
            source: *const c_void,
            nbytes: usize,
            $($dest: *mut c_void,)?
            lc_opt: *mut EventValue,
            flags: Flags,
            nargs: c_uint,
            argv: *const i32,
        ) -> c_int {
            let message = Message { handler, source, nbytes, lc_opt, flags, nargs, argv };
            status($call, || {
                message.$send($call, || $peer($($who),*) $(, $dest)?).map(sent)
            })
        }
    )*};
}

messages! {
    gexi_AM_RequestMedium, "gex_AM_RequestMedium", receiver(tm: Handle, rank: u32), send_medium;
    gexi_AM_RequestLong, "gex_AM_RequestLong", receiver(tm: Handle, rank: u32), send_long, dest;
    gexi_AM_ReplyMedium, "gex_AM_ReplyMedium", sender(token: Token), send_medium;
    gexi_AM_ReplyLong, "gex_AM_ReplyLong", sender(token: Token), send_long, dest;
}

/// Largest payload of a Long reply.
fn reply_long_limit(flags: Flags, nargs: c_uint) -> Result<usize, Fail> {
    Ok(long_limit(flags, nargs)?.min(max_reply_long()))
}

/// The same for any number of arguments: where segments may lack keys, only a message brings it.
fn max_reply_long() -> usize {
    let fast = state::get().is_none_or(|state| state.inner.segment_mode().is_fast());
    if fast { MAX_LONG } else { MAX_CARRIED }
}

/// Checks the other side of a message whose limit is asked for; the job's ranks are all alike.
fn some_receiver(tm: Handle, rank: u32) -> Result<Peer, Fail> {
    receiver(tm, if rank == RANK_INVALID { 0 } else { rank })
}

macro_rules! limits {
    ($($name:ident, $peer:ident($($who:ident: $type:ty),*), $limit:ident;)*) => {$(
        #[unsafe(no_mangle)]
        pub extern "C" fn $name(
            $($who: $type,)*
            _lc_opt: *const EventValue,
            flags: Flags,
            nargs: c_uint,
        ) -> usize {
            value(stringify!($name), 0, || $peer($($who),*).and_then(|_| $limit(flags, nargs)))
        }
    )*};
}

limits! {
    gex_AM_MaxRequestMedium, some_receiver(tm: Handle, rank: u32), medium_limit;
    gex_AM_MaxReplyMedium, some_receiver(tm: Handle, rank: u32), medium_limit;
    gex_AM_MaxRequestLong, some_receiver(tm: Handle, rank: u32), long_limit;
    gex_AM_MaxReplyLong, some_receiver(tm: Handle, rank: u32), reply_long_limit;
    gex_Token_MaxReplyMedium, sender(token: Token), medium_limit;
    gex_Token_MaxReplyLong, sender(token: Token), reply_long_limit;
}

macro_rules! least_upper_bounds {
    ($($name:ident = $value:expr;)*) => {$(
        #[unsafe(no_mangle)]
        pub extern "C" fn $name() -> usize {
            $value
        }
    )*};
}

least_upper_bounds! {
    gex_AM_LUBRequestMedium = LUB_MEDIUM;
    gex_AM_LUBReplyMedium = LUB_MEDIUM;
    gex_AM_LUBRequestLong = LUB_LONG;
    gex_AM_LUBReplyLong = max_reply_long();
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gex_Token_Info(
    token: Token,
    info: *mut TokenInfo,
    mask: c_uint,
) -> c_uint {
    value("gex_Token_Info", 0, || {
        let raw = current::get(token)?;
        check_place(info)?;
        let entry = raw.foreign_context().map_or(std::ptr::null(), CHandler::entry);
        let found = TokenInfo {
            srcrank: raw.source().0,
            ep: state::open()?.ep0.object.handle(),
            entry,
            is_req: c_int::from(raw.is_request()),
            is_long: c_int::from(raw.is_long()),
        };
        answer(info, found);
        Ok(mask & TI_ALL | 17)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn gasnet_AMPoll() -> c_int {
    let Some(state) = state::get().filter(|_| !checks::ON) else { return poll_slow() };
    let Some(count) = state.inner.try_poll_shm::<M>() else { return poll_slow() };
    if count > 0 {
        tools::progressed();
    }
    state.collectives.advance();
    fail::OK
}

/// A poll with the network, or that fails.
#[inline(never)]
fn poll_slow() -> c_int {
    let call = "gasnet_AMPoll";
    code(call, || {
        let state = state::open()?;
        if state.inner.poll::<M>(call)? > 0 {
            tools::progressed();
        }
        state.collectives.advance();
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gexi1_wrong_count(
    call: *const c_char,
    stated: c_int,
    given: c_int,
) -> c_int {
    string(call).map_or(BAD_ARG, |call| {
        Fail::bad(format!("{stated} arguments stated, {given} given")).report(&call)
    })
}
