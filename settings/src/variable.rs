//! One variable: its name, the form of its value, and what holds when it is not set.

use crate::parse::parse;

/// The form of a value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// Whole number, decimal or hexadecimal after `0x`.
    Int {
        /// Least value.
        min: i64,
        /// Greatest value.
        max: i64,
    },
    /// Number of bytes with an optional letter T, G, M, K or B (and `iB` or `B` after it): `64K`,
    /// `1.5 GiB`.
    Size {
        /// Bytes that a number without a letter counts in.
        unit: i64,
        /// Least number of bytes.
        min: i64,
        /// Greatest number of bytes.
        max: i64,
    },
    /// Decimal number or fraction `a/b`.
    Real {
        /// Least value.
        min: f64,
        /// Greatest value.
        max: f64,
    },
    /// `1 y yes true` or `0 n no false`, any case.
    Bool,
    /// As `Bool`, but everything that is no `no` means yes, even the empty text.
    VerboseBool,
    /// Amount of memory: a fraction of the physical memory between 0 and 1, or a size; at least
    /// `min` bytes.
    MemSpec {
        /// Whether `/P` (for each rank) or `/H` (for all ranks of a host together) may follow.
        per: bool,
        /// Least number of bytes.
        min: u64,
    },
    /// Ranks: `0,4-7`; `*` or nothing means all.
    Nodes,
    /// Signal that can be caught: `SIGUSR1`, `usr1` or `10`.
    Signal,
    /// Signals between commas or blanks, or `*` for all.
    SignalList,
    /// Path in which every `%` stands for the rank.
    FilePattern,
    /// One of these words, any case.
    Enum(&'static [&'static str]),
    /// Several of these words in order, any case, between commas, blanks, bars or semicolons.
    EnumList(&'static [&'static str]),
    /// Adapters and ports: `HCA` or `HCA:PORT,PORT`, joined with `+`.
    PortFilter,
    /// Any text.
    Text,
    /// Being set is what counts, whatever the value.
    Presence,
}

/// What holds when a variable is not set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preset {
    /// As if this text were set.
    Value(&'static str),
    /// Nothing: the feature is off, or the choice is somebody else's.
    Unset,
    /// A value that depends on the job; the text says how.
    Computed(&'static str),
}

/// Who looks at a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// The launching command.
    Launcher,
    /// The node agent.
    Agent,
    /// Every rank.
    Rank,
}

/// One variable.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Variable {
    /// Name.
    pub name: &'static str,
    /// Form of its value.
    pub kind: Kind,
    /// What holds when it is not set.
    pub preset: Preset,
    /// Unit of the value, empty if there is none.
    pub unit: &'static str,
    /// Who looks at it.
    pub reader: Reader,
    /// Whether it is carried from the launching environment to ranks on other hosts without being
    /// named with `-E`.
    pub propagates: bool,
    /// Older names, looked at when the name itself is not set.
    pub aliases: &'static [&'static str],
    /// What it is for.
    pub doc: &'static str,
}

/// Why a name does nothing, and what setting it gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// What it controls does not exist in this version: one warning.
    Later,
    /// What it controls does not exist here, for a reason that is said when it is set to something
    /// else than what the documents have as its default.
    Refused,
    /// Its time is over: one warning with advice.
    Obsolete,
    /// It is set unasked, by scripts or for somebody else: no warning.
    Ignored,
}

/// Names that are known and do nothing, for the same reason: of later versions, of the past, and of
/// other installations.
#[derive(Clone, Copy, Debug)]
pub struct NoEffect {
    /// Why they do nothing.
    pub status: Status,
    /// The names in their order.
    pub names: &'static [Idle],
    /// What they control or controlled, or who sets them.
    pub doc: &'static str,
    /// What to set or know instead, of obsolete names; the reason, of refused ones.
    pub advice: &'static str,
}

/// A name that does nothing.
#[derive(Clone, Copy, Debug)]
pub struct Idle {
    /// The name.
    pub name: &'static str,
    /// Default of the documents, which may be set without effect; empty when they have none.
    pub usual: &'static str,
}

impl Idle {
    /// Whether a value asks for what holds anyway.
    #[must_use]
    pub fn is_usual(&self, raw: &str) -> bool {
        let (raw, usual) = (raw.trim(), self.usual);
        let size = Kind::Size { unit: 1, min: i64::MIN, max: i64::MAX };
        let real = Kind::Real { min: f64::NEG_INFINITY, max: f64::INFINITY };
        let same = |kind| parse(kind, raw).is_ok_and(|one| parse(kind, usual) == Ok(one));
        raw.eq_ignore_ascii_case(usual)
            || !usual.is_empty() && [Kind::Bool, size, real].into_iter().any(same)
    }
}

/// Rows under a common title.
#[derive(Clone, Copy, Debug)]
pub struct Group {
    /// Title.
    pub title: &'static str,
    /// Rows in the order in which they are shown.
    pub rows: &'static [Variable],
    /// Names that belong here and do nothing.
    pub no_effect: &'static [NoEffect],
}

impl Variable {
    /// A row that ranks read.
    pub(crate) const fn new(
        name: &'static str,
        kind: Kind,
        preset: Preset,
        doc: &'static str,
    ) -> Self {
        let unit = match kind {
            Kind::Size { .. } => "bytes",
            _ => "",
        };
        let reader = Reader::Rank;
        Self { name, kind, preset, unit, reader, propagates: true, aliases: &[], doc }
    }

    /// Read by the launcher only, so there is nothing to carry.
    pub(crate) const fn launcher(mut self) -> Self {
        self.reader = Reader::Launcher;
        self.propagates = false;
        self
    }

    /// Set anew for each rank, so the launching environment's value is never carried.
    pub(crate) const fn local(mut self) -> Self {
        self.propagates = false;
        self
    }

    pub(crate) const fn unit(mut self, unit: &'static str) -> Self {
        self.unit = unit;
        self
    }

    pub(crate) const fn aliases(mut self, aliases: &'static [&'static str]) -> Self {
        self.aliases = aliases;
        self
    }
}
