//! Manual page and completions, made from the tables: options, exit codes, variables.

use std::io;

use bootstrap::vars;
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Inline, Roff, bold, italic, roman};

use crate::exit_code;
use crate::flags::command;

const EXAMPLES: [(&str, &str); 7] = [
    ("gasnetrun_ibv -n 4 ./hello", "Four ranks on this host."),
    (
        "gasnetrun_ibv -n 4 -c 1 -t ./hello",
        "Show where each rank would run, bound to a cpu of its own; start nothing.",
    ),
    (
        "gasnetrun_ibv -n 2 numactl --membind=0 ./solver input.dat",
        "A wrapper in front of the program.",
    ),
    ("gasnetrun_ibv -n 2 valgrind -q ./solver", "Every rank under valgrind."),
    (
        "gasnetrun_ibv -n 8 --tag-output --timeout 10m --report run.json ./solver",
        "For a script: who wrote what, a time limit, and a record of every rank.",
    ),
    (
        "gasnetrun_ibv -n 3 --stdin all sort -n < numbers",
        "Three copies of a plain program, each with the whole input.",
    ),
    (
        "gasnetrun_ibv -n 4 sh -c 'echo I am $GASNETRUN_RANK of $GASNETRUN_SIZE'",
        "Plain programs find their number in their environment.",
    ),
];

/// The completion script of a shell.
#[must_use]
pub fn completions(shell: Shell) -> String {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut command(), "gasnetrun_ibv", &mut text);
    String::from_utf8_lossy(&text).into_owned()
}

/// The manual page, in roff. The same on every machine.
///
/// # Errors
/// The text cannot be made; writing to memory does not fail in practice.
pub fn man_page() -> io::Result<String> {
    let man = Man::new(command());
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    synopsis().to_writer(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    program().to_writer(&mut page)?;
    end_of_job().to_writer(&mut page)?;
    environment().to_writer(&mut page)?;
    page.extend_from_slice(vars::man_section().as_bytes());
    exit_status().to_writer(&mut page)?;
    examples().to_writer(&mut page)?;
    limits().to_writer(&mut page)?;
    Ok(String::from_utf8_lossy(&page).into_owned())
}

fn section(title: &str) -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", [title]);
    roff
}

fn paragraphs(roff: &mut Roff, texts: &[&str]) {
    for text in texts {
        roff.control("PP", []);
        roff.text([roman(*text)]);
    }
}

fn entry(roff: &mut Roff, name: impl Into<Vec<Inline>>, text: &str) {
    roff.control("TP", []);
    roff.text(name);
    roff.text([roman(text)]);
}

fn synopsis() -> Roff {
    let mut roff = section("SYNOPSIS");
    roff.text([
        bold("gasnetrun_ibv"),
        roman(" "),
        bold("-n"),
        roman(" "),
        italic("P"),
        roman(" ["),
        italic("options"),
        roman("] ["),
        bold("--"),
        roman("] ["),
        italic("wrapper ..."),
        roman("] "),
        italic("program"),
        roman(" ["),
        italic("arguments ..."),
        roman("]"),
    ]);
    roff
}

fn program() -> Roff {
    let mut roff = section("PROGRAM");
    paragraphs(
        &mut roff,
        &[
            "A program with an absolute path is taken as it is. One whose name contains a slash, or that is an \
             executable file in the working directory, is taken from there. Otherwise PATH is searched.",
            "Words in front of the program may be a wrapper, as in env A=b prog, numactl --membind=0 prog, valgrind \
             prog, nice -n 5 prog. The program is the first of the first 64 words whose file carries the identification \
             string of the ibv conduit; its word is replaced by its full path. A program that lacks the chosen \
             spawner, or belongs to another conduit of GASNet, is refused before anything starts.",
            "Without a GASNet program among the words, P copies of the plain program are started after a warning, which \
             GASNET_QUIET=1 silences. A plain program may exit with status 0 at any time.",
        ],
    );
    roff
}

fn end_of_job() -> Roff {
    let mut roff = section("END OF THE JOB");
    paragraphs(
        &mut roff,
        &[
            "A rank that dies of a signal, exits with another status than 0, or leaves without finishing the conduit's \
             exit, ends the job: every process of it is terminated, then killed. The first cause is named on standard \
             error with rank, host, process, signal or code, and the last lines that the rank wrote to its standard \
             error.",
            "INT, TERM, HUP, QUIT, USR1, USR2, TSTP and CONT are forwarded to the ranks. A second interrupt kills them.",
        ],
    );
    roff
}

fn environment() -> Roff {
    let mut roff = section("ENVIRONMENT OF A RANK");
    paragraphs(
        &mut roff,
        &[
            "Ranks on this host get the whole environment of the launcher. Every rank, also that of a plain program, \
             finds its number in GASNETRUN_RANK, the number of ranks in GASNETRUN_SIZE, and more about its place \
             in the other GASNETRUN variables listed below. In addition:",
        ],
    );
    entry(&mut roff, [bold("GASNET_IBV_SPAWNER")], "The chosen spawner.");
    entry(
        &mut roff,
        [bold("GASNET_VERBOSEENV"), roman(", "), bold("GASNET_SPAWN_VERBOSE")],
        "Set to 1 by one and by two -v, unless they are set already.",
    );
    entry(&mut roff, [bold("OMPI_MCA_mpi_warn_on_fork")], "Set to 0 unless it is set already.");
    roff
}

fn exit_status() -> Roff {
    let mut roff = section("EXIT STATUS");
    paragraphs(
        &mut roff,
        &[
            "The job's own code when it ran: the reduced code (the largest) of an exit of all ranks together, else that of \
           the first cause: the exit code of the rank, or 128 + the number of the signal that killed it. The \
           launcher's own codes:",
        ],
    );
    for row in exit_code::TABLE {
        entry(&mut roff, [bold(row.code.to_string())], row.meaning);
    }
    roff
}

fn examples() -> Roff {
    let mut roff = section("EXAMPLES");
    for (line, text) in EXAMPLES {
        entry(&mut roff, [bold(line)], text);
    }
    roff
}

fn limits() -> Roff {
    let mut roff = section("LIMITS OF THIS VERSION");
    paragraphs(
        &mut roff,
        &[
            "Ranks are started on this host only. Host lists (GASNET_SSH_NODEFILE, GASNET_SSH_SERVERS, GASNET_NODEFILE) \
           that name other hosts, -N above 1, and the spawners mpi and pmi are refused with exit code 125.",
        ],
    );
    roff
}
