//! The exact calls that other systems make, as dry runs against golden texts.

use crate::room::{Room, tool};

/// Facts about a job of `ranks` unbound ranks with nothing special.
fn golden(
    program: &str,
    wrapper: &str,
    execute: &str,
    arguments: &str,
    environment: &str,
    ranks: u32,
) -> String {
    let mut text = format!("program      {program}\n");
    if !wrapper.is_empty() {
        text += &format!("wrapper      {wrapper}\n");
    }
    text += "kind         GASNet program: ibv conduit, ssh spawner\n";
    text += &format!("execute      {execute}\n");
    text += format!("arguments    {arguments}").trim_end();
    text += &format!(
        "\ndirectory    $DIR\nspawner      ssh (on this host only)\nhosts        $HOST\nenvironment  {environment}\n\
         stdin        rank 0\noutput       merged by lines\ntime limit   none\nexit bound   {} s\n",
        2.0 + f64::from(ranks) / 4.0
    );
    for rank in 0..ranks {
        text += &format!("{:<12} host $HOST, cpus not bound\n", format!("rank {rank}"));
    }
    text
}

#[test]
fn chapel() {
    let room = Room::new();
    let many: Vec<String> = (0..900).map(|i| format!("CHAPEL_TEST_VARIABLE_{i:04}")).collect();
    let list = format!("PATH,BASH_FUNC_module%%,LINES_OF_TEXT,NOT_SET_HERE,{},_", many.join(","));
    assert!(list.len() > 20_000);
    let words = [
        "-t",
        "-n",
        "4",
        "-N",
        "1",
        "-c",
        "0",
        "-E",
        &list,
        "env",
        "LANG=C",
        "prog_real",
        "-nl",
        "4",
    ];
    let mut command = room.launcher(&words);
    command
        .env("BASH_FUNC_module%%", "() { eval `modulecmd bash $*`\n}")
        .env("LINES_OF_TEXT", "a\nb\n\u{fc}");
    let seen = room.run(&mut command);
    assert_eq!(seen.code, Some(0), "{}", seen.err);
    // Three of the launcher's own, and spawner, GASNET_VERBOSEENV (-t implies -v) and Open MPI's
    // switch.
    let environment = format!(
        "the launcher's own, 7 variables; -E names 3 that are set: BASH_FUNC_module%% LINES_OF_TEXT PATH; skipped, not \
         set: {} NOT_SET_HERE _",
        many.join(" ")
    );
    let env = tool("env");
    let expected = golden(
        "$DIR/prog_real",
        &format!("{env} LANG=C"),
        &env,
        "LANG=C $DIR/prog_real -nl 4",
        &environment,
        4,
    );
    assert_eq!(seen.out, expected);
    assert!(!seen.err.contains("plain program"), "{}", seen.err);
}

#[test]
fn upcxx_run() {
    let room = Room::new();
    let words = [
        "-v",
        "-t",
        "-E",
        "UPCXX_INSTALL,PATH",
        "-N",
        "1",
        "-n",
        "4",
        "./prog_real",
        "-x",
        "a b",
        "--",
        "",
    ];
    let seen = room.run(&mut room.launcher(&words));
    assert_eq!(seen.code, Some(0), "{}", seen.err);
    let environment = "the launcher's own, 5 variables; -E names 1 that are set: PATH; skipped, not set: UPCXX_INSTALL";
    assert_eq!(
        seen.out,
        golden("$DIR/prog_real", "", "$DIR/prog_real", "-x 'a b' -- ''", environment, 4)
    );
}

#[test]
fn legion() {
    let room = Room::new();
    // The wrapper need not be installed for this test: any executable in front of the program is
    // one.
    std::fs::copy(room.path().join("script"), room.path().join("numactl")).expect("copy");
    let words = [
        "-t",
        "-n",
        "16",
        "numactl",
        "--membind=0",
        "--cpunodebind=0",
        "./prog_real",
        "-ll:cpu",
        "1",
    ];
    let seen = room.run(&mut room.launcher(&words));
    assert_eq!(seen.code, Some(0), "{}", seen.err);
    assert_eq!(
        seen.out,
        golden(
            "$DIR/prog_real",
            "$DIR/numactl --membind=0 --cpunodebind=0",
            "$DIR/numactl",
            "--membind=0 --cpunodebind=0 $DIR/prog_real -ll:cpu 1",
            "the launcher's own, 5 variables",
            16
        )
    );
}

