//! What the specification forbids and the library lets pass: checked in the debug library only
//! (feature `debug`), where it ends the process with the call's name.
//!
//! * Each call says its name ([`enter`]): mode SEQ allows one thread, PARSYNC one at a time; inside
//!   a handler, with a handler-safe lock held, and between a prepare and its commit or cancel few
//!   calls are legal.
//! * Locks: `hsl.rs`. Events that were consumed, flags and local addresses: `misuse.rs`.
//! * Collective calls: `TeamRef::begins`.

use std::cell::RefCell;
use std::sync::atomic::{AtomicUsize, Ordering};

use gasnet_ibv::Mode;

use crate::M;
use crate::fail::{Fail, ensure};

/// Whether this is the debug library.
pub const ON: bool = cfg!(feature = "debug");

/// Where a call is legal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Legal {
    /// Everywhere.
    Anywhere,
    /// Also inside a handler, as long as it holds no lock.
    Replies,
    /// Also between a prepare and its end.
    Prepared,
    /// Outside handlers, without locks, with nothing prepared.
    Outside,
}

/// Beginnings of names, and where such calls are legal; the first that fits counts.
const RULES: [(&str, Legal); 28] = [
    ("gex_Segment_QueryBound", Legal::Outside),
    ("gex_System_QueryProgressThreads", Legal::Outside),
    ("gex_System_", Legal::Anywhere),
    ("gex_Client_Query", Legal::Anywhere),
    ("gex_Client_Set", Legal::Anywhere),
    ("gex_Segment_Query", Legal::Anywhere),
    ("gex_Segment_Set", Legal::Anywhere),
    ("gex_EP_Query", Legal::Anywhere),
    ("gex_EP_Set", Legal::Anywhere),
    ("gex_TM_Query", Legal::Anywhere),
    ("gex_TM_Set", Legal::Anywhere),
    ("gex_TM_Pair", Legal::Anywhere),
    ("gex_AD_Query", Legal::Anywhere),
    ("gex_AD_Set", Legal::Anywhere),
    ("gex_HSL_", Legal::Anywhere),
    ("gex_Token_", Legal::Anywhere),
    ("gex_AM_Max", Legal::Anywhere),
    ("gex_AM_LUB", Legal::Anywhere),
    ("gasnet_QueryGexObjects", Legal::Anywhere),
    ("gasnet_getenv", Legal::Anywhere),
    ("gasnet_getMax", Legal::Anywhere),
    ("gasnet_AMGetMsgSource", Legal::Anywhere),
    ("gex_AM_SrcDesc", Legal::Prepared),
    ("gex_AM_Commit", Legal::Prepared),
    ("gex_AM_Cancel", Legal::Prepared),
    ("gex_AM_Reply", Legal::Replies),
    ("gasnet_AMReply", Legal::Replies),
    ("gex_AM_PrepareReply", Legal::Replies),
];

impl Legal {
    fn of(call: &str) -> Self {
        let rule = RULES.iter().find(|(begin, _)| call.starts_with(begin));
        rule.map_or(Self::Outside, |(_, legal)| *legal)
    }

    /// Why a call may not be made where the thread is.
    fn refusal(self, context: &Context) -> Option<&'static str> {
        if self == Self::Anywhere {
            return None;
        }
        if !context.held.is_empty() {
            return Some("this thread holds a handler-safe lock (gex_HSL_Lock)");
        }
        if context.prepared && self != Self::Prepared {
            return Some("this thread has prepared a message: commit or cancel it first");
        }
        let inside = context.handlers > 0 && self == Self::Outside;
        inside.then_some("inside a handler, which may only reply and ask")
    }
}

/// Where a thread is.
#[derive(Debug)]
pub struct Context {
    /// Handlers that run.
    handlers: u32,
    /// Calls that run.
    calls: u32,
    /// It has prepared a message, and neither committed nor cancelled it.
    prepared: bool,
    /// Addresses of the handler-safe locks that it holds, in the order in which it took them.
    pub held: Vec<usize>,
}

thread_local! {
    static CONTEXT: RefCell<Context> =
        const { RefCell::new(Context { handlers: 0, calls: 0, prepared: false, held: Vec::new() }) };
}

/// Runs `call` with the thread's context; `None` when the thread is ending.
pub fn with<T>(call: impl FnOnce(&mut Context) -> T) -> Option<T> {
    CONTEXT.try_with(|context| call(&mut context.borrow_mut())).ok()
}

/// The thread that may call (SEQ), or that is inside (PARSYNC): the address of its context.
static OWNER: AtomicUsize = AtomicUsize::new(0);

