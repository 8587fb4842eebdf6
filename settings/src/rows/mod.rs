//! The rows. Each file has the groups that belong together; [`super::GROUPS`] puts them in order.

pub(super) mod launch;
pub(super) mod limits;
pub(super) mod standard;
pub(super) mod verbs;

use crate::variable::{Kind, Preset, Variable};

/// Any whole number that is not negative.
const COUNT: Kind = Kind::Int { min: 0, max: i64::MAX };
/// Any whole number above 0.
const POSITIVE: Kind = Kind::Int { min: 1, max: i64::MAX };
/// Bytes; no letter means bytes.
const BYTES: Kind = Kind::Size { unit: 1, min: 0, max: i64::MAX };
/// Any number that is not negative.
const REAL: Kind = Kind::Real { min: 0.0, max: f64::INFINITY };
const NO: Preset = Preset::Value("0");
const YES: Preset = Preset::Value("1");

/// A row with a fixed default.
const fn fixed(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    doc: &'static str,
) -> Variable {
    Variable::new(name, kind, Preset::Value(default), doc)
}

/// A yes-or-no row.
const fn flag(name: &'static str, preset: Preset, doc: &'static str) -> Variable {
    Variable::new(name, Kind::Bool, preset, doc)
}

/// A row without default.
const fn open(name: &'static str, kind: Kind, doc: &'static str) -> Variable {
    Variable::new(name, kind, Preset::Unset, doc)
}

/// A row whose default depends on the job.
const fn computed(
    name: &'static str,
    kind: Kind,
    how: &'static str,
    doc: &'static str,
) -> Variable {
    Variable::new(name, kind, Preset::Computed(how), doc)
}
