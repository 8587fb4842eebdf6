//! Handlers: registration and the table that dispatch looks them up in.

use std::fmt;
use std::marker::PhantomData;
use std::sync::OnceLock;

use crate::error::Error;
use crate::foreign::Foreign;
pub use crate::handler_index::HandlerIndex;
use crate::long_payload::LongPayload;
use crate::mode::Mode;
use crate::token::{RawToken, Token};
use crate::transport::message::MAX_ARGS;

impl HandlerIndex {
    /// Lower indices are the library's own: a message with one is not the client's to send.
    #[inline]
    pub(crate) fn check(self) -> Result<(), Error> {
        if self.0 < Self::FIRST_CLIENT {
            return Err(Error::HandlerIndexRange { index: self.0 });
        }
        Ok(())
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
    Long(LongPayload<'a>),
}

type ShortFn = dyn Fn(&RawToken<'_>, &[i32]) + Send + Sync;
type MediumFn = dyn Fn(&RawToken<'_>, &mut [u8], &[i32]) + Send + Sync;
type LongFn = dyn Fn(&RawToken<'_>, LongPayload<'_>, &[i32]) + Send + Sync;
type MedLongFn = dyn Fn(&RawToken<'_>, Payload<'_>, &[i32]) + Send + Sync;

pub(crate) enum Function {
    /// A function of another language.
    Foreign(Foreign),
    Short(Box<ShortFn>),
    Medium(Box<MediumFn>),
    Long(Box<LongFn>),
    MedLong(Box<MedLongFn>),
}

impl Function {
    const fn category(&self) -> Category {
        match self {
            Self::Foreign(handler) => handler.category(),
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
    /// What is registered; after that its name.
    row: Result<Registered, String>,
    mode: PhantomData<M>,
}

impl<M: Mode> fmt::Debug for Entry<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Entry({} {:?})", self.index, self.row)
    }
}

macro_rules! constructors {
    ($($(#[$doc:meta])* $name:ident: $variant:ident($($what:ident: $type:ty),*);)*) => {
        impl<M: Mode> Entry<M> {$(
            $(#[$doc])*
            #[must_use]
            pub fn $name<F>(name: &str, nargs: usize, function: F) -> Self
            where
                F: Fn(&Token<'_, M>, $($type,)* &[i32]) + Send + Sync + 'static,
            {
                let erased = move |raw: &RawToken<'_>, $($what: $type,)* args: &[i32]| {
                    function(&Token::new(raw), $($what,)* args);
                };
                Self::new(name, nargs, Function::$variant(Box::new(erased)))
            }
        )*}
    };
}

constructors! {
    /// A handler for Shorts with exactly `nargs` arguments. `name` is for diagnostics.
    short: Short();
    /// A handler for Mediums; the payload is the handler's to read and write until it returns, and
    /// 8-byte aligned.
    medium: Medium(payload: &mut [u8]);
    /// A handler for Longs; the payload has landed in this rank's segment.
    long: Long(payload: LongPayload<'_>);
    /// A handler for both Mediums and Longs.
    med_long: MedLong(payload: Payload<'_>);
}

impl<M: Mode> Entry<M> {
    fn new(name: &str, nargs: usize, function: Function) -> Self {
        let row = Registered::new(0, name.to_owned(), nargs, Role::ReqRep, function);
        Self { index: 0, row: Ok(row), mode: PhantomData }
    }

    /// Asks for a fixed index, 128 to 255. Without it, or with 0, the highest free one is taken.
    #[must_use]
    pub const fn at(mut self, index: u8) -> Self {
        self.index = index;
        self
    }

    /// Says which messages the handler serves; both kinds unless said otherwise.
    #[must_use]
    pub fn role(mut self, role: Role) -> Self {
        if let Ok(row) = &mut self.row {
            row.role = role;
        }
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

impl Registered {
    /// A row for [`Table::register_rows`], index 0 for any.
    pub(crate) fn new(
        index: u8,
        name: String,
        nargs: usize,
        role: Role,
        function: Function,
    ) -> Self {
        let category = function.category();
        Self { index: HandlerIndex(index), name, nargs, category, role, function }
    }
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
    /// Handlers of the library itself, below the client's indices.
    library: [OnceLock<Box<Registered>>; HandlerIndex::FIRST_CLIENT as usize],
}

impl Table {
    pub(crate) const fn new() -> Self {
        let registering = std::sync::Mutex::new(());
        let library = [const { OnceLock::new() }; HandlerIndex::FIRST_CLIENT as usize];
        Self { rows: [const { OnceLock::new() }; 128], registering, library }
    }

    /// The handler at an index, `None` when there is none.
    #[inline]
    pub(crate) fn get(&self, index: u8) -> Option<&Registered> {
        match usize::from(index).checked_sub(usize::from(HandlerIndex::FIRST_CLIENT)) {
            Some(row) => self.rows[row].get().map(|row| &**row),
            None => self.of_library(index),
        }
    }

    #[cold]
    fn of_library(&self, index: u8) -> Option<&Registered> {
        self.library.get(usize::from(index))?.get().map(|row| &**row)
    }

    /// Fills a row below the client's indices; the first one that is given for it stays.
    pub(crate) fn register_library(&self, row: Registered) {
        if let Some(place) = self.library.get(usize::from(row.index.0)) {
            let _ = place.set(Box::new(row));
        }
    }

    /// Registers all of `entries` or none of them.
    pub(crate) fn register<M: Mode>(&self, entries: &mut [Entry<M>]) -> Result<(), Error> {
        let _one_at_a_time = self.registering.lock();
        let mut wanted = Vec::with_capacity(entries.len());
        for Entry { index, row, .. } in &*entries {
            let row = row.as_ref().map_err(|name| Error::HandlerSpent { name: name.clone() })?;
            if row.nargs > MAX_ARGS {
                return Err(Error::TooManyArgs { call: "register", count: row.nargs });
            }
            wanted.push((*index, row.name.as_str()));
        }
        let chosen = self.choose(&wanted)?;
        for (entry, index) in entries.iter_mut().zip(chosen) {
            entry.index = index;
            let name = entry.row.as_ref().map_or_else(String::clone, |row| row.name.clone());
            if let Ok(mut row) = std::mem::replace(&mut entry.row, Err(name)) {
                row.index = HandlerIndex(index);
                self.set(row);
            }
        }
        Ok(())
    }

    /// Registers all of `rows` or none of them; the indices, in the same order. `settle` is told
    /// the index of each row, by its position, before the row can be looked up.
    pub(crate) fn register_rows(
        &self,
        rows: Vec<Registered>,
        settle: impl Fn(usize, u8),
    ) -> Result<Vec<u8>, Error> {
        let _one_at_a_time = self.registering.lock();
        let wanted: Vec<_> = rows.iter().map(|row| (row.index.0, row.name.as_str())).collect();
        let chosen = self.choose(&wanted)?;
        for (at, (mut row, index)) in rows.into_iter().zip(&chosen).enumerate() {
            row.index = HandlerIndex(*index);
            settle(at, *index);
            self.set(row);
        }
        Ok(chosen)
    }

    /// Fills a row that [`Table::choose`] saw empty; the lock is held since.
    fn set(&self, row: Registered) {
        let place = usize::from(row.index.0 - HandlerIndex::FIRST_CLIENT);
        let _ = self.rows[place].set(Box::new(row));
    }

    /// Checks a table and gives every entry its index: fixed ones first, then the highest free one
    /// in table order.
    fn choose(&self, wanted: &[(u8, &str)]) -> Result<Vec<u8>, Error> {
        if wanted.len() > self.rows.len() {
            return Err(Error::HandlerTableSize { count: wanted.len() });
        }
        let mut names: [Option<&str>; 128] =
            std::array::from_fn(|row| self.rows[row].get().map(|r| r.name.as_str()));
        for (index, name) in wanted.iter().filter(|(index, _)| *index != 0) {
            let Some(row) = index.checked_sub(HandlerIndex::FIRST_CLIENT) else {
                return Err(Error::HandlerIndexRange { index: *index });
            };
            if let Some(taken) = names[usize::from(row)].replace(name) {
                return Err(Error::HandlerIndexTaken { index: *index, name: taken.to_owned() });
            }
        }
        let mut free = (HandlerIndex::FIRST_CLIENT..=u8::MAX)
            .rev()
            .filter(|index| names[usize::from(index - HandlerIndex::FIRST_CLIENT)].is_none());
        let mut chosen = Vec::with_capacity(wanted.len());
        for (at, (index, _)) in wanted.iter().enumerate() {
            let index = if *index == 0 { free.next() } else { Some(*index) };
            let left = wanted[at..].iter().filter(|(index, _)| *index == 0).count();
            chosen.push(index.ok_or(Error::HandlerTableFull { left })?);
        }
        Ok(chosen)
    }
}
