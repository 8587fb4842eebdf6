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

/// In the order of the manual.
pub const ALIASES: &[Alias] = &[
    row(&["-np"], &[Gasnet, Hydra, OpenMpi, Prun], &["P"], "-n P", Option("-n")),
    row(&["--np", "--n"], &[OpenMpi, Prun], &["P"], "-n P", Option("-n")),
    row(&["--ntasks"], &[Slurm], &["P"], "-n P", Option("-n")),
    row(&["--nodes"], &[Slurm], &["H"], "-N H", Option("-N")),
    row(
        &["-ppn", "--ppn", "-perhost", "--perhost"],
        &[Hydra],
        &["K"],
        "--ranks-per-host K",
        Option("--ranks-per-host"),
    ),
    Alias {
        note: "-n is still needed",
        ..row(
            &["-npernode", "--npernode"],
            &[OpenMpi, Prun],
            &["K"],
            "--ranks-per-host K",
            Option("--ranks-per-host"),
        )
    },
    Alias {
        note: "-n is still needed",
        ..row(
            &["-pernode", "--pernode"],
            &[OpenMpi],
            &[],
            "--ranks-per-host 1",
            Words(&["--ranks-per-host=1"]),
        )
    },
    Alias {
        note: "-n is still needed",
        ..row(
            &["--ntasks-per-node"],
            &[Slurm],
            &["K"],
            "--ranks-per-host K",
            Option("--ranks-per-host"),
        )
    },
    row(&["--cpus-per-task"], &[Slurm], &["K"], "-c K", Option("-c")),
    row(
        &["-cpus-per-proc", "--cpus-per-proc", "-cpus-per-rank", "--cpus-per-rank"],
        &[OpenMpi],
        &["K"],
        "-c K",
        Option("-c"),
    ),
    Alias {
        note: "a host without a number of slots may have any number of ranks; a repeated option adds hosts",
        ..row(
            &["--host", "-host", "-H"],
            &[OpenMpi, Prun, Hydra],
            &["LIST"],
            "--hosts LIST",
            List("--hosts"),
        )
    },
    row(&["-hosts"], &[Hydra], &["LIST"], "--hosts LIST", Option("--hosts")),
    row(&["-w", "--nodelist"], &[Slurm], &["LIST"], "--hosts LIST", Made(values::nodelist)),
    row(
        &["-hostfile", "-machinefile", "--machinefile"],
        &[OpenMpi, Prun, Hydra],
        &["FILE"],
        "--hostfile FILE",
        Option("--hostfile"),
    ),
    row(&["-f"], &[Hydra], &["FILE"], "--hostfile FILE", Option("--hostfile")),
    row(&["-F", "--nodefile"], &[Slurm], &["FILE"], "--hostfile FILE", Option("--hostfile")),
    Alias {
        note: "slot: --map slots; node: --map cyclic; socket, numa, core: --place; ppr:N:node: --ranks-per-host N; \
               ppr:N:socket: --place N:socket; behind them :PE=K (-c K --bind-to core), :OVERSUBSCRIBE and \
               :NOOVERSUBSCRIBE",
        ..row(
            &["--map-by", "-map-by"],
            &[OpenMpi, Prun, Hydra],
            &["HOW"],
            "--map, --place or --ranks-per-host",
            Made(values::map_by),
        )
    },
    row(&["-bynode", "--bynode"], &[OpenMpi], &[], "--map cyclic", Words(&["--map=cyclic"])),
    row(&["-byslot", "--byslot"], &[OpenMpi], &[], "--map slots", Words(&["--map=slots"])),
    Alias {
        note: "block or cyclic",
        ..row(
            &["-m", "--distribution"],
            &[Slurm],
            &["HOW"],
            "--map HOW",
            Made(values::distribution),
        )
    },
    Alias {
        note: "N ranks on each socket in turn; -n is still needed",
        ..row(
            &["-npersocket", "--npersocket"],
            &[OpenMpi],
            &["N"],
            "--place N:socket",
            Made(values::per_socket),
        )
    },
    Alias {
        note: "N ranks on each socket in turn",
        ..row(
            &["--ntasks-per-socket"],
            &[Slurm],
            &["N"],
            "--place N:socket",
            Made(values::per_socket),
        )
    },
    Alias {
        note: "core:K is -c K --bind-to core, hwthread:K is -c K",
        ..row(&["-bind-to"], &[Hydra, OpenMpi], &["PART"], "--bind-to PART", Made(values::bind_to))
    },
    row(
        &["-bind-to-core", "--bind-to-core"],
        &[OpenMpi],
        &[],
        "--bind-to core",
        Words(&["--bind-to=core"]),
    ),
    row(
        &["-bind-to-socket", "--bind-to-socket"],
        &[OpenMpi],
        &[],
        "--bind-to socket",
        Words(&["--bind-to=socket"]),
    ),
    Alias {
        note: "none, cores, sockets, ldoms and threads; verbose, in front is --report-bindings",
        ..row(&["--cpu-bind"], &[Slurm], &["PART"], "--bind-to PART", Made(values::cpu_bind))
    },
    row(&["-report-bindings"], &[OpenMpi], &[], "--report-bindings", Words(&["--report-bindings"])),
    row(&["-oversubscribe"], &[OpenMpi], &[], "--oversubscribe", Words(&["--oversubscribe"])),
    row(&["-O", "--overcommit"], &[Slurm], &[], "--oversubscribe", Words(&["--oversubscribe"])),
    row(
        &["-nooversubscribe", "--nooversubscribe"],
        &[OpenMpi],
        &[],
        "--no-oversubscribe",
        Words(&["--no-oversubscribe"]),
    ),
    row(&["-x"], &[OpenMpi, Prun], &["NAME[=VALUE]"], "--env NAME[=VALUE]", Option("--env")),
    row(
        &["-genv", "--genv"],
        &[Hydra],
        &["NAME", "VALUE"],
        "--env-all NAME=VALUE",
        Made(values::variable_of_all),
    ),
    row(&["-env"], &[Hydra], &["NAME", "VALUE"], "--env NAME=VALUE", Made(values::variable)),
    row(&["-genvlist", "-envlist", "--genvlist"], &[Hydra], &["LIST"], "-E LIST", Option("-E")),
    row(&["-genvall", "-envall", "--genvall"], &[Hydra], &[], "-E ALL", Words(&["-E=ALL"])),
    Alias {
        note: "ranks on this host get the whole environment all the same",
        ..row(&["--export"], &[Slurm], &["LIST"], "-E LIST", Made(values::export))
    },
    row(
        &["-wdir", "-wd", "--wd"],
        &[Hydra, OpenMpi, Prun],
        &["DIR"],
        "--wdir DIR",
        Option("--wdir"),
    ),
    row(&["-D", "--chdir"], &[Slurm], &["DIR"], "--wdir DIR", Option("--wdir")),
    row(&["-l", "--label"], &[Slurm, Hydra], &[], "--tag-output", Words(&["--tag-output"])),
    row(
        &["-prepend-rank", "--prepend-rank"],
        &[Hydra],
        &[],
        "--tag-output",
        Words(&["--tag-output"]),
    ),
    row(&["-tag-output"], &[OpenMpi], &[], "--tag-output", Words(&["--tag-output"])),
    row(
        &["-timestamp-output"],
        &[OpenMpi],
        &[],
        "--timestamp-output",
        Words(&["--timestamp-output"]),
    ),
    Alias {
        note: "tag, timestamp and dir=DIR, between commas",
        ..row(
            &["--output"],
            &[OpenMpi, Prun],
            &["HOW"],
            "--tag-output, --timestamp-output or --output-dir DIR",
            Made(values::output),
        )
    },
    Alias {
        note: "the files are rank.N.out and rank.N.err",
        ..row(
            &["-output-filename", "--output-filename"],
            &[OpenMpi],
            &["DIR"],
            "--output-dir DIR",
            Option("--output-dir"),
        )
    },
    row(&["-stdin"], &[OpenMpi], &["WHO"], "--stdin WHO", Option("--stdin")),
    Alias {
        note: "--xterm=-1 is for all ranks, ! at the end keeps the windows",
        ..row(
            &["--xterm", "-xterm"],
            &[OpenMpi],
            &["RANKS"],
            "--debugger 'xterm -e' --debugger-ranks RANKS",
            Made(values::xterm),
        )
    },
    Alias {
        note: "all, none or a rank",
        ..row(&["-i", "--input"], &[Slurm], &["WHO"], "--stdin WHO", Made(values::input))
    },
    row(&["-timeout"], &[OpenMpi], &["SECONDS"], "--timeout SECONDS", Option("--timeout")),
    Alias {
        note: "minutes, or as Slurm writes times: 1:30:00, 2-12",
        ..row(&["--time"], &[Slurm], &["TIME"], "--timeout TIME", Made(values::time))
    },
    row(&["-quiet"], &[OpenMpi], &[], "--quiet", Words(&["--quiet"])),
    row(&["-Q"], &[Slurm], &[], "--quiet", Words(&["--quiet"])),
    row(&["-verbose", "--verbose"], &[Hydra, Slurm, OpenMpi, Prun], &[], "-v", Words(&["-v"])),
    row(&["--do-not-launch", "-do-not-launch"], &[OpenMpi, Prun], &[], "-t", Words(&["-t"])),
    row(&["--test-only"], &[Slurm], &[], "-t", Words(&["-t"])),
    row(
        &["--show-progress", "-show-progress"],
        &[OpenMpi],
        &[],
        "--progress bar",
        Words(&["--progress=bar"]),
    ),
];
