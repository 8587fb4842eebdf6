//! `GASNET_IBV_PORTS` and its family: `GASNET_IBV_PORTS_0`, `_1`, `_0_1` … for ranks at different
//! places of a host. Which one counts is said by `GASNET_IBV_PORTS_TYPE`: a kind of object of the
//! host (see `topology`) or a rank, with `/n` or `%n` after it; `None`; or `Auto`, which deals near
//! devices to the ranks of a host.

use std::collections::BTreeMap;
use std::io;

use settings::Env;

use crate::transport::net::topology::{Cpus, Object, Topology};

/// The variable without suffix.
pub(crate) const BASE: &str = "GASNET_IBV_PORTS";
/// The variable that chooses.
const TYPE: &str = "GASNET_IBV_PORTS_TYPE";
const DEFAULT_TYPE: &str = "Socket";

/// A `GASNET_IBV_PORTS_TYPE` that cannot be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "environment variable {TYPE}={value:?}: {problem}; expected None, Auto, JRank, HRank, NRank or one of {}, with /n or %n (n above 0) after it if wanted, such as HRank%2",
    Object::NAMES
)]
pub(crate) struct Error {
    value: String,
    problem: String,
}

/// What the suffix counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    JobRank,
    HostRank,
    NbrhdRank,
    Object(Object),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Selector {
    None,
    Auto,
    /// What is counted, and what each number is divided by: whether the quotient counts, or the
    /// remainder.
    Key(Source, Option<(bool, u32)>),
}

/// Where a rank is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spot {
    /// Rank in the job.
    pub job: u32,
    /// Index in the host.
    pub host: u32,
    /// Index in the neighbourhood.
    pub nbrhd: u32,
}

/// What counts for a rank.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Choice {
    /// The variable that counts, and its value.
    pub filter: Option<(String, String)>,
    /// One device of those that the filter leaves, dealt over the ranks of the host.
    pub auto: bool,
}

/// The variables of the family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Family {
    selector: Selector,
    base: Option<String>,
    members: BTreeMap<String, String>,
}

/// A number above 0: decimal, hexadecimal after `0x`, octal after `0`.
fn operand(text: &str) -> Option<u32> {
    let lower = text.to_ascii_lowercase();
    let (digits, radix) = match (lower.strip_prefix("0x"), lower.strip_prefix('0')) {
        (Some(hex), _) => (hex, 16),
        (None, Some(octal)) => (octal, 8),
        (None, None) => (lower.as_str(), 10),
    };
    let plain = digits.starts_with(|c: char| c.is_digit(radix));
    u32::from_str_radix(digits, radix).ok().filter(|number| plain && *number > 0)
}

impl Selector {
    fn parse(value: &str) -> Result<Self, Error> {
        let wrong = |problem: String| Error { value: value.to_owned(), problem };
        let text = value.trim();
        let starts =
            |word: &str| text.get(..word.len()).is_some_and(|head| head.eq_ignore_ascii_case(word));
        if text.eq_ignore_ascii_case("none") {
            return Ok(Self::None);
        }
        if starts("auto") {
            return Ok(Self::Auto);
        }
        let (name, operator) = match text.find(['/', '%']) {
            None => (text, None),
            Some(at) => {
                let number = text[at + 1..].trim();
                if number.contains(['/', '%']) {
                    return Err(wrong("there is more than one operator".to_owned()));
                }
                let by = operand(number);
                let by = by.ok_or_else(|| wrong(format!("{number:?} is no number above 0")))?;
                (&text[..at], Some((text[at..].starts_with('/'), by)))
            }
        };
        let name = name.trim();
        let source = match name.to_ascii_lowercase().as_str() {
            "jrank" => Some(Source::JobRank),
            "hrank" => Some(Source::HostRank),
            "nrank" => Some(Source::NbrhdRank),
            _ => Object::parse(name).map(Source::Object),
        };
        let source = source.ok_or_else(|| wrong(format!("{name:?} is no kind of object")))?;
        Ok(Self::Key(source, operator))
    }
}

impl Default for Family {
    /// Every port of every device.
    fn default() -> Self {
        Self { selector: Selector::None, base: None, members: BTreeMap::new() }
    }
}

/// Digits with underscores between them.
fn is_key(text: &str) -> bool {
    text.split('_').all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()))
}

