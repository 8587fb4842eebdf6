//! `--debugger`: chosen ranks run their program under a debugger.
//!
//! The programs of the job are cut where chosen and other ranks meet, and the words of the debugger
//! stand in front of the chosen ones. For all that follows (staging, other hosts, other launchers) it
//! is a wrapper as any other.

use std::ffi::OsString;
use std::fmt;

use ::settings::Env;
use bootstrap::rank::MAX_RANKS;
use supervisor::plan::Program;

use crate::dry_run;
use crate::flags::Flags;
use crate::program::{Places, ProgramError};

/// Debuggers, and what each needs between its own words and those of the program.
const SEPARATORS: [(&str, &str); 9] = [
    ("gdb", "--args"),
    ("cgdb", "--args"),
    ("cuda-gdb", "--args"),
    ("gdb-multiarch", "--args"),
    ("gdb-oneapi", "--args"),
    ("rust-gdb", "--args"),
    ("lldb", "--"),
    ("rust-lldb", "--"),
    ("totalview", "-args"),
];

/// Seconds that ranks have to end after the others: a debugger waits for its user.
const PATIENCE: &str = "86400";
const EXIT_TIMES: [&str; 4] = [
    "GASNET_EXITTIMEOUT",
    "GASNET_EXITTIMEOUT_MAX",
    "GASNET_EXITTIMEOUT_MIN",
    "GASNET_EXITTIMEOUT_FACTOR",
];

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

/// A debugger for ranks of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Debugger {
    /// Its words, the first one an absolute path.
    pub words: Vec<OsString>,
    /// Whose program it runs; none: that of all ranks.
    pub ranks: Option<Ranks>,
}

impl Debugger {
    /// That of the command line, found on this host.
    ///
    /// # Errors
    /// It is not installed.
    pub fn of(flags: &Flags, places: &Places) -> Result<Option<Self>, ProgramError> {
        let Some(words) = &flags.debugger else { return Ok(None) };
        let mut words: Vec<OsString> = with_separator(words.all());
        // In a container it is that of the container.
        if let Some(first) = words.first_mut().filter(|_| flags.container.is_none()) {
            *first = places.find(first)?.into_os_string();
        }
        Ok(Some(Self { words, ranks: flags.debugger_ranks.clone() }))
    }

    fn has(&self, rank: u32) -> bool {
        self.ranks.as_ref().is_none_or(|ranks| ranks.contains(rank))
    }

    /// The programs of a job of `size` ranks, with the debugger in front of those of its ranks.
    #[must_use]
    pub fn cut(&self, programs: &[Program], size: u32) -> Vec<Program> {
        let ranks = self.ranks.iter().flat_map(|ranks| &ranks.0);
        let ends = ranks.flat_map(|(first, last)| [*first, last.saturating_add(1)]);
        let firsts = programs.iter().map(|program| program.first);
        let mut firsts: Vec<u32> = firsts.chain(ends).filter(|first| *first < size).collect();
        firsts.sort_unstable();
        firsts.dedup();
        // Where both sides have it, or neither, nothing is cut.
        firsts.dedup_by(|next, before| {
            self.has(*next) == self.has(*before)
                && Program::index_of(programs, *next) == Program::index_of(programs, *before)
        });
        let part = |first: u32| {
            let program = programs.get(Program::index_of(programs, first))?;
            let mut program = Program { first, ..program.clone() };
            if self.has(first) {
                program.put_behind(&self.words);
            }
            Some(program)
        };
        firsts.into_iter().filter_map(part).collect()
    }
}

impl fmt::Display for Debugger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&dry_run::words(&self.words))?;
        match &self.ranks {
            None => f.write_str(" (all ranks)"),
            Some(ranks) if ranks.only().is_some() => write!(f, " (rank {ranks})"),
            Some(ranks) => write!(f, " (ranks {ranks})"),
        }
    }
}

/// The words of a debugger with what must stand between it and the program, unless that is there.
fn with_separator(words: &[String]) -> Vec<OsString> {
    let known = words.iter().find_map(|word| {
        let name = word.rsplit('/').next().unwrap_or(word);
        // As in lldb-19.
        let is_version =
            |text: &str| text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        let plain = name.rsplit_once('-').filter(|(_, version)| is_version(version));
        let name = plain.map_or(name, |(name, _)| name);
        SEPARATORS.iter().find(|(known, _)| *known == name)
    });
    let missing = known.filter(|(_, separator)| !words.iter().any(|word| word == separator));
    let separator = missing.map(|(_, separator)| OsString::from(separator));
    words.iter().map(OsString::from).chain(separator).collect()
}

