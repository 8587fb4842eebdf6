//! Typed values of one environment.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use crate::Env;
use crate::error::Error;
use crate::parse::{MemSpec, Nodes, Signals, Value, parse};
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

impl Values {
    /// Reads every variable.
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
        Ok(Self { set })
    }

    /// All values that cannot be used, for a message that names them together.
    #[must_use]
    pub fn errors(env: &Env) -> Vec<Error> {
        rows().filter_map(|row| read(row, env).err()).collect()
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

    /// Value of a yes-or-no variable or, for one whose presence counts, whether it is set.
    ///
    /// # Panics
    /// When the variable is of another form.
    #[must_use]
    pub fn bool(&self, name: &str) -> bool {
        self.bool_opt(name).unwrap_or(false)
    }

    /// As [`Values::bool`]; `None` when it is not set and has no fixed default.
    ///
    /// # Panics
    /// When the variable is of another form.
    #[must_use]
    pub fn bool_opt(&self, name: &str) -> Option<bool> {
        self.value(name).map(|value| match value {
            Value::Bool(yes) => yes,
            other => wrong(name, &other),
        })
    }

    /// Value of a whole number; 0 when it is not set and has no fixed default.
    ///
    /// # Panics
    /// When the variable is of another form.
    #[must_use]
    pub fn int(&self, name: &str) -> i64 {
        self.int_opt(name).unwrap_or(0)
    }

    /// As [`Values::int`]; `None` when it is not set and has no fixed default.
    ///
    /// # Panics
    /// When the variable is of another form.
    #[must_use]
    pub fn int_opt(&self, name: &str) -> Option<i64> {
        self.value(name).map(|value| match value {
            Value::Int(number) => number,
            other => wrong(name, &other),
        })
    }

    /// Bytes of a size; 0 when it is not set and has no fixed default, or is negative.
    ///
    /// # Panics
    /// When the variable is of another form.
    #[must_use]
    pub fn size(&self, name: &str) -> u64 {
        self.value(name).map_or(0, |value| match value {
            Value::Size(bytes) => u64::try_from(bytes).unwrap_or(0),
            other => wrong(name, &other),
        })
    }

    /// As [`Values::size`] for a size whose negative values are codes, such as -1 for "never".
    ///
    /// # Panics
    /// When the variable is of another form.
    #[must_use]
    pub fn size_or_code(&self, name: &str) -> i64 {
        self.value(name).map_or(0, |value| match value {
            Value::Size(bytes) => bytes,
            other => wrong(name, &other),
        })
    }

    /// Value of a number that need not be whole; `None` when it is not set and has no fixed
    /// default.
    ///
    /// # Panics
    /// When the variable is of another form.
    #[must_use]
    pub fn real(&self, name: &str) -> Option<f64> {
        self.value(name).map(|value| match value {
            Value::Real(number) => number,
            other => wrong(name, &other),
        })
    }

    /// A number of seconds as a length of time; `None` when it is not set and has no fixed default.
    ///
    /// # Panics
    /// When the variable is of another form.
    #[must_use]
    pub fn duration_secs(&self, name: &str) -> Option<Duration> {
        self.real(name).map(|seconds| Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX))
    }

    /// Value of an amount of memory; `None` when it is not set and has no fixed default.
    ///
    /// # Panics
    /// When the variable is of another form.
    #[must_use]
    pub fn memory(&self, name: &str) -> Option<MemSpec> {
        self.value(name).map(|value| match value {
            Value::MemSpec(spec) => spec,
            other => wrong(name, &other),
        })
    }

    /// Value of a set of ranks; all when it is not set.
    ///
    /// # Panics
    /// When the variable is of another form.
    #[must_use]
    pub fn nodes(&self, name: &str) -> Nodes {
        self.value(name).map_or(Nodes::All, |value| match value {
            Value::Nodes(nodes) => nodes,
            other => wrong(name, &other),
        })
    }

    /// Number of a signal.
    ///
    /// # Panics
    /// When the variable is of another form.
    #[must_use]
    pub fn signal(&self, name: &str) -> Option<i32> {
        self.value(name).map(|value| match value {
            Value::Signal(number) => number,
            other => wrong(name, &other),
        })
    }

    /// Value of a set of signals; none when it is not set.
    ///
    /// # Panics
    /// When the variable is of another form.
    #[must_use]
    pub fn signals(&self, name: &str) -> Signals {
        self.value(name).map_or(Signals::Some(Vec::new()), |value| match value {
            Value::Signals(signals) => signals,
            other => wrong(name, &other),
        })
    }

    /// Words of an enumeration, in the order given, spelt as in the table; none when it is not set
    /// and has no fixed default.
    ///
    /// # Panics
    /// When the variable is of another form.
    #[must_use]
    pub fn words(&self, name: &str) -> Vec<&'static str> {
        self.value(name).map_or(Vec::new(), |value| match value {
            Value::Words(words) => words,
            other => wrong(name, &other),
        })
    }

    /// The one word of an enumeration; empty when it is not set and has no fixed default.
    ///
    /// # Panics
    /// When the variable is of another form.
    #[must_use]
    pub fn word(&self, name: &str) -> &'static str {
        self.words(name).first().copied().unwrap_or_default()
    }

    /// Value of a text; `None` when it is not set or empty and has no fixed default.
    ///
    /// # Panics
    /// When the variable is of another form.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<String> {
        let text = self.value(name).map(|value| match value {
            Value::Text(text) => text,
            other => wrong(name, &other),
        });
        text.filter(|text| !text.is_empty())
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
            return Ok(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX));
        }
        let name = NAMES.into_iter().find(|name| self.is_set(name)).unwrap_or(NAMES[0]);
        let value = self
            .set
            .get(name)
            .map(|(_, raw)| raw.to_string_lossy().into_owned())
            .unwrap_or_default();
        let problem = format!(
            "with {ranks} ranks, the least of _MAX {max} and _MIN {min} + ranks * _FACTOR {factor} is {seconds} s"
        );
        let expected = format!(
            "at least {EXIT_FLOOR} s out of {}, or GASNET_EXITTIMEOUT to set the time itself, for example 30",
            NAMES.join(", ")
        );
        Err(Error { name, value, problem, expected })
    }
}

/// Least exit time-out in seconds.
pub(super) const EXIT_FLOOR: f64 = crate::deadlines::EXIT_FLOOR.as_secs_f64();

fn row(name: &str) -> &'static Variable {
    match find(name) {
        Some(row) => row,
        None => unreachable!("{name} is not in the table of variables"),
    }
}

fn wrong(name: &str, value: &Value) -> ! {
    unreachable!("{name} is asked for in a form that it has not: {value:?}")
}
