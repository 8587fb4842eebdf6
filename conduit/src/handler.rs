//! Handlers: registration and the table that dispatch looks them up in.

use std::fmt;
use std::marker::PhantomData;
use std::sync::OnceLock;

use crate::error::Error;
use crate::message::MAX_ARGS;
use crate::mode::Mode;
use crate::segment::Landing;
use crate::token::{RawToken, Token};

/// Number of a handler at an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HandlerIndex(pub u8);

impl HandlerIndex {
    /// Lowest index that a client may use; the highest is 255.
    pub const FIRST_CLIENT: u8 = 128;
}

impl fmt::Display for HandlerIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Categories that a handler accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Category {
    /// No payload.
    Short,
    /// Payload in a buffer of the library.
    Medium,
    /// Payload in the receiver's segment.
    Long,
    /// Medium and Long.
    MedLong,
}

/// Whether a handler serves requests, replies, or both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Requests only.
    Request,
    /// Replies only.
    Reply,
    /// Both.
    ReqRep,
}

/// Payload as a [`Category::MedLong`] handler sees it.
#[derive(Debug)]
pub enum Payload<'a> {
    /// Of a Medium: readable and writable, gone when the handler returns.
    Medium(&'a mut [u8]),
    /// Of a Long: where it landed in this rank's segment.
    Long(Landing<'a>),
}

type ShortFn = dyn Fn(&RawToken<'_>, &[i32]) + Send + Sync;
type MediumFn = dyn Fn(&RawToken<'_>, &mut [u8], &[i32]) + Send + Sync;
type LongFn = dyn Fn(&RawToken<'_>, Landing<'_>, &[i32]) + Send + Sync;
type MedLongFn = dyn Fn(&RawToken<'_>, Payload<'_>, &[i32]) + Send + Sync;

/// What runs. One variant per calling convention; functions of the C interface become one more.
pub(crate) enum Function {
    Short(Box<ShortFn>),
    Medium(Box<MediumFn>),
    Long(Box<LongFn>),
    MedLong(Box<MedLongFn>),
}

impl Function {
    const fn category(&self) -> Category {
        match self {
            Self::Short(_) => Category::Short,
            Self::Medium(_) => Category::Medium,
            Self::Long(_) => Category::Long,
            Self::MedLong(_) => Category::MedLong,
        }
    }
}

/// One row of a handler table.
///
/// ```
/// use gasnet_ibv::{Entry, Role, Seq};
/// let entry = Entry::<Seq>::medium("count", 1, |token, payload, args| {
///     println!("rank {} sent {} bytes, tag {}", token.source(), payload.len(), args[0]);
/// });
/// let entry = entry.at(200).role(Role::Request);
/// # let _ = entry;
/// ```
pub struct Entry<M: Mode> {
    index: u8,
    name: String,
    nargs: usize,
    role: Role,
    category: Category,
    function: Option<Function>,
    mode: PhantomData<M>,
}

impl<M: Mode> fmt::Debug for Entry<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Entry({} {:?} {:?} nargs {})", self.index, self.name, self.category, self.nargs)
    }
}

impl<M: Mode> Entry<M> {
    fn new(name: &str, nargs: usize, function: Function) -> Self {
        let category = function.category();
        let name = name.to_owned();
        Self {
            index: 0,
            name,
            nargs,
            role: Role::ReqRep,
            category,
            function: Some(function),
            mode: PhantomData,
        }
    }

    /// A handler for Shorts with exactly `nargs` arguments. `name` is for diagnostics.
    #[must_use]
    pub fn short<F>(name: &str, nargs: usize, function: F) -> Self
    where
        F: Fn(&Token<'_, M>, &[i32]) + Send + Sync + 'static,
    {
        let erased = move |raw: &RawToken<'_>, args: &[i32]| function(&Token::new(raw), args);
        Self::new(name, nargs, Function::Short(Box::new(erased)))
    }

    /// A handler for Mediums; the payload is the handler's to read and write until it returns, and 8-byte aligned.
    #[must_use]
    pub fn medium<F>(name: &str, nargs: usize, function: F) -> Self
    where
        F: Fn(&Token<'_, M>, &mut [u8], &[i32]) + Send + Sync + 'static,
    {
        let erased = move |raw: &RawToken<'_>, payload: &mut [u8], args: &[i32]| {
            function(&Token::new(raw), payload, args);
        };
        Self::new(name, nargs, Function::Medium(Box::new(erased)))
    }

    /// A handler for Longs; the payload has landed in this rank's segment.
    #[must_use]
    pub fn long<F>(name: &str, nargs: usize, function: F) -> Self
    where
        F: Fn(&Token<'_, M>, Landing<'_>, &[i32]) + Send + Sync + 'static,
    {
        let erased = move |raw: &RawToken<'_>, landing: Landing<'_>, args: &[i32]| {
            function(&Token::new(raw), landing, args);
        };
        Self::new(name, nargs, Function::Long(Box::new(erased)))
    }

    /// A handler for both Mediums and Longs.
    #[must_use]
    pub fn med_long<F>(name: &str, nargs: usize, function: F) -> Self
    where
        F: Fn(&Token<'_, M>, Payload<'_>, &[i32]) + Send + Sync + 'static,
    {
        let erased = move |raw: &RawToken<'_>, payload: Payload<'_>, args: &[i32]| {
            function(&Token::new(raw), payload, args);
        };
        Self::new(name, nargs, Function::MedLong(Box::new(erased)))
    }

    /// Asks for a fixed index, 128 to 255. Without it, or with 0, the highest free one is taken.
    #[must_use]
    pub const fn at(mut self, index: u8) -> Self {
        self.index = index;
        self
    }

    /// Says which messages the handler serves; both kinds unless said otherwise.
    #[must_use]
    pub const fn role(mut self, role: Role) -> Self {
        self.role = role;
        self
    }

    /// The index: asked for before registration, in force after it.
    #[must_use]
    pub const fn index(&self) -> HandlerIndex {
        HandlerIndex(self.index)
    }
}

/// A handler as registered; what [`Token::entry`] shows.
pub struct Registered {
    /// Index.
    pub index: HandlerIndex,
    /// Name for diagnostics.
    pub name: String,
    /// Number of arguments.
    pub nargs: usize,
    /// Categories accepted.
    pub category: Category,
    /// Requests, replies or both.
    pub role: Role,
    pub(crate) function: Function,
}

impl fmt::Debug for Registered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {:?} {:?} {:?} nargs {}",
            self.index, self.name, self.category, self.role, self.nargs
        )
    }
}

