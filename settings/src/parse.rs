//! From texts to values. Trailing text, empty numbers and fractions that are none are errors;
//! nothing is guessed.

use std::fmt::Display;

use nix::sys::signal::Signal;

use crate::port_filter;
use crate::variable::Kind;

/// A parsed value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Of [`Kind::Int`].
    Int(i64),
    /// Of [`Kind::Size`], in bytes.
    Size(i64),
    /// Of [`Kind::Real`].
    Real(f64),
    /// Of [`Kind::Bool`], [`Kind::VerboseBool`] and [`Kind::Presence`].
    Bool(bool),
    /// Of [`Kind::MemSpec`].
    MemSpec(MemSpec),
    /// Of [`Kind::Nodes`].
    Nodes(Nodes),
    /// Of [`Kind::Signal`].
    Signal(i32),
    /// Of [`Kind::SignalList`].
    Signals(Signals),
    /// Of [`Kind::Enum`] and [`Kind::EnumList`], spelt as in the table.
    Words(Vec<&'static str>),
    /// Of [`Kind::Text`], [`Kind::FilePattern`] and [`Kind::PortFilter`].
    Text(String),
}

/// An amount of memory and what it is for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MemSpec {
    /// How much.
    pub amount: Amount,
    /// For whom.
    pub per: Per,
}

/// How much memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Amount {
    /// So many bytes.
    Bytes(u64),
    /// Share of the host's physical memory, between 0 and 1, both excluded.
    Fraction(f64),
}

/// For whom an amount of memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Per {
    /// Each rank. What holds when neither `/P` nor `/H` is given.
    Process,
    /// All ranks of a host together.
    Host,
}

/// A set of ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Nodes {
    /// All ranks.
    All,
    /// Ranks from first to last, both included.
    Ranges(Vec<(u32, u32)>),
}

impl Nodes {
    /// Whether a rank belongs to the set.
    #[must_use]
    pub fn contains(&self, rank: u32) -> bool {
        match self {
            Self::All => true,
            Self::Ranges(ranges) => {
                ranges.iter().any(|(first, last)| (*first..=*last).contains(&rank))
            }
        }
    }
}

/// A set of signals.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Signals {
    /// All signals.
    All,
    /// These numbers.
    Some(Vec<i32>),
}

impl Signals {
    /// Whether a signal belongs to the set.
    #[must_use]
    pub fn contains(&self, signal: i32) -> bool {
        match self {
            Self::All => true,
            Self::Some(list) => list.contains(&signal),
        }
    }
}

const YES: [&str; 4] = ["1", "y", "yes", "true"];
const NO: [&str; 4] = ["0", "n", "no", "false"];
/// Greatest signal number of the system (`SIGRTMAX`).
const LAST_SIGNAL: i32 = 64;

/// Parses `text` in the given form.
///
/// # Errors
/// What is wrong with it, as a part of a sentence. [`Kind::expected`] says what would be right.
pub fn parse(kind: Kind, text: &str) -> Result<Value, String> {
    match kind {
        Kind::Int { min, max } => in_range(integer(text)?, min, max).map(Value::Int),
        Kind::Size { unit, min, max } => in_range(size(text, unit)?, min, max).map(Value::Size),
        Kind::Real { min, max } => real(text, min, max).map(Value::Real),
        Kind::Bool => boolean(text).map(Value::Bool),
        Kind::VerboseBool => Ok(Value::Bool(!is_word(&NO, text.trim()))),
        Kind::MemSpec { per, min } => memory(text, per, min).map(Value::MemSpec),
        Kind::Nodes => nodes(text).map(Value::Nodes),
        Kind::Signal => signal(text.trim()).map(Value::Signal),
        Kind::SignalList => signals(text).map(Value::Signals),
        Kind::Enum(words) => word(words, text.trim()).map(|word| Value::Words(vec![word])),
        Kind::EnumList(words) => word_list(words, text),
        Kind::PortFilter => port_filter::check(text).map(|()| Value::Text(text.to_owned())),
        Kind::Text | Kind::FilePattern => Ok(Value::Text(text.to_owned())),
        Kind::Presence => Ok(Value::Bool(true)),
    }
}

