//! Running handlers of C programs, each through the exact prototype of its category and number of
//! arguments.

use std::ffi::c_void;
use std::ptr::NonNull;

use gasnet_ibv::Role;
use gasnet_ibv::inner::{Arrival, Foreign, HandlerRow, RawToken, Runner, ShortBurst};

use crate::current::Current;
use crate::types::{AM_LONG, AM_MEDIUM, AM_SHORT, Entry};

/// A handler as a program registered it; lives as long as the process.
pub struct CHandler {
    function: unsafe extern "C" fn(),
    entry: Entry,
}

/// How the conduit runs them.
const RUNNER: Runner = Runner { run, run_burst };

impl CHandler {
    /// Keeps a handler; the row to register, and where it is.
    pub fn row(
        function: unsafe extern "C" fn(),
        entry: Entry,
        (name, nargs, role): (String, usize, Role),
    ) -> (HandlerRow, Kept) {
        let takes =
            [(AM_SHORT, Foreign::SHORT), (AM_MEDIUM, Foreign::MEDIUM), (AM_LONG, Foreign::LONG)];
        let taken = takes.iter().filter(|(flag, _)| entry.flags & flag != 0);
        let takes = taken.fold(0, |set, (_, category)| set | category);
        let kept = Kept(NonNull::from(Box::leak(Box::new(Self { function, entry }))));
        let foreign = Foreign::new(RUNNER, takes, kept.0.as_ptr().cast());
        (HandlerRow { index: entry.index, name, nargs, role, foreign }, kept)
    }

    /// The entry of the handler that a token's context names.
    pub fn entry(context: *mut ()) -> *const Entry {
        &raw const of(context).entry
    }
}

/// A handler that no message can reach yet; freed unless [`Kept::stay`] is called.
pub struct Kept(NonNull<CHandler>);

impl Kept {
    /// Writes the chosen index into the copy of the entry.
    pub fn settle(&self, index: u8) {
        // SAFETY: until `stay` the handler is this value's alone.
        unsafe { (*self.0.as_ptr()).entry.index = index };
    }

    /// The row is registered: the handler stays for as long as the process.
    pub fn stay(self) {
        std::mem::forget(self);
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        // SAFETY: made by `CHandler::row` from a box, and its row was not registered.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

#[inline(always)]
fn of<'a>(context: *mut ()) -> &'a CHandler {
    // SAFETY: the context is the address of a handler that `CHandler::row` leaked.
    unsafe { &*context.cast() }
}

/// Runs a handler for a message of a category that it takes.
fn run(context: *mut (), token: &RawToken<'_>, arrival: Arrival<'_>, args: &[i32]) {
    let function = of(context).function;
    let handle = std::ptr::from_ref(token).cast_mut().cast();
    let _current = Current::enter(handle);
    match arrival {
        Arrival::Short => short(function, handle, args),
        Arrival::Medium(payload) => {
            long(function, handle, payload.as_mut_ptr().cast(), payload.len(), args)
        }
        Arrival::Long(at, len) => {
            #[expect(clippy::cast_possible_truncation, reason = "an address of this process")]
            let at = std::ptr::with_exposed_provenance_mut(at as usize);
            long(function, handle, at, len, args)
        }
    };
}

/// Runs a handler for the messages of a row.
fn run_burst(context: *mut (), row: &mut ShortBurst<'_, '_>) {
    let function = of(context).function;
    let handle = std::ptr::from_ref(row.token()).cast_mut().cast();
    let _current = Current::enter(handle);
    row.for_each(|args| {
        short(function, handle, args);
    });
}

macro_rules! word {
    ($arg:ident) => {
        i32
    };
}

/// One arm for each number of arguments.
macro_rules! by_count {
    ($function:ident, ($($head:ident: $type:ty),*), $args:ident,
     $first:ident $($rest:ident)*) => {
        by_count!(@ $function, ($($head: $type),*), $args, [] [$first $($rest)*] [])
    };
    (@ $function:ident, $heads:tt, $args:ident, [$($had:ident)*] [$next:ident $($rest:ident)*] [$($arms:tt)*]) => {
        by_count!(@ $function, $heads, $args, [$($had)* $next] [$($rest)*] [$($arms)* {$($had)*}])
    };
    (@ $function:ident, $heads:tt, $args:ident, [$($had:ident)*] [] [$($arms:tt)*]) => {
        by_count!(% $function, $heads, $args, $($arms)* {$($had)*})
    };
    (% $function:ident, $heads:tt, $args:ident, $({$($arg:ident)*})*) => {
        match *$args {
            $([$($arg),*] => by_count!(! $function, $heads, $($arg)*),)*
            _ => return false,
        }
    };
    (! $function:ident, ($($head:ident: $type:ty),*), $($arg:ident)*) => {{
        // SAFETY: the program registered the function for this category and so many arguments,
        // which is its type.
        let typed = unsafe {
            std::mem::transmute::<
                unsafe extern "C" fn(),
                unsafe extern "C" fn($($type,)* $(word!($arg)),*),
            >($function)
        };
        // SAFETY: as above; what is passed is what the documentation of handlers promises.
        unsafe { typed($($head,)* $($arg),*) };
    }};
}

#[inline(always)]
fn short(function: unsafe extern "C" fn(), token: *mut c_void, args: &[i32]) -> bool {
    by_count!(function, (token: *mut c_void), args, a b c d e f g h i j k l m n o p);
    true
}

fn long(
    function: unsafe extern "C" fn(),
    token: *mut c_void,
    at: *mut c_void,
    len: usize,
    args: &[i32],
) -> bool {
    by_count!(
        function,
        (token: *mut c_void, at: *mut c_void, len: usize),
        args,
        a b c d e f g h i j k l m n o p
    );
    true
}
