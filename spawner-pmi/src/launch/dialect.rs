//! What other launchers understand: one table. Pure.
//!
//! A row says how a launcher is recognised and with which words it is told about the environment,
//! hosts, layout, binding, standard input and labels. The facts are those of GASNet's launch script
//! and of the launchers' manuals; rows without a launcher on today's machines are kept short.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use self::Passing::{Command, Each, Forwards, List};

/// How variables reach the ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passing {
    /// The launcher forwards its whole environment.
    Forwards,
    /// It does when it is told so by this option, which must not be given twice.
    Option(&'static str, &'static str),
    /// One option for each name.
    Each(&'static str),
    /// One option with all names, between commas.
    List(&'static str),
    /// The program is started through `env NAME=VALUE …`.
    Command,
}

/// Words that say something; `{…}` is replaced.
pub type Words = &'static [&'static str];

/// A launcher and its language.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dialect {
    /// Name, as in `GASNET_IBV_DIALECT`.
    pub name: &'static str,
    /// What a user calls it.
    pub title: &'static str,
    /// Names of programs that speak it and nothing else.
    pub programs: &'static [&'static str],
    /// Texts in what it prints for `--version` or `-h`, one of which shows that it is this one.
    pub says: &'static [&'static str],
    /// Environment.
    pub passing: Passing,
    /// Words for `{h}` hosts with at most `{k}` ranks each; none: it has no such words.
    pub layout: Option<Words>,
    /// Words for ranks dealt to the hosts in turn.
    pub cyclic: Option<Words>,
    /// Words for a list `{l}` of hosts, between commas.
    pub hosts: Option<Words>,
    /// Whether that list may say `host:slots`.
    pub slots: bool,
    /// Words for no binding.
    pub unbound: Words,
    /// Words for `{c}` cpus per rank.
    pub bound: Option<Words>,
    /// Words for ranks that are bound to a core, socket or NUMA node each, in this order.
    pub bound_to: Option<[Words; 3]>,
    /// Words for hosts that may have more ranks than slots.
    pub oversubscribe: Option<Words>,
    /// Words for a report of what ranks are bound to.
    pub report: Option<Words>,
    /// Words for layout and cpus at once, in place of both, where one option holds them.
    pub layout_and_bound: Option<Words>,
    /// The same for ranks dealt to the hosts in turn.
    pub cyclic_and_bound: Option<Words>,
    /// Words for a script `{s}` that the launcher runs on its own host before the ranks, with their
    /// job's variables, and how such an option begins, which a template may hold already.
    pub before: Option<(Words, &'static str)>,
    /// Whether several programs are told apart by colons, with `-n` for each.
    pub colons: bool,
    /// Words for more messages.
    pub verbose: Words,
    /// Words for labels in front of lines.
    pub label: Option<Words>,
    /// Words for standard input to `{i}`: `0`, another rank, or `all`; none: rank 0 gets it,
    /// whatever is said.
    pub stdin: Option<Words>,
    /// Whether all ranks can have it, and see its end.
    pub stdin_for_all: bool,
    /// What its exit codes do not tell, for a message about one.
    pub codes: &'static str,
}

/// A launcher of which nothing more is known.
const fn row(
    name: &'static str,
    title: &'static str,
    passing: Passing,
    programs: Words,
    says: Words,
) -> Dialect {
    Dialect {
        name,
        title,
        programs,
        says,
        passing,
        layout: None,
        cyclic: None,
        hosts: None,
        slots: false,
        unbound: &[],
        bound: None,
        bound_to: None,
        oversubscribe: None,
        report: None,
        layout_and_bound: None,
        cyclic_and_bound: None,
        before: None,
        colons: false,
        verbose: &["-v"],
        label: None,
        stdin: None,
        stdin_for_all: false,
        codes: "",
    }
}