impl Kind {
    /// What a value of this form looks like, with an example.
    #[must_use]
    pub fn expected(&self) -> String {
        match self {
            Self::Int { min, max: i64::MAX } => {
                format!("a whole number of at least {min}, for example {}", example(*min))
            }
            Self::Int { min, max } => format!(
                "a whole number from {min} to {max}, for example {}",
                example(*min).min(*max)
            ),
            Self::Size { unit, .. } => {
                let bare = match *unit {
                    1 => "bytes",
                    0x400 => "KB",
                    _ => "MB",
                };
                format!(
                    "a size such as 64K, 1.5G or 2 MiB (a number without a letter counts {bare}){}",
                    self.limits()
                )
            }
            Self::Real { .. } => {
                format!("a number or a fraction such as 0.5, 30 or 2/3{}", self.limits())
            }
            Self::Bool => "1, y, yes, true or 0, n, no, false".to_owned(),
            Self::VerboseBool => "anything; 0, n, no, false mean no".to_owned(),
            Self::MemSpec { per, min } => {
                let suffix = if *per {
                    ", with /P for each rank or /H for a whole host after it, for example 0.85/H"
                } else {
                    ""
                };
                format!(
                    "a size of at least {min} bytes such as 512M, or a part of the memory below 1 such as 0.85 or 2/3{suffix}"
                )
            }
            Self::Nodes => "ranks such as 0,4-7, or * for all".to_owned(),
            Self::Signal => format!(
                "a signal that can be caught, such as SIGUSR1, usr1 or a number from 1 to {LAST_SIGNAL}"
            ),
            Self::SignalList => "signals such as SIGINT,SIGTERM, or * for all".to_owned(),
            Self::FilePattern => "a path; % stands for the rank".to_owned(),
            Self::Enum(words) => format!("one of {}", words.join(", ")),
            Self::EnumList(words) => {
                format!("a list, such as {}, of some of {}", words[0], words.join(", "))
            }
            Self::PortFilter => port_filter::EXPECTED.to_owned(),
            Self::Text => "any text".to_owned(),
            Self::Presence => "any value".to_owned(),
        }
    }

    fn limits(&self) -> String {
        match self {
            Self::Size { min, max: i64::MAX, .. } => format!(", at least {min} bytes"),
            Self::Size { min, max, .. } => format!(", from {min} to {max} bytes"),
            Self::Real { min, max } if max.is_finite() => format!(", from {min} to {max}"),
            Self::Real { min, .. } => format!(", at least {min}"),
            _ => String::new(),
        }
    }
}

/// A plausible number that is not below `min`.
fn example(min: i64) -> i64 {
    min.max(4)
}

fn in_range<T: PartialOrd + Display>(value: T, min: T, max: T) -> Result<T, String> {
    if value < min {
        return Err(format!("{value} is below the least value {min}"));
    }
    if value > max {
        return Err(format!("{value} is above the greatest value {max}"));
    }
    Ok(value)
}

/// Number of digits beyond which no number is meant.
const MOST_DIGITS: usize = 30;

/// `mantissa / 10^places`, and what follows it.
struct Number<'a> {
    negative: bool,
    mantissa: u128,
    places: u32,
    rest: &'a str,
}

/// The number at the start of `text` (trimmed): optional sign, then decimal digits with at most one
/// point, or `0x` and hexadecimal digits.
fn number(text: &str) -> Result<Number<'_>, String> {
    let text = text.trim();
    if text.is_empty() {
        return Err("the value is empty; unset the variable to get the default".to_owned());
    }
    let (negative, digits) = match text.strip_prefix(['-', '+']) {
        Some(rest) => (text.starts_with('-'), rest.trim_start()),
        None => (false, text),
    };
    let none = || format!("{text:?} does not start with a number");
    let hex = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X"));
    let (radix, digits) = hex.map_or((10, digits), |digits| (16, digits));
    let end = |s: &str| s.find(|c: char| !c.is_digit(radix)).unwrap_or(s.len());
    let (whole, mut rest) = digits.split_at(end(digits));
    let mut part = "";
    if radix == 10
        && let Some(after) = rest.strip_prefix('.')
    {
        (part, rest) = after.split_at(end(after));
    }
    let all = format!("{whole}{part}");
    if all.is_empty() {
        return Err(none());
    }
    if all.len() > MOST_DIGITS {
        return Err("the number has too many digits".to_owned());
    }
    let mantissa = u128::from_str_radix(&all, radix).map_err(|_| none())?;
    Ok(Number { negative, mantissa, places: u32::try_from(part.len()).unwrap_or(0), rest })
}

