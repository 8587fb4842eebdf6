//! Messages with a negotiated payload. A thread has at most one prepared message; its descriptor is
//! the address of what is kept of it here. The message itself is the conduit's, which does not know
//! where the program's buffer is.

use std::cell::RefCell;
use std::ffi::{c_int, c_uint, c_void};

use gasnet_ibv::Outcome;
use gasnet_ibv::inner::{Commit, Destination, MAX_LONG, Prepared, RawToken, Terms};

use crate::arguments::{args, check_index, completion, long_limit, medium_limit, options, payload};
use crate::events::Leaf;
use crate::fail::{self, Fail, code, must, value};
use crate::types::{COMMIT_MUST, EventValue, Flags};
use crate::{M, current, state, transfer};

/// A prepared message and what the program gave for it.
struct Descriptor {
    kind: Kind,
    prepared: Prepared,
    /// For a reply: the request's token.
    token: Option<&'static RawToken<'static>>,
    rank: u32,
    /// The program's buffer, null without one.
    client_buf: *const c_void,
    lc_opt: *mut EventValue,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Kind {
    reply: bool,
    long: bool,
}

const REQUEST_MEDIUM: Kind = Kind { reply: false, long: false };
const REPLY_MEDIUM: Kind = Kind { reply: true, long: false };
const REQUEST_LONG: Kind = Kind { reply: false, long: true };
const REPLY_LONG: Kind = Kind { reply: true, long: true };

thread_local! {
    static PREPARED: RefCell<Option<Box<Descriptor>>> = const { RefCell::new(None) };
}

/// Takes this thread's prepared message out, when it is the one named and of this kind.
fn take(descriptor: *const c_void, kind: Option<Kind>) -> Result<Box<Descriptor>, Fail> {
    PREPARED.with_borrow_mut(|slot| {
        let named = slot.as_deref().is_some_and(|held| {
            std::ptr::eq(std::ptr::from_ref(held).cast(), descriptor)
                && kind.is_none_or(|kind| kind == held.kind)
        });
        if !named {
            return Err(Fail::bad(
                "not the descriptor that this thread prepared for this kind of message",
            ));
        }
        if drop_stale(slot) {
            return Err(Fail::bad("the handler that prepared this reply has returned"));
        }
        slot.take().ok_or_else(|| Fail::bad("no message is prepared"))
    })
}

/// Gives back the buffer of a reply that its handler neither sent nor cancelled before it returned;
/// whether there was one.
fn drop_stale(slot: &mut Option<Box<Descriptor>>) -> bool {
    let Some(mut stale) = slot.take_if(|held| held.is_stale()) else { return false };
    if let Ok(state) = state::open() {
        stale.prepared.cancel::<M>(&state.inner, None);
    }
    true
}

fn put_back(held: Box<Descriptor>) {
    PREPARED.set(Some(held));
}

/// What a prepare asks for.
struct Wish {
    kind: Kind,
    client_buf: *const c_void,
    least: usize,
    most: usize,
    dest: usize,
    lc_opt: *mut EventValue,
    flags: Flags,
    nargs: c_uint,
}

impl Wish {
    fn check(&self) -> Result<(), Fail> {
        let own = self.client_buf.is_null();
        let limit = if self.kind.long { long_limit } else { medium_limit };
        limit(0, self.nargs)?;
        if own && !self.lc_opt.is_null() {
            return Err(Fail::bad("lc_opt must be null with a buffer of the library"));
        }
        if !own {
            completion(self.lc_opt, !self.kind.reply)?;
        }
        PREPARED.with_borrow_mut(|slot| {
            drop_stale(slot);
            if slot.is_some() {
                return Err(Fail::bad("this thread has a prepared message already"));
            }
            Ok(())
        })
    }

    fn terms(&self, call: &'static str) -> Terms {
        let Self { kind: Kind { long, .. }, least, most, dest, .. } = *self;
        // How long the program's buffer is, it knows itself.
        let client = (!self.client_buf.is_null()).then_some(usize::MAX);
        let (nargs, dest) = (self.nargs as usize, (dest != 0).then_some(dest as u64));
        Terms { call, long, client, least, most, nargs, dest }
    }

