//! Which memory other ranks reach: the segment modes of GASNet.

use std::fmt;

use crate::error::Error;

/// What puts, gets and Longs of other ranks may name. The same on all ranks of a job.
///
/// A Rust program has [`SegmentMode::FAST`] unless `GASNET_SEGMENT_MODE` says `LARGE`;
/// [`Client::init_in`](crate::Client::init_in) chooses another. A program of C
/// chooses when it is compiled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SegmentMode(Kind);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Kind {
    #[default]
    Fast,
    Large,
    Everything,
}

impl SegmentMode {
    /// The attached segment, which adapters register as a whole.
    pub const FAST: Self = Self(Kind::Fast);
    /// The attached segment, however large: what adapters do not register is reached by messages.
    pub const LARGE: Self = Self(Kind::Large);
    /// All memory of a process. Only those may choose it who answer for what other ranks do:
    /// [`SegmentMode::everything`].
    pub(crate) const EVERYTHING: Self = Self(Kind::Everything);

    /// The mode that a variable names, if a variable may choose it.
    pub(crate) fn named(word: &str) -> Option<Self> {
        match word {
            "FAST" => Some(Self::FAST),
            "LARGE" => Some(Self::LARGE),
            _ => None,
        }
    }

    /// The mode that `GASNET_SEGMENT_MODE` chooses.
    ///
    /// # Errors
    /// One that only the program can choose.
    pub(crate) fn chosen(table: &settings::Values) -> Result<Self, Error> {
        let name = "GASNET_SEGMENT_MODE";
        if !table.is_set(name) {
            return Ok(Self::FAST);
        }
        let word = table.word(name);
        Self::named(word).ok_or_else(|| {
            let problem = format!(
                "{word} has no segment, for which a program must be written: compile it with -DGASNET_SEGMENT_{word}, or start it with Client::init_in"
            );
            Error::Setting { name, problem }
        })
    }

    /// This mode of a program, with what the environment says.
    ///
    /// # Errors
    /// A variable that names another, where that cannot be.
    pub(crate) fn with(self, table: &settings::Values) -> Result<Self, Error> {
        let name = "GASNET_SEGMENT_MODE";
        let (word, set) = (table.word(name), table.is_set(name));
        match self.0 {
            Kind::Everything if !set || word == self.name() => Ok(self),
            Kind::Everything => {
                let problem = format!(
                    "{word}, but this program was compiled with GASNET_SEGMENT_EVERYTHING: its transfers need no segment, and it may have none; unset the variable"
                );
                Err(Error::Setting { name, problem })
            }
            Kind::Large if !set => Ok(self),
            Kind::Large | Kind::Fast => Self::chosen(table),
        }
    }

    /// Its name in GASNet.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self.0 {
            Kind::Fast => "FAST",
            Kind::Large => "LARGE",
            Kind::Everything => "EVERYTHING",
        }
    }

    /// As a number, for comparison between ranks.
    pub(crate) const fn number(self) -> u8 {
        self.0 as u8
    }

    /// The name of a number that another rank told.
    pub(crate) const fn name_of(number: u8) -> &'static str {
        match number {
            0 => Self::FAST.name(),
            1 => Self::LARGE.name(),
            2 => Self::EVERYTHING.name(),
            _ => "a mode that this version does not have",
        }
    }

    /// Whether the segment is registered as a whole.
    #[must_use]
    #[inline(always)]
    pub const fn is_fast(self) -> bool {
        matches!(self.0, Kind::Fast)
    }

    /// Whether there is no segment, but all memory.
    #[must_use]
    #[inline(always)]
    pub const fn is_everything(self) -> bool {
        matches!(self.0, Kind::Everything)
    }
}

impl fmt::Display for SegmentMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_chooses_what_needs_no_promise() {
        assert_eq!(SegmentMode::named("LARGE"), Some(SegmentMode::LARGE));
        assert_eq!(SegmentMode::named("FAST"), Some(SegmentMode::default()));
        assert_eq!(SegmentMode::named("EVERYTHING"), None);
        for mode in [SegmentMode::FAST, SegmentMode::LARGE, SegmentMode::EVERYTHING] {
            assert_eq!(SegmentMode::name_of(mode.number()), mode.to_string());
        }
    }
}
