//! Handlers that are functions of another language. The crate of that language says how they are
//! run: a function pointer and a context pointer of its own, so that nothing is dispatched through
//! a trait object.

use std::sync::atomic::{AtomicPtr, Ordering};

use crate::handler::Category;
use crate::rank::RankContext;
use crate::token::RawToken;
use crate::transport::shm::{BURST_ARGS, BurstReader};

/// Number of arguments of a handler that takes any.
pub const ANY_ARGS: usize = usize::MAX;

/// What came with a message.
#[derive(Debug)]
pub enum Arrival<'a> {
    /// Nothing.
    Short,
    /// Bytes in a buffer of the library.
    Medium(&'a mut [u8]),
    /// Address of the destination in this process, and bytes.
    Long(u64, usize),
}

/// Runs the handler that a context names, for a message of a category that it takes.
type Run = fn(*mut (), &RawToken<'_>, Arrival<'_>, &[i32]);
/// Runs the handler that a context names for each message of a row.
type RunBurst = fn(*mut (), &mut ShortBurst<'_, '_>);

/// How the handlers of one language are run.
#[derive(Clone, Copy, Debug)]
pub struct Runner {
    /// One message.
    pub run: Run,
    /// Shorts that are alike, one after the other.
    pub run_burst: RunBurst,
}

/// A handler of another language.
pub struct Foreign {
    runner: Runner,
    takes: u8,
    context: AtomicPtr<()>,
}

impl Foreign {
    /// In a set of categories: Shorts.
    pub const SHORT: u8 = 1;
    /// Mediums.
    pub const MEDIUM: u8 = 2;
    /// Longs.
    pub const LONG: u8 = 4;

    /// A handler that takes a set of categories. `context` is for `runner` alone.
    #[must_use]
    pub const fn new(runner: Runner, takes: u8, context: *mut ()) -> Self {
        Self { runner, takes, context: AtomicPtr::new(context) }
    }

    pub(crate) const fn category(&self) -> Category {
        match self.takes {
            Self::SHORT => Category::Short,
            Self::MEDIUM => Category::Medium,
            Self::LONG => Category::Long,
            _ => Category::MedLong,
        }
    }

    #[inline(always)]
    pub(crate) fn context(&self) -> *mut () {
        self.context.load(Ordering::Relaxed)
    }

    #[inline(always)]
    pub(crate) const fn takes_shorts(&self) -> bool {
        self.takes & Self::SHORT != 0
    }

    #[inline(always)]
    pub(crate) const fn takes(&self, arrival: &Arrival<'_>) -> bool {
        let needed = match arrival {
            Arrival::Short => Self::SHORT,
            Arrival::Medium(_) => Self::MEDIUM,
            Arrival::Long(..) => Self::LONG,
        };
        self.takes & needed != 0
    }

    #[inline(always)]
    pub(crate) fn run(&self, token: &RawToken<'_>, arrival: Arrival<'_>, args: &[i32]) {
        (self.runner.run)(self.context(), token, arrival, args);
    }

    #[inline(always)]
    pub(crate) fn run_burst(&self, row: &mut ShortBurst<'_, '_>) {
        (self.runner.run_burst)(self.context(), row);
    }
}

/// Shorts for one handler, from one lane. What was checked for the first holds for all.
pub struct ShortBurst<'r, 'a> {
    context: &'a RankContext,
    token: &'r RawToken<'a>,
    row: BurstReader<'r>,
    most: usize,
    count: usize,
    answered: bool,
}

impl std::fmt::Debug for ShortBurst<'_, '_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ShortBurst({} of at most {})", self.count, self.most)
    }
}

impl<'r, 'a> ShortBurst<'r, 'a> {
    #[inline(always)]
    pub(crate) const fn new(
        context: &'a RankContext,
        token: &'r RawToken<'a>,
        row: BurstReader<'r>,
        most: usize,
    ) -> Self {
        Self { context, token, row, most, count: 0, answered: false }
    }

    /// How many were taken, and whether one was answered. Says to the sender how far this rank is.
    #[inline(always)]
    pub(crate) const fn taken(&self) -> (usize, bool) {
        (self.count, self.answered)
    }

    /// Token of the message whose handler runs.
    #[must_use]
    #[inline(always)]
    pub const fn token(&self) -> &'r RawToken<'a> {
        self.token
    }

    /// Runs `handler` with the arguments of each message, as long as the rank may deliver.
    #[inline(always)]
    pub fn for_each(&mut self, handler: impl Fn(&[i32])) {
        let Self { context, token, row, most, count, answered } = self;
        let (context, token, most) = (*context, *token, *most);
        let mut run = |args: &[i32]| {
            handler(args);
            if token.replied.get() {
                *answered = true;
                if token.has_deferred() {
                    return false;
                }
                token.unclaim();
            }
            !context.is_closed()
        };
        let flood = || context.shm().budget.is_flooded();
        *count = match row.nargs() {
            0 => row.serve(most, flood, |_| run(&[])),
            1 => row.serve(most, flood, |[a, ..]| run(&[a])),
            2 => row.serve(most, flood, |[a, b, _]| run(&[a, b])),
            3 => row.serve(most, flood, |words| run(&words)),
            nargs => {
                let (mut words, mut count) = ([0; BURST_ARGS], 0);
                while count < most && row.take(&mut words) {
                    count += 1;
                    if !run(words.get(..nargs).unwrap_or_default()) {
                        break;
                    }
                }
                count
            }
        };
    }
}