    /// The descriptor; null when that is not possible without waiting.
    fn prepare(
        self,
        call: &'static str,
        rank: u32,
        token: Option<&'static RawToken<'static>>,
    ) -> Result<*const c_void, Fail> {
        self.check()?;
        let inner = state::open()?.inner;
        let target = match token {
            Some(token) => inner.reply_target(token),
            None => inner.target(call, rank)?,
        };
        let terms = self.terms(call);
        let prepared = inner.prepare::<M>(target, token, &terms, options(self.flags))?;
        let Some(prepared) = prepared else { return Ok(std::ptr::null()) };
        let Self { kind, client_buf, lc_opt, .. } = self;
        let held = Box::new(Descriptor { kind, prepared, token, rank, client_buf, lc_opt });
        let descriptor = std::ptr::from_ref(&*held).cast();
        put_back(held);
        Ok(descriptor)
    }
}

fn prepare_request(call: &'static str, tm: *const c_void, rank: u32, wish: Wish) -> *const c_void {
    let prepare = || {
        let state = state::open()?;
        state.message_target(tm, rank)?;
        state.inner.check_open(call)?;
        state.inner.check_outside::<M>(call)?;
        wish.prepare(call, rank, None)
    };
    must(call, prepare())
}

fn prepare_reply(call: &'static str, token: *mut c_void, wish: Wish) -> *const c_void {
    let prepare = || {
        let token = current::get(token)?;
        wish.prepare(call, token.source().0, Some(token))
    };
    must(call, prepare())
}

#[unsafe(no_mangle)]
pub extern "C" fn gex_AM_PrepareRequestMedium(
    tm: *const c_void,
    rank: u32,
    client_buf: *const c_void,
    least: usize,
    most: usize,
    lc_opt: *mut EventValue,
    flags: Flags,
    nargs: c_uint,
) -> *const c_void {
    let (kind, dest) = (REQUEST_MEDIUM, 0);
    let wish = Wish { kind, client_buf, least, most, dest, lc_opt, flags, nargs };
    prepare_request("gex_AM_PrepareRequestMedium", tm, rank, wish)
}

#[unsafe(no_mangle)]
pub extern "C" fn gex_AM_PrepareReplyMedium(
    token: *mut c_void,
    client_buf: *const c_void,
    least: usize,
    most: usize,
    lc_opt: *mut EventValue,
    flags: Flags,
    nargs: c_uint,
) -> *const c_void {
    let (kind, dest) = (REPLY_MEDIUM, 0);
    let wish = Wish { kind, client_buf, least, most, dest, lc_opt, flags, nargs };
    prepare_reply("gex_AM_PrepareReplyMedium", token, wish)
}

#[unsafe(no_mangle)]
pub extern "C" fn gex_AM_PrepareRequestLong(
    tm: *const c_void,
    rank: u32,
    client_buf: *const c_void,
    least: usize,
    most: usize,
    dest: *mut c_void,
    lc_opt: *mut EventValue,
    flags: Flags,
    nargs: c_uint,
) -> *const c_void {
    let (kind, dest) = (REQUEST_LONG, dest.addr());
    let wish = Wish { kind, client_buf, least, most, dest, lc_opt, flags, nargs };
    prepare_request("gex_AM_PrepareRequestLong", tm, rank, wish)
}

#[unsafe(no_mangle)]
pub extern "C" fn gex_AM_PrepareReplyLong(
    token: *mut c_void,
    client_buf: *const c_void,
    least: usize,
    most: usize,
    dest: *mut c_void,
    lc_opt: *mut EventValue,
    flags: Flags,
    nargs: c_uint,
) -> *const c_void {
    let (kind, dest) = (REPLY_LONG, dest.addr());
    let wish = Wish { kind, client_buf, least, most, dest, lc_opt, flags, nargs };
    prepare_reply("gex_AM_PrepareReplyLong", token, wish)
}

impl Descriptor {
    /// Whether this is a reply that a handler prepared and neither sent nor cancelled before it
    /// returned.
    fn is_stale(&self) -> bool {
        let handle = |token: &RawToken<'_>| std::ptr::from_ref(token).cast_mut().cast();
        self.token.is_some_and(|token| current::get(handle(token)).is_err())
    }

    /// The first bytes of the program's buffer.
    fn client<'b>(&self, nbytes: usize) -> Result<&'b [u8], Fail> {
        if self.client_buf.is_null() { Ok(&[]) } else { payload(self.client_buf, nbytes, MAX_LONG) }
    }

    fn commit(
        &mut self,
        call: &'static str,
        message: &Message<'_>,
        flags: Flags,
    ) -> Result<Outcome, Fail> {
        let Message { handler, nbytes, dest, args } = *message;
        check_index(handler)?;
        let given = self.kind.long.then_some(dest.addr() as u64);
        self.prepared.check(call, nbytes, given, args.len())?;
        let (state, client) = (state::open()?, self.client(nbytes)?);
        let dest = self.destination(state, dest, client, nbytes)?;
        let commit = Commit { call, handler, nbytes, dest, args };
        let leaf = Leaf::new(state.inner, call, self.lc_opt);
        let (prepared, options) = (&mut self.prepared, options(flags));
        let sent = prepared.commit::<M>(&state.inner, self.token, &commit, client, options, &leaf);
        leaf.settle(sent)
    }

