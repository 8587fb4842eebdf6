//! Every kind of bad input with its exit code and what its message must say. Nothing is ever
//! started.

use crate::room::Room;

type Case<'a> = (&'a [&'a str], &'a [(&'a str, &'a str)], i32, &'a [&'a str]);

const USAGE: &[Case<'static>] = &[
    (&[], &[], 2, &["number of ranks is missing", "try gasnetrun_ibv -n 4"]),
    (&["prog_real"], &[], 2, &["number of ranks is missing"]),
    (&["-n", "4"], &[], 2, &["no program is named", "-n 4 ./program"]),
    (&["-n", "4", "--"], &[], 2, &["no program is named"]),
    (&["-n"], &[], 2, &["-n needs a value"]),
    (&["-n", "2x", "prog_real"], &[], 2, &["'2x'", "-n 4"]),
    (&["-n", "0", "prog_real"], &[], 2, &["'0'", "at least 1"]),
    (&["-n", "2.5", "prog_real"], &[], 2, &["'2.5'", "whole number"]),
    (&["-n", "", "prog_real"], &[], 2, &["-n", "whole number"]),
    (&["-n-1", "prog_real"], &[], 2, &["'-1'", "whole number"]),
    (&["-n", "99999999999", "prog_real"], &[], 2, &["at most"]),
    (&["-np", "x", "prog_real"], &[], 2, &["'x'"]),
    (&["-N", "0", "-n", "1", "prog_real"], &[], 2, &["number of hosts", "-N 1"]),
    (&["-c", "-1", "-n", "1", "prog_real"], &[], 2, &["-c needs a value", "\"-1\""]),
    (&["-c", "x", "-n", "1", "prog_real"], &[], 2, &["cpus per rank", "-c 1"]),
    (&["-n", "2", "-E"], &[], 2, &["-E needs a value"]),
    (&["-E", "-n", "2", "prog_real"], &[], 2, &["-E needs a value", "\"-n\""]),
    (&["-n", "2", "-E", "A=1,=2", "prog_real"], &[], 2, &["-E \"=2\"", "NAME=VALUE"]),
    (
        &["-n", "2", "-E", "GASNETRUN_SIZE=3", "prog_real"],
        &[],
        2,
        &["GASNETRUN_SIZE=3", "leave it out"],
    ),
    (&["-y", "-n", "2", "prog_real"], &[], 2, &["unknown option \"-y\"", "--help"]),
    (&["-x", "-n", "2", "prog_real"], &[], 2, &["-x", "\"-n\"", "-x NAME[=VALUE]", "--env"]),
    (&["-ppn", "x", "prog_real"], &[], 2, &["-ppn x", "--ranks-per-host=x", "whole number"]),
    (&["-ppn"], &[], 2, &["-ppn needs a value: -ppn K", "--ranks-per-host K"]),
    (&["-genv", "A"], &[], 2, &["two values: -genv NAME VALUE", "--env-all NAME=VALUE"]),
    (&["--label=2", "prog_real"], &[], 2, &["--label takes no value", "--tag-output"]),
    (&["--map-by", "l3cache", "prog_real"], &[], 2, &["--map-by l3cache", "write slot, node"]),
    (&["--bind-to", "hwthread", "prog_real"], &[], 2, &["--bind-to", "-c 1"]),
    (&["--mca", "a", "b", "prog_real"], &[], 2, &["--mca of Open MPI, PRRTE", "GASNET_*"]),
    (&["--multi-prog", "f"], &[], 2, &["--multi-prog of Slurm", "./a x : -n 6 ./b y"]),
    (
        &["--bind-to", "none", "-c", "1", "-n", "1", "prog_real"],
        &[],
        2,
        &["--bind-to none and -c 1"],
    ),
    (
        &["-n", "1", "prog_real", ":"],
        &[],
        2,
        &["program 2 of the job is missing behind the last colon"],
    ),
    (
        &["-n", "1", ":", "-n", "1", "prog_real"],
        &[],
        2,
        &["program 1 of the job is missing before"],
    ),
    (
        &["-n", "1", "prog_real", ":", ":", "-n", "1", "prog_real"],
        &[],
        2,
        &["program 2 of the job is missing"],
    ),
    (
        &["-n", "1", "prog_real", ":", "script"],
        &[],
        2,
        &["program 2 of the job (script) has no -n", "needs -- in front"],
    ),
    (
        &["prog_real", ":", "-n", "1", "script"],
        &[],
        2,
        &["program 1 of the job (prog_real) has no -n"],
    ),
    (&["-n", "1", "prog_real", ":", "-n", "x", "script"], &[], 2, &["'x'", "-n 4"]),
    (
        &["-n", "1", "prog_real", ":", "-n", "1", "--tag-output", "script"],
        &[],
        2,
        &["--tag-output stands before program 2", "Only -n, --env"],
    ),
    (&["-n", "1", "prog_real", ":", "-n", "1", "--foo", "script"], &[], 2, &["'--foo'"]),
    (
        &["--stdin", "2", "-n", "1", "prog_real", ":", "-n", "1", "script"],
        &[],
        2,
        &["ranks 0 to 1"],
    ),
    (&["-n", "1", "prog_real", ":", "-n", "1", "-x", "=2", "script"], &[], 2, &["--env \"=2\""]),
    (&["--env", "=1", "-n", "1", "prog_real"], &[], 2, &["--env \"=1\""]),
    (&["-encode", "-n", "2", "prog_real"], &[], 2, &["unknown option \"-encode\""]),
    (&["--tag-outputs", "-n", "2", "prog_real"], &[], 2, &["--tag-outputs", "--tag-output'"]),
    (
        &["-report", "3", "-n", "2", "prog_real"],
        &[],
        2,
        &["unknown option -report", "try --report"],
    ),
    (&["-spawner", "ssh", "-n", "2", "prog_real"], &[], 2, &["try -spawner=ssh"]),
    (&["-spawner=", "-n", "2", "prog_real"], &[], 2, &["unknown spawner \"\"", "try ssh"]),
    (&["-spawner=slurm", "-n", "2", "prog_real"], &[], 2, &["unknown spawner \"slurm\""]),
    (&["-spawner=FORK", "-n", "2", "prog_real"], &[], 2, &["fork", "smp", "try ssh"]),
    (&["--timeout", "0", "-n", "2", "prog_real"], &[], 2, &["'0'", "leave the option out"]),
    (&["--timeout", "3d", "-n", "2", "prog_real"], &[], 2, &["'3d'", "--timeout 90"]),
    (&["--stdin", "some", "-n", "2", "prog_real"], &[], 2, &["'some'", "none, all, or a rank"]),
    (&["--stdin", "2", "-n", "2", "prog_real"], &[], 2, &["--stdin 2", "ranks 0 to 1"]),
    (
        &["--progress", "much", "-n", "2", "prog_real"],
        &[],
        2,
        &["'much'", "auto, bar, plain, none"],
    ),
    (&["--tag-output=1", "-n", "2", "prog_real"], &[], 2, &["--tag-output"]),
];