/// Ranks that wait in a debugger are not ended because others are through, unless the user has said
/// how long they have.
pub fn give_time(flags: &Flags, environment: &mut Env) {
    let set = |name: &&str| environment.get(name).is_some_and(|value| !value.is_empty());
    if flags.debugger.is_some() && !EXIT_TIMES.iter().any(set) {
        environment.set(EXIT_TIMES[0].as_ref(), PATIENCE.as_ref());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn debugger(ranks: Option<&str>) -> Debugger {
        let ranks = ranks.map(|text| Ranks::parse(text).expect("ranks"));
        Debugger { words: ["/bin/gdb", "--args"].map(OsString::from).to_vec(), ranks }
    }

    fn program(first: u32, word: u32) -> Program {
        let argv = ["/bin/env", "A=b", "/p", "x"].map(OsString::from).to_vec();
        Program { first, word, file: "/bin/env".into(), argv, ..Program::default() }
    }

    /// First rank of each program, and whether it is behind the debugger.
    fn cut(ranks: Option<&str>, firsts: &[u32], size: u32) -> Vec<(u32, bool)> {
        let programs: Vec<Program> = firsts.iter().map(|first| program(*first, 2)).collect();
        let cut = debugger(ranks).cut(&programs, size);
        assert_eq!(Program::problem(&cut, size), None, "{cut:?}");
        assert!(cut.iter().all(|program| program.own_file() == "/p"), "{cut:?}");
        cut.iter().map(|program| (program.first, program.file == "/bin/gdb")).collect()
    }

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
    fn programs_are_cut_where_chosen_ranks_begin_and_end() {
        assert_eq!(cut(None, &[0], 4), [(0, true)]);
        assert_eq!(cut(None, &[0, 2], 4), [(0, true), (2, true)]);
        assert_eq!(cut(Some("0"), &[0], 4), [(0, true), (1, false)]);
        assert_eq!(cut(Some("3"), &[0], 4), [(0, false), (3, true)]);
        assert_eq!(cut(Some("0,1,2-3"), &[0], 4), [(0, true)]);
        assert_eq!(cut(Some("1-2"), &[0, 2], 4), [(0, false), (1, true), (2, true), (3, false)]);
        assert_eq!(cut(Some("1,1-2,2"), &[0], 4), [(0, false), (1, true), (3, false)]);
    }

    #[test]
    fn the_program_stands_behind_the_debugger() {
        let [cut] = debugger(None).cut(&[program(0, 0)], 1).try_into().expect("one");
        let words = ["/bin/gdb", "--args", "/bin/env", "A=b", "/p", "x"];
        assert_eq!((cut.argv, cut.word), (words.map(OsString::from).to_vec(), 2));
    }

    #[test]
    fn each_debugger_gets_what_it_needs_in_front_of_the_program() {
        for (text, last) in [
            ("gdb", "--args"),
            ("xterm -e gdb", "--args"),
            ("xterm -T 'a b' -e /usr/bin/gdb -ex run", "--args"),
            ("gdb --args", "--args"),
            ("lldb-19 -b", "--"),
            ("valgrind --tool=memcheck", "--tool=memcheck"),
            ("strace", "strace"),
        ] {
            let words = with_separator(Words::parse(text).expect(text).all());
            assert_eq!(words.last().expect("a word"), last, "{text}");
            assert!(words.iter().filter(|word| *word == last).count() == 1, "{text}");
        }
        for bad in ["", " ", "'", "''"] {
            assert!(Words::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_bound_of_the_users_stays() {
        let with = |words: &[&str], set: &[(&str, &str)]| {
            let words: Vec<OsString> = words.iter().map(OsString::from).collect();
            let flags = crate::command_line::parse_options(&words).expect("good");
            let mut environment: Env = set.iter().copied().collect();
            give_time(&flags, &mut environment);
            environment.get(EXIT_TIMES[0]).map(|value| value.to_string_lossy().into_owned())
        };
        assert_eq!(with(&[], &[]), None);
        assert_eq!(with(&["--debugger=gdb"], &[]).as_deref(), Some(PATIENCE));
        assert_eq!(with(&["--debugger=gdb"], &[("GASNET_EXITTIMEOUT_MIN", "9")]), None);
        let own = [("GASNET_EXITTIMEOUT", "7")];
        assert_eq!(with(&["--debugger=gdb"], &own).as_deref(), Some("7"));
    }
}
