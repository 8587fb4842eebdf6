//! The options of others that have a counterpart here.

use super::Becomes::{List, Made, Option, Words};
use super::Origin::{Gasnet, Hydra, OpenMpi, Prun, Slurm};
use super::{Alias, Becomes, Origin, values};

const fn row(
    words: &'static [&'static str],
    origins: &'static [Origin],
    values: &'static [&'static str],
    ours: &'static str,
    becomes: Becomes,
) -> Alias {
    Alias { words, origins, values, ours, becomes, note: "" }
}

/// A word that is one word here, too.
const fn word(
    words: &'static [&'static str],
    origins: &'static [Origin],
    ours: &'static [&'static str; 1],
) -> Alias {
    row(words, origins, &[], ours[0], Words(ours))
}

/// An option with one value, which is the value of our `$option`.
macro_rules! option {
    ($words:expr, $origins:expr, $option:literal, $value:literal) => {
        row(&$words, &$origins, &[$value], concat!($option, " ", $value), Option($option))
    };
}

/// A word that stands for our `$option` with always the same value.
macro_rules! fixed {
    ($words:expr, $origins:expr, $option:literal, $value:literal) => {
        row(
            &$words,
            &$origins,
            &[],
            concat!($option, " ", $value),
            Words(&[concat!($option, "=", $value)]),
        )
    };
}

/// The row, with where it differs from ours.
const fn noted(note: &'static str, row: Alias) -> Alias {
    Alias { note, ..row }
}