fn signed(negative: bool, magnitude: u128) -> Result<i64, String> {
    let value = i64::try_from(magnitude).map_err(|_| "the number is too large".to_owned())?;
    Ok(if negative { -value } else { value })
}

fn trailing(rest: &str) -> Result<(), String> {
    if rest.is_empty() { Ok(()) } else { Err(format!("{rest:?} follows the number")) }
}

fn integer(text: &str) -> Result<i64, String> {
    let Number { negative, mantissa, places, rest } = number(text)?;
    trailing(rest)?;
    if places > 0 || text.contains('.') {
        return Err("a number with a point is not whole".to_owned());
    }
    signed(negative, mantissa)
}

/// Bytes that a size suffix stands for; `None` for no suffix.
fn suffix(rest: &str) -> Result<Option<u128>, String> {
    let rest = rest.trim_start();
    let Some(letter) = rest.chars().next() else { return Ok(None) };
    let power = match letter.to_ascii_uppercase() {
        'B' => 0,
        'K' => 1,
        'M' => 2,
        'G' => 3,
        'T' => 4,
        _ => return Err(format!("{rest:?} follows the number")),
    };
    let tail = &rest[letter.len_utf8()..];
    let plain = tail.is_empty()
        || power > 0 && (tail.eq_ignore_ascii_case("b") || tail.eq_ignore_ascii_case("ib"));
    if plain { Ok(Some(1024u128.pow(power))) } else { Err(format!("{rest:?} follows the number")) }
}

fn size(text: &str, unit: i64) -> Result<i64, String> {
    let Number { negative, mantissa, places, rest } = number(text)?;
    let unit = suffix(rest)?.unwrap_or(u128::from(unit.unsigned_abs()));
    let too_large = || "the size is too large".to_owned();
    let bytes = mantissa.checked_mul(unit).ok_or_else(too_large)? / 10u128.pow(places);
    if bytes == 0 && mantissa != 0 {
        return Err("that is less than one byte".to_owned());
    }
    // -1 is a code for "never" or "automatic", not a number of units.
    let bytes = if negative && mantissa == 1 && places == 0 && rest.is_empty() { 1 } else { bytes };
    signed(negative, bytes).map_err(|_| too_large())
}

fn real(text: &str, min: f64, max: f64) -> Result<f64, String> {
    let value = match text.split_once('/') {
        Some((above, below)) => {
            let (above, below) = (plain_real(above)?, plain_real(below)?);
            if below == 0.0 {
                return Err("the denominator is 0".to_owned());
            }
            above / below
        }
        None => plain_real(text)?,
    };
    if !value.is_finite() {
        return Err("the number is too large".to_owned());
    }
    in_range(value, min, max)
}

fn plain_real(text: &str) -> Result<f64, String> {
    let text = text.trim();
    if text.is_empty() {
        return Err("a number is missing; unset the variable to get the default".to_owned());
    }
    // The standard parser also knows "inf" and "nan".
    let digits = text.starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c));
    match text.parse::<f64>() {
        Ok(value) if digits && value.is_finite() => Ok(value),
        _ => Err(format!("{text:?} is not a number")),
    }
}

fn is_word(words: &[&str], text: &str) -> bool {
    words.iter().any(|word| word.eq_ignore_ascii_case(text))
}

fn boolean(text: &str) -> Result<bool, String> {
    match text.trim() {
        text if is_word(&YES, text) => Ok(true),
        text if is_word(&NO, text) => Ok(false),
        "" => Err("the value is empty".to_owned()),
        other => Err(format!("{other:?} is neither yes nor no")),
    }
}

