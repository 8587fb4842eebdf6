//! Messages with a negotiated payload. A thread has at most one prepared message; its descriptor is
//! the address of what is kept of it here. The message itself is the conduit's, which does not know
//! where the program's buffer is.

use std::cell::RefCell;
use std::ffi::{c_int, c_uint, c_void};
use std::ptr::{null, null_mut};

use gasnet_ibv::Outcome;
use gasnet_ibv::inner::{Commit, Destination, MAX_LONG, Prepared, RawToken, Terms};

use crate::am::{Peer, receiver, sender, sent};
use crate::arguments::{
    args, check_index, completion, long_limit, medium_limit, no_flags, options, payload,
};
use crate::current::{self, Sender};
use crate::events::Leaf;
use crate::fail::{Fail, code, ensure, must, status, value};
use crate::state::{self, State};
use crate::transfer::place_long;
use crate::types::{COMMIT_MUST, EventValue, Flags, Handle, Token};
use crate::{M, checks};

/// A prepared message and what the program gave for it.
struct Descriptor {
    kind: Kind,
    prepared: Prepared,
    peer: Peer,
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

/// Keeps a message as the one that this thread has prepared.
fn keep(held: Box<Descriptor>) {
    checks::prepared(true);
    PREPARED.set(Some(held));
}

/// Takes this thread's prepared message out, when it is the one named and of this kind.
fn take(descriptor: *const c_void, kind: Option<Kind>) -> Result<Box<Descriptor>, Fail> {
    PREPARED.with_borrow_mut(|slot| {
        let named = |held: &mut Box<Descriptor>| {
            std::ptr::eq(std::ptr::from_ref(&**held).cast(), descriptor)
                && kind.is_none_or(|kind| kind == held.kind)
        };
        let held = slot.take_if(named).ok_or_else(|| {
            Fail::bad("not the descriptor that this thread prepared for this kind of message")
        })?;
        checks::prepared(false);
        if held.is_stale() {
            held.give_back();
            return Err(Fail::bad("the handler that prepared this reply has returned"));
        }
        Ok(held)
    })
}

/// What a prepare asks for, as a program gives it.
struct Request {
    kind: Kind,
    client_buf: *const c_void,
    least: usize,
    most: usize,
    dest: usize,
    lc_opt: *mut EventValue,
    flags: Flags,
    nargs: c_uint,
}

impl Request {
    fn check(&self) -> Result<(), Fail> {
        let limit = if self.kind.long { long_limit } else { medium_limit };
        limit(0, self.nargs)?;
        if !self.client_buf.is_null() {
            completion(self.lc_opt, !self.kind.reply)?;
        } else if !self.lc_opt.is_null() {
            return Err(Fail::bad("lc_opt must be null with a buffer of the library"));
        }
        PREPARED.with_borrow_mut(|slot| {
            if let Some(stale) = slot.take_if(|held| held.is_stale()) {
                checks::prepared(false);
                stale.give_back();
            }
            ensure!(slot.is_none(), "this thread has a prepared message already");
            Ok(())
        })
    }

    /// The descriptor; null when that is not possible without waiting.
    fn prepare(self, call: &'static str, peer: Peer) -> Result<*const c_void, Fail> {
        let Self { kind, client_buf, least, most, dest, lc_opt, flags, nargs } = self;
        let state = state::open()?;
        peer.check(state, call)?;
        self.check()?;
        let terms = Terms {
            call,
            long: kind.long,
            // How long the program's buffer is, it knows itself.
            client: (!client_buf.is_null()).then_some(usize::MAX),
            least,
            most,
            nargs: nargs as usize,
            dest: (dest != 0).then_some(dest as u64),
        };
        let Peer { target, token, .. } = peer;
        let prepared = Prepared::new::<M>(&state.inner, target, token, &terms, options(flags))?;
        let Some(prepared) = prepared else { return Ok(null()) };
        let held = Box::new(Descriptor { kind, prepared, peer, client_buf, lc_opt });
        let descriptor = std::ptr::from_ref(&*held).cast();
        keep(held);
        Ok(descriptor)
    }
}

macro_rules! prepare {
    ($($name:ident, $kind:ident, $peer:ident($($who:ident: $type:ty),*) $(, $dest:ident)?;)*) => {$(
        #[unsafe(no_mangle)]
        pub extern "C" fn $name(
            $($who: $type,)*
            client_buf: *const c_void,
            least: usize,
            most: usize,
            $($dest: *mut c_void,)?
            lc_opt: *mut EventValue,
            flags: Flags,
            nargs: c_uint,
        ) -> *const c_void {
            let dest = 0 $(+ $dest.addr())?;
            let request =
                Request { kind: $kind, client_buf, least, most, dest, lc_opt, flags, nargs };
            let call = stringify!($name);
            must(call, || $peer($($who),*).and_then(|peer| request.prepare(call, peer)))
        }
    )*};
}

prepare! {
    gex_AM_PrepareRequestMedium, REQUEST_MEDIUM, receiver(tm: Handle, rank: u32);
    gex_AM_PrepareReplyMedium, REPLY_MEDIUM, sender(token: Token);
    gex_AM_PrepareRequestLong, REQUEST_LONG, receiver(tm: Handle, rank: u32), dest;
    gex_AM_PrepareReplyLong, REPLY_LONG, sender(token: Token), dest;
}

impl Descriptor {
    /// Whether this is a reply that a handler prepared and neither sent nor cancelled before it
    /// returned. The next token may be at the same address; its right to reply is not taken.
    fn is_stale(&self) -> bool {
        let handle = |token: Sender| std::ptr::from_ref(token).cast_mut().cast();
        let live = |token| current::current(handle(token)).is_some_and(RawToken::has_replied);
        self.peer.token.is_some_and(|token| !live(token))
    }