/// In the order of the manual.
pub const ALIASES: &[Alias] = &[
    option!(["-np"], [Gasnet, Hydra, OpenMpi, Prun], "-n", "P"),
    option!(["--np", "--n"], [OpenMpi, Prun], "-n", "P"),
    option!(["--ntasks"], [Slurm], "-n", "P"),
    option!(["--nodes"], [Slurm], "-N", "H"),
    option!(["-ppn", "--ppn", "-perhost", "--perhost"], [Hydra], "--ranks-per-host", "K"),
    noted(
        "-n is still needed",
        option!(["-npernode", "--npernode"], [OpenMpi, Prun], "--ranks-per-host", "K"),
    ),
    noted(
        "-n is still needed",
        fixed!(["-pernode", "--pernode"], [OpenMpi], "--ranks-per-host", "1"),
    ),
    noted("-n is still needed", option!(["--ntasks-per-node"], [Slurm], "--ranks-per-host", "K")),
    option!(["--cpus-per-task"], [Slurm], "-c", "K"),
    option!(
        ["-cpus-per-proc", "--cpus-per-proc", "-cpus-per-rank", "--cpus-per-rank"],
        [OpenMpi],
        "-c",
        "K"
    ),
    noted(
        "a host without a number of slots may have any number of ranks; a repeated option adds hosts",
        row(
            &["--host", "-host", "-H"],
            &[OpenMpi, Prun, Hydra],
            &["LIST"],
            "--hosts LIST",
            List("--hosts"),
        ),
    ),
    option!(["-hosts"], [Hydra], "--hosts", "LIST"),
    row(&["-w", "--nodelist"], &[Slurm], &["LIST"], "--hosts LIST", Made(values::nodelist)),
    option!(
        ["-hostfile", "-machinefile", "--machinefile"],
        [OpenMpi, Prun, Hydra],
        "--hostfile",
        "FILE"
    ),
    option!(["-f"], [Hydra], "--hostfile", "FILE"),
    option!(["-F", "--nodefile"], [Slurm], "--hostfile", "FILE"),
    noted(
        "slot: --map slots; node: --map cyclic; socket, numa, core: --place; ppr:N:node: --ranks-per-host N; \
         ppr:N:socket: --place N:socket; behind them :PE=K (-c K --bind-to core), :OVERSUBSCRIBE and \
         :NOOVERSUBSCRIBE",
        row(
            &["--map-by", "-map-by"],
            &[OpenMpi, Prun, Hydra],
            &["HOW"],
            "--map, --place or --ranks-per-host",
            Made(values::map_by),
        ),
    ),
    fixed!(["-bynode", "--bynode"], [OpenMpi], "--map", "cyclic"),
    fixed!(["-byslot", "--byslot"], [OpenMpi], "--map", "slots"),
    noted(
        "block or cyclic",
        row(&["-m", "--distribution"], &[Slurm], &["HOW"], "--map HOW", Made(values::distribution)),
    ),
    noted(
        "N ranks on each socket in turn; -n is still needed",
        row(
            &["-npersocket", "--npersocket"],
            &[OpenMpi],
            &["N"],
            "--place N:socket",
            Made(values::per_socket),
        ),
    ),
    noted(
        "N ranks on each socket in turn",
        row(
            &["--ntasks-per-socket"],
            &[Slurm],
            &["N"],
            "--place N:socket",
            Made(values::per_socket),
        ),
    ),
    noted(
        "core:K is -c K --bind-to core, hwthread:K is -c K",
        row(&["-bind-to"], &[Hydra, OpenMpi], &["PART"], "--bind-to PART", Made(values::bind_to)),
    ),
    fixed!(["-bind-to-core", "--bind-to-core"], [OpenMpi], "--bind-to", "core"),
    fixed!(["-bind-to-socket", "--bind-to-socket"], [OpenMpi], "--bind-to", "socket"),
    noted(
        "none, cores, sockets, ldoms and threads; verbose, in front is --report-bindings",
        row(&["--cpu-bind"], &[Slurm], &["PART"], "--bind-to PART", Made(values::cpu_bind)),
    ),
    word(&["-report-bindings"], &[OpenMpi], &["--report-bindings"]),
    word(&["-oversubscribe"], &[OpenMpi], &["--oversubscribe"]),
    word(&["-O", "--overcommit"], &[Slurm], &["--oversubscribe"]),
    word(&["-nooversubscribe", "--nooversubscribe"], &[OpenMpi], &["--no-oversubscribe"]),
    option!(["-x"], [OpenMpi, Prun], "--env", "NAME[=VALUE]"),
    row(
        &["-genv", "--genv"],
        &[Hydra],
        &["NAME", "VALUE"],
        "--env-all NAME=VALUE",
        Made(values::variable_of_all),
    ),
    row(&["-env"], &[Hydra], &["NAME", "VALUE"], "--env NAME=VALUE", Made(values::variable)),
    option!(["-genvlist", "-envlist", "--genvlist"], [Hydra], "-E", "LIST"),
    fixed!(["-genvall", "-envall", "--genvall"], [Hydra], "-E", "ALL"),
    noted(
        "ranks on this host get the whole environment all the same",
        row(&["--export"], &[Slurm], &["LIST"], "-E LIST", Made(values::export)),
    ),
    option!(["-wdir", "-wd", "--wd"], [Hydra, OpenMpi, Prun], "--wdir", "DIR"),
    option!(["-D", "--chdir"], [Slurm], "--wdir", "DIR"),
    word(&["-l", "--label"], &[Slurm, Hydra], &["--tag-output"]),
    word(&["-prepend-rank", "--prepend-rank"], &[Hydra], &["--tag-output"]),
    word(&["-tag-output"], &[OpenMpi], &["--tag-output"]),
    word(&["-timestamp-output"], &[OpenMpi], &["--timestamp-output"]),
    noted(
        "tag, timestamp and dir=DIR, between commas",
        row(
            &["--output"],
            &[OpenMpi, Prun],
            &["HOW"],
            "--tag-output, --timestamp-output or --output-dir DIR",
            Made(values::output),
        ),
    ),
    noted(
        "the files are rank.N.out and rank.N.err",
        option!(["-output-filename", "--output-filename"], [OpenMpi], "--output-dir", "DIR"),
    ),
    option!(["-stdin"], [OpenMpi], "--stdin", "WHO"),
    noted(
        "--xterm=-1 is for all ranks, ! at the end keeps the windows",
        row(
            &["--xterm", "-xterm"],
            &[OpenMpi],
            &["RANKS"],
            "--debugger 'xterm -e' --debugger-ranks RANKS",
            Made(values::xterm),
        ),
    ),
    noted(
        "all, none or a rank",
        row(&["-i", "--input"], &[Slurm], &["WHO"], "--stdin WHO", Made(values::input)),
    ),
    option!(["-timeout"], [OpenMpi], "--timeout", "SECONDS"),
    noted(
        "minutes, or as Slurm writes times: 1:30:00, 2-12",
        row(&["--time"], &[Slurm], &["TIME"], "--timeout TIME", Made(values::time)),
    ),
    word(&["-quiet"], &[OpenMpi], &["--quiet"]),
    word(&["-Q"], &[Slurm], &["--quiet"]),
    word(&["-verbose", "--verbose"], &[Hydra, Slurm, OpenMpi, Prun], &["-v"]),
    word(&["--do-not-launch", "-do-not-launch"], &[OpenMpi, Prun], &["-t"]),
    word(&["--test-only"], &[Slurm], &["-t"]),
    fixed!(["--show-progress", "-show-progress"], [OpenMpi], "--progress", "bar"),
];