impl Family {
    /// The family in an environment. Empty values of suffixed names count as unset.
    pub(crate) fn from_env(env: &Env) -> Result<Self, Error> {
        let filled = |text: Option<String>| text.filter(|text| !text.trim().is_empty());
        let kind = filled(env.text(TYPE)).unwrap_or_else(|| DEFAULT_TYPE.to_owned());
        let member = |(name, value): (&std::ffi::OsStr, &std::ffi::OsStr)| {
            let name = name.to_str()?;
            let key = name.strip_prefix(BASE)?.strip_prefix('_').filter(|key| is_key(key))?;
            Some((key.to_owned(), filled(Some(value.to_string_lossy().into_owned()))?))
        };
        // The first of equal names counts.
        let members: Vec<_> = env.iter().filter_map(member).collect();
        Ok(Self {
            selector: Selector::parse(&kind)?,
            base: filled(env.text(BASE)),
            members: members.into_iter().rev().collect(),
        })
    }

    /// What of it is set and chooses ports, as assignments; empty when nothing is.
    pub(crate) fn assignments(&self) -> String {
        let base = self.base.iter().map(|text| format!("{BASE}={text}"));
        let auto = (self.selector == Selector::Auto).then(|| format!("{TYPE}=Auto"));
        let counts = matches!(self.selector, Selector::Key(..));
        let members = self.members.iter().filter(|_| counts);
        let members = members.map(|(key, text)| format!("{BASE}_{key}={text}"));
        base.chain(auto).chain(members).collect::<Vec<_>>().join(", ")
    }

    fn base(&self) -> Choice {
        let filter = self.base.clone().map(|text| (BASE.to_owned(), text));
        Choice { filter, auto: self.selector == Selector::Auto }
    }

