//! What is done through every process manager, and with which codes it may end.

use std::sync::OnceLock;

use testkit::{Outcome, binary, job};

/// Codes of a case.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Codes {
    /// Every process manager conveys it.
    Same(i32),
    /// What each process manager makes of it, any of them. They are in the order of
    /// [`super::process_manager::ProcessManager::codes`].
    Each([&'static [i32]; 5]),
}

impl Codes {
    /// The code that a process manager should return: `seen` when it is one of those.
    pub(crate) fn wanted(self, manager: usize, seen: i32) -> i32 {
        match self {
            Self::Same(code) => code,
            Self::Each(codes) if codes[manager].contains(&seen) => seen,
            Self::Each(codes) => codes[manager][0],
        }
    }
}

/// What must have been printed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Says {
    /// This, by rank 0 or anybody.
    Text(&'static str),
    /// The counts that one rank prints.
    Counts,
}

/// One thing to do through every process manager.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    /// Program and arguments.
    pub(crate) words: &'static [&'static str],
    pub(crate) codes: Codes,
    pub(crate) says: Says,
    /// Only in long runs.
    pub(crate) long: bool,
    /// Much slower over several hosts than on one.
    pub(crate) slow_over_hosts: bool,
}

const EXIT: Case = Case {
    name: "",
    words: &[],
    codes: Codes::Same(0),
    says: Says::Text(""),
    long: false,
    slow_over_hosts: false,
};

const fn result(name: &'static str, words: &'static [&'static str], says: &'static str) -> Case {
    Case { name, words, says: Says::Text(says), ..EXIT }
}

const fn exit(name: &'static str, words: &'static [&'static str], code: i32) -> Case {
    Case { name, words, codes: Codes::Same(code), ..EXIT }
}

/// Another call on the last rank than on the others, by its number in the suite: all must be
/// refused.
const fn mismatch(name: &'static str, words: &'static [&'static str]) -> Case {
    Case { name, words, long: true, ..EXIT }
}

const SUITE: &str = "examples/conformance";

/// Hydra shows the bare signal of a process that it saw end: the one that aborted, or those that it
/// ended itself.
const OF_HYDRA: &[i32] = &[6, 9, 15];
/// It ends a job whose rank asks for an abort in PMI-2, which it does not know, with this code.
const OF_HYDRA_PMI2: &[i32] = &[6, 9, 15, 255];
const KILLED: &[i32] = &[137];
const ABORTED: Codes = Codes::Each([OF_HYDRA, OF_HYDRA_PMI2, &[134], &[134, 137], &[1, 134, 137]]);
/// Only the process manager can end ranks of another host that never enter the library, and PMI-2
/// has no code for that.
const SPINS: Codes = Codes::Each([&[5], &[5], &[5], &[5, 137], &[5]]);
const BY_KILL: Codes = Codes::Each([&[9], &[9, 255], KILLED, KILLED, &[1, 137]]);

pub(crate) const CASES: &[Case] = &[
    result("hello", &["hello"], "rank 3 of 4"),
    result("ring", &["ring"], "laps around 4 ranks"),
    Case {
        slow_over_hosts: true,
        ..result("conformance of the services", &[SUITE], "conformance: 4 ranks on")
    },
    mismatch("mismatch: another service", &[SUITE, "0"]),
    mismatch("mismatch: exchange", &[SUITE, "1"]),
    mismatch("mismatch: large exchange", &[SUITE, "2"]),
    mismatch("mismatch: rows", &[SUITE, "3"]),
    mismatch("mismatch: root", &[SUITE, "4"]),
    mismatch("mismatch: broadcast", &[SUITE, "5"]),
    Case {
        name: "wordcount",
        words: &["wordcount", "-k", "500", TEXTS],
        says: Says::Counts,
        ..EXIT
    },
    exit("collective exit", &["testexit", "1"], 1),
    exit("exit before attach", &["testexit", "6"], 6),
    exit("non-collective exit, others in a barrier", &["testexit", "3", "--delay", "150"], 3),
    Case {
        name: "non-collective exit, others spin",
        words: &["testexit", "5", "--delay", "150"],
        codes: SPINS,
        ..EXIT
    },
    exit("non-collective exit of a thread", &["testexit", "54", "--delay", "150"], 54),
    exit("exits asked for by requests", &["testexit", "10", "--delay", "150"], 10),
    Case { name: "abort", words: &["testexit", "103", "--delay", "150"], codes: ABORTED, ..EXIT },
];

/// Somebody is killed while the ranks run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kill {
    pub(crate) name: &'static str,
    /// A rank, else the process manager's launcher.
    pub(crate) rank: bool,
    /// Whether the ranks compute and never enter the library.
    pub(crate) compute: bool,
    pub(crate) codes: Codes,
}

pub(crate) const KILLS: &[Kill] = &[
    Kill { name: "kill -9 of a rank", rank: true, compute: false, codes: BY_KILL },
    Kill { name: "kill -9 of a rank, others compute", rank: true, compute: true, codes: BY_KILL },
    Kill { name: "kill -9 of the launcher", rank: false, compute: true, codes: Codes::Same(137) },
];

/// Stands for the paths of text files.
const TEXTS: &str = "TEXTS";

fn texts() -> &'static [String] {
    static TEXTS: OnceLock<Vec<String>> = OnceLock::new();
    TEXTS.get_or_init(|| {
        let files = testkit::texts::files(60);
        files.iter().map(|file| file.display().to_string()).collect()
    })
}

/// What one rank counts, without its time.
fn counts() -> &'static str {
    static COUNTS: OnceLock<String> = OnceLock::new();
    COUNTS.get_or_init(|| {
        let outcome = job(1, "wordcount").args(["-k", "500"]).args(texts()).run();
        outcome.expect(0);
        without_time(&outcome.out())
    })
}

/// All lines but the last, which tells ranks and time.
fn without_time(text: &str) -> String {
    let lines: Vec<_> = text.lines().collect();
    lines.split_last().map(|(_, counts)| counts.join("\n")).unwrap_or_default()
}

impl Case {
    /// Program and arguments with their paths.
    pub(crate) fn line(&self) -> Vec<String> {
        let word = |word: &&str| match *word {
            TEXTS => texts().to_vec(),
            word => vec![word.to_owned()],
        };
        let mut line: Vec<String> = self.words.iter().flat_map(word).collect();
        line[0] = binary(&line[0]).display().to_string();
        line
    }

    /// What was not as it must be.
    pub(crate) fn fault(&self, manager: usize, outcome: &Outcome) -> Option<String> {
        let wrong = outcome.fault(self.codes.wanted(manager, outcome.code()));
        let out = outcome.out();
        let missing = match self.says {
            Says::Text(text) => (!out.contains(text)).then(|| format!("no {text:?} in its output")),
            Says::Counts => (without_time(&out) != counts())
                .then(|| format!("other counts than those of one rank:\n{}", counts())),
        };
        wrong.or(missing)
    }
}