    /// Gives the buffer of a stale one back.
    fn give_back(mut self) {
        if let Ok(state) = state::open() {
            self.prepared.cancel::<M>(&state.inner, None);
        }
    }

    /// The first bytes of the program's buffer.
    fn client<'b>(&self, nbytes: usize) -> Result<&'b [u8], Fail> {
        if self.client_buf.is_null() { Ok(&[]) } else { payload(self.client_buf, nbytes, MAX_LONG) }
    }

    fn commit(&mut self, call: &'static str, message: &Message) -> Result<Outcome, Fail> {
        let Message { handler, nbytes, dest, flags, nargs, argv } = *message;
        let args = args(nargs, argv)?;
        check_index(handler)?;
        let given = self.kind.long.then_some(dest as u64);
        self.prepared.check(call, nbytes, given, args.len())?;
        let (state, client) = (state::open()?, self.client(nbytes)?);
        let dest = self.destination(state, dest, client, nbytes)?;
        let commit = Commit { call, handler, nbytes, dest, args };
        let leaf = Leaf::new(state.inner, call, self.lc_opt);
        let (token, options) = (self.peer.token, options(flags));
        let prepared = &mut self.prepared;
        leaf.settle(prepared.commit::<M>(&state.inner, token, &commit, client, options, &leaf))
    }

    fn destination(
        &mut self,
        state: &State,
        dest: usize,
        client: &[u8],
        nbytes: usize,
    ) -> Result<Destination, Fail> {
        if !self.kind.long {
            return Ok(Destination::Handler);
        }
        let bytes = if self.client_buf.is_null() {
            self.prepared.buffer_mut(&state.inner).get(..nbytes).unwrap_or_default()
        } else {
            client
        };
        place_long(state, (self.peer.target, self.peer.rank()), bytes, dest)
    }
}

/// What a commit adds, as a program gives it.
struct Message {
    handler: u8,
    nbytes: usize,
    dest: usize,
    flags: Flags,
    nargs: c_uint,
    argv: *const i32,
}

fn commit(call: &'static str, descriptor: *const c_void, kind: Kind, message: &Message) -> c_int {
    let commit = || {
        let mut held = take(descriptor, Some(kind))?;
        let outcome = held.commit(call, message);
        if !matches!(outcome, Ok(Outcome::Sent)) {
            keep(held);
        }
        outcome.map(sent)
    };
    if message.flags & COMMIT_MUST != 0 { must(call, commit) } else { status(call, commit) }
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
            let dest = 0 $(+ $dest.addr())?;
            commit($call, descriptor, $kind, &Message { handler, nbytes, dest, flags, nargs, argv })
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
            code(stringify!($name), || {
                no_flags(flags)?;
                let mut held = take(descriptor, Some($kind))?;
                held.prepared.cancel::<M>(&state::open()?.inner, held.peer.token);
                Ok(())
            })
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
    value("gex_AM_SrcDescAddr", null_mut(), || {
        let mut held = take(descriptor, None)?;
        let address = if held.client_buf.is_null() {
            held.prepared.buffer_mut(&state::open()?.inner).as_mut_ptr().cast()
        } else {
            held.client_buf.cast_mut()
        };
        keep(held);
        Ok(address)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn gex_AM_SrcDescSize(descriptor: *const c_void) -> usize {
    value("gex_AM_SrcDescSize", 0, || {
        let held = take(descriptor, None)?;
        let size = held.prepared.size();
        keep(held);
        Ok(size)
    })
}
