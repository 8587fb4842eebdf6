//! Jobs that are called in the words of other launchers, and ranks that are bound.

use crate::room::Room;

const QUIET: (&str, &str) = ("GASNET_QUIET", "1");
/// The cpus that a rank may use.
const CPUS: &str =
    "echo $GASNETRUN_RANK $(sed -n 's/^Cpus_allowed_list:\\s*//p' /proc/self/status)";

/// Runs a call that must succeed, and gives its output sorted.
fn lines(words: &[&str]) -> Vec<String> {
    let room = Room::new();
    let seen = room.run(room.launcher(words).envs([QUIET]));
    assert_eq!((seen.code, seen.err.as_str()), (Some(0), ""), "{words:?}");
    let mut lines: Vec<String> = seen.out.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

#[test]
fn calls_of_other_launchers_run() {
    let show = "echo $A $B $PWD";
    for words in [
        &["-np", "2", "-x", "A=1,2", "-x", "B=3", "-wdir", "/", "-l", "sh", "-c", show][..],
        &[
            "-n",
            "2",
            "-genv",
            "A",
            "1,2",
            "-env",
            "B",
            "3",
            "-wdir",
            "/",
            "-prepend-rank",
            "sh",
            "-c",
            show,
        ],
        &[
            "--ntasks=2",
            "--export=ALL,B=3",
            "-x",
            "A=1,2",
            "--chdir=/",
            "--label",
            "sh",
            "-c",
            show,
        ],
        &[
            "--np", "2", "--env", "A=1,2", "-E", "B=3", "--wd", "/", "--output", "tag", "sh", "-c",
            show,
        ],
    ] {
        assert_eq!(lines(words), ["[0] 1,2 3 /", "[1] 1,2 3 /"], "{words:?}");
    }
}

#[test]
fn the_same_hosts_in_all_languages() {
    let room = Room::new();
    std::fs::write(room.path().join("list"), "a\nb\n").expect("write list");
    let map = |words: &[&str]| {
        let words = [words, &["-t", "prog_real"]].concat();
        let seen = room.run(&mut room.launcher(&words));
        assert_eq!(seen.code, Some(0), "{words:?} {}", seen.err);
        let ranks = seen.out.lines().filter_map(|line| line.strip_prefix("rank "));
        ranks.filter_map(|line| line.split("host ").nth(1)?.split(',').next()).collect::<String>()
    };
    for (words, expected) in [
        (&["-n", "3", "-host", "a,b"][..], "aab"),
        (&["-n", "3", "-H", "a", "-H", "b"], "aab"),
        (&["-n", "3", "-f", "list"], "aab"),
        (&["-n", "3", "-machinefile", "list"], "aab"),
        (&["--ntasks", "3", "-w", "a,b", "-m", "cyclic"], "aba"),
        (&["-n", "3", "-hosts", "a,b", "-ppn", "1", "-N", "3"], "error"),
        (&["-n", "3", "-hosts", "a,b,c", "-ppn", "2"], "aab"),
        (&["-n", "3", "--host", "a:1,b:3", "--map-by", "slot"], "abb"),
        (&["-n", "3", "--host", "a:2,b:3", "--map-by", "slot"], "aab"),
        (&["-n", "3", "--host", "a:1,b:3", "--map-by", "node"], "abb"),
        (&["-n", "3", "--host", "a:1,b:1", "--oversubscribe"], "aab"),
        (&["-n", "3", "--host", "a:1,b:1", "--oversubscribe", "--nooversubscribe"], "error"),
    ] {
        if expected == "error" {
            let words = [words, &["-t", "prog_real"]].concat();
            let seen = room.run(&mut room.launcher(&words));
            assert_eq!(seen.code, Some(125), "{words:?}");
        } else {
            assert_eq!(map(words), expected, "{words:?}");
        }
    }
}

/// Quiet is without warnings, not without the cause of a failure.
#[test]
fn quiet_jobs_still_say_what_failed() {
    let room = Room::new();
    let seen = room.run(&mut room.launcher(&[
        "-q",
        "-n",
        "1",
        "-N",
        "2",
        "sh",
        "-c",
        "echo $GASNET_QUIET; exit 3",
    ]));
    assert_eq!((seen.code, seen.out.as_str()), (Some(3), "1\n"));
    assert!(!seen.err.contains("warning") && seen.err.contains("code 3"), "{}", seen.err);
}

#[test]
fn ranks_are_bound_and_a_picture_shows_it() {
    let host = supervisor::binding::Topology::of_this_host().expect("this host");
    let cores = host.parts(supervisor::plan::Part::Core);
    let room = Room::new();
    for words in [
        &["--bind-to", "core"][..],
        &["-bind-to", "core"],
        &["--cpu-bind=cores"],
        &["--map-by", "core"],
        &["--map-by", "slot:PE=1"],
    ] {
        let line = [&["-n", "1", "--report-bindings"], words, &["sh", "-c", CPUS]].concat();
        let seen = room.run(room.launcher(&line).envs([QUIET]));
        assert_eq!(seen.code, Some(0), "{words:?} {}", seen.err);
        let first = supervisor::binding::ranges(&cores[0]);
        assert_eq!(seen.out, format!("0 {first}\n"), "{words:?}");
        let pictures =
            seen.err.lines().filter(|line| line.starts_with("gasnetrun_ibv: host $HOST, socket "));
        let text: Vec<_> = pictures.collect();
        assert_eq!(text.len(), host.parts(supervisor::plan::Part::Socket).len(), "{}", seen.err);
        assert!(text[0].contains(": [0]"), "{}", seen.err);
        let dry = room.run(&mut room.launcher(&[&["-t"], line.as_slice()].concat()));
        assert!(dry.out.contains("binding      socket "), "{}", dry.out);
    }
    // Sockets are shared.
    let sockets = host.parts(supervisor::plan::Part::Socket);
    let all = lines(&["-n", "2", "--map-by", "ppr:2:socket", "sh", "-c", CPUS]);
    let first = supervisor::binding::ranges(&sockets[0]);
    assert_eq!(all, [format!("0 {first}"), format!("1 {first}")]);
}

/// Another directory than here is looked for where ranks are.
#[test]
fn a_working_directory_that_only_other_hosts_have() {
    let room = Room::new();
    let words = ["-t", "-n", "1", "--wdir", "/only/there", "--hosts", "other.example", "prog_real"];
    let mut command = room.launcher(&words);
    let seen = room.run(command.env("GASNET_SSH_REMOTE_PATH", "/elsewhere"));
    assert_eq!(seen.code, Some(0), "{}", seen.err);
    assert!(seen.out.contains("directory    /only/there\n"), "{}", seen.out);
    assert!(!seen.out.contains("/elsewhere"), "{}", seen.out);
}

#[test]
fn several_programs_have_their_own_ranks_variables_and_directories() {
    let show = "echo $GASNETRUN_RANK/$GASNETRUN_SIZE $GASNETRUN_LOCAL_RANK $A $B $PWD $1";
    let first =
        ["-n", "1", "-genv", "B", "2", "-x", "A=1", "--wdir", "/", "sh", "-c", show, "x", "y:z"];
    let second = [":", "-np", "2", "-env", "A", "3", "sh", "-c", "cd /usr; eval \"$0\"", show];
    let third = [":", "-n", "1", "-wdir", "/usr", "--", "sh", "-c", show, "x", ":"];
    let words = [&first[..], &second, &third].concat();
    assert_eq!(
        lines(&words),
        ["0/4 0 1 2 / y:z", "1/4 1 3 2 /usr", "2/4 2 3 2 /usr", "3/4 3 2 /usr :"]
    );
    // Behind -- a colon is an argument.
    assert_eq!(lines(&["-n", "1", "--", "sh", "-c", "echo $1", "x", ":", "-n", "1"]), [":"]);
}

#[test]
fn a_dry_run_shows_every_program() {
    let room = Room::new();
    let words = [
        "-t",
        "-n",
        "2",
        "-x",
        "A=b c",
        "prog_real",
        "x",
        ":",
        "-n",
        "1",
        "-wdir",
        "/",
        "env",
        "prog_real",
    ];
    let seen = room.run(&mut room.launcher(&words));
    assert_eq!(seen.code, Some(0), "{}", seen.err);
    let env = crate::room::tool("env");
    let expected = format!(
        "program      $DIR/prog_real (ranks 0 to 1)\n  execute    $DIR/prog_real\n  arguments  x\n  variables  A='b c'\n\
         program      $DIR/prog_real (rank 2)\n  wrapper    {env}\n  execute    {env}\n  arguments  $DIR/prog_real\n  \
         directory  /\ndirectory    $DIR\n"
    );
    assert!(seen.out.starts_with(&expected), "{}", seen.out);
    assert!(seen.out.contains("rank 2       host $HOST"), "{}", seen.out);
}