/// The table of an endpoint. Rows are written once and looked up without a lock.
pub(crate) struct Table {
    rows: [OnceLock<Box<Registered>>; 128],
    registering: std::sync::Mutex<()>,
}

impl Table {
    pub(crate) const fn new() -> Self {
        Self { rows: [const { OnceLock::new() }; 128], registering: std::sync::Mutex::new(()) }
    }

    /// The handler at a client index, `None` when there is none.
    #[inline]
    pub(crate) fn get(&self, index: u8) -> Option<&Registered> {
        let row = usize::from(index).checked_sub(usize::from(HandlerIndex::FIRST_CLIENT))?;
        self.rows[row].get().map(|row| &**row)
    }

    /// Registers all of `entries` or none of them.
    pub(crate) fn register<M: Mode>(&self, entries: &mut [Entry<M>]) -> Result<(), Error> {
        let _one_at_a_time = self.registering.lock();
        let chosen = self.choose(entries)?;
        for (entry, index) in entries.iter_mut().zip(chosen) {
            let Some(function) = entry.function.take() else { continue };
            entry.index = index;
            let row = usize::from(index - HandlerIndex::FIRST_CLIENT);
            let registered = Registered {
                index: HandlerIndex(index),
                name: entry.name.clone(),
                nargs: entry.nargs,
                category: entry.category,
                role: entry.role,
                function,
            };
            // `choose` saw the row empty and the lock is held.
            let _ = self.rows[row].set(Box::new(registered));
        }
        Ok(())
    }

    /// Checks a table and gives every entry its index: fixed ones first, then the highest free one in table order.
    fn choose<M: Mode>(&self, entries: &[Entry<M>]) -> Result<Vec<u8>, Error> {
        if entries.len() > self.rows.len() {
            return Err(Error::HandlerTableSize { count: entries.len() });
        }
        let mut names: [Option<&str>; 128] =
            std::array::from_fn(|row| self.rows[row].get().map(|r| r.name.as_str()));
        for entry in entries {
            if entry.function.is_none() {
                return Err(Error::HandlerSpent { name: entry.name.clone() });
            }
            if entry.nargs > MAX_ARGS {
                return Err(Error::TooManyArgs { call: "register", count: entry.nargs });
            }
            if entry.index == 0 {
                continue;
            }
            let Some(row) = entry.index.checked_sub(HandlerIndex::FIRST_CLIENT) else {
                return Err(Error::HandlerIndexRange { index: entry.index });
            };
            if let Some(name) = names[usize::from(row)].replace(&entry.name) {
                return Err(Error::HandlerIndexTaken { index: entry.index, name: name.to_owned() });
            }
        }
        let mut free = (HandlerIndex::FIRST_CLIENT..=u8::MAX)
            .rev()
            .filter(|index| names[usize::from(index - HandlerIndex::FIRST_CLIENT)].is_none());
        let mut chosen = Vec::with_capacity(entries.len());
        for (at, entry) in entries.iter().enumerate() {
            let index = if entry.index == 0 { free.next() } else { Some(entry.index) };
            let left = entries[at..].iter().filter(|e| e.index == 0).count();
            chosen.push(index.ok_or(Error::HandlerTableFull { left })?);
        }
        Ok(chosen)
    }
}