const LAUNCH: &[Case<'static>] = &[
    (
        &["-spawner=mpi", "-n", "2", "prog_real"],
        &[],
        125,
        &["was built without the mpi spawner", "-spawner="],
    ),
    (
        &["-n", "2", "prog_real"],
        &[("GASNET_IBV_SPAWNER", "PMI"), ("PMIRUN_CMD", "launch %C")],
        125,
        &["PMIRUN_CMD", "%N"],
    ),
    (
        &["-n", "2", "prog_real"],
        &[("GASNET_IBV_SPAWNER", "fork")],
        125,
        &["GASNET_IBV_SPAWNER: ", "fork"],
    ),
    (
        &["-n", "2", "prog_real"],
        &[("GASNET_IBV_SPAWNER", "sssh")],
        125,
        &["GASNET_IBV_SPAWNER: ", "\"sssh\""],
    ),
    (
        &["-n", "4", "-N", "2", "prog_real"],
        &[],
        125,
        &["-N 2", "no host list is set", "--hosts", "-N 1"],
    ),
    (
        &["-n", "4", "--hosts", "n1,n2:0", "prog_real"],
        &[],
        125,
        &["--hosts, line 1, column 4", "\"n2:0\"", "from 1 to 65535"],
    ),
    (&["-n", "4", "--hosts", "", "prog_real"], &[], 125, &["--hosts names no host"]),
    (&["-n", "4", "--hosts", "x:1", "prog_real"], &[], 125, &["has 1", "3 too few", "-n 1"]),
    (&["-n", "4", "--hostfile", "nowhere", "prog_real"], &[], 125, &["--hostfile nowhere"]),
    (&["-n", "4", "--map", "nowhere", "prog_real"], &[], 125, &["--map nowhere"]),
    (&["-n", "4", "--map=", "prog_real"], &[], 2, &["--map", "cyclic"]),
    (
        &["-n", "4", "--hosts", "a", "--hostfile", "b", "prog_real"],
        &[],
        2,
        &["--hosts", "--hostfile", "cannot be used with"],
    ),
    (
        &["-n", "2", "-t", "--hosts", "other.example", "prog_real"],
        &[("GASNET_SSH_OPTIONS", "-o 'LogLevel ERROR")],
        125,
        &["GASNET_SSH_OPTIONS", "quote"],
    ),
    (
        &["-n", "2", "-t", "--hosts", "other.example", "prog_real"],
        &[("GASNET_SSH_CMD", "ssh -v")],
        125,
        &["GASNET_SSH_CMD", "GASNET_SSH_OPTIONS"],
    ),
    (
        &["-n", "2", "prog_real"],
        &[
            ("GASNET_SSH_SERVERS", "localhost other.example"),
            ("GASNET_SSH_CMD", "/nonexistent/ssh"),
        ],
        125,
        &["1 of 2 hosts (other.example)", "/nonexistent/ssh", "GASNET_SSH_CMD"],
    ),
    (
        &["-n", "2", "prog_real"],
        &[("GASNET_SSH_NODEFILE", "/nonexistent")],
        125,
        &["GASNET_SSH_NODEFILE", "/nonexistent"],
    ),
    (&["-n", "2", "udp_prog"], &[], 125, &["$DIR/udp_prog", "UDP conduit", "gasnetrun_udp"]),
    (&["-n", "2", "bare"], &[], 125, &["$DIR/bare", "without the ssh spawner", "none"]),
    (
        &["-n", "2", "env", "mpi_only"],
        &[],
        125,
        &["$DIR/mpi_only", "without the ssh spawner", "mpi"],
    ),
    (&["-n", "4000", "-c", "4", "prog_real"], &[], 125, &["-c 4", "need 16000 cpus", "-c 0"]),
    (
        &["-n", "4000", "--bind-to", "core", "prog_real"],
        &[],
        125,
        &["need 4000 cores", "--bind-to none"],
    ),
    (
        &["-n", "4000", "--no-oversubscribe", "prog_real"],
        &[],
        125,
        &["--no-oversubscribe: 4000 ranks, but"],
    ),
    (
        &["-n", "4", "--ranks-per-host", "3", "prog_real"],
        &[],
        125,
        &["--ranks-per-host 3", "need 2 hosts", "--hosts n1,n2"],
    ),
    (
        &["-n", "7", "-ppn", "3", "-host", "a,b", "prog_real"],
        &[],
        125,
        &["--ranks-per-host 3", "1 too few"],
    ),
    (
        &["-n", "2", "--wdir", "nowhere", "prog_real"],
        &[],
        125,
        &["--wdir $DIR/nowhere", "No such file"],
    ),
    (
        &["-n", "2", "--wdir", "data", "prog_real"],
        &[],
        125,
        &["--wdir $DIR/data", "not a directory"],
    ),
    (
        &["-n", "2", "--report", "nowhere/r", "prog_real"],
        &[],
        125,
        &["--report nowhere/r", "cannot write"],
    ),
    (&["-n", "1", "prog_real", ":", "-n", "1", "missing"], &[], 127, &["\"missing\" not found"]),
    (&["-n", "1", "prog_real", ":", "-n", "1", "udp_prog"], &[], 125, &["UDP conduit"]),
    (
        &["-n", "1", "prog_real", ":", "-n", "1", "--wdir", "/not/there", "script"],
        &[],
        125,
        &["--wdir /not/there"],
    ),
    (&["-n", "2", "./folder"], &[], 126, &["$DIR/folder is a directory"]),
    (&["-n", "2", "folder"], &[], 126, &["$DIR/folder is a directory"]),
    (&["-n", "2", "/"], &[], 126, &["/ is a directory"]),
    (&["-n", "2", "./data"], &[], 126, &["$DIR/data is not executable", "chmod +x"]),
    (&["-n", "2", "data"], &[], 126, &["$DIR/data is not executable"]),
    (
        &["-n", "2", "missing"],
        &[],
        127,
        &["\"missing\" not found", "in $DIR and in PATH (/usr/bin:/bin)"],
    ),
    (&["-n", "2", "./missing"], &[], 127, &["\"./missing\" not found", "at $DIR/missing"]),
    (&["-n", "2", "data/missing"], &[], 127, &["at $DIR/data/missing"]),
    (&["-n", "2", ""], &[], 127, &["\"\" not found"]),
];