/// Rows in the order in which texts are looked for: a text of a later row may stand in the output
/// of an earlier one.
pub const DIALECTS: &[Dialect] = &[
    Dialect {
        layout: Some(&["-N", "{h}", "-m", "plane={k}"]),
        cyclic: Some(&["-mcyclic"]),
        hosts: Some(&["-w", "{l}"]),
        unbound: &["--cpu-bind=none"],
        bound: Some(&["-c", "{c}", "--cpu-bind=cores"]),
        bound_to: Some([&["--cpu-bind=cores"], &["--cpu-bind=sockets"], &["--cpu-bind=ldoms"]]),
        oversubscribe: Some(&["-O"]),
        label: Some(&["-l"]),
        stdin: Some(&["--input={i}"]),
        stdin_for_all: true,
        before: Some((&["--prolog={s}"], "--prolog")),
        codes: "srun returns the largest code of all ranks; 137 is a rank that was killed, also by an abort",
        ..row(
            "srun",
            "Slurm's srun",
            Passing::Option("--export", "=ALL"),
            &["srun"],
            &["srun: invalid option", "Usage: srun", "slurm "],
        )
    },
    row("lam", "LAM/MPI", List("-x"), &["mpirun.lam"], &["LAM/MPI"]),
    Dialect {
        layout: Some(&["--map-by", "ppr:{k}:node"]),
        cyclic: Some(&["--map-by", "node"]),
        hosts: Some(&["--host", "{l}"]),
        slots: true,
        unbound: &["--bind-to", "none"],
        bound_to: Some([&["--bind-to", "core"], &["--bind-to", "package"], &["--bind-to", "numa"]]),
        oversubscribe: Some(&["--map-by", ":OVERSUBSCRIBE"]),
        report: Some(&["--display", "bind"]),
        label: Some(&["--tag-output"]),
        stdin: Some(&["--stdin", "{i}"]),
        colons: true,
        ..row("prrte", "PRRTE", Each("-x"), &["prterun"], &["PRRTE", "PRTE)", "prterun ("])
    },
    Dialect {
        layout: Some(&["-map-by", "ppr:{k}:node"]),
        cyclic: Some(&["-map-by", "node"]),
        hosts: Some(&["--host", "{l}"]),
        slots: true,
        unbound: &["--bind-to", "none"],
        bound_to: Some([&["--bind-to", "core"], &["--bind-to", "socket"], &["--bind-to", "numa"]]),
        oversubscribe: Some(&["--oversubscribe"]),
        report: Some(&["--report-bindings"]),
        bound: Some(&["-map-by", "slot:PE={c}"]),
        layout_and_bound: Some(&["-map-by", "ppr:{k}:node:PE={c}"]),
        cyclic_and_bound: Some(&["-map-by", "node:PE={c}"]),
        label: Some(&["--tag-output"]),
        stdin: Some(&["--stdin", "{i}"]),
        colons: true,
        codes: "mpirun returns the code of the rank that failed first",
        ..row(
            "openmpi",
            "Open MPI",
            Each("-x"),
            &["mpirun.openmpi", "mpiexec.openmpi", "orterun"],
            &["Open MPI", "OpenRTE"],
        )
    },
    row(
        "mpich1",
        "an MPICH with MPICH1 compatibility",
        List("-envlist"),
        &[],
        &["MPICH1 compatibility"],
    ),
    row("hpmpi", "HP MPI", Command, &[], &["-universe_size"]),
    row("mvapich", "MVAPICH", Command, &[], &["MVICH", "MVAPICH"]),
    row("ch_p4", "MPICH 1", Command, &[], &["ch_p4"]),
    Dialect {
        layout: Some(&["-ppn", "{k}"]),
        verbose: &["-V"],
        ..row("infinipath", "InfiniPath's mpirun", Command, &[], &["InfiniPath"])
    },
    Dialect {
        layout: Some(&["--ppn", "{k}"]),
        hosts: Some(&["--hosts", "{l}"]),
        unbound: &["--cpu-bind", "none"],
        bound: Some(&["--depth", "{c}", "--cpu-bind", "depth"]),
        label: Some(&["--label"]),
        ..row("pals", "PALS", Forwards, &["mpiexec.pals"], &["PALS"])
    },
    Dialect {
        layout: Some(&["-N", "{k}"]),
        hosts: Some(&["-L", "{l}"]),
        unbound: &["-cc", "none"],
        bound: Some(&["-d", "{c}", "-cc", "depth"]),
        ..row("aprun", "aprun", Forwards, &["aprun"], &["aprun"])
    },
    Dialect {
        layout: Some(&[
            "--nrs",
            "{h}",
            "--cpu_per_rs",
            "ALL_CPUS",
            "--launch_distribution",
            "plane:{k}",
        ]),
        unbound: &["--bind", "none"],
        bound: Some(&["--bind", "packed:{c}"]),
        ..row("jsrun", "jsrun", Each("-E"), &["jsrun"], &["jsrun --usage"])
    },
    Dialect {
        layout: Some(&["-N", "{h}"]),
        unbound: &["-o", "cpu-affinity=off"],
        bound: Some(&["-c", "{c}", "-o", "cpu-affinity=per-task"]),
        label: Some(&["--label-io"]),
        ..row("flux", "flux run", Forwards, &["flux"], &["flux [OPTIONS] COMMAND", "flux-core"])
    },
    Dialect {
        layout: Some(&["-N", "{h}"]),
        ..row("rms", "RMS's prun", Forwards, &[], &["railmask"])
    },
    row("pam", "LSF's pam", Command, &["pam"], &["TaskStarter"]),
    row("elan", "Quadrics MPI", Forwards, &[], &["MPIRUN_ELANIDMAP_FILE"]),
    row("psched", "Cray's MPI", Forwards, &[], &["Psched"]),
    row("sgi", "SGI's MPI", Forwards, &[], &["[-miser]"]),
    row("poe", "IBM's POE", Forwards, &["poe"], &["Parallel Operating Environment"]),
    Dialect {
        verbose: &["-setenv", "PMI_DEBUG=1"],
        ..row("yod", "yod", Forwards, &["yod"], &[" yod "])
    },
    Dialect { verbose: &[], ..row("ibrun", "ibrun", Forwards, &["ibrun"], &["ibrun"]) },
    // Whatever calls itself mpiexec and is none of the above is a Hydra: MPICH, Intel MPI,
    // MVAPICH2.
    Dialect {
        layout: Some(&["-ppn", "{k}"]),
        cyclic: Some(&["-ppn", "1"]),
        hosts: Some(&["-hosts", "{l}"]),
        slots: true,
        unbound: &["-bind-to", "none"],
        bound_to: Some([&["-bind-to", "core"], &["-bind-to", "socket"], &["-bind-to", "numa"]]),
        bound: Some(&["-bind-to", "hwthread:{c}"]),
        label: Some(&["-prepend-rank"]),
        colons: true,
        codes: "mpiexec combines the codes of all ranks bit by bit, and shows the bare number of a signal (9, 11, 15)",
        ..row(
            "hydra",
            "Hydra (MPICH, Intel MPI)",
            Forwards,
            &["mpiexec.hydra", "mpiexec.mpich", "mpirun.mpich"],
            &["HYDRA", "Hydra", "hydra", "Intel(R) MPI", "mpiexec"],
        )
    },
    row("unknown", "a launcher that is not in the table", Command, &[], &[]),
];

