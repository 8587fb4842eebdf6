//! Manual page and completions, made from the tables: options, exit codes, variables.

use std::io;

use clap::Command;
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Inline, Roff, bold, italic, roman};
use spawner_pmi::launch::template::ESCAPES;

use crate::aliases::pages;
use crate::doctor;
use crate::exit_code;
use crate::flags::command;
use crate::watch;

/// The completion script of a shell.
#[must_use]
pub fn completions(shell: Shell) -> String {
    let mut text = Vec::new();
    let mut table =
        pages::with_aliases(command()).subcommand(doctor::command()).subcommands(watch::commands());
    clap_complete::generate(shell, &mut table, "gasnetrun_ibv", &mut text);
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
    let mut synopsis = Roff::new();
    synopsis.control("SH", ["SYNOPSIS"]);
    synopsis.text(marked(
        "*gasnetrun_ibv* *-n* _P_ [_options_] [*--*] [_wrapper ..._] _program_ [_arguments ..._]",
    ));
    synopsis.to_writer(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    for text in MANUAL.split("\n\n# ") {
        if text.starts_with("EXIT STATUS") {
            page.extend_from_slice(settings::man_section().as_bytes());
        }
        section(text).to_writer(&mut page)?;
    }
    Ok(String::from_utf8_lossy(&page).into_owned())
}

/// Text with `*bold*` and `_italic_` parts.
fn marked(text: &str) -> Vec<Inline> {
    let mut parts = Vec::new();
    for (at, outer) in text.split('*').enumerate() {
        if at % 2 == 1 {
            parts.push(bold(outer));
            continue;
        }
        let inner = outer.split('_').enumerate().filter(|(_, part)| !part.is_empty());
        parts.extend(inner.map(|(at, part)| if at % 2 == 1 { italic(part) } else { roman(part) }));
    }
    parts
}

/// A section of [`MANUAL`]: its title, then paragraphs, examples, entries and what tables make.
fn section(text: &str) -> Roff {
    let mut roff = Roff::new();
    let (title, text) = text.split_once('\n').unwrap_or((text, ""));
    roff.control("SH", [title]);
    for block in text.split("\n\n") {
        match block {
            "@synopsis" => {
                roff.control("PP", []);
                roff.text(marked("*gasnetrun_ibv doctor* [_options_] [_host ..._]"));
            }
            "@options" => options(&mut roff, &doctor::command()),
            "@watch" => watch::commands().iter().for_each(|command| watched(&mut roff, command)),
            "@checks" => {
                doctor::CHECKS.iter().for_each(|(name, text)| entry(&mut roff, name, text))
            }
            "@codes" => {
                let codes = exit_code::TABLE.iter();
                codes.for_each(|(code, text)| entry(&mut roff, &code.to_string(), text));
            }
            "@aliases" => pairs(&mut roff, &pages::entries()),
            "@meanings" => pairs(&mut roff, &pages::other_meanings()),
            "@refused" => pairs(&mut roff, &pages::refused_entries()),
            "@escapes" => {
                ESCAPES.iter().for_each(|(c, text)| entry(&mut roff, &format!("%{c}"), text));
            }
            _ => prose(&mut roff, block),
        }
    }
    roff
}

fn prose(roff: &mut Roff, block: &str) {
    let one_line = |text: &str| text.lines().map(str::trim).collect::<Vec<_>>().join(" ");
    if let Some(entries) = block.strip_prefix("- ") {
        for text in entries.split("\n- ") {
            let (name, text) = text.split_once(" -- ").unwrap_or((text, ""));
            entry(roff, name, &one_line(text));
        }
        return;
    }
    roff.control("PP", []);
    if block.starts_with("    ") {
        roff.control("nf", []);
        for line in block.lines() {
            roff.text([roman(line.trim_start())]);
        }
        roff.control("fi", []);
    } else {
        roff.text([roman(one_line(block))]);
    }
}

fn pairs(roff: &mut Roff, pairs: &[(String, String)]) {
    pairs.iter().for_each(|(name, text)| entry(roff, name, text));
}

fn entry(roff: &mut Roff, name: &str, text: &str) {
    roff.control("TP", []);
    roff.text([bold(name)]);
    roff.text([roman(text)]);
}

/// One way to watch a job, with its options.
fn watched(roff: &mut Roff, command: &Command) {
    let words = command.get_arguments().filter(|arg| arg.is_positional()).filter_map(|arg| {
        let name = arg.get_value_names()?.first()?;
        Some(if arg.is_required_set() { format!(" _{name}_") } else { format!(" [_{name}_]") })
    });
    let words: String = words.collect();
    roff.control("TP", []);
    roff.text(marked(&format!("*gasnetrun_ibv {}* [_options_]{words}", command.get_name())));
    let about = command.get_long_about().or_else(|| command.get_about());
    roff.text([roman(about.map(ToString::to_string).unwrap_or_default().replace('\n', " "))]);
    roff.control("RS", []);
    options(roff, command);
    roff.control("RE", []);
}

fn options(roff: &mut Roff, command: &Command) {
    for arg in command.get_arguments().filter(|arg| !arg.is_positional()) {
        let Some(long) = arg.get_long() else { continue };
        let value = arg.get_value_names().and_then(|names| names.first());
        roff.control("TP", []);
        roff.text(marked(&match value {
            Some(value) => format!("*--{long}* _{value}_"),
            None => format!("*--{long}*"),
        }));
        roff.text([roman(arg.get_help().map(ToString::to_string).unwrap_or_default())]);
    }
}

/// The sections that no table makes. Blocks have an empty line between them: paragraphs, examples
/// (indented), entries (`- name -- text`), and tables that stand elsewhere (`@name`).
const MANUAL: &str = r"PROGRAM
A program with an absolute path is taken as it is. One whose name contains a slash, or that is an
executable file in the working directory, is taken from there. Otherwise PATH is searched.

Words in front of the program may be a wrapper, as in env A=b prog, numactl --membind=0 prog,
valgrind prog, nice -n 5 prog. The program is the first of the first 64 words whose file carries the
identification string of the ibv conduit; its word is replaced by its full path. A program that
lacks the chosen spawner, or belongs to another conduit of GASNet, is refused before anything
starts.

Without a GASNet program among the words, P copies of the plain program are started after a warning,
which GASNET_QUIET=1 silences. A plain program may exit with status 0 at any time.

# SEVERAL PROGRAMS
Programs with a word : between them are one job:

    gasnetrun_ibv -n 2 ./a x : -n 6 -x A=b ./b y

Ranks are numbered through: 0 and 1 run ./a, 2 to 7 run ./b. Each program has -n and may have --env
(-x, -env) and --wdir of its own; all other options stand in front of the first program and are for
the whole job. -t, --report and messages name the program of a rank, and hosts are sent what their
ranks run. GASNet programs of one job must make the same collective calls. A colon is an argument
where options were ended by --, so only the last program can have one: ... -- ./b : y. Hydra, Open
MPI and PRRTE are called with colons too; through other launchers such a job is refused.

# HOSTS
The first of these that is set and not empty names the hosts; without any the job is on this host:

- --hosts, --hostfile -- The options.
- GASNET_SSH_NODEFILE -- A file.
- GASNET_SSH_SERVERS -- A list in one text.
- GASNET_NODEFILE -- A file.
- PBS_NODEFILE -- The file of PBS.
- PE_HOSTFILE -- The file of Grid Engine; its second column is the number of slots.
- SSS_HOSTLIST -- A list in one text.
- LSB_HOSTS -- The list of LSF.
- OAR_NODEFILE -- The file of OAR.
- SLURM_JOB_NODELIST -- The list of Slurm, also under its older name SLURM_NODELIST.

A list in one text has commas, semicolons, slashes or blanks between hosts. In a file each line is
one host; a word that begins with # makes the rest of its line a comment, and blank lines do not
count. A host is written as

    n1                     a name or an address
    me@n1                  another user
    me@n1:2222             after user@ a number is a port
    n1:4                   4 slots: the host takes at most 4 ranks
    n1:2222                22, or a number from 1024 on, is a port
    n1 slots=4 port=22     the same without doubt; also user=me
    ::1  [fe80::1%eth0]:22 IPv6; behind brackets a number is a port
    n[1-4,08-11]-ib        several hosts, as Slurm writes them

A host that is named again is left out, as the first time counts; slots of both add up. Names count
as they are written: a short name, a full name and an address are different hosts. With
GASNET_SSH_KEEPDUP=1 each time is a host of its own.

Of the list the first H hosts are used, H being the value of -N, else the number of ranks. More
ranks than slots are an error, except that slots of a batch system only give a warning. This host is
recognised by its name, short or full, and by localhost; its ranks are started without a login,
unless the list says another user or a port.

# MAP OF RANKS
With --map block, the default, ranks are spread evenly over the hosts in the order of the list:
consecutive ranks share a host, the first hosts take the remainder, and a host whose slots are full
leaves the others to take more: 10 ranks on 4 hosts are 3, 3, 2 and 2. With --map cyclic each host
gets as many ranks as that, but they are dealt out one by one. With --map slots one host after the
other is filled up to its slots, and hosts without a number of slots share what is left. With
--ranks-per-host K hosts get K consecutive ranks each until all have a host; --oversubscribe leaves
the slots of the list out. Any other value of --map is a file (./block for one of that name) with
lines of ranks and a host:

    # ranks   host
    0,4-7     n1
    1-3       me@n2
    *         +0

* stands for all ranks that no other line names, +0 for the first host of the host list. Each rank
must have one host, and hosts must be in the host list; without a list, the file itself names the
hosts. Hosts without a rank are left out. The order of hosts stays that of the list.

# BINDING
Without -c, --bind-to or --place ranks may run on all cpus that the launcher may use, or the agent
on another host. With -c K each rank gets K cpus (hardware threads) of its own, with --bind-to core
a core of its own, or K cores with -c K. --bind-to socket and --bind-to numa share sockets and NUMA
nodes out in blocks: of 8 ranks on 2 sockets 0 to 3 are bound to the first. --place says otherwise
where consecutive ranks go: --place socket deals them over the sockets one by one, --place 2:socket
puts two to each; what they are bound to there is said by --bind-to or -c, else it is the PART
itself. Sockets, cores and NUMA nodes are those that the kernel tells of (/sys/devices/system). What
a host has not is refused before any rank starts. -t shows the binding on this host and
--report-bindings on every host, one line for each socket with the ranks of each core: . is a core
without ranks, / stands between hardware threads that have different ones, | between NUMA nodes:

    socket 0: [0] [1] | [2] [3]
    socket 1: [4] [.] | [.] [.]

# MPI PROGRAMS
Ranks may be MPI programs, or use GASNet and MPI together. The agent of each host serves PMI-1 and
PMI-2 to its ranks, which find it by PMI_FD, PMI_RANK and PMI_SIZE; PMI_ID, MPI_LOCALRANKID and
MPI_LOCALNRANKS are set as Hydra sets them. So the ranks of MPICH, and of what is made from it, are
one MPI job, on one host or on many, without mpiexec; the keys that they put travel over the
connections between the agents. GASNet itself never uses PMI in such a job. What another process
manager has said to the launcher (PMI_PORT, PMIX_RANK, OMPI_COMM_WORLD_RANK ...) does not reach the
ranks.

All ranks of the job are one MPI job, whatever they run: when some wait in MPI_Init for one that has
ended, the job ends with a message that names both. MPI_Abort ends the job with its code. A rank that
ends with status 0 after MPI_Init and without MPI_Finalize ends it with code 1. MPI_Comm_spawn and
names published for other jobs are not served.

Open MPI 2 to 4 speak PMI-1 through a library that is installed with the launcher, which their
component for Flux opens: FLUX_PMI_LIBRARY_PATH and FLUX_JOB_ID are set for a program that names Open
MPI, or with --pmi=openmpi, which is needed where a script or an interpreter hides it.

Open MPI 5, and programs that use libpmix themselves, speak PMIx. For them, and with --pmi=pmix, the
agent of each host starts a helper process that serves PMIx by libpmix (version 3 to 5), which every
host must have where its loader looks (package libpmix2, or a folder in LD_LIBRARY_PATH).

--pmi=off serves nothing and lets each rank start alone. -t names the MPI that the program needs, as
far as its file tells.

# OTHER LAUNCHERS
The spawners pmi and mpi call the launcher of a batch system or an MPI, and the ranks join its job
through PMI-1, PMI-2, PMIx or MPI. Programs can also be started by such a launcher directly (srun
--mpi=pmi2 ./prog, mpiexec ./prog); each rank looks at its environment and takes part.

PMIRUN_CMD, for pmi, and MPIRUN_CMD, for both, say how the launcher is called. Without them pmi
takes what the batch system has (srun, flux run, aprun, jsrun), else mpiexec.hydra, mpiexec, prterun
or mpirun; mpi takes mpirun or mpiexec. The text is cut into words as a shell does it. In it

@escapes

stand for what they say; inside a longer word they become text, with words quoted for a shell. %N,
%C or %P, and %C, %A or %Q must be there. The launcher is known by its name, or by what it says to
--version or -h; GASNET_IBV_DIALECT names it otherwise. From that follow the words for -N, -c,
--hosts, --map cyclic, --stdin and --tag-output, and how the environment is passed: always all
GASNET_* variables and those of -E. What a launcher has no words for is refused; -c 0 never is. -t
shows the whole call.

The job's code is the one that the launcher returns. An exit of all ranks, a non-collective exit and
an exit asked for by a signal are agreed on by the ranks, so it is right with every launcher; of a
rank that is killed, and of an abort, launchers tell different things: docs/design/launchers.md has
the table.

# OPTIONS OF OTHER LAUNCHERS
Options are also understood as other launchers write them. A value is the next word, or stands
behind =. These are the same as ours:

@aliases

These words have another meaning there:

@meanings

These do not exist here; the message says what serves:

@refused

# END OF THE JOB
A rank that dies of a signal, exits with another status than 0, or leaves without finishing the
conduit's exit, ends the job: every process of it is terminated, then killed. The first cause is
named on standard error with rank, host, process, signal or code, and the last lines that the rank
wrote to its standard error.

INT, TERM, HUP, QUIT, USR1, USR2, TSTP and CONT are forwarded to the ranks. A second interrupt kills
them.

# DOCTOR
@synopsis

Runs every launch step on the hosts without starting ranks, and says what to repair. Hosts are those
named, else those that a job would use, else this one. One line for each check and each thing that
was seen: ok, warning (jobs run, but slower or not with every option) or problem (jobs will fail),
the number of hosts and which; what to do stands below it behind fix. The code is 0 when there is no
problem, 1 when there is one, and as below when hosts could not be examined. The GASNET_SSH_*
variables count as for a job. Its options:

@options

It checks:

@checks

# WATCHING JOBS
Where a launcher runs, its user can look at the job, from any terminal. The state of a rank is not
started, starting (it has not opened the bootstrap), computing, sleeping (in a system call of its
own), in barrier, in collective, waits for … (inside the library), stopped, exiting or ended. A job
is named by JOB: its name as ps shows it, the beginning of that, or the process of its launcher.

@watch

The sockets of the jobs are in XDG_RUNTIME_DIR/gasnetrun, else in TMPDIR/gasnetrun-UID.jobs; only
their user can open them.

# ENVIRONMENT OF A RANK
Ranks on this host get the whole environment of the launcher. Ranks on other hosts get what a login
there sets, and on top of that all variables whose names begin with GASNET_, MLX4_ or MLX5_, except
those that only the launcher reads, and those named with -E. They travel through the channel to the
host and never stand on a command line. Every rank, also that of a plain program, finds its number
in GASNETRUN_RANK, the number of ranks in GASNETRUN_SIZE, and more about its place in the other
GASNETRUN variables listed below. In addition:

- GASNET_IBV_SPAWNER -- The chosen spawner.
- GASNET_VERBOSEENV, GASNET_SPAWN_VERBOSE -- Set to 1 by one and by two -v, unless they are set
  already.
- OMPI_MCA_mpi_warn_on_fork -- Set to 0 unless it is set already.

# EXIT STATUS
The job's own code when it ran: the reduced code (the largest) of an exit of all ranks together,
else that of the first cause: the exit code of the rank, or 128 + the number of the signal that
killed it. The launcher's own codes:

@codes

# EXAMPLES
- gasnetrun_ibv -n 4 ./hello -- Four ranks on this host.
- gasnetrun_ibv -np 8 -ppn 4 -host n1,n2 -x OMP_NUM_THREADS=2 ./solver -- The words of other
  launchers: four ranks on each host, with a variable.
- gasnetrun_ibv -n 4 --bind-to core --report-bindings ./solver -- A core for each rank, and say
  which.
- gasnetrun_ibv -n 4 -c 1 -t ./hello -- Show where each rank would run, bound to a cpu of its own;
  start nothing.
- gasnetrun_ibv -n 2 numactl --membind=0 ./solver input.dat -- A wrapper in front of the program.
- gasnetrun_ibv -n 8 -N 4 --hosts n[1-6] -t ./solver -- Show the map of two ranks on each of n1, n2,
  n3 and n4.
- gasnetrun_ibv doctor --hosts n[1-6] -- Say what keeps jobs from running on six hosts.
- gasnetrun_ibv stacks -- Where the ranks of the job that runs here are, equal stacks together.
- gasnetrun_ibv -n 2 valgrind -q ./solver -- Every rank under valgrind.
- gasnetrun_ibv -n 8 --tag-output --timeout 10m --report run.json ./solver -- For a script: who
  wrote what, a time limit, and a record of every rank.
- gasnetrun_ibv -n 3 --stdin all sort -n < numbers -- Three copies of a plain program, each with the
  whole input.
- gasnetrun_ibv -n 4 sh -c 'echo I am $GASNETRUN_RANK of $GASNETRUN_SIZE' -- Plain programs find
  their number in their environment.";
