//! Running handlers of C programs, each through the exact prototype of its category and number of
//! arguments.

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::rc::Rc;

use gasnet_ibv::Role;
use gasnet_ibv::inner::{Arrival, Foreign, RawToken, Registered, Runner, ShortBurst, handler_row};

use crate::current::Current;
use crate::types::Entry;

/// A handler as a program registered it.
pub struct CHandler {
    function: unsafe extern "C" fn(),
    entry: UnsafeCell<Entry>,
}

impl CHandler {
    /// The row to register, and the handler, which is to live for as long as the row.
    pub fn row(
        function: unsafe extern "C" fn(),
        entry: Entry,
        (name, nargs, role): (String, usize, Role),
    ) -> (Registered, Rc<Self>) {
        let kept = Rc::new(Self { function, entry: entry.into() });
        let context = Rc::as_ptr(&kept).cast_mut().cast();
        let foreign = Foreign::new(Runner { run, run_burst }, entry.categories(), context);
        (handler_row(entry.index, name, nargs, role, foreign), kept)
    }

    /// Writes the chosen index into the copy of the entry.
    pub fn settle(&self, index: u8) {
        // SAFETY: while a row is registered no message can reach its handler, and nobody else has
        // the entry.
        unsafe { (*self.entry.get()).index = index };
    }

    /// The entry of the handler that a token's context names.
    pub fn entry(context: *mut ()) -> *const Entry {
        of(context).entry.get()
    }
}

#[inline(always)]
fn of<'a>(context: *mut ()) -> &'a CHandler {
    // SAFETY: the context is the address of a handler that `CHandler::row` made, which is kept.
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
                unsafe extern "C" fn($($head: $type,)* $($arg: i32),*),
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