/// The row with this name.
#[must_use]
pub fn named(name: &OsStr) -> Option<&'static Dialect> {
    DIALECTS.iter().find(|row| name.eq_ignore_ascii_case(row.name))
}

/// The row for a program, by its name alone. `mpirun` and `mpiexec` are names of many.
#[must_use]
pub fn of_program(path: &Path) -> Option<&'static Dialect> {
    let name = path.file_name()?;
    DIALECTS.iter().find(|row| row.programs.iter().any(|program| name == *program))
}

/// The row for what a program says about itself; the last one when it says nothing that is known.
#[must_use]
pub fn of_text(text: &str) -> &'static Dialect {
    let known = DIALECTS.iter().find(|row| row.says.iter().any(|sign| text.contains(sign)));
    known.unwrap_or(&DIALECTS[DIALECTS.len() - 1])
}

/// All names, for a message.
#[must_use]
pub fn names() -> String {
    DIALECTS.iter().map(|row| row.name).collect::<Vec<_>>().join(", ")
}

/// `words` with `{sign}` replaced.
#[must_use]
pub fn fill(words: Words, values: &[(&str, &str)]) -> Vec<OsString> {
    let put = |word: &&str| {
        let filled = values.iter().fold((*word).to_owned(), |word, (sign, value)| {
            word.replace(&format!("{{{sign}}}"), value)
        });
        OsString::from(filled)
    };
    words.iter().map(put).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_programs_are_unique() {
        for (at, row) in DIALECTS.iter().enumerate() {
            assert!(!row.name.is_empty() && !row.title.is_empty());
            for other in &DIALECTS[at + 1..] {
                assert_ne!(row.name, other.name);
                assert!(row.programs.iter().all(|program| !other.programs.contains(program)));
            }
        }
        assert_eq!(DIALECTS[DIALECTS.len() - 1].name, "unknown");
        assert_eq!(named(OsStr::new("OpenMPI")).map(|row| row.name), Some("openmpi"));
        assert_eq!(named(OsStr::new("mpd")), None);
    }

    #[test]
    fn programs_with_a_name_of_their_own() {
        for (path, name) in [
            ("/usr/bin/srun", Some("srun")),
            ("/usr/bin/orterun", Some("openmpi")),
            ("mpiexec.hydra", Some("hydra")),
            ("/opt/prte/bin/prterun", Some("prrte")),
            ("aprun", Some("aprun")),
            ("/usr/bin/mpirun", None),
            ("/usr/bin/mpiexec", None),
            ("/", None),
        ] {
            assert_eq!(of_program(Path::new(path)).map(|row| row.name), name, "{path}");
        }
    }

    /// What launchers print, as recorded or as their manuals show it.
    #[test]
    fn launchers_are_known_by_what_they_say() {
        for (text, name) in [
            (
                "mpirun.openmpi (OpenRTE) 4.1.4\n\nReport bugs to http://www.open-mpi.org/community/help/",
                "openmpi",
            ),
            ("mpirun (Open MPI) 5.0.3", "openmpi"),
            ("prterun (PRRTE) 3.0.5", "prrte"),
            ("HYDRA build details:\n    Version:      4.0.2", "hydra"),
            ("Intel(R) MPI Library for Linux* OS, Version 2021.10", "hydra"),
            ("Usage: ./mpiexec [global opts] [local opts for exec1] [exec1]", "hydra"),
            ("mpiexec: MPICH1 compatibility", "mpich1"),
            ("slurm 22.05.8", "srun"),
            ("Usage: srun [OPTIONS...] executable", "srun"),
            ("Usage: aprun [-a arch]", "aprun"),
            ("see jsrun --usage", "jsrun"),
            ("mpiexec: PALS 1.2.11", "pals"),
            ("usage: yod [-sz] yod ", "yod"),
            ("LAM/MPI 7.1", "lam"),
            ("-universe_size", "hpmpi"),
            ("MVAPICH 1.0", "mvapich"),
            ("device ch_p4", "ch_p4"),
            ("InfiniPath mpirun", "infinipath"),
            ("[-r railmask]", "rms"),
            ("TaskStarter", "pam"),
            ("MPIRUN_ELANIDMAP_FILE", "elan"),
            ("Psched", "psched"),
            ("[-miser]", "sgi"),
            ("Parallel Operating Environment", "poe"),
            ("Usage: flux [OPTIONS] COMMAND ARGS", "flux"),
            ("ibrun: error", "ibrun"),
            ("usage: start-all COUNT", "unknown"),
            ("", "unknown"),
        ] {
            assert_eq!(of_text(text).name, name, "{text}");
        }
    }

    #[test]
    fn filling() {
        assert_eq!(
            fill(&["-N", "{h}", "plane:{k}"], &[("h", "2"), ("k", "3")]),
            ["-N", "2", "plane:3"]
        );
    }
}