fn check_thread(call: &str, (calls, handlers): (u32, u32)) -> Result<(), Fail> {
    let me = CONTEXT.with(|context| std::ptr::from_ref(context).addr());
    // Handlers run on threads of the network, too.
    if <M as Mode>::THREADED || calls > 0 || handlers > 0 {
        return Ok(());
    }
    let owner = OWNER.compare_exchange(0, me, Ordering::AcqRel, Ordering::Acquire);
    let Err(owner) = owner else { return Ok(()) };
    ensure!(
        owner == me,
        "{}",
        if cfg!(feature = "seq") {
            "this is not the thread that joined the job: mode SEQ allows that one only"
        } else {
            "another thread is inside the library: mode PARSYNC allows one at a time"
        }
    );
    let _ = call;
    Ok(())
}

/// A call that runs.
pub struct Inside(bool);

impl Drop for Inside {
    #[inline]
    fn drop(&mut self) {
        if ON && self.0 {
            let left = with(|context| {
                context.calls -= 1;
                context.calls
            });
            if cfg!(feature = "parsync") && left == Some(0) {
                // A thread of the network that runs a handler never owned it.
                let me = CONTEXT.with(|context| std::ptr::from_ref(context).addr());
                let _ = OWNER.compare_exchange(me, 0, Ordering::Release, Ordering::Relaxed);
            }
        }
    }
}

/// Every call begins here.
#[inline(always)]
pub fn enter(call: &str) -> Inside {
    if ON { checked(call) } else { Inside(false) }
}

#[cold]
fn checked(call: &str) -> Inside {
    let legal = Legal::of(call);
    if legal == Legal::Anywhere {
        return Inside(false);
    }
    let Some((refusal, inside)) =
        with(|context| (legal.refusal(context), (context.calls, context.handlers)))
    else {
        return Inside(false);
    };
    let allowed = match refusal {
        Some(why) => Err(Fail::bad(format!("not legal here: {why}"))),
        None => check_thread(call, inside),
    };
    if let Err(fail) = allowed {
        fail.fatal(call);
    }
    let counted = with(|context| context.calls += 1).is_some();
    Inside(counted)
}

/// This thread has prepared a message, or has none prepared any more.
#[inline(always)]
pub fn prepared(prepared: bool) {
    if ON {
        with(|context| context.prepared = prepared);
    }
}

/// A handler begins.
#[inline(always)]
pub fn begin_handler() {
    if ON {
        with(|context| context.handlers += 1);
    }
}

/// A handler has returned.
#[inline(always)]
pub fn end_handler() {
    if ON {
        let held = with(|context| {
            context.handlers -= 1;
            context.held.first().copied()
        });
        if let Some(Some(lock)) = held {
            Fail::bad(format!("it still holds the lock {lock:#x}")).fatal("return of a handler");
        }
        if with(|context| context.prepared) == Some(true) {
            let text = "it prepared a reply, and neither committed nor cancelled it";
            Fail::bad(text).fatal("return of a handler");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_legal_where_is_as_specified() {
        let free = Context { handlers: 0, calls: 0, prepared: false, held: Vec::new() };
        let handler = Context { handlers: 1, calls: 1, prepared: false, held: Vec::new() };
        let between_calls = Context { handlers: 0, calls: 0, prepared: true, held: Vec::new() };
        let locked = Context { handlers: 0, calls: 0, prepared: false, held: vec![8] };
        for (call, in_handler, with_lock, between) in [
            ("gex_RMA_PutNB", false, false, false),
            ("gex_AM_RequestShort", false, false, false),
            ("gasnet_AMPoll", false, false, false),
            ("gex_Event_Wait", false, false, false),
            ("gex_Coll_BarrierNB", false, false, false),
            ("gex_TM_TranslateRankToJobrank", false, false, false),
            ("gex_Segment_QueryBound", false, false, false),
            // Immediate ones are legal everywhere, and all are immediate.
            ("gex_EP_QueryBoundSegmentNB", true, true, true),
            ("gex_AM_ReplyMedium", true, false, false),
            ("gex_AM_PrepareReplyLong", true, false, false),
            ("gex_AM_CommitReplyLong", true, false, true),
            ("gex_AM_CancelRequestMedium", true, false, true),
            ("gex_AM_SrcDescAddr", true, false, true),
            ("gex_Token_Info", true, true, true),
            ("gex_HSL_Lock", true, true, true),
            ("gex_TM_QueryRank", true, true, true),
            ("gex_System_QueryNbrhdInfo", true, true, true),
        ] {
            let legal = Legal::of(call);
            let fine = |context: &Context| legal.refusal(context).is_none();
            assert!(fine(&free), "{call}");
            assert_eq!(fine(&handler), in_handler, "{call} in a handler");
            assert_eq!(fine(&locked), with_lock, "{call} with a lock");
            assert_eq!(fine(&between_calls), between, "{call} after a prepare");
        }
    }
}