#[test]
fn code_and_text() {
    let room = Room::new();
    for (words, environment, code, parts) in USAGE.iter().chain(LAUNCH) {
        let seen = room.run(room.launcher(words).envs(environment.iter().copied()));
        assert_eq!(seen.code, Some(*code), "{words:?} {}", seen.err);
        assert!(seen.err.starts_with("gasnetrun_ibv: "), "{words:?} {}", seen.err);
        assert_eq!(seen.out, "", "{words:?}");
        for part in *parts {
            assert!(seen.err.contains(part), "{words:?}: {part:?} is missing in {}", seen.err);
        }
    }
}

#[test]
fn an_output_directory_that_cannot_be_made_stops_the_launch() {
    let room = Room::new();
    let seen = room.run(&mut room.launcher(&["-n", "2", "--output-dir", "data/x", "./script"]));
    assert_eq!(seen.code, Some(125), "{}", seen.err);
    assert!(seen.err.contains("--output-dir $DIR/data/x: Not a directory"), "{}", seen.err);
}

#[test]
fn a_report_is_written_for_launch_failures_too() {
    let room = Room::new();
    let seen = room.run(&mut room.launcher(&["-n", "2", "--report", "r.json", "missing"]));
    assert_eq!(seen.code, Some(127));
    let text = std::fs::read(room.path().join("r.json")).expect("a report");
    let report: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
    assert_eq!(report["exit_code"], 127);
    assert_eq!(
        (&report["format"], &report["protocol"]),
        (&1.into(), &bootstrap::frame::VERSION.into())
    );
    assert_eq!(report["command_line"][2], "2");
    assert!(report["failure"].as_str().is_some_and(|text| text.contains("not found")), "{report}");
    assert!(report["job"].is_null() && report["phases"].is_null());
    assert_eq!(report["ranks"].as_array().map(Vec::len), Some(0));
}

#[test]
fn the_launcher_is_no_gasnet_program() {
    let launcher = std::path::Path::new(env!("CARGO_BIN_EXE_gasnetrun_ibv"));
    let marks = launcher::ident::scan(launcher, launcher::spawner::Spawner::Ssh).expect("read");
    assert_eq!(marks, launcher::ident::Marks::default());
}

#[test]
fn help_and_version_go_to_standard_output() {
    let room = Room::new();
    for (words, part) in [
        (&["-h"][..], "Usage: gasnetrun_ibv -n P"),
        (&["--help"], "--print-settings"),
        (&["--help"], "  127  The program was not found"),
        (&["-n", "2", "--help", "missing"], "--print-settings"),
        (&["--version"], "gasnetrun_ibv "),
    ] {
        let seen = room.run(&mut room.launcher(words));
        assert_eq!((seen.code, seen.err.as_str()), (Some(0), ""), "{words:?}");
        assert!(seen.out.contains(part), "{words:?} {}", seen.out);
    }
}
