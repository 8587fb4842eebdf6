//! `--debugger`: chosen ranks run their program under a debugger.
//!
//! The programs of the job are cut where chosen and other ranks meet, and the words of the debugger
//! stand in front of the chosen ones. For all that follows (staging, other hosts, other launchers) it
//! is a wrapper as any other.

use std::ffi::OsString;

use ::settings::Env;
use supervisor::plan::Program;

use crate::chosen::Ranks;
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

    /// Whose program it runs, in words.
    #[must_use]
    pub fn whose(&self) -> String {
        match &self.ranks {
            None => "all ranks".to_owned(),
            Some(ranks) if ranks.only().is_some() => format!("rank {ranks}"),
            Some(ranks) => format!("ranks {ranks}"),
        }
    }

    fn has(&self, rank: u32) -> bool {
        self.ranks.as_ref().is_none_or(|ranks| ranks.contains(rank))
    }

    /// The programs of a job of `size` ranks, with the debugger in front of those of its ranks.
    #[must_use]
    pub fn cut(&self, programs: &[Program], size: u32) -> Vec<Program> {
        let ranks = self.ranks.iter().flat_map(Ranks::ranges);
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
    use crate::chosen::Words;

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
