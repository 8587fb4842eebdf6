//! Values of options that are more than a number or a word: ranks, and the words of a command.

use std::fmt;

use bootstrap::rank::MAX_RANKS;

/// The words of a command, by the quoting rules of a shell; at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Words(Vec<String>);

impl Words {
    /// # Errors
    /// There is none, or a quote is not closed.
    pub fn parse(text: &str) -> Result<Self, String> {
        match shlex::split(text) {
            Some(words) if words.first().is_some_and(|first| !first.is_empty()) => Ok(Self(words)),
            Some(_) => Err("no command; write one, as in gdb or 'xterm -e gdb'".to_owned()),
            None => Err("a quote is not closed; quote as in a shell".to_owned()),
        }
    }

    /// The words.
    #[must_use]
    pub fn all(&self) -> &[String] {
        &self.0
    }
}

/// Ranks, chosen by numbers and ranges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ranks(Vec<(u32, u32)>);

impl Ranks {
    /// As in `0,3-5`.
    ///
    /// # Errors
    /// Anything else.
    pub fn parse(text: &str) -> Result<Self, String> {
        const FORM: &str = "write ranks and ranges between commas, as in 0,3-5";
        let number = |text: &str| {
            let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            let number = text.parse::<u32>().ok().filter(|_| digits);
            number.filter(|rank| *rank < MAX_RANKS).ok_or_else(|| FORM.to_owned())
        };
        let mut all = Vec::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (number(first)?, number(last)?);
            if first > last {
                return Err(format!("{part} ends before it begins; {FORM}"));
            }
            all.push((first, last));
        }
        all.sort_unstable();
        Ok(Self(all))
    }

    /// Whether this rank is among them.
    #[must_use]
    pub fn contains(&self, rank: u32) -> bool {
        self.0.iter().any(|(first, last)| (*first..=*last).contains(&rank))
    }

    /// The first and the last of each range.
    #[must_use]
    pub fn ranges(&self) -> &[(u32, u32)] {
        &self.0
    }

    /// The largest.
    #[must_use]
    pub fn last(&self) -> u32 {
        self.0.iter().map(|(_, last)| *last).max().unwrap_or(0)
    }

    /// The rank, if it is one alone.
    #[must_use]
    pub fn only(&self) -> Option<u32> {
        match self.0.as_slice() {
            [(first, last)] if first == last => Some(*first),
            _ => None,
        }
    }
}

impl fmt::Display for Ranks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |(first, last): &(u32, u32)| match first == last {
            true => first.to_string(),
            false => format!("{first}-{last}"),
        };
        f.write_str(&self.0.iter().map(text).collect::<Vec<_>>().join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_numbers_and_ranges() {
        let shown = |text: &str| Ranks::parse(text).map(|ranks| ranks.to_string());
        assert_eq!(shown("0"), Ok("0".to_owned()));
        assert_eq!(shown("3-5,0"), Ok("0,3-5".to_owned()));
        for bad in ["", ",", "1,", "a", "-1", "1-", "+1", "5-3", "1-2-3", "99999999999"] {
            assert!(Ranks::parse(bad).is_err(), "{bad}");
        }
        let ranks = Ranks::parse("7,2-3").expect("good");
        assert_eq!((ranks.last(), ranks.only()), (7, None));
        assert!([2, 3, 7].iter().all(|rank| ranks.contains(*rank)) && !ranks.contains(4));
        assert_eq!(Ranks::parse("7-7").expect("good").only(), Some(7));
    }

    #[test]
    fn a_command_has_a_word() {
        for bad in ["", " ", "'", "''"] {
            assert!(Words::parse(bad).is_err(), "{bad:?}");
        }
        let words = Words::parse("xterm -e 'my gdb'").expect("good");
        assert_eq!(words.all(), ["xterm", "-e", "my gdb"]);
    }
}
