//! Typed values of one environment.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use crate::Env;
use crate::error::Error;
use crate::parse::{MemSpec, Nodes, Signals, Value, parse};
use crate::port_filter;
use crate::table::{find, rows};
use crate::variable::{Kind, Preset, Variable};

/// The values that an environment gives to the variables of the table.
///
/// The typed getters give the default of a variable that is not set. A getter that does not fit the
/// row is a mistake in the program and panics; a bad value never does, it is refused by
/// [`Values::from_env`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Values {
    set: BTreeMap<&'static str, (Value, OsString)>,
}

/// The value that an environment gives to a row, by whatever name, and that name.
pub(super) fn seen(row: &Variable, env: &Env) -> Option<(&'static str, OsString)> {
    let names = std::iter::once(row.name).chain(row.aliases.iter().copied());
    names.into_iter().find_map(|name| Some((name, env.get(name)?.to_owned())))
}

/// As [`seen`], parsed.
pub(super) fn read(row: &Variable, env: &Env) -> Result<Option<(Value, OsString)>, Error> {
    let Some((name, raw)) = seen(row, env) else { return Ok(None) };
    let text = raw.to_string_lossy();
    match parse(row.kind, &text) {
        Ok(value) => Ok(Some((value, raw))),
        Err(problem) => {
            let problem = problem + &floor(row.kind, name, &text);
            let name = name.to_owned();
            Err(Error { name, value: text.into_owned(), problem, expected: row.kind.expected() })
        }
    }
}

/// For a number that is too small: the rule that it breaks, in the form in which documents of the
/// network name it.
fn floor(kind: Kind, name: &str, text: &str) -> String {
    let (least, all) = match kind {
        Kind::Int { min, .. } => (min, Kind::Int { min: i64::MIN, max: i64::MAX }),
        Kind::Size { unit, min, .. } => (min, Kind::Size { unit, min: i64::MIN, max: i64::MAX }),
        _ => return String::new(),
    };
    match parse(all, text) {
        Ok(Value::Int(number) | Value::Size(number)) if number < least => {
            format!(" ({name} < {least})")
        }
        _ => String::new(),
    }
}

