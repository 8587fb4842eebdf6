//! What the library finds out about itself when a program asks: messages, transfers, values and
//! barriers between all ranks, counted where the answer is wrong.

use std::cell::UnsafeCell;
use std::ffi::{c_char, c_int, c_void};
use std::ptr::null;
use std::sync::atomic::{AtomicU32, Ordering};

use gasnet_ibv::{Mode, inner};

use crate::arguments::{check_place, string};
use crate::coll::{gasnet_barrier, gex_Coll_BarrierNB};
use crate::event::gexi_Event_Wait;
use crate::fail::{Fail, ensure, must};
use crate::state::{self, State, TM0};
use crate::types::{
    AM_LONG, AM_MEDIUM, AM_REPLY, AM_REQUEST, AM_SHORT, EVENT_NOW, Entry, Flags, Token,
};
use crate::{M, am, rma};

/// Bytes of a message and of a transfer.
const BYTES: usize = 1000;

/// The handlers that the program registers for this, which writes their indices into the table.
struct Table(UnsafeCell<[Entry; 2]>);

// SAFETY: the program's to write between the two calls, on one thread; read by the second call.
unsafe impl Sync for Table {}

const REQUEST: usize = 0;
const ANSWER: usize = 1;

// SAFETY: a pointer to a function, called with its own type again.
const REQUEST_FN: unsafe extern "C" fn() = unsafe { std::mem::transmute(on_request as Request) };
// SAFETY: as above.
const ANSWER_FN: unsafe extern "C" fn() = unsafe { std::mem::transmute(on_answer as Answer) };

static TABLE: Table = Table(UnsafeCell::new([
    entry(REQUEST_FN, AM_MEDIUM | AM_LONG, AM_REQUEST, 1),
    entry(ANSWER_FN, AM_SHORT, AM_REPLY, 1),
]));

type Request = unsafe extern "C" fn(Token, *mut c_void, usize, i32);
type Answer = unsafe extern "C" fn(Token, i32);

const fn entry(function: unsafe extern "C" fn(), categories: u8, role: Flags, nargs: u32) -> Entry {
    let (flags, function) = (categories as Flags | role, Some(function));
    Entry { index: 0, function, flags, nargs, cdata: null(), name: c"diagnostics".as_ptr() }
}

/// Answers that came, and those that say that the request was wrong.
static ANSWERS: AtomicU32 = AtomicU32::new(0);
static WRONG: AtomicU32 = AtomicU32::new(0);

/// Byte `at` of the data of turn `turn`.
const fn byte(turn: u32, at: usize) -> u8 {
    #[expect(clippy::cast_possible_truncation, reason = "any byte will do")]
    let byte = (at as u32 ^ turn.wrapping_mul(2_654_435_761) >> 11) as u8;
    byte
}

fn data(turn: u32) -> [u8; BYTES] {
    std::array::from_fn(|at| byte(turn, at))
}

unsafe extern "C" fn on_request(token: Token, bytes: *mut c_void, len: usize, turn: i32) {
    // SAFETY: the payload of the message whose handler this is.
    let payload = unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), len) };
    let fits = len == BYTES && payload == data(turn.cast_unsigned());
    let (index, answer) = (index(ANSWER), [c_int::from(fits)]);
    // SAFETY: one argument.
    unsafe { am::gexi_AM_ReplyShort(token, index, 0, 1, answer.as_ptr()) };
}

unsafe extern "C" fn on_answer(_token: Token, fits: i32) {
    WRONG.fetch_add(u32::from(fits != 1), Ordering::Relaxed);
    ANSWERS.fetch_add(1, Ordering::Relaxed);
}