    fn destination(
        &mut self,
        state: &state::State,
        dest: *const c_void,
        client: &[u8],
        nbytes: usize,
    ) -> Result<Destination, Fail> {
        if !self.kind.long {
            return Ok(Destination::Handler);
        }
        let target = state.inner.prepared_target(&self.prepared);
        let bytes = if self.client_buf.is_null() {
            self.prepared.buffer_mut(&state.inner).get(..nbytes).unwrap_or_default()
        } else {
            client
        };
        transfer::place_long(state, (target, self.rank), bytes, dest)
    }
}

#[derive(Clone, Copy)]
struct Message<'a> {
    handler: u8,
    nbytes: usize,
    dest: *const c_void,
    args: &'a [i32],
}

fn commit(
    call: &'static str,
    descriptor: *const c_void,
    kind: Kind,
    message: Result<Message<'_>, Fail>,
    flags: Flags,
) -> c_int {
    let commit = || {
        let message = message?;
        let mut held = take(descriptor, Some(kind))?;
        let sent = held.commit(call, &message, flags);
        if !matches!(sent, Ok(Outcome::Sent)) {
            put_back(held);
        }
        Ok(if sent? == Outcome::Sent { fail::OK } else { 1 })
    };
    if flags & COMMIT_MUST != 0 {
        return must(call, commit());
    }
    commit().unwrap_or_else(|fail: Fail| fail.report(call))
}

macro_rules! commit {
    ($($name:ident, $call:literal, $kind:ident $(, $dest:ident)?;)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            descriptor: *const c_void,
            handler: u8,
            nbytes: usize,
            $($dest: *mut c_void,)?
            flags: Flags,
            nargs: c_uint,
            argv: *const i32,
        ) -> c_int {
            #[allow(unused_mut, unused_assignments)]
            let mut place: *const c_void = std::ptr::null();
            $(place = $dest;)?
            let message =
                args(nargs, argv).map(|args| Message { handler, nbytes, dest: place, args });
            commit($call, descriptor, $kind, message, flags)
        }
    )*};
}

commit! {
    gexi_AM_CommitRequestMedium, "gex_AM_CommitRequestMedium", REQUEST_MEDIUM;
    gexi_AM_CommitReplyMedium, "gex_AM_CommitReplyMedium", REPLY_MEDIUM;
    gexi_AM_CommitRequestLong, "gex_AM_CommitRequestLong", REQUEST_LONG, dest;
    gexi_AM_CommitReplyLong, "gex_AM_CommitReplyLong", REPLY_LONG, dest;
}

macro_rules! cancel {
    ($($name:ident, $kind:ident;)*) => {$(
        #[unsafe(no_mangle)]
        pub extern "C" fn $name(descriptor: *const c_void, flags: Flags) -> c_int {
            let cancel = || {
                if flags != 0 {
                    return Err(Fail::bad("flags must be 0"));
                }
                let mut held = take(descriptor, Some($kind))?;
                held.prepared.cancel::<M>(&state::open()?.inner, held.token);
                Ok(())
            };
            code(stringify!($name), cancel())
        }
    )*};
}

cancel! {
    gex_AM_CancelRequestMedium, REQUEST_MEDIUM;
    gex_AM_CancelReplyMedium, REPLY_MEDIUM;
    gex_AM_CancelRequestLong, REQUEST_LONG;
    gex_AM_CancelReplyLong, REPLY_LONG;
}

#[unsafe(no_mangle)]
pub extern "C" fn gex_AM_SrcDescAddr(descriptor: *const c_void) -> *mut c_void {
    let address = || {
        let mut held = take(descriptor, None)?;
        let address = if held.client_buf.is_null() {
            held.prepared.buffer_mut(&state::open()?.inner).as_mut_ptr().cast()
        } else {
            held.client_buf.cast_mut()
        };
        put_back(held);
        Ok(address)
    };
    value("gex_AM_SrcDescAddr", std::ptr::null_mut(), address())
}

#[unsafe(no_mangle)]
pub extern "C" fn gex_AM_SrcDescSize(descriptor: *const c_void) -> usize {
    let size = || {
        let held = take(descriptor, None)?;
        let size = held.prepared.size();
        put_back(held);
        Ok(size)
    };
    value("gex_AM_SrcDescSize", 0, size())
}
