//! What values of options are, and what the table of options must be.

use super::*;

#[test]
fn signals_are_names_or_numbers() {
    for text in ["TERM", "term", "SIGTERM", "15"] {
        assert_eq!(signal(text), Ok(libc::SIGTERM), "{text}");
    }
    for text in ["", "0", "-1", "999", "SIGNOTHING"] {
        assert!(signal(text).is_err(), "{text}");
    }
}

#[test]
fn counts_are_whole_and_positive() {
    assert_eq!(ranks("4"), Ok(4));
    assert_eq!(ranks("007"), Ok(7));
    for bad in
        ["", "0", "2x", "2.5", "-1", "+3", " 4", "4294967296", "99999999999999999999999", "0x4"]
    {
        assert!(ranks(bad).is_err(), "{bad}");
    }
    assert_eq!(cpus("0"), Ok(0));
    assert!(cpus("-1").is_err());
}

#[test]
fn map_rules() {
    let rule = |text: &str| {
        let flags = Flags::try_parse_from(["x", &format!("--map={text}")]);
        flags.map(|flags| flags.map).map_err(|error| error.to_string())
    };
    assert_eq!(rule("block"), Ok(MapRule::Block));
    assert_eq!(rule("cyclic"), Ok(MapRule::Cyclic));
    assert_eq!(rule("./block"), Ok(MapRule::File("./block".into())));
    assert!(rule("").expect_err("nothing").contains("--map cyclic"));
}

#[test]
fn durations() {
    for (text, ms) in [
        ("90", 90_000),
        ("1.5", 1500),
        ("2m", 120_000),
        ("1h", 3_600_000),
        ("5s", 5000),
        (".5s", 500),
    ] {
        assert_eq!(duration(text), Ok(Duration::from_millis(ms)), "{text}");
    }
    for bad in ["", "s", "0", "0.0m", "-1", "1d", "1e9", "inf", "nan", "1.2.3", "99999999999h", "é"]
    {
        assert!(duration(bad).is_err(), "{bad}");
    }
}

#[test]
fn stdin_receivers() {
    assert_eq!(stdin_to("none"), Ok(StdinTo::None));
    assert_eq!(stdin_to("all"), Ok(StdinTo::All));
    assert_eq!(stdin_to("3"), Ok(StdinTo::Rank(Rank(3))));
    assert!(
        stdin_to("some").is_err() && stdin_to("-1").is_err() && stdin_to("4294967296").is_err()
    );
}

#[test]
fn table_is_consistent() {
    command().debug_assert();
    let mut shorts = std::collections::BTreeSet::new();
    let mut longs = std::collections::BTreeSet::new();
    let mut table = command();
    table.build();
    for arg in table.get_arguments() {
        assert!(arg.get_short().is_some() || arg.get_long().is_some(), "{arg:?} is positional");
        assert!(arg.get_short().is_none_or(|s| shorts.insert(s)), "{arg:?}");
        assert!(arg.get_long().is_none_or(|l| longs.insert(l.to_owned())), "{arg:?}");
        let doc = arg.get_help().map(ToString::to_string).unwrap_or_default();
        assert!(!doc.is_empty() && !doc.ends_with('.'), "{}: {doc:?}", arg.get_id());
        if arg.get_action().takes_values() {
            assert!(
                arg.get_value_names().is_some_and(|names| !names.is_empty()),
                "{}",
                arg.get_id()
            );
        }
    }
}
