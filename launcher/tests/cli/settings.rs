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
