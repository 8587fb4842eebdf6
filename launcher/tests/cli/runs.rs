//! What the launcher itself adds to a job: exit codes, summary, progress, report, environment.
//! Streams, signals and faults are tested with the supervisor.

use crate::room::Room;

const QUIET: (&str, &str) = ("GASNET_QUIET", "1");

#[test]
fn plain_copies_know_their_number_and_the_environment_is_whole() {
    let room = Room::new();
    let script =
        "printf '%s\\n' \"$GASNETRUN_RANK/$GASNETRUN_SIZE $ODD $LANG $GASNET_IBV_SPAWNER\"";
    let mut command =
        room.launcher(&["-n", "3", "-E", "ODD,NOT_SET", "env", "LANG=xx", "sh", "-c", script]);
    let seen = room.run(command.envs([
        QUIET,
        ("ODD", "a'b\"c\\ d"),
        ("LANG", "yy"),
        ("GASNETRUN_RANK", "9"),
    ]));
    assert_eq!((seen.code, seen.err.as_str()), (Some(0), ""));
    let mut lines: Vec<_> = seen.out.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["0/3 a'b\"c\\ d xx ssh", "1/3 a'b\"c\\ d xx ssh", "2/3 a'b\"c\\ d xx ssh"]);
}

#[test]
fn lists_of_variables_add_up_and_set_values() {
    let room = Room::new();
    let script = "echo $ONE $TWO $GASNET_EXITTIMEOUT";
    let words = ["-n1", "-E", "ONE=1,GASNET_EXITTIMEOUT=7", "-E", "TWO=a=b", "sh", "-c", script];
    let seen = room.run(room.launcher(&words).envs([QUIET, ("ONE", "old")]));
    assert_eq!((seen.code, seen.err.as_str(), seen.out.as_str()), (Some(0), "", "1 a=b 7\n"));
}

#[test]
fn arguments_of_any_bytes_reach_the_program() {
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt;
    let room = Room::new();
    let mut words = ["-n1", "sh", "-c", "for w; do printf '%s' \"$w\" | od -An -tx1; done", "--"]
        .map(OsString::from)
        .to_vec();
    words.extend([b"\xff\n%041".to_vec(), Vec::new(), b"-n".to_vec()].map(OsString::from_vec));
    let seen = room.run(room.launcher(&words).envs([QUIET]));
    assert_eq!((seen.code, seen.err.as_str()), (Some(0), ""));
    assert_eq!(seen.out, " ff 0a 25 30 34 31\n 2d 6e\n");
}

#[test]
fn the_first_cause_is_summed_up_and_reported() {
    let room = Room::new();
    let script = "echo last words >&2; exit 7";
    let mut command = room.launcher(&["-n", "1", "--report", "r.json", "sh", "-c", script]);
    let seen = room.run(command.envs([QUIET]));
    assert_eq!(seen.code, Some(7), "{}", seen.err);
    for part in [
        "gasnetrun_ibv: rank 0 of 1 on host $HOST (pid ",
        "exited with code 7",
        "    last words\n",
        "  try: ",
    ] {
        assert!(seen.err.contains(part), "{part:?} is missing in {}", seen.err);
    }
    let text = std::fs::read(room.path().join("r.json")).expect("a report");
    let report: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
    assert_eq!((&report["exit_code"], &report["cause"]["code"]), (&7.into(), &7.into()));
    assert_eq!(report["ranks"][0]["end"]["code"], 7);
    assert_eq!(report["plan"]["argv"][2], script);
    assert!(
        report["phases"]["done"].as_f64() > Some(0.0) && report["failure"].is_null(),
        "{report}"
    );
}

#[test]
fn the_time_limit_has_its_code() {
    let room = Room::new();
    let seen =
        room.run(room.launcher(&["--timeout", "0.2s", "-n", "2", "sleep", "60"]).envs([QUIET]));
    assert_eq!(seen.code, Some(124), "{}", seen.err);
    assert!(seen.err.contains("time limit") && seen.err.contains("--timeout"), "{}", seen.err);
}

#[test]
fn progress_in_lines() {
    let room = Room::new();
    for mode in ["plain", "bar"] {
        let mut command = room.launcher(&["--progress", mode, "-n", "2", "sh", "-c", "exit 0"]);
        let seen = room.run(command.envs([QUIET]));
        assert_eq!(seen.code, Some(0), "{}", seen.err);
        for line in ["2 of 2 ranks are started", "2 of 2 ranks have ended"] {
            assert_eq!(seen.err.matches(line).count(), 1, "{mode}: {}", seen.err);
        }
    }
    let seen = room.run(room.launcher(&["-n", "2", "sh", "-c", "exit 0"]).envs([QUIET]));
    assert_eq!(seen.err, "");
}

#[test]
fn verbosity_reaches_the_ranks() {
    let room = Room::new();
    let script = "echo ${GASNET_VERBOSEENV-unset} ${GASNET_SPAWN_VERBOSE-unset}";
    for (flags, expected) in [
        (&[][..], "unset unset\n"),
        (&["-v"], "1 unset\n"),
        (&["-v", "-v"], "1 1\n"),
        (&["-k"], "1 unset\n"),
    ] {
        let words = [flags, &["-n", "1", "sh", "-c", script]].concat();
        let seen = room.run(room.launcher(&words).envs([QUIET]));
        assert_eq!((seen.code, seen.out.as_str()), (Some(0), expected), "{flags:?} {}", seen.err);
        assert_eq!(seen.err.is_empty(), flags.is_empty(), "{}", seen.err);
    }
}

#[test]
fn an_interpreter_that_is_missing_is_not_executable() {
    let room = Room::new();
    let path = room.path().join("script");
    std::fs::write(&path, "#!/nonexistent/interpreter\n").expect("write");
    let seen = room.run(room.launcher(&["-n", "2", "./script"]).envs([QUIET]));
    assert_eq!(seen.code, Some(126), "{}", seen.err);
    assert!(seen.err.contains("$DIR/script") && seen.err.contains("interpreter"), "{}", seen.err);
}

#[test]
fn working_directory_and_bound_ranks() {
    let room = Room::new();
    let mut command = room.launcher(&[
        "--wdir",
        "folder",
        "-c",
        "1",
        "-n",
        "1",
        "sh",
        "-c",
        "pwd; grep Cpus_allowed_list /proc/self/status",
    ]);
    let seen = room.run(command.envs([QUIET]));
    assert_eq!(seen.code, Some(0), "{}", seen.err);
    let mut lines = seen.out.lines();
    assert_eq!(lines.next(), Some("$DIR/folder"));
    let cpus = lines.next().and_then(|line| line.split_whitespace().nth(1)).expect("a set");
    assert!(cpus.parse::<u32>().is_ok(), "{cpus}");
}