/// Getters: name, form, type, what holds without a value, and how the value is given.
macro_rules! getters {
    ($($(#[$about:meta])* $getter:ident: $form:ident -> $type:ty, $none:expr, $give:expr;)*) => {$(
        $(#[$about])*
        ///
        /// # Panics
        /// When the variable is of another form.
        #[must_use]
        pub fn $getter(&self, name: &str) -> $type {
            self.value(name).map_or($none, |value| match value {
                Value::$form(value) => $give(value),
                other => unreachable!("{name} is asked for in a form that it has not: {other:?}"),
            })
        }
    )*};
}

impl Values {
    /// Reads every variable, and checks the members of the family of port filters.
    ///
    /// # Errors
    /// The first value, in the order of the table, that cannot be used.
    pub fn from_env(env: &Env) -> Result<Self, Error> {
        let mut set = BTreeMap::new();
        for row in rows() {
            if let Some(value) = read(row, env)? {
                set.insert(row.name, value);
            }
        }
        match member_errors(env).into_iter().next() {
            Some(error) => Err(error),
            None => Ok(Self { set }),
        }
    }

    /// All values that cannot be used, for a message that names them together.
    #[must_use]
    pub fn errors(env: &Env) -> Vec<Error> {
        let rows = rows().filter_map(|row| read(row, env).err());
        rows.chain(member_errors(env)).collect()
    }

    /// Whether the environment sets a variable.
    ///
    /// # Panics
    /// When the table has no such name.
    #[must_use]
    pub fn is_set(&self, name: &str) -> bool {
        self.set.contains_key(row(name).name)
    }

    fn value(&self, name: &str) -> Option<Value> {
        let row = row(name);
        if let Some((value, _)) = self.set.get(row.name) {
            return Some(value.clone());
        }
        match row.preset {
            Preset::Value(text) => match parse(row.kind, text) {
                Ok(value) => Some(value),
                Err(problem) => unreachable!("default of {name} (checked by a test): {problem}"),
            },
            Preset::Unset | Preset::Computed(_) => None,
        }
    }

    getters! {
        /// Value of a yes-or-no variable or, for one whose presence counts, whether it is set.
        bool: Bool -> bool, false, bool::from;
        /// As [`Values::bool`]; `None` when it is not set and has no fixed default.
        bool_opt: Bool -> Option<bool>, None, Some;
        /// Value of a whole number; `None` when it is not set and has no fixed default.
        int_opt: Int -> Option<i64>, None, Some;
        /// Value of a whole number; 0 when it is not set and has no fixed default.
        int: Int -> i64, 0, i64::from;
        /// Bytes of a size; 0 when it is not set and has no fixed default, or is negative.
        size: Size -> u64, 0, |bytes| u64::try_from(bytes).unwrap_or(0);
        /// As [`Values::size`] for a size whose negative values are codes, such as -1 for "never".
        size_or_code: Size -> i64, 0, i64::from;
        /// Value of a number that need not be whole; `None` when it is not set and has no fixed
        /// default.
        real: Real -> Option<f64>, None, Some;
        /// A number of seconds as a length of time; `None` when it is not set and has no fixed
        /// default.
        duration_secs: Real -> Option<Duration>, None, |seconds| Some(seconds_of(seconds));
        /// Value of an amount of memory; `None` when it is not set and has no fixed default.
        memory: MemSpec -> Option<MemSpec>, None, Some;
        /// Value of a set of ranks; all when it is not set.
        nodes: Nodes -> Nodes, Nodes::All, Nodes::from;
        /// Number of a signal.
        signal: Signal -> Option<i32>, None, Some;
        /// Value of a set of signals; none when it is not set.
        signals: Signals -> Signals, Signals::Some(Vec::new()), Signals::from;
        /// Words of an enumeration, in the order given, spelt as in the table; none when it is not
        /// set and has no fixed default.
        words: Words -> Vec<&'static str>, Vec::new(), Vec::from;
        /// Value of a text; `None` when it is not set or empty and has no fixed default.
        text: Text -> Option<String>, None, |text: String| (!text.is_empty()).then_some(text);
    }

    /// The one word of an enumeration; empty when it is not set and has no fixed default.
    ///
    /// # Panics
    /// When the variable is of another form.
    #[must_use]
    pub fn word(&self, name: &str) -> &'static str {
        self.words(name).first().copied().unwrap_or_default()
    }

    /// As [`Values::text`] for a path: exactly the bytes that were set.
    ///
    /// # Panics
    /// When the variable is of another form.
    #[must_use]
    pub fn path(&self, name: &str) -> Option<PathBuf> {
        let text = self.text(name)?;
        Some(self.set.get(name).map_or_else(|| text.into(), |(_, raw)| raw.into()))
    }

    /// Bound on the exit of a job of so many ranks: `GASNET_EXITTIMEOUT`, else the least of `_MAX`
    /// and `_MIN` + ranks * `_FACTOR`.
    ///
    /// # Errors
    /// The parts give less than the floor of 2 seconds.
    pub fn exit_timeout(&self, ranks: u32) -> Result<Duration, Error> {
        const NAMES: [&str; 3] =
            ["GASNET_EXITTIMEOUT_MAX", "GASNET_EXITTIMEOUT_MIN", "GASNET_EXITTIMEOUT_FACTOR"];
        if let Some(whole) = self.duration_secs("GASNET_EXITTIMEOUT") {
            return Ok(whole);
        }
        let [max, min, factor] = NAMES.map(|name| self.real(name).unwrap_or(0.0));
        let seconds = max.min(f64::from(ranks).mul_add(factor, min));
        if seconds >= EXIT_FLOOR {
            return Ok(seconds_of(seconds));
        }
        let name = NAMES.into_iter().find(|name| self.is_set(name)).unwrap_or(NAMES[0]);
        let raw = self.set.get(name).map(|(_, raw)| raw.to_string_lossy().into_owned());
        let problem = format!(
            "with {ranks} ranks, the least of _MAX {max} and _MIN {min} + ranks * _FACTOR {factor} is {seconds} s"
        );
        let expected = format!(
            "at least {EXIT_FLOOR} s out of {}, or GASNET_EXITTIMEOUT to set the time itself, for example 30",
            NAMES.join(", ")
        );
        Err(Error { name: name.to_owned(), value: raw.unwrap_or_default(), problem, expected })
    }
}

/// Least exit time-out in seconds.
const EXIT_FLOOR: f64 = crate::deadlines::EXIT_FLOOR.as_secs_f64();

fn seconds_of(number: f64) -> Duration {
    Duration::try_from_secs_f64(number).unwrap_or(Duration::MAX)
}

fn row(name: &str) -> &'static Variable {
    find(name).unwrap_or_else(|| unreachable!("{name} is not in the table of variables"))
}

/// Members of the family of port filters, which have no rows, whose text cannot be used.
fn member_errors(env: &Env) -> Vec<Error> {
    let wrong = |(name, value): (&std::ffi::OsStr, &std::ffi::OsStr)| {
        let name = name.to_str().filter(|name| port_filter::is_member(name))?.to_owned();
        let value = value.to_string_lossy().into_owned();
        let problem = port_filter::check(&value).err()?;
        Some(Error { name, value, problem, expected: port_filter::EXPECTED.to_owned() })
    };
    env.iter().filter_map(wrong).collect()
}
