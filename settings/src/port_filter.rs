//! The text of `GASNET_IBV_PORTS` and its family: `HCA[:port[,port…]]` joined with `+`. The
//! launcher reads it before anything starts, ranks to choose their ports.

/// The variable without suffix; `_0`, `_1`, `_0_1` … follow it in the names of its family.
const BASE: &str = "GASNET_IBV_PORTS";
/// What a filter looks like.
pub(crate) const EXPECTED: &str = "HCA or HCA:PORT,PORT joined with +, for example mlx5_0+mlx5_1:2";

/// An adapter that a filter names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortEntry {
    /// Its name.
    pub hca: String,
    /// Its ports; empty: the first active one.
    pub ports: Vec<u8>,
}

/// What a filter names, in its order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortFilter {
    /// Adapters, as often as they are named.
    pub entries: Vec<PortEntry>,
}

/// What is wrong with a filter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("character {position}: {problem}")]
pub struct PortFilterError {
    /// Where, counted from 1.
    pub position: usize,
    /// What, as a part of a sentence.
    pub problem: String,
}

impl PortFilter {
    /// Reads a filter.
    ///
    /// # Errors
    /// The first thing that is not understood.
    pub fn parse(text: &str) -> Result<Self, PortFilterError> {
        let mut entries = Vec::new();
        let mut at = 0;
        for item in text.split('+') {
            let entry = entry(item).map_err(|(place, problem)| {
                let head = text.get(..at + place).map_or(at, |head| head.chars().count());
                PortFilterError { position: head + 1, problem }
            })?;
            entries.push(entry);
            at += item.len() + 1;
        }
        Ok(Self { entries })
    }
}

/// One adapter; else at which byte, and what is wrong.
fn entry(item: &str) -> Result<PortEntry, (usize, String)> {
    let (hca, ports) = item.split_once(':').map_or((item, None), |(a, b)| (a, Some(b)));
    if hca.trim().is_empty() {
        return Err((0, "the name of an adapter is missing".to_owned()));
    }
    if let Some(odd) = hca.trim().find(|c: char| c.is_whitespace() || c == ',') {
        let lead = hca.len() - hca.trim_start().len();
        return Err((lead + odd, "this cannot be part of a name".to_owned()));
    }
    let mut numbers = Vec::new();
    let mut place = hca.len() + 1;
    for number in ports.into_iter().flat_map(|ports| ports.split(',')) {
        let digits = number.trim();
        let plain = digits.bytes().all(|b| b.is_ascii_digit());
        match digits.parse::<u8>() {
            Ok(port) if plain && port > 0 => numbers.push(port),
            _ => return Err((place, format!("{digits:?} is no port number (1 to 255)"))),
        }
        place += number.len() + 1;
    }
    Ok(PortEntry { hca: hca.trim().to_owned(), ports: numbers })
}

/// What is wrong with the text of a filter; an empty one is none.
pub(crate) fn check(text: &str) -> Result<(), String> {
    match text.trim() {
        "" => Ok(()),
        _ => PortFilter::parse(text).map(|_| ()).map_err(|error| error.to_string()),
    }
}

/// Whether digits with underscores between them follow the name of the family.
pub(crate) fn is_member(name: &str) -> bool {
    let key = name.strip_prefix(BASE).and_then(|rest| rest.strip_prefix('_'));
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    key.is_some_and(|key| key.split('_').all(digits))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn mistakes_are_found_at_their_place() {
        for (text, position, problem) in [
            ("mlx5_0:x", 8, "\"x\" is no port"),
            ("mlx5_0:1,,2", 10, "\"\" is no port"),
            ("mlx5_0:1,256", 10, "\"256\" is no port"),
            ("mlx5_0:0", 8, "\"0\" is no port"),
            ("mlx5_0:+1", 8, "\"\" is no port"),
            ("mlx5_0:1:2", 8, "\"1:2\" is no port"),
            ("mlx5_0+", 8, "name of an adapter is missing"),
            ("+mlx5_0", 1, "name of an adapter is missing"),
            (":1", 1, "name of an adapter is missing"),
            ("mlx5_0 mlx5_1", 7, "cannot be part of a name"),
            ("mlx5_0,mlx5_1", 7, "cannot be part of a name"),
            ("é+é:", 5, "\"\" is no port"),
        ] {
            let error = PortFilter::parse(text).unwrap_err();
            assert_eq!(error.position, position, "{text}: {error}");
            assert!(error.problem.contains(problem), "{text}: {error}");
        }
    }

    #[test]
    fn adapters_and_ports_are_read() {
        let filter = PortFilter::parse(" mlx5_1 : 2 ,1+ib0").unwrap();
        let entry = |hca: &str, ports: &[u8]| PortEntry { hca: hca.into(), ports: ports.into() };
        assert_eq!(filter.entries, [entry("mlx5_1", &[2, 1]), entry("ib0", &[])]);
    }

    proptest! {
        #[test]
        fn no_filter_panics_and_each_mistake_has_a_place_inside(text in "[a-z0-9_:,+ é]{0,24}") {
            if let Err(error) = PortFilter::parse(&text) {
                prop_assert!(error.position >= 1 && error.position <= text.chars().count() + 1);
            }
        }
    }
}
