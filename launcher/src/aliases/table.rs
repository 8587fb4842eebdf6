//! The options of others that have a counterpart here.

use super::Becomes::{List, Made, Option, Words};
use super::Origin::{Gasnet, Hydra, OpenMpi, Prun, Slurm};
use super::{Alias, Becomes, values};

/// What a row says of our side; it gets its spellings, and whose they are, in the table.
const fn row(values: &'static [&'static str], ours: &'static str, becomes: Becomes) -> Alias {
    Alias { words: &[], origins: &[], values, ours, becomes, note: "" }
}

/// A word that is one word here, too.
const fn word(ours: &'static [&'static str; 1]) -> Alias {
    row(&[], ours[0], Words(ours))
}

/// An option with one value, which is the value of our `$option`.
macro_rules! option {
    ($option:literal, $value:literal) => {
        row(&[$value], concat!($option, " ", $value), Option($option))
    };
}

/// A word that stands for our `$option` with always the same value.
macro_rules! fixed {
    ($option:literal, $value:literal) => {
        row(&[], concat!($option, " ", $value), Words(&[concat!($option, "=", $value)]))
    };
}

/// Makes the table. A row has the spellings, whose they are, what it is here, and where it differs.
macro_rules! aliases {
    ($($($word:literal)+: $($origin:ident)+ => $ours:expr $(, $note:literal)?;)*) => {
        /// In the order of the manual.
        pub const ALIASES: &[Alias] = &[$(Alias {
            words: &[$($word),+],
            origins: &[$($origin),+],
            note: concat!($($note)?),
            ..$ours
        }),*];
    };
}

