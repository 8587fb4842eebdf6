//! Messages with a negotiated payload. A thread has at most one prepared message; its descriptor is the address of the
//! draft. The core's own drafts borrow the program's buffer, which a C program may still write to: so these are ours.

use std::cell::{Cell, RefCell};
use std::ffi::{c_int, c_uint, c_void};

use super::am::{args, completion, limits, options};
use super::fail::{self, Fail, code, must, value};
use super::types::{COMMIT_MUST, EventValue, Flags, IMMEDIATE};
use super::{M, am, far, state, token};
use crate::error::Error;
use crate::token::RawToken;
use crate::transport::message::Block;
use crate::transport::message::MessageClass;
use crate::transport::message::{self, Outcome};
use crate::transport::message::{AmMessage, AmPayload};
use crate::transport::net::SendBuffer;
use crate::wait::Waiter;

enum Buffer {
    /// The program's.
    Client(*const u8),
    /// Where the receiver's handler will see it.
    Block(Block, *mut u8),
    Owned(Box<[u8]>),
    /// The network's, for a remote rank.
    Far(Cell<Option<SendBuffer>>),
}

struct Draft {
    kind: Kind,
    /// For a reply: the request's token.
    token: Option<&'static RawToken<'static>>,
    rank: u32,
    target: usize,
    buffer: Buffer,
    size: usize,
    nargs: usize,
    /// Destination given at prepare.
    dest: usize,
    lc_opt: *mut EventValue,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Kind {
    class: MessageClass,
    long: bool,
}

const REQUEST_MEDIUM: Kind = Kind { class: MessageClass::Request, long: false };
const REPLY_MEDIUM: Kind = Kind { class: MessageClass::Reply, long: false };
const REQUEST_LONG: Kind = Kind { class: MessageClass::Request, long: true };
const REPLY_LONG: Kind = Kind { class: MessageClass::Reply, long: true };

thread_local! {
    static DRAFT: RefCell<Option<Box<Draft>>> = const { RefCell::new(None) };
}

/// Takes this thread's draft out, when it is the one named and of this kind.
fn take(descriptor: *const c_void, kind: Option<Kind>) -> Result<Box<Draft>, Fail> {
    DRAFT.with_borrow_mut(|slot| {
        let named = slot.as_deref().filter(|draft| {
            std::ptr::eq(std::ptr::from_ref(*draft).cast(), descriptor)
                && kind.is_none_or(|kind| kind == draft.kind)
        });
        if named.is_none() {
            return Err(Fail::bad(
                "not the descriptor that this thread prepared for this kind of message",
            ));
        }
        if named.is_some_and(Draft::is_stale) {
            *slot = None;
            return Err(Fail::bad("the handler that prepared this reply has returned"));
        }
        slot.take().ok_or_else(|| Fail::bad("no message is prepared"))
    })
}

fn put_back(draft: Box<Draft>) {
    DRAFT.set(Some(draft));
}

/// What a prepare asks for.
struct Terms {
    kind: Kind,
    client_buf: *const c_void,
    least: usize,
    most: usize,
    dest: usize,
    lc_opt: *mut EventValue,
    flags: Flags,
    nargs: c_uint,
}

impl Terms {
    /// The size to give.
    fn settle(&self, call: &'static str) -> Result<usize, Fail> {
        let own = self.client_buf.is_null();
        let which = if own { super::types::LEAST_ALLOC } else { super::types::LEAST_CLIENT };
        let max = if self.kind.long {
            limits::long(which, self.nargs)?
        } else {
            limits::medium(which, self.nargs)?
        };
        let (least, most) = (self.least, self.most);
        if least > most {
            return Err(Error::PayloadBounds { call, least, most }.into());
        }
        if least > max {
            return Err(Error::PayloadSize { call, len: least, max }.into());
        }
        if own && !self.lc_opt.is_null() {
            return Err(Fail::bad("lc_opt must be null with a buffer of the library"));
        }
        if !own {
            completion(self.lc_opt, self.kind.class == MessageClass::Request)?;
        }
        DRAFT.with_borrow_mut(|slot| {
            if slot.as_deref().is_some_and(Draft::is_stale) {
                *slot = None;
            }
        });
        if DRAFT.with_borrow(Option::is_some) {
            return Err(Fail::bad("this thread has a prepared message already"));
        }
        Ok(most.min(max))
    }