    /// What counts for a rank at `spot`. `host` is asked only where objects of the host choose;
    /// when it fails there is a warning (second) and the unsuffixed value counts.
    pub(crate) fn choose(
        &self,
        spot: Spot,
        host: impl FnOnce() -> io::Result<(Topology, Cpus)>,
    ) -> (Choice, Option<String>) {
        let (source, operator) = match self.selector {
            Selector::Key(source, operator) if !self.members.is_empty() => (source, operator),
            _ => return (self.base(), None),
        };
        let mut numbers = match source {
            Source::JobRank => vec![spot.job],
            Source::HostRank => vec![spot.host],
            Source::NbrhdRank => vec![spot.nbrhd],
            Source::Object(object) => match host() {
                Ok((topology, binding)) => topology.indexes(object, &binding),
                Err(error) => {
                    let line = format!(
                        "{TYPE}: the host's topology cannot be read ({error}): {BASE} counts for every rank"
                    );
                    return (self.base(), Some(line));
                }
            },
        };
        if let Some((quotient, by)) = operator {
            let count =
                |number: u32| if quotient { number / by.max(1) } else { number % by.max(1) };
            numbers.iter_mut().for_each(|number| *number = count(*number));
        }
        numbers.sort_unstable();
        numbers.dedup();
        let key = numbers.iter().map(u32::to_string).collect::<Vec<_>>().join("_");
        let member = self.members.get(&key).cloned();
        let filter = member.map(|text| (format!("{BASE}_{key}"), text));
        (
            filter
                .map_or_else(|| self.base(), |filter| Choice { filter: Some(filter), auto: false }),
            None,
        )
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::transport::net::topology::invented;

    const SPOT: Spot = Spot { job: 9, host: 5, nbrhd: 3 };

    fn family(pairs: &[(&str, &str)]) -> Result<Family, Error> {
        Family::from_env(&pairs.iter().copied().collect())
    }

    /// Name and text of what counts; empty for no filter.
    fn chosen(pairs: &[(&str, &str)], bound: &[u32]) -> (String, String) {
        let host = || Ok((invented(2, 2, 2), bound.iter().copied().collect()));
        match family(pairs).unwrap().choose(SPOT, host) {
            (Choice { filter, auto: false }, None) => filter.unwrap_or_default(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_is_set_is_told_as_it_was_set() {
        let told = |rows: &[(&str, &str)]| family(rows).unwrap().assignments();
        assert_eq!(told(&[]), "");
        assert_eq!(told(&[("GASNET_IBV_PORTS", "a+b:1")]), "GASNET_IBV_PORTS=a+b:1");
        let both = [("GASNET_IBV_PORTS_0", "a"), ("GASNET_IBV_PORTS_1", "b")];
        assert_eq!(told(&both), "GASNET_IBV_PORTS_0=a, GASNET_IBV_PORTS_1=b");
        let none = [("GASNET_IBV_PORTS_0", "a"), (TYPE, "None")];
        assert_eq!(told(&none), "");
        assert_eq!(told(&[(TYPE, "auto")]), "GASNET_IBV_PORTS_TYPE=Auto");
    }

    #[test]
    fn sockets_choose_by_default() {
        let pairs =
            [("GASNET_IBV_PORTS", "a+d"), ("GASNET_IBV_PORTS_0", "a"), ("GASNET_IBV_PORTS_1", "d")];
        assert_eq!(chosen(&pairs, &[0, 1]), ("GASNET_IBV_PORTS_0".into(), "a".into()));
        assert_eq!(chosen(&pairs, &[2]), ("GASNET_IBV_PORTS_1".into(), "d".into()));
        assert_eq!(chosen(&pairs, &[0, 2]), ("GASNET_IBV_PORTS".into(), "a+d".into()));
        let both = [("GASNET_IBV_PORTS_0_1", "x"), ("GASNET_IBV_PORTS_TYPE", " numanode ")];
        assert_eq!(chosen(&both, &[0, 2]), ("GASNET_IBV_PORTS_0_1".into(), "x".into()));
        assert_eq!(chosen(&both, &[0]), (String::new(), String::new()));
    }

    #[test]
    fn ranks_and_operators_choose() {
        for (kind, key) in [
            ("JRank", "9"),
            ("hrank", "5"),
            ("NRANK", "3"),
            ("HRank%2", "1"),
            ("HRank / 2", "2"),
            ("JRank%0x4", "1"),
            ("JRank/010", "1"),
            ("PU/4", "0_1"),
            ("Core%1", "0"),
        ] {
            let name = format!("GASNET_IBV_PORTS_{key}");
            let pairs = [
                ("GASNET_IBV_PORTS_TYPE", kind),
                (name.as_str(), "here"),
                ("GASNET_IBV_PORTS_77", "no"),
            ];
            assert_eq!(chosen(&pairs, &[0, 1, 2]), (name.clone(), "here".into()), "{kind}");
        }
    }

    #[test]
    fn none_and_auto_take_the_base() {
        let pairs = [
            ("GASNET_IBV_PORTS_TYPE", "NONE"),
            ("GASNET_IBV_PORTS", "b"),
            ("GASNET_IBV_PORTS_0", "a"),
        ];
        assert_eq!(chosen(&pairs, &[0]).1, "b");
        let auto =
            family(&[("GASNET_IBV_PORTS_TYPE", "Automatic"), ("GASNET_IBV_PORTS_0", "a")]).unwrap();
        let host = || -> io::Result<_> { unreachable!("ranks need no topology") };
        assert_eq!(auto.choose(SPOT, host), (Choice { filter: None, auto: true }, None));
    }

    #[test]
    fn a_host_that_does_not_show_itself_is_a_warning() {
        let family = family(&[("GASNET_IBV_PORTS", "b"), ("GASNET_IBV_PORTS_0", "a")]).unwrap();
        let (choice, warning) = family.choose(SPOT, || Err(io::Error::other("no sysfs")));
        assert_eq!(choice, Choice { filter: Some((BASE.into(), "b".into())), auto: false });
        assert!(warning.unwrap().contains("no sysfs"));
    }

    #[test]
    fn wrong_types_are_refused() {
        for (value, problem) in [
            ("Sockets", "\"Sockets\" is no kind"),
            ("Socket/0", "\"0\" is no number above 0"),
            ("Socket/", "\"\" is no number above 0"),
            ("Socket/2x", "\"2x\" is no number"),
            ("Socket/+2", "\"+2\" is no number"),
            ("Socket/2%2", "more than one operator"),
            ("/2", "\"\" is no kind"),
            ("GPU", "\"GPU\" is no kind"),
        ] {
            let error = family(&[("GASNET_IBV_PORTS_TYPE", value)]).unwrap_err().to_string();
            assert!(error.contains(problem) && error.contains("HRank%2"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn no_type_panics(text in "\\PC{0,16}") {
            let _ = family(&[("GASNET_IBV_PORTS_TYPE", &text)]);
        }
    }
}