aliases! {
    "-np": Gasnet Hydra OpenMpi Prun => option!("-n", "P");
    "--np" "--n": OpenMpi Prun => option!("-n", "P");
    "--ntasks": Slurm => option!("-n", "P");
    "--nodes": Slurm => option!("-N", "H");
    "-ppn" "--ppn" "-perhost" "--perhost": Hydra => option!("--ranks-per-host", "K");
    "-npernode" "--npernode": OpenMpi Prun => option!("--ranks-per-host", "K"),
        "-n is still needed";
    "-pernode" "--pernode": OpenMpi => fixed!("--ranks-per-host", "1"), "-n is still needed";
    "--ntasks-per-node": Slurm => option!("--ranks-per-host", "K"), "-n is still needed";
    "--cpus-per-task": Slurm => option!("-c", "K");
    "-cpus-per-proc" "--cpus-per-proc" "-cpus-per-rank" "--cpus-per-rank": OpenMpi =>
        option!("-c", "K");
    "--host" "-host" "-H": OpenMpi Prun Hydra => row(&["LIST"], "--hosts LIST", List("--hosts")),
        "a host without a number of slots may have any number of ranks; a repeated option adds hosts";
    "-hosts": Hydra => option!("--hosts", "LIST");
    "-w" "--nodelist": Slurm => row(&["LIST"], "--hosts LIST", Made(values::nodelist));
    "-hostfile" "-machinefile" "--machinefile": OpenMpi Prun Hydra => option!("--hostfile", "FILE");
    "-f": Hydra => option!("--hostfile", "FILE");
    "-F" "--nodefile": Slurm => option!("--hostfile", "FILE");
    "--map-by" "-map-by": OpenMpi Prun Hydra =>
        row(&["HOW"], "--map, --place or --ranks-per-host", Made(values::map_by)),
        "slot: --map slots; node: --map cyclic; socket, numa, core: --place; ppr:N:node: --ranks-per-host N; \
         ppr:N:socket: --place N:socket; behind them :PE=K (-c K --bind-to core), :OVERSUBSCRIBE and \
         :NOOVERSUBSCRIBE";
    "-bynode" "--bynode": OpenMpi => fixed!("--map", "cyclic");
    "-byslot" "--byslot": OpenMpi => fixed!("--map", "slots");
    "-m" "--distribution": Slurm => row(&["HOW"], "--map HOW", Made(values::distribution)),
        "block or cyclic";
    "-npersocket" "--npersocket": OpenMpi =>
        row(&["N"], "--place N:socket", Made(values::per_socket)),
        "N ranks on each socket in turn; -n is still needed";
    "--ntasks-per-socket": Slurm => row(&["N"], "--place N:socket", Made(values::per_socket)),
        "N ranks on each socket in turn";
    "-bind-to": Hydra OpenMpi => row(&["PART"], "--bind-to PART", Made(values::bind_to)),
        "core:K is -c K --bind-to core, hwthread:K is -c K";
    "-bind-to-core" "--bind-to-core": OpenMpi => fixed!("--bind-to", "core");
    "-bind-to-socket" "--bind-to-socket": OpenMpi => fixed!("--bind-to", "socket");
    "--cpu-bind": Slurm => row(&["PART"], "--bind-to PART", Made(values::cpu_bind)),
        "none, cores, sockets, ldoms and threads; verbose, in front is --report-bindings";
    "-report-bindings": OpenMpi => word(&["--report-bindings"]);
    "-oversubscribe": OpenMpi => word(&["--oversubscribe"]);
    "-O" "--overcommit": Slurm => word(&["--oversubscribe"]);
    "-nooversubscribe" "--nooversubscribe": OpenMpi => word(&["--no-oversubscribe"]);
    "-x": OpenMpi Prun => option!("--env", "NAME[=VALUE]");
    "-genv" "--genv": Hydra =>
        row(&["NAME", "VALUE"], "--env-all NAME=VALUE", Made(values::variable_of_all));
    "-env": Hydra => row(&["NAME", "VALUE"], "--env NAME=VALUE", Made(values::variable));
    "-genvlist" "-envlist" "--genvlist": Hydra => option!("-E", "LIST");
    "-genvall" "-envall" "--genvall": Hydra => fixed!("-E", "ALL");
    "--export": Slurm => row(&["LIST"], "-E LIST", Made(values::export)),
        "ranks on this host get the whole environment all the same";
    "-wdir" "-wd" "--wd": Hydra OpenMpi Prun => option!("--wdir", "DIR");
    "-D" "--chdir": Slurm => option!("--wdir", "DIR");
    "-l" "--label": Slurm Hydra => word(&["--tag-output"]);
    "-prepend-rank" "--prepend-rank": Hydra => word(&["--tag-output"]);
    "-tag-output": OpenMpi => word(&["--tag-output"]);
    "-timestamp-output": OpenMpi => word(&["--timestamp-output"]);
    "--output": OpenMpi Prun =>
        row(&["HOW"], "--tag-output, --timestamp-output or --output-dir DIR", Made(values::output)),
        "tag, timestamp and dir=DIR, between commas";
    "-output-filename" "--output-filename": OpenMpi => option!("--output-dir", "DIR"),
        "the files are rank.N.out and rank.N.err";
    "-stdin": OpenMpi => option!("--stdin", "WHO");
    "--xterm" "-xterm": OpenMpi =>
        row(&["RANKS"], "--debugger 'xterm -e' --debugger-ranks RANKS", Made(values::xterm)),
        "--xterm=-1 is for all ranks, ! at the end keeps the windows";
    "-i" "--input": Slurm => row(&["WHO"], "--stdin WHO", Made(values::input)),
        "all, none or a rank";
    "-timeout": OpenMpi => option!("--timeout", "SECONDS");
    "--time": Slurm => row(&["TIME"], "--timeout TIME", Made(values::time)),
        "minutes, or as Slurm writes times: 1:30:00, 2-12";
    "-quiet": OpenMpi => word(&["--quiet"]);
    "-Q": Slurm => word(&["--quiet"]);
    "-verbose" "--verbose": Hydra Slurm OpenMpi Prun => word(&["-v"]);
    "--do-not-launch" "-do-not-launch": OpenMpi Prun => word(&["-t"]);
    "--test-only": Slurm => word(&["-t"]);
    "--show-progress" "-show-progress": OpenMpi => fixed!("--progress", "bar");
}