fn memory(text: &str, per_allowed: bool, min: u64) -> Result<MemSpec, String> {
    let text = text.trim();
    let tail = text.rsplit_once('/').map(|(head, tail)| (head, tail.trim()));
    let (head, per) = match tail {
        Some((head, tail)) if is_word(&["P"], tail) => (head, Some(Per::Process)),
        Some((head, tail)) if is_word(&["H"], tail) => (head, Some(Per::Host)),
        _ => (text, None),
    };
    if per.is_some() && !per_allowed {
        return Err("/P and /H have no meaning here".to_owned());
    }
    let per = per.unwrap_or(Per::Process);
    let amount = amount(head.trim())?;
    match amount {
        Amount::Bytes(bytes) if bytes < min => {
            Err(format!("{bytes} bytes are below the least value of {min} bytes"))
        }
        _ => Ok(MemSpec { amount, per }),
    }
}

fn amount(text: &str) -> Result<Amount, String> {
    let looks_real = text.contains('/')
        || text.contains('.') && text.ends_with(|c: char| c.is_ascii_digit() || c == '.');
    if !looks_real {
        let bytes = size(text, 1)?;
        return match u64::try_from(bytes) {
            Ok(0) | Err(_) => Err(format!("{bytes} bytes of memory are not enough")),
            Ok(bytes) => Ok(Amount::Bytes(bytes)),
        };
    }
    let part = real(text, f64::MIN, f64::MAX)?;
    if part <= 0.0 {
        return Err("a part of the memory must be above 0".to_owned());
    }
    if part >= 1.0 {
        // Read as a number of bytes, "1.0" would mean one byte.
        let problem = "is neither a part of the memory (that is below 1) nor a size (that has a letter, or no point)";
        return Err(format!("{text:?} {problem}"));
    }
    Ok(Amount::Fraction(part))
}

fn nodes(text: &str) -> Result<Nodes, String> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(Nodes::All);
    }
    let mut ranges = Vec::new();
    for item in text.split(',').map(str::trim) {
        if item == "*" {
            return Ok(Nodes::All);
        }
        let (first, last) = item.split_once('-').unwrap_or((item, item));
        let rank = |text: &str| {
            let text = text.trim();
            let digits = text.starts_with(|c: char| c.is_ascii_digit());
            text.parse::<u32>()
                .ok()
                .filter(|_| digits)
                .ok_or_else(|| format!("{text:?} is no rank"))
        };
        let (first, last) = (rank(first)?, rank(last)?);
        if first > last {
            return Err(format!("the range {item:?} is empty"));
        }
        ranges.push((first, last));
    }
    Ok(Nodes::Ranges(ranges))
}

fn any_signal(text: &str) -> Result<i32, String> {
    let unknown = || format!("{text:?} is no signal");
    if text.starts_with(|c: char| c.is_ascii_digit()) {
        return text.parse().ok().filter(|n| (1..=LAST_SIGNAL).contains(n)).ok_or_else(unknown);
    }
    let upper = text.to_ascii_uppercase();
    let name = if upper.starts_with("SIG") { upper } else { format!("SIG{upper}") };
    name.parse::<Signal>().map(|signal| signal as i32).map_err(|_| unknown())
}

fn signal(text: &str) -> Result<i32, String> {
    let number = any_signal(text)?;
    if [libc::SIGKILL, libc::SIGSTOP].contains(&number) {
        return Err(format!("{text:?} cannot be caught"));
    }
    Ok(number)
}

fn signals(text: &str) -> Result<Signals, String> {
    if text.trim() == "*" {
        return Ok(Signals::All);
    }
    let items = text.split([',', ' ', '\t']).filter(|item| !item.is_empty());
    items.map(any_signal).collect::<Result<_, _>>().map(Signals::Some)
}

fn word(words: &[&'static str], text: &str) -> Result<&'static str, String> {
    let found = words.iter().find(|word| word.eq_ignore_ascii_case(text));
    found.copied().ok_or_else(|| format!("{text:?} is unknown"))
}

fn word_list(words: &[&'static str], text: &str) -> Result<Value, String> {
    let items = text.split([',', ' ', '|', ';']).filter(|item| !item.is_empty());
    let list: Vec<_> = items.map(|item| word(words, item)).collect::<Result<_, _>>()?;
    if list.is_empty() { Err("the list is empty".to_owned()) } else { Ok(Value::Words(list)) }
}