#[test]
fn glued_spellings_and_last_value_wins() {
    let room = Room::new();
    for words in [
        &["-np2", "-t", "prog_real"][..],
        &["-t", "-n", "9", "-np", "2", "--", "prog_real"],
        &[
            "-n2",
            "-N5",
            "-N1",
            "-c1",
            "-c0",
            "-spawner=mpi",
            "-spawner=SSH",
            "-t",
            "-t",
            "prog_real",
        ],
        &["--timeout", "3", "-n", "2", "-t", "--spawner=ssh", "prog_real"],
    ] {
        let seen = room.run(&mut room.launcher(words));
        assert_eq!(seen.code, Some(0), "{words:?} {}", seen.err);
        let time = if words[0] == "--timeout" { "3 s" } else { "none" };
        let expected = golden(
            "$DIR/prog_real",
            "",
            "$DIR/prog_real",
            "",
            "the launcher's own, 5 variables",
            2,
        )
        .replace("time limit   none", &format!("time limit   {time}"));
        assert_eq!(seen.out, expected, "{words:?}");
    }
}

#[test]
fn python_client_is_a_plain_program() {
    let room = Room::new();
    let words = ["-t", "-n", "4", "script", "-v"];
    let seen = room.run(&mut room.launcher(&words));
    assert_eq!(seen.code, Some(0));
    assert!(seen.out.contains("kind         plain program\n"), "{}", seen.out);
    assert_eq!(seen.err.matches("plain program").count(), 1, "{}", seen.err);
    let seen = room.run(room.launcher(&words).env("GASNET_QUIET", "1"));
    assert!(!seen.err.contains("plain program"), "{}", seen.err);
}

#[test]
fn a_program_whose_name_begins_with_a_dash() {
    let room = Room::new();
    std::fs::rename(room.path().join("prog_real"), room.path().join("-prog")).expect("rename");
    let seen = room.run(&mut room.launcher(&["-t", "-n", "1", "--", "-prog", "-n", "2"]));
    assert_eq!(seen.code, Some(0), "{}", seen.err);
    assert_eq!(
        seen.out,
        golden("$DIR/-prog", "", "$DIR/-prog", "-n 2", "the launcher's own, 5 variables", 1)
    );
}

#[test]
fn binding_map() {
    let room = Room::new();
    let seen = room.run(&mut room.launcher(&["-t", "-n", "1", "-c", "1", "prog_real"]));
    assert_eq!(seen.code, Some(0), "{}", seen.err);
    let line = seen.out.lines().last().expect("a map");
    let cpus = line.strip_prefix("rank 0       host $HOST, cpus ").expect("a bound rank");
    assert!(cpus.parse::<usize>().is_ok(), "{line}");
}

#[test]
fn the_map_of_several_hosts() {
    let room = Room::new();
    let words = [
        "-t",
        "-n",
        "5",
        "-N",
        "3",
        "-c",
        "2",
        "-E",
        "PATH",
        "--hosts",
        "n[1-2] me@n3:2222",
        "prog_real",
    ];
    let mut command = room.launcher(&words);
    command.env("GASNET_SSH_OPTIONS", "-o 'LogLevel ERROR'").env("GASNET_SSH_OUT_DEGREE", "2");
    command.env("GASNET_QUIET", "1");
    let seen = room.run(&mut command);
    assert_eq!(seen.code, Some(0), "{}", seen.err);
    let between = |first: &str, last: &str| {
        let from = seen.out.find(first).expect(first);
        let to = seen.out.find(last).expect(last);
        seen.out[from..to].to_owned()
    };
    assert_eq!(
        between("spawner ", "environment "),
        "spawner      ssh\nhosts        3: n1 n2 me@n3:2222 (from --hosts)\n\
         reached by   auto -o 'LogLevel ERROR', at most 2 hosts from each\n"
    );
    assert_eq!(
        between("environment ", "stdin "),
        "environment  that of a login on each host, with 6 variables from here: GASNETRUN_CHECKED GASNET_IBV_SPAWNER \
         GASNET_QUIET GASNET_VERBOSEENV OMPI_MCA_mpi_warn_on_fork PATH; -E names 1 that are set: PATH\n"
    );
    assert!(!seen.out.contains("the launcher's own") && seen.err.contains("login on each host"));
    let map = &seen.out[seen.out.find("rank 0 ").expect("a map")..];
    assert_eq!(
        map,
        "rank 0       host n1, cpus allowed[0-1]\nrank 1       host n1, cpus allowed[2-3]\n\
         rank 2       host n2, cpus allowed[0-1]\nrank 3       host n2, cpus allowed[2-3]\n\
         rank 4       host me@n3:2222, cpus allowed[0-1]\n"
    );
}

