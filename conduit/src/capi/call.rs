//! Running handlers of C programs, each through the exact prototype of its category and number of arguments.

use std::ffi::c_void;

use super::token;
use super::types::{AM_LONG, AM_MEDIUM, AM_SHORT, Entry};
use crate::handler::Category;
use crate::token::RawToken;
use crate::transport::shm::{LANE_ARGS, Row};

/// Number of arguments of a handler that takes what comes (GASNet-1 tables name none).
pub const ANY_ARGS: usize = usize::MAX;

/// A handler, with the entry that it was registered with.
pub struct CHandler {
    function: unsafe extern "C" fn(),
    entry: Entry,
}

// SAFETY: the pointers of the entry are the program's and are only handed back to it.
unsafe impl Send for CHandler {}
// SAFETY: as above.
unsafe impl Sync for CHandler {}

/// What came with a message.
#[derive(Clone, Copy)]
pub enum Arrival {
    Short,
    /// Bytes in a buffer of the library.
    Medium(*mut u8, usize),
    /// Destination as the sender gave it, and bytes.
    Long(u64, usize),
}

impl CHandler {
    pub const fn new(function: unsafe extern "C" fn(), entry: Entry) -> Self {
        Self { function, entry }
    }

    /// Writes the chosen index into the copy of the entry.
    pub const fn settle(&mut self, index: u8) {
        self.entry.index = index;
    }

    pub const fn entry(&self) -> &Entry {
        &self.entry
    }

    pub const fn category(&self) -> Category {
        match self.entry.flags & (AM_SHORT | AM_MEDIUM | AM_LONG) {
            AM_SHORT => Category::Short,
            AM_MEDIUM => Category::Medium,
            AM_LONG => Category::Long,
            _ => Category::MedLong,
        }
    }

    /// Runs the handler; `false` when it does not take this category.
    #[inline]
    pub fn run(&self, token: &RawToken<'_>, arrival: Arrival, args: &[i32]) -> bool {
        let needed = match arrival {
            Arrival::Short => AM_SHORT,
            Arrival::Medium(..) => AM_MEDIUM,
            Arrival::Long(..) => AM_LONG,
        };
        if self.entry.flags & needed == 0 {
            return false;
        }
        let handle = std::ptr::from_ref(token).cast_mut().cast();
        let _current = token::Current::enter(handle);
        match arrival {
            Arrival::Short => short(self.function, handle, args),
            Arrival::Medium(at, len) => long(self.function, handle, at.cast(), len, args),
            Arrival::Long(at, len) => {
                #[expect(clippy::cast_possible_truncation, reason = "an address of this process")]
                let at = std::ptr::with_exposed_provenance_mut(at as usize);
                long(self.function, handle, at, len, args)
            }
        }
    }
}

impl CHandler {
    /// Whether the handler takes Shorts.
    pub const fn takes_shorts(&self) -> bool {
        self.entry.flags & AM_SHORT != 0
    }

    /// Runs the handler for the messages of a row, at most `most`, as long as `go_on` says so after each; how many.
    #[inline(always)]
    pub fn run_row(
        &self,
        token: &RawToken<'_>,
        row: &mut Row<'_>,
        most: usize,
        flood: impl Fn() -> bool,
        mut go_on: impl FnMut() -> bool,
    ) -> usize {
        let handle = std::ptr::from_ref(token).cast_mut().cast();
        let _current = token::Current::enter(handle);
        let mut run = |args: &[i32]| {
            short(self.function, handle, args);
            go_on()
        };
        match row.nargs() {
            0 => row.serve(most, flood, |_| run(&[])),
            1 => row.serve(most, flood, |[a, ..]| run(&[a])),
            2 => row.serve(most, flood, |[a, b, _]| run(&[a, b])),
            3 => row.serve(most, flood, |words| run(&words)),
            nargs => {
                let (mut words, mut count) = ([0; LANE_ARGS], 0);
                while count < most && row.take(&mut words) {
                    count += 1;
                    if !run(words.get(..nargs).unwrap_or_default()) {
                        break;
                    }
                }
                count
            }
        }
    }
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
        // SAFETY: the program registered the function for this category and so many arguments, which is its type.
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
