//! The rows. Each file has the groups that belong together; [`super::GROUPS`] puts them in order.

pub(super) mod idle;
pub(super) mod launch;
pub(super) mod limits;
pub(super) mod standard;
pub(super) mod verbs;

use crate::variable::Kind::{self, *};
use crate::variable::Preset::{self, Computed, Unset, Value};
use crate::variable::{Group, Idle, NoEffect, Status, Variable};

/// Any whole number that is not negative.
const COUNT: Kind = Int { min: 0, max: i64::MAX };
/// Any whole number above 0.
const POSITIVE: Kind = Int { min: 1, max: i64::MAX };
/// Bytes; no letter means bytes.
const BYTES: Kind = Size { unit: 1, min: 0, max: i64::MAX };
/// Bytes of a size whose number without a letter counts megabytes.
const MIB: i64 = 1 << 20;
/// The least amount of memory that anything can be done with.
const PAGE_BYTES: i64 = 4096;
/// Any number that is not negative.
const REAL: Kind = Real { min: 0.0, max: f64::INFINITY };
const NO: Preset = Value("0");
const YES: Preset = Value("1");

/// A group: rows of name, form, preset and what differs from a row that ranks read, then the names
/// that do nothing, each with its default where one may be set, with the reason.
macro_rules! group {
    ($GROUP:ident $title:literal {
        $($name:ident: $kind:expr, $preset:expr $(, $with:ident $(($arg:expr))?)* => $doc:literal;)*
    } $(without effect {
        $($status:ident $($idle:ident $(($usual:literal))?)+ => $about:literal $(, $advice:literal)?;)*
    })?) => {
        pub(crate) const $GROUP: Group = Group {
            title: $title,
            rows: &[$(
                Variable::new(stringify!($name), $kind, $preset, $doc)$(.$with($($arg)?))*
            ),*],
            no_effect: &[$($(NoEffect {
                status: Status::$status,
                names: &[$(Idle { name: stringify!($idle), usual: concat!($($usual)?) }),+],
                doc: $about,
                advice: concat!($($advice)?),
            }),*)?],
        };
    };
}
use group;