fn index(which: usize) -> u8 {
    // SAFETY: nobody writes it any more (`Table`).
    let table = unsafe { &*TABLE.0.get() };
    table[which].index
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gasneti_diagnostic_gethandlers(table: *mut *mut Entry, count: *mut c_int) {
    must("gasnett_diagnostic_gethandlers", || {
        check_place(table)?;
        check_place(count)?;
        // SAFETY: room for an answer, by the program's promise.
        unsafe { table.write(TABLE.0.get().cast()) };
        // SAFETY: as above.
        unsafe { count.write(2) };
        Ok(())
    });
}

/// One run, as rank and turns see it.
struct Run {
    state: &'static State,
    turns: u32,
    to: u32,
    /// Where the segment of `to` begins, which only this rank writes.
    base: Option<usize>,
    /// Those that transfer.
    threads: usize,
}

impl Run {
    fn barrier() {
        gexi_Event_Wait(gex_Coll_BarrierNB(TM0.handle(), 0));
    }

    /// Barriers of both kinds.
    fn barriers(&self) -> u32 {
        let named = |turn: u32| u32::from(gasnet_barrier(turn.cast_signed(), 0) != 0);
        (0..self.turns).inspect(|_| Self::barrier()).map(named).sum()
    }

    /// Puts, gets and values at the next rank, by several threads where the mode has them; each
    /// has its part of the segment.
    fn transfers(&self) -> u32 {
        let Some(base) = self.base else { return 0 };
        let (turns, to) = (self.turns, self.to);
        if self.threads == 1 {
            return transfers(turns, to, base);
        }
        let bases = (0..self.threads).map(|thread| base + thread * BYTES);
        std::thread::scope(|scope| {
            let run = |base| scope.spawn(move || transfers(turns, to, base));
            let all: Vec<_> = bases.map(run).collect();
            all.into_iter().map(|thread| thread.join().unwrap_or(1)).sum()
        })
    }

    /// Mediums, and Longs where there is a segment, each answered.
    fn messages(&self) -> Result<u32, Fail> {
        let handler = index(REQUEST);
        if handler == 0 {
            return Ok(0);
        }
        let (tm, before) = (TM0.handle(), (answers(), WRONG.load(Ordering::Relaxed)));
        let now = std::ptr::without_provenance_mut(EVENT_NOW);
        for turn in 0..self.turns {
            let (bytes, args) = (data(turn), [turn.cast_signed()]);
            let (source, args) = (bytes.as_ptr().cast(), args.as_ptr());
            let sent = match self.base {
                Some(base) if turn % 2 == 1 => {
                    let there = std::ptr::with_exposed_provenance_mut(base);
                    // SAFETY: so many bytes, and one argument.
                    unsafe {
                        am::gexi_AM_RequestLong(
                            tm, self.to, handler, source, BYTES, there, now, 0, 1, args,
                        )
                    }
                }
                _ => {
                    // SAFETY: as above.
                    unsafe {
                        am::gexi_AM_RequestMedium(
                            tm, self.to, handler, source, BYTES, now, 0, 1, args,
                        )
                    }
                }
            };
            ensure!(sent == 0, "a message was not sent");
            // One at a time: the next Long goes to the same place.
            let all = before.0.wrapping_add(turn + 1);
            self.state
                .collectives
                .wait_until("gasnett_run_diagnostics", || Ok(answers() == all))?;
        }
        Ok(WRONG.load(Ordering::Relaxed).wrapping_sub(before.1))
    }
}

/// Puts, gets and values at the first bytes from an address on; how many were wrong.
fn transfers(turns: u32, to: u32, base: usize) -> u32 {
    let tm = TM0.handle();
    let there = std::ptr::with_exposed_provenance_mut::<c_void>(base);
    let mut wrong = 0;
    for turn in 0..turns {
        let (from, mut back) = (data(turn), [0_u8; BYTES]);
        // SAFETY: both have so many bytes; the library checks the other rank's.
        unsafe { rma::gexi_RMA_PutBlocking(tm, to, there, from.as_ptr().cast(), BYTES, 0) };
        // SAFETY: as above.
        unsafe { rma::gexi_RMA_GetBlocking(tm, back.as_mut_ptr().cast(), to, there, BYTES, 0) };
        wrong += u32::from(back != from);
        let value = u64::from(turn) << 32 | 1;
        rma::gexi_RMA_PutBlockingVal(tm, to, there, value, 8, 0);
        // SAFETY: the library checks the address.
        let seen = unsafe { rma::gexi_RMA_GetBlockingVal(tm, to, there, 8, 0) };
        wrong += u32::from(seen != value);
    }
    wrong
}

fn answers() -> u32 {
    ANSWERS.load(Ordering::Relaxed)
}

/// Collective over all ranks. `sections` names those that run: B barriers, M messages, T transfers;
/// null or empty: all. The sum of what was wrong here.
fn run(turns: c_int, threads: usize, sections: &str) -> Result<u32, Fail> {
    let state = state::open()?;
    let turns = u32::try_from(turns).map_err(|_| Fail::bad(format!("{turns} iterations")))?;
    let unknown = sections.chars().find(|letter| !"BMTbmt".contains(*letter));
    ensure!(unknown.is_none(), "sections {sections:?}: only B, M and T are known");
    let chosen = |letter: char| {
        sections.is_empty() || sections.chars().any(|other| other.eq_ignore_ascii_case(&letter))
    };
    let to = (state.rank + 1) % state.size;
    let segment = state.bound(to, 0).filter(|segment| segment.size >= BYTES);
    let most =
        if <M as Mode>::THREADED { segment.map_or(1, |segment| segment.size / BYTES) } else { 1 };
    let threads = threads.clamp(1, most);
    let run = Run { state, turns, to, base: segment.map(|segment| segment.address), threads };
    Run::barrier();
    let mut wrong = 0;
    let mut count = |letter: char, found: u32| {
        if found > 0 {
            inner::say(&format!(
                "GASNet gasnett_run_diagnostics: {found} wrong in section {letter}"
            ));
        }
        wrong += found;
    };
    if chosen('B') {
        count('B', run.barriers());
    }
    if chosen('T') {
        count('T', run.transfers());
    }
    Run::barrier();
    if chosen('M') {
        count('M', run.messages()?);
    }
    Run::barrier();
    Ok(wrong)
}

/// What stands behind `sections` in the program's call is not needed: the library knows its team
/// and segments.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gasneti_run_diagnostics(
    turns: c_int,
    threads: c_int,
    sections: *const c_char,
) -> c_int {
    must("gasnett_run_diagnostics", || {
        let threads = usize::try_from(threads).ok().filter(|threads| *threads <= 256);
        let threads = threads.ok_or_else(|| Fail::bad("threads: 0 to 256 are possible"))?;
        let wrong = run(turns, threads, &string(sections).unwrap_or_default())?;
        Ok(c_int::try_from(wrong).unwrap_or(c_int::MAX))
    })
}