#[test]
fn chapel_under_slurm() {
    let room = Room::new();
    let words = ["-t", "-n", "4", "-N", "4", "-c", "0", "-E", "PATH", "prog_real", "-nl", "4"];
    let mut command = room.launcher(&words);
    // Unless somebody says so, srun starts the ranks where it is installed.
    command.env("GASNET_IBV_SPAWNER", "ssh");
    command.env("SLURM_JOB_ID", "7").env("SLURM_JOB_NODELIST", "nid[00008-00011]");
    let seen = room.run(&mut command);
    assert_eq!(seen.code, Some(0), "{}", seen.err);
    for (rank, host) in (0..4).zip(["nid00008", "nid00009", "nid00010", "nid00011"]) {
        let line = format!("rank {rank}       host {host}, cpus not bound\n");
        assert!(seen.out.contains(&line), "{}", seen.out);
    }
}

#[test]
fn maps_other_than_the_default() {
    let room = Room::new();
    std::fs::write(room.path().join("hosts"), "# mine\nn1 slots=1\nn2\n").expect("write list");
    std::fs::write(room.path().join("map"), "0,3 n2\n* n1\n").expect("write map");
    for (map, hosts) in [("cyclic", ["n1", "n2", "n2", "n2"]), ("map", ["n2", "n1", "n1", "n2"])] {
        let words = ["-t", "-n", "4", "--hostfile", "hosts", "--map", map, "prog_real"];
        let seen = room.run(&mut room.launcher(&words));
        if map == "map" {
            assert_eq!(seen.code, Some(125), "n1 has one slot");
            assert!(seen.err.contains("1 too many"), "{}", seen.err);
            std::fs::write(room.path().join("hosts"), "n1\nn2\n").expect("write list");
        }
        let seen = room.run(&mut room.launcher(&words));
        assert_eq!(seen.code, Some(0), "{}", seen.err);
        for (rank, host) in hosts.iter().enumerate() {
            let line = format!("rank {rank}       host {host}, cpus not bound\n");
            assert!(seen.out.contains(&line), "{}", seen.out);
        }
    }
}

#[test]
fn a_dry_run_changes_nothing() {
    let room = Room::new();
    let before = room.entries();
    let words = [
        "-t",
        "-k",
        "-n",
        "2",
        "--report",
        "r.json",
        "--output-dir",
        "out",
        "--tag-output",
        "--stdin",
        "none",
        "./script",
    ];
    let seen = room.run(&mut room.launcher(&words));
    assert_eq!(seen.code, Some(0), "{}", seen.err);
    assert_eq!(room.entries(), before);
    assert!(seen.err.contains("no temporary files"), "{}", seen.err);
    for part in ["stdin        nobody", "merged by lines, tagged with the rank, copied to $DIR/out"]
    {
        assert!(seen.out.contains(part), "{}", seen.out);
    }
}

#[test]
fn hosts_are_reduced_with_a_warning() {
    let room = Room::new();
    let seen = room.run(&mut room.launcher(&["-t", "-n", "1", "-N", "3", "prog_real"]));
    assert_eq!(seen.code, Some(0));
    assert!(
        seen.err.contains("warning: -N 3") && seen.err.contains("reduced to -N 1"),
        "{}",
        seen.err
    );
}
