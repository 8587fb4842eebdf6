//! Variables: bad values stop the launch, unknown names are warned about, `--print-settings` shows
//! all.

use crate::room::Room;

#[test]
fn a_bad_value_stops_the_launch() {
    let room = Room::new();
    let mut command = room.launcher(&["-n", "2", "prog_real"]);
    let seen = room.run(command.env("GASNET_EXITTIMEOUT", "soon").env("GASNET_BACKTRACE", "maybe"));
    assert_eq!((seen.code, seen.out.as_str()), (Some(125), ""), "{}", seen.err);
    for part in ["GASNET_EXITTIMEOUT", "\"soon\"", "GASNET_BACKTRACE", "\"maybe\"", "expected"] {
        assert!(seen.err.contains(part), "{part} is missing in {}", seen.err);
    }
}

#[test]
fn an_unknown_name_is_a_warning_with_a_near_match() {
    let room = Room::new();
    let mut command = room.launcher(&["-t", "-n", "2", "prog_real"]);
    let seen = room.run(command.env("GASNET_EXITTIMEOUTT", "3"));
    assert_eq!(seen.code, Some(0), "{}", seen.err);
    assert!(
        seen.err.contains("warning: ") && seen.err.contains("did you mean GASNET_EXITTIMEOUT?"),
        "{}",
        seen.err
    );
    let seen = room.run(command.env("GASNET_QUIET", "yes"));
    assert!(!seen.err.contains("warning"), "{}", seen.err);
}

#[test]
fn print_settings_needs_no_job_and_survives_bad_values() {
    let room = Room::new();
    let seen = room.run(room.launcher(&["--print-settings"]).env("GASNET_EXITTIMEOUT", "soon"));
    assert_eq!(seen.code, Some(0), "{}", seen.err);
    let line =
        seen.out.lines().find(|line| line.starts_with("GASNET_EXITTIMEOUT ")).expect("its line");
    assert!(line.contains("ERROR") && line.contains("soon"), "{line}");
    assert!(seen.out.lines().any(|line| line.starts_with("GASNET_BACKTRACE ")), "{}", seen.out);
}

/// The launcher of an installed tree with these defaults.
fn installed(room: &Room, defaults: &str) -> std::process::Command {
    let tree = room.path().join("tree");
    for folder in ["bin", "share/gasnet-ibv"] {
        std::fs::create_dir_all(tree.join(folder)).expect("folder");
    }
    let launcher = tree.join("bin/gasnetrun_ibv");
    if !launcher.exists() {
        std::fs::copy(env!("CARGO_BIN_EXE_gasnetrun_ibv"), &launcher).expect("copy");
    }
    std::fs::write(tree.join("share/gasnet-ibv/defaults"), defaults).expect("defaults");
    let mut command = std::process::Command::new(launcher);
    command.current_dir(room.path()).env_clear().env("PATH", "/usr/bin:/bin");
    command
}

#[test]
fn defaults_of_the_installation_count_where_nothing_is_set() {
    let room = Room::new();
    let defaults = "gasnet-ibv defaults 1\nGASNET_IBV_SPAWNER=ssh\nGASNET_EXITTIMEOUT=9\n\
                    PMIRUN_CMD=srun -n %N %C\nend\n";
    let seen = room.run(installed(&room, defaults).args(["-t", "-n", "2", "prog_real"]));
    assert_eq!(seen.code, Some(0), "{}", seen.err);
    assert!(seen.out.contains("exit bound   9 s"), "{}", seen.out);
    let mut command = installed(&room, defaults);
    let seen = room.run(command.env("GASNET_IBV_SPAWNER", "ssh").arg("--print-settings"));
    let line = |name: &str| {
        let found = seen.out.lines().find(|line| line.starts_with(name)).expect("its line");
        found.to_owned()
    };
    assert!(line("GASNET_IBV_SPAWNER ").ends_with("(environment; default: ssh)"), "{}", seen.out);
    assert!(line("PMIRUN_CMD ").contains("(installation; default: unset)"), "{}", seen.out);
}

#[test]
fn a_damaged_file_of_defaults_is_named() {
    let room = Room::new();
    for (defaults, part) in [
        ("", "does not begin with the line"),
        ("gasnet-ibv defaults 1\nGASNET_NUM_QPS=2\n", "the line \"end\" is missing"),
        ("gasnet-ibv defaults 1\nGASNET_NUM_QPS=two\nend\n", "line 2, \"GASNET_NUM_QPS=two\""),
    ] {
        let seen = room.run(installed(&room, defaults).args(["-n", "2", "prog_real"]));
        assert_eq!((seen.code, seen.out.as_str()), (Some(125), ""), "{}", seen.err);
        let place = "$DIR/tree/share/gasnet-ibv/defaults";
        assert!(seen.err.contains(place) && seen.err.contains(part), "{}", seen.err);
    }
}