    /// `None`: not without waiting.
    fn buffer(
        &self,
        call: &'static str,
        target: usize,
        size: usize,
    ) -> Result<Option<Buffer>, Fail> {
        if !self.client_buf.is_null() {
            return Ok(Some(Buffer::Client(self.client_buf.cast())));
        }
        let (core, class) = (state::open()?.core, self.kind.class);
        let mut waiter = Waiter::for_room();
        let near = core.is_near(target);
        let owned = || Ok(Some(Buffer::Owned(vec![0; size].into_boxed_slice())));
        loop {
            let far = || core.remote()?.buffer::<M>(class == MessageClass::Reply);
            if !near && let Some(buffer) = far() {
                return Ok(Some(Buffer::Far(Cell::new(Some(buffer)))));
            }
            // Memory of its own will do for a Long, which is copied where it goes.
            if self.kind.long {
                return owned();
            }
            if near && let Some(block) = core.allocate::<M>(class, size) {
                let memory = core.memory().block_payload(core.local(), class as usize, block, size);
                if let Some(memory) = memory {
                    return Ok(Some(Buffer::Block(block, memory.as_mut_ptr())));
                }
                core.forget::<M>(class, block);
                return Err(Fail::bad("the payload does not fit a buffer"));
            }
            if self.flags & IMMEDIATE != 0 {
                return Ok(None);
            }
            if class == MessageClass::Reply {
                // A reply never waits.
                return owned();
            }
            core.wait_for_room::<M>(call, &mut waiter)?;
        }
    }

    fn draft(
        self,
        call: &'static str,
        target: usize,
        token: Option<&'static RawToken<'static>>,
    ) -> Result<*const c_void, Fail> {
        let size = self.settle(call)?;
        if let Some(token) = token {
            token.claim(call)?;
        }
        let Some(buffer) = self.buffer(call, target, size)? else {
            if let Some(token) = token {
                token.unclaim();
            }
            return Ok(std::ptr::null());
        };
        let Self { kind, dest, lc_opt, .. } = self;
        let nargs = self.nargs as usize;
        let rank = state::open()?.core.rank_of(target).0;
        let draft =
            Box::new(Draft { kind, token, rank, target, buffer, size, nargs, dest, lc_opt });
        let descriptor = std::ptr::from_ref(&*draft).cast();
        put_back(draft);
        Ok(descriptor)
    }
}

fn prepare_request(
    call: &'static str,
    tm: *const c_void,
    rank: u32,
    terms: Terms,
) -> *const c_void {
    let prepare = || {
        let state = state::open()?;
        let target = state.message_target(tm, rank)?;
        state.core.check_open(call)?;
        state.core.check_outside::<M>(call)?;
        terms.draft(call, target, None)
    };
    must(call, prepare())
}

fn prepare_reply(call: &'static str, token: *mut c_void, terms: Terms) -> *const c_void {
    let prepare = || {
        let token = token::get(token)?;
        terms.draft(call, token.source_target(), Some(token))
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
    let terms = Terms { kind, client_buf, least, most, dest, lc_opt, flags, nargs };
    prepare_request("gex_AM_PrepareRequestMedium", tm, rank, terms)
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
    let terms = Terms { kind, client_buf, least, most, dest, lc_opt, flags, nargs };
    prepare_reply("gex_AM_PrepareReplyMedium", token, terms)
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
    let terms = Terms { kind, client_buf, least, most, dest, lc_opt, flags, nargs };
    prepare_request("gex_AM_PrepareRequestLong", tm, rank, terms)
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
    let terms = Terms { kind, client_buf, least, most, dest, lc_opt, flags, nargs };
    prepare_reply("gex_AM_PrepareReplyLong", token, terms)
}

impl Draft {
    /// Whether this is a reply that a handler prepared and neither sent nor cancelled before it returned.
    fn is_stale(&self) -> bool {
        self.token
            .is_some_and(|token| token::get(std::ptr::from_ref(token).cast_mut().cast()).is_err())
    }

    fn address(&mut self) -> *mut u8 {
        match &mut self.buffer {
            Buffer::Client(at) => at.cast_mut(),
            Buffer::Block(_, at) => *at,
            Buffer::Owned(bytes) => bytes.as_mut_ptr(),
            Buffer::Far(buffer) => {
                let buffer = buffer.get_mut().as_mut();
                buffer.map_or(std::ptr::null_mut(), |buffer| buffer.bytes().as_mut_ptr())
            }
        }
    }

    fn check(&self, call: &'static str, nbytes: usize, given: usize) -> Result<(), Fail> {
        if given != self.nargs {
            return Err(Error::ArgCount { call, given, promised: self.nargs }.into());
        }
        if nbytes > self.size {
            return Err(Error::PayloadSize { call, len: nbytes, max: self.size }.into());
        }
        Ok(())
    }

    fn send(
        &mut self,
        call: &'static str,
        message: &Commit<'_>,
        flags: Flags,
    ) -> Result<Outcome, Fail> {
        let Commit { handler, nbytes, dest, args } = *message;
        am::check_index(handler)?;
        self.check(call, nbytes, args.len())?;
        if self.dest != 0 && self.dest != dest.addr() {
            return Err(Error::DestinationChanged { call }.into());
        }
        let state = state::open()?;
        let (core, target, class, lc_opt) = (state.core, self.target, self.kind.class, self.lc_opt);
        if flags & IMMEDIATE != 0 && !core.has_room::<M>(target, class, args.len()) {
            return Ok(Outcome::NotSent);
        }
        let at = self.address();
        let len = u32::try_from(nbytes).unwrap_or(u32::MAX);
        let payload = match &self.buffer {
            Buffer::Far(buffer) => {
                let long = self.kind.long.then(|| am::far_offset(state, self.rank, dest, nbytes));
                AmPayload::SendBuffer { buffer, len, dest: long.transpose()? }
            }
            _ if self.kind.long => am::landed(state, self.rank, at.cast(), nbytes, dest)?,
            Buffer::Block(block, _) => AmPayload::Block { block: *block, len },
            Buffer::Client(_) | Buffer::Owned(_) => {
                AmPayload::Medium(am::payload(at.cast(), nbytes, message::max_medium(self.nargs))?)
            }
        };
        let message = AmMessage { class, target, handler, args, payload };
        far::send(state, call, &message, lc_opt, options(flags), |message| {
            let Some(token) = self.token else {
                return Ok(core.request::<M>(call, message, options(flags))?);
            };
            if token.post::<M>(message) {
                return Ok(Outcome::Sent);
            }
            if flags & IMMEDIATE != 0 {
                return Ok(Outcome::NotSent);
            }
            token.defer(message);
            Ok(Outcome::Sent)
        })
    }

    fn cancel(self) -> Result<(), Fail> {
        if let Buffer::Block(block, _) = self.buffer {
            state::open()?.core.forget::<M>(self.kind.class, block);
        }
        if let Some(token) = self.token {
            token.unclaim();
        }
        Ok(())
    }
}

#[derive(Clone, Copy)]
struct Commit<'a> {
    handler: u8,
    nbytes: usize,
    dest: *const c_void,
    args: &'a [i32],
}

fn commit(
    call: &'static str,
    descriptor: *const c_void,
    kind: Kind,
    message: Result<Commit<'_>, Fail>,
    flags: Flags,
) -> c_int {
    let commit = || {
        let message = message?;
        let mut draft = take(descriptor, Some(kind))?;
        match draft.send(call, &message, flags) {
            Ok(Outcome::Sent) => Ok(fail::OK),
            Ok(Outcome::NotSent) => {
                put_back(draft);
                Ok(1)
            }
            Err(fail) => {
                put_back(draft);
                Err(fail)
            }
        }
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
                args(nargs, argv).map(|args| Commit { handler, nbytes, dest: place, args });
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
                (*take(descriptor, Some($kind))?).cancel()
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
        let mut draft = take(descriptor, None)?;
        let address = draft.address().cast();
        put_back(draft);
        Ok(address)
    };
    value("gex_AM_SrcDescAddr", std::ptr::null_mut(), address())
}

#[unsafe(no_mangle)]
pub extern "C" fn gex_AM_SrcDescSize(descriptor: *const c_void) -> usize {
    let size = || {
        let draft = take(descriptor, None)?;
        let size = draft.size;
        put_back(draft);
        Ok(size)
    };
    value("gex_AM_SrcDescSize", 0, size())
}
